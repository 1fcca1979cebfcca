"""Formats: the numbers that each can represent, its bits, and how a number rounds in it."""

import math
from typing import Any

import numpy as np
import streamlit as st

import quantcore as qc
from pages.explore.formats import views
from pages.shared import messages
from pages.shared.page_frame import page_frame
from pages.shared.theme import theme
from quantcore import figures
from quantcore.numerics import NAMES as ROUNDINGS

_BIND: dict[str, Any] = {"bind": "query-params"}
with page_frame("Which numbers can a format hold?") as frame:
    typed = st.multiselect(
        "Formats",
        views.NAMES,
        views.DEFAULTS["fmt_shown"],
        key="fmt_shown",
        accept_new_options=True,
        max_selections=12,
        **_BIND,
        help="Or type another: float(3, 2, bias=3, infinities=True, nan=ieee) with 3 exponent and 2 mantissa bits, int5, "
        "uint4, log2_5, codebook([-1, 0, 2]). fitted is a codebook fitted to the tensor on the left.",
    )
    columns = st.columns([2, 2, 4], vertical_alignment="bottom")
    x = columns[0].number_input(
        "Number to round", value=views.DEFAULTS["fmt_x"], format="%g", key="fmt_x", **_BIND
    )
    rule = columns[1].selectbox(
        "Rounding",
        ROUNDINGS,
        key="fmt_rule",
        accept_new_options=True,
        **_BIND,
        help="stochastic rounds up with a probability equal to the fraction; for another seed, type stochastic_7.",
    )
    axis = columns[2].segmented_control(
        "Axis", views.AXES, default=views.AXES[0], key="fmt_axis", required=True, **_BIND
    )
    formats: dict[str, qc.Format] = {}
    for name in typed:
        try:
            fit = name == views.FITTED
            formats[name] = views.fitted(frame.chosen.tensor) if fit else qc.parse_format(name)
        except qc.QuantError as error:
            messages.error(str(error))
    if not formats:
        messages.hint("Choose at least one format.")
    else:
        values = {name: views.values(fmt) for name, fmt in formats.items()}
        relative = axis == views.AXES[0]
        if relative:  # as a scale does: the largest magnitude of each maps to 1
            values = {name: numbers / np.abs(numbers).max() for name, numbers in values.items()}
        try:
            rounded = {name: views.rounds(fmt, x, rule)[0] for name, fmt in formats.items()}
            line = figures.number_line(
                values,
                log=axis == views.AXES[2],
                at=None if relative else x,
                rounded={name: value for name, value in rounded.items() if math.isfinite(value)},
                what="value / largest |value|" if relative else "",
                theme=theme(),
            )
            st.plotly_chart(line, theme=None, key="fmt_chart")
            views.table(formats, x, rule)
        except qc.QuantError as error:
            messages.error(str(error))
        views.toggles({n: f for n, f in formats.items() if isinstance(f, qc.FloatFormat)})
