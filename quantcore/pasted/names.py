"""The white list: what pasted code may call, by (type, name), each with what bounds its result before it is computed."""

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import StopError, broadcast, numel
from quantcore.pasted.casts import cast
from quantcore.pasted.trace import ARRAYS

Bound = Callable[[list[Any], dict[str, Any]], float]


@dataclass(frozen=True)
class Call:
    """A call: ``op``: its operation in the trace; ``run``: what computes it; ``bound``: the elements of its result,
    before it is computed; ``most``: how many positional arguments; ``keywords``: the keywords it may have."""

    name: str
    op: str
    run: Callable[..., Any]
    bound: Bound
    most: int
    keywords: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Module:
    """A module that pasted code may name; its names are the keys of `MEMBERS`."""

    name: str


class Row(tuple[Any, ...]):
    """A tuple whose items have names, as torch.max with an axis returns."""

    names: tuple[str, ...] = ("values", "indices")


def arrays(values: Any) -> Iterator[Any]:
    """The arrays in arguments, also in lists."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from arrays(value)
        elif isinstance(value, ARRAYS):
            yield value


def _broadcast(args: list[Any], kw: dict[str, Any]) -> float:
    return broadcast([a.shape for a in arrays([*args, *kw.values()])])


def _sum(args: list[Any], kw: dict[str, Any]) -> float:
    return sum(numel(a.shape) for a in arrays([*args, *kw.values()]))


def _quantiles(args: list[Any], kw: dict[str, Any]) -> float:
    return math.prod(numel(a.shape) for a in arrays([*args, *kw.values()]))


def _integers(values: Any) -> list[int]:
    found: list[int] = []
    for value in values:
        if isinstance(value, list | tuple):
            found += _integers(value)
        elif isinstance(value, int | np.integer):
            found.append(int(value))
    if any(n.bit_length() > 62 for n in found):
        raise StopError("an axis here is longer than a tensor can be")
    return found


def _sizes(args: list[Any], kw: dict[str, Any]) -> float:
    return math.prod(max(n, 0) for n in _integers([*args, kw.get("size", ()), kw.get("shape", ())]))


def _first_sizes(args: list[Any], kw: dict[str, Any]) -> float:
    return _sizes(args[:1], kw)


def _repeated(args: list[Any], kw: dict[str, Any]) -> float:
    return _sum(args, {}) * math.prod(max(n, 0) for n in _integers([*args[1:], *kw.values()]))


def _expanded(args: list[Any], kw: dict[str, Any]) -> float:
    sizes = _integers([*args[1:], *kw.values()])
    shape = (*(1,) * (len(sizes) - args[0].ndim), *args[0].shape)
    return math.prod(had if n == -1 else n for n, had in zip(sizes, shape, strict=False))


def _product(args: list[Any], kw: dict[str, Any]) -> float:
    a, b = (list(arrays(args))[:2] * 2)[:2]
    if not a.ndim or not b.ndim:
        return _broadcast(args, kw)
    inner = max(int(a.shape[-1]), 1)
    rows = numel(a.shape) // inner
    columns = numel(b.shape) // max(int(b.shape[-2 if b.ndim > 1 else -1]), 1)
    if rows * columns * inner > bounds.MOST_PRODUCTS:
        raise StopError(f"a matrix product here would take more than {bounds.MOST_PRODUCTS:,} multiplications")
    return rows * columns


def _outer(args: list[Any], kw: dict[str, Any]) -> float:
    return math.prod(numel(a.shape) for a in arrays(args))


def _steps(args: list[Any], kw: dict[str, Any]) -> float:
    numbers = [float(a) for a in args if isinstance(a, int | float | np.number)]
    start, stop, step = ([0.0, *numbers, 1.0] if len(numbers) == 1 else [*numbers, 1.0])[:3]
    return abs((stop - start) / step) + 1 if step else math.inf


def _spaced(args: list[Any], kw: dict[str, Any]) -> float:
    counts = _integers([args[2] if len(args) > 2 else kw.get("steps", kw.get("num", 50))])
    return max(counts, default=0)


def _random(args: list[Any], kw: dict[str, Any]) -> Tensor:
    shape = args[0].shape if args and isinstance(args[0], Tensor) else _integers([*args, *kw.values()])
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def _normal(args: list[Any], kw: dict[str, Any]) -> Tensor:
    shape = args[0].shape if args and isinstance(args[0], Tensor) else _integers([*args, *kw.values()])
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _item(value: Any) -> Any:
    return value.item()


def _listed(value: Any) -> Any:
    return value.tolist()


def _tensor(value: Any, dtype: Any = None) -> Tensor:
    return value.detach().clone().to(dtype or value.dtype) if isinstance(value, Tensor) else torch.tensor(value, dtype=dtype)


def _array(value: Any, dtype: Any = None) -> Any:
    found = np.array(value, dtype=dtype)
    if found.dtype.kind not in "biuf":
        raise StopError("an array of anything but numbers is not evaluated")
    return found


def _take_max(which: str) -> Callable[..., Any]:
    reduce, pairs = getattr(torch, which), {"max": torch.maximum, "min": torch.minimum}[which]

    def run(x: Any, *args: Any, **kw: Any) -> Any:
        if args and isinstance(args[0], Tensor):
            return pairs(x, args[0])
        found = reduce(x, *args, **kw)
        return found if isinstance(found, Tensor) else Row(found)

    return run


def _tuple(run: Callable[..., Any], names: tuple[str, ...] = ("values", "indices")) -> Callable[..., Any]:
    def made(*args: Any, **kw: Any) -> Any:
        found = Row(run(*args, **kw))
        found.names = names
        return found

    return made


_AXES = "dim axis keepdim keepdims dtype q interpolation method unbiased correction ddof ord p k"
_ROUND = "round floor ceil trunc"
_UNARY = "sqrt rsqrt exp exp2 log log2 log10 square sign reciprocal tanh sigmoid isnan isinf isfinite logical_not"
_BINARY = "remainder fmod eq ne lt le gt ge logical_and logical_or bitwise_and bitwise_or"

# family: operation, bound, most positional arguments, keywords, names; a name may differ in torch: "here=there"
_TORCH = (
    ("round", _broadcast, 1, "decimals", f"{_ROUND} fix"),
    ("abs", _broadcast, 1, "", "abs absolute"),
    ("neg", _broadcast, 1, "", "neg negative"),
    ("relu", _broadcast, 1, "", "relu"),
    ("unary", _broadcast, 1, "", f"{_UNARY} nan_to_num"),
    ("copy", _broadcast, 1, "", "clone detach"),
    ("add", _broadcast, 2, "other", "add"),
    ("sub", _broadcast, 2, "other", "sub subtract"),
    ("mul", _broadcast, 2, "other", "mul multiply"),
    ("div", _broadcast, 2, "other", "div divide true_divide"),
    ("floor_divide", _broadcast, 2, "other", "floor_divide"),
    ("pow", _broadcast, 2, "exponent", "pow"),
    ("binary", _broadcast, 2, "other", f"{_BINARY} isclose"),
    ("clamp", _broadcast, 3, "min max", "clamp clip"),
    ("clamp", _broadcast, 2, "min max other", "clamp_min clamp_max maximum minimum fmin fmax"),
    ("where", _broadcast, 3, "", "where"),
    ("mask", _broadcast, 3, "", "masked_fill"),
    ("reduce", _sum, 3, _AXES, "amax amin sum mean std var norm argmax argmin all any prod count_nonzero"),
    ("reduce", _quantiles, 4, _AXES, "quantile nanquantile"),
    ("shape", _sum, 3, "start_dim end_dim dim dim0 dim1 dims", "flatten squeeze unsqueeze transpose permute t flip ravel roll swapaxes"),
    ("order", _sum, 3, "dim descending k largest sorted", "cumsum unique argsort"),
    ("matmul", _product, 2, "", "matmul mm bmm"),
    ("matmul", _outer, 2, "", "outer"),
    ("shape", _sum, 2, "dim axis", "cat concat stack hstack vstack"),
    ("shape", _repeated, 9, "dims", "tile"),
    ("getitem", _sum, 3, "", "select narrow diagonal"),
    ("binary", _sum, 3, "rtol atol", "allclose equal"),
    ("like", _sum, 1, "dtype", "zeros_like ones_like"),
)
_NUMPY = (
    ("round", _broadcast, 2, "decimals", f"{_ROUND} around rint fix"),
    ("abs", _broadcast, 1, "", "abs absolute fabs"),
    ("neg", _broadcast, 1, "", "negative"),
    ("unary", _broadcast, 1, "", f"{_UNARY.replace('rsqrt ', '').replace('sigmoid ', '')} nan_to_num"),
    ("add", _broadcast, 2, "", "add"),
    ("sub", _broadcast, 2, "", "subtract"),
    ("mul", _broadcast, 2, "", "multiply"),
    ("div", _broadcast, 2, "", "divide true_divide"),
    ("floor_divide", _broadcast, 2, "", "floor_divide"),
    ("pow", _broadcast, 2, "", "power"),
    ("binary", _broadcast, 2, "", "remainder fmod mod logical_and logical_or isclose"),
    ("clamp", _broadcast, 3, "a_min a_max min max", "clip"),
    ("clamp", _broadcast, 2, "", "maximum minimum fmax fmin"),
    ("where", _broadcast, 3, "", "where"),
    ("reduce", _sum, 2, _AXES, "max amax min amin ptp sum mean std var argmax argmin all any median prod count_nonzero"),
    ("reduce", _quantiles, 3, _AXES, "percentile quantile nanpercentile"),
    ("shape", _sum, 2, "axis", "squeeze expand_dims transpose ravel flip stack concatenate hstack vstack"),
    ("shape", _sum, 2, "shape newshape", "reshape"),
    ("shape", _expanded, 2, "shape", "broadcast_to"),
    ("shape", _repeated, 2, "", "tile"),
    ("order", _sum, 2, "axis", "cumsum unique argsort sort"),
    ("matmul", _product, 2, "", "matmul dot"),
    ("matmul", _outer, 2, "", "outer"),
    ("copy", _sum, 1, "", "copy"),
    ("binary", _sum, 4, "rtol atol", "allclose array_equal"),
    ("like", _sum, 1, "dtype", "zeros_like ones_like"),
)


def _calls(table: Any, home: Any) -> dict[str, Call]:
    return {
        name: Call(name, op, getattr(home, name), bound, most, frozenset(keywords.split()))
        for op, bound, most, keywords, names in table
        for name in names.split()
    }


def _one(name: str, op: str, run: Callable[..., Any], bound: Bound, most: int, keywords: str = "") -> dict[str, Call]:
    return {name: Call(name, op, run, bound, most, frozenset(keywords.split()))}


_BOTH = {  # of torch, as functions and as methods
    **_calls(_TORCH, torch),
    **_one("max", "reduce", _take_max("max"), _sum, 3, "dim axis keepdim"),
    **_one("min", "reduce", _take_max("min"), _sum, 3, "dim axis keepdim"),
    **_one("median", "reduce", lambda x, *a, **k: _tuple(torch.median)(x, *a, **k) if a or k else torch.median(x), _sum, 3, "dim keepdim"),
    **_one("aminmax", "reduce", _tuple(torch.aminmax, ("min", "max")), _sum, 1, "dim keepdim"),
    **_one("sort", "order", _tuple(torch.sort), _sum, 3, "dim descending"),
    **_one("topk", "order", _tuple(torch.topk), _sum, 3, "dim k largest sorted"),
    **_one("kthvalue", "reduce", _tuple(torch.kthvalue), _sum, 3, "dim k keepdim"),
    **_one("chunk", "shape", lambda x, *a, **k: tuple(torch.chunk(x, *a, **k)), _sum, 3, "dim"),
    **_one("split", "shape", lambda x, *a, **k: tuple(torch.split(x, *a, **k)), _sum, 3, "dim"),
    **_one("reshape", "shape", torch.reshape, _sum, 2, "shape"),
    **_one("repeat_interleave", "shape", torch.repeat_interleave, _repeated, 3, "dim"),
    **_one("numel", "size", lambda x: x.numel(), lambda a, k: 1, 1),
}  # fmt: skip
_CASTS = dict(
    float=torch.float32, half=torch.float16, double=torch.float64, bfloat16=torch.bfloat16, int=torch.int32,
    long=torch.int64, short=torch.int16, char=torch.int8, byte=torch.uint8, bool=torch.bool,
)  # fmt: skip


def _as(dtype: torch.dtype) -> Callable[[Any], Any]:
    return lambda x: cast(x, dtype)


def _method(name: str) -> Callable[..., Any]:
    found = getattr(Tensor, name)
    return lambda x, *args, **kw: found(x, *args, **kw)


TENSOR: dict[str, Call] = {
    **{n: c for n, c in _BOTH.items() if n not in ("zeros_like", "ones_like", "cat", "concat", "stack", "hstack", "vstack")},
    **{n: Call(n, "cast", _as(d), _broadcast, 1) for n, d in _CASTS.items()},
    **_one("to", "cast", cast, _broadcast, 2, "dtype"),
    **_one("type", "cast", cast, _broadcast, 2, "dtype"),
    **_one("view", "shape", _method("reshape"), _sum, 9, "shape"),
    **_one("reshape", "shape", _method("reshape"), _sum, 9, "shape"),
    **_one("permute", "shape", _method("permute"), _sum, 9, "dims"),
    **_one("expand", "shape", _method("expand"), _expanded, 9),
    **_one("repeat", "shape", _method("repeat"), _repeated, 9),
    **_one("expand_as", "shape", _method("expand_as"), lambda a, k: numel(a[1].shape), 2),
    **_one("view_as", "shape", _method("reshape_as"), _sum, 2),
    **_one("reshape_as", "shape", _method("reshape_as"), _sum, 2),
    **_one("item", "item", _item, lambda a, k: 1, 1),
    **_one("tolist", "list", _listed, _sum, 1),
    **_one("dim", "size", lambda x: x.dim(), lambda a, k: 1, 1),
    **_one("size", "size", lambda x, *a: tuple(x.shape) if not a else x.shape[a[0]], lambda a, k: 1, 2, "dim"),
    **{n: Call(n, "copy", torch.clone if n == "contiguous" else (lambda x: x), _sum, 1) for n in ("contiguous", "cpu")},
    **_one("numpy", "copy", lambda x: x.numpy(), _sum, 1),
}  # fmt: skip
QUANTIZED: dict[str, Call] = {
    **_one("dequantize", "dequantize", lambda x: x.dequantize(), _sum, 1),
    **_one("int_repr", "library", lambda x: x.int_repr(), _sum, 1),
    **_one("q_scale", "size", lambda x: x.q_scale(), _sum, 1),
    **_one("q_zero_point", "size", lambda x: x.q_zero_point(), _sum, 1),
}
_NUMPY_FUNCTIONS = _calls(_NUMPY, np)
ARRAY: dict[str, Call] = {
    **{n: _NUMPY_FUNCTIONS[n] for n in "round clip max min ptp sum mean std var argmax argmin all any prod squeeze ravel cumsum copy dot".split()},
    **_one("astype", "cast", cast, _broadcast, 2, "dtype"),
    **_one("reshape", "shape", lambda x, *s: np.reshape(x, s[0] if len(s) == 1 else s), _sum, 9),
    **_one("transpose", "shape", lambda x, *s: np.transpose(x, (s[0] if len(s) == 1 and not isinstance(s[0], int) else s) or None), _sum, 9),
    **_one("flatten", "shape", lambda x: x.flatten(), _sum, 1),
    **_one("repeat", "shape", lambda x, *a, **k: np.repeat(x, *a, **k), _repeated, 3, "axis"),
    **_one("item", "item", _item, lambda a, k: 1, 1),
    **_one("tolist", "list", _listed, _sum, 1),
}  # fmt: skip
TENSOR_PROPERTIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "shape": ("size", lambda x: tuple(x.shape)), "dtype": ("size", lambda x: x.dtype), "ndim": ("size", lambda x: x.ndim),
    "T": ("shape", lambda x: x.T if x.ndim == 2 else torch.permute(x, tuple(range(x.ndim))[::-1])),
    "mT": ("shape", lambda x: x.mT), "data": ("copy", lambda x: x),
}  # fmt: skip
ARRAY_PROPERTIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "shape": ("size", lambda x: tuple(x.shape)), "dtype": ("size", lambda x: x.dtype), "ndim": ("size", lambda x: x.ndim),
    "size": ("size", lambda x: int(x.size)), "T": ("shape", lambda x: x.T),
}  # fmt: skip


def _library(run: Callable[..., Any], name: str, most: int) -> dict[str, Call]:
    return _one(name, "library", run, _broadcast, most, "scale zero_point axis dtype quant_min quant_max")


_CREATED = {
    name: Call(name, "create", run, bound, most, frozenset(("size", "shape", "dtype", "fill_value", "steps", "num")))
    for name, run, bound, most in (
        ("zeros", torch.zeros, _sizes, 9), ("ones", torch.ones, _sizes, 9), ("full", torch.full, _first_sizes, 2),
        # torch.empty would show what was in memory before
        ("empty", torch.zeros, _sizes, 9), ("empty_like", torch.zeros_like, _sum, 1), ("full_like", torch.full_like, _sum, 2),
        ("arange", torch.arange, _steps, 3), ("linspace", torch.linspace, _spaced, 3), ("eye", torch.eye, lambda a, k: _sizes([*a, *a][:2], k), 2),
    )
}  # fmt: skip
_CREATED_BY_NUMPY = {
    name: Call(name, "create", run, bound, most, frozenset(("shape", "dtype", "num")))
    for name, run, bound, most in (
        ("zeros", np.zeros, _sizes, 1), ("ones", np.ones, _sizes, 1), ("full", np.full, _first_sizes, 2),
        ("empty", np.zeros, _sizes, 1), ("empty_like", np.zeros_like, _sum, 1), ("full_like", np.full_like, _sum, 2),
        ("arange", np.arange, _steps, 3), ("linspace", np.linspace, _spaced, 3),
    )
}  # fmt: skip
_TORCH_DTYPES = "float32 float16 float64 bfloat16 int8 uint8 int16 int32 int64 bool float half double int long short".split()
_NUMPY_DTYPES = "float32 float16 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool_".split()
_FLOATS = {"pi": math.pi, "inf": math.inf, "nan": math.nan, "e": math.e}
# what pasted code may name in a module: a call, a constant, or another module
MEMBERS: dict[str, dict[str, Any]] = {
    "torch": {
        **_BOTH, **_CREATED, **{n: getattr(torch, n) for n in (*_TORCH_DTYPES, "qint8", "quint8", "qint32")}, **_FLOATS,
        **_one("tensor", "create", _tensor, _sum, 1, "dtype"), **_one("as_tensor", "create", _tensor, _sum, 1, "dtype"),
        **_one("is_tensor", "size", lambda x: isinstance(x, Tensor), lambda a, k: 1, 1),
        **_one("finfo", "size", torch.finfo, lambda a, k: 1, 1), **_one("iinfo", "size", torch.iinfo, lambda a, k: 1, 1),
        **{n: Call(n, "random", lambda *a, **k: _random(list(a), k), b, 9, frozenset(("size",))) for n, b in (("rand", _sizes), ("rand_like", _sum))},
        **{n: Call(n, "random", lambda *a, **k: _normal(list(a), k), b, 9, frozenset(("size",))) for n, b in (("randn", _sizes), ("randn_like", _sum))},
        **_one("manual_seed", "none", lambda n: None, lambda a, k: 1, 1),
        **_library(torch.quantize_per_tensor, "quantize_per_tensor", 4), **_library(torch.quantize_per_channel, "quantize_per_channel", 5),
        **_library(torch.fake_quantize_per_tensor_affine, "fake_quantize_per_tensor_affine", 5),
        "nn": Module("torch.nn"), "linalg": Module("torch.linalg"), "Tensor": Tensor,
    },
    "torch.nn": {"functional": Module("torch.nn.functional"), "Module": object},
    "torch.linalg": {"norm": _BOTH["norm"]},
    "torch.nn.functional": {
        "relu": _BOTH["relu"], **_one("mse_loss", "reduce", torch.nn.functional.mse_loss, _broadcast, 2),
        **_one("linear", "matmul", torch.nn.functional.linear, _outer, 2),
    },
    "numpy": {
        **_NUMPY_FUNCTIONS, **_CREATED_BY_NUMPY, **{n: getattr(np, n) for n in _NUMPY_DTYPES}, **_FLOATS, "newaxis": None,
        **_one("array", "create", _array, _sum, 2, "dtype"), **_one("asarray", "create", _array, _sum, 2, "dtype"),
        **_one("finfo", "size", np.finfo, lambda a, k: 1, 1), **_one("iinfo", "size", np.iinfo, lambda a, k: 1, 1),
        "random": Module("numpy.random"), "linalg": Module("numpy.linalg"), "ndarray": np.ndarray, "bool": np.bool_,
    },
    "numpy.random": {
        **{n: Call(n, "random", lambda *a, **k: _random(list(a), k).numpy().astype(np.float64), _sizes, 9, frozenset(("size",))) for n in ("rand", "random")},
        **_one("randn", "random", lambda *a, **k: _normal(list(a), k).numpy().astype(np.float64), _sizes, 9, "size"),
        **_one("seed", "none", lambda n: None, lambda a, k: 1, 1),
    },
    "numpy.linalg": _one("norm", "reduce", np.linalg.norm, _sum, 3, "axis keepdims"),
    "math": {
        **{n: Call(n, "round", getattr(math, n), lambda a, k: 1, 1) for n in ("floor", "ceil", "trunc")},
        **{n: Call(n, "unary", getattr(math, n), lambda a, k: 1, 1) for n in ("sqrt", "log2", "log", "exp", "fabs", "isnan", "isinf")},
        **_FLOATS,
    },
}  # fmt: skip
DTYPES = frozenset(("float32 float16 float64 int8 uint8 int16 uint16 int32 uint32 int64 int float bool").split())
WORDS = DTYPES | {"linear", "lower", "higher", "midpoint", "nearest", "fro", "floor", "trunc"}
BINARY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "Add": ("add", operator.add), "Sub": ("sub", operator.sub), "Mult": ("mul", operator.mul), "Div": ("div", operator.truediv),
    "FloorDiv": ("floor_divide", operator.floordiv), "Mod": ("binary", operator.mod), "Pow": ("pow", operator.pow),
    "LShift": ("shift", operator.lshift), "RShift": ("shift", operator.rshift), "BitAnd": ("binary", operator.and_),
    "BitOr": ("binary", operator.or_), "BitXor": ("binary", operator.xor), "MatMult": ("matmul", operator.matmul),
}  # fmt: skip
IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd, "Sub": operator.isub, "Mult": operator.imul, "Div": operator.itruediv, "FloorDiv": operator.ifloordiv
}
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge
}
bound_of_operator: dict[str, Bound] = {"MatMult": _product}


def bound_of_index(shape: tuple[int, ...], index: Any) -> float:
    """The elements of ``x[index]`` of a tensor of ``shape``, at most."""
    parts = index if isinstance(index, tuple) else (index,)
    chosen = [p for p in parts if isinstance(p, ARRAYS) and p.dtype not in (torch.bool, np.bool_)]
    if not chosen:
        return numel(shape) + 1
    rest = sorted(shape)[len(chosen) :]  # an index array takes the place of an axis
    return max(broadcast([c.shape for c in chosen]) * numel(tuple(rest)), 1)


def plain_bound(args: list[Any]) -> float:
    """The elements of an operator's result."""
    return _broadcast(args, {})
