"""Quantizers with a common mistake, each with its fix: run both on the same tensor and find the wrong cells.

>>> from quantcore.mistakes import MISTAKES, compare
>>> compare(MISTAKES["cast-without-clamp"]).wrong_cells.sum().item()
2
"""

from quantcore.mistakes.catalogue import MISTAKES
from quantcore.mistakes.compare import Comparison, Line, Outcome, compare, lines, run
from quantcore.mistakes.record import Mistake

__all__ = ["MISTAKES", "Comparison", "Line", "Mistake", "Outcome", "compare", "lines", "run"]
