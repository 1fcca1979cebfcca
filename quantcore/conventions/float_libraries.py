"""Records of the calls that the presets stand for; `quantcore.presets` puts them together with formats."""

from typing import Any

from quantcore.conventions.record import FLOAT32_EPS, Convention, Limit

_FLOATS: dict[str, Any] = {
    "formats": ("float",),
    "nan": "undefined",
    "smallest_scale": 0.0,
    "replacement": 0.0,
}
_GROUPS = (
    Limit("granularity", ("per_group",), "shares a scale among groups of one row"),
    Limit("group_axis", (-1,), "groups along the last axis only"),
    Limit("group_divides", (True,), "takes only groups that divide the last axis"),
)
_TORCHAO: dict[str, Any] = {**_FLOATS, "library": "torchao", "version": "0.18.0"}
_MX = "torchao/prototype/mx_formats/mx_tensor.py"
_NVFP4 = "torchao/prototype/mx_formats/nvfp4_tensor.py"
_NF4 = "torchao/quantization/quantize_/workflows/nf4/nf4_tensor.py"
_DIVIDES = Limit("divides", (True,), "takes only blocks that divide the tensor")
_COMPRESSED: dict[str, Any] = {**_FLOATS, "kernel": "C", "library": "compressed-tensors", "version": "0.20.0"}
_HELPERS = "compressed_tensors/quantization/utils/helpers.py"
_BITSANDBYTES: dict[str, Any] = {
    **{name: value for name, value in _FLOATS.items() if name != "formats"},
    "library": "bitsandbytes",
    "version": "0.50.2",
}
_BITSANDBYTES_OPS = "bitsandbytes/backends/default/ops.py"
_MICROXCALING: dict[str, Any] = {
    **_FLOATS,
    "formats": ("int", "float"),
    "library": "microxcaling",
    "version": "7bc4195",
    "symmetric_scale": "power_log2_floor",
}


def _mx(mode: str, rule: str, **choices: Any) -> Convention:
    return Convention(
        f"torchao.mx.{mode}",
        call=f"MXTensor.to_mx(x, elem_dtype, 32, ScaleCalculationMode.{mode})",
        symmetric_scale=rule,  # type: ignore[arg-type]
        sources=(
            ("symmetric_scale", f"{_MX}:214"),
            ("kernel", f"{_MX}:362"),
            ("coded_least", f"{_MX}:348-359"),
        ),
        limits=_GROUPS,
        **{**_TORCHAO, "coded_least": 2.0**-126, **choices},
    )


# A scale as it is kept: the nearest number of its format, NaN too
STORED = Convention(
    "stored",
    library="quantcore",
    call="the scales of a scheme",
    sources=(("kernel", "IEEE 754-2019, 4.3.1"),),
    **_FLOATS,
)


def _compressed_mx(name: str, rule: str) -> Convention:
    return Convention(
        f"compressed_tensors.{name}",
        call="generate_mx_scales -> quantize",
        limits=_GROUPS,
        symmetric_scale=rule,  # type: ignore[arg-type]
        sources=(
            ("symmetric_scale", "compressed_tensors/quantization/utils/mxfp_utils.py:81-148"),
            ("kernel", "compressed_tensors/quantization/lifecycle/forward_helpers.py:536"),
        ),
        **_COMPRESSED,
    )


def _microxcaling(name: str, rounding: str, words: str) -> Convention:
    return Convention(
        name,
        call=f"_quantize_mx(x, 8, elem_format, axes=[-1], block_size=32, round='{words}')",
        rounding=rounding,
        sources=(
            ("symmetric_scale", "mx/mx_ops.py:79-97, 262-268"),
            ("kernel", "mx/mx_ops.py:270"),
            ("rounding", "mx/elemwise_ops.py:66-74"),
        ),
        **_MICROXCALING,
    )


def _gguf(name: str, lines: str, **choices: Any) -> Convention:
    return Convention(
        name,
        call=f"quants.quantize(x, {name.partition('.')[2]})",
        range_overflow="infinite",
        cast="low_bits",
        coded_with="raw",
        sources=(("all", f"gguf/quants.py:{lines}"),),
        limits=_GROUPS,
        **{**_FLOATS, "formats": ("int",), "nan": "zero", "library": "gguf", "version": "0.19.0", **choices},
    )


FLOAT_LIBRARIES: tuple[Convention, ...] = (
    STORED,
    Convention(
        "torchao.float8",
        call="_choose_scale_float8 -> _quantize_affine_float8",
        sources=(
            ("symmetric_scale", "torchao/quantization/quant_primitives.py:2262-2270"),
            ("kernel", "torchao/quantization/quant_primitives.py:2354"),
        ),
        **_TORCHAO,
    ),
    _mx("FLOOR", "power_floor"),
    _mx("EVEN", "power_even"),
    _mx("CEIL", "power_ceil"),
    # multiplies by 2^-e, and by 1 where e8m0 holds its least
    _mx("RCEIL", "power_log2_ceil", kernel="B", coded_least=1.0),
    Convention(
        "compressed_tensors.float8",
        call="calculate_qparams -> quantize",
        sources=(
            ("symmetric_scale", f"{_HELPERS}:88"),
            ("replacement", f"{_HELPERS}:114-127"),
            ("kernel", "compressed_tensors/quantization/lifecycle/forward_helpers.py:536"),
        ),
        **{**_COMPRESSED, "smallest_scale": 2.0**-149, "replacement": FLOAT32_EPS},
    ),
    _compressed_mx("mx", "power_rounded"),
    # rounds the scale as if the elements were e2m1
    _compressed_mx("mx8", "power_rounded_e2m1"),
    Convention(
        "torchao.nvfp4",
        call="NVFP4Tensor.to_nvfp4(x, 16, per_tensor_scale)",
        kernel="B",
        symmetric_scale="largest",
        inverse="of_levels",
        nan_value=1.5,
        sources=(
            ("kernel", f"{_NVFP4}:822, 845"),
            ("inverse", f"{_NVFP4}:844"),
            ("nan_value", "measured: the bits of a quiet NaN, shifted"),
        ),
        limits=_GROUPS,
        **_TORCHAO,
    ),
    Convention(
        "torchao.nvfp4.scales",
        call="nvfp4_quantize: the scales of blocks",
        divisor=6.0,
        least_value=2.0**-6,
        sources=(("divisor", f"{_NVFP4}:769, 811"), ("least_value", f"{_NVFP4}:816, 838")),
        **_TORCHAO,
    ),
    Convention(
        "torchao.nf4",
        call="to_nf4(x, 64, 256)",
        symmetric_scale="largest",
        coded_with="raw",
        zero_scale="kept",
        sources=(("kernel", f"{_NF4}:863"), ("coded_with", f"{_NF4}:861"), ("zero_scale", f"{_NF4}:863")),
        limits=(
            Limit("granularity", ("per_flat_group",), "shares a scale among runs of the flattened tensor"),
            _DIVIDES,
            Limit("rank", (0, 1, 2), "takes at most two axes"),
        ),
        **{**_TORCHAO, "formats": ("codebook",)},
    ),
    Convention(
        "torchao.nf4.scales",
        call="double_quantize_scalers -> dequantize_scalers",
        kernel="B",
        symmetric_scale="half_codes",
        inverse="of_range",
        center="mean",
        decoding="divided",
        sources=(
            ("center", f"{_NF4}:769-770"),
            ("inverse", f"{_NF4}:784"),
            ("decoding", f"{_NF4}:823-825"),
            ("nan", "measured"),
        ),
        limits=(
            Limit("divides_or_whole", (True,), "takes only blocks that divide the tensor, or one for it all"),
        ),
        **{**_TORCHAO, "formats": ("int",), "nan": "zero"},
    ),
    Convention(
        "compressed_tensors.nvfp4",
        call="generate_gparam -> calculate_qparams -> quantize",
        symmetric_scale="largest",
        sources=(("kernel", "compressed_tensors/quantization/lifecycle/forward_helpers.py:533-536"),),
        limits=_GROUPS,
        **_COMPRESSED,
    ),
    Convention(
        "compressed_tensors.nvfp4.scales",
        call="generate_gparam, calculate_qparams: the scales of blocks",
        inverse="of_range",
        bad_inverse="one",
        divisor=6.0,
        zero_value=0.125,
        decoding="divided",
        sources=(
            ("inverse", f"{_HELPERS}:344"),
            ("bad_inverse", f"{_HELPERS}:351"),
            ("divisor", f"{_HELPERS}:88, 344"),
            ("zero_value", f"{_HELPERS}:117-128"),
            ("decoding", "compressed_tensors/quantization/lifecycle/forward_helpers.py:558"),
        ),
        **{**_COMPRESSED, "kernel": "B"},
    ),
    Convention(
        "bitsandbytes.4bit",
        call="quantize_4bit -> dequantize_4bit",
        formats=("codebook",),
        kernel="B",
        coded_smallest=1e-38,
        short_block="divided",
        sources=(
            ("kernel", f"{_BITSANDBYTES_OPS}:230-239"),
            ("coded_smallest", f"{_BITSANDBYTES_OPS}:236, 238"),
            ("short_block", f"{_BITSANDBYTES_OPS}:237-240"),
        ),
        limits=(
            Limit("granularity", ("per_flat_group",), "shares a scale among runs of the flattened tensor"),
        ),
        **_BITSANDBYTES,
    ),
    Convention(
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
            Limit("kind", ("signed symmetric",), "has signed symmetric codes only"),
            Limit("bits", (8,), "has 8 bits"),
            Limit("granularity", ("per_channel",), "gives each row its scale"),
            Limit("channel_axis", (0,), "gives each row its scale: channels lie along axis 0"),
            Limit("channel_rank", (2,), "takes two axes"),
        ),
        **{**_BITSANDBYTES, "nan": "zero", "cast": "low_bits"},
    ),
    Convention(
        "torchao.int8",
        call="quantize_(linear, Int8WeightOnlyConfig()); Int8DynamicActivationInt8WeightConfig() has these weights",
        library="torchao",
        version="0.18.0",
        kernel="B",
        nan="zero",
        symmetric_scale="half_range",
        range_overflow="infinite",
        smallest_scale=FLOAT32_EPS,
        replacement=FLOAT32_EPS,
        limits=(
            Limit("kind", ("signed symmetric",), "has signed symmetric codes only"),
            Limit("bits", (8,), "has 8 bits"),
            Limit("granularity", ("per_channel",), "gives each row its scale"),
            Limit("channel_axis", (0,), "gives each row its scale: channels lie along axis 0"),
            Limit("channel_rank", (2,), "takes the weights of a linear layer, two axes"),
        ),
        sources=(("smallest_scale", "torchao's Int8Tensor.from_hp, eps of float32; measured"),),
    ),
    _gguf("gguf.Q8_0", "379-393", rounding="half_away", kernel="B"),
    _gguf(
        "gguf.Q4_0",
        "222-238",
        kernel="F",
        rounding="toward_zero",
        symmetric_scale="signed_extreme",
        unsigned_symmetric_zero_point="middle",
    ),
    _gguf(
        "gguf.Q4_1",
        "256-273",
        kernel="G",
        rounding="toward_zero",
        zero_in_range="no",
        zero_point="shift",
    ),
    _gguf("gguf.MXFP4", "668-688", symmetric_scale="power_log2_wrapped", formats=("codebook",)),
    _gguf("gguf.TQ2_0", "625-640", kernel="B", formats=("codebook",)),
    _gguf("gguf.TQ1_0", "577-599", kernel="B", formats=("codebook",), code_bits=1.625),
    _microxcaling("microxcaling", "half_even_of_sum", "even"),
    _microxcaling("microxcaling.nearest", "half_away_of_sum", "nearest"),
)
