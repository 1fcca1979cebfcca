"""Another reading of a weight: its bytes as other libraries read them, and what differs, in words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from quantcore.checkpoints.packing import PackingOrder, dense, high_first
from quantcore.checkpoints.protocol.fields import Rows
from quantcore.expressions import text_of
from quantcore.granularity import Shape

Sentence = Callable[[Any, Any], str]  # of an element's origin here, and there
Index = tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """Another reading of a weight.

    ``key``: its key in findings;
    ``name``: a few words;
    ``reader``: what reads this way, with a source;
    ``layout``: reads the same bytes this way;
    ``difference``: makes a sentence from the origins of one element, as here and as there.
    """

    key: str
    name: str
    reader: str
    layout: Any
    difference: Sentence


@dataclass(frozen=True)
class Rearranged:
    """A weight whose elements another reader returns at other indices.

    ``inner``: the weight as it is stored;
    ``shape``: there;
    ``stored_index``: where an element there is stored;
    ``values``: returns the values of some rows there, from the weight as it is stored.
    """

    inner: Any
    shape: Shape
    stored_index: Callable[[Index], Index]
    values: Callable[[Rows], Tensor]


def instead(symbol: str, before: str) -> Sentence:
    """Return a sentence: ``before``, then the number that differs, or that it is the same."""
    return compared(f"{before}: {symbol} = ", lambda origin: text_of(origin.numbers[symbol]))


def compared(before: str, of: Callable[[Any], str]) -> Sentence:
    """Return a sentence: ``before``, then what differs, or that it is the same; ``of``: that of an origin."""

    def sentence(here: Any, there: Any) -> str:
        mine, theirs = of(here), of(there)
        return f"{before}{theirs}" + (", as here." if mine == theirs else f" instead of {mine}.")

    return sentence


def elsewhere(before: str) -> Sentence:
    """Return a sentence: ``before``, then the bits that the code is read from."""

    def place(origin: Any) -> str:
        word = origin.code.words[0]
        low, high = min(word.own), max(word.own)
        return f"bits {low}–{high} of {word.name.rpartition('.')[2]}"

    def sentence(here: Any, there: Any) -> str:
        mine, theirs = place(here), place(there)
        if mine == theirs:
            return f"{before}: this code is read from the same bits."
        one_word = here.code.words[0].offset == there.code.words[0].offset
        return (
            f"{before}: this code is read from {theirs} instead of "
            f"{mine.partition(' of ')[0] if one_word else mine}."
        )

    return sentence


def in_order(layout: Any, reader: str) -> Reading:
    """Return the reading of a layout with its columns in the order of the file."""

    def sentence(here: Any, there: Any) -> str:
        mine, theirs = (o.parameters["scale"].words[0].index for o in (here, there))
        same = mine == theirs
        end = "the same scale as here." if same else f"the scale at {list(theirs)} instead of {list(mine)}."
        return f"Takes the columns in order, without the group index: {end}"

    return Reading("g_idx_ignored", "group index ignored", reader, layout, sentence)


def nibbles(layout: Any, half: Literal["upper", "lower"]) -> Reading:
    """Return the reading of a layout that takes the first of two codes in a byte from the other half."""
    other = layout.with_field("codes", order=high_first(4, 8) if half == "upper" else dense(4, 8))
    users = "bitsandbytes' order" if half == "upper" else "the order of compressed-tensors, ModelOpt and MLX"
    before = f"Takes the even one of two elements from the {half} half of the byte"
    name, reader = f"{half} half of a byte first", f"readers that use {users}"
    return Reading("nibble_order", name, reader, other, elsewhere(before))


def other_parts(layout: Any, order: PackingOrder, end: str, library: str) -> Reading:
    """Return the reading of a layout that takes the parts of the rows from the other end of a word."""
    other = layout.with_field("codes", order=order)
    before = f"Takes the first part of the rows from the {end} bits"
    reader = f"readers that use the order of {library}"
    return Reading("part_order", f"first rows in the {end} bits", reader, other, elsewhere(before))


def e8m0_255(layout: Any, nan: bool) -> Reading:
    """Return the reading of E8M0's 255 as NaN, or as a number."""
    what = "NaN" if nan else "2^128"
    reader = "readers that follow the OCP standard" if nan else "readers that only shift the bits"

    def sentence(here: Any, there: Any) -> str:
        is_255 = here.numbers.get("sc", here.numbers.get("scale_code")) == 255
        return f"Reads a scale of 255 as {what}" + ("." if is_255 else "; this one is not 255.")

    return Reading("e8m0_nan", f"E8M0 255 as {what}", reader, layout, sentence)
