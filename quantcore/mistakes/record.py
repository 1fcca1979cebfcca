"""What a usual mistake is: its names, the lesson that explains it, and what it does to scale, zero point and codes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from torch import Tensor

from quantcore.formats import IntFormat
from quantcore.mistakes.cell import Cell

Stage = Literal["range", "scale", "x", "rounding", "overflow", "zero point", "block"]
# Of several mistakes, that of the first of these stages explains codes best
STAGES: tuple[Stage, ...] = get_args(Stage)
# Values of one cell, each with the sentence that explains it
Values = Iterable[tuple[float, str]]


def _nothing(cell: Cell) -> Values:
    return ()


@dataclass(frozen=True, eq=False)
class Mistake:
    """A usual mistake.

    ``name``: its key in `MISTAKES`; ``kind``: what a wrong answer is called ("rounding"); ``stage``: of the arithmetic.
    ``title``: what it is called where codes show it; ``sentence``: the same as a sentence without its full stop; both
    empty if codes alone don't show it. ``lesson``: the lesson and the step that explain it; the steps of "mistakes" are
    `CASES`.

    What it does to the stages, on tensors: ``choices``: of the convention, changed; ``scale``, ``zero_point``: what is
    used instead of the right one; ``fit``: what is done instead of the clamp. What it gives for one cell:
    ``code_of``, ``zero_point_of``, and ``scale_of``, whose sentences are followed by how the scale is computed.
    """

    name: str
    kind: str
    stage: Stage
    title: str = ""
    sentence: str = ""
    lesson: tuple[str, str] | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    scale: Callable[[Tensor], Tensor] | None = None
    zero_point: Callable[[Tensor], Tensor] | None = None
    fit: Callable[[Tensor, IntFormat], Tensor] | None = None
    code_of: Callable[[Cell], Values] = _nothing
    scale_of: Callable[[Cell], Values] = _nothing
    zero_point_of: Callable[[Cell], Values] = _nothing
