"""What is seen of a large tensor until its maps are drawn: first that it is read, then the original."""

import base64
import html
import io

import streamlit as st
from PIL import Image
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.shared import page_frame
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.state.selection import PageTensor
from quantcore import figures
from quantcore.analysis import MapData

LARGE = 1 << 22  # elements; the maps of smaller tensors are there before one could look at this
_SHOWN = "_overview_of"  # key of the tensor that the maps of this session show
_OTHERS = ("Codes q", "Dequantized x̂", "Error x − x̂")


def draw(place: DeltaGenerator, tensor: PageTensor, scheme: qc.Scheme) -> None:
    """Show an overview of a large tensor that this session has not seen yet, over what was there before.

    First in words; then with the original, if the maps will show all of it. The maps take it away as they are
    drawn (pages/maps/drawing/maps.js), or else the end of the run does.
    """
    page_frame.at_end(lambda: st.session_state.update({_SHOWN: tensor.key}))
    seen = st.session_state.get(_SHOWN) == tensor.key or cache.is_known(tensor, scheme)
    if seen or tensor.elements < LARGE:
        return
    slot = place.empty()

    def go() -> None:
        slot.empty()

    page_frame.at_end(go)
    verb = "generated" if tensor.spec else "read"
    slot.html(markup(f"{_shape(tensor)} elements are being {verb}…", tensor))
    whole = len(tensor.shape) == 2 and not (st.session_state.get("rows") or st.session_state.get("cols"))
    try:
        data = cache.original(tensor) if whole else None
    except qc.QuantError:  # what computes the codes says so
        return
    if data is not None:
        said = f"The codes of {_shape(tensor)} elements are being computed…"
        slot.html(markup(said, tensor, picture(data, theme(), grey=tensor.is_image)))


def _shape(tensor: PageTensor) -> str:
    return " × ".join(f"{n:,}" for n in tensor.shape)


def picture(data: MapData, theme: str, *, grey: bool = False) -> bytes:
    """Return the map of the original as a PNG file, one pixel per cell, in the colors of the maps."""
    scale, file = figures.scales_of_maps(data, None, theme, grey=grey)["dequantized"], io.BytesIO()
    colors = figures.colors_at(data.map("dequantized"), scale["zmin"], scale["zmax"], scale["colorscale"])
    Image.fromarray(colors).save(file, "PNG", compress_level=1)
    return file.getvalue()


def markup(said: str, tensor: PageTensor, original: bytes = b"") -> str:
    """Return the overview as HTML.

    Args:
        said: what is being computed.
        original: a picture of it; empty if it is not known yet.
    """
    address = base64.b64encode(original).decode()
    shown = f'<img alt="" src="data:image/png;base64,{address}">' if original else "<i></i>"
    others = "".join(f"<figure><figcaption>{name}</figcaption><i></i></figure>" for name in _OTHERS)
    return (
        f'<div class="qs-overview"><p role="status"><b>{html.escape(tensor.name)}</b> {html.escape(said)}</p>'
        f"<div><figure><figcaption>Original x</figcaption>{shown}</figure>{others}</div></div>"
    )
