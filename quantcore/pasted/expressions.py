"""Evaluates the expressions of pasted code: operators, names and attributes."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import NUMBERS, StopError, check_integers, flat, indexed, is_mask, require
from quantcore.pasted.lanes import COLLECT, is_scalar
from quantcore.pasted.names import (
    ABBREVIATED,
    BUILTINS,
    METHODS,
    Allowed,
    LibraryName,
    Module,
    kind_of,
)
from quantcore.pasted.objects import UNREAD, Class, Function, Instance, Super
from quantcore.pasted.python import Python
from quantcore.pasted.source import BrokenStatement
from quantcore.pasted.values import Names, Val, Vals, ValuesAndIndices

# of every module of torch.nn, and of what torch hands to an autograd function
INHERITED = {
    "register_buffer", "register_parameter", "train", "eval", "requires_grad_", "to", "cpu", "float", "half",
    "double", "save_for_backward", "mark_non_differentiable", "set_materialize_grads", "mark_dirty",
    "modules", "named_modules", "children", "named_children", "parameters", "named_parameters", "state_dict",
}  # fmt: skip
_FEWEST = 4  # numbers of a list that is taken for data


def _numbers(node: ast.expr) -> list[float]:
    """Return the numbers of a list of numbers, or of lists of them; none if all have one sign."""
    try:
        found = list(flat(ast.literal_eval(node)))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []
    numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in found)
    return found if numbers and any(n < 0 and n % 1 for n in found) and max(found) > 0 else []


@dataclass(eq=False)
class Expressions(Python):
    """One evaluation of the code: its expressions. ``plain_lists``: whether a list of numbers is the code's
    data, because no tensor is made of it."""

    plain_lists: bool = True

    # expressions

    def evaluate(self, node: ast.expr, names: Names) -> Val:
        """Evaluate an expression."""
        self.spend(node.lineno)
        match node:
            case ast.Name(id=name):
                return self._named(name, names)
            case ast.Attribute():
                return self._attribute(node, names)
            case ast.Call():
                return self._called(node, names)
            case ast.Constant(value=BrokenStatement() as broken):
                raise StopError(broken.why)
            case ast.Constant(value=value) if not isinstance(value, bytes | complex):
                check_integers("mul", [value])
                return self.note(value)
            case ast.BinOp(left=left, right=right):
                return self.operator(node.op, self.evaluate(left, names), self.evaluate(right, names))
            case ast.Subscript():
                return self.item(*self._place(node, names))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                val = self.evaluate(operand, names)
                truth = bool(val.value) if val.of_element else self.truth(val)
                return self.note(not truth, "binary", (val,))
            case ast.UnaryOp(op=op, operand=operand):
                return self.operator(op, self.evaluate(operand, names))
            case ast.Compare():
                return self._compared(node, names)
            case ast.List() if self.plain_lists and len(numbers := _numbers(node)) >= _FEWEST:
                return self._own_list(node, self.own_data(numbers), iter(range(len(numbers))))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = tuple(self.evaluate(part, names) for part in parts)
                return self.note(list(items) if isinstance(node, ast.List) else items, "pack", items)
            case ast.BoolOp(op=op, values=parts):
                val = self.evaluate(parts[0], names)
                for part in parts[1:]:
                    if val.of_element:
                        other, each = self.evaluate(part, names), any if isinstance(op, ast.Or) else all
                        val = self.note(each((bool(val.value), bool(other.value))), "binary", (val, other))
                    elif self.truth(val) != isinstance(op, ast.Or):
                        val = self.evaluate(part, names)
                return val
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._conditional(self.evaluate(test, names), body, orelse, names)
            case ast.JoinedStr(values=parts):
                for part in parts:
                    if isinstance(part, ast.FormattedValue):
                        self.evaluate(part.value, names)
                return self.note("")  # a text is only printed
            case ast.Lambda(args=args):
                return self.note(Function(node, names, self.defaults(args, names)))
            case ast.NamedExpr(target=target, value=value):
                val = self.evaluate(value, names)
                self.assign(target, val, names)
                return val
            case ast.Dict(keys=keys, values=values):
                return self._dictionary(keys, values, names)
            case ast.ListComp() | ast.GeneratorExp():
                inner = self.space(names)
                items = tuple(self.evaluate(node.elt, inner) for _ in self._generated(node.generators, inner))
                return self.note(list(items), "pack", items)
        raise StopError("this expression is not evaluated")

    def _own_list(self, node: ast.expr, own: Val, places: Iterator[int]) -> Val:
        """Return a list of numbers that the code has as its data: each is an element of it."""
        if isinstance(node, ast.List):
            items = [self._own_list(part, own, places) for part in node.elts]
            return self.note(items, "pack", tuple(items))
        place = next(places)
        return self.note(float(own.value[place]), "getitem", (own, self.note(place)))

    def _dictionary(self, keys: list[ast.expr | None], values: list[ast.expr], names: Names) -> Val:
        found = dict[Any, Val]()
        for key, value in zip(keys, values, strict=True):
            named = None if key is None else self.evaluate(key, names).value
            require(isinstance(named, str | int | float), "a key here is neither a text nor a number")
            found[named] = self.evaluate(value, names)
        return self.note(found, "pack", tuple(found.values()))

    def _compared(self, node: ast.Compare, names: Names) -> Val:
        left, found = self.evaluate(node.left, names), self.note(True)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(part, names)
            before, found = found, self.operator(op, left, right)
            if before.of_element and found.of_element:
                found = self.note(bool(before.value) and bool(found.value), "binary", (before, found))
            elif len(node.ops) > 1 and not found.of_element and not self.truth(found):
                break
            left = right
        return found

    def _conditional(self, test: Val, body: ast.expr, orelse: ast.expr, names: Names) -> Val:
        """Evaluate `a if test else b`, for a test on an element both."""
        if not test.of_element:
            return self.evaluate(body if self.truth(test) else orelse, names)
        taken, found = bool(test.value), list[Val]()
        for wanted, part in ((True, body), (False, orelse)):
            self.branches.append((test, wanted))
            try:
                found.append(self.evaluate(part, names))
            except StopError:
                if self.taken:
                    raise
                found.append(self.note(None))
            finally:
                self.branches.pop()
        first, second = found
        if is_scalar(first) and is_scalar(second):
            return self.either(taken, first, second, (test,))
        return first if taken else second

    def _generated(self, generators: list[ast.comprehension], names: Names) -> Iterator[None]:
        first, *rest = generators
        for item in self.items(self.evaluate(first.iter, names)):
            self.assign(first.target, item, names)
            if all(self.truth(self.evaluate(test, names)) for test in first.ifs):
                yield from self._generated(rest, names) if rest else (None,)

    def _place(self, node: ast.Subscript, names: Names) -> tuple[Val, Any, Vals]:
        """Return what is indexed, the index, and the values in it; `x[i][j]` of a tensor is `x[i, j]`."""
        if isinstance(node.value, ast.Subscript):
            owner, outer, before = self._place(node.value, names)
            index, vals = self.index(node.slice, names)
            parts = outer if isinstance(outer, tuple) else (outer,)
            plain = isinstance(owner.value, Tensor | np.ndarray) and isinstance(index, int)
            if plain and all(isinstance(part, int) for part in parts) and len(parts) < owner.value.ndim:
                return owner, (*parts, index), (*before, *vals)
            return self.item(owner, outer, before), index, vals
        return self.evaluate(node.value, names), *self.index(node.slice, names)

    def index(self, node: ast.expr, names: Names) -> tuple[Any, Vals]:
        """Return an index, as Python takes it, and the values in it."""
        if isinstance(node, ast.Tuple):
            parts = [self.index(part, names) for part in node.elts]
            return tuple(p for p, _ in parts), tuple(v for _, vals in parts for v in vals)
        if isinstance(node, ast.Slice):
            ends = [self.evaluate(e, names) if e else Val(None) for e in (node.lower, node.upper, node.step)]
            given = tuple(e for e in ends if e.value is not None)
            whole = all(isinstance(e.value, int) for e in given)
            require(whole, "a slice here has ends that are no integers")
            return slice(*(e.value for e in ends)), given
        val = self.evaluate(node, names)
        plain = val.value is Ellipsis or isinstance(val.value, str)
        return (val.value if plain else self.raw(val)), (val,)

    # names and attributes

    def _named(self, name: str, names: Names) -> Val:
        found = names.get(name)
        if found is None and (name in ABBREVIATED or name in BUILTINS):
            return self.note(ABBREVIATED.get(name) or BUILTINS[name])
        found = found or self.free(name)
        if found is None or found is UNREAD:
            raise StopError(f"`{name[:40]}` is not known here" if found is None else "")
        return found

    def _attribute(self, node: ast.Attribute, names: Names) -> Val:
        base, name = node.value, node.attr
        unknown = isinstance(base, ast.Name) and base.id not in ABBREVIATED and base.id not in names
        known = (*METHODS.values(), INHERITED)
        if unknown and not any(name.removesuffix("_") in names_of for names_of in known):
            raise StopError(f"`{ast.unparse(node)[:60]}` is not evaluated")
        return self.member(self.evaluate(base, names), name)

    def member(self, val: Val, name: str) -> Val:
        """Return an attribute of a value, by the value's type and its name."""
        value, kind = val.value, kind_of(val.value)
        if isinstance(value, Instance | Class | Super):
            return self._own(val, name)
        if isinstance(value, Function) and value.library and name in ("default", "tensor"):
            return val  # an overload
        if isinstance(value, Module) and isinstance(value.members.get(name), LibraryName):
            return self.library_call(value.members[name].name)
        if isinstance(value, Module) and name in value.members:
            return self.note(value.members[name], name=name)
        if isinstance(value, ValuesAndIndices) and name in ("values", "indices"):
            return value[name == "indices"]
        call = METHODS.get(kind, {}).get(name.removesuffix("_"))
        if call is not None and not call.most:
            return self.compute(lambda: call.run(value), call.op, (val,), name)
        if call is not None:
            return self.note(call, "method", (val,), name)
        raise StopError(
            f"`{name[:40]}` of {value.name if isinstance(value, Module) else kind} is not evaluated"
        )

    def _own(self, val: Val, name: str) -> Val:
        """Return an attribute of an object, a class, or what `super()` gives."""
        value, this = val.value, val
        if isinstance(value, Instance):
            own = value.names.maps[0].get(name)
            if own is not None:
                return own
            found = value.of.find(name) if value.of else None
        elif isinstance(value, Super):
            this = value.of
            found = next((f for f in (base.find(name) for base in value.bases) if f is not None), None)
        else:
            found = value.find(name)
        if found is None:
            return self._inherited(val, name)
        function, made = found.value, not isinstance(value, Class)
        if not isinstance(function, Function) or function.kind == "staticmethod":
            return found
        if function.kind == "classmethod":
            of = this.value.of if isinstance(this.value, Instance) else this.value
            return self.note(function, "method", (self.note(of),), name)
        if made and function.kind == "property":
            return self.call(self.note(function, "method", (this,)), [], {})
        return self.note(function, "method", (this,), name) if made else found

    def _inherited(self, val: Val, name: str) -> Val:
        """Return what an object or class has from torch or Python, not from the code."""
        value, this = val.value, val
        if isinstance(value, Super):
            if name in ("__init__", "__post_init__"):
                return self.note(BUILTINS["print"])
            this = value.of
        of = value if isinstance(value, Class) else None if isinstance(value, Super) else value.of
        kind = of.kind if of else ""
        if kind == "function" and name == "apply":
            return self.note(Allowed("apply", None), "method", (val,), name)
        if isinstance(this.value, Instance) and (name in INHERITED or name in ("weight", "bias")):
            if name in INHERITED:
                return self.note(Allowed(name, None), "method", (this,), name)
            if kind == "module":
                return self.tensor("weight") if name == "weight" else self.note(None)
        raise StopError(f"`{name[:40]}` of {kind_of(value)} is not evaluated")

    # calls

    def library_call(self, name: str) -> Val:
        """Return a function or class of a library, as `quantcore.pasted.library_code` defines it."""
        raise NotImplementedError

    def defaults(self, args: ast.arguments, names: Names) -> dict[str, Val]:
        """Return the default values of parameters."""
        placed = zip([*args.posonlyargs, *args.args][::-1], args.defaults[::-1], strict=False)
        pairs = [*placed, *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        return {a.arg: self.evaluate(default, names) for a, default in pairs if default is not None}

    def _called(self, node: ast.Call, names: Names) -> Val:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name and name not in BUILTINS and name not in names:
            raise StopError(f"`{ast.unparse(node)[:60]}` is not recognized")
        func = self.evaluate(node.func, names)
        require(len(node.args) <= 64, "a call here has too many arguments")
        args, kw = list[Val](), dict[str, Val]()
        makes = (node.func.attr if isinstance(node.func, ast.Attribute) else name) in COLLECT
        self.plain_lists = not makes
        for part in node.args:
            starred = isinstance(part, ast.Starred)
            found = self.evaluate(part.value if isinstance(part, ast.Starred) else part, names)
            args += self.items(found) if starred else [found]
        self.plain_lists = True
        for keyword in node.keywords:
            given = self.evaluate(keyword.value, names)
            if keyword.arg is None:
                texts = isinstance(given.value, dict) and all(isinstance(key, str) for key in given.value)
                require(texts, "what stands after `**` in a call is no dictionary")
            kw |= given.value if keyword.arg is None else {keyword.arg: given}
        self.line = self.line if self.within else node.lineno
        return self.call(func, args, kw)

    # what is bound

    def assign(self, target: ast.expr, value: Val, names: Names) -> None:
        """Bind a name, an attribute of an instance, an element of a tensor or list, or several of them."""
        match target:
            case ast.Name(id=name):
                names[name] = value = self.chosen(value, names.get(name))
                if not self.within:
                    self.assigned.append((target.lineno, name, value))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = self.items(value)
                fits = len(items) == len(parts)
                require(fits, f"{len(parts)} names are given {len(items)} values", refused=False)
                for part, item in zip(parts, items, strict=True):
                    self.assign(part, item, names)
            case ast.Attribute(value=base, attr=name) if not name.startswith("__"):
                whole = self.evaluate(base, names)
                owner = whole.value
                if name == "data" and isinstance(owner, Tensor) and isinstance(value.value, Tensor):
                    self.rename(whole, value)
                    return
                own = isinstance(owner, Instance | Class)
                require(own, "attributes are only set on the code's own objects")
                owner.names[name] = self.chosen(value, owner.names.get(name))
            case ast.Subscript():
                self._set_item(*self._place(target, names), value)
                self._noted_items(target, names)
            case _:
                raise StopError("this target of an assignment is not evaluated")

    def _noted_items(self, target: ast.Subscript, names: Names) -> None:
        """Note that a line assigned to elements of a named tensor, which changed with them."""
        owner: ast.expr = target
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        found = names.get(owner.id) if isinstance(owner, ast.Name) else None
        if found is not None and not self.within and isinstance(found.value, Tensor | np.ndarray):
            self.assigned.append((target.lineno, ast.unparse(owner), found))

    def _set_item(self, owner: Val, index: Any, vals: Vals, value: Val) -> None:
        items = owner.value
        if self.branches:
            value = self.chosen(value, self.item(owner, index, vals))
            if not self.taken and not is_scalar(value):
                return
        if isinstance(items, list) and isinstance(index, int) and -len(items) <= index < len(items):
            items[index] = value
            return
        if isinstance(items, dict) and isinstance(index, str | int | float):
            items[index] = value
            owner.args, owner.varies = (*owner.args, value), owner.varies or value.varies
            return
        numbers = isinstance(items, Tensor | np.ndarray) and isinstance(value.value, NUMBERS)
        require(numbers, "only elements of tensors are set")
        few = indexed([items, index]) <= bounds.MOST_ELEMENTS
        require(few, f"more than {bounds.MOST_ELEMENTS:,} elements are set here")
        op = "mask" if any(is_mask(v.value) for v in vals) else "setitem"
        args = (owner, value, *vals)
        made = self.overwrite(owner, lambda x: x.__setitem__(index, value.value), op, args, "an assignment")
        if op == "setitem":
            self.stored(owner, index, made, value, vals)
