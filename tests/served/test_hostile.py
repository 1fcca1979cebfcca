"""Files and code that ask for much, on a real server: it stays small and idle, and serves all others."""

import asyncio

import pytest
from hostile_files import HOSTILE
from loops import finish
from served import Server

from benchmarks.processes import processor_time, resident
from benchmarks.visitor import Visitor, visit

# Of the server itself, in two pages: a guest's own are not counted. What a file may hold at most, 80,000
# tensors, is assembled and drawn in 2.6 s here, which other work on the same cores makes up to three times as
# long; what only a guest sees, in 0.2 s.
MOST_SECONDS, MOST_MEGABYTES = 12.0, 500


@pytest.fixture(scope="module")
def server(served: Server) -> Server:
    finish(visit(served.host, "checkpoint", "ck=harmless.safetensors"))  # it imports, once
    return served


def opened(server: Server, query: str) -> str:
    async def open_page() -> str:
        async with asyncio.timeout(300), Visitor(server.host, "checkpoint", query) as visitor:
            await visitor.run()
        return " ".join(visitor.texts)

    return finish(open_page())


def check(name: str, server: Server) -> None:
    """Open a hostile file; the server must not work or grow because of it, and then open a harmless one."""
    folder = server.log.parent / name
    folder.mkdir()
    HOSTILE[name](folder)
    files = sorted(each.name for each in folder.iterdir())
    seconds, megabytes = processor_time(server.process.pid), resident(server.process.pid)
    said = opened(server, f"ck={name}" + (f"/{files[0]}" if len(files) == 1 else ""))
    assert said, "the page says nothing"
    assert processor_time(server.process.pid) - seconds < MOST_SECONDS
    assert resident(server.process.pid) - megabytes < MOST_MEGABYTES
    assert "kB read" in opened(server, "ck=harmless.safetensors")


@pytest.mark.slow  # by default, the readers alone get such files, and the guard greedy guests
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file(name: str, server: Server) -> None:
    check(name, server)
