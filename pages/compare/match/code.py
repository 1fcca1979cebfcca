"""Code pasted in Match, which is never run: its mistakes by line, and what they do to the tensor."""

import html
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

import quantcore as qc
from pages.maps import cells
from pages.shared import cache, lesson_plan, messages
from pages.shared.selection import Tensor
from quantcore import code_reading
from quantcore.code_reading import KINDS, lines_of
from quantcore.mistakes import MISTAKES, lines

CODE = "match_code"
_EXAMPLE, _CHOSEN = "match_code_example", "match_code_chosen"
MOST = 1 << 18  # elements; of a larger tensor only the first rows are used
SIDE = 8  # rows and columns of the tensor that are shown as numbers
_MARKS = {True: ("✗", "rgba(230,97,0,.2)"), False: ("i", "rgba(60,130,220,.16)")}


def draw(tensor: Tensor | None) -> None:
    """Draw the code, the mistakes found in it, and what they do to the tensor.

    Raises:
        QuantError: the text can't be read as code.
    """
    left, right = st.columns(2)
    with left:
        text = st.text_area(
            "Code",
            key=CODE,
            height=210,
            persist_state="session",
            label_visibility="collapsed",
            placeholder="scale = x.abs().max() / 127\nq = torch.round(x / scale).clamp(-128, 127).to(torch.int8)",
            help="A quantizer in torch or numpy, 3 to 60 lines. It is read, never run, and the link does not carry it. "
            "Press Ctrl+Enter when done.",
        )
        _examples()
    if not text or not text.strip():
        with right:
            messages.hint(
                "Paste the code of a quantizer: common mistakes are reported by line. The code is never run."
            )
        return
    reading = qc.read_code(text)
    with right:
        _source(reading)
    _summary(reading)
    for finding in reading.mistakes:
        _finding(finding)
    if reading.notes:
        with st.expander(_noted(reading)):
            for finding in reading.notes:
                _finding(finding)
    if tensor is not None:
        _on_tensor(reading, tensor)


def _examples() -> None:
    st.selectbox(
        "Example of code",
        list(MISTAKES),
        index=None,
        key=_EXAMPLE,
        format_func=lambda name: MISTAKES[name].title,
        placeholder="Open an example",
        on_change=_load,
        label_visibility="collapsed",
    )


def _load() -> None:
    name = st.session_state[_EXAMPLE]
    st.session_state[_EXAMPLE] = None
    if name is not None:
        st.session_state[CODE] = "\n".join(line.text for line in lines(MISTAKES[name])[0])


def _source(reading: qc.CodeReading) -> None:
    """Draw the code with line numbers; lines with findings are marked by a sign and a color."""
    marked = {f.line: f.certain for f in reversed(reading.findings)}
    marked |= {f.line: True for f in reading.mistakes}
    rows = []
    for number, line in enumerate(reading.text.split("\n"), 1):
        sign, colour = _MARKS[marked[number]] if number in marked else (" ", "transparent")
        rows.append(
            f"<div style='background:{colour};padding:0 .5rem'>{sign} <span style='opacity:.6'>{number:>3}</span>  "
            f"{html.escape(line)}</div>"
        )
    style = (
        'font-family:"Source Code Pro",monospace;font-size:.82rem;line-height:1.5;margin:0;padding:.5rem 0;'
        "border-radius:.5rem;background:rgba(128,128,128,.09);overflow:auto;max-height:16.4rem"
    )
    st.html(f"<pre class='qs-code' style='{style}'>{''.join(rows)}</pre>")


def _summary(reading: qc.CodeReading) -> None:
    found, _, checked = reading.summary.partition(" Checked: ")
    if reading.mistakes or not reading.chains:
        messages.warning(found)
        if checked:
            st.caption(messages.plain(f"Checked: {checked}"))
    else:
        st.info(messages.plain(reading.summary), icon=":material/rule:")
    for sentence in reading.unread:
        st.caption(messages.plain(sentence))


def _noted(reading: qc.CodeReading) -> str:
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
    number_of = list(lesson_plan.LESSONS).index(finding.lesson) + 1
    link.page_link(
        lesson_plan.script(finding.lesson),
        label=f"Lesson {number_of}: {lesson_plan.LESSONS[finding.lesson].title}",
        icon=":material/school:",
        help=MISTAKES[finding.step].title if finding.step in MISTAKES else None,
        query_params={lesson_plan.step_key(finding.lesson): finding.step} if finding.step else None,
    )


def _on_tensor(reading: qc.CodeReading, tensor: Tensor) -> None:
    """The codes of the code and those of the scheme that it meant, and how far both are from x."""
    chains = list(reading.chains)
    wrong = next((f.chain for f in reading.findings if f.chain is not None and f.certain), None)
    if not chains:
        return
    st.markdown(f"##### On the tensor {messages.plain(tensor.title)}")
    place = chains.index(wrong) if wrong in chains else 0
    if len(chains) > 1:
        names = [f"line {chain.codes.ops[0].line}" for chain in chains]
        place = st.selectbox(
            "Quantizer", range(len(chains)), index=place, key=f"{_CHOSEN}_{len(chains)}_{place}",
            format_func=lambda i: f"Quantizer {i + 1}, {names[i]}", width=260,
        )  # fmt: skip
    try:
        shown = cache.cached(
            tensor,
            f"code {place} {reading.text}",
            lambda: code_reading.show(chains[place], _first_rows(tensor)),
        )
    except qc.QuantError as error:
        messages.hint(str(error))
        return
    differing = int(shown.codes.ne(shown.right.codes.float()).sum())
    size = shown.codes.numel()
    code_db, right_db = shown.sqnr_db
    st.dataframe(
        pd.DataFrame(
            [
                {
                    "": "Your code",
                    "Codes that differ": f"{differing:,} of {size:,}",
                    "Values made worse": f"{int(shown.too_far.sum()):,} of {size:,}",
                    "SQNR (dB)": f"{code_db:.2f}",
                },
                {
                    "": str(shown.scheme),
                    "Codes that differ": "",
                    "Values made worse": "",
                    "SQNR (dB)": f"{right_db:.2f}",
                },
            ]
        ),
        hide_index=True,
        column_config={
            "Values made worse": st.column_config.TextColumn(
                help="Off by more than half a step, and farther off than with the scheme"
            )
        },
        width="stretch",
    )
    if size < cache.size(tensor):
        rows = shown.codes.shape[0]
        st.caption(
            f"This tensor is large: only the first {rows:,} indices along axis 0 are used, also for the scale."
        )
    st.caption(messages.plain(_sentence(shown, differing, code_db, right_db)))
    _numbers(shown)


def _first_rows(tensor: Tensor) -> np.ndarray:
    """The tensor, or as many of its first rows as can be quantized quickly; at least one."""
    x = cache.values(tensor)
    return x[: max(1, MOST * len(x) // x.size)] if x.size > MOST else x


def _sentence(shown: code_reading.Shown, differing: int, code_db: float, right_db: float) -> str:
    size, wrong = shown.codes.numel(), int(shown.wrong_cells.sum())
    if shown.outside:
        verb = "is not a code" if shown.outside == 1 else "are not codes"
        return f"{shown.outside:,} of {size:,} values {verb} of {shown.scheme.format} and can't be stored."
    if not wrong:
        return f"On this tensor all {size:,} codes equal those of {shown.scheme}."
    if not differing:
        return f"The codes are equal; {wrong:,} of {size:,} dequantized values differ."
    change = code_db - right_db
    told = (
        f"SQNR {change:+.2f} dB against {shown.scheme}"
        if np.isfinite(change)
        else "see the SQNR of both above"
    )
    return f"{differing:,} of {size:,} codes differ: {told}."


def _numbers(shown: code_reading.Shown) -> None:
    """Draw the first rows and columns, with the cells that differ marked."""

    def corner(values: Any) -> np.ndarray:
        array = np.atleast_1d(values.numpy() if hasattr(values, "numpy") else values)
        return array.reshape(-1, array.shape[-1])[:SIDE, :SIDE]

    marks = np.where(corner(shown.codes.ne(shown.right.codes.float())), "wrong", "")
    back = np.where(corner(shown.too_far), "wrong", "")
    codes = corner(shown.codes)
    integers = codes.astype(np.int64) if (codes == codes.round()).all() else codes
    tables = [
        cells.Table("x", corner(shown.right.x)),
        cells.Table("Your codes", integers, marks),
        cells.Table(f"Codes of {shown.scheme.format}", corner(shown.right.codes)),
        cells.Table("Your x̂", corner(shown.dequantized), back),
    ]
    cells.draw(tables, "match_code_cells")
    if shown.codes.numel() > codes.size:
        st.caption(f"The first {codes.shape[0]} rows and {codes.shape[1]} columns.")
