"""A visitor without a browser: HTTP requests and a websocket like those of Streamlit's page, with cookies."""

import asyncio
import hashlib
import re
import time
from types import TracebackType
from urllib.parse import urlencode

import requests
import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Common_pb2 import FileURLs
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState

from benchmarks import visitor

COOKIE = "quantscope_replica"


class Visitor(visitor.Visitor):
    """A visitor who behaves like the page in a browser: keeps cookies and reconnects after a lost connection.

    Attributes:
        link: the current parameters of the address.
        scheme: the scheme text that the page shows.
        maps: a digest of the maps.
        largest_upload: the largest upload that the page accepts, in MiB.
        opened: seconds it took to open the page.
        lost: seconds from losing the connection to the end of the first run completed after that.
    """

    def __init__(self, address: str, **link: object) -> None:
        super().__init__(address.removeprefix("http://"))
        self.address, self.link = address, dict(link)
        self.http = requests.Session()
        self.states: dict[str, WidgetState] = {}
        self.ids: dict[str, str] = {}
        self.scheme = self.maps = ""
        self.largest_upload = 0
        self.opened = self.lost = 0.0

    @property
    def replica(self) -> str:
        return str(self.http.cookies.get(COOKIE, ""))

    async def __aenter__(self) -> "Visitor":
        begin = time.monotonic()
        page = await asyncio.to_thread(self.http.get, f"{self.address}/?{urlencode(self.link)}")
        page.raise_for_status()
        await self.connect()
        await self.run()
        self.opened = time.monotonic() - begin
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.socket.close()
        self.http.close()

    async def connect(self) -> None:
        """Poll the health endpoint until it answers, then open the websocket."""
        while not (await asyncio.to_thread(self.http.get, f"{self.address}/_stcore/health")).ok:
            await asyncio.sleep(0.25)  # as long as the page waits
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.http.cookies)
        protocols = ["streamlit", self.http.cookies["_streamlit_xsrf"], self.session]
        self.socket = await websockets.connect(
            self.address.replace("http://", "ws://") + "/_stcore/stream",
            subprotocols=[websockets.Subprotocol(name) for name in protocols if name],
            additional_headers={"Cookie": cookies},
            max_size=None,
            compression=None,
            proxy=None,
        )
        assert self.socket.response
        for line in self.socket.response.headers.get_all("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.http.cookies.set(name, value, domain="127.0.0.1", path="/")

    def _see(self, delta: Delta) -> None:
        super()._see(delta)
        kind = delta.new_element.WhichOneof("type")
        if not kind:
            return
        content = getattr(delta.new_element, kind)
        key = getattr(content, "id", "").split("-", 2)[-1]
        self.ids[key] = getattr(content, "id", "")
        if key.startswith("_scheme_text"):
            self.scheme = content.value or content.default
        elif key == "maps":
            content.ClearField("id")
            # a visitor's own tokens are not part of what is seen
            seen = re.sub(rb"(arithmetic|live)/[\w-]{22}", b"", content.SerializeToString(deterministic=True))
            self.maps = hashlib.sha256(seen).hexdigest()
        elif kind == "file_uploader":
            self.largest_upload = content.max_upload_size_mb

    async def run(self, *states: WidgetState, fragment: str = "") -> ForwardMsg:
        """Request a run with these widget states and the earlier ones, as the page does; again after loss."""
        self.states |= {state.id: state for state in states}
        self.query = urlencode(self.link)
        lost: float | None = None
        while True:
            try:
                message = await super().run(*self.states.values(), fragment=fragment)
                break
            except websockets.ConnectionClosed:
                lost = lost or time.monotonic()
                await self.connect()
        if lost is not None:
            self.lost = time.monotonic() - lost
        return message

    async def slide(self, key: str, value: float) -> ForwardMsg:
        """Move a slider, which also updates the address."""
        self.link[key] = int(value)
        return await super().slide(key, value)

    async def upload(self, name: str, data: bytes) -> requests.Response:
        """Upload a file; returns the server's response once the run that reads the file has ended."""
        message = BackMsg()
        message.file_urls_request.request_id = "1"
        message.file_urls_request.file_names.append(name)
        message.file_urls_request.session_id = self.session
        await self.socket.send(message.SerializeToString())
        response = await self.end("file_urls_response")
        urls: FileURLs = response.file_urls_response.file_urls[0]
        answer = await asyncio.to_thread(
            self.http.put,
            self.address + urls.upload_url,
            files={name: (name, data)},
            headers={"X-Xsrftoken": self.http.cookies["_streamlit_xsrf"]},
        )
        state = WidgetState(id=self.ids["_upload"])
        state.file_uploader_state_value.uploaded_file_info.add(
            file_id=urls.file_id, name=name, size=len(data), file_urls=urls
        )
        await self.run(state)
        return answer

    async def download(self) -> requests.Response:
        """Download what the Export tab offers."""
        return await asyncio.to_thread(self.http.get, self.address + self.media[-1])
