"""A sweep that shows rows as it computes them, can be stopped, and keeps what it found.

Rows are kept per tensor and scheme: a changed choice computes only the new ones, and a class that opens one link
computes each row once. Pressing Stop, changing another control or leaving the page ends the script at the next element
it draws, which closes the sweep.
"""

import time
from collections.abc import Callable
from contextlib import closing

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.shared.computing import cache, needs, turn
from pages.shared.state.selection import Tensor

AT_ONCE = 40_000_000  # elements times schemes to compute without asking: a few seconds
TENSORS = 4  # tensors whose rows are kept
_KEPT, _WANTED = "_sweeps", "_sweep_wanted"
Known = dict[qc.Scheme, qc.Row]


def known(tensor: Tensor) -> Known:
    """The rows known for this tensor; a sweep adds to them."""
    kept: dict[str, Known] = st.session_state.setdefault(_KEPT, {})
    found = kept.setdefault(tensor.key, {})
    while len(kept) > TENSORS:
        kept.pop(next(key for key in kept if key != tensor.key))
    return found


def table(found: Known, schemes: list[qc.Scheme]) -> pd.DataFrame:
    """The known rows in the order of the schemes, each with a name."""
    rows = [found[scheme] for scheme in schemes if scheme in found]
    return pd.DataFrame([{"name": name(row.scheme)} | row.as_dict() for row in rows])


_PRESETS = {scheme: name for name, scheme in reversed(qc.PRESETS.items())}
_USUAL = {"symmetric", "min_max", "textbook"}


def name(scheme: qc.Scheme) -> str:
    """The name of its preset if there is one, else the scheme's text without defaults."""
    if scheme in _PRESETS:
        return _PRESETS[scheme]
    return " ".join(word for word in str(scheme).split() if word not in _USUAL)


def run(tensor: Tensor, schemes: list[qc.Scheme], draw: Callable[[pd.DataFrame], None]) -> None:
    """Compute the missing rows, if that is quick or the visitor asked for it.

    Args:
        draw: draws the rows so far; called now and then, each drawing replaces the last one.
    """
    found = known(tensor)
    missing = _missing(tensor, schemes)
    if not missing:
        return
    place = st.empty()
    quick = cache.size(tensor) * len(missing) <= AT_ONCE
    stopped = st.session_state.get(_WANTED) == f"not {tensor.key}"
    if stopped or not (quick or st.session_state.get(_WANTED) == tensor.key):
        label = f"Compute {len(missing):,} schemes" if not found else f"Compute {len(missing):,} more"
        place.button(label, type="primary", on_click=_want, args=(tensor.key,), key="sw_go")
        return
    _compute(tensor, schemes, place, lambda: draw(table(found, schemes)))


def _rows_of_all(tensor: Tensor) -> Known:
    """The rows that any visitor has computed for this tensor, as long as they stay cached."""
    return cache.cached_small(tensor, "sweep", dict)


def _missing(tensor: Tensor, schemes: list[qc.Scheme]) -> list[qc.Scheme]:
    """The schemes that no visitor has computed; rows computed by others are added to this visitor's."""
    found, others = known(tensor), _rows_of_all(tensor)
    for scheme in schemes:
        if scheme not in found and scheme in others:
            found[scheme] = others[scheme]
    return [scheme for scheme in schemes if scheme not in found]


def _want(key: str) -> None:
    """Start or stop the sweep of a tensor (a callback)."""
    st.session_state[_WANTED] = key


def _compute(
    tensor: Tensor, schemes: list[qc.Scheme], place: DeltaGenerator, draw: Callable[[], None]
) -> None:
    """Compute the missing rows when it is this run's turn; a long sweep lets others go first now and then."""
    found, live = known(tensor), st.empty()
    with place.container(horizontal=True, vertical_alignment="center"):
        progress = st.progress(0.0, "Computing…")
        st.button("Stop", on_click=_want, args=(f"not {tensor.key}",), key="sw_stop")
    threads = turn.threads(4 * cache.size(tensor), needs.SWEEP_THREAD)
    done = lambda: not _missing(tensor, schemes)  # noqa: E731
    with cache.turn_of(tensor, 1 + threads * needs.SWEEP_THREAD, long=True, useless=done) as own:
        missing, others = _missing(tensor, schemes), _rows_of_all(tensor)
        with closing(qc.sweep_rows(cache.values(tensor), missing, threads)) as computing:
            began = drawn = time.monotonic()
            for count, row in enumerate(computing, 1):
                found[row.scheme] = others[row.scheme] = row
                progress.progress(count / len(missing), f"{count:,} of {len(missing):,}: {name(row.scheme)}")
                now = time.monotonic()
                # less and less often, since a redrawn picture flickers
                if now - drawn > max(0.6, (now - began) / 6):
                    with live.container():
                        draw()
                    drawn = time.monotonic()
                if count < len(missing):
                    turn.rerun_for_others(own)
    live.empty()
    place.empty()
