"""What library calls do, in the Python that the interpreter evaluates: it follows the calls of code into it.

How a call computes a code and its value is written from its convention's program; around that, each call
follows its library (see `quantcore/conventions/libraries/`), in float32. Nothing here is ever run by Python.
"""

from collections.abc import Iterator

from quantcore.conventions import CONVENTIONS
from quantcore.expressions import FUSED, Applied, Expression, without, written
from quantcore.formats import CODEBOOKS, INT8, Format
from quantcore.programs import code_program, value_program

_WRITTEN = (
    "torch.quantize_per_tensor", "torch.quantize_per_channel", "torch.fake_quantize",
    "torch.quantized_decomposed", "torchao", "onnxruntime", "bitsandbytes.4bit",
    "bitsandbytes.blockwise", "quanto",
)  # fmt: skip
_NAMES = {"1/s": "inverse", "x̂": "value"}


def _definitions(name: str) -> Iterator[str]:
    """Yield functions from x to the code before the clamp, and from a code to its value, as a library has it.

    Each takes the scale s and the zero point z, None for no zero point.
    """
    convention, dialect = CONVENTIONS[name], "numpy" if name == "onnxruntime" else "torch"
    fmt: Format = CODEBOOKS["nf4"] if convention.formats == ("codebook",) else INT8
    own = name.replace(".", "_")

    def text(of: Expression) -> str:
        if isinstance(of, Applied) and of.operation is FUSED:
            x, factor, added = map(text, of.operands)  # rounded once: float64 holds the product
            return f"({x}.double() * {factor}.double() + {added}).float()"
        return written(of, dialect, _NAMES)  # type: ignore[arg-type]

    program = code_program(fmt, convention)
    yield f"def {own}_code(x, s, z):"
    for line in (one for one in program.lines if one.name != "q"):
        optional = "if z is not None: " if "z" in line.of.names else ""
        last = _NAMES.get(line.name, line.name)
        yield f"    {optional}{last} = {text(line.of)}"
    yield f"    return {last}"
    of = without(value_program(fmt, convention).line("x̂").of, "mean")
    yield f"def {own}_value(q, s, z):"
    yield f"    return {text(without(of, 'z'))} if z is None else {text(of)}"


_TEXT = """
def _integers(dtype):
    if dtype == torch.quint8 or dtype == torch.uint8:
        return 0, 255, torch.uint8
    if dtype == torch.qint32 or dtype == torch.int32:
        return -2147483648, 2147483647, torch.int32
    if dtype == torch.int16:
        return -32768, 32767, torch.int16
    return -128, 127, torch.int8

def _along(parameter, input, axis):
    shape = [1] * input.ndim
    shape[axis] = input.shape[axis]
    return torch.as_tensor(parameter).reshape(shape)

class QuantizedTensor:
    def __init__(self, codes, scale, zero_point, axis=None):
        self.codes, self.scale, self.zero_point, self.axis = codes, scale, zero_point, axis
    def int_repr(self):
        return self.codes
    def dequantize(self):
        scale, zero_point = self.scale, self.zero_point
        if self.axis is not None:
            scale, zero_point = (_along(p, self.codes, self.axis) for p in (scale, zero_point))
        return torch_quantize_per_tensor_value(self.codes.float(), scale, zero_point)
    def q_scale(self):
        return self.scale
    def q_zero_point(self):
        return self.zero_point
    def q_per_channel_scales(self):
        return self.scale
    def q_per_channel_zero_points(self):
        return self.zero_point
    def q_per_channel_axis(self):
        return self.axis

def quantize_per_tensor(input, scale, zero_point, dtype):
    low, high, stored = _integers(dtype)
    codes = torch_quantize_per_tensor_code(input, torch.as_tensor(scale).float(), zero_point)
    return QuantizedTensor(codes.clamp(low, high).to(stored), scale, zero_point)

def quantize_per_channel(input, scales, zero_points, axis, dtype):
    low, high, stored = _integers(dtype)
    scale, zero_point = _along(scales, input, axis).float(), _along(zero_points, input, axis)
    codes = torch_quantize_per_channel_code(input, scale, zero_point)
    return QuantizedTensor(codes.clamp(low, high).to(stored), scales, zero_points, axis)

def quantize_per_tensor_dynamic(input, dtype, reduce_range):
    low, high, stored = _integers(dtype)
    if reduce_range:
        low, high = low // 2, high // 2
    least, most = torch.clamp(input.min(), max=0.0).double(), torch.clamp(input.max(), min=0.0).double()
    scale = ((most - least) / (high - low)).float()
    steps = scale.double()
    from_least, from_most = low - least / steps, high - most / steps
    nearer = torch.abs(least / steps) + abs(low) < torch.abs(most / steps) + abs(high)
    zero_point = torch.round(from_least if nearer else from_most).clamp(low, high).to(torch.int64)
    codes = torch_quantize_per_tensor_code(input, scale, zero_point).clamp(low, high)
    return QuantizedTensor(codes.to(stored), scale, zero_point)

def dequantize(input):
    return input.dequantize()

def fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max):
    codes = torch_fake_quantize_code(input, torch.as_tensor(scale).float(), zero_point)
    return torch_fake_quantize_value(codes.clamp(quant_min, quant_max), scale, zero_point)

def fake_quantize_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max):
    scale, zero_point = _along(scale, input, axis), _along(zero_point, input, axis)
    return fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max)

def _ldexp(x, e):
    return x * 2.0 ** e

def _cdist(x1, x2, p=2.0):
    assert x1.shape[-1] == 1, "distances of more than one number are not evaluated"
    return torch.abs(x1 - x2.reshape(1, -1))

def _fake_quantize_learnable_per_tensor_affine(input, scale, zero_point, quant_min, quant_max,
                                               grad_factor=1.0):
    zero_point = torch.round(zero_point.reshape(-1)[0].float()).clamp(quant_min, quant_max).to(torch.int64)
    return fake_quantize_per_tensor_affine(input, scale.reshape(-1)[0], zero_point, quant_min, quant_max)

def _fake_quantize_learnable_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max,
                                                grad_factor=1.0):
    zero_point = torch.round(zero_point.float()).clamp(quant_min, quant_max).to(torch.int32)
    return fake_quantize_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max)

def decomposed_quantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype):
    codes = torch_quantized_decomposed_code(input, torch.as_tensor(scale).float(), zero_point)
    return codes.clamp(quant_min, quant_max).to(dtype)

def decomposed_dequantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype):
    return torch_quantized_decomposed_value(input.float(), scale, zero_point)

def decomposed_quantize_per_channel(input, scales, zero_points, axis, quant_min, quant_max, dtype):
    scale, zero_point = _along(scales, input, axis), _along(zero_points, input, axis)
    return decomposed_quantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype)

def decomposed_dequantize_per_channel(input, scales, zero_points, axis, quant_min, quant_max, dtype):
    scale, zero_point = _along(scales, input, axis), _along(zero_points, input, axis)
    return torch_quantized_decomposed_value(input.float(), scale, zero_point)

def _qparams(low, high, qmin, qmax, symmetric, middle, eps):
    low, high = torch.clamp(low, max=0.0), torch.clamp(high, min=0.0)
    if symmetric:
        scale = torch.maximum(-low, high) / ((qmax - qmin) / 2)
        return scale.clamp(min=eps), torch.zeros_like(scale, dtype=torch.int64) + middle
    scale = ((high - low) / (qmax - qmin)).clamp(min=eps)
    zero_point = (qmin - torch.round(low / scale)).clamp(qmin, qmax)
    return scale, zero_point.to(torch.int64)

def _addcdiv(input, tensor1, tensor2, value=1):
    return input + tensor1 / tensor2 if value == 1 else input + value * (tensor1 / tensor2)

def _addcmul(input, tensor1, tensor2, value=1):
    return input + tensor1 * tensor2 if value == 1 else input + value * (tensor1 * tensor2)

def _lerp(input, end, weight):
    return input + weight * (end - input)

class MinMaxObserver:
    def __init__(self, dtype=torch.quint8, qscheme="affine", reduce_range=False, quant_min=None,
                 quant_max=None, eps=1.1920928955078125e-07):
        low, high, self.stored = _integers(dtype)
        if reduce_range:
            low, high = low / 2, (high - 1) / 2
        self.qmin = low if quant_min is None else quant_min
        self.qmax = high if quant_max is None else quant_max
        self.symmetric = qscheme == "symmetric"
        self.eps, self.low, self.kept = eps, None, None
    def ends(self, x):
        return x.min(), x.max()
    def __call__(self, x):
        low, high = self.ends(x)
        if self.low is not None and self.kept is None:
            low, high = torch.minimum(self.low, low), torch.maximum(self.high, high)
        if self.low is not None and self.kept is not None:
            low = self.low + self.kept * (low - self.low)
            high = self.high + self.kept * (high - self.high)
        self.low, self.high = low, high
        return x
    def calculate_qparams(self):
        middle = 128 if self.stored == torch.uint8 else 0
        ends = self.low, self.high, self.qmin, self.qmax
        scale, zero_point = _qparams(*ends, self.symmetric, middle, self.eps)
        return scale.reshape(-1), zero_point.reshape(-1)

class PerChannelMinMaxObserver(MinMaxObserver):
    def __init__(self, ch_axis=0, dtype=torch.quint8, qscheme="affine", reduce_range=False, quant_min=None,
                 quant_max=None, eps=1.1920928955078125e-07):
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        self.ch_axis = ch_axis
    def ends(self, x):
        rows = x.transpose(0, self.ch_axis).reshape(x.shape[self.ch_axis], -1)
        return rows.amin(dim=1), rows.amax(dim=1)

class MovingAverageMinMaxObserver(MinMaxObserver):
    def __init__(self, averaging_constant=0.01, dtype=torch.quint8, qscheme="affine", reduce_range=False,
                 quant_min=None, quant_max=None, eps=1.1920928955078125e-07):
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        self.kept = averaging_constant

class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    def __init__(self, averaging_constant=0.01, ch_axis=0, dtype=torch.quint8, qscheme="affine",
                 reduce_range=False, quant_min=None, quant_max=None, eps=1.1920928955078125e-07):
        super().__init__(ch_axis, dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        self.kept = averaging_constant

def _blocks(x, block_size):
    shape = []
    for n, b in zip(x.shape, block_size):
        b = n if b == -1 else b
        shape.append(n // b)
        shape.append(b)
    return x.reshape(shape)

def _of_blocks(parameter, blocks):
    if parameter is None:
        return None
    shape = []
    for i in range(len(blocks.shape)):
        shape.append(blocks.shape[i] if i % 2 == 0 else 1)
    return parameter.reshape(shape)

def choose_qparams_affine(input, mapping_type, block_size, target_dtype, quant_min=None, quant_max=None,
                          eps=None, scale_dtype=None, zero_point_dtype=None, keepdim=False):
    low, high, stored = _integers(target_dtype)
    qmin = low if quant_min is None else quant_min
    qmax = high if quant_max is None else quant_max
    blocks = _blocks(input, block_size)
    axes = [i for i in range(len(blocks.shape)) if i % 2 == 1]
    least, most = torch.clamp(blocks.amin(dim=axes), max=0.0), torch.clamp(blocks.amax(dim=axes), min=0.0)
    eps = 1.1920928955078125e-07 if eps is None else eps
    middle = int((qmax + qmin + 1) / 2)
    if mapping_type == "no clipping":
        scale = torch.maximum(least / qmin, most / qmax).clamp(min=eps)
        return scale, torch.zeros_like(scale, dtype=torch.int32) + middle
    scale, zero_point = _qparams(least, most, qmin, qmax, mapping_type == "symmetric", middle, eps)
    return scale, zero_point.to(torch.int32)

def quantize_affine(input, block_size, scale, zero_point, output_dtype, quant_min=None, quant_max=None):
    low, high, stored = _integers(output_dtype)
    low = low if quant_min is None else quant_min
    high = high if quant_max is None else quant_max
    blocks = _blocks(input, block_size)
    codes = torchao_code(blocks, _of_blocks(scale, blocks), _of_blocks(zero_point, blocks))
    return codes.clamp(low, high).to(stored).reshape(input.shape)

def dequantize_affine(input, block_size, scale, zero_point, input_dtype=torch.int8, quant_min=None,
                      quant_max=None, output_dtype=torch.float32):
    blocks = _blocks(input.to(torch.int32), block_size)
    values = torchao_value(blocks.float(), _of_blocks(scale, blocks), _of_blocks(zero_point, blocks))
    return values.reshape(input.shape)

def compute_scale_zp(rmin, rmax, qmin, qmax, symmetric=False, min_real_range=None):
    rmin, rmax = np.minimum(rmin, 0.0), np.maximum(rmax, 0.0)
    if symmetric:
        rmax = np.maximum(-rmin, rmax)
        rmin = -rmax
    scale = (rmax - rmin) / (qmax - qmin)
    zero_point = np.round((qmin + qmax) / 2.0) if symmetric else np.round(qmin - rmin / scale)
    return zero_point.astype(np.int32), scale

def quantize_nparray(qType, arr, scale, zero_point, low=None, high=None):
    least, most = (-128, 127) if qType == 3 else (0, 255)
    codes = onnxruntime_code(arr, scale, zero_point)
    codes = np.clip(codes, least if low is None else low, most if high is None else high)
    return codes.astype(np.int8) if qType == 3 else codes.astype(np.uint8)

def quantize_data(data, qType, symmetric, reduce_range=False, min_real_range=None, rmin_override=None,
                  rmax_override=None):
    rmin = np.min(data) if rmin_override is None else rmin_override
    rmax = np.max(data) if rmax_override is None else rmax_override
    low, high = (-128, 127) if qType == 3 else (0, 255)
    if qType == 3 and symmetric:
        low = -127
    if reduce_range:
        low, high = (-64, 64) if qType == 3 else (0, 127)
    zero_point, scale = compute_scale_zp(rmin, rmax, low, high, symmetric, min_real_range)
    return zero_point, scale, quantize_nparray(qType, data, scale, zero_point)

class Quantize:
    def __init__(self, scale, zero_point, dtype, factory_kwargs=None):
        self.scale, self.zero_point, self.dtype = scale, zero_point, dtype
    def __call__(self, x):
        return quantize_per_tensor(x, self.scale, self.zero_point, self.dtype)

class FakeQuantize:
    def __init__(self, observer=MinMaxObserver, quant_min=None, quant_max=None, is_dynamic=False, **kwargs):
        self.activation_post_process = observer(quant_min=quant_min, quant_max=quant_max, **kwargs)
    def calculate_qparams(self):
        return self.activation_post_process.calculate_qparams()
    def __call__(self, x):
        self.activation_post_process(x)
        self.scale, self.zero_point = self.calculate_qparams()
        low, high = self.activation_post_process.qmin, self.activation_post_process.qmax
        return fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, low, high)

"""
TEXT = "\n".join(line for name in _WRITTEN for line in _definitions(name)) + _TEXT

_OBSERVERS = {
    name: name for name in (
        "MinMaxObserver", "PerChannelMinMaxObserver", "MovingAverageMinMaxObserver",
        "MovingAveragePerChannelMinMaxObserver", "FakeQuantize",
    )
}  # fmt: skip
_AFFINE = {name: name for name in ("choose_qparams_affine", "quantize_affine", "dequantize_affine")}
_ARRAYS = {name: name for name in ("compute_scale_zp", "quantize_nparray", "quantize_data")}
_TENSORS = (
    "quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel", "dequantize",
    "fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine",
    "_fake_quantize_learnable_per_tensor_affine", "_fake_quantize_learnable_per_channel_affine",
)  # fmt: skip
_ARITHMETIC = ("addcdiv", "addcmul", "lerp", "ldexp", "cdist")
_STEPS = ("quantize_per_tensor", "dequantize_per_tensor", "quantize_per_channel", "dequantize_per_channel")
_SCHEMES = ("per_tensor_symmetric", "per_channel_symmetric", "per_tensor_affine", "per_channel_affine")
# what each module has: the name of a definition above
CALLS: dict[str, dict[str, str]] = {
    "torch": {name: name for name in _TENSORS} | {name: f"_{name}" for name in _ARITHMETIC},
    "numpy": {"ldexp": "_ldexp"},
    "torch.ops.quantized_decomposed": {name: f"decomposed_{name}" for name in _STEPS},
    "torch.ao.quantization": _OBSERVERS,
    "torch.ao.quantization.observer": _OBSERVERS,
    "torch.quantization": _OBSERVERS,
    "torch.ao.quantization.fake_quantize": _OBSERVERS,
    "torch.ao.nn.quantized": {"Quantize": "Quantize"},
    "torchao.quantization.quant_primitives": _AFFINE,
    "onnxruntime.quantization.quant_utils": _ARRAYS,
}
_PREPARED = "quantizes a model that must run first and is not followed (paste what quantizes one tensor)"
_OF_MODELS = ("quantize_dynamic", "quantize", "prepare", "prepare_qat", "convert", "get_default_qconfig")
_HISTOGRAM = {"HistogramObserver": "searches its range in a histogram of all tensors and is not followed"}
_LEFT = dict.fromkeys(_OF_MODELS, _PREPARED) | _HISTOGRAM
_FILES = "quantizes a model's file (open the one it writes on the page Checkpoint)"
# calls that are not followed, and what to do instead
LEFT: dict[str, dict[str, str]] = {
    "torch": {"fused_moving_avg_obs_fake_quant": "changes what it is given and is not followed"},
    "torch.ao.quantization": _LEFT,
    "torch.ao.quantization.observer": _HISTOGRAM,
    "torch.quantization": _LEFT,
    "torch.ao.quantization.quantize_fx": dict.fromkeys(
        ("prepare_fx", "prepare_qat_fx", "convert_fx"), _PREPARED
    ),
    "onnxruntime.quantization": dict.fromkeys(("quantize_dynamic", "quantize_static", "quantize"), _FILES),
}
_MAPPINGS: dict[str, str | int] = {
    "SYMMETRIC": "symmetric", "ASYMMETRIC": "asymmetric", "SYMMETRIC_NO_CLIPPING_ERR": "no clipping",
}  # fmt: skip
# constants that they have, as these definitions know them
CONSTANTS: dict[str, dict[str, str | int]] = {
    "torch": {name: name.rpartition("_")[2] for name in _SCHEMES},
    "torchao.quantization.quant_primitives.MappingType": _MAPPINGS,
    "torchao.quantization.MappingType": _MAPPINGS,
    "onnxruntime.quantization.QuantType": {"QUInt8": 2, "QInt8": 3},
    "onnx.TensorProto": {"UINT8": 2, "INT8": 3},
}  # fmt: skip
