"""A sweep that shows rows as it computes them.

Rows are kept per tensor and scheme: a changed choice computes only the new ones, and a class that opens one
link computes each row once.
"""

from collections.abc import Callable, Generator
from contextlib import closing

import pandas as pd
import streamlit as st

import quantcore as qc
from pages.shared.computing import cache, needs, turn
from pages.shared.computing.long_work import LongWork, WorkStep
from pages.shared.state.selection import PageTensor

AT_ONCE = 40_000_000  # elements times schemes to compute without asking: a few seconds
Known = dict[qc.Scheme, qc.Row]


def known(tensor: PageTensor) -> Known:
    """Return the rows that any visitor has computed for this tensor; a sweep adds to them."""
    return cache.shared_record(tensor, "sweep", dict)


def table(found: Known, schemes: list[qc.Scheme]) -> pd.DataFrame:
    """Return the known rows in the order of the schemes, each with a name."""
    rows = [found[scheme] for scheme in schemes if scheme in found]
    return pd.DataFrame([{"name": name(row.scheme)} | row.as_dict() for row in rows])


_PRESETS = {scheme: name for name, scheme in reversed(qc.PRESETS.items())}
_USUAL = {"symmetric", "min_max", "textbook"}


def name(scheme: qc.Scheme) -> str:
    """Return the name of its preset if there is one, else the scheme's text without defaults."""
    if scheme in _PRESETS:
        return _PRESETS[scheme]
    return " ".join(word for word in str(scheme).split() if word not in _USUAL)


def run(tensor: PageTensor, schemes: list[qc.Scheme], draw: Callable[[pd.DataFrame], None]) -> None:
    """Compute the missing rows, if that is quick or the visitor asked for it.

    Args:
        draw: draws the rows so far; called now and then, each drawing replaces the last one.
    """
    found = known(tensor)

    def missing() -> list[qc.Scheme]:
        return [scheme for scheme in schemes if scheme not in found]

    left = len(missing())
    if not left:
        return
    place, work = st.empty(), LongWork("sw", f"sweep {tensor.key}", tensor.elements * left <= AT_ONCE)
    if work.starts(place, f"Compute {left:,} {'more' if found else 'schemes'}"):
        threads = turn.threads(4 * tensor.elements, needs.SWEEP_THREAD)
        work.run(
            place,
            lambda: _compute(tensor, found, missing(), threads),
            tensor,
            1 + threads * needs.SWEEP_THREAD,
            useless=lambda: not missing(),
            draw=lambda: draw(table(found, schemes)),
        )


def _compute(
    tensor: PageTensor, found: Known, missing: list[qc.Scheme], threads: int
) -> Generator[WorkStep, None, None]:
    """Compute the missing rows."""
    with closing(qc.sweep_rows(cache.values(tensor), missing, threads)) as computing:
        for count, row in enumerate(computing, 1):
            found[row.scheme] = row
            yield WorkStep(count / len(missing), f"{count:,} of {len(missing):,}: {name(row.scheme)}", count)
