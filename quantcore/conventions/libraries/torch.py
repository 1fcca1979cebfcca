"""Records of torch's own calls. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import CHANNEL, FLOAT32_EPS, HALF, TENSOR, Convention, Limit, own_dtype

_OBSERVERS = (
    ("symmetric_scale", "torch/ao/quantization/observer.py:386"),
    ("range_overflow", "torch/ao/quantization/observer.py:407"),
    ("eps", "torch/ao/quantization/observer.py:388, eps=torch.finfo(torch.float32).eps"),
    ("unsigned_symmetric_zero_point", "torch/ao/quantization/observer.py:389-399"),
    ("nan_zero_point", "torch/ao/quantization/observer.py:409, .to(torch.int) before the subtraction"),
)
_TORCH: dict[str, Any] = {
    "library": "torch",
    "version": "2.13.0",
    "symmetric_scale": "amax_over_half_range",
    "range_overflow": "infinite",
    "eps": FLOAT32_EPS,
    "eps_replacement": FLOAT32_EPS,
    "unsigned_symmetric_zero_point": "observer",
    "nan_zero_point": "wrapped",
}
_QINT8 = (
    Limit("bits", (8,), "supports 8 bits only (qint8, quint8), unlike torch.fake_quantize"),
    Limit("narrow", (False,), "clamps to the full range of qint8 and quint8"),
)


def _refused(words: str) -> tuple[tuple[str, str], ...]:
    names = {"bfloat16": "BFloat16", "float16": "Half", "float64": "Double"}
    return tuple((dtype, words.format(name)) for dtype, name in names.items())


PLACE = 1  # among the libraries, wherever they are listed
RECORDS = (
    Convention.of(
        "torch.fake_quantize",
        call="MinMaxObserver or PerChannelMinMaxObserver -> fake_quantize_per_tensor/channel_affine",
        kernel="B",
        nan="qmin",
        variants=(
            (CHANNEL, "cast", "int64"),
            *own_dtype("value_dtype", dtypes=(*HALF, "float64")),
            # per tensor, its kernel rounds the product to float32
            *own_dtype("coding_dtype", "decoding_dtype", dtypes=("float64",), at=CHANNEL),
        ),
        limits=(
            Limit("granularity", (TENSOR, CHANNEL), "supports per-tensor and per-channel scales"),
            Limit("bits", (2, 3, 4, 5, 6, 7, 8, 16), "has observers for up to 8 bits and for 16 bits"),
        ),
        sources=(
            ("kernel", "aten/src/ATen/native/quantized/cpu/kernels/QuantizedOpKernels.cpp; measured"),
            ("cast", "measured: beyond 2^63 per channel gives qmin, per tensor qmax"),
            *_OBSERVERS,
        ),
        **_TORCH,
    ),
    Convention.of(
        "torch.quantized_decomposed",
        call="MinMaxObserver or PerChannelMinMaxObserver -> quantized_decomposed.quantize_per_tensor/channel",
        preset_only=True,
        kernel="B",
        nan="zero",
        variants=own_dtype("value_dtype"),
        refused_dtypes=(
            ("float64", "Expecting input to have dtype torch.float32, but got dtype: torch.float64"),
        ),
        limits=(
            Limit("granularity", (TENSOR, CHANNEL), "supports per-tensor and per-channel scales"),
            Limit("bits", (2, 3, 4, 5, 6, 7, 8, 16), "has observers for up to 8 bits and for 16 bits"),
        ),
        sources=(
            ("kernel", "torch/ao/quantization/fx/_decomposed.py:82-85; measured"),
            ("value_dtype", "torch/ao/quantization/fx/_decomposed.py, out_dtype of dequantize_per_tensor"),
            *_OBSERVERS,
        ),
        **_TORCH,
    ),
    Convention.of(
        "torch.quantize_per_tensor",
        call="MinMaxObserver -> torch.quantize_per_tensor",
        kernel="E",
        nan="qmax",
        refused_dtypes=_refused("Quantize only works on Float Tensor, got {}"),
        limits=(Limit("granularity", (TENSOR,), "uses one scale for the whole tensor"), *_QINT8),
        sources=(("kernel", "FBGEMM, fused multiply-add; measured on x86-64, sizes 1 to 64"), *_OBSERVERS),
        **_TORCH,
    ),
    Convention.of(
        "torch.quantize_per_channel",
        call="PerChannelMinMaxObserver -> torch.quantize_per_channel",
        kernel="D",
        nan="zero",
        refused_dtypes=_refused("quantize_tensor_per_channel_affine expects a Float Tensor, got {}"),
        limits=(Limit("granularity", (CHANNEL,), "uses one scale per channel"), *_QINT8),
        sources=(("kernel", "measured, every memory layout"), *_OBSERVERS),
        **_TORCH,
    ),
)
