"""From a range to scale and zero point, and from them to codes and back."""

from quantcore.qparams.choose import choose_qparams, find_qparams
from quantcore.qparams.coding import Kept, decode, ends, factor, fit, kept_at, kept_of, store, unscale, wrap
from quantcore.qparams.record import QParams
from quantcore.qparams.scale import parameters
from quantcore.qparams.squared_error import BlockErrors

__all__ = [
    "BlockErrors",
    "Kept",
    "QParams",
    "choose_qparams",
    "decode",
    "ends",
    "factor",
    "find_qparams",
    "fit",
    "kept_at",
    "kept_of",
    "parameters",
    "store",
    "unscale",
    "wrap",
]
