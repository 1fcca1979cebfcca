"""The tensors that code is evaluated on: ordinary ones, and those on which hidden mistakes show."""

import ast
import math
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.pasted.bounds import OverLimitError
from quantcore.pasted.walk import Given, Walk, evaluate

# square first: scales along the wrong axis fail on all others; then other ranks, for code that names axes
SHAPES = ((64, 64), (4096,), (16, 16, 16), (8, 8, 8, 8))
SMALL = (8, 8)


def ordinary(shape: tuple[int, ...]) -> list[Tensor]:
    """Three tensors of both signs: in the second the largest magnitude is negative, in the others positive."""
    generator = torch.Generator().manual_seed(7)
    found = [torch.randn(shape, generator=generator) for _ in range(3)]
    for x, end in zip(found, (5.3, -7.1, 6.4), strict=True):
        x.view(-1)[9] = end
    return found


def special(shape: tuple[int, ...]) -> dict[str, Tensor]:
    """Tensors on which mistakes show that an ordinary one hides, by name."""
    generator = torch.Generator().manual_seed(8)
    outlier = torch.randn(shape, generator=generator)
    outlier.view(-1)[3], outlier.view(-1)[70 % outlier.numel()] = 1e4, -1e4
    return {
        "zeros": torch.zeros(shape),
        "constant": torch.full(shape, 1.5),
        "one-sided": 5 + torch.rand(shape, generator=generator),
        "outlier": outlier,
        "subnormal": 1e-40 * torch.randn(shape, generator=generator),
    }


@dataclass(frozen=True, eq=False)
class Probed:
    """The code on tensors of one shape, with the same boolean parameters."""

    ordinary: list[Walk]
    special: dict[str, Walk]


def uses_numpy(text: str) -> bool:
    """Whether code is written for NumPy: it names NumPy, and not torch."""
    return bool(re.search(r"\b(np|numpy)\b", text)) and not re.search(r"\b(torch|F)\.\w", text)


def given(x: Tensor, text: str, flags: tuple[tuple[str, bool], ...] = (), end: float = math.inf) -> Given:
    """A tensor with the scale and zero point that int8 asymmetric would have."""
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = (high - low) / 255 or 1.0
    return Given(x, scale, round(-128 - low / scale), numpy=uses_numpy(text), flags=flags, end=end)


def _fitting(tree: ast.Module, text: str, also: tuple[int, ...] | None, end: float) -> Walk:
    """The evaluation on a tensor of the shape on which most of the code can be evaluated."""
    walks: list[Walk] = []
    shapes = [*SHAPES[:1], *([also] if also else []), *SHAPES[1:]]
    for shape in shapes:
        try:
            walks.append(evaluate(tree, given(ordinary(shape)[0], text, (), end)))
        except OverLimitError:
            if shape == SMALL or walks:
                raise
            shapes[1:] = [SMALL]  # for code that loops over elements
        if walks and not _failures(walks[-1]):
            break
    return min(walks, key=_failures)


def _failures(walk: Walk) -> int:
    """How many statements fail on this tensor."""
    return sum(not refused for _, _, refused in walk.trace.unread)


def probe(tree: ast.Module, text: str, also: tuple[int, ...] | None, end: float) -> list[Probed]:
    """Evaluate code on every tensor, once more for each boolean parameter of a function that nobody calls.

    Raises:
        OverLimitError: it takes too many steps, elements or too much time.
    """
    first = _fitting(tree, text, also, end)
    shape = tuple(first.given.x.shape)
    found = []
    for flags in [(), *(((name, value),) for name in sorted(first.flags)[:3] for value in (False, True))]:
        more = ordinary(shape)[0 if flags else 1 :]
        walks = [*([] if flags else [first]), *(evaluate(tree, given(x, text, flags, end)) for x in more)]
        others = {name: evaluate(tree, given(x, text, flags, end)) for name, x in special(shape).items()}
        found.append(Probed(walks, others))
    return found
