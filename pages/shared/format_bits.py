"""What the page of formats shows: rows of its table, and a code whose bits are switched."""

import math
from typing import Any

import numpy as np
import streamlit as st

import quantcore as qc
from quantcore.rounding import rounding

NAMES = [*(f"int{bits}" for bits in (2, 3, 4, 8)), *qc.FLOATS]
DEFAULTS: dict[str, Any] = {
    "fmt_shown": ["int4", "e2m1", "e3m2", "e4m3fn", "e5m2"],
    "fmt_x": 2.6,
    "fmt_rule": "half_even",
    "fmt_axis": "value / max",
    "fmt_code": None,
    "fmt_bits": [],
}
KEYS = set(DEFAULTS)
AXES = ["value / max", "value", "logarithmic"]
NUMBERS = ["max", "smallest", "epsilon", "rounds to", "error"]


def values(fmt: qc.Format) -> np.ndarray:
    """Every finite value of the format, with scale 1 and zero_point 0."""
    if isinstance(fmt, qc.IntFormat):
        return np.arange(fmt.qmin, fmt.qmax + 1, dtype=np.float64)
    return np.asarray(fmt.values, dtype=np.float64)


def row(name: str, fmt: qc.Format, x: float, rule: str) -> dict[str, Any]:
    """One row of the table: the format's numbers, and how x rounds in it."""
    if isinstance(fmt, qc.IntFormat):
        import torch

        rounded = float(rounding(rule)(torch.tensor([x])).clamp(fmt.qmin, fmt.qmax))
        own = {
            "max": float(fmt.qmax),
            "smallest": 1.0,
            "epsilon": 1.0,
            "values": fmt.available,
            "bits of it": "",
        }
    else:
        code = int(fmt.encode(x, rule))
        rounded = float(fmt.decode(fmt.encode(x, rule)))
        own = {
            "max": fmt.max,
            "smallest": getattr(fmt, "smallest_subnormal", math.nan),
            "epsilon": getattr(fmt, "epsilon", math.nan),
            "values": fmt.count,
            "bits of it": f"{code:0{fmt.bits}b}",
        }
    bits_of_it = own.pop("bits of it")
    return {
        "format": name,
        "bits": fmt.bits,
        **own,
        "rounds to": rounded,
        "code": bits_of_it,
        "error": x - rounded,
    }


def toggles(formats: dict[str, qc.FloatFormat]) -> None:
    """Draw the bits of one code, to be switched on and off, and the value that they stand for."""
    if not formats:
        return
    st.markdown("**Bits: switch them, and see the value**")
    left, right = st.columns([1, 4], vertical_alignment="bottom")
    name = left.selectbox("Of", list(formats), key="fmt_code", bind="query-params")
    fmt = formats.get(name) or next(iter(formats.values()))
    names = bit_names(fmt)
    on = right.pills(
        "Bits that are 1",
        names,
        selection_mode="multi",
        key="fmt_bits",
        bind="query-params",
        default=DEFAULTS["fmt_bits"],
    )
    code = sum(1 << (fmt.bits - 1 - i) for i, bit in enumerate(names) if bit in (on or []))
    parts = fmt.fields(code)
    st.code(f"{code:0{fmt.bits}b} = {code} stands for {arithmetic(fmt, parts)}", language=None)


def bit_names(fmt: qc.FloatFormat) -> list[str]:
    """``sign, E3 … E0, M2 … M0``: what each bit is, the highest first."""
    return [
        *(["sign"] if fmt.sign_bit else []),
        *(f"E{i}" for i in reversed(range(fmt.exponent))),
        *(f"M{i}" for i in reversed(range(fmt.mantissa))),
    ]


def arithmetic(fmt: qc.FloatFormat, parts: Any) -> str:
    """The value with its formula."""
    if parts.kind in ("nan", "infinity"):
        return (
            {"nan": "NaN", "infinity": "infinity"}[parts.kind]
            if parts.sign in (0, None) or parts.kind == "nan"
            else "-infinity"
        )
    minus = "-" if parts.sign else ""
    fraction = f"{parts.mantissa}/{1 << fmt.mantissa}"
    if parts.kind in ("subnormal", "zero"):
        return f"{minus}2^(1 - {fmt.bias}) · {fraction} = {parts.value:g} ({parts.kind})"
    return f"{minus}2^({parts.exponent} - {fmt.bias}) · (1 + {fraction}) = {parts.value:g}"
