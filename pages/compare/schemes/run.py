"""A sweep that shows rows as it computes them.

Rows are kept per tensor and scheme: a changed choice computes only the new ones, and a class that opens one
link computes each row once.
"""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

import pandas as pd
import streamlit as st

import quantcore as qc
from pages.shared.computing import cache, needs, turn
from pages.shared.computing.long_work import LongWork, WorkStep
from pages.shared.state.selection import PageTensor
from pages.sidebar.activations import GivenActivations
from quantcore import outputs

AT_ONCE = 40_000_000  # elements times schemes to compute without asking: a few seconds
_TOKENS = 200  # whose products take as long as to quantize the weight
Known = dict[qc.Scheme, qc.Row]


@dataclass(frozen=True)
class Swept:
    """What the schemes are applied to: a tensor, or a layer's weight with its activations."""

    tensor: PageTensor
    given: GivenActivations | None = None

    @property
    def content(self) -> cache.Content:
        """What rows are kept for."""
        if self.given is None:
            return self.tensor
        (out, inputs), tokens = self.tensor.shape, self.given.x.shape[0]
        key = f"sweep {self.tensor.key} | {self.given.x.key}"
        return cache.CacheKey(key, out * inputs + tokens * (inputs + 3 * out))  # x; y twice as float64

    def seconds(self, schemes: int) -> float:
        """Return how long so many schemes take, as a part of what is computed without asking."""
        tokens = 0 if self.given is None else self.given.x.shape[0]
        return self.tensor.elements * schemes * (1 + tokens / _TOKENS) / AT_ONCE

    def measure(self) -> Callable[[qc.Quantized], float] | None:
        """Return what measures the output, None if there are no activations.

        Raises:
            QuantError: x and w make no layer.
        """
        if self.given is None:
            return None
        x = self.given.x
        make = lambda: outputs.output_measure(cache.values(x), cache.values(self.tensor))  # noqa: E731
        return cache.cached(self.content, "measure", make)


def known(swept: Swept) -> Known:
    """Return the rows that any visitor has computed for this; a sweep adds to them."""
    return cache.shared_record(swept.content, "sweep", dict)


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


def run(swept: Swept, schemes: list[qc.Scheme], draw: Callable[[pd.DataFrame], None]) -> None:
    """Compute the missing rows, if that is quick or the visitor asked for it.

    Args:
        draw: draws the rows so far; called now and then, each drawing replaces the last one.

    Raises:
        QuantError: x and w make no layer.
    """
    found, content = known(swept), swept.content

    def missing() -> list[qc.Scheme]:
        return [scheme for scheme in schemes if scheme not in found]

    left = len(missing())
    if not left:
        return
    place, work = st.empty(), LongWork("sw", f"sweep {content.key}", swept.seconds(left) <= 1)
    if work.starts(place, f"Compute {left:,} {'more' if found else 'schemes'}"):
        threads = turn.threads(content.nbytes, needs.SWEEP_THREAD)
        work.run(
            place,
            lambda: _compute(swept, found, missing(), threads),
            content,
            1 + threads * needs.SWEEP_THREAD,
            useless=lambda: not missing(),
            draw=lambda: draw(table(found, schemes)),
        )


def _compute(
    swept: Swept, found: Known, missing: list[qc.Scheme], threads: int
) -> Generator[WorkStep, None, None]:
    """Compute the missing rows."""
    rows = qc.sweep_rows(cache.values(swept.tensor), missing, threads, output=swept.measure())
    with closing(rows) as computing:
        for count, row in enumerate(computing, 1):
            found[row.scheme] = row
            yield WorkStep(count / len(missing), f"{count:,} of {len(missing):,}: {name(row.scheme)}", count)
