"""Runs pasted code on tensors: ordinary ones, and those on which hidden mistakes show."""

import ast
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import OverLimitError, StopError
from quantcore.pasted.chain import origin
from quantcore.pasted.evaluation import CodeInputs
from quantcore.pasted.interpreter import Interpreter
from quantcore.pasted.objects import GRADIENTS, UNREAD, Class, Function, Instance, Signal
from quantcore.pasted.quantizer import by_place
from quantcore.pasted.values import OWN, Names, Override, Val

_CODES = re.compile(r"q|codes?|\w*quantized\w*|\w*_q|q_\w+|[xw]q|q[xw]", re.I)
_FLAG = re.compile(r"\w*(sym|signed|narrow)\w*", re.I)
# square first: scales along the wrong axis fail on all others; then other ranks, for code that names axes
SHAPES = ((64, 64), (4096,), (16, 16, 16), (8, 8, 8, 8))
# for code that loops over rows, elements or cells
SMALL = ((8, 8), (64,), (4, 4, 4), (2, 4, 4, 2))
_FIRST_STEPS = 8_000  # on a larger tensor, of code with loops
_FIRST_SECONDS = 0.06  # of code with loops: some ten more evaluations follow, and all have `SECONDS_IN_ALL`
_TURNS = 2  # of a loop that only repeats its body, where all of them take too long
_LOOPS = (ast.For, ast.While, ast.comprehension)
_SPECIAL = 0.4  # of the time is kept for what is found on ordinary tensors
Shape = tuple[int, ...]
_FEATURES = 8
_PRINTED = {"tensor", "array", "matrix", "torch.Size", "dtype"}
_PLAIN = (
    ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.unaryop, ast.Attribute, ast.Call,
    ast.keyword, ast.expr_context, ast.Subscript,
)  # fmt: skip


@dataclass(eq=False)
class Walk(Interpreter):
    """One evaluation of the code.

    ``flags``: the boolean parameters of functions that nobody calls; ``made``: what the last of these
    returned, by name; ``cut``: of each statement that could not be evaluated to its end, the index
    of its first value and that after its last.
    """

    flags: set[str] = field(default_factory=set)
    cut: list[tuple[int, int]] = field(default_factory=list)
    made: dict[str, Val] = field(default_factory=dict)

    def run(self) -> None:
        """Run the code, then what it only defines; what can't be evaluated goes to ``unread``."""
        names = self.space()
        for node in self.given.tree.body:
            if _is_output(node, names):
                continue
            if not self._attempt(self.statement, node, names):
                found = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
                names.update({n.id: UNREAD for n in found if isinstance(n.ctx, ast.Store)})
        for val in list(names.values()):
            if isinstance(val.value, Function | Class) and val.value.library:
                continue
            if isinstance(val.value, Function):
                self._attempt(self._use, val)
            elif isinstance(val.value, Class) and not any(
                v.value.of.comes_from(val.value)
                for v in self.vals
                if isinstance(v.value, Instance) and v.value.of
            ):
                self._attempt(self._use_class, val)
        self.gather_all()

    def _attempt(self, run: Callable[..., None], *args: Any) -> bool:
        try:
            run(*args)
            return True
        except StopError as stop:
            self.cut.append((self.begun, len(self.vals)))
            if stop.why:
                self.unread.append((self.line, stop.why, stop.refused))
        except Signal:
            self.unread.append((self.line, "this has no function or loop around it", False))
        except RecursionError:
            why = "The code is nested too deeply; paste only the lines that quantize."
            raise OverLimitError(why) from None
        return False

    def _use_class(self, val: Val) -> None:
        """Use each method of a class, if nobody does: on an instance of it."""
        start = val.value.find("__init__")
        is_function = val.value.kind == "function"
        has_start = start is not None and isinstance(start.value, Function)
        instance = (
            val
            if is_function
            else self.call(val, self._arguments(start.value, 1, None) if has_start else [], {})
        )
        for name, member in val.value.members.items():
            if isinstance(member.value, Function) and name not in GRADIENTS:
                self._use(self.member(instance, name))

    def _use(self, val: Val) -> None:
        """Call a function, if nobody does."""
        function: Function = val.value
        if function.node in self.entered:
            return
        own = int(val.op == "method")
        context = list[Val]()
        if function.owner is not None and function.owner.kind == "function":
            context = [self.note(Instance(self.space()))]
        args = [*context, *self._arguments(function, own + len(context), 0)]
        parameters = function.parameters[own:]
        self.bound |= {n: v for n, v in zip(parameters, args, strict=False) if v.op == "input"}
        placed = function.positional - own
        returned = self.call(val, args[:placed], dict(zip(parameters[placed:], args[placed:], strict=False)))
        values = list(returned.value) if isinstance(returned.value, tuple) else [returned]
        ends = [n.value for n in ast.walk(function.node) if isinstance(n, ast.Return) and n.value is not None]
        parts = [part for end in ends[-1:] for part in (end.elts if isinstance(end, ast.Tuple) else [end])]
        self.made = {**{getattr(p, "id", ""): v for p, v in zip(parts, values, strict=False)}, "": values[0]}

    def _arguments(self, function: Function, own: int, tensor: int | None) -> list[Val]:
        """Return what to call a function with: the tensor in place ``tensor``, defaults, what the function
        before it returned, and what the code is given."""
        found: list[Val] = []
        for i, name in enumerate(function.parameters[own:]):
            default, codes = function.defaults.get(name), _CODES.fullmatch(name)
            if isinstance(default.value, bool) if default is not None else _FLAG.fullmatch(name):
                self.flags.add(name)
                default = self.note(dict(self.given.flags).get(name, default.value if default else True))
            earlier = self.made.get(name) or (self.made.get("") if i == tensor and codes else None)
            val = default or (earlier if i != tensor or codes else None) or self.free(name)
            val = val or (self.tensor(name) if i == tensor else None)
            if val is None and function.owner is not None and function.owner.kind == "module":
                val = self.note(_FEATURES)  # in and out
            if val is None:
                raise StopError(f"the argument `{name[:40]}` has no value here")
            found.append(val)
        return found


def _is_output(node: ast.stmt, names: Names) -> bool:
    """Tell whether a statement is what a notebook prints of a value: it calls nothing, or has no effect."""
    value = node.value if isinstance(node, ast.Expr | ast.Assign) else None
    printed = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _PRINTED
    if isinstance(node, ast.Assign):
        return printed and isinstance(value, ast.Call) and ast.unparse(value.func) not in names
    parts = list(ast.walk(value)) if value is not None else []
    calls = [ast.unparse(part.func) for part in parts if isinstance(part, ast.Call)]
    return value is not None and set(calls) <= _PRINTED and all(isinstance(part, _PLAIN) for part in parts)


def evaluate(given: CodeInputs, overrides: dict[int, Override] | None = None) -> Walk:
    """Evaluate parsed code on a tensor; ``overrides`` replaces the results of some operations."""
    walk = Walk(given, overrides=overrides or {})
    walk.run()
    return walk


@lru_cache(4)  # of each shape at least twice, and never written
def probes(shape: Shape) -> dict[str, Tensor]:
    """Return tensors by name: two of both signs, with the largest magnitude of either, then those on which
    mistakes show that ordinary ones hide."""
    generator, special = (torch.Generator().manual_seed(seed) for seed in (7, 8))
    positive, negative = (torch.randn(shape, generator=generator) for _ in range(2))
    outlier, size = torch.randn(shape, generator=special), math.prod(shape)
    positive.view(-1)[9 % size], negative.view(-1)[9 % size] = 5.3, -7.1
    outlier.view(-1)[3 % size], outlier.view(-1)[70 % size] = 1e4, -1e4
    return {
        "positive": positive,
        "negative": negative,
        "zeros": torch.zeros(shape),
        "constant": torch.full(shape, 1.5),
        "one-sided": 5 + torch.rand(shape, generator=special),
        "outlier": outlier,
        "subnormal": 1e-40 * torch.randn(shape, generator=special),
    }


def probe(inputs: Callable[..., CodeInputs], also: Shape | None) -> Iterator[dict[str, Walk]]:
    """Yield the evaluations on each probe, and for each value of a boolean parameter that nobody gives.

    A tensor that the code makes itself is replaced by a probe, but in the evaluation "own".

    Raises:
        OverLimitError: the code takes too many steps, elements or too much time.
    """
    first = _fitting(inputs, also)
    x, own = first.given.x, _own_tensors(first)
    tensors = probes(tuple(x.shape))
    choices = [((name, value),) for name in sorted(first.flags)[:3] for value in (False, True)]
    for flags in [(), *choices]:
        given = partial(inputs, flags=flags, turns=first.given.turns)
        found, late = dict[str, Walk](), first.given.end - _SPECIAL * bounds.SECONDS_IN_ALL
        for name, tensor in tensors.items():
            ordinary = name in ("positive", "negative")
            end = first.given.end if ordinary else late
            try:
                found[name] = evaluate(given(tensor, stand_in=partial(_stand_in, own, name), end=end))
            except OverLimitError:
                if ordinary:
                    raise
        yield found | ({"own": evaluate(given(x))} if own else {})


def _own_tensors(walk: Walk) -> frozenset[tuple[int, Shape]]:
    """Return the line and the shape of each tensor that the code makes itself and quantizes."""
    roots = [origin(chain.data) for chain in by_place(walk.vals).values()]
    made = (root for root in roots if root.op == OWN and root.numbers.numel() > 1)
    return frozenset((root.line, tuple(root.value.shape)) for root in made)


def _stand_in(own: frozenset[tuple[int, Shape]], probe: str, line: int, found: Any) -> Tensor | None:
    """Return a probe in place of a tensor of the code's own, of its shape, and of its sign if it has one."""
    if (line, tuple(found.shape)) not in own:
        return None
    values, signs = probes(tuple(found.shape))[probe], torch.as_tensor(found)
    if bool((signs >= 0).all()):
        return values.abs()
    return -values.abs() if bool((signs <= 0).all()) else values


def _fitting(inputs: Callable[..., CodeInputs], also: Shape | None) -> Walk:
    """Return the evaluation on a tensor of the shape on which most of the code can be evaluated; of code that
    loops over elements, on a small one."""
    walks: list[Walk] = []
    tree = inputs(probes(SMALL[0])["positive"]).tree
    loops = any(isinstance(node, _LOOPS) for node in ast.walk(tree))
    shapes, small, turns = [*SHAPES[:1], *([also] if also else []), *SHAPES[1:]], False, 0
    while shapes:
        shape = shapes.pop(0)
        try:
            steps = _FIRST_STEPS if loops and not small else bounds.MOST_STEPS
            given = inputs(probes(shape)["positive"], steps=steps, turns=turns)
            limit = math.inf if turns or not loops else _FIRST_SECONDS
            soon = time.thread_time() + limit
            walks.append(evaluate(replace(given, end=min(given.end, soon))))
            walks[-1].given = given
        except OverLimitError:
            if turns and not shapes and not walks:
                raise
            if not small:
                small, shapes = True, [*SMALL]
            elif not turns:  # the mistakes of a loop that refines its result show in each of its turns
                turns, shapes = _TURNS, [*SMALL]
        if walks and not _failures(walks[-1]):
            break
    return min(walks, key=_failures)


def _failures(walk: Walk) -> int:
    """Return how many statements fail on this tensor."""
    return sum(not refused for _, _, refused in walk.unread)
