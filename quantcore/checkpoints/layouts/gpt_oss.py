"""gpt-oss' MXFP4: of all experts, uint8 ``<name>_blocks`` [..., groups, 16] and ``_scales`` [..., groups].

A group is 32 consecutive inputs, two FP4 codes per byte, the lower bits first; a scale is E8M0. The weight is
[experts, out, in] as stored; transformers returns it transposed. Gate and up rows alternate.

Source: gpt-oss 7b583341, gpt_oss/torch/weights.py; transformers, integrations/mxfp4.py.
"""

import re
from collections.abc import Iterator

import torch

from quantcore.checkpoints.containers.stored import Pieces
from quantcore.checkpoints.layouts.block_floats import SCALE_CODE, BlockFloats
from quantcore.checkpoints.protocol.kinds import viewed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError

NAME = re.compile(r"(.+)([._])blocks")
GROUP = 32
KIND = BlockFloats("mxfp4-gpt-oss", "e2m1", GROUP, transposes="transformers, integrations/mxfp4.py")


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights that are stored as blocks and scales."""
    for name, blocks in release.stored.items():
        match = NAME.fullmatch(name)
        scales = release.stored.get(f"{match[1]}{match[2]}scales") if match else None
        if match and scales and blocks.dtype == scales.dtype == "U8":
            pieces = {CODES: blocks, SCALE_CODE: scales}
            yield attempt(match[1], pieces, layout_of, match[1], pieces)


def layout_of(name: str, pieces: Pieces) -> Layout:
    """Return the layout of one weight.

    Raises:
        QuantError: the scales don't fit the blocks.
    """
    blocks, scales = pieces[CODES], pieces[SCALE_CODE]
    if blocks.shape != (*scales.shape, GROUP // 2) or not scales.shape:
        raise QuantError(
            f"{named(blocks.name)} has shape {blocks.shape} and its scales {scales.shape}, which are not "
            f"[..., groups, {GROUP // 2}] and [..., groups]; the file is damaged."
        )
    rows, groups = scales.shape[:-1], scales.shape[-1]
    own = {CODES: viewed(blocks, "U8", (*rows, groups * GROUP // 2)), SCALE_CODE: scales}
    return KIND.layout(name, torch.float32, own)
