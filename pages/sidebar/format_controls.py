"""Controls for the number format: its name, the fitted codebook, quantized scales, rounding."""


import streamlit as st

import quantcore as qc
from pages.shared.state import choice
from pages.sidebar.scheme_state import DEFAULTS
from quantcore.formats import MAX_VALUES, METHODS
from quantcore.numerics import MAX_SEED, WORDS
from quantcore.scheme import KINDS

INTEGERS = DEFAULTS["format"]
FITTED = "fitted codebook"


def name() -> str:
    """Draw the format control; return the format as chosen or typed."""
    return str(
        st.selectbox(
            "Format",
            [INTEGERS, *qc.FLOATS, *qc.CODEBOOKS, FITTED],
            key="format",
            accept_new_options=True,
            bind="query-params",
            help="Integers, small floats, codebooks, or a codebook fitted to the tensor. Or type another: "
            "float(3, 2, bias=3, infinities=True, nan=ieee) with 3 exponent and 2 mantissa bits, "
            "e5m2(saturate=False), log2_5, codebook([-1, 0, 2]), nf4(tie=upper).",
        )
    ).strip()


def kind(chosen: str) -> str:
    """Return a format's kind, chosen or typed, as conventions name it: "int", "float" or "codebook"."""
    if chosen in (INTEGERS, FITTED):
        return "int" if chosen == INTEGERS else "codebook"
    try:
        return KINDS[type(qc.parse_format(chosen))]
    except qc.QuantError:  # reported where the scheme is built
        return "float"


def fit() -> tuple[int, str]:
    """Draw size and method of the fitted codebook; return them."""
    left, right = st.columns(2)
    size = left.number_input("Values", 2, MAX_VALUES, DEFAULTS["fit_size"], key="fit_size", bind="query-params")
    method = choice.selectbox(
        "Method",
        "fit_method",
        METHODS,
        right,
        index=list(METHODS).index(DEFAULTS["fit_method"]),
        help="How the codebook is fitted. Lloyd-Max moves each value to the mean of the elements nearest to it, "
        "starting from quantiles (Lloyd 1982, Max 1960). k-means also tries the best start, found by dynamic "
        "programming (Wang and Song 2011). Both are implemented in quantcore with torch.",
    )
    return int(size), method


def scales() -> str:
    """Draw the scheme that quantizes the scales; return its text, empty if scales stay float32."""
    return str(
        st.text_input(
            "Scales stored as",
            DEFAULTS["scales"],
            placeholder="float32",
            key="scales",
            bind="query-params",
            max_chars=300,
            help="A scheme that quantizes the scales themselves, such as uint8 asymmetric, or e8m0 given(1) for powers "
            "of two. Its granularity applies to the tensor of scales.",
        )
    ).strip()


def rounding() -> str:
    """Draw the rounding control; return the name of the rounding rule, as conventions use it."""
    rule = choice.selectbox(
        "Rounding",
        "rounding",
        {DEFAULTS["rounding"]: "the library's own"} | WORDS,
        accept_new_options=True,
        help="How x/s becomes an integer, or a value of a small float. Most libraries round half to even; "
        "stochastic rounds up with a probability equal to the fraction. Codebooks always use the nearest value.",
    )
    if rule != "stochastic":
        return rule
    seed = int(st.number_input("Rounding seed", 0, MAX_SEED, 0, key="rounding_seed", bind="query-params"))
    return f"{rule}_{seed}" if seed else rule
