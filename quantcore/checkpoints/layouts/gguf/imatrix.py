"""Importance matrices of llama.cpp: the mean of x^2 of each input of a weight, over the calibration tokens.

GGUF form (``general.type`` "imatrix"): ``<weight>.in_sum2`` float32 [matrices, inputs], the sum over tokens, and
``<weight>.counts`` [matrices, 1], the number of tokens that each expert saw; newer files also have
``<weight>.in_sum``, the sum of x. The mean is 1 where the count is 0. Legacy form: see `containers.imatrix_dat`; the
mean is values / calls.
Source: ggml-org/llama.cpp, tools/quantize/quantize.cpp, `load_imatrix` and `load_legacy_imatrix`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Numbers, Rows
from quantcore.checkpoints.protocol.layout import CODES, Layout
from quantcore.checkpoints.protocol.location import Location
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.errors import QuantError
from quantcore.formats import Format
from quantcore.granularity import PER_TENSOR, Granularity
from quantcore.tensors import shape_text

SUM, COUNTS, CALLS = "in_sum2", "counts", "imatrix.calls"
_PIECES = (SUM, COUNTS, "in_sum")


def find(release: Release) -> Iterator[Layout]:
    """Yield the entries of an imatrix, by the names of their weights."""
    calls = release.metadata.get(CALLS)
    if isinstance(calls, Mapping):
        for name, piece in release.stored.items():
            yield Imatrix(name, piece.shape, torch.float32, {SUM: piece}, calls[name])
    elif release.metadata.get("general.type") == "imatrix":
        for name, pieces in release.modules.items():
            own = {p: pieces[p] for p in _PIECES if p in pieces}
            if own:
                yield attempt(name, own, partial(_of_gguf, name, own))


def _of_gguf(name: str, pieces: Mapping[str, StoredTensor]) -> "Imatrix":
    if missing := [piece for piece in (SUM, COUNTS) if piece not in pieces]:
        raise QuantError(f"The entry {named(name)} has no {missing[0]}; compute the imatrix again.")
    shape, counts = pieces[SUM].shape, pieces[COUNTS].shape
    if len(shape) != 2 or counts != (shape[0], 1) or {pieces[SUM].dtype, pieces[COUNTS].dtype} != {"F32"}:
        raise QuantError(
            f"The entry {named(name)} has sums of shape {shape_text(shape)} and counts of shape {shape_text(counts)}; "
            "they must be float32 matrices with one count per row, so compute the imatrix again."
        )
    return Imatrix(name, shape, torch.float32, pieces)


@dataclass(frozen=True, eq=False)
class Imatrix(Layout):
    """The mean squares of a weight's inputs, [matrices, inputs]; ``calls``: the factor in a legacy file's values, 0 without."""

    calls: int = 0

    @property
    def storage(self) -> str:
        """``imatrix``."""
        return "imatrix"

    @property
    def element(self) -> Format:
        """Raise: there are no codes."""
        raise QuantError(
            f"{named(self.name)} is an entry of an imatrix, so it has no codes; read its values."
        )

    @property
    def granularity(self) -> Granularity:
        """One block: there is no scale."""
        return PER_TENSOR

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """The sums in place of codes, and the counts."""
        others = {role: Numbers(piece) for role, piece in self.pieces.items() if role != SUM}
        return {CODES: Numbers(self.pieces[SUM])} | others

    def codes(self, rows: Rows = None) -> Tensor:
        """Raise: there are none.

        Raises:
            QuantError: always.
        """
        _ = self.element
        raise AssertionError

    def stored(self) -> dict[str, Tensor]:
        """Return the sums, the means, and the counts, if the file has them, as ``counts`` [matrices]."""
        found = {role: field.read() for role, field in self.fields.items() if role != CODES}
        if COUNTS in found:
            found[COUNTS] = found[COUNTS].reshape(-1)
        return {SUM: self.fields[CODES].read(), "mean_square": self.values()} | found

    def values(self, rows: Rows = None, out: Tensor | None = None, rounded: bool = True) -> Tensor:
        """Return the mean squares, float32: the sums divided by counts or calls; 1 where a count is 0."""
        sums = self.fields[CODES].read(rows)
        if COUNTS in self.pieces:
            counts = self.fields[COUNTS].read(rows)
            found = torch.where(counts == 0, torch.ones(()), sums / counts)
        else:
            found = sums / self.calls if self.calls > 0 else sums
        return found if out is None else out.copy_(found)

    def locate(self, index: Sequence[int]) -> Location:
        """Return where the sum is, and the count."""
        counts = {COUNTS: self.fields[COUNTS].place((index[0], 0))} if COUNTS in self.pieces else {}
        return Location(self.fields[CODES].place(tuple(index)), counts)
