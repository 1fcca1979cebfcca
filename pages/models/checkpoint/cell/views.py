"""The panel of one cell: bits, arithmetic and other readings, and a script."""

from pathlib import Path

import streamlit as st

import quantcore as qc
from pages.models.checkpoint.cell import markup, run
from pages.models.opening import OpenCheckpoint, partner
from pages.shared import messages
from quantcore.checkpoints import CheckpointTensor, Origin, script
from quantcore.checkpoints.origin import index_text

_STYLE = Path(__file__).parent / "cell.css"


def draw(opened: OpenCheckpoint, name: str, index: tuple[int, ...], original: OpenCheckpoint | None = None) -> None:
    """Show where one element comes from; an element that can't be read gets a sentence.

    Args:
        name: the logical name of its tensor.
        index: one per axis.
        original: the checkpoint that it was quantized from.
    """
    tensor = opened.checkpoint.tensors[name]
    try:
        origin = tensor.origin(index)
    except qc.QuantError as error:
        messages.error(str(error))
        return
    st.html(_STYLE)
    st.html(markup.heading(origin, _in_original(opened, name, origin, original)))
    st.html(markup.panel(origin, _rivals(opened, tensor, origin)))
    _script(origin)


def _in_original(opened: OpenCheckpoint, name: str, origin: Origin, original: OpenCheckpoint | None) -> float | None:
    """The value of the element in the original; None if it has no such element."""
    try:
        other = partner(opened, original, name, origin.index[:-2])
        return None if other is None else other.tensor.origin(other.index(origin.index)).value
    except qc.QuantError:  # reported where the original is shown
        return None


def _rivals(opened: OpenCheckpoint, tensor: CheckpointTensor, origin: Origin) -> str:
    """The table of the other readings."""
    try:
        found = run.rivals(opened, tensor, origin.index)
        findings = run.findings(opened, tensor)
    except qc.QuantError as error:
        messages.error(str(error))
        return ""
    return markup.rivals(origin, found, findings, tensor.shape)


def _script(origin: Origin) -> None:
    with st.popover("NumPy script", icon=":material/code:"):
        try:
            text = script(origin)
        except qc.QuantError as error:
            messages.hint(str(error))
            return
        st.caption(
            f"Reads element {index_text(origin.index)} from the file and prints {origin.result}. Run it in the "
            "checkpoint's folder, or set FOLDER."
        )
        st.code(text, language="python", height=360)
