"""The controls that open a checkpoint."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.models.keys import FILES, PLACE, SLOTS
from pages.models.opening.opened import EXAMPLE, CheckpointLocation, OpenCheckpoint, Progress, location_of
from pages.models.opening.uploads import UPLOAD, NotUploaded, UploadedFiles
from pages.serving import models_folder, remote
from pages.shared import messages, page_frame
from pages.shared.computing import turn
from pages.shared.state import leaving, link, sharing
from quantcore.checkpoints import EXAMPLES
from quantcore.wording import megabytes

_PATIENCE = 0.3  # seconds; progress is shown only after this long


def choose(slot: str = "", label: str = "Checkpoint", example: str = "") -> OpenCheckpoint | None:
    """Draw the controls of a slot; return what has been opened, None if nothing is or it can't be opened.

    Problems are reported here.

    Args:
        example: what the page shows until something is chosen.
    """
    key = SLOTS[slot]
    row = st.container(horizontal=True, vertical_alignment="center", wrap=False, key=f"opening_{key}")
    address, popover = (
        row.container(key=f"opening_{key}_address"),
        row.popover("Upload", icon=":material/upload:"),
    )
    meter = row.container(key=f"opening_{key}_meter")
    uploads = UploadedFiles(key, FILES[slot])
    carried = [each for each in (key, FILES[slot]) if _carry_over(each)]
    with popover:  # first, since a new upload sets the address
        uploaded = uploads.draw()
    typed = _address(address, key, label, uploaded, example)
    for each in (key, FILES[slot]):
        st.session_state[f"_{each}_last"] = st.session_state[each]
    for each in carried:
        link.write_bound(each, st.session_state[each])
    if not typed:
        return None
    try:
        with _header_progress(meter.empty()) as progress:
            if typed.startswith(UPLOAD):
                opened, place = uploads.open(progress), None
                asks = f"The link asks whoever opens it for {uploads.named()}: send that along."
                sharing.note(messages.plain(asks))
            else:
                place = location_of(typed, models_folder.current())
                opened = place.open(progress)
    except NotUploaded as request:
        st.info(messages.plain(str(request)), icon=":material/upload:")
        uploads.offer_own()
        return None
    except qc.QuantError as error:
        messages.error(str(error))
        return None
    _draw_meter(meter, key, opened, place)
    return opened


def show_tensor(page: str, keys: set[str], place: Mapping[str, str]) -> None:
    """Go from a page to a tensor on the page Checkpoint; the browser's Back restores the page (a callback).

    Args:
        keys: of the controls of the page.
        place: values of controls in `PLACE`.
    """
    kept = {key: st.session_state[key] for key in keys & set(st.session_state)}
    st.session_state.update(kept)  # that page does not draw the controls of this one
    leaving.remember(page, kept)
    for key in PLACE:  # left there by an earlier visit
        st.session_state.pop(key, None)
    # both pages bind the checkpoints, so they stay in the address
    leaving.to("models/checkpoint/page.py", place)


def _carry_over(key: str) -> bool:
    """Give a control that several pages draw the value it had on another; return whether it was missing here.

    The session still has the value, but this page's control would start without it.
    """
    last = st.session_state.get(f"_{key}_last")
    if not last or key in st.query_params or st.session_state.get(key, last) != last:
        return False
    st.session_state[key] = last
    return True


def _address(place: DeltaGenerator, key: str, label: str, uploaded: list[str], example: str) -> str | None:
    """Draw the address field: a menu of what can be opened, which also takes typed addresses."""
    root = models_folder.current()
    ways = [*(["a path"] if root else []), *(f"{scheme}://" for scheme in remote.current().hosts.schemes())]
    found = models_folder.checkpoints_in(root) if root else []
    examples = [f"{EXAMPLE}{name}" for name in EXAMPLES]
    now = st.session_state.get(key) or st.query_params.get(key)
    hint = "Choose" + (f", or type {' or '.join(ways)}" if ways else " an example, or upload files")
    typed: str | None = place.selectbox(
        label,
        list(dict.fromkeys([*filter(None, [now]), *uploaded, *examples, *found])),
        index=None,
        key=key,
        bind="query-params",
        accept_new_options=True,
        filter_mode="contains",
        placeholder=f"{example}; choose or upload another" if example else hint,
    )
    return typed.strip() if typed else None


def _draw_meter(
    place: DeltaGenerator, key: str, opened: OpenCheckpoint, at: CheckpointLocation | None
) -> None:
    """Show how much has been read, and for a remote checkpoint a button that opens it again."""
    with place.container(horizontal=True, vertical_alignment="center", wrap=False):
        text = st.empty()
        if at is not None and at.is_remote:
            st.button(
                "Open again",
                icon=":material/refresh:",
                key=f"_{key}_again",
                on_click=at.forget,
                type="tertiary",
                help="If the files there have changed",
            )
    _write_meter(text, opened)
    page_frame.at_end(partial(_write_meter, text, opened))


def _write_meter(place: DeltaGenerator, opened: OpenCheckpoint) -> None:
    read, total = opened.checkpoint.counter.different, opened.total_bytes
    place.caption(
        f"{megabytes(read)} of {megabytes(total)} read",
        help="How much of the files all visitors together have read since they were opened",
    )


@contextmanager
def _header_progress(place: DeltaGenerator) -> Iterator[Progress]:
    """Show how many files have been opened, once that takes a while; end the run if it was replaced."""
    since = time.monotonic()

    def show(done: int, of: int) -> None:
        turn.check()
        if time.monotonic() - since > _PATIENCE:
            place.caption(f"Reading headers: {done:,} of {of:,} files")

    try:
        yield show
    finally:
        place.empty()
