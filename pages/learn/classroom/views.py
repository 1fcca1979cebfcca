"""What projector and presenter see of a class, as HTML, in which all text is escaped."""

import html
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from pages.learn.classroom.results import (
    NO_MISTAKE,
    Result,
    WrongAnswer,
    in_order,
    minus,
    reason,
    results,
)
from pages.serving.classroom import Board, ClassStep, Question, Round, Tally, TensorPart, letter
from pages.shared.state.sharing import qr
from quantcore.wording import count, signed

FEW, BIG = 3, 30  # numbers asked for that leave room for more bars; characters in a row of a large table
SHOWN, LISTED = 4, 7  # wrong numbers with a bar, once revealed, of many numbers asked for; in other cases
STATES = {"open": "voting", "locked": "talk with your neighbors", "revealed": "revealed"}
RIGHT, WRONG = "✓", "✗"  # told apart without color
# of explanations on a projector: lines in a column, characters of a line beside the bars and on a page
LINES, BESIDE, ACROSS = 14, 38, 56
LARGER = 2, 1.75, 1.5, 1.25, 1  # type of explanations, by which few fill the screen too
SMALL = 34  # characters of a line of a card's small print


class Explanation(NamedTuple):
    """What explains an answer: HTML, and its paragraphs as text."""

    html: str
    texts: tuple[str, ...]

    def lines(self, characters: int) -> int:
        """Return about how many lines it takes with so many characters in each."""
        return sum(max(1, math.ceil(len(text) / characters)) for text in self.texts)


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
    """Return what is shown before the first step."""
    heading = "<h1>Join the class</h1>" if join else ""
    joined = f'<div class="qs-count"><b>{board.joined}</b> joined</div>'
    return f'<div class="qs-class{" qs-wait" * bool(join)}">{heading}{join}{joined}</div>'


def farewell() -> str:
    """Return what a projector shows once its class has ended."""
    thanks = "<h1>Thank you for taking part.</h1><p>The class has ended, and its answers are deleted.</p>"
    return f'<div class="qs-class qs-wait">{thanks}</div>'


def text(step: ClassStep, level: int = 1) -> str:
    """Return a step that is an explanation."""
    body = "".join(f"<p>{signed(html.escape(line)) or '&nbsp;'}</p>" for line in step.text.splitlines())
    return (
        f'<div class="qs-class qs-step"><h{level}>{html.escape(step.title)}</h{level}><div>{body}</div></div>'
    )


def scene(
    board: Board,
    votes: Sequence[Tally],
    join: str = "",
    peek: bool = False,
    level: int = 1,
    page: int | None = 0,
) -> str:
    """Return a question, what is given, how many answered, and what belongs to the phase.

    That is the tensor and how to ``join`` while it is open; every answer, without the right one, once it is
    locked; and what is right, and why, once it is revealed.

    Args:
        votes: on the question; of the last two, the earlier one is shown too.
        peek: whether to show the answers before they are revealed.
        level: of the heading.
        page: of what is shown once it is revealed, see `pages`; None for everything, however long.
    """
    now, question = votes[-1].round, votes[-1].round.question
    vote, joined = f" (vote {now.vote})" if now.vote > 1 else "", max(board.joined, votes[-1].answered)
    share = f"{votes[-1].answered / joined if joined else 0:.1%}"
    facts = f'<p class="qs-facts">{minus(question.facts)}</p>'
    if peek or now.phase == "revealed":
        main = _answers(votes, page)
    elif now.phase == "locked":
        main, join = _histogram(votes), ""
    else:
        main, join = f'<div class="qs-open">{_asked(question)}{join}</div>', ""
        facts = "" if _is_bare(question) else facts
    return (
        f'<div class="qs-class"><div class="qs-top"><div>'
        f"<h{level}>{html.escape(question.prompt)}{vote}</h{level}>"
        f"{facts}</div>"
        f'<div class="qs-count"><b>{votes[-1].answered} of {joined}</b> '
        f'answered · {STATES[now.phase]}<i class="qs-bar" style="--qs-share:{share}"></i>{join}</div></div>'
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
    votes = [Tally(held, everyone, tuple(counts))]
    return scene(Board(everyone, everyone, held, None, 0, 0), votes, level=2, page=None)


def _asked(question: Question) -> str:
    """Return the tensor, with the elements asked for, or the names of the numbers asked for."""
    part = question.part
    if part is not None and part.marked:
        return table(part)
    shown = table(part) if part else ""
    if question.choices:
        return f"{shown}<ol>{''.join(f'<li>{minus(text)}</li>' for text in question.choices)}</ol>"
    if _is_bare(question):
        facts = "".join(f"<p>{minus(fact)}</p>" for fact in question.facts.split(" · "))
        return f"<div class=qs-alone>{facts}</div>"
    names = "".join(f"<li>{minus(name)}</li>" for name in question.fields)
    return shown + (f"<ul>{names}</ul>" if len(question.fields) > 1 else "<div></div>")


def _is_bare(question: Question) -> bool:
    """Tell whether nothing but its facts stands below a question while it is open."""
    return question.part is None and not question.choices and len(question.fields) == 1


def _histogram(votes: Sequence[Tally]) -> str:
    """Return every number that was given as bars of one color: nothing tells which one is right."""
    now, before = results(votes[-1]), results(votes[-2]) if len(votes) > 1 else []
    question = votes[-1].round.question
    cards = [_unmarked(question, *pair) for pair in zip_longest(now, before)]
    return f'<div class="qs-answers qs-unmarked">{_cards(cards)}{_earlier(before)}</div>'


def _unmarked(question: Question, now: Result, before: Result | None) -> str:
    every = [_given(result) if result else {} for result in (now, before)]
    offered = [f"{letter(i)}: {text}" for i, text in enumerate(question.choices)]
    frequent = Counter(every[0]) + Counter(every[1])
    shown = offered or sorted([value for value, _ in frequent.most_common(LISTED)], key=in_order)
    rows = "".join(
        _row(value, every[0].get(value, 0), now, every[1].get(value, 0) if before else None, before, "", "")
        for value in shown
    )
    rest = [
        f"{value} ({_times(every[0].get(value, 0), every[1].get(value, 0) if before else None)})"
        for value, _ in frequent.most_common()[LISTED:]
        if value not in shown
    ]
    more = f"<small>also: {minus(', '.join(rest))}</small>" if rest else ""
    return (
        f'<div class="qs-answer"><p>{minus(now.name)}</p>{rows or "<small>No answers.</small>"}{more}</div>'
    )


def _given(result: Result) -> dict[str, int]:
    """Return how often each number was given."""
    wrong = {given.value: given.students for given in result.wrong}
    return wrong | ({result.right: result.right_count} if result.right_count else {})


def _times(count: int, earlier: int | None) -> str:
    """Write how often a number was given, and in the vote before it, if there was one."""
    return f"{count}" if earlier is None else f"{earlier} → {count}"


def _cards(cards: Sequence[str]) -> str:
    """Place the cards side by side; ``--qs-lines`` tells a projector how large their type may be."""
    across = 2 if len(cards) == 4 else min(len(cards), 3)
    rows = [cards[i : i + across] for i in range(0, len(cards), across)]
    lines = sum(max(map(_lines, row)) for row in rows)
    style = f"--qs-across:{across};--qs-lines:{lines:g}"
    return f'<div class="qs-cards" style="{style}">{"".join(cards)}</div>'


def _lines(card: str) -> float:
    """Return about how many lines a card takes: its bars, its heading, and its small print."""
    small = re.findall("<small>(.*?)</small>", card)
    wrapped = sum(math.ceil(len(html.unescape(text)) / SMALL) for text in small)
    return 1.3 + card.count("qs-given") + 0.8 * wrapped


def _earlier(before: Sequence[Result]) -> str:
    return "<p>Pale bars: the vote before.</p>" if before else ""


def pages(votes: Sequence[Tally]) -> int:
    """Return how many pages the answers take: one, or one of bars and others with what explains them."""
    return len(_paged(results(votes[-1])))


def _answers(votes: Sequence[Tally], page: int | None) -> str:
    """Return each number with its answers as bars, and the wrong ones with their mistakes."""
    now, before = results(votes[-1]), results(votes[-2]) if len(votes) > 1 else []
    every = _paged(now) if page is not None else [_reasons(now)]
    page = min(page or 0, len(every) - 1)
    is_few = len(now) <= FEW
    cards = _cards([_card(*pair, is_few) for pair in zip_longest(now, before)])
    if len(every) == 1:
        why = _earlier(before) + (_explained(every[0]) or _all_right(now))
        size = _size(every[0], 1, BESIDE)
        return f'<div class="qs-answers">{cards}<div class="qs-why" style="{size}">{why}</div></div>'
    if page == 0:
        return f'<div class="qs-answers qs-unmarked">{cards}{_earlier(before)}</div>'
    size = _size(every[page], 2, ACROSS)
    return f'<div class="qs-why qs-page" style="{size}">{_explained(every[page])}</div>'


def _size(reasons: Sequence[Explanation], columns: int, characters: int) -> str:
    """Return the style of the largest type for which a projector has room, in columns of these lines."""
    larger = next(each for each in LARGER if each == 1 or _fits(reasons, columns, characters, each))
    return f"--qs-larger:{larger}"


def _fits(reasons: Sequence[Explanation], columns: int, characters: int, larger: float = 1) -> bool:
    """Tell whether a projector has room for explanations, none of which is broken between columns."""
    lines = [why.lines(int(characters / larger)) for why in reasons]
    return larger * (sum(lines) + (columns - 1) * max(lines, default=0)) <= columns * LINES


def _paged(found: Sequence[Result]) -> list[list[Explanation]]:
    """Return what explains the wrong answers, by page; the first of several is for the bars."""
    reasons = _reasons(found)
    if _fits(reasons, 1, BESIDE):
        return [reasons]
    every: list[list[Explanation]] = [[], []]
    for each in reasons:
        if every[-1] and not _fits([*every[-1], each], 2, ACROSS):
            every.append([])
        every[-1].append(each)
    return every


def _explained(reasons: Sequence[Explanation]) -> str:
    return "<dl>" + "".join(each.html for each in reasons) + "</dl>" if reasons else ""


def _all_right(found: Sequence[Result]) -> str:
    return f"<p>No {'wrong ' * any(result.answered for result in found)}answers.</p>"


def table(part: TensorPart) -> str:
    """Return the part of a tensor, with what is asked for marked."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("", *part.columns))
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(_cells(part, i))}</tr>" for i, name in enumerate(part.rows)
    )
    characters = max(map(len, map("".join, part.texts))) + max(map(len, part.rows))
    big = " class=qs-big" * (max(map(len, map("".join, part.texts))) <= BIG)
    size = f"--qs-wide:{characters + 2 * len(part.columns) + 2};--qs-high:{len(part.rows) + 1}"
    return f'<table{big} style="{size}"><tr>{head}</tr>{rows}</table>'


def _cells(part: TensorPart, row: int) -> Iterator[str]:
    for column, text in enumerate(part.texts[row]):
        yield f"<td{' class=qs-marked' * ((row, column) in part.marked)}>{minus(text)}</td>"


def _card(now: Result, before: Result | None, is_few: bool) -> str:
    """Return one number: the right answer, how it is computed, and every wrong answer."""
    earlier = {given.value: given.students for given in before.wrong} if before else {}
    wrong = {given.value: given.students for given in now.wrong}
    values = [*wrong, *(value for value in earlier if value not in wrong)]
    most = LISTED if is_few else SHOWN
    right = _row(now.right, now.right_count, now, before and before.right_count, before, RIGHT, "qs-right")
    rows = "".join(
        _row(value, wrong.get(value, 0), now, earlier.get(value, 0) if before else None, before)
        for value in values[:most]
    )
    rest = ", ".join(
        f"{value} ({_times(wrong.get(value, 0), earlier.get(value, 0) if before else None)})"
        for value in values[most:]
    )
    more = f"<small>also: {minus(rest)}</small>" if rest else ""
    shares = " → ".join(f"{result.fraction_right:.0%}" for result in (before, now) if result)
    return (
        f'<div class="qs-answer"><p>{minus(now.name)} <span>{shares} right</span></p>{right}'
        f"<small>{minus(now.how)}</small>"
        f"{rows}{more}</div>"
    )


def _row(
    value: str,
    count: int,
    now: Result,
    earlier: int | None,
    before: Result | None,
    mark: str = WRONG,
    name: str = "qs-wrong",
) -> str:
    bars = f'<i style="--qs-share:{_share(count, now)}"></i>'
    if before is not None and earlier is not None:
        bars = f'<i class="qs-before" style="--qs-share:{_share(earlier, before)}"></i>{bars}'
    marked = f"<em>{mark}</em> " if mark else ""
    value = f"<b>{marked}{minus(value)}</b>"
    return f'<div class="qs-given {name}">{value}<div>{bars}</div><span>{_times(count, earlier)}</span></div>'


def _share(count: int, result: Result) -> str:
    return f"{count / result.answered if result.answered else 0:.1%}"


def _reasons(found: Sequence[Result]) -> list[Explanation]:
    """Return why each wrong answer is given: what mistakes explain, the commonest first, then the rest."""
    every = [(result, given) for result in found for given in result.wrong]
    every.sort(key=lambda pair: -pair[1].students)
    found_why = [Explanation(*_said(*pair)) for pair in every if pair[1].why]
    rest, place = [pair for pair in every if not pair[1].why], lambda pair: found.index(pair[0])
    if rest:
        listed = "; ".join(
            f"{name}: {', '.join(f'{given.value} ({given.students})' for _, given in group)}"
            for name, group in itertools.groupby(sorted(rest, key=place), lambda pair: pair[0].name)
        )
        found_why.append(
            Explanation(f"<dt>{NO_MISTAKE.capitalize()}</dt><dd>{minus(listed)}</dd>", ("", listed))
        )
    return found_why


def _said(result: Result, given: WrongAnswer) -> tuple[str, tuple[str, ...]]:
    """Return HTML of what explains an answer, and its lines as text."""
    why = "".join(f"<dd>{reason(each)}</dd>" for each in given.why)
    students = count(given.students, "student")
    head = f"<dt>{minus(result.name)}: <b>{minus(given.value)}</b> <span>{students}</span></dt>"
    return f"<div>{head}{why}</div>", ("", *(f"{each.sentence} {each.step}" for each in given.why))
