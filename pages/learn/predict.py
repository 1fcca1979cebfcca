"""Lesson 6: be the quantizer: type codes, scales or zero points before they are shown."""

import hashlib

import numpy as np
import streamlit as st

import quantcore as qc
from pages.shared import cells, compute, lesson, lesson_view, say
from pages.shared.current import Tensor
from quantcore import predict, tensors

STEPS = {
    "codes": "Predict the codes of a row",
    "scale": "Predict the scale",
    "zero_point": "Predict the zero point",
}
SEED, MARKS = "learn_predict_seed", "_learn_marks"
CELL, ASKED = "learn_predict_cell", "_learn_predict_asked"
ACROSS = 8  # elements of a row that are asked for


def fresh(seed: int) -> Tensor:
    """A small tensor by seed, its numbers short enough to reckon with."""
    x = np.round(2 * tensors.generate(tensors.Generated("normal", (4, 6), seed)), 1)
    return lesson_view.own(f"predict {seed}", x)


def next_seed() -> None:
    """Another tensor (a callback)."""
    st.session_state[SEED] = st.session_state[SEED] + 1


def question(
    tensor: Tensor, result: qc.Quantized, step: str, row: int
) -> tuple[list[tuple[int, ...]], list[str], list[tuple[int, ...]]]:
    """The elements or blocks that are asked for, how each is called, and an element of the row for each."""
    shape = tensor.shape or (1,)
    places = [
        tuple(int(i) for i in np.unravel_index(row * shape[-1] + column, shape))
        for column in range(min(shape[-1], ACROSS))
    ]
    places = places if tensor.shape else [()]
    if step == "codes":
        return places, [f"x = {float(result.x[place]):.6g}" for place in places], places
    blocks: dict[tuple[int, ...], tuple[int, ...]] = {}
    for place in places:
        blocks.setdefault(qc.trace(result, place).block, place)
    whole = result.scale.numel() == 1
    names = ["of the whole tensor" if whole else f"of block {block}" for block in blocks]
    return list(blocks), names, list(blocks.values())


def given(result: qc.Quantized, step: str, places: list[tuple[int, ...]]) -> None:
    """Say what is known."""
    scheme, fmt = result.scheme, result.scheme.format
    known = [f"**{fmt}**: codes {fmt.qmin}..{fmt.qmax}", "symmetric" if scheme.symmetric else "asymmetric"]
    if step == "codes":
        traces = [qc.trace(result, place) for place in places]
        scales = list(dict.fromkeys(f"{t.scale:.6g}" for t in traces))
        zeros = list(dict.fromkeys(f"{t.zero_point:g}" for t in traces))
        known += [f"scale {', '.join(scales)}", f"zero point {', '.join(zeros)}"]
    elif step == "zero_point":
        known.append(f"scale {', '.join(f'{float(result.scale[block]):.6g}' for block in places)}")
    st.markdown(" · ".join(known))


def ask(key: str, names: list[str]) -> list[str] | None:
    """Draw a field for each answer; return what was typed when it is to be checked."""
    with st.form(f"learn_predict_form_{key}", border=False):
        columns = st.columns(max(4, len(names)))
        typed = [
            column.text_input(
                name, key=f"learn_predict_answer_{i}_{key}", persist_state="session", max_chars=30
            )
            for i, (column, name) in enumerate(zip(columns, names, strict=False))
        ]
        return typed if st.form_submit_button("Check", type="primary") else None


def mark(
    step: str, result: qc.Quantized, places: list[tuple[int, ...]], typed: list[str]
) -> list[predict.Mark]:
    """Mark the answers."""
    way = {"codes": predict.mark_codes, "scale": predict.mark_scales, "zero_point": predict.mark_zero_points}
    return way[step](result, places, typed)


def tell(marks: list[predict.Mark], names: list[str], key: str, revealed: bool) -> None:
    """Draw the marks, cell by cell, and where each wrong answer went astray."""
    shown = {"right": "right", "blank": "faint"}
    tables = [
        cells.Table("yours", [[m.typed or "·" for m in marks]], [[shown.get(m.kind, "wrong") for m in marks]])
    ]
    if revealed:
        tables.append(cells.Table("right", [[m.answer for m in marks]]))
    cells.draw(tables, f"learn_predict_marks_{key}")
    for m, name in zip(marks, names, strict=True):
        if m.sentence:
            st.markdown(
                f"- {say.plain(name)}, you: {say.plain(m.typed)}. **{m.kind.capitalize()}.** {say.plain(m.sentence)}"
            )


def forget_element(asked: str) -> None:
    """Give up the element that was followed when another question is asked."""
    if st.session_state.setdefault(ASKED, asked) != asked:
        st.session_state[ASKED], st.session_state[CELL] = asked, ""


def score(key: str) -> None:
    """Draw how many are right, in this row and so far; kept in this session alone."""
    all_marks: dict[str, list[predict.Mark]] = st.session_state[MARKS]
    here, every = all_marks[key], [m for marks in all_marks.values() for m in marks]
    lesson_view.figures(
        ("here", f"{sum(m.right for m in here)} of {len(here)}"),
        ("so far", f"{sum(m.right for m in every)} of {len(every)}"),
        ("rows checked", str(len(all_marks))),
    )


step = lesson.head("predict", STEPS)
left, middle, right, button = st.columns([1.2, 1, 1, 1], vertical_alignment="bottom")
mine = left.toggle("On my tensor", key="learn_predict_mine", bind="query-params",
                   help="The tensor in the sidebar instead of a fresh one")  # fmt: skip
seed = middle.number_input("Seed", 0, 2**31, 0, key=SEED, bind="query-params", disabled=mine,
                           help="The same seed gives everyone the same tensor")  # fmt: skip
row = right.number_input("Row", 0, None, 0, key="learn_predict_row", bind="query-params")
button.button("Fresh tensor", on_click=next_seed, disabled=mine, key="learn_predict_fresh")
chosen = lesson_view.yours()
if chosen is not None:
    scheme = chosen[1]
    tensor = chosen[0] if mine else fresh(int(seed))
    try:
        result = compute.result(tensor, scheme)
        rows = max(1, result.x.numel() // (tensor.shape[-1] if tensor.shape else 1))
        row = min(int(row), rows - 1)
        places, names, elements = question(tensor, result, step, row)
        if isinstance(scheme.format, qc.IntFormat):
            given(result, step, places)
        mark(step, result, places, [""] * len(places))  # refuses what can't be asked
    except qc.QuantError as error:
        say.error(str(error))
    else:
        whole = np.atleast_2d(result.x.reshape(-1, tensor.shape[-1] if tensor.shape else 1).numpy())
        first = max(0, min(row - 3, rows - ACROSS))
        part = whole[first : first + ACROSS, :ACROSS]
        lit = np.where(np.arange(first, first + len(part))[:, None] == row, "chosen", "") + np.zeros(
            part.shape, "<U1"
        )
        cells.draw(
            [cells.Table("x", part, lit, f"row {row} of {rows}" if step == "codes" else str(tensor.shape))],
            "learn_predict_x",
        )
        key = hashlib.sha1(f"{step} {tensor.key} {scheme} {row}".encode()).hexdigest()[:10]
        forget_element(f"{step} {tensor.key} {row}")
        typed = ask(key, names)
        if typed is not None:
            st.session_state.setdefault(MARKS, {})[key] = mark(step, result, places, typed)
        marks = st.session_state.get(MARKS, {}).get(key)
        if marks:
            revealed = st.toggle("Show the answers", key=f"learn_predict_reveal_{key}")
            tell(marks, names, key, revealed)
            score(key)
            if revealed:
                wrong = next((i for i, m in enumerate(marks) if m.sentence), 0)
                lesson_view.explored("predict", tensor, scheme, elements[wrong])
st.caption("What you type is marked and counted in this session alone: nothing of it is stored.")
lesson.foot("Nagel et al. 2021, arXiv 2106.08295, section 2.1")
