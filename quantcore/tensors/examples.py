"""Example tensors: from five teaching texts on quantization, and slices of trained layers."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

import numpy as np
import numpy.typing as npt

_DATA = files("quantcore.tensors") / "data"
_MODEL = "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), see trained_layers.txt"


@dataclass(frozen=True)
class Example:
    """A named tensor; each call of ``load()`` returns a new float32 array of ``shape``."""

    title: str
    description: str
    source: str
    shape: tuple[int, ...]
    load: Callable[[], npt.NDArray[np.float32]]


def _load_values(values: list[float]) -> npt.NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def _load_layer(name: str) -> npt.NDArray[np.float32]:
    with (_DATA / "trained_layers.npz").open("rb") as file, np.load(file, allow_pickle=False) as layers:
        layer: npt.NDArray[np.float32] = layers[name]
        return layer


def _worked_examples() -> dict[str, Example]:
    records = json.loads((_DATA / "worked_examples.json").read_text(encoding="utf-8"))
    return {
        name: Example(
            record["title"],
            record["description"],
            record["source"],
            np.shape(record["values"]),
            partial(_load_values, record["values"]),
        )
        for name, record in records.items()
    }


# data/trained_layers.txt says how the slices were chosen
EXAMPLES: dict[str, Example] = {
    **_worked_examples(),
    "ffn-output-64x128": Example(
        "Trained feed-forward output, 64×128",
        "Output weights of a transformer's feed-forward network, layer 0. One element, 7.9, is 81 standard "
        "deviations from the mean and no other exceeds 0.2: with one scale for the tensor, 4 bits round all the others "
        "to 0.",
        _MODEL,
        (64, 128),
        partial(_load_layer, "ffn_output"),
    ),
    "attention-query-64x128": Example(
        "Trained attention query, 64×128",
        "Query weights of a transformer's attention, layer 0: nearly normal, with the largest element 9.5 "
        "standard deviations from the mean.",
        _MODEL,
        (64, 128),
        partial(_load_layer, "attention_query"),
    ),
}
