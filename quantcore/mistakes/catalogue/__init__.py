"""The usual mistakes, one record each, by the stage of the arithmetic.

A record has a part for each place that the mistake is met in: Match looks for it in codes, Predict and Class
in answers, pasted code in its source, and the lesson has cases of it. To add a mistake, add its record.
"""

from quantcore.mistakes.catalogue.codes import OVERFLOW, QUOTIENTS, ROUNDING
from quantcore.mistakes.catalogue.ranges import RANGES
from quantcore.mistakes.catalogue.scales import SCALES
from quantcore.mistakes.catalogue.values import VALUES
from quantcore.mistakes.catalogue.zero_points import ZERO_POINTS
from quantcore.mistakes.record import InAnswers, InCodes, InSource, Mistake, WorkedCase

_ALL = (*RANGES, *SCALES, *ZERO_POINTS, *QUOTIENTS, *ROUNDING, *OVERFLOW, *VALUES)
MISTAKES: dict[str, Mistake] = {mistake.name: mistake for mistake in _ALL}
# those that answers show, in the order in which they explain one
IN_ANSWERS: dict[Mistake, InAnswers] = {mistake: mistake.in_answers for mistake in _ALL if mistake.in_answers}
IN_ANSWERS = dict(sorted(IN_ANSWERS.items(), key=lambda item: item[1].rank))
# those that codes show, the likeliest first
IN_CODES: dict[str, InCodes] = {mistake.name: mistake.in_codes for mistake in _ALL if mistake.in_codes}
IN_CODES = dict(sorted(IN_CODES.items(), key=lambda item: item[1].rank))
# those that source shows
IN_SOURCE: dict[str, InSource] = {mistake.name: mistake.in_source for mistake in _ALL if mistake.in_source}
# the cases of the lesson, in its order: those behind published tables, then everyday ones
_CASES = sorted((case for mistake in _ALL for case in mistake.cases), key=lambda case: case.number)
CASES: dict[str, WorkedCase] = {case.name: case for case in _CASES}
