"""A sweep as it runs, and what it found: picture, table, error maps."""

from functools import partial

import pandas as pd
import streamlit as st

import quantcore as qc
from pages.shared import compute, scheme_state
from pages.shared.current import Tensor
from pages.shared.maps_view import theme
from quantcore import figures

OPEN = "_sweep_open"
AT_ONCE = 40_000_000  # elements times schemes that are computed without being asked: about 2 s
COLUMNS = ["scheme", "bits_per_element", "sqnr_db", "mse", "mae", "max_abs_error", "clipped_share", "seconds", "refused"]  # fmt: skip


def rows(tensor: Tensor, schemes: list[qc.Scheme]) -> list[qc.Row]:
    """Return what is known of the sweep, after computing it if that is quick or was asked for."""
    key = f"{tensor.key} {hash(tuple(map(str, schemes)))}"
    kept: dict[str, list[qc.Row]] = st.session_state.setdefault("_sweeps", {})
    while len(kept) > 4:
        kept.pop(next(iter(kept)))
    found = kept.setdefault(key, [])
    missing = len(schemes) - len(found)
    if not missing:
        return found
    quick = compute.size(tensor) * missing <= AT_ONCE
    place = st.empty()
    wanted = place.button(f"Compute {missing:,} schemes", type="primary", key="sw_go") or quick
    if wanted:
        _run(tensor, schemes, found, place)
    return found


def _run(
    tensor: Tensor, schemes: list[qc.Scheme], found: list[qc.Row], place: st.delta_generator.DeltaGenerator
) -> None:
    """Compute what is missing; a press of Stop reruns the page, which closes the iterator."""
    done = {row.scheme for row in found}
    missing = [s for s in schemes if s not in done]
    with place.container(horizontal=True, vertical_alignment="center"):
        progress = st.progress(0.0, "Computing…")
        st.button("Stop", key="sw_stop")
    computing = qc.sweep_rows(compute.values(tensor), missing)
    try:
        for count, row in enumerate(computing, 1):
            found.append(row)
            progress.progress(count / len(missing), f"{count:,} of {len(missing):,}: {row.scheme}")
    finally:
        computing.close()
    place.empty()


def table(found: list[qc.Row]) -> pd.DataFrame:
    """The rows in the order of the list of schemes."""
    return pd.DataFrame([row.as_dict() for row in sorted(found, key=lambda row: str(row.scheme))])


def picture(frame: pd.DataFrame, metric: str) -> str | None:
    """Draw the Pareto picture; return the scheme whose point was clicked."""
    event = st.plotly_chart(
        figures.pareto(frame, metric, theme=theme()),
        theme=None,
        key="sw_chart",
        on_select="rerun",
        selection_mode="points",
    )
    points = [p for p in event["selection"]["points"] if "customdata" in p]
    return str(frame["scheme"].iloc[int(points[0]["customdata"][0])]) if points else None


def open_in_explore(text: str) -> None:
    """Put a scheme into the controls and open Explore with the next run (a callback)."""
    try:
        scheme_state.apply_scheme(qc.Scheme.parse(text))
        st.session_state[OPEN] = True
    except qc.QuantError as error:
        st.session_state[scheme_state.TEXT_ERROR] = str(error)


def rows_table(frame: pd.DataFrame) -> list[str]:
    """Draw the table; return the schemes whose rows are chosen."""
    shown = frame[COLUMNS].sort_values("sqnr_db", ascending=False, ignore_index=True)
    number = partial(st.column_config.NumberColumn, format="%.4g")
    event = st.dataframe(
        shown,
        hide_index=True,
        height=360,
        key="sw_table",
        on_select="rerun",
        selection_mode="multi-row",
        column_config={name: number(name.replace("_", " ")) for name in COLUMNS[1:-1]}
        | {"scheme": st.column_config.TextColumn(width="large"), "clipped_share": number("clipped")},
    )
    left, right, _ = st.columns([1, 1, 4])
    left.download_button("CSV", shown.to_csv(index=False), "sweep.csv", "text/csv", width="stretch")
    right.download_button("Markdown", markdown(shown), "sweep.md", "text/markdown", width="stretch")
    return [str(shown["scheme"][i]) for i in event["selection"]["rows"]]


def markdown(frame: pd.DataFrame) -> str:
    """The table as Markdown."""
    lines = [list(frame.columns), ["---"] * len(frame.columns)]
    lines += [
        [f"{v:.5g}" if isinstance(v, float) else str(v).replace("|", "\\|") for v in row]
        for row in frame.itertuples(index=False)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def maps(tensor: Tensor, texts: list[str]) -> None:
    """Draw the error maps of the chosen schemes."""
    results = [compute.result(tensor, qc.Scheme.parse(text)) for text in texts[:6]]
    key = f"error maps {texts[:6]} {theme()}"
    make = partial(figures.error_maps, results, theme=theme())
    st.plotly_chart(compute.kept(tensor, key, make), theme=None, key="sw_maps")
