"""A server without a models folder opens paths only for visitors on its own machine."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets
from checkpoint_cases import case
from loops import finish
from served import Server, serve

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("started-here")
    release = case("gptq_v1_4bit_g128_sym").release
    (folder / "model.safetensors").write_bytes((release / "model.safetensors").read_bytes())
    with serve(folder, QUANTSCOPE_MODELS="") as server:
        yield server


def texts(server: Server, query: str, name: str = "", **headers: str) -> str:
    async def visit() -> str:
        visitor = At(server.host, "checkpoint", query, {k.replace("_", "-"): v for k, v in headers.items()})
        visitor.name = name
        async with asyncio.timeout(60), visitor:
            await visitor.run()
        return " ".join(visitor.texts)

    return finish(visit())


def test_a_visitor_at_this_machine(server: Server) -> None:
    assert "kB read" in texts(server, "ck=model.safetensors")
    assert "is not a path inside" in texts(server, "ck=../model.safetensors").replace("\\", "")


@pytest.mark.parametrize(
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
def test_a_visitor_from_elsewhere(server: Server, stranger: dict[str, Any]) -> None:
    said = texts(server, "ck=model.safetensors", **stranger)
    assert OFF in said
    assert "kB read" not in said
