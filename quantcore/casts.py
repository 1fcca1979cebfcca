"""What libraries make of values that have no integer: NaN, and numbers too large for their cast."""

import math

import torch
from torch import Tensor

from quantcore.codebook_format import CodebookFormat
from quantcore.conventions import Convention
from quantcore.float_format import FloatFormat
from quantcore.formats import Format
from quantcore.kernels import KERNELS
from quantcore.qparams import QParams
from quantcore.range_setting import MinMax
from quantcore.scheme import Scheme

# Where casts of the rounded value to an integer of that width end
_CAST_ENDS = {"none": math.inf, "int32": 2.0**31, "int64": 2.0**63, "low_bits": 2.0**31}


def may_leave_integers(x: Tensor, params: QParams, scheme: Scheme, convention: Convention) -> bool:
    """Whether some unclamped value may be NaN, or too large for the convention's cast."""
    low, high = params.low, params.high
    if low is None or high is None or not isinstance(scheme.range_setting, MinMax):
        low, high = x.amin(), x.amax()
    largest = torch.maximum(low.abs(), high.abs())
    found = params.raw if convention.coded_with == "raw" and params.raw is not None else params.scale
    scale = torch.as_tensor(found, dtype=torch.float32).abs()
    shift = torch.as_tensor(params.zero_point).abs()
    inverse = torch.reciprocal(scale) if params.inverse is None else params.inverse.abs()
    reach = largest * inverse if KERNELS[convention.kernel].inverse else largest / scale
    # half of the end: the product above may be rounded, and z is added
    return not bool((reach + shift < _CAST_ENDS[convention.cast] / 2).all())


def settle(work: Tensor, shift: Tensor | None, fmt: Format, convention: Convention) -> None:
    """Replace, in place, what the library's cast to an integer would not keep."""
    if convention.cast == "none":
        code = {"qmin": fmt.qmin, "qmax": fmt.qmax}.get(convention.nan, 0)
        work.masked_fill_(work.isnan(), code)
        return
    lost = ~(work.abs() < _CAST_ENDS[convention.cast])
    work.masked_fill_(lost, 0 if convention.cast == "low_bits" else fmt.qmin)
    if convention.cast == "int32" and shift is not None:  # the lowest integer and a negative z wrap around
        work.masked_fill_(lost & (shift < 0), fmt.qmax)


def replace_codes(
    codes: Tensor, odd: Tensor | None, fmt: FloatFormat | CodebookFormat, convention: Convention
) -> None:
    """Put the convention's codes in the place of those of 0 and of NaN; ``odd``: the values, None without NaN."""
    if convention.zero_value:
        codes.masked_fill_(fmt.decode(codes) == 0, int(fmt.encode(convention.zero_value)))
    if odd is not None:
        signed = fmt.encode(torch.tensor(convention.nan_value).copysign(odd))
        codes.copy_(torch.where(odd.isnan(), signed, codes))


_NAN_CODES = {"qmin": "qmin, the lowest code", "qmax": "qmax, the highest code", "zero": "the code 0"}


def nan_note(nans: int, convention: Convention) -> str:
    """Say what the library does with the elements that have no integer."""
    what = f"{nans:,} element{'s' * (nans > 1)} come{'s' * (nans == 1)} to NaN, which {convention.library} "
    if convention.nan == "undefined":
        return what + f"{convention.version} keeps as NaN: it has no code, and 0 stands here."
    return what + f"{convention.version} turns into {_NAN_CODES[convention.nan]}."
