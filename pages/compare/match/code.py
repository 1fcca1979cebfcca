"""Code pasted into Match, evaluated by an interpreter of our own: its mistakes by line, and what they do to the tensor."""

import html

import numpy as np
import streamlit as st

import quantcore as qc
from pages.compare.match import code_on_tensor
from pages.serving import settings
from pages.shared import cards, lesson_plan, messages
from pages.shared.charts import theme
from pages.shared.computing import cache, needs
from pages.shared.state.selection import Tensor
from quantcore import figures
from quantcore.mistakes import CASES, compare, lines
from quantcore.pasted import KINDS, MOST, lines_of

CODE = "match_code"
_EXAMPLE = "match_code_example"
# examples with cards, and what one sees in them
_SHOWN = {
    "truncated": "A cast to int drops the fraction",
    "cast-without-clamp": "Codes out of range wrap around",
    "zero-point-left-at-zero": "An asymmetric scale without its zero point",
}
_MARKS = {True: ("✗", "rgba(230,97,0,.2)"), False: ("i", "rgba(60,130,220,.16)")}


def draw(tensor: Tensor | None, scheme: qc.Scheme | None) -> None:
    """Draw the code, the mistakes found in it, and what they do to the tensor.

    Args:
        scheme: the visitor's, whose scale and zero point stand for those that the code does not compute.

    Raises:
        QuantError: the text can't be evaluated.
    """
    if settings.current().code == settings.OFF:
        messages.hint("On this server, code is not evaluated (QUANTSCOPE_CODE is off).")
        return
    left, right = st.columns(2)
    with left:
        text = st.text_area(
            "Code",
            key=CODE,
            height=210,
            persist_state="session",
            label_visibility="collapsed",
            placeholder="scale = x.abs().max() / 127\nq = torch.round(x / scale).clamp(-128, 127).to(torch.int8)",
            help="A quantizer in torch or numpy, 3 to 60 lines. It is evaluated by an interpreter of our own, with no import, "
            "no file and no attribute outside a fixed list. The link does not carry it. Press Ctrl+Enter when done.",
        )
        _examples()
    if not text or not text.strip():
        cards.draw(_cards())
        return
    reading = _read(text, tensor)
    if reading.mistakes or reading.findings:
        with right:
            _source(reading)
    _summary(reading)
    for finding in reading.mistakes:
        _finding(finding)
    if reading.notes:
        with st.expander(_notes_label(reading)):
            for finding in reading.notes:
                _finding(finding)
    if tensor is not None:
        code_on_tensor.draw(reading, tensor, scheme)


def _read(text: str, tensor: Tensor | None) -> qc.CodeReading:
    """Return what is found in the code, once it is this run's turn."""
    if tensor is None:
        return qc.read_code(text)
    shape = tuple(tensor.shape) if tensor.elements <= MOST else None
    return cache.cached_small(tensor, f"code {text}", lambda: qc.read_code(text, shape), needs.USUAL, long=True)


def _cards() -> list[cards.Card]:
    """Return some examples; the picture is what their codes are off by."""
    return [
        cards.Card(f"_match_code_card_{name}", CASES[name].title, line, _picture(name, theme()), _load, (name,))
        for name, line in _SHOWN.items()
    ]


@st.cache_resource(show_spinner=False, max_entries=2 * len(_SHOWN))
def _picture(name: str, theme: str) -> np.ndarray:
    found = compare(CASES[name])
    off = np.atleast_2d((found.wrong.codes.double() - found.right.codes.double()).numpy())
    bound = float(np.abs(off).max()) or 1.0
    return figures.thumbnail(off, "error", (-bound, bound), theme)


def _examples() -> None:
    st.selectbox(
        "Example of code",
        list(CASES),
        index=None,
        key=_EXAMPLE,
        format_func=lambda name: CASES[name].title,
        placeholder="Open an example",
        on_change=_load,
        label_visibility="collapsed",
    )


def _load(name: str | None = None) -> None:
    name = name or st.session_state[_EXAMPLE]
    st.session_state[_EXAMPLE] = None
    if name is not None:
        st.session_state[CODE] = "\n".join(line.text for line in lines(CASES[name])[0])


def _source(reading: qc.CodeReading) -> None:
    """Draw the lines with findings, with their numbers, marked with a sign and a color."""
    marked = {f.line: f.certain for f in reversed(reading.findings)}
    marked |= {f.line: True for f in reading.mistakes}
    rows = []
    texts = reading.text.split("\n")
    for number in sorted(n for n in marked if 0 < n <= len(texts)):
        (sign, colour), line = _MARKS[marked[number]], texts[number - 1]
        rows.append(
            f"<div style='background:{colour};padding:0 .5rem'>{sign} <span style='opacity:.6'>{number:>3}</span>  "
            f"{html.escape(line)}</div>"
        )
    style = (
        'font:var(--qs-small)/1.5 var(--qs-mono);margin:0;padding:.5rem 0;'
        "border-radius:.5rem;background:rgba(128,128,128,.09);overflow:auto;max-height:16.4rem"
    )
    st.html(f"<pre class='qs-code' style='{style}'>{''.join(rows)}</pre>")


def _summary(reading: qc.CodeReading) -> None:
    found, _, checked = reading.summary.partition(" Checked: ")
    if reading.mistakes or not reading.quantizers:
        messages.warning(found)
        if checked:
            st.caption(messages.plain(f"Checked: {checked}"))
    else:
        st.info(messages.plain(reading.summary), icon=":material/rule:")
    for sentence in reading.unread:
        st.caption(messages.plain(sentence))


def _notes_label(reading: qc.CodeReading) -> str:
    count = len(reading.notes)
    matters = "whether it matters depends" if count == 1 else "whether they matter depends"
    return f"{count} note{'s' * (count > 1)}, {lines_of(reading.notes)}: {matters} on the tensor"


def _finding(finding: qc.CodeFinding) -> None:
    """Draw a finding: the line, what is wrong, how to fix it, and the lesson that explains it."""
    kind = KINDS[finding.kind]
    mark = ":orange[:material/error:]" if finding.certain else ":blue[:material/info:]"
    words, link = st.columns([6, 1.4], vertical_alignment="center")
    words.markdown(
        f"{mark} **Line {finding.line}: {messages.plain(kind.title)}.** {messages.plain(finding.what)} {messages.plain(finding.fix)}"
    )
    number = list(lesson_plan.LESSONS).index(kind.lesson) + 1
    link.page_link(
        lesson_plan.script(kind.lesson),
        label=f"Lesson {number}: {lesson_plan.LESSONS[kind.lesson].title}",
        icon=":material/school:",
        help=CASES[kind.step].title if kind.step in CASES else None,
        query_params={lesson_plan.step_key(kind.lesson): kind.step} if kind.step else None,
    )
