"""Which weights do the same work in different layers: their names differ only in numbers.

The role of ``model.layers.3.mlp.up_proj.weight`` is ``model.layers.*.mlp.up_proj.weight``, and its layer 3; experts of a
layer have one role.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from quantcore.wording import count, joined, short

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_SHOWN = 3  # names that a sentence lists


def role_of(name: str) -> str:
    """Return a name with its numbers replaced: what the same weight of other layers and experts is called too.

    >>> role_of("blk.3.ffn_up.weight")
    'blk.*.ffn_up.weight'
    """
    return _NUMBER.sub("*", name)


def layer_of(name: str) -> int | None:
    """Return the first number of a name; None if it has none.

    >>> layer_of("model.layers.3.mlp.experts.5.up_proj.weight")
    3
    """
    found = _NUMBER.search(name)
    return int(found[0]) if found and len(found[0]) < 10 else None


def in_layer_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts names by their parts, numbers by value: layer 2 comes before layer 10."""
    return tuple((0, int(p), "") if p.isdecimal() and len(p) < 10 else (1, 0, p) for p in name.split("."))


def subject_of(names: Sequence[str], among: Iterable[str], kind: str = "tensor") -> str:
    """Name several weights in a sentence: all of a kind, all but a few, those of one role, or some.

    Args:
        among: all weights of which the same could have been said, ``names`` included.
        kind: what these are called: ``gptq tensor``.

    >>> subject_of(["a.0.w", "a.1.w", "a.2.w", "a.3.w"], ["a.0.w", "a.1.w", "a.2.w", "a.3.w", "b"], "gptq tensor")
    "4 of 5 gptq tensors (all but 'b')"
    """
    chosen = set(names)
    others = [name for name in among if name not in chosen]
    if len(names) > _SHOWN and not others:
        return f"All {count(len(names), kind)}"
    total = len(names) + len(others)
    if len(names) > _SHOWN and len(others) <= _SHOWN:
        return f"{len(names):,} of {count(total, kind)} (all but {joined([short(n, 80) for n in others])})"
    if len(names) <= _SHOWN:
        return joined([short(name, 80) for name in names])
    roles = {role_of(name) for name in names}
    if len(roles) == 1:
        return f"{count(len(names), kind)} {short(roles.pop(), 100)} (layers {_layers(names)})"
    shown = [short(name, 80) for name in names[:_SHOWN]]
    return f"{len(names):,} of {count(total, kind)} ({joined([*shown, f'{len(names) - _SHOWN:,} more'])})"


def _layers(names: Iterable[str]) -> str:
    """List the layers of names: ``0–3 and 7``."""
    layers = sorted({layer for name in names if (layer := layer_of(name)) is not None})
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][-1] == layer - 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    shown = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return joined([*shown[:8], f"{len(shown) - 8} more"] if len(shown) > 8 else shown)


def alike(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items that have the same key, such as a role, by this key."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
