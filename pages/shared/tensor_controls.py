"""The tensor's controls: generated, an example, pasted, edited or uploaded."""

from typing import Any

import numpy as np
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from pages.shared import grid, link, say
from pages.shared.current import Tensor
from quantcore import tensors

DEFAULTS: dict[str, Any] = {
    "src": "generate",
    "ex": next(iter(tensors.EXAMPLES)),
    "dist": "outlier_channel",
    "shape": "8x8",
    "seed": 0,
}
# With the distribution's name: parameters share names with the scheme's (low, high, scale) and with each other
# (factor), and one widget with two defaults would keep the value of the first, which the link leaves out.
PARAMETERS: dict[str, Any] = {
    f"{name}_{p.name}": float(p.default) for name, d in tensors.DISTRIBUTIONS.items() for p in d.parameters
}
# No format_func beside it: the link would carry the label, and break when that is reworded
_BIND: dict[str, Any] = {"bind": "query-params"}
PASTED, _EDITED, _UPLOADED = "_pasted", "_edited", "_uploaded"


class NoTensorYet(Exception):
    """Nothing was pasted or uploaded so far; the message says what to do."""


def draw() -> Tensor:
    """Draw the controls and return the tensor that they stand for.

    Raises:
        QuantError: what was typed, uploaded or linked makes no tensor.
    """
    st.subheader("Tensor")
    source = st.selectbox(
        "Source of the tensor", list(_DRAW), key="src", label_visibility="collapsed", **_BIND
    )
    try:
        tensor = _DRAW[source]()
    finally:
        # Streamlit writes what a callback sets into the link only of widgets whose key it has met before.
        for key, default in (DEFAULTS | PARAMETERS).items():
            st.session_state.setdefault(key, default)
    elements = int(np.prod(tensor.shape, dtype=np.int64))
    st.caption(f"shape {tensor.shape}, {elements:,} element{'s' * (elements != 1)}, float32")
    return tensor


def _generated() -> Tensor:
    kinds = tensors.DISTRIBUTIONS
    name = st.selectbox(
        "Distribution",
        list(kinds),
        key="dist",
        **_BIND,
        help="\n".join(f"- **{name}**: {d.help}" for name, d in kinds.items()),
    )
    left, right = st.columns(2)
    shape = left.text_input(
        "Shape",
        DEFAULTS["shape"],
        key="shape",
        max_chars=60,
        **_BIND,
        help="Such as 64x128; up to 4096x14336.",
    )
    seed = right.number_input(
        "Seed", 0, 2**31, DEFAULTS["seed"], key="seed", **_BIND, help="Another seed, other numbers"
    )
    chosen = []
    if kinds[name].parameters:
        for column, p in zip(st.columns(len(kinds[name].parameters)), kinds[name].parameters, strict=True):
            value = column.number_input(
                p.name.capitalize(),
                float(p.low),
                float(p.high),
                float(p.default),
                format="%g",
                key=f"{name}_{p.name}",
                help=p.help,
                **_BIND,
            )
            chosen.append((p.name, float(value)))
    spec = tensors.Generated(name, tensors.parse_shape(shape), int(seed), tuple(chosen))
    link.carry(None, repr(spec))
    code = f"x = qc.tensors.generate(qc.tensors.{spec})"
    return Tensor(f"generated {spec}", kinds[name].label, spec.shape, lambda: tensors.generate(spec), code)


def _example() -> Tensor:
    examples = tensors.EXAMPLES
    name = st.selectbox("Example", list(examples), key="ex", label_visibility="collapsed", **_BIND)
    st.caption(f"{examples[name].title}. {examples[name].description} Source: {examples[name].source}")
    link.carry(None, name)
    code = f"x = qc.tensors.EXAMPLES[{name!r}].load()"
    return Tensor(f"example {name}", examples[name].title, examples[name].shape, examples[name].load, code)


def _own(x: np.ndarray, title: str) -> Tensor:
    """A tensor that is known by its values alone."""
    return Tensor(f"values {tensors.content_hash(x)}", title, x.shape, lambda: x)


def _carried(tensor: Tensor) -> Tensor:
    """The same, its values in the link where they fit."""
    link.carry(tensor.load(), tensor.key)
    return tensor


def _pasted() -> Tensor:
    if PASTED not in st.session_state or link.went_to_another_tensor():
        x = link.tensor_from_link()
        st.session_state[PASTED] = "" if x is None else write(x)
    text = st.text_area(
        "Values",
        key=PASTED,
        height=180,
        persist_state="session",
        placeholder="0.5, -1.2, 3\n2, 0.25, -4\n\nor what print shows of a tensor, an array or a list",
        help="Rows of numbers, nested brackets, or a printed tensor. Ctrl+Enter when done.",
    )
    if not text.strip():
        link.carry(None, "")
        raise NoTensorYet(
            "There is no tensor yet: paste numbers into the field on the left, then press Ctrl+Enter."
        )
    return _carried(_own(_parse(text), "pasted"))


@st.cache_data(max_entries=30, show_spinner="Reading…")
def _parse(text: str) -> np.ndarray:
    return tensors.parse(text)


def _edited() -> Tensor:
    if _EDITED not in st.session_state or link.went_to_another_tensor():
        x = link.tensor_from_link()
        grid.begin_anew()
        st.session_state[_EDITED] = np.zeros((4, 4), np.float32) if x is None else x
    st.session_state[_EDITED] = x = grid.draw(st.session_state[_EDITED])
    return _carried(_own(x, "edited"))


def _uploaded() -> Tensor:
    file = st.file_uploader(
        "File",
        type=list(tensors.EXTENSIONS),
        label_visibility="collapsed",
        help=f"Up to {_limit() >> 20} MB. Nothing in it is ever executed.",
    )
    if file is None:
        return _kept_upload()
    names = _listed(file)
    picked = 0
    if len(names) > 1:
        picked = st.selectbox(
            "Tensor in the file", range(len(names)), format_func=lambda i: _described(names[i])
        )
    identity = (file.file_id, names[picked].name)
    if st.session_state.get(_UPLOADED, (None,))[0] != identity:
        x = tensors.read_tensor(file.getvalue(), file.name, names[picked].name, _limit())
        st.session_state[_UPLOADED] = (identity, _own(x, f"{file.name} {names[picked].name}".strip()))
    return _carried(st.session_state[_UPLOADED][1])


def _listed(file: UploadedFile) -> list[tensors.TensorInfo]:
    known = st.session_state.get("_listed")
    if known is None or known[0] != file.file_id:
        listed = tensors.list_tensors(file.getvalue(), file.name, _limit())
        st.session_state["_listed"] = known = (file.file_id, listed)
    return known[1]


def _limit() -> int:
    """The largest upload in bytes: the server's own limit, so that it is set in one place."""
    return int(st.get_option("server.maxUploadSize")) * 2**20


def _described(info: tensors.TensorInfo) -> str:
    return f"{info.name} {info.shape} {info.dtype}"


def _kept_upload() -> Tensor:
    """The file uploaded before (the widget loses it on a page switch), or the values in the link."""
    if _UPLOADED not in st.session_state:
        x = link.tensor_from_link()
        if x is None:
            raise NoTensorYet("There is no tensor yet: upload a file on the left, or choose another source.")
        st.session_state[_UPLOADED] = (("link", ""), _own(x, "from the link"))
    tensor: Tensor = st.session_state[_UPLOADED][1]
    st.caption(f"Shown: {say.plain(tensor.title)}")
    return _carried(tensor)


def write(x: np.ndarray) -> str:
    """Write a tensor so that it can be read, typed into, and parsed back to the same float32 values."""
    if x.ndim == 2 and min(x.shape) > 1:
        return "\n".join(", ".join(str(v) for v in row) for row in x)
    return str(np.vectorize(lambda v: float(str(v)), otypes=[object])(x).tolist())


_DRAW = {"generate": _generated, "example": _example, "paste": _pasted, "edit": _edited, "upload": _uploaded}
