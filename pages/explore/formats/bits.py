"""One code of a format: its bits, value and number; whichever a visitor changes, the others follow."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st
import torch

import quantcore as qc
from pages.explore.formats.views import BITS, CODE, DEFAULTS, FITTED, RULE, X, rounds
from pages.shared import messages
from pages.shared.state import link, mirrored
from quantcore.formats import about

SIGN, EXPONENT, MANTISSA = "sign", "exponent", "mantissa"  # kinds of bits
_VALUE, _NUMBER, _PROBLEM = "fmt_typed", "fmt_number", "_fmt_problem"


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
        return _on(fmt, int(rounds(fmt, x, rule)[1], 2))
    except qc.QuantError:  # reported where the number is rounded
        return []


def _on(fmt: qc.Format, code: int) -> list[str]:
    """Return the bits of a code that are 1."""
    return [bit.name for bit, digit in zip(bits_of(fmt), f"{code:0{fmt.bits}b}", strict=True) if digit == "1"]


def _code(fmt: qc.Format, on: Sequence[str]) -> int:
    return sum(1 << (fmt.bits - 1 - i) for i, bit in enumerate(bits_of(fmt)) if bit.name in on)


def _written(value: float | None) -> str:
    return "" if value is None else f"{value:.7g}"


def number(text: str) -> float:
    """Read a number as people write it.

    >>> number("−2,5"), number("inf")
    (-2.5, inf)

    Raises:
        QuantError: it is not a number.
    """
    try:
        return float(text.strip().replace("−", "-").replace(",", "."))
    except ValueError:
        raise qc.QuantError(f"{text[:40]!r} is not a number; type one such as -2.5, inf or nan.") from None


def code_of(fmt: qc.Format, name: str, value: float) -> int:
    """Return the code of an infinity or of NaN.

    Raises:
        QuantError: the format has none.
    """
    same = math.isnan if math.isnan(value) else value.__eq__
    if isinstance(fmt, qc.FloatFormat):
        codes = range(1 << fmt.bits)
        found = next((code for code in codes if same(fmt.fields(code).value)), None)
        if found is not None:
            return found
    what = "NaN" if math.isnan(value) else "infinity"
    raise qc.QuantError(f"{name} has no {what}; type a finite number.")


def _typed_value(key: str, name: str, fmt: qc.Format) -> None:
    """Take the value in the field as the number to round (a callback)."""
    if not mirrored.typed(_VALUE, key):
        return
    try:
        value = number(st.session_state[key])
        if math.isfinite(value):
            link.put({X: value, BITS: _rounded(fmt, value, st.session_state[RULE])})
        else:
            link.put({BITS: _on(fmt, code_of(fmt, name, value))})
    except qc.QuantError as error:
        st.session_state[_PROBLEM] = str(error)
    # as it will be shown, so that the field stays the same, with the focus
    st.session_state[key] = _written(meaning(fmt, _code(fmt, st.session_state[BITS]))[0])


def _typed_number(key: str, fmt: qc.Format) -> None:
    """Take the code in the field (a callback)."""
    if mirrored.typed(_NUMBER, key):
        link.put({BITS: _on(fmt, int(st.session_state[key]))})


def draw(place: Any, formats: dict[str, qc.Format], x: float, rule: str) -> tuple[str, float] | None:
    """Draw the choice of a format, its bits, value and code; return the format's name and a finite value.

    Args:
        x, rule: until a bit is switched, the code is what x rounds to.
    """
    with place.container(key="fmt_code_row", horizontal=True, vertical_alignment="top", gap="medium"):
        left, middle = st.container(width=170), st.container(key="fmt_boxes")
        right = st.container(key="fmt_value")
    names = [name for name in formats if name != FITTED]
    usual = DEFAULTS[CODE]
    name = left.selectbox(
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
    with middle:
        on = _boxes(fmt, name, _rounded(fmt, x, rule))
    code = _code(fmt, on)
    value, formula = meaning(fmt, code)
    with right:
        _fields(fmt, name, code, value)
        st.html(f'<div class="qs-formula">{html.escape(f"{grouped(fmt, code)}: {formula}")}</div>')
    return (name, value) if value is not None and math.isfinite(value) else None


def _boxes(fmt: qc.Format, name: str, default: list[str]) -> list[str]:
    """Draw the bits as boxes; return those that are 1."""
    bits = bits_of(fmt)
    on = st.pills(
        "Bits: click one to switch it",
        [bit.name for bit in bits],
        selection_mode="multi",
        key=BITS,
        default=default,
        bind="query-params",
    )
    colors = (
        f".st-key-{BITS} button:nth-of-type({place}) {{ --qs-bit: var(--qs-{bit.kind}); }}"
        for place, bit in enumerate(bits, 1)
    )
    st.html(f"<style>{''.join(colors)}</style>")
    st.caption(f"**{name}**: {about(fmt)}")
    return list(on or [])


def _fields(fmt: qc.Format, name: str, code: int, value: float | None) -> None:
    """Draw the value and the code, which can be typed."""
    problem = st.session_state.pop(_PROBLEM, "")
    at_value, at_number = mirrored.key_at(_VALUE, _written(value)), mirrored.key_at(_NUMBER, code)
    with st.container(horizontal=True, gap="small"):
        st.container(key=_VALUE).text_input(
            "Value",
            key=at_value,
            on_change=partial(_typed_value, at_value, name, fmt),
            placeholder="none",
            max_chars=60,
            help="Type another number: the bits follow to the one that it rounds to.",
        )
        st.container(key=_NUMBER).number_input(
            "Code",
            0,
            (1 << fmt.bits) - 1,
            key=at_number,
            on_change=partial(_typed_number, at_number, fmt),
            help="The bits as one number; + and − go to the neighbor.",
        )
    if problem:
        messages.error(problem)
