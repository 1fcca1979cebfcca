"""A visitor without a browser: a session that speaks Streamlit's protocol, and a server for it to visit."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets import Subprotocol
from websockets.sync.client import connect

ROOT = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def server(environment: Mapping[str, str] = {}) -> Iterator[tuple[int, int]]:
    """Run the app on a free port of the loopback; yield the port and the process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless=true"]
    process = subprocess.Popen(
        [*command, "--server.address=127.0.0.1", f"--server.port={port}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1)
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("The server does not start; run `streamlit run app.py` to see why.")
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


class Session:
    """One visitor's connection to a page, whose link has the given parameters.

    Attributes:
        texts: what the page has said since the last change, in the order in which it arrived.
        widgets: label -> id of the page's number fields and sliders.
    """

    def __init__(self, port: int, page: str = "", **parameters: object) -> None:
        self._open = contextlib.ExitStack()
        address = f"ws://127.0.0.1:{port}/_stcore/stream"
        self.socket = self._open.enter_context(
            connect(address, subprotocols=[Subprotocol("streamlit")], max_size=None)
        )
        self.page, self.query = page, urlencode(parameters)
        self.texts: list[str] = []
        self.widgets: dict[str, str] = {}
        self.states: dict[str, WidgetState] = {}

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the page."""
        self._open.close()

    def ask(self) -> None:
        """Ask for a run of the page with the widgets as they are."""
        message = BackMsg()
        message.rerun_script.query_string = self.query
        message.rerun_script.page_name = self.page
        message.rerun_script.widget_states.widgets.extend(self.states.values())
        self.socket.send(message.SerializeToString())

    def move(self, label: str, value: float) -> None:
        """Set a slider, and ask for a run."""
        state = WidgetState(id=self.widgets[label])
        state.double_array_value.data[:] = [value]
        self.states[label] = state
        self.ask()

    def answer(self, timeout: float = 120) -> float:
        """Seconds until the run is finished; raises TimeoutError."""
        start = time.monotonic()
        self.texts.clear()
        while True:
            message = ForwardMsg()
            message.ParseFromString(self.socket.recv(start + timeout - time.monotonic()))
            kind = message.WhichOneof("type")
            if kind == "delta":
                self._read(message.delta)
            elif kind == "script_finished" and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                return time.monotonic() - start

    def _read(self, delta: Delta) -> None:
        element = delta.new_element
        kind = element.WhichOneof("type")
        if kind == "slider":
            self.widgets[element.slider.label] = element.slider.id
        elif kind == "alert":
            self.texts.append(element.alert.body)
        elif kind == "markdown":
            self.texts.append(element.markdown.body)
        elif kind == "html":
            self.texts.append(element.html.body)


def resident(pid: int) -> int:
    """Bytes of memory that a process takes at the moment."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
