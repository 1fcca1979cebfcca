"""Which weight of a model takes which scheme: the errors of weights under several, and a budget of bits."""

from quantcore.layerwise.budget import Allocation, bit_budget, budget_curve
from quantcore.layerwise.cluster import connect
from quantcore.layerwise.effects import SCORES
from quantcore.layerwise.imatrix import Imatrix
from quantcore.layerwise.inputs import Collected, LayerInputs, collect
from quantcore.layerwise.measure import WHOLE, dtype_of, measured, rows_together
from quantcore.layerwise.plan import (
    AS_STORED,
    ERRORS,
    LOCAL,
    Plan,
    TradeOff,
    check_error,
    check_size,
    error_of,
    groups_of,
    minimum_of,
    plan,
    trade_off,
)
from quantcore.layerwise.printed import by_layer, not_measured
from quantcore.layerwise.roles import Traits, group_of, kind_of, traits
from quantcore.layerwise.run import USUAL, SensitivityStep, outline, schemes_of, sensitivity
from quantcore.layerwise.sample import estimated
from quantcore.layerwise.table import Effect, Table, WeightError, WeightRow, by_harm

__all__ = [
    "Allocation", "AS_STORED", "bit_budget", "budget_curve", "by_harm", "by_layer", "check_error",
    "check_size", "collect", "Collected", "connect", "dtype_of", "Effect", "ERRORS", "error_of",
    "estimated", "group_of", "groups_of", "Imatrix", "kind_of", "LayerInputs", "LOCAL", "measured",
    "minimum_of", "not_measured", "outline", "Plan", "plan", "rows_together", "schemes_of", "SCORES",
    "sensitivity", "SensitivityStep", "Table", "trade_off", "TradeOff", "Traits", "traits", "USUAL",
    "WeightError", "WeightRow", "WHOLE",
]  # fmt: skip
