"""The four maps as one component, which handles zoom, hover and outlines in the browser.

What draws them, and plotly.js from the installed plotly wheel, come by routes of app.py. Without these routes
(`streamlit run pages/main.py`), st.plotly_chart draws the same figure.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import streamlit as st

from pages.browser import scripts
from pages.maps import arithmetic, drawing_script
from pages.maps.picture import Picture, as_json, cells, marks, number
from pages.shared import charts
from pages.shared.large import is_large
from quantcore import figures
from quantcore.analysis import View, element

_HERE = Path(__file__).parent
_FAILED = "_maps_failed"
OnKept = Mapping[str, Callable[[str], None]]


def base() -> str:
    """Return where our routes are, such as that of plotly.js, if not next to Streamlit's own files."""
    return f"/{st.get_option('server.baseUrlPath').strip('/')}/".replace("//", "/")


_COMPONENT = st.components.v2.component(
    "quantscope_maps",
    html='<div class="qs-maps qs-empty" tabindex="0" role="application"><canvas aria-hidden="true"></canvas>'
    '<div class="qs-plot" aria-hidden="true"></div>\n'
    '<div class="qs-tip" hidden></div><div class="qs-live" aria-live="polite"></div>'
    '<section class="qs-steps" hidden>'
    '<button type="button" aria-label="Close">×</button><b></b><pre></pre><small></small></section></div>',
    css=(_HERE / "maps.css").read_text(encoding="utf-8"),
    js=scripts.LOAD_PLOTLY + drawing_script.LOADER,
    isolate_styles=False,
)


def content(picture: Picture, *, large: bool) -> dict[str, Any]:
    """Return what the component is sent for a picture; ``large``: whether the page's text is enlarged."""
    sent = {
        "base": base(),
        "large": large,
        **cells(picture),
        **marks(picture),
        "pointed": picture.pointed and f"{arithmetic.PATH}/{picture.pointed}",
    }
    return sent | {"number": number(sent)}


def four_maps(
    picture: Picture,
    *,
    key: str,
    on_pick: Callable[[tuple[int, ...]], None],
    on_region: Callable[[tuple[int, int], tuple[int, int]], None] | None = None,
    on_kept: OnKept = MappingProxyType({}),
    live: dict[str, Any] | None = None,
    among: list[str] | None = None,
) -> None:
    """Draw the maps, and below them what a cell stands for and what its color can't show, if need be.

    Args:
        live: from `pages.maps.live`, if the maps follow controls of the sidebar before the page runs.
        among: if the page has several such components, where to add the number of this one, for `announce`.
        on_pick: called with the index of an element when its cell is clicked.
        on_kept: what to call with what a drag or the bits that are played leave of a control, by its key.
        on_region: called with rows and columns when a box is dragged on an overview, if that does anything.
    """
    data = picture.data
    if st.session_state.get(_FAILED):
        figure = figures.drawn_maps(
            data,
            picture.format,
            picture.shape,
            picture.view,
            numbers=picture.numbers,
            borders=picture.borders,
            columns=2,
            theme=picture.theme,
            grey=picture.grey,
        )
        charts.draw(figure, "Maps of the tensor", key=f"{key}_chart")
    else:
        sent = content(picture, large=is_large()) | {"live": live}
        _COMPONENT(
            key=key,
            # in a list: Streamlit asks of each value of a dict whether it is a data frame, and imports pandas
            data=[as_json(sent)],
            # for as long as the session is kept, Streamlit holds what a callback holds: never a tensor
            on_picked_change=partial(_picked, key, picture.view, picture.shape, on_pick),
            on_region_change=partial(_dragged, key, on_region),
            on_moved_change=partial(_moved, key, on_kept),
            on_failed_change=lambda: st.session_state.update({_FAILED: True}),
        )
        if among is None:
            announce([sent["number"]])
        else:
            among.append(sent["number"])
    legend = data.legend
    if on_region is not None:
        overview = f"{legend} Drag a box to see that part element by element." if legend else ""
        legend = f"{overview} {figures.beyond_colors(data, grey=picture.grey)}".strip()
    if legend:
        st.caption(legend)


def announce(numbers: list[str]) -> None:
    """Draw an unseen element with the numbers of all maps, at once: the maps follow when they are painted."""
    with st.container(key="qs_number"):
        st.html("".join(f'<i data-maps="{number}"></i>' for number in numbers))


def _picked(key: str, view: View, shape: tuple[int, ...], on_pick: Callable[[tuple[int, ...]], None]) -> None:
    if st.session_state[key].picked:
        on_pick(element(view, shape, *map(int, st.session_state[key].picked[:2])))


def _moved(key: str, on_kept: OnKept) -> None:
    """Set controls to what the visitor has kept of a picture that was ahead of them."""
    moved = st.session_state[key].moved or {}
    for name in moved.keys() & on_kept.keys():
        on_kept[name](str(moved[name]))


def _dragged(key: str, on_region: Callable[[tuple[int, int], tuple[int, int]], None] | None) -> None:
    chosen = st.session_state[key].region
    if chosen and on_region is not None:
        on_region(tuple(chosen["rows"]), tuple(chosen["columns"]))
