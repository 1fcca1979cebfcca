"""A search that shows its progress, can be stopped, and keeps what it found."""

from collections.abc import Generator
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.compare.match.controls import Inputs
from pages.shared.computing import cache, needs
from pages.shared.computing.long_work import LongWork, Step
from pages.shared.state.selection import Tensor

AT_ONCE = 10_000  # elements; a larger tensor is searched when the button is pressed
_FOUND = "_match_found"


@dataclass
class SearchResult:
    """What a search has found for the inputs of ``key``, and the fraction of it that is done, 0 to 1."""

    key: str
    matches: qc.Matches
    fraction: float = 0.0


def search(tensor: Tensor, inputs: Inputs, place: DeltaGenerator) -> SearchResult | None:
    """Search if that is quick or asked for, else draw the button for it in ``place``; return what has been found so far.

    Raises:
        QuantError: the inputs can't be codes, scale or zero point of the tensor.
    """
    key = f"{tensor.key} {inputs.key}"
    found: SearchResult | None = st.session_state.get(_FOUND)
    found = found if found is not None and found.key == key else None
    work = LongWork("match", f"match {key}", tensor.elements <= AT_ONCE)
    if (found is None or found.fraction < 1) and work.starts(place, "Search"):
        # another visitor may have searched the same, even while this one waited
        shared = cache.cached_small(tensor, f"matches {inputs.key}", lambda: SearchResult(key, qc.Matches()))
        work.run(
            st.empty(),
            lambda: _search(tensor, inputs, shared),
            tensor,
            needs.MATCH,
            useless=lambda: shared.fraction == 1,
            let_others=None,  # it holds much memory, and would begin again
        )
        st.session_state[_FOUND] = found = shared
    return found


def _search(tensor: Tensor, inputs: Inputs, shared: SearchResult) -> Generator[Step, None, None]:
    found = SearchResult(shared.key, qc.Matches())
    for step in qc.match_steps(cache.values(tensor), inputs.codes, inputs.scale, inputs.zero_point):
        found.matches, found.fraction = step.matches, step.fraction
        st.session_state[_FOUND] = found
        yield Step(step.fraction, f"{step.what}; {step.matches.tried:,} schemes tried")
    shared.matches, shared.fraction = found.matches, found.fraction
