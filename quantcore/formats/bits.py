"""The values of stored bits, as operations: small floats by sign, exponent and mantissa, and E8M0 scales."""

from functools import cache, lru_cache

import numpy as np
import torch
from torch import Tensor

from quantcore.expressions import PRODUCT, SUM, Explained, Operation, Term, text_of
from quantcore.formats.floating_point import Fields, FloatFormat


@cache
def small_float(fmt: FloatFormat) -> Operation:
    """Return the value of a small float from its bits."""

    def tensors(bits: Tensor, out: Tensor | None = None) -> Tensor:
        return fmt.decode_(bits, torch.empty(bits.shape) if out is None else out)

    parts = lru_cache(maxsize=256)(fmt.fields)
    return Operation(
        f"{fmt}({{0}})", f"small_float({{0}}, {fmt.exponent}, {fmt.mantissa}, {fmt.bias})",
        f"small_float({{0}}, {fmt.exponent}, {fmt.mantissa}, {fmt.bias})",
        tensors, lambda bits: np.float32(parts(int(bits)).value),
        explain=lambda bits: _explained(fmt, bits, parts(int(bits.value))),
    )  # fmt: skip


def _explained(fmt: FloatFormat, bits: Term, parts: Fields) -> Explained:
    """Its formula, which depends on whether it is normal."""
    if parts.kind in ("nan", "infinity"):
        text = text_of(np.float32(parts.value))
        return Explained(text, text, f"{fmt} {parts.kind}", f"np.float32('{text}')")
    steps, least = 1 << fmt.mantissa, 1 - fmt.bias
    normal, lowest = parts.kind == "normal", f"2^{least}" if least >= 0 else f"2^({least})"
    fraction = f"{parts.mantissa} / {steps}"
    power = f"2^({parts.exponent} - {fmt.bias})" if normal else lowest
    numbers = f"(1 + {fraction}) · {power}" if normal else f"{fraction} · {power}"
    formula = f"(1 + m / {steps}) · 2^(e - {fmt.bias})" if normal else f"m / {steps} · {lowest}"
    if parts.sign:
        numbers, formula = f"-1 · {numbers}", f"-1 · {formula}"
    fields = "" if parts.sign is None else f"sign {parts.sign}, "
    fields += f"exponent e = {parts.exponent:0{fmt.exponent}b}"
    if fmt.mantissa:
        fields += f", mantissa m = {parts.mantissa:0{fmt.mantissa}b}"
    return Explained(formula, numbers, f"{bits.names.text} as {fmt}: {fields}")


@cache
def e8m0(nan: bool) -> Operation:
    """Return 2^(bits - 127), float32.

    Args:
        nan: whether 255 is NaN, as in OCP Microscaling Formats 1.0; some libraries compute 2^128, infinity.
    """

    def tensors(bits: Tensor, out: Tensor | None = None) -> Tensor:
        exponents = bits.to(torch.int32)
        # 2^-127 is a subnormal of float32
        values = torch.where(exponents == 0, 1 << 22, exponents << 23).view(torch.float32)
        return values.masked_fill(exponents == 255, torch.nan) if nan else values

    def number(bits: int) -> np.float32:
        with np.errstate(all="ignore"):
            return np.float32(np.nan) if nan and bits == 255 else np.float32(2.0 ** (int(bits) - 127))

    def explain(bits: Term) -> Explained:
        if nan and bits.value == 255:
            return Explained("nan", "nan", "E8M0 255 is NaN", "np.float32('nan')")
        names, numbers = (text.within(SUM) for text in (bits.names, bits.numbers))
        return Explained(f"2^({names} - 127)", f"2^({numbers} - 127)", "E8M0, a power of two")

    return Operation(
        "2^({0} - 127)", "torch.ldexp(torch.tensor(1.0), {0} - 127)", "np.float32(2.0 ** ({0} - 127))",
        tensors, number, PRODUCT, (SUM,), explain,
    )  # fmt: skip
