"""Controls for the range setting and its parameters."""

import ast
from typing import Any

import streamlit as st

import quantcore as qc
from pages.shared.state import link
from quantcore.notation import write_call
from quantcore.range_setting import MAX_BINS, MAX_CANDIDATES, Search

_BIND: dict[str, Any] = {"bind": "query-params"}
MIN_BINS = qc.Entropy().num_quantized_bins
# option -> what it is called
KINDS = {
    kind: kind
    for kind in (
        "min-max",
        "min MSE",
        "percentile",
        "entropy",
        "mean ± k·std",
        "mean |x|",
        "half-quadratic",
        "ggml search",
        "fixed",
    )
} | {"by hand": "manual"}
# keys of the controls, which are parameters of the link
DEFAULTS: dict[str, Any] = {
    "range": "min-max",
    "p": 99.0,
    "candidates": 100,
    "bins": 2048,
    "k": 3.0,
    "search": "make_qx",
    "low": -1.0,
    "high": 1.0,
    "scale": "0.1",
    "zero_point": "0",
}
MIN_PERCENTILE = 50.001  # of the control; quantcore accepts any above 50
_HELP = (
    "How to find the range that the codes span: from the lowest to the highest element, by the least squared error, a "
    "percentile of the elements, the least information loss (Kullback-Leibler), k standard deviations around the "
    "mean, the mean of |x|, HQQ's optimizer, the searches of ggml's K-quants, two fixed numbers, or a manual scale and zero point."
)


def draw() -> qc.RangeSetting:
    """Draw the controls and return the range setting.

    Raises:
        QuantError: the input is not a valid range setting.
    """
    with link.named("range", KINDS):
        kind = st.selectbox(
            "Range", list(KINDS), format_func=KINDS.__getitem__, key="range", **_BIND, help=_HELP
        )
    match kind:
        case "min MSE":
            return qc.MinMse(_integer("Candidates", "candidates", 1, MAX_CANDIDATES, _CANDIDATES))
        case "percentile":
            return qc.Percentile(_percentile())
        case "entropy":
            return qc.Entropy(_integer("Bins", "bins", MIN_BINS, MAX_BINS, _BINS))
        case "mean ± k·std":
            return qc.MeanStd(
                st.number_input("k", value=DEFAULTS["k"], step=0.5, format="%g", key="k", **_BIND, help=_K)
            )
        case "mean |x|":
            return qc.AbsMean()
        case "half-quadratic":
            return qc.HalfQuadratic()
        case "ggml search":
            return _search()
        case "fixed":
            return _fixed()
        case "by hand":
            return _given()
    return qc.MinMax()


_CANDIDATES = "How many ranges to try for each block. With 100: min-max, then 99 %, 98 %, … of its width."
_BINS = "Bins of the histogram. With 128, only the widest threshold is left to try; TensorRT uses 2048."
_K = "The range extends this many standard deviations to each side of the mean."


def _integer(label: str, key: str, low: int, high: int, help: str) -> int:
    return int(st.number_input(label, low, high, DEFAULTS[key], key=key, help=help, **_BIND))


def _percentile() -> float:
    p: float = st.number_input(
        "Percentile",
        MIN_PERCENTILE,
        100.0,
        DEFAULTS["p"],
        0.1,
        "%.3f",
        key="p",
        **_BIND,
        help="Symmetric: a percentile of |x|. Asymmetric: one for each tail. Elements outside are clipped.",
    )
    return p


def _search() -> qc.RangeSetting:
    hint = "A search that ggml's quantizers use, with its parameters: make_qkx2(-1, 0.1, 20), make_qx, make_q3, …"
    typed = st.text_input("Search", DEFAULTS["search"], key="search", help=hint, **_BIND)
    setting = qc.Scheme.parse(typed).range_setting
    if not isinstance(setting, Search):
        raise qc.QuantError(f"{typed[:40]!r} is not a ggml search; type one such as make_qx or make_q3.")
    if setting.needs_importance:
        raise qc.QuantError(
            f"{typed[:60]} weights elements by an imatrix, which can't be set here; use quantcore in a notebook."
        )
    return setting


def _fixed() -> qc.Fixed:
    left, right = st.columns(2)
    low = left.number_input("Low", value=DEFAULTS["low"], format="%g", key="low", **_BIND)
    return qc.Fixed(low, right.number_input("High", value=DEFAULTS["high"], format="%g", key="high", **_BIND))


def _given() -> qc.Given:
    left, right = st.columns(2)
    hint = "One number for all blocks, or a nested list with one number per block, such as [[0.1], [0.2]]"
    scale = left.text_input("Scale", DEFAULTS["scale"], key="scale", help=hint, **_BIND)
    zero_point = right.text_input("Zero point", DEFAULTS["zero_point"], key="zero_point", help=hint, **_BIND)
    return qc.Given(_literal(scale, "The scale"), _literal(zero_point, "The zero point"))


def _literal(typed: str, what: str) -> Any:
    try:
        return ast.literal_eval(typed.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise qc.QuantError(
            f"{what} must be a number or a nested list of numbers such as [[0.1], [0.2]], not {typed[:40]!r}."
        ) from None


def choices_of(setting: qc.RangeSetting) -> dict[str, Any]:
    """The values of the range controls for a range setting.

    Raises:
        QuantError: a control can't represent a value.
    """
    match setting:
        case qc.Percentile(p):
            if p < MIN_PERCENTILE:
                raise qc.QuantError(f"The percentile here must be at least {MIN_PERCENTILE}, not {p}.")
            return {"range": "percentile", "p": p}
        case qc.MinMse(candidates):
            return {"range": "min MSE", "candidates": candidates}
        case qc.Entropy(bins, quantized):
            if quantized != qc.Entropy().num_quantized_bins:
                raise qc.QuantError("num_quantized_bins can't be set here; leave it out.")
            return {"range": "entropy", "bins": bins}
        case qc.MeanStd(k):
            return {"range": "mean ± k·std", "k": k}
        case qc.AbsMean():
            return {"range": "mean |x|"}
        case qc.HalfQuadratic():
            if setting != qc.HalfQuadratic():
                raise qc.QuantError("The arguments of half_quadratic can't be set here; leave them out.")
            return {"range": "half-quadratic"}
        case Search():
            return {"range": "ggml search", "search": write_call(setting)}
        case qc.Fixed(low, high):
            return {"range": "fixed", "low": low, "high": high}
        case qc.Given(scale, zero_point):
            return {"range": "by hand", "scale": _typed(scale), "zero_point": _typed(zero_point)}
    return {"range": "min-max"}


def _typed(value: Any) -> str:
    return str(value).replace("(", "[").replace(",)", "]").replace(")", "]")
