"""Quantizers in forms that people write, by what is to be found in them; more than `code_snippets` has.

Each is a text of a few lines, so that a form and its neighbours are seen together.
"""

# the zero point is 0 on every tensor, however that is written
ZERO_OF_ZEROS = [
    "s = (x.max() - x.min()) / 255\nz = torch.zeros_like(s, dtype=torch.int8)\nq = torch.round(x / s + z).to(torch.int8)",
    "s = (x.max() - x.min()) / 255\nz = torch.zeros_like(s)\nq = (torch.round(x / s) + z).clamp(-128, 127).to(torch.int8)",
    "s = (x.amax(dim=1, keepdim=True) - x.amin(dim=1, keepdim=True)) / 255\nz = torch.zeros_like(s)\nq = (torch.round(x / s) + z).clamp(-128, 127).to(torch.int8)\ny = (q.float() - z) * s",
    "s = (x.max() - x.min()) / 255\nz = torch.zeros(1)\nq = (torch.round(x / s) + z).clamp(-128, 127).to(torch.int8)",
    "s = (x.max() - x.min()) / 255\nz = torch.tensor(0)\nq = (torch.round(x / s) + z).clamp(-128, 127).to(torch.int8)",
    "s = (x.amax(dim=1, keepdim=True) - x.amin(dim=1, keepdim=True)) / 255\nz = torch.zeros(x.shape[0], 1)\nq = (torch.round(x / s) + z).clamp(-128, 127).to(torch.int8)",
    "import numpy as np\ns = (x.max(axis=0) - x.min(axis=0)) / 255\nz = np.zeros_like(s)\nq = np.clip(np.round(x / s) + z, -128, 127).astype(np.int8)",
    "import numpy as np\ns = (np.max(x) - np.min(x)) / 15\nz = np.zeros_like(x)\nq = np.clip(np.round(x / s) + z, -8, 7).astype(np.int8)",
    "s = (x.max() - x.min()) / 255\nz = 0 * s\nq = (torch.round(x / s) + z).clamp(-128, 127).to(torch.int8)",
    "s = (x.max() - x.min()) / 255\nz = torch.zeros(x.shape).to(torch.int32)\nq = (torch.round(x / s) + z).clamp(-128, 127).to(torch.int8)",
    "def q(t, bits=8):\n    lo, hi = t.min(), t.max()\n    s = (hi - lo) / (2 ** bits - 1)\n    z = torch.zeros_like(lo)\n    return torch.clamp(torch.round(t / s) + z, -2 ** (bits - 1), 2 ** (bits - 1) - 1)",
    "x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = (x.max(dim=0).values - x.min(dim=0).values) / 255\nz = torch.zeros_like(s, dtype=torch.int8)\nq = torch.round((x / s) + z).to(torch.int8)\ny = (q.to(torch.float32) - z) * s",
]

# codes wrap around on the tensor that the code has
WRAPS_ON_ITS_OWN = [
    "w = torch.tensor([[0.2, -0.5, 0.9], [1.0, -2.0, 0.3]])\nscales = torch.tensor([[0.9 / 127], [1.0 / 127]])\nq = torch.round(w / scales).to(torch.int8)",
    "x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = (x.max(dim=0).values - x.min(dim=0).values) / 255\nz = torch.zeros_like(s, dtype=torch.int8)\nq = torch.round((x / s) + z).to(torch.int8)",
    "x = torch.tensor([5.1, 6.2, 7.3, 8.4, 6.9])\ns = (x.max() - x.min()) / 255\nz = torch.round(-128 - x.min() / s).clamp(-128, 127)\nq = (torch.round(x / s) + z).to(torch.int8)",
    "import numpy as np\nx = np.array([5.1, 6.2, 7.3, 8.4, 6.9])\ns = (x.max() - x.min()) / 255\nz = np.clip(np.round(-x.min() / s), 0, 255)\nq = (np.round(x / s) + z).astype(np.uint8)",
    "x = torch.tensor([[1.0, -2.0, 5.0], [9.0, 4.0, -3.5]])\ns = 0.05\nq = torch.round(x / s).to(torch.int8)",
    "x = torch.tensor([[1.0, -2.0, 5.0], [9.0, 4.0, -3.5]])\ns = x.abs().max() / 127\nq = torch.round(x / s)\nq = (q + 64).to(torch.int8)",
    "import numpy as np\nw = np.array([[0.5, -1.5], [2.5, 0.1]])\ns = w.std() / 100\nq = np.round(w / s).astype(np.int8)",
    "x = torch.tensor([[1.0, -2.0, 5.0], [9.0, 4.0, -3.5]])\ns = x.mean().abs() / 60\nq = torch.round(x / s).to(torch.int8)",
    "x = torch.tensor([[1.0, -2.0, 5.0], [9.0, 4.0, -3.5]])\ns = x.abs().mean() / 60\nq = torch.round(x / s).to(torch.int8)",
    "import torch\ndata = torch.tensor([1.5, 0.2, 10.0, -3.0])\ndef quant(t, scale, zp):\n    return (t / scale + zp).round().to(torch.int8)\nq = quant(data, 0.05, 3)",
    "x = torch.tensor([[1.0, -2.0, 5.0], [9.0, 4.0, -3.5]])\nscale, zero_point = 0.06, -10\nq = (torch.round(x / scale) + zero_point).to(torch.uint8)",
    "x = torch.tensor([[1.0, -2.0, 5.0], [9.0, 4.0, -3.5]])\ns = x[0].abs().max() / 127\nq = torch.round(x / s).to(torch.int8)",
]

# the cast comes before the clamp
CAST_FIRST = [
    "import numpy as np\ndef to_int8(w):\n    lo, hi = w.min(), w.max()\n    qmin, qmax = -128, 127\n    step = (hi - lo) / (qmax - qmin)\n    zp = int(np.round(qmin - lo / step))\n    zp = np.clip(zp, qmin, qmax)\n    q = np.round(w / step + zp).astype(np.int8)\n    q = np.clip(q, qmin, qmax).astype(np.int8)\n    return q, step, zp\nq, step, zp = to_int8(x)",
    "s = x.abs().max() / 127\nq = torch.round(x / s).to(torch.int8).clamp(-128, 127)",
    "s = 0.05\nq = torch.round(x / s).to(torch.int8)\nq = torch.clamp(q, -128, 127)",
    "s = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s)\nq = (torch.round(x / s) + z).to(torch.uint8).clamp(0, 255)\ny = (q.float() - z) * s",
    "import numpy as np\ns = np.percentile(np.abs(x), 99) / 127\nq = np.clip(np.round(x / s).astype(np.int8), -127, 127)",
    "s = x.max() / 127\nq = torch.clamp((x / s).round().char(), -128, 127)",
    "s = w.abs().amax(dim=1, keepdim=True) / 127\nq = torch.round(w / s).to(torch.int8)\nq = q.clamp(-127, 127)",
    "import numpy as np\ns = (x.max() - x.min()) / 255\nz = np.round(-x.min() / s)\nq = np.rint(x / s + z).astype('uint8')\nq = np.minimum(np.maximum(q, 0), 255)",
    "s = x.abs().max() / 7\nq = torch.round(x / s).to(torch.uint8).clamp(-8, 7)",
    "def quantize(x, scale, zero_point):\n    q = torch.round(x / scale + zero_point).to(torch.int8)\n    return torch.clamp(q, -128, 127)",
    "import numpy as np\ndef quantize(x, scale, zero_point, dtype=np.uint8):\n    q = (np.round(x / scale) + zero_point).astype(dtype)\n    return np.clip(q, 0, 255)",
    "s = x.abs().max() / 127\nq = (x / s).round().short().char()\nq = q.clamp(min=-128, max=127)",
]

# the maximum gets a code that the type does not hold
ONE_CODE_TOO_MANY = [
    "import numpy as np\nlow = np.min(x)\nscale = (np.max(x) - low) / 256.\nq = np.round((x - low) / scale).astype(np.uint8)",
    "lo = x.min()\ns = (x.max() - lo) / 256\nq = torch.round((x - lo) / s).to(torch.uint8)",
    "lo, hi = x.min(), x.max()\nq = ((x - lo) / (hi - lo) * 256).to(torch.uint8)",
    "lo, hi = x.min(), x.max()\nq = torch.floor((x - lo) / (hi - lo) * 256).to(torch.uint8)\ny = q / 256 * (hi - lo) + lo",
    "import numpy as np\nlo, hi = x.min(), x.max()\nq = (256 * (x - lo) / (hi - lo)).round().astype('uint8')",
    "s = (x.max() - x.min()) / 256\nz = torch.round(-x.min() / s)\nq = (torch.round(x / s) + z).to(torch.uint8)",
    "s = (x.max() - x.min()) / 2 ** 8\nz = -128 - torch.round(x.min() / s)\nq = (torch.round(x / s) + z).to(torch.int8)",
    "lo = x.amin(dim=1, keepdim=True)\ns = (x.amax(dim=1, keepdim=True) - lo) / 256\nq = torch.round((x - lo) / s).to(torch.uint8)",
    "s = x.abs().max() / 128\nq = torch.round(x / s).to(torch.int8)",
    "import numpy as np\nlo = x.min()\ns = (x.max() - lo) / 65536\nq = np.round((x - lo) / s).astype(np.uint16)",
    "lo = w.min()\nd = w.max() - lo\nq = torch.round((w - lo) * 256 / d).byte()",
    "lo = x.min()\ns = (x.max() - lo) / 256\nq = torch.round((x - lo) / s - 128).to(torch.int8)\ny = (q.float() + 128) * s + lo",
    "x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\nlo = x.min()\ns = (x.max() - lo) / 256\nq = torch.round((x - lo) / s).to(torch.uint8)",
]

# the zero point is clamped, and the range need not contain 0
ZERO_CLAMPED = [
    "def scale_and_zero(lo, hi, bits=8):\n    qmin = 0\n    qmax = 2 ** bits - 1\n    scale = float((hi - lo) / (qmax - qmin))\n    zero = round(float(qmin - lo / scale))\n    zero = max(qmin, min(qmax, zero))\n    return scale, zero\n\n\ndef quantize(x, scale, zero, bits=8):\n    return (torch.round(x / scale) + zero).clamp(0, 2 ** bits - 1)\n\n\ns, z = scale_and_zero(x.min(), x.max())\nq = quantize(x, s, z)\ny = (q - z) * s",
    "def quantize(tensor, dtype=torch.int8):\n    q_min, q_max = torch.iinfo(dtype).min, torch.iinfo(dtype).max\n    r_min, r_max = tensor.min().item(), tensor.max().item()\n    scale = (r_max - r_min) / (q_max - q_min)\n    zero_point = q_min - (r_min / scale)\n    if zero_point < q_min:\n        zero_point = q_min\n    elif zero_point > q_max:\n        zero_point = q_max\n    else:\n        zero_point = int(round(zero_point))\n    q = torch.round(tensor / scale + zero_point).clamp(q_min, q_max).to(dtype)\n    return q, scale, zero_point",
    "s = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s).clamp(0, 255)\nq = (torch.round(x / s) + z).clamp(0, 255).to(torch.uint8)",
    "import numpy as np\ns = (x.max() - x.min()) / 255\nz = np.clip(np.round(-128 - x.min() / s), -128, 127)\nq = np.clip(np.round(x / s) + z, -128, 127).astype(np.int8)\ny = (q.astype(np.float32) - z) * s",
    "import numpy as np\nlo, hi = x.min(), x.max()\ns = (hi - lo) / 15\nz = int(max(0, min(15, round(-lo / s))))\nq = np.clip(np.round(x / s) + z, 0, 15).astype(np.uint8)",
    "lo, hi = w.amin(dim=1, keepdim=True), w.amax(dim=1, keepdim=True)\ns = (hi - lo).clamp(min=1e-5) / 15\nz = (-torch.round(lo / s)).clamp_(0, 15)\nq = torch.clamp(torch.round(w / s) + z, 0, 15)\ny = (q - z) * s",
    "g = w.reshape(-1, 32)\nlo, hi = g.amin(1, keepdim=True), g.amax(1, keepdim=True)\ns = (hi - lo) / 15\nz = torch.clamp(torch.round(-lo / s), 0, 15)\nq = torch.clamp(torch.round(g / s) + z, 0, 15).to(torch.uint8)",
    "lo, hi = torch.aminmax(x)\ns = (hi - lo) / 255\nz = (-lo / s).round().clamp(0, 255)\nq = ((x / s).round() + z).clamp(0, 255).byte()\nx_hat = (q.float() - z) * s",
    "s = (x.max() - x.min()) / 255\nz = torch.minimum(torch.maximum(torch.round(-x.min() / s), torch.tensor(0.)), torch.tensor(255.))\nq = (torch.round(x / s) + z).clamp(0, 255)",
    "import numpy as np\nr = x.max() - x.min()\nscale = 255 / r\nz = np.clip((-scale * x.min() - 128).round(), -128, 127)\nq = np.clip((x * scale + z).round(), -128, 127).astype(np.int8)",
    "class O:\n    def __init__(self, bits=8):\n        self.lo, self.hi = 0, 2 ** bits - 1\n    def forward(self, x):\n        s = (x.max() - x.min()) / (self.hi - self.lo)\n        z = self.lo - torch.round(x.min() / s)\n        z = torch.clamp(z, self.lo, self.hi)\n        return torch.clamp(torch.round(x / s) + z, self.lo, self.hi)",
    "s = (x.max() - x.min()) / 255\nz = torch.round(x.max() * -127 - x.min() * 128)\nz = z / (x.max() - x.min())\nz = z.round().clamp(-128, 127)\nq = torch.clamp(torch.round(x / s) + z, -128, 127).to(torch.int8)",
    "import numpy as np\ns = np.ptp(x) / 255\nz = np.clip(np.rint(-x.min() / s), 0, 255).astype(np.uint8)\nq = np.clip(np.rint(x / s) + z, 0, 255).astype(np.uint8)",
]

# what dequantizes does not undo what quantizes
NOT_UNDONE = [
    "s = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s)\nq = (torch.round(x / s) + z).clamp(0, 255).to(torch.uint8)\ny = (q.float() - z) * s + x.min()",
    "s = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s)\nq = (torch.round(x / s) + z).clamp(0, 255).to(torch.uint8)\nlo = x.min()\ny = q.float() * s - lo",
    "lo, hi = x.min(), x.max()\ns = (hi - lo) / 255\nq = torch.round((x - lo) / s).clamp(0, 255)\ny = (q + lo) * s",
    "lo, hi = x.min(), x.max()\ns = (hi - lo) / 255\nq = torch.round((x - lo) / s).clamp(0, 255)\ny = q * (hi + lo) / 255 + lo",
    "lo, hi = x.min(), x.max()\ns = (hi - lo) / 255\nq = torch.round((x - lo) / s).clamp(0, 255)\ny = q * s - lo",
    "s = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s)\nq = (torch.round(x / s) + z).clamp(0, 255).to(torch.uint8)\ny = (q.float() - z) * (x.max() + x.min()) / 255",
    "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\ny = q * s + x.min()",
    "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\ny = q * s / 127",
    "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\ny = q * x.abs().max()",
    "import numpy as np\nlo = x.min()\ns = (x.max() - lo) / 15\nq = np.round((x - lo) / s).astype(np.uint8)\ny = (q + lo) * s",
    "import numpy as np\nlo, hi = x.min(), x.max()\nq = np.round((x - lo) / (hi - lo) * 255).astype(np.uint8)\ny = q / 255 * (hi + lo) + lo",
    "s = w.abs().amax(dim=1, keepdim=True) / 7\nq = torch.round(w / s).clamp(-8, 7)\ny = q * s.mean()",
    "s = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s)\nq = (torch.round(x / s) + z).clamp(0, 255).to(torch.uint8)\ny = (z - q.float()) * s",
    "s = (x.max() - x.min()) / 255\nz = -128 - torch.round(x.min() / s)\nq = (torch.round(x / s) + z).clamp(-128, 127)\ny = (q - z + 128) * s",
    "lo = x.amin(dim=1, keepdim=True)\ns = (x.amax(dim=1, keepdim=True) - lo) / 15\nq = torch.round((x - lo) / s).clamp(0, 15)\ny = q * s + x.min()",
]

# codes are not integers
FRACTIONS = [
    "s = (x.max() - x.min()) / 255\nz = -x.min() / s\nq = (torch.round(x / s) + z).clamp(0, 255)\ny = (q - z) * s",
    "s = (x.max() - x.min()) / 255\nz = -128 - x.min() / s\nq = torch.clamp(torch.round(x / s) + z, -128, 127)",
    "import numpy as np\ns = (x.max() - x.min()) / 15\nz = -x.min() / s\nq = np.clip(np.round(x / s) + z, 0, 15)",
    "import numpy as np\nlo = x.min()\ns = (x.max() - lo) / 255\nq = np.round(x / s) - lo / s",
    "lo, hi = w.amin(dim=1, keepdim=True), w.amax(dim=1, keepdim=True)\ns = (hi - lo) / 15\nz = -lo / s\nq = torch.clamp(torch.round(w / s) + z, 0, 15)\ny = (q - z) * s",
    "def quant(x, bits=8):\n    s = (x.max() - x.min()) / (2 ** bits - 1)\n    z = 2 ** (bits - 1) - 1 - x.max() / s\n    return torch.round(x / s) + z",
    "s = (x.amax() - x.amin()) / 7\nz = 3.3\nq = torch.round(x / s) + z",
    "import numpy as np\nlo, hi = np.percentile(x, 1), np.percentile(x, 99)\ns = (hi - lo) / 255\nz = -lo / s\nq = np.clip(np.rint(x / s) + z, 0, 255)",
    "g = w.reshape(-1, 32)\nlo = g.amin(1, keepdim=True)\ns = (g.amax(1, keepdim=True) - lo) / 15\nq = torch.round(g / s) - lo / s\ny = (q + lo / s) * s",
    "scale, zero_point = 0.05, 3.7\nq = (torch.round(x / scale) + zero_point).clamp(0, 255)",
    "import numpy as np\nscale = 255 / (x.max() - x.min())\nz = -scale * x.min() - 128\nq = np.clip(np.round(x * scale) + z, -128, 127)",
    "s = (x.max() - x.min()) / 255\nz = -(x.max() + x.min()) / (2 * s)\nq = torch.round(x / s) + z",
]

# with its own tensor, and the formula of its scale
FORMULAS = [
    ("x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = (x.max() - x.min()) / 255\nq = torch.round(x / s).to(torch.int8)", "(max(x) - min(x)) / 255"),
    ("x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s)\nq = (torch.round(x / s) + z).clamp(0, 255).to(torch.uint8)", "(max(x) - min(x)) / 255"),
    ("x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = (x.max() - x.min()) / 15\nz = torch.round(-x.min() / s)\nq = (torch.round(x / s) + z).clamp(0, 15).to(torch.uint8)", "(max(x) - min(x)) / 15"),
    ("import numpy as np\nx = np.array([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = (x.max() - x.min()) / 255\nz = np.round(-128 - x.min() / s)\nq = np.clip(np.round(x / s) + z, -128, 127).astype(np.int8)", "(max(x) - min(x)) / 255"),
    ("x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = x.abs().max() / 127\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)", "max|x| / 127"),
    ("x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = x.max() / 127\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)", "max(x) / 127"),
    ("x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = 2 * x.abs().max() / 255\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)", "max|x| / 127.5"),
    ("x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = (x.max(dim=1, keepdim=True).values - x.min(dim=1, keepdim=True).values) / 255\nz = torch.round(-x.min(dim=1, keepdim=True).values / s)\nq = (torch.round(x / s) + z).clamp(0, 255).to(torch.uint8)", "(max(x) - min(x)) / 255"),
    ("x = torch.tensor([[-0.6870, 0.2607, -0.7718, 0.0841], [0.6558, -1.1711, -1.0713, 0.2405], [1.4967, -0.6928, 0.7961, -1.4614], [0.5689, -0.5227, -1.3111, -0.8343]])\ns = x.abs().amax(dim=1, keepdim=True) / 7\nq = torch.round(x / s).clamp(-8, 7).to(torch.int8)", "max|x| / 7"),
    ("import numpy as np\nweights = np.array([0.3, -1.2, 2.7, 0.05, -0.6], dtype=np.float32)\nrmin, rmax = weights.min(), weights.max()\nscale = (rmax - rmin) / (127 - -128)\nzp = -128 - round(rmin / scale)\nq = np.clip(np.round(weights / scale) + zp, -128, 127).astype(np.int8)", "(max(x) - min(x)) / 255"),
    ("import torch\nw = torch.tensor([3.0, 1.0, 2.0, 4.0])\ns = w.max() / 255\nq = torch.round(w / s).clamp(0, 255).to(torch.uint8)", "max("),
    ("import torch\nw = torch.tensor([3.0, 1.0, -2.0, 4.0, -4.0])\ns = w.max() / 127\nq = torch.round(w / s).clamp(-128, 127).to(torch.int8)", "max("),
    ("import torch\nw = torch.tensor([1.0, -1.0, 0.25])\ns = (w.max() - w.min()) / 255\nz = torch.round(-128 - w.min() / s)\nq = (torch.round(w / s) + z).clamp(-128, 127).to(torch.int8)", "(max("),
    ("import torch\nt = torch.tensor([[1.0, -1.0], [0.5, 2.0]])\nclass Q:\n    def __init__(self, bits=8):\n        self.n = 2 ** bits - 1\n    def forward(self, x):\n        s = (x.max() - x.min()) / self.n\n        z = torch.round(-x.min() / s)\n        return torch.clamp(torch.round(x / s) + z, 0, self.n)\nq = Q().forward(t)", "(max("),
]

# with a floor for the scale, and the granularity
FLOORS = [
    ("s = w.abs().amax(dim=1, keepdim=True) / 127\ns = s.clamp(min=0.02)\nq = torch.round(w / s).clamp(-128, 127).to(torch.int8)", "per_channel"),
    ("s = w.abs().amax(dim=1, keepdim=True) / 127 + 1e-8\nq = torch.round(w / s).clamp(-128, 127).to(torch.int8)", "per_channel"),
    ("s = (w.abs().amax(dim=1, keepdim=True) / 127).clamp(min=1e-5)\nq = torch.round(w / s).clamp(-128, 127).to(torch.int8)", "per_channel"),
    ("s = torch.maximum(w.abs().amax(dim=1, keepdim=True) / 7, torch.tensor(1e-3))\nq = torch.round(w / s).clamp(-8, 7).to(torch.int8)", "per_channel"),
    ("import numpy as np\ns = np.maximum(np.abs(w).max(axis=1, keepdims=True), 1e-2) / 127\nq = np.clip(np.round(w / s), -127, 127).astype(np.int8)", "per_channel"),
    ("import numpy as np\ns = np.maximum(np.abs(w).max(axis=0, keepdims=True) / 127, 1e-2)\nq = np.clip(np.round(w / s), -127, 127).astype(np.int8)", "per_channel(axis=1)"),
    ("g = w.reshape(-1, 32)\ns = g.abs().amax(1, keepdim=True).clamp(min=1e-2) / 7\nq = torch.round(g / s).clamp(-8, 7)", "per_group(32)"),
    ("g = w.reshape(w.shape[0], -1, 16)\ns = (g.abs().amax(-1, keepdim=True) / 7).clamp_min(1e-2)\nq = torch.round(g / s).clamp(-8, 7)", "per_group(16)"),
    ("lo, hi = w.amin(dim=1, keepdim=True), w.amax(dim=1, keepdim=True)\ns = (hi - lo).clamp(min=0.1) / 255\nz = torch.round(-lo / s)\nq = (torch.round(w / s) + z).clamp(0, 255)", "per_channel"),
    ("import numpy as np\ns = np.abs(w).max(axis=1, keepdims=True) / 127\ns = np.where(s < 1e-2, 1.0, s)\nq = np.clip(np.round(w / s), -127, 127).astype(np.int8)", "per_channel"),
    ("s = w.abs().amax(dim=1, keepdim=True) / 127\ns[s < 1e-2] = 1e-2\nq = torch.round(w / s).clamp(-128, 127).to(torch.int8)", "per_channel"),
    ("s = w.abs().amax(dim=1) / 127\ns = torch.clamp(s, 1e-2)\nq = torch.round(w / s[:, None]).clamp(-128, 127).to(torch.int8)", "per_channel"),
]

# with several casts, and the type that the codes are stored in
CASTS = [
    ("s = x.abs().max() / 127\nq = torch.round(x / s).to(torch.int16).clamp(-128, 127).to(torch.int8)", "int8"),
    ("import numpy as np\ns = np.abs(x).max() / 127\nq = np.clip(np.round(x / s).astype(np.int16), -128, 127).astype(np.int8)", "int8"),
    ("s = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s)\nq = (torch.round(x / s).to(torch.int16) + z).clamp(0, 255).to(torch.uint8)", "uint8"),
    ("s = x.abs().max() / 127\nq = torch.round(x / s).short()\nq = q.clamp(-128, 127).char()", "int8"),
    ("s = x.abs().max() / 7\nq = (torch.round(x / s).clamp(-8, 7).to(torch.int8) + 8).to(torch.uint8)", "uint8"),
    ("import numpy as np\ns = np.abs(x).max() / 127\nq = (np.round(x / s).astype(np.int8).astype(np.int16) + 128).astype(np.uint8)", "uint8"),
    ("s = x.abs().max() / 127\nq = torch.round(x / s).to(torch.int16)\nq = q.to(torch.int8)", "int8"),
    ("s = x.abs().max() / 32767\nq = torch.round(x / s).to(torch.int16)\nq = q.to(torch.int8)", "int8"),
    ("s = (x.max() - x.min()) / 255\nz = -128 - torch.round(x.min() / s)\nq = torch.round(x / s).to(torch.int16) + z\nq = q.clamp(-128, 127).to(torch.int8)", "int8"),
    ("import numpy as np\ns = 0.05\nq = np.round(x / s).astype(np.int16).astype(np.int8)", "int8"),
    ("s = x.abs().max() / 7\nq = torch.round(x / s).clamp(-8, 7).to(torch.int16)\nq = q.to(torch.int8)", "int8"),
    ("s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)\nu = (q.to(torch.int16) + 128).to(torch.uint8)", "uint8"),
]

# sound, but for what depends on the tensor
SOUND = [
    "w = torch.tensor([[0.2, -0.5, 0.9], [1.0, -2.0, 0.3]])\nscales = torch.tensor([[0.9 / 127], [2.0 / 127]])\nq = torch.round(w / scales).to(torch.int8)\ny = q * scales",
    "s = x.abs().max().clamp(min=1e-8) / 127\nq = torch.clamp((x / s).round(), -127, 127).to(torch.int8)\ny = q.to(torch.float32) * s",
    "import numpy as np\ns = max(np.abs(x).max(), 1e-8) / 127\nq = np.clip(np.rint(x / s), -127, 127).astype(np.int8)\ny = q * s",
    "lo, hi = x.min().clamp(max=0), x.max().clamp(min=0)\ns = ((hi - lo) / 255).clamp(min=1e-8)\nz = (-lo / s).round().clamp(0, 255)\nq = ((x / s).round() + z).clamp(0, 255).to(torch.uint8)\ny = (q.float() - z) * s",
    "import numpy as np\nlo, hi = min(0.0, float(x.min())), max(0.0, float(x.max()))\ns = (hi - lo) / 255 or 1.0\nz = int(np.clip(round(-128 - lo / s), -128, 127))\nq = np.clip(np.round(x / s) + z, -128, 127).astype(np.int8)\ny = (q.astype(np.int32) - z) * s",
    "lo = w.amin(dim=1, keepdim=True).clamp(max=0)\nhi = w.amax(dim=1, keepdim=True).clamp(min=0)\ns = ((hi - lo) / 15).clamp(min=1e-6)\nz = torch.round(-lo / s)\nq = torch.clamp(torch.round(w / s) + z, 0, 15).to(torch.uint8)\ny = (q.float() - z) * s",
    "g = w.reshape(-1, 64)\ns = g.abs().amax(-1, keepdim=True) / 7\ns = torch.where(s == 0, torch.ones_like(s), s)\nq = torch.clamp(torch.round(g / s), -7, 7).to(torch.int8)\ny = (q.float() * s).reshape(w.shape)",
    "import numpy as np\nlo = x.min()\ns = (x.max() - lo) / 255\nq = np.round((x - lo) / s).astype(np.uint8)\ny = q * s + lo",
    "lo, hi = x.min(), x.max()\nq = torch.round((x - lo) / (hi - lo) * 255).to(torch.uint8)\ny = q.float() / 255 * (hi - lo) + lo",
    "g = w.reshape(-1, 16)\nlo, hi = g.amin(1, keepdim=True), g.amax(1, keepdim=True)\ns = (hi - lo) / 15\nq = torch.round((g - lo) / s).clamp(0, 15)\ny = (q * s + lo).reshape(w.shape)",
    "def q4(w, group_size=32):\n    w = w.float().reshape(-1, group_size)\n    top = torch.abs(w).max(dim=1).values\n    scale = top / -7.5\n    codes = (w / scale[:, None] + 8).round().to(torch.uint8).clamp(0, 15)\n    back = ((codes.float() - 8) * scale[:, None]).view(-1)\n    return codes, scale, back\ncodes, scale, back = q4(x, 32)",
    "s = x.abs().max() / 127\nq = torch.round(torch.clamp(x / s, -127, 127)).to(torch.int8)\ny = q * s",
    "s = x.abs().max() / 128\nq = torch.clamp(torch.round(x / s), -128, 127).to(torch.int8)",
    "import numpy as np\ns = np.abs(x).max() / 127\nq = np.round(x / s).astype(np.int32)\nq = np.clip(q, -127, 127).astype(np.int8)",
    "s = x.abs().max() / 127\nq = torch.round(x / s).to(torch.int32)\nq = torch.clamp(q, -128, 127).to(torch.int8)",
    "s = x.abs().max() / 127\nq = torch.round(x / s).to(torch.int16).clamp(-128, 127).to(torch.int8)",
    "scale = x.abs().max() / 127\nq = (torch.round(x / scale).clamp(-127, 127) + 128).to(torch.uint8)\ny = (q.float() - 128) * scale",
    "import numpy as np\ns = np.abs(w).max(axis=1, keepdims=True) / 7\nq = np.clip(np.round(w / s), -8, 7).astype(np.int8) + 8\ny = (q - 8) * s",
    "import numpy as np\nlo, hi = np.percentile(x, 0.1), np.percentile(x, 99.9)\ns = (hi - lo) / 255\nz = np.round(-lo / s)\nq = np.clip(np.round(x / s) + z, 0, 255).astype(np.uint8)\ny = (q.astype(float) - z) * s",
    "s = 0.05\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)\ny = q.float() * s",
    "def quantize(x, scale, zero_point):\n    return torch.clamp(torch.round(x / scale) + zero_point, -128, 127).to(torch.int8)\ndef dequantize(q, scale, zero_point):\n    return (q.float() - zero_point) * scale",
    "s = 2 ** torch.ceil(torch.log2(x.abs().max() / 127))\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)\ny = q * s",
    "s = x.std() * 3 / 127\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)\ny = q * s",
    "s = 2 * x.abs().mean() / 7 ** 0.5\nq = torch.round(x / s).clamp(-8, 7)\ny = q * s",
    "s = w.abs().mean().clamp(min=1e-5)\nq = (w / s).round().clamp(-1, 1)\ny = q * s",
    "s = (x.max() - x.min()) / 255\nz = -torch.round(x.min() / s)\nq = torch.clamp(torch.round(x / s) + z, 0, 255)\ny = s * q - s * z",
    "x = torch.tensor([[0.5, -1.0], [2.0, 0.1]])\ns = x.abs().max() / 127\nq = torch.round(x / s).to(torch.int8)\ny = q * s",
    "import numpy as np\na = np.array([0.1, -0.5, 2.2, 1.7])\nlo, hi = a.min(), a.max()\ns = (hi - lo) / 255\nz = np.round(-lo / s)\nq = np.clip(np.round(a / s) + z, 0, 255).astype(np.uint8)\ny = (q.astype(np.float32) - z) * s",
    "import torch\nx = torch.tensor([1.0, 2.0, 3.0])\ns = x.max() / 255\nq = torch.round(x / s).to(torch.uint8)\ny = q * s",
    "levels = 2 ** 4 - 1\nm = x.abs().max()\nq = torch.round((x / m + 1) / 2 * levels)\ny = (q / levels * 2 - 1) * m",
    "s = x.abs().max() / 127.5\nq = torch.floor(x / s) + 0.5\ny = q * s",
    "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\ny = q * s\nz = y / x.abs().max()\nc = y - x.mean()",
    "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\nshow = q / 127\nalso = q / q.abs().max()",
    "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\ns2 = (x * q).sum() / (q * q).sum()\ny = q * s2",
    "m, d = x.mean(), x.std()\nn = (x - m) / d\ns = n.abs().max() / 127\nq = torch.round(n / s).clamp(-127, 127)\ny = q * s * d + m",
    "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\nout = 0.1\nr = torch.round(q * (s / out)).clamp(-128, 127).to(torch.int8)",
    "smooth = w.abs().amax(dim=0).sqrt()\nv = w / smooth\ns = v.abs().max() / 127\nq = torch.round(v / s).clamp(-127, 127)\ny = q * s * smooth",
    "smooth = w.abs().amax(dim=0).sqrt()\nv = w / smooth\ns = v.abs().max() / 127\nq = torch.round(v / s).clamp(-127, 127)\nv_hat = q * s",
    "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\ny = torch.relu(q * s) + 1",
    "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\ny = q.half() * s.half()",
    "import numpy as np\ns = np.abs(x).max() / 32767\nq = np.round(x / s).astype(np.int16)\ny = q.astype(np.float32) * s",
    "x = torch.sigmoid(x)\nq = torch.round(x * 255).to(torch.uint8)\ny = q / 255",
    "import numpy as np\ns = np.abs(x).max() / 127\nq = np.sign(x) * np.floor(np.abs(x) / s + 0.5)\nq = q.astype(np.int8)\ny = q * s",
    "s = w.abs().amax(dim=1, keepdim=True) / 127\nq = (w / s).round().to(torch.int8)\ny = q.to(w.dtype) * s",
    "import numpy as np\nm = x.mean()\nd = x - m\ns = np.abs(d).max() / 127\nq = np.round(d / s).astype(np.int8)\ny = q * s + m",
    "s8 = x.abs().max() / 127\nq = torch.round(x / s8)\nerr = x - q * s8\ns2 = err.abs().max() / 127\nr = torch.round(err / s2)\ny = q * s8 + r * s2",
    "s = (x.max() - x.min()) / 255\nz = -x.min() / s\nq = torch.round(x / s + z).clamp(0, 255).to(torch.uint8)\ny = (q.float() - z) * s",
    "import numpy as np\ns = np.abs(w).max(axis=1, keepdims=True) / 127\ns = np.where(s == 0, 1, s)\nq = np.clip(np.rint(w / s), -127, 127).astype(np.int8)\nerr = np.abs(w - q * s).mean()",
    "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\ny = q * s\nloss = ((x - y) ** 2).mean()\nsq = 10 * torch.log10((x ** 2).mean() / loss)",
    "s = x.abs().max() / 127\nw = torch.rand(64, 8)\nt = w.abs().max() / 127\nq = torch.round(x / s).clamp(-127, 127)\np = torch.round(w / t).clamp(-127, 127)\ny = (q @ p) * (s * t)",
]
