"""Example integers for Match, each with the expected scheme and what went wrong."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import streamlit as st
import torch

import quantcore as qc
from pages.compare.match import controls
from pages.sidebar import scheme_state
from quantcore import tensors

_CHOICE = "match_example"


@dataclass(frozen=True)
class Example:
    """``made``: the scheme that made the codes; ``expected``: the one set on the left; ``steps``: changes to the codes;
    ``known``: what fills the fields for scale and zero point.
    """

    title: str
    tensor: str
    made: str
    expected: str
    steps: tuple[str, ...] = ()
    known: tuple[str, ...] = field(default=())


EXAMPLES = (
    Example(
        "onnxruntime's codes for the 4×4 sample",
        "randn-seed-0-4x4",
        "uint8 asymmetric per_tensor onnxruntime",
        "uint8 asymmetric per_tensor textbook",
    ),
    Example(
        "A weight quantized along the wrong axis",
        "attention-query-64x128",
        "int4 symmetric per_channel(1) torchao",
        "int4 symmetric per_channel(0) torchao",
    ),
    Example(
        "A transposed weight",
        "attention-query-64x128",
        "int4 symmetric per_group(32) torchao",
        "int4 symmetric per_group(32) torchao",
        ("transposed",),
    ),
    Example(
        "A cast to int8 without a clamp",
        "ffn-output-64x128",
        "int8 symmetric per_channel(0) torchao(overflow=wrap)",
        "int8 symmetric per_channel(0) torchao",
    ),
    Example(
        "Signed codes read as unsigned",
        "randn-seed-0-4x4",
        "int8 asymmetric per_tensor torchao",
        "int8 asymmetric per_tensor torchao",
        ("unsigned",),
    ),
    Example(
        "AIMET's offset used as a zero point",
        "randn-seed-0-4x4",
        "uint8 asymmetric per_tensor aimet.Quantize",
        "uint8 asymmetric per_tensor aimet.Quantize",
        known=("scale", "offset"),
    ),
    Example(
        "Two codes off by one",
        "attention-query-64x128",
        "int4 symmetric per_channel(0) compressed_tensors",
        "int4 symmetric per_channel(0) compressed_tensors",
        ("off by one",),
    ),
)


def draw() -> None:
    """Draw the choice of an example, which sets the tensor, the scheme and the integers."""
    st.selectbox(
        "Example",
        [example.title for example in EXAMPLES],
        index=None,
        key=_CHOICE,
        placeholder="Open an example",
        on_change=_load,
        label_visibility="collapsed",
    )


def _load() -> None:
    example = next(e for e in EXAMPLES if e.title == st.session_state[_CHOICE])
    st.session_state[_CHOICE] = None
    x = tensors.EXAMPLES[example.tensor].load()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = qc.apply(x, qc.Scheme.parse(example.made))
    codes = result.codes.to(torch.int64).numpy().copy()
    for step in example.steps:
        codes = _STEPS[step](codes)
    known = {"scale": result.scale}
    if result.zero_point is not None:
        known["offset"] = -result.zero_point
    texts = [str(known[name].reshape(-1).numpy()[0]) for name in example.known]
    st.session_state.update({"src": "example", "ex": example.tensor, scheme_state.RANK: x.ndim})
    scheme_state.apply_scheme(qc.Scheme.parse(example.expected))
    controls.put(codes, *texts)


def _off_by_one(codes: np.ndarray) -> np.ndarray:
    codes[3, 5] += 1
    codes[40, 100] -= 1
    return codes


_STEPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": np.transpose,
    "unsigned": lambda codes: codes % 256,
    "off by one": _off_by_one,
}
