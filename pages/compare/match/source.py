"""The text of pasted code: a file that fills it, and all of it with marks at the lines with findings."""

import html

import streamlit as st

import quantcore as qc
from pages.shared import messages
from pages.sidebar.match_fields import CODE_FILE
from quantcore.wording import count

_PROBLEM = "_match_code_problem"
_AROUND = 2  # lines shown before and after one that is marked
_MARKS = {True: ("✗", "rgba(230,97,0,.2)"), False: ("i", "rgba(60,130,220,.16)")}


def upload(key: str) -> None:
    """Draw the field for a file with code; what it contains goes into the text under ``key``."""
    file = st.file_uploader(
        "Notebook or script",
        type=["ipynb", "py", "txt"],
        key=CODE_FILE,
        label_visibility="collapsed",
        on_change=_take,
        args=(key,),
    )
    problem = st.session_state.pop(_PROBLEM, None)
    if file is not None and problem:
        messages.error(problem)


def _take(key: str) -> None:
    """Put the code of an uploaded file into the text (a callback)."""
    file = st.session_state[CODE_FILE]
    if file is None:
        return
    try:
        st.session_state[key] = file.getvalue().decode()  # a notebook is taken apart where it is evaluated
    except UnicodeDecodeError:
        name = file.name[:40]
        st.session_state[_PROBLEM] = f"{name} is not a text in UTF-8; upload a notebook or a script."


def draw(reading: qc.CodeReading) -> None:
    """Draw the whole code, with its numbers: lines with findings are marked with a sign and a color, those
    far from any are folded."""
    marked = {f.line: f.certain for f in reversed(reading.findings)}
    marked |= {f.line: True for f in reading.mistakes}
    near = {line + off for line in marked for off in range(-_AROUND, _AROUND + 1)}
    rows, folded = list[str](), list[str]()
    for number, line in enumerate(reading.text.rstrip("\n").split("\n"), 1):
        row = _row(number, line, marked.get(number), number in reading.skipped)
        if number in near:
            rows += [*_folded(folded), row]
            folded = []
        else:
            folded.append(row)
    style = (
        "font:var(--qs-small)/1.5 var(--qs-mono);margin:0;padding:.5rem 0;"
        "border-radius:.5rem;background:rgba(128,128,128,.09);overflow:auto;max-height:16.4rem"
    )
    st.html(f"<pre class='qs-code' style='{style}'>{''.join([*rows, *_folded(folded)])}</pre>")


def _row(number: int, line: str, certain: bool | None, skipped: bool) -> str:
    """Return HTML of a line of the code; ``certain``: of its finding, None if it has none."""
    sign, colour = (" ", "transparent") if certain is None else _MARKS[certain]
    faint = ";opacity:.55" if skipped else ""
    return (
        f"<div style='background:{colour};padding:0 .5rem{faint}'>{sign} <span "
        f"style='opacity:.6'>{number:>3}</span>  {html.escape(line)}</div>"
    )


def _folded(rows: list[str]) -> list[str]:
    """Return HTML of lines that are shown once their number is pressed; a few are shown at once."""
    if len(rows) <= _AROUND:
        return rows
    style = "cursor:pointer;padding:0 .5rem;opacity:.7"
    summary = f"<summary style='{style}'>{count(len(rows), 'line')}</summary>"
    return [f"<details>{summary}{''.join(rows)}</details>"]
