"""Records of torchao. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import (
    BOXES,
    CHANNEL,
    DIVIDES_AXIS,
    EIGHT_BITS,
    FLAT,
    FLOAT32_EPS,
    FLOAT32_TINY,
    FLOATS,
    GROUP,
    IN_OWN_DTYPE,
    ROW_GROUPS,
    SIGNED_SYMMETRIC,
    TENSOR,
    Convention,
    Limit,
    own_dtype,
)

_MORE_THAN_ONE = Limit(
    "block_elements",
    ("more",),
    "uses one scale for the whole tensor if blocks have one element; choose per_tensor",
)
_SYMMETRIC_ONLY = Limit("kind", ("signed symmetric", "unsigned symmetric"), "supports symmetric codes only")
_TORCHAO: dict[str, Any] = {
    "library": "torchao",
    "version": "0.18.0",
    "kernel": "B",
    "nan": "zero",
    "symmetric_scale": "amax_over_half_range",
    "range_overflow": "infinite",
    "eps": FLOAT32_TINY,
    "eps_replacement": FLOAT32_TINY,
    # float16's smallest normal number
    "variants": (
        *own_dtype(*IN_OWN_DTYPE),
        ("float16", "eps", 2.0**-14),
        ("float16", "eps_replacement", 2.0**-14),
    ),
    "refused_dtypes": (("float64", "Unsupported input dtype: torch.float64"),),
    "limits": (BOXES, DIVIDES_AXIS, _MORE_THAN_ONE),
    "sources": (
        ("kernel", "torchao/quantization/quant_primitives.py:491; measured"),
        ("symmetric_scale", "torchao/quantization/quant_primitives.py:1554-1576"),
        ("eps", "torchao/quantization/quant_primitives.py:1532, finfo.smallest_normal"),
        ("zero_point_form", "torchao/quantization/quant_primitives.py:1584"),
        ("nan", "cast of NaN to an integer on x86-64; measured"),
    ),
}
_MX = "torchao/prototype/mx_formats/mx_tensor.py"
_NVFP4 = "torchao/prototype/mx_formats/nvfp4_tensor.py"
_NF4 = "torchao/quantization/quantize_/workflows/nf4/nf4_tensor.py"
_TAKES_RUNS = Limit("divides", (True,), "requires blocks that divide the tensor")
_FLOATS: dict[str, Any] = {**FLOATS, "library": "torchao", "version": "0.18.0"}


def _mx(mode: str, rule: str, **choices: Any) -> Convention:
    return Convention.of(
        f"torchao.mx.{mode}",
        call=f"MXTensor.to_mx(x, elem_dtype, 32, ScaleCalculationMode.{mode})",
        symmetric_scale=rule,
        sources=(
            ("symmetric_scale", f"{_MX}:214"),
            ("kernel", f"{_MX}:362"),
            ("e8m0_min_as", f"{_MX}:348-359"),
        ),
        limits=ROW_GROUPS,
        variants=own_dtype("decoding_dtype", "value_dtype", dtypes=("bfloat16",)),
        refused_dtypes=(("float16", "torch.float16 is not supported yet"),),
        **{**_FLOATS, "e8m0_min_as": 2.0**-126, **choices},
    )


PLACE = 2  # among the libraries, wherever they are listed
RECORDS = (
    Convention.of(
        "torchao",
        call="choose_qparams_affine(x, MappingType.SYMMETRIC or ASYMMETRIC, ...) -> quantize_affine",
        **_TORCHAO,
    ),
    Convention.of(
        "torchao.no_clipping_err",
        call="choose_qparams_affine(x, MappingType.SYMMETRIC_NO_CLIPPING_ERR, ...) -> quantize_affine",
        **_TORCHAO
        | {
            "symmetric_scale": "max_of_sides",
            "limits": (_SYMMETRIC_ONLY, BOXES, DIVIDES_AXIS, _MORE_THAN_ONE),
        },
    ),
    # with eps=1e-6, as torchao's utilities call it; Int4TilePackedTo4dTensor leaves eps at the smallest
    # normal number, which matters where max - min is below 15e-6
    Convention.of(
        "torchao.tinygemm",
        call="_choose_qparams_affine_tinygemm(x, ASYMMETRIC, block_size, torch.uint8, 0, 15, eps=1e-6) "
        "-> _quantize_affine_tinygemm -> _dequantize_affine_tinygemm",
        preset_only=True,
        kernel="H",
        nan="zero",
        zero_in_range="no",
        zero_point_form="middle",
        range_overflow="infinite",
        eps=1e-6,
        eps_replacement=1e-6,
        variants=own_dtype(*IN_OWN_DTYPE),
        library="torchao",
        version="0.18.0",
        refused_dtypes=(("float64", "Unsupported input dtype: torch.float64"),),
        limits=(
            Limit("kind", ("unsigned asymmetric",), "supports unsigned asymmetric codes only"),
            Limit("bits", (4,), "supports 4 bits only"),
            Limit("narrow", (False,), "uses every code"),
            BOXES,
            DIVIDES_AXIS,
            _MORE_THAN_ONE,
        ),
        sources=(
            ("kernel", "torchao/quantization/quant_primitives.py:636-638"),
            ("zero_in_range", "torchao/quantization/quant_primitives.py:1322-1327"),
            ("eps", "torchao/quantization/quant_primitives.py:1330; eps=1e-6 as in utils.py"),
            ("zero_point_form", "torchao/quantization/quant_primitives.py:1333-1335"),
            ("nan", "cast of NaN to an integer on x86-64; measured"),
        ),
    ),
    Convention.of(
        "torchao.float8",
        call="_choose_scale_float8 -> _quantize_affine_float8",
        sources=(
            ("symmetric_scale", "torchao/quantization/quant_primitives.py:2262-2270"),
            ("kernel", "torchao/quantization/quant_primitives.py:2354"),
        ),
        variants=own_dtype("scale_precision", "value_dtype"),
        **_FLOATS,
    ),
    _mx("FLOOR", "power_floor"),
    _mx("EVEN", "power_even"),
    _mx("CEIL", "power_ceil"),
    # multiplies by 2^-e, and by 1 for the smallest e8m0
    _mx("RCEIL", "power_log2_ceil", kernel="B", e8m0_min_as=1.0),
    Convention.of(
        "torchao.nvfp4",
        call="NVFP4Tensor.to_nvfp4(x, 16, per_tensor_scale)",
        kernel="B",
        symmetric_scale="amax",
        inverse="of_levels",
        nan_replacement=1.5,
        sources=(
            ("kernel", f"{_NVFP4}:822, 845"),
            ("inverse", f"{_NVFP4}:844"),
            ("nan_replacement", "measured: the bits of a quiet NaN, shifted"),
        ),
        limits=ROW_GROUPS,
        variants=own_dtype("value_dtype", dtypes=("bfloat16",)),
        refused_dtypes=(("float16", "torch.float16 not supported"),),
        **_FLOATS,
    ),
    Convention.of(
        "torchao.nvfp4.scales",
        call="nvfp4_quantize: the scales of blocks",
        divisor=6.0,
        clamp_min=2.0**-6,
        sources=(("divisor", f"{_NVFP4}:769, 811"), ("clamp_min", f"{_NVFP4}:816, 838")),
        **_FLOATS,
    ),
    Convention.of(
        "torchao.nf4",
        call="to_nf4(x, 64, 256)",
        symmetric_scale="amax",
        quantize_with="raw",
        zero_scale="kept",
        sources=(("kernel", f"{_NF4}:863"), ("quantize_with", f"{_NF4}:861"), ("zero_scale", f"{_NF4}:863")),
        limits=(
            FLAT,
            _TAKES_RUNS,
            Limit("rank", (0, 1, 2), "supports tensors with at most two axes"),
        ),
        **{**_FLOATS, "formats": ("codebook",)},
    ),
    Convention.of(
        "torchao.nf4.scales",
        call="double_quantize_scalers -> dequantize_scalers",
        kernel="B",
        symmetric_scale="amax_over_half_codes",
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
            Limit("divides_or_whole", (True,), "requires blocks that divide the tensor, or a single block"),
        ),
        **{**_FLOATS, "formats": ("int",), "nan": "zero"},
    ),
    Convention.of(
        "torchao.int8",
        call="quantize_(linear, Int8WeightOnlyConfig()); "
        "Int8DynamicActivationInt8WeightConfig() has these weights",
        preset_only=True,
        library="torchao",
        version="0.18.0",
        kernel="B",
        nan="zero",
        symmetric_scale="amax_over_half_range",
        range_overflow="infinite",
        eps=FLOAT32_EPS,
        eps_replacement=FLOAT32_EPS,
        variants=own_dtype("scale_precision", "value_dtype"),
        limits=(
            SIGNED_SYMMETRIC,
            EIGHT_BITS,
            Limit(
                "granularity",
                (TENSOR, CHANNEL, GROUP),
                "uses one scale per row, per group within a row, or one in all",
            ),
            Limit("channel_axis", (0,), "uses one scale per row, with channels along axis 0"),
            Limit("group_axis", (-1,), "groups along the last axis only"),
            Limit("group_divides", (True,), "requires groups that divide the last axis"),
            Limit("rank", (2,), "quantizes the weights of linear layers, which have two axes"),
        ),
        sources=(("eps", "torchao's Int8Tensor.from_hp, eps of float32; measured"),),
    ),
)
