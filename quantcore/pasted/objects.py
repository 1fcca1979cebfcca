"""What pasted code defines: functions, classes and their instances, and the signals that leave a block."""

import ast
from dataclasses import dataclass, field

from quantcore.pasted.values import Names, Val

UNREAD = Val(None)  # what a statement that could not be evaluated would have given
# decorators that change nothing here, or are known to `Function` and `Class`
DECORATORS = {
    "torch.no_grad()", "torch.inference_mode()", "torch.jit.script", "torch.jit.export", "torch.compile",
    "tf.function", "jax.jit",
    "staticmethod", "classmethod", "property", "abstractmethod", "abc.abstractmethod", "njit", "jit",
    "numba.njit", "numba.jit", "nb.njit", "nb.jit", "dataclass", "dataclasses.dataclass",
}  # fmt: skip
_MODULES = {
    "Module",
    "nn.Module",
    "torch.nn.Module",
    "nn.Linear",
    "torch.nn.Linear",
    "nn.Conv2d",
    "torch.nn.Conv2d",
}
_FUNCTIONS = {"Function", "autograd.Function", "torch.autograd.Function", "torch.autograd.function.Function"}
_RECORDS = {"NamedTuple", "typing.NamedTuple"}
BASES = dict.fromkeys(_MODULES, "module") | dict.fromkeys(_FUNCTIONS, "function")
BASES |= dict.fromkeys(_RECORDS, "record") | {"object": "", "ABC": "", "abc.ABC": ""}
BASES |= {"Enum": "", "enum.Enum": "", "IntEnum": "", "enum.IntEnum": ""}
# what torch calls for the gradient, and never for the codes
GRADIENTS = {"backward", "vjp", "jvp", "setup_context", "symbolic"}


@dataclass(eq=False)
class Function:
    """A function of the pasted code. ``kind``: "staticmethod", "classmethod" or "property", else "";
    ``owner``: the class that it is a method of; ``library``: whether a library's, not the pasted code's."""

    node: ast.FunctionDef | ast.Lambda
    names: Names
    defaults: dict[str, Val]
    kind: str = ""
    owner: "Class | None" = None
    library: bool = False

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters, without ``*args`` and ``**kwargs``."""
        args = self.node.args
        return [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]

    @property
    def positional(self) -> int:
        """How many of these may be given by place."""
        return len(self.node.args.posonlyargs) + len(self.node.args.args)


@dataclass(eq=False)
class Class:
    """A class of the pasted code. ``kind``: "module", "function" (of torch.autograd) or "record", whose
    instances have ``fields``; else "". ``library``: whether it is a library's."""

    names: Names
    bases: tuple["Class", ...] = ()
    kind: str = ""
    fields: tuple[str, ...] = ()
    library: bool = False

    def find(self, name: str) -> Val | None:
        """Return a member, of it or of its bases."""
        own = self.names.maps[0].get(name)
        found = (base.find(name) for base in self.bases)
        return own if own is not None else next((f for f in found if f is not None), None)

    def comes_from(self, other: "Class") -> bool:
        """Tell whether it is another class, or derived from it."""
        return self is other or any(base.comes_from(other) for base in self.bases)

    @property
    def members(self) -> dict[str, Val]:
        """Its members and those of its bases."""
        found: dict[str, Val] = {}
        for base in reversed(self.bases):
            found |= base.members
        return found | dict(self.names.maps[0])


@dataclass(eq=False)
class Instance:
    """An instance of a class, with its own ``names``; of none: what torch hands to an autograd function."""

    names: Names
    of: Class | None = None


@dataclass(eq=False)
class Super:
    """What `super()` gives in a method: the ``bases`` of its class, for an object."""

    bases: tuple[Class, ...]
    of: Val


@dataclass(eq=False)
class CallFrame:
    """A call in progress: of which function, and on which object, if it is a method."""

    function: Function
    of: Val | None = field(default=None)


class Signal(Exception):
    """A return with its value, or a break or continue, was reached."""

    def __init__(self, node: ast.stmt, value: Val):
        super().__init__()
        self.node, self.value = node, value
