"""Records of bitsandbytes. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import (
    EACH_ROW,
    EIGHT_BITS,
    FLAT,
    FLOATS,
    SIGNED_SYMMETRIC,
    Convention,
    Limit,
    own_dtype,
)

_BITSANDBYTES: dict[str, Any] = {
    **{name: value for name, value in FLOATS.items() if name != "formats"},
    "library": "bitsandbytes",
    "version": "0.50.2",
}
_BITSANDBYTES_OPS = "bitsandbytes/backends/default/ops.py"
_CPU_OPS = "csrc/cpu_ops.cpp"
PLACE = 10  # among the libraries, wherever they are listed
RECORDS = (
    Convention.of(
        "bitsandbytes.4bit",
        call="quantize_4bit -> dequantize_4bit",
        formats=("codebook",),
        kernel="B",
        min_divisor=1e-38,
        short_block="divided",
        sources=(
            ("kernel", f"{_BITSANDBYTES_OPS}:230-239"),
            ("min_divisor", f"{_BITSANDBYTES_OPS}:236, 238"),
            ("short_block", f"{_BITSANDBYTES_OPS}:237-240"),
        ),
        limits=(FLAT,),
        variants=own_dtype("value_dtype"),
        refused_dtypes=(
            ("float64", "Blockwise 4bit quantization only supports 16/32-bit floats, but got torch.float64"),
        ),
        **_BITSANDBYTES,
    ),
    Convention.of(
        "bitsandbytes.blockwise",
        call="quantize_blockwise -> dequantize_blockwise",
        formats=("codebook",),
        kernel="B",
        # the library leaves NaN out of the maximum, on x86 alone; nobody is shown a range that ignores a NaN
        bad_scale="nan",
        sources=(
            ("bad_scale", f"refused here; {_CPU_OPS}:605 skips NaN"),
            ("kernel", f"{_CPU_OPS}:568-571, 618, 661"),
            ("decoding", "bitsandbytes/backends/cpu/ops.py:119"),
        ),
        limits=(FLAT,),
        variants=own_dtype("value_dtype"),
        refused_dtypes=(
            ("float64", "Blockwise quantization only supports 16/32-bit floats, but got torch.float64"),
        ),
        **_BITSANDBYTES,
    ),
    Convention.of(
        "bitsandbytes.int8_vectorwise",
        call="int8_vectorwise_quant -> int8_vectorwise_dequant",
        kernel="B",
        inverse="of_range",
        decoding="of_largest",
        sources=(
            ("inverse", f"{_BITSANDBYTES_OPS}:151"),
            ("decoding", "bitsandbytes/_ops.py, int8_vectorwise_dequant"),
        ),
        limits=(
            SIGNED_SYMMETRIC,
            EIGHT_BITS,
            *EACH_ROW,
            Limit("channel_rank", (2,), "supports two axes only"),
        ),
        **{**_BITSANDBYTES, "nan": "zero", "cast": "low_bits"},
    ),
)
