"""A visitor without a browser: one session that speaks Streamlit's protocol over a websocket.

It reads no more than necessary, so that hundreds of visitors leave most of a core to the server.
"""

import asyncio
from types import TracebackType

import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState

LONGEST_END = 256  # bytes of a message that ends a run


class Visitor:
    """A session at ``host`` (``127.0.0.1:8501``).

    Attributes:
        host: the server, as in an address.
        page: the last part of the page's address.
        query: the parameters in the address.
        sliders: for the last run, each slider's id and the fragment that draws it, by the slider's key.
        headers: of the request that opens the session.
        pages: the last parts of all pages' addresses, once a run has ended.
        media: addresses of the files that the page has offered for download.
        session: the server's name for the session, once a run has ended.
        texts: what the page has shown since the last run was requested, in order of arrival.
        received: bytes of all messages so far.
        brief: read only the ends of runs, if the sliders are known.
    """

    def __init__(self, host: str, page: str = "", query: str = "", headers: dict[str, str] | None = None):
        self.host, self.page, self.query, self.headers = host, page, query, headers or {}
        self.sliders: dict[str, tuple[str, str]] = {}
        self.pages: list[str] = []
        self.media: list[str] = []
        self.texts: list[str] = []
        self.session = ""
        self.received, self.brief = 0, False

    async def __aenter__(self) -> "Visitor":
        """Open the session; nothing runs yet."""
        self.socket = await websockets.connect(
            f"ws://{self.host}/_stcore/stream",
            subprotocols=[websockets.Subprotocol("streamlit")],
            additional_headers=self.headers,
            max_size=None,
            compression=None,
            ping_interval=None,
            proxy=None,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave."""
        await self.socket.close()

    async def run(self, *states: WidgetState, fragment: str = "") -> ForwardMsg:
        """Request a run of the page with these widgets changed; return the message that ends it."""
        await self.ask(*states, fragment=fragment)
        return await self.end()

    async def ask(self, *states: WidgetState, fragment: str = "") -> None:
        """Request a run without waiting for it."""
        self.texts.clear()
        asked = BackMsg()
        asked.rerun_script.page_name = self.page
        asked.rerun_script.query_string = self.query
        asked.rerun_script.fragment_id = fragment
        asked.rerun_script.widget_states.widgets.extend(states)
        await self.socket.send(asked.SerializeToString())

    async def end(self, last: str = "script_finished") -> ForwardMsg:
        """Read what the server sends until a message of this type, which ends a run."""
        while True:
            data = await self.socket.recv()
            assert isinstance(data, bytes)
            self.received += len(data)
            if self.brief and len(data) > LONGEST_END:
                continue
            message = ForwardMsg.FromString(data)
            kind = message.WhichOneof("type")
            if kind == "delta":
                self._see(message.delta)
            elif kind == "new_session":
                self.session = message.new_session.initialize.session_id
            elif kind == "navigation":
                self.pages = [page.url_pathname for page in message.navigation.app_pages]
            if kind == last:
                return message

    def _see(self, delta: Delta) -> None:
        """Record an element's text, or how it is used."""
        element = delta.new_element
        kind = element.WhichOneof("type")
        if kind == "slider":
            key = element.slider.id.split("-", 2)[-1]
            self.sliders[key] = (element.slider.id, delta.fragment_id)
        elif kind == "download_button" and element.download_button.url:
            self.media.append(element.download_button.url)
        elif kind in ("alert", "markdown", "html"):
            self.texts.append(getattr(element, kind).body)

    async def slide(self, key: str, value: float) -> ForwardMsg:
        """Move the slider that is bound to the address parameter ``key``."""
        slider, fragment = self.sliders[key]
        self.query = "&".join(
            [*(q for q in self.query.split("&") if q and not q.startswith(f"{key}=")), f"{key}={value:g}"]
        )
        state = WidgetState(id=slider)
        state.double_array_value.data.append(value)
        return await self.run(state, fragment=fragment)


async def visit(host: str, page: str = "", query: str = "") -> Visitor:
    """Open a page in its own session, wait for it, and leave."""
    async with asyncio.timeout(60), Visitor(host, page, query) as visitor:
        await visitor.run()
    return visitor
