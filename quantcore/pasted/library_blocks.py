"""bitsandbytes' calls, whose codes are places in a table, in the Python that the interpreter evaluates.

The text continues that of `quantcore.pasted.library_code`.
"""

import torch
from torch import Tensor

from quantcore.formats import CODEBOOKS

FORMATS = {  # of codes that are places in a library's table
    "nf4": CODEBOOKS["nf4"],
    "fp4": CODEBOOKS["fp4_bitsandbytes"],
    "dynamic": CODEBOOKS["dynamic8"],
}


def packed(codes: Tensor) -> Tensor:
    """Return codes of 4 bits as bytes, the first of two in the upper half, as bitsandbytes does."""
    even = torch.nn.functional.pad(codes.reshape(-1), (0, codes.numel() % 2))
    pairs = even.reshape(-1, 2).to(torch.uint8)
    return pairs[:, :1] * 16 + pairs[:, 1:]


def nested_scales(absmax: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return 8-bit codes for the maxima of blocks, what is subtracted first, and what the codes stand for."""
    offset, table = absmax.mean(), FORMATS["dynamic"]
    codes, values = list[Tensor](), list[Tensor]()
    for part in torch.split(absmax - offset, 256):
        largest = part.abs().max()
        codes.append(table.encode(part * (1 / largest)))
        values.append(table.table[codes[-1].long()] * largest + offset)
    return torch.cat(codes).to(torch.uint8), offset, torch.cat(values)


TEXT = """
def int8_vectorwise_quant(A, threshold=0.0):
    stats = A.abs().amax(dim=-1)
    codes = torch.round(A * (127.0 / stats.unsqueeze(-1))).to(torch.int8)
    return codes, stats, None

class QuantState:
    def __init__(self, absmax, shape, code, blocksize, quant_type, codes, nested=False):
        self.absmax, self.shape, self.code, self.blocksize = absmax, shape, code, blocksize
        self.quant_type, self.codes, self.nested, self.offset = quant_type, codes, nested, None
        self.scale = absmax
        if nested:  # the maxima are quantized in turn
            self.absmax, self.offset, self.scale = nested_scales(absmax)
    def of(self, codes):
        whole = codes.numel() == self.scale.numel() * min(self.blocksize, codes.numel())
        if whole:
            return codes.reshape(self.scale.numel(), -1), self.scale.reshape(-1, 1)
        return codes.reshape(-1), self.scale.repeat_interleave(self.blocksize)[:codes.numel()]

def _absmax_blocks(A, blocksize):
    flat, missing = A.reshape(-1), -A.numel() % blocksize
    if missing == 0 or A.numel() < blocksize:
        blocks = A.reshape(-1, min(blocksize, A.numel()))
        absmax = blocks.abs().amax(dim=1, keepdim=True)
        return blocks, absmax, absmax.reshape(-1)
    padded = torch.cat([flat, torch.zeros(missing)])  # the last block is shorter
    absmax = padded.reshape(-1, blocksize).abs().amax(dim=1)
    return flat, absmax.repeat_interleave(blocksize)[:A.numel()], absmax

def quantize_4bit(A, absmax=None, out=None, blocksize=None, compress_statistics=False, quant_type="fp4",
                  quant_storage=torch.uint8):
    size = 64 if blocksize is None else blocksize
    blocks, scale, absmax = _absmax_blocks(A, size)
    table = nf4_table() if quant_type == "nf4" else fp4_table()
    u = bitsandbytes_4bit_code(blocks, scale, None)
    codes = (nf4_codes(u, table) if quant_type == "nf4" else fp4_codes(u, table)).reshape(A.shape)
    return packed(codes), QuantState(absmax, A.shape, table, size, quant_type, codes, compress_statistics)

def dequantize_4bit(A, quant_state=None, absmax=None, out=None, blocksize=None, quant_type="fp4"):
    codes, scale = quant_state.of(quant_state.codes)
    return bitsandbytes_4bit_value(quant_state.code[codes.long()], scale, None).reshape(quant_state.shape)

def quantize_nf4(A, absmax=None, out=None, blocksize=None, compress_statistics=False,
                 quant_storage=torch.uint8):
    return quantize_4bit(A, None, None, blocksize, compress_statistics, "nf4")

def quantize_fp4(A, absmax=None, out=None, blocksize=None, compress_statistics=False,
                 quant_storage=torch.uint8):
    return quantize_4bit(A, None, None, blocksize, compress_statistics, "fp4")

def quantize_blockwise(A, code=None, absmax=None, out=None, blocksize=4096, nested=False):
    blocks, scale, absmax = _absmax_blocks(A, blocksize)
    table = dynamic_table() if code is None else code
    u = bitsandbytes_blockwise_code(blocks, scale, None)
    codes = dynamic_codes(u, table) if code is None else torch.argmin((u.unsqueeze(-1) - table).abs(), dim=-1)
    codes = codes.to(torch.uint8).reshape(A.shape)
    return codes, QuantState(absmax, A.shape, table, blocksize, "dynamic", codes, nested)

def dequantize_blockwise(A, quant_state=None, absmax=None, code=None, out=None, blocksize=4096, nested=False):
    codes, scale = quant_state.of(A)
    return (quant_state.code[codes.long()] * scale).reshape(quant_state.shape)
"""

_LAYERS = {
    "Linear4bit": "bitsandbytes.nf4", "Params4bit": "bitsandbytes.nf4", "LinearNF4": "bitsandbytes.nf4",
    "LinearFP4": "bitsandbytes.fp4", "Linear8bitLt": "bitsandbytes.int8_vectorwise",
    "Int8Params": "bitsandbytes.int8_vectorwise",
}  # fmt: skip
_BLOCKS = {
    name: name for name in (
        "int8_vectorwise_quant", "quantize_4bit", "dequantize_4bit", "quantize_nf4", "quantize_fp4",
        "quantize_blockwise", "dequantize_blockwise",
    )
} | {"dequantize_nf4": "dequantize_4bit", "dequantize_fp4": "dequantize_4bit"}  # fmt: skip
# what each module has: the name of a definition above
CALLS: dict[str, dict[str, str]] = {"bitsandbytes.functional": _BLOCKS}
CONSTANTS: dict[str, dict[str, str | int]] = {}
# calls that are not followed, and what to do instead
LEFT: dict[str, dict[str, str]] = {
    "bitsandbytes.nn": {
        name: f"is not followed (Explore has its weights under the preset {preset})"
        for name, preset in _LAYERS.items()
    },
}
