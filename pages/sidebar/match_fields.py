"""The fields of Match with the integers to match, which examples and lessons fill."""

import numpy as np
import streamlit as st

from pages.shared.state import leaving
from pages.sidebar import tensor_controls

SOURCE, TEXT, SCALE, ZERO_POINT = "match_src", "match_text", "match_scale", "match_zero_point"  # keys
CODE, CODE_FILE = "match_code", "match_code_file"


def fill(codes: np.ndarray, scale: str = "", zero_point: str = "") -> None:
    """Fill the fields (a callback)."""
    st.session_state.update({SOURCE: "paste", TEXT: write(codes), SCALE: scale, ZERO_POINT: zero_point})


def write(codes: np.ndarray) -> str:
    """Write integers as text that can be read, edited and parsed."""
    return tensor_controls.write(codes.astype(np.int64))


def open_match(x: np.ndarray, codes: np.ndarray) -> None:
    """Open Match with a tensor and codes (a callback)."""
    tensor_controls.choose("paste", x.ndim, {tensor_controls.PASTED: tensor_controls.write(x)})
    fill(codes)
    leaving.to("compare/match/page.py")
