"""Computes the page's layer: at once if it is small, else as long work in the queue, with progress."""

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import streamlit as st

import quantcore as qc
from pages.outputs.layer.controls import Choices
from pages.shared.computing import cache
from pages.shared.computing.cache import CacheKey
from pages.shared.computing.long_work import LongWork, WorkStep
from pages.shared.state.selection import PageTensor
from quantcore import outputs
from quantcore.outputs import Calibration, LayerOutput
from quantcore.wording import shape_text

MOST = 1 << 34  # products of an output, token and input: four times those of 4096 tokens, inputs and outputs
AT_ONCE = 1 << 26  # of these, without long work: some hundredths of a second
_ARRAYS = 5  # float32 of each shape that work holds: values, codes, differences, and what sums need


@dataclass(frozen=True, eq=False)
class ShownLayer:
    """What the page shows.

    ``content``: what results are kept for; ``calibration``: of static scales, None if there are none;
    ``calibrated_on``: whose tokens these were found on, in words.
    """

    content: CacheKey
    found: LayerOutput
    calibration: Calibration | None
    calibrated_on: str


@dataclass(frozen=True, eq=False)
class LayerTask:
    """A layer to compute: w and its scheme, and the other choices."""

    tensor: PageTensor
    scheme: qc.Scheme
    choices: Choices

    @cached_property
    def content(self) -> CacheKey:
        """What results are kept for."""
        bias = "" if self.choices.bias is None else self.choices.bias.tobytes().hex()
        key = (
            f"{self.tensor.key} {self.scheme} | {self.choices.given.x.key} {self.choices.activation} | {bias}"
        )
        (out, inputs), tokens = self.tensor.shape, self.choices.given.x.shape[0]
        return CacheKey(f"layer {key}", out * inputs + tokens * (out + inputs))

    @property
    def products(self) -> int:
        """How many products one multiplication takes."""
        return self.tensor.elements * self.choices.given.x.shape[0]

    def check(self) -> None:
        """Raise QuantError if x and w do not fit, or are too large together."""
        w, x = self.tensor.shape, self.choices.given.x.shape
        if len(w) != 2:
            raise qc.QuantError(f"w has shape {shape_text(w)}; give a matrix, [out, in], in the sidebar.")
        if x[1] != w[1]:
            raise qc.QuantError(
                f"x is {shape_text(x)}, [tokens, in], but w is {shape_text(w)}, [out, in]: both need the "
                f"same number of columns; give x with {w[1]:,} columns, or another w."
            )
        if self.products > MOST:
            raise qc.QuantError(
                f"x·wᵀ of {shape_text(x)} and {shape_text(w)} takes {self.products:,} products, and this "
                f"page computes at most {MOST:,}; give fewer tokens, or a smaller w."
            )

    def arguments(self) -> tuple[Any, ...]:
        """Return what `quantcore.outputs.layer` takes."""
        activation, calibration = self.choices.activation.scheme, self.calibration()[0]
        if calibration is not None:
            activation = calibration.scheme
        weight = cache.result(self.tensor, self.scheme)
        x, w = cache.values(self.choices.given.x), cache.values(self.tensor)
        return x, w, weight, activation, self.choices.bias

    def calibration(self) -> tuple[Calibration | None, str]:
        """Return the static scales and whose tokens they were found on; None if scales are not static."""
        choice = self.choices.activation
        if choice.scheme is None or not choice.batches:
            return None, ""
        scheme = choice.scheme

        def make() -> tuple[Calibration, str]:
            batches = self.choices.given.batches(choice.batches)
            return outputs.calibrate(batches.load(), scheme, choice.averaging), batches.words

        return cache.cached(self.choices.given.x, f"calibration {choice}", make, 8.0 + choice.batches)


def run(task: LayerTask) -> ShownLayer | None:
    """Compute a layer that `LayerTask.check` has passed; None if the visitor has stopped the work.

    Raises:
        QuantError: a scheme does not fit.
    """
    content = task.content
    if task.products > AT_ONCE and cache.peek(content, "layer") is None:
        place, work = st.empty(), LongWork("ly", content.key, quick=True)
        if not work.starts(place, "Compute the layer"):
            return None
        is_known = lambda: cache.peek(content, "layer") is not None  # noqa: E731
        work.run(place, lambda: _working(task), content, _ARRAYS, useless=is_known)
    return done(task)


def done(task: LayerTask) -> ShownLayer:
    """Return what the page shows of a layer, computed if it is not known."""
    return ShownLayer(task.content, layer_of(task), *task.calibration())


def layer_of(task: LayerTask) -> LayerOutput:
    """Return the layer, computed if it is not known."""
    return cache.cached(task.content, "layer", lambda: outputs.layer(*task.arguments()), _ARRAYS)


def _working(task: LayerTask) -> Generator[WorkStep, None, None]:
    """Compute the layer and keep it."""

    def finding() -> Generator[outputs.LayerStep, None, None]:
        found = yield from outputs.layer_steps(*task.arguments())
        cache.cached(task.content, "layer", lambda: found, _ARRAYS)

    for step in finding():
        yield WorkStep(step.done / step.count, f"{step.done} of {step.count}: {step.name}")
