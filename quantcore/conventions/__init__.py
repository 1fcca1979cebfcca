"""The numerical choices in which libraries differ when all else is equal: one record per library call.

To add a library, add a module to `libraries`. A source that says "measured" means: on 300,000 near-ties on
x86-64 with AVX-512, one thread, the named arithmetic gave no difference and every other gave thousands.
"""

from quantcore.conventions.choice import Choice, SchemeFacts
from quantcore.conventions.kernels import INVERSE, KERNELS, Kernel, S, X, Z
from quantcore.conventions.libraries import records
from quantcore.conventions.record import (
    CHOICES,
    CONVENTIONS,
    DTYPES,
    STAGE_OF,
    STAGES,
    TEXTBOOK,
    VALUES,
    Convention,
    Limit,
    as_convention,
)
from quantcore.conventions.stages.coding import DECODINGS, CodingStage, middle_of
from quantcore.conventions.stages.scale import (
    INVERSE_OF_RANGE,
    LARGEST_INVERSE,
    NARROW,
    OF_RANGE,
    SPLIT,
    WIDTH,
    N,
)
from quantcore.conventions.stages.zero_point import ZERO_POINTS
from quantcore.conventions.symmetric_scales import AMAX, HIGH, LOW, SYMMETRIC_SCALES, Rule

CONVENTIONS.update({record.name: record for record in records()})
# conventions whose call supports integers of several widths, not only the format of a preset
INTEGER_CONVENTIONS: dict[str, Convention] = {
    name: record for name, record in CONVENTIONS.items() if not record.preset_only
}
