"""The first visit to every page, made at startup by the server itself, so that no visitor waits for imports.

The visit goes through Streamlit's own sessions, before the server answers. What it leaves behind (modules, templates,
cached figures) is then exempt from garbage collection, once: what is frozen while alive is never collected, so
freezing again later would leak.
"""

import asyncio
import gc
import time
from urllib.parse import urlencode

import streamlit as st
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime import Runtime, get_instance
from streamlit.runtime.session_manager import SessionClient

from pages.serving import metrics
from pages.serving.log import log

LONGEST_VISIT = 20.0  # seconds for one page; the server must start in any case


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


async def warm_up(only_first: bool = False) -> None:
    """Open every page and its tabs once, or only the first page, then exempt what stays from garbage collection.

    A page that fails or hangs is logged and does not keep the server from starting.
    """
    began, runtime = time.perf_counter(), get_instance()
    first = await _visit(runtime, "")
    metrics.name_pages(first.pages)
    if not only_first:
        visitors = {"": first} | {page: await _visit(runtime, page) for page in first.pages.values() if page}
        for page, visitor in visitors.items():
            for tab in visitor.tabs:
                await _visit(runtime, page, tab)
    gc.collect()
    gc.freeze()
    opened = "the first page" if only_first else "every page once"
    log.info("Opened %s, in %.1f s", opened, time.perf_counter() - began)


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

    Visitors run in parallel, and threads of one operation that wait for each other cost more than they gain: with
    another process on two cores, a map of 4096×4096 took 1.8 s instead of 0.2 s.
    """
    import torch

    torch.set_num_threads(1)
    return True
