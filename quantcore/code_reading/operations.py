"""Functions and methods of torch and numpy, by what they do to what is known.

An operation takes the call's arguments, the tensor of a method first. Names that mean the same share one.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from quantcore.code_reading import arithmetic
from quantcore.code_reading.arithmetic import UNKNOWN, codes_with, single
from quantcore.code_reading.values import (
    Back,
    Codes,
    Data,
    Inverse,
    Kind,
    Many,
    Nothing,
    Num,
    Op,
    Param,
    Real,
    Seq,
    Stat,
    Steps,
    Text,
    Unknown,
    Value,
)

KINDS = {
    **{f"{s}int{b}": Kind(b, not s) for s in ("", "u") for b in (8, 16, 32, 64)},
    **{f"q{s}int8": Kind(8, not s) for s in ("", "u")},
    **{f"float{b}": Kind(b, True, True) for b in (16, 32, 64)},
    "half": Kind(16, True, True), "float": Kind(32, True, True), "double": Kind(64, True, True),
    "single": Kind(32, True, True), "bfloat16": Kind(32, True, True), "float_": Kind(64, True, True),
    "int": Kind(32), "short": Kind(16), "long": Kind(64), "char": Kind(8), "byte": Kind(8, False),
    "int_": Kind(64), "ubyte": Kind(8, False),
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A call whose function is known. ``args``: with the method's own value first; ``method``: whether it had one."""

    name: str
    args: tuple[Value, ...]
    named: dict[str, Value]
    line: int
    method: bool
    numpy: bool = False

    def get(self, place: int, *names: str) -> Value | None:
        """An argument by its place or its names; None where it was left out."""
        for name in names:
            if name in self.named:
                return self.named[name]
        return self.args[place] if place < len(self.args) else None


Operation = Callable[[Call], Value]


def _axes(value: Value | None) -> tuple[bool, tuple[int, ...] | None]:
    """Whether the axes are known, and which; None for all."""
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
    if isinstance(value, Back):
        value = arithmetic.again(value)
    if isinstance(value, Num):
        return value
    known, axes = _axes(call.get(place, "dim", "axis"))
    keep = call.get(place + 1, "keepdim", "keepdims")
    if isinstance(value, Real):
        whole = axes is None and len(value.terms) == 1 and value.terms[0][0].end == end
        return (
            dataclasses.replace(
                value, terms=tuple((dataclasses.replace(s, axes=None), f) for s, f in value.terms)
            )
            if whole
            else UNKNOWN
        )
    if not isinstance(value, Data) or value.shift or not known:
        return UNKNOWN
    keeps = isinstance(keep, Num) and bool(keep.value)
    stat = Stat(end, value.absolute, value, axes, keeps, p=p, line=call.line)
    return Real(((stat, 1.0),))


def _extreme(end: str) -> Operation:
    def run(call: Call) -> Value:
        second = call.get(1)
        if second is not None and "dim" not in call.named and not isinstance(second, Num | Seq | Nothing):
            return _pairwise(end)(call)
        if isinstance(call.args[0], Num) and isinstance(second, Num) and not call.numpy:
            return arithmetic.larger(call.args[0], second, end)
        found = _reduce(call.args[0], end, call)
        torch_pair = not call.numpy and "axis" not in call.named and call.get(1, "dim") is not None
        return Seq((found, UNKNOWN)) if torch_pair and not isinstance(found, Unknown) else found

    return run


def _pairwise(end: str) -> Operation:
    def run(call: Call) -> Value:
        a, b = single(call.args[0]), single(call.args[1]) if len(call.args) > 1 else UNKNOWN
        if isinstance(a, Codes | Data | Steps) or isinstance(b, Codes | Data | Steps):
            a, b = (a, b) if isinstance(a, Codes | Data | Steps) else (b, a)
            return clamp(a, b if end == "max" else None, b if end == "min" else None, call.line)
        return arithmetic.larger(a, b, end)

    return run


def _a_extreme(end: str) -> Operation:
    return lambda call: _reduce(call.args[0], end, call)


def _aminmax(call: Call) -> Value:
    return Seq((_reduce(call.args[0], "min", call), _reduce(call.args[0], "max", call)))


def _peak_to_peak(call: Call) -> Value:
    high, low = (_reduce(call.args[0], end, call) for end in ("max", "min"))
    return arithmetic.add(high, low, -1, call.line)


def _percentile(of_hundred: bool) -> Operation:
    def run(call: Call) -> Value:
        q = call.get(1, "q")
        if isinstance(q, Seq) and q.items:
            call = dataclasses.replace(call, named={**call.named, "q": Nothing()})
            return Seq(tuple(_one_percentile(call, item, of_hundred) for item in q.items))
        return _one_percentile(call, q, of_hundred)

    return run


def _one_percentile(call: Call, q: Value | None, of_hundred: bool) -> Value:
    if not isinstance(q, Num):
        return UNKNOWN
    p = float(q.value) * (1 if of_hundred else 100)
    return _reduce(call.args[0], "high" if p >= 50 else "low", call, 2, round(p, 6))


def clamp(value: Value, low: Value | None, high: Value | None, line: int, in_place: bool = False) -> Value:
    """A clamp; a bound that was left out is None."""
    value = single(value)
    low, high = (None if isinstance(b, Nothing) else b for b in (low, high))
    match value:
        case Codes():
            return codes_with(value, Op("clamp", line, (_bound(low), _bound(high))))
        case Steps():
            return dataclasses.replace(value, clamped=True)
        case Data() if not value.shift:
            bounds = [b.value if isinstance(b, Num) else None for b in (low, high)]
            one_sided = value.one_sided or (bounds[0] is not None and bounds[0] >= 0)
            bounds = [
                new if new is not None else old
                for new, old in zip(bounds, (value.low, value.high), strict=True)
            ]
            return dataclasses.replace(
                value, low=bounds[0], high=bounds[1], one_sided=one_sided, caller=value.caller and in_place
            )
        case Real():
            for bound, end in ((low, "max"), (high, "min")):
                if bound is not None:
                    value = arithmetic.larger(value, bound, end)
            return value
        case Num():
            if isinstance(low, Num) and isinstance(high, Num):
                return Num(min(max(value.value, low.value), high.value))
    return UNKNOWN


def _bound(value: Value | None) -> float | str | None:
    """A number; None where there is no bound, "?" where it is not known."""
    return None if value is None else value.value if isinstance(value, Num) else "?"


def _clamp(call: Call) -> Value:
    low, high = call.get(1, "min", "a_min"), call.get(2, "max", "a_max")
    return clamp(call.args[0], low, high, call.line, call.name.endswith("_"))


def _round(rule: str) -> Operation:
    def run(call: Call) -> Value:
        decimals = call.get(1, "decimals", "ndigits")
        if decimals is not None and not (isinstance(decimals, Num) and decimals.value == 0):
            return UNKNOWN
        return rounded(call.args[0], rule, call.line)

    return run


def rounded(value: Value, rule: str, line: int, cast: bool = False) -> Value:
    """Round; ``cast``: what a cast to an integer does to what was not rounded."""
    value = single(value)
    match value:
        case Codes():
            last = value.ops[-1]
            half = last.name == "add" and isinstance(last.value, Num) and abs(last.value.value) == 0.5
            if half and rule in ("floor", "toward_zero"):
                value = dataclasses.replace(value, ops=value.ops[:-1])
                rule = "half_up"
            return codes_with(value, Op("round", line, rule, -1 if cast else 1))
        case Steps():
            return dataclasses.replace(value, rounding=value.rounding or rule, line=value.line or line)
        case Num():
            whole = {"floor": value.value // 1, "ceil": -(-value.value // 1)}.get(rule, round(value.value))
            return Num(int(value.value if cast else whole), value.line, value.python)
    return UNKNOWN


def cast(value: Value, kind: Kind, line: int, python: bool = False) -> Value:
    """A cast to a dtype; ``python``: to a number of Python."""
    value = single(value)
    match value:
        case Codes():
            if not kind.floating and not value.of("round"):
                found = rounded(value, "toward_zero", line, cast=True)
                assert isinstance(found, Codes)
                value = found
            return codes_with(value, Op("cast", line, kind))
        case Steps():
            if kind.floating:
                return dataclasses.replace(value, kind=None, python=python)
            rule = value.rounding or "toward_zero"
            return dataclasses.replace(value, rounding=rule, kind=kind, python=python)
        case Real() if kind.floating:
            return (
                dataclasses.replace(value, half=value.half or line)
                if kind.bits == 16 and value.divided
                else value
            )
        case Num():
            return dataclasses.replace(
                value, value=value.value if kind.floating else int(value.value), python=python
            )
        case Data() if kind.floating:
            return value
        case Back() | Param() | Inverse():
            return value
    return UNKNOWN


def _cast(call: Call) -> Value:
    kind = next((v for v in (*call.args[1:], *call.named.values()) if isinstance(v, Kind | Text)), None)
    if isinstance(kind, Text):
        kind = KINDS.get(kind.text)
        if kind is None:
            return call.args[0]  # a device
    return call.args[0] if kind is None else cast(call.args[0], kind, call.line)


def _cast_to(kind: Kind) -> Operation:
    return lambda call: cast(call.args[0], kind, call.line)


def _place(how: str) -> Operation:
    """Axes laid out anew: of a tensor, or of the extremes of a scale."""

    def run(call: Call) -> Value:
        value = single(call.args[0])
        where = ",".join(_shape(call.args[1:]) or _shape(tuple(call.named.values())))
        return placed(value, f"{how}:{where}")

    return run


def _shape(values: tuple[Value, ...]) -> list[str]:
    flat = [i for v in values for i in (v.items if isinstance(v, Seq) else (v,))]
    return [str(i.value) if isinstance(i, Num) else "?" for i in flat]


def placed(value: Value, how: str) -> Value:
    """A value whose axes were laid out anew."""
    if isinstance(value, Data):
        return dataclasses.replace(value, layout=(*value.layout, how), rank=None)
    if isinstance(value, Real):
        terms = tuple((dataclasses.replace(s, placed=f"{s.placed} {how}".strip()), f) for s, f in value.terms)
        return dataclasses.replace(value, terms=terms)
    return value


def _cut(call: Call) -> Value:
    value = call.args[0]
    where = ",".join(
        [*_shape(call.args[1:]), *(f"{k}={s}" for k, v in call.named.items() for s in _shape((v,)))]
    )
    return Many(placed(value, f"{call.name}:{where}")) if isinstance(value, Data) else UNKNOWN


def _join(call: Call) -> Value:
    value = call.args[0]
    if isinstance(value, Many):
        return value.item
    if isinstance(value, Seq) and value.items:
        kinds = {type(single(i)) for i in value.items}
        return value.items[0] if len(kinds) == 1 and not isinstance(value.items[0], Num) else UNKNOWN
    return UNKNOWN


def _where(call: Call) -> Value:
    """torch.where(scale == 0, 1, scale): a guard. Of all else nothing is known."""
    reals = [v for v in map(single, call.args[1:]) if isinstance(v, Real)]
    rest = [v for v in call.args[1:] if not isinstance(single(v), Real)]
    if len(reals) == 1 and reals[0].divided and len(rest) == 1 and isinstance(rest[0], Num):
        return dataclasses.replace(reals[0], guard=True)
    return UNKNOWN


def _fill(value: float | None) -> Operation:
    return lambda call: Num(
        call.args[1].value if value is None and isinstance(call.args[1], Num) else value or 0,
        call.line,
        False,
    )


def _drawn(call: Call) -> Value:
    sizes = [a for a in call.args if isinstance(a, Num)]
    rank = len(sizes) if len(sizes) == len(call.args) and sizes else None
    shape = call.get(0, "size")
    rank = len(shape.items) if isinstance(shape, Seq) else rank
    return Data(f"tensor of line {call.line}", one_sided=call.name in ("rand", "random"), rank=rank)


def _made(call: Call) -> Value:
    """torch.tensor(…), np.array(…): of a number, or of a table."""
    value = call.args[0]
    if isinstance(value, Num):
        return dataclasses.replace(value, python=False)
    if isinstance(value, Seq):
        rank, inner = 0, value
        while isinstance(inner, Seq) and inner.items:
            rank, inner = rank + 1, inner.items[0]  # type: ignore[assignment]
        return Data(f"tensor of line {call.line}", rank=rank)
    kind = call.named.get("dtype")
    return cast(value, kind, call.line) if isinstance(kind, Kind) else value


def _same(call: Call) -> Value:
    value = call.args[0]
    if isinstance(value, Data) and call.name in ("clone", "copy", "deepcopy"):
        return dataclasses.replace(value, caller=False)
    return value


def _rectified(call: Call) -> Value:
    value = call.args[0]
    return (
        dataclasses.replace(value, root=f"{call.name}({value.root})", one_sided=True, caller=False)
        if isinstance(value, Data)
        else UNKNOWN
    )


def _masked_fill(call: Call) -> Value:
    value = single(call.args[0])
    return dataclasses.replace(value, guard=True) if isinstance(value, Real) and value.divided else UNKNOWN


def _reciprocal(call: Call) -> Value:
    return arithmetic.divide(Num(1), call.args[0], call.line)


def _binary(function: Callable[[Value, Value, int], Value]) -> Operation:
    return lambda call: function(call.args[0], call.args[1], call.line)


def _words(text: str) -> list[str]:
    return text.split()


_SAME = _words("""contiguous detach cpu cuda clone copy deepcopy numpy item tolist requires_grad_ asarray ascontiguousarray
from_numpy as_tensor expand_as expand broadcast_to squeeze data repeat_interleave tile broadcast_tensors""")
_DRAWN = _words("""randn rand rand_like bernoulli normal uniform randn_like standard_normal random load empty linspace arange from_file
zeros_of randint""")
QUIET = _words("""mean sum norm mse_loss std var allclose equal isclose log10 log sqrt square matmul mm linear print len type
unique histc shape numel size sign copysign cosine_similarity l1_loss any all isnan isfinite isinf dim ndimension
append format join manual_seed seed default_rng no_grad range isinstance hasattr getattr repr str set_printoptions
figure plot show hist imshow title subplots legend savefig assert_allclose assert_close count_nonzero bincount bool
Generator manual_seed_all inference_mode stack_frames display enumerate zip sorted list tuple dict set device""")
LIBRARY = _words("""quantize_per_tensor quantize_per_channel fake_quantize_per_tensor_affine
fake_quantize_per_channel_affine int_repr dequantize q_scale q_zero_point""")

OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(_DRAWN, _drawn),
    **dict.fromkeys(("max", "nanmax"), _extreme("max")), **dict.fromkeys(("min", "nanmin"), _extreme("min")),
    "amax": _a_extreme("max"), "amin": _a_extreme("min"), "aminmax": _aminmax, "ptp": _peak_to_peak,
    **dict.fromkeys(("maximum", "fmax"), _pairwise("max")), **dict.fromkeys(("minimum", "fmin"), _pairwise("min")),
    **dict.fromkeys(("quantile", "nanquantile"), _percentile(False)),
    **dict.fromkeys(("percentile", "nanpercentile"), _percentile(True)),
    **dict.fromkeys(("clamp", "clip", "clamp_", "clip_"), _clamp),
    **dict.fromkeys(("clamp_min", "clamp_min_"), lambda c: clamp(c.args[0], c.get(1, "min"), None, c.line, c.name.endswith("_"))),
    **dict.fromkeys(("clamp_max", "clamp_max_"), lambda c: clamp(c.args[0], None, c.get(1, "max"), c.line, c.name.endswith("_"))),
    **dict.fromkeys(("round", "rint", "around", "round_", "round_half_even"), _round("half_even")),
    **dict.fromkeys(("floor", "floor_"), _round("floor")), **dict.fromkeys(("ceil", "ceil_"), _round("ceil")),
    **dict.fromkeys(("trunc", "fix", "trunc_"), _round("toward_zero")),
    **dict.fromkeys(("abs", "absolute", "fabs", "abs_"), lambda c: arithmetic.magnitude(c.args[0])),
    **dict.fromkeys(("neg", "negative"), lambda c: arithmetic.negative(c.args[0])),
    **dict.fromkeys(("div", "divide", "true_divide", "div_"), _binary(arithmetic.divide)),
    **dict.fromkeys(("mul", "multiply", "mul_"), _binary(arithmetic.multiply)),
    **dict.fromkeys(("add", "add_"), _binary(lambda a, b, line: arithmetic.add(a, b, 1, line))),
    **dict.fromkeys(("sub", "subtract", "sub_"), _binary(lambda a, b, line: arithmetic.add(a, b, -1, line))),
    **dict.fromkeys(("pow", "power", "float_power"), lambda c: arithmetic.power(c.args[0], c.args[1])),
    "reciprocal": _reciprocal,
    **dict.fromkeys(("to", "type", "astype"), _cast),
    **{name: _cast_to(kind) for name, kind in KINDS.items()},
    **{how: _place(how) for how in ("view", "reshape", "unsqueeze", "expand_dims", "permute", "transpose", "swapaxes",
                                    "movedim", "moveaxis", "t", "unflatten", "select", "narrow", "flip")},
    **dict.fromkeys(("flatten", "ravel"), _place("flatten")),
    **dict.fromkeys(("chunk", "split", "tensor_split", "array_split", "hsplit", "unbind"), _cut),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack", "hstack", "vstack"), _join),
    "where": _where, **dict.fromkeys(("masked_fill", "masked_fill_"), _masked_fill),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "empty_like"), _fill(0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _fill(1)),
    "full": _fill(None), "full_like": _fill(None),
    **dict.fromkeys(("tensor", "array", "Tensor"), _made),
    **dict.fromkeys(("relu", "sigmoid", "softmax", "exp", "softplus"), _rectified),
    **dict.fromkeys([*QUIET, *LIBRARY], lambda _call: UNKNOWN),
}  # fmt: skip
