"""The budget: which scheme each group of weights takes within a size, and the error against the size."""

from typing import Any

import pandas as pd
import streamlit as st

from pages.models.sensitivity import controls
from pages.models.sensitivity.controls import Budget
from pages.models.sensitivity.run import SharedTable
from pages.shared import charts, messages, tables
from pages.shared.computing import cache
from pages.shared.theme import theme
from quantcore.errors import QuantError
from quantcore.figures import short_scheme
from quantcore.figures.checkpoints import size_curve
from quantcore.layerwise import Plan, TradeOff, check_size, group_of, minimum_of, plan, trade_off
from quantcore.wording import megabytes, printable


def asked(found: SharedTable) -> tuple[Budget, bool]:
    """Draw the budget and check its floor, from headers alone; return it, and whether something fits."""
    elements = sum(row.elements for row in found.outlined.ordered)
    own = controls.budget(elements, found.imatrix is not None)
    try:
        check_size(found.outlined, own.size, minimum_of(own.minimum))
    except QuantError as reason:
        messages.error(str(reason))
        return own, False
    return own, True


def best(found: SharedTable, own: Budget) -> Plan | None:
    """The choice within the budget, in which something fits, once everything is measured."""
    if not found.table.is_finished:
        return None
    make = lambda: plan(found.table, own.size, own.error, minimum=minimum_of(own.minimum))  # noqa: E731
    try:
        return cache.cached_small(cache.CacheKey(found.key), f"plan {own}", make)
    except QuantError:  # the table has no such error, as `draw` says
        return None


def draw(found: SharedTable, chosen: Plan | None, own: Budget) -> None:
    """Draw the choice within the budget and the curve, once everything is measured."""
    if not found.table.is_finished:
        st.caption("The choice needs the exact errors of all weights.")
        return
    size, error = own.size, own.error
    make = lambda: trade_off(found.table, error, minimum_of(own.minimum) if chosen else {})  # noqa: E731
    try:
        curve = cache.cached_small(cache.CacheKey(found.key), f"curve {error} {own.minimum if chosen else ''}", make)
    except QuantError as reason:
        messages.error(str(reason))
        return
    if chosen is not None:
        _sentence(chosen, size, error)
    left, right = st.columns([3, 2])
    with left:
        _curve(curve, chosen, error)
    if chosen is not None:
        with right:
            _table(found, chosen)


def _sentence(chosen: Plan, size: float, error: str) -> None:
    st.markdown(
        messages.plain(
            f"{chosen.bits_per_weight:.4g} bits per weight, {megabytes(int(chosen.num_bytes))} of {megabytes(int(size))}: summed error "
            f"{chosen.error:.4g} ({controls.MEANT[error]}), {chosen.optimality}."
        )
    )


def _curve(curve: TradeOff, chosen: Plan | None, error: str) -> None:
    ring = None if chosen is None else (chosen.num_bytes, chosen.error)
    figure = size_curve(curve.best, curve.uniform, ring, label=controls.MEANT[error], theme=theme())
    charts.draw(figure, theme=None, key="sn_curve")
    st.caption("One scheme for all: weights that it does not fit, or that must have more bits, stay as they are stored.")


def _table(found: SharedTable, chosen: Plan) -> None:
    groups: dict[str, tuple[str, int, int]] = {}
    for row in found.table.ordered:
        if row.cells:
            _, weights, elements = groups.get(group_of(row.name), ("", 0, 0))
            groups[group_of(row.name)] = chosen.schemes[row.name], weights + 1, elements + row.elements
    frame = pd.DataFrame([(printable(name, 200), short_scheme(scheme), *own) for name, (scheme, *own) in groups.items()], columns=["Group", "Scheme", "Weights", "Elements"])
    config: dict[str, Any] = {name: st.column_config.NumberColumn(format="localized") for name in ("Weights", "Elements")}
    st.dataframe(frame, hide_index=True, height=360, column_config=config | {"Group": st.column_config.TextColumn(width="medium")})
    each = pd.DataFrame(list(chosen.schemes.items()), columns=["tensor", "scheme"])
    tables.downloads(each, each, "schemes")
