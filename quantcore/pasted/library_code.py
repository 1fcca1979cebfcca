"""What library calls do, in the Python that the interpreter evaluates: it follows the calls of code into it.

Each follows the order of operations of its library (see `quantcore/conventions/libraries/`), in float32.
Nothing here is ever run by Python.
"""

TEXT = """
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
        if self.axis is None:
            return (self.codes.float() - self.zero_point) * self.scale
        zero_point = _along(self.zero_point, self.codes, self.axis)
        return (self.codes.float() - zero_point) * _along(self.scale, self.codes, self.axis)
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
    inverse = 1.0 / torch.as_tensor(scale).float()
    codes = torch.round((input.double() * inverse.double() + zero_point).float())
    return QuantizedTensor(codes.clamp(low, high).to(stored), scale, zero_point)

def quantize_per_channel(input, scales, zero_points, axis, dtype):
    low, high, stored = _integers(dtype)
    inverse = 1.0 / _along(scales, input, axis).float()
    codes = torch.round(input * inverse + _along(zero_points, input, axis))
    return QuantizedTensor(codes.clamp(low, high).to(stored), scales, zero_points, axis)

def dequantize(input):
    return input.dequantize()

def fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max):
    inverse = 1.0 / torch.as_tensor(scale).float()
    codes = (torch.round(input * inverse) + zero_point).clamp(quant_min, quant_max)
    return (codes - zero_point) * scale

def fake_quantize_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max):
    scale, zero_point = _along(scale, input, axis), _along(zero_point, input, axis)
    codes = (torch.round(input * (1.0 / scale)) + zero_point).clamp(quant_min, quant_max)
    return (codes - zero_point) * scale

def decomposed_quantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype):
    inverse = 1.0 / torch.as_tensor(scale).float()
    return (torch.round(input * inverse) + zero_point).clamp(quant_min, quant_max).to(dtype)

def decomposed_dequantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype):
    return (input.float() - zero_point) * scale

def decomposed_quantize_per_channel(input, scales, zero_points, axis, quant_min, quant_max, dtype):
    inverse = 1.0 / _along(scales, input, axis)
    codes = torch.round(input * inverse) + _along(zero_points, input, axis)
    return codes.clamp(quant_min, quant_max).to(dtype)

def decomposed_dequantize_per_channel(input, scales, zero_points, axis, quant_min, quant_max, dtype):
    return (input.float() - _along(zero_points, input, axis)) * _along(scales, input, axis)

def _qparams(low, high, qmin, qmax, symmetric, middle, eps):
    low, high = torch.clamp(low, max=0.0), torch.clamp(high, min=0.0)
    if symmetric:
        scale = torch.maximum(-low, high) / ((qmax - qmin) / 2)
        return scale.clamp(min=eps), torch.zeros_like(scale, dtype=torch.int64) + middle
    scale = ((high - low) / (qmax - qmin)).clamp(min=eps)
    zero_point = (qmin - torch.round(low / scale)).clamp(qmin, qmax)
    return scale, zero_point.to(torch.int64)

class MinMaxObserver:
    def __init__(self, dtype=torch.quint8, qscheme="affine", reduce_range=False, quant_min=None,
                 quant_max=None, eps=1.1920928955078125e-07):
        low, high, self.stored = _integers(dtype)
        if reduce_range:
            low, high = low / 2, (high - 1) / 2
        self.qmin = low if quant_min is None else quant_min
        self.qmax = high if quant_max is None else quant_max
        self.symmetric = qscheme == "symmetric"
        self.eps = eps
    def __call__(self, x):
        self.low, self.high = x.min(), x.max()
        return x
    def calculate_qparams(self):
        middle = 128 if self.stored == torch.uint8 else 0
        return _qparams(self.low, self.high, self.qmin, self.qmax, self.symmetric, middle, self.eps)

class PerChannelMinMaxObserver(MinMaxObserver):
    def __init__(self, ch_axis=0, dtype=torch.quint8, qscheme="affine", reduce_range=False, quant_min=None,
                 quant_max=None, eps=1.1920928955078125e-07):
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        self.ch_axis = ch_axis
    def __call__(self, x):
        rows = x.transpose(0, self.ch_axis).reshape(x.shape[self.ch_axis], -1)
        self.low, self.high = rows.amin(dim=1), rows.amax(dim=1)
        return x

def _blocks(x, block_size):
    shape = []
    for n, b in zip(x.shape, block_size):
        b = n if b == -1 else b
        shape.append(n // b)
        shape.append(b)
    return x.reshape(shape)

def _of_blocks(parameter, blocks):
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
    codes = torch.round(blocks * (1.0 / _of_blocks(scale, blocks)))
    if zero_point is not None:
        codes = codes + _of_blocks(zero_point, blocks)
    return codes.clamp(low, high).to(stored).reshape(input.shape)

def dequantize_affine(input, block_size, scale, zero_point, input_dtype=torch.int8, quant_min=None,
                      quant_max=None, output_dtype=torch.float32):
    blocks = _blocks(input.to(torch.int32), block_size)
    if zero_point is not None:
        blocks = blocks - _of_blocks(zero_point, blocks)
    return (blocks.float() * _of_blocks(scale, blocks)).reshape(input.shape)

def int8_vectorwise_quant(A, threshold=0.0):
    stats = A.abs().amax(dim=-1)
    codes = torch.round(A * (127.0 / stats.unsqueeze(-1))).to(torch.int8)
    return codes, stats, None

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
    codes = np.round(arr / scale) + zero_point
    codes = np.clip(codes, least if low is None else low, most if high is None else high)
    return codes.astype(np.int8) if qType == 3 else codes.astype(np.uint8)
"""

_OBSERVERS = {name: name for name in ("MinMaxObserver", "PerChannelMinMaxObserver")}
_AFFINE = {name: name for name in ("choose_qparams_affine", "quantize_affine", "dequantize_affine")}
_INT8 = {"int8_vectorwise_quant": "int8_vectorwise_quant"}
_ARRAYS = {name: name for name in ("compute_scale_zp", "quantize_nparray")}
_TENSORS = (
    "quantize_per_tensor", "quantize_per_channel", "dequantize", "fake_quantize_per_tensor_affine",
    "fake_quantize_per_channel_affine",
)  # fmt: skip
_STEPS = ("quantize_per_tensor", "dequantize_per_tensor", "quantize_per_channel", "dequantize_per_channel")
_SCHEMES = ("per_tensor_symmetric", "per_channel_symmetric", "per_tensor_affine", "per_channel_affine")
# what each module has: the name of a definition above
CALLS: dict[str, dict[str, str]] = {
    "torch": {name: name for name in _TENSORS},
    "torch.ops.quantized_decomposed": {name: f"decomposed_{name}" for name in _STEPS},
    "torch.ao.quantization": _OBSERVERS,
    "torch.ao.quantization.observer": _OBSERVERS,
    "torch.quantization": _OBSERVERS,
    "torchao.quantization.quant_primitives": _AFFINE,
    "bitsandbytes.functional": _INT8,
    "onnxruntime.quantization.quant_utils": _ARRAYS,
}
# constants that they have, as these definitions know them
CONSTANTS: dict[str, dict[str, str | int]] = {
    "torch": {name: name.rpartition("_")[2] for name in _SCHEMES},
    "torchao.quantization.quant_primitives.MappingType": {
        "SYMMETRIC": "symmetric", "ASYMMETRIC": "asymmetric", "SYMMETRIC_NO_CLIPPING_ERR": "no clipping",
    },
    "onnxruntime.quantization.QuantType": {"QUInt8": 2, "QInt8": 3},
    "onnx.TensorProto": {"UINT8": 2, "INT8": 3},
}  # fmt: skip
