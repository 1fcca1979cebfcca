"""The methods side by side, and the picture of what each does."""

import math
from collections.abc import Sequence

import streamlit as st

import quantcore as qc
from pages.outputs.methods import controls, run, words
from pages.outputs.methods.controls import BroughtSource
from pages.outputs.methods.run import PageLayer, Record
from pages.shared import charts, messages
from pages.shared.charts import theme
from quantcore import figures, outputs
from quantcore.outputs import MethodOptions, MethodOutput

_CHARTS = "Largest magnitude of every input channel before and after"


def known(found: Record, options: MethodOptions) -> list[MethodOutput]:
    """Return the outputs of the methods that have run with these options, the least error first."""
    keys = [(method, options.of(method)) for method in outputs.METHODS]
    return outputs.ranked([found[key].output for key in keys if key in found])


def side_by_side(found: Sequence[MethodOutput], layer: PageLayer, key: str | None = None) -> None:
    """Draw the bars of all methods, and what some can't do; without a key while they run."""
    if any(math.isfinite(output.sqnr_db) for output in found):
        drawn = figures.methods(found, theme=theme())
        charts.draw(drawn, "SQNR of the layer's output with each method", key=key)
    reasons = {output.refused for output in found if output.equal_bits}
    if len(reasons) == 1 and "" not in reasons:  # the scheme itself does not fit
        messages.error(reasons.pop())
        return
    if isinstance(layer.source, BroughtSource):
        st.caption(words.tokens_of(layer.source))
    for sentence in words.notes(found, layer.scheme, layer.activation_scheme):
        st.caption(messages.plain(sentence))


def steps(method: str, found: Record, options: MethodOptions, layer: PageLayer) -> None:
    """Draw the picture of a method's steps."""
    if method == controls.KV_CACHE:
        _cache(layer)
        return
    ran = found.get((method, options.of(method)))
    if ran is None:
        return
    if ran.output.refused:
        messages.hint(f"{outputs.METHODS[method]} can't run here: {ran.output.refused}")
        return
    if method == outputs.SMOOTHQUANT:
        assert ran.maxima is not None
        charts.draw(figures.channel_maxima(ran.maxima, theme=theme()), _CHARTS, key="om_maxima")
        _say(words.smoothing(ran, options.alpha))
    elif method == outputs.AWQ:
        drawn = figures.awq_search(ran.trials, theme=theme())
        charts.draw(drawn, "Error of everything that AWQ tried", key="om_awq")
        _say(words.scaling(ran, found.get((method, MethodOptions()))))
    elif method == outputs.GPTQ:
        _columns(ran, layer)
    elif method == outputs.HADAMARD:
        _rotated(ran)
    elif method == outputs.LLM_INT8:
        assert ran.maxima is not None
        (largest,) = (each[figures.BEFORE] for each in ran.maxima.values())
        drawn = figures.outlier_columns(largest, options.threshold, theme=theme())
        charts.draw(drawn, "Largest |x| of every input channel", key="om_outlier_columns")
        _say(words.decomposing(ran, options.threshold))


def _columns(ran: run.Ran, layer: PageLayer) -> None:
    """Draw GPTQ's columns under a slider."""
    found = ran.columns
    if found is None:
        _say(words.compensating(ran))
        rows, columns = layer.tensor.shape
        messages.hint(
            f"The columns are shown one at a time up to {run.READABLE:,} weights, and this layer has "
            f"{rows * columns:,}; choose a part of it to see them."
        )
        return
    _stepped(found)
    _say(words.compensating(ran))


@st.fragment
def _stepped(found: outputs.Compensated) -> None:
    """Draw the slider over GPTQ's columns, and the step that it stands at: a move draws these alone."""
    last = len(found.steps) - 1
    if st.session_state.get("om_column", 0) > last:
        st.session_state["om_column"] = last
    index = 0
    if last:
        index = st.slider(
            "Columns coded so far", 0, last, controls.DEFAULTS["om_column"], key="om_column",
            bind="query-params", help="Move it: the columns are coded from left to right.",
        )  # fmt: skip
    drawn = figures.gptq_column(found, index, theme=theme())
    charts.draw(drawn, "The weight while GPTQ codes a column, and its update", key="om_gptq")
    _say(words.column(found, index))
    row = words.most_wrong_row(found, index)
    messages.lines(words.arithmetic(found, index, row), heading=f"Row {row} in this step")


def _rotated(ran: run.Ran) -> None:
    assert ran.maxima is not None
    assert ran.histograms is not None
    charts.draw(figures.channel_maxima(ran.maxima, theme=theme()), _CHARTS, key="om_maxima")
    _say(words.rotating(ran))
    drawn = figures.histograms(ran.histograms, theme=theme())
    charts.draw(drawn, "Histograms of x and w before and after", key="om_histograms")


def _cache(layer: PageLayer) -> None:
    """Draw what the cache of an attention head loses, per token and per channel."""
    try:
        head = run.head(layer.source.head, layer.scheme)
    except qc.QuantError as error:
        messages.error(str(error))
        return
    _say(words.caching(head))
    left, right = st.columns(2)
    with left:
        drawn = figures.cache_granularities(head.sqnr, theme=theme())
        charts.draw(drawn, "SQNR of the head's output", key="om_cache")
    with right:
        charts.draw(figures.cached_keys(head.keys, theme=theme()), "The keys", key="om_keys")
    st.caption(
        f"One head of {run.HEAD} channels with {layer.source.head.tokens:,} tokens and 8 queries; the "
        "outlier factor is added to the outlier channels of its keys. The scheme's format is that of the "
        "sidebar."
    )


def tokens(points: Sequence[outputs.TokensPoint], nearest: float, key: str | None = None) -> None:
    """Draw the SQNR against the calibration tokens; without a key while they are computed."""
    if points:
        drawn = figures.tokens_curve(points, nearest, theme=theme())
        charts.draw(drawn, "SQNR of the output by calibration tokens", key=key)


def _say(sentence: str) -> None:
    st.markdown(messages.plain(sentence))
