"""The lessons' own tensors that a class is asked about too, and what is asked for."""

import dataclasses

import numpy as np

import quantcore as qc
from pages.shared.state.selection import PageTensor, of_values
from quantcore import prediction

READINGS = [3.2, 17.0, 36.6, 58.4, 71.9, 99.0]  # °C
RELU = [0.0, 0.0, 0.2, 0.5, 0.9, 1.4, 2.2, 3.1, 4.6]
_ROWS = [
    "0.11 -0.32 0.05 0.27 -0.14 0.21",
    "0.40 0.18 -0.35 0.02 0.33 -0.29",
    "9.60 -4.10 7.20 2.50 -8.80 5.30",
    "-0.06 0.24 0.37 -0.19 0.12 -0.41",
]
OUTLIER_ROW = np.array([row.split() for row in _ROWS], np.float32)
ASKED = ("codes", "scale", "zero_point")


def exercise(seed: int, scheme: qc.Scheme, step: str) -> tuple[PageTensor, qc.Scheme]:
    """Make a small tensor from the seed, whose numbers divide easily, and the scheme to quantize it with.

    The step "codes" uses a fixed range, so that some values are clipped.
    """
    fmt = scheme.format
    fmt = fmt if isinstance(fmt, qc.IntFormat) else qc.INT4  # other formats are not asked about
    if step == "zero_point":  # with a symmetric scheme there is nothing to compute
        scheme = dataclasses.replace(scheme, symmetric=False)
    plain = dataclasses.replace(scheme, range_setting=qc.MinMax()) == qc.Scheme(
        scheme.format, scheme.symmetric
    )
    clipping = step == "codes" and plain and scheme.range_setting == qc.MinMax()
    found = prediction.practice(fmt, scheme.symmetric, seed, clipping)
    if clipping:
        scheme = dataclasses.replace(scheme, range_setting=qc.Fixed(found.low, found.high))
    return of_values(found.x, f"predict {fmt} {scheme.symmetric} {seed} {clipping}"), scheme
