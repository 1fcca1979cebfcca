"""A server without a models folder opens paths only for visitors on its own machine."""

import asyncio
from typing import Any

import pytest
import websockets
from grid import for_each
from loops import finish
from served import Server

from benchmarks.visitor import Visitor

OFF = "This server does not open paths"


class At(Visitor):
    """A visitor who addresses the server by another name."""

    name = ""

    async def __aenter__(self) -> "At":
        address, _, port = self.host.partition(":")
        self.socket = await websockets.connect(
            f"ws://{self.name or self.host}/_stcore/stream",
            host=address,
            port=int(port),
            subprotocols=[websockets.Subprotocol("streamlit")],
            additional_headers=self.headers,
            max_size=None,
            proxy=None,
        )
        return self


def texts(served: Server, query: str, name: str = "", **headers: str) -> str:
    async def visit() -> str:
        visitor = At(served.host, "checkpoint", query, {k.replace("_", "-"): v for k, v in headers.items()})
        visitor.name = name
        async with asyncio.timeout(300), visitor:
            await visitor.run()
        return " ".join(visitor.texts)

    return finish(visit())


@pytest.mark.slow  # the server's first guest imports for 3 s; by default, how paths are answered
def test_a_visitor_at_this_machine_opens_a_file(served: Server) -> None:
    assert "kB read" in texts(served, "ck=harmless.safetensors")


def test_a_visitor_at_this_machine(served: Server) -> None:
    assert "is not a path inside" in texts(served, "ck=../harmless.safetensors").replace("\\", "")


@for_each(
    "stranger",
    [
        {"X_Forwarded_For": "198.51.100.9"},
        {"X_Forwarded_For": "127.0.0.1"},  # the sender may have made that up
        {"Forwarded": "for=127.0.0.1"},
        {"Via": "1.1 proxy"},
        {"name": "quantscope.example"},  # a proxy, or a page whose name resolves to this machine
        {"name": "127.0.0.1.evil.example:80"},
    ],
    ids=str,
)
def test_a_visitor_from_elsewhere(served: Server, stranger: dict[str, Any]) -> None:
    said = texts(served, "ck=harmless.safetensors", **stranger)
    assert OFF in said
    assert "kB read" not in said
