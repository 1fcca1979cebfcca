"""One code of a format: its bits as large boxes to click, its value, and the arithmetic between them."""

import html
from dataclasses import dataclass
from typing import Any

import streamlit as st
import torch

import quantcore as qc
from pages.explore.formats import views
from quantcore.formats import about

SIGN, EXPONENT, MANTISSA = "sign", "exponent", "mantissa"


@dataclass(frozen=True)
class FormatBit:
    """A bit; ``kind``: what it stands for. The bits of integers and indices count as mantissa, but for a sign."""

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
    return [FormatBit(f"B{i}", SIGN if signed and i == fmt.bits - 1 else MANTISSA) for i in reversed(range(fmt.bits))]


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
        fields = fmt.fields(code)
        return fields.value, arithmetic(fmt, fields)
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


def arithmetic(fmt: qc.FloatFormat, parts: Any) -> str:
    """Return the value of a code with its formula."""
    minus = "-" if parts.sign else ""
    if parts.kind == "nan":
        return "NaN"
    if parts.kind == "infinity":
        return f"{minus}infinity"
    fraction = f"{parts.mantissa}/{1 << fmt.mantissa}"
    if parts.kind in ("subnormal", "zero"):
        return f"{minus}2^(1 - {fmt.bias}) · {fraction} = {parts.value:g} ({parts.kind})"
    return f"{minus}2^({parts.exponent} - {fmt.bias}) · (1 + {fraction}) = {parts.value:g}"


def follow() -> None:
    """Set the bits to what the number rounds to in the chosen format (a callback)."""
    try:
        fmt = qc.parse_format(st.session_state[views.CODE] or "")
    except qc.QuantError:  # reported where the formats are chosen
        return
    st.session_state[views.BITS] = _rounded(fmt, st.session_state[views.X], st.session_state[views.RULE])


def _rounded(fmt: qc.Format, x: float, rule: str) -> list[str]:
    """Return the bits that are 1 in what a number rounds to."""
    try:
        digits = views.rounds(fmt, x, rule)[1]
    except qc.QuantError:  # reported where the number is rounded
        return []
    return [bit.name for bit, digit in zip(bits_of(fmt), digits, strict=True) if digit == "1"]


def draw(place: Any, formats: dict[str, qc.Format], x: float, rule: str) -> tuple[str, float] | None:
    """Draw the choice of a format, its bits, and the value; return the format's name and the finite value, if any.

    Args:
        x, rule: until a bit is switched, the code is what x rounds to.
    """
    with place.container(key="fmt_code_row", horizontal=True, vertical_alignment="top", gap="medium"):
        left, middle, right = st.container(width=170), st.container(key="fmt_boxes"), st.container(key="fmt_value")
    names = [name for name in formats if name != views.FITTED]
    with left:
        usual = views.DEFAULTS[views.CODE]
        name = st.selectbox(
            "Format",
            names,
            index=names.index(usual) if usual in names else 0,
            key=views.CODE,
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
            key=views.BITS,
            default=_rounded(fmt, x, rule),
            bind="query-params",
        )
        st.html(f"<style>{''.join(_tinted(bits))}</style>")
        st.caption(f"**{name}**: {about(fmt)}")
    code = sum(1 << (fmt.bits - 1 - i) for i, bit in enumerate(bits) if bit.name in (on or []))
    value, formula = meaning(fmt, code)
    shown = "–" if value is None else f"{value:.7g}"
    line = f"{grouped(fmt, code)}, code {code}: {formula}"
    right.html(f'<div class="qs-value">{html.escape(shown)}</div><div class="qs-formula">{html.escape(line)}</div>')
    return (name, value) if value is not None and abs(value) < float("inf") else None


def _tinted(bits: list[FormatBit]) -> list[str]:
    """Return styles that give each kind of bits its color."""
    return [
        f".st-key-{views.BITS} button:nth-of-type({place}) {{ --qs-bit: var(--qs-{bit.kind}); }}"
        for place, bit in enumerate(bits, 1)
    ]
