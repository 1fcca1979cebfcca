"""The layouts of quantized releases: one module a format; what no format claims is plain."""

from dataclasses import replace

from quantcore.checkpoints.layouts import (
    awq,
    bitsandbytes,
    compressed_tensors,
    gguf,
    gptq,
    mlx,
    plain,
    torchao,
)
from quantcore.checkpoints.layouts.floats import fp8, gpt_oss, modelopt
from quantcore.checkpoints.layouts.in_parts import hqq
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import Finder, Release
from quantcore.errors import QuantError
from quantcore.tensors import short

# quant_method in the config -> what finds the weights of such a release. An empty method: no config says; each
# finder is tried, in this order, and must know its weights by their names and shapes.
FINDERS: dict[str, Finder] = {
    "gptq": gptq.find,
    "awq": awq.find,
    "compressed-tensors": compressed_tensors.find,
    "bitsandbytes": bitsandbytes.find,
    "hqq": hqq.find,
    "modelopt": modelopt.find,
    "fp8": fp8.find,
    "mxfp4": gpt_oss.find,
    "torchao": torchao.find,
}
# tried for every release, before the method's: weights that files mark themselves (ggml types, metadata, QDQ pairs)
SIGNATURES: tuple[Finder, ...] = (gguf.find_imatrix, gguf.find_gguf, mlx.find, torchao.find)


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


__all__ = ["FINDERS", "SIGNATURES", "find_layouts"]
