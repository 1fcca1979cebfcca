"""A tensor from an uploaded file. The file and the chosen tensor are kept for the whole session."""

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any

import streamlit as st

import quantcore as qc
from pages.serving.settings import upload_limit
from pages.shared import messages
from pages.shared.computing import cache, guarded, needs, turn
from pages.shared.state import link
from pages.shared.state.file_field import FileField
from pages.shared.state.selection import NoTensorYet, PageTensor, of_values
from quantcore import tensors

PICKED, DTYPE = "tensor", "dtype"  # name of the chosen tensor, and its dtype on the page; carried by the link
_READ, _WANTED = "_upload_read", "_upload_wanted"
BESIDE = (_READ, _WANTED)
_KEPT = 32 * 2**20  # bytes of a file that Undo keeps; a larger one is asked for again
_TEXT = (".csv", ".tsv", ".txt", ".json")
_LINKED = 1 << 16  # elements; a link never carries more
_LONGEST = 500  # characters of a tensor's name that the link carries


@dataclass(frozen=True, eq=False)
class UploadedFile:
    """An uploaded file and the list of its tensors. ``key`` differs by upload, ``sha256`` by content."""

    key: str
    name: str
    data: bytes
    tensors: tuple[tensors.TensorInfo, ...]
    sha256: str


@dataclass(frozen=True)
class WantedFile:
    """The file that a link shows but does not carry. ``sha256`` is empty for links of earlier versions."""

    name: str
    tensor: str
    sha256: str

    def __str__(self) -> str:
        text = f"the tensor {self.tensor} of the file {self.name}" if self.tensor else f"the file {self.name}"
        return f"{text} (SHA-256 {self.sha256[:12]}…)" if self.sha256 else text


def draw() -> PageTensor:
    """Draw the file controls and return the chosen tensor.

    Raises:
        NoTensorYet: there is no file.
        QuantError: the file or the tensor can't be read.
    """
    file, parameters = _FIELD.content, st.query_params
    digest = parameters.get(link.DIGEST)
    if file is not None and link.from_history() and digest not in (None, file.sha256):
        # Back or Forward led to a link of another file
        name, picked = parameters.get(link.FILE, ""), parameters.get(PICKED, "")
        st.session_state[_WANTED] = WantedFile(name, picked, digest)
    _FIELD.draw(
        "File",
        type=[*tensors.EXTENSIONS, *tensors.IMAGES],
        label_visibility="collapsed",
        help=f"Up to {upload_limit() >> 20} MB. Nothing in it is ever executed. A file can also be dropped "
        "anywhere on any page, and a copied image pasted.",
    )
    if _FIELD.problem:
        raise qc.QuantError(_FIELD.problem)
    file = _FIELD.content
    if file is None:
        return _from_link()
    return _chosen(file, _check_wanted(file))


def _keep(given: list[Any]) -> UploadedFile:
    """Keep a file that was just uploaded, and choose its first weight."""
    (uploaded,) = given
    name, data = uploaded.name, uploaded.getvalue()
    with turn.current() as mine:
        mine.need(int(needs.READING * len(data)))  # listing the tensors of a text file reads all of it
        found = guarded.list_tensors(data, name)
    names = [info.name for info in found]
    # if the link names one of its tensors, the file was uploaded for that tensor
    if _FIELD.content is not None or st.query_params.get(PICKED) not in names:
        link.put({PICKED: tensors.first_weight(found).name if len(names) > 1 else None})
    return UploadedFile(uploaded.file_id, name, data, found, hashlib.sha256(data).hexdigest())


def _forget() -> None:
    """Forget the tensor of a removed file; the link still asks for the one that it shows."""
    st.session_state.pop(_READ, None)
    if st.session_state.pop(_WANTED, None) is None:
        st.session_state[PICKED] = None
        link.forget()


_FIELD = FileField("_upload", _keep, lambda file: file.name, _forget)


def kept() -> UploadedFile | None:
    """Return the file, for `restore`, if it is small enough to be kept beside another one."""
    file = _FIELD.content
    return file if file is not None and len(file.data) <= _KEPT else None


def restore(file: UploadedFile | None) -> None:
    """Show a file again, after what is kept beside the field (a callback)."""
    _FIELD.put(file)
    read = st.session_state.get(_READ)
    if file is None and read is not None and read[0][0] != "link":
        del st.session_state[_READ]  # of a file that was not kept


def _check_wanted(file: UploadedFile) -> bool:
    """Accept only the file that the link shows, unless the visitor wants the other; return if a link did.

    Raises:
        NoTensorYet: it is another file.
    """
    wanted: WantedFile | None = st.session_state.get(_WANTED)
    # a link without a digest asks for a name
    found = wanted and (file.sha256 == wanted.sha256 if wanted.sha256 else file.name == wanted.name)
    if wanted is None or found or st.query_params.get(link.FILE) != wanted.name:
        st.session_state.pop(_WANTED, None)
        return bool(found)
    forget = partial(st.session_state.pop, _WANTED, None)
    st.button(f"Show {messages.plain(file.name)}", on_click=forget, key="_upload_other", width="stretch")
    same = " has the same name, but" if file.name == wanted.name else ""
    raise NoTensorYet(
        f"This link shows {wanted}; {file.name}{same} is another file (SHA-256 {file.sha256[:12]}…). Upload "
        "the one that the link shows, or press Show in the sidebar to see this one."
    )


def _chosen(file: UploadedFile, as_linked: bool) -> PageTensor:
    """Return the chosen tensor of the file, read once; its dtype is chosen, unless the link names one."""
    info = file.tensors[0] if len(file.tensors) == 1 else _pick(file.tensors)
    identity = (file.key, info.name)
    known = st.session_state.get(_READ)
    if known is None or known[0] != identity:
        st.session_state[_READ] = known = (identity, _read(file, info))
        if not as_linked and not link.from_history():
            link.put({DTYPE: info.dtype_name if info.dtype_name in tensors.HALF else "float32"})
    if info.how:
        st.caption(info.how)
    elif not info.is_floating and not any(other.is_floating for other in file.tensors):
        st.caption(f"No tensor in this file has a floating-point type: this one is {info.dtype_name}.")
    tensor: PageTensor = known[1]
    x = cache.values(tensor).numpy() if tensor.elements <= _LINKED else None
    link.carry(x, tensor.key, file.name, file.sha256)
    return tensor


def _read(file: UploadedFile, info: tensors.TensorInfo) -> PageTensor:
    """Read the tensor when it is this visitor's turn; values are cached, and the session keeps the file."""
    own = "" if info.name == file.name else info.name
    load = partial(guarded.read_tensor, file.data, file.name, info)
    with turn.current() as mine:
        unpacked = len(file.data) + info.nbytes
        mine.need(int(max(needs.USUAL * 4 * math.prod(info.shape), needs.READING * len(file.data), unpacked)))
        x = load()
        read = of_values(
            x,
            f"{file.name} {own}".strip(),
            name=own or file.name,
            stored="text" if PurePath(file.name).suffix.lower() in _TEXT else info.dtype_name,
            is_image=tensors.is_image(file.name),
        )
        read = dataclasses.replace(read, load=load)
        cache.known(read, x)
    return read


def _pick(infos: tuple[tensors.TensorInfo, ...]) -> tensors.TensorInfo:
    """Draw the choice of a tensor, and below it the full name, which the field may truncate."""
    by_name = {info.name: info for info in infos}
    if st.session_state.get(PICKED) not in by_name and st.query_params.get(PICKED) not in by_name:
        link.put({PICKED: tensors.first_weight(infos).name})
    short = max(map(len, by_name)) <= _LONGEST
    persistence: dict[str, Any] = {"bind": "query-params"} if short else {"persist_state": "session"}
    name = st.selectbox(
        "Tensor in the file", list(by_name), index=None, key=PICKED, required=True, **persistence
    )
    info = by_name.get(str(name)) or tensors.first_weight(infos)
    st.caption(messages.plain(info.name))
    return info


def _from_link() -> PageTensor:
    """Return the tensor that the link carries, if no file is uploaded.

    Raises:
        NoTensorYet: the link carries none.
    """
    if _READ not in st.session_state or link.went_to_another_tensor():
        name, picked, digest = (st.query_params.get(key) for key in (link.FILE, PICKED, link.DIGEST))
        # the link may still hold the tensor of the previous source
        x = None if link.carries() else link.tensor_from_link()
        if x is None:
            st.session_state.pop(_READ, None)
            link.carry(None, "", name, digest)
        if x is None and name:
            st.session_state[_WANTED] = wanted = WantedFile(name, picked or "", digest or "")
            raise NoTensorYet(
                f"This link shows {wanted}, which it does not carry: upload the file in the sidebar."
            )
        if x is None:
            raise NoTensorYet(
                "There is no tensor yet: upload a file in the sidebar, paste an image, or choose another "
                "source."
            )
        title = f"{name} {picked or ''}".strip() if name else "from the link"
        read = of_values(x, title, name=picked or name or "", is_image=tensors.is_image(name or ""))
        st.session_state[_READ] = (("link", name, digest), read)
    (_, file, digest), tensor = st.session_state[_READ]
    st.caption(f"Shown: {messages.plain(tensor.title)}")
    link.carry(tensor.load(), tensor.key, file, digest)
    result: PageTensor = tensor
    return result
