"""The white list: what pasted code may call, by (type, name), each with what bounds its result before it is computed."""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted.bounds import (
    StopError,
    broadcast,
    crossed,
    expanded,
    numbers_in,
    product,
    ranged,
    repeated,
    sizes,
    usual,
)

Bound = Callable[[list[Any]], float]


@dataclass(frozen=True)
class Call:
    """A call: ``op``: its operation in the trace; ``run``: what computes it; ``most``: how many arguments may be
    positional; ``bound``: at most how many elements its result has; ``keywords``: which may be given by name. `out`,
    `device` and `requires_grad` are never among them."""

    name: str
    op: str
    run: Callable[..., Any]
    most: int = 1
    bound: Bound = usual
    keywords: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Module:
    """A module that pasted code may name, and what it may name in it."""

    name: str
    members: dict[str, Any]


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


def _drawn(name: str, numpy: bool) -> Callable[..., Any]:
    """Random numbers, the same in each evaluation."""
    how = torch.randn if name.startswith("randn") else torch.rand

    def draw(*args: Any, **kw: Any) -> Any:
        shape = args[0].shape if name.endswith("like") else [int(n) for n in numbers_in([*args, *kw.values()])]
        found = how(tuple(shape), generator=torch.Generator().manual_seed(0))
        return found.double().numpy() if numpy else found

    return draw


def _tensor(value: Any, dtype: Any = None) -> Tensor:
    return value.clone().to(dtype or value.dtype) if isinstance(value, Tensor) else torch.tensor(value, dtype=dtype)


def _array(value: Any, dtype: Any = None) -> Any:
    found = np.array(value, dtype=dtype)
    if found.dtype.kind not in "biuf":
        raise StopError("an array of anything but numbers is not evaluated")
    return found


_AXES = "dim axis keepdim keepdims"
_MORE = f"{_AXES} q interpolation method unbiased correction ddof ord p k dtype decimals"
# operation, bound, most positional arguments in torch and in NumPy, whose next one would be `out`; keywords; names
_ROWS: tuple[tuple[str, Bound, tuple[int, int], str, str], ...] = (
    ("round", usual, (1, 1), "decimals", "round floor ceil trunc fix rint around"),
    ("abs", usual, (1, 1), "", "abs absolute fabs relu"),
    ("neg", usual, (1, 1), "", "neg negative"),
    ("unary", usual, (1, 1), "", "sqrt rsqrt exp exp2 log log2 log10 square sign reciprocal tanh sigmoid isnan isinf "
     "isfinite logical_not nan_to_num"),
    ("copy", usual, (1, 1), "", "clone detach copy"),
    ("add", usual, (2, 2), "other", "add"),
    ("sub", usual, (2, 2), "other", "sub subtract"),
    ("mul", usual, (2, 2), "other", "mul multiply"),
    ("div", usual, (2, 2), "other", "div divide true_divide"),
    ("floor_divide", usual, (2, 2), "other", "floor_divide"),
    ("pow", usual, (2, 2), "exponent", "pow power"),
    ("binary", usual, (4, 4), "other rtol atol", "allclose equal array_equal"),
    ("binary", usual, (2, 2), "other", "remainder fmod eq ne lt gt le ge logical_and logical_or isclose"),
    ("clamp", usual, (3, 3), "min max a_min a_max", "clamp clip"),
    ("clamp", usual, (2, 2), "min max other", "clamp_min clamp_max maximum minimum fmin fmax"),
    ("where", usual, (3, 3), "", "where"),
    ("mask", usual, (3, 0), "", "masked_fill"),
    ("reduce", usual, (3, 2), _AXES, "max min"),
    ("reduce", usual, (3, 2), _MORE, "amax amin ptp sum mean std var norm argmax argmin all any median prod kthvalue"),
    ("reduce", usual, (1, 1), _MORE, "aminmax count_nonzero"),
    ("reduce", crossed, (4, 3), _MORE, "quantile nanquantile percentile nanpercentile"),
    ("shape", usual, (3, 2), "dim axis start_dim", "squeeze unsqueeze expand_dims transpose swapaxes t flip ravel flatten cat "
     "concat concatenate stack hstack vstack"),
    ("shape", usual, (2, 2), "shape dims", "reshape permute"),
    ("shape", repeated, (2, 2), "dims dim", "tile repeat_interleave chunk"),
    ("shape", expanded, (2, 2), "", "broadcast_to"),
    ("order", usual, (3, 2), "dim axis descending k", "cumsum unique argsort sort topk"),
    ("matmul", product, (2, 2), "", "matmul mm dot"),
    ("matmul", crossed, (2, 2), "", "outer"),
    ("getitem", usual, (3, 0), "dim", "select narrow"),
    ("create", usual, (1, 1), "dtype", "zeros_like ones_like empty_like"),
    ("create", sizes, (9, 1), "size shape dtype", "zeros ones empty"),
    ("create", lambda values: sizes(values[:1]), (2, 2), "dtype", "full"),
    ("create", lambda values: sizes([values[0], values[-1]]), (2, 2), "", "eye"),
    ("create", ranged, (3, 3), "dtype", "arange"),
    ("create", lambda values: broadcast([np.shape(v) for v in values[:2]]) * sizes(values[2:] or [100]), (3, 3), "steps num",
     "linspace"),
)  # fmt: skip
_OWN: dict[Any, dict[str, Callable[..., Any]]] = {  # torch.empty would show what was in memory before
    torch: {"max": _extreme("max"), "min": _extreme("min"), "empty": torch.zeros, "empty_like": torch.zeros_like},
    np: {"empty": np.zeros, "empty_like": np.zeros_like},
}


def _calls(names: str, op: str, run: Any, most: int = 1, bound: Bound = usual, keywords: str = "") -> dict[str, Call]:
    """Calls that ``run`` computes, or its attributes of these names if it is a module."""
    own, words = _OWN.get(run, {}) if not callable(run) else {}, frozenset(keywords.split())
    runs = {n: run if callable(run) else own.get(n) or getattr(run, n, None) for n in names.split()}
    return {n: Call(n, op, how, most, bound, words) for n, how in runs.items() if how is not None}


def _methods(names: str, op: str, most: int, bound: Bound = usual, keywords: str = "") -> dict[str, Call]:
    """Methods of the first argument."""

    def method(name: str) -> Callable[..., Any]:
        return lambda x, *args, **kw: getattr(x, name)(*args, **kw)

    return {n: c for name in names.split() for n, c in _calls(name, op, method(name), most, bound, keywords).items()}


def _random(names: str, numpy: bool, bound: Bound = sizes) -> dict[str, Call]:
    return {n: Call(n, "random", _drawn(n, numpy), 9, bound, frozenset(["size"])) for n in names.split()}


_TORCH, _NUMPY = (
    {n: c for op, bound, most, keywords, names in _ROWS if most[i] for n, c in _calls(names, op, home, most[i], bound, keywords).items()}
    for i, home in enumerate((torch, np))
)
_NUMPY_TYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]
_TYPES = {
    "float": torch.float32, "half": torch.float16, "double": torch.float64, "bfloat16": torch.bfloat16,
    "int": torch.int32, "long": torch.int64, "short": torch.int16, "char": torch.int8, "byte": torch.uint8,
    "bool": torch.bool,
}  # fmt: skip
# of tensors and of arrays; what takes no argument, not even its owner's, is an attribute
_SHARED = {
    **_methods("item", "item", 1), **_methods("tolist", "list", 1), **_methods("reshape", "shape", 9, keywords="shape"),
    **_calls("shape", "size", lambda x: tuple(x.shape), 0), **_calls("ndim", "size", lambda x: x.ndim, 0),
    **_calls("dtype", "size", lambda x: x.dtype, 0), **_calls("data", "copy", lambda x: x, 0),
    **_calls("T", "shape", lambda x: x.swapaxes(0, 1) if x.ndim == 2 else x, 0),
}  # fmt: skip
_LIMITS = "min max bits eps tiny"
METHODS: dict[str, dict[str, Call]] = {  # by the type of their owner
    "tensor": {
        **{n: c for n, c in _TORCH.items() if hasattr(Tensor, n)}, **_SHARED,
        **{n: Call(n, "cast", lambda x, d=d: cast(x, d)) for n, d in _TYPES.items()},
        **_calls("to type", "cast", cast, 2, keywords="dtype"),
        **_calls("view", "shape", _SHARED["reshape"].run, 9),
        **_methods("permute", "shape", 9), **_methods("expand", "shape", 9, expanded),
        **_methods("repeat", "shape", 9, repeated), **_methods("expand_as", "shape", 2),
        **_calls("dim", "size", lambda x: x.ndim),
        **_calls("size", "size", lambda x, *a: x.shape[a[0]] if a else tuple(x.shape), 2),
        **_calls("contiguous cpu", "copy", torch.clone), **_calls("numpy", "copy", lambda x: x.clone().numpy()),
    },
    "array": {
        **{n: c for n, c in _NUMPY.items() if hasattr(np.ndarray, n)}, **_SHARED,
        **_calls("astype", "cast", cast, 2, keywords="dtype"), **_calls("flatten", "shape", np.ravel),
        **_methods("transpose", "shape", 9),
    },
    "quantized tensor": _methods("dequantize int_repr", "library", 1),
    "limits": {n: Call(n, "size", lambda x, n=n: np.asarray(getattr(x, n)).item(), 0) for n in _LIMITS.split()},
    "list": _calls("append", "pack", list.append, 2),
}  # fmt: skip


def _module(name: str, *members: dict[str, Any], **more: Any) -> Module:
    found: dict[str, Any] = {"pi": math.pi, "inf": math.inf, "nan": math.nan}
    for each in (*members, more):
        found |= each
    return Module(name, found)


_SEED = _calls("manual_seed seed", "size", lambda n: None)
_nn = _module("torch.nn", functional=_module("torch.nn.functional", {"relu": _TORCH["relu"]}))
_torch = _module(
    "torch", _TORCH, _TYPES, {str(d).removeprefix("torch."): d for d in _TYPES.values()}, _calls("iinfo finfo", "size", torch),
    _calls("quantize_per_tensor quantize_per_channel fake_quantize_per_tensor_affine", "library", torch, 5, keywords="dtype"),
    _calls("tensor as_tensor", "create", _tensor, keywords="dtype"), _calls("numel", "size", lambda x: x.numel()),
    _random("rand randn", False), _random("rand_like randn_like", False, usual),
    nn=_nn, linalg=_module("torch.linalg", norm=_TORCH["norm"]), manual_seed=_SEED["manual_seed"],
    Tensor=Tensor, quint8=torch.quint8, qint8=torch.qint8,
)  # fmt: skip
_numpy = _module(
    "numpy", _NUMPY, {name: getattr(np, name) for name in _NUMPY_TYPES}, _calls("iinfo finfo", "size", np),
    _calls("array asarray", "create", _array, 2, keywords="dtype"),
    random=_module("numpy.random", _random("rand random randn", True), seed=_SEED["seed"]),
    linalg=_module("numpy.linalg", _calls("norm", "reduce", np.linalg.norm, 3, keywords=_AXES)),
    newaxis=None, ndarray=np.ndarray,
)  # fmt: skip
_math = _module("math", _calls("floor ceil trunc", "round", math), _calls("sqrt log2 log exp", "unary", math))
MODULES = {
    "torch": _torch, "numpy": _numpy, "math": _math, "torch.nn": _nn, "torch.nn.functional": _nn.members["functional"],
}  # fmt: skip
ABBREVIATED = MODULES | {"np": _numpy, "F": _nn.members["functional"], "nn": _nn}
TYPES = {"int": int, "float": float, "bool": bool}
WORDS = {*_NUMPY_TYPES, *TYPES, "linear", "lower", "higher", "midpoint", "nearest", "fro"}
ON_LISTS: dict[str, Callable[..., Any]] = {
    "zip": zip, "enumerate": enumerate, "list": list, "tuple": tuple, "reversed": reversed,
}  # fmt: skip
ON_NUMBERS = {  # Python's own
    **_calls("abs", "abs", abs), **_calls("round", "round", round, 2), **_calls("int", "cast", int),
    **_calls("float", "copy", float), **_calls("bool", "binary", bool), **_calls("pow", "pow", pow, 2),
}  # fmt: skip
BUILTINS = frozenset([*ON_LISTS, *ON_NUMBERS, "len", "range", "sum", "min", "max", "print", "super"])
OPERATORS = {  # by the names of their syntax nodes
    name: Call(name, op, run, 2, product if op == "matmul" else usual)
    for name, op, run in (
        ("USub", "neg", operator.neg), ("UAdd", "copy", operator.pos), ("Invert", "binary", operator.invert),
        ("Add", "add", operator.add), ("Sub", "sub", operator.sub), ("Mult", "mul", operator.mul),
        ("Div", "div", operator.truediv), ("FloorDiv", "floor_divide", operator.floordiv), ("Pow", "pow", operator.pow),
        ("Mod", "binary", operator.mod), ("LShift", "shift", operator.lshift), ("RShift", "binary", operator.rshift),
        ("BitAnd", "binary", operator.and_), ("BitOr", "binary", operator.or_), ("BitXor", "binary", operator.xor),
        ("MatMult", "matmul", operator.matmul), ("Eq", "binary", operator.eq), ("NotEq", "binary", operator.ne),
        ("Lt", "binary", operator.lt), ("LtE", "binary", operator.le), ("Gt", "binary", operator.gt),
        ("GtE", "binary", operator.ge), ("Is", "binary", operator.is_), ("IsNot", "binary", operator.is_not),
    )
}  # fmt: skip


def kind_of(value: Any) -> str:
    """The type of an owner of methods, as the white list names it."""
    if isinstance(value, Tensor):
        return "quantized tensor" if value.is_quantized else "tensor"
    if isinstance(value, np.ndarray | np.generic):
        return "array"
    limits = isinstance(value, torch.finfo | np.finfo | torch.iinfo | np.iinfo)
    return "limits" if limits else "list" if isinstance(value, list) else f"a value of type {type(value).__name__.lower()}"
