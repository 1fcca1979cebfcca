"""A question as it is stored, in a class or a file: its values, read from JSON and checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quantcore.errors import QuantError
from quantcore.prediction import KnownWrong, NumberKey

MOST_DIGITS = 12  # that can be typed


@dataclass(frozen=True)
class TensorPart:
    """The part of a tensor that the projector shows, numbers as text.

    ``rows``, ``columns``: their indices; ``marked``: (row, column) in this part of the elements asked for.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    marked: tuple[tuple[int, int], ...]


def values(found: object, names: frozenset[str]) -> dict[str, Any]:
    """Return the values of a question's attributes, of these names, from an object of JSON.

    Raises:
        QuantError: it is not a question.
    """
    if not isinstance(found, Mapping):
        raise QuantError("A question must be a JSON object with a prompt, fields and keys.")
    if more := found.keys() - names:
        raise QuantError(f"A question has no {min(map(str, more))[:40]!r}; take it out.")
    texts = {name: _text(found, name) for name in ("prompt", "facts", "asked", "link")}
    lists = {name: _list(found, name, str) for name in ("fields", "choices")}
    keys = tuple(_key(each) for each in _list(found, "keys", Mapping))
    part = found.get("part")
    return {**texts, **lists, "keys": keys, "part": None if part is None else _part(part)}


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name, "")
    if not isinstance(value, str) or not value.isprintable():
        raise QuantError(f"The {name} of a question must be a text of one line.")
    return value


def _list(found: Mapping[str, Any], name: str, kind: Any) -> tuple[Any, ...]:
    value = found.get(name, ())
    if not isinstance(value, list | tuple) or not all(isinstance(each, kind) for each in value):
        of = "texts" if kind is str else "objects"
        raise QuantError(f"The {name} of a question must be a list of {of}.")
    return tuple(value)


def _key(found: Mapping[str, Any]) -> NumberKey:
    if more := found.keys() - NumberKey.__dataclass_fields__.keys():
        raise QuantError(f"An answer key has no {min(map(str, more))[:40]!r}; take it out.")
    digits, wrong = found.get("digits", 0), found.get("wrong", [])
    if type(digits) is not int or not 0 <= digits <= MOST_DIGITS:
        raise QuantError(f"The digits of an answer key must be an integer from 0 to {MOST_DIGITS}.")
    if not isinstance(wrong, list | tuple) or not all(_is_texts(each, 3) for each in wrong):
        raise QuantError("The wrong numbers of an answer key must be lists of number, mistake and sentence.")
    texts = {name: _text(found, name) for name in ("right", "tolerance", "how")}
    accepted = _list(found, "accepted", str)
    return NumberKey(digits=digits, accepted=accepted, wrong=tuple(KnownWrong(*w) for w in wrong), **texts)


def _is_texts(value: object, many: int = 0) -> bool:
    if not isinstance(value, list | tuple) or (many and len(value) != many):
        return False
    return all(isinstance(each, str) for each in value)


def _part(found: object) -> TensorPart:
    if isinstance(found, Mapping) and found.keys() == TensorPart.__dataclass_fields__.keys():
        rows, columns, texts, marked = (found[name] for name in TensorPart.__dataclass_fields__)
        is_table = _is_texts(rows) and _is_texts(columns) and isinstance(texts, list | tuple)
        if is_table and len(texts) == len(rows) and all(_is_texts(row, len(columns)) for row in texts):
            pairs = marked if isinstance(marked, list | tuple) else [None]
            if all(_is_place(pair, len(rows), len(columns)) for pair in pairs):
                places = tuple(tuple(pair) for pair in marked)
                return TensorPart(tuple(rows), tuple(columns), tuple(map(tuple, texts)), places)
    raise QuantError(
        "The part of a tensor in a question must have rows, columns, their texts and what is marked."
    )


def _is_place(pair: object, rows: int, columns: int) -> bool:
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(type(i) is int for i in pair):
        return False
    row, column = pair
    return bool(0 <= row < rows and 0 <= column < columns)
