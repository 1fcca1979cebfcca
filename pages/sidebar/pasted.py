"""The tensor in a pasted text: read once, and chosen among several."""

import streamlit as st

import quantcore as qc
from pages.shared import messages
from quantcore import tensors


def read(text: str, key: str) -> tensors.PastedTensor | None:
    """Return the tensor of a text and say what is special about it; draw a choice if there are several.

    None until one is chosen. ``key``: of the choice.

    Raises:
        QuantError: the text contains none that can be read, or the chosen one can't be.
    """
    found = _parse(text)
    chosen = found[0]
    if len(found) > 1:
        titles = [tensor.title for tensor in found]
        place = st.selectbox(
            "Tensor in the text",
            range(len(found)),
            index=None,
            format_func=lambda n: titles[n] if n < len(titles) else "",
            placeholder=f"Choose one of {len(found)}",
            key=f"{key}_{hash(text)}",  # another text has other tensors
        )
        if place is None:
            return None
        chosen = found[place]
    if chosen.error:
        raise qc.QuantError(chosen.error)
    if chosen.note:
        st.caption(messages.plain(chosen.note))
    return chosen


@st.cache_data(max_entries=30, show_spinner="Reading…")
def _parse(text: str) -> list[tensors.PastedTensor]:
    return tensors.parse_all(text)
