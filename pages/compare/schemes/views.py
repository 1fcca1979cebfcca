"""The results of a sweep: Pareto plot, table, error maps."""

from functools import partial

import pandas as pd
import streamlit as st

import quantcore as qc
from pages.compare.schemes import controls
from pages.shared import charts, messages, tables
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.state import leaving
from pages.shared.state.selection import PageTensor
from pages.sidebar import scheme_state
from quantcore import figures
from quantcore.figures import AXES

PROBLEM = "_sweep_problem"
CHART, TABLE = "sw_chart", "sw_table"
NAME = "Error of every scheme against its bits per element"  # of the chart
MAPS = 6
COLUMNS = [
    "name",
    "bits_per_element",
    "sqnr_db",
    "mse",
    "mae",
    "max_abs_error",
    "cosine",
    "clipped_fraction",
    "seconds",
    "refused",
    "scheme",
]


def picture(
    frame: pd.DataFrame, metric: str, own: qc.Scheme | None, live: bool = False, limit: float | None = None
) -> None:
    """Draw the Pareto plot; a click opens the point's scheme in Explore.

    Args:
        live: the sweep is still running; clicks do nothing.
        limit: bits per element to mark.
    """
    drawn = figures.pareto(frame, metric, own="" if own is None else str(own), theme=theme(), limit=limit)
    if live:
        charts.draw(drawn, NAME)
        return
    charts.clickable(drawn, NAME, CHART, tuple(frame["scheme"]), use)


def use(text: str) -> None:
    """Put a scheme into the controls and open Explore in this run (a callback)."""
    try:
        scheme_state.apply_scheme(qc.Scheme.parse(text))
        leaving.to("explore/explore/page.py")
        leaving.remember(
            "schemes", {key: st.session_state.get(key, default) for key, default in controls.DEFAULTS.items()}
        )
    except qc.QuantError as error:
        st.session_state[PROBLEM] = f"{text} can't be opened in Explore: {error}"


def limited(frame: pd.DataFrame, metric: str) -> float:
    """Draw the limit on bits per element and the best scheme by ``metric`` within it; return the limit."""
    left, middle, right = st.columns([2, 4, 1.5], vertical_alignment="center")
    limit = left.slider(
        "Bits per element, at most",
        1.0,
        16.0,
        controls.DEFAULTS["sw_limit"],
        0.25,
        key="sw_limit",
        bind="query-params",
        help="Including scales and zero points.",
    )
    known = frame[(frame["refused"] == "") & (frame["bits_per_element"] <= limit) & frame[metric].notna()]
    if not len(known):
        middle.markdown(f"No scheme to compare at {limit:g} or fewer bits per element.")
        return float(limit)
    # ties go to fewer bits
    best = known.sort_values([metric, "bits_per_element"], ascending=[AXES[metric][1] < 0, True]).iloc[0]
    label, value = AXES[metric][0], best[metric]
    written = f"SQNR {value:.2f} dB" if metric == "sqnr_db" else f"{label} {value:.4g}"
    middle.markdown(
        f"Best within this limit: **{messages.plain(best['name'])}**, {written}, "
        f"{best['bits_per_element']:.4g} bits per element"
    )
    use_it = partial(use, best["scheme"])
    right.button("Open in Explore", key="_sw_use", on_click=use_it, help="Opens this scheme")
    return float(limit)


def filtered(frame: pd.DataFrame, metric: str, words: str, best: bool) -> pd.DataFrame:
    """Return the rows with all words, best first, unsupported last; if ``best``, only the frontier."""
    if best:
        known = frame[frame["refused"] == ""]
        frame = known.iloc[qc.frontier(known["bits_per_element"], AXES[metric][1] * known[metric])]
    frame = tables.containing(frame, ["name", "scheme", "refused"], words)
    return frame.sort_values(metric, ascending=AXES[metric][1] < 0, ignore_index=True)


def rows_table(frame: pd.DataFrame) -> None:
    """Draw the table and the buttons that download it with every metric; selected rows get error maps."""
    shown, sqnr = tables.sqnr_column(frame[COLUMNS], "sqnr_db", tables.label("sqnr_db"))
    st.dataframe(
        shown,
        hide_index=True,
        placeholder="–",
        key=TABLE,
        on_select=partial(_choose, tuple(frame["name"])),
        selection_mode="multi-row",
        column_config=tables.columns(frame[COLUMNS])
        | {
            "name": st.column_config.TextColumn(tables.label("name"), width="large"),
            "sqnr_db": sqnr,
        },
    )
    columns = [*COLUMNS[:-2], *(c for c in frame if c not in COLUMNS), *COLUMNS[-2:]]
    tables.downloads(frame[columns], frame[COLUMNS], "sweep")


def _choose(names: tuple[str, ...]) -> None:
    """Show the selected rows as error maps (a callback)."""
    rows = st.session_state[TABLE]["selection"]["rows"]
    st.session_state["sw_maps"] = [names[row] for row in rows if row < len(names)][:MAPS]


def maps(tensor: PageTensor, frame: pd.DataFrame) -> None:
    """Draw the choice of schemes, and their error maps on one color scale."""
    known = frame[frame["refused"] == ""]
    # schemes that a link names may not be computed yet, and must not be lost
    kept = [*st.session_state.get("sw_maps", []), *st.query_params.get_all("sw_maps")]
    options = list(dict.fromkeys([*known["name"], *kept]))
    names = st.multiselect(
        f"Error maps of up to {MAPS} schemes",
        options,
        key="sw_maps",
        bind="query-params",
        max_selections=MAPS,
        placeholder="Choose here, or select rows of the table above",
    )
    texts = {row.name: row.scheme for row in known[["name", "scheme"]].itertuples(index=False)}
    chosen = {name: texts[name] for name in names if name in texts}
    if len(chosen) < len(names):
        unknown = ", ".join(name for name in names if name not in chosen)
        st.caption(messages.plain(f"Not among the computed schemes: {unknown}."))
    if not chosen:
        return
    with st.container(horizontal=True):
        for place, (name, text) in enumerate(chosen.items()):
            label = f"Open {name}" if len(name) < 50 else f"Open {name[:49]}…"
            hint = f"Open {text} in Explore"
            st.button(label, key=f"_sw_open_{place}", on_click=use, args=(text,), help=hint)
    results = {name: cache.result(tensor, qc.Scheme.parse(text)) for name, text in chosen.items()}
    make = partial(figures.error_maps, results, theme=theme())
    figure = cache.cached(tensor, f"error maps {list(results)} {theme()}", make)
    charts.draw(figure, "Errors of the chosen schemes", key="sw_error_maps")
