"""What a quantizer does to a tensor, compared with what it should do.

The codes are recomputed from the parameters that were read (extremes, divisors, bounds, types). No line of the
snippet is run.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from quantcore.analysis import errors
from quantcore.code_reading.intended import intended_scheme
from quantcore.code_reading.quantizer import Quantizer
from quantcore.code_reading.replay import codes_of, dequantized_values
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.numerics import as_float32
from quantcore.quantization import Quantized, apply_quietly, dequantize
from quantcore.scheme import Scheme


@dataclass(frozen=True, eq=False)
class Shown:
    """A quantizer on a tensor: the result of its code, and the result of the intended scheme.

    ``codes``: float32, as the code stores them, wrapped where they overflow; ``dequantized``: x̂ of the code, or
    (codes - zero point) · scale if it does not dequantize; ``right``: the scheme's result; ``wrong_cells``: codes or values
    that differ by more than rounding, a mask of x's shape; ``stored``: whether the codes are cast to a type.
    """

    codes: Tensor
    dequantized: Tensor
    right: Quantized
    wrong_cells: Tensor
    stored: bool = True

    @cached_property
    def outside(self) -> int:
        """How many codes lie outside the scheme's format because no cast wrapped them around."""
        fmt = self.right.scheme.format
        if self.stored or not isinstance(fmt, IntFormat):
            return 0
        return int(((self.codes < fmt.qmin) | (self.codes > fmt.qmax)).sum())

    @cached_property
    def too_far(self) -> Tensor:
        """Mask of the values further from x than half a step of the scheme and than the scheme's x̂."""
        result = self.right
        step = dequantize(torch.ones_like(result.codes), result.params.scale, 0, result.scheme)
        # x / s, x̂ and the error are each rounded once to float32
        half = step.abs() / 2 + result.x.abs() * 2.0**-22
        error = (result.x - self.dequantized).abs()
        return (error > half) & (error > result.error.abs() + result.x.abs() * 2.0**-22)

    @property
    def scheme(self) -> Scheme:
        """The intended scheme."""
        return self.right.scheme

    @cached_property
    def sqnr_db(self) -> tuple[float, float]:
        """SQNR in dB of the code and of the intended scheme."""
        x = self.right.x
        return errors(x, self.dequantized).sqnr_db, errors(x, self.right.dequantized).sqnr_db


def show(quantizer: Quantizer, x: object) -> Shown:
    """Return what a quantizer does to x and what it should do.

    Raises:
        QuantError: a value is unknown, the code would fail on x, or x does not fit the scheme.
    """
    x = as_float32(x)
    if not x.numel() or not bool(x.isfinite().all()):
        raise QuantError(
            "The tensor contains NaN or infinity, or is empty; choose one whose values are all finite."
        )
    right = apply_quietly(x, intended_scheme(quantizer, tuple(x.shape)))
    codes = codes_of(quantizer.stored, x, quantizer)
    x_hat = dequantized_values(quantizer, codes, x)
    if not bool(codes.isfinite().all()):
        raise QuantError(
            "On this tensor the code divides by a scale of 0; choose a tensor with different values."
        )
    # the code may round differently when dequantizing, by a few ulp
    moved = (x_hat - right.dequantized).abs() > 1e-5 * (x.abs() + right.x.abs().amax())
    return Shown(codes, x_hat, right, codes.ne(right.codes.float()) | moved, quantizer.cast is not None)
