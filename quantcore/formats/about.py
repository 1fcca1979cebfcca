"""What a format is, in a sentence: the layout of its bits, and where it is used."""

from quantcore.formats.codebook import CodebookFormat
from quantcore.formats.floating_point import FLOATS, FloatFormat
from quantcore.formats.integer import Format, IntFormat
from quantcore.wording import count

# Where named formats are used, and their source
USED = {
    "e4m3fn": "FP8 for weights and activations; fn: finite, no infinities (OCP 8-bit Floating Point 1.0)",
    "e5m2": "FP8 with a wide range, for gradients (OCP 8-bit Floating Point 1.0)",
    "e4m3fnuz": "FP8; fn: finite, uz: unsigned zero, whose pattern is NaN (Noune et al. 2022)",
    "e5m2fnuz": "FP8; fn: finite, uz: unsigned zero, whose pattern is NaN (Noune et al. 2022)",
    "e3m4": "FP8 of ml_dtypes",
    "e2m3": "FP6, the elements of MXFP6 (OCP Microscaling Formats 1.0)",
    "e3m2": "FP6, the elements of MXFP6 (OCP Microscaling Formats 1.0)",
    "e2m1": "FP4, the elements of MXFP4 and NVFP4 (OCP Microscaling Formats 1.0)",
    "e8m0": "powers of two, the scales of MX formats (OCP Microscaling Formats 1.0)",
    "fp16": "half precision (IEEE 754-2019)",
    "bf16": "the upper half of a float32",
    "nf4": "4-bit NormalFloat: more values where a normal distribution has more (QLoRA, arXiv 2305.14314)",
    "nf4_torchao": "4-bit NormalFloat (QLoRA), rounded to four decimals as in torchao",
    "fp4_bitsandbytes": "a sign and eight magnitudes, as in bitsandbytes",
    "dynamic8": "8 bits of bitsandbytes' optimizers, denser towards 0: seven decades (arXiv 2110.02861)",
    "iq4_nl": "the non-linear 4 bits of GGUF's IQ4_NL",
    "mxfp4_gguf": "MXFP4 in GGUF: twice the values of e2m1",
    "ternary": "-1, 0 and 1",
    "binary": "-1 and 1",
}


def about(fmt: Format) -> str:
    """Return the layout of a format and where it is used.

    >>> about(FLOATS["fp16"])
    'a sign bit, 5 exponent bits, 10 mantissa bits, bias 15: half precision (IEEE 754-2019)'
    >>> about(IntFormat(4))
    "4 bits in two's complement: the integers from -8 to 7"
    """
    if isinstance(fmt, IntFormat):
        form = "in two's complement" if fmt.signed else "without a sign"
        return f"{fmt.bits} bits {form}: the integers from {fmt.qmin} to {fmt.qmax}"
    used = USED.get(_name(fmt), "")
    return f"{_layout(fmt)}: {used}" if used else _layout(fmt)


def _name(fmt: Format) -> str:
    if isinstance(fmt, CodebookFormat):
        return fmt.name
    return next((name for name, known in FLOATS.items() if known == fmt), "")


def _layout(fmt: Format) -> str:
    if isinstance(fmt, FloatFormat):
        sign = "a sign bit" if fmt.sign_bit else "no sign bit"
        exponent, mantissa = count(fmt.exponent, "exponent bit"), count(fmt.mantissa, "mantissa bit")
        return f"{sign}, {exponent}, {mantissa}, bias {fmt.bias}"
    assert isinstance(fmt, CodebookFormat)
    return f"{count(fmt.bits, 'bit')} that index {count(len(fmt.values), 'number')} of a table"
