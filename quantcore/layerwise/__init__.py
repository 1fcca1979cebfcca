"""Which weight of a model takes which scheme: the errors of every weight under several schemes, and a budget of bits."""

from quantcore.layerwise.budget import Choice, bit_budget, budget_curve

__all__ = ["Choice", "bit_budget", "budget_curve"]
