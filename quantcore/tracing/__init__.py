"""One element from x to its error, step by step, with its numbers."""

from quantcore.tracing.record import Step
from quantcore.tracing.steps import Trace
from quantcore.tracing.text import dividend, number, scale_formula, signed, zero_point_formula
from quantcore.tracing.trace import trace
