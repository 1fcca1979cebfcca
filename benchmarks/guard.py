"""What the guard costs: the first guest of a server, a later one, and the same work in no process of its own.

    python benchmarks/guard.py [--times 20]

Medians; the later ones are ratios to the work in this process, and their difference is what a process costs.
"""

import argparse
import io
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import quantcore as qc
from benchmarks.smallest import sized
from pages.serving import guard
from quantcore import tensors

CODE = "s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)"
WORK = guard.GuestWork("The work", "do less", 60, 1 << 30, 1 << 30)


def _asked(name: str, value: object, blobs: list[bytes]) -> Callable[[], object]:
    return lambda: guard.ask(name, value, blobs, work=WORK)


def _median(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private"))


def main() -> None:
    """Print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--times", type=int, default=sized(20, 1))
    times = parser.parse_args().times
    file = io.BytesIO()
    np.savez_compressed(file, x=np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32))
    data = file.getvalue()
    first = _median(_asked("list_tensors", ["x.npz", 1 << 28], [data]), 1)
    print(f"the first guest, with the start of the fork server: {first:.2f} s\n")
    print("| work | here, ms | by a guest, ms | ratio |\n|---|---|---|---|")
    for words, here, there in (
        ("tensors of a .npz of 4 MB", lambda: tensors.list_tensors(data, "x.npz"),
         _asked("list_tensors", ["x.npz", 1 << 28], [data])),
        ("one of them read", lambda: tensors.read_tensor(data, "x.npz", "x"),
         _asked("read_tensor", ["x.npz", "x", 1 << 28], [data])),
        ("pasted code", lambda: qc.read_code(CODE), _asked("read_code", [CODE, None], [])),
    ):  # fmt: skip
        own, guarded = _median(here, times), _median(there, times)
        print(f"| {words} | {1e3 * own:.1f} | {1e3 * guarded:.1f} | {guarded / own:.2f} |")
    print(f"\nmemory that the fork server alone has: {_resident(guard.fork_server_pid()) / 1024:.0f} MB")


if __name__ == "__main__":
    main()
