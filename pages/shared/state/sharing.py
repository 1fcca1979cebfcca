"""Link, in the header of every page: its click copies the address (pages/browser/link.js).

Its popover shows the address, its QR code, and what it takes to share a tensor that does not fit.
"""

import html

import segno
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.serving import tensor_store
from pages.serving.settings import upload_limit
from pages.serving.tensor_store import TensorStore
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state import link, reach, selection
from pages.shared.state.selection import PageTensor
from quantcore import tensors
from quantcore.wording import megabytes

MAX_QR = 2953  # bytes that a QR code can hold, at its lowest error correction
_NOTES = "_link_notes"
_RUN = "_runs"  # their number tells history.js that an action was answered


def place() -> tuple[DeltaGenerator, DeltaGenerator]:
    """Draw Link, which the style of the pages moves into the header, and the number of this run.

    Call it once per run, before the page. Return Link's container and, in it, its popover.
    """
    st.session_state[_NOTES] = []
    container = st.container(key="qs_link")
    st.session_state[_RUN] = run = st.session_state.get(_RUN, 0) + 1
    popover = container.popover("Link", icon=":material/link:", width="stretch")
    container.html(f'<i data-run="{run}" hidden></i>')
    return container, popover


def note(sentence: str) -> None:
    """Add a sentence on what this run's link does not carry."""
    st.session_state[_NOTES].append(sentence)


def draw(container: DeltaGenerator, popover: DeltaGenerator) -> None:
    """Show the link, and what it does not carry, in the places from `place`.

    Call it last: a widget writes its value into the link only when it is drawn.
    """
    notes = st.session_state.pop(_NOTES)
    with popover:
        whole = _draw(selection.get().tensor) and not notes
        for sentence in notes:
            st.write(sentence)
    if not whole:
        container.html('<i class="qs-without" hidden></i>')


def _draw(tensor: PageTensor | None) -> bool:
    """Show the link; return whether it carries the tensor, if the page uses one."""
    used = selection.get().used
    if "tensor" in used and tensor is None:
        st.write("There is no tensor to share yet.")
        return True
    whole = "tensor" not in used or tensor is None or link.carries_all(tensor) or _shared(tensor)
    if whole:
        same = ("view", f"{''.join(used)} and view", "tensor, scheme and view")[len(used)]
        st.write(f"Whoever opens this link sees the same {same}:")
    address = link.address()
    st.code(address, language=None, wrap_lines=True)
    if st.button("QR code", icon=":material/qr_code_2:", help="Of this link, for a projector"):
        show_qr(address)
    return whole


def _shared(tensor: PageTensor) -> bool:
    """Explain what to send with the link, and offer to share the tensor; return whether it just was."""
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
        size = megabytes(4 * tensor.elements)
        st.write(
            f"“Share this tensor” stores its {size} {messages.plain(store.where)}, for {store.days:g} days "
            "or until the space is needed. Anyone with the link can open it."
        )
        if st.button("Share this tensor", icon=":material/upload:", key="_share") and _put(store, tensor):
            place.empty()
            return True
        st.write(f"Without sharing: {alternative[0].lower()}{alternative[1:]}; the link carries the rest.")
    return False


def _put(store: TensorStore, tensor: PageTensor) -> bool:
    """Share a tensor, or show why this is not possible."""
    tensor = tensor.source or tensor  # the link carries the dtype
    try:
        if not link.carry_shared(tensor.key):
            with st.spinner("Storing…"):
                visitor = tensor_store.visitor_of(st.context.ip_address)
                address = store.share(cache.values(tensor).numpy(), visitor, upload_limit())
                link.note_shared(tensor.key, link.SHARED + address)  # before a rerun can interrupt this run
            link.carry_shared(tensor.key)
    except qc.QuantError as error:
        messages.error(str(error))
        return False
    return True


@st.dialog("QR code of this link", width="large")
def show_qr(address: str) -> None:
    """Show a QR code as large as the window allows, with the address beneath, as phones reach it."""
    if len(address.encode()) > MAX_QR:
        messages.error(
            f"This link has {len(address):,} characters, and a QR code holds at most {MAX_QR:,}: choose a "
            "smaller tensor, or send the link as text."
        )
        return
    there = reach.for_phones(address)
    st.html(f'{qr(there)}<p class="qs-address">{html.escape(there)}</p>')
    reach.tell(address, "Phones open")


def qr(address: str, name: str = "QR code of this link") -> str:
    """Return HTML of the QR code of an address, black on white even in a dark theme."""
    image = segno.make_qr(address, error="l").svg_data_uri(border=4, light="#fff", omitsize=True)
    return f'<img class="qs-qr" alt="{html.escape(name)}" src="{image}">'
