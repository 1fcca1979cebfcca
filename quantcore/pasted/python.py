"""What Python itself does with the values of pasted code: its lists, dictionaries and own functions."""

import ast
import math
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import ARRAYS, StopError, require, shape_of
from quantcore.pasted.lanes import Lanes
from quantcore.pasted.names import ON_LISTS, OPERATORS, Mapped
from quantcore.pasted.objects import Function, Instance
from quantcore.pasted.values import Val, Vals


@dataclass(eq=False)
class Python(Lanes):
    """One evaluation of the code: what Python computes with lists and numbers."""

    def call(self, func: Val, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a value; an operation "method" has it with its owner."""
        raise NotImplementedError

    def member(self, val: Val, name: str) -> Val:
        """Return an attribute of a value."""
        raise NotImplementedError

    def items(self, val: Val) -> list[Val]:
        """Return what a loop over a value visits."""
        value = val.value
        if isinstance(value, list | tuple):
            return list(value)
        if isinstance(value, Instance) and value.of and value.of.kind == "record":
            return [value.names[name] for name in value.of.fields]
        if isinstance(value, dict):
            return [self.note(key) for key in value]
        require(isinstance(value, Tensor | np.ndarray) and value.ndim > 0, "this can't be looped over")
        self.spend(steps=len(value))
        return [self.note(item, "getitem", (val,)) for item in value]

    def item(self, val: Val, index: Any, vals: Vals) -> Val:
        """Return a value at an index, which was made from ``vals``."""
        value = val.value
        if isinstance(value, Instance) and value.of and value.of.find("__getitem__") and vals:
            return self.call(self.member(val, "__getitem__"), [vals[-1]], {})
        if isinstance(value, dict):
            return self.compute(lambda: value[index], "getitem", (val, *vals), "[]")
        require(isinstance(value, list | tuple | Tensor | np.ndarray), "this can't be indexed")
        if val.op == "setitem" and (cell := self.cell(val, index)) is not None:
            return self.note(cell.value, "copy", (cell,))
        if val.op == "setitem":
            self.gather_cells(val)
        if isinstance(value, list | tuple) and vals and vals[-1].data:
            found = self.compute(lambda: value[index], "getitem", (val, *vals), "[]")
            made = self.note(found.value, "pick", (val, *vals))
            self.decoded(made, val, vals[-1])
            return made if made.op == "decode" else found
        bound = bounds.indexed([value, index]) if isinstance(value, ARRAYS) else 1
        if len(vals) == 1 and vals[0].op == "reduce" and vals[0].name in ("argmax", "argmin"):
            return self.compute(lambda: value[index], "reduce", (val, *vals), vals[0].name, bound)
        return self.compute(lambda: value[index], "getitem", (val, *vals), "[]", bound)

    def append(self, owner: Val, val: Val) -> None:
        """Append to a list, or note that a branch of a test on an element does."""
        if self.appended:
            self.appended[-1].append((owner, val))
            return
        owner.value.append(val)
        owner.args, owner.varies = (*owner.args, val), owner.varies or val.varies

    def truth(self, val: Val) -> bool:
        """Tell whether a value counts as true."""
        return bool(self.compute(lambda: bool(val.value), "branch", (val,)).value)

    def operator(self, node: ast.AST, *operands: Val) -> Val:
        """Return the result of an operator."""
        if isinstance(node, ast.In | ast.NotIn):
            return self._contained(operands[0], operands[1], isinstance(node, ast.In))
        call, values = OPERATORS.get(type(node).__name__), [val.value for val in operands]
        if call is None:
            raise StopError("this comparison is not evaluated")
        lists = sum(isinstance(value, list | tuple) for value in values)
        if (call.op, lists) in (("mul", 1), ("add", 2)):
            # a tensor of one integer repeats a list as often
            plain = all(isinstance(value, list | tuple | int) for value in values)
            require(plain, "a list is multiplied by what is not a plain integer here")
            times = max([value for value in values if isinstance(value, int)], default=1)
            self.spend(steps=max(times, 0) * sum(math.prod(shape_of(value)[:1]) for value in values))
            return self.compute(lambda: call.run(*values), "pack", operands)
        texts = any(isinstance(value, str) or value is Ellipsis for value in values)
        if texts and isinstance(node, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
            return self.compute(lambda: call.run(*values) is True, "binary", operands)
        return self.apply(call, [*operands], {})

    def _contained(self, one: Val, many: Val, inside: bool) -> Val:
        """Tell whether a number or text is one of several, or a key."""
        if isinstance(one.value, str) and isinstance(many.value, str):
            return self.note((one.value in many.value) == inside, "binary", (one, many))
        known = isinstance(one.value, int | float | str) and isinstance(many.value, list | tuple | dict)
        values = many.value if isinstance(many.value, dict) else [item.value for item in self.items(many)]
        plain = known and all(isinstance(value, int | float | str) for value in values)
        require(plain, "this comparison is not evaluated")
        return self.note((one.value in values) == inside, "binary", (one,))

    def python(self, name: str, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call one of Python's own functions that are not computed on numbers alone."""
        if name == "print":
            return self.note(None)
        if name == "dict":
            pairs = args[0].value if args and isinstance(args[0].value, dict) else {}
            require(len(args) <= 1 and (not args or bool(pairs)), "this `dict` is not evaluated")
            return self.note({**pairs, **kw}, "pack", (*pairs.values(), *kw.values()))
        if args and isinstance(args[0].value, dict) and name in ("get", "keys", "values", "items"):
            return self._of_dictionary(name, args[0], args[1:])
        if name in ("min", "max") and kw.keys() == {"key"} and len(args) == 1:
            return self._by_key(name, self.items(args[0]), kw["key"])
        require(kw.keys() <= {"strict"} and 0 < len(args) <= 64, f"this `{name}` is not evaluated")
        if name == "len":
            return self.compute(lambda: len(args[0].value), "size", ())
        if name == "range":
            ends = [self.raw(a) for a in args]
            whole = (int(end) if isinstance(end, ARRAYS) else end for end in ends)
            return self.compute(lambda: list(range(*whole)[: bounds.MOST_STEPS + 1]), "number", ())
        if name in ("startswith", "endswith"):
            texts = [a.value for a in args if isinstance(a.value, str)]
            require(len(texts) == len(args) == 2, f"this `{name}` is not evaluated")
            return self.note(getattr(texts[0], name)(texts[1]), "binary", tuple(args))
        if name == "map" and len(args) > 1:
            rows = zip(*(self.items(a) for a in args[1:]), strict=False)
            mapped = [self.call(args[0], list(row), {}) for row in rows]
            return self.note(mapped, "pack", tuple(mapped))
        if name == "vectorize" and len(args) == 1:
            require(isinstance(args[0].value, Function), "only a function of the code is vectorized here")
            return self.note(Mapped(args[0]))
        if name in ("ndenumerate", "ndindex", "nditer"):
            return self._visited(name, args)
        if name in ON_LISTS:
            lists = [self.items(a) for a in args]
            return self.compute(lambda: list(ON_LISTS[name](*lists)), "number", ())
        items = self.items(args[0]) if len(args) == 1 else args
        if name == "sum":
            return reduce(partial(self.operator, ast.Add()), items, self.note(0))
        found = items[0] if items else self.note(None)
        for item in items[1:]:
            of_elements = self.extreme(name, item, found)
            if of_elements is not None:
                found = of_elements
                continue
            better = self.truth(self.operator(ast.Lt() if name == "min" else ast.Gt(), item, found))
            chosen, rest = (item, found) if better else (found, item)
            found = self.note(chosen.value, "pick", (chosen, rest), name)
        return found

    def _by_key(self, name: str, items: list[Val], key: Val) -> Val:
        """Return the item whose key is the lowest or highest."""
        require(bool(items), "there is nothing to choose from here", refused=False)
        keys = [self.call(key, [item], {}) for item in items]
        numbers = [val.number for val in keys]
        require(None not in numbers, "a key here is no finite number")
        best = min if name == "min" else max
        chosen = items[best(range(len(items)), key=lambda i: float(numbers[i] or 0.0))]
        made = self.note(chosen.value, "pick", (chosen, *keys), name)
        return self.chosen_by(made, items, keys) if name == "min" else made

    def _visited(self, name: str, args: list[Val]) -> Val:
        """Return what NumPy visits of an array: its indices, its elements, or both."""
        of = args[0].value
        if name == "ndindex":
            sizes = of if isinstance(of, list | tuple) else args
            shape = tuple(v.value for v in sizes)
            require(all(isinstance(n, int) for n in shape), "the sizes here are no integers")
        else:
            require(isinstance(of, Tensor | np.ndarray), "only elements of arrays are visited")
            shape = tuple(of.shape)
        few = math.prod(shape) <= bounds.MOST_STEPS
        require(few, f"more than {bounds.MOST_STEPS:,} elements are visited here")
        found = list[Val]()
        for index in np.ndindex(*shape):
            self.spend()
            parts = tuple(self.note(i) for i in index)
            place = self.note(parts, "pack", parts)
            element = place if name == "ndindex" else self.item(args[0], index, parts)
            found.append(
                self.note((place, element), "pack", (element,)) if name == "ndenumerate" else element
            )
        return self.note(found, "pack", tuple(found))

    def _of_dictionary(self, name: str, owner: Val, args: list[Val]) -> Val:
        """Call a method of a dictionary."""
        if name == "get":
            require(0 < len(args) <= 2, "this `get` is not evaluated")
            found = owner.value.get(args[0].value, args[1] if args[1:] else None)
            return found if found is not None else self.note(None)
        keys, values = [self.note(key) for key in owner.value], list(owner.value.values())
        pairs = [self.note(pair, "pack", pair) for pair in zip(keys, values, strict=True)]
        return self.note({"keys": keys, "values": values, "items": pairs}[name], "pack", tuple(values))
