"""Trainings that visitors start: they can be stopped, and their results are shared with other visitors.

A training is a generator that the script itself steps through. Each step draws, which is where Streamlit ends
the script if the visitor has pressed Stop, changed another control or left the page; that closes the
generator, and the results so far are kept. Equal keys mean equal trainings: visitors share the cached
results.
"""

import dataclasses
from collections.abc import Callable, Generator
from contextlib import closing
from typing import TypeVar, cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.learn.ptq_or_qat.controls import TrainingPlan
from pages.serving.work.byte_cache import ByteCache
from pages.shared import messages
from pages.shared.computing import needs, turn
from pages.shared.computing.cache import CacheKey
from pages.shared.computing.long_work import LongWork, WorkStep
from pages.shared.state.selection import PageTensor
from quantcore import training

Step = TypeVar("Step")
T = TypeVar("T")
Job = Callable[[], bool]
Epochs = dict[int, training.Epoch[training.QuantizedNetwork]]
Rows = dict[tuple[str, int, int], training.MethodAccuracy]
_networks, _known = ByteCache(lambda: 20 * needs.TRAINING), ByteCache(lambda: 60 * needs.TRAINING)


def float_network(seed: int) -> training.Epoch[training.Network]:
    """Return the network before quantization; trained on first use, in about a second."""

    def make() -> training.Epoch[training.Network]:
        with st.spinner("Training the float network…"):
            *_, last = training.train(seed=seed)
            return last

    known = _networks.get("", str(seed), make, check=turn.check, size=needs.TRAINING)
    return cast(training.Epoch[training.Network], known)


@st.cache_resource(show_spinner=False)
def digits() -> training.Digits:
    """Load the images; never modify them."""
    return training.load_digits()


def afterwards(plan: TrainingPlan) -> training.QuantizedNetwork:
    """Return `quantcore.training.ptq` of `float_network`.

    Raises:
        QuantError: a scheme is not supported.
    """
    make = lambda: training.ptq(float_network(plan.seed).network, plan.weights, plan.activations)  # noqa: E731
    return _cached(f"ptq {plan}", make)


def epochs(plan: TrainingPlan, count: int, learned: bool) -> Epochs:
    """Return the known epochs of a QAT training; a run adds to them."""
    return _cached(f"qat {plan} {count} {learned}", dict)


def rows(plan: TrainingPlan) -> Rows:
    """Return the known rows for these schemes at any bit width and seed; a run adds to them."""
    weights, activations = (s and _any_width(s) for s in (plan.weights, plan.activations))
    return _cached(f"rows {weights} | {activations}", dict)


def weights_of(network: training.QuantizedNetwork, layer: int, key: str) -> tuple[PageTensor, qc.Scheme]:
    """Return a layer's weights as a tensor, and their scheme; ``key`` identifies the network."""
    found = network.weights[layer]
    x = found.x.numpy()
    return PageTensor(f"digits {key} layer {layer}", f"layer {layer + 1}", x.shape, lambda: x), found.scheme


def run(
    begin: Callable[[], Generator[Step, None, None]],
    each: Callable[[Step], WorkStep],
    place: DeltaGenerator,
    done: Callable[[], bool] = lambda: False,
) -> bool:
    """Step through a training when it is this visitor's turn; return whether it finished.

    Args:
        each: stores a step, then draws what is known; returns the progress.
        place: for the progress bar and Stop, or for an error.
        done: whether another visitor has run the same training in the meantime.
    """

    def steps() -> Generator[WorkStep, None, None]:
        with closing(begin()) as running:
            yield from map(each, running)

    content = CacheKey("", needs.TRAINING // 4)
    try:
        LongWork("train", "").run(place, steps, content, useless=done, let_others=turn.pause_for_others)
    except qc.QuantError as error:
        messages.error(str(error), place)
        return False
    return True


def _cached(key: str, make: Callable[[], T]) -> T:
    """Return ``make()``, computed once, however many visitors ask for it."""
    return cast(T, _known.get("", key, make, check=turn.check, size=needs.TRAINING))


def _any_width(scheme: qc.Scheme) -> str:
    """Write a scheme as text, which is the same for all bit widths of an integer format."""
    fmt = scheme.format
    if isinstance(fmt, qc.IntFormat):
        scheme = dataclasses.replace(scheme, format=dataclasses.replace(fmt, bits=8))
    return str(scheme)
