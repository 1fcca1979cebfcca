"""Example integers for Match, as cards."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import streamlit as st
import torch

import quantcore as qc
from pages.shared.cards import Card
from pages.sidebar import match_fields, tensor_controls
from quantcore import figures, tensors

ROWS, COLUMNS = 16, 24  # of a picture, at most


def _off_by_one(codes: np.ndarray) -> np.ndarray:
    codes[3, 5] += 1
    codes[40, 100] -= 1
    return codes


@dataclass(frozen=True)
class MatchExample:
    """``line``: what it shows; ``made``: the scheme that made the codes; ``change``: what happened to them;
    ``known``: what fills the fields for scale and zero point.
    """

    title: str
    line: str
    tensor: str
    made: str
    change: Callable[[np.ndarray], np.ndarray] = np.asarray
    known: tuple[str, ...] = ()


EXAMPLES = (
    MatchExample(
        "A library's codes",
        "4×4 in uint8: which library?",
        "randn-seed-0-4x4",
        "uint8 asymmetric per_tensor onnxruntime",
    ),
    MatchExample(
        "The other axis",
        "A weight in int4: a scale per row or per column?",
        "attention-query-64x128",
        "int4 symmetric per_channel(1) torchao",
    ),
    MatchExample(
        "Transposed",
        "A weight in int4, stored the other way",
        "attention-query-64x128",
        "int4 symmetric per_group(32) torchao",
        np.transpose,
    ),
    MatchExample(
        "No clamp",
        "A cast to int8 wraps around",
        "ffn-output-64x128",
        "int8 symmetric per_channel(0) torchao(overflow=wrap)",
    ),
    MatchExample(
        "Signed or not",
        "int8 read as uint8",
        "randn-seed-0-4x4",
        "int8 asymmetric per_tensor torchao",
        lambda codes: codes % 256,
    ),
    MatchExample(
        "Offset or zero point",
        "AIMET's has the opposite sign",
        "randn-seed-0-4x4",
        "uint8 asymmetric per_tensor aimet.Quantize",
        known=("scale", "offset"),
    ),
    MatchExample(
        "Two codes off by one",
        "Two of 8,192 are wrong: which?",
        "attention-query-64x128",
        "int4 symmetric per_channel(0) compressed_tensors",
        _off_by_one,
    ),
)


def cards() -> list[Card]:
    """Return a card for each example, which sets tensor and integers; its picture is the first of these."""
    return [
        Card(f"_match_card_{place}", example.title, example.line, _picture(place), _load, (place,))
        for place, example in enumerate(EXAMPLES)
    ]


@st.cache_resource(show_spinner=False, max_entries=len(EXAMPLES))
def _picture(place: int) -> np.ndarray:
    codes = _made(EXAMPLES[place])[1][:ROWS, :COLUMNS]
    return figures.thumbnail(codes.astype(float), "codes", (float(codes.min()), float(codes.max())))


def _made(example: MatchExample) -> tuple[qc.Quantized, np.ndarray]:
    """Return the result of the scheme, and the codes as they are given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = qc.apply(tensors.EXAMPLES[example.tensor].load(), qc.Scheme.parse(example.made))
    return result, example.change(result.codes.to(torch.int64).numpy().copy())


def _load(place: int) -> None:
    """Set the tensor and the integers (a callback)."""
    example = EXAMPLES[place]
    result, codes = _made(example)
    known = {"scale": result.scale}
    if result.zero_point is not None:
        known["offset"] = -result.zero_point
    texts = [str(known[name].reshape(-1).numpy()[0]) for name in example.known]
    tensor_controls.choose("example", result.x.ndim, {"ex": example.tensor})
    match_fields.fill(codes, *texts)
