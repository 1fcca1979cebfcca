"""What is wrong with a result, in one line above the maps: the sentence, its cells, and the scheme that mends it."""

from functools import partial
from typing import cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.shared import compute, maps_view, say, scheme_state
from pages.shared.current import Tensor
from quantcore.diagnose.examples import EXAMPLES
from quantcore.diagnose.record import MAX_BOXES, Box
from quantcore.tensors import Generated

HEIGHT = (
    62  # px: two lines of text, kept free where there is nothing to say, so that the maps stay where they are
)
COLUMNS = [2, 1]  # of the sentence, and of the buttons
_SHOWN = "_finding_shown"  # (tensor, scheme, sentence, boxes)
_MARKS = {
    "error": ":red[:material/error:]",
    "warning": ":orange[:material/warning:]",
    "note": ":blue[:material/info:]",
}


def reserve() -> DeltaGenerator:
    """The place of the findings, of a fixed height: it is filled after the maps are drawn."""
    return st.container(height=HEIGHT, border=False, key="findings")


def shown(tensor: Tensor, scheme: qc.Scheme) -> tuple[Box, ...]:
    """The boxes to be outlined: of the finding whose "Show" was pressed on this tensor and scheme."""
    kept = st.session_state.get(_SHOWN)
    return cast(tuple[Box, ...], kept[3]) if kept and kept[:2] == (tensor.key, str(scheme)) else ()


def draw(place: DeltaGenerator, tensor: Tensor, result: qc.Quantized, report: qc.Report) -> None:
    """Draw the first finding, and the way to the others and to the examples."""
    found: list[qc.Finding] = compute.kept(
        tensor, f"findings {result.scheme}", lambda: qc.diagnose(result, report)
    )
    with place:
        sentence, buttons = st.columns(COLUMNS, vertical_alignment="center")
    if not found:
        sentence.markdown(":small[:green[:material/check_circle:] Nothing wrong was found with this result.]")
    with buttons.container(horizontal=True, horizontal_alignment="right", gap="small"):
        if found:
            _one(tensor, result.scheme, found[0], 0, sentence)
        if len(found) > 1:
            with st.popover(f"{len(found) - 1} more"):
                _others(tensor, result.scheme, found)
        with st.popover("", icon=":material/school:", help="Examples of findings"):
            _examples()


def _others(tensor: Tensor, scheme: qc.Scheme, found: list[qc.Finding]) -> None:
    for number, finding in enumerate(found[1:], 1):
        sentence, buttons = st.columns([4, 1.5], vertical_alignment="center", width=640)
        with buttons.container(horizontal=True, horizontal_alignment="right", gap="small"):
            _one(tensor, scheme, finding, number, sentence)


def _one(tensor: Tensor, scheme: qc.Scheme, finding: qc.Finding, number: int, place: DeltaGenerator) -> None:
    """Write the sentence into ``place``, and draw its buttons here."""
    place.markdown(f":small[{_MARKS[finding.severity]} {say.plain(finding.sentence)}]")
    if finding.boxes:
        on = st.session_state.get(_SHOWN, ("",) * 3)[:3] == (tensor.key, str(scheme), finding.sentence)
        st.button(
            "Hide" if on else "Show",
            key=f"_finding_show_{number}",
            on_click=_hide if on else partial(_show, tensor, scheme, finding),
            help=_outlined(finding),
        )
    if finding.mended is not None:
        st.button(
            "Mend",
            key=f"_finding_mend_{number}",
            on_click=partial(_mend, finding.mended),
            type="primary",
            help=say.plain(f"{finding.mended}: {finding.gain}. The browser's Back undoes it."),
        )


def _outlined(finding: qc.Finding) -> str:
    what = f"the first {MAX_BOXES} of what" if len(finding.boxes) == MAX_BOXES else "what"
    return f"Outline in the maps {what} is meant, and follow the arithmetic of the first"


def _show(tensor: Tensor, scheme: qc.Scheme, finding: qc.Finding) -> None:
    """Outline the boxes, and choose the first element of the first (a callback)."""
    st.session_state[_SHOWN] = (tensor.key, str(scheme), finding.sentence, finding.boxes)
    first = tuple(start for start, _ in finding.boxes[0])
    maps_view.go_to(first, tensor.shape)


def _hide() -> None:
    st.session_state.pop(_SHOWN, None)


def _mend(scheme: qc.Scheme) -> None:
    try:
        scheme_state.apply_scheme(scheme)
    except qc.QuantError as error:
        st.session_state[scheme_state.TEXT_ERROR] = str(error)


def _examples() -> None:
    st.markdown("**Examples of findings**: a tensor and a scheme that have one")
    for column, kinds in zip(
        st.columns(2, width=560), (list(EXAMPLES)[::2], list(EXAMPLES)[1::2]), strict=True
    ):
        for kind in kinds:
            column.button(
                EXAMPLES[kind].title,
                key=f"_finding_example_{kind}",
                on_click=partial(load, kind),
                width="stretch",
            )


def load(kind: str) -> None:
    """Open the example of a kind (a callback)."""
    example = EXAMPLES[kind]
    state = dict.fromkeys(("cell", "rows", "cols", "at"), "")
    if isinstance(example.tensor, Generated):
        spec = example.tensor
        state |= {"src": "generate", "dist": spec.distribution, "shape": "x".join(map(str, spec.shape))}
        state |= {"seed": spec.seed, **{f"{spec.distribution}_{n}": v for n, v in spec.values().items()}}
    else:
        state |= {"src": "paste", "_pasted": example.tensor}
    st.session_state.update(state)
    st.session_state[scheme_state.RANK] = example.load().ndim
    _mend(example.parsed())
