"""bitsandbytes' LLM.int8(): ``weight`` int8 [out, in], ``SCB`` float32 [out], max|x| of each row.

w = (code * SCB) * float32(1/127), in this order. ``weight_format`` uint8: 0 is row-major; the formats for tensor
cores (col32, col_turing, col_ampere), which only releases before 0.43 have, permute the codes.

Source: bitsandbytes 95f9af30, bitsandbytes/functional.py (QuantState) and backends/default/ops.py.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import torch

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Numbers
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import words
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.protocol.value import CODES, SCALE
from quantcore.errors import QuantError
from quantcore.formats import INT8
from quantcore.granularity import PerChannel

NAMES = ("weight", "SCB", "weight_format")


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights that have their scales in ``SCB``."""
    for module, pieces in release.modules_with("weight", "SCB"):
        own = {name: pieces[name] for name in NAMES if name in pieces}
        yield attempt(f"{module}.weight", own, partial(layout_of, module, own))


def layout_of(module: str, pieces: Mapping[str, StoredTensor]) -> Layout:
    """Return the layout of one module.

    Raises:
        QuantError: the stored tensors don't fit each other.
    """
    weight, scales = pieces["weight"], pieces["SCB"]
    if weight.dtype != "I8" or len(weight.shape) != 2 or scales.shape != weight.shape[:1]:
        raise QuantError(
            f"{named(weight.name)} is {weight.dtype} of shape {weight.shape} with SCB of shape {scales.shape}; "
            "bitsandbytes stores an int8 matrix and one number per row, so the file is damaged."
        )
    return Layout(
        f"{module}.weight", weight.shape, torch.float32, pieces, {CODES: Numbers(weight), SCALE: Numbers(scales)},
        "bitsandbytes-int8", words("bitsandbytes-int8", "int8", "per_channel(0)", "symmetric"), INT8, PerChannel(0),
        decoding="of_largest", refuse=partial(_refuse_permuted, module, pieces.get("weight_format")),
    )  # fmt: skip


def _refuse_permuted(module: str, order: StoredTensor | None) -> None:
    if order is not None and order.num_bytes and any(order.bytes()):
        raise QuantError(
            f"{named(f'{module}.weight')} is stored in the order of tensor cores (weight_format "
            f"{order.bytes()[0]}), which is not supported; save it again with bitsandbytes 0.43 or later."
        )
