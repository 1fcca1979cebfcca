"""What is said of one weight or of many alike: words with places for numbers, and the numbers as data.

Words are a template: ``"{has} {zeros:scale} of 0, first at {first}"``. A name in braces is a fact, or a word that
agrees with the number of weights (`AGREEING`). After the colon: ``%`` for a fraction, ``list`` for a list, otherwise
the noun that is counted. What many weights say in the same words becomes one sentence: a number in which they differ
becomes its range, and any other fact that of the first weight, by name.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from quantcore.checkpoints.problem import named
from quantcore.diagnosis import index, number, percent
from quantcore.wording import count, joined

Fact = int | float | str | tuple[int, ...]
Facts = Mapping[str, Fact]
NO_FACTS: Facts = {}
LISTED = 8  # numbers of a list

# said of one weight -> of several
AGREEING = {
    "has": "have", "is": "are", "was": "were", "does": "do", "its": "their", "it": "they", "contains": "contain",
    "stores": "store", "stays": "stay", "reaches": "reach", "uses": "use", "differs": "differ", "weight": "weights",
    "takes": "take", "needs": "need", "lacks": "lack", "itself": "themselves", "keeps": "keep", "loses": "lose",
}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """Something to say of a weight, such as a decision against the config; its words follow the weight's name."""

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


def plain(value: Any) -> Any:
    """Return plain data for JSON, in which numbers that are not finite are strings: ``nan``, ``inf`` and ``-inf``."""
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
