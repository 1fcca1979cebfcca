"""What is pasted or dropped anywhere on a page: where it goes, a notice that says so, and Undo.

The browser (pages/browser/paste.js) sends the text, or names and sizes of the files that it holds. The answer
is a notice, and for files the field into which the browser then puts them, as if they were uploaded there.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.browser import streamlit_dom
from pages.models import keys as model_keys
from pages.serving.settings import upload_limit
from pages.shared import messages
from pages.shared.page import TENSOR, Page
from pages.shared.state import leaving, link, selection
from pages.sidebar import changed, ends, match_fields, scheme_state, tensor_controls, uploads
from quantcore import tensors
from quantcore.wording import joined, megabytes, printable, short

_NOTICE, _DELIVERY, _PAGE = "_brought", "_brought_delivery", "_brought_page"
_LASTS = 20.0  # seconds; the first run after that takes the notice away
_MOST = 8  # files to choose among
_FILES = 500  # that can be dropped at once; as many as a checkpoint may have
_EXPLORE = "explore/explore/page.py"


@dataclass(frozen=True)
class Target:
    """Where files go.

    Attributes:
        selector: of the field for files; ``opener``: of the button that shows it, if there is one.
        keys: of the controls that the files change.
        script: of the page with the field; empty if every page has it.
        prepare: values of controls that show the field.
    """

    selector: str
    keys: frozenset[str]
    opener: str = ""
    script: str = ""
    prepare: Mapping[str, Any] = field(default_factory=dict)


_AS_TENSOR = Target(
    "[class*=st-key-_upload] input[type=file]", frozenset(), prepare={"src": tensor_controls.UPLOAD}
)
_AS_CHECKPOINT = Target(
    "[class*=st-key-_ck_upload] input[type=file]",
    frozenset({model_keys.SLOTS[""], model_keys.FILES[""]}),
    streamlit_dom.filled(".st-key-opening_ck %popover% button"),
    "models/checkpoint/page.py",
)
_AS_CODE = Target(
    f".st-key-{match_fields.CODE_FILE} input[type=file]",
    frozenset({match_fields.SOURCE, match_fields.CODE}),
    script="compare/match/page.py",
    prepare={match_fields.SOURCE: "code"},
)


@dataclass(frozen=True)
class Way:
    """A way to take files: what a button calls it, what the notice says, which files go where."""

    label: str
    sentence: str
    files: tuple[int, ...]
    target: Target


@dataclass(frozen=True)
class _Notice:
    """What the page says of what was brought.

    Attributes:
        sentence: what became of it, or why it was not taken.
        script: of the page that shows it.
        ways: what the visitor may choose.
        undo: the tensor and the values of controls before, and the page and its parameters; None: nothing
            was changed.
        source: of the tensor, which ends the notice when it is no longer chosen.
        since: when, on the clock `time.monotonic`.
    """

    sentence: str
    script: str
    ways: tuple[Way, ...] = ()
    undo: "_Before | None" = None
    source: str = ""
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class _Before:
    tensor: tensor_controls.Kept | None
    controls: Mapping[str, Any]
    script: str
    parameters: Mapping[str, str]


def take(asked: Mapping[str, Any]) -> None:
    """Take a text, or say where files go (a callback).

    Args:
        asked: ``{"text": …}``, or ``{"files": [{"name": …, "size": …}, …]}``.
    """
    st.session_state.pop(_NOTICE, None)
    try:
        if "text" in asked:
            _take_text(str(asked["text"]))
            return
        files = [(printable(str(file["name"]), 80), int(file["size"])) for file in asked["files"]]
        found = ways(files, _page().section)
    except qc.QuantError as error:
        _say(_Notice(str(error), _page().script))
        return
    if len(found) == 1:
        _follow(found[0])
    else:
        offered = {number for way in found for number in way.files}
        others = [short(name) for number, (name, _) in enumerate(files) if number not in offered]
        rest = f" {joined(others[:3])} can't be opened here." if others else ""
        _say(_Notice(f"Which of these files?{rest}", _page().script, tuple(found)))


def change_value(typed: str) -> None:
    """Make the tensor of this run, with one value changed, the tensor (a callback).

    Args:
        typed: index and value, as in `changed.moved`.
    """
    tensor = selection.get().tensor
    assert tensor is not None
    undo = _before(frozenset(), with_tensor=True)
    try:
        x, index, value = changed.take(tensor, typed)
    except qc.QuantError as error:
        _say(_Notice(str(error), _page().script))
        return
    source = tensor_controls.put_values(x)
    link.put({"cell": ", ".join(map(str, index))})
    sentence = f"Element ({', '.join(map(str, index))}) changed to {value:g}."
    _say(_Notice(sentence, _page().script, undo=undo, source=source))


def change_ends(typed: str) -> None:
    """Fix the range to the ends that were dragged in a histogram (a callback).

    Args:
        typed: the ends, as in `ends.keep`.
    """
    scheme = selection.get().scheme
    assert scheme is not None
    before = scheme_state.range_choices(scheme.range_setting)
    low, high = ends.keep(typed)
    _changed(f"Range changed to {low:g} … {high:g}.", before)


def change_bits(typed: str) -> None:
    """Keep the bits that were seen while they were played (a callback)."""
    before = {"bits": st.session_state["bits"]}
    link.put({"bits": int(typed)})
    _changed(f"Bits changed to {typed}.", before)


def delivery() -> dict[str, Any] | None:
    """Return what the browser is to do with the files that it holds: a number, which ones, and the field."""
    found: dict[str, Any] | None = st.session_state.get(_DELIVERY)
    return found


def draw(page: Page, place: DeltaGenerator) -> None:
    """Draw the notice, if there is one; call it in each run, after the sidebar."""
    st.session_state[_PAGE] = page
    notice: _Notice | None = st.session_state.get(_NOTICE)
    if notice is None:
        return
    if leaving.is_asked():
        return
    left = bool(notice.source) and st.session_state["src"] != notice.source
    if left or page.script != notice.script or time.monotonic() - notice.since > _LASTS:
        st.session_state.pop(_NOTICE)
        return
    with place.container(key="qs_brought", horizontal=True, vertical_alignment="center", gap="small"):
        elsewhere = bool(notice.source) and TENSOR not in page.used()
        st.markdown(messages.plain(notice.sentence + " It is the tensor of other pages." * elsewhere))
        for number, way in enumerate(notice.ways):
            label = messages.plain(way.label)
            st.button(label, key=f"_brought_way_{number}", on_click=_follow, args=(way,))
        if elsewhere:
            st.button("Open Explore", key="_brought_open", on_click=leaving.to, args=(_EXPLORE,))
        if notice.undo is not None:
            st.button("Undo", key="_brought_undo", on_click=_undo, args=(notice.undo,), type="primary")
        st.button(
            "Close",
            key="_brought_close",
            on_click=st.session_state.pop,
            args=(_NOTICE, None),
            type="tertiary",
        )


def ways(files: Sequence[tuple[str, int]], section: str) -> list[Way]:
    """Return the ways to take files, by name and size in bytes, on a page of a section.

    Raises:
        QuantError: there is none; the message says why.
    """
    from quantcore.checkpoints import OPENERS  # here: no first page needs it

    most = upload_limit()
    for name, size in files:
        if size > most:
            raise qc.QuantError(
                f"{short(name)} has {megabytes(size)}; at most {megabytes(most)} can be opened here."
            )
    if len(files) > _FILES:
        raise qc.QuantError(f"These are {len(files):,} files; at most {_FILES} can be opened at once.")
    every = [(number, name, name.lower()) for number, (name, _) in enumerate(files)]
    parts = [(n, name) for n, name, lower in every if lower.endswith((*OPENERS, ".json"))]
    is_checkpoint = any(name.lower().endswith(tuple(OPENERS)) for _, name in parts)
    as_tensor = [way for way in every if way[2].endswith((*tensors.EXTENSIONS, *tensors.IMAGES))]
    only = is_checkpoint and not {n for n, _ in parts} <= {n for n, *_ in as_tensor}
    found = []
    if is_checkpoint and (only or len(files) > 1 or section == "Models"):
        label = f"{len(parts)} files as a checkpoint" if len(parts) > 1 else parts[0][1]
        found.append(Way(label, f"{label}: opened here.", tuple(n for n, _ in parts), _AS_CHECKPOINT))
    if not (found and section == "Models"):
        found += [Way(name, f"{name} is the tensor.", (n,), _AS_TENSOR) for n, name, _ in as_tensor]
        codes = [(n, name) for n, name, lower in every if lower.endswith((".ipynb", ".py"))]
        found += [Way(name, f"{name}: its code is read here.", (n,), _AS_CODE) for n, name in codes]
    if not found:
        kinds = ", ".join(dict.fromkeys((*tensors.EXTENSIONS, *tensors.IMAGES, *OPENERS, ".ipynb", ".py")))
        names = joined([short(name) for name, _ in files[:3]])
        raise qc.QuantError(f"{names} can't be opened here: {kinds} files can.")
    return found[:_MOST]


def _take_text(text: str) -> None:
    """Make the tensor in a text the tensor.

    Raises:
        QuantError: there is none that can be read.
    """
    found = tensors.parse_all(text)
    if len(found) == 1 and found[0].error:
        raise qc.QuantError(found[0].error)
    undo = _before(frozenset(), with_tensor=True)
    rank = found[0].values.ndim if len(found) == 1 else 2
    tensor_controls.choose("paste", rank, {uploads.DTYPE: st.session_state[uploads.DTYPE]})
    tensor_controls.put_text(text)
    what = "several tensors, to choose from in the sidebar"
    if len(found) == 1:
        shape = found[0].values.shape
        what = f"a tensor of shape {shape}" if shape else "one number"
    _say(_Notice(f"Pasted: {what}.", _page().script, undo=undo, source="paste"))


def _follow(way: Way) -> None:
    """Tell the browser where to put files, on the page that has the field (a callback)."""
    target, page = way.target, _page()
    is_tensor = target is _AS_TENSOR
    undo = _before(target.keys, with_tensor=is_tensor)
    if is_tensor:
        tensor_controls.choose(tensor_controls.UPLOAD, 2, {})
    elif target.prepare:
        link.put(target.prepare)
    last = st.session_state.get(_DELIVERY) or {"number": 0}
    st.session_state[_DELIVERY] = {
        "number": last["number"] + 1,
        "files": way.files,
        "field": target.selector,
        "opener": target.opener,
    }
    script = page.script
    if target.script and not (target is _AS_CHECKPOINT and page.section == "Models"):
        script = target.script
    if script != page.script:
        leaving.to(script)
    source = tensor_controls.UPLOAD if is_tensor else ""
    _say(_Notice(way.sentence, script, undo=undo, source=source))


def _before(controls: frozenset[str], with_tensor: bool) -> _Before:
    """Return what Undo needs."""
    kept = tensor_controls.kept() if with_tensor else None
    values = {key: st.session_state.get(key) for key in controls}
    return _Before(kept, values, _page().script, st.query_params.to_dict())


def _changed(sentence: str, before: Mapping[str, Any]) -> None:
    """Say what was changed, with Undo to the values of controls before."""
    script = _page().script
    _say(_Notice(sentence, script, undo=_Before(None, before, script, {})))


def _undo(before: _Before) -> None:
    """Restore what was there (a callback)."""
    st.session_state.pop(_NOTICE, None)
    if before.tensor is not None:
        tensor_controls.restore(before.tensor)
    link.put(before.controls)
    if before.script != _page().script:
        leaving.to(before.script, before.parameters)


def _say(notice: _Notice) -> None:
    st.session_state[_NOTICE] = notice


def _page() -> Page:
    page: Page = st.session_state[_PAGE]
    return page
