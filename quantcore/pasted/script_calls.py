"""Calls of the scripts around a quantizer: options of the command line, and patterns of einops."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from quantcore.pasted.bounds import require
from quantcore.pasted.expressions import Expressions
from quantcore.pasted.names import MODULES
from quantcore.pasted.objects import Instance
from quantcore.pasted.patterns import REDUCTIONS, arrange
from quantcore.pasted.values import Val

_WAYS = ("rearrange", "repeat", *REDUCTIONS)


def _option(names: list[Val], given: dict[str, Val]) -> tuple[str, Val | None]:
    """Return the attribute of an option of the command line, and its default; None if it has none."""
    texts = [name.value for name in names if isinstance(name.value, str)]
    require(len(texts) == len(names) and bool(texts or "dest" in given), "this option is not evaluated")
    long = next((text for text in texts if text.startswith("--")), texts[0] if texts else "")
    action = given["action"].value if "action" in given else ""
    switch = {"store_true": False, "store_false": True}.get(action) if isinstance(action, str) else None
    default = given.get("default") or (None if switch is None else Val(switch))
    named = given["dest"].value if "dest" in given else long.lstrip("-").replace("-", "_")
    require(isinstance(named, str), "this option is not evaluated")
    return str(named), default


@dataclass(eq=False)
class ScriptCalls(Expressions):
    """One evaluation of the code: what its script takes from elsewhere."""

    def filled(self, of: Val, *given: Val) -> Val:
        """Set attributes by their names, or the attribute of an option to its default.

        An option without a default is unknown, but one of bits is 8, as a parameter of that name is.
        """
        require(isinstance(of.value, Instance), "attributes are only set on the code's own objects")
        known = given[-1].value
        if len(given) == 2:
            name, default = _option(given[0].value, known)
            found = default or (self.free(name) if name not in self.bound else self.bound[name])
            known = {} if found is None or found.op == "input" else {name: found}
        of.value.names.update(known)
        return self.note(None)

    def arranged(self, x: Val, pattern: Val, way: Val, sizes: Val) -> Val:
        """Follow a pattern of einops."""
        given = {name: size.number for name, size in sizes.value.items()}
        known = isinstance(pattern.value, str) and way.value in _WAYS
        whole = {name: int(size) for name, size in given.items() if size is not None and size % 1 == 0}
        fits = known and len(whole) == len(given) and isinstance(x.value, Tensor | np.ndarray)
        require(fits, "this pattern of einops is not followed")
        steps = arrange(pattern.value, tuple(x.value.shape), whole, way.value)
        found = self._method(x, "reshape", steps.split)
        for axis in reversed(steps.reduced):
            found = self._method(found, f"a{way.value}" if way.value in ("max", "min") else way.value, axis)
        found = self._method(found, "permute" if isinstance(x.value, Tensor) else "transpose", steps.order)
        found = self._method(found, "reshape", steps.expanded)
        if any(n > 1 for n in steps.repeated):
            size = tuple(max(pair) for pair in zip(steps.expanded, steps.repeated, strict=True))
            home = self.note(MODULES["torch" if isinstance(x.value, Tensor) else "numpy"])
            found = self.call(self.member(home, "broadcast_to"), [found, self._sizes(size)], {})
        return self._method(found, "reshape", steps.merged)

    def _method(self, of: Val, name: str, given: tuple[int, ...] | int) -> Val:
        """Call a method with sizes, axes or one axis."""
        if isinstance(of.value, np.ndarray) and name in ("amax", "amin"):
            name = name[1:]
        argument = self.note(given) if isinstance(given, int) else self._sizes(given)
        return self.call(self.member(of, name), [argument], {})

    def _sizes(self, sizes: tuple[int, ...]) -> Val:
        parts = tuple(self.note(n) for n in sizes)
        return self.note(parts, "pack", parts)
