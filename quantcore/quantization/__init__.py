"""Quantize a tensor by a scheme: codes and dequantized values."""

from quantcore.quantization.codes import (
    approximations,
    codes_of,
    codes_with,
    dequantize,
    dequantize_with,
    may_leave_integers,
    quantize,
)
from quantcore.quantization.fit import fit_scheme
from quantcore.quantization.quantized import (
    Quantized,
    apply,
    apply_quietly,
    check_result,
    encoding,
    parameters_of,
)
from quantcore.quantization.walk import coded_with, convention_of, unclamped
