"""What a format holds and how a number rounds in it: the table, the fitted codebook, the bits of a code."""

import html
import math
from dataclasses import dataclass
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
SIGN, EXPONENT, MANTISSA = "sign", "exponent", "mantissa"  # kinds of bits
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


@dataclass(frozen=True)
class FormatBit:
    """A bit; ``kind``: what it stands for. Bits of integers and indices count as mantissa, but for a sign."""

    name: str
    kind: str


def bits_of(fmt: qc.Format) -> list[FormatBit]:
    """Return the bits of a code, the highest first."""
    if isinstance(fmt, qc.FloatFormat):
        return [
            *([FormatBit("sign", SIGN)] if fmt.sign_bit else []),
            *(FormatBit(f"E{i}", EXPONENT) for i in reversed(range(fmt.exponent))),
            *(FormatBit(f"M{i}", MANTISSA) for i in reversed(range(fmt.mantissa))),
        ]
    signed = isinstance(fmt, qc.IntFormat) and fmt.signed
    kinds = [SIGN if signed else MANTISSA, *[MANTISSA] * (fmt.bits - 1)]
    return [FormatBit(f"B{fmt.bits - 1 - i}", kind) for i, kind in enumerate(kinds)]


def grouped(fmt: qc.Format, code: int) -> str:
    """Return the bits with a space between sign, exponent and mantissa: ``1 1000 010``."""
    digits = f"{code:0{fmt.bits}b}"
    if not isinstance(fmt, qc.FloatFormat):
        return digits
    cut = fmt.bits - fmt.mantissa
    parts = [digits[: cut - fmt.exponent], digits[cut - fmt.exponent : cut], digits[cut:]]
    return " ".join(part for part in parts if part)


def meaning(fmt: qc.Format, code: int) -> tuple[float | None, str]:
    """Return the value of a code and its formula; None and why, if the format does not have the code."""
    if isinstance(fmt, qc.FloatFormat):
        parts = fmt.fields(code)
        minus, fraction = "-" if parts.sign else "", f"{parts.mantissa}/{1 << fmt.mantissa}"
        formula = {
            "nan": "NaN",
            "infinity": f"{minus}infinity",
            "normal": f"{minus}2^({parts.exponent} - {fmt.bias}) · (1 + {fraction}) = {parts.value:g}",
        }
        small = f"{minus}2^(1 - {fmt.bias}) · {fraction} = {parts.value:g} ({parts.kind})"
        return parts.value, formula.get(parts.kind, small)
    if isinstance(fmt, qc.CodebookFormat):
        if code >= len(fmt.values):
            return None, f"the table has only {len(fmt.values)} entries"
        value = float(fmt.decode(torch.tensor(code)))
        return value, f"entry {code} of the table = {value:.7g}"
    terms = [(-(1 << i) if fmt.signed and i == fmt.bits - 1 else 1 << i) for i in reversed(range(fmt.bits))]
    on = [term for place, term in enumerate(terms) if code >> (fmt.bits - 1 - place) & 1]
    value = sum(on)
    if not fmt.qmin <= value <= fmt.qmax:
        return None, f"{value} is not in the format, which begins at {fmt.qmin}"
    return float(value), f"{' + '.join(map(str, on)) or '0'} = {value}"


def follow() -> None:
    """Set the bits to what the number rounds to in the chosen format (a callback)."""
    try:
        fmt = qc.parse_format(st.session_state[CODE] or "")
    except qc.QuantError:  # reported where the formats are chosen
        return
    st.session_state[BITS] = _rounded(fmt, st.session_state[X], st.session_state[RULE])


def _rounded(fmt: qc.Format, x: float, rule: str) -> list[str]:
    """Return the bits that are 1 in what a number rounds to."""
    try:
        digits = rounds(fmt, x, rule)[1]
    except qc.QuantError:  # reported where the number is rounded
        return []
    return [bit.name for bit, digit in zip(bits_of(fmt), digits, strict=True) if digit == "1"]


def code(place: Any, formats: dict[str, qc.Format], x: float, rule: str) -> tuple[str, float] | None:
    """Draw the choice of a format, its bits, and the value; return the format's name and a finite value.

    Args:
        x, rule: until a bit is switched, the code is what x rounds to.
    """
    with place.container(key="fmt_code_row", horizontal=True, vertical_alignment="top", gap="medium"):
        left, middle = st.container(width=170), st.container(key="fmt_boxes")
        right = st.container(key="fmt_value")
    names = [name for name in formats if name != FITTED]
    with left:
        usual = DEFAULTS[CODE]
        name = st.selectbox(
            "Format",
            names,
            index=names.index(usual) if usual in names else 0,
            key=CODE,
            on_change=follow,
            bind="query-params",
        )
    if name not in formats:
        return None
    fmt = formats[name]
    bits = bits_of(fmt)
    with middle:
        on = st.pills(
            "Bits: click one to switch it",
            [bit.name for bit in bits],
            selection_mode="multi",
            key=BITS,
            default=_rounded(fmt, x, rule),
            bind="query-params",
        )
        colors = (
            f".st-key-{BITS} button:nth-of-type({place}) {{ --qs-bit: var(--qs-{bit.kind}); }}"
            for place, bit in enumerate(bits, 1)
        )
        st.html(f"<style>{''.join(colors)}</style>")
        st.caption(f"**{name}**: {about(fmt)}")
    code = sum(1 << (fmt.bits - 1 - i) for i, bit in enumerate(bits) if bit.name in (on or []))
    value, formula = meaning(fmt, code)
    shown = "–" if value is None else f"{value:.7g}"
    line = f"{grouped(fmt, code)}, code {code}: {formula}"
    right.html(
        f'<div class="qs-value">{html.escape(shown)}</div><div class="qs-formula">{html.escape(line)}</div>'
    )
    return (name, value) if value is not None and abs(value) < float("inf") else None
