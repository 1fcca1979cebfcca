"""The scheme that a quantizer was meant to implement: what it does without its mistakes."""

import math

import torch
from torch import Tensor

from quantcore.conventions import TEXTBOOK
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import PER_TENSOR, Granularity, PerBlock, PerChannel, PerGroup
from quantcore.pasted.case import Case
from quantcore.pasted.forms import closest
from quantcore.pasted.quantizer import Chain
from quantcore.range_setting import MIN_MAX, Given, Percentile, RangeSetting
from quantcore.scheme import Scheme

_NONE = "so there is no scheme to compare it with."
_USUAL = {
    (f.qmin, f.qmax): f
    for bits in range(2, 17)
    for f in (IntFormat(bits, True), IntFormat(bits, False), IntFormat(bits, True, True))
}


def intended_scheme(case: Case, chain: Chain, shape: tuple[int, ...]) -> Scheme:
    """Return the scheme for a tensor of ``shape``, of which ``chain`` quantizes all elements.

    Raises:
        QuantError: the scale is none of those that schemes have, or the shapes differ.
    """
    form = case.form
    if form.kind in ("unknown", "handed"):
        raise QuantError(f"The code does not show what its scale is computed from, {_NONE}")
    if chain.x.numel() != math.prod(shape):
        raise QuantError(f"The code quantizes a part of the tensor, {_NONE}")
    zero = case.zero
    around_zero = zero == 0 and not case.chain.zeros and (case.cast_limits is None or case.cast_limits[0] < 0)
    symmetric = not form.is_span or around_zero
    fmt = _format(case, symmetric)
    if not fmt.signed and (form.is_span or case.one_sided):
        symmetric = False
    kernel = TEXTBOOK.changed(kernel=case.kernel)
    if form.kind == "given":
        if chain.factor.numel() != 1 or zero is None:
            raise QuantError(f"The code has several scales or a zero point that no scheme gives, {_NONE}")
        return Scheme(fmt, zero == 0, PER_TENSOR, Given(float(chain.factor), round(zero)), kernel)
    setting: RangeSetting = MIN_MAX if form.p is None else Percentile(form.p)
    return Scheme(fmt, symmetric, _granularity(form.scale_of(chain).reshape(shape)), setting, kernel)


def _format(case: Case, symmetric: bool) -> IntFormat:
    """The format: from the clamp if its bounds are those of a format, else from the type and the divisor."""
    low, high, clamp, _ = case.clamped
    if clamp is not None and low is not None and high is not None and (low, high) in _USUAL:
        return _USUAL[low, high]  # type: ignore[index]
    limits = case.cast_limits
    bits = (limits[1] - limits[0]).bit_length() if limits else 8
    signed = limits[0] < 0 if limits else symmetric
    divisor = closest(case.form.divisor)
    if case.form.is_single and clamp is None and divisor + 1 in (4, 8, 16, 32, 64, 128):
        bits = min(bits, int(divisor + 1).bit_length())
    return IntFormat(min(bits, 16), signed)


def _granularity(scale: Tensor) -> Granularity:
    """Which elements share a scale, from the scale of each."""
    extents = []
    for axis, length in enumerate(scale.shape):
        apart = torch.ne(scale.movedim(axis, 0).reshape(length, -1).diff(dim=0), 0)
        changes = apart.any(dim=1).nonzero().flatten()
        extents.append(math.gcd(*(int(c) + 1 for c in changes)) if len(changes) else length)
    full = [e == n for e, n in zip(extents, scale.shape, strict=True)]
    if all(full):
        return PER_TENSOR
    if sum(full) == len(full) - 1 and extents[full.index(False)] == 1:
        return PerChannel(full.index(False))
    if all(e == 1 for e in extents[:-1]):
        return PerGroup(extents[-1])
    return PerBlock(tuple(-1 if whole else e for e, whole in zip(extents, full, strict=True)))
