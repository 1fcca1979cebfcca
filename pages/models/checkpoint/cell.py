"""Where a cell of a checkpoint comes from: its bits in the file, arithmetic, rival readings, a script."""

from contextlib import suppress
from functools import partial
from math import prod
from pathlib import Path

import streamlit as st

import quantcore as qc
from pages.models.checkpoint import cell_markup
from pages.models.opening import OpenCheckpoint, partner
from pages.shared import messages
from pages.shared.computing import cache
from quantcore.checkpoints import CheckpointFinding, CheckpointTensor, Origin, script
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
    value = None
    with suppress(qc.QuantError):  # reported where the original is shown
        other = partner(opened, original, name, origin.index[:-2])
        value = None if other is None else other.tensor.origin(other.index(origin.index)).value
    st.html(_STYLE)
    st.html(cell_markup.heading(origin, value))
    st.html(cell_markup.panel(origin, _rivals(opened, tensor, origin)))
    _script(origin)


def _rivals(opened: OpenCheckpoint, tensor: CheckpointTensor, origin: Origin) -> str:
    """Write the table of the other readings, with the findings about stored parameters that concern them.

    In a remote tensor, elements that differ are not counted, and there are no findings.
    """
    key, index = f"{opened.key} {tensor.name}", origin.index
    rows = slice(0, 0) if opened.is_remote else window(tensor.shape, index)
    heads = Heads.of(opened.checkpoint.release).of_weight(tensor.name)
    content = cache.CacheKey(key, max(1, (rows.stop - rows.start) * prod(tensor.shape[1:])))
    read, check = partial(tensor.rivals, index, rows, heads), lambda: tuple(of_parameters(tensor.layout))
    known: tuple[CheckpointFinding, ...] = ()
    try:
        found = cache.cached_small(content, f"rivals {index}", read)
        if tensor.is_quantized and not opened.is_remote:
            known = cache.cached_small(cache.CacheKey(key), "findings of parameters", check)
    except qc.QuantError as error:
        messages.error(str(error))
        return ""
    findings = {name: finding for finding in known for name in finding.rivals}
    return cell_markup.rivals(origin, found, findings, tensor.shape)


def _script(origin: Origin) -> None:
    with st.popover("NumPy script", icon=":material/code:"):
        try:
            text = script(origin)
        except qc.QuantError as error:
            messages.hint(str(error))
            return
        st.caption(
            f"Reads element {index_text(origin.index)} from the file and prints {origin.result}. Run it in "
            "the checkpoint's folder, or set FOLDER."
        )
        st.code(text, language="python", height=360)
