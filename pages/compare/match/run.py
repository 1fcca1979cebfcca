"""A search that shows its progress, can be stopped, and keeps what it found."""

import time
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.compare.match.controls import Inputs
from pages.shared.computing import cache, needs
from pages.shared.state.selection import Tensor

AT_ONCE = 10_000  # elements; a larger tensor is searched when the button is pressed
_FOUND, _WANTED = "_match_found", "_match_wanted"
_EVERY = 0.1  # seconds between two updates of the progress bar


@dataclass
class Found:
    """What a search has found for the inputs of ``key``, and the fraction of it that is done, 0 to 1."""

    key: str
    matches: qc.Matches
    fraction: float = 0.0


def want(key: str) -> None:
    """Start a search, or stop it (a callback)."""
    st.session_state[_WANTED] = key


def button(key: str, elements: int) -> None:
    """Draw the button that starts the search, unless it starts or has ended by itself."""
    if not _is_over(key) and not wanted(key, elements):
        st.button("Search", type="primary", on_click=want, args=(key,), width="stretch", key="match_go")


def wanted(key: str, elements: int) -> bool:
    """Whether to search for these inputs: it is quick or was asked for, was not stopped, and is not over."""
    asked = st.session_state.get(_WANTED)
    return not _is_over(key) and (asked == key or (elements <= AT_ONCE and asked != f"not {key}"))


def _is_over(key: str) -> bool:
    kept = found(key)
    return kept is not None and kept.fraction == 1


def found(key: str) -> Found | None:
    """What has been found for these inputs so far."""
    kept: Found | None = st.session_state.get(_FOUND)
    return kept if kept is not None and kept.key == key else None


def search(tensor: Tensor, inputs: Inputs, place: DeltaGenerator) -> Found | None:
    """Draw the button in ``place``, search if it is wanted, and return what has been found so far.

    Raises:
        QuantError: as `run`.
    """
    key, elements = f"{tensor.key} {inputs.key}", cache.size(tensor)
    with place:
        button(key, elements)
    if wanted(key, elements):
        run(tensor, inputs, key)
    return found(key)


def run(tensor: Tensor, inputs: Inputs, key: str) -> None:
    """Search, with a progress bar and a Stop button; an interrupted search keeps what it has found.

    Raises:
        QuantError: the inputs can't be codes, scale or zero point of the tensor.
    """
    shared = cache.cached_small(tensor, f"matches {inputs.key}", lambda: Found(key, qc.Matches()))

    def done() -> bool:
        return shared.fraction == 1

    place = st.empty()
    left, right = place.container().columns([7, 1], vertical_alignment="center")
    bar = left.progress(0.0, "Searching…")
    right.button("Stop", on_click=want, args=(f"not {key}",), key="match_stop", width="stretch")
    try:
        with cache.turn_of(tensor, needs.MATCH, long=True, useless=done):
            if not done():  # another visitor may have searched the same, even while this one waited
                kept = _search(tensor, inputs, key, bar)
                shared.matches, shared.fraction = kept.matches, kept.fraction
    except qc.QuantError:
        place.empty()
        raise
    st.session_state[_FOUND] = Found(key, shared.matches, shared.fraction)
    st.rerun()


def _search(tensor: Tensor, inputs: Inputs, key: str, bar: DeltaGenerator) -> Found:
    """Search to the end, drawing progress."""
    kept = Found(key, qc.Matches())
    drawn = time.monotonic()
    for step in qc.match_steps(cache.values(tensor), inputs.codes, inputs.scale, inputs.zero_point):
        kept.matches, kept.fraction = step.matches, step.fraction
        st.session_state[_FOUND] = kept
        if time.monotonic() - drawn > _EVERY:
            bar.progress(step.fraction, f"{step.what}; {step.matches.tried:,} schemes tried")
            drawn = time.monotonic()
    return kept
