"""Lesson: be the quantizer. Type codes, scales or zero points before they are shown."""

import hashlib

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.learn import frame, material, views
from pages.maps import cells
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state.selection import PageTensor
from quantcore import prediction
from quantcore.granularity import block_name
from quantcore.numerics import decimal
from quantcore.wording import signed

SEED, MARKS = "learn_predict_seed", "_learn_marks"
CELL, ASKED = "learn_predict_cell", "_learn_predict_asked"
ACROSS = 8  # elements asked for per row


def next_seed() -> None:
    """Choose another tensor (a callback)."""
    st.session_state[SEED] = st.session_state[SEED] + 1


def question(
    tensor: PageTensor, result: qc.Quantized, step: str, row: int
) -> tuple[list[tuple[int, ...]], list[str], list[tuple[int, ...]]]:
    """Return the elements or blocks asked for, the name of each, and an element of the row for each."""
    across = tensor.shape[-1] if tensor.shape else 1
    flat = range(row * across, row * across + min(across, ACROSS))
    places = [tuple(map(int, np.unravel_index(i, tensor.shape))) for i in flat]
    if step == "codes":
        return places, [f"x = {decimal(float(result.x[place]))}" for place in places], places
    blocks: dict[tuple[int, ...], tuple[tuple[int, ...], str]] = {}
    for place in places:
        t = qc.trace(result, place)
        whole = result.scale.numel() == 1
        blocks.setdefault(t.block, (place, "the tensor" if whole else block_name(t.bounds, result.x.shape)))
    what = step.replace("_", " ")
    names = [f"{what} of {name}" for _, name in blocks.values()]
    return list(blocks), names, [place for place, _ in blocks.values()]


def given(result: qc.Quantized, step: str, places: list[tuple[int, ...]]) -> None:
    """Draw what is given."""
    scheme, fmt = result.scheme, result.scheme.format
    known = [f"**{fmt}**: codes {fmt.qmin}..{fmt.qmax}", "symmetric" if scheme.symmetric else "asymmetric"]
    if step == "codes":
        traces = [qc.trace(result, place) for place in places]
        scales = list(dict.fromkeys(decimal(t.scale) for t in traces))
        zeros = list(dict.fromkeys(f"{t.zero_point:g}" for t in traces))
        known += [f"scale s = {', '.join(scales)}", f"zero point z = {', '.join(zeros)}"]
    elif step == "zero_point":
        known.append(f"scale s = {', '.join(decimal(float(result.scale[block])) for block in places)}")
    st.markdown(signed(" · ".join(known)))


def ask(key: str, names: list[str], under: bool) -> list[str] | None:
    """Draw a field per answer, ``under`` the cells or with its name; return the answers at Check."""
    with st.form(f"learn_predict_form_{key}", border=False):
        with answers("typed", under):
            columns = st.columns(len(names) if under else max(4, len(names)), gap="xsmall")
        typed = [
            column.text_input(
                name,
                key=f"learn_predict_answer_{i}_{key}",
                persist_state="session",
                max_chars=30,
                label_visibility="collapsed" if under else "visible",
            )
            for i, (column, name) in enumerate(zip(columns, names, strict=False))
        ]
        return typed if st.form_submit_button("Check", type="primary") else None


def answers(what: str, under: bool) -> DeltaGenerator:
    """Return a place for answers, "typed" or "marked", under the columns of their cells or not."""
    return st.container(key=f"learn_predict_{what}") if under else st.container()


def tell(marks: list[prediction.Mark], names: list[str], key: str, revealed: bool, under: bool) -> None:
    """Draw the marks, and why each wrong answer is wrong."""
    shown = {"right": "right", "blank": "faint"}
    tables = [
        cells.MarkedTable(
            "your answers",
            [[m.typed or "·" for m in marks]],
            [[shown.get(m.kind, "wrong") for m in marks]],
            index=False,
        )
    ]
    if revealed:
        tables.append(cells.MarkedTable("correct", [[m.answer for m in marks]], index=False))
    with answers("marked", under):
        cells.draw(tables, f"learn_predict_marks_{key}", even=under)
    for m, name in zip(marks, names, strict=True):
        if m.sentence:
            st.markdown(
                f"- {messages.plain(name)}, your answer {messages.plain(m.typed)}. "
                f"**{m.kind.capitalize()}.** {messages.plain(signed(m.sentence))}"
            )


def score(key: str) -> None:
    """Draw how many answers are right, here and so far; kept only in this session."""
    all_marks: dict[str, list[prediction.Mark]] = st.session_state[MARKS]
    here, every = all_marks[key], [m for marks in all_marks.values() for m in marks]
    views.figures(
        ("right here", f"{sum(m.right for m in here)} of {len(here)}"),
        ("right so far", f"{sum(m.right for m in every)} of {len(every)}"),
        ("questions checked", str(len(all_marks))),
    )


@st.dialog("Show of hands", width="large")
def hands(step: str, result: qc.Quantized, places: list[tuple[int, ...]], names: list[str], key: str) -> None:
    """Count how many of a class gave each usual answer to one of the questions; kept only in this session."""
    asked = st.segmented_control("Question", range(len(names)), default=0, format_func=names.__getitem__,
                                 key=f"learn_predict_asked_{key}", required=True)  # fmt: skip
    usual = prediction.usual_answers(result, step, places[asked])
    marks = prediction.mark(result, step, [places[asked]] * len(usual), usual)
    revealed = st.toggle("Show which is right", key=f"learn_predict_hands_{key}_{asked}_right")
    rows = [st.columns([1, 3], vertical_alignment="center") for _ in [*usual, ""]]
    labels = [*usual, "another answer"]
    counts = [
        row[0].number_input(
            label,
            0,
            999,
            0,
            key=f"learn_predict_hands_{key}_{asked}_{i}",
            persist_state="session",
            label_visibility="collapsed",
        )
        for i, (row, label) in enumerate(zip(rows, labels, strict=True))
    ]
    total = sum(counts)
    reasons = [
        f" · **{m.kind.capitalize()}.** {messages.plain(signed(m.sentence))}" if revealed else ""
        for m in marks
    ]
    for row, label, count, why in zip(rows, labels, counts, [*reasons, ""], strict=True):
        row[1].progress(
            count / total if total else 0.0, f"**{messages.plain(label)}** · {count} of {total}{why}"
        )


step = frame.head("predict")
words, picture = views.side_by_side((1, 2))
with words:
    facts = st.container()
    hint = "Asks about the tensor and range in the sidebar instead of a practice tensor"
    mine = st.toggle("Use my tensor", key="learn_predict_mine", bind="query-params", help=hint)
    left, right = st.columns(2)
    seed = left.number_input("Seed", 0, 2**31, 0, key=SEED, bind="query-params", disabled=mine,
                             help="Everyone with the same seed gets the same tensor")  # fmt: skip
    row = right.number_input("Row", 0, None, 0, key="learn_predict_row", bind="query-params")
    st.button("New tensor", on_click=next_seed, disabled=mine, key="learn_predict_fresh", width="stretch")
if chosen := views.yours() if mine else views.your_scheme():
    try:
        # a practice tensor needs none of the visitor's
        tensor, scheme = (
            material.exercise(int(seed), chosen, step) if isinstance(chosen, qc.Scheme) else chosen
        )
        result = cache.result(tensor, scheme)
        plane = result.x.reshape(-1, tensor.shape[-1] if tensor.shape else 1).numpy()
        rows = len(plane)
        row = min(int(row), rows - 1)
        places, names, elements = question(tensor, result, step, row)
        if isinstance(scheme.format, qc.IntFormat):
            with facts:
                given(result, step, places)
        prediction.mark(result, step, places, [""] * len(places))  # raises if the answers can't be predicted
    except qc.QuantError as error:
        messages.error(str(error))
    else:
        first = max(0, min(row - 3, rows - ACROSS))
        part = plane[first : first + ACROSS, :ACROSS]
        lit = np.full(part.shape, "", "<U6")
        lit[row - first] = "chosen"
        title = f"row {row} of {rows}" if step == "codes" else str(tensor.shape)
        key = hashlib.sha1(f"{step} {tensor.key} {scheme} {row}".encode()).hexdigest()[:10]
        asked = f"{step} {tensor.key} {row}"
        if st.session_state.setdefault(ASKED, asked) != asked:  # no element of it is chosen yet
            st.session_state[ASKED], st.session_state[CELL] = asked, ""
        under = step == "codes"
        with picture:
            table = cells.MarkedTable("x", part, lit, title, first=first)
            cells.draw([table], "learn_predict_x", fill=0.55, even=under)
            typed = ask(key, names, under)
        if typed is not None:
            st.session_state.setdefault(MARKS, {})[key] = prediction.mark(result, step, places, typed)
        marks = st.session_state.get(MARKS, {}).get(key)
        if marks:
            with words:
                score(key)
                revealed = st.toggle("Show the answers", key=f"learn_predict_reveal_{key}")
                if st.button("Show of hands", help="Count how many of a class gave each answer"):
                    hands(step, result, places, names, key)
            with picture:
                tell(marks, names, key, revealed, under)
            if revealed:
                wrong = next((i for i, m in enumerate(marks) if m.sentence), 0)
                words, picture = st.columns(views.for_maps(), gap="medium")
                views.explore("predict", tensor, scheme, words, picture, elements[wrong])
st.caption("Answers are marked and counted in this session only; nothing is stored.")
frame.foot("Nagel et al. 2021, arXiv 2106.08295, section 2.1")
