"""What libraries make of values that have no integer: NaN, and numbers too large for their cast."""

import math

import torch
from torch import Tensor

from quantcore.conventions import Convention
from quantcore.formats import CodebookFormat, FloatFormat, Format
from quantcore.numerics import KERNELS
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
    found = (
        params.raw if convention.storage.quantize_with == "raw" and params.raw is not None else params.scale
    )
    scale, shift = torch.as_tensor(found, dtype=torch.float32), torch.as_tensor(params.zero_point)
    # half of the end: the quotient may be rounded, and z is added
    end = _CAST_ENDS[convention.nonfinite.cast] / 2
    invert = KERNELS[convention.coding.kernel].inverse
    inverse = params.inverse if invert else None
    # the farthest element with the smallest scale of all: mostly enough, and without memory for every block
    extremes = _most(low, high), scale.abs().amin(), None if inverse is None else _most(inverse), _most(shift)
    if bool(_reach(*extremes, invert) < end):
        return False
    every = torch.maximum(low.abs(), high.abs()), scale.abs(), None if inverse is None else inverse.abs()
    return not bool((_reach(*every, shift.abs(), invert) < end).all())


def _most(*parameters: Tensor) -> Tensor:
    return torch.stack([end.abs() for p in parameters for end in (p.amin(), p.amax())]).amax()


def _reach(largest: Tensor, scale: Tensor, inverse: Tensor | None, shift: Tensor, invert: bool) -> Tensor:
    """How far from 0 values come before they are clamped."""
    if not invert:
        return largest / scale + shift
    return largest * (torch.reciprocal(scale) if inverse is None else inverse) + shift


def resolve_nonfinite(work: Tensor, shift: Tensor | None, fmt: Format, convention: Convention) -> None:
    """Replace, in place, what the library's cast to an integer would not keep."""
    if convention.nonfinite.cast == "none":
        code = {"qmin": fmt.qmin, "qmax": fmt.qmax}.get(convention.nonfinite.nan, 0)
        work.masked_fill_(work.isnan(), code)
        return
    lost = ~(work.abs() < _CAST_ENDS[convention.nonfinite.cast])
    work.masked_fill_(lost, 0 if convention.nonfinite.cast == "low_bits" else fmt.qmin)
    if (
        convention.nonfinite.cast == "int32" and shift is not None
    ):  # the lowest integer and a negative z wrap around
        work.masked_fill_(lost & (shift < 0), fmt.qmax)


def replace_codes(
    codes: Tensor, odd: Tensor | None, fmt: FloatFormat | CodebookFormat, convention: Convention
) -> None:
    """Put the convention's codes in the place of those of 0 and of NaN; ``odd``: the values, None without NaN."""
    if convention.coding.zero_replacement:
        instead = int(fmt.encode(convention.coding.zero_replacement))
        for zero in (fmt.table == 0).nonzero():
            codes.masked_fill_(codes == zero.item(), instead)
    if odd is not None:
        signed = fmt.encode(torch.tensor(convention.nonfinite.nan_replacement).copysign(odd))
        codes.copy_(torch.where(odd.isnan(), signed, codes))


_NAN_CODES = {"qmin": "qmin, the lowest code", "qmax": "qmax, the highest code", "zero": "the code 0"}


def nan_note(nans: int, convention: Convention) -> str:
    """Say what the library does with the elements that have no integer."""
    what = f"{nans:,} element{'s' * (nans > 1)} come{'s' * (nans == 1)} to NaN, which {convention.library} "
    if convention.nonfinite.nan == "undefined":
        return what + f"{convention.version} keeps as NaN: it has no code, and 0 stands here."
    return what + f"{convention.version} turns into {_NAN_CODES[convention.nonfinite.nan]}."
