"""A search that shows its progress and can be stopped; all who search for the same share its result."""

from collections.abc import Generator
from dataclasses import dataclass, field

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.compare.match import views
from pages.compare.match.controls import Inputs
from pages.shared.computing import cache, needs
from pages.shared.computing.long_work import LongWork, WorkStep
from pages.shared.state.selection import PageTensor

AT_ONCE = 10_000  # elements; a larger tensor is searched when the button is pressed


@dataclass
class SearchResult:
    """What a search has found, and the fraction done, 0 to 1; ``begun``: even if it tried nothing yet."""

    matches: qc.Matches = field(default_factory=qc.Matches)
    fraction: float = 0.0
    begun: bool = False


def search(tensor: PageTensor, inputs: Inputs, place: DeltaGenerator) -> SearchResult | None:
    """Search if that is quick or asked for, else draw its button in ``place``; return what has been found.

    Raises:
        QuantError: the inputs can't be codes, scale or zero point of the tensor.
    """
    key = f"match {tensor.key} {inputs.key}"
    found = cache.shared_record(cache.CacheKey(key, tensor.elements), "match", SearchResult)
    work = LongWork("match", key, tensor.elements <= AT_ONCE)
    if found.fraction < 1 and work.starts(place.empty(), "Search"):
        work.run(
            st.empty(),
            lambda: _search(tensor, inputs, found),
            tensor,
            needs.MATCH,
            useless=lambda: found.fraction == 1,
            let_others=None,  # it holds much memory, and would begin again
            draw=lambda: views.so_far(found.matches, tensor),
        )
    return found if found.begun else None


def _search(tensor: PageTensor, inputs: Inputs, found: SearchResult) -> Generator[WorkStep, None, None]:
    for step in qc.match_steps(cache.values(tensor), inputs.codes, inputs.scale, inputs.zero_point):
        found.matches, found.fraction, found.begun = step.matches, step.fraction, True
        tried = step.matches.tried
        yield WorkStep(step.fraction, f"{step.what}; {tried:,} schemes tried", results=tried)
