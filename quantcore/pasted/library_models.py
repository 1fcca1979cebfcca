"""What libraries do that quantize a layer or a whole model, in the Python that the interpreter evaluates.

The text continues that of `quantcore.pasted.library_code`, whose functions it calls. Each call follows its
library (see `quantcore/conventions/libraries/`), in float32; what changes the codes and is not followed is
refused.
"""

import torch
from torch import Tensor

from quantcore.formats import IntFormat
from quantcore.range_setting import HalfQuadratic, Task

_CODES_IN_BYTE = {8: 1, 4: 2, 2: 4, 1: 8}  # by their width


def hqq_zero(groups: Tensor, inverse: Tensor, zero: Tensor, bits: int, axis: int) -> Tensor:
    """Return what HQQ's optimizer makes of the zero points of groups along ``axis``; ``inverse``: 1/scale."""
    blocks = groups if axis == 1 else groups.T.contiguous()
    task = Task(IntFormat(bits, signed=False), False)
    found = HalfQuadratic().zero_point(blocks, inverse.reshape(-1), zero.reshape(-1), task)
    return found.reshape(zero.shape)


def hqq_packed(codes: Tensor, bits: int) -> Tensor:
    """Return codes as hqq stores them in bytes: the first rows in the upper bits.

    Raises:
        ValueError: codes of 3 bits, which it stores in 32-bit words.
    """
    if bits not in _CODES_IN_BYTE:
        raise ValueError(f"hqq's codes of {bits} bits are not packed here")
    parts = codes.to(torch.uint8).chunk(_CODES_IN_BYTE[bits])
    found = torch.zeros_like(parts[0])
    for part in parts:
        found = found * 2**bits + part
    return found


TEXT = """
class Linear(nn.Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=torch.float32):
        assert dtype == torch.float32, "a layer in another type than float32 is not followed here"
        self.in_features, self.out_features = in_features, out_features
        self.weight = torch.randn(out_features, in_features)
        self.bias = torch.zeros(out_features) if bias else None
    def forward(self, input):
        y = input @ _plain(self.weight).T
        return y if self.bias is None else y + self.bias

class Sequential(nn.Module):
    def __init__(self, *layers):
        self._layers = list(layers)
    def __getitem__(self, place):
        return self._layers[place]
    def forward(self, input):
        for layer in self._layers:
            input = layer(input)
        return input

class Conv2d(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, bias=True):
        assert isinstance(kernel_size, int)
        self.weight = torch.randn(out_channels, in_channels, kernel_size, kernel_size)
        self.bias = torch.zeros(out_channels) if bias else None

class ReLU(nn.Module):
    def __init__(self, inplace=False):
        self.inplace = inplace
    def forward(self, input):
        return torch.relu(input)

class Identity(nn.Module):
    def __init__(self, *args, **kwargs):
        self.inplace = False
    def forward(self, input):
        return input

def _plain(weight):
    return weight.dequantize() if isinstance(weight, QuantizedWeight) else weight

def _linears(model):
    return [layer for layer in model.modules() if isinstance(layer, Linear)]

class QuantizedWeight:
    def __init__(self, codes, scale, zero_point, shape, values):
        self.codes, self.scale, self.zero_point, self.shape = codes, scale, zero_point, shape
        self.qdata, self._data, self._scale, self.values = codes, codes, scale, values
    def int_repr(self):
        return self.codes
    def dequantize(self):
        return self.values(self.codes, self.scale, self.zero_point).reshape(self.shape)

class Quantizer:
    @classmethod
    def quantize(cls, tensor, nbits=4, channel_wise=True, group_size=64, optimize=True, round_zero=False,
                 axis=0, bitpack=True, compute_dtype=None, view_as_float=False, device="cuda"):
        assert not view_as_float, "view_as_float is not followed here"
        W = tensor.float()
        if group_size is not None and channel_wise:
            W = W.reshape(-1, group_size) if axis == 1 else W.reshape(group_size, -1)
        if channel_wise:
            low, high = W.amin(dim=axis, keepdim=True), W.amax(dim=axis, keepdim=True)
        else:
            low, high = W.min(), W.max()
        most = 2 ** nbits - 1
        inverse = torch.where(high - low <= 1e-4, torch.ones_like(high), most / (high - low)).clamp(max=2e4)
        zero = -low * inverse
        if round_zero:
            zero = torch.round(zero)
        if optimize and channel_wise:
            zero = hqq_zero(W, inverse, zero, nbits, axis)
        codes = torch.round(W * inverse + zero).clamp(0, most)
        meta = {"nbits": nbits, "group_size": group_size, "shape": tensor.shape, "scale": 1.0 / inverse,
                "zero": zero, "axis": axis, "codes": codes}
        return hqq_packed(codes, nbits) if bitpack else codes, meta
    @classmethod
    def dequantize(cls, W_q, meta):
        return ((meta["codes"] - meta["zero"]) * meta["scale"]).reshape(meta["shape"])

def BaseQuantizeConfig(nbits=4, group_size=64, quant_zero=False, quant_scale=False, offload_meta=False,
                       view_as_float=False, axis=1):
    return {"weight_quant_params": {"nbits": nbits, "channel_wise": True, "group_size": group_size,
            "optimize": True, "round_zero": nbits == 4, "axis": axis, "view_as_float": view_as_float}}

class HQQLinear(nn.Module):
    def __init__(self, linear_layer, quant_config, del_orig=True, compute_dtype=torch.float16, device="cuda",
                 initialize=True):
        self.bias, given = linear_layer.bias, quant_config["weight_quant_params"]
        if given["group_size"] is None:
            weight = linear_layer.weight
            given["group_size"] = weight.shape[1] if given["axis"] == 1 else weight.shape[0]
        self.W_q, self.meta = Quantizer.quantize(linear_layer.weight, **given)
        self.compute_dtype = compute_dtype
        self.meta["scale"] = self.meta["scale"].to(compute_dtype)
        self.meta["zero"] = self.meta["zero"].to(compute_dtype)
    def dequantize(self):
        meta = self.meta
        codes = meta["codes"].to(self.compute_dtype)
        return ((codes - meta["zero"]) * meta["scale"]).reshape(meta["shape"])
    def forward(self, x):
        y = x @ self.dequantize().to(x.dtype).T
        return y if self.bias is None else y + self.bias

def _qtype(name):
    if name == "qint8":
        return 8, -128, 127
    if name == "qint4":
        return 4, -8, 7
    assert name == "qint2", "only qint8, qint4 and qint2 are followed here"
    return 2, -2, 1

def _of_rows(x, axis):
    if axis is None or x.shape[axis] == 1:
        return list(range(x.ndim))
    return list(range(1, x.ndim)) if axis == 0 else list(range(x.ndim - 1))

class AbsmaxOptimizer:
    def __call__(self, base, qtype, axis=None):
        bits, low, high = _qtype(qtype)
        axes = _of_rows(base, axis)
        return base.abs().amax(dim=axes, keepdim=len(axes) < base.ndim) / high

class MaxOptimizer:
    def __call__(self, base, qtype, axis, group_size=None, zeropoint=False):
        bits, low, high = _qtype(qtype)
        base = _quanto_groups(base, axis, group_size)
        least = base.amin(dim=_of_rows(base, axis), keepdim=True)
        scale = (base.amax(dim=_of_rows(base, axis), keepdim=True) - least) / (high - low)
        if zeropoint:
            return scale, torch.round(-least / scale).clamp(0, 2 ** bits - 1).to(torch.uint8)
        return scale, -least

def _quanto_groups(base, axis, group_size):
    assert group_size is None or axis == 0, "groups along the last axis are not followed here"
    return base if group_size is None else base.reshape(-1, group_size)

def _quanto_whole(codes, scale, shift):
    return (codes.float() - shift.float()) * scale

def _quanto_shifted(codes, scale, shift):
    return codes * scale - shift

class WeightQBytesTensor:
    @classmethod
    def quantize(cls, base, qtype, axis, scale, activation_qtype=None, optimized=True):
        bits, low, high = _qtype(qtype)
        codes = quanto_code(base, scale, None).clamp(low, high).to(torch.int8)
        return QuantizedWeight(codes, scale, None, base.shape, quanto_value)

class WeightQBitsTensor:
    @classmethod
    def quantize(cls, base, qtype, axis, group_size, scale, shift, optimized=True):
        bits, low, high = _qtype(qtype)
        x = _quanto_groups(base, axis, group_size)
        if shift.dtype == torch.uint8:
            codes = quanto_code(x, scale, shift)
        else:
            codes = torch.round((x + shift) / scale)
        codes = codes.clamp(0, 2 ** bits - 1).to(torch.uint8)
        values = _quanto_whole if shift.dtype == torch.uint8 else _quanto_shifted
        return QuantizedWeight(codes, scale, shift, base.shape, values)

def quantize_weight(t, qtype, axis, scale, shift=None, group_size=None, activation_qtype=None,
                    optimized=True):
    if qtype == "qint8":
        assert shift is None and group_size is None
        return WeightQBytesTensor.quantize(t, qtype, axis, scale)
    return WeightQBitsTensor.quantize(t, qtype, axis, group_size, scale, shift)

def quanto_quantize(model, weights=None, activations=None, optimizer=None):
    assert activations is None and optimizer is None, "only weights are followed here"
    for layer in _linears(model):
        layer.qtype = weights

def freeze(model):
    for layer in _linears(model):
        weight = layer.weight
        if layer.qtype == "qint8":
            scale = AbsmaxOptimizer()(weight, qtype="qint8", axis=0)
            layer.weight = quantize_weight(weight, "qint8", 0, scale)
        else:
            columns, size = weight.shape[1], 128
            while columns % size != 0 and size > 32:
                size -= 32
            size = size if columns > 128 and columns % size == 0 else None
            scale, shift = MaxOptimizer()(weight, layer.qtype, 0, size)
            layer.weight = quantize_weight(weight, layer.qtype, 0, scale, shift, size)

class PerRow:
    def block(self, shape):
        return (1, shape[1])

class PerTensor:
    def block(self, shape):
        return tuple(shape)

class PerAxis:
    def __init__(self, axis=0):
        assert axis == 0
        self.axis = axis
    def block(self, shape):
        return (1, shape[1])

class PerGroup:
    def __init__(self, group_size):
        self.group_size = group_size
    def block(self, shape):
        return (1, self.group_size)

class Int8WeightOnlyConfig:
    def __init__(self, group_size=None, granularity=PerRow(), set_inductor_config=True, version=2):
        assert group_size is None
        self.bits, self.mapping, self.granularity = 8, "symmetric", granularity

class Int8DynamicActivationInt8WeightConfig(Int8WeightOnlyConfig):
    pass

class IntxWeightOnlyConfig:
    def __init__(self, weight_dtype=torch.int8, granularity=PerAxis(0), mapping_type="symmetric",
                 scale_dtype=None):
        assert scale_dtype is None, "scale_dtype is not followed here"
        kinds = [torch.int1, torch.int2, torch.int3, torch.int4, torch.int5, torch.int6, torch.int7]
        self.bits = ([i + 1 for i in range(7) if kinds[i] == weight_dtype] + [8])[0]
        self.mapping, self.granularity = mapping_type, granularity

def quantize_(model, config, filter_fn=None, device=None):
    assert filter_fn is None, "the choice of layers by filter_fn is not followed here"
    low, high = -2 ** (config.bits - 1), 2 ** (config.bits - 1) - 1
    for layer in _linears(model):
        weight = layer.weight
        block = config.granularity.block(weight.shape)
        scale, zero_point = choose_qparams_affine(weight, config.mapping, block, torch.int8, low, high)
        codes = quantize_affine(weight, block, scale, zero_point, torch.int8, low, high)
        values = lambda q, s, z: dequantize_affine(q, block, s, z)
        layer.weight = QuantizedWeight(codes, scale, zero_point, weight.shape, values)
"""

_LAYERS = {name: name for name in ("Linear", "Conv2d", "Sequential", "ReLU", "Identity")}
_HQQ = {name: name for name in ("Quantizer", "HQQLinear", "BaseQuantizeConfig")}
_QUANTO = {
    name: name for name in (
        "AbsmaxOptimizer", "MaxOptimizer", "WeightQBytesTensor", "WeightQBitsTensor", "quantize_weight",
        "freeze",
    )
} | {"quantize": "quanto_quantize"}  # fmt: skip
_GRANULARITIES = {name: name for name in ("PerRow", "PerTensor", "PerAxis", "PerGroup")}
_CONFIGS = {
    name: name for name in (
        "quantize_", "Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "IntxWeightOnlyConfig",
    )
}  # fmt: skip
# what each module has: the name of a definition above
CALLS: dict[str, dict[str, str]] = {
    "torch.nn": _LAYERS,
    "hqq.core.quantize": _HQQ,
    "optimum.quanto": _QUANTO,
    "quanto": _QUANTO,
    "torchao": {"quantize_": "quantize_"},
    "torchao.quantization": _CONFIGS | _GRANULARITIES,
    "torchao.quantization.granularity": _GRANULARITIES,
    "torchao.quantization.quant_api": _CONFIGS,
}
_PRESETS = {
    "Int4WeightOnlyConfig": "torchao.int4_g128 and torchao.tinygemm_g128",
    "Int8DynamicActivationInt4WeightConfig": "torchao.int4_g32",
    "Float8WeightOnlyConfig": "torchao.fp8_e4m3fn",
    "Float8DynamicActivationFloat8WeightConfig": "torchao.fp8_e4m3fn",
    "int4_weight_only": "torchao.int4_g128 and torchao.tinygemm_g128",
    "int8_weight_only": "torchao.int8",
    "float8_weight_only": "torchao.fp8_e4m3fn",
}
_LEFT = {name: f"is not followed (Explore has torchao's preset {of})" for name, of in _PRESETS.items()}
# calls that are not followed, and what to do instead
LEFT: dict[str, dict[str, str]] = {
    "torchao.quantization": _LEFT,
    "torchao.quantization.quant_api": _LEFT,
    "optimum.quanto": {"Calibration": "runs a model and is not followed (paste what quantizes one tensor)"},
}
_QTYPES: dict[str, str | int] = {name: name for name in ("qint8", "qint4", "qint2")}
CONSTANTS: dict[str, dict[str, str | int]] = {"optimum.quanto": _QTYPES, "quanto": _QTYPES}
