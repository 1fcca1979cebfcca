"""Codes chosen by a search instead of being computed with the stored scale."""

import torch
from torch import Tensor

from quantcore.granularity import Blocks, cells_of
from quantcore.qparams import QParams


def lowest_codes(params: QParams, lowest: int, of_scales: QParams, blocks: Blocks) -> None:
    """Give the groups of super-blocks that count as 0 (`MaxScale.least`) the lowest codes, in place, as ggml does.

    ``of_scales``, ``blocks``: the parameters and blocks of the scales.
    """
    if params.searched is None:
        return
    assert of_scales.raw is not None
    unscaled = cells_of((of_scales.raw == 0).to(torch.uint8), blocks.shape, blocks.block)
    if bool(unscaled.any()):
        groups = params.searched.view(*unscaled.shape, -1)
        groups.masked_fill_(unscaled.bool().unsqueeze(-1), lowest)


def keep_searched(codes: Tensor, params: QParams, blocks: Blocks) -> None:
    """Where a scale is stored as 0, insert the codes of the search, in place."""
    assert params.searched is not None
    zero = params.scale.reshape(-1) == 0
    if bool(zero.any()):
        size = blocks.block[-1]
        codes.view(-1, size)[zero] = params.searched.view(-1, size)[zero]
