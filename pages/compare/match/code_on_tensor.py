"""What the code pasted into Match does to the tensor, compared with the scheme that it intends."""

import numpy as np
import pandas as pd
import streamlit as st

import quantcore as qc
from pages.compare.match import run, views
from pages.compare.match.controls import Inputs
from pages.shared import charts, messages
from pages.shared.charts import theme
from pages.shared.computing import cache, needs
from pages.shared.state.selection import PageTensor
from quantcore import figures, pasted

_CHOSEN, _ELEMENT = "match_code_chosen", "match_code_element"


def draw(reading: qc.CodeReading, tensor: PageTensor, scheme: qc.Scheme | None) -> None:
    """Draw each line's values, the errors of the code and of the scheme that it intends, and the codes of both."""
    if not reading.quantizers:
        return
    st.markdown(f"##### On the tensor {messages.plain(tensor.title)}")
    left, right = st.columns(2)
    with left:
        element = _element(len(tensor.shape))
    with right:
        place = _chosen(reading)
    try:
        shown = cache.cached(
            tensor,
            f"code on tensor {place} {element} {scheme} {reading.text}",
            lambda: pasted.show_code(reading, place, cache.values(tensor), element, _handed(tensor, scheme)),
            needs.USUAL,
            long=True,
        )
    except qc.QuantError as error:
        messages.hint(str(error))
        return
    if shown.codes.numel() < tensor.elements:
        shape = " × ".join(map(str, shown.codes.shape))
        st.caption(
            f"This tensor is large: only {shape} of its elements are used, even for the scale. They are the first ones "
            "along each axis, and runs of others drawn over all of it."
        )
    if shown.against is None:
        st.caption(messages.plain(shown.why))
    else:
        _compared(shown, shown.against)
    _lines(shown, element)
    _matched(shown, tensor)


def _compared(shown: pasted.Shown, against: pasted.Against) -> None:
    """Draw the codes beside those of the intended scheme."""
    differing = int(shown.codes.ne(against.right.codes.float()).sum())
    _table(against, differing)
    st.caption(messages.plain(_sentence(against, differing)))
    if bool((shown.codes == shown.codes.round()).all()):
        bounds = int(against.right.codes.min()), int(against.right.codes.max())
        codes, right = shown.codes.numpy().astype(np.int32), against.right.codes.numpy().astype(np.int32)
        figure = figures.pair(codes, right, ("Your codes", "Intended"), bounds=bounds, theme=theme())
        charts.draw(figure, theme=None, key="match_code_maps")


def _handed(tensor: PageTensor, scheme: qc.Scheme | None) -> tuple[float, int] | None:
    """Return the page's scale and zero point, for code that computes none; None if there are several."""
    if scheme is None:
        return None
    result = cache.result(tensor, scheme)
    if result.scale.numel() != 1:
        return None
    zero = result.zero_point
    return float(result.scale), 0 if zero is None else int(zero)


def _chosen(reading: qc.CodeReading) -> int:
    """Draw the choice of a quantizer if the code has several; return its index. Default: the first with a mistake."""
    place = next((f.quantizer for f in reading.findings if f.quantizer is not None and f.certain), None) or 0
    count = len(reading.quantizers)
    if count == 1:
        return 0
    lines = [quantizer.scalings[0].line for quantizer in reading.quantizers]
    return int(
        st.selectbox(
            "Quantizer",
            range(count),
            index=place,
            key=f"{_CHOSEN}_{count}_{place}",
            format_func=lambda i: f"Quantizer {i + 1}, line {lines[i]}",
            width=260,
        )
    )


def _element(rank: int) -> tuple[int, ...]:
    """Draw the field for the element whose value each line shows; the first one if it can't be read."""
    first = (0,) * rank
    text = st.text_input("Element", ", ".join(map(str, first)), key=f"{_ELEMENT}_{rank}", width=260)
    try:
        found = tuple(int(part) for part in text.strip("[]() ").split(",") if part.strip())
    except ValueError:
        found = ()
    if len(found) != rank:
        messages.hint(f"An element is written as {rank} indices: {', '.join(map(str, first))}")
        return first
    return found


def _lines(shown: pasted.Shown, element: tuple[int, ...]) -> None:
    """Draw what each line assigned."""
    at = f"At [{', '.join(map(str, element))}]"
    rows = [
        {
            "Line": v.line,
            "Name": v.name,
            "Shape": " × ".join(map(str, v.shape)) or "a number",
            "Type": v.dtype,
            "Min": f"{v.low:.6g}",
            "Max": f"{v.high:.6g}",
            at: "" if v.picked is None else f"{v.picked:.7g}",
        }
        for v in shown.lines
    ]
    if rows:
        st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch", key="match_code_lines")


def _table(against: pasted.Against, differing: int) -> None:
    """Draw the errors of the code and of the scheme."""
    size = against.right.codes.numel()
    code_db, right_db = against.sqnr_db
    columns = {
        "": ["Your code", str(against.right.scheme)],
        "Codes that differ": [f"{differing:,} of {size:,}", ""],
        "Values made worse": [f"{int(against.too_far.sum()):,} of {size:,}", ""],
        "SQNR (dB)": [f"{code_db:.2f}", f"{right_db:.2f}"],
    }
    worse = st.column_config.TextColumn(help="Off by more than half a step, and by more than with the scheme")
    st.dataframe(
        pd.DataFrame(columns), hide_index=True, column_config={"Values made worse": worse}, width="stretch"
    )


def _sentence(against: pasted.Against, differing: int) -> str:
    """Say how the pasted code's result differs from the scheme's."""
    scheme = against.right.scheme
    size, wrong = against.right.codes.numel(), int(against.wrong_cells.sum())
    if against.outside:
        verb = "is not a code" if against.outside == 1 else "are not codes"
        return f"{against.outside:,} of {size:,} values {verb} of {scheme.format} and can't be stored."
    if not wrong:
        return f"On this tensor all {size:,} codes equal those of {scheme}."
    if not differing:
        return f"The codes are equal; {wrong:,} of {size:,} dequantized values differ."
    code_db, right_db = against.sqnr_db
    change = code_db - right_db
    effect = f"SQNR {change:+.2f} dB against {scheme}" if np.isfinite(change) else "see both SQNRs above"
    return f"{differing:,} of {size:,} codes differ: {effect}."


def _matched(shown: pasted.Shown, tensor: PageTensor) -> None:
    """Draw which library or known mistake gives these codes."""
    codes = shown.codes.numpy()
    if codes.size < tensor.elements or not (codes == codes.round()).all() or np.abs(codes).max() > 2**15:
        return
    st.markdown("##### Who makes these codes")
    inputs = Inputs(codes.astype(np.int32), None, None, f"code {hash(codes.tobytes())}")
    found = run.search(tensor, inputs, st.container())
    if found is not None:
        views.summary(found.matches, tensor, found.fraction)
