"""What a format holds and how a number rounds in it: the table, the fitted codebook."""

import math
from typing import Any

import numpy as np
import streamlit as st
import torch

import quantcore as qc
from pages.shared import messages, tables
from pages.shared.computing import cache
from pages.shared.state import choice
from pages.shared.state.selection import PageTensor
from quantcore.formats import METHODS, about
from quantcore.numerics import WORDS, rounding

FITTED = "fitted"
X, RULE, CODE, BITS = "fmt_x", "fmt_rule", "fmt_code", "fmt_bits"
NAMES = [*(f"int{bits}" for bits in (2, 3, 4, 8)), *qc.FLOATS, *qc.CODEBOOKS, FITTED]
DEFAULTS: dict[str, Any] = {
    "fmt_shown": ["int4", "e2m1", "nf4", "e3m2", "e4m3fn"],
    "fmt_x": 2.6,
    "fmt_rule": "half_even",
    "fmt_axis": "value",
    "fmt_code": "e4m3fn",
    "fmt_bits": [],
    "fmt_size": 16,
    "fmt_method": "kmeans",
}
KEYS = set(DEFAULTS)
AXES = {"fraction": "value / max", "value": "value", "logarithmic": "logarithmic"}  # option -> what is shown


def fitted(tensor: PageTensor | None) -> qc.CodebookFormat:
    """Draw the options of the fitted codebook and return it, fitted to the tensor with scale 1.

    Raises:
        QuantError: there is no tensor, or it has too few distinct values.
    """
    left, right, _ = st.columns([2, 2, 4])
    size = left.number_input(
        "Size of the fitted codebook", 2, 256, DEFAULTS["fmt_size"], key="fmt_size", bind="query-params"
    )
    method = choice.selectbox(
        "Fitting method",
        "fmt_method",
        dict(reversed(METHODS.items())),
        right,
        help="Implemented in quantcore, run on the tensor in the sidebar",
    )
    if tensor is None:
        raise qc.QuantError("There is no tensor to fit a codebook to; choose one in the sidebar.")
    scheme = qc.Scheme(range_setting=qc.Given(1.0))
    book = cache.fitted(tensor, scheme, int(size), method).format
    assert isinstance(book, qc.CodebookFormat)
    return book


def values(fmt: qc.Format) -> np.ndarray:
    """Return every finite value of the format at scale 1 and zero point 0."""
    if isinstance(fmt, qc.IntFormat):
        return np.arange(fmt.qmin, fmt.qmax + 1, dtype=np.float64)
    return np.asarray(fmt.values, dtype=np.float64)


def row(name: str, fmt: qc.Format, x: float, rule: str) -> dict[str, Any]:
    """Return one row of the table: properties of the format, and how x rounds in it."""
    numbers = np.unique(values(fmt))
    above = numbers[numbers > 0]
    own: dict[str, Any] = {
        "format": name,
        "bits": fmt.bits,
        "values": len(numbers),
        "min": float(numbers[0]),
        "max": float(numbers[-1]),
        "lowest normal": math.nan,
        "smallest": float(above[0]) if len(above) else math.nan,
        "epsilon": math.nan,
    }
    if isinstance(fmt, qc.FloatFormat):
        own |= {"lowest normal": fmt.min, "epsilon": fmt.epsilon}
    elif isinstance(fmt, qc.IntFormat):
        own["epsilon"] = 1.0
    rounded, code, note = rounds(fmt, x, rule)
    return own | {"rounds to": rounded, "error": x - rounded, "code": code, "note": note}


def rounds(fmt: qc.Format, x: float, rule: str) -> tuple[float, str, str]:
    """Return the value that x rounds to, its code in bits, and a note."""
    if isinstance(fmt, qc.IntFormat):
        integer = float(rounding(rule)(torch.tensor([x])))
        rounded = min(max(integer, fmt.qmin), fmt.qmax)
        bits = f"{int(rounded) & ((1 << fmt.bits) - 1):0{fmt.bits}b}"
        return rounded, bits, "clipped" if rounded != integer else ""
    if isinstance(fmt, qc.CodebookFormat):
        code = fmt.encode(x)
        note = f"nearest value, {fmt.nearest}" + (
            "" if rule == "half_even" else f"; rounding {WORDS.get(rule, rule)} does not apply"
        )
        return float(fmt.decode(code)), f"{int(code):0{fmt.bits}b}", note
    code = fmt.encode(x, rule)
    value = float(fmt.decode(code))
    note = "clipped" if abs(x) > fmt.reach and math.isfinite(value) else ""
    return value, f"{int(code):0{fmt.bits}b}", note


def table(formats: dict[str, qc.Format], x: float, rule: str) -> None:
    """Draw the table, and below it what each format is, which no column has room for.

    Raises:
        QuantError: there is no such rounding rule.
    """
    import pandas as pd  # here: `PAGE` needs no table, and is imported with the first page

    frame = pd.DataFrame([row(name, fmt, x, rule) for name, fmt in formats.items()])
    st.dataframe(
        frame,
        hide_index=True,
        placeholder="–",
        column_config=tables.columns(frame, 6)
        | {"format": st.column_config.TextColumn(tables.label("format"))},
    )
    st.markdown("\n".join(f"- **{messages.plain(name)}**: {about(fmt)}" for name, fmt in formats.items()))
    st.caption(
        "Smallest above 0 is a subnormal if the float has them. Epsilon is the step from 1 to the next "
        "value. Error is the number minus what it rounds to. Sources: OCP 8-bit Floating Point 1.0; OCP "
        "Microscaling Formats 1.0; IEEE 754-2019; QLoRA (arXiv 2305.14314) for nf4."
    )
