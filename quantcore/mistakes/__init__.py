"""The usual mistakes of quantizers: what they do to scale, zero point and codes, and code that makes them.

`MISTAKES` has one record each. `CASES` are quantizers that make one, each with its fix: run both on the same tensor and
find the wrong cells.

>>> from quantcore.mistakes import CASES, compare
>>> compare(CASES["cast-without-clamp"]).wrong_cells.sum().item()
2
"""

from quantcore.mistakes.cases import CASES, Outcome, OutcomePair, SourceLine, WorkedCase, compare, lines, run
from quantcore.mistakes.catalogue import MISTAKES, STAGES, Answer, Mistake, answers, right, traced, wrong
