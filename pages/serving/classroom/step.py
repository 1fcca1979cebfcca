"""What a class goes through, step by step, as it is stored and as a file that people can read and edit."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from pages.serving.classroom.question import Question
from quantcore.errors import QuantError

FORMAT, VERSION = "quantscope class", 1
MOST_STEPS, MOST_BYTES = 60, 400_000  # of a sequence, and of its file
MOST_TITLE, MOST_TEXT, MOST_VIEW, MOST_MINUTES = 160, 1500, 8000, 120
_VIEW = re.compile(r"[a-z0-9-]*(\?[^#\s]*)?", re.ASCII)
_ORDER = ("title", "minutes", "text", "view", "question")


@dataclass(frozen=True)
class ClassStep:
    """An explanation, a demonstration or a question.

    Attributes:
        title: what the projector shows in large type; of a question its prompt, whatever is given.
        minutes: how long it takes, 0 if that is not planned.
        text: what the projector shows below the title, in lines.
        view: page and query of the app that the projector shows, "" for none.
        question: what the class is asked, None if nothing.
        id: tells it from other steps of a class, which gives it one.

    Raises:
        QuantError: an attribute is too long, or is not what it should be.
    """

    title: str
    minutes: int = 0
    text: str = ""
    view: str = ""
    question: Question | None = None
    id: str = ""

    def __post_init__(self) -> None:
        if self.question:
            object.__setattr__(self, "title", self.question.prompt)
        if not self.title.strip() or len(self.title) > MOST_TITLE or not self.title.isprintable():
            raise QuantError(
                f"A step needs a title of one line and at most {MOST_TITLE} characters; type one."
            )
        if len(self.text) > MOST_TEXT:
            raise QuantError(
                f"The text of a step has at most {MOST_TEXT:,} characters, and this has {len(self.text):,}; "
                "make two steps of it."
            )
        if type(self.minutes) is not int or not 0 <= self.minutes <= MOST_MINUTES:
            raise QuantError(f"The minutes of a step must be an integer from 0 to {MOST_MINUTES}.")
        if len(self.view) > MOST_VIEW or not _VIEW.fullmatch(self.view):
            raise QuantError(
                "The view of a step must be a page of this app and its parameters, such as "
                "ranges?bits=4; copy it with Link on that page."
            )
        if self.view and self.question:
            raise QuantError("A step has a view or a question, not both; make two steps of them.")

    def to_json(self) -> dict[str, Any]:
        """Return the step without what has its default."""
        found = {name: getattr(self, name) for name in ("title", "minutes", "text", "view", "id")}
        if self.question:
            found |= {"question": self.question.to_json(), "title": ""}
        return {name: value for name, value in found.items() if value not in ("", 0)}

    @classmethod
    def from_json(cls, found: object) -> Self:
        """Read what `to_json` returned.

        Raises:
            QuantError: it is not a step.
        """
        if not isinstance(found, Mapping):
            raise QuantError("A step must be an object with a title, or with a question.")
        if more := found.keys() - {*_ORDER, "id"}:
            raise QuantError(f"A step has no {min(map(str, more))[:40]!r}; take it out.")
        texts = {name: found.get(name, "") for name in ("title", "text", "view", "id")}
        for name, value in texts.items():
            if not isinstance(value, str):
                raise QuantError(f"The {name} of a step must be a text.")
        question = Question.from_json(found["question"]) if "question" in found else None
        return cls(**texts, minutes=found.get("minutes", 0), question=question)


def view_of(link: str) -> str:
    """Return page and query of a link to a view of this app, however much of the address it has.

    >>> view_of("https://quant.example.org/app/ranges?bits=4"), view_of("ranges?bits=4")
    ('ranges?bits=4', 'ranges?bits=4')
    """
    address, mark, query = link.strip().partition("?")
    return address.rpartition("/")[2] + mark + query


def with_ids(steps: Sequence[ClassStep]) -> list[ClassStep]:
    """Give each step without an id, or with that of an earlier one, an id of its own."""
    found: list[ClassStep] = []
    numbers = iter(range(1, 10**9))
    taken = {step.id for step in steps}
    for step in steps:
        if not step.id or any(step.id == other.id for other in found):
            name = next(text for text in map(str, numbers) if text not in taken)
            step = replace(step, id=name)
        found.append(step)
    return found


def to_file(steps: Sequence[ClassStep]) -> str:
    """Write the steps as a file: JSON with a version, to be read and edited by people."""
    written = [
        {name: found[name] for name in _ORDER if name in found}
        for found in (step.to_json() for step in steps)
    ]
    content = {"format": FORMAT, "version": VERSION, "steps": written}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def from_file(text: str | bytes) -> list[ClassStep]:
    """Read what `to_file` wrote, or somebody changed.

    Raises:
        QuantError: it is not such a file, in one sentence that names the place.
    """
    if len(text) > MOST_BYTES:
        raise QuantError(f"The file of a class has at most {MOST_BYTES:,} bytes, and this has {len(text):,}.")
    try:
        found = json.loads(text)
    except UnicodeDecodeError:
        raise QuantError(
            "This is not a file of a class, which is JSON in UTF-8; choose another one."
        ) from None
    except json.JSONDecodeError as error:
        raise QuantError(
            f"This is not a file of a class: in line {error.lineno}, at character {error.colno}, it is not "
            f"JSON ({error.msg}); correct it there."
        ) from None
    except (ValueError, RecursionError):
        raise QuantError(
            "This is not a file of a class: it can't be read as JSON; choose another one."
        ) from None
    if not isinstance(found, Mapping) or found.get("format") != FORMAT:
        raise QuantError(
            f'This is JSON, but not a file of a class, which has "format": "{FORMAT}"; choose another.'
        )
    if found.get("version") != VERSION:
        raise QuantError(
            f"This file has version {str(found.get('version'))[:20]}, and this Quantscope reads version "
            f"{VERSION}; open it with the Quantscope that wrote it."
        )
    steps = found.get("steps")
    if not isinstance(steps, list) or not 0 < len(steps) <= MOST_STEPS:
        raise QuantError(f'The file must have a list "steps" with 1 to {MOST_STEPS} steps; change it there.')
    return with_ids([_placed(number, each) for number, each in enumerate(steps, 1)])


def _placed(number: int, found: object) -> ClassStep:
    try:
        return replace(ClassStep.from_json(found), id="")
    except QuantError as error:
        raise QuantError(f"Step {number} of the file: {error}") from None
