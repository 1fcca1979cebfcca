"""The usual mistakes of quantizers: what they do to numbers, and code that makes them.

`MISTAKES` has one record each. `CASES` are quantizers that make one, each with its fix: run both on the same
tensor and find the wrong cells.

>>> from quantcore.mistakes import CASES, compare
>>> compare(CASES["cast-without-clamp"]).wrong_cells.sum().item()
2
"""

from quantcore.mistakes.answers import OF_BLOCKS, Answer, answers, right, traced, wrong
from quantcore.mistakes.catalogue import CASES, IN_CODES, IN_SOURCE, MISTAKES
from quantcore.mistakes.cell import Cell
from quantcore.mistakes.changed import Kinds, codes_of_values, program_of
from quantcore.mistakes.lesson import Outcome, OutcomePair, SourceLine, compare, lines, run
from quantcore.mistakes.record import STAGES, InCodes, InSource, Mistake, Stage, WorkedCase
