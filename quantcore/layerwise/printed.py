"""A plan as lines of text: a table of layers, and what stands outside of them."""

import re
from collections.abc import Iterable, Sequence
from string import ascii_letters

from quantcore.layerwise.plan import AS_STORED, Plan
from quantcore.layerwise.roles import KINDS, NOT_KNOWN, kind_of
from quantcore.layerwise.table import Table, WeightRow
from quantcore.wording import count, short

_LAYER = re.compile(r"(?:^|.*?\.)\d+(?=\.)")  # a name up to its first number


def by_layer(table: Table, chosen: Plan) -> tuple[list[str], list[str]]:
    """Return a legend of schemes and a table of layers by kinds, and a line for each other weight.

    Weights without cells are in neither.
    """
    letters = dict(zip([*table.schemes, AS_STORED], [*ascii_letters[: len(table.schemes)], "-"], strict=True))
    cells: dict[str, dict[str, str]] = {}
    others = []
    for row in table.ordered:
        if not row.cells:
            continue
        layer, letter = _LAYER.match(row.name), letters[chosen.schemes[row.name]]
        if layer is None:
            others.append(f"{short(row.name, 120)}: {chosen.schemes[row.name]}")
            continue
        kind = kind_of(row.name).removeprefix("experts ")
        own = cells.setdefault(layer[0], {})
        kind = kind if kind in KINDS else NOT_KNOWN
        own[kind] = "".join(sorted({*own.get(kind, ""), letter}))
    kinds = [kind for kind in (*KINDS, NOT_KNOWN) if any(kind in own for own in cells.values())]
    layers = [[layer, *(own.get(kind, "") for kind in kinds)] for layer, own in cells.items()]
    used = {letter for _, *own in layers for cell in own for letter in cell}
    legend = [f"{letter} = {scheme}" for scheme, letter in letters.items() if letter in used]
    return [*legend, *_aligned([["layer", *kinds], *layers])] if layers else [], others


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of columns that are as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def not_measured(rows: Iterable[WeightRow]) -> list[str]:
    """Return a line for each reason why weights have no cells."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.reason:
            names.setdefault(row.reason, []).append(row.name)
    return [
        f"{short(own[0], 120)} {reason}"
        if len(own) == 1
        else f"{count(len(own), 'tensor')}, the first {short(own[0], 120)}: each {reason}"
        for reason, own in names.items()
    ]
