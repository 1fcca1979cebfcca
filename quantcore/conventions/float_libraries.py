"""Records of the calls that quantize to small floats; `quantcore.presets` puts them together with formats."""

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
_COMPRESSED: dict[str, Any] = {**_FLOATS, "kernel": "C", "library": "compressed-tensors", "version": "0.20.0"}
_HELPERS = "compressed_tensors/quantization/utils/helpers.py"
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
    _microxcaling("microxcaling", "half_even_of_sum", "even"),
    _microxcaling("microxcaling.nearest", "half_away_of_sum", "nearest"),
)
