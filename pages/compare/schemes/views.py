"""The results of a sweep: Pareto plot, table, error maps."""

import math
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

import quantcore as qc
from pages.compare.schemes import controls
from pages.compare.schemes.run import Swept
from pages.shared import charts, messages, tables
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.state import leaving
from pages.shared.state.selection import PageTensor
from pages.sidebar import scheme_state
from quantcore import figures, snippets
from quantcore.figures import AXES

PROBLEM = "_sweep_problem"
CHART, TABLE = "sw_chart", "sw_table"
NAME = "Error of every scheme against its bits per element"  # of the chart
MAPS = 6
LEAST_DB = 0.05  # a smaller difference is not told
COLUMNS = [
    "name",
    "bits_per_element",
    controls.OUTPUT,  # if there are activations
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
        said = f"No scheme here takes {limit:g} or fewer bits per element"
        least = frame[(frame["refused"] == "") & frame[metric].notna()]["bits_per_element"].min()
        enough = "" if math.isnan(least) else f"; the smallest takes {least:.4g}"
        middle.markdown(f"{said}{enough}.")
        return float(limit)
    best = best_of(known, metric)
    sentence = (
        f"Best within this limit: **{messages.plain(best['name'])}**, {written(best, metric)}, "
        f"{best['bits_per_element']:.4g} bits per element"
    )
    middle.markdown(sentence + messages.plain(by_weights(known, metric)))
    use_it = partial(use, best["scheme"])
    right.button("Open in Explore", key="_sw_use", on_click=use_it, help="Opens this scheme")
    return float(limit)


def best_of(known: pd.DataFrame, metric: str) -> "pd.Series[Any]":
    """Return the best row by a metric; ties go to fewer bits."""
    return known.sort_values([metric, "bits_per_element"], ascending=[AXES[metric][1] < 0, True]).iloc[0]


def written(row: "pd.Series[Any]", metric: str) -> str:
    """Write a metric of a row with its name."""
    label = AXES[metric][0].removesuffix(" (dB)")
    if metric == controls.OUTPUT:
        label = "output SQNR"
    return f"{label} {row[metric]:.2f} dB" if AXES[metric][1] > 0 else f"{label} {row[metric]:.4g}"


def by_weights(known: pd.DataFrame, metric: str) -> str:
    """Say what the error of w alone would choose, if that is worse for the output; else an empty text."""
    if metric != controls.OUTPUT or known["sqnr_db"].isna().all():
        return ""
    best, other = best_of(known, metric), best_of(known[known["sqnr_db"].notna()], "sqnr_db")
    lost = best[metric] - other[metric]
    if not lost >= LEAST_DB:
        return ""
    return f". By the SQNR of w alone: {other['name']}, whose output has {lost:.2f} dB less."


def filtered(frame: pd.DataFrame, metric: str, words: str, best: bool) -> pd.DataFrame:
    """Return the rows with all words, best first, unsupported last; if ``best``, only the frontier."""
    if best:
        frame = frontier_of(frame, metric)
    frame = tables.containing(frame, ["name", "scheme", "refused"], words)
    return frame.sort_values(metric, ascending=AXES[metric][1] < 0, ignore_index=True)


def frontier_of(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the rows of the Pareto frontier, by rising bits."""
    known = frame[frame["refused"] == ""]
    return known.iloc[qc.frontier(known["bits_per_element"], AXES[metric][1] * known[metric])]


def rows_table(frame: pd.DataFrame) -> None:
    """Draw the table and the buttons that download it with every metric; selected rows get error maps."""
    present = [name for name in COLUMNS if name in frame]
    shown, config = frame[present], tables.columns(frame[present])
    config["name"] = st.column_config.TextColumn(tables.label("name"), width="large")
    for name in {"sqnr_db", controls.OUTPUT} & set(present):
        shown, config[name] = tables.sqnr_column(shown, name, tables.label(name))
    st.dataframe(
        shown,
        hide_index=True,
        placeholder="–",
        key=TABLE,
        on_select=partial(_choose, tuple(frame["name"])),
        selection_mode="multi-row",
        column_config=config,
    )
    columns = [*present[:-2], *(c for c in frame if c not in present), *present[-2:]]
    tables.downloads(frame[columns], frame[present], "sweep")


def caption(swept: Swept) -> str:
    """Say what a click on the chart does, and which output was measured."""
    opens = "Click a point to open its scheme in Explore."
    if swept.given is None:
        return opens
    return messages.plain(f"{opens} Output x·wᵀ: w quantized, x ({swept.given.words}) kept in float.")


def code(swept: Swept, frame: pd.DataFrame, metric: str) -> None:
    """Draw the script that computes the schemes of the Pareto frontier."""
    tensor, given = swept.tensor, swept.given
    file = "quantscope.npz", "the Export tab of Explore"
    recipe = tensor.recipe or snippets.binding("x", cache.values(tensor), *file)
    best = frontier_of(frame, metric).drop_duplicates("scheme")
    expected = dict(zip(best["scheme"], best[metric].astype(float), strict=True))
    with st.expander("Code"):
        script = snippets.sweep_script(recipe, metric, expected, "" if given is None else given.code)
        st.code(script, language="python", height=320)
        st.caption("The script computes the schemes of the Pareto frontier, and checks their errors.")


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
