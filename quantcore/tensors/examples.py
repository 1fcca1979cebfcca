"""Example tensors: from five teaching texts on quantization, slices of trained layers, and two images."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

import numpy as np
import numpy.typing as npt

_DATA = files("quantcore.tensors") / "data"
_RENDERED = "rendered for Quantscope (Apache-2.0), see images.txt"
_MODEL = "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), see trained_layers.txt"


@dataclass(frozen=True)
class Example:
    """A named tensor; each call of ``load()`` returns a new float32 array of ``shape``.

    ``is_image``: whether its elements are grey levels, from 0 (black) to 255 (white).
    """

    title: str
    description: str
    source: str
    shape: tuple[int, ...]
    load: Callable[[], npt.NDArray[np.float32]]
    is_image: bool = False


def _load_array(file: str, name: str) -> npt.NDArray[np.float32]:
    with (_DATA / file).open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        array: npt.NDArray[np.float32] = arrays[name].astype(np.float32)
        return array


def _worked_examples() -> dict[str, Example]:
    records = json.loads((_DATA / "worked_examples.json").read_text(encoding="utf-8"))
    return {
        name: Example(
            record["title"],
            record["description"],
            record["source"],
            np.shape(record["values"]),
            partial(np.array, record["values"], np.float32),
        )
        for name, record in records.items()
    }


# data/trained_layers.txt says how the slices were chosen, data/images.txt what the images show
EXAMPLES: dict[str, Example] = {
    **_worked_examples(),
    "ffn-output-64x128": Example(
        "Trained feed-forward output, 64×128",
        "Output weights of a transformer's feed-forward network, layer 0. One element, 7.9, is 81 standard "
        "deviations from the mean and no other exceeds 0.2: with one scale for the tensor, 4 bits round all "
        "the others to 0.",
        _MODEL,
        (64, 128),
        partial(_load_array, "trained_layers.npz", "ffn_output"),
    ),
    "attention-query-64x128": Example(
        "Trained attention query, 64×128",
        "Query weights of a transformer's attention, layer 0: nearly normal, with the largest element 9.5 "
        "standard deviations from the mean.",
        _MODEL,
        (64, 128),
        partial(_load_array, "trained_layers.npz", "attention_query"),
    ),
    "landscape-128x192": Example(
        "Image: hills above a lake, 128×192",
        "Grey levels from 0 (black) to 255 (white). The sky is a smooth gradient: with few levels it breaks "
        "into bands.",
        _RENDERED,
        (128, 192),
        partial(_load_array, "images.npz", "landscape"),
        is_image=True,
    ),
    "still-life-160x160": Example(
        "Image: three spheres, 160×160",
        "Grey levels from 0 (black) to 255 (white). Soft shadows next to stripes and texture: where levels "
        "change little, a block with a scale of its own keeps more of them.",
        _RENDERED,
        (160, 160),
        partial(_load_array, "images.npz", "still_life"),
        is_image=True,
    ),
}
