"""PyTorch and NumPy functions and methods, by their effect on known values.

An operation takes the call's arguments, a method's own tensor first. Synonyms share one operation.
"""

import dataclasses
from collections.abc import Callable

from quantcore.code_reading.values import arithmetic, extremes, operators
from quantcore.code_reading.values.arithmetic import single
from quantcore.code_reading.values.python import UNKNOWN, DType, Many, Num, Seq, Text, Value
from quantcore.code_reading.values.quantities import Data, Real
from quantcore.code_reading.values.reductions import (
    Call,
    Operation,
    aminmax,
    at_axes,
    extreme,
    pairwise,
    peak_to_peak,
    percentile,
)
from quantcore.code_reading.values.steps import DTYPES, cast, clamp, placed, rounded


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


def _cast(call: Call) -> Value:
    dtype = next((v for v in (*call.args[1:], *call.named.values()) if isinstance(v, DType | Text)), None)
    if isinstance(dtype, Text):
        dtype = DTYPES.get(dtype.text)
        if dtype is None:
            return call.args[0]  # a device
    return call.args[0] if dtype is None else cast(call.args[0], dtype, call.line)


def _cast_to(dtype: DType) -> Operation:
    return lambda call: cast(call.args[0], dtype, call.line)


def _place(how: str) -> Operation:
    """A change of axes: of a tensor, or of the extremes of a scale."""

    def run(call: Call) -> Value:
        value = single(call.args[0])
        where = ",".join(_shape(call.args[1:]) or _shape(tuple(call.named.values())))
        return placed(value, f"{how}:{where}")

    return run


def _shape(values: tuple[Value, ...]) -> list[str]:
    flat = [i for v in values for i in (v.items if isinstance(v, Seq) else (v,))]
    return [str(i.value) if isinstance(i, Num) else "?" for i in flat]


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
    """torch.where(scale == 0, 1, scale): a guard. The result of any other is unknown."""
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
    return Data(f"tensor in line {call.line}", one_sided=call.name in ("rand", "random"), rank=rank)


def _made(call: Call) -> Value:
    """torch.tensor(…), np.array(…): of a number, or of nested lists."""
    value = call.args[0]
    if isinstance(value, Num):
        return dataclasses.replace(value, python=False)
    if isinstance(value, Seq):
        rank, inner = 0, value
        while isinstance(inner, Seq) and inner.items:
            rank, inner = rank + 1, inner.items[0]  # type: ignore[assignment]
        return Data(f"tensor in line {call.line}", rank=rank)
    dtype = call.named.get("dtype")
    return cast(value, dtype, call.line) if isinstance(dtype, DType) else value


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
    return operators.divide(Num(1), call.args[0], call.line)


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
Generator manual_seed_all inference_mode register_buffer register_parameter stack_frames display enumerate zip sorted list tuple dict set device""")


LIBRARY = _words("""quantize_per_tensor quantize_per_channel fake_quantize_per_tensor_affine
fake_quantize_per_channel_affine int_repr dequantize q_scale q_zero_point""")


OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(_DRAWN, _drawn),
    **dict.fromkeys(("max", "nanmax"), extreme("max")), **dict.fromkeys(("min", "nanmin"), extreme("min")),
    "amax": at_axes("max"), "amin": at_axes("min"), "aminmax": aminmax, "ptp": peak_to_peak,
    **dict.fromkeys(("maximum", "fmax"), pairwise("max")), **dict.fromkeys(("minimum", "fmin"), pairwise("min")),
    **dict.fromkeys(("quantile", "nanquantile"), percentile(False)),
    **dict.fromkeys(("percentile", "nanpercentile"), percentile(True)),
    **dict.fromkeys(("clamp", "clip", "clamp_", "clip_"), _clamp),
    **dict.fromkeys(("clamp_min", "clamp_min_"), lambda c: clamp(c.args[0], c.get(1, "min"), None, c.line, c.name.endswith("_"))),
    **dict.fromkeys(("clamp_max", "clamp_max_"), lambda c: clamp(c.args[0], None, c.get(1, "max"), c.line, c.name.endswith("_"))),
    **dict.fromkeys(("round", "rint", "around", "round_", "round_half_even"), _round("half_even")),
    **dict.fromkeys(("floor", "floor_"), _round("floor")), **dict.fromkeys(("ceil", "ceil_"), _round("ceil")),
    **dict.fromkeys(("trunc", "fix", "trunc_"), _round("toward_zero")),
    **dict.fromkeys(("abs", "absolute", "fabs", "abs_"), lambda c: extremes.magnitude(c.args[0])),
    **dict.fromkeys(("neg", "negative"), lambda c: arithmetic.negative(c.args[0])),
    **dict.fromkeys(("div", "divide", "true_divide", "div_"), _binary(operators.divide)),
    **dict.fromkeys(("mul", "multiply", "mul_"), _binary(operators.multiply)),
    **dict.fromkeys(("add", "add_"), _binary(lambda a, b, line: operators.add(a, b, 1, line))),
    **dict.fromkeys(("sub", "subtract", "sub_"), _binary(lambda a, b, line: operators.add(a, b, -1, line))),
    **dict.fromkeys(("pow", "power", "float_power"), lambda c: arithmetic.power(c.args[0], c.args[1])),
    "reciprocal": _reciprocal,
    **dict.fromkeys(("to", "type", "astype"), _cast),
    **{name: _cast_to(dtype) for name, dtype in DTYPES.items()},
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
