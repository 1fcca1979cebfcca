"""Codes from elsewhere: the conventions and schemes that give them, or come nearest, and why the rest differ.

>>> import quantcore as qc
>>> found = qc.match([[0.5, -1.0], [2.0, 0.1]], [[2, -3], [7, 0]])
>>> str(found.candidates[0].scheme)
'int4 symmetric per_tensor min_max textbook'
"""

from quantcore.matching.answer import answer, nearest, rules, rules_of
from quantcore.matching.candidates import explain_candidate
from quantcore.matching.explanations import NegativesLost
from quantcore.matching.hypotheses.corruption import Corruption, Reinterpreted, Transposed, reproduce
from quantcore.matching.record import Candidate, DifferingCode, KnownMistake, Matches, Progress, few
from quantcore.matching.search import match, match_steps
