"""What pasted code may call, by (type, name), each with what bounds its result before it is computed."""

import inspect
import math
import operator
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import (
    bounds,
    library_arrays,
    library_blocks,
    library_code,
    library_models,
    made,
    narrow,
    scripts,
)
from quantcore.pasted.bounds import sizes, usual
from quantcore.pasted.library_blocks import FORMATS, nested_scales, packed
from quantcore.pasted.library_models import hqq_packed, hqq_zero
from quantcore.pasted.made import cast

_OPERATIONS = {  # what the trace calls them
    "round": "round floor ceil trunc fix rint around",
    "abs": "abs absolute fabs relu",
    "neg": "neg negative",
    "shift": "lshift left_shift bitwise_left_shift",
    "cast": "to type astype float half double bfloat16 int long short char byte bool",
    "unary": "sqrt rsqrt exp exp2 log log2 log10 square reciprocal tanh sigmoid isnan isinf isfinite "
    "logical_not",
    "sign": "sign copysign",
    "copy": "clone detach copy from_numpy nan_to_num contiguous cpu pos data Parameter",
    "add": "add",
    "sub": "sub subtract",
    "mul": "mul multiply",
    "div": "div divide true_divide truediv",
    "floor_divide": "floor_divide floordiv",
    "pow": "pow power",
    "clamp": "clamp clip clamp_min clamp_max maximum minimum fmin fmax",
    "where": "where",
    "mask": "masked_fill",
    "reduce": "mse_loss cosine_similarity "
    "max min amax amin ptp sum mean std var norm argmax argmin all any median prod kthvalue "
    "aminmax count_nonzero quantile nanquantile percentile nanpercentile",
    "shape": "squeeze unsqueeze expand_dims transpose swapaxes t flip ravel flatten cat concat concatenate "
    "stack hstack vstack reshape permute tile repeat_interleave chunk broadcast_to expand repeat "
    "split expand_as view T reshape_as view_as",
    "getitem": "select narrow item tolist take index_select gather",
    "other": "bucketize digitize searchsorted "
    "remainder fmod eq ne lt gt le ge logical_and logical_or isclose allclose equal array_equal "
    "bincount scatter_add index_add frexp cumsum unique argsort sort topk matmul mm dot outer zeros_like "
    "ones_like empty_like zeros bitwise_or bitwise_and bitwise_xor right_shift bitwise_right_shift "
    "ones empty full full_like new_zeros new_ones new_empty new_full new_tensor eye arange linspace",
    "random": "rand randn random rand_like randn_like uniform normal standard_normal randperm randint",
}
_BOUNDS: dict[str, Callable[[list[Any]], float]] = {  # of the elements of a result, if not `usual`
    "quantile nanquantile percentile nanpercentile outer": bounds.crossed,
    "matmul mm dot linear": bounds.product,
    "zeros ones empty rand randn random standard_normal randperm": sizes,
    "randint": lambda values: sizes(values[2:]),
    "new_zeros new_ones new_empty": lambda values: sizes(values[1:]),
    "new_full": lambda values: sizes(values[1:2]),
    "tile repeat repeat_interleave chunk": bounds.repeated,
    "expand broadcast_to": bounds.expanded,
    "arange": bounds.ranged,
    "full": lambda values: sizes(values[:1]),
    "eye": lambda values: sizes(values[:1]) * max(sizes(values[:1]), sizes(values[1:])),
    "bincount": bounds.counted,
    "unique": lambda values: 2 * usual(values),  # also where each is, and how often
    "where": lambda values: (
        usual(values) * (bounds.MOST_AXES if len(values) == 1 else 1)
    ),  # of one, its indices
    "linspace": lambda values: usual(values[:2]) * max(sizes(values[2:]), 50),  # NumPy's, if none is given
    "zeros_like ones_like empty_like": lambda values: usual(values[:1]) + sizes(values[1:]),
    "full_like": lambda values: usual(values[:1]) + sizes(values[2:]),
}
_OPERATION_OF = {name: op for op, names in _OPERATIONS.items() for name in names.split()}
Bound = Callable[[Sequence[Any], Sequence[Any]], float]


def _together(bound: Callable[[list[Any]], float]) -> Bound:
    """Return a bound to which it is the same whether an argument is given by its place or by its name."""
    return lambda given, named: bound([*given, *named])


_USUAL = _together(usual)
_BOUND_OF: dict[str, Bound] = {
    name: _together(bound) for names, bound in _BOUNDS.items() for name in names.split()
}
_BOUND_OF |= dict.fromkeys(("uniform", "normal"), bounds.drawn)
# what may be given by name: never a place for the result, a device, a file, a function, or `requires_grad`
_KEYWORDS = """
    dim axis dims keepdim keepdims decimals other exponent rtol atol min max a_min a_max q interpolation
    method unbiased correction ddof ord p k dtype start_dim shape size descending steps num right side
    weights minlength
"""
KEYWORDS = frozenset(_KEYWORDS.split())


@dataclass(frozen=True)
class Allowed:
    """A call. ``run``: what computes it, None if the interpreter itself; ``most``: how many arguments may be
    positional, 0 for an attribute."""

    name: str
    run: Any
    most: int = 9

    @property
    def op(self) -> str:
        """Its operation, as the values of an evaluation have it."""
        return _OPERATION_OF.get(self.name, "other")

    def bound(self, given: list[Any], named: Sequence[Any] = ()) -> float:
        """Return how many elements its result has at most, from its arguments and from those by name."""
        return _BOUND_OF.get(self.name, _USUAL)(given, named)


@dataclass(frozen=True, eq=False)
class Module:
    """A module that pasted code may name, and what it may name in it."""

    name: str
    members: dict[str, Any]


@dataclass(frozen=True)
class LeftToLibrary:
    """A call of a library that is not followed: its name, and why, or what to do instead."""

    name: str
    why: str


@dataclass(frozen=True, eq=False)
class Mapped:
    """A function that is called with each element of an array."""

    function: Any


@dataclass(frozen=True)
class LibraryName:
    """A call of a library, by the name of its definition in `quantcore.pasted.library_code`."""

    name: str


def _most(run: Callable[..., Any]) -> int:
    """Return how many arguments may be positional, so that none is `out`, which torch takes by name alone."""
    if isinstance(run, np.ufunc):
        return int(run.nin)
    try:
        named = inspect.signature(run).parameters
    except ValueError:
        return 9
    parameters, several = list(named), any(p.kind == p.VAR_POSITIONAL for p in named.values())
    return 9 if several else [*parameters, "out"].index("out")


def _calls(home: Any, **own: Callable[..., Any]) -> dict[str, Allowed]:
    """Return what the list has of a module or a type, and what is computed otherwise."""
    found = {n: getattr(home, n, None) for n in _OPERATION_OF}
    runs = {n: run for n, run in found.items() if callable(run) and not isinstance(run, type)} | own
    return {n: Allowed(n, run, _most(run)) for n, run in runs.items()}


# torch.empty would show what was in memory before
_TORCH = _calls(
    torch, empty=torch.zeros, empty_like=torch.zeros_like, tensor=made.tensor, as_tensor=made.tensor,
    numel=lambda x: x.numel(), iinfo=torch.iinfo, finfo=torch.finfo, manual_seed=lambda n: None,
    rand=partial(made.drawn, torch.rand), rand_like=lambda x, **kw: made.drawn(torch.rand, x.shape),
    randn=partial(made.drawn, torch.randn), randn_like=lambda x, **kw: made.drawn(torch.randn, x.shape),
    FloatTensor=made.tensor, from_numpy=lambda x: torch.from_numpy(np.array(x)),
    randperm=lambda n, **kw: torch.randperm(int(n), generator=torch.Generator().manual_seed(0)),
    randint=lambda low, high, size, **kw: made.integers(low, high, size),
)  # fmt: skip
_NUMPY = _calls(
    np, astype=cast, empty=np.zeros, empty_like=np.zeros_like, array=made.array, asarray=made.array,
    iinfo=np.iinfo, finfo=np.finfo,
)  # fmt: skip
_TYPES = {
    "float": torch.float32, "half": torch.float16, "double": torch.float64, "bfloat16": torch.bfloat16,
    "int": torch.int32, "long": torch.int64, "short": torch.int16, "char": torch.int8, "byte": torch.uint8,
    "bool": torch.bool,
}  # fmt: skip
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_NUMPY_NAMES = "float16 float32 float64 int8 uint8 int16 uint16 int32 uint32 int64"
_NUMPY_TYPES = {name: getattr(np, name) for name in _NUMPY_NAMES.split()}
_SHARED = {name: Allowed(name, attribute, 0) for name, attribute in dict[str, Callable[[Any], Any]](
    shape=lambda x: tuple(x.shape), ndim=lambda x: x.ndim, dtype=lambda x: x.dtype, data=lambda x: x,
    T=lambda x: x.swapaxes(0, 1) if x.ndim == 2 else x,
).items()}  # fmt: skip
_NEW: dict[str, Callable[..., Any]] = {
    "new_zeros": partial(made.new, torch.zeros), "new_ones": partial(made.new, torch.ones),
    "new_empty": partial(made.new, torch.zeros), "new_tensor": partial(made.new, made.tensor),
    "new_full": lambda x, *args, **kw: made.new(torch.full, x, *args, **kw),
}  # fmt: skip
_LIMITS = ("min", "max", "bits", "eps", "tiny")
METHODS: dict[str, dict[str, Allowed]] = {  # by the type of their owner
    "tensor": {
        **_calls(Tensor, dim=lambda x: x.ndim, view=made.view, to=cast, type=cast,
                 size=lambda x, *axis: x.shape[axis[0]] if axis else tuple(x.shape),
                 numpy=lambda x: x.clone().numpy(), numel=lambda x: x.numel(), nelement=lambda x: x.numel(),
                 copy=lambda x, y: y.expand(x.shape),
                 uniform=lambda x, low=0.0, high=1.0: low + (high - low) * made.drawn(torch.rand, x.shape),
                 normal=lambda x, mean=0.0, std=1.0: mean + std * made.drawn(torch.randn, x.shape),
                 reshape_as=lambda x, y: x.reshape(y.shape), view_as=lambda x, y: x.reshape(y.shape),
                 **_NEW), **_SHARED,
        **{n: Allowed(n, lambda x, d=d: cast(x, d)) for n, d in _TYPES.items()},
    },
    "array": {
        **{n: c for n, c in _NUMPY.items() if hasattr(np.ndarray, n)}, **_SHARED,
        **{n: Allowed(n, lambda x, *args, n=n, **kw: getattr(x, n)(*args, **kw))
           for n in ("item", "tolist", "flatten", "reshape", "transpose")},
        "astype": Allowed("astype", cast, 2),
        "size": Allowed("size", lambda x: x.size, 0),
    },
    "limits": {n: Allowed(n, lambda x, n=n: np.asarray(getattr(x, n)).item(), 0) for n in _LIMITS},
    "list": {"append": Allowed("append", list.append, 2)},
    "dictionary": {name: Allowed(name, None) for name in ("get", "keys", "values", "items")},
    "text": {name: Allowed(name, None) for name in ("startswith", "endswith")},
}  # fmt: skip


def _module(name: str, *members: dict[str, Any], **more: Any) -> Module:
    constants = {"pi": math.pi, "inf": math.inf, "nan": math.nan}
    return Module(name, dict(ChainMap(more, *reversed(members), constants)))


_nn = _module(
    "torch.nn",
    Parameter=Allowed("Parameter", lambda x: x.clone(), 1),
    functional=_module(
        "torch.nn.functional",
        {
            "relu": _TORCH["relu"],
            "linear": Allowed("linear", torch.nn.functional.linear, 3),
            "mse_loss": Allowed("mse_loss", torch.nn.functional.mse_loss, 2),
            "cosine_similarity": Allowed("cosine_similarity", torch.nn.functional.cosine_similarity, 4),
        },
    ),
)
_torch = _module(
    "torch", _TORCH, _TYPES, {str(d).removeprefix("torch."): d for d in _TYPES.values()},
    nn=_nn, Tensor=Tensor, linalg=_module("torch.linalg", norm=_TORCH["norm"]),
    **{name: getattr(torch, name) for name in _FLOAT8},
    **{f"int{n}": getattr(torch, f"int{n}") for n in range(1, 8)},
    quint8=torch.quint8, qint8=torch.qint8, qint32=torch.qint32,
)  # fmt: skip
_numpy = _module(
    "numpy", _NUMPY, _NUMPY_TYPES, newaxis=None, ndarray=np.ndarray,
    random=_module("numpy.random", {
        name: Allowed(name, lambda *sizes, n=n, **kw: _TORCH[n].run(*sizes, **kw).double().numpy())
        for name, n in (
            ("rand", "rand"), ("random", "rand"), ("randn", "randn"), ("standard_normal", "randn"),
        )
    }, seed=_TORCH["manual_seed"], uniform=Allowed("uniform", made.between),
       normal=Allowed("normal", made.around)),
    **{n: Allowed(n, None) for n in ("ndenumerate", "ndindex", "nditer", "vectorize")},
    linalg=_module("numpy.linalg", norm=Allowed("norm", np.linalg.norm)),
)  # fmt: skip
_random = _numpy.members["random"]
_random.members["default_rng"] = _random.members["RandomState"] = Allowed("seed", lambda *seed: _random)
# other libraries of arrays, which are NumPy's here: their own are in float32
_single = partial(made.array_of, np.float32)
_ARRAYS32 = {n: Allowed(n, _single, 2) for n in ("array", "asarray")}
_LIMITS_OF = {n: Allowed(n, lambda x, n=n: narrow.limits(x) if np.dtype(x).metadata else getattr(np, n)(x), 1)
              for n in ("finfo", "iinfo")}  # fmt: skip
_ml_dtypes = _module("ml_dtypes", narrow.NARROW, _LIMITS_OF)
_jax = _module(
    "jax.numpy", _NUMPY, _NUMPY_TYPES, narrow.NARROW, _LIMITS_OF, _ARRAYS32, newaxis=None, ndarray=np.ndarray
)
_tensorflow = _module(
    "tensorflow",
    {name: (_NUMPY | _ARRAYS32)[of] for name, of in library_arrays.TENSORFLOW.items() if of in _NUMPY},
    _NUMPY_TYPES,
    {"bfloat16": narrow.NARROW["bfloat16"]},
    random=_module(
        "tensorflow.random",
        set_seed=_TORCH["manual_seed"],
        normal=Allowed("randn", lambda shape: _TORCH["randn"].run(*shape).numpy(), 1),
    ),
)
_tensorflow.members["math"] = _tensorflow
ROUNDED = {"floor": _TORCH["floor"], "trunc": _TORCH["trunc"]}  # of a quotient, by its rounding mode
_ON_ONE = ("floor", "ceil", "trunc", "sqrt", "log2", "log", "exp")
_collections = _module("collections", namedtuple=Allowed("namedtuple", None))
_math = _module("math", {name: Allowed(name, getattr(math, name), 1) for name in _ON_ONE})
MODULES = {
    "torch": _torch, "numpy": _numpy, "math": _math, "collections": _collections,
    "torch.nn": _nn, "torch.nn.functional": _nn.members["functional"],
    "tensorflow": _tensorflow, "jax": _module("jax", numpy=_jax), "jax.numpy": _jax, "ml_dtypes": _ml_dtypes,
}  # fmt: skip
LIBRARIES = (library_code, library_blocks, library_models, library_arrays, scripts)
_PATHS = [path for of in LIBRARIES for path in (*of.CALLS, *of.CONSTANTS, *of.LEFT)]
for _path in _PATHS:  # and every module on the way to it
    _parts = _path.split(".")
    for _i in range(1, len(_parts) + 1):
        _name, _above = ".".join(_parts[:_i]), MODULES.get(".".join(_parts[: _i - 1]))
        MODULES.setdefault(_name, _module(_name))
        if _above is not None:
            _above.members.setdefault(_parts[_i - 1], MODULES[_name])
    for _of in LIBRARIES:
        _members = MODULES[_path].members
        _members.update({n: LibraryName(d) for n, d in _of.CALLS.get(_path, {}).items()})
        _members.update({n: LeftToLibrary(n, why) for n, why in _of.LEFT.get(_path, {}).items()})
        _members.update(_of.CONSTANTS.get(_path, {}))
ABBREVIATED = MODULES | {"np": _numpy, "tf": _tensorflow, "jnp": _jax, "F": _nn.members["functional"]}
ABBREVIATED["nn"] = _nn
# for the definitions of libraries: their tables, as a tensor is made, and places in these, as they are found
LIBRARY_TABLES = {
    f"{name}_table": Allowed("tensor", lambda f=fmt: f.table, 0) for name, fmt in FORMATS.items()
} | {
    f"{name}_codes": Allowed("bucketize", lambda x, table, f=fmt: f.encode(x), 2)
    for name, fmt in FORMATS.items()
} | {
    run.__name__: Allowed(run.__name__, run) for run in (packed, nested_scales, hqq_packed, hqq_zero)
} | {
    name: Allowed(name, None) for name in ("argument", "fill", "arranged")
}  # fmt: skip
TYPES = (int, float, bool)
WORDS = {*_NUMPY_TYPES, "int", "float", "bool", "linear", "lower", "higher", "midpoint", "nearest", "fro"}
WORDS |= {"left", "right"}
# Python's own: on lists, on numbers, and those that the interpreter computes
ON_LISTS: dict[str, Callable[..., Any]] = {
    "zip": zip, "enumerate": enumerate, "list": list, "tuple": tuple, "reversed": reversed,
}  # fmt: skip
_PYTHON: dict[str, Any] = {"abs": abs, "round": round, "int": int, "float": float, "bool": bool, "pow": pow}
BUILTINS = {name: Allowed(name, run, 2) for name, run in _PYTHON.items()} | {
    name: Allowed(name, None)
    for name in (
        *ON_LISTS,
        "map",
        "dict",
        "namedtuple",
        "len",
        "range",
        "sum",
        "min",
        "max",
        "print",
        "super",
        "isinstance",
    )
}
_OPERATORS = {  # by their syntax nodes: the name in Python's module `operator`
    "USub": "neg", "UAdd": "pos", "Invert": "invert",
    "Add": "add", "Sub": "sub", "Mult": "mul", "MatMult": "matmul", "Pow": "pow",
    "Div": "truediv", "FloorDiv": "floordiv", "Mod": "mod", "LShift": "lshift", "RShift": "rshift",
    "BitAnd": "and_", "BitOr": "or_", "BitXor": "xor", "Is": "is_", "IsNot": "is_not",
    "Eq": "eq", "NotEq": "ne", "Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge",
}  # fmt: skip
OPERATORS = {node: Allowed(name, getattr(operator, name), 2) for node, name in _OPERATORS.items()}


_KINDS: dict[str, Any] = {
    "tensor": Tensor, "array": (np.ndarray, np.generic), "list": list, "dictionary": dict, "text": str,
    "limits": (torch.finfo, torch.iinfo, np.finfo, np.iinfo, narrow.TypeInfo),
}  # fmt: skip


def kind_of(value: Any) -> str:
    """Return the type of an owner of methods, as the white list names it."""
    known = next((kind for kind, types in _KINDS.items() if isinstance(value, types)), "")
    return known or f"a value of type {type(value).__name__.lower()}"
