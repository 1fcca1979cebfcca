"""Takes codes out of words and puts them back, whatever the order.

Codes are taken out place by place: code j of every period at once, as a plane of contiguous numbers, from bytes where
these lie along the axis; the planes are then interleaved. Taking them period by period costs ten times as much.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from quantcore.checkpoints.packing.orders import Order

Codes = npt.NDArray[np.unsignedinteger[Any]]


def unpack(words: npt.NDArray[Any], order: Order, n: int, axis: int = -1) -> Codes:
    """Return the ``n`` codes along ``axis`` of words, as unsigned integers."""
    axis %= words.ndim
    outer, inner = words.shape[:axis], words.shape[axis + 1 :]
    periods = order.periods(n)
    words = _whole_periods(words, periods * order.words, axis)
    units = words.reshape(math.prod(outer), periods, order.words, math.prod(inner))
    if math.prod(inner) == 1:  # the bytes of words lie along the axis
        fine = order.in_bytes
        if fine is not order:
            data = np.ascontiguousarray(units).view(np.uint8)
            order, units = fine, data.reshape(len(units), -1, fine.words, 1)
    codes = _interleaved(_planes(units, order), order)
    return codes.reshape(*outer, -1, *inner)[(slice(None),) * axis + (slice(n),)]


def _planes(units: npt.NDArray[Any], order: Order) -> Codes:
    """Return code j of every period, for each j: (count, outer, periods, inner)."""
    outer, periods, _, inner = units.shape
    sources = [np.ascontiguousarray(units[:, :, k]) for k in range(order.words)]
    planes = np.empty((order.count, outer, periods, inner), np.uint8 if order.bits <= 8 else np.uint16)
    for plane, fragments in zip(planes, order.codes, strict=True):
        for number, f in enumerate(fragments):
            # narrowed before it is masked, since narrow numbers take less time
            shifted = sources[f.word] >> f.shift if f.shift else sources[f.word]
            part = shifted.astype(plane.dtype) if number else plane
            if not number:
                np.copyto(plane, shifted, casting="unsafe")
            if f.shift + f.width < order.word_bits:
                part &= (1 << f.width) - 1
            if f.low:
                part <<= f.low
            if number:
                plane |= part
    return planes


def _interleaved(planes: Codes, order: Order) -> Codes:
    """Return planes in the order of their elements: (outer, codes, inner)."""
    count, outer, periods, inner = planes.shape
    axes = (1, 0, 2, 3) if order.in_parts else (1, 2, 0, 3)
    if planes.dtype.itemsize == 1:  # numpy takes ten times as long to transpose bytes
        moved = torch.from_numpy(planes).permute(axes).contiguous().numpy()
    else:
        moved = np.ascontiguousarray(planes.transpose(axes))
    return moved.reshape(outer, count * periods, inner)


def pack(codes: npt.NDArray[Any], order: Order, axis: int = -1) -> npt.NDArray[Any]:
    """Return the words of codes along ``axis``; bits that belong to no code are 0.

    Args:
        codes: unsigned integers of at most ``order.bits`` bits.
    """
    axis %= codes.ndim
    n = codes.shape[axis]
    outer, inner = codes.shape[:axis], codes.shape[axis + 1 :]
    periods = order.periods(n)
    codes = _whole_periods(codes, periods * order.count, axis)
    shape = (order.count, periods) if order.in_parts else (periods, order.count)
    grouped = codes.reshape(math.prod(outer), *shape, math.prod(inner))
    words = np.zeros((len(grouped), periods, order.words, grouped.shape[-1]), order.dtype)
    for j, fragments in enumerate(order.codes):
        source = grouped[:, j] if order.in_parts else grouped[:, :, j]
        for f in fragments:
            part = (source >> f.low) & ((1 << f.width) - 1)
            words[:, :, f.word] |= part.astype(order.dtype) << f.shift
    packed = words.reshape(*outer, periods * order.words, *inner)
    return packed[(slice(None),) * axis + (slice(order.words_of(n)),)]


def _whole_periods(x: npt.NDArray[Any], length: int, axis: int) -> npt.NDArray[Any]:
    """Return x with zeros added along ``axis`` up to ``length``, or cut there."""
    missing = length - x.shape[axis]
    if missing <= 0:
        return x[(slice(None),) * axis + (slice(length),)]
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, missing)
    return np.pad(x, widths)
