"""A checkpoint's weight as a `Quantized` result, for everything in quantcore that works on one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.spreading import Parameters
from quantcore.conventions import TEXTBOOK, Convention
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, Granularity, PerBlock
from quantcore.numerics import as_float32
from quantcore.qparams import QParams
from quantcore.quantization import Quantized
from quantcore.range_setting import Stored
from quantcore.scheme import Scheme


def quantized_of(layout: Layout, original: Any, values: Callable[[], Tensor]) -> Quantized:
    """Return a result whose codes and parameters are those of the file.

    Args:
        original: the tensor before it was quantized, or None.
        values: returns the values that are used if it is None.

    Raises:
        QuantError: the weight is not quantized or has no elements, or the original has another shape.
    """
    if 0 in layout.shape:
        raise QuantError(f"{named(layout.name)} has shape {layout.shape}, so it has no elements.")
    codes = layout.codes().to(layout.element.dtype)
    x = values() if original is None else as_float32(original)
    if tuple(x.shape) != layout.shape:
        raise QuantError(
            f"The original has shape {tuple(x.shape)}, but {named(layout.name)} has {layout.shape}; "
            "give the weight that it was quantized from."
        )
    parameters = layout.parameters()
    convention = convention_of(layout, parameters)
    setting = stored_of(layout, parameters, layout.group_index())
    granularity: Granularity = layout.granularity
    if setting.group_index is not None:  # a group's columns are not adjacent: every element is a block
        granularity = PerBlock((1,) * len(layout.shape))
    scheme = Scheme(layout.element, layout.symmetric, granularity, setting, convention)
    grid = Blocks.of(granularity, layout.shape).grid
    params = QParams(*setting.parameters(grid, x.device))
    return Quantized(x, scheme, codes, as_decoded(params, layout))


def as_decoded(params: QParams, layout: Layout) -> QParams:
    """Return the parameters with the number that the library dequantizes with instead of the scale, if any."""
    if layout.decoding == "divided":
        return replace(params, scale=1 / params.scale, inverse=params.scale)
    if layout.decoding == "of_largest":
        return replace(params, scale=params.scale * (1 / layout.element.symmetric_max), high=params.scale)
    return params


def convention_of(layout: Layout, parameters: Parameters) -> Convention:
    """Return the convention that a weight's parameters follow."""
    convention = TEXTBOOK.changed(decoding=layout.decoding)
    if layout.rounds_each:
        convention = convention.changed(decoding_dtype=str(layout.dtype).removeprefix("torch."))
    if parameters.min is not None:
        return convention.changed(zero_point_form="min", kernel="H")
    if parameters.zero_point is not None and parameters.zero_point.is_floating_point():
        return convention.changed(zero_point_form="float", kernel="C")
    return convention


def stored_of(layout: Layout, parameters: Parameters, groups: Tensor | None) -> Stored:
    """Return a weight's parameters, for all or some of its rows, as a range setting.

    Args:
        groups: the group of each column or element; None without a group index.
    """
    shift = parameters.zero_point if parameters.min is None else parameters.min
    zero = torch.zeros((), dtype=torch.int32)
    shift = zero if shift is None else shift if shift.is_floating_point() else shift.to(torch.int32)
    files = dict.fromkeys(piece.file for piece in layout.pieces.values())
    return Stored(
        torch.ones(()) if parameters.scale is None else parameters.scale,
        shift,
        origin=f"{' '.join(files)}: {layout.name}",
        group_index=groups,
        owner=layout,
        num_bytes=layout.num_bytes,
    )
