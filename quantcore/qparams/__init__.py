"""Scale and zero point from a range; codes from values, and values from codes."""

from quantcore.qparams.choose import check_stored, choose_qparams, find_qparams, ranges
from quantcore.qparams.coding import Dequantizer, decode, dequantizer_of, fit, store, unscale, wrap
from quantcore.qparams.scale import QParams, parameters
from quantcore.qparams.searched import Groups, GroupSearch, search_of
from quantcore.qparams.squared_error import BlockErrors
