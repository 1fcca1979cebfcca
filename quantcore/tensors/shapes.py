"""Shapes that a user types: parsed and checked."""

import math
import re
from numbers import Integral

from quantcore.errors import QuantError
from quantcore.tensors.limits import MAX_ELEMENTS
from quantcore.wording import shape_text, short

MAX_GENERATED_RANK = 6
_WRAPPED = re.compile(r"(?:torch\.Size\()?[\[(](.*?),?\s*[\])]\)?", re.DOTALL)
_BETWEEN = re.compile(r"\s*[x×X*,;]\s*|\s+")


def parse_shape(text: str) -> tuple[int, ...]:
    """Read ``64x128``, ``64, 128``, ``64 128``, ``(64,128)`` or ``64×128`` as (64, 128); ``()`` is a scalar.

    Raises:
        QuantError: a size is missing or not an integer, or the shape fails `check_shape`.
    """
    text = text.strip()
    if not text:
        raise QuantError("The shape is empty; write sizes such as 64x128.")
    if len(text) > 200:
        raise QuantError(f"{short(text)} is too long for a shape; write sizes such as 64x128.")
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped.group(1).strip()
    words = _BETWEEN.split(text) if text else []
    for word in words:
        if not word:
            raise QuantError(f"A size is missing in the shape {short(text)}; write sizes such as 64x128.")
        if not re.fullmatch(r"-?[0-9]+", word):
            raise QuantError(f"{short(word)} in the shape is not an integer; write sizes such as 64x128.")
    return check_shape(tuple(int(word) for word in words))


def check_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``shape`` as plain ints, if a tensor can have it.

    Raises:
        QuantError: a size is not an integer of at least 1, or there are too many axes or elements.
    """
    if len(shape) > MAX_GENERATED_RANK:
        raise QuantError(f"The shape has {len(shape)} axes; give at most {MAX_GENERATED_RANK}.")
    for axis, size in enumerate(shape):
        if isinstance(size, bool) or not isinstance(size, Integral):
            raise QuantError(f"Axis {axis} of the shape is {short(str(size))}; give an integer.")
        if size < 1:
            raise QuantError(
                f"Axis {axis} of the shape {shape_text(shape)} has size {size}; give at least 1."
            )
    shape = tuple(int(size) for size in shape)
    if math.prod(shape) > MAX_ELEMENTS:
        raise QuantError(
            f"The shape {shape_text(shape)} has more than {MAX_ELEMENTS:,} elements (4096×14336); "
            "make it smaller."
        )
    return shape
