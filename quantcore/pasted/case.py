"""One quantizer of the code on several tensors, and what is known of it."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from quantcore.pasted.forms import Form, block_extremes, form_of, inverse_form, spread, transposed_form
from quantcore.pasted.quantizer import Chain, bounds_of, type_limits
from quantcore.pasted.trace import Val, numbers

ROOM = 1.01  # tolerated excess of the divisor, in codes: max|x| / 128 clips one code, and libraries use it


@dataclass(frozen=True)
class Found:
    """A finding before its source is added: see `CodeFinding`. ``places``: which operation's repair gives the right
    codes, "scale", "round", "zero" or "cast"; empty if the finding follows without a repair."""

    kind: str
    line: int
    what: str
    fix: str
    certain: bool = True
    places: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Case:
    """A quantizer. ``chains``: the same one on each ordinary tensor; ``place``: the lines that
    tell it from others; ``flags``: the boolean parameters that lead to it."""

    chains: list[Chain]
    place: tuple[int, ...] = ()
    flags: tuple[tuple[str, bool], ...] = ()

    @property
    def chain(self) -> Chain:
        """It on the first tensor."""
        return self.chains[0]

    @cached_property
    def form(self) -> Form:
        """What its scale is."""
        return form_of(self.chains)

    @cached_property
    def meant(self) -> tuple[Form, str]:
        """What its scale should be, and what is wrong with it if it is something else: data that is "multiplied" by it,
        or the "axis" that it is aligned with."""
        if self.form.kind != "unknown":
            return self.form, ""
        inverse = inverse_form(self.chains)
        if inverse is not None and (inverse.is_single or inverse.is_span):
            return inverse, "multiplied"
        return (self._transposed[0], "axis") if self._transposed is not None else (self.form, "")

    @cached_property
    def _transposed(self) -> tuple[Form, int] | None:
        return transposed_form(self.chains)

    def right_scale(self, chain: Chain) -> Tensor:
        """The scale of each element that ``meant`` says."""
        x = numbers(chain.data.value)
        each = spread(1 / chain.factor if self.meant[1] == "multiplied" else chain.factor, x)
        turned = self.meant[1] == "axis" and self._transposed is not None
        return each.transpose(self._transposed[1], -1) if turned and self._transposed else each

    @cached_property
    def clamped(self) -> tuple[float | None, float | None, Val | None, Val | None]:
        """`bounds_of` up to the cast, or up to the stored codes."""
        cast = self.chain.cast
        steps = self.chain.steps
        return bounds_of(steps[: steps.index(cast)] if cast is not None else steps)

    @property
    def cast_limits(self) -> tuple[int, int] | None:
        """The limits of the type that the codes are stored in."""
        return type_limits(self.chain.cast.value) if self.chain.cast is not None else None

    @property
    def dtype(self) -> str:
        """That type, as text."""
        return str(getattr(self.chain.cast.value if self.chain.cast else None, "dtype", "")).removeprefix("torch.")

    @cached_property
    def bounds(self) -> tuple[float, float] | None:
        """The codes that there are: those of the clamp, or else of the type."""
        low, high, _, _ = self.clamped
        if low is not None and high is not None:
            return low, high
        return None if self.cast_limits is None else (float(self.cast_limits[0]), float(self.cast_limits[1]))

    @property
    def clamp(self) -> Val | None:
        """The last clamp."""
        return self.clamped[2]

    @property
    def zero_varies(self) -> bool:
        """Whether the zero point depends on the tensor."""
        return any(v.varies for s in self.chain.zeros for v in s.args if v is not s.flow)

    @property
    def zero_handed(self) -> bool:
        """Whether the zero point is one that the code is given."""
        return any(v.handed for s in self.chain.zeros for v in s.args if v is not s.flow)

    @property
    def random(self) -> bool:
        """Whether something random is added before rounding."""
        return any(a.op == "random" for s in self.chain.zeros for a in _all(s) if a.op == "random")

    @property
    def zero(self) -> float | None:
        """The zero point, if it is a number."""
        value = self.chain.zero
        if self.zero_varies or self.zero_handed or value.numel() != 1:
            return None
        return float(value) - (0.5 if self.half else 0.0)

    @property
    def half(self) -> bool:
        """Whether 0.5 is added before floor, which rounds half up."""
        return self.chain.round.name == "floor" and any(
            numbers(v.value).numel() == 1 and float(numbers(v.value)) == 0.5
            for s in self.chain.before if s.op == "add" for v in s.args if v is not s.flow
        )  # fmt: skip

    @cached_property
    def one_sided(self) -> bool:
        """Whether what is quantized never has negative values."""
        return all(bool((numbers(c.data.value) >= 0).all()) for c in self.chains)

    def ends(self, chain: Chain) -> tuple[Tensor, Tensor]:
        """Lowest and highest value of the data over the scale, block by block, in codes."""
        x = numbers(chain.data.value)
        scale = spread(chain.factor, x)
        low, high = block_extremes(x, scale if chain.factor.numel() > 1 else chain.factor)
        return low / scale, high / scale


def _all(val: Val) -> tuple[Val, ...]:
    return tuple(b for a in val.args if a is not val.flow for b in (a, *a.args))


def number(value: float) -> str:
    """A number, without a decimal point if it is an integer."""
    return f"{int(value)}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def bound(value: float | None) -> str:
    """A bound of a clamp; None means unbounded."""
    return "open" if value is None else number(value)


def extreme(case: Case) -> str:
    """The extreme that a symmetric scale comes from: ``max|x|``, ``99.9th percentile of x``."""
    name = case.chain.data.name if case.chain.data.op == "input" and len(case.chain.data.name) < 20 else "x"
    form = case.form
    of = name if form.kind in ("max", "signed percentile") or case.one_sided else f"|{name}|"
    if form.p is not None:
        return f"{form.p:g}th percentile of {of}"
    if form.kind in ("percentile", "signed percentile"):
        return f"a percentile of {of}"
    return f"max{of}" if of.startswith("|") else f"max({of})"


def formula(case: Case) -> str:
    """The scale, as a formula."""
    name = case.chain.data.name if case.chain.data.op == "input" and len(case.chain.data.name) < 20 else "x"
    form = case.form
    if form.kind == "given":
        value = case.chain.factor
        return f"{float(value):.6g}" if value.numel() == 1 else "given numbers"
    if form.kind == "handed":
        return "an argument"
    if form.kind == "unknown":
        return "not recognized"
    above = f"(max({name}) - min({name}))" if form.kind == "span" else "the difference of two percentiles" if form.is_span else extreme(case)
    divisor = closest(form.divisor)
    return above.strip("()") if divisor == 1 else f"{above} / {number(divisor)}"


def closest(value: float) -> float:
    """A divisor as the code has it: an integer, or a half, if it is near one."""
    half = round(2 * value) / 2
    return half if abs(half - value) <= 2e-3 * value else value


def near(a: Tensor, b: Tensor | float, within: float = 1.01) -> bool:
    """Whether all values are closer than ``within``."""
    return bool(((a - b).abs() <= within).all())
