"""Codes of a tensor under given parameters, and their values: region by region, into preallocated outputs.

A region has about 2 MB, and all its blocks have the same shape: new temporaries of the whole tensor would
cost many times as much as the arithmetic. Some codes are not computed: those of values not representable as
integers, of NaN and numbers too large for a cast, and those of a search.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.conventions import KERNELS, Convention, Kernel
from quantcore.errors import QuantError
from quantcore.expressions import run
from quantcore.formats import FloatFormat, IntFormat
from quantcore.granularity import Blocks, Region, cells_of, split_axes, spread
from quantcore.numerics import CHUNK, like, refuse_nonfinite, rounding
from quantcore.programs import CAST_LIMITS, cast_program, encode
from quantcore.qparams import Dequantizer, QParams, decode, dequantizer_of, fit, store, unscale
from quantcore.quantization.walk import boxes, prepare
from quantcore.range_setting import Given
from quantcore.scheme import Scheme, as_scheme, check_supported, full_name, received
from quantcore.wording import passed

_NAN_CODES = {"qmin": "qmin, the lowest code", "qmax": "qmax, the highest code", "zero": "the code 0"}


def quantize(
    x: Any, scale: Any, zero_point: Any = None, scheme: Scheme | str | None = None, out: Tensor | None = None
) -> Tensor:
    """Return the codes of x under given parameters (numbers, or tensors in block form).

    Args:
        out: a tensor of x's shape and the format's dtype to write into.

    >>> import quantcore as qc
    >>> qc.quantize([0.5, -1.0, 2.0, 9.0], scale=0.25, zero_point=0, scheme=qc.Scheme(qc.INT4))
    tensor([ 2, -4,  7,  7], dtype=torch.int8)

    Raises:
        QuantError: the scheme is missing, shapes do not match, the scheme's library does not support it, or x
            contains NaN or infinity and the convention refuses them.
    """
    if scheme is None or isinstance(scale, Scheme | str):
        raise QuantError(
            "quantize needs a scale, a zero point and a scheme; call qc.apply(x, scheme), which computes "
            "scale and zero point itself."
        )
    x, scheme, _ = received(x, scheme)
    check_supported(scheme, tuple(x.shape))
    if scheme.convention.refuses_nonfinite:
        refuse_nonfinite(x, f"the {scheme.convention.name} convention")
    if scheme.rules.storage.quantize_with == "searched":
        raise QuantError(
            f"{full_name(scheme.convention)} uses the codes chosen by its search, which can't be computed "
            "from given parameters; use apply."
        )
    blocks = Blocks.of(scheme.granularity, tuple(x.shape))
    codes, _ = codes_with(x, QParams(scale, zero_point), scheme, blocks, out)
    return codes


def codes_with(
    x: Tensor, params: QParams, scheme: Scheme, blocks: Blocks, out: Tensor | None
) -> tuple[Tensor, str]:
    """Return the codes, and a sentence if some elements become NaN, else an empty string."""
    fmt, rules = scheme.format, scheme.rules
    codes = _output(out, blocks, fmt.dtype, x.device)
    if params.searched is not None and rules.storage.quantize_with == "searched":
        return codes.copy_(params.searched), ""
    careful = not rules.refuses_nonfinite and may_leave_integers(x, params, scheme, rules)
    round_ = rounding(rules.coding.rounding)
    nans, blocked = 0, blocks.view(codes)
    for region, work, shift in boxes(x, params, scheme, blocks):
        if careful:
            nans += int(work.isnan().sum())
            name = "v" if fmt.has_zero_point else "u"
            numbers = {name: work, "z": 0.0 if shift is None else shift}
            cast_program(fmt, rules).write(name, numbers, work)
        target = split_axes(blocked[region.elements], region.block)
        if isinstance(fmt, IntFormat):
            store(fit(work, scheme), target, fmt)
        else:
            # as torch casts float64 to a small float
            encode(work.to(torch.float32), target, fmt, rules, round_, nans=careful)
    if params.searched is not None and rules.storage.zero_scale == "searched":
        keep_searched(codes, params, blocks)
    return codes, nan_note(nans, rules) if nans and fmt.has_zero_point else ""


def approximations(
    x: Tensor, params: QParams, scheme: Scheme, blocks: Blocks
) -> Iterator[tuple[Region, Tensor, int]]:
    """Yield each region with the values that its codes dequantize to, and the number of clipped elements.

    The values are in the axes of `split_axes`, in memory that the next region overwrites. Not for codes that
    a search finds, nor for values that `may_leave_integers`.
    """
    fmt, rules = scheme.format, scheme.rules
    scale, zero_point, shifted = prepare(params.scale, params.zero_point, blocks, x.device)
    dequantizer, round_ = dequantizer_of(params, fmt, rules), rounding(rules.coding.rounding)
    least, most = fmt.bounds
    for region, work, _ in boxes(x, params, scheme, blocks):
        before = work.cpu().numpy()
        clipped = 0
        if not (before.min() >= least and before.max() <= most):  # NaN too
            clipped = int(np.count_nonzero(before < least) + np.count_nonzero(before > most))
        s, z = spread(scale[region.grid]), spread(zero_point[region.grid]) if shifted else None
        own = dequantizer.at_region(region)
        if isinstance(fmt, IntFormat):
            values = fit(work, scheme)
        else:  # torch casts float64 to a small float by way of float32
            values = work if work.dtype == torch.float32 else like(work, "narrow").copy_(work)
            keeps_zeros = not rules.coding.zero_replacement
            if not (isinstance(fmt, FloatFormat) and keeps_zeros and fmt.round_(values, round_)):
                codes = like(values, "codes", fmt.dtype)
                encode(values, codes, fmt, rules, round_, nans=False)
                fmt.decode_(codes, values)
        yield region, unscale(values, s, z, own, work), clipped


def codes_of(x: Tensor, params: QParams, scheme: Scheme) -> Tensor:
    """Return the codes of x, float32, under parameters found elsewhere, whatever the range setting."""
    blocks = Blocks.of(scheme.granularity, tuple(x.shape))
    return codes_with(x, params, replace(scheme, range_setting=Given(1.0)), blocks, None)[0]


def dequantize(
    codes: Any, scale: Any = None, zero_point: Any = 0, scheme: Scheme | str = "", out: Tensor | None = None
) -> Tensor:
    """Return (codes - zero_point) * scale, float32, or value * scale for floats and codebooks.

    Parameters as in `quantize`. Of the result of `apply`, alone, it is `Quantized.dequantized`.

    >>> import quantcore as qc
    >>> qc.dequantize(torch.tensor([2, -4, 7]), scale=0.25, zero_point=0, scheme=qc.Scheme(qc.INT4))
    tensor([ 0.5000, -1.0000,  1.7500])
    """
    if scale is None and hasattr(codes, "dequantized"):
        return codes.dequantized  # type: ignore[no-any-return]
    if not isinstance(codes, Tensor):
        raise QuantError(f"codes is {passed(codes)}; give a tensor of codes, or the result of apply alone.")
    if scale is None:
        raise QuantError("scale is missing; give scale, zero_point and scheme, or the result of apply alone.")
    scheme = as_scheme(scheme)
    blocks = Blocks.of(scheme.granularity, tuple(codes.shape))
    params = QParams(scale, zero_point)
    dequantizer = dequantizer_of(params, scheme.format, scheme.rules)
    return dequantize_with(codes, params, scheme, blocks, dequantizer, out)


def dequantize_with(
    codes: Tensor,
    params: QParams,
    scheme: Scheme,
    blocks: Blocks,
    dequantizer: Dequantizer,
    out: Tensor | None = None,
) -> Tensor:
    """`dequantize` with everything that the convention stores, float32."""
    scale, zero_point, shifted = prepare(params.scale, params.zero_point, blocks, codes.device)
    wide = scheme.rules.decoding.decoding_dtype == "float64"
    x_hat = _output(out, blocks, torch.float64 if wide else torch.float32, codes.device)
    blocked = (blocks.view(codes), blocks.view(x_hat))
    for region in blocks.regions(CHUNK):
        source, target = (split_axes(t[region.elements], region.block) for t in blocked)
        z = spread(zero_point[region.grid]) if shifted else None
        decode(source, spread(scale[region.grid]), z, target, scheme.format, dequantizer.at_region(region))
    return x_hat


def _output(out: Tensor | None, blocks: Blocks, dtype: torch.dtype, device: torch.device) -> Tensor:
    shape = blocks.shape
    if out is None:
        return torch.empty(shape, dtype=dtype, device=device)
    if out.shape != shape or out.dtype != dtype or out.device != device:
        raise QuantError(
            f"out has shape {tuple(out.shape)} and {out.dtype}; give one of shape {shape} and {dtype}."
        )
    if shape != blocks.blocked_shape and not out.is_contiguous():
        # its flat form would be a copy, and what is written to a copy is lost
        raise QuantError(
            "out is not contiguous, and groups that cross row boundaries are written along the flat tensor; "
            "give a contiguous one."
        )
    return out


def may_leave_integers(x: Tensor, params: QParams, scheme: Scheme, convention: Convention) -> bool:
    """Return whether some unclamped value may be NaN or too large for the convention's cast."""
    low, high = params.low, params.high
    # with a finite range, its ends do not show an infinity in x
    whole = scheme.range_setting.ends_are_elements and not convention.range.finite_range
    if low is None or high is None or not whole:
        low, high = x.amin(), x.amax()
    raw = convention.storage.quantize_with == "raw" and params.raw is not None
    found = params.raw if raw else params.scale
    scale, shift = torch.as_tensor(found, dtype=torch.float32), torch.as_tensor(params.zero_point)
    # half of the limit, because the quotient may be rounded and z is added
    limit = CAST_LIMITS[convention.nonfinite.cast] / 2
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
    numbers = {"x": largest, "s": scale, "1/s": torch.reciprocal(scale) if inverse is None else inverse}
    reach: Tensor = run(kernel.quotient, numbers) + shift
    return reach


def nan_note(nans: int, convention: Convention) -> str:
    """Return a sentence on how the library handles the elements that are NaN."""
    what = f"{nans:,} element{'s' * (nans > 1)} become{'s' * (nans == 1)} NaN, which {convention.library} "
    if convention.nonfinite.nan == "undefined":
        return what + f"{convention.version} keeps as NaN. NaN has no code; 0 is used here."
    return what + f"{convention.version} turns into {_NAN_CODES[convention.nonfinite.nan]}."


def lowest_codes(params: QParams, lowest: int, of_scales: QParams, blocks: Blocks) -> None:
    """Give the groups of super-blocks that count as 0 (`MaxScale.least`) the lowest codes, as ggml does.

    In place. ``of_scales``, ``blocks``: the parameters and blocks of the scales.
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
