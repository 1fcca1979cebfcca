"""Weights that no format claims: stored as their values, or in formats that are not supported.

The latter are listed, each refused with a sentence that says why and what to do. Some layouts are made for a
GPU's matrix units, or can be read only by its kernels. The other tensors of such a release can be read.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import cast

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, Pieces, StoredTensor
from quantcore.checkpoints.protocol.fields import Numbers, Rows
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES, PLAIN
from quantcore.checkpoints.protocol.release import AsStored, Refused, Release
from quantcore.checkpoints.statement import Statement, named
from quantcore.formats import Format, IntFormat
from quantcore.granularity import PER_TENSOR
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
_SYMBOLS = {CODES: "x"}
_NARROWED = Statement("narrowed", "note", "is float64; its numbers are read as the nearest float32.")
_NO_CODES = ("F64", "F32", "F16", "BF16", "BOOL", "I64", "U64", "C64")
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


def find(release: Release) -> Iterator[Layout]:
    """Yield every stored tensor as its own weight."""
    for piece in release.stored.values():
        yield plain(piece)


def plain(piece: StoredTensor, storage: str = "", dtype: torch.dtype | None = None) -> Layout:
    """Return the layout of a stored tensor whose elements are its values; it is made when it is used.

    Args:
        storage: how it is stored, in words, if not as ``plain float16``.
        dtype: the reader's output dtype, if not that of the tensor.
    """
    if piece.dtype not in TORCH_DTYPES:
        unknown = short(piece.dtype, 40)
        reason = (
            f"{named(piece.name)} has the dtype {unknown}, which is not supported; save it in another one."
        )
        return cast(Layout, Refused(piece.name, piece.shape, {"": piece}, reason, f"dtype {unknown}"))
    own = dtype or TORCH_DTYPES[piece.dtype]
    storage = storage or f"plain {str(own).removeprefix('torch.')}"
    return cast(Layout, AsStored(piece, storage, own, _maker(storage, own)))


@cache
def _maker(storage: str, dtype: torch.dtype) -> Callable[[StoredTensor], Layout]:
    """Return what makes the layout of a stored tensor: one function for all that are stored alike."""

    def make(piece: StoredTensor) -> Layout:
        return Layout(
            piece.name, piece.shape, dtype, {"": piece}, {CODES: Numbers(piece)},
            storage.partition(" ")[0], storage, _coded(piece.name, dtype, storage), PER_TENSOR,
            own_value=PLAIN, fast=_values, symbols=_SYMBOLS, of_part=make,
            remarks=(_NARROWED,) if piece.dtype == "F64" else (),
        )  # fmt: skip

    return make


def _coded(name: str, dtype: torch.dtype, storage: str) -> Format | str:
    """Return integers of up to 16 bits; other values are no codes."""
    bits = 8 * dtype.itemsize
    if dtype.is_floating_point or dtype == torch.bool or bits > 16:
        return f"{named(name)} is {storage}, so it has no codes; read its values."
    return IntFormat(bits, signed=dtype.is_signed)


def _values(layout: Layout, rows: Rows, out: Tensor | None) -> Tensor:
    field = layout.fields[CODES]
    if out is not None and layout.dtype.is_floating_point and not field.across_rows:
        return out.copy_(field.piece.numbers(() if rows is None else (rows,), widened=False))
    found = as_floats(field.read(rows))
    return found if out is None else out.copy_(found)


def as_floats(numbers: Tensor) -> Tensor:
    """Return stored numbers as float32."""
    if numbers.dtype == torch.uint64:  # which torch can't cast
        numbers = torch.from_numpy(numbers.numpy().astype("float32"))
    return numbers.to(torch.float32)


def find_known(release: Release) -> Iterator[Layout]:
    """Yield the weights whose stored tensors are those of a known but unsupported format."""
    for module, pieces in release.modules.items():
        for names, what in KNOWN.items():
            if names[0] in pieces and pieces.keys() >= set(names) and not pieces[names[0]].is_floating:
                reason = (
                    f"{named(module)} is stored in a format that is not supported, {what}; "
                    "convert it with its library."
                )
                yield _refused(f"{module}.weight", pieces, reason, what)
                break


def find_unsupported(release: Release, readers: str) -> Iterator[Layout]:
    """Yield the quantized weights of a release whose method is not supported: modules that store codes.

    Args:
        readers: the supported methods.
    """
    method = METHODS.get(release.method, "")
    said = f"quant_method {short(release.method, 60)}" + (f" ({method})" if method else "")
    for module, pieces in release.modules.items():
        # codes are integers of up to 32 bits, or small floats
        if any(piece.shape and piece.dtype not in _NO_CODES for piece in pieces.values()):
            reason = (
                f"The config says {said}, which is not supported, so {named(module)} can't be read; the "
                f"supported methods are {readers}."
            )
            yield _refused(f"{module}.weight" if module else "weight", pieces, reason, said)


def _refused(name: str, pieces: Pieces, reason: str, cause: str) -> Layout:
    own = {last: piece for last, piece in pieces.items() if last != "bias"}
    return cast(Layout, Refused(name, max((p.shape for p in own.values()), key=len), own, reason, cause))
