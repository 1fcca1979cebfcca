"""The answers of a class as files that the teacher keeps: a table, and a report."""

import csv
import html
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pages.learn.classroom.results import NO_MISTAKE, Result, minus, reason, results
from pages.learn.classroom.views import table
from pages.serving.classroom import Ballot, Round, Tally
from pages.serving.classroom.words import KINDS
from quantcore.wording import count

Writer = Callable[[Sequence[Tally], Sequence[Ballot], str], str]  # of a file
_HEAD = ("student", "question", "given", "asked for", "right answer")
_VOTE = ("vote {}", "right {}", "why {}", "time {} (UTC)")
MARK = "\ufeff"  # by which Excel knows that a table is UTF-8
_STYLE = (
    "body{font:16px/1.4 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "td,th{text-align:left;vertical-align:top;padding:.2em .8em .2em 0;white-space:nowrap}"
    "td:last-child{white-space:normal}h2{margin:1.6em 0 .3em}h3{margin:1em 0 .2em;font-size:1em}"
    "p{margin:.3em 0}"
    ".qs-part td{text-align:right;padding:.2em .5em;border:1px solid #c3c8d0}"
    ".qs-part table{border-collapse:collapse}.qs-part th{font-weight:400;opacity:.7;padding:.2em .5em}"
    "h2,h3{break-after:avoid}tr,.qs-part{break-inside:avoid}@media print{body{font-size:11pt;margin:0}}"
    ".qs-marked{background:#cfe8f5;color:#000}"
)


def as_csv(tallies: Sequence[Tally], ballots: Sequence[Ballot], address: str) -> str:
    """Write what each student answered to each question, all votes in one line, for Excel and others.

    Args:
        address: of the app, for the links, with its slash.
    """
    asked = [[tally.round for tally in votes] for votes in _asked(tallies)]
    most = max((len(votes) for votes in asked), default=1)
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\r\n")
    every = [name.format(vote) for vote in range(1, most + 1) for name in _VOTE]
    lines.writerow([*_HEAD, *every, "link"])
    given = {(ballot.student, ballot.round): ballot for ballot in ballots}
    for votes in asked:
        question = votes[0].question
        link = question.link and address + question.link
        students = sorted({student for student, number in given if number in {each.number for each in votes}})
        for student in students:
            for field, (name, key) in enumerate(zip(question.fields, question.keys, strict=True)):
                row = [student, question.prompt, question.facts, name, question.said(key.right)]
                for each in votes:
                    row += _answer(each, given.get((student, each.number)), field)
                lines.writerow([*row, *[""] * (len(_VOTE) * (most - len(votes))), link])
    return MARK + written.getvalue()


def _asked(tallies: Sequence[Tally]) -> list[list[Tally]]:
    """Return the votes of each question: a first vote begins another one."""
    asked: list[list[Tally]] = []
    for tally in tallies:
        if tally.round.vote == 1 or not asked:
            asked.append([])
        asked[-1].append(tally)
    return asked


def _answer(now: Round, ballot: Ballot | None, field: int) -> list[str]:
    """Return what a student answered in a round, whether it is right, why not, and when."""
    if ballot is None:
        return [""] * len(_VOTE)
    typed = ballot.typed[field]
    kinds = dict.fromkeys(mark.kind for mark in now.question.reasons(field, typed))
    why = "; ".join(_words(kind) for kind in kinds)
    return [now.question.said(typed), "no" if kinds else "yes", why, _time(ballot.time)]


def _words(kind: str) -> str:
    """Write a kind of mistake as people call it."""
    if kind == "wrong":
        return NO_MISTAKE
    return KINDS[kind].en if kind in KINDS else kind


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}" if seconds else ""


def as_html(tallies: Sequence[Tally], ballots: Sequence[Ballot], address: str) -> str:
    """Write one page that needs nothing else: when it was, the questions with their tensors, answers and why.

    Args:
        address: as for `as_csv`.
    """
    times: Mapping[int, float] = {}
    for ballot in ballots:
        times = {**times, ballot.round: min(ballot.time, times.get(ballot.round, ballot.time))}
    body = "".join(part for votes in _asked(tallies) for part in _section(votes, times, address))
    first = _time(min(times.values(), default=0.0))
    students = len({ballot.student for ballot in ballots})
    when = f"<p>{first[:10]} · {students} students answered.</p>" if first else "<p>Nobody has answered.</p>"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f"<title>Answers of a class · Quantscope</title><style>{_STYLE}</style></head><body>"
        f"<h1>Answers of a class</h1>{when}{body}</body></html>"
    )


def _section(votes: Sequence[Tally], times: Mapping[int, float], address: str) -> Iterator[str]:
    """Yield a question, and the answers of each vote on it."""
    question = votes[0].round.question
    yield f"<section><h2>{html.escape(question.prompt)}</h2><p>{minus(question.facts)}"
    if question.link:
        yield f' · <a href="{html.escape(address + question.link)}">Open it in Quantscope</a>'
    yield "</p>"
    if question.part:
        yield f'<div class="qs-part">{table(question.part)}</div>'
    for tally in votes:
        yield from _vote(tally, times, address)
    yield "</section>"


def _vote(tally: Tally, times: Mapping[int, float], address: str) -> Iterator[str]:
    when = _time(times.get(tally.round.number, 0.0))
    first = f" · first answer at {when[11:16]} UTC" if when else ""
    yield f"<h3>Vote {tally.round.vote} · {count(tally.answered, 'student')}{first}</h3>"
    yield "<table><tr><th>Asked for</th><th>Answer</th><th>Students</th><th>Why</th></tr>"
    for result in results(tally):
        right = f"<b>Right.</b> {minus(result.how)}"
        yield _table_row(result.name, result.right, result.right_count, result, right)
        for given in result.wrong:
            why = "<br>".join(reason(each, address) for each in given.why)
            yield _table_row("", given.value, given.students, result, why or NO_MISTAKE)
    yield "</table>"


def _table_row(name: str, value: str, many: int, result: Result, why: str) -> str:
    cells = f"<td>{minus(name)}</td><td>{minus(value)}</td>"
    return f"<tr>{cells}<td>{many} of {result.answered}</td><td>{why}</td></tr>"
