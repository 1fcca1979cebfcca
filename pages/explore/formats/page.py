"""Formats: which numbers each can hold, its bits, and how a number rounds in it."""

import math
from typing import Any

import numpy as np
import streamlit as st

import quantcore as qc
from pages.explore.formats import views as format_bits
from pages.maps.controls import theme
from pages.shared import link
from pages.shared import messages as say
from pages.shared import selection as current
from quantcore import figures
from quantcore.numerics import NAMES as ROUNDINGS

_BIND: dict[str, Any] = {"bind": "query-params"}
chosen = current.get()
left, right = st.columns([7, 1], vertical_alignment="center")
left.subheader("Which numbers can a format hold?", anchor=False)
link_place = right.popover("Link", icon=":material/link:", width="stretch")

typed = st.multiselect(
    "Formats",
    format_bits.NAMES,
    format_bits.DEFAULTS["fmt_shown"],
    key="fmt_shown",
    accept_new_options=True,
    max_selections=12,
    **_BIND,
    help="Others are typed: float(3, 2, bias=3, infinities=True, nan=ieee) with exponent and mantissa bits, int5, "
    "uint4, log2_5, codebook([-1, 0, 2]). fitted is a codebook fitted to the tensor on the left.",
)
columns = st.columns([2, 2, 4], vertical_alignment="bottom")
x = columns[0].number_input(
    "A number", value=format_bits.DEFAULTS["fmt_x"], format="%g", key="fmt_x", **_BIND
)
rule = columns[1].selectbox(
    "Rounding",
    ROUNDINGS,
    key="fmt_rule",
    accept_new_options=True,
    **_BIND,
    help="stochastic rounds up with the probability of the part cut off; for another seed type stochastic_7.",
)
axis = columns[2].segmented_control(
    "Line of", format_bits.AXES, default=format_bits.AXES[0], key="fmt_axis", required=True, **_BIND
)
formats: dict[str, qc.Format] = {}
for name in typed:
    try:
        fit = name == format_bits.FITTED
        formats[name] = format_bits.fitted(chosen.tensor) if fit else qc.parse_format(name)
    except qc.QuantError as error:
        say.error(str(error))
if not formats:
    say.hint("Choose at least one format.")
else:
    values = {name: format_bits.values(fmt) for name, fmt in formats.items()}
    relative = axis == format_bits.AXES[0]
    if relative:  # as a scale maps them: the largest magnitude of each to 1
        values = {name: numbers / np.abs(numbers).max() for name, numbers in values.items()}
    try:
        rounded = {name: format_bits.rounds(fmt, x, rule)[0] for name, fmt in formats.items()}
        line = figures.number_line(
            values,
            log=axis == format_bits.AXES[2],
            at=None if relative else x,
            rounded={name: value for name, value in rounded.items() if math.isfinite(value)},
            what="value / largest |value|" if relative else "",
            theme=theme(),
        )
        st.plotly_chart(line, theme=None, key="fmt_chart")
        format_bits.table(formats, x, rule)
    except qc.QuantError as error:
        say.error(str(error))
    format_bits.toggles({n: f for n, f in formats.items() if isinstance(f, qc.FloatFormat)})

with link_place:
    link.draw(chosen.tensor)
