"""The white list: what pasted code may call, by (type, name), each with what bounds its result before it is computed."""

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted.bounds import MOST_AXES, StopError, elementwise, product, shapes
from quantcore.pasted.trace import ARRAYS

Bound = Callable[[list[Any]], float]


@dataclass(frozen=True)
class Call:
    """A call: ``op``: its operation in the trace; ``run``: what computes it; ``bound``: the elements of its result, from
    its arguments, those by name last; ``most``: how many arguments may be positional; ``keywords``: which may be given
    by name. `out`, `device` and `requires_grad` are never among them."""

    name: str
    op: str
    run: Callable[..., Any]
    bound: Bound
    most: int
    keywords: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Module:
    """A module that pasted code may name; ``members``: what it may name in it."""

    name: str
    members: dict[str, Any] = field(default_factory=dict, compare=False)


class Row(tuple[Any, ...]):
    """A tuple with ``values`` and ``indices``, as torch.max with an axis returns."""


def _sized(values: Iterable[Any]) -> list[float]:
    """The numbers in arguments that give sizes, also those in lists and in small arrays.

    Raises:
        StopError: they are no sizes.
    """
    found: list[float] = []
    for value in values:
        if isinstance(value, ARRAYS) and math.prod(value.shape) > MOST_AXES:
            raise StopError("a tensor gives sizes here")
        value = value.tolist() if isinstance(value, ARRAYS) else value
        if isinstance(value, list | tuple):
            found += _sized(value)
        elif isinstance(value, int | float):
            found.append(value)
    if any(abs(n) > 2**62 for n in found) or len(found) > MOST_AXES:
        raise StopError("a shape here is larger than a tensor can be")
    return found


def _integers(values: Iterable[Any]) -> list[int]:
    return [int(n) for n in _sized(values) if math.isfinite(n)]


def _all(values: list[Any]) -> float:
    return sum(map(math.prod, shapes(values)))


def _listed(values: list[Any]) -> float:
    def items(v: Any) -> float:
        return _listed([*v]) if isinstance(v, list | tuple) else math.prod(getattr(v, "shape", ()))

    return sum(map(items, values))


def _values_and_indices(values: list[Any]) -> float:
    return 2 * _all(values)


def _extremes(values: list[Any]) -> float:
    return max(_values_and_indices(values), elementwise(values))


def _crossed(values: list[Any]) -> float:
    return math.prod(map(math.prod, shapes(values)))


def _sizes(values: list[Any]) -> float:
    return math.prod(max(n, 0) for n in _integers(values))


def _repeated(values: list[Any]) -> float:
    return _all(values[:1]) * _sizes(values[1:])


def _expanded(values: list[Any]) -> float:
    sizes = _integers(values[1:])
    if not values or not isinstance(values[0], ARRAYS):
        raise StopError("only tensors are expanded")
    had = (1,) * (len(sizes) - values[0].ndim) + tuple(values[0].shape)
    return math.prod(h if n == -1 else max(n, 0) for n, h in zip(sizes, had, strict=False))


def _steps(values: list[Any]) -> float:
    ends = _sized(values)
    start, stop, step = (*([0.0] if len(ends) < 2 else []), *ends, 1.0, 1.0)[:3]
    return abs((stop - start) / step) + 1 if step else math.inf


def _interleaved(values: list[Any]) -> float:
    if any(isinstance(v, ARRAYS) for v in values[1:]):
        raise StopError("a tensor gives sizes here")
    return _repeated(values)


def _pieces(values: list[Any]) -> float:
    if max(_integers(values[1:]), default=1) > 1024:
        raise StopError("a tensor is cut into more than 1,024 pieces here")
    return _all(values[:1])


def _spaced(values: list[Any]) -> float:
    return elementwise(values[:2]) * (_sizes(values[2:]) if len(values) > 2 else 50)


def _one(values: list[Any]) -> float:
    return 1


def cast(x: Any, dtype: Any) -> Any:
    """Return x in another type of numbers.

    A float that does not fit an integer type is truncated and keeps its lowest bits, as torch and NumPy do on x86,
    where C leaves it undefined.
    """
    if isinstance(x, Tensor):
        if not isinstance(dtype, torch.dtype) or dtype.is_complex:
            raise StopError("a tensor is converted here to what is not a type of numbers")
        if x.is_floating_point() and not dtype.is_floating_point and dtype != torch.bool:
            x = torch.nan_to_num(x.double()).clamp(-(2.0**62), 2.0**62).to(torch.int64)
        return x.to(dtype)
    target, x = np.dtype(dtype), np.asarray(x)
    if x.dtype.kind == "f" and target.kind in "iu":
        x = np.clip(np.nan_to_num(x.astype(np.float64)), -(2.0**62), 2.0**62).astype(np.int64)
    return x.astype(target)[()]


def _extreme(name: str) -> Callable[..., Any]:
    """torch.max and torch.min, which are three functions each."""
    reduce, pairs = getattr(torch, name), getattr(torch, f"{name}imum")
    return lambda x, *args, **kw: (pairs if args and isinstance(args[0], Tensor) else reduce)(x, *args, **kw)


def _drawn(how: Callable[..., Tensor], numpy: bool) -> Callable[..., Any]:
    """Random numbers, the same in each evaluation."""

    def draw(*args: Any, **kw: Any) -> Any:
        shape = args[0].shape if args and isinstance(args[0], Tensor) else _integers([*args, *kw.values()])
        found = how(tuple(shape), generator=torch.Generator().manual_seed(0))
        return found.double().numpy() if numpy else found

    return draw


def _tensor(value: Any, dtype: Any = None) -> Tensor:
    if isinstance(value, Tensor):
        return value.clone().to(dtype or value.dtype)
    return torch.tensor(value, dtype=dtype)


def _array(value: Any, dtype: Any = None) -> Any:
    found = np.array(value, dtype=dtype)
    if found.dtype.kind not in "biuf":
        raise StopError("an array of anything but numbers is not evaluated")
    return found


_AXES = "dim axis keepdim keepdims q interpolation method unbiased correction ddof ord p k dtype decimals"
# operation, bound, most positional arguments in torch and in NumPy, whose next one would be `out`; keywords; names
_ROWS: tuple[tuple[str, Bound, tuple[int, int], str, str], ...] = (
    ("round", elementwise, (1, 1), "decimals", "round floor ceil trunc fix rint around"),
    ("abs", elementwise, (1, 1), "", "abs absolute fabs relu"),
    ("neg", elementwise, (1, 1), "", "neg negative"),
    ("unary", elementwise, (1, 1), "", "sqrt rsqrt exp exp2 log log2 log10 square sign reciprocal tanh sigmoid "
     "isnan isinf isfinite logical_not nan_to_num"),
    ("copy", _all, (1, 1), "", "clone detach copy"),
    ("add", elementwise, (2, 2), "other", "add"),
    ("sub", elementwise, (2, 2), "other", "sub subtract"),
    ("mul", elementwise, (2, 2), "other", "mul multiply"),
    ("div", elementwise, (2, 2), "other", "div divide true_divide"),
    ("floor_divide", elementwise, (2, 2), "other", "floor_divide"),
    ("pow", elementwise, (2, 2), "exponent", "pow power"),
    ("binary", elementwise, (2, 2), "other", "remainder fmod eq ne lt gt le ge logical_and logical_or isclose"),
    ("clamp", elementwise, (3, 3), "min max a_min a_max", "clamp clip"),
    ("clamp", elementwise, (2, 2), "min max other", "clamp_min clamp_max maximum minimum fmin fmax"),
    ("where", elementwise, (3, 3), "", "where"),
    ("mask", elementwise, (3, 0), "", "masked_fill"),
    ("reduce", _extremes, (3, 2), "dim axis keepdim keepdims", "max min"),
    ("reduce", _values_and_indices, (3, 2), _AXES, "amax amin ptp sum mean std var norm argmax argmin all any "
     "median prod kthvalue"),
    ("reduce", _all, (1, 1), _AXES, "aminmax count_nonzero"),
    ("reduce", _crossed, (4, 3), _AXES, "quantile nanquantile percentile nanpercentile"),
    ("shape", _all, (3, 2), "dim axis", "squeeze unsqueeze expand_dims transpose swapaxes t flip ravel"),
    ("shape", _pieces, (3, 0), "dim", "chunk"),
    ("shape", _all, (3, 2), "dim axis start_dim", "flatten cat concat concatenate stack hstack vstack"),
    ("shape", _all, (2, 2), "shape", "reshape"),
    ("shape", _all, (2, 0), "dims", "permute"),
    ("shape", _repeated, (2, 2), "dims", "tile"),
    ("shape", _interleaved, (3, 0), "dim", "repeat_interleave"),
    ("shape", _expanded, (2, 2), "", "broadcast_to"),
    ("order", _values_and_indices, (3, 2), "dim axis descending k", "cumsum unique argsort sort topk"),
    ("matmul", product, (2, 2), "", "matmul mm dot"),
    ("matmul", _crossed, (2, 2), "", "outer"),
    ("getitem", _all, (3, 0), "dim", "select narrow"),
    ("binary", elementwise, (4, 4), "rtol atol", "allclose equal array_equal"),
    ("create", _all, (1, 1), "dtype", "zeros_like ones_like empty_like"),
    ("create", _sizes, (9, 1), "size shape dtype", "zeros ones empty"),
    ("create", lambda values: _sizes(values[:1]), (2, 2), "dtype", "full"),
    ("create", lambda values: _sizes(values[:1]) * _sizes(values[-1:]), (2, 2), "", "eye"),
    ("create", _steps, (3, 3), "dtype", "arange"),
    ("create", _spaced, (3, 3), "steps num", "linspace"),
)  # fmt: skip
_OWN: dict[Any, dict[str, Callable[..., Any]]] = {  # torch.empty would show what was in memory before
    torch: {n: _extreme(n) for n in ("max", "min")} | {"empty": torch.zeros, "empty_like": torch.zeros_like},
    np: {"empty": np.zeros, "empty_like": np.zeros_like},
}


def _calls(home: Any, place: int) -> dict[str, Call]:
    """The rows' calls in torch (place 0) or NumPy (place 1)."""
    return {
        name: call
        for op, bound, most, keywords, names in _ROWS
        for name in names.split()
        if most[place] and hasattr(home, name)
        for call in _call(name, op, _OWN[home].get(name, home), bound, most[place], keywords).values()
    }


def _call(names: str, op: str, run: Any, bound: Bound, most: int, keywords: str = "") -> dict[str, Call]:
    """Calls that ``run`` computes, or its attributes of these names if it is a module."""
    return {
        n: Call(n, op, run if callable(run) else getattr(run, n), bound, most, frozenset(keywords.split()))
        for n in names.split()
    }


def _methods(names: str, op: str, bound: Bound, most: int, keywords: str = "") -> dict[str, Call]:
    """Methods of the first argument."""

    def method(name: str) -> Callable[..., Any]:
        return lambda x, *args, **kw: getattr(x, name)(*args, **kw)

    return {n: c for name in names.split() for n, c in _call(name, op, method(name), bound, most, keywords).items()}


_TORCH, _NUMPY = _calls(torch, 0) | _call("numel", "size", lambda x: x.numel(), _one, 1), _calls(np, 1)
_NUMPY_TYPES = [
    "float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
]  # fmt: skip
_TYPES = {
    "float": torch.float32, "half": torch.float16, "double": torch.float64, "bfloat16": torch.bfloat16,
    "int": torch.int32, "long": torch.int64, "short": torch.int16, "char": torch.int8, "byte": torch.uint8,
    "bool": torch.bool,
}  # fmt: skip
_SHARED = {  # methods of tensors and of arrays
    **_methods("item", "item", _one, 1),
    **_methods("tolist", "list", _all, 1),
    **_methods("reshape", "shape", _all, 9, "shape"),
}
METHODS: dict[str, dict[str, Call]] = {  # by the type of their owner
    "tensor": {
        **{n: c for n, c in _TORCH.items() if hasattr(Tensor, n)}, **_SHARED,
        **{n: Call(n, "cast", lambda x, d=d: cast(x, d), elementwise, 1) for n, d in _TYPES.items()},
        **_call("to type", "cast", cast, elementwise, 2, "dtype"),
        **_call("view", "shape", _SHARED["reshape"].run, _all, 9),
        **_methods("permute", "shape", _all, 9),
        **_methods("expand", "shape", _expanded, 9),
        **_methods("repeat", "shape", _repeated, 9),
        **_methods("expand_as", "shape", lambda values: _all(values[1:]), 2),
        **_call("dim", "size", lambda x: x.ndim, _one, 1),
        **_call("size", "size", lambda x, *a: x.shape[a[0]] if a else tuple(x.shape), _one, 2),
        **_call("contiguous cpu", "copy", torch.clone, _all, 1),
        **_call("numpy", "copy", lambda x: x.clone().numpy(), _all, 1),
    },
    "array": {
        **{n: c for n, c in _NUMPY.items() if hasattr(np.ndarray, n)}, **_SHARED,
        **_call("astype", "cast", cast, elementwise, 2, "dtype"),
        **_call("flatten", "shape", np.ravel, _all, 1),
        **_methods("transpose", "shape", _all, 9),
    },
    "quantized tensor": _methods("dequantize int_repr", "library", _all, 1),
}  # fmt: skip
PROPERTIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "shape": ("size", lambda x: tuple(x.shape)),
    "ndim": ("size", lambda x: x.ndim),
    "dtype": ("size", lambda x: x.dtype),
    "T": ("shape", lambda x: x.swapaxes(0, 1) if x.ndim == 2 else x),
    "data": ("copy", lambda x: x),
}


def _module(name: str, *members: dict[str, Any], **more: Any) -> Module:
    found: dict[str, Any] = {"pi": math.pi, "inf": math.inf, "nan": math.nan}
    for each in (*members, more):
        found |= each
    return Module(name, found)


def _random(names: str, numpy: bool, bound: Bound = _sizes) -> dict[str, Call]:
    how = torch.randn if names.startswith("randn") else torch.rand
    return _call(names, "random", _drawn(how, numpy), bound, 9, "size")


_LIBRARY = "quantize_per_tensor quantize_per_channel fake_quantize_per_tensor_affine"
_SEED = _call("manual_seed seed", "size", lambda n: None, _one, 1)
_nn = _module("torch.nn", functional=_module("torch.nn.functional", {"relu": _TORCH["relu"]}))
_torch = _module(
    "torch", _TORCH, _TYPES, {str(d).removeprefix("torch."): d for d in _TYPES.values()},
    _call("iinfo finfo", "size", torch, _one, 1), _call(_LIBRARY, "library", torch, elementwise, 5, "dtype"),
    _call("tensor as_tensor", "create", _tensor, _listed, 1, "dtype"),
    _random("rand", False), _random("randn", False),
    _random("rand_like", False, _all), _random("randn_like", False, _all),
    nn=_nn, linalg=_module("torch.linalg", norm=_TORCH["norm"]), manual_seed=_SEED["manual_seed"],
    Tensor=Tensor, quint8=torch.quint8, qint8=torch.qint8,
)  # fmt: skip
_numpy = _module(
    "numpy", _NUMPY, {name: getattr(np, name) for name in _NUMPY_TYPES},
    _call("iinfo finfo", "size", np, _one, 1), _call("array asarray", "create", _array, _listed, 2, "dtype"),
    random=_module("numpy.random", _random("rand random", True), _random("randn", True), seed=_SEED["seed"]),
    linalg=_module("numpy.linalg", _call("norm", "reduce", np.linalg.norm, _all, 3, "axis keepdims")),
    newaxis=None, ndarray=np.ndarray,
)  # fmt: skip
_MATH = _call("floor ceil trunc", "round", math, _one, 1) | _call("sqrt log2 log exp", "unary", math, _one, 1)
MODULES = {
    "torch": _torch, "numpy": _numpy, "math": _module("math", _MATH), "torch.nn": _nn,
    "torch.nn.functional": _nn.members["functional"],
}  # fmt: skip
TYPE_NAMES = frozenset([*_NUMPY_TYPES, "float", "int", "bool"])
WORDS = TYPE_NAMES | {"linear", "lower", "higher", "midpoint", "nearest", "fro"}
UNARY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "USub": ("neg", operator.neg), "UAdd": ("copy", operator.pos), "Invert": ("binary", operator.invert),
}  # fmt: skip
BINARY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "Add": ("add", operator.add), "Sub": ("sub", operator.sub), "Mult": ("mul", operator.mul),
    "Div": ("div", operator.truediv), "FloorDiv": ("floor_divide", operator.floordiv),
    "Mod": ("binary", operator.mod), "Pow": ("pow", operator.pow), "LShift": ("shift", operator.lshift), "RShift": ("binary", operator.rshift),
    "BitAnd": ("binary", operator.and_), "BitOr": ("binary", operator.or_), "BitXor": ("binary", operator.xor),
    "MatMult": ("matmul", operator.matmul), "Eq": ("binary", operator.eq), "NotEq": ("binary", operator.ne),
    "Lt": ("binary", operator.lt), "LtE": ("binary", operator.le), "Gt": ("binary", operator.gt),
    "GtE": ("binary", operator.ge), "Is": ("binary", operator.is_), "IsNot": ("binary", operator.is_not),
}  # fmt: skip


def kind_of(value: Any) -> str:
    """The type of an owner of methods, as the white list names it."""
    if isinstance(value, Tensor):
        return "quantized tensor" if value.is_quantized else "tensor"
    is_array = isinstance(value, np.ndarray | np.generic)
    return "array" if is_array else f"a value of type {type(value).__name__.lower()}"
