"""From `streamlit run app.py` to the first page, to every page warm, and the first visit to each page.

    python benchmarks/start.py [--against OTHER_CHECKOUT] [--rounds 3]

A visitor without a browser opens the first page as soon as the server answers; with another checkout, both
are measured alternately. Then, in a server of its own per round, a visitor opens all pages one after another
without waiting for the warm-up: the longest of these visits. Processor time is of the whole process, so other
work beside it matters less.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from served import Server, serve

from benchmarks.processes import processor_time
from benchmarks.smallest import sized
from benchmarks.visitor import visit

WARM = "Opened every page once"
COLUMNS = ("first page, s", "CPU s", "every page warm, CPU s", "longest visit meanwhile, s")


def _opened(server: Server, page: str = "") -> float:
    """Return the seconds that it takes to open a page."""
    begin = time.perf_counter()
    asyncio.run(visit(server.host, page))
    return time.perf_counter() - begin


def measure(checkout: Path) -> tuple[float, ...]:
    """Start the server twice; return the `COLUMNS`."""
    options = {"QUANTSCOPE_WARM_UP": "all", "PYTHONPATH": str(checkout)}
    begin = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder), checkout / "app.py", **options) as server,
    ):
        _opened(server)
        wall, cpu = time.perf_counter() - begin, processor_time(server.process.pid)
        while WARM not in server.log.read_text(encoding="utf-8"):
            time.sleep(0.1)
        warm = processor_time(server.process.pid)
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder), checkout / "app.py", **options) as server,
    ):
        longest = max(_opened(server, page) for page in asyncio.run(visit(server.host)).pages)
    return wall, cpu, warm, longest


def main() -> None:
    """Print the table of medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="another checkout to measure alternately")
    parser.add_argument("--rounds", type=int, default=sized(3, 1))
    chosen = parser.parse_args()
    checkouts = {"this checkout": ROOT} | ({"the other": chosen.against.resolve()} if chosen.against else {})
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in checkouts}
    for _ in range(chosen.rounds):
        for name, checkout in checkouts.items():
            found[name].append(measure(checkout))
    print(f"| | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}")
    for name, rows in found.items():
        medians = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(f"| {name} | {' | '.join(f'{value:.4g}' for value in medians)} |")


if __name__ == "__main__":
    main()
