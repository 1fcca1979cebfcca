"""The four maps as one component, which handles zoom, hover and outlines in the browser.

Plotly.js comes from the installed plotly wheel by a route of app.py. Without that route
(`streamlit run pages/main.py`), st.plotly_chart draws the same figure.
"""

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from pages.browser import scripts, streamlit_dom
from pages.maps import arithmetic
from pages.maps.picture import Picture, cells, marks
from pages.shared import charts
from pages.shared.large import is_large
from quantcore import figures
from quantcore.analysis import MapData

_HERE = Path(__file__).parent
_DRAWING = sorted((_HERE / "drawing").glob("*.js"))  # the order does not matter: together they are one module
_FAILED = "_maps_failed"


def base() -> str:
    """Return where our routes are, such as that of plotly.js, if not next to Streamlit's own files."""
    return f"/{st.get_option('server.baseUrlPath').strip('/')}/".replace("//", "/")


_COMPONENT = st.components.v2.component(
    "quantscope_maps",
    html='<div class="qs-maps qs-empty" tabindex="0" role="application"><canvas aria-hidden="true"></canvas><div class="qs-plot" aria-hidden="true"></div>\n'
    '<div class="qs-tip" hidden></div><div class="qs-live" aria-live="polite"></div><section class="qs-steps" hidden>'
    '<button type="button" aria-label="Close">×</button><b></b><pre></pre><small></small></section></div>',
    css=(_HERE / "maps.css").read_text(encoding="utf-8"),
    js="\n".join([scripts.LOAD_PLOTLY, *map(streamlit_dom.read, _DRAWING)]),
    isolate_styles=False,
)


def four_maps(
    picture: Picture,
    *,
    key: str,
    on_pick: Callable[[int, int], None],
    on_region: Callable[[tuple[int, int], tuple[int, int]], None],
) -> None:
    """Draw the maps.

    Args:
        on_pick: called with row and column in the plane when a cell is clicked.
        on_region: called with rows and columns when a box is dragged on an overview.
    """
    if st.session_state.get(_FAILED):
        p = picture
        figure = figures.drawn_maps(
            p.data,
            p.format,
            p.shape,
            p.view,
            numbers=p.numbers,
            borders=p.borders,
            columns=2,
            theme=p.theme,
            grey=p.grey,
        )
        charts.draw(figure, theme=None, key=f"{key}_chart")
        return

    def picked() -> None:
        if st.session_state[key].picked:
            on_pick(*(int(i) for i in st.session_state[key].picked))

    def region() -> None:
        chosen = st.session_state[key].region
        if chosen:
            on_region(tuple(chosen["rows"]), tuple(chosen["columns"]))

    _COMPONENT(
        key=key,
        data={
            "base": base(),
            "large": is_large(),
            **cells(picture),
            **marks(picture),
            "pointed": picture.pointed and f"{arithmetic.PATH}/{picture.pointed}",
        },
        on_picked_change=picked,
        on_region_change=region,
        on_failed_change=lambda: st.session_state.update({_FAILED: True}),
    )


def legend(data: MapData, grey: bool = False) -> str:
    """Say what a cell stands for and what its color can't show; nothing if one element in its own color.

    Args:
        grey: as in `Picture`.
    """
    overview = f"{data.legend} Drag a box to see that part element by element." if data.legend else ""
    return f"{overview} {figures.beyond_colors(data, grey=grey)}".strip()
