"""The tabs below the maps; a closed tab computes nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from pages.outputs.layer import element, keys, run, views
from pages.outputs.layer.run import LayerTask, ShownLayer
from pages.shared import messages
from pages.shared.computing import cache, needs
from quantcore import export, snippets
from quantcore.outputs import LayerOutput

LABELS = ["Dot product", "Integer path", "Errors", "Code", "Export"]


def draw(task: LayerTask, done: ShownLayer, at: tuple[int, int]) -> None:
    """Draw the tabs, and the content of the open one."""
    draws: list[Callable[[], None]] = [
        partial(element.dot_product, done, at),
        partial(element.integer_path, done, at),
        partial(views.errors, done, at),
        partial(_code, task, done),
        partial(_export, task, done),
    ]
    for tab, content in zip(st.tabs(LABELS, key=keys.TAB, bind="query-params"), draws, strict=True):
        if tab.open:
            with tab:
                content()


def _code(task: LayerTask, done: ShownLayer) -> None:
    """Draw the script that computes the layer."""
    st.code(script(task, done), language="python", height=460)
    st.caption("The script rebuilds x and w, and checks the codes and the SQNR.")


def script(task: LayerTask, done: ShownLayer) -> str:
    """Return the script of the page."""
    tensor, choices = task.tensor, task.choices
    values = cache.values(tensor)
    recipe = f"{tensor.recipe}\nw = torch.as_tensor(x)" if tensor.recipe else snippets.binding("w", values)
    source = snippets.LayerSource(
        recipe,
        choices.given.code,
        task.scheme,
        choices.activation.scheme,
        choices.given.batches(choices.activation.batches).code if choices.activation.batches else "",
        choices.activation.averaging,
    )
    return snippets.layer_script(source, done.found)


def _export(task: LayerTask, done: ShownLayer) -> None:
    """Draw the download buttons."""
    problem = cache.too_much(done.content, needs.EXPORT)
    if problem:
        messages.error(problem)

    def download(label: str, file: str, write: Callable[[LayerOutput], Any]) -> None:
        def content() -> Any:  # when it is downloaded: until then the button must not hold the layer
            with cache.turn_of(task.content, needs.EXPORT):
                return write(run.layer_of(task))

        st.download_button(label, content, file, on_click="ignore", disabled=bool(problem), key=f"_{file}")

    st.markdown("**Tensors**: x, w, bias, y, y_hat, and codes, scale, zero_point and dequantized of x and w")
    with st.container(horizontal=True):
        download("NumPy .npz", snippets.LAYER_FILE, export.layer_to_npz)
        download(".safetensors", "layer.safetensors", export.layer_to_safetensors)
        download("ŷ − y .csv", "error.csv", lambda found: export.to_csv(found.error))
