"""Records of onnxruntime, onnx, compressed-tensors, brevitas, quanto and hqq. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import FLOAT32_EPS, FLOAT32_TINY, Convention, Limit

_TENSOR, _CHANNEL, _GROUP = "per_tensor", "per_channel", "per_group"

_ONNX: dict[str, Any] = {
    "symmetric_scale": "whole_range",
    "range_overflow": "infinite",
    "narrow_scale_bits": (8, 16),
    "scale_precision": "float64",
    "smallest_scale": FLOAT32_TINY,
    "bad_scale": "nan",
    "zero_point_order": "round_difference",
    "zero_point_precision": "float64",
    "zero_point_scale": "raw",
    "replaced_zero_point": "zero",
    "nan_zero_point": "zero",
    "nan": "qmin",
    # compute_scale_zp_blocked works on float32 ranges and on the scale as it is stored
    "variants": (
        (_GROUP, "scale_precision", "float32"),
        (_GROUP, "zero_point_scale", "final"),
        (_GROUP, "replaced_zero_point", "zero_if_asymmetric"),
        (_GROUP, "bad_scale", "kept"),
    ),
    "limits": (
        Limit("bits", (4, 8, 16), "has integers of 4, 8 and 16 bits"),
        Limit("narrow", (False,), "clamps to the whole range of the integer type"),
        Limit("granularity", (_TENSOR, _CHANNEL, _GROUP), "has per-tensor, per-channel and per-group scales"),
        Limit("group_bits", (4, 8), "has groups for 4 and 8 bits"),
        Limit("group_rank", (2,), "finds the scales of groups for two axes only"),
    ),
}
_TOOL_SOURCES = (
    ("symmetric_scale", "onnxruntime/quantization/quant_utils.py:279-304; blocked :453-478"),
    ("narrow_scale_bits", "onnxruntime/quantization/quant_utils.py:160, 739"),
    ("scale_precision", "onnxruntime/quantization/quant_utils.py:283-285"),
    ("smallest_scale", "onnxruntime/quantization/quant_utils.py:287; blocked :471"),
    ("zero_point_order", "onnxruntime/quantization/quant_utils.py:301; blocked :480"),
)

_HQQ: dict[str, Any] = {
    "library": "hqq",
    "version": "0.2.8.post1",
    "kernel": "D",
    "nan": "undefined",
    "zero_in_range": "no",
    "asymmetric_scale": "inverse_range",
    "smallest_scale": 0.0,
    "replacement": 0.0,
    "sources": (
        ("kernel", "hqq/core/quantize.py:150, W * scale + zero with the inverse scale; measured"),
        ("asymmetric_scale", "hqq/core/quantize.py:127-130"),
        ("zero_point", "hqq/core/quantize.py:131-135"),
    ),
    "limits": (
        Limit("kind", ("unsigned asymmetric",), "has unsigned asymmetric codes only"),
        Limit("bits", (2, 3, 4, 5, 6, 8), "has 2, 3, 4, 5, 6 and 8 bits"),
        Limit("narrow", (False,), "uses every code"),
        Limit("granularity", (_TENSOR, _CHANNEL, _GROUP, "per_flat_group"), "has no blocks of two axes"),
        Limit("channel_rank", (2,), "has one scale a row for two axes only"),
        Limit("channel_axis", (0,), "with axis=1 gives each row its scale: channels lie along axis 0"),
        Limit("group_axis", (-1,), "with axis=1 groups consecutive elements: groups lie along the last axis"),
        Limit("divides", (True,), "cuts the elements into groups of one size: it must divide the last axis"),
    ),
}

OTHER_LIBRARIES: tuple[Convention, ...] = (
    Convention(
        "onnxruntime",
        library="onnxruntime",
        version="1.31.1",
        call="quant_utils.compute_scale_zp (groups: compute_scale_zp_blocked) -> QuantizeLinear, CPU",
        sources=(("kernel", "QuantizeLinear of the CPU provider; measured"), *_TOOL_SOURCES),
        **_ONNX,
    ),
    Convention(
        "onnx",
        library="onnx",
        version="1.23.2",
        call="onnxruntime's scale and zero_point -> QuantizeLinear of onnx.reference",
        cast="int32",
        sources=(("kernel", "onnx/reference/ops/op_quantize_linear.py:83-97; measured"), *_TOOL_SOURCES),
        **_ONNX,
    ),
    Convention(
        "compressed_tensors",
        library="compressed-tensors",
        version="0.20.0",
        call="calculate_qparams -> quantize",
        kernel="C",
        nan="zero",
        symmetric_scale="half_range",
        range_overflow="infinite",
        replacement=FLOAT32_EPS,
        zero_point_order="round_difference",
        zero_point_scale="raw",
        nan_zero_point="zero",
        limits=(
            Limit("kind", ("signed symmetric", "signed asymmetric"), "has signed codes only"),
            Limit("narrow", (False,), "uses every code"),
            Limit(
                "granularity", (_TENSOR, _CHANNEL, _GROUP, "per_block"), "has no groups over the ends of rows"
            ),
            Limit("channel_axis", (0,), "gives each row its scale: channels lie along axis 0"),
            Limit("group_axis", (-1,), "groups along the last axis only"),
            Limit("group_divides", (True,), "takes only groups that divide the last axis"),
            Limit("block_rank", (2,), "has blocks for two axes only"),
        ),
        sources=(
            ("kernel", "compressed_tensors/quantization/lifecycle/forward_helpers.py:536-538; measured"),
            ("symmetric_scale", "compressed_tensors/quantization/utils/helpers.py:88"),
            ("replacement", "compressed_tensors/quantization/utils/helpers.py:114-127"),
            ("zero_point_order", "compressed_tensors/quantization/utils/helpers.py:99-101"),
        ),
    ),
    Convention(
        "brevitas",
        library="brevitas",
        version="0.13.4",
        call="QuantLinear(weight_quant=Int8Weight... or ShiftedUint8Weight...).quant_weight().int()",
        kernel="C",
        nan="undefined",
        zero_in_range="low",
        range_overflow="infinite",
        smallest_range=1e-10,
        smallest_scale=0.0,
        bad_scale="nonfinite",
        zero_point_order="round_difference",
        limits=(
            Limit(
                "kind",
                ("signed symmetric", "unsigned asymmetric"),
                "has weights that are signed symmetric (Int8Weight) or unsigned asymmetric (ShiftedUint8Weight)",
            ),
            Limit("symmetric_narrow", (True,), "uses the narrow range for symmetric weights, such as int8n"),
            Limit("asymmetric_narrow", (False,), "uses every code for asymmetric weights"),
            Limit("granularity", (_TENSOR, _CHANNEL), "has per-tensor and per-channel weights here"),
            Limit("channel_axis", (0,), "has output channels along axis 0"),
        ),
        sources=(
            ("kernel", "brevitas/core/quant/int_base.py:65-72; measured"),
            ("symmetric_scale", "brevitas/core/scaling/int_scaling.py:30-40"),
            ("zero_in_range", "brevitas/core/stats/stats_op.py:244-246"),
            ("smallest_range", "scaling_min_val of the default weight quantizers; measured"),
            ("zero_point_order", "brevitas/core/zero_point.py:60-65"),
            ("bad_scale", "IntQuantTensor raises 'QuantTensor not valid'; measured"),
        ),
    ),
    Convention(
        "quanto",
        library="optimum-quanto",
        version="0.2.7",
        call="AbsmaxOptimizer -> quanto::quantize_symmetric",
        nan="zero",
        smallest_scale=0.0,
        limits=(
            Limit("kind", ("signed symmetric",), "has signed symmetric codes here"),
            Limit("bits", (2, 4, 8), "has 2, 4 and 8 bits (qint2, qint4, qint8)"),
            Limit("narrow", (False,), "clamps to the whole range"),
            Limit(
                "sub_byte_range", (True,), "clamps to 8 bits also where the type has fewer: choose min_max"
            ),
            Limit("granularity", (_TENSOR, _CHANNEL), "has per-tensor and per-channel scales"),
            Limit("channel_axis", (0, -1), "has channels along the first or the last axis"),
            Limit("channel_rank", tuple(range(2, 65)), "has no channels in a tensor of one axis"),
        ),
        sources=(
            ("kernel", "optimum/quanto/library/quantize.py:40-60; measured"),
            ("symmetric_scale", "optimum/quanto/tensor/optimizers/absmax_optimizer.py:30-38"),
        ),
    ),
    Convention(
        "hqq",
        call="Quantizer.quantize(x, axis=1, optimize=False, round_zero=False)",
        zero_point="float",
        **_HQQ,
    ),
    Convention(
        "hqq.round_zero",
        call="Quantizer.quantize(x, axis=1, optimize=False, round_zero=True)",
        zero_point="float_rounded",
        **_HQQ,
    ),
)
