"""Importance matrices of llama.cpp: the mean of x^2 of each input of a weight, over the calibration tokens.

GGUF form (``general.type`` "imatrix"): ``<weight>.in_sum2`` float32 [matrices, inputs], the sum over tokens,
and ``<weight>.counts`` [matrices, 1], the number of tokens that each expert saw; newer files also have
``<weight>.in_sum``, the sum of x. The mean is 1 where the count is 0. Legacy form: see `containers.gguf`; the
mean is values / calls. Source: ggml-org/llama.cpp, tools/quantize/quantize.cpp, `load_imatrix` and
`load_legacy_imatrix`.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import Pieces
from quantcore.checkpoints.protocol.fields import Numbers, Rows
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES, VALUE, Q
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let, Name, Number, Where, run
from quantcore.granularity import PER_TENSOR
from quantcore.wording import shape_text

SUM, COUNTS, CALLS = "in_sum2", "counts", "imatrix.calls"
_PIECES = (SUM, COUNTS, "in_sum")


def find(release: Release) -> Iterator[Layout]:
    """Yield the entries of an imatrix, by the names of their weights."""
    calls = release.metadata.get(CALLS)
    if isinstance(calls, Mapping):
        for name, piece in release.stored.items():
            yield layout_of(name, {SUM: piece}, calls[name])
    elif release.metadata.get("general.type") == "imatrix":
        for name, pieces in release.modules.items():
            own = {p: pieces[p] for p in _PIECES if p in pieces}
            if own:
                yield attempt(name, own, _of_gguf, name, own)


def _of_gguf(name: str, pieces: Pieces) -> Layout:
    if missing := [piece for piece in (SUM, COUNTS) if piece not in pieces]:
        raise QuantError(f"The entry {named(name)} has no {missing[0]}; compute the imatrix again.")
    shape, counts = pieces[SUM].shape, pieces[COUNTS].shape
    if len(shape) != 2 or counts != (shape[0], 1) or {pieces[SUM].dtype, pieces[COUNTS].dtype} != {"F32"}:
        raise QuantError(
            f"The entry {named(name)} has sums of shape {shape_text(shape)} and counts of shape "
            f"{shape_text(counts)}; "
            "they must be float32 matrices with one count per row, so compute the imatrix again."
        )
    return layout_of(name, pieces)


def layout_of(name: str, pieces: Pieces, calls: int = 0) -> Layout:
    """Return the layout of one entry: the mean squares of a weight's inputs, [matrices, inputs].

    Args:
        calls: the factor in a legacy file's values, 0 without.
    """
    others = {role: Numbers(piece) for role, piece in pieces.items() if role != SUM}
    mean: Expression = Let(VALUE, Q / calls if calls > 0 else Q)
    if COUNTS in pieces:
        count = Name(COUNTS)
        mean = Where(count, 0, Let(VALUE, Number(1), "1 where no token was seen"), Let(VALUE, Q / count))
    return Layout(
        name, pieces[SUM].shape, torch.float32, pieces, {CODES: Numbers(pieces[SUM])} | others,
        "imatrix", "imatrix",
        f"{named(name)} is an entry of an imatrix, so it has no codes; read its values.", PER_TENSOR,
        own_value=mean, fast=_values, kept=_stored, in_codes=frozenset({CODES, "in_sum"}),
        symbols={CODES: "x"},
    )  # fmt: skip


def _values(layout: Layout, rows: Rows, out: Tensor | None) -> Tensor:
    """Return the mean squares, float32."""
    read = {role: layout.fields[role].read(rows) for role in (CODES, COUNTS) if role in layout.fields}
    found: Tensor = run(layout.expression(), read)
    return found if out is None else out.copy_(found)


def _stored(layout: Layout) -> dict[str, Tensor]:
    """Return the sums, the means, and the counts, if the file has them, as ``counts`` [matrices]."""
    found = {role: field.read() for role, field in layout.fields.items() if role != CODES}
    if COUNTS in found:
        found[COUNTS] = found[COUNTS].reshape(-1)
    return {SUM: layout.fields[CODES].read(), "mean_square": layout.values()} | found
