"""TensorFlow and JAX as pasted code uses them: NumPy's functions by their names, and calls that quantize.

The text continues that of `quantcore.pasted.library_code`. It follows TensorFlow's kernels for a CPU, in
float32 (tensorflow/core/kernels/fake_quant_ops_functor.h and quantize_op.cc).
"""

# what TensorFlow calls a function of NumPy with the same arguments
TENSORFLOW = {
    "reduce_max": "max", "reduce_min": "min", "reduce_mean": "mean", "reduce_sum": "sum",
    "reduce_any": "any", "reduce_all": "all", "reduce_prod": "prod", "clip_by_value": "clip",
    "cast": "astype", "constant": "array", "Variable": "array", "convert_to_tensor": "array",
    "concat": "concatenate",
}  # fmt: skip
_SAME = """
    abs round floor sign sqrt exp square maximum minimum where reshape transpose squeeze expand_dims stack
    zeros zeros_like ones ones_like argmin argmax add subtract multiply divide negative tile isnan linspace
"""
TENSORFLOW |= {name: name for name in _SAME.split()}
TEXT = """
def _rounded(v):  # halves away from 0, of what is not negative
    return np.floor(v) + (v - np.floor(v) >= 0.5)

def fake_quant_with_min_max_vars(inputs, min, max, num_bits=8, narrow_range=False, name=None):
    first, last = np.float32(1 if narrow_range else 0), np.float32(2 ** num_bits - 1)
    low, high = np.float32(min), np.float32(max)
    scale = (high - low) / (last - first)
    zero_point = _rounded(np.clip(first - low / scale, first, last))
    least, most = (first - zero_point) * scale, (last - zero_point) * scale
    steps = (np.clip(inputs, least, most) - least) / scale
    return np.floor(steps + np.float32(0.5)) * scale + least

def fake_quant_with_min_max_args(inputs, min=-6.0, max=6.0, num_bits=8, narrow_range=False, name=None):
    first, last = np.float32(1 if narrow_range else 0), np.float32(2 ** num_bits - 1)
    low, high = np.float32(min), np.float32(max)
    scale = (high - low) / (last - first)
    zero_point = _rounded(np.clip(first - low / scale, first, last))
    least, most = (first - zero_point) * scale, (last - zero_point) * scale
    steps = (np.clip(inputs, least, most) - least) * (np.float32(1) / scale)
    return np.floor(steps + np.float32(0.5)) * scale + least

def fake_quant_with_min_max_vars_per_channel(inputs, min, max, num_bits=8, narrow_range=False, name=None):
    first, last = np.float32(1 if narrow_range else 0), np.float32(2 ** num_bits - 1)
    low, high = np.asarray(min).astype(np.float32), np.asarray(max).astype(np.float32)
    scale = (high - low) / (last - first)
    zero_point = _rounded(np.clip(first - low / scale, first, last))
    least, most = (first - zero_point) * scale, (last - zero_point) * scale
    steps = (np.clip(inputs, least, most) - least) / scale
    return np.floor(steps + np.float32(0.5)) * scale + least

def _tf_half_away(v):
    return np.trunc(v + np.copysign(np.float32(0.5), v))

def tf_quantize(input, min_range, max_range, T, mode="MIN_COMBINED", round_mode="HALF_AWAY_FROM_ZERO",
                name=None):
    assert mode == "MIN_COMBINED", "this mode is not followed here"
    assert T == "qint8" or T == "quint8", "this type is not followed here"
    low, high = np.float32(min_range), np.float32(max_range)
    size = np.maximum(np.float32(1), np.maximum(abs(low), abs(high)))
    high = np.maximum(high, low + size / np.float32(100))
    factor = np.float32(255) / (high - low)
    steps = (np.clip(input, low, high) - low) * factor
    if T == "qint8":
        return _tf_half_away(steps - np.float32(128)).astype(np.int8), low, high
    return np.floor(steps + np.float32(0.5)).astype(np.uint8), low, high

def tf_dequantize(input, min_range, max_range, mode="MIN_COMBINED", name=None):
    assert mode == "MIN_COMBINED", "this mode is not followed here"
    shift = np.float32(128) if input.dtype == np.int8 else np.float32(0)
    step = (np.float32(max_range) - np.float32(min_range)) / np.float32(255)
    return (input.astype(np.float32) + shift) * step + np.float32(min_range)
"""

_FAKE = {
    name: name for name in (
        "fake_quant_with_min_max_vars", "fake_quant_with_min_max_args",
        "fake_quant_with_min_max_vars_per_channel",
    )
}  # fmt: skip
# what each module has: the name of a definition above
CALLS: dict[str, dict[str, str]] = {
    "tensorflow.quantization": _FAKE | {"quantize": "tf_quantize", "dequantize": "tf_dequantize"},
    "tensorflow.compat.v1.quantization": _FAKE,
}
LEFT: dict[str, dict[str, str]] = {
    "tensorflow.quantization": {
        "quantize_and_dequantize_v2": "is not followed (paste its steps)",
        "quantize_and_dequantize": "is not followed (paste its steps)",
    }
}
CONSTANTS: dict[str, dict[str, str | int]] = {"tensorflow": {"qint8": "qint8", "quint8": "quint8"}}
