"""Whether the memory of the server stays flat over many visitors.

    python benchmarks/soak.py [--sessions 500] [--reruns 10]

Visitors come one after another, five at a time. Each opens a page, Explore more often than the others, with
its own tensor, makes some changes and leaves. Prints the resident memory of the server over time; exits with
1 if it grows by more than 5 % after the first fifth, in which caches fill.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]  # not tests, where `served` is another folder

from served import Server, serve

from benchmarks.processes import resident
from benchmarks.smallest import sized
from benchmarks.visitor import Visitor

AT_ONCE = 5
PAGES = ("", "", "ranges", "", "schemes", "", "formats", "", "libraries", "", "match", "", "learn-scale")
GROWTH = 1.05
POINTS = 25  # on the curve


@dataclass
class Curve:
    """Resident memory in MB, by the number of sessions and reruns."""

    points: list[tuple[int, int, float]] = field(default_factory=list)

    def between(self, start: float, stop: float) -> float:
        """The median over the points between two fractions of the run."""
        count = len(self.points)
        return statistics.median(
            megabytes for *_, megabytes in self.points[int(start * count) : int(stop * count)]
        )

    def print(self) -> None:
        """Print a table with bars."""
        widest = max(megabytes for *_, megabytes in self.points)
        print("| sessions | reruns | resident, MB | |\n|---:|---:|---:|---|")
        for sessions, reruns, megabytes in self.points[:: max(1, len(self.points) // POINTS)]:
            print(f"| {sessions} | {reruns} | {megabytes:.0f} | {'█' * round(40 * megabytes / widest)} |")


async def visitor(host: str, number: int, reruns: int) -> int:
    """Open a page, make changes and leave; return the number of runs."""
    page = PAGES[number % len(PAGES)]
    async with asyncio.timeout(120), Visitor(host, page, f"seed={number}") as one:
        await one.run()
        one.brief = True
        for bits in itertools.islice(itertools.cycle((5, 6, 7, 8, 3)), reruns):
            await (one.slide("bits", bits) if "bits" in one.sliders else one.run())
    return reruns + 1


async def soak(server: Server, sessions: int, reruns: int) -> Curve:
    """Run all visitors."""
    curve, done = Curve(), 0
    for first in range(0, sessions, AT_ONCE):
        done += sum(
            await asyncio.gather(
                *(visitor(server.host, number, reruns) for number in range(first, first + AT_ONCE))
            )
        )
        curve.points.append((first + AT_ONCE, done, resident(server.process.pid)))
    return curve


def main() -> int:
    """Print the curve; return 1 if memory grows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=sized(500, 25))
    parser.add_argument("--reruns", type=int, default=sized(10, 1), help="per session")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder), QUANTSCOPE_WARM_UP="all") as server:
        server.await_warm()
        print(f"After warm-up: {resident(server.process.pid):.0f} MB")
        curve = asyncio.run(soak(server, chosen.sessions, chosen.reruns))
        curve.print()
    early, late = curve.between(0.2, 0.4), curve.between(0.8, 1.0)
    flat = late <= early * GROWTH
    print(f"From {early:.0f} to {late:.0f} MB (second and last fifth): {'flat' if flat else 'growing'}.")
    return int(not flat)


if __name__ == "__main__":
    sys.exit(main())
