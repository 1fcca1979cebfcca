"""A class that moves sliders: how long each change takes when many visitors make changes at once.

    python benchmarks/load.py              30 sessions, one change per second each, on one process
    python benchmarks/load.py --replicas   100 sessions, a change every 3 s each, on two behind nginx

Each session opens Explore and moves the Bits slider at its own fixed times. The time of a change runs from
the moment it is due to the end of its answer. A change that is due while the previous one is unanswered is
not made, and counts as not answered. Visitors and servers run on the same machine; the last columns show the
CPU use of each. Exits with 1 if a goal is missed.
"""

import argparse
import asyncio
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]  # not tests, where `served` is another folder

from replicas import cluster
from served import serve

from benchmarks.processes import processor_time
from benchmarks.smallest import sized
from benchmarks.visitor import Visitor

RAMP = 0.15  # seconds between two visitors opening the page
BITS = (5, 6, 7, 8, 7, 6)
ALONE = sized(20.0, 3.0)  # seconds of one session, for the unit


@dataclass(frozen=True)
class Goal:
    """A number of sessions, the seconds between two changes of each, and the goals for their times."""

    sessions: int
    every: float
    p95_seconds: float | None = None
    p95_of_one: float | None = None
    answered: float = 0.95


ONE_PROCESS = Goal(sized(30, 2), 1.0, p95_of_one=8.0)
REPLICAS = Goal(sized(100, 2), 3.0, p95_seconds=1.0)


@dataclass
class Times:
    """What was measured: the seconds of each answered change and of each first run, and CPU seconds."""

    offered: int = 0
    changes: list[float] = field(default_factory=list)
    opened: list[float] = field(default_factory=list)
    processor: float = 0.0
    of_servers: float = 0.0

    def share(self) -> float:
        """The fraction of the changes due that were answered."""
        return len(self.changes) / self.offered

    def quantile(self, percent: int) -> float:
        """This percentile of the changes' times, in seconds."""
        return statistics.quantiles(self.changes, n=100, method="inclusive")[percent - 1]


async def open_page(host: str) -> Visitor:
    """Open the page as a browser does: first the page, which sets the replica's cookie, then the session."""
    with await asyncio.to_thread(urllib.request.urlopen, f"http://{host}/") as page:
        cookies = [line.partition(";")[0] for line in page.headers.get_all("set-cookie") or []]
    return await Visitor(host, headers={"Cookie": "; ".join(cookies)} if cookies else None).__aenter__()


async def session(host: str, number: int, goal: Goal, start: float, seconds: float, times: Times) -> None:
    """Open the page and change a value at fixed times from ``start`` on."""
    await asyncio.sleep(number * RAMP)
    began = time.perf_counter()
    visitor = await open_page(host)
    await visitor.run()
    times.opened.append(time.perf_counter() - began)
    visitor.brief = True
    first = start + goal.every * number / goal.sessions
    for turn, bits in zip(range(int(seconds / goal.every)), itertools.cycle(BITS), strict=False):
        due = first + turn * goal.every
        times.offered += 1
        if time.perf_counter() > due + goal.every:  # the previous change was not answered in time
            continue
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await visitor.slide("bits", bits)
        times.changes.append(time.perf_counter() - due)
    await visitor.__aexit__(None, None, None)


async def measure(host: str, goal: Goal, seconds: float, servers: list[int]) -> Times:
    """Let all sessions make their changes for this many seconds."""
    times, start = Times(), time.perf_counter() + goal.sessions * RAMP + 3
    tasks = [
        asyncio.create_task(session(host, number, goal, start, seconds, times))
        for number in range(goal.sessions)
    ]
    await asyncio.sleep(max(0.0, start - time.perf_counter()))
    mine, theirs = time.process_time(), sum(map(processor_time, servers))
    await asyncio.gather(*tasks)
    times.processor, times.of_servers = (
        time.process_time() - mine,
        sum(map(processor_time, servers)) - theirs,
    )
    return times


@contextlib.contextmanager
def servers(goal: Goal) -> Iterator[tuple[str, list[int]]]:
    """The host that visitors connect to, and the processes behind it."""
    with tempfile.TemporaryDirectory() as folder:
        if goal is REPLICAS:
            with cluster(Path(folder)) as (address, replicas):
                yield (
                    address.removeprefix("http://"),
                    [replica.process.pid for replica in replicas if replica.process],
                )
        else:
            with serve(Path(folder), QUANTSCOPE_WARM_UP="all") as server:
                server.await_warm()
                yield server.host, [server.process.pid]


def row(what: str, times: Times, unit: float, seconds: float) -> str:
    """A line of the table."""
    p50, p95 = times.quantile(50), times.quantile(95)
    return (
        f"| {what} | {times.offered / seconds:.1f} | {times.share():.1%} | {p50 * 1e3:.0f} | {p95 * 1e3:.0f} "
        f"| {p95 / unit:.1f} | {statistics.median(times.opened) * 1e3:.0f} "
        f"| {times.of_servers / seconds:.2f} | {times.processor / seconds:.2f} |"
    )


def missed(goal: Goal, times: Times, unit: float) -> list[str]:
    """The goals that were missed."""
    p95, found = times.quantile(95), []
    if goal.p95_of_one is not None and p95 > goal.p95_of_one * unit:
        found.append(f"p95 is {p95 / unit:.1f} times one session's median, more than {goal.p95_of_one:g}")
    if goal.p95_seconds is not None and p95 > goal.p95_seconds:
        found.append(f"p95 is {p95:.2f} s, more than {goal.p95_seconds:g}")
    if times.share() < goal.answered:
        found.append(f"{times.share():.1%} of the changes are answered, fewer than {goal.answered:.0%}")
    return found


def main() -> int:
    """Print the table; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", action="store_true", help="100 sessions on two processes behind nginx")
    parser.add_argument("--seconds", type=float, default=sized(60.0, 2.0), help="length of each run")
    parser.add_argument(
        "--runs", type=int, default=3, help="number of runs; the one with the median p95 counts"
    )
    chosen = parser.parse_args()
    goal = REPLICAS if chosen.replicas else ONE_PROCESS
    with servers(goal) as (host, processes):
        one = asyncio.run(measure(host, Goal(1, 1.0), ALONE, processes))
        unit = one.quantile(50)
        print(
            "| sessions | changes due per s | answered | p50, ms | p95, ms | p95 / one session's median | "
            "first run, ms | cores of the servers | of the visitors "
            "|\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        )
        print(row("1", one, unit, ALONE), flush=True)
        runs = []
        for _ in range(chosen.runs):
            runs.append(asyncio.run(measure(host, goal, chosen.seconds, processes)))
            print(row(str(goal.sessions), runs[-1], unit, chosen.seconds), flush=True)
        times = sorted(runs, key=lambda run: run.quantile(95))[len(runs) // 2]
        print(row(f"{goal.sessions}, median", times, unit, chosen.seconds))
    problems = missed(goal, times, unit)
    print("\n".join(problems) or "All goals are met.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
