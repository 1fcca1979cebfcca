"""The scheme that the current one is compared with: pinned by the visitor, or the previous one."""

from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.shared.computing import cache
from pages.shared.state import link
from pages.shared.state.selection import PageTensor

PIN, DIFFERENCE = "pin", "diff"
KEYS = {PIN, DIFFERENCE}
_LAST = "_shown_schemes"  # (tensor, current scheme, previous scheme)


@dataclass(frozen=True)
class Reference:
    """What the figures are compared with. ``problem``: why a pinned scheme can't be used, or empty."""

    name: str
    scheme: str
    result: qc.Quantized | None
    report: qc.Report | None
    problem: str = ""


def button(place: DeltaGenerator, scheme: qc.Scheme | None) -> None:
    """Draw the button that pins the current scheme, or unpins it."""
    # The link carries widget values, so the pinned scheme has a widget, hidden by CSS
    place.text_input("Pinned scheme", key=PIN, bind="query-params", label_visibility="collapsed")
    pinned = bool(st.session_state[PIN])
    place.button(
        "Unpin" if pinned else "Pin",
        key="_pin_button",
        icon=":material/keep_off:" if pinned else ":material/keep:",
        on_click=link.put,
        args=({PIN: "" if pinned else str(scheme)},),
        disabled=scheme is None and not pinned,
        width="stretch",
        help="Compare with the previous scheme again"
        if pinned
        else "Keep this scheme as the reference: every figure then shows its difference from it",
    )


@dataclass(frozen=True)
class ComparedWith:
    """What a session compares with, whatever the scheme.

    ``pinned``: the text of the pinned scheme, or empty; ``last``: tensor, scheme and previous scheme of the
    latest run.
    """

    pinned: str
    last: tuple[str, str, str]

    def reference(self, tensor: PageTensor, scheme: qc.Scheme) -> Reference | None:
        """Return what to compare with; None if nothing is pinned and there is no previous scheme."""
        text = self.pinned or _next(self.last, tensor.key, str(scheme))[2]
        if not text:
            return None
        name = "pinned" if self.pinned else "previous"
        try:
            other = qc.Scheme.parse(text)
            return Reference(name, str(other), cache.result(tensor, other), cache.report(tensor, other))
        except qc.QuantError as error:
            return Reference(name, text, None, None, str(error)) if self.pinned else None


def compared_with(tensor: PageTensor, scheme: qc.Scheme) -> ComparedWith:
    """Return what this run compares with, whose scheme is the next one's previous."""
    last = _next(st.session_state.get(_LAST, ("", "", "")), tensor.key, str(scheme))
    st.session_state[_LAST] = last
    return ComparedWith(str(st.session_state.get(PIN) or ""), last)


def _next(last: tuple[str, str, str], tensor: str, scheme: str) -> tuple[str, str, str]:
    """Return tensor, scheme and previous scheme on that tensor after ``last``; the same scheme keeps it."""
    tensor_then, now, _ = last
    if tensor_then != tensor:
        return tensor, scheme, ""
    return (tensor, scheme, now) if now != scheme else last
