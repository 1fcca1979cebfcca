"""How ggml quantizes the scales and mins of a super-block, as range settings; `settings` describes the arithmetic."""

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
    """For positive numbers such as scales: tries nmax/max and 8 neighbors, then adjusts one code after another.

    Weighted by importance: that of a scale is the sum of the weights in its group. ggml-quants.c, make_qp_quants
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
    """For scales: max/nmax of the numbers for unsigned codes, -extreme/2^(bits-1) for signed codes.

    ``reciprocal``: for signed codes, 1/(-2^(bits-1)/extreme), which float32 rounds twice. ``least``: for signed codes,
    an extreme of smaller magnitude counts as 0. ``zero_code``: for signed codes, the code if all scales count as 0.
    ggml-quants.c, quantize_row_q4_K_ref and similar functions (the scales of K-quants without an imatrix).
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
