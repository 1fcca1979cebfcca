"""The integers to match, pasted or uploaded, with scale and zero point, and how the link carries them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

import quantcore as qc
from pages.compare.match import preview
from pages.shared import messages
from pages.shared.computing import guarded
from pages.shared.state import choice, link
from pages.shared.state.file_field import FileField
from pages.sidebar import pasted
from pages.sidebar.match_fields import CODE, SCALE, SOURCE, TEXT, ZERO_POINT, write
from quantcore import tensors

_CODES_IN_LINK, _SCALE_IN_LINK, _ZERO_POINT_IN_LINK = "match_q", "match_s", "match_z"
_CODE_IN_LINK, _SHARED = "match_c", "_match_code_shared"
LABELS = {"paste": "Integers", "upload": "File", "code": "Python code"}
_CAPTIONS = {
    "paste": "Paste the integers that some code made of the tensor in the sidebar: Match names the rules, "
    "or the mistake.",
    "upload": "Upload the integers that some code made of the tensor in the sidebar: Match names the rules, "
    "or the mistake.",
    "code": "Paste the code of a quantizer: its mistakes are named line by line. Python never "
    "runs it: Quantscope works it out itself.",
}
KEYS = {
    SOURCE,
    _CODES_IN_LINK,
    _SCALE_IN_LINK,
    _ZERO_POINT_IN_LINK,
    _CODE_IN_LINK,
    preview.KEY,
}  # parameters of the link
_FIELDS = ((_SCALE_IN_LINK, SCALE), (_ZERO_POINT_IN_LINK, ZERO_POINT))
_CARRIED = "_match_carried"
_LONGEST = 2000  # characters of a scale or zero_point that a link carries


@dataclass(frozen=True, eq=False)
class Inputs:
    """What to match. ``key``: equal for equal inputs."""

    codes: np.ndarray
    scale: np.ndarray | None
    zero_point: np.ndarray | None
    key: str


def draw(place: Any, beside: Any) -> Inputs | None:
    """Draw the field for the codes in ``place`` and the others in ``beside``; None if there are no codes yet.

    Raises:
        QuantError: the text or the file can't be read.
    """
    _from_link()
    with place:
        source = choice.segmented("Integers from", SOURCE, LABELS, label_visibility="collapsed")
        st.caption(_CAPTIONS[source])
    if source == "code":
        return None
    pasted = source == "paste"
    hint = "One number, or one per block: as a list, or nested in the shape of the blocks. "
    hint += "Leave empty if unknown."
    with beside:
        scale = st.text_input("Scale, if known", key=SCALE, persist_state="session", help=hint)
        zero_point = st.text_input("Zero point, if known", key=ZERO_POINT, persist_state="session", help=hint)
    for name, text in ((_SCALE_IN_LINK, scale), (_ZERO_POINT_IN_LINK, zero_point)):
        _carry(name, text if 0 < len(text) <= _LONGEST else None)
    with place:
        codes = _pasted() if pasted else _uploaded()
    if codes is None:
        _carry(_CODES_IN_LINK, None)
        return None
    key = f"{codes.shape} {tensors.content_hash(codes)} {scale.strip()} {zero_point.strip()}"
    known = st.session_state.get("_match_encoded")
    if known is None or known[0] != key:
        packed = _packed(codes)
        encoded = tensors.encode(packed) if packed is not None and tensors.fits_link(packed) else None
        st.session_state["_match_encoded"] = known = (key, encoded)
    _carry(_CODES_IN_LINK, known[1])
    return Inputs(codes, _parameter(scale, "scale"), _parameter(zero_point, "zero point"), key)


def is_code() -> bool:
    """Tell whether to read code rather than integers; see `code`."""
    return st.session_state.get(SOURCE) == "code"


def carried() -> bool:
    """Tell whether the link carries the integers and what is known about them."""
    held = st.session_state[_CARRIED]
    known = all(held.get(name) or not st.session_state[key] for name, key in _FIELDS)
    return known and bool(held.get(_CODES_IN_LINK))


def share_code(text: str) -> None:
    """Let the link carry this code from now on, until it is changed (a callback)."""
    st.session_state[_SHARED] = text


def carry_code(text: str | None, verdict: str | None = None) -> bool:
    """Put the code and its verdict into the link if the visitor shares them, else remove them.

    Return whether the link has them.

    Raises:
        QuantError: it is too long for a link.
    """
    shared = bool(text) and st.session_state.get(_SHARED) == text
    _carry(_CODE_IN_LINK, tensors.encode_text(text) if shared and text else None)
    _carry(preview.KEY, verdict if shared else None)
    return shared


def _pasted() -> np.ndarray | None:
    text = st.text_area(
        "Integers",
        key=TEXT,
        height=190,
        persist_state="session",
        label_visibility="collapsed",
        placeholder="12, -3, 7\n0, 127, -128\n\nor a tensor, an array or a list as Python prints it",
        help="In the shape of the tensor in the sidebar, or transposed. Press Ctrl+Enter when done.",
    )
    read = pasted.read(text, "_match_which") if text.strip() else None
    return None if read is None else read.values


def _uploaded() -> np.ndarray | None:
    _FIELD.draw("File with the integers", type=list(tensors.EXTENSIONS), label_visibility="collapsed")
    if _FIELD.problem:
        raise qc.QuantError(_FIELD.problem)
    if _FIELD.content is None:
        return None
    codes, name = _FIELD.content
    st.caption(f"{messages.plain(name)}, shape {codes.shape}")
    return codes


def _read(given: list[Any]) -> tuple[np.ndarray, str]:
    """Return the integers of a file, and its name."""
    (file,) = given
    names = guarded.list_tensors(file.getvalue(), file.name)
    if len(names) > 1:
        listed = ", ".join(info.name for info in names[:5])
        raise qc.QuantError(
            f"{file.name[:40]} contains {len(names)} tensors ({listed[:80]}); "
            "upload a file that contains only the integers."
        )
    return guarded.read_tensor(file.getvalue(), file.name, names[0]), file.name


_FIELD = FileField("match_file", _read, lambda kept: kept[1])


def _parameter(text: str, what: str) -> np.ndarray | None:
    if not text.strip():
        return None
    try:
        return tensors.parse(text)
    except qc.QuantError as error:
        raise qc.QuantError(f"In the {what}: {error}") from None


def _from_link() -> None:
    """Fill the fields from a link that was opened, or that Back returned to."""
    carried = st.session_state.setdefault(_CARRIED, {})
    for name, key in _FIELDS:
        text = st.query_params.get(name)
        if text is not None and text != carried.get(name):
            st.session_state[key] = text
        elif text is None and carried.get(name) and link.from_history():
            st.session_state[key] = ""
    _code_from_link(carried.get(_CODE_IN_LINK))
    text = st.query_params.get(_CODES_IN_LINK)
    if text is None and carried.get(_CODES_IN_LINK) and link.from_history():
        st.session_state[TEXT] = ""
    if text is None or text == carried.get(_CODES_IN_LINK):
        return
    try:
        codes = _unpacked(tensors.decode(text))
    except qc.QuantError:
        return  # it is removed from the link, and reported with the other unusable parameters
    if st.query_params.get(SOURCE) in ("upload", LABELS["upload"]):
        _FIELD.put((codes, "from the link"))
    else:
        st.session_state[TEXT] = write(codes)


def _code_from_link(carried: str | None) -> None:
    text = st.query_params.get(_CODE_IN_LINK)
    if text is not None and text != carried:
        try:
            st.session_state[CODE] = st.session_state[_SHARED] = tensors.decode_text(text)
        except qc.QuantError:
            return  # it is removed from the link, and reported with the other unusable parameters


def _packed(codes: np.ndarray) -> np.ndarray | None:
    """Map signed codes to small unsigned ones (0, -1, 1, -2, … become 0, 1, 2, 3, …), as the bits of float32.

    Only their low bytes vary, so a link holds three times as many. None if the values can't be codes.
    """
    if not (np.isfinite(codes).all() and (codes % 1 == 0).all() and abs(codes).max() < 1 << 30):
        return None
    integers = codes.astype(np.int32)
    return ((integers << 1) ^ (integers >> 31)).view(np.float32)


def _unpacked(bits: np.ndarray) -> np.ndarray:
    folded = bits.view(np.int32)
    return ((folded >> 1) ^ -(folded & 1)).astype(np.float32)


def _carry(name: str, text: str | None) -> None:
    st.session_state[_CARRIED][name] = text
    link.write(name, text)
