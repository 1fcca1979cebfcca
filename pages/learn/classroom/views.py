"""What the answers of a class show: as HTML for projector and presenter, and in the teacher's files.

All text in HTML is escaped.
"""

import csv
import html
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import NamedTuple

from pages.learn.lesson_pages import LESSON_URLS
from pages.serving.classroom import Board, Question, Round, Tally, TensorPart
from pages.shared.lesson_plan import numbered, step_key, step_words
from pages.shared.state.sharing import qr
from quantcore.mistakes import MISTAKES
from quantcore.prediction import as_typed
from quantcore.wording import count

FEW, BIG = 3, 30  # numbers asked for, and characters in a row, that are shown in larger type
SHOWN = 4  # wrong numbers per field
NO_MISTAKE = "no known mistake"
Writer = Callable[[Sequence[Tally], str], str]  # of a file


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
    """The answers to one of a question's numbers; ``wrong``: the commonest first, explained ones first."""

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
    # of equally frequent numbers the explained first, then the smaller
    wrong.sort(key=lambda each: (-each.students, not each.why, _order(each.value)))
    return tuple(wrong), right


def _order(value: str) -> tuple[float, str]:
    """Return by what answers are sorted: numbers by size, choices by letter."""
    return (0.0, value) if value[0].isupper() else (float(value), value)


_COLUMNS = [
    *("round", "vote", "question", "facts", "asked for", "answer"),
    *("is right", "students", "answered", "mistakes", "link"),
]


def as_csv(tallies: Sequence[Tally], address: str) -> str:
    """Write every number that was given, one per line, with how often, and the known mistakes that give it.

    Args:
        address: of the app, for the links, with its slash.
    """
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(_COLUMNS)
    for tally in tallies:
        now, link = tally.round, tally.round.question.link
        link = link and address + link
        for result in results(tally):
            head = [now.number, now.vote, now.question.prompt, now.question.facts, result.name]
            lines.writerow([*head, result.right, "yes", result.right_count, result.answered, "", link])
            for given in result.wrong:
                why = "; ".join(dict.fromkeys(each.kind for each in given.why)) or NO_MISTAKE
                lines.writerow([*head, given.value, "no", given.students, result.answered, why, link])
    return written.getvalue()


def as_html(tallies: Sequence[Tally], address: str) -> str:
    """Write one page that needs nothing else: the questions, the answers, and why.

    Args:
        address: as for `as_csv`.
    """
    body = "".join(part for tally in tallies for part in _section(tally, address))
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        "<title>Answers of a class · Quantscope</title><style>"
        "body{font:16px/1.4 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "td,th{text-align:left;vertical-align:top;padding:.2em .8em .2em 0}</style></head><body>"
        f"<h1>Answers of a class</h1>{body}</body></html>"
    )


def _section(tally: Tally, address: str) -> Iterator[str]:
    now, link = tally.round, tally.round.question.link
    vote = f" (vote {now.vote})" if now.vote > 1 else ""
    yield f"<h2>{html.escape(now.question.prompt)}{vote}</h2><p>{html.escape(now.question.facts)}"
    if link:
        yield f' · <a href="{html.escape(address + link)}">Open it in Quantscope</a>'
    yield "</p><table><tr><th>Asked for</th><th>Answer</th><th>Students</th><th>Why</th></tr>"
    for result in results(tally):
        right = f"Right. {html.escape(result.how)}"
        yield _table_row(result.name, result.right, result.right_count, result, right)
        for given in result.wrong:
            why = "<br>".join(reason(each, address) for each in given.why)
            yield _table_row("", given.value, given.students, result, why or NO_MISTAKE)
    yield "</table>"


def reason(why: Why, address: str = "") -> str:
    """Return HTML of a mistake's sentence, and of a link to the step that treats it."""
    href = html.escape(address + why.link)
    step = f' <a href="{href}" target="_blank">{html.escape(why.step)}</a>' if why.step else ""
    return html.escape(why.sentence) + step


def _table_row(name: str, value: str, count: int, result: Result, why: str) -> str:
    cells = f"<td>{html.escape(name)}</td><td>{html.escape(value)}</td>"
    return f"<tr>{cells}<td>{count} of {result.answered}</td><td>{why}</td></tr>"


def spelled(code: str) -> str:
    """Write a class's code as people read it to each other."""
    return f"{code[:4]}-{code[4:]}".upper()


def joining(code: str, address: str) -> str:
    """Return how to join: QR code, address, code."""
    whole = f"{address}class/{code}"
    shown = html.escape(f"{address}class".partition("://")[2])
    return (
        f'<div class="qs-join">{qr(whole, "QR code of the address where students join")}'
        f"<p>{shown}<br><b>{spelled(code)}</b></p></div>"
    )


def waiting(board: Board, join: str) -> str:
    """Return what is shown before the first question."""
    heading = "<h1>Join the class</h1>" if join else ""
    joined = f'<div class="qs-count"><b>{board.joined}</b> joined</div>'
    return f'<div class="qs-class{" qs-wait" * bool(join)}">{heading}{join}{joined}</div>'


def scene(board: Board, votes: Sequence[Tally], join: str = "", peek: bool = False, level: int = 1) -> str:
    """Return a question, what is given, how many answered; then tensor and how to ``join``, or the answers.

    Args:
        votes: on the question; of the last two, the earlier one is shown too.
        peek: whether to show the answers before they are revealed.
        level: of the heading.
    """
    now, question = votes[-1].round, votes[-1].round.question
    vote, joined = f" (vote {now.vote})" if now.vote > 1 else "", max(board.joined, votes[-1].answered)
    share = f"{votes[-1].answered / joined if joined else 0:.1%}"
    told = peek or now.phase == "revealed"
    main = _answers(votes) if told else f'<div class="qs-open">{_asked(question)}{join}</div>'
    return (
        f'<div class="qs-class{" qs-few" * (len(question.fields) <= FEW)}"><div class="qs-top"><div>'
        f"<h{level}>{html.escape(question.prompt)}{vote}</h{level}>"
        f'<p class="qs-facts">{_minus(question.facts)}</p></div>'
        f'<div class="qs-count"><b>{votes[-1].answered} of {joined}</b> '
        f'answered · {now.phase}<i class="qs-bar" style="--qs-share:{share}"></i>{join * told}</div></div>'
        f"{main}</div>"
    )


def example(question: Question) -> str:
    """Return answers of an invented class of 24: at most 8 are wrong, which known mistakes give."""
    everyone, counts = 24, []
    for key in question.keys:
        values = dict.fromkeys(known.value for known in key.wrong)
        wrong = Counter(dict(zip(values, (5, 2, 1), strict=False)))
        counts.append(wrong + Counter({key.right: everyone - wrong.total()}))
    held = Round(1, 1, "revealed", question)
    return scene(Board(everyone, everyone, held, 1, 1), [Tally(held, everyone, tuple(counts))], level=2)


def _asked(question: Question) -> str:
    """Return the tensor, with the elements asked for, or the names of the numbers asked for."""
    part = question.part
    if part is not None and part.marked:
        return _table(part)
    names = "".join(f"<li>{_minus(name)}</li>" for name in question.fields)
    return f"{_table(part) if part else ''}<ul>{names}</ul>"


def _answers(votes: Sequence[Tally]) -> str:
    """Return each number with its answers as bars, and the commonest wrong ones with their mistakes."""
    now, before = results(votes[-1]), results(votes[-2]) if len(votes) > 1 else []
    cards = "".join(_card(*pair) for pair in zip_longest(now, before))
    across = 2 if len(now) == 4 else min(len(now), 3)
    key = "<p>Pale bars: the vote before.</p>" if before else ""
    return (
        f'<div class="qs-answers"><div class="qs-cards" style="--qs-across:{across}">{cards}</div>'
        f'<div class="qs-why">{key}{_reasons(now)}</div></div>'
    )


def _table(part: TensorPart) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("", *part.columns))
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(_cells(part, i))}</tr>" for i, name in enumerate(part.rows)
    )
    big = " class=qs-big" * (max(map(len, map("".join, part.texts))) <= BIG)
    return f"<table{big}><tr>{head}</tr>{rows}</table>"


def _cells(part: TensorPart, row: int) -> Iterator[str]:
    for column, text in enumerate(part.texts[row]):
        yield f"<td{' class=qs-marked' * ((row, column) in part.marked)}>{_minus(text)}</td>"


def _card(now: Result, before: Result | None) -> str:
    """Return one number: the right answer, how it is computed, and the commonest wrong answers."""
    earlier = {given.value: given.students for given in before.wrong} if before else {}
    wrong = {given.value: given.students for given in now.wrong}
    values = [*wrong, *(value for value in earlier if value not in wrong)]
    right = _row(now.right, now.right_count, now, before and before.right_count, before, "qs-right")
    rows = "".join(
        _row(value, wrong.get(value, 0), now, earlier.get(value, 0) if before else None, before)
        for value in values[:SHOWN]
    )
    rest = len(values) - SHOWN
    more = f"<small>and {rest} other number{'s' * (rest > 1)}</small>" if rest > 0 else ""
    shares = " → ".join(f"{result.fraction_right:.0%}" for result in (before, now) if result)
    return (
        f'<div class="qs-answer"><p>{_minus(now.name)} <span>{shares} right</span></p>{right}'
        f"<small>{_minus(now.how)}</small>"
        f"{rows}{more}</div>"
    )


def _row(
    value: str, count: int, now: Result, earlier: int | None, before: Result | None, name: str = "qs-wrong"
) -> str:
    bars, shown = f'<i style="--qs-share:{_share(count, now)}"></i>', f"{count}"
    if before is not None and earlier is not None:
        bars = f'<i class="qs-before" style="--qs-share:{_share(earlier, before)}"></i>{bars}'
        shown = f"{earlier} → {count}"
    return f'<div class="qs-given {name}"><b>{_minus(value)}</b><div>{bars}</div><span>{shown}</span></div>'


def _share(count: int, result: Result) -> str:
    return f"{count / result.answered if result.answered else 0:.1%}"


def _reasons(found: Sequence[Result]) -> str:
    """Return the wrong answers that the bars show, the commonest first, and why somebody gives each."""
    every = [(result, given) for result in found for given in result.wrong[:SHOWN]]
    if not every:
        return (
            "<p>No wrong answers.</p>" if any(result.answered for result in found) else "<p>No answers.</p>"
        )
    every.sort(key=lambda pair: -pair[1].students)
    return "<dl>" + "".join(_reason(*pair) for pair in every) + "</dl>"


def _reason(result: Result, given: WrongAnswer) -> str:
    why = "".join(f"<dd>{_signed(reason(each))}</dd>" for each in given.why) or f"<dd>{NO_MISTAKE}</dd>"
    students = count(given.students, "student")
    return f"<dt>{_minus(result.name)}: <b>{_minus(given.value)}</b> <span>{students}</span></dt>{why}"


def _minus(text: str) -> str:
    """Escape a text, and put minus signs into it."""
    return _signed(html.escape(text))


def _signed(body: str) -> str:
    """Put a minus sign into HTML for each hyphen that does not follow a letter or digit."""
    return re.sub(r"(?<!\w)-", "−", body)
