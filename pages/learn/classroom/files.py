"""The answers of a class as files that the teacher keeps."""

import csv
import html
import io
from collections.abc import Callable, Iterator, Sequence

from pages.learn.classroom.results import NO_MISTAKE, Result, reason, results
from pages.serving.classroom import Tally

Writer = Callable[[Sequence[Tally], str], str]  # of a file

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


def _table_row(name: str, value: str, count: int, result: Result, why: str) -> str:
    cells = f"<td>{html.escape(name)}</td><td>{html.escape(value)}</td>"
    return f"<tr>{cells}<td>{count} of {result.answered}</td><td>{why}</td></tr>"
