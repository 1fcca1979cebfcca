"""From a number to the code of a float or a codebook, as a library encodes it."""

from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import Convention
from quantcore.expressions import Operation
from quantcore.formats import CodebookFormat, FloatFormat
from quantcore.numerics import Rounding

TableFormat = FloatFormat | CodebookFormat


def encode(
    values: Tensor, codes: Tensor, fmt: TableFormat, c: Convention, round_: Rounding, nans: bool
) -> None:
    """Write the codes of values, float32, which are overwritten; ``nans``: whether some may be NaN."""
    signs = values.clone() if nans and c.nonfinite.nan_replacement else None
    fmt.encode_(values, codes, round_)
    if c.coding.zero_replacement:
        instead = int(fmt.encode(c.coding.zero_replacement))
        for zero in (fmt.table == 0).nonzero():
            codes.masked_fill_(codes == zero.item(), instead)
    if signs is not None:
        signed = fmt.encode(torch.tensor(c.nonfinite.nan_replacement).copysign(signs))
        codes.copy_(torch.where(signs.isnan(), signed, codes))


def rounded_to(fmt: TableFormat, c: Convention, round_: Rounding) -> Operation:
    """Return rounding to the value of a code."""

    def tensors(values: Tensor, out: Tensor | None = None) -> Tensor:
        codes = torch.empty(values.shape, dtype=fmt.dtype, device=values.device)
        encode(values.to(torch.float32, copy=True).contiguous(), codes, fmt, c, round_, nans=True)
        return fmt.decode_(codes, torch.empty(codes.shape, device=codes.device))

    def numbers(value: Any) -> Any:
        return tensors(torch.tensor([float(value)])).numpy()[0]

    name = f"{str(fmt).partition('(')[0]}({{0}})"
    return Operation(name, name, name, tensors, numbers)
