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
y = q(x, qmax=127)
""",
}
