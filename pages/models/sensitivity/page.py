"""Sensitivity: how much each weight of a model loses under several schemes, and which scheme each takes within a size."""

import streamlit as st

from pages.models import opening
from pages.models.opening import addresses
from pages.models.sensitivity import budget, cell, controls, picture, run
from pages.shared.page_frame import page_frame
from pages.shared.state import leaving, link

leaving.come_back("sensitivity", controls.DEFAULTS, opening.IMATRIX_KEYS)
link.keep(controls.KEYS)
with page_frame(
    "Which layer takes which scheme?",
    "The error of each weight alone, as if all others were exact: it is local, not cumulative, and the model is not run.",
):
    left, right = st.columns(2)
    with left:
        opened = opening.choose()
    with right:
        imatrix = opening.choose("imatrix", "imatrix (optional)")
    if opened is None:
        st.markdown("An example, until you open a checkpoint: CHGNet, a model of 136 tensors.")
        opened = addresses.location_of(f"{addresses.EXAMPLE}{controls.EXAMPLE}", None).open(lambda done, of: None)
    found = run.of(opened, imatrix, controls.schemes())
    limit = st.container()
    run.proceed(found, st.empty(), lambda: picture.live(found))
    if found.rows:
        picture.draw(found)
        cell.draw(found)
    with limit:
        size, error = budget.asked(found)
    budget.draw(found, size, error)
