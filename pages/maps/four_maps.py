"""The four maps, with controls for the part of the tensor shown and the chosen element."""

import math
from types import MappingProxyType
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.maps import arithmetic, component, live
from pages.maps.arithmetic import ElementArithmetic
from pages.maps.beside import Beside, nothing
from pages.maps.places import around, axes_text, index_text, read_element, read_slice, read_span, span_text
from pages.shared import messages
from pages.shared.charts import theme
from pages.shared.large import is_large
from pages.shared.state import choice, link, pinned, selection
from pages.shared.state.selection import PageTensor
from quantcore.analysis import View, steps
from quantcore.diagnosis import Box

KEY = "maps"
ARITHMETIC = "Arithmetic"  # the tab with the arithmetic of the chosen element
# Keys of the controls, also parameters of the link
KEYS = {"borders", "numbers", "drags", "cell", "rows", "cols", "across", "down", "at", "error_of"}
_GONE_TO = "_slice_gone_to"  # the slice that was gone to by itself, and of which tensor
RMS = "rms"
# what the error map shows where a cell stands for several elements
_ERRORS = {RMS: "RMS error", "largest": "largest error"}


def controls(
    tensor: PageTensor, scheme: qc.Scheme, report: qc.Report, place: DeltaGenerator, *, drags: bool = False
) -> tuple[View | None, ElementArithmetic]:
    """Draw the controls under the maps; return the view (None if invalid) and the element's arithmetic.

    Args:
        place: where the maps will be, for errors in the input.
        drags: whether values can be dragged on this page.
    """
    shape = tensor.shape
    chosen = worst = arithmetic.worst_of(report, shape)
    view = None
    try:
        view = _view_controls(tensor, worst, drags=drags and selection.VALUE in selection.get().controls)
        _name_slice(place, shape, view, worst)
    except qc.QuantError as error:
        messages.error(str(error), place)
    try:
        chosen = worst if view is None else read_element(st.session_state["cell"], shape) or worst
    except qc.QuantError as error:
        messages.warning(f"{error} Element {worst} is shown instead.", place)
    return view, arithmetic.of(tensor, scheme, chosen)


def draw(
    place: DeltaGenerator,
    tensor: PageTensor,
    scheme: qc.Scheme,
    view: View | None,
    found: tuple[Box, ...] = (),
    against: pinned.Reference | None = None,
    beside: Beside | None = None,
    current: selection.Current | None = None,
    *,
    always: bool = False,
    on_kept: component.OnKept = MappingProxyType({}),
) -> None:
    """Draw the maps if there is a view.

    Args:
        found: boxes to outline: of a finding of this tensor and scheme, or ``always``.
        against: what the error map is compared with, if the visitor has asked for that.
        beside: what of the page follows with the maps while a control is dragged; None if they don't follow.
        current: what the maps follow, if the page has controls of its own for that.
        on_kept: as in `component.four_maps`.
    """
    if view is None:
        return
    is_pinned = against is not None and against.name == "pinned"
    other = against.result if against and is_pinned and st.session_state.get(pinned.DIFFERENCE) else None
    maps = live.LiveView(
        view,
        _chosen(tensor.shape),
        st.session_state["borders"],
        st.session_state["numbers"],
        theme(),
        is_large(),
        found,
        None if always else (tensor.key, scheme),
        other.scheme if other else None,
        beside or nothing,
        rms=st.session_state.get("error_of", RMS) == RMS,
    )
    try:
        picture = maps.picture(tensor, scheme, arithmetic.offer())
    except qc.QuantError as error:
        messages.error(str(error), place)
        return
    with place:
        following = live.offer(maps, current or selection.get()) if beside else None
        component.four_maps(
            picture, key=KEY, on_pick=_clicked, on_region=region, on_kept=on_kept, live=following
        )


def _chosen(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the element that was typed; None if there is none."""
    try:
        return read_element(st.session_state["cell"], shape)
    except qc.QuantError:  # which `controls` has shown
        return None


def pick(index: tuple[int, ...]) -> None:
    """Choose an element and open its arithmetic (a callback)."""
    st.session_state["cell"] = index_text(index)
    st.session_state["tab"] = ARITHMETIC


def _clicked(index: tuple[int, ...]) -> None:
    """Choose an element and open its arithmetic, unless that stands beside the maps (a callback)."""
    if len(st.session_state[KEY].picked) == 2:
        pick(index)
    else:
        st.session_state["cell"] = index_text(index)


def region(rows: tuple[int, int] | None, columns: tuple[int, int] | None) -> None:
    """Show a part of the tensor, or all of it (a callback)."""
    st.session_state.update({"rows": span_text(rows), "cols": span_text(columns)})


def _view_controls(tensor: PageTensor, worst: tuple[int, ...], *, drags: bool) -> View:
    """Draw the controls under the maps: overlays, element, visible part."""
    shape = tensor.shape
    with st.container(horizontal=True, key="map_controls", vertical_alignment="center", gap="small"):
        _overlay_controls(drags=drags)
        st.text_input(
            "Element",
            key="cell",
            placeholder=index_text(worst),
            help="Index of the element whose arithmetic is shown; empty: the worst, if any. Click a cell to "
            "fill it in.",
            width=160,
            bind="query-params",
        )
        spans = {}
        for name, key in (("Rows", "rows"), ("Columns", "cols")):
            hint = f"{name} to show, such as 0:16; empty: all."
            spans[name] = st.text_input(
                name, key=key, placeholder="all", help=hint, width=155, bind="query-params"
            )
        hint = "Show the elements around the largest |error|"
        st.button("Go to worst", on_click=_go_to_worst, args=(shape, worst), help=hint)
        if any(spans.values()):
            st.button("Show all", on_click=region, args=(None, None))
        axes, index = _axes(tensor, worst)
        rows, columns = (read_span(typed, name) for name, typed in spans.items())
        view = View(axes=axes, index=index, rows=rows, columns=columns)
        if steps(shape, view) != (1, 1) and not st.session_state.get(pinned.DIFFERENCE):
            hint = "A cell stands for several elements: the RMS of their errors, or the largest"
            choice.segmented(
                "Error map", "error_of", _ERRORS, label_visibility="collapsed", width="content", help=hint
            )
    return view


def _overlay_controls(*, drags: bool) -> None:
    """Draw what is laid over the cells; ``drags``: whether their values can be changed by dragging."""
    hint = "Draw lines between the blocks that share a scale"
    st.checkbox("Block borders", key="borders", help=hint, bind="query-params")
    hint = "Show numbers in the cells where they fit"
    st.checkbox("Numbers", True, key="numbers", help=hint, bind="query-params")
    if drags:
        hint = "Press on a cell of the original and move up or down to change its value. Alt does the same "
        hint += "without this."
        st.checkbox("Drag values", key="drags", help=hint, bind="query-params")
    if st.session_state.get(pinned.PIN):
        hint = "Show by how much |error| is larger (above 0) or smaller (below 0) than with "
        hint += "the pinned scheme"
        st.checkbox("Difference from pinned", key=pinned.DIFFERENCE, help=hint, bind="query-params")


def _name_slice(place: DeltaGenerator, shape: tuple[int, ...], view: View, worst: tuple[int, ...]) -> None:
    """Draw which slice of a tensor of more than two axes the maps show, and the way to the worst one."""
    if view.axes is None:
        return
    at = iter(view.index)
    shown = [":" if axis in view.axes else str(next(at)) for axis in range(len(shape))]
    slices = math.prod(n for axis, n in enumerate(shape) if axis not in view.axes)
    there = tuple(i for axis, i in enumerate(worst) if axis not in view.axes)
    words = f"Slice **[{', '.join(shown)}]**, one of {slices:,}"
    with place.container(horizontal=True, vertical_alignment="center", gap="small", key="slice"):
        if there == view.index:
            st.markdown(f":small[{words}; it has the largest |error|.]")
            return
        st.markdown(f":small[{words}. The largest |error| is in another.]")
        st.button("Show that slice", key="_worst_slice", type="tertiary", on_click=go_to, args=(worst, shape))


def _axes(tensor: PageTensor, worst: tuple[int, ...]) -> tuple[tuple[int, int] | None, tuple[int, ...]]:
    """For ranks above 2, draw the choice of two axes and the slice along the others; return both."""
    shape = tensor.shape
    rank = len(shape)
    if rank <= 2:
        return None, ()
    axes = list(range(rank))
    # empty means the last two axes, so the link need not name them
    st.selectbox(
        "Rows along axis", axes, None, key="down", placeholder=str(rank - 2), width=190, bind="query-params"
    )
    st.selectbox(
        "Columns along axis",
        axes,
        None,
        key="across",
        placeholder=str(rank - 1),
        width=210,
        bind="query-params",
    )
    down, across = _drawn_axes(rank)
    if down == across:
        raise qc.QuantError(f"Rows and columns are both drawn along axis {down}; choose two different axes.")
    others = {i: shape[i] for i in axes if i not in (down, across)}
    there = tuple((_chosen(shape) or worst)[axis] for axis in others)
    _go_at_first((tensor.name, shape, down, across), there)
    label = f"Slice along {axes_text(others)}"
    typed = st.text_input(label, key="at", placeholder=index_text(there), width=330, bind="query-params")
    return (down, across), read_slice(typed, others) or there


def _go_at_first(place: tuple[Any, ...], there: tuple[int, ...]) -> None:
    """Choose a slice where none is chosen, or only the one that was gone to in the tensor before.

    It stays while the scheme or values of the tensor are changed: the maps follow these in one place.
    """
    before, text = st.session_state.get(_GONE_TO, (None, ""))
    name, *others = place
    same = before is not None and name in (before[0], selection.EDITED) and others == list(before[1:])
    at = choice.before_drawn("at")
    if not at or (at == text and not same):
        text = index_text(there)
        link.put({"at": text})
        st.session_state[_GONE_TO] = place, text


def _drawn_axes(rank: int) -> tuple[int, int]:
    down, across = st.session_state.get("down"), st.session_state.get("across")
    return rank - 2 if down is None else down, rank - 1 if across is None else across


def go_to(index: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Choose an element and show the whole plane that contains it (a callback)."""
    pick(index)
    if len(shape) > 2:
        drawn = _drawn_axes(len(shape))
        st.session_state["at"] = ", ".join(str(n) for i, n in enumerate(index) if i not in drawn)
    region(None, None)


def _go_to_worst(shape: tuple[int, ...], worst: tuple[int, ...]) -> None:
    """Show the 16×16 elements around the worst one (a callback)."""
    go_to(worst, shape)
    down, across = _drawn_axes(len(shape)) if len(shape) > 2 else (len(shape) - 2, len(shape) - 1)
    spans = [around(worst[i], shape[i]) if i >= 0 else None for i in (down, across)]
    region(spans[0], spans[1])
