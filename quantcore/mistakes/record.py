"""What a mistake is: one record, with a part for each place that it is met in."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torch import Tensor

from quantcore.expressions import Expression
from quantcore.formats import INT8, IntFormat
from quantcore.mistakes.cell import Cell
from quantcore.mistakes.tensors import TensorSource

Stage = Literal["range", "scale", "x", "rounding", "overflow", "zero point", "block", "value"]
# Of several mistakes, that of the first of these stages explains codes best
STAGES: tuple[Stage, ...] = get_args(Stage)
# Values of one cell, each with the sentence that explains it
Values = Iterable[tuple[float, str]]
Parts = tuple[Tensor, Tensor, Tensor]  # codes, scale, x̂
Implementation = Callable[[Tensor], Parts]


@dataclass(frozen=True, eq=False)
class InAnswers:
    """A wrong answer that somebody gives who computes one number.

    ``kind``: what it is called ("rounding"); ``rank``: where several mistakes explain an answer, the lowest
    is named. ``code``, ``scale``, ``zero_point``, ``value`` (x̂), ``error``, ``bits`` (per element): what the
    mistake gives for a cell; the sentences on a scale are followed by how it is computed. A mistake in the
    code gives a value and an error too.
    """

    kind: str
    rank: int
    code: Callable[[Cell], Values] = lambda cell: ()
    scale: Callable[[Cell], Values] = lambda cell: ()
    zero_point: Callable[[Cell], Values] = lambda cell: ()
    value: Callable[[Cell], Values] = lambda cell: ()
    error: Callable[[Cell], Values] = lambda cell: ()
    bits: Callable[[Cell], Values] = lambda cell: ()


@dataclass(frozen=True, eq=False)
class InCodes:
    """What shows in the codes of a tensor, which Match looks for.

    ``rank``: 1 for the likeliest; ``title``: what it is called; ``sentence``: the same as a sentence without
    its full stop. ``search``: "early" with what every library computes, by itself; "late" with handwritten
    arithmetic alone; "own" where it has ranges or samples of its own. ``symmetric``: whether only symmetric
    schemes (True) or only others (False) can have it.

    What it changes: ``choices``: of the convention; or ``step``: a name of `programs.code_program`, and for a
    format its result instead of the right one, which is computed from v, the code before the clamp, or from
    the right one itself.
    """

    rank: int
    title: str
    sentence: str
    search: Literal["early", "late", "own"] = "early"
    symmetric: bool | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    step: tuple[str, Callable[[IntFormat], Expression]] | None = None


@dataclass(frozen=True)
class InSource:
    """What shows in the source of a quantizer.

    ``title``: a short label; ``what``: what is wrong, and ``fix``: what to write instead, with facts of the
    case in braces; ``repair``: which operation's repair gives the right codes, "scale", "round", "zero",
    "late" or "cast", "" if that follows without a repair; ``certain``: False for what depends on the tensor;
    ``kind``: what findings of it are called, "" for the mistake's name with hyphens.
    """

    title: str
    what: str
    fix: str
    repair: str = ""
    certain: bool = True
    kind: str = ""


@dataclass(frozen=True)
class WorkedCase:
    """Two implementations of a quantizer: ``wrong`` and ``right`` take x and return codes, scale and x̂.

    ``name``: in links; ``number``: its place in the lesson; ``hint``: what to look for before the answer is
    shown; ``why``: what goes wrong; ``fix``: what the right implementation does; ``tensor``: the one that
    shows it, and where that comes from; ``format``: the intended format of the codes.
    """

    name: str
    number: int
    title: str
    hint: str
    why: str
    fix: str
    wrong: Implementation
    right: Implementation
    tensor: TensorSource
    format: IntFormat = INT8

    @property
    def source(self) -> str:
        """Where the tensor comes from, and the published table if there is one."""
        return self.tensor.source

    def x(self) -> Tensor:
        """Return the tensor, float32."""
        return self.tensor.load()


@dataclass(frozen=True, eq=False)
class Mistake:
    """A usual mistake.

    ``name``: its key in `MISTAKES`; ``stage``: of the arithmetic; ``lesson``: the lesson and the step that
    explain it, "" for the first; the steps of "mistakes" are `CASES`. ``cases``: sources that make it, with
    their fix.
    """

    name: str
    stage: Stage
    lesson: tuple[str, str] | None = None
    in_answers: InAnswers | None = None
    in_codes: InCodes | None = None
    in_source: InSource | None = None
    cases: tuple[WorkedCase, ...] = ()
