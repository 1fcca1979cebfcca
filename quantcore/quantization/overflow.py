"""Codes that are not computed: of values not representable as integers, NaN and numbers too large for a cast, and those of a search."""

import math

import torch
from torch import Tensor

from quantcore.conventions import KERNELS, Convention, Kernel
from quantcore.expressions import run
from quantcore.formats import CodebookFormat, FloatFormat, Format
from quantcore.granularity import Blocks, cells_of
from quantcore.qparams import QParams
from quantcore.range_setting import MinMax
from quantcore.scheme import Scheme

# Limits of the integer types that the rounded value is cast to
_CAST_LIMITS = {"none": math.inf, "int32": 2.0**31, "int64": 2.0**63, "low_bits": 2.0**31}


def may_leave_integers(x: Tensor, params: QParams, scheme: Scheme, convention: Convention) -> bool:
    """Return whether some unclamped value may be NaN or too large for the convention's cast."""
    low, high = params.low, params.high
    # with a finite range, its ends do not show an infinity in x
    whole = isinstance(scheme.range_setting, MinMax) and not convention.range.finite_range
    if low is None or high is None or not whole:
        low, high = x.amin(), x.amax()
    found = (
        params.raw if convention.storage.quantize_with == "raw" and params.raw is not None else params.scale
    )
    scale, shift = torch.as_tensor(found, dtype=torch.float32), torch.as_tensor(params.zero_point)
    # half of the limit, because the quotient may be rounded and z is added
    limit = _CAST_LIMITS[convention.nonfinite.cast] / 2
    kernel = KERNELS[convention.coding.kernel]
    inverse = params.inverse if kernel.inverse else None
    # the largest magnitude with the smallest scale: usually decisive, and needs no memory for every block
    extremes = _most(low, high), scale.abs().amin(), None if inverse is None else _most(inverse), _most(shift)
    if bool(_reach(*extremes, kernel) < limit):
        return False
    every = torch.maximum(low.abs(), high.abs()), scale.abs(), None if inverse is None else inverse.abs()
    return not bool((_reach(*every, shift.abs(), kernel) < limit).all())


def _most(*parameters: Tensor) -> Tensor:
    return torch.stack([bound.abs() for p in parameters for bound in (p.amin(), p.amax())]).amax()


def _reach(largest: Tensor, scale: Tensor, inverse: Tensor | None, shift: Tensor, kernel: Kernel) -> Tensor:
    """Return the largest magnitude of unclamped values."""
    s = kernel.factor(scale, inverse)
    reach: Tensor = run(kernel.quotient, {"x": largest, "s": s, "1/s": s}) + shift
    return reach


def resolve_nonfinite(work: Tensor, shift: Tensor | None, fmt: Format, convention: Convention) -> None:
    """Replace, in place, values that the library's cast to an integer would change."""
    if convention.nonfinite.cast == "none":
        code = {"qmin": fmt.qmin, "qmax": fmt.qmax}.get(convention.nonfinite.nan, 0)
        work.masked_fill_(work.isnan(), code)
        return
    lost = ~(work.abs() < _CAST_LIMITS[convention.nonfinite.cast])
    work.masked_fill_(lost, 0 if convention.nonfinite.cast == "low_bits" else fmt.qmin)
    if (
        convention.nonfinite.cast == "int32" and shift is not None
    ):  # the lowest integer and a negative z wrap around
        work.masked_fill_(lost & (shift < 0), fmt.qmax)


def replace_codes(
    codes: Tensor, nonfinite: Tensor | None, fmt: FloatFormat | CodebookFormat, convention: Convention
) -> None:
    """Replace the codes of 0 and NaN with the convention's; ``nonfinite``: the values, None without NaN."""
    if convention.coding.zero_replacement:
        instead = int(fmt.encode(convention.coding.zero_replacement))
        for zero in (fmt.table == 0).nonzero():
            codes.masked_fill_(codes == zero.item(), instead)
    if nonfinite is not None:
        signed = fmt.encode(torch.tensor(convention.nonfinite.nan_replacement).copysign(nonfinite))
        codes.copy_(torch.where(nonfinite.isnan(), signed, codes))


_NAN_CODES = {"qmin": "qmin, the lowest code", "qmax": "qmax, the highest code", "zero": "the code 0"}


def nan_note(nans: int, convention: Convention) -> str:
    """Return a sentence on how the library handles the elements that are NaN."""
    what = f"{nans:,} element{'s' * (nans > 1)} become{'s' * (nans == 1)} NaN, which {convention.library} "
    if convention.nonfinite.nan == "undefined":
        return what + f"{convention.version} keeps as NaN. NaN has no code; 0 is used here."
    return what + f"{convention.version} turns into {_NAN_CODES[convention.nonfinite.nan]}."


def lowest_codes(params: QParams, lowest: int, of_scales: QParams, blocks: Blocks) -> None:
    """Give the groups of super-blocks that count as 0 (`MaxScale.least`) the lowest codes, in place, as ggml does.

    ``of_scales``, ``blocks``: the parameters and blocks of the scales.
    """
    if params.searched is None:
        return
    assert of_scales.raw is not None
    unscaled = cells_of((of_scales.raw == 0).to(torch.uint8), blocks.shape, blocks.block)
    if bool(unscaled.any()):
        groups = params.searched.view(*unscaled.shape, -1)
        groups.masked_fill_(unscaled.bool().unsqueeze(-1), lowest)


def keep_searched(codes: Tensor, params: QParams, blocks: Blocks) -> None:
    """Where a scale is stored as 0, insert the codes of the search, in place."""
    assert params.searched is not None
    zero = params.scale.reshape(-1) == 0
    if bool(zero.any()):
        size = blocks.block[-1]
        codes.view(-1, size)[zero] = params.searched.view(-1, size)[zero]
