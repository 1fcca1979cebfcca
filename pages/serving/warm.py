"""The first visit to every page, made by the server itself, so that no visitor waits for imports.

The visits go through Streamlit's own sessions. The first page is opened before the server answers, the others
behind it: one after another, each when no visitor is being served. What the visits leave behind (modules,
templates, cached figures) is exempt from garbage collection: after the first page, and once more after the
last. What is frozen alive is never collected, so both are moments without a visitor's session. All that a
visitor can leave in them are results that are still cached, within the bounds of the caches.
"""

import asyncio
import gc
import time
from importlib import import_module
from urllib.parse import urlencode

import streamlit as st
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime import Runtime, get_instance
from streamlit.runtime.session_manager import SessionClient

from pages.serving import metrics
from pages.serving.activity import VISITORS
from pages.serving.log import log

LONGEST_VISIT = 20.0  # seconds for one page; the server must start in any case
BETWEEN_LOOKS = 1.0  # seconds between two looks for a moment without sessions


class Visitor(SessionClient):
    """A visitor without a browser, who learns from the responses what there is to open.

    Attributes:
        pages: ids and addresses of all pages.
        tabs: parameters that open the page's tabs other than the first; a tab is drawn only when open.
    """

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.tabs: list[str] = []
        self._tab_key = self._first_tab = ""

    def write_forward_msg(self, msg: ForwardMsg) -> None:
        """Receive a message from the server."""
        if msg.WhichOneof("type") == "navigation":
            self.pages = {page.page_script_hash: page.url_pathname for page in msg.navigation.app_pages}
        elif msg.WhichOneof("type") == "delta" and msg.delta.WhichOneof("type") == "add_block":
            tabs, label = msg.delta.add_block.tab_container, msg.delta.add_block.tab.label
            if tabs.query_param_key:
                self._tab_key, self._first_tab = tabs.query_param_key, tabs.default_tab_label
            elif self._tab_key and label and label != self._first_tab:
                self.tabs.append(urlencode({self._tab_key: label}))


async def open_first_page() -> Visitor:
    """Open the first page, before the server answers, and return who has seen it.

    Automatic garbage collection is on afterwards. The entry turns it off before it imports anything:
    collections of what imports leave, which is kept anyway, would take a quarter of the time.
    """
    began, runtime = time.perf_counter(), get_instance()
    try:
        first = await _visit(runtime, "")
        metrics.name_pages(first.pages)
        _freeze()
    finally:
        gc.enable()
    log.info("Opened the first page, in %.1f s", time.perf_counter() - began)
    return first


async def open_other_pages(first: Visitor) -> None:
    """Open every page but the first, and the tabs of all, once; each when no visitor is being served.

    A page that fails or hangs is logged, and the next one is opened.

    Args:
        first: who has seen the first page, and so the addresses of the others.
    """
    began, runtime = time.perf_counter(), get_instance()
    seen = {"": first}
    await asyncio.to_thread(import_module, "pandas")  # at once: see pages/main.py
    for page in filter(None, first.pages.values()):
        await VISITORS.rest()
        seen[page] = await _visit(runtime, page)
    for page, visitor in seen.items():
        for tab in visitor.tabs:
            await VISITORS.rest()
            await _visit(runtime, page, tab)
    took, is_frozen = time.perf_counter() - began, _freeze_if_alone(runtime)
    log.info("Opened every page once, %.1f s after the first", took)
    while not is_frozen:
        await asyncio.sleep(BETWEEN_LOOKS)
        is_frozen = _freeze_if_alone(runtime)


def _freeze_if_alone(runtime: Runtime) -> bool:
    """Freeze what is alive if no visitor's session is; tell whether."""
    # also those kept for two minutes after their visitor has left; Streamlit has no public way to ask
    is_alone = not runtime._session_mgr.list_sessions()
    if is_alone:
        _freeze()
    return is_alone


def _freeze() -> None:
    """Exempt what is alive from garbage collection."""
    gc.collect()
    gc.freeze()


async def _visit(runtime: Runtime, page: str, query: str = "") -> Visitor:
    """Open a page in a session of its own, which is closed afterwards."""
    visitor = Visitor()
    session_id = runtime.connect_session(client=visitor, user_info={})
    try:
        session = runtime.get_app_session(session_id)
        assert session is not None  # connected above, on this thread
        session.track_settling()
        opened = BackMsg()
        opened.rerun_script.page_name, opened.rerun_script.query_string = page, query
        runtime.handle_backmsg(session_id, opened)
        async with asyncio.timeout(LONGEST_VISIT):
            await session.wait_until_settled()
    except TimeoutError:
        log.warning(
            "The warm-up gave up on /%s, which took more than %g s: its first visitor will have to wait",
            page,
            LONGEST_VISIT,
        )
    finally:
        runtime.close_session(session_id)
    return visitor


@st.cache_resource(show_spinner=False)
def one_thread() -> bool:
    """Make torch compute in the thread that calls it, whichever entry point started the app.

    Visitors run in parallel, and threads of one operation that wait for each other cost more than they gain:
    with another process on two cores, a map of 4096×4096 took 1.8 s instead of 0.2 s.
    """
    import torch

    torch.set_num_threads(1)
    return True
