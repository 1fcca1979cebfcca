"""The numerical choices on which libraries differ with all else equal: one record per library call.

To add a library, add a module of records. A source that says "measured" means: on 300,000 near-ties on x86-64
with AVX-512, one thread, the named arithmetic gave no difference and every other thousands.
"""

from quantcore.conventions.case import Case
from quantcore.conventions.choice import Choice
from quantcore.conventions.libraries import (
    aimet,
    bitsandbytes,
    brevitas,
    compressed_tensors,
    gguf,
    hqq,
    microxcaling,
    onnx,
    quantcore,
    quanto,
    torch,
    torchao,
)
from quantcore.conventions.record import (
    CHOICES,
    CONVENTIONS,
    STAGE_OF,
    STAGES,
    TEXTBOOK,
    VALUES,
    Convention,
    Limit,
)
from quantcore.conventions.stages.symmetric_scales import (
    EXTREME,
    HALF_STEP,
    SYMMETRIC_SCALES,
    mantissa,
    sides_of_grid,
)

_LIBRARIES = (
    torch, torchao, aimet, onnx, compressed_tensors, brevitas, quanto, hqq, quantcore, bitsandbytes, gguf,
    microxcaling,
)  # fmt: skip
CONVENTIONS.update({record.name: record for library in _LIBRARIES for record in library.RECORDS})
# those whose call supports integers of several widths, not only the format of a preset
INTEGER_CONVENTIONS: dict[str, Convention] = {
    name: record for name, record in CONVENTIONS.items() if not record.preset_only
}

__all__ = [
    "EXTREME",
    "HALF_STEP",
    "SYMMETRIC_SCALES",
    "mantissa",
    "sides_of_grid",
    "CHOICES",
    "CONVENTIONS",
    "INTEGER_CONVENTIONS",
    "STAGES",
    "STAGE_OF",
    "TEXTBOOK",
    "VALUES",
    "Case",
    "Choice",
    "Convention",
    "Limit",
]
