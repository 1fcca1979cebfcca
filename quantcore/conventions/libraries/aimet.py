"""Records of AIMET. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import BLOCK, BOXES, CHANNEL, DIVIDES_AXIS, FLOAT32_EPS, GROUP, Convention

_AIMET_SOURCES = (
    ("symmetric_scale", "aimet_torch/quantization/encoding_analyzer.py:446-463"),
    ("widen_to_eps", "aimet_torch/quantization/encoding_analyzer.py:436-444"),
    ("finite_range", "aimet_torch/quantization/encoding_analyzer.py:466"),
    ("eps", "aimet_torch/quantization/affine/quantizer.py:341, common/quantsim.py:519"),
    ("zero_point_form", "aimet_torch/quantization/affine/quantizer.py:372, offset = -zero_point"),
)
_AIMET: dict[str, Any] = {
    "library": "aimet-torch",
    "version": "2.42.0",
    "symmetric_scale": "aligned_grid",
    "range_overflow": "infinite",
    "finite_range": True,
    "widen_to_eps": True,
    "eps": FLOAT32_EPS,
    "eps_replacement": FLOAT32_EPS,
    "nan": "undefined",
    "limits": (BOXES, DIVIDES_AXIS),
    "reported_encodings": ("offset", "min", "max"),
}
_KERNEL_SOURCE = ("kernel", "aimet_torch/quantization/affine/backends/torch_builtins.py:609; measured")

PLACE = 3  # among the libraries, wherever they are listed
RECORDS = (
    Convention.of(
        "aimet.Quantize",
        call="aimet_torch.quantization.affine.Quantize",
        kernel="A",
        sources=(_KERNEL_SOURCE, *_AIMET_SOURCES),
        **_AIMET,
    ),
    Convention.of(
        "aimet.QuantizeDequantize",
        call="aimet_torch.quantization.affine.QuantizeDequantize under torch.no_grad()",
        kernel="B",
        variants=(
            (CHANNEL, "cast", "int64"),
            (GROUP, "kernel", "A"),
            (BLOCK, "kernel", "A"),
            (GROUP, "nan", "undefined"),
            (BLOCK, "nan", "undefined"),
        ),
        sources=(
            ("kernel", "aimet_torch/quantization/affine/backends/torch_builtins.py:234-252, 610; measured"),
            *_AIMET_SOURCES,
        ),
        **_AIMET | {"nan": "qmin"},
    ),
    Convention.of(
        "aimet.QuantizeDequantize.grad",
        call="aimet_torch.quantization.affine.QuantizeDequantize with a gradient for its range",
        kernel="A",
        sources=(_KERNEL_SOURCE, *_AIMET_SOURCES),
        **_AIMET,
    ),
    Convention.of(
        "aimet.2024.Quantize",
        call="aimet_torch.v2.quantization.affine.Quantize of spring 2024",
        kernel="A",
        unsigned_symmetric_zero_point="zero",
        sources=(("unsigned_symmetric_zero_point", "a printed table of its four modes"), *_AIMET_SOURCES),
        **_AIMET | {"version": "2024"},
    ),
)
