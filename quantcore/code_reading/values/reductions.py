"""Extremes and percentiles, of the entire tensor or along axes."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from quantcore.code_reading.values import arithmetic, extremes, operators
from quantcore.code_reading.values.arithmetic import single
from quantcore.code_reading.values.python import UNKNOWN, Nothing, Num, Seq, Unknown, Value
from quantcore.code_reading.values.quantities import Codes, Data, Dequantized, Real, Stat, Steps
from quantcore.code_reading.values.steps import clamp


@dataclass(frozen=True)
class Call:
    """A call of a recognized function. ``args``: a method's own value first; ``method``: whether it is a method."""

    name: str
    args: tuple[Value, ...]
    named: dict[str, Value]
    line: int
    method: bool
    numpy: bool = False

    def get(self, place: int, *names: str) -> Value | None:
        """An argument by position or name; None if it was left out."""
        for name in names:
            if name in self.named:
                return self.named[name]
        return self.args[place] if place < len(self.args) else None


Operation = Callable[[Call], Value]


def _axes(value: Value | None) -> tuple[bool, tuple[int, ...] | None]:
    """Whether the axes are known, and the axes; None for all."""
    if value is None or isinstance(value, Nothing):
        return True, None
    items = value.items if isinstance(value, Seq) else (value,)
    axes = tuple(i.value for i in items if isinstance(i, Num) and isinstance(i.value, int))
    return (True, axes) if len(axes) == len(items) else (False, None)


def _reduce(value: Value, end: str, call: Call, place: int = 1, p: float | None = None) -> Value:
    """An extreme of a tensor."""
    value = single(value)
    if isinstance(value, Codes) and len(value.ops) == 1:
        value = arithmetic.as_data(value)
    if isinstance(value, Dequantized):
        value = arithmetic.again(value)
    if isinstance(value, Num):
        return value
    known, axes = _axes(call.get(place, "dim", "axis"))
    keep = call.get(place + 1, "keepdim", "keepdims")
    if isinstance(value, Real):
        reduced = axes is None and len(value.terms) == 1 and value.terms[0][0].end == end
        return (
            dataclasses.replace(
                value, terms=tuple((dataclasses.replace(s, axes=None), f) for s, f in value.terms)
            )
            if reduced
            else UNKNOWN
        )
    if not isinstance(value, Data) or value.shift or not known:
        return UNKNOWN
    keeps = isinstance(keep, Num) and bool(keep.value)
    stat = Stat(end, value.absolute, value, axes, keeps, p=p, line=call.line)
    return Real(((stat, 1.0),))


def extreme(end: str) -> Operation:
    """Max or min: of a tensor, along an axis (in PyTorch with indices), or of two values."""

    def run(call: Call) -> Value:
        second = call.get(1)
        if second is not None and "dim" not in call.named and not isinstance(second, Num | Seq | Nothing):
            return pairwise(end)(call)
        if isinstance(call.args[0], Num) and isinstance(second, Num) and not call.numpy:
            return extremes.larger(call.args[0], second, end)
        found = _reduce(call.args[0], end, call)
        torch_pair = not call.numpy and "axis" not in call.named and call.get(1, "dim") is not None
        return Seq((found, UNKNOWN)) if torch_pair and not isinstance(found, Unknown) else found

    return run


def pairwise(end: str) -> Operation:
    """The elementwise larger or smaller of two values."""

    def run(call: Call) -> Value:
        a, b = single(call.args[0]), single(call.args[1]) if len(call.args) > 1 else UNKNOWN
        if isinstance(a, Codes | Data | Steps) or isinstance(b, Codes | Data | Steps):
            a, b = (a, b) if isinstance(a, Codes | Data | Steps) else (b, a)
            return clamp(a, b if end == "max" else None, b if end == "min" else None, call.line)
        return extremes.larger(a, b, end)

    return run


def at_axes(end: str) -> Operation:
    """amax or amin."""
    return lambda call: _reduce(call.args[0], end, call)


def aminmax(call: Call) -> Value:
    """Min and max."""
    return Seq((_reduce(call.args[0], "min", call), _reduce(call.args[0], "max", call)))


def peak_to_peak(call: Call) -> Value:
    """max - min."""
    high, low = (_reduce(call.args[0], end, call) for end in ("max", "min"))
    return operators.add(high, low, -1, call.line)


def percentile(in_percent: bool) -> Operation:
    """A quantile; ``in_percent``: its argument runs from 0 to 100."""

    def run(call: Call) -> Value:
        q = call.get(1, "q")
        if isinstance(q, Seq) and q.items:
            call = dataclasses.replace(call, named={**call.named, "q": Nothing()})
            return Seq(tuple(_one_percentile(call, item, in_percent) for item in q.items))
        return _one_percentile(call, q, in_percent)

    return run


def _one_percentile(call: Call, q: Value | None, in_percent: bool) -> Value:
    if not isinstance(q, Num):
        return UNKNOWN
    p = float(q.value) * (1 if in_percent else 100)
    return _reduce(call.args[0], "high" if p >= 50 else "low", call, 2, round(p, 6))
