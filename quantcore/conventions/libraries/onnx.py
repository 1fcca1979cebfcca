"""Records of onnxruntime and onnx. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import CHANNEL, FLOAT32_TINY, GROUP, TENSOR, Convention, Limit, own_dtype

_ONNX: dict[str, Any] = {
    "symmetric_scale": "full_range",
    "range_overflow": "infinite",
    "narrow_scale_bits": (8, 16),
    "scale_precision": "float64",
    "eps": FLOAT32_TINY,
    "bad_scale": "nan",
    "zero_point_order": "round_difference",
    "zero_point_precision": "float64",
    "zero_point_scale": "raw",
    "replaced_zero_point": "zero",
    "nan_zero_point": "zero",
    "nan": "qmin",
    # compute_scale_zp_blocked works on float32 ranges and on the scale as it is stored
    "variants": (
        (GROUP, "scale_precision", "float32"),
        (GROUP, "zero_point_scale", "final"),
        (GROUP, "replaced_zero_point", "zero_if_asymmetric"),
        (GROUP, "bad_scale", "kept"),
        *own_dtype("scale_dtype", "value_dtype"),
        *own_dtype("scale_precision", dtypes=("float16",), at=GROUP),
        ("float16", "eps", 2.0**-14),
        # the tool refuses bfloat16: scale and zero point are those of float32, and the scale is rounded last
        (f"{GROUP} bfloat16", "zero_point_scale", "raw"),
    ),
    "limits": (
        Limit("bits", (4, 8, 16), "supports integers of 4, 8 and 16 bits"),
        Limit("narrow", (False,), "clamps to the full range of the integer type"),
        Limit(
            "granularity", (TENSOR, CHANNEL, GROUP), "supports per-tensor, per-channel and per-group scales"
        ),
        Limit("group_bits", (4, 8), "supports groups only for 4 and 8 bits"),
        Limit("group_rank", (2,), "supports groups only for tensors with two axes"),
    ),
}
_TOOL_SOURCES = (
    ("symmetric_scale", "onnxruntime/quantization/quant_utils.py:279-304; blocked :453-478"),
    ("narrow_scale_bits", "onnxruntime/quantization/quant_utils.py:160, 739"),
    ("scale_precision", "onnxruntime/quantization/quant_utils.py:283-285"),
    ("eps", "onnxruntime/quantization/quant_utils.py:287; blocked :471"),
    ("zero_point_order", "onnxruntime/quantization/quant_utils.py:301; blocked :480"),
)

PLACE = 4  # among the libraries, wherever they are listed
RECORDS = (
    Convention.of(
        "onnxruntime",
        library="onnxruntime",
        version="1.31.1",
        call="quant_utils.compute_scale_zp (groups: compute_scale_zp_blocked) -> QuantizeLinear, CPU",
        sources=(("kernel", "QuantizeLinear of the CPU provider; measured"), *_TOOL_SOURCES),
        refused_dtypes=(
            ("bfloat16", "data type <class 'ml_dtypes.bfloat16'> not inexact"),
            (
                "float64",
                "[ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model. Type Error: Type "
                "'tensor(double)' of input parameter (x) of operator (QuantizeLinear) in node () is invalid.",
            ),
        ),
        **_ONNX,
    ),
    Convention.of(
        "onnx",
        library="onnx",
        version="1.23.2",
        call="onnxruntime's scale and zero_point -> QuantizeLinear of onnx.reference",
        cast="int32",
        sources=(("kernel", "onnx/reference/ops/op_quantize_linear.py:83-97; measured"), *_TOOL_SOURCES),
        **_ONNX | {"variants": (*_ONNX["variants"], *own_dtype("coding_dtype"))},
    ),
    Convention.of(
        "onnxruntime.MatMulNBits",
        library="onnxruntime",
        version="1.31.1",
        call="quantize_matmul_4bits (2bits, 8bits), as MatMulNBitsQuantizer calls it on a weight (K, N)",
        preset_only=True,
        kernel="D",
        rounding="half_away",
        nan="undefined",
        symmetric_scale="signed_end",
        range_overflow="infinite",
        eps=0.0,
        eps_replacement=0.0,
        zero_scale="zero_inverse",
        zero_point_order="round_away",
        zero_point_scale="raw",
        nan_zero_point="zero",
        variants=own_dtype("scale_dtype", "value_dtype", dtypes=("float16",)),
        refused_dtypes=(
            ("bfloat16", "incompatible function arguments"),
            ("float64", "incompatible function arguments"),
        ),
        limits=(
            Limit("kind", ("unsigned symmetric", "unsigned asymmetric"), "supports unsigned codes only"),
            Limit("bits", (2, 4, 8), "supports 2, 4 and 8 bits"),
            Limit("narrow", (False,), "uses every code"),
            Limit("granularity", (GROUP,), "uses one scale per group within a column"),
            Limit("rank", (2,), "quantizes weights of MatMul, which have two axes"),
            Limit("group_axis", (0,), "groups along the first axis only"),
            Limit("group_size", (16, 32, 64, 128, 256), "supports groups of 16, 32, 64, 128 and 256"),
        ),
        sources=(
            *(
                (name, "onnxruntime/core/mlas/lib/q4_dq.cpp; measured")
                for name in (
                    "kernel",
                    "rounding",
                    "symmetric_scale",
                    "zero_scale",
                    "zero_point_order",
                    "zero_point_scale",
                )
            ),
        ),
    ),
)
