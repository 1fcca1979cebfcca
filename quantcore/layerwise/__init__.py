"""Which weight of a model takes which scheme: the errors of weights under several, and a budget of bits."""

from quantcore.layerwise import command
from quantcore.layerwise.budget import Allocation, bit_budget, budget_curve
from quantcore.layerwise.imatrix import Imatrix
from quantcore.layerwise.measure import WHOLE, dtype_of, estimated, measured, rows_together
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
from quantcore.layerwise.table import Table, WeightError, WeightRow, by_harm, merged

__all__ = [
    "AS_STORED", "WeightError", "Allocation", "ERRORS", "Imatrix", "Plan", "WeightRow", "SensitivityStep",
    "Table", "bit_budget", "budget_curve", "by_harm", "check_error", "check_size", "command", "dtype_of",
    "estimated", "groups_of", "kind_of", "measured", "merged", "minimum_of", "outline", "plan",
    "rows_together", "schemes_of", "sensitivity", "trade_off", "traits", "TradeOff", "Traits", "USUAL",
    "WHOLE",
]  # fmt: skip
