"""What the popover "Link" shows: the link, its QR code, and what it takes to share a tensor that does not fit."""

import segno
import streamlit as st

import quantcore as qc
from pages.serving import tensor_store
from pages.serving.settings import upload_limit
from pages.serving.tensor_store import TensorStore
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state import link, selection
from pages.shared.state.selection import Tensor
from quantcore import tensors

MAX_QR = 2953  # bytes that a QR code can hold, at its lowest error correction


def draw(tensor: Tensor | None) -> None:
    """Show the link, and what it does not carry about this tensor.

    Call it last: a widget writes its value into the link only when it is drawn.
    """
    used = selection.get().used
    if "tensor" in used and tensor is None:
        st.write("There is no tensor to share yet.")
        return
    if "tensor" not in used or tensor is None or link.carries_all(tensor) or _shared(tensor):
        same = ("view", f"{''.join(used)} and view", "tensor, scheme and view")[len(used)]
        st.write(f"Whoever opens this link sees the same {same}:")
    address = link.address()
    st.code(address, language=None, wrap_lines=True)
    if st.button("QR code", icon=":material/qr_code_2:", help="Of this link, for a projector"):
        show_qr(address)


def _shared(tensor: Tensor) -> bool:
    """Explain what to send with the link, and offer to share the tensor; return whether the visitor just did."""
    many = f"This tensor's values need more than {tensors.MAX_LINK_CHARS:,} characters, too many for a link."
    file = st.query_params.get(link.FILE)
    alternative = (
        f"The link names {messages.plain(file)} and asks whoever opens it for that file: send it along"
        if file
        else "Download the .npz under Export and send the file"
    )
    store = tensor_store.current()
    if store is None:
        st.write(f"{many} {alternative}; the link carries the rest.")
        return False
    place = st.empty()
    with place.container():
        st.write(many)
        size = tensors.megabytes(4 * cache.size(tensor))
        st.write(
            f"“Share this tensor” stores its {size} {messages.plain(store.where)}, for {store.days:g} days or until the "
            "space is needed. Anyone with the link can open it."
        )
        if st.button("Share this tensor", icon=":material/upload:", key="_share") and _put(store, tensor):
            place.empty()
            return True
        st.write(f"Without sharing: {alternative[0].lower()}{alternative[1:]}; the link carries the rest.")
    return False


def _put(store: TensorStore, tensor: Tensor) -> bool:
    """Share a tensor, or show why this is not possible."""
    try:
        if not link.carry_shared(tensor.key):
            with st.spinner("Storing…"):
                visitor = tensor_store.visitor_of(st.context.ip_address)
                address = store.share(cache.values(tensor), visitor, upload_limit())
                link.note_shared(tensor.key, link.SHARED + address)  # before a rerun can interrupt this run
            link.carry_shared(tensor.key)
    except qc.QuantError as error:
        messages.error(str(error))
        return False
    return True


@st.dialog("QR code of this link", width="large")
def show_qr(address: str) -> None:
    """Show a QR code as large as the window allows, black on white even in a dark theme."""
    if len(address.encode()) > MAX_QR:
        messages.error(
            f"This link has {len(address):,} characters, and a QR code holds at most {MAX_QR:,}: choose a smaller tensor, or "
            "send the link as text."
        )
        return
    image = segno.make_qr(address, error="l").svg_data_uri(border=4, light="#fff", omitsize=True)
    st.html(f'<img class="qs-qr" alt="QR code of this link" src="{image}">')
