"""Compare → Libraries: the choice of two libraries, and examples where they differ."""

from typing import Any, NamedTuple

import streamlit as st

import quantcore as qc
from pages.sidebar import scheme_state, tensor_controls, uploads
from quantcore import tensors

KEYS = {"lib_a", "lib_b"}
# Two that differ on the default tensor; of half precision, two that compute in it
_DIFFER, _DIFFER_IN_HALF = ("onnxruntime", "aimet.Quantize"), ("torchao", "compressed_tensors")
_EXAMPLE = "_lib_example"


class LibraryExample(NamedTuple):
    """A tensor as text, a scheme without a library, and two libraries that differ on it."""

    title: str
    tensor: str
    scheme: str
    a: str
    b: str


EXAMPLES = (
    LibraryExample(
        "x = 2.25, s = 0.3: a tie decided by one ulp",
        "2.25",
        "int8 given(0.3)",
        "onnxruntime",
        "torch.fake_quantize",
    ),
    LibraryExample(
        "Ties with a zero point of 1",
        "0.125 0.375 -0.125",
        "int8 asymmetric given(0.25, zero_point=1)",
        "onnxruntime",
        "compressed_tensors",
    ),
    LibraryExample(
        "4 × 4, symmetric int8: divide by 127 or 127.5?",
        "-1.1258 -1.1524 -0.2506 -0.4339\n0.8487 0.692 -0.316 -2.1152\n0.3223 -1.2633 0.35 0.3081\n0.1198 "
        "1.2377 1.1168 -0.2473",
        "int8 symmetric",
        "onnxruntime",
        "torchao",
    ),
    LibraryExample(
        "A constant row of -2.5", "-2.5 -2.5 -2.5 -2.5", "int8 symmetric", "onnxruntime", "torchao"
    ),
    LibraryExample(
        "A group from 10.5 to 14 at 4 bits: must the range include 0?",
        "10.5 11 11.5 12 12.5 13 13.5 14",
        "uint4 asymmetric per_group(8)",
        "torchao",
        "hqq",
    ),
)


def draw() -> tuple[qc.Convention, qc.Convention]:
    """Draw both choices; return their conventions."""
    left, middle, right = st.columns([3, 3, 2], vertical_alignment="bottom")
    # Both stay empty until a visitor chooses: links omit defaults, and these depend on the sidebar
    ours = st.session_state.get("library")
    two = _DIFFER_IN_HALF if st.session_state.get(uploads.DTYPE) in tensors.HALF else _DIFFER
    usual = ours if ours in qc.INTEGER_CONVENTIONS and ours != qc.TEXTBOOK.name else two[0]
    a = _library(left, "Library A", "lib_a", usual)
    b = _library(middle, "Library B", "lib_b", next(name for name in reversed(two) if name != a))
    right.selectbox(
        "Examples",
        range(len(EXAMPLES)),
        index=None,
        placeholder="Where they differ…",
        key=_EXAMPLE,
        format_func=lambda place: EXAMPLES[place].title,
        on_change=_load,
    )
    return qc.CONVENTIONS[a], qc.CONVENTIONS[b]


def _library(place: Any, label: str, key: str, usual: str) -> str:
    """Draw the choice of a library; return it, or ``usual`` if none is chosen."""
    return str(
        place.selectbox(
            label, list(qc.INTEGER_CONVENTIONS), None, placeholder=usual, key=key, bind="query-params"
        )
        or usual
    )


def _load() -> None:
    """Put an example into the controls and clear the choice (a callback)."""
    place = st.session_state[_EXAMPLE]
    st.session_state[_EXAMPLE] = None
    if place is None:
        return
    example = EXAMPLES[place]
    rank = tensors.parse(example.tensor).ndim
    tensor_controls.choose("paste", rank, {tensor_controls.PASTED: example.tensor})
    scheme_state.apply_scheme(qc.Scheme.parse(example.scheme))
    st.session_state.update({"lib_a": example.a, "lib_b": example.b})
