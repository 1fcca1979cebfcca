"""Records of hqq. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import CHANNEL, GROUP, TENSOR, Convention, Limit, own_dtype

_HQQ: dict[str, Any] = {
    "library": "hqq",
    "version": "0.2.8.post1",
    "kernel": "D",
    "nan": "undefined",
    "zero_in_range": "no",
    "asymmetric_scale": "inverse_range",
    "eps": 0.0,
    "eps_replacement": 0.0,
    # float32 whatever comes; values are computed with codes of float64
    "variants": own_dtype("decoding_dtype", "value_dtype", dtypes=("float64",)),
    "sources": (
        ("kernel", "hqq/core/quantize.py:150, W * scale + zero with the inverse scale; measured"),
        ("asymmetric_scale", "hqq/core/quantize.py:127-130"),
        ("zero_point_form", "hqq/core/quantize.py:131-135"),
    ),
    "limits": (
        Limit("kind", ("unsigned asymmetric",), "supports unsigned asymmetric codes only"),
        Limit("bits", (2, 3, 4, 5, 6, 8), "supports 2, 3, 4, 5, 6 and 8 bits"),
        Limit("narrow", (False,), "uses every code"),
        Limit(
            "granularity", (TENSOR, CHANNEL, GROUP, "per_flat_group"), "does not support blocks of two axes"
        ),
        Limit("channel_rank", (2,), "supports per-channel scales only for tensors with two axes"),
        Limit("channel_axis", (0,), "with axis=1 uses one scale per row, with channels along axis 0"),
        Limit("group_axis", (-1,), "with axis=1 groups consecutive elements, along the last axis"),
        Limit("divides", (True,), "requires a group size that divides the last axis"),
    ),
}

PLACE = 8  # among the libraries, wherever they are listed
RECORDS = (
    Convention.of(
        "hqq",
        call="Quantizer.quantize(x, axis=1, optimize=False, round_zero=False)",
        zero_point_form="float",
        **_HQQ,
    ),
    Convention.of(
        "hqq.round_zero",
        call="Quantizer.quantize(x, axis=1, optimize=False, round_zero=True)",
        zero_point_form="float_rounded",
        **_HQQ,
    ),
    Convention.of(
        "hqq.linear",
        call="HQQLinear(linear, BaseQuantizeConfig(nbits=4, axis=1), compute_dtype=x.dtype)",
        preset_only=True,
        zero_point_form="float_rounded",
        **_HQQ
        | {
            # scale and zero point are cast when the codes are there
            "variants": (
                *own_dtype("scale_dtype", "zero_point_dtype", "decoding_dtype", "value_dtype"),
                *own_dtype("decoding_dtype", "value_dtype", dtypes=("float64",)),
            ),
            "limits": (
                # with its default, round_zero for 4 bits
                Limit("bits", (4,), "rounds the first zero point only for 4 bits"),
                *(limit for limit in _HQQ["limits"] if limit.of != "bits"),
            ),
            "sources": (*_HQQ["sources"], ("scale_dtype", "hqq/core/quantize.py:210-231, to_inplace")),
        },
    ),
)
