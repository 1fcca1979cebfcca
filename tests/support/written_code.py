"""Quantizers as people write them, by how they are written; the mistakes are marked as in `code_snippets`."""


CLASSES = {  # classes, autograd functions, and what else Python has
    "quantizer": """
import torch
class Quantizer:
    def __init__(self, bits=8, symmetric=True):
        self.bits = bits
        self.symmetric = symmetric
        self.scale = None
        self.zero_point = 0
    def calibrate(self, x):
        if self.symmetric:
            self.scale = x.abs().max() / (2 ** (self.bits - 1) - 1)
        else:
            self.scale = (x.max() - x.min()) / (2 ** self.bits - 1)
            self.zero_point = torch.round(-x.min() / self.scale)
    def quantize(self, x):
        q = torch.round(x / self.scale) + self.zero_point
        if self.symmetric:
            return q.clamp(-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1)
        return q.clamp(0, 2 ** self.bits - 1)
    def dequantize(self, q):
        return (q - self.zero_point) * self.scale

qz = Quantizer(8)
qz.calibrate(x)
q = qz.quantize(x)
y = qz.dequantize(q)
""",
    "autograd ste": """
class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output

s = x.abs().max() / 127
q = RoundSTE.apply(x / s).clamp(-128, 127)
y = q * s
""",
    "autograd uncalled": """
import torch
from torch.autograd import Function
class FakeQuantize(Function):
    @staticmethod
    def forward(ctx, x, bits=8):
        n = 2 ** (bits - 1) - 1
        scale = x.max() / n  #! absolute_value
        q = torch.clamp(torch.round(x / scale), -n - 1, n)
        ctx.save_for_backward(x, scale)
        ctx.n = n
        return q * scale
    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        mask = (x / scale).abs() <= ctx.n
        return grad * mask, None
""",
    "module with parameter": """
import torch.nn as nn
class LSQ(nn.Module):
    def __init__(self, bits=4):
        super().__init__()
        self.bits = bits
        self.scale = nn.Parameter(torch.tensor(0.1))
    def forward(self, x):
        q = torch.round(x / self.scale).clamp(-8, 7)
        return q * self.scale
m = LSQ()
y = m(x)
""",
    "buffer": """
class Obs(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.0))
        self.register_buffer("zero_point", torch.tensor(0))
    def forward(self, x):
        self.scale = (x.max() - x.min()) / 255
        self.zero_point = torch.round(-x.min() / self.scale)
        q = torch.clamp(torch.round(x / self.scale) + self.zero_point, 0, 255).to(torch.uint8)
        return (q - self.zero_point) * self.scale
""",
    "dataclass": """
from dataclasses import dataclass
@dataclass
class QParams:
    scale: float
    zero_point: int = 0  #! zero_point_left_out

def params(x):
    return QParams(scale=float((x.max() - x.min()) / 255))

p = params(x)
q = torch.round(x / p.scale + p.zero_point).clamp(0, 255).to(torch.uint8)
""",
    "inherit": """
class Base:
    def __init__(self, bits):
        self.qmax = 2 ** (bits - 1) - 1
    def scale(self, x):
        raise NotImplementedError
    def __call__(self, x):
        s = self.scale(x)
        return torch.round(x / s).clamp(-self.qmax - 1, self.qmax), s
class AbsMax(Base):
    def __init__(self, bits=8):
        super().__init__(bits)
    def scale(self, x):
        return x.abs().max() / 255  #! divisor
q, s = AbsMax()(x)
""",
    "property": """
class Q:
    def __init__(self, x):
        self.x = x
    @property
    def scale(self):
        return self.x.abs().max() / 127
    def codes(self):
        return torch.round(self.x / self.scale).clamp(-128, 127).to(torch.int8)
q = Q(x).codes()
""",
    "classmethod": """
class Quant:
    QMIN, QMAX = -128, 127
    def __init__(self, scale):
        self.scale = scale
    @classmethod
    def from_tensor(cls, x):
        return cls(x.abs().max() / cls.QMAX)
    def __call__(self, x):
        return (x / self.scale).to(torch.int8)  #! toward_zero
q = Quant.from_tensor(x)(x)
""",
    "ste module": """
class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()
    @staticmethod
    def backward(ctx, g):
        return g.clone()
class QLinear(nn.Linear):
    def __init__(self, in_features, out_features, bits=8):
        super().__init__(in_features, out_features)
        self.bits = bits
    def forward(self, x):
        w = self.weight
        s = w.abs().max() / (2 ** (self.bits - 1) - 1)
        wq = Round.apply(w / s) * s
        return F.linear(x, wq, self.bias)
""",
    "dict config": """
RANGES = {"int8": (-128, 127), "uint8": (0, 255)}
def quantize(x, kind="int8"):
    lo, hi = RANGES[kind]
    s = x.abs().max() / hi
    return torch.round(x / s).clamp(lo, hi), s
q, s = quantize(x)
""",
    "state dict of params": """
class Quantizer:
    def __init__(self):
        self.params = {}
    def fit(self, x):
        self.params["scale"] = x.abs().max() / 127
        return self
    def transform(self, x):
        if "scale" not in self.params:
            raise ValueError("fit first")
        return torch.round(x / self.params["scale"]).to(torch.int8)
q = Quantizer().fit(x).transform(x)
""",
    "type hints and errors": """
from typing import Optional, Tuple
def quantize(x: torch.Tensor, bits: int = 8, *, eps: float = 1e-8) -> Tuple[torch.Tensor, torch.Tensor]:
    if not isinstance(x, torch.Tensor):
        raise TypeError("tensor")
    if bits not in (4, 8):
        raise ValueError(f"bits {bits}")
    try:
        s = torch.clamp(x.abs().max(), min=eps) / (2 ** (bits - 1) - 1)
    except RuntimeError:
        s = torch.tensor(1.0)
    return torch.round(x / s).clamp(-2 ** (bits - 1), 2 ** (bits - 1) - 1), s
""",
    "kwargs": """
def q(x, *args, **kwargs):
    s = x.abs().max() / kwargs.get("qmax", 127)
    return torch.round(x / s).clamp(-128, 127)
codes = q(x, qmax=127)
""",
    "dict qparams": """
import torch
def get_qparams(t, bits=8):
    qmax = 2 ** (bits - 1) - 1
    return dict(scale=t.abs().max() / qmax, qmin=-qmax - 1, qmax=qmax)
p = get_qparams(x)
q = torch.round(x / p['scale']).clamp(p['qmin'], p['qmax']).to(torch.int8)
y = q * p['scale']
""",
    "namedtuple": """
import torch
from collections import namedtuple
Q = namedtuple('Q', ['tensor', 'scale', 'zero_point'])
def quantize(x):
    s = x.abs().max() / 127
    return Q(tensor=torch.round(x / s).clamp(-128, 127).to(torch.int8), scale=s, zero_point=0)
def dequantize(q):
    return q.scale * (q.tensor.float() - q.zero_point)
t = quantize(x)
y = dequantize(t)
""",
    "enum": """
import torch
from enum import Enum
class Mode(Enum):
    SYM = 1
    ASYM = 2
mode = Mode.SYM
if mode == Mode.SYM:
    s = x.abs().max() / 127
q = torch.round(x / s).clamp(-128, 127).to(torch.int8)
y = q * s
""",
    "walrus": """
import torch
q = torch.round(x / (s := x.abs().max() / 127)).clamp(-128, 127).to(torch.int8)
y = q * s
""",
}

LOOPS = {  # element by element, in loops
    "append int": """
import numpy as np
def to_fixed(values, bits):
    factor = 2 ** (bits - 1)
    result = []
    for v in values:
        result.append(int(v * factor))  #! toward_zero
    return np.array(result)
""",
    "cells if": """
import torch
s = x.abs().max() / 127
q = torch.zeros_like(x)
for i in range(x.shape[0]):
    for j in range(x.shape[1]):
        v = round(float(x[i, j] / s))
        if v > 127:
            v = 127
        elif v < -128:
            v = -128
        q[i, j] = v
x_hat = q * s
""",
    "cells if wrong divisor": """
import torch
s = x.abs().max() / 255  #! divisor
q = torch.zeros_like(x)
for i in range(x.shape[0]):
    for j in range(x.shape[1]):
        v = round(float(x[i, j] / s))
        if v > 127:
            v = 127
        if v < -128:
            v = -128
        q[i, j] = v
x_hat = q * s
""",
    "comprehension": """
import numpy as np
def quantize(values):
    scale = max(abs(v) for v in values) / 127
    return [max(-128, min(127, round(v / scale))) for v in values], scale
""",
    "comprehension asym": """
def quantize(values):
    lo, hi = min(values), max(values)
    scale = (hi - lo) / 255  #! zero_point_left_out
    codes = [max(0, min(255, int(round(v / scale)))) for v in values]
    return codes, scale
""",
    "running max": """
import numpy as np
m = 0.0
for v in x.flatten():
    if abs(v) > m:
        m = abs(v)
scale = m / 127
q = np.zeros(x.size, dtype=np.int8)
flat = x.flatten()
for i in range(len(flat)):
    q[i] = np.clip(np.round(flat[i] / scale), -128, 127)
q = q.reshape(x.shape)
""",
    "rows scale each nested": """
import numpy as np
q = np.zeros_like(w)
scales = np.zeros(w.shape[0])
for i in range(w.shape[0]):
    m = 0
    for j in range(w.shape[1]):
        m = max(m, abs(w[i, j]))
    scales[i] = m / 7
    for j in range(w.shape[1]):
        q[i, j] = np.floor(w[i, j] / scales[i])  #! toward_zero
        q[i, j] = min(max(q[i, j], -8), 7)
""",
    "helper with returns": """
def clamp(v, lo, hi):
    if v < lo:
        return lo
    if v > hi:
        return hi
    return v

def quantize_value(v, scale, zp):
    q = round(v / scale) + zp
    return clamp(q, 0, 255)

def quantize(data):
    lo, hi = float(data.min()), float(data.max())
    scale = (hi - lo) / 255
    zp = round(-lo / scale)
    out = []
    for v in data.flatten().tolist():
        out.append(quantize_value(v, scale, zp))
    return torch.tensor(out).reshape(data.shape), scale, zp

def dequantize(q, scale, zp):
    return (q - zp) * scale

q, s, z = quantize(x)
y = dequantize(q, s, z)
""",
    "half away by sign": """
import numpy as np
scale = np.abs(x).max() / 127
q = np.empty(x.shape, dtype=np.int8)
for idx, v in np.ndenumerate(x):
    t = v / scale
    if t >= 0:
        q[idx] = int(t + 0.5)
    else:
        q[idx] = int(t - 0.5)
""",
    "while": """
import numpy as np
scale = np.max(np.abs(x)) / 127
flat = x.ravel()
out = []
i = 0
while i < len(flat):
    c = int(np.rint(flat[i] / scale))
    c = 127 if c > 127 else (-128 if c < -128 else c)
    out.append(c)
    i += 1
q = np.array(out, dtype=np.int8).reshape(x.shape)
""",
    "groups": """
import torch
flat = w.flatten()
q = torch.zeros_like(flat, dtype=torch.int8)
scales = []
for i in range(0, len(flat), 32):
    block = flat[i:i + 32]
    s = block.abs().max() / 7
    q[i:i + 32] = torch.round(block / s).clamp(-8, 7).to(torch.int8)
    scales.append(s)
""",
    "columns": """
import torch
q = torch.zeros_like(w)
for j in range(w.shape[1]):
    s = w[:, j].abs().max() / 255  #! divisor
    q[:, j] = torch.round(w[:, j] / s).clamp(-128, 127)
""",
    "4d cells": """
import numpy as np
n, c, h, ww = img.shape
scale = np.abs(img).max() / 127
out = np.zeros_like(img)
for a in range(n):
    for b in range(c):
        for i in range(h):
            for j in range(ww):
                out[a, b, i, j] = int(img[a, b, i, j] / scale)  #! toward_zero
""",
    "dequantize loop plus": """
def quantize(values):
    lo, hi = min(values), max(values)
    s = (hi - lo) / 255
    z = round(-lo / s)
    q = [min(255, max(0, round(v / s) + z)) for v in values]
    return q, s, z
def dequantize(q, s, z):
    out = []
    for c in q:
        out.append((c + z) * s)  #! zero_point_added
    return out
q, s, z = quantize(data)
y = dequantize(q, s, z)
""",
    "row comprehension": """
import torch
rows = [torch.round(r / (r.abs().max() / 127)).clamp(-128, 127) for r in w]
q = torch.stack(rows)
""",
    "python lists 2d": """
matrix = [[0.1, -2.3, 1.7], [0.9, 1.2, -0.4]]
amax = max(abs(v) for row in matrix for v in row)
scale = amax / 127
q = [[int(round(v / scale)) for v in row] for row in matrix]
back = [[c * scale for c in row] for row in q]
""",
    "cells of an integer tensor": """
import torch
s = float(x.abs().max()) / 127
q = torch.zeros(x.shape, dtype=torch.int8)
for i in range(x.shape[0]):
    for j in range(x.shape[1]):
        q[i, j] = int(x[i, j] / s)  #! toward_zero
""",
    "scale by the largest of a block": """
import numpy as np
def quantize(x):
    out = []
    for b in x.reshape(-1, 32):
        largest = b[np.argmax(np.abs(b))]
        d = largest / -8
        inverse = 1.0 / d if d else 0.0
        codes = np.minimum(15, (b * inverse + 8.5).astype(np.uint8))
        out.append((codes.astype(np.float32) - 8) * d)
    return np.concatenate(out)
y = quantize(x)
""",
    "sizes one by one": """
import torch
w = x.reshape(-1, 4, 4)
q = torch.empty_like(w)
for c in range(w.shape[0]):
    s = w[c].abs().max() / 127
    for i in range(w.shape[1]):
        for j in range(w.shape[2]):
            q[c, i, j] = torch.clamp(torch.round(w[c, i, j] / s), -127, 127)
""",
    "map": """
values = x.flatten().tolist()
s = max(map(abs, values)) / 127
q = list(map(lambda v: int(round(v / s)), values))
""",
    "vectorize": """
import numpy as np
s = np.abs(x).max() / 127
def code(v):
    return max(-127, min(127, round(v / s)))
q = np.vectorize(code)(x)
""",
    "continue": """
import numpy as np
scale = np.abs(x).max() / 7
q = np.zeros(x.shape, np.int8)
for i in range(x.shape[0]):
    for j in range(x.shape[1]):
        r = np.round(x[i][j] / scale)
        if r < -8:
            q[i][j] = -8
            continue
        q[i][j] = min(r, 7)
""",
}

SMALL_CALLS = {  # what torch and NumPy have besides
    "full_like": """
import torch
s = x.abs().max() / 127
q = torch.clamp(torch.round(x / torch.full_like(x, s.item())), -128, 127).to(torch.int8)
y = q.float() * s
""",
    "new_zeros": """
import torch
s = x.abs().max() / 127
z = x.new_zeros(1)
q = torch.clamp(torch.round(x / s + z), -128, 127).to(torch.int8)
y = q.float() * s
""",
    "new_full": """
import torch
s = x.new_full((1,), 0.05)
q = torch.clamp(torch.round(x / s), -128, 127).to(torch.int8)
y = q * s
""",
    "new_tensor": """
import torch
s = x.new_tensor(0.05)
q = torch.clamp(torch.round(x / s), -128, 127).to(torch.int8)
y = q * s
""",
    "np.int8()": """
import numpy as np
s = np.abs(x).max() / 127
q = np.int8(np.round(x / s))
y = np.float32(q) * s
""",
    "np.float32()": """
import numpy as np
s = np.float32(np.abs(x).max() / 127.0)
q = np.clip(np.rint(x / s), -127, 127).astype('int8')
y = q.astype(np.float32) * s
""",
    "np.full_like": """
import numpy as np
s = np.full_like(x, np.abs(x).max() / 127)
q = np.clip(np.round(x / s), -128, 127).astype(np.int8)
y = q * s
""",
    "reshape_as": """
import torch
g = x.reshape(-1, 16)
s = g.abs().max(dim=-1, keepdim=True)[0] / 7
q = torch.clamp(torch.round(g / s), min=-8, max=7).to(torch.int8)
y = (q.to(g.dtype) * s).reshape_as(x)
""",
    "sort kth": """
import torch
k = int(0.999 * x.numel())
s = x.abs().flatten().kthvalue(k).values / 127
q = torch.clamp((x / s).round(), -127, 127).to(torch.int8)
y = q * s
""",
    "div mode": """
import torch
s = x.abs().max() / 127
q = torch.div(x, s, rounding_mode='floor').clamp(-127, 127).to(torch.int8)  #! toward_zero
y = q * s
""",
    "mse metrics": """
import torch
s = x.abs().max() / 127
q = (x / s).round().clamp(-127, 127).to(torch.int8)
y = q * s
mse = torch.nn.functional.mse_loss(y, x)
snr = 10 * torch.log10((x ** 2).mean() / mse)
cos = torch.nn.functional.cosine_similarity(x.flatten(), y.flatten(), dim=0)
""",
}


LIBRARIES = {  # calls of libraries that quantize
    "per tensor asym zp0": """
hi, lo = torch.max(w.flatten()), torch.min(w.flatten())
step = (hi - lo) / 256
q = torch.quantize_per_tensor(w, scale=step.item(), zero_point=0, dtype=torch.qint8)  #! zero_point_left_out
back = q.dequantize()
""",
    "per tensor right": """
s = x.abs().max() / 127
q = torch.quantize_per_tensor(x, float(s), 0, torch.qint8)
ints = q.int_repr()
""",
    "per tensor wrong divisor": """
s = (x.abs().max() / 255).item()  #! divisor
q = torch.quantize_per_tensor(x, s, 0, torch.qint8)
y = torch.dequantize(q)
""",
    "per tensor quint8 sym": """
s = float(x.abs().max()) / 127
q = torch.quantize_per_tensor(x, s, 0, torch.quint8)  #! middle_left_out
""",
    "per channel": """
s = w.abs().amax(dim=1) / 127
q = torch.quantize_per_channel(w, s, torch.zeros(w.shape[0], dtype=torch.int64), 0, torch.qint8)
y = q.dequantize()
""",
    "per channel 255": """
s = w.abs().amax(dim=1) / 255
z = torch.zeros(w.shape[0], dtype=torch.long)
q = torch.quantize_per_channel(w, scales=s, zero_points=z, axis=0, dtype=torch.qint8)  #! divisor
""",
    "fake per tensor": """
s = (x.max() - x.min()) / 255
z = torch.round(-x.min() / s).int()
y = torch.fake_quantize_per_tensor_affine(x, s, z, 0, 255)
""",
    "fake per tensor wrong range": """
s = (x.max() - x.min()) / 255
z = torch.round(-x.min() / s).int()
y = torch.fake_quantize_per_tensor_affine(x, s.item(), int(z), -128, 127)  #! zero_point_range
""",
    "fake per channel": """
s = w.abs().amax(dim=1) / 127
y = torch.fake_quantize_per_channel_affine(w, s, torch.zeros_like(s, dtype=torch.int32), 0, -128, 127)
""",
    "decomposed": """
s = x.abs().max() / 127
q = torch.ops.quantized_decomposed.quantize_per_tensor(x, s.item(), 0, -128, 127, torch.int8)
y = torch.ops.quantized_decomposed.dequantize_per_tensor(q, s.item(), 0, -128, 127, torch.int8)
""",
    "torchao": """
from torchao.quantization.quant_primitives import MappingType, choose_qparams_affine
from torchao.quantization.quant_primitives import dequantize_affine, quantize_affine
scale, zp = choose_qparams_affine(x, MappingType.SYMMETRIC, (1, x.shape[1]), torch.int8)
q = quantize_affine(x, (1, x.shape[1]), scale, zp, torch.int8)
y = dequantize_affine(q, (1, x.shape[1]), scale, zp, torch.int8)
""",
    "torchao wrong scale": """
from torchao.quantization.quant_primitives import quantize_affine
scale = x.abs().amax(dim=1, keepdim=True) / 255
zp = torch.zeros_like(scale, dtype=torch.int32)
q = quantize_affine(x, (1, x.shape[1]), scale, zp, torch.int8, -128, 127)  #! divisor
""",
    "observer": """
from torch.ao.quantization import MinMaxObserver
obs = MinMaxObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
obs(x)
scale, zp = obs.calculate_qparams()
q = torch.quantize_per_tensor(x, scale.item(), zp.item(), torch.qint8)
""",
    "bnb int8": """
import bitsandbytes as bnb
q, stats, _ = bnb.functional.int8_vectorwise_quant(w)
y = q * stats[:, None] / 127
""",
    "ort": """
from onnxruntime.quantization.quant_utils import compute_scale_zp, quantize_nparray
import numpy as np
zp, scale = compute_scale_zp(x.min(), x.max(), 0, 255, False)
q = quantize_nparray(2, x, scale, zp)
""",
    "bnb4": """
import bitsandbytes as bnb
import bitsandbytes.functional as F
q, state = F.quantize_4bit(x, blocksize=64, quant_type='nf4')
y = F.dequantize_4bit(q, state)
""",
    "bnb nf4": """
import bitsandbytes as bnb
q, st = bnb.functional.quantize_nf4(x, blocksize=128)
y = bnb.functional.dequantize_nf4(q, quant_state=st)
""",
    "bnb fp4": """
import bitsandbytes as bnb
q, st = bnb.functional.quantize_fp4(x)
y = bnb.functional.dequantize_fp4(q, st)
""",
    "bnb blockwise": """
import bitsandbytes.functional as F
q, st = F.quantize_blockwise(x)
y = F.dequantize_blockwise(q, st)
""",
    "per_channel kw": """
import torch
scales = x.abs().amax(dim=1) / 127
zero_points = torch.zeros_like(scales)
q = torch.quantize_per_channel(input=x, scales=scales, zero_points=zero_points, axis=0, dtype=torch.qint8)
q_int = q.int_repr()
y = q.dequantize()
""",
    "dynamic": """
import torch
q = torch.quantize_per_tensor_dynamic(x, torch.qint8, False)
y = q.dequantize()
""",
    "nn.quantized": """
import torch
quant = torch.ao.nn.quantized.Quantize(0.05, 0, torch.qint8)
q = quant(x)
y = q.dequantize()
""",
    "observer item": """
import torch
obs = torch.ao.quantization.MinMaxObserver()
obs(x)
scale, zero_point = obs.calculate_qparams()
q = torch.quantize_per_tensor(x, scale.item(), zero_point.item(), torch.quint8)
y = torch.dequantize(q)
""",
    "fake_quant mod": """
import torch
from torch.ao.quantization import FakeQuantize, MinMaxObserver
fq = FakeQuantize(observer=MinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8)
y = fq(x)
""",
    "hqq": """
from hqq.core.quantize import Quantizer
w_q, meta = Quantizer.quantize(w, nbits=4, channel_wise=True, group_size=64, axis=1, device='cpu')
y = Quantizer.dequantize(w_q, meta)
""",
    "hqq linear": """
from torch import nn
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
linear = nn.Linear(128, 64, bias=False)
config = BaseQuantizeConfig(nbits=4, group_size=64)
layer = HQQLinear(linear, quant_config=config, compute_dtype=torch.float32, device='cpu')
weight = layer.dequantize()
""",
    "quanto int8": """
from optimum.quanto import AbsmaxOptimizer, qint8, quantize_weight
scale = AbsmaxOptimizer()(w, qtype=qint8, axis=0)
w_q = quantize_weight(w, qtype=qint8, axis=0, scale=scale)
y = w_q.dequantize()
""",
    "quanto wrong divisor": """
from optimum.quanto import WeightQBytesTensor, qint8
scale = w.abs().amax(dim=1, keepdim=True) / 255  #! divisor
w_q = WeightQBytesTensor.quantize(w, qint8, 0, scale)
""",
    "quanto model": """
import torch
from optimum.quanto import freeze, qint8, quantize
model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU())
quantize(model, weights=qint8)
freeze(model)
weight = model[0].weight.dequantize()
""",
    "torchao model": """
import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_
model = torch.nn.Sequential(torch.nn.Linear(64, 32))
quantize_(model, Int8WeightOnlyConfig())
weight = model[0].weight.dequantize()
""",
    "bnb short block": """
import torch
import bitsandbytes.functional as F
w = torch.randn(3, 50)
q, state = F.quantize_4bit(w, blocksize=64, quant_type='nf4')
y = F.dequantize_4bit(q, state)
""",
    "moving average": """
import torch
from torch.ao.quantization import MovingAverageMinMaxObserver
obs = MovingAverageMinMaxObserver(averaging_constant=0.1, dtype=torch.qint8)
obs(x)
obs(x * 2)
scale, zero_point = obs.calculate_qparams()
q = torch.quantize_per_tensor(x, scale.item(), zero_point.item(), torch.qint8)
y = q.dequantize()
""",
    "addcdiv": """
s = (x.max() - x.min()) / 255
z = torch.round(-x.min() / s)
q = torch.clamp(torch.round(torch.addcdiv(z, x, s)), 0, 255).to(torch.uint8)
y = torch.addcmul(-z * s, q.float(), s)
""",
    "lerp": """
low, high = x.min(), x.max()
s = (high - low) / 255
q = ((x - low) / s).round().clamp(0, 255)
y = torch.lerp(low, high, q / 255)
""",
    "tensorflow": """
import tensorflow as tf
s = tf.reduce_max(tf.abs(x)) / 255.0  #! divisor
q = tf.cast(tf.clip_by_value(tf.round(x / s), -128, 127), tf.int8)
y = tf.cast(q, tf.float32) * s
""",
    "jax": """
import jax.numpy as jnp
s = jnp.max(jnp.abs(x)) / 127.0
q = jnp.clip(jnp.round(x / s), -127, 127).astype(jnp.int8)
y = q.astype(jnp.float32) * s
""",
    "scales quantized in turn": """
import torch
w = x.reshape(-1, 64)
s = w.abs().amax(1, keepdim=True) / 127
q = torch.round(w / s).clamp(-127, 127).to(torch.int8)
s2 = s.max() / 255
qs = torch.round(s / s2).clamp(0, 255).to(torch.uint8)
y = q.float() * (qs.float() * s2)
""",
    "codes of scales for scales": """
import torch
w = x.reshape(-1, 64)
s = w.abs().amax(1, keepdim=True) / 127
q = torch.round(w / s).clamp(-127, 127).to(torch.int8)
s2 = s.max() / 255
qs = torch.round(s / s2).clamp(0, 255).to(torch.uint8)
y = q.float() * qs.float()  #! not_undone
""",
    "bnb nested": """
import bitsandbytes.functional as F
q, state = F.quantize_4bit(x, compress_statistics=True, quant_type='nf4')
y = F.dequantize_4bit(q, state)
""",
    "parameters of a model": """
import torch
with torch.no_grad():
    for name, p in model.named_parameters():
        if "weight" in name and not name.endswith("bias"):
            s = p.abs().amax(dim=1, keepdim=True) / 127
            p.copy_((p / s).round().clamp(-127, 127) * s)
""",
    "state dict of a model": """
import torch
out = {}
for name, p in model.state_dict().items():
    s = p.abs().max() / 255  #! divisor
    out[name] = (p / s).round().clamp(-128, 127).to(torch.int8)
""",
    "layers of a model": """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
for name, layer in model.named_modules():
    if isinstance(layer, nn.Linear):
        w = layer.weight.data
        s = w.abs().amax(dim=1, keepdim=True) / 255  #! divisor
        layer.weight.data = torch.round(w / s).clamp(-128, 127) * s
""",
    "ort data": """
import numpy as np
from onnxruntime.quantization.quant_utils import quantize_data
zp, scale, q = quantize_data(x, 3, False)
""",
}


LEVELS = {  # codes that are places in a table, and 8-bit floats
    "argmin": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
q = (x.unsqueeze(-1) / s - table).abs().argmin(dim=-1)
y = table[q] * s
""",
    "argmin two lines": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
n = x / s
d = torch.abs(n[..., None] - table)
q = torch.argmin(d, dim=-1).to(torch.uint8)
y = table[q.long()] * s
""",
    "argmin squared": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
n = x / s
q = ((n.unsqueeze(-1) - table) ** 2).argmin(-1)
y = table[q] * s
""",
    "argmin view": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().amax(dim=-1, keepdim=True)
n = x / s
q = (n.reshape(-1, 1) - table.reshape(1, -1)).abs().argmin(dim=1).reshape(x.shape)
y = table[q] * s
""",
    "argmin table first": """
import numpy as np
table = np.array([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = np.abs(x).max()
q = np.abs(table - (x / s)[..., np.newaxis]).argmin(axis=-1)
y = table[q] * s
""",
    "np.argmin": """
import numpy as np
table = np.array([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = np.max(np.abs(x))
n = x / s
q = np.argmin(np.abs(n[..., None] - table[None, None, :]), axis=-1)
y = table[q] * s
""",
    "digitize mid": """
import numpy as np
table = np.array([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = np.abs(x).max()
mid = (table[1:] + table[:-1]) / 2
q = np.digitize(x / s, mid)
y = table[q] * s
""",
    "bucketize mid": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
mid = (table[1:] + table[:-1]) / 2
q = torch.bucketize(x / s, mid)
y = table[q] * s
""",
    "searchsorted": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
mid = (table[1:] + table[:-1]) / 2
q = torch.searchsorted(mid, x / s)
y = table[q] * s
""",
    "np.searchsorted": """
import numpy as np
table = np.array([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = np.abs(x).max()
mid = 0.5 * (table[1:] + table[:-1])
q = np.searchsorted(mid, x / s)
y = table[q] * s
""",
    "take": """
import numpy as np
table = np.array([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = np.abs(x).max()
mid = 0.5 * (table[1:] + table[:-1])
q = np.searchsorted(mid, x / s)
y = np.take(table, q) * s
""",
    "blocks of 64": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
b = x.reshape(-1, 64)
s = b.abs().max(dim=1, keepdim=True).values
q = (b.unsqueeze(-1) / s.unsqueeze(-1) - table).abs().argmin(-1)
y = (table[q] * s).reshape(x.shape)
""",
    "function": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
def quantize(x):
    s = x.abs().max()
    q = (x.unsqueeze(-1) / s - table).abs().argmin(dim=-1)
    return q, s
def dequantize(q, s):
    return table[q] * s
""",
    "min indices": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
q = (x.unsqueeze(-1) / s - table).abs().min(dim=-1).indices
y = table[q] * s
""",
    "list table": """
import torch
levels = [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]
levels = torch.tensor(levels)
s = x.abs().max() / 6
q = (x[..., None] / s - levels).abs().argmin(-1)
y = levels[q] * s
""",
    "loop": """
import numpy as np
table = np.array([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = np.abs(x).max()
q = np.zeros(x.shape, dtype=np.int64)
for i in range(x.shape[0]):
    for j in range(x.shape[1]):
        q[i, j] = np.argmin(np.abs(table - x[i, j] / s))
y = table[q] * s
""",
    "linspace": """
import torch
levels = torch.linspace(-1, 1, 15)
s = x.abs().max()
q = (x[..., None] / s - levels).abs().argmin(-1)
y = levels[q] * s
""",
    "levels times scale": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
q = (x[..., None] - table * s).abs().argmin(-1)
y = (table * s)[q]
""",
    "bucketize table": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
q = torch.bucketize(x / s, table)  #! not_nearest
y = table[q.clamp(max=15)] * s
""",
    "no scale back": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
q = (x.unsqueeze(-1) / s - table).abs().argmin(dim=-1)
y = table[q] / s  #! multiplied
""",
    "no abs": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.max()  #! absolute_value
q = (x.unsqueeze(-1) / s - table).abs().argmin(dim=-1)
y = table[q] * s
""",
    "e2m1 without 6": """
import torch
levels = torch.tensor([-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6])
s = x.abs().max()
q = (x[..., None] / s - levels).abs().argmin(-1)
y = levels[q] * s
""",
    "divided by 7": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max() / 7  #! divisor
q = (x.unsqueeze(-1) / s - table).abs().argmin(dim=-1)
y = table[q] * s
""",
    "shifted": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
q = (x.unsqueeze(-1) / s - table).abs().argmin(dim=-1) - 1
y = table[q] * s  #! other_values
""",
    "other table": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
q = (x.unsqueeze(-1) / s - table).abs().argmin(dim=-1)
y = torch.linspace(-1, 1, 16)[q] * s  #! other_values
""",
    "codes scaled": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
q = (x.unsqueeze(-1) / s - table).abs().argmin(dim=-1)
y = q * s  #! other_values
""",
    "fp8": """
import torch
s = x.abs().max() / 448
q = (x / s).to(torch.float8_e4m3fn)
y = q.to(torch.float32) * s
""",
    "fp8 clamp": """
import torch
s = x.abs().max() / 448.0
q = (x / s).clamp(-448, 448).to(torch.float8_e4m3fn)
y = q.float() * s
""",
    "fp8 finfo": """
import torch
f = torch.finfo(torch.float8_e4m3fn)
s = x.abs().amax(dim=-1, keepdim=True) / f.max
q = (x / s).clamp(min=f.min, max=f.max).to(torch.float8_e4m3fn)
y = q.to(x.dtype) * s
""",
    "fp8 inverse": """
import torch
f = torch.finfo(torch.float8_e4m3fn)
scale = f.max / x.abs().max().clamp(min=1e-12)
q = (x * scale).clamp(f.min, f.max).to(torch.float8_e4m3fn)
inv = scale.reciprocal()
y = q.to(torch.float32) * inv
""",
    "fp8 e5m2": """
import torch
s = x.abs().max() / 57344
q = (x / s).to(torch.float8_e5m2)
y = q.float() * s
""",
    "fp8 fn": """
import torch
def to_fp8(x):
    amax = x.abs().max()
    scale = 448.0 / amax
    return (x * scale).to(torch.float8_e4m3fn), scale
def from_fp8(q, scale):
    return q.float() / scale
""",
    "fp8 back wrong": """
import torch
s = x.abs().max() / 448
q = (x / s).to(torch.float8_e4m3fn)
y = q.float() / s  #! multiplied
""",
    "fp8 clamped too small": """
import torch
s = x.abs().max() / 57344  #! divisor
q = (x / s).clamp(-448, 448).to(torch.float8_e4m3fn)
y = q.float() * s
""",
    "fp8 unused": """
import torch
s = x.abs().max() / 127
q = (x / s).clamp(-448, 448).to(torch.float8_e4m3fn)
y = q.float() * s
""",
    "fp8 multiplied": """
import torch
s = x.abs().max() / 448
q = (x * s).clamp(-448, 448).to(torch.float8_e4m3fn)  #! multiplied
y = q.float() * s
""",
    "fp8 no abs": """
import torch
s = x.max() / 448  #! absolute_value
q = (x / s).clamp(-448, 448).to(torch.float8_e4m3fn)
y = q.float() * s
""",
    "fp8 back inverse": """
import torch
scale = 448 / x.abs().max()
q = (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn)
y = q.float() * scale  #! multiplied
""",
    "class": """
import torch
class NF4:
    LEVELS = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
    def __init__(self, block=64):
        self.block = block
    def quantize(self, x):
        b = x.reshape(-1, self.block)
        absmax = b.abs().amax(dim=1, keepdim=True).clamp(min=1e-8)
        d = (b / absmax).unsqueeze(-1) - self.LEVELS
        return d.abs().argmin(dim=-1).to(torch.uint8), absmax
    def dequantize(self, q, absmax, shape):
        return (self.LEVELS[q.long()] * absmax).reshape(shape)
n = NF4()
q, a = n.quantize(x)
y = n.dequantize(q, a, x.shape)
""",
    "sign magnitude": """
import torch
levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
s = x.abs().max() / 6
q = (x.abs().unsqueeze(-1) / s - levels).abs().argmin(-1)
y = torch.sign(x) * levels[q] * s
""",
    "asymmetric": """
import torch
levels = torch.linspace(0, 1, 16)
lo, hi = x.min(), x.max()
u = (x - lo) / (hi - lo)
q = (u.unsqueeze(-1) - levels).abs().argmin(-1)
y = levels[q] * (hi - lo) + lo
""",
    "index_select": """
import torch
table = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.39491749,
    -0.28444138, -0.18477343, -0.09105004,
    0.0, 0.0795803, 0.1609302, 0.2461123,
    0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])
s = x.abs().max()
q = (x.reshape(-1, 1) / s - table).abs().argmin(1)
y = (torch.index_select(table, 0, q) * s).reshape(x.shape)
""",
    "sorted table": """
import torch
table, _ = torch.sort(torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6]))
s = x.abs().max() / 6
q = torch.bucketize(x / s, (table[1:] + table[:-1]) / 2)
y = table[q] * s
""",
    "fp8 groups": """
import torch
g = x.reshape(-1, 16)
s = g.abs().amax(-1, keepdim=True) / 448
q = (g / s).clamp(-448, 448).to(torch.float8_e4m3fn)
y = (q.float() * s).reshape(x.shape)
""",
    "fp8 bytes": """
import torch
s = x.abs().max() / 448
q = (x / s).clamp(-448, 448).to(torch.float8_e4m3fn)
b = q.view(torch.uint8)
y = b.view(torch.float8_e4m3fn).float() * s
""",
    "fp8 typed": """
import torch
s = x.abs().max() / 448
q = (x / s).clamp(-448, 448).type(torch.float8_e4m3fn)
y = q.to(torch.bfloat16) * s
""",
    "fp8 scale e8m0": """
import torch
s = 2 ** torch.ceil(torch.log2(x.abs().max() / 448))
q = (x / s).to(torch.float8_e4m3fn)
y = q.float() * s
""",
    "unsorted bucketize": """
import torch
table = torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6])
s = x.abs().max() / 6
q = torch.bucketize(x / s, (table[1:] + table[:-1]) / 2)  #! not_nearest
y = table[q] * s
""",
    "asym no min back": """
import torch
levels = torch.linspace(0, 1, 16)
lo, hi = x.min(), x.max()
u = (x - lo) / (hi - lo)
q = (u.unsqueeze(-1) - levels).abs().argmin(-1)
y = levels[q] * (hi - lo)  #! not_undone
""",
    "lut of int codes": """
import torch
s = x.abs().max() / 127
q = torch.round(x / s).clamp(-127, 127).to(torch.int8)
lut = torch.arange(-127, 128) * s
y = lut[q.long() + 127]
""",
}

TYPES = {  # types that NumPy lacks, powers of two as scales, learned tables, and tensors of the code's own
    "ml_dtypes e4m3": """
import numpy as np, ml_dtypes
s = np.abs(x).max() / float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max)
q = (x / s).astype(ml_dtypes.float8_e4m3fn)
y = q.astype(np.float32) * s
""",
    "ml_dtypes e4m3 beyond": """
import numpy as np
from ml_dtypes import float8_e4m3fn
s = np.abs(x).max() / 512
codes = (x / s).astype(float8_e4m3fn)  #! wrapped
values = codes.astype(np.float32) * s
""",
    "ml_dtypes int4": """
import numpy as np
import ml_dtypes
s = np.abs(x).max() / 7
q = np.clip(np.round(x / s), -8, 7).astype(ml_dtypes.int4)
y = q.astype(np.float32) * s
""",
    "ml_dtypes int4 beyond": """
import numpy as np
import ml_dtypes
s = np.abs(x).max() / 8  #! divisor
q = np.round(x / s).astype(ml_dtypes.int4)  #! wrapped
y = q.astype(np.float32) * s
""",
    "ml_dtypes scale": """
import numpy as np
import ml_dtypes
s = (np.abs(x).max(axis=1, keepdims=True) / 127).astype(ml_dtypes.bfloat16)
q = np.clip(np.round(x / s.astype(np.float32)), -127, 127).astype(np.int8)
y = q.astype(np.float32) * s.astype(np.float32)
""",
    "ml_dtypes e2m1": """
import numpy as np
import ml_dtypes
s = np.abs(x).max(axis=1, keepdims=True) / 6
q = (x / s).astype(ml_dtypes.float4_e2m1fn)
y = q.astype(np.float32) * s
""",
    "learnable": """
import torch
s = (x.max() - x.min()).reshape(1) / 255
z = torch.round(-x.min() / s) + 0.3
y = torch._fake_quantize_learnable_per_tensor_affine(x, s, z, 0, 255, 1.0)
""",
    "learnable channels": """
import torch
s = x.abs().amax(dim=1) / 127
y = torch._fake_quantize_learnable_per_channel_affine(x, s, torch.zeros_like(s), 0, -128, 127, 1.0)
""",
    "learnable without a zero point": """
import torch
s = (x.max() - x.min()).reshape(1) / 255
y = torch._fake_quantize_learnable_per_tensor_affine(x, s, torch.zeros(1), 0, 255)  #! zero_point_left_out
""",
    "mx e4m3": """
import torch
blocks = x.reshape(-1, 8)
e = torch.floor(torch.log2(blocks.abs().amax(dim=1, keepdim=True))) - 8
s = 2.0 ** e
q = (blocks / s).clamp(-448, 448).to(torch.float8_e4m3fn)
y = (q.float() * s).reshape(x.shape)
""",
    "mx e2m1 too small": """
import numpy as np
blocks = x.reshape(-1, 8)
m, e = np.frexp(np.abs(blocks).max(axis=1, keepdims=True))
s = np.ldexp(1.0, e - 4)  #! divisor
table = np.array([-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6])
q = np.abs((blocks / s)[..., None] - table).argmin(-1)
y = (table[q] * s).reshape(x.shape)
""",
    "k-means": """
import torch
v = x.flatten()
table = torch.linspace(v.min().item(), v.max().item(), 4)
for step in range(2):
    q = (v.unsqueeze(1) - table.unsqueeze(0)).abs().argmin(dim=1)
    table = torch.stack([v[q == k].mean() for k in range(4)])
q = (v.unsqueeze(1) - table.unsqueeze(0)).abs().argmin(dim=1)
y = table[q].reshape(x.shape)
""",
    "k-means, searched": """
import torch
v = x.flatten()
table = torch.linspace(v.min().item(), v.max().item(), 4)
q = (v.unsqueeze(1) - table.unsqueeze(0)).abs().argmin(dim=1)
table = torch.stack([v[q == k].mean() for k in range(4)])
q = torch.bucketize(v, table).clamp(max=3)  #! not_nearest
y = table[q].reshape(x.shape)
""",
    "uniform, floor": """
import numpy as np
data = np.random.default_rng(0).uniform(-1, 3, (6, 7))
span = data.max() - data.min()
codes = np.floor((data - data.min()) / (span / 256)).astype(np.uint8)  #! divisor  #! toward_zero  #! wrapped
""",
    "even numbers": """
import torch
x = torch.linspace(-1, 1, 11)
s = x.abs().max() / 127
codes = torch.round(x / s).to(torch.int8)
""",
    "uniform in place": """
import torch
w = torch.empty(4, 8).uniform_(-1, 1)
s = w.abs().max() / 100
codes = torch.round(w / s).to(torch.int8)
""",
    "DoReFa": """
import torch
u = torch.tanh(x)
u = u / (2 * u.abs().max()) + 0.5
q = torch.round(u * 3)
y = 2 * (q / 3) - 1
""",
    "split into blocks": """
import torch
table = torch.tensor([-1.0, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9, 1.2])
parts = []
for part in x.flatten().split(16):
    s = part.abs().max()
    code = ((part / s).unsqueeze(1) - table).abs().argmin(1)
    parts.append(table[code] * s)
y = torch.cat(parts).reshape(x.shape)
""",
    "mapped with a scale": """
import numpy as np
code = np.vectorize(lambda v, s: max(-128, min(127, int(round(v / s)))))
s = np.abs(x).max() / 127
q = code(x, s)
""",
    "signs lost": """
import torch
table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
s = x.abs().max() / 6
q = (x.abs().unsqueeze(-1) / s - table).abs().argmin(-1)  #! signs_lost
y = table[q] * s
""",
    "signs given back": """
import torch
table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
s = x.abs().max() / 6
q = (x.abs().unsqueeze(-1) / s - table).abs().argmin(-1)
y = torch.where(x < 0, -table[q], table[q]) * s
""",
}
