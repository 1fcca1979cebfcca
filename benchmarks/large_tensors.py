"""Twelve visitors with large tensors at once, and one with a small tensor.

    python benchmarks/large_tensors.py [--sessions 12] [--shape 4096x14336] [--page ranges]

Starts the app and opens twelve sessions at the same moment, each with a generated tensor and its own seed,
while a thirteenth moves its Bits slider on an 8×8 tensor. Prints the times of the first and last answers, the
longest wait of the thirteenth, and the peak resident memory of the process. Exits with 1 if a budget is
exceeded.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]  # not tests, where `served` is another folder

from served import Server, serve

from benchmarks.processes import resident
from benchmarks.smallest import sized
from benchmarks.visitor import Visitor

FIRST_BUDGET, SMALL_BUDGET, MEMORY_BUDGET = 5.0, 1.0, 1300.0  # seconds, seconds, MB
ALONE = 5  # changes of the small tensor before the others arrive


@dataclass
class Found:
    """Seconds until the large tensors and the changes of the small one are answered; MB; queue messages."""

    answers: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    messages: set[str] = field(default_factory=set)
    before: float = 0.0
    peak: float = 0.0
    after: float = 0.0


async def large(host: str, page: str, shape: str, seed: int, found: Found) -> None:
    """Open a large tensor and wait for the answer."""
    query = urlencode({"dist": "normal", "shape": shape, "seed": seed})
    async with Visitor(host, page, query) as visitor:
        began = time.perf_counter()
        await visitor.run()
        found.answers.append(time.perf_counter() - began)
        found.messages |= {text for text in visitor.texts if "before yours" in text}


async def small(host: str, found: Found) -> None:
    """Move a slider again and again."""
    async with Visitor(host, "", "dist=normal&shape=8x8") as visitor:
        await visitor.run()
        for bits in itertools.cycle((5, 6, 7, 8, 4)):
            began = time.perf_counter()
            await visitor.slide("bits", bits)
            found.waits.append(time.perf_counter() - began)
            await asyncio.sleep(0.3)


async def watch(process: int, found: Found) -> None:
    """Record the peak memory of the server."""
    while True:
        found.peak = max(found.peak, resident(process))
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def alongside(*work: Coroutine[Any, Any, None]) -> Any:
    """Run work until the block ends; if it fails, so does the block."""
    tasks = [asyncio.create_task(each) for each in work]
    yield
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()


async def measure(server: Server, sessions: int, page: str, shape: str) -> Found:
    """Run all visitors."""
    found = Found()
    async with alongside(small(server.host, found), watch(server.process.pid, found)):
        while len(found.waits) < ALONE:
            await asyncio.sleep(0.1)
        found.before = resident(server.process.pid)
        await asyncio.gather(*(large(server.host, page, shape, seed, found) for seed in range(sessions)))
    await asyncio.sleep(1)
    found.after = resident(server.process.pid)
    return found


def report(found: Found) -> bool:
    """Print the table; return whether all budgets are kept."""
    answers, longest = sorted(found.answers), max(found.waits[ALONE:], default=0.0)
    rows = [
        ("first answer", f"{answers[0]:.1f} s", answers[0] <= FIRST_BUDGET, f"{FIRST_BUDGET:g} s"),
        ("last answer", f"{answers[-1]:.1f} s", True, ""),
        ("8×8, longest wait", f"{longest:.2f} s", longest <= SMALL_BUDGET, f"{SMALL_BUDGET:g} s"),
        (
            "peak memory of the process",
            f"{found.peak:,.0f} MB",
            found.peak <= MEMORY_BUDGET,
            f"{MEMORY_BUDGET:,.0f} MB",
        ),
    ]
    print("| what | measured | budget |\n|---|---:|---:|")
    for what, measured, kept, budget in rows:
        print(f"| {what} | {measured}{'' if kept else ', over budget'} | {budget} |")
    print("answers, s:", " ".join(f"{answer:.1f}" for answer in answers))
    print(
        f"8×8 while alone: {max(found.waits[:ALONE]):.2f} s at most; during: {len(found.waits) - ALONE} "
        "changes"
    )
    print(f"memory before {found.before:,.0f} MB, after {found.after:,.0f} MB")
    print("messages:", *sorted(found.messages), sep="\n  ")
    return all(kept for _, _, kept, _ in rows)


def main() -> int:
    """Return 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=sized(12, 2))
    parser.add_argument("--shape", default=sized("4096x14336", "1024x1280"))
    parser.add_argument("--page", default="", help="last part of the page's address, such as ranges")
    asked = parser.parse_args()
    threads = str(os.cpu_count())  # as when the app is deployed; tests use one
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder), OMP_NUM_THREADS=threads, QUANTSCOPE_WARM_UP="all") as server,
    ):
        server.await_warm()
        found = asyncio.run(measure(server, asked.sessions, asked.page, asked.shape))
    return int(not report(found))


if __name__ == "__main__":
    sys.exit(main())
