"""Visitors who all drag the Bits slider at once: how many pictures each gets in a second.

    python benchmarks/drags.py

Each session has a tensor of its own and asks for the next picture a frame after the last one, as maps do.
Visitors and server share the machine. Exits with 1 if a visitor falls under the goal.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from served import serve
from streamlit.proto.Delta_pb2 import Delta

from benchmarks.smallest import sized
from benchmarks.visitor import Visitor

GOAL = 10.0  # pictures a second
FRAME = 1 / 60  # seconds
WIDTHS = [*range(5, 17), *range(15, 1, -1), 3, 4]


class Dragging(Visitor):
    """A visitor who drags. ``at``: where the maps are asked for; ``held``: the original that is known."""

    at = held = ""

    def _see(self, delta: Delta) -> None:
        super()._see(delta)
        text = delta.new_element.bidi_component.json
        if '"live"' in text:
            sent = json.loads(text)[0]
            self.at, self.held = sent["live"]["at"], sent["x_key"]

    async def drag(self, until: float) -> list[float]:
        """Return the seconds that each picture took until that time."""
        reader, writer = await asyncio.open_connection(*self.host.split(":"))
        times = []
        for bits in cycle(WIDTHS):
            began = time.perf_counter()
            if began > until:
                break
            writer.write(
                f"GET /{self.at}?bits={bits}&held={self.held} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode()
            )
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert head.startswith("http/1.1 200"), head
            await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
            times.append(time.perf_counter() - began)
            await asyncio.sleep(FRAME)
        writer.close()
        return times


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
