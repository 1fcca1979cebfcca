"""Two libraries on one tensor and scheme: which codes differ, and why.

The reason is found by replaying the arithmetic: the ingredients that differ (scale, zero_point, kernel,
handling of NaN, …) are swapped one at a time and then in combination, and the smallest set that turns one
library's code into the other's is the reason.
"""

import dataclasses
import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.comparison.causes import CODING, NO_TIE, blocks_of, choices_behind, kernel_kinds, same
from quantcore.comparison.sentences import kind_of, sentence
from quantcore.conventions import KERNELS, Convention, as_convention
from quantcore.displayed import Displayed
from quantcore.numerics import CHUNK, held
from quantcore.quantization import Quantized, apply_quietly, codes_of, may_leave_integers
from quantcore.scheme import Scheme, as_scheme

PARAMETERS = ("scale", "zero_point")
MOST = 1 << 16  # differing elements that are analyzed


@dataclass(frozen=True)
class Reason:
    """Why some codes differ.

    ``kind``: the reason in a word or two; ``ingredients``: what must be taken from b to turn a's codes into
    b's: scale, zero_point, and choices of the record such as kernel; ``choices``: the choices of b's record
    that turn a's scale and zero_point into b's; ``count``: number of elements; ``index``: the first of them;
    ``sentence``: the reason, with the numbers of that element.
    """

    kind: str
    ingredients: tuple[str, ...]
    choices: tuple[str, ...]
    count: int
    index: tuple[int, ...]
    sentence: str


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Displayed):
    """Both results, where their codes differ (bool, x's shape), and the ingredients behind each.

    ``behind``: int16, the index into ``sets`` for elements that differ, -1 elsewhere.
    """

    a: Quantized
    b: Quantized
    differs: Tensor
    behind: Tensor
    sets: tuple[tuple[str, ...], ...]

    @cached_property
    def count(self) -> int:
        """How many codes differ."""
        return int(torch.count_nonzero(self.differs))  # a sum would convert to 64 bits first

    def first(self, most: int) -> Tensor:
        """Return where the first ``most`` codes differ, as positions in the flattened tensor.

        They are found chunk by chunk: all positions at once could take twice the memory of x.
        """
        found, count = [torch.empty(0, dtype=torch.int64)], 0
        for start, piece in enumerate(torch.split(self.differs.reshape(-1), CHUNK)):
            found.append(piece.nonzero()[:, 0] + start * CHUNK)
            count += len(found[-1])
            if count >= most:
                break
        return torch.cat(found)[:most]

    @cached_property
    def reasons(self) -> list[Reason]:
        """The reasons for the first `MOST` elements that differ, the most frequent first."""
        flat = self.first(MOST)
        if not len(flat):
            return []
        return sorted(self._reasons(flat), key=lambda reason: -reason.count)

    def reason_at(self, index: tuple[int, ...]) -> Reason | None:
        """Return the reason for one element; None if its codes are equal."""
        if not self.differs[index]:
            return None
        shape, flat = tuple(self.differs.shape), 0
        for i, n in zip(index, shape, strict=True):
            flat = flat * n + i % n
        return self._reasons(torch.tensor([flat]))[0]

    def _reasons(self, flat: Tensor) -> list[Reason]:
        """Return one reason per group of elements with the same ingredients, choices and kind of tie."""
        place = self.behind.reshape(-1)[flat].long()
        blocks, block = torch.unique(blocks_of(self.a, flat), return_inverse=True)
        present = [name for name in PARAMETERS if bool(self._has(name, place).any())]
        found = {p: choices_behind(self.a, self.b, blocks, p) for p in present}
        integer = self.a.scheme.format.has_zero_point
        alone = torch.tensor([integer and names == ("kernel",) for names in self.sets])[place]
        columns = [place, torch.where(alone, kernel_kinds(self.a, self.b, flat), NO_TIE)]
        for name, (choice, _) in found.items():
            columns.append(torch.where(self._has(name, place), choice[block], 0))
        groups, group = torch.unique(torch.stack(columns, 1), dim=0, return_inverse=True)
        counts = torch.bincount(group).tolist()
        first = torch.full((len(groups),), len(flat)).scatter_reduce_(
            0, group, torch.arange(len(flat)), "amin"
        )
        reasons = []
        for row, count, at in zip(groups.tolist(), counts, flat[first].tolist(), strict=True):
            names = self.sets[row[0]]
            behind = {p: lists[i] for (p, (_, lists)), i in zip(found.items(), row[2:], strict=True)}
            index = tuple(int(i) for i in np.unravel_index(at, self.differs.shape))
            text = sentence(self.a, self.b, index, names, behind, row[1])
            choices = tuple(dict.fromkeys(c for p in names if p in behind for c in behind[p] or ()))
            reasons.append(Reason(kind_of(names, row[1]), names, choices, count, index, text))
        return reasons

    def _has(self, name: str, place: Tensor) -> Tensor:
        return torch.tensor([name in names for names in self.sets])[place]


def compare(x: Any, scheme: Scheme | str, a: Convention | str, b: Convention | str) -> Comparison:
    """Quantize x by ``scheme`` under both conventions and find the reason for every code that differs.

    >>> import quantcore as qc
    >>> x, scheme = [[-1.25, -1.0, 0.5, 2.5]], qc.Scheme.parse("int4")
    >>> found = qc.compare(x, scheme, qc.TEXTBOOK, qc.CONVENTIONS["torchao"])
    >>> found.differs.tolist(), found.reasons[0].choices
    ([[False, False, True, False]], ('symmetric_scale',))

    Raises:
        QuantError: the scheme does not fit x, or one of the libraries does not support it.
    """
    scheme, (x, dtype) = as_scheme(scheme), held(x)
    of_a, of_b = (
        apply_quietly(x, dataclasses.replace(scheme, convention=as_convention(c)), dtype=dtype)
        for c in (a, b)
    )
    differs = of_a.codes != of_b.codes
    differing = _differing(of_a, of_b)
    sets = tuple(s for n in range(1, len(differing) + 1) for s in itertools.combinations(differing, n))
    behind = torch.full(differs.shape, -1, dtype=torch.int16)
    open_ = differs.clone()
    for place, ingredients in enumerate(sets):
        if not open_.any():
            break
        found = open_ if ingredients == differing else open_ & _turned(of_a, of_b, ingredients)
        behind[found] = place
        open_ = open_ & ~found
    return Comparison(of_a, of_b, differs, behind, sets)


def _differing(a: Quantized, b: Quantized) -> tuple[str, ...]:
    """Return the ingredients of b that may make its codes differ from a's."""
    names = [] if same(a, b, "scale") else ["scale"]
    names += [] if same(a, b, "zero_point") else ["zero_point"]
    ours, theirs = (r.computed.rules for r in (a, b))
    nonfinite = any(
        may_leave_integers(r.x, r.params, r.computed, c) for r, c in ((a, ours), (b, theirs))
    )  # else NaN and the cast change nothing
    names += [
        name
        for name in CODING
        if ours.choices[name] != theirs.choices[name] and (nonfinite or name not in ("nan", "cast"))
    ]
    return tuple(names)


def _turned(a: Quantized, b: Quantized, ingredients: tuple[str, ...]) -> Tensor:
    """Return a mask of the elements whose code these ingredients of b turn into b's."""
    scale, shift = ((b if name in ingredients else a).params for name in PARAMETERS)
    ours, theirs = (r.computed.rules for r in (a, b))
    record = ours.changed(**{name: theirs.choices[name] for name in ingredients if name in CODING})
    params = dataclasses.replace(scale, zero_point=shift.zero_point)
    equal = codes_of(a.x, params, dataclasses.replace(a.scheme, convention=record)) == b.codes
    integer = shift.zero_point == shift.zero_point.round()
    if KERNELS[record.coding.kernel].shift_first or bool(integer.all()):
        return equal
    # a fractional zero_point added to a rounded value gives no code
    for axis, (length, n) in enumerate(zip(a.block, a.blocked_shape, strict=True)):
        integer = integer.repeat_interleave(length, axis).narrow(axis, 0, n)
    return equal & integer.reshape(equal.shape)
