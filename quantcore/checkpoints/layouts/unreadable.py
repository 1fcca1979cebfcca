"""Weights in formats that are not supported: each is listed, and refused with a sentence that says why and what to do.

Some layouts are made for a GPU's matrix units, or can be read only by its kernels. The other tensors of such a release
can be read.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import Refused, Release
from quantcore.wording import short

# stored tensors of a module -> the format that has them, and why it can't be read
KNOWN: dict[tuple[str, ...], str] = {
    ("trellis",): "EXL3 (ExLlamaV3): a trellis code with Hadamard transforms on both sides",
    ("q_weight", "q_groups"): "EXL2 (ExLlamaV2): codes of mixed widths, shuffled for its kernels",
    ("B", "s"): "Marlin: codes permuted for a GPU's matrix units",
    ("codes", "codebooks", "scales"): "AQLM: sums of vectors of learned codebooks",
    ("Qidxs",): "QuIP#: a lattice code with Hadamard transforms on both sides",
    ("dense_weights", "row_offsets"): "SpQR: codes in tiles, and sparse outliers",
}
# quant_method of a config -> what it is
METHODS = {
    "exl2": "EXL2 (ExLlamaV2)",
    "exl3": "EXL3 (ExLlamaV3)",
    "marlin": "Marlin, permuted for a GPU's matrix units",
    "aqlm": "AQLM",
    "vptq": "VPTQ",
    "quip": "QuIP#",
    "spqr": "SpQR",
    "higgs": "HIGGS",
    "eetq": "EETQ",
    "fp_quant": "FP-Quant",
    "quark": "AMD Quark",
    "sinq": "SINQ",
}


def find_known(release: Release) -> Iterator[Layout]:
    """Yield the weights whose stored tensors are those of a known but unsupported format."""
    for module, pieces in release.modules.items():
        for names, what in KNOWN.items():
            if names[0] in pieces and pieces.keys() >= set(names) and not pieces[names[0]].is_floating:
                reason = (
                    f"{named(module)} is stored in a format that is not supported, {what}; convert it with its "
                    "library."
                )
                yield _refused(f"{module}.weight", pieces, reason, what)
                break


def find(release: Release, readers: str) -> Iterator[Layout]:
    """Yield the quantized weights of a release whose method is not supported: modules that store codes.

    Args:
        readers: the supported methods.
    """
    method = METHODS.get(release.method, "")
    said = f"quant_method {short(release.method, 60)}" + (f" ({method})" if method else "")
    for module, pieces in release.modules.items():
        if any(_holds_codes(piece) for piece in pieces.values()):
            reason = (
                f"The config says {said}, which is not supported, so {named(module)} can't be read; the supported "
                f"methods are {readers}."
            )
            yield _refused(f"{module}.weight" if module else "weight", pieces, reason, said)


def _holds_codes(piece: StoredTensor) -> bool:
    """Whether a stored tensor may be codes: integers of up to 32 bits, or small floats."""
    return bool(piece.shape) and piece.dtype not in ("F64", "F32", "F16", "BF16", "BOOL", "I64", "U64", "C64")


def _refused(name: str, pieces: Mapping[str, StoredTensor], reason: str, cause: str) -> Layout:
    own = {last: piece for last, piece in pieces.items() if last != "bias"}
    return cast(Layout, Refused(name, max((p.shape for p in own.values()), key=len), own, reason, cause))
