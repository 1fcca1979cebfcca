"""Schemes: which one should I use? Error against bits per element, for many schemes."""

from functools import partial

import streamlit as st

import quantcore as qc
from pages.compare.schemes import controls, run, views
from pages.shared import messages
from pages.shared.page_frame import page_frame
from pages.shared.state import leaving
from pages.shared.state.selection import NoTensorYet

leaving.come_back("schemes", controls.DEFAULTS)
with page_frame(
    "Which scheme should I use?",
    "Many schemes applied to the tensor in the sidebar: the error of each against its storage cost.",
    problems=(st.session_state.pop(views.PROBLEM, ""),),
) as frame:
    if frame.chosen.tensor is not None:
        tensor = frame.chosen.tensor
        schemes: list[qc.Scheme] = []
        answer = st.container()
        row = st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="sw_row")
        picture, choices = st.container(), st.container()
        metric, swept = controls.metric(row), None
        beside = row.container(width="content") if metric == controls.OUTPUT else row
        with choices:
            try:
                schemes = controls.draw(row, tensor.shape, frame.chosen.scheme)
                if not schemes:
                    messages.hint("Choose at least one format, symmetry, granularity and range setting.")
            except qc.QuantError as error:
                messages.error(str(error))
            typed, only_best = controls.filters(row)
        with picture:
            try:
                swept = run.Swept(tensor, controls.given(tensor.shape, metric, beside))
                run.run(
                    swept, schemes, partial(views.picture, metric=metric, own=frame.chosen.scheme, live=True)
                )
            except NoTensorYet as waiting:
                messages.hint(str(waiting))
            except qc.QuantError as error:
                messages.error(str(error))
        rows = run.table(run.known(swept), schemes) if swept else ()
        if swept and len(rows):
            with answer:
                limit = views.limited(rows, metric)
            with picture:
                views.picture(rows, metric, frame.chosen.scheme, limit=limit)
                st.caption(views.caption(swept))
            shown = views.filtered(rows, metric, typed, only_best)
            views.rows_table(shown)
            views.code(swept, rows, metric)
            views.maps(tensor, rows)
