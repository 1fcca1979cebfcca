"""The layouts of quantized releases: one module a format; what no format claims is plain.

How a format is added: a module with a frozen record, a subclass of `Layout` that says its `fields`, `element` and
`granularity`, and a function ``find(release)`` that yields one record per weight, through `attempt`, so that a damaged
weight is listed with the reason. It reads headers and config only; data are read when a weight is. Then a line in
`FINDERS` (by the config's quant_method) or `SIGNATURES` (known by dtypes, names or metadata alone).

    fields = {
        "codes": Packed(piece, order, shape, axis, transposed, offset, signed),  # integers in words
        "scale": Numbers(piece, transposed),                                     # one element a number
    }

gives codes, parameters in block form, values by rows, the place of each bit, and the bytes again. Where the effective
scale is computed, the raw pieces are fields ("scale_code", "global_scale") and `Layout.scale` is overridden; where the
library rounds between its operations, `Layout.dequantize` is.
"""

from dataclasses import replace

from quantcore.checkpoints.layouts import gptq, plain
from quantcore.checkpoints.layouts.fields import Field, Numbers, Packed, Place, Rows
from quantcore.checkpoints.layouts.layout import Layout, Location
from quantcore.checkpoints.layouts.refused import Refused
from quantcore.checkpoints.layouts.release import Finder, Release, attempt
from quantcore.errors import QuantError
from quantcore.tensors import short

# quant_method in the config -> what finds the weights of such a release. An empty method: no config says; each
# finder is tried, in this order, and must know its weights by their names and shapes.
FINDERS: dict[str, Finder] = {
    "gptq": gptq.find,
}
# tried for every release, before the method's: weights that files mark themselves (ggml types, metadata, QDQ pairs)
SIGNATURES: tuple[Finder, ...] = ()


def find_layouts(release: Release) -> dict[str, Layout]:
    """Return the layout of every weight, by its logical name, in the order of the release.

    Raises:
        QuantError: the config names a method that has no reader here.
    """
    if release.method and release.method not in FINDERS:
        raise QuantError(
            f"The config says quant_method {short(release.method, 60)}, which has no reader here; the readers are "
            f"{', '.join(FINDERS)}."
        )
    found: dict[str, Layout] = {}
    taken: set[str] = set()
    by_method = [FINDERS[release.method]] if release.method else [*dict.fromkeys(FINDERS.values())]
    for finder in (*SIGNATURES, *by_method):
        rest = {name: piece for name, piece in release.stored.items() if name not in taken}
        for layout in finder(replace(release, stored=rest)):
            found[layout.name] = layout
            taken |= {piece.name for piece in layout.pieces.values()}
    left = {name: piece for name, piece in release.stored.items() if name not in taken}
    found |= {
        layout.name: layout
        for layout in plain.find(replace(release, stored=left))
        if layout.name not in found
    }
    return found


__all__ = [
    "FINDERS",
    "Field",
    "Finder",
    "Layout",
    "Location",
    "Numbers",
    "Packed",
    "Place",
    "Refused",
    "Release",
    "Rows",
    "SIGNATURES",
    "attempt",
    "find_layouts",
]
