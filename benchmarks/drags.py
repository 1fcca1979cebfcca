"""Visitors who all drag the Bits slider at once: how many pictures each gets in a second.

    python benchmarks/drags.py

Each session has a tensor of its own and asks for the next picture a frame after the last one, as maps do; in
between it asks ahead for the one after it, and less often the more the server refuses that. Maps would not
ask again for what they know ahead; here every picture is asked for, so that the load stays. Visitors and
server share the machine. Exits with 1 if a visitor falls under the goal.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from itertools import cycle, pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from served import serve
from streamlit.proto.Delta_pb2 import Delta

from benchmarks.smallest import sized
from benchmarks.visitor import Visitor

GOAL = 10.0  # pictures a second
FRAME = 1 / 60  # seconds
REFUSED, DOUBLED = 0.06, 5  # seconds from a refusal to the next question ahead, doubled so many times
WIDTHS = [*range(5, 17), *range(15, 1, -1), 3, 4]


class Dragging(Visitor):
    """A visitor who drags. ``at``: where the maps are asked for; ``held``: the original that is known."""

    at = held = ""
    following = 0  # the width to ask ahead for; 0 while a picture is under way

    def _see(self, delta: Delta) -> None:
        super()._see(delta)
        text = delta.new_element.bidi_component.json
        if '"live"' in text:
            sent = json.loads(text)[0]
            self.at, self.held = sent["live"]["at"], sent["x_key"]

    async def drag(self, until: float) -> list[float]:
        """Return the seconds that each picture took until that time."""
        ahead = asyncio.create_task(self._look_ahead())
        reader, writer = await asyncio.open_connection(*self.host.split(":"))
        times = []
        for bits, following in pairwise(cycle(WIDTHS)):
            began = time.perf_counter()
            if began > until:
                break
            writer.write(self._request(f"bits={bits}"))
            assert await answer(reader) == 200
            times.append(time.perf_counter() - began)
            self.following = following
            await asyncio.sleep(FRAME)
            self.following = 0
        writer.close()
        ahead.cancel()
        return times

    async def _look_ahead(self) -> None:
        reader, writer = await asyncio.open_connection(*self.host.split(":"))
        known, refusals = set[int](), 0
        while True:
            await asyncio.sleep(FRAME / 2)
            if self.following in {0, *known}:
                continue
            bits = self.following
            writer.write(self._request(f"bits={bits}&ahead=bits:{bits}"))
            if await answer(reader) == 200:
                known.add(bits)
                refusals = 0
            else:
                await asyncio.sleep(REFUSED * 2 ** min(refusals, DOUBLED))
                refusals += 1

    def _request(self, query: str) -> bytes:
        return f"GET /{self.at}?{query}&held={self.held} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode()


async def answer(reader: asyncio.StreamReader) -> int:
    """Read an answer to its end; return its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    _, _, length = head.partition("content-length: ")
    await reader.readexactly(int(length.split()[0]) if length else 0)
    return int(head.split()[1])


async def measure(host: str, sessions: int, shape: str, seconds: float) -> list[list[float]]:
    """Return the seconds of each picture of each session."""
    visitors = [Dragging(host, query=f"shape={shape}&seed={seed}") for seed in range(sessions)]
    for visitor in visitors:
        await visitor.__aenter__()
        await visitor.run()
    until = time.perf_counter() + seconds
    found = await asyncio.gather(*(visitor.drag(until) for visitor in visitors))
    await asyncio.gather(*(visitor.__aexit__(None, None, None) for visitor in visitors))
    return found


def main() -> int:
    """Print the table; return 1 if the goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=sized(15.0, 1.0), help="length of each run")
    seconds, missed = parser.parse_args().seconds, False
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server:
        print("| tensor | visitors | pictures a second, slowest visitor | p95 of one picture, ms |")
        print("|---|---:|---:|---:|")
        for shape in ("8x8", "64x128"):
            for sessions in (1, sized(30, 2)):
                found = asyncio.run(measure(server.host, sessions, shape, seconds))
                least = min(map(len, found)) / seconds
                p95 = statistics.quantiles((t for times in found for t in times), n=100, method="inclusive")[
                    94
                ]
                missed |= least < GOAL
                print(f"| {shape} | {sessions} | {least:.1f} | {1000 * p95:.0f} |", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
