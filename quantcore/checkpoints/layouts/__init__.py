"""The layouts of quantized releases: one module per format; tensors that no format claims are plain."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from quantcore.checkpoints.layouts import (
    auto_round,
    awq,
    bitnet,
    bitsandbytes,
    compressed_tensors,
    fp8,
    gguf,
    gpt_oss,
    gptq,
    hqq,
    imatrix,
    mlx,
    modelopt,
    onnx,
    plain,
    quanto,
    torch_quantized,
    torchao,
    unnamed,
)
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import Finder, Release
from quantcore.collection import uncollected

# quant_method in the config -> what finds the weights of such a release. If there is no method, each finder
# is tried, in this order, and must recognize its weights by their names and shapes.
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
    "quanto": quanto.find,
    "bitnet": bitnet.find,
    "auto-round": auto_round.find,
}
# other names of these methods
SYNONYMS = {
    "auto_round": "auto-round", "intel/auto-round": "auto-round", "inc": "auto-round",
    "modelopt_fp4": "modelopt", "modelopt_mixed": "modelopt", "fbgemm_fp8": "fp8",
    "optimum-quanto": "quanto", "compressed_tensors": "compressed-tensors",
}  # fmt: skip
# tried for every release, before the method's finder: weights that files mark (by ggml types, metadata, QDQ
# pairs)
SIGNATURES: tuple[Finder, ...] = (
    imatrix.find,
    gguf.find,
    onnx.find,
    torch_quantized.find,
    torchao.find,
    mlx.find,
    plain.find_known,
)


@uncollected()
def find_layouts(release: Release) -> dict[str, Layout]:
    """Return the layout of every weight, by its logical name, in the order of the release."""
    found: dict[str, Layout] = {}
    release = replace(release)  # the modules that it caches are not kept with the checkpoint
    of_method: Iterable[Finder] = FINDERS.values()
    if method := SYNONYMS.get(release.method, release.method):
        # of an unknown method, the weights are refused, and the method is named
        of_method = [FINDERS.get(method) or partial(plain.find_unsupported, readers=", ".join(FINDERS))]
    for finder in (*SIGNATURES, *of_method, unnamed.find):
        layouts = [layout for layout in finder(release) if layout.name not in found]
        found |= {layout.name: layout for layout in layouts}
        if layouts:  # otherwise the release keeps its cached `modules`
            taken = {piece.name for layout in layouts for piece in layout.pieces.values()}
            rest = {name: piece for name, piece in release.stored.items() if name not in taken}
            release = replace(release, stored=rest)
    return found | {layout.name: layout for layout in plain.find(release) if layout.name not in found}
