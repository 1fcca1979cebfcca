"""The budget: which scheme each group of weights takes within a size, and the error against the size."""

from typing import Any

import pandas as pd
import streamlit as st

from pages.models.sensitivity import controls
from pages.models.sensitivity.controls import Budget
from pages.models.sensitivity.run import SharedTable
from pages.shared import charts, messages, tables
from pages.shared.charts import theme
from pages.shared.computing import cache
from quantcore.errors import QuantError
from quantcore.figures import short_scheme, size_curve
from quantcore.layerwise import ERRORS, Plan, check_size, groups_of, minimum_of, plan, trade_off
from quantcore.wording import printable


def asked(found: SharedTable) -> Budget:
    """Draw the budget and return it; say, from headers alone, if nothing fits."""
    elements = sum(row.elements for row in found.outlined.ordered)
    own = controls.budget(elements, found.imatrix is not None)
    try:
        check_size(found.outlined, own.size, minimum_of(own.minimum))
    except QuantError as reason:
        messages.error(str(reason))
    return own


def best(found: SharedTable, own: Budget) -> Plan | None:
    """Return the choice within the budget if something fits, once everything is measured."""
    if not found.table.is_finished:
        return None
    make = lambda: plan(found.table, own.size, own.error, minimum=minimum_of(own.minimum))  # noqa: E731
    try:
        return cache.cached_small(cache.CacheKey(found.key), f"plan {own}", make)
    except QuantError:  # nothing fits, as `asked` says, or the table has no such error, as `draw` says
        return None


def draw(found: SharedTable, chosen: Plan | None, own: Budget) -> None:
    """Draw the choice within the budget and the curve, once everything is measured."""
    if not found.table.is_finished:
        st.caption("The choice needs the exact errors of all weights.")
        return
    error, minimum = own.error, own.minimum if chosen else ""
    make = lambda: trade_off(found.table, error, minimum_of(minimum))  # noqa: E731
    try:
        curve = cache.cached_small(cache.CacheKey(found.key), f"curve {error} {minimum}", make)
    except QuantError as reason:
        messages.error(str(reason))
        return
    if chosen is not None:
        st.markdown(messages.plain(f"{chosen.said}; the error is {ERRORS[error]}."))
    left, right = st.columns([3, 2])
    with left:
        ring = None if chosen is None else (chosen.num_bytes, chosen.error)
        figure = size_curve(curve.best, curve.uniform, ring, label=ERRORS[error], theme=theme())
        charts.draw(figure, theme=None, key="sn_curve")
        st.caption("One scheme for all: weights that it does not fit, or that must have more bits, stay as they are stored.")
    if chosen is not None:
        with right:
            _table(found, chosen)


def _table(found: SharedTable, chosen: Plan) -> None:
    frame = pd.DataFrame(
        {"Group": printable(name, 200), "Scheme": short_scheme(chosen.schemes[rows[0].name]), "Weights": len(rows), "Elements": sum(row.elements for row in rows)}
        for name, rows in groups_of(found.table).items()
    )
    config: dict[str, Any] = {name: st.column_config.NumberColumn(format="localized") for name in ("Weights", "Elements")}
    st.dataframe(frame, hide_index=True, height=360, column_config=config | {"Group": st.column_config.TextColumn(width="medium")})
    each = pd.DataFrame(list(chosen.schemes.items()), columns=["tensor", "scheme"])
    tables.downloads(each, each, "schemes")
