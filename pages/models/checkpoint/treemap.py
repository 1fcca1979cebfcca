"""The treemap as a component: st.plotly_chart does not report clicks on tiles."""

import json
from collections.abc import Callable
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st

from pages.browser import scripts
from pages.maps.component import base
from pages.shared import charts
from pages.shared.large import is_large

_HERE = Path(__file__).parent
_FAILED = "_treemap_failed"
_COMPONENT = st.components.v2.component(
    "quantscope_treemap",
    html='<div class="qs-treemap" role="img"></div>',
    css=(_HERE / "treemap.css").read_text(encoding="utf-8"),
    js="\n".join((scripts.LOAD_PLOTLY, (_HERE / "treemap.js").read_text(encoding="utf-8"))),
    isolate_styles=False,
)


def draw(figure: str, picks: list[bool], identity: str, alt: str, on_pick: Callable[[int], None]) -> None:
    """Draw a treemap.

    Args:
        figure: as JSON.
        picks: for each tile, whether a click calls ``on_pick``; otherwise it zooms in.
        identity: changes with the figure.
        alt: the text alternative.
        on_pick: called with the position of the clicked tile.
    """
    if st.session_state.get(_FAILED):
        charts.draw(go.Figure(json.loads(figure)), theme=None, key="ck_treemap_chart")
        return

    def picked() -> None:
        tile = st.session_state["ck_treemap"].picked
        if tile is not None:
            on_pick(int(tile))

    _COMPONENT(
        key="ck_treemap",
        data={
            "figure": charts.sized_data(figure),
            "picks": picks,
            "key": f"{identity} {is_large()}",
            "alt": alt,
            "base": base(),
        },
        on_picked_change=picked,
        on_failed_change=lambda: st.session_state.update({_FAILED: True}),
    )
