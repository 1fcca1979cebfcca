"""The tabs Code and Export: scripts and files that reproduce the result."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import streamlit as st

import quantcore as qc
from pages.shared import messages
from pages.shared.computing import cache, needs
from pages.shared.state.selection import PageTensor
from quantcore import export, figures, snippets, tensors
from quantcore.analysis import View

T = TypeVar("T")
MAPS = {"original": "x", "codes": "codes", "dequantized": "dequantized", "error": "error"}


def code(tensor: PageTensor, result: qc.Quantized) -> None:
    """Draw the scripts that reproduce the result."""
    if result.scheme.convention.name != qc.TEXTBOOK.name:
        _library(tensor, result)
    left, right = st.columns(2)
    literal = cache.cached(tensor, "literal", lambda: tensors.literal(cache.values(tensor)))
    with left:
        st.markdown("**With quantcore**")
        st.code(snippets.quantcore_script(tensor.recipe or literal, result), language="python", height=460)
    with right:
        st.markdown("**With torch only**")
        script, problem = _or_sentence(lambda: snippets.torch_script(literal, result))
        if problem:
            st.info(messages.plain(problem))
        else:
            st.code(script, language="python", height=460)
    st.caption("Each script rebuilds this tensor and checks the codes.")


def _library(tensor: PageTensor, result: qc.Quantized) -> None:
    """Draw the script that uses the library's own API, or the reason why there is none."""
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
            f"The tests do not run this script, since {name} can't be installed alongside the other libraries; they "
            "check these integers against integers recorded with that version."
        )
    elif convention.name in qc.INTEGER_CONVENTIONS:
        st.caption(
            f"The tests run such scripts with {name}, across its granularities, symmetries and bit widths."
        )
    else:
        st.caption(f"The tests run the script of every preset with {name}.")


def downloads(tensor: PageTensor, result: qc.Quantized, view: View | None) -> None:
    """Draw the download buttons."""
    st.markdown("**Tensors**: x, codes, scale, zero_point, dequantized")
    with st.container(horizontal=True):
        npz, safetensors = (
            partial(_written, tensor, result.scheme, f) for f in (export.to_npz, export.to_safetensors)
        )
        st.download_button("NumPy .npz", npz, "quantscope.npz", on_click="ignore")
        st.download_button(
            ".safetensors",
            safetensors,
            "quantscope.safetensors",
            on_click="ignore",
        )
        for label, name in MAPS.items():
            make = partial(_written, tensor, result.scheme, partial(_csv, name=name))
            st.download_button(f"{label} .csv", make, f"{name}.csv", on_click="ignore")
    _onnx(tensor, result)
    if view is not None:
        st.markdown("**Maps as shown**")
        figure = partial(
            figures.maps, view=view, borders=st.session_state["borders"], grey=tensor.is_image
        )
        with st.container(horizontal=True):
            for kind in ("png", "svg"):  # pages/browser/picture.js takes the clicks
                st.button(
                    f"Picture .{kind}", key=f"_picture_{kind}", help="With scheme and link in small print"
                )
            st.download_button(
                "Figure .html",
                partial(_written, tensor, result.scheme, lambda result: figures.to_html(figure(result))),
                "quantscope.html",
                on_click="ignore",
                help="Works offline: plotly.js is included",
            )


def _onnx(tensor: PageTensor, result: qc.Quantized) -> None:
    st.markdown("**Model**: x → QuantizeLinear → codes → DequantizeLinear → dequantized")
    data, problem = cache.cached(
        tensor, f"onnx {result.scheme}", lambda: _or_sentence(lambda: export.to_onnx(result)), needs.ONNX
    )
    st.download_button(
        "ONNX .onnx", data or b"", "quantscope.onnx", on_click="ignore", disabled=bool(problem)
    )
    if problem:
        st.caption(messages.plain(problem))
    else:
        st.caption("onnxruntime reproduces these integers.")


def _or_sentence(make: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of ``make`` and "", or None and the error message."""
    try:
        return make(), ""
    except qc.QuantError as error:
        return None, str(error)


def _written(tensor: PageTensor, scheme: qc.Scheme, write: Callable[[qc.Quantized], T]) -> T:
    """Return a file's content, made when it is downloaded: until then the button must not hold the result."""
    with cache.turn_of(tensor, needs.EXPORT):
        return write(cache.result(tensor, scheme))


def _csv(result: qc.Quantized, name: str) -> str:
    return export.to_csv(getattr(result, name))
