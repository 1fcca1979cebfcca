"""Quantizers as people write them: correct ones, and wrong ones with their mistakes marked.

A line with a mistake ends with ``#! kind``; the marks are removed before the code is read.
"""

RIGHT = {
    "torch symmetric": """
import torch
scale = x.abs().max() / 127
q = torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8)
x_hat = q.float() * scale
""",
    "torch symmetric, narrow, function": """
def quantize(x, bits=8):
    qmax = 2 ** (bits - 1) - 1
    scale = x.abs().max() / qmax
    q = torch.round(x / scale).clamp(-qmax, qmax).to(torch.int8)
    return q, scale

q, scale = quantize(w)
w_hat = q * scale
""",
    "torch asymmetric": """
def quantize(x):
    qmin, qmax = 0, 255
    x_min, x_max = x.min(), x.max()
    scale = (x_max - x_min) / (qmax - qmin)
    zero_point = qmin - torch.round(x_min / scale)
    q = torch.clamp(torch.round(x / scale) + zero_point, qmin, qmax).to(torch.uint8)
    return q, scale, zero_point

def dequantize(q, scale, zero_point):
    return (q.to(torch.float32) - zero_point) * scale

q, s, z = quantize(x)
x_hat = dequantize(q, s, z)
print(((x - x_hat) ** 2).mean())
""",
    "numpy symmetric": """
import numpy as np
scale = np.max(np.abs(x)) / 127.0
q = np.clip(np.round(x / scale), -127, 127).astype(np.int8)
x_hat = q.astype(np.float32) * scale
""",
    "numpy asymmetric with range that holds 0": """
import numpy as np

def quantize(x):
    lo, hi = min(x.min(), 0.0), max(x.max(), 0.0)
    scale = (hi - lo) / 255
    zp = int(np.clip(np.round(-lo / scale), 0, 255))
    q = np.clip(np.rint(x / scale) + zp, 0, 255).astype(np.uint8)
    return q, scale, zp

q, scale, zp = quantize(a)
a_hat = (q.astype(np.int32) - zp) * scale
""",
    "int4 in int8": """
scale = x.abs().amax() / 7
codes = (x / scale).round().clamp_(-8, 7).char()
x_hat = codes * scale
""",
    "uint4 asymmetric": """
bits = 4
levels = (1 << bits) - 1
scale = (w.max() - w.min()) / levels
zero = torch.round(-w.min() / scale)
q = torch.clamp(torch.round(w / scale + zero), 0, levels)
w_hat = scale * (q - zero)
""",
    "per-channel with keepdim": """
scale = w.abs().amax(dim=1, keepdim=True) / 127
q = torch.clamp(torch.round(w / scale), -127, 127).to(torch.int8)
""",
    "per-channel, max with dim and values": """
scales = w.abs().max(dim=1, keepdim=True).values / 127.
scales = scales.clamp(min=1e-8)
q = (w / scales).round().clamp(-128, 127).to(torch.int8)
w_hat = q.to(torch.float32).mul(scales)
""",
    "per-channel, unsqueezed": """
s = torch.amax(torch.abs(w), dim=1) / 127
q = torch.round(w / s.unsqueeze(1)).clamp(-128, 127).to(dtype=torch.int8)
""",
    "per-channel by a new axis, numpy": """
import numpy as np
s = np.abs(w).max(axis=1) / 127
q = np.round(w / s[:, None]).clip(-128, 127).astype("int8")
""",
    "per-column without keepdim": """
scale = x.abs().amax(dim=0) / 127
q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
""",
    "per-group": """
groups = w.reshape(-1, 32)
scale = groups.abs().amax(dim=-1, keepdim=True) / 7
q = torch.clamp(torch.round(groups / scale), -8, 7).to(torch.int8)
w_hat = (q * scale).reshape(w.shape)
""",
    "iinfo": """
def quantize(tensor, dtype=torch.int8):
    q_min, q_max = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    r_min, r_max = tensor.min().item(), tensor.max().item()
    scale = (r_max - r_min) / (q_max - q_min)
    zero_point = q_min - (r_min / scale)
    if zero_point < q_min:
        zero_point = q_min
    elif zero_point > q_max:
        zero_point = q_max
    else:
        zero_point = int(round(zero_point))
    q = torch.round(tensor / scale + zero_point).clamp(q_min, q_max).to(dtype)
    return q, scale, zero_point
""",
    "scale and zero point handed in": """
def linear_q(tensor, scale, zero_point, dtype=torch.int8):
    shifted = tensor / scale + zero_point
    rounded = torch.round(shifted)
    q_min = torch.iinfo(dtype).min
    q_max = torch.iinfo(dtype).max
    return rounded.clamp(q_min, q_max).to(dtype)

def linear_dequantization(quantized_tensor, scale, zero_point):
    return scale * (quantized_tensor.float() - zero_point)
""",
    "absmax without clamp": """
scale = x.abs().max() / 127
q = torch.round(x / scale).to(torch.int8)
x_hat = q.float() * scale
""",
    "inverse scale": """
def absmax_quantize(X):
    scale = 127 / torch.max(torch.abs(X))
    X_quant = (scale * X).round()
    X_dequant = X_quant / scale
    return X_quant.to(torch.int8), X_dequant
""",
    "zero-point quantization by an inverse scale": """
def zeropoint_quantize(X):
    x_range = torch.max(X) - torch.min(X)
    x_range = 1 if x_range == 0 else x_range
    scale = 255 / x_range
    zeropoint = (-scale * torch.min(X) - 128).round()
    X_quant = torch.clip((X * scale + zeropoint).round(), -128, 127)
    X_dequant = (X_quant - zeropoint) / scale
    return X_quant.to(torch.int8), X_dequant
""",
    "multiplied by 1 / scale": """
scale = x.abs().max() / 127
inv = 1.0 / scale
q = torch.round(x * inv).clamp(-128, 127).to(torch.int8)
x_hat = q * scale
""",
    "half range": """
scale = 2 * x.abs().max() / 255
q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
""",
    "divided by 128": """
scale = x.abs().max() / 128
q = torch.clamp(torch.round(x / scale), min=-128, max=127).to(torch.int8)
""",
    "symmetric range from both ends": """
x_min, x_max = x.min(), x.max()
bound = max(abs(x_min), abs(x_max))
scale = bound / 127
q = torch.round(x / scale).clamp(-127, 127).to(torch.int8)
""",
    "maximum of the negative minimum": """
bound = torch.maximum(-x.min(), x.max())
scale = bound / (2 ** 7 - 1)
q = (x / scale).round_().clamp_(-128, 127).to(torch.int8)
""",
    "percentile of magnitudes": """
import numpy as np
alpha = np.percentile(np.abs(x), 99.9)
scale = alpha / 127
q = np.clip(np.round(x / scale), -127, 127).astype(np.int8)
""",
    "percentiles of both ends": """
low, high = torch.quantile(x, 0.001), torch.quantile(x, 0.999)
scale = (high - low) / 255
zp = torch.round(-low / scale)
q = (torch.round(x / scale) + zp).clamp(0, 255).to(torch.uint8)
""",
    "uint8 around 128": """
scale = x.abs().max() / 127
q = (torch.round(x / scale) + 128).clamp(0, 255).to(torch.uint8)
x_hat = (q.float() - 128) * scale
""",
    "unsigned after a ReLU": """
x = torch.relu(x)
scale = x.max() / 255
q = torch.round(x / scale).clamp(0, 255).to(torch.uint8)
x_hat = q * scale
""",
    "a ReLU without a name": """
scale = torch.relu(x).max() / 255
q = torch.round(torch.relu(x) / scale).clamp(0, 255).to(torch.uint8)
x_hat = q * scale
""",
    "maximum after a ReLU": """
y = torch.nn.functional.relu(x)
scale = y.max() / 127
q = torch.clamp(torch.round(y / scale), -128, 127).to(torch.int8)
""",
    "half added, then floor": """
scale = x.abs().max() / 127
q = torch.floor(x / scale + 0.5).clamp(-128, 127).to(torch.int8)
""",
    "minimum taken off first": """
lo = x.min()
scale = (x.max() - lo) / 255
q = torch.round((x - lo) / scale).clamp(0, 255).to(torch.uint8)
x_hat = q.float() * scale + lo
""",
    "zero point multiplied out": """
scale = (x.max() - x.min()) / 255
zp = torch.round(-x.min() / scale)
q = (torch.round(x / scale) + zp).clamp(0, 255).to(torch.uint8)
x_hat = q.float() * scale - zp * scale
""",
    "AIMET's offset": """
scale = (x.max() - x.min()) / 255
offset = torch.round(x.min() / scale)
q = (torch.round(x / scale) - offset).clamp(0, 255).to(torch.uint8)
x_hat = (q.float() + offset) * scale
""",
    "zero point from the maximum": """
qmin, qmax = -128, 127
scale = (x.max() - x.min()) / (qmax - qmin)
zp = qmax - torch.round(x.max() / scale)
q = torch.clamp(torch.round(x / scale) + zp, qmin, qmax).to(torch.int8)
x_hat = (q.float() - zp) * scale
""",
    "clamped before the rounding": """
scale = x.abs().max() / 7
q = torch.round(torch.clamp(x / scale, -8, 7))
x_hat = q * scale
""",
    "clamp of the data, then no clamp of the codes": """
limit = 2.5
scale = limit / 127
y = x.clamp(-limit, limit)
q = torch.round(y / scale).to(torch.int8)
""",
    "library calls": """
import torch
scale = float((x.max() - x.min()) / 255)
zp = int(torch.round(-x.min() / scale))
q = torch.quantize_per_tensor(x, scale, zp, torch.quint8)
x_hat = q.dequantize()
""",
    "with eps and where": """
amax = w.abs().amax(dim=-1, keepdim=True)
scale = torch.where(amax == 0, 1.0, amax / 127)
scale = scale + 1e-8
q = (w / scale).round().clamp(-127, 127).to(torch.int8)
""",
    "class": """
class Quantizer:
    def __init__(self, bits=8):
        self.bits = bits
        self.qmax = 2 ** (bits - 1) - 1

    def forward(self, x):
        scale = x.abs().max() / self.qmax
        return torch.clamp(torch.round(x / scale), -self.qmax - 1, self.qmax) * scale
""",
    "loop over rows": """
scale = torch.zeros(w.shape[0])
for i in range(w.shape[0]):
    scale[i] = w[i].abs().max() / 127
q = torch.round(w / scale.view(-1, 1)).clamp(-128, 127).to(torch.int8)
""",
    "masks instead of clamp": """
def clamp(x, low, high):
    x[x < low] = low
    x[x > high] = high
    return x

scale = x.abs().max() / 127
q = clamp(torch.round(x / scale), -128, 127).to(torch.int8)
""",
    "options": """
def quantize(x, symmetric=True, bits=8):
    if symmetric:
        qmin, qmax = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        scale = x.abs().max() / qmax
        zp = 0
    else:
        qmin, qmax = 0, 2 ** bits - 1
        scale = (x.max() - x.min()) / (qmax - qmin)
        zp = torch.round(qmin - x.min() / scale)
    q = torch.clamp(torch.round(x / scale) + zp, qmin, qmax)
    return (q - zp) * scale

a = quantize(x)
b = quantize(x, symmetric=False)
c = quantize(x, False, bits=4)
""",
    "options that nobody sets": """
def quantize(x, symmetric, bits):
    if symmetric:
        qmax = 2 ** (bits - 1) - 1
        qmin = -qmax - 1
        scale = x.abs().max() / qmax
        zp = 0
    else:
        qmin, qmax = 0, 2 ** bits - 1
        scale = (x.max() - x.min()) / (qmax - qmin)
        zp = torch.round(qmin - x.min() / scale)
    q = torch.clamp(torch.round(x / scale) + zp, qmin, qmax)
    return (q - zp) * scale
""",
    "prompts": """
>>> import torch
>>> scale = x.abs().max() / 127
>>> q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
>>> q
tensor([[1, 2]], dtype=torch.int8)
""",
    "stochastic": """
scale = x.abs().max() / 127
q = torch.floor(x / scale + torch.rand_like(x)).clamp(-128, 127).to(torch.int8)
""",
    "images are divided by 255": """
img = img_tensor / 255.0
scale = img.abs().max() / 127
q = torch.round(img / scale).clamp(-128, 127).to(torch.int8)
""",
    "normalized, then counted": """
q = torch.round(x / x.abs().max() * 127).clamp(-127, 127).to(torch.int8)
""",
    "int32 on the way": """
scale = x.abs().max() / 127
q = torch.round(x / scale).int().clamp(-128, 127).to(torch.int8)
x_hat = q.int().float() * scale
""",
    "maximum and minimum as functions": """
import numpy as np
scale = np.abs(x).max() / 127
q = np.minimum(np.maximum(np.round(x / scale), -128), 127).astype(np.int8)
""",
    "clipped to a percentile of itself": """
limit = np.percentile(np.abs(x), 99)
y = np.clip(x, -limit, limit)
q = np.round(y / (limit / 127)).astype(np.int8)
""",
    "int8 read as uint8": """
s = x.abs().max() / 127
q = torch.round(x / s).clamp(-128, 127).to(torch.int8)
as_bytes = q.to(torch.uint8)
""",
    "groups with either kind of range": """
def fake_quantize(w, bits=4, size=32, asymmetric=True):
    shape = w.shape
    w = w.reshape(-1, size)
    if asymmetric:
        top, bottom = w.amax(dim=1, keepdim=True), w.amin(dim=1, keepdim=True)
        qmin, qmax = 0, 2 ** bits - 1
        s = (top - bottom).clamp(min=1e-5) / qmax
        z = (-torch.round(bottom / s)).clamp_(qmin, qmax)
    else:
        qmin, qmax = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        s = w.abs().amax(dim=1, keepdim=True).clamp(min=1e-5) / qmax
        z = 0
    w = (torch.clamp(torch.round(w / s) + z, qmin, qmax) - z) * s
    return w.reshape(shape)

a, b = fake_quantize(w), fake_quantize(w, 8, 64, asymmetric=False)
""",
    "any axis, by a loop": """
def find(t, axis):
    s = torch.empty(t.shape[axis])
    for i in range(t.shape[axis]):
        s[i] = t.select(axis, i).abs().max() / 127
    shape = [1] * t.dim()
    shape[axis] = -1
    return s.view(shape)

s = find(x, 0)
q = torch.round(x / s).clamp(-128, 127).to(torch.int8)
""",
    "integer product, corrected for the zero point": """
s = (x.max() - x.min()) / 255
z = torch.round(-x.min() / s)
q = (torch.round(x / s) + z).clamp(0, 255)
y = (q @ w) * s - z * s * w.sum(0)
""",
    "range that holds 0, zero point kept in the codes": """
import numpy as np
low, high = min(np.min(x), 0), max(np.max(x), 0)
scale = float((high - low) / 255)
if scale == 0:
    scale = 1.0
z = int(round(max(-128, min(127, -128 - low / scale))))
q = np.clip(np.round(x / scale) + z, -128, 127).astype(np.int8)
""",
    "8 bits of an image": """
image = (picture_tensor * 255).round().clamp(0, 255).to(torch.uint8)
""",
}

WRONG = {
    "no clamp after a given scale": """
scale = 0.05
q = torch.round(x / scale).to(torch.int8)  #! wrapped
""",
    "no clamp, percentile": """
scale = torch.quantile(x.abs(), 0.99) / 127
q = torch.round(x / scale).to(torch.int8)  #! wrapped
""",
    "no clamp, numpy, 4 bits in 8": """
import numpy as np
s = np.abs(x).max() / 200  #! divisor
q = np.round(x / s).astype(np.int8)  #! wrapped
""",
    "clamp of uint8, cast to int8": """
scale = (x.max() - x.min()) / 255
zp = torch.round(-x.min() / scale)
q = (torch.round(x / scale) + zp).clamp(0, 255).to(torch.int8)  #! other_format
""",
    "clamp of int8, cast to uint8": """
import numpy as np
scale = np.abs(x).max() / 127
q = np.clip(np.round(x / scale), -128, 127).astype(np.uint8)  #! other_format
""",
    "one too far": """
scale = x.abs().max() / 127
q = torch.clamp(torch.round(x / scale), -127, 128).to(torch.int8)  #! other_format
""",
    "clamp to 256": """
scale = (x.max() - x.min()) / 255
zp = torch.round(-x.min() / scale)
q = torch.clamp(torch.round(x / scale) + zp, 0, 256).to(torch.uint8)  #! other_format
""",
    "bounds by a bit width": """
bits = 8
qmin, qmax = 0, 2 ** bits - 1
scale = x.abs().max() / 127
q = torch.round(x / scale) + 128
q = torch.clamp(q, qmin, qmax)
q = q.to(torch.int8)  #! other_format
""",
    "255 with symmetric int8": """
scale = x.abs().max() / 255  #! divisor
q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
""",
    "2**bits - 1 with symmetric codes": """
def quantize(x, bits=8):
    scale = x.abs().max() / (2 ** bits - 1)  #! divisor
    return torch.clamp(torch.round(x / scale), -2 ** (bits - 1), 2 ** (bits - 1) - 1)
""",
    "127 with 4 bits": """
scale = w.abs().max() / 127  #! divisor
q = torch.clamp(torch.round(w / scale), -8, 7).to(torch.int8)
""",
    "255 with 4 bits, asymmetric": """
scale = (w.max() - w.min()) / 255  #! divisor
zp = torch.round(-w.min() / scale)
q = torch.clamp(torch.round(w / scale) + zp, 0, 15).to(torch.uint8)
""",
    "15 with int4": """
s = np.max(np.abs(w)) / 15  #! divisor
q = np.clip(np.rint(w / s), -8, 7).astype(np.int8)
""",
    "zero point left out": """
scale = (x.max() - x.min()) / 255  #! zero_point_left_out
q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
x_hat = q * scale
""",
    "zero point 0": """
scale = (x.max() - x.min()) / 255
zero_point = 0  #! zero_point_left_out
q = torch.clamp(torch.round(x / scale) + zero_point, -128, 127).to(torch.int8)
""",
    "zero point left out, per channel, numpy": """
import numpy as np
scale = (x.max(axis=1, keepdims=True) - x.min(axis=1, keepdims=True)) / 255  #! zero_point_left_out
q = np.clip(np.round(x / scale), 0, 255).astype(np.uint8)
""",
    "zero point left out, ptp": """
import numpy as np
step = np.ptp(x) / 255  #! zero_point_left_out
q = np.clip(np.round(x / step), -128, 127).astype(np.int8)
""",
    "zero point not rounded": """
scale = (x.max() - x.min()) / 255
zp = -128 - x.min() / scale
q = (torch.round(x / scale) + zp).clamp(-128, 127).to(torch.int8)  #! zero_point_not_rounded
""",
    "zero point truncated": """
scale = (x.max() - x.min()) / 255
zp = int(-x.min() / scale)  #! zero_point_not_rounded
q = torch.clamp(torch.round(x / scale) + zp, 0, 255).to(torch.uint8)
""",
    "zero point truncated, numpy": """
import numpy as np
scale = (np.max(x) - np.min(x)) / 255.0
zp = (-np.min(x) / scale).astype(np.int32)  #! zero_point_not_rounded
q = np.clip(np.round(x / scale) + zp, 0, 255).astype(np.uint8)
""",
    "wrong sign": """
qmin, qmax = 0, 255
scale = (x.max() - x.min()) / (qmax - qmin)
zp = qmin + torch.round(x.min() / scale)  #! sign_of_low
q = torch.clamp(torch.round(x / scale) + zp, qmin, qmax).to(torch.uint8)
""",
    "wrong sign by subtraction": """
scale = (x.max() - x.min()) / 255
zp = torch.round(-x.min() / scale)  #! sign_of_low
q = torch.clamp(torch.round(x / scale) - zp, 0, 255).to(torch.uint8)
""",
    "zero point of another range": """
scale = (x.max() - x.min()) / 255
zp = torch.round(-x.min() / scale)  #! zero_point_range
q = torch.clamp(torch.round(x / scale) + zp, -128, 127).to(torch.int8)
""",
    "zero point after the clamp": """
scale = (x.max() - x.min()) / 255
zp = -128 - torch.round(x.min() / scale)
q = torch.clamp(torch.round(x / scale), -128, 127)
q = (q + zp).to(torch.int8)  #! zero_point_after_clamp
""",
    "forgotten on the way back": """
scale = (x.max() - x.min()) / 255
zp = torch.round(-x.min() / scale)
q = torch.clamp(torch.round(x / scale) + zp, 0, 255).to(torch.uint8)
x_hat = q.float() * scale  #! zero_point_forgotten
""",
    "forgotten in a function": """
def quantize(x, scale, zero_point):
    return torch.clamp(torch.round(x / scale) + zero_point, 0, 255)

def dequantize(q, scale):
    return q * scale  #! zero_point_forgotten

scale = (x.max() - x.min()) / 255
z = torch.round(-x.min() / scale)
y = dequantize(quantize(x, scale, z), scale)
""",
    "the minimum forgotten": """
lo = x.min()
scale = (x.max() - lo) / 255
q = torch.round((x - lo) / scale).clamp(0, 255)
x_hat = q * scale  #! zero_point_forgotten
""",
    "added on the way back": """
import numpy as np
scale = (x.max() - x.min()) / 255
zp = np.round(-x.min() / scale)
q = np.clip(np.round(x / scale) + zp, 0, 255).astype(np.uint8)
x_hat = scale * (q.astype(np.float32) + zp)  #! zero_point_added
""",
    "128 added twice": """
scale = x.abs().max() / 127
q = (torch.round(x / scale) + 128).clamp(0, 255)
x_hat = (q + 128) * scale  #! zero_point_added
""",
    "after the scale": """
scale = (x.max() - x.min()) / 255
zp = torch.round(-x.min() / scale)
q = torch.clamp(torch.round(x / scale) + zp, 0, 255)
x_hat = q * scale - zp  #! zero_point_after_scale
""",
    "never added": """
scale = (x.max() - x.min()) / 255  #! zero_point_left_out
zp = torch.round(-x.min() / scale)
q = torch.clamp(torch.round(x / scale), 0, 255)
x_hat = (q - zp) * scale  #! zero_point_not_added
""",
    "negatives lost": """
scale = x.abs().max() / 255
q = torch.round(x / scale).clamp(0, 255).to(torch.uint8)  #! middle_left_out
""",
    "cast without rounding": """
scale = x.abs().max() / 127
q = (x / scale).to(torch.int8)  #! toward_zero
""",
    "int()": """
scale = x.abs().max() / 127
q = (x / scale).clamp(-128, 127).int()  #! toward_zero
""",
    "astype without rounding": """
import numpy as np
scale = np.abs(x).max() / 127
q = np.clip(x / scale, -127, 127).astype(np.int8)  #! toward_zero
""",
    "floor": """
scale = x.abs().max() / 127
q = torch.floor(x / scale).clamp(-128, 127).to(torch.int8)  #! toward_zero
""",
    "floor division": """
scale = x.abs().max() / 127
q = (x // scale).clamp(-128, 127).to(torch.int8)  #! toward_zero
""",
    "trunc": """
import numpy as np
q = np.trunc(x / (np.abs(x).max() / 7))  #! toward_zero
""",
    "percentile of signed values": """
import numpy as np
alpha = np.percentile(x, 99.9)  #! signed_percentile
scale = alpha / 127
q = np.clip(np.round(x / scale), -127, 127).astype(np.int8)
""",
    "quantile of signed values": """
scale = torch.quantile(x.flatten(), 0.99) / 127  #! signed_percentile
q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
""",
    "maximum of signed values": """
scale = x.max() / 127  #! absolute_value
q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
""",
    "maximum of signed values, numpy": """
import numpy as np
m = np.max(x)  #! absolute_value
s = m / (2 ** 7 - 1)
q = np.clip(np.round(x / s), -128, 127).astype(np.int8)
""",
    "channels without keepdim": """
scale = w.abs().amax(dim=1) / 127  #! other_axis
q = torch.round(w / scale).clamp(-128, 127).to(torch.int8)
""",
    "channels without keepdims, numpy": """
import numpy as np
scale = np.max(np.abs(w), axis=1) / 127  #! other_axis
q = np.clip(np.round(w / scale), -128, 127).astype(np.int8)
""",
    "max with dim, without keepdim": """
s = w.abs().max(dim=-1)[0] / 127  #! other_axis
q = (w / s).round().clamp(-128, 127).to(torch.int8)
""",
    "columns laid along rows": """
scale = w.abs().amax(dim=0) / 127  #! other_axis
q = torch.round(w / scale[:, None]).clamp(-128, 127).to(torch.int8)
""",
    "rows laid along columns": """
scale = w.abs().amax(dim=1).view(1, -1) / 127  #! other_axis
q = torch.round(w / scale).clamp(-128, 127).to(torch.int8)
""",
    "multiplied by the scale": """
scale = x.abs().max() / 127
q = torch.round(x * scale).clamp(-128, 127).to(torch.int8)  #! multiplied
""",
    "multiplied by the scale, numpy": """
import numpy as np
scale = (x.max() - x.min()) / 255
zp = np.round(-x.min() / scale)
q = np.clip(np.round(np.multiply(x, scale)) + zp, 0, 255)  #! multiplied
""",
    "cast before the clamp": """
import numpy as np
lo, hi = x.min(), x.max()
step = (hi - lo) / 255
zp = np.clip(np.round(-128 - lo / step), -128, 127)
q = np.round(x / step + zp).astype(np.int8)  #! cast_before_clamp
q = np.clip(q, -128, 127)
""",
    "divided by 256": """
import numpy as np
low = np.min(x)
scale = (np.max(x) - low) / 256  #! divisor
q = np.round((x - low) / scale).astype(np.uint8)  #! wrapped
""",
    "zero point of zeros": """
scale = (x.amax(dim=1, keepdim=True) - x.amin(dim=1, keepdim=True)) / 255
zero_point = torch.zeros_like(scale, dtype=torch.int8)  #! zero_point_left_out
q = (torch.round(x / scale) + zero_point).clamp(-128, 127).to(torch.int8)
""",
    "zero point with a fraction": """
scale = (x.max() - x.min()) / 255
zp = -x.min() / scale  #! fractional_codes
q = torch.clamp(torch.round(x / scale) + zp, 0, 255)
""",
    "rounded to decimals": """
import numpy as np
scale = np.abs(x).max() / 127
q = np.round(x / scale, 2)  #! decimals
""",
    "offset before the scale": """
lo = x.min()
scale = (x.max() - lo) / 255
q = torch.round((x - lo) / scale).clamp(0, 255)
x_hat = (q + lo) * scale  #! not_undone
""",
    "divided on the way back": """
scale = x.abs().max() / 127
q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
x_hat = q.float() / scale  #! multiplied
""",
    "twice": """
s8 = x.abs().max() / 127
x8 = torch.round(x / s8).clamp(-127, 127) * s8
s4 = x8.abs().max() / 7
q = torch.round(x8 / s4).clamp(-8, 7)  #! quantized_twice
""",
    "in place": """
def quantize(x):
    x.clamp_(-2, 2)  #! clamp_in_place
    s = 2 / 127
    return torch.round(x / s).to(torch.int8)
""",
    "in place, by masks": """
def quantize(x, limit=1.5):
    x[x > limit] = limit  #! clamp_in_place
    x[x < -limit] = -limit  #! clamp_in_place
    s = limit / 127
    return torch.round(x / s).to(torch.int8)
""",
    "uint8 minus an integer": """
scale = (x.max() - x.min()) / 255
zp = int(torch.round(-x.min() / scale))
q = torch.clamp(torch.round(x / scale) + zp, 0, 255).to(torch.uint8)
x_hat = (q - zp) * scale  #! dequantize_overflow
""",
    "int8 minus an integer": """
import numpy as np
s = (np.max(x) - np.min(x)) / 255
z = -128 - int(np.round(np.min(x) / s))
q = np.clip(np.round(x / s) + z, -128, 127).astype(np.int8)
x_hat = (q - z) * s  #! dequantize_overflow
""",
    "the table itself as boundaries": """
import numpy as np
levels = np.array([-1.0, -0.6, -0.35, -0.15, 0.0, 0.15, 0.35, 0.6, 1.0])
s = np.abs(x).max()
q = np.digitize(x / s, levels) - 1  #! not_nearest
x_hat = levels[q] * s
""",
    "codes of one table looked up in another": """
levels = torch.tensor([-1.0, -0.6, -0.35, -0.15, 0.0, 0.15, 0.35, 0.6, 1.0])
s = x.abs().max()
q = (x.unsqueeze(-1) / s - levels).abs().argmin(dim=-1)
x_hat = torch.linspace(-1, 1, 9)[q] * s  #! other_values
""",
    "two at once": """
lo, hi = x.min(), x.max()
s = (hi - lo) / 255  #! zero_point_left_out
q = torch.round(x / s).to(torch.int8)  #! wrapped
""",
    "three functions": """
def find_scale(t, bits):
    return (t.max() - t.min()) / (2 ** bits - 1)  #! zero_point_left_out

def encode(t, s):
    return torch.round(t / s)

def pack(q):
    return q.to(torch.int8)  #! wrapped

s = find_scale(weights, 8)
codes = pack(encode(weights, s))
""",
}
