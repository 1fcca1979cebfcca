"""Where a cell of a checkpoint comes from: its bits in the file, its arithmetic, how others read the same bytes, a script."""

from math import prod
from pathlib import Path

import streamlit as st

import quantcore as qc
from pages.models.checkpoint import cell_markup
from pages.models.opening import OpenCheckpoint, partner
from pages.shared import messages
from pages.shared.computing import cache
from quantcore.checkpoints import CheckpointFinding, CheckpointTensor, Origin, Rival, script
from quantcore.checkpoints.findings import Heads, of_parameters
from quantcore.checkpoints.origin import index_text, window

_STYLE = Path(__file__).parent / "cell.css"


def draw(
    opened: OpenCheckpoint, name: str, index: tuple[int, ...], original: OpenCheckpoint | None = None
) -> None:
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
    st.html(cell_markup.heading(origin, _in_original(opened, name, origin, original)))
    st.html(cell_markup.panel(origin, _rivals(opened, tensor, origin)))
    _script(origin)


def _in_original(
    opened: OpenCheckpoint, name: str, origin: Origin, original: OpenCheckpoint | None
) -> float | None:
    """Return the value of the element in the original; None if it has no such element."""
    try:
        other = partner(opened, original, name, origin.index[:-2])
        return None if other is None else other.tensor.origin(other.index(origin.index)).value
    except qc.QuantError:  # reported where the original is shown
        return None


def _rivals(opened: OpenCheckpoint, tensor: CheckpointTensor, origin: Origin) -> str:
    """Return the table of the other readings."""
    try:
        found = _other_readings(opened, tensor, origin.index)
        findings = _findings(opened, tensor)
    except qc.QuantError as error:
        messages.error(str(error))
        return ""
    return cell_markup.rivals(origin, found, findings, tensor.shape)


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


def _other_readings(
    opened: OpenCheckpoint, tensor: CheckpointTensor, index: tuple[int, ...]
) -> tuple[Rival, ...]:
    """Return the other readings of an element; elements that differ are not counted in a remote tensor.

    Raises:
        QuantError: the tensor can't be read.
    """
    rows = slice(0, 0) if opened.is_remote else window(tensor.shape, index)
    heads = Heads.of(opened.checkpoint.release).of_weight(tensor.name)
    elements = (rows.stop - rows.start) * prod(tensor.shape[1:])
    return cache.cached_small(
        cache.CacheKey(f"{opened.key} {tensor.name}", max(1, elements)),
        f"rivals {index}",
        lambda: tensor.rivals(index, rows, heads),
    )


def _findings(opened: OpenCheckpoint, tensor: CheckpointTensor) -> dict[str, CheckpointFinding]:
    """Return the findings about stored parameters that concern a reading, by its key.

    Raises:
        QuantError: the parameters can't be read.
    """
    if opened.is_remote or not tensor.is_quantized:
        return {}
    content = cache.CacheKey(f"{opened.key} {tensor.name}")
    found = cache.cached_small(content, "findings of parameters", lambda: tuple(of_parameters(tensor.layout)))
    return {key: finding for finding in found for key in finding.rivals}
