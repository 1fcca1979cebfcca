"""The golden checkpoints: small releases written by the real libraries, with what they hold."""

import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "golden_checkpoints"


def golden_case(name):
    """The case's description, with `expected` arrays by key, `release` (what to open) and `dir` (its folder)."""
    folder = FOLDER / name
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    expected = folder / "expected.npz"
    case["expected"] = dict(np.load(expected)) if expected.exists() else {}
    case["release"] = folder / (case.get("path") or "checkpoint")
    case["dir"] = folder / "checkpoint"
    return case


def same_values(a, b):
    """Whether two arrays are equal as float32, bit for bit but for the sign of zero; NaN equals NaN."""
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    return a.shape == b.shape and bool(((a == b) | (np.isnan(a) & np.isnan(b))).all())
