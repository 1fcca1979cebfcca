"""Formats: the numbers that each can represent, its bits, and how a number rounds in it."""

import math

import numpy as np
import streamlit as st

import quantcore as qc
from pages.explore.formats import bits, views
from pages.shared import charts, messages
from pages.shared.charts import theme
from pages.shared.page_frame import page_frame
from pages.shared.state import choice
from quantcore import figures
from quantcore.numerics import WORDS

with page_frame("Which numbers can a format hold?") as frame:
    code_place = st.container()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        x = st.number_input(
            "Number to round",
            value=views.DEFAULTS[views.X],
            format="%g",
            key=views.X,
            on_change=bits.follow,
            width=150,
            bind="query-params",
        )
        rule = choice.selectbox(
            "Rounding",
            views.RULE,
            WORDS,
            accept_new_options=True,
            on_change=bits.follow,
            width=200,
            help="stochastic rounds up with a probability equal to the fraction; for another seed, type "
            "stochastic_7.",
        )
        axis = choice.segmented(
            "Axis", "fmt_axis", views.AXES, default=views.DEFAULTS["fmt_axis"], width="content"
        )
        typed = st.multiselect(
            "Formats on the line",
            views.NAMES,
            views.DEFAULTS["fmt_shown"],
            key="fmt_shown",
            accept_new_options=True,
            max_selections=12,
            bind="query-params",
            help="Or type another: float(3, 2, bias=3, infinities=True, nan=ieee) with 3 exponent and 2 "
            "mantissa bits, int5, uint4, log2_5, codebook([-1, 0, 2]). fitted is a codebook fitted to the "
            "tensor in the sidebar.",
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
        chosen = bits.draw(code_place, formats, x, rule)
        values = {name: views.values(fmt) for name, fmt in formats.items()}
        largest = {name: float(np.abs(numbers).max()) for name, numbers in values.items()}
        try:
            rounded = {name: views.rounds(fmt, x, rule)[0] for name, fmt in formats.items()}
            line = figures.number_line(
                values,
                log=axis == "logarithmic",
                at=x,
                rounded={name: value for name, value in rounded.items() if math.isfinite(value)},
                chosen=chosen,
                # as a scale does: the largest magnitude of each maps to 1
                divide=largest if axis == "fraction" else None,
                theme=theme(),
            )
            charts.draw(line, "Values of each format on a number line", key="fmt_chart")
            views.table(formats, x, rule)
        except qc.QuantError as error:
            messages.error(str(error))
