"""Takes codes out of words and puts them back, whatever the order."""

from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.checkpoints.packing.orders import Order

Codes = npt.NDArray[np.unsignedinteger[Any]]


def unpack(words: npt.NDArray[Any], order: Order, n: int, axis: int = -1) -> Codes:
    """Return the ``n`` codes along ``axis`` of words, as unsigned integers."""
    axis %= words.ndim
    outer, inner = words.shape[:axis], words.shape[axis + 1 :]
    periods = order.periods(n)
    words = _whole_periods(words, periods * order.words, axis)
    grouped = words.reshape(-1, periods, order.words, int(np.prod(inner)))
    dtype = np.uint8 if order.bits <= 8 else np.uint16
    shape = (order.count, periods) if order.in_parts else (periods, order.count)
    out = np.empty((len(grouped), *shape, grouped.shape[-1]), dtype)
    for j in range(order.count):
        target = out[:, j] if order.in_parts else out[:, :, j]
        _unpack_one(grouped, order, j, target)
    codes = out.reshape(*outer, periods * order.count, *inner)
    return codes[(slice(None),) * axis + (slice(n),)]


def _unpack_one(grouped: npt.NDArray[Any], order: Order, code: int, target: Codes) -> None:
    """Write code number ``code`` of each period."""
    for number, f in enumerate(order.codes[code]):
        part = grouped[:, :, f.word]
        if f.shift:
            part = part >> f.shift
        if f.shift + f.width < order.word_bits:
            part = part & ((1 << f.width) - 1)
        if number == 0 and not f.low:
            target[...] = part
        else:
            if number == 0:
                target[...] = 0
            target |= (part << f.low).astype(target.dtype)


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
    grouped = codes.reshape(-1, *shape, int(np.prod(inner)))
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
