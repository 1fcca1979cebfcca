"""What links and scheme texts give: digests of codes and values, and the choices that pages show."""

import hashlib
from typing import Any

import numpy as np
import torch
from app_page import the_app
from places import ROOT
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.shared.state import selection

PAGES = ROOT / "pages"
STORED = "_current"


def digest(*tensors: torch.Tensor | np.ndarray | None) -> str:
    """A digest of shapes and values that does not depend on the integer type of the codes."""
    found = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            continue
        values = np.asarray(tensor)
        kind = np.int64 if values.dtype.kind in "iu" else np.float64
        found.update(repr(values.shape).encode() + np.ascontiguousarray(values.astype(kind)).tobytes())
    return found.hexdigest()[:16]


def outcome(x: np.ndarray, scheme: qc.Scheme) -> str:
    """A digest of codes, scale, zero point and x̂, or "refused"."""
    try:
        result = qc.apply(x, scheme)
    except qc.QuantError:
        return "refused"
    return digest(result.codes, result.scale, result.zero_point, result.dequantized)


def tensor() -> np.ndarray:
    """The tensor for comparing scheme texts: both signs, an outlier, ties and a zero row."""
    x = np.random.default_rng(20261122).standard_normal((32, 64)).astype(np.float32)
    x[3, 5], x[7], x[9, :8] = 60.0, 0.0, [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.5, -3.5]
    return x


def opened(url: str, parameters: dict[str, str]) -> AppTest:
    """The page at this address, opened by a link with these parameters."""
    at = the_app(url)
    for key, value in parameters.items():
        at.query_params[key] = value
    return at.run()


def view(at: AppTest, parameters: dict[str, str]) -> dict[str, Any]:
    """What the link shows: digests of tensor and codes, its choices, and what was dropped or failed."""
    found: selection.Current = at.session_state[STORED]
    x = None if found.tensor is None else np.asarray(found.tensor.load())
    return {
        "tensor": None if x is None else digest(x),
        "codes": None if x is None or found.scheme is None else outcome(x, found.scheme),
        "choices": {key: str(at.session_state[key]) for key in sorted(parameters) if key in at.session_state},
        "dropped": any("that can't be used and" in element.value for element in at.warning),
        "failed": bool(at.exception),
    }
