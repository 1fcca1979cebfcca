"""Records of compressed-tensors. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import (
    CHANNEL,
    FLOAT32_EPS,
    FLOATS,
    GROUP,
    HALF,
    IN_OWN_DTYPE,
    ROW_GROUPS,
    TENSOR,
    Convention,
    Limit,
    own_dtype,
)

_COMPRESSED: dict[str, Any] = {**FLOATS, "kernel": "C", "library": "compressed-tensors", "version": "0.20.0"}
# everything in the dtype of x, eps included; float64 has smaller numbers above 0
_IN_OWN_DTYPE = (
    *own_dtype(*IN_OWN_DTYPE, dtypes=(*HALF, "float64")),
    ("bfloat16", "eps_replacement", 2.0**-7),
    ("float16", "eps_replacement", 2.0**-10),
    ("float64", "eps_replacement", 2.0**-52),
    ("float64", "eps", 2.0**-1074),
)
_HELPERS = "compressed_tensors/quantization/utils/helpers.py"


def _compressed_mx(name: str, rule: str) -> Convention:
    return Convention.of(
        f"compressed_tensors.{name}",
        call="generate_mx_scales -> quantize",
        limits=ROW_GROUPS,
        symmetric_scale=rule,
        sources=(
            ("symmetric_scale", "compressed_tensors/quantization/utils/mxfp_utils.py:81-148"),
            ("kernel", "compressed_tensors/quantization/lifecycle/forward_helpers.py:536"),
        ),
        **_COMPRESSED,
    )


PLACE = 5  # among the libraries, wherever they are listed
RECORDS = (
    Convention.of(
        "compressed_tensors",
        library="compressed-tensors",
        version="0.20.0",
        call="calculate_qparams -> quantize",
        kernel="C",
        nan="zero",
        symmetric_scale="amax_over_half_range",
        range_overflow="infinite",
        eps_replacement=FLOAT32_EPS,
        zero_point_order="round_difference",
        zero_point_scale="raw",
        nan_zero_point="zero",
        variants=_IN_OWN_DTYPE,
        limits=(
            Limit("kind", ("signed symmetric", "signed asymmetric"), "supports signed codes only"),
            Limit("narrow", (False,), "uses every code"),
            Limit(
                "granularity",
                (TENSOR, CHANNEL, GROUP, "per_block"),
                "does not support groups that cross row boundaries",
            ),
            Limit("channel_axis", (0,), "uses one scale per row, with channels along axis 0"),
            Limit("group_axis", (-1,), "groups along the last axis only"),
            Limit("group_divides", (True,), "requires groups that divide the last axis"),
            Limit("block_rank", (2,), "supports blocks only for tensors with two axes"),
        ),
        sources=(
            ("kernel", "compressed_tensors/quantization/lifecycle/forward_helpers.py:536-538; measured"),
            ("symmetric_scale", "compressed_tensors/quantization/utils/helpers.py:88"),
            ("eps_replacement", "compressed_tensors/quantization/utils/helpers.py:114-127"),
            ("zero_point_order", "compressed_tensors/quantization/utils/helpers.py:99-101"),
        ),
    ),
    Convention.of(
        "compressed_tensors.float8",
        call="calculate_qparams -> quantize",
        sources=(
            ("symmetric_scale", f"{_HELPERS}:88"),
            ("eps_replacement", f"{_HELPERS}:114-127"),
            ("kernel", "compressed_tensors/quantization/lifecycle/forward_helpers.py:536"),
        ),
        variants=_IN_OWN_DTYPE,
        **{**_COMPRESSED, "eps": 2.0**-149, "eps_replacement": FLOAT32_EPS},
    ),
    _compressed_mx("mx", "power_rounded"),
    # rounds the scale as if the elements were e2m1
    _compressed_mx("mx8", "power_rounded_e2m1"),
    Convention.of(
        "compressed_tensors.nvfp4",
        call="generate_gparam -> calculate_qparams -> quantize",
        symmetric_scale="amax",
        sources=(("kernel", "compressed_tensors/quantization/lifecycle/forward_helpers.py:533-536"),),
        limits=ROW_GROUPS,
        **_COMPRESSED,
    ),
    Convention.of(
        "compressed_tensors.nvfp4.scales",
        call="generate_gparam, calculate_qparams: the scales of blocks",
        inverse="of_range",
        bad_inverse="one",
        divisor=6.0,
        zero_replacement=0.125,
        decoding="divided",
        sources=(
            ("inverse", f"{_HELPERS}:344"),
            ("bad_inverse", f"{_HELPERS}:351"),
            ("divisor", f"{_HELPERS}:88, 344"),
            ("zero_replacement", f"{_HELPERS}:117-128"),
            ("decoding", "compressed_tensors/quantization/lifecycle/forward_helpers.py:558"),
        ),
        **{**_COMPRESSED, "kernel": "B"},
    ),
)
