"""From a range to scale and zero point, and from them to codes and back."""

from quantcore.qparams.choose import QParams, choose_qparams
from quantcore.qparams.coding import Kept, decode, ends, factor, fit, kept_at, kept_of, store, unscale, wrap
from quantcore.qparams.scale import Parameters, parameters
from quantcore.qparams.squared_error import BlockErrors

__all__ = [
    "BlockErrors",
    "Kept",
    "Parameters",
    "QParams",
    "choose_qparams",
    "decode",
    "ends",
    "factor",
    "fit",
    "kept_at",
    "kept_of",
    "parameters",
    "store",
    "unscale",
    "wrap",
]
