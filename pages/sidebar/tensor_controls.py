"""Controls for the tensor: generated, an example, pasted, edited or uploaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state import choice, link
from pages.shared.state.selection import NoTensorYet, PageTensor, generated, of_values
from pages.sidebar import pasted, scheme_state, uploads
from quantcore import tensors
from quantcore.wording import count

DEFAULTS: dict[str, Any] = {
    "src": "generate",
    uploads.DTYPE: "float32",
    "ex": next(iter(tensors.EXAMPLES)),
    "dist": "outlier_channel",
    "shape": "8x8",
    "seed": 0,
    uploads.PICKED: None,
}
# Keys are prefixed with the distribution: parameter names are shared with the scheme (low, high, scale) and
# among distributions (factor), and one widget with two defaults would keep the value of the first, which the
# link omits.
PARAMETERS: dict[str, Any] = {
    f"{name}_{p.name}": float(p.default) for name, d in tensors.DISTRIBUTIONS.items() for p in d.parameters
}
NEW = generated(tensors.Generated())  # the tensor of a page that is opened without a link
UPLOAD = "upload"  # the source with the file field
PASTED, _EDITED, _OF_TEXT = "_pasted", "_edited", "_pasted_read"
_LINKED = "_pasted_linked"  # the tensor of a link, if it is too large to show as text
# The last tensor from any source but the grid; that source; the tensor that the grid started from
_SHOWN, _SOURCE, _START = "_tensor_shown", "_tensor_source", "_tensor_start"
SIDE = 16  # rows and columns of the grid
PLACE = ("cell", "rows", "cols", "at")  # keys of the controls for a place in the tensor (pages/maps)
_GRID_BASE, _GRID_VERSION = "_grid_base", "_grid_version"
_GRID_ROWS, _GRID_COLUMNS = "_grid_rows", "_grid_columns"
_BESIDE = (PASTED, _OF_TEXT, _LINKED, _EDITED, _START, *uploads.BESIDE)  # what sources keep beside controls


def draw() -> PageTensor:
    """Draw the controls and return the tensor.

    Raises:
        NoTensorYet: nothing was pasted or uploaded so far.
        QuantError: what was typed, uploaded or linked is not a tensor.
    """
    st.subheader("Tensor")
    row = st.container(horizontal=True, wrap=False, key="source_row")
    source = row.selectbox(
        "Tensor source", list(_DRAW), key="src", label_visibility="collapsed", bind="query-params"
    )
    try:
        tensor = _DRAW[source]()
    finally:  # after the source, since a file brings its dtype
        dtype = _dtype(row, source)
    if source != "edit":
        st.session_state[_SHOWN], st.session_state[_SOURCE] = tensor, source
        st.session_state.pop(_EDITED, None)  # so that the grid starts from this tensor
    tensor = tensor.in_dtype(dtype)
    _facts(tensor)
    return tensor


def choose(source: str, rank: int, controls: Mapping[str, Any]) -> None:
    """Choose a float32 tensor of ``rank`` axes by the controls of its source (a callback).

    The place that was shown in the previous tensor is forgotten.
    """
    usual = {"src": source, uploads.DTYPE: DEFAULTS[uploads.DTYPE], scheme_state.RANK: rank}
    link.put(usual | dict.fromkeys(PLACE, "") | dict(controls))


def put_text(text: str) -> None:
    """Put a text into the field for pasted ones, as if the visitor had pasted it there (a callback)."""
    for key in (_OF_TEXT, _LINKED):
        st.session_state.pop(key, None)
    st.session_state[PASTED] = text


def put_values(x: np.ndarray) -> str:
    """Make x the tensor, in the grid if it fits there, else as text; return its source (a callback)."""
    state = st.session_state
    fits = x.ndim == 2 and max(x.shape) <= SIDE
    if not fits:
        put_text(write(x))
    else:
        if state["src"] != "edit":
            state[_START] = state.get(_SHOWN, NEW)
        for key in (_GRID_BASE, _GRID_ROWS, _GRID_COLUMNS):
            state.pop(key, None)
        state[_EDITED] = x
    link.put({"src": "edit" if fits else "paste"})
    return str(state["src"])


def put_tensor(tensor: PageTensor) -> None:
    """Choose a tensor of another page, as text if the field has room for it (a callback)."""
    x = np.asarray(tensor.load(), np.float32)
    if x.size <= tensors.MAX_LINK_ELEMENTS:
        put_text(write(x))
    else:
        put_text("")
        st.session_state[_LINKED] = of_values(x, f"of {tensor.name}", name=tensor.name, stored=tensor.stored)
    choose("paste", x.ndim, {uploads.DTYPE: tensor.dtype})


@dataclass(frozen=True)
class Kept:
    """A tensor as its controls have it: their values, what the sources keep beside them, and the file."""

    controls: Mapping[str, Any]
    beside: Mapping[str, Any]
    file: uploads.UploadedFile | None


def kept() -> Kept:
    """Return the tensor, for `restore`."""
    state = st.session_state
    controls = {key: state[key] for key in (*DEFAULTS, *PARAMETERS, *PLACE) if key in state}
    beside = {key: state[key] for key in _BESIDE if key in state}
    return Kept(controls, beside, uploads.kept())


def restore(tensor: Kept) -> None:
    """Show a tensor again that `kept` has returned (a callback)."""
    for key in (*_BESIDE, _GRID_BASE, _GRID_ROWS, _GRID_COLUMNS):
        st.session_state.pop(key, None)
    st.session_state.update(tensor.beside)
    uploads.restore(tensor.file)
    link.put(DEFAULTS | dict.fromkeys(PLACE, "") | dict(tensor.controls))


def _dtype(place: DeltaGenerator, source: str) -> str:
    """Draw the choice of the dtype; float64 is that of a file."""
    names = [name for name in tensors.DTYPES if name != "float64" or source == UPLOAD]
    if choice.before_drawn(uploads.DTYPE) == "float64" and "float64" not in names:
        link.put({uploads.DTYPE: DEFAULTS[uploads.DTYPE]})
    return place.selectbox(
        "dtype", names, key=uploads.DTYPE, label_visibility="collapsed", bind="query-params"
    )


def _facts(tensor: PageTensor) -> None:
    """Draw shape and dtype, and what converting to the dtype changed."""
    what, overflow = tensor.dtype, ""
    if tensor.source is not None:
        found = cache.conversion(tensor)
        what, overflow = found.rounding or what, found.overflow
    read = "float32" if tensor.stored == "float64" else tensor.stored  # of a file, all numbers
    if read not in ("", tensor.dtype):
        what = ("" if what != tensor.dtype else "converted to ") + what
    if tensor.stored == "float64":
        what = f"stored as float64, read as {read}" + ("" if what == read else f", {what}")
    elif read not in ("", tensor.dtype):
        what = f"stored as {read}, {what}"
    st.caption(f"shape {tensor.shape}, {count(tensor.elements, 'element')}, {what}")
    if overflow:
        messages.warning(overflow)


def _generated() -> PageTensor:
    kinds = tensors.DISTRIBUTIONS
    names = {key: kind.name for key, kind in kinds.items()}
    about = "\n".join(f"- **{kind.name}**: {kind.help}" for kind in kinds.values())
    name = choice.selectbox("Distribution", "dist", names, help=about)
    row = st.container(horizontal=True, wrap=False)
    shape = row.text_input(
        "Shape",
        DEFAULTS["shape"],
        key="shape",
        max_chars=60,
        bind="query-params",
        help="For example 64x128; at most 4096x14336.",
    )
    seed = row.number_input(
        "Seed", 0, 2**31, DEFAULTS["seed"], key="seed", bind="query-params", help="Change it for new numbers"
    )
    chosen = []
    if kinds[name].parameters:
        row = st.container(horizontal=True, wrap=False)
        for p in kinds[name].parameters:
            value = row.number_input(
                p.name.capitalize(),
                float(p.low),
                float(p.high),
                float(p.default),
                format="%g",
                key=f"{name}_{p.name}",
                help=p.help,
                bind="query-params",
            )
            chosen.append((p.name, float(value)))
    spec = tensors.Generated(name, tensors.parse_shape(shape), int(seed), tuple(chosen))
    link.carry(None, repr(spec))
    return generated(spec)


def _example() -> PageTensor:
    examples = tensors.EXAMPLES
    titles = {name: example.title for name, example in examples.items()}
    name = choice.selectbox("Example", "ex", titles, label_visibility="collapsed")
    example = examples[name]
    st.caption(f"{example.description} Source: {example.source}")
    link.carry(None, name)
    code = f"x = qc.tensors.EXAMPLES[{name!r}].load()"
    return PageTensor(
        f"example {name}", example.title, example.shape, example.load, code, is_image=example.is_image
    )


def _carried(tensor: PageTensor) -> PageTensor:
    """Return the same tensor; its values go into the link if they fit."""
    link.carry(tensor.load(), tensor.key)
    return tensor


def _pasted() -> PageTensor:
    went = link.went_to_another_tensor()
    if went or PASTED not in st.session_state:
        x = link.tensor_from_link()
        large = x is not None and x.size > tensors.MAX_LINK_ELEMENTS
        if x is not None and not large:
            st.session_state[PASTED] = write(x)
        elif went or large:  # otherwise the browser may still hold a text too large for the link
            st.session_state[PASTED] = ""
        st.session_state[_LINKED] = of_values(x, "from the link") if x is not None and large else None
    text = st.text_area(
        "Values",
        key=PASTED,
        height=180,
        persist_state="session",
        placeholder="0.5, -1.2, 3\n2, 0.25, -4\n\nor a tensor, an array or a list as Python prints it",
        help="Rows of numbers, brackets, the print of a tensor, a table, an array of C, also amid code. "
        "What is pasted is read at once, here and anywhere outside a field; after typing, press Ctrl+Enter.",
    )
    if text.strip():
        return _carried(_of_text(text))
    linked: PageTensor | None = st.session_state.get(_LINKED)
    if linked is not None:
        st.caption(
            messages.plain(f"Shown: the tensor {linked.title}, too large for the field.")
            + " Paste numbers to replace it."
        )
        return _carried(linked)
    link.carry(None, "")
    raise NoTensorYet(
        "There is no tensor yet: paste numbers (Ctrl+V, anywhere on the page), drop a file, or open an "
        "example."
    )


def _of_text(text: str) -> PageTensor:
    """Return the tensor of a pasted text; it brings the dtype that the text names."""
    read = pasted.read(text, "_pasted_which")
    if read is None:
        raise NoTensorYet("The text can be read in several ways; choose the tensor in the sidebar.")
    if st.session_state.get(_OF_TEXT) != (text, read.line, read.dtype):
        st.session_state[_OF_TEXT] = (text, read.line, read.dtype)
        if read.dtype in tensors.HALF:
            link.put({uploads.DTYPE: read.dtype})
    return of_values(read.values, "pasted", name=read.name or "pasted")


def _edited() -> PageTensor:
    away = _EDITED not in st.session_state
    if away or link.went_to_another_tensor():
        for key in (_GRID_BASE, _GRID_ROWS, _GRID_COLUMNS):  # discard what was typed
            st.session_state.pop(key, None)
        # the link may still hold the tensor of the previous source
        x = None if link.carries() else link.tensor_from_link()
        if away or x is None:
            st.session_state[_START] = None if x is not None else st.session_state.get(_SHOWN, NEW)
        start = st.session_state[_START]
        if x is None:  # the first rows and columns of the first plane, as many as fit the grid
            values = cache.values(start).numpy()
            plane = values.reshape(-1, *values.shape[-2:])[0] if values.ndim > 2 else values
            x = np.array(plane[(slice(SIDE),) * plane.ndim], np.float32)
        st.session_state[_EDITED] = x
    if st.session_state[_START] is not None:
        _source_note(st.session_state[_START])
    st.session_state[_EDITED] = x = _grid(st.session_state[_EDITED])
    return _carried(of_values(x, "edited"))


def _grid(x: np.ndarray) -> np.ndarray:
    """Draw an editor for x, of up to 16×16 elements, and return the edited values.

    The widget stores edits relative to the frame it was given, so that frame stays the same until the editor
    disappears (another source, another page) or its size changes; then it restarts from x.

    Raises:
        QuantError: a cell is empty or not a number, or x is too large.
    """
    rows, columns = x.reshape(-1, x.shape[-1]).shape if x.ndim else (1, 1)
    if max(rows, columns) > SIDE or x.ndim > 2:
        raise qc.QuantError(
            f"The grid holds up to {SIDE}×{SIDE} elements, and this tensor has shape {x.shape}; paste it "
            "instead."
        )
    left, right = st.columns(2)
    wanted = (
        left.number_input("Rows", 1, SIDE, rows, key=_GRID_ROWS),
        right.number_input("Columns", 1, SIDE, columns, key=_GRID_COLUMNS),
    )
    values = np.zeros(wanted, np.float32)
    values[:rows, :columns] = x.reshape(rows, columns)[: wanted[0], : wanted[1]]
    version = st.session_state.setdefault(_GRID_VERSION, 0)
    base = st.session_state.get(_GRID_BASE)
    if base is None or base.shape != wanted or f"_grid_{version}" not in st.session_state:
        st.session_state[_GRID_VERSION] = version = version + 1
        import pandas as pd  # here: a first page has no editor

        # as text: a numeric column silently reads 1e-3 as 13
        exact = [[str(v).removesuffix(".0") for v in row] for row in values]
        st.session_state[_GRID_BASE] = base = pd.DataFrame(exact, columns=[str(i) for i in range(wanted[1])])
    # wide enough for their numbers: one too long for its column would lose its first digits
    widths = {c: max(64, 18 + 7 * int(base[c].str.len().max())) for c in base.columns}
    config = {c: st.column_config.TextColumn(c, width=w, alignment="right") for c, w in widths.items()}
    key = f"_grid_{version}"
    typed = st.data_editor(base, key=key, num_rows="fixed", height="content", column_config=config)
    return np.array([[_number(v, r, c) for c, v in enumerate(row)] for r, row in enumerate(typed.to_numpy())])


def _number(typed: object, row: int, column: int) -> np.float32:
    text, cell = str(typed or "").strip().replace("−", "-"), f"The cell in row {row}, column {column}"
    if not text:
        raise qc.QuantError(f"{cell} is empty; type a number.")
    try:
        value = float(text)
    except ValueError:
        raise qc.QuantError(
            f"{cell} contains {text[:40]!r}, which is not a number; type one such as 0.5."
        ) from None
    if np.isfinite(value) and abs(value) > np.finfo(np.float32).max:
        raise qc.QuantError(
            f"{cell} is outside float32, whose largest value is 3.4e38; type a smaller number."
        )
    return np.float32(value)


def _source_note(start: PageTensor) -> None:
    """Show which tensor the cells came from, and a button that returns to it."""
    part = ""
    if len(start.shape) > 2 or any(n > SIDE for n in start.shape):
        part = "×".join(str(min(n, SIDE)) for n in start.shape[-2:])
        part = f"the first {part} elements of " + ("the first plane of " if len(start.shape) > 2 else "")
    st.caption(f"Starts from {part}{messages.plain(start.name)}, shape {start.shape}.")
    short = start.name if len(start.name) <= 30 else "…" + start.name[-22:]  # fits into one or two lines
    st.button(
        f"Back to {messages.plain(short)}",
        on_click=link.put,
        args=({"src": st.session_state.get(_SOURCE, DEFAULTS["src"])},),
        key="_grid_back",
        width="stretch",
        help=f"Show {messages.plain(start.name)} again, without the edits",
    )


def write(x: np.ndarray) -> str:
    """Write a tensor as editable text that parses back to the same float32 values."""
    if x.ndim == 2 and min(x.shape) > 1:
        return "\n".join(", ".join(str(v) for v in row) for row in x)
    return str(np.vectorize(lambda v: float(str(v)), otypes=[object])(x).tolist())


_DRAW = {
    "generate": _generated,
    "example": _example,
    "paste": _pasted,
    "edit": _edited,
    UPLOAD: uploads.draw,
}
