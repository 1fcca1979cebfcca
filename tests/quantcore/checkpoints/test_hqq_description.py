"""The small tensors with which HQQ describes a weight: what each number and text stands for, and which are refused."""

import numpy as np
import torch
from grid import for_each

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.sources import MemorySource
from quantcore.checkpoints.layouts.hqq import Description
from quantcore.errors import QuantError

TYPES = {np.dtype("<f4"): "F32", np.dtype("<i8"): "I64", np.dtype("u1"): "U8"}


def described(**said):
    """What is stored for numbers, and for texts as their bytes."""
    pieces = {}
    for name, value in said.items():
        data = np.frombuffer(value.encode("latin-1"), np.uint8) if isinstance(value, str) else np.asarray(value)
        raw = data.astype(np.float32 if data.dtype == np.float64 else data.dtype)
        pieces[name] = StoredTensor(f"m.{name}", TYPES[raw.dtype], raw.shape, MemorySource("w", raw.tobytes()), 0, raw.nbytes)
    return Description(pieces)


def of(what, said):
    """A property of the description, or what is said where it is refused."""
    try:
        found = getattr(described(**said), what)
        return found() if callable(found) else found
    except QuantError as refused:
        return str(refused)


TABLE = [
    # what -> what is stored for it
    ("axis", 0, {"axis": 0}), ("axis", 1, {"axis": 1}), ("axis", 1, {"axis": [[1.0]]}),
    ("axis", "'m.axis' says 2, not 0 or 1", {"axis": 2}), ("axis", "'m.axis' says -1,", {"axis": -1}), ("axis", "says 0.5,", {"axis": 0.5}),
    ("axis", "is I64 of shape (2,), not one number", {"axis": [0, 1]}), ("axis", "is I64 of shape (0,)", {"axis": np.zeros(0, np.int64)}),
    ("group_size", None, {}), ("group_size", None, {"group_size": 0}), ("group_size", 1, {"group_size": 1}), ("group_size", 64, {"group_size": 64}),
    ("group_size", None, {"group_size": 64, "channel_wise": 0}), ("group_size", 64, {"group_size": 64, "channel_wise": 1}),
    ("group_size", 2**40 - 1, {"group_size": 2**40 - 1}), ("group_size", "is not a group size", {"group_size": 2**40}),
    ("group_size", "says -1, which", {"group_size": -1}), ("group_size", "says 64.5, which", {"group_size": 64.5}),
    ("bits", 4, {"nbits": 4}), ("bits", 8, {"nbits": 8, "packing": "8bit_u8"}), ("bits", 5, {"nbits": 5, "packing": "8bit_u8"}),
    ("bits", 6, {"nbits": 6, "packing": "8bit_u8"}), ("bits", 3, {"nbits": 3, "packing": "3bit_32"}), ("bits", 2, {"nbits": 2, "packing": "2bit_u8"}),
    ("bits", 2, {"nbits": 1.58, "packing": "2bit_u8"}), ("bits", 1, {"nbits": 1, "packing": "1bit_u8"}),
    ("bits", "says 1.6, which", {"nbits": 1.6, "packing": "2bit_u8"}), ("bits", "says 1.5, which", {"nbits": 1.5, "packing": "2bit_u8"}),
    ("bits", "says 0, which does not fit", {"nbits": 0}), ("bits", "says 7, which", {"nbits": 7, "packing": "8bit_u8"}),
    ("bits", "says 9, which", {"nbits": 9, "packing": "8bit_u8"}), ("bits", "says 4, which", {"nbits": 4, "packing": "8bit_u8"}),
    ("bits", "says 3, which", {"nbits": 3}), ("bits", "not one of 8bit_u8", {"nbits": 4, "packing": "5bit_u8"}),
    ("shape", (1, 1), {"shape": [1, 1]}), ("shape", (2**40 - 1, 3), {"shape": [2**40 - 1, 3]}), ("shape", (), {"shape": np.zeros(0, np.int64)}),
    ("shape", "'m.shape' says (0, 3), which is not a shape", {"shape": [0, 3]}), ("shape", "says (-4, 3)", {"shape": [-4, 3]}),
    ("shape", "is not a shape", {"shape": [4, 2**40]}),
    ("dtype", torch.float16, {}), ("dtype", torch.bfloat16, {"compute_dtype": "torch.bfloat16"}), ("dtype", torch.float32, {"compute_dtype": "torch.float32"}),
    ("dtype", "not one of torch.float16", {"compute_dtype": "x" * 64}), ("dtype", "is U8 of shape (65,), not a short", {"compute_dtype": "x" * 65}),
    ("dtype", "not a short string", {"compute_dtype": [1, 2]}),
]  # fmt: skip


@for_each(("what", "wanted", "said"), TABLE)
def test_what_is_described(what, wanted, said):
    found = of(what, said)
    if isinstance(wanted, str):
        assert wanted in found
    else:
        assert found == wanted
