"""Formats: which numbers each can hold, its bits, and how a number rounds in it."""

from typing import Any

import pandas as pd
import streamlit as st

import quantcore as qc
from pages.shared import current, format_bits, link, say
from pages.shared.maps_view import theme
from quantcore import figures
from quantcore.rounding import ROUNDINGS

_BIND: dict[str, Any] = {"bind": "query-params"}
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
    help="Any other float is typed as float(exponent bits, mantissa bits, bias=…), such as float(3, 2); integers as int5.",
)
columns = st.columns([2, 2, 4], vertical_alignment="bottom")
x = columns[0].number_input(
    "A number", value=format_bits.DEFAULTS["fmt_x"], format="%g", key="fmt_x", **_BIND
)
rule = columns[1].selectbox("Rounding", list(ROUNDINGS), key="fmt_rule", **_BIND)
axis = columns[2].segmented_control(
    "Line of", format_bits.AXES, default=format_bits.AXES[0], key="fmt_axis", required=True, **_BIND
)
formats: dict[str, qc.Format] = {}
for name in typed:
    try:
        formats[name] = qc.parse_format(name)
    except qc.QuantError as error:
        say.error(str(error))
if not formats:
    say.hint("Choose at least one format.")
else:
    values = {name: format_bits.values(fmt) for name, fmt in formats.items()}
    relative = axis == format_bits.AXES[0]
    if relative:  # as a scale maps them: the largest of each to the largest of x
        values = {name: numbers / numbers.max() for name, numbers in values.items()}
    line = figures.number_line(
        values, log=axis == format_bits.AXES[2], at=None if relative else x, theme=theme()
    )
    st.plotly_chart(line, theme=None, key="fmt_chart")
    st.dataframe(
        pd.DataFrame([format_bits.row(name, fmt, x, rule) for name, fmt in formats.items()]),
        hide_index=True,
        column_config={n: st.column_config.NumberColumn(format="%.6g") for n in format_bits.NUMBERS},
    )
    st.caption(
        "error = number - value. The smallest is the least value over 0, epsilon the step from 1 to the next. "
        "Sources: OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0; IEEE 754-2019."
    )
    format_bits.toggles({n: f for n, f in formats.items() if isinstance(f, qc.FloatFormat)})

with link_place:
    link.draw(current.get().tensor)
