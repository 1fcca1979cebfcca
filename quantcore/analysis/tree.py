"""A tree of named sizes, such as a model's tensors by module path, folded so that it can be drawn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from quantcore.collection import uncollected

DEPTH = 12  # levels at most; the remaining parts of a name stay together


class Leaf(NamedTuple):
    """An item with a dotted name, such as ``model.layers.0.mlp.up_proj.weight``.

    ``size``: in bytes; ``elements``: how many numbers it contains.
    """

    name: str
    size: int
    elements: int


@dataclass(frozen=True)
class Tile:
    """A rectangle of a treemap.

    ``parent``: index of the tile that contains it, -1 for the root; ``label``: the parts of its name that the
    parent's name does not have; ``path``: the full name; ``size``, ``elements``: sums over its leaves;
    ``leaves``: how many it has; ``leaf``: index of its only leaf, None if there are several. ``folded``: it
    stands for several small tiles.
    """

    parent: int
    label: str
    path: str
    size: int
    elements: int
    leaves: int
    leaf: int | None = None
    folded: bool = False


@dataclass(slots=True)
class _Node:
    """A prefix of names. ``leaf``: index of the leaf whose name ends here."""

    label: str
    path: str
    size: int = 0
    elements: int = 0
    leaves: int = 0
    leaf: int | None = None
    # by the next part of the name; None: the leaf whose own name ends here
    children: "dict[str | None, _Node]" = field(default_factory=dict)

    def add(self, leaf: Leaf) -> None:
        self.size += leaf.size
        self.elements += leaf.elements
        self.leaves += 1


@uncollected()
def tiles(leaves: Sequence[Leaf], most: int) -> list[Tile]:
    """Return the tiles of a treemap, level by level, each after its parent.

    Levels are drawn as long as they fit entirely. In the first one that does not, the largest tiles are
    opened first; a tile that stays closed stands for all its leaves.

    Args:
        most: about how many tiles to return at most.
    """
    root = _tree(leaves)
    found = [Tile(-1, "", "", root.size, root.elements, root.leaves, root.leaf)]
    level = [(0, root)]
    while level:
        following: list[tuple[int, _Node]] = []
        wanted = sum(len(node.children) for _, node in level)
        if len(found) + wanted > most:
            level = sorted(level, key=lambda pair: -pair[1].size)
        for place, node in level:
            room = most - len(found)
            if len(node.children) > room and (room < 2 or len(node.children) < most // 4):
                continue
            following += _open(found, place, node, room)
        level = [pair for pair in following if pair[1].children]
    parents = {tile.parent for tile in found}
    closed = (tile.leaf is None and place not in parents for place, tile in enumerate(found))
    return [replace(tile, folded=True) if shut else tile for tile, shut in zip(found, closed, strict=True)]


def _tree(leaves: Sequence[Leaf]) -> _Node:
    root = _Node("", "")
    for place, leaf in enumerate(leaves):
        node = root
        node.add(leaf)
        parts = leaf.name.split(".", DEPTH - 1)
        for i, part in enumerate(parts):
            if node.leaf is not None:
                own = leaves[node.leaf]
                node.children[None] = _Node("", own.name, own.size, own.elements, 1, node.leaf)
                node.leaf = None
            if part not in node.children:
                node.children[part] = _Node(part, ".".join(parts[: i + 1]))
            node = node.children[part]
            node.add(leaf)
        if node.children:
            node.children.setdefault(None, _Node("", leaf.name)).add(leaf)
            node = node.children[None]
        node.leaf = place
    return root


def _single(node: _Node) -> _Node:
    """Join a node with its only child, as long as it has only one."""
    label = node.label
    while len(node.children) == 1 and node.leaf is None:
        (node,) = node.children.values()
        label = f"{label}.{node.label}" if label else node.label
    return replace(node, label=label)


def _open(found: list[Tile], place: int, node: _Node, room: int) -> Iterator[tuple[int, _Node]]:
    """Append the tiles of a node's children and yield each child with its index; small ones share a tile."""
    children = [_single(child) for child in node.children.values()]
    rest: list[_Node] = []
    if len(children) > room:
        by_size = sorted(children, key=lambda child: -child.size)
        children, rest = by_size[: room - 1], by_size[room - 1 :]
    for child in children:
        leaf = child.leaf if not child.children else None
        found.append(Tile(place, child.label, child.path, child.size, child.elements, child.leaves, leaf))
        yield len(found) - 1, child
    if rest:
        size, elements, leaves = (
            sum(values) for values in zip(*((c.size, c.elements, c.leaves) for c in rest), strict=True)
        )
        found.append(Tile(place, f"{leaves:,} smaller", node.path, size, elements, leaves, None, True))
