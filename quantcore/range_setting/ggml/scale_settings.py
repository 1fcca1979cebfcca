"""How ggml codes the scales and mins of a super-block, as range settings of scales: `settings` says by which arithmetic."""

from dataclasses import dataclass
from typing import ClassVar

from quantcore import notation
from quantcore.formats import Format, IntFormat
from quantcore.range_setting.ggml import scales
from quantcore.range_setting.ggml.arithmetic import Floats, Found, Record
from quantcore.range_setting.ggml.search import Search
from quantcore.range_setting.ggml.weights import Weighting


@dataclass(frozen=True)
class MakeQp(Search):
    """For positive numbers such as scales: nmax/max and 8 neighbors, then codes moved one after another.

    Weighted by importance: of scales, the sum of the weights of their groups. ggml-quants.c, make_qp_quants
    (scales and mins of Q2_K, Q4_K, Q5_K with an imatrix).
    """

    DIVISOR: ClassVar[str] = "max"

    @property
    def weighting(self) -> Weighting:
        """How the elements are weighted."""
        return Weighting("importance")

    def kinds(self, fmt: Format, symmetric: bool) -> str:
        """Return what the search needs, empty if format and symmetry fit."""
        unsigned = isinstance(fmt, IntFormat) and not fmt.signed and symmetric and fmt.bits <= 8
        return "" if unsigned else "unsigned symmetric codes of at most 8 bits"

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> Found:
        """Search every group."""
        return scales.make_qp(x, w, int(fmt.qmax), record)


@dataclass(frozen=True)
class MaxScale(Search):
    """The codes of scales by the largest of them: max/nmax for unsigned codes, for signed ones -extreme/2^(bits-1).

    ``reciprocal``: signed, the scale is 1/(-2^(bits-1)/extreme), which float32 rounds twice. ``least``: signed, a
    smaller extreme counts as 0. ``zero_code``: the code of scales that are all 0. ggml-quants.c,
    quantize_row_q4_K_ref and its like (the scales of K-quants without an imatrix).
    """

    reciprocal: bool = False
    least: float = 0.0
    zero_code: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "least", notation.finite(self.least, "least"))
        object.__setattr__(self, "zero_code", notation.integer(self.zero_code, "zero_code"))

    def kinds(self, fmt: Format, symmetric: bool) -> str:
        """Return what the search needs, empty if format and symmetry fit."""
        whole = isinstance(fmt, IntFormat) and symmetric and fmt.bits <= 8
        return "" if whole else "symmetric integer codes of at most 8 bits"

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> Found:
        """Search every group."""
        if fmt.signed:
            half = 1 << (fmt.bits - 1)
            return scales.largest_magnitude(x, half, self.reciprocal, self.least, self.zero_code)
        return scales.largest_positive(x, int(fmt.qmax))
