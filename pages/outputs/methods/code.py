"""The scripts that run the chosen method: with quantcore, and with the library that has it."""

import streamlit as st

import quantcore as qc
from pages.outputs.methods import controls, run
from pages.outputs.methods.run import PageLayer, Record
from pages.shared import messages
from pages.shared.computing import cache
from quantcore import snippets, tensors
from quantcore.outputs import MethodOptions

_MOST = 1 << 16  # elements of a tensor without a recipe that a script has room for


def draw(method: str, found: Record, options: MethodOptions, layer: PageLayer) -> None:
    """Draw the scripts of a method side by side."""
    with st.expander("Code"):
        left, right = st.columns(2)
        try:
            with left:
                _own(method, found, options, layer)
            with right:
                _theirs(method, options, layer)
        except qc.QuantError as error:
            messages.hint(str(error))


def _own(method: str, found: Record, options: MethodOptions, layer: PageLayer) -> None:
    st.markdown("**With quantcore**")
    if method == controls.KV_CACHE:
        source = layer.source.head
        head = f"qc.outputs.attention_head({source.tokens}, {run.HEAD}, {source.arguments})"
        sqnr = run.head(source, layer.scheme).sqnr
        _show(snippets.cache_script(head, layer.scheme, sqnr))
        return
    ran = found.get((method, options.of(method)))
    if ran is not None and ran.output.refused:
        raise qc.QuantError(ran.output.refused)
    if ran is not None:
        _show(snippets.method_script(_source(layer), method, options, ran.output.sqnr_db))


def _theirs(method: str, options: MethodOptions, layer: PageLayer) -> None:
    if method == controls.KV_CACHE:
        return
    try:
        library, script = snippets.method_library_script(_source(layer), method, options)
    except qc.QuantError as error:
        st.markdown("**With a library**")
        messages.hint(str(error))
        return
    st.markdown(f"**With {messages.plain(library)}**")
    _show(script)


def _show(script: str) -> None:
    st.code(script, language="python", height=460)


def _source(layer: PageLayer) -> snippets.MethodSource:
    """Return the numbers of the layer as source code.

    Raises:
        QuantError: w is too large.
    """
    tensor = layer.tensor
    if tensor.recipe is None and tensor.elements > _MOST:
        raise qc.QuantError(
            f"w has {tensor.elements:,} elements, which are too many for a script; Explore exports them."
        )
    literal = lambda: tensors.literal(cache.values(tensor))  # noqa: E731
    return snippets.MethodSource(
        tensor.recipe or cache.cached(tensor, "literal", literal),
        layer.inputs,
        *layer.source.codes(layer.inputs),
        layer.scheme,
        layer.activation_scheme,
    )
