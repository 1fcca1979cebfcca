"""The tabs below the maps; a closed tab computes nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

import quantcore as qc
from pages.explore.quantize import code_and_export
from pages.explore.quantize.code_and_export import MAPS
from pages.maps import arithmetic
from pages.maps.arithmetic import ElementArithmetic
from pages.maps.four_maps import ARITHMETIC
from pages.shared import charts, tables
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.state import choice
from pages.shared.state.selection import PageTensor
from quantcore import figures
from quantcore.analysis import View

LABELS = [ARITHMETIC, "Distribution", "Scales", "Numbers", "Code", "Export"]
KEYS = {"tab", "log", "one_block", "table"}
TABLE_ROWS = 2000


def draw(tensor: PageTensor, result: qc.Quantized, view: View | None, shown: ElementArithmetic) -> None:
    """Draw the tabs and the content of the open tab."""
    draws: list[Callable[[], None]] = [
        partial(arithmetic.draw, shown),
        partial(_distribution, tensor, result, shown.trace.block),
        partial(_scales, tensor, result),
        partial(_numbers, tensor, result, view),
        partial(code_and_export.code, tensor, result),
        partial(code_and_export.downloads, tensor, result, view),
    ]
    for tab, content in zip(st.tabs(LABELS, key="tab", bind="query-params"), draws, strict=True):
        if tab.open:
            with tab:
                content()


def _distribution(tensor: PageTensor, result: qc.Quantized, block: tuple[int, ...]) -> None:
    left, right = st.columns([1, 3])
    log = left.toggle(
        "Log counts",
        key="log",
        bind="query-params",
        help="Logarithmic counts, so that rare values stay visible",
    )
    one = right.toggle(
        "Only the chosen element's block",
        key="one_block",
        bind="query-params",
        help="If off, all of x is drawn faintly behind the elements that share the chosen element's scale",
    )
    what = f"distribution {result.scheme} {block} {one} {log} {theme()}"
    whole = cache.cached(tensor, "histogram", lambda: figures.histogram(result.x))
    make = partial(figures.distribution, result, block, alone=one, log=log, theme=theme(), whole=whole)
    charts.draw(cache.cached(tensor, what, make), theme=None, key="distribution_chart")


def _scales(tensor: PageTensor, result: qc.Quantized) -> None:
    if result.scale.numel() > 1:  # of one scale, a chart says nothing that the table does not
        make = partial(figures.scales, result, theme=theme())
        charts.draw(cache.cached(tensor, f"scales {result.scheme} {theme()}", make), theme=None, key="scales_chart")
    table = cache.cached(tensor, f"scale table {result.scheme}", partial(scale_table, result))
    st.dataframe(table, hide_index=True, column_config=tables.columns(table, 6))
    if result.scale.numel() > TABLE_ROWS:
        st.caption(
            f"The first {TABLE_ROWS:,} of {result.scale.numel():,} blocks; the .npz file under Export has all of them."
        )


def scale_table(result: qc.Quantized) -> pd.DataFrame:
    """Return one row per block in row-major order: position, parameters, range and error."""
    grid = tuple(result.scale.shape)
    places = np.stack(
        np.unravel_index(np.arange(min(result.scale.numel(), TABLE_ROWS)), grid or (1,)), axis=1
    )
    numbers: dict[str, Any] = {
        "scale": result.scale,
        "zero_point": result.params.zero_point,
        **qc.encoding(result),
        "low": result.params.low,
        "high": result.params.high,
        "mse": qc.block_errors(result),
    }
    table = {"block": [str(tuple(int(i) for i in place[: len(grid)])) for place in places]}
    for name, values in numbers.items():
        if values is not None:
            table[name] = values.reshape(-1)[:TABLE_ROWS].cpu().numpy()
    return pd.DataFrame(table)


def _numbers(tensor: PageTensor, result: qc.Quantized, view: View | None) -> None:
    if view is None:
        return
    data = cache.drawn(tensor, result.scheme, view)
    names = {name: name for name in MAPS}
    chosen = choice.segmented("Map", "table", names, default="codes", label_visibility="collapsed")
    frame = _frame(data, MAPS[chosen])
    st.dataframe(frame, column_config=tables.numbers(frame))
    if data.step != (1, 1):
        st.caption(data.legend)


def _frame(data: Any, name: str) -> pd.DataFrame:
    values = data.map(name)
    rows = [data.rows[0] + i * data.step[0] for i in range(values.shape[0])]
    columns = [str(data.columns[0] + i * data.step[1]) for i in range(values.shape[1])]
    return pd.DataFrame(values, index=rows, columns=columns)
