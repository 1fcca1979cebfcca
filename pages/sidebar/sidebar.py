"""The sidebar: the tensor, then the scheme, each on the pages on which it acts."""

from collections.abc import Iterable
from typing import Any

import streamlit as st
from streamlit.navigation.page import StreamlitPage

import quantcore as qc
from pages.shared import selection
from pages.sidebar import scheme_controls, scheme_state, tensor_controls

TENSOR, SCHEME = "tensor", "scheme"
ALWAYS: tuple[str, frozenset[str]] = ("", frozenset())


def _while(key: str, *values: str) -> tuple[str, frozenset[str]]:
    """While the control ``key`` of the page holds one of these."""
    return key, frozenset(values)


_EXPLORED = {TENSOR: ALWAYS, SCHEME: ALWAYS}


def _own_step(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Of a lesson whose step "yours" is on the visitor's tensor."""
    return dict.fromkeys((TENSOR, SCHEME), _while(f"learn_{name}_step", "yours"))


# What acts on which page, by its address, and when. The sidebar shows this and nothing else; on pages that are not
# named here, nothing acts.
USES: dict[str, dict[str, tuple[str, frozenset[str]]]] = {
    "": _EXPLORED,
    "ranges": _EXPLORED,
    "formats": {TENSOR: _while("fmt_shown", "fitted")},
    "libraries": _EXPLORED,
    "schemes": _EXPLORED,
    "match": {TENSOR: ALWAYS},
    "learn-scale": _own_step("scale"),
    "learn-zero-point": _own_step("zero_point"),
    "learn-granularity": _own_step("granularity"),
    "learn-error": _own_step("error"),
    "learn-mistakes": {TENSOR: _while("learn_mistakes_mine", "true")},
    "learn-predict": dict.fromkeys((TENSOR, SCHEME), _while("learn_predict_mine", "true")),
    "learn-ptq-or-qat": {SCHEME: _while("learn_ptq_or_qat_step", "ptq", "qat", "curve", "choose")},
}


def uses(page: StreamlitPage) -> frozenset[str]:
    """TENSOR and SCHEME, as far as they act on a page as it stands."""
    held = USES.get(page.url_path, {}).items()
    return frozenset(part for part, (key, values) in held if not key or values & set(_held(key)))


def _held(key: str) -> Iterable[str]:
    """What a control of the page holds; in the first run, before it is drawn, what the link says of it."""
    held: Any = st.session_state[key] if key in st.session_state else st.query_params.get_all(key)
    return [str(value).lower() for value in (held if isinstance(held, list) else [held])]


def draw(page: StreamlitPage) -> None:
    """Draw all controls and leave what they chose in `current`; errors wait there for the page to show.

    Those that do not act on the page are drawn too, out of sight: they keep what was chosen, and its place in the
    link, which Streamlit takes away from controls that are not drawn.
    """
    problems, hint = [], ""
    tensor = scheme = None
    try:
        with st.container(key=f"{TENSOR}_controls"):
            tensor = tensor_controls.draw()
        st.session_state["_shape"] = tensor.shape
    except selection.NoTensorYet as waiting:
        hint = str(waiting)
    except qc.QuantError as error:
        problems.append(str(error))
    text_error = st.session_state.get(scheme_state.TEXT_ERROR)
    if text_error:
        problems.append(text_error)
    try:
        with st.container(key=f"{SCHEME}_controls"):
            scheme = scheme_controls.draw(st.session_state.get("_shape", (8, 8)), tensor)
    except qc.QuantError as error:
        problems.append(str(error))
    selection.put(selection.Current(tensor, scheme, tuple(problems), hint, uses(page)))
    show_used(page)


def show_used(page: StreamlitPage) -> None:
    """Show what acts on the page, and hide the rest; all of the sidebar where nothing does.

    To be called again after the page: a step back in the browser's history changes its controls as they are drawn.
    """
    used = uses(page)
    hidden = [f".st-key-{part}_controls" for part in (TENSOR, SCHEME) if part not in used]
    if not used:
        hidden = ["[data-testid=stSidebar]", "[data-testid=stExpandSidebarButton]"]
    st.html(f"<style>{','.join(hidden) or '.nothing'}{{display:none}}</style>")
