"""Views of the Formats page: its table, and a code whose bits can be toggled."""

import math
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
import torch

import quantcore as qc
from pages.shared import headers, messages
from pages.shared.computing import cache
from pages.shared.state.selection import Tensor
from quantcore.numerics import rounding

FITTED = "fitted"
NAMES = [*(f"int{bits}" for bits in (2, 3, 4, 8)), *qc.FLOATS, *qc.CODEBOOKS, FITTED]
DEFAULTS: dict[str, Any] = {
    "fmt_shown": ["int4", "e2m1", "nf4", "e3m2", "e4m3fn"],
    "fmt_x": 2.6,
    "fmt_rule": "half_even",
    "fmt_axis": "value / max",
    "fmt_code": None,
    "fmt_bits": [],
    "fmt_size": 16,
    "fmt_method": "kmeans",
}
KEYS = set(DEFAULTS)
AXES = ["value / max", "value", "logarithmic"]
_BIND: dict[str, Any] = {"bind": "query-params"}


def fitted(tensor: Tensor | None) -> qc.CodebookFormat:
    """Draw the options of the fitted codebook and return it, fitted to the tensor with scale 1.

    Raises:
        QuantError: there is no tensor, or it has too few distinct values.
    """
    left, right, _ = st.columns([2, 2, 4])
    size = left.number_input(
        "Size of the fitted codebook", 2, 256, DEFAULTS["fmt_size"], key="fmt_size", **_BIND
    )
    methods = ["kmeans", "lloyd_max"]
    method = right.selectbox(
        "Fitting method",
        methods,
        key="fmt_method",
        **_BIND,
        help="Implemented in quantcore, run on the tensor on the left",
    )
    if tensor is None:
        raise qc.QuantError("There is no tensor to fit a codebook to; choose one on the left.")
    scheme = qc.Scheme(range_setting=qc.Given(1.0))
    book = cache.fitted(tensor, scheme, int(size), method).format
    assert isinstance(book, qc.CodebookFormat)
    return book


def values(fmt: qc.Format) -> np.ndarray:
    """Every finite value of the format at scale 1 and zero point 0."""
    if isinstance(fmt, qc.IntFormat):
        return np.arange(fmt.qmin, fmt.qmax + 1, dtype=np.float64)
    return np.asarray(fmt.values, dtype=np.float64)


def row(name: str, fmt: qc.Format, x: float, rule: str) -> dict[str, Any]:
    """One row of the table: properties of the format, and how x rounds in it."""
    numbers = np.unique(values(fmt))
    above = numbers[numbers > 0]
    own = {
        "format": name,
        "bits": fmt.bits,
        "values": len(numbers),
        "min": float(numbers[0]),
        "max": float(numbers[-1]),
        "lowest normal": fmt.min if isinstance(fmt, qc.FloatFormat) else math.nan,
        "smallest": float(above[0]) if len(above) else math.nan,
        "epsilon": _epsilon(fmt),
    }
    rounded, code, note = rounds(fmt, x, rule)
    return own | {"rounds to": rounded, "error": x - rounded, "code": code, "note": note}


def _epsilon(fmt: qc.Format) -> float:
    """The step from 1 to the next value; NaN for a codebook."""
    if isinstance(fmt, qc.IntFormat):
        return 1.0
    return fmt.epsilon if isinstance(fmt, qc.FloatFormat) else math.nan


def rounds(fmt: qc.Format, x: float, rule: str) -> tuple[float, str, str]:
    """The value that x rounds to, its code in bits, and a note."""
    if isinstance(fmt, qc.IntFormat):
        integer = float(rounding(rule)(torch.tensor([x])))
        rounded = min(max(integer, fmt.qmin), fmt.qmax)
        bits = f"{int(rounded) & ((1 << fmt.bits) - 1):0{fmt.bits}b}"
        return rounded, bits, "clipped" if rounded != integer else ""
    if isinstance(fmt, qc.CodebookFormat):
        code = fmt.encode(x)
        note = "nearest value" + ("" if rule == "half_even" else f"; {rule} does not apply")
        return float(fmt.decode(code)), f"{int(code):0{fmt.bits}b}", note
    code = fmt.encode(x, rule)
    value = float(fmt.decode(code))
    note = "clipped" if abs(x) > fmt.reach and math.isfinite(value) else ""
    return value, f"{int(code):0{fmt.bits}b}", note


def table(formats: dict[str, qc.Format], x: float, rule: str) -> None:
    """Draw the table.

    Raises:
        QuantError: there is no such rounding rule.
    """
    frame = pd.DataFrame([row(name, fmt, x, rule) for name, fmt in formats.items()])
    st.dataframe(
        frame,
        hide_index=True,
        placeholder="–",
        column_config=headers.columns(frame, 6)
        | {"format": st.column_config.TextColumn(headers.label("format"), pinned=True)},
    )
    st.caption(
        "Smallest above 0 is a subnormal if the float has them. Epsilon is the step from 1 to the next value. Error is "
        "the number minus what it rounds to. Sources: OCP 8-bit Floating Point 1.0; OCP Microscaling Formats 1.0; "
        "IEEE 754-2019; QLoRA (arXiv 2305.14314) for nf4."
    )


def toggles(formats: dict[str, qc.FloatFormat]) -> None:
    """Draw switches for the bits of one code, and the value of the code."""
    if not formats:
        return
    st.markdown("**Switch the bits of a code and see its value**")
    left, right = st.columns([1, 4], vertical_alignment="bottom")
    name = left.selectbox("Format", list(formats), key="fmt_code", **_BIND)
    fmt = formats.get(name) or next(iter(formats.values()))
    names = bit_names(fmt)
    on = right.pills(
        "Bits set to 1",
        names,
        selection_mode="multi",
        key="fmt_bits",
        default=DEFAULTS["fmt_bits"],
        **_BIND,
    )
    code = sum(1 << (fmt.bits - 1 - i) for i, bit in enumerate(names) if bit in (on or []))
    messages.lines([f"{grouped(fmt, code)} (code {code}) means {arithmetic(fmt, fmt.fields(code))}"])


def grouped(fmt: qc.FloatFormat, code: int) -> str:
    """The bits with a space between sign, exponent and mantissa: ``1 1000 010``."""
    bits = f"{code:0{fmt.bits}b}"
    cut = fmt.bits - fmt.mantissa
    parts = [bits[: cut - fmt.exponent], bits[cut - fmt.exponent : cut], bits[cut:]]
    return " ".join(part for part in parts if part)


def bit_names(fmt: qc.FloatFormat) -> list[str]:
    """``sign, E3 … E0, M2 … M0``: the name of each bit, highest first."""
    return [
        *(["sign"] if fmt.sign_bit else []),
        *(f"E{i}" for i in reversed(range(fmt.exponent))),
        *(f"M{i}" for i in reversed(range(fmt.mantissa))),
    ]


def arithmetic(fmt: qc.FloatFormat, parts: Any) -> str:
    """The value of a code with its formula."""
    minus = "-" if parts.sign else ""
    if parts.kind == "nan":
        return "NaN"
    if parts.kind == "infinity":
        return f"{minus}infinity"
    fraction = f"{parts.mantissa}/{1 << fmt.mantissa}"
    if parts.kind in ("subnormal", "zero"):
        return f"{minus}2^(1 - {fmt.bias}) · {fraction} = {parts.value:g} ({parts.kind})"
    return f"{minus}2^({parts.exponent} - {fmt.bias}) · (1 + {fraction}) = {parts.value:g}"
