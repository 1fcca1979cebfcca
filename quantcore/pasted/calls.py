"""Calls what pasted code calls: its own functions and classes, and what the white list has."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import NUMBERS, StopError, require
from quantcore.pasted.expressions import INHERITED
from quantcore.pasted.names import ROUNDED, TYPES, Allowed, LeftToLibrary, Mapped, cast
from quantcore.pasted.objects import CallFrame, Class, Function, Instance, Signal, Super
from quantcore.pasted.script_calls import ScriptCalls
from quantcore.pasted.values import OWN, Names, Val

LAYERS = "_layers."  # where a library's container has its modules
_INFINITE = ("inf", "-inf", "nan")
_SAME = ("train", "eval", "requires_grad_", "to", "cpu", "float", "half", "double")  # the module itself


# what has the modules or the parameters of a module
PARTS = {
    "modules", "named_modules", "children", "named_children", "parameters", "named_parameters", "state_dict",
}  # fmt: skip


def _modules_in(val: Val, path: str = "", depth: int = 0) -> Iterator[tuple[str, Val]]:
    """Yield a module and those in it, each with its path."""
    yield path, val
    for name, own in val.value.names.maps[0].items():
        listed = own.value if isinstance(own.value, list | tuple) else None
        parts = [(name, own)] if listed is None else [(f"{name}.{i}", part) for i, part in enumerate(listed)]
        for place, part in parts:
            inner = isinstance(part, Val) and isinstance(part.value, Instance) and part.value.of
            if inner and inner.kind == "module" and depth < bounds.MOST_CALLS:
                place = place.removeprefix(LAYERS)
                yield from _modules_in(part, f"{path}.{place}".removeprefix("."), depth + 1)


def _parameters_of(path: str, val: Val) -> Iterator[tuple[str, Val]]:
    """Yield the parameters that a module itself has, each with its path."""
    of = val.value.of
    for name, own in val.value.names.maps[0].items():
        if isinstance(own.value, Tensor) and (of.library or own.name == "Parameter"):
            yield f"{path}.{name}".removeprefix("."), own


@dataclass(eq=False)
class Calls(ScriptCalls):
    """One evaluation of the code: its calls. ``entered``: the functions called; ``frames``: calls in one
    another."""

    entered: set[ast.AST] = field(default_factory=set)
    frames: list[CallFrame] = field(default_factory=list)

    def call(self, func: Val, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a value; an operation "method" has it with its owner."""
        owner = func.args if func.op == "method" else ()
        text = args[0].value if args and isinstance(args[0].value, str) else ""
        match func.value:
            case Allowed(name=name, run=None) if owner and isinstance(owner[0].value, Class | Instance):
                return self._inherited_call(owner[0], name, args, kw)
            case Allowed(name="namedtuple", run=None):
                return self._record(*args)
            case Allowed(name="argument" | "fill", run=None) if not owner:
                return self.filled(*args)
            case Allowed(name="arranged", run=None) if not owner:
                return self.arranged(*args)
            case Allowed(name="super", run=None):
                return self._super(args)
            case Allowed(name="isinstance", run=None) if len(args) == 2 and not kw:
                return self._is_instance(*args)
            case Allowed(name=name, run=None):
                return self.python(name, [*owner, *args], kw)
            case Allowed(name="float") if text in _INFINITE:
                return self.note(float(text))
            case Allowed(name="append") if len(args) == 1 and not kw:
                self.append(owner[0], args[0])
                return self.note(None)
            case Allowed(name="div" | "divide") as call if "rounding_mode" in kw:
                mode = kw.pop("rounding_mode").value
                found = self.call(func, args, kw)
                return self.apply(ROUNDED[mode], [found], {}) if mode in ROUNDED else found
            case Allowed(name="copy") if owner and func.name == "copy_" and len(args) == 1:
                numbers = args[0].value
                require(isinstance(numbers, Tensor), "this `copy_` is not evaluated")
                return self.overwrite(owner[0], lambda x: x.copy_(numbers), "copy", (args[0],), "copy_")
            case type() as kind if issubclass(kind, np.number) and len(args) == 1 and not kw:
                return self.apply(Allowed("astype", lambda x: cast(x, kind), 1), args, {})
            case np.dtype() as kind if len(args) == 1 and not kw:
                return self.apply(Allowed("astype", lambda x: cast(x, kind), 1), args, {})
            case Allowed() as call:
                found = self.apply(call, [*owner, *args], kw)
                if not owner or func.name == call.name:
                    return found
                if not self.taken:
                    return owner[0]
                value, op = found.value, found.op
                made = self.overwrite(owner[0], lambda x: x.copy_(value), op, found.args, func.name)
                made.varies, made.data = made.varies or op == OWN, made.data or op == OWN
                return made
            case LeftToLibrary(name=name, why=why):
                self.library.append((self.line, name))
                raise StopError(f"`{name}` {why}")
            case Mapped(function=function):
                return self._mapped(function, args)
            case Function() as function:
                return self._enter(function, [*owner, *args], kw)
            case Instance(of=Class() as of):
                name = "__call__" if of.find("__call__") else "forward"
                return self.call(self.member(func, name), args, kw)
            case Class() as made:
                return self._instance(made, args, kw)
        raise StopError("what is called here is not evaluated")

    def _record(self, name: Val, fields: Val | None = None, *args: Val) -> Val:
        """Make the class of a named tuple."""
        given = fields.value if fields is not None else None
        names = given.replace(",", " ").split() if isinstance(given, str) else given
        listed = [getattr(one, "value", one) for one in names] if isinstance(names, list | tuple) else []
        texts = bool(listed) and all(isinstance(one, str) and one.isidentifier() for one in listed)
        require(texts and not args, "this named tuple is not evaluated")
        return self.note(Class(self.space(), (), "record", tuple(listed)))

    def _instance(self, of: Class, args: list[Val], kw: dict[str, Val]) -> Val:
        """Make an instance of a class of the pasted code."""
        own = self.space()
        instance = self.note(Instance(own, of))
        if of.kind == "record":
            known = {name: val for name in of.fields if (val := of.find(name)) is not None}
            own.update(known | dict(zip(of.fields, args, strict=False)) | kw)
            whole = own.keys() == set(of.fields) and len(args) <= len(of.fields)
            require(whole, "the arguments of this call are not the fields of the class", refused=False)
        for start in ("__post_init__",) if of.kind == "record" else ("__init__",):
            if of.find(start) is not None:
                self.call(self.member(instance, start), [] if of.kind == "record" else args, kw)
        return instance

    def _inherited_call(self, owner: Val, name: str, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a method that an object has from torch."""
        if name == "apply":  # of an autograd function: forward, with a context
            forward = owner.value.find("forward")
            require(forward is not None, "`forward` of this function is not known here")
            return self.call(forward, [self.note(Instance(self.space())), *args], kw)
        require(name in INHERITED, f"`{name[:40]}` is not evaluated")
        if name in PARTS:
            return self._parts_of(owner, name)
        if name.startswith("register") and len(args) > 1 and isinstance(args[0].value, str):
            owner.value.names[args[0].value] = args[1]
        return owner if name in _SAME else self.note(None)

    def _mapped(self, function: Val, args: list[Val]) -> Val:
        """Call a function with each element of an array, and make an array of what it returns."""
        arrays = [isinstance(one.value, np.ndarray) for one in args]
        require(sum(arrays) == arrays[:1].count(True) == 1, "this call is not evaluated")
        each = self.python("nditer", args[:1], {}).value
        found = [self.call(function, [one, *args[1:]], {}) for one in each]
        shape, numbers = args[0].value.shape, [self.raw(one) for one in found]
        made = self.compute(lambda: np.array(numbers).reshape(shape), "pack", tuple(found))
        self.gather_list(made, found)
        return made

    def _parts_of(self, owner: Val, name: str) -> Val:
        """Return what a module consists of: its modules or parameters, with or without their names."""
        if name.endswith("children"):
            found = [(path, val) for path, val in _modules_in(owner) if path and "." not in path]
        elif name.endswith("modules"):
            found = list(_modules_in(owner))
        else:
            found = [pair for path, val in _modules_in(owner) for pair in _parameters_of(path, val)]
        if name == "state_dict":
            return self.note(dict(found), "pack", tuple(val for _, val in found))
        if not name.startswith("named"):
            return self.note([val for _, val in found], "pack", tuple(val for _, val in found))
        pairs = [self.note((self.note(path), val), "pack", (val,)) for path, val in found]
        return self.note(pairs, "pack", tuple(pairs))

    def _super(self, args: list[Val]) -> Val:
        frame = self.frames[-1] if self.frames else None
        of = args[1] if len(args) == 2 else frame.of if frame else None
        owner = frame.function.owner if frame else None
        known = of is not None and owner is not None
        require(known, "`super` is not evaluated outside a method")
        assert of is not None
        assert owner is not None
        return self.note(Super(owner.bases, of))

    def _is_instance(self, val: Val, of: Val) -> Val:
        """Tell whether a value is an instance of a type, or of one of several."""
        types = list(of.value) if isinstance(of.value, tuple) else [of]
        found = False
        for one in types:
            kind = one.value.run if isinstance(one.value, Allowed) and one.value.run in TYPES else one.value
            if isinstance(kind, Class):
                of_it = val.value.of if isinstance(val.value, Instance) else None
                found |= of_it is not None and of_it.comes_from(kind)
            else:
                known = isinstance(kind, type) and isinstance(val.value, (*NUMBERS, list, tuple, dict, str))
                require(known, "this type of a value is not evaluated")
                found |= isinstance(val.value, kind)
        return self.note(found, "binary", (val,))

    def _enter(self, function: Function, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a function of the pasted code."""
        node = function.node
        self.entered.add(node)
        found = self._bound(function, args, kw)
        few = len(self.frames) < bounds.MOST_CALLS
        require(few, f"more than {bounds.MOST_CALLS} calls are nested here")
        names = self.space(function.names)
        names.update(found)
        self.frames.append(CallFrame(function, args[0] if function.owner and args else None))
        outermost = function.library and not self.within and function.owner is None
        if outermost and isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            self.library.append((self.line, re.sub("^(decomposed|quanto|tf)_", "", node.name)))
        self.within += function.library
        try:
            if isinstance(node, ast.Lambda):
                return self.evaluate(node.body, names)
            self.block(node.body, names)
        except Signal as signal:
            return signal.value
        finally:
            self.frames.pop()
            self.within -= function.library
        return self.note(None)

    def _bound(self, function: Function, args: list[Val], kw: dict[str, Val]) -> dict[str, Val]:
        """Return the value of each parameter of a call."""
        spec, parameters, placed = function.node.args, function.parameters, function.positional
        by_place = dict(zip(parameters[:placed], args, strict=False))
        found = function.defaults | by_place | {n: v for n, v in kw.items() if n in parameters}
        more = {n: v for n, v in kw.items() if n not in parameters}
        fits = found.keys() == set(parameters) and not by_place.keys() & kw.keys()
        fits &= (len(args) <= placed or spec.vararg is not None) and (not more or spec.kwarg is not None)
        require(fits, "the arguments of this call are not those of the function", refused=False)
        if spec.vararg:
            found[spec.vararg.arg] = self.note(tuple(args[placed:]), "pack", tuple(args[placed:]))
        if spec.kwarg:
            found[spec.kwarg.arg] = self.note(more, "pack", tuple(more.values()))
        return found

    def block(self, body: list[ast.stmt], names: Names) -> None:
        """Run statements."""
        raise NotImplementedError
