"""One quantizer of the code on several tensors, and what is known of it."""

from dataclasses import dataclass, field, replace
from functools import cached_property

from quantcore.pasted.forms import Form, closest, form_of
from quantcore.pasted.quantizer import Chain, bounds_of, dtype_of, other, type_limits
from quantcore.pasted.trace import Val, numbers

TO_NEAREST = ("round", "rint", "around")


@dataclass(frozen=True, eq=False)
class Case:
    """A quantizer. ``chains``: the same one on each ordinary tensor; ``place``: the lines that tell it from others;
    ``flags``: the boolean parameters that lead to it; ``special``: it on the special tensors that it can be found on."""

    chains: list[Chain]
    place: tuple[int, ...] = ()
    flags: tuple[tuple[str, bool], ...] = ()
    special: dict[str, Chain] = field(default_factory=dict)

    @property
    def chain(self) -> Chain:
        """It on the first tensor."""
        return self.chains[0]

    @property
    def wide(self) -> "Case":
        """It also on the tensor with outliers, if its scale does not depend on the tensor."""
        given = "outlier" in self.special and self.form.kind in ("given", "handed")
        return replace(self, chains=[*self.chains, self.special["outlier"]]) if given else self

    @cached_property
    def form(self) -> Form:
        """What its scale is."""
        return form_of(self.chains)

    @cached_property
    def clamped(self) -> tuple[float | None, float | None, Val | None, Val | None]:
        """`bounds_of` up to the cast, or up to the stored codes."""
        cast, steps = self.chain.cast, self.chain.steps
        return bounds_of(steps[: steps.index(cast)] if cast is not None else steps)

    @property
    def clamp(self) -> Val | None:
        """The last clamp."""
        return self.clamped[2]

    @property
    def cast_limits(self) -> tuple[int, int] | None:
        """The limits of the type that the codes are stored in."""
        return type_limits(self.chain.cast.value) if self.chain.cast is not None else None

    @property
    def dtype(self) -> str:
        """That type, as text."""
        return dtype_of(self.chain.cast)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The codes that there are: those of the clamp, or else of the type."""
        low, high = self.clamped[:2]
        return (low, high) if low is not None and high is not None else self.cast_limits

    @property
    def added(self) -> list[Val]:
        """What is added to the scaled data as a zero point, or to round."""
        return [other(step) for step in self.chain.zeros]

    @property
    def zero_varies(self) -> bool:
        """Whether the zero point depends on the tensor."""
        return any(a.varies for a in self.added)

    @property
    def zero(self) -> float | None:
        """The zero point, if it is a number that the code has."""
        value = self.chain.zero
        if self.zero_varies or any(a.handed for a in self.added) or value.numel() != 1:
            return None
        return float(value) - (0.5 if self.half else 0.0)

    @property
    def random(self) -> bool:
        """Whether something random is added before rounding."""
        return any(one.op == "random" for a in self.added for one in (a, *a.args))

    @property
    def rule(self) -> str:
        """How it rounds: "round", "half up", "floor", "ceil" or "truncate"."""
        name = self.chain.round.name
        usual = "round" if name in TO_NEAREST else name if name in ("floor", "ceil") else "truncate"
        return "half up" if self.half else usual

    @property
    def half(self) -> bool:
        """Whether 0.5 is added before floor, which rounds half up."""
        added = (other(step) for step in self.chain.before if step.op == "add")
        return self.chain.round.name == "floor" and any(is_number(a, 0.5) for a in added)

    @cached_property
    def one_sided(self) -> bool:
        """Whether what is quantized never has negative values."""
        return all(bool((c.x >= 0).all()) for c in self.chains)

    @property
    def kernel(self) -> str:
        """The letter of the convention's kernel that has the code's order of division, rounding and zero point."""
        inverse = not self.form.multiplied and any(s.op == "mul" for s in self.chain.scalings)
        early = any(s.op in ("add", "sub") for s in self.chain.before) and not self.half
        return "BD"[early] if inverse else "AC"[early]


def is_number(val: Val, value: float) -> bool:
    """Whether a value is this number."""
    return numbers(val.value).numel() == 1 and float(numbers(val.value)) == value


def number(value: float) -> str:
    """A number, without a decimal point if it is an integer."""
    return f"{int(value)}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def between(low: float | None, high: float | None) -> str:
    """A range of codes; None means unbounded."""
    return "..".join("open" if end is None else number(end) for end in (low, high))


def _name(case: Case) -> str:
    data = case.chain.data
    return data.name if data.op == "input" and len(data.name) < 20 else "x"


def extreme(case: Case) -> str:
    """The extreme that a symmetric scale comes from: ``max|x|``, ``99.9th percentile of x``."""
    form, name = case.form, _name(case)
    plain = form.kind in ("max", "signed percentile") or case.one_sided
    if "percentile" in form.kind:
        which = "a" if form.p is None else f"{form.p:g}th"
        return f"{which} percentile of {name if plain else f'|{name}|'}"
    return f"max({name})" if plain else f"max|{name}|"


def formula(case: Case) -> str:
    """The scale, as a formula."""
    form, name, value = case.form, _name(case), case.chain.factor
    if form.kind == "given":
        return f"{float(value):.6g}" if value.numel() == 1 else "given numbers"
    if form.kind in ("handed", "unknown"):
        return "an argument" if form.kind == "handed" else "not recognized"
    span = f"(max({name}) - min({name}))" if form.kind == "span" else "the difference of two percentiles"
    above, divisor = span if form.is_span else extreme(case), closest(form.divisor)
    return above.strip("()") if divisor == 1 else f"{above} / {number(divisor)}"
