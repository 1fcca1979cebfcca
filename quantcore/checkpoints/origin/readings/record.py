"""Another reading of a weight, and sentences on how it differs."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from quantcore.checkpoints.origin.arithmetic import Origin
from quantcore.checkpoints.origin.expression import text_of
from quantcore.checkpoints.protocol.layout import Layout

Sentence = Callable[[Origin, Origin], str]


@dataclass(frozen=True)
class Reading:
    """Another reading of a weight.

    ``key``: its key in findings; ``name``: a few words; ``reader``: what reads this way, with a source; ``layout``: reads
    the same bytes this way; ``difference``: makes a sentence from the origins of one element, as here and as there.
    """

    key: str
    name: str
    reader: str
    layout: Layout
    difference: Sentence


def same_record(kind: type[Layout], layout: Layout, **changes: object) -> Layout:
    """Return a layout of another class, with the fields of this one."""
    return kind(**{f.name: getattr(layout, f.name) for f in fields(layout)} | changes)


def instead(symbol: str, before: str) -> Sentence:
    """Return a sentence: ``before``, then the number that differs, or that it is the same."""

    def sentence(here: Origin, there: Origin) -> str:
        mine, theirs = (text_of(o.numbers[symbol]) for o in (here, there))
        same = mine == theirs
        return f"{before}: {symbol} = {theirs}" + (", as here." if same else f" instead of {mine}.")

    return sentence


def _place(origin: Origin) -> str:
    word = origin.code.words[0]
    low, high = min(word.own), max(word.own)
    return f"bits {low}–{high} of {word.name.rpartition('.')[2]}"


def elsewhere(before: str) -> Sentence:
    """Return a sentence: ``before``, then the bits that the code is read from."""

    def sentence(here: Origin, there: Origin) -> str:
        mine, theirs = _place(here), _place(there)
        if mine == theirs:
            return f"{before}: this code is read from the same bits."
        one_word = here.code.words[0].offset == there.code.words[0].offset
        return f"{before}: this code is read from {theirs} instead of {mine.partition(' of ')[0] if one_word else mine}."

    return sentence
