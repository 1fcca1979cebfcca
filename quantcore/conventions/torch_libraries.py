"""Records of torch, torchao and AIMET. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import FLOAT32_EPS, FLOAT32_TINY, Convention, Limit

_BOXES = Limit(
    "granularity",
    ("per_tensor", "per_channel", "per_group", "per_block"),
    "has no groups over the ends of rows",
)
_MORE_THAN_ONE = Limit(
    "block_elements",
    ("more",),
    "gives blocks of one element one scale for the whole tensor: choose per_tensor",
)
_DIVIDES = Limit("divides", (True,), "takes only blocks that divide the axis")
_TENSOR, _CHANNEL, _GROUP, _BLOCK = "per_tensor", "per_channel", "per_group", "per_block"

_OBSERVERS = (
    ("symmetric_scale", "torch/ao/quantization/observer.py:386"),
    ("range_overflow", "torch/ao/quantization/observer.py:407"),
    ("smallest_scale", "torch/ao/quantization/observer.py:388, eps=torch.finfo(torch.float32).eps"),
    ("unsigned_symmetric_zero_point", "torch/ao/quantization/observer.py:389-399"),
    ("nan_zero_point", "torch/ao/quantization/observer.py:409, .to(torch.int) before the subtraction"),
)
_TORCH: dict[str, Any] = {
    "library": "torch",
    "version": "2.13.0",
    "symmetric_scale": "half_range",
    "range_overflow": "infinite",
    "smallest_scale": FLOAT32_EPS,
    "replacement": FLOAT32_EPS,
    "unsigned_symmetric_zero_point": "observer",
    "nan_zero_point": "wrapped",
}
_SYMMETRIC_ONLY = Limit("kind", ("signed symmetric", "unsigned symmetric"), "has symmetric codes only")
_TORCHAO: dict[str, Any] = {
    "library": "torchao",
    "version": "0.18.0",
    "kernel": "B",
    "nan": "zero",
    "symmetric_scale": "half_range",
    "range_overflow": "infinite",
    "smallest_scale": FLOAT32_TINY,
    "replacement": FLOAT32_TINY,
    "limits": (_BOXES, _DIVIDES, _MORE_THAN_ONE),
    "sources": (
        ("kernel", "torchao/quantization/quant_primitives.py:491; measured"),
        ("symmetric_scale", "torchao/quantization/quant_primitives.py:1554-1576"),
        ("smallest_scale", "torchao/quantization/quant_primitives.py:1532, finfo.smallest_normal"),
        ("zero_point", "torchao/quantization/quant_primitives.py:1584"),
        ("nan", "cast of NaN to an integer on x86-64; measured"),
    ),
}
_EIGHT_BITS = (
    Limit("bits", (8,), "has integers of 8 bits only (qint8, quint8); torch.fake_quantize has other widths"),
    Limit("narrow", (False,), "clamps to the whole range of qint8 and quint8"),
)

_AIMET_SOURCES = (
    ("symmetric_scale", "aimet_torch/quantization/encoding_analyzer.py:446-463"),
    ("widen_range", "aimet_torch/quantization/encoding_analyzer.py:436-444"),
    ("finite_range", "aimet_torch/quantization/encoding_analyzer.py:466"),
    ("smallest_scale", "aimet_torch/quantization/affine/quantizer.py:341, common/quantsim.py:519"),
    ("zero_point", "aimet_torch/quantization/affine/quantizer.py:372, offset = -zero_point"),
)
_AIMET: dict[str, Any] = {
    "library": "aimet-torch",
    "version": "2.42.0",
    "symmetric_scale": "regridded",
    "range_overflow": "infinite",
    "finite_range": True,
    "widen_range": True,
    "smallest_scale": FLOAT32_EPS,
    "replacement": FLOAT32_EPS,
    "nan": "undefined",
    "limits": (_BOXES, _DIVIDES),
    "own_numbers": ("offset", "min", "max"),
}
_AIMET_DIVIDES = ("kernel", "aimet_torch/quantization/affine/backends/torch_builtins.py:609; measured")

TORCH_LIBRARIES: tuple[Convention, ...] = (
    Convention(
        "torch.fake_quantize",
        call="MinMaxObserver or PerChannelMinMaxObserver -> fake_quantize_per_tensor/channel_affine",
        kernel="B",
        nan="qmin",
        variants=((_CHANNEL, "cast", "int64"),),
        limits=(
            Limit("granularity", (_TENSOR, _CHANNEL), "has per-tensor and per-channel scales"),
            Limit("bits", (2, 3, 4, 5, 6, 7, 8, 16), "has observers for up to 8 bits and for 16"),
        ),
        sources=(
            ("kernel", "aten/src/ATen/native/quantized/cpu/kernels/QuantizedOpKernels.cpp; measured"),
            ("cast", "measured: beyond 2^63 per channel gives qmin, per tensor qmax"),
            *_OBSERVERS,
        ),
        **_TORCH,
    ),
    Convention(
        "torch.quantize_per_tensor",
        call="MinMaxObserver -> torch.quantize_per_tensor",
        kernel="E",
        nan="qmax",
        limits=(Limit("granularity", (_TENSOR,), "has one scale for the tensor"), *_EIGHT_BITS),
        sources=(("kernel", "FBGEMM, fused multiply-add; measured on x86-64, sizes 1 to 64"), *_OBSERVERS),
        **_TORCH,
    ),
    Convention(
        "torch.quantize_per_channel",
        call="PerChannelMinMaxObserver -> torch.quantize_per_channel",
        kernel="D",
        nan="zero",
        limits=(Limit("granularity", (_CHANNEL,), "has one scale a channel"), *_EIGHT_BITS),
        sources=(("kernel", "measured, every memory layout"), *_OBSERVERS),
        **_TORCH,
    ),
    Convention(
        "torchao",
        call="choose_qparams_affine(x, MappingType.SYMMETRIC or ASYMMETRIC, ...) -> quantize_affine",
        **_TORCHAO,
    ),
    Convention(
        "torchao.no_clipping_err",
        call="choose_qparams_affine(x, MappingType.SYMMETRIC_NO_CLIPPING_ERR, ...) -> quantize_affine",
        **_TORCHAO
        | {
            "symmetric_scale": "larger_side",
            "limits": (_SYMMETRIC_ONLY, _BOXES, _DIVIDES, _MORE_THAN_ONE),
        },
    ),
    Convention(
        "aimet.Quantize",
        call="aimet_torch.quantization.affine.Quantize",
        kernel="A",
        sources=(_AIMET_DIVIDES, *_AIMET_SOURCES),
        **_AIMET,
    ),
    Convention(
        "aimet.QuantizeDequantize",
        call="aimet_torch.quantization.affine.QuantizeDequantize under torch.no_grad()",
        kernel="B",
        variants=(
            (_CHANNEL, "cast", "int64"),
            (_GROUP, "kernel", "A"),
            (_BLOCK, "kernel", "A"),
            (_GROUP, "nan", "undefined"),
            (_BLOCK, "nan", "undefined"),
        ),
        sources=(
            ("kernel", "aimet_torch/quantization/affine/backends/torch_builtins.py:234-252, 610; measured"),
            *_AIMET_SOURCES,
        ),
        **_AIMET | {"nan": "qmin"},
    ),
    Convention(
        "aimet.QuantizeDequantize.grad",
        call="aimet_torch.quantization.affine.QuantizeDequantize with a gradient for its range",
        kernel="A",
        sources=(_AIMET_DIVIDES, *_AIMET_SOURCES),
        **_AIMET,
    ),
    Convention(
        "aimet.2024.Quantize",
        call="aimet_torch.v2.quantization.affine.Quantize of spring 2024",
        kernel="A",
        unsigned_symmetric_zero_point="zero",
        sources=(("unsigned_symmetric_zero_point", "a printed table of its four modes"), *_AIMET_SOURCES),
        **_AIMET | {"version": "2024"},
    ),
)
