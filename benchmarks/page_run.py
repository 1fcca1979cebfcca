"""CPU time of one run of a page: the script's own thread, and the whole server.

    python benchmarks/page_run.py [--page ranges] [--against OTHER_CHECKOUT]

One visitor moves the Bits slider on an 8×8 tensor, each time to a scheme that has been shown before, so that
the page is timed and not the arithmetic. With another checkout, the two are timed alternately. Exits with 1
if the median of the thread is over the budget.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]  # not tests, where `served` is another folder

from served import serve

from benchmarks.processes import processor_time
from benchmarks.smallest import sized
from benchmarks.visitor import Visitor

BUDGET = 15.0  # ms
BITS = (3, 4, 5, 6)
WARM = sized(20, 2)  # runs, in which every scheme is shown and Python specializes hot code
RUNS = sized(200, 4)
ROUNDS = sized(3, 1)


async def slide(host: str, page: str, count: int, steps: "itertools.cycle[int]") -> None:
    """Open the page and make this many changes."""
    async with Visitor(host, page) as visitor:
        await visitor.run()
        visitor.brief = True
        for bits in itertools.islice(steps, count):
            await visitor.slide("bits", bits)


def measure(checkout: Path, page: str) -> tuple[float, float]:
    """The median milliseconds of the thread and the mean of the server, per run."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(
            Path(folder), checkout / "app.py", PYTHONPATH=str(checkout), QUANTSCOPE_WARM_UP="all"
        ) as server,
    ):
        server.await_warm()
        steps = itertools.cycle(BITS)
        asyncio.run(slide(server.host, page, WARM, steps))
        before, begin = len(server.look_inside()["runs"]), processor_time(server.process.pid)
        asyncio.run(slide(server.host, page, RUNS, steps))
        whole = processor_time(server.process.pid) - begin
        own = server.look_inside()["runs"][before + 1 :]  # the first run draws what the others change
        return statistics.median(own), 1e3 * whole / RUNS


def main() -> int:
    """Print the table; return 1 if the budget is exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", default="", help="last part of its address; by default Explore")
    parser.add_argument("--against", type=Path, help="another checkout to time alternately")
    chosen = parser.parse_args()
    checkouts = {"this checkout": ROOT} | ({"the other": chosen.against.resolve()} if chosen.against else {})
    print("| | thread of the script, ms per run | whole server, ms per run |\n|---|---:|---:|")
    times: dict[str, list[float]] = {name: [] for name in checkouts}
    for _ in range(ROUNDS):
        for name, checkout in checkouts.items():
            own, whole = measure(checkout, chosen.page)
            times[name].append(own)
            print(f"| {name} | {own:.1f} | {whole:.1f} |", flush=True)
    median = statistics.median(times["this checkout"])
    print(f"Median {median:.1f} ms, budget {BUDGET:g} ms.")
    if chosen.against:
        print(f"{median / statistics.median(times['the other']):.2f} times the other checkout.")
    return int(median > BUDGET)


if __name__ == "__main__":
    sys.exit(main())
