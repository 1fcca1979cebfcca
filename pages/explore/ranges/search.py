"""Views of the Ranges page if one of ggml's searches finds the scale: its trials instead of ranges."""

import numpy as np
import streamlit as st

import quantcore as qc
from pages.shared import charts, messages
from pages.shared.computing import cache, needs
from pages.shared.state.selection import Tensor
from pages.shared.theme import theme
from quantcore import figures


def draw(
    tensor: Tensor,
    result: qc.Quantized,
    block: tuple[int, ...] | None,
    bins: tuple[np.ndarray, np.ndarray],
    bounds: tuple[float, float],
) -> None:
    """Draw the histogram with the range that the codes span, and next to it the error of every trial."""
    scheme = result.scheme
    make = lambda: qc.search_curve(result, block)  # noqa: E731
    curve = cache.cached_small(tensor, f"search curve {scheme} {block}", make, needs.of(scheme, tensor.shape))
    left, right = st.columns(2)
    with left:
        st.markdown("**Elements and the range in use**")
        charts.draw(
            figures.range_histogram(*bins, (), bounds, theme=theme()),
            theme=None,
            key="rng_histogram_searched",
        )
    with right:
        st.markdown(f"**Trials of {messages.plain(curve.name)}**")
        charts.draw(figures.search_error(curve, theme=theme()), theme=None, key="rng_search")
    st.caption(messages.plain(_note(curve, scheme)))


def _note(curve: qc.SearchCurve, scheme: qc.Scheme) -> str:
    sentences = [
        f"The search weighs each element's error by w = {curve.weights} and keeps the first of the best trials."
    ]
    if curve.measured > 1:
        sentences.append("A marker's size shows how many groups ended with that trial; errors are means.")
    if 1 < curve.measured < curve.groups:
        sentences.append(f"Measured on {curve.measured:,} of {curve.groups:,} groups, evenly spaced.")
    if scheme.scales is not None:
        sentences.append("Errors are measured before the scales themselves are quantized.")
    if scheme.convention.library == "ggml":
        sentences.append(
            "This format has no other range settings: ggml finds its scales only this way. A ggml build that fuses "
            "multiply and add (most arm64 builds) sometimes chooses another trial; this is x86-64 without fusing."
        )
    return " ".join(sentences)
