"""The tabs with what can be taken away: scripts and files."""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

import quantcore as qc
from pages.shared import cache, messages
from pages.shared.selection import Tensor
from quantcore import export, figures, snippets, tensors
from quantcore.analysis import View

MAPS = {"original": "x", "codes": "codes", "dequantized": "dequantized", "error": "error"}


def code(tensor: Tensor, result: qc.Quantized) -> None:
    """Draw the scripts that make this result again."""
    if result.scheme.convention.name != qc.TEXTBOOK.name:
        _library(tensor, result)
    left, right = st.columns(2)
    literal = cache.cached(tensor, "literal", lambda: tensors.literal(cache.values(tensor)))
    with left:
        st.markdown("**With quantcore**")
        st.code(snippets.quantcore_script(tensor.recipe or literal, result), language="python", height=460)
    with right:
        st.markdown("**With torch alone**")
        script, problem = _or_sentence(lambda: snippets.torch_script(literal, result))
        if problem:
            st.info(messages.plain(problem))
        else:
            st.code(script, language="python", height=460)
    st.caption("Each makes this tensor and these codes again, and asserts it.")


def _library(tensor: Tensor, result: qc.Quantized) -> None:
    """Draw the script in the library's own API, or the sentence that says why there is none."""
    convention = result.scheme.convention
    script, problem = cache.cached(
        tensor,
        f"library script {result.scheme}",
        lambda: _or_sentence(lambda: snippets.library_script(result)),
    )
    name = f"{convention.library} {convention.version}".strip()
    st.markdown(f"**With {messages.plain(name)}**")
    if problem:
        st.info(messages.plain(problem))
        return
    st.code(script, language="python", height=460)
    if convention.library in snippets.RECORDED_ONLY:
        st.caption(
            f"Not run in the tests here, where {name} does not install: these integers are checked against recorded "
            "ones of that version."
        )
    elif convention.name in qc.CONVENTIONS:
        st.caption(f"The tests run such scripts with {name}, over its granularities, symmetries and widths.")
    else:
        st.caption(f"The tests run the script of every preset with {name}.")


def downloads(tensor: Tensor, result: qc.Quantized, view: View | None) -> None:
    """Draw the buttons that write files."""
    st.markdown("**The whole tensor**: x, codes, scale, zero_point, dequantized")
    with st.container(horizontal=True):
        st.download_button("NumPy .npz", partial(export.to_npz, result), "quantscope.npz", on_click="ignore")
        st.download_button(
            ".safetensors",
            partial(export.to_safetensors, result),
            "quantscope.safetensors",
            on_click="ignore",
        )
        for label, name in MAPS.items():
            make = partial(_csv, result, name)
            st.download_button(f"{label} .csv", make, f"{name}.csv", on_click="ignore")
    _onnx(tensor, result)
    if view is not None:
        st.markdown("**The maps as shown**")
        figure = partial(figures.maps, result, view, borders=st.session_state["borders"])
        st.download_button(
            "Figure .html",
            lambda: figures.to_html(figure()),
            "quantscope.html",
            on_click="ignore",
            help="Opens offline: plotly.js is inside",
        )


def _onnx(tensor: Tensor, result: qc.Quantized) -> None:
    st.markdown("**As a model**: x through QuantizeLinear to codes, through DequantizeLinear to dequantized")
    data, problem = cache.cached(
        tensor, f"onnx {result.scheme}", lambda: _or_sentence(lambda: export.to_onnx(result))
    )
    st.download_button(
        "ONNX .onnx", data or b"", "quantscope.onnx", on_click="ignore", disabled=bool(problem)
    )
    if problem:
        st.caption(messages.plain(problem))
    else:
        st.caption("onnxruntime gives these integers with it.")


def _or_sentence(make: Callable[[], Any]) -> tuple[Any, str]:
    """Return what ``make`` does, or the sentence that says why there is none."""
    try:
        return make(), ""
    except qc.QuantError as error:
        return None, str(error)


def _csv(result: qc.Quantized, name: str) -> str:
    return export.to_csv(getattr(result, name))
