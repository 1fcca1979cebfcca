"""What the answers of a class show, for the projector and for the files that the teacher takes along."""

import csv
import html
import io
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pages.learn.classroom.questions import AnswerKey
from pages.learn.lesson_pages import LESSON_URLS
from pages.serving.classroom import Tally
from pages.shared.lesson_plan import numbered, step_key, step_words
from quantcore.mistakes import MISTAKES

SHOWN = 4  # wrong numbers per field
NO_MISTAKE = "no known mistake"
Writer = Callable[[Sequence[Tally], str], str]  # of a file


class Why(NamedTuple):
    """A known mistake that gives a number: its name in `MISTAKES`, and the sentence that explains it."""

    mistake: str
    sentence: str

    @property
    def step(self) -> str:
        """The lesson, and the step if it is one alone, that treat it, in words; "" without one."""
        name, step = MISTAKES[self.mistake].lesson or ("", "")
        words = f"lesson {numbered(name)}" if name else ""
        return words + (f": {step_words(step.replace('-', ' '))}" if step else "")

    @property
    def link(self) -> str:
        """Page and query that open it; "" without one."""
        lesson = MISTAKES[self.mistake].lesson
        return lesson_link(*lesson) if lesson else ""


def lesson_link(name: str, step: str) -> str:
    """Return page and query that open a step of a lesson; without a step, the lesson."""
    return LESSON_URLS[name] + (f"?{step_key(name)}={step}" if step else "")


class WrongAnswer(NamedTuple):
    """A number that so many ``students`` gave; ``why``: the known mistakes that give exactly it."""

    value: str
    students: int
    why: tuple[Why, ...]


class Result(NamedTuple):
    """The answers to one of a question's numbers; ``wrong``: the commonest first."""

    name: str
    right: str
    how: str
    right_count: int
    answered: int
    wrong: tuple[WrongAnswer, ...]

    @property
    def fraction_right(self) -> float:
        """0 if nobody answered."""
        return self.right_count / self.answered if self.answered else 0.0


def results(tally: Tally) -> list[Result]:
    """Return the answers of a round, number by number."""
    question = tally.round.question
    source = AnswerKey.of(question)
    found = []
    for name, right, each, counts in zip(
        question.fields, question.right, source.fields, tally.counts, strict=True
    ):
        # of equally frequent numbers the smaller first
        others = sorted((v for v in counts if v != right), key=lambda v: (-counts[v], float(v)))
        wrong = tuple(
            WrongAnswer(value, counts[value], tuple(Why(m, why) for v, m, why in each.wrong if v == value))
            for value in others
        )
        found.append(Result(name, right, each.how, counts[right], tally.answered, wrong))
    return found


def as_csv(tallies: Sequence[Tally], address: str) -> str:
    """Write every number that was given, one per line, with how often, and the known mistakes that give it.

    Args:
        address: of the app, for the links, with its slash.
    """
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(["round", "vote", "question", "facts", "asked for", "answer", "is right", "students", "answered", "mistakes", "link"])  # fmt: skip
    for tally in tallies:
        now, link = tally.round, _linked(address, AnswerKey.of(tally.round.question).link)
        for result in results(tally):
            head = [now.number, now.vote, now.question.prompt, now.question.facts, result.name]
            lines.writerow([*head, result.right, "yes", result.right_count, result.answered, "", link])
            for given in result.wrong:
                why = "; ".join(each.mistake for each in given.why) or NO_MISTAKE
                lines.writerow([*head, given.value, "no", given.students, result.answered, why, link])
    return written.getvalue()


def as_html(tallies: Sequence[Tally], address: str) -> str:
    """Write one page that needs nothing else: the questions, the answers, and why.

    Args:
        address: as for `as_csv`.
    """
    body = "".join(part for tally in tallies for part in _section(tally, address))
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Answers of a class · Quantscope</title><style>'
        "body{font:16px/1.4 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "td,th{text-align:left;vertical-align:top;padding:.2em .8em .2em 0}</style></head><body>"
        f"<h1>Answers of a class</h1>{body}</body></html>"
    )


def _section(tally: Tally, address: str) -> Iterator[str]:
    now, link = tally.round, _linked(address, AnswerKey.of(tally.round.question).link)
    vote = f" (vote {now.vote})" if now.vote > 1 else ""
    yield f"<h2>{html.escape(now.question.prompt)}{vote}</h2><p>{html.escape(now.question.facts)}"
    if link:
        yield f' · <a href="{html.escape(link)}">Open it in Quantscope</a>'
    yield "</p><table><tr><th>Asked for</th><th>Answer</th><th>Students</th><th>Why</th></tr>"
    for result in results(tally):
        yield _row(result.name, result.right, result.right_count, result, f"Right. {html.escape(result.how)}")
        for given in result.wrong:
            why = "<br>".join(reason(each, address) for each in given.why)
            yield _row("", given.value, given.students, result, why or NO_MISTAKE)
    yield "</table>"


def reason(why: Why, address: str = "") -> str:
    """Return HTML of a mistake's sentence, and of a link to the step that treats it."""
    step = f' <a href="{html.escape(address + why.link)}" target="_blank">{html.escape(why.step)}</a>' if why.step else ""
    return html.escape(why.sentence) + step


def _linked(address: str, link: str) -> str:
    return link and address + link


def _row(name: str, value: str, count: int, result: Result, why: str) -> str:
    cells = f"<td>{html.escape(name)}</td><td>{html.escape(value)}</td>"
    return f"<tr>{cells}<td>{count} of {result.answered}</td><td>{why}</td></tr>"
