"""A choice of a convention: its values, what depends on it, and a sentence that says what it does.

A choice is a field of one of the stages, declared with `choice`, which takes its default and its sentences.
`quantcore.differences` and the reasons of `quantcore.compare` are built from these.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from quantcore import notation
from quantcore.conventions.case import Case
from quantcore.errors import QuantError

Says = Callable[[Case], str] | Mapping[object, str]


@dataclass(frozen=True)
class Choice:
    """``at_stake``: what depends on it, as a phrase; ``says``: what it does in one case, or a sentence per value;
    ``matters``: whether another value can change a number in the case; ``kind``: the reason in a word or two.
    """

    at_stake: str
    says: Says
    matters: Callable[[Case], bool]
    kind: str

    def sentence(self, value: object, case: Case) -> str:
        """Return what this value does in the case."""
        return self.says(case) if callable(self.says) else self.says[value]


def _always(case: Case) -> bool:
    return True


def choice(
    default: Any,
    at_stake: str,
    says: Says,
    matters: Callable[[Case], bool] = _always,
    kind: str = "",
    values: Iterable[str] = (),
) -> Any:
    """Declare a field of a stage with its sentences.

    ``default``: the textbook's value; ``values``: the allowed ones, if the annotation does not list them.
    """
    made = Choice(at_stake, says, matters, kind or at_stake)
    return dataclasses.field(default=default, metadata={"choice": made, "values": tuple(values)})


class Stage:
    """One stage of the arithmetic, and its choices.

    ``ALTERS``: the first result that its choices change: "parameters", "codes", or the dequantized "values".
    ``VALUES``: the allowed values, by choice, where they are listed; ``NUMBERS``: the choices that are
    numbers.
    """

    ALTERS: ClassVar[str] = "parameters"
    VALUES: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    NUMBERS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        # once per class: resolving annotations is slow, and comparisons create many stages that differ in one
        # choice
        hints = {name: get_type_hints(cls)[name] for name in cls.__annotations__}
        listed = {
            name: (False, True) if hint is bool else get_args(hint) or vars(cls)[name].metadata["values"]
            for name, hint in hints.items()
            if get_origin(hint) is Literal or hint in (bool, str)
        }
        cls.VALUES = {name: values for name, values in listed.items() if values}
        cls.NUMBERS = tuple(name for name, hint in hints.items() if hint is float)

    def __post_init__(self) -> None:
        for name, values in self.VALUES.items():
            value = getattr(self, name)
            if value not in values or isinstance(value, bool) != isinstance(values[0], bool):
                *others, last = map(str, values)
                raise QuantError(
                    f"{name}={str(value)[:40]!r} is not valid; choose {', '.join(others)} or {last}."
                )
        for name in self.NUMBERS:
            number = notation.finite(getattr(self, name), name)
            if number < 0:
                raise QuantError(f"{name} must not be negative, but is {number:g}.")
            object.__setattr__(self, name, number)


def choices_of(stage: type[Stage]) -> dict[str, Choice]:
    """Return the choices of a stage, by name."""
    return {f.name: f.metadata["choice"] for f in dataclasses.fields(stage)}  # type: ignore[arg-type]
