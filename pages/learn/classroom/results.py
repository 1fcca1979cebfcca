"""What a class answered, number by number, and what explains each wrong answer."""

import html
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

from pages.learn.lesson_pages import LESSON_URLS
from pages.serving.classroom import Question, Tally
from pages.shared.curriculum import numbered, step_key, step_words
from quantcore.mistakes import MISTAKES
from quantcore.prediction import as_typed
from quantcore.wording import signed

NO_MISTAKE = "no known mistake"


class Why(NamedTuple):
    """What explains a number: a mistake's name in `MISTAKES`, "" for others, its kind, and the sentence."""

    mistake: str
    kind: str
    sentence: str

    @property
    def step(self) -> str:
        """The lesson, and the step if it is one alone, that treat it, in words; "" without one."""
        name, step = self._lesson or ("", "")
        words = f"lesson {numbered(name)}" if name else ""
        return words + (f": {step_words(step.replace('-', ' '))}" if step else "")

    @property
    def link(self) -> str:
        """Page and query that open it; "" without one."""
        return lesson_link(*self._lesson) if self._lesson else ""

    @property
    def _lesson(self) -> tuple[str, str] | None:
        return MISTAKES[self.mistake].lesson if self.mistake else None


def lesson_link(name: str, step: str) -> str:
    """Return page and query that open a step of a lesson; without a step, the lesson."""
    return LESSON_URLS[name] + (f"?{step_key(name)}={step}" if step else "")


class WrongAnswer(NamedTuple):
    """A number that so many ``students`` gave; ``why``: what explains it, the likeliest first."""

    value: str
    students: int
    why: tuple[Why, ...]


class Result(NamedTuple):
    """The answers to one of a question's numbers; ``wrong``: explained ones first, then the commonest."""

    name: str
    right: str
    how: str
    wrong: tuple[WrongAnswer, ...]
    right_count: int
    answered: int

    @property
    def fraction_right(self) -> float:
        """0 if nobody answered."""
        return self.right_count / self.answered if self.answered else 0.0


def results(tally: Tally) -> list[Result]:
    """Return the answers of a round, number by number."""
    question = tally.round.question
    every = zip(question.fields, question.keys, tally.counts, strict=True)
    return [
        Result(name, question.said(key.right), key.how, *_counted(question, i, counts), tally.answered)
        for i, (name, key, counts) in enumerate(every)
    ]


def _counted(question: Question, field: int, counts: Counter[str]) -> tuple[tuple[WrongAnswer, ...], int]:
    """Return the wrong answers, and how many are right; numbers that are equal as rounded are one answer."""
    key = question.keys[field]
    right, found = 0, dict[str, tuple[int, dict[str, Why]]]()
    for value, students in counts.items():
        marks = question.reasons(field, value)
        if not marks:
            right += students
            continue
        shown = question.said(as_typed(Fraction(value), key.digits) if key.digits else value)
        before, why = found.get(shown, (0, {}))
        whys = {m.sentence: Why(m.mistake, m.kind, m.sentence) for m in marks if m.kind != "wrong"}
        found[shown] = before + students, why | whys
    wrong = [WrongAnswer(value, many, tuple(why.values())) for value, (many, why) in found.items()]
    wrong.sort(key=lambda each: (not each.why, -each.students, in_order(each.value)))
    return tuple(wrong), right


def in_order(value: str) -> tuple[float, str]:
    """Return by what answers are sorted: numbers by size, choices by letter."""
    return (0.0, value) if value[0].isupper() else (float(value), value)


def reason(why: Why, address: str = "") -> str:
    """Return HTML of a mistake's sentence, and of a link to the step that treats it."""
    href = html.escape(address + why.link)
    step = f' <a href="{href}" target="_blank">{html.escape(why.step)}</a>' if why.step else ""
    return minus(why.sentence) + step


def minus(text: str) -> str:
    """Escape a text, and put minus signs into it."""
    return signed(html.escape(text))
