"""Which weight of a model takes which scheme: the errors of weights under several, and a budget of bits."""

from quantcore.layerwise import command
from quantcore.layerwise.budget import Allocation, bit_budget, budget_curve
from quantcore.layerwise.cluster import connect
from quantcore.layerwise.effects import SCORES
from quantcore.layerwise.imatrix import Imatrix
from quantcore.layerwise.measure import WHOLE, dtype_of, measured, rows_together
from quantcore.layerwise.plan import (
    AS_STORED,
    ERRORS,
    Plan,
    TradeOff,
    check_error,
    check_size,
    groups_of,
    minimum_of,
    plan,
    trade_off,
)
from quantcore.layerwise.roles import Traits, kind_of, traits
from quantcore.layerwise.run import USUAL, SensitivityStep, outline, schemes_of, sensitivity
from quantcore.layerwise.sample import estimated
from quantcore.layerwise.table import Effect, Table, WeightError, WeightRow, by_harm

__all__ = [
    "Allocation", "AS_STORED", "bit_budget", "budget_curve", "by_harm", "check_error", "check_size",
    "command", "connect", "dtype_of", "Effect", "ERRORS", "estimated", "groups_of", "Imatrix", "kind_of",
    "measured", "minimum_of", "outline", "plan", "Plan", "rows_together", "schemes_of", "SCORES",
    "sensitivity", "SensitivityStep", "Table", "trade_off", "TradeOff", "traits", "Traits", "USUAL",
    "WeightError", "WeightRow", "WHOLE",
]  # fmt: skip
