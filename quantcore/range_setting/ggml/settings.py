"""ggml's searches for the scale (and min) of a group, as range settings.

Source: ggml 0.13.1, src/ggml-quants.c. All arithmetic is float32 in C's order, as in x86-64 builds without
fused multiply-add. A build that contracts a·b + c (most arm64 builds) writes about 0.2 % of the bytes differently;
that is not reproduced.
"""

from dataclasses import dataclass

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.formats import CodebookFormat, Format, IntFormat
from quantcore.range_setting.ggml import affine, symmetric
from quantcore.range_setting.ggml.arithmetic import Floats, GroupScales, Record, Weighting
from quantcore.range_setting.ggml.search import Search

MAX_STEPS = 1000
_AFFINE = (
    "unsigned asymmetric codes of at most 8 bits",
    lambda fmt, symmetric: isinstance(fmt, IntFormat) and not fmt.signed and not symmetric and fmt.bits <= 8,
)
_SYMMETRIC = (
    "symmetric full-range integer codes of at most 8 bits",
    lambda fmt, symmetric: isinstance(fmt, IntFormat) and symmetric and not fmt.narrow and fmt.bits <= 8,
)


def _steps(value: object, what: str = "nstep") -> int:
    steps = notation.integer(value, what)
    if not 0 <= steps <= MAX_STEPS:
        raise QuantError(f"{what}={steps} is outside 0..{MAX_STEPS}.")
    return steps


def _is_ascending(fmt: Format) -> bool:
    """Whether it is a codebook of integers in ascending order."""
    ascending = isinstance(fmt, CodebookFormat) and list(fmt.values) == sorted(fmt.values)
    return ascending and all(v == int(v) and abs(v) <= 128 for v in fmt.values)  # type: ignore[union-attr]


def _check_weights(name: str, allowed: tuple[str, ...]) -> None:
    if name not in allowed:
        raise QuantError(f"weights must be one of {', '.join(allowed)}, not {str(name)[:40]!r}.")


@dataclass(frozen=True)
class MakeQkx2(Search):
    """Scale and min with the least weighted error in nstep + 2 trials, all but the first refined by least squares.

    The trials are nmax/(max - min) and (rmin + rdelta·i + nmax)/(max - min), i = 0 … nstep; a better one also
    replaces the min that later trials start from. ``weights``: "abs" |x| · "rms_plus_abs" √(mean x²) + |x|.
    ``use_mad``: the error is |difference|, else its square. ggml-quants.c, make_qkx2_quants (Q2_K, Q4_K, Q5_K).

    Raises:
        QuantError: nstep is not an integer from 0 to 1000, or ``weights`` is not one of these names.
    """

    DIVISOR = "(max - min)"
    CODES = _AFFINE

    rmin: float
    rdelta: float
    nstep: int
    weights: str = "rms_plus_abs"
    use_mad: bool = False

    def __post_init__(self) -> None:
        _set_affine(self)
        _check_weights(self.weights, ("abs", "rms_plus_abs"))

    @property
    def weighting(self) -> Weighting:
        """How the elements are weighted."""
        return Weighting(self.weights)

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Search every group."""
        return affine.make_qkx(x, w, _affine(self, fmt), record)


@dataclass(frozen=True)
class MakeQkx3(Search):
    """`MakeQkx2` with the importance of each element: the weights are importance · √(sigma2·mean x² + x²).

    The mean is taken over ``over`` elements (a super-block), or over the row if that is 0. ggml-quants.c,
    make_qkx3_quants (Q2_K, Q4_K, Q5_K, Q4_1, Q5_1 with an imatrix).

    Raises:
        QuantError: nstep is not an integer from 0 to 1000, or ``over`` or ``sigma2`` is negative.
    """

    DIVISOR = "(max - min)"
    CODES = _AFFINE

    rmin: float
    rdelta: float
    nstep: int
    sigma2: float = 1.0
    over: int = 256
    use_mad: bool = False

    def __post_init__(self) -> None:
        _set_affine(self)
        _set_sigma(self)

    @property
    def weighting(self) -> Weighting:
        """How the elements are weighted."""
        return Weighting("importance_rms", self.sigma2, self.over)

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Search every group."""
        return affine.make_qkx(x, w, _affine(self, fmt), record)


@dataclass(frozen=True)
class MakeQ3(Search):
    """The scale with the least squared error weighted by x²: codes by -2^(bits-1)/extreme, then adjusted one by one.

    A code is changed if that improves the fit of the group, in up to five passes. ggml-quants.c, make_q3_quants (Q3_K).
    """

    CODES = _SYMMETRIC

    @property
    def weighting(self) -> Weighting:
        """How the elements are weighted."""
        return Weighting("square")

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Search every group."""
        return symmetric.make_q3(x, 1 << (fmt.bits - 1), record)


@dataclass(frozen=True)
class MakeQx(Search):
    """The scale with the least weighted squared error among 19 trials -(2^(bits-1) + 0.1·i)/extreme, i = -9 … 9.

    Each trial's scale is the least squares fit to its codes. ``weights``: "square" x² · "importance" ·
    "importance_rms" importance · √(sigma2·mean x² + x²), the mean over ``over`` elements, or over the row if 0.
    ggml-quants.c, make_qx_quants (Q6_K, and Q3_K, Q4_0, Q5_0 with an imatrix).

    Raises:
        QuantError: ``weights`` is not one of these names, or ``over`` or ``sigma2`` is negative.
    """

    CODES = _SYMMETRIC

    weights: str = "square"
    sigma2: float = 1.0
    over: int = 256

    def __post_init__(self) -> None:
        _check_weights(self.weights, ("square", "importance", "importance_rms"))
        _set_sigma(self)

    @property
    def weighting(self) -> Weighting:
        """How the elements are weighted."""
        return Weighting(self.weights, self.sigma2, self.over)

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Search every group."""
        return symmetric.make_qx(x, w, 1 << (fmt.bits - 1), record)


@dataclass(frozen=True)
class MakeIq4Nl(Search):
    """The scale with the least weighted squared error for a codebook, in 2·ntry + 2 trials based on its lowest value.

    ``weights``: "square" x² · "importance_rms" importance · √(sigma2·mean x² + x²), the mean over ``over`` elements,
    or over the row if 0.
    ggml-quants.c, quantize_row_iq4_nl_impl (IQ4_NL, IQ4_XS).

    Raises:
        QuantError: ntry is not an integer from 0 to 1000, ``weights`` is not one of these names, or ``over`` or
            ``sigma2`` is negative.
    """

    CODES = (
        "a codebook of ascending integers, such as iq4_nl",
        lambda fmt, symmetric: symmetric and _is_ascending(fmt),
    )

    ntry: int = 7
    weights: str = "square"
    sigma2: float = 2.0
    over: int = 256

    def __post_init__(self) -> None:
        object.__setattr__(self, "ntry", _steps(self.ntry, "ntry"))
        _check_weights(self.weights, ("square", "importance_rms"))
        _set_sigma(self)

    @property
    def weighting(self) -> Weighting:
        """How the elements are weighted."""
        return Weighting(self.weights, self.sigma2, self.over)

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Search every group."""
        assert isinstance(fmt, CodebookFormat)
        return symmetric.make_iq4(x, w, fmt.values, self.ntry, record)


def _set_affine(setting: MakeQkx2 | MakeQkx3) -> None:
    for name in ("rmin", "rdelta"):
        object.__setattr__(setting, name, notation.finite(getattr(setting, name), name))
    object.__setattr__(setting, "nstep", _steps(setting.nstep))
    if not isinstance(setting.use_mad, bool):
        raise QuantError(f"use_mad must be true or false, not {str(setting.use_mad)[:40]!r}.")


def _set_sigma(setting: MakeQkx3 | MakeQx | MakeIq4Nl) -> None:
    over, sigma2 = notation.integer(setting.over, "over"), notation.finite(setting.sigma2, "sigma2")
    if over < 0 or sigma2 < 0:
        raise QuantError(f"over and sigma2 must be 0 or more, not {over} and {sigma2:g}.")
    object.__setattr__(setting, "over", over)
    object.__setattr__(setting, "sigma2", sigma2)


def _affine(setting: MakeQkx2 | MakeQkx3, fmt: Format) -> affine.Steps:
    return affine.Steps(int(fmt.qmax), setting.rmin, setting.rdelta, setting.nstep, setting.use_mad)
