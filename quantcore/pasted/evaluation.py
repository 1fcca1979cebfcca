"""What pasted code is given and computes within its bounds: each value with the operation that made it.

What can't be computed raises `StopError`; what exceeds its budget, `OverLimitError`.
"""

import ast
import math
import re
import time
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import ARRAYS, NUMBERS, StopError, flat, is_mask, require, shape_of
from quantcore.pasted.names import BUILTINS, KEYWORDS, TYPES, WORDS, Allowed, cast
from quantcore.pasted.narrow import plain
from quantcore.pasted.values import OWN, Names, Override, Val, Vals, ValuesAndIndices

_SCALE = re.compile(r"(\w+_)?(s|scales?|step|step_size|delta)|qscale", re.I)
_ZERO = re.compile(r"(\w+_)?(z|zp|zeros?|zero_?points?|offset)", re.I)
_BITS = re.compile(r"\w*bits?|bit_?width", re.I)
_NO_TENSOR = re.compile(
    r"\w*(min|max|low|high|level|size|dim|axis|eps|bound|limit|range|dtype|device|mode|name|path|file|config"
    r"|args|model|group|block)\w*|lo|hi|[nkij]|lr|alpha|beta|gamma|self|cls|ctx|_\w*", re.I,
)  # fmt: skip
# besides a first tensor
_SECOND = re.compile(r"[xwyt]|\w*(weight|input|tensor|data|image|img|matrix|array)\w*", re.I)
# operations that keep a type of numbers
_KEPT = ("cast", "copy", "shape", "getitem", "setitem", "other")
# a tensor that the code makes itself
_OWN_DATA = ("tensor", "as_tensor", "array", "asarray", "randn", "normal", "standard_normal")
_MAKERS = (*_OWN_DATA, "rand", "random", "uniform", "linspace", "arange")
_EVEN = re.compile(r"\b(rand|random|uniform|normal|linspace|arange)_?\(")
_DEEPEST = 12  # of lists in lists
_ASKED_EACH, _ELEMENTS_OF_STEP = 16, 256  # steps between two looks at the time; elements that are one
_FAILURES = (TypeError, ValueError, LookupError, RuntimeError, ArithmeticError, AttributeError, MemoryError)
_NOT_REAL = ("64j", "complex64", "complex128", "object")
# operations whose result holds the elements of their data, one by one
_ELEMENTWISE = (
    "add", "sub", "mul", "div", "floor_divide", "round", "clamp", "cast", "abs", "neg", "unary", "pow",
    "copy", "mask", "signed", "where", "shape", "getitem",
)  # fmt: skip


@dataclass(frozen=True)
class CodeInputs:
    """Parsed code and what it is given: the tensor ``x``, float32, and what it does not compute itself.

    ``handed``: a scale and zero point, by default those of int8 asymmetric; ``flags``: values of boolean
    parameters of functions that nobody calls, by name; ``end``: the processor time of this thread at which
    every evaluation ends; ``steps``: how many one may take; ``turns``: most of a loop that only repeats its
    body, 0 for all; ``stand_in``: gives the values in place of those
    of a tensor that the code makes itself, from its line and these; None where they stay.
    """

    text: str
    tree: ast.Module
    x: Tensor
    handed: tuple[float, int] | None = None
    flags: tuple[tuple[str, bool], ...] = ()
    end: float = math.inf
    steps: int = bounds.MOST_STEPS
    turns: int = 0
    stand_in: Callable[[int, Any], Tensor | None] | None = None

    @cached_property
    def numpy(self) -> bool:
        """Whether it is a NumPy array, because the code names only NumPy, or rounds as tensors can't be."""
        names_torch = re.search(r"\b(torch|F)\.\w", self.text) is not None
        if not names_torch and not re.search(r"\b(np|numpy)\.\w", self.text):
            is_torch = r"\bimport torch\b|\)\.(clamp|byte|char|float|to)\("
            names_torch = re.search(is_torch, self.text) is not None
        arrays = re.search(r"\b(np|numpy|tf|tensorflow|jnp)\b|(?<![.\w])round\(", self.text)
        return bool(arrays) and not names_torch

    @cached_property
    def lines_of_data(self) -> frozenset[int]:
        """The lines that make a tensor which is not drawn from a normal distribution, by its name."""
        named = (re.match(r"\s*(\w+)\s*(:.*)?=(?!=)(.*)", line) for line in self.text.splitlines())
        makes = [bool(m and _SECOND.fullmatch(m[1]) and _EVEN.search(m[3])) for m in named]
        return frozenset(i for i, made in enumerate(makes, 1) if made)

    @cached_property
    def parameters(self) -> tuple[float, int]:
        """The scale and zero point."""
        low, high = min(float(self.x.min()), 0.0), max(float(self.x.max()), 0.0)
        scale = (high - low) / 255 or 1.0
        return self.handed or (scale, round(-128 - low / scale))


@dataclass(eq=False)
class Evaluation:
    """One evaluation of the code on what it is given.

    ``bound``: what stands for names that the code does not define; ``spaces``: the names of every function,
    class and instance; ``vals``: all values in order; ``assigned``: (line, name, value) of every assignment;
    ``unread``: (line, why, whether it is refused) of each statement that could not be evaluated; ``written``:
    (line, name) of operations that modify the given tensor; ``library``: the same of calls that
    quantize; ``within``: how many library calls, in one another, are followed, at the line of the first;
    ``overrides``: results to replace, by index; ``line``: where it is; ``steps``, ``elements`` and ``end``:
    what is left of its steps, elements and time; ``unasked``: the steps since the time was asked for.
    """

    given: CodeInputs
    bound: dict[str, Val] = field(default_factory=dict)
    spaces: list[Names] = field(default_factory=list)
    vals: list[Val] = field(default_factory=list)
    assigned: list[tuple[int, str, Val]] = field(default_factory=list)
    unread: list[tuple[int, str, bool]] = field(default_factory=list)
    written: list[tuple[int, str]] = field(default_factory=list)
    library: list[tuple[int, str]] = field(default_factory=list)
    within: int = 0
    overrides: dict[int, Override] = field(default_factory=dict)
    line: int = 0
    steps: int = field(init=False)
    elements: int = bounds.MOST_IN_ALL
    unasked: int = 0
    end: float = field(init=False)

    def __post_init__(self) -> None:
        self.steps = self.given.steps
        self.end = min(time.thread_time() + bounds.SECONDS, self.given.end)

    def spend(self, line: int = 0, steps: int = 1, elements: int = 0) -> None:
        """Count steps at ``line``, and the elements of a result."""
        self.line = (0 if self.within else line) or self.line
        self.steps -= steps
        self.elements -= elements
        # to ask for the time is dearer than most steps
        self.unasked += 1 + elements // _ELEMENTS_OF_STEP
        what = ""
        if self.unasked >= _ASKED_EACH:
            self.unasked = 0
            what = "takes too long to evaluate" if time.thread_time() > self.end else ""
        what = f"computes more than {bounds.MOST_IN_ALL:,} elements in all" if self.elements < 0 else what
        what = f"takes more than {self.given.steps:,} steps" if self.steps < 0 else what
        if what:
            why = f"Line {self.line}: the code {what}; paste only the lines that quantize."
            raise bounds.OverLimitError(why)

    def space(self, *around: Names) -> Names:
        """Open names within others."""
        self.spaces.append(around[0].new_child() if around else ChainMap())
        return self.spaces[-1]

    def free(self, name: str) -> Val | None:
        """Return what stands for a name that the code does not define: the tensor, or what it is given."""
        if name not in self.bound and name not in BUILTINS:
            scale, zero_point = self.given.parameters
            second = any(v.op == "input" for v in self.bound.values())
            if _SCALE.fullmatch(name):
                value: Any = np.float32(scale) if self.given.numpy else torch.tensor(scale)
            elif _ZERO.fullmatch(name) or _BITS.fullmatch(name):
                value = zero_point if _ZERO.fullmatch(name) else 8
            elif _NO_TENSOR.fullmatch(name) or (second and not _SECOND.fullmatch(name)):
                return None
            else:
                return self.tensor(name)
            self.bound[name] = self.note(value, "handed", name=name)
            self.bound[name].handed = not _BITS.fullmatch(name)
        return self.bound.get(name)

    def tensor(self, name: str) -> Val:
        """Return a copy of the tensor under a name."""
        x = self.given.x.clone()
        self.spend(elements=x.numel())
        val = self.bound[name] = self.note(x.numpy() if self.given.numpy else x, "input", name=name)
        val.varies = val.data = True
        return val

    def own_data(self, numbers: list[float]) -> Val:
        """Note numbers that the code has as its data, in a list."""
        self.spend(elements=len(numbers))
        return self._made(np.array(numbers, dtype=np.float64), (), "list")

    def _made(self, found: Any, args: Vals, name: str) -> Val:
        """Note a tensor that the code makes itself, or a copy of another one."""
        copied = any(a.data for a in args)
        other = None if copied or not self.given.stand_in else self.given.stand_in(self.line, found)
        found = found if other is None else _like(found, other)
        val = self.note(found, "copy" if copied else OWN, args, name)
        val.varies = val.data = True
        return val

    def note(self, value: Any, op: str = "number", args: Vals = (), name: str = "") -> Val:
        """Append a value, or its repair if there is one, and note what it depends on."""
        val = Val(value, op, args, self.line, name, len(self.vals))
        for a in args:
            val.varies, val.handed = val.varies or a.varies, val.handed or a.handed
        # a mask chooses elements, it does not hold them
        data = [a for a in args if a.data and not is_mask(a.value)]
        if len(data) > 1:  # a smaller tensor of the code's own, such as its scales, is not what is quantized
            data = [a for a in data if not _is_power(a)] or data  # what scales each by itself
            most = max(math.prod(shape_of(a.value)) for a in data)
            data = [a for a in data if _root(a).op != OWN or math.prod(shape_of(a.value)) == most]
        if data and not is_mask(value):
            # signs that are given back to the tensor's elements do not scale them
            signs = op == "sign" and len(args) > 1 and args[0].data  # copysign
            if signs or (op == "mul" and any(a.op == "sign" for a in args)):
                val.op = "signed"
            if val.op in _ELEMENTWISE and (len(data) == 1 or val.op in ("mask", "where", "signed")):
                val.flow, val.data = data[0], True
        if val.index in self.overrides:
            override = self.overrides[val.index]
            val.value = _like(value, override(val) if callable(override) else override)
        self.vals.append(val)
        return val

    def compute(self, run: Callable[[], Any], op: str, args: Vals, name: str = "", bound: float = 1) -> Val:
        """Compute a result of at most ``bound`` elements, and note it."""
        if not bound <= bounds.MOST_ELEMENTS:
            raise StopError(f"a result here would have more than {bounds.MOST_ELEMENTS:,} elements")
        try:
            with np.errstate(all="ignore"):
                found = run()
        except _FAILURES as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:160]
            raise StopError(f"this fails: {why}", refused=False) from None
        return self._noted(found, op, args, name)

    def _noted(self, found: Any, op: str, args: Vals, name: str) -> Val:
        """Return a result as a value; the items of a list each on its own."""
        if isinstance(found, Val):
            return found
        if isinstance(found, list | tuple):
            self.spend(steps=len(found))
            indexed = ValuesAndIndices if hasattr(found, "indices") else tuple
            kind = list if isinstance(found, list) else indexed
            items = [self._noted(item, op, args, name) for item in found]
            return self.note(kind(items), "pack", tuple(items), name)
        found = found if op in _KEPT else plain(found)
        is_array = isinstance(found, ARRAYS)
        fits = not is_array or (found.ndim <= bounds.MOST_AXES and not str(found.dtype).endswith(_NOT_REAL))
        require(fits and not isinstance(found, complex), "a result here is not a tensor of real numbers")
        self.spend(elements=math.prod(found.shape) if is_array else 0)
        makes = name in _OWN_DATA or self.line in self.given.lines_of_data
        made = makes and name in _MAKERS and is_array and found.ndim > 0
        if not made or any(a.varies and not a.data for a in args):
            return self.note(found, op, args, name)
        return self._made(found, args, name)

    def raw(self, val: Val, depth: int = 0) -> Any:
        """Return a value as torch and NumPy take it: a number, array, type, known word, or list of them."""
        value = val.value
        if isinstance(value, list | tuple) and depth < _DEEPEST:
            self.spend(steps=len(value))
            items = [self.raw(item, depth + 1) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, Allowed) and value.run in TYPES:
            return value.run
        is_type = isinstance(value, type) and issubclass(value, np.number)
        is_word = isinstance(value, str) and value in WORDS
        known = is_type or is_word or isinstance(value, (*NUMBERS, torch.dtype, np.dtype, type(None)))
        require(known, "an argument here is neither a number nor a tensor")
        return value

    def apply(self, call: Allowed, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call what the white list has: check the arguments, bound the result, then compute it."""
        if len(args) > call.most or not kw.keys() <= KEYWORDS:
            other = next((n for n in kw if n not in KEYWORDS), "these arguments")
            raise StopError(f"`{call.name}` with {other[:40]} is not evaluated")
        given, named = [self.raw(a) for a in args], {n: self.raw(v) for n, v in kw.items()}
        # a bound would take it for a size
        require(not isinstance(named.get("dtype"), NUMBERS), "a number is given as a type here")
        values = [*given, *named.values()]
        libraries = {isinstance(a, Tensor) for a in flat(values) if isinstance(a, ARRAYS)}
        require(len(libraries) < 2, "torch tensors and NumPy arrays are mixed here")
        bounds.check_integers(call.op, values)
        parts = tuple(flat([*args, *kw.values()]))
        most = call.bound(given, [*named.values()])
        return self.compute(lambda: call.run(*given, **named), call.op, parts, call.name, most)

    def overwrite(self, owner: Val, change: Callable[[Any], Any], op: str, args: Vals, name: str) -> Val:
        """Modify a tensor in place. Its value so far stays what it was; all names of it have the new one."""
        if any(_share(v.value, owner.value) for v in self.bound.values()):
            self.written.append((self.line, name))
        live, is_tensor = owner.value, isinstance(owner.value, Tensor)
        if not owner.op == op == "setitem":  # a loop sets one element after another
            owner.value = live.clone() if is_tensor else live.copy()
            self.spend(elements=math.prod(live.shape))
        self.compute(lambda: change(live) is None, "binary", ())
        made = self.note(live, op, args, name.removesuffix("_"))
        self.rename(owner, made)
        return made

    def rename(self, old: Val, new: Val) -> None:
        """Give all names of a value to another one."""
        for names in (self.bound, *(space.maps[0] for space in self.spaces)):
            names.update({n: new for n, v in names.items() if v is old})


def _like(value: Any, values: Tensor | float) -> Any:
    """Return values in the type of another value, a number, tensor or array."""
    if not isinstance(value, ARRAYS):  # or, if other branches are taken, whatever stands there
        return float(values) if isinstance(value, int | float) else value
    values = values if isinstance(values, Tensor) else torch.full(value.shape, values)
    if isinstance(value, Tensor):
        return values.to(value.dtype) if value.is_floating_point() else cast(values, value.dtype)
    return cast(values.numpy(), value.dtype)


def _root(val: Val) -> Val:
    """Return what a tensor in another shape or type was made from."""
    while val.op in ("shape", "cast", "copy") and val.flow is not None:
        val = val.flow
    return val


def _is_power(val: Val) -> bool:
    """Tell whether this is a number to the power of an exponent that each element has, as in a float."""
    return val.op == "pow" and len(val.args) == 2 and val.args[0].number is not None and val.args[1].data


def _share(a: Any, b: Any) -> bool:
    """Tell whether two arrays share memory."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)
