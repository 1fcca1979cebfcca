"""The controls of the lesson: what to train and how to quantize it."""

from dataclasses import dataclass
from typing import Any

import streamlit as st

import quantcore as qc
from pages.learn import choices
from pages.shared import messages
from pages.shared.state import choice, link, selection
from quantcore import training

_BIND: dict[str, Any] = {"bind": "query-params"}
_CHOICES = ("show", "layer", "maps", "view", "scales", "as")
_OTHERS = ("seed", "weights", "activations", "slope_bits", "slope_scale", "epochs", "bits", "seeds", "afford")
REQUIRED = {f"train_{name}" for name in _CHOICES}
KEYS = REQUIRED | {f"train_{name}" for name in _OTHERS}
WIDTHS = [2, 3, 4, 5, 6, 8]


@dataclass(frozen=True)
class TrainingPlan:
    """A float network, given by its seed, and the schemes of its weights and of the inputs of its layers."""

    seed: int
    weights: qc.Scheme
    activations: qc.Scheme | None

    def __str__(self) -> str:
        return f"{self.seed} {self.weights} | {self.activations}"


def seed() -> int:
    """Draw the seed, which sets the initial weights and the order of the images."""
    about = "Sets the initial weights and the order of the images; a seed gives everyone the same network"
    return int(st.number_input("Seed", 0, 99, 0, key="train_seed", help=about, **_BIND))


def plan(seeded: bool = True) -> TrainingPlan | None:
    """Draw the controls of a plan; if there is no scheme, show why and return None.

    Args:
        seeded: whether to ask for the seed of one network; if not, it is 0.

    Raises:
        QuantError: a scheme that can't be read.
    """
    chosen, number = selection.get(), 0
    places = st.columns([1, 2, 2, 2] if seeded else [1, 1], vertical_alignment="bottom")
    if seeded:
        with places[0]:
            number = seed()
    ours = "" if chosen.scheme is None else str(chosen.scheme)
    weights = places[-2 - seeded].text_input(
        "Scheme of the weights",
        key="train_weights",
        placeholder=ours,
        max_chars=200,
        help="Empty: the scheme on the left. This lesson does not use the tensor there.",
        **_BIND,
    )
    activations = places[-1 - seeded].text_input(
        "Scheme of the activations",
        key="train_activations",
        placeholder="float32, or a scheme such as uint8 asymmetric",
        max_chars=200,
        help="Quantizes the input of every layer, pixels included.",
        **_BIND,
    )
    if not weights.strip() and chosen.scheme is None:
        for problem in chosen.problems:
            messages.error(problem)
        return None
    of_weights = _read("weights", weights) or chosen.scheme
    if of_weights is not None and seeded:
        with places[-1]:
            # the sidebar's scheme stays
            take = lambda scheme: link.put({"train_weights": str(scheme)})  # noqa: E731
            choices.choose("Bits of the weights", "weights", choices.bits(), of_weights, take)
    return None if of_weights is None else TrainingPlan(number, of_weights, _read("activations", activations))


def is_of_weights() -> bool:
    """Tell whether the weights are shown, before `shows_weights` is drawn."""
    return bool(choice.before_drawn("train_view") == "weights")


def shows_weights() -> bool:
    """Draw the choice between result and weights, which share the window; return whether weights."""
    return choice.segmented("Show", "train_view", {"result": "result", "weights": "weights"}) == "weights"


def _read(what: str, text: str) -> qc.Scheme | None:
    try:
        return qc.Scheme.parse(text) if text.strip() else None
    except qc.QuantError as error:
        raise qc.QuantError(f"The scheme of the {what} can't be read: {error}") from None


def layer(network: training.QuantizedNetwork) -> int:
    """Draw the choice of a layer; return its index."""
    names = {"first": "first", "second": "second"}
    sizes = ", ".join(
        f"{n} {w.x.shape[0]}×{w.x.shape[1]}" for n, w in zip(names.values(), network.weights, strict=True)
    )
    return list(names).index(choice.segmented("Layer", "train_layer", names, help=sizes))
