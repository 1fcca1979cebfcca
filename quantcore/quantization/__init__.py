"""Quantize a tensor by a scheme: codes and dequantized values."""

from quantcore.quantization.fit import fit_scheme
from quantcore.quantization.library_encodings import encoding
from quantcore.quantization.overflow import may_leave_integers
from quantcore.quantization.quantize import (
    Quantized,
    apply,
    apply_quietly,
    codes_of,
    dequantize,
    quantize,
)
from quantcore.quantization.walk import coded_with, convention_of, unclamped

__all__ = [
    "Quantized",
    "apply",
    "apply_quietly",
    "coded_with",
    "codes_of",
    "convention_of",
    "dequantize",
    "encoding",
    "fit_scheme",
    "may_leave_integers",
    "quantize",
    "unclamped",
]
