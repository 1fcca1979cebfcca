"""What is said of files and weights: problems with files, and statements about one weight or many alike.

The words of a statement are a template: ``"{has} {zeros:scale} of 0, first at {first}"``. A name in braces is
a fact, or a word that agrees with the number of weights (`AGREEING`). After the colon: ``%`` for a fraction,
``list`` for a list, otherwise the noun that is counted. What many weights say in the same words becomes one
sentence: a number in which they differ becomes its range, and any other fact that of the first weight, by
name.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from quantcore.diagnosis import index, number, percent
from quantcore.errors import QuantError
from quantcore.wording import count, joined, short

NAME = 120  # characters of a name that are shown
Fact = int | float | str | tuple[int, ...]
Facts = Mapping[str, Fact]
LISTED = 8  # numbers of a list
# said of one weight -> of several
AGREEING = {
    "has": "have", "is": "are", "was": "were", "does": "do", "its": "their", "it": "they",
    "contains": "contain", "stores": "store", "stays": "stay", "reaches": "reach", "uses": "use",
    "differs": "differ", "weight": "weights", "takes": "take", "needs": "need", "lacks": "lack",
    "itself": "themselves", "keeps": "keep", "loses": "lose",
}  # fmt: skip


class NotFound(QuantError):
    """There is no checkpoint at an address, or it can't be opened; what it contains is another matter."""


@dataclass(frozen=True)
class Problem:
    """Something that keeps tensors from being read, or that the user should know.

    ``kind``: "missing_shard", "outside", "not_a_shard", "unreadable_shard", "missing_tensor", "wrong_shard",
    "duplicate_tensor" or "unreadable_tensor". ``tensors``: the names of the tensors that it concerns, as in
    the files. ``cause``: equal for problems with the same cause; empty if their sentences tell.
    """

    kind: str
    severity: Literal["error", "warning", "note"]
    sentence: str
    tensors: tuple[str, ...] = ()
    cause: str = ""


def raised_at(error: BaseException) -> str:
    """Return the check that raised an error; errors of one check have one cause, for any tensor."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace is not None else ""


def named(name: str) -> str:
    """Quote a name that a file gives, cut to a length that a sentence can hold."""
    return short(name, NAME)


@dataclass(frozen=True)
class Statement:
    """Something to say of a weight, such as a decision against the config; follows the weight's name."""

    kind: str
    severity: Literal["error", "warning", "note"]
    words: str
    facts: Facts = field(default_factory=dict)

    def about(self, name: str) -> str:
        """Return it as a sentence about one weight."""
        return write(self.words, named(name), [self.facts], [name])


def write(words: str, subject: str, facts: Sequence[Facts], names: Sequence[str]) -> str:
    """Return the sentence that the weights ``names`` share, each with its own facts.

    >>> write("{has} {n:scale} of 0.", "'a' and 'b'", [{"n": 1}, {"n": 3}], ["a", "b"])
    "'a' and 'b' have 1 to 3 scales each of 0."
    """
    if not facts[0]:  # plain words, which may contain braces
        return f"{subject} {words}"
    several = len(names) > 1
    known: dict[str, Any] = {one: many if several else one for one, many in AGREEING.items()}
    for key in facts[0]:
        known[key] = _Shown([own[key] for own in facts if key in own], names)
    return f"{subject} {words.format_map(known)}"


def some(names: Iterable[str], shown: int = 5) -> str:
    """List a few names: ``'a', 'b' and 3 more``."""
    listed = list(names)
    text = ", ".join(short(name, 80) for name in listed[:shown])
    return f"{text} and {len(listed) - shown:,} more" if len(listed) > shown else text


def plain(value: Any) -> Any:
    """Return plain data for JSON; numbers that are not finite are strings: ``nan``, ``inf``, ``-inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


class _Shown:
    """The values of one fact, as a template shows them."""

    def __init__(self, values: Sequence[Fact], names: Sequence[str]) -> None:
        self.values, self.first, self.several = list(dict.fromkeys(values)), names[0], len(names) > 1

    def __format__(self, spec: str) -> str:
        one, *others = self.values
        if not others:
            each = " each" if self.several and spec not in ("", "%", "list") else ""
            return f"{_one(one, spec)}{each}"
        if all(isinstance(value, int | float) for value in self.values):
            low, high = min(self.values), max(self.values)
            plain = spec if spec == "%" else ""
            noun = f" {spec}s each" if spec not in ("", "%") else ""
            return f"{_one(low, plain)} to {_one(high, plain)}{noun}"
        return f"{_one(one, spec)} in {named(self.first)}"


def _one(value: Fact, spec: str) -> str:
    if isinstance(value, tuple):
        return _listed(value) if spec == "list" else index(value)
    if isinstance(value, str):
        return value
    if spec == "%":
        return percent(value)
    if spec:
        return count(int(value), spec)
    return (f"{value:,}" if isinstance(value, int) else number(value)).replace("-", "−", 1)


def _listed(numbers: tuple[int, ...]) -> str:
    shown = [str(n).replace("-", "−") for n in numbers[:LISTED]]
    return joined([*shown, f"{len(numbers) - LISTED} more"] if len(numbers) > LISTED else shown)
