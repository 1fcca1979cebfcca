"""Time and memory of a sweep against separate calls: python benchmarks/sweep.py

100 schemes on 1024 x 1024 float32: integers, small floats, codebooks, presets, and every range setting that
needs no search. The unit is the sum of apply() and report(), one scheme after the other, on one core. All
cases take turns, on one torch thread, and the fastest round counts, since other work on the machine can only
add time. CPU: the CPU time of all threads of the process. Memory: the extra peak of a child process when a
few schemes are swept again, once and twenty times, in multiples of the tensor. Prints Markdown; exits with 1
if a budget is exceeded.
"""

import argparse
import itertools
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import quantcore as qc
from benchmarks.smallest import sized

SHAPE, COUNT, ROUNDS, FEW = sized((1024, 1024), (64, 64)), sized(100, 8), sized(5, 1), 5
ONE_CORE_BUDGET, TWO_CORES_BUDGET, MEMORY_BUDGET = 1.5, 1.0, 0.5
FORMATS = [*(f"int{bits}" for bits in (2, 3, 4, 6, 8)), "e2m1", "e4m3fn", "nf4", "iq4_nl", "ternary"]
GRANULARITIES = ("per_tensor", "per_channel(0)", "per_group(32)", "per_block([32,32])")
RANGES = ("min_max", "mean_std(3)")


def schemes() -> list[qc.Scheme]:
    """The schemes of the measurement, presets last."""
    found = [qc.Scheme.parse(" ".join(parts)) for parts in itertools.product(FORMATS, GRANULARITIES, RANGES)]
    presets = [s for s in qc.PRESETS.values() if not qc.unsupported_reason(s, SHAPE)]
    return [*found, *presets[:: len(presets) // (COUNT - len(found))]][:COUNT]


def tensor() -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))


def cases(x: torch.Tensor) -> dict[str, tuple[int, Callable[[], object]]]:
    """Each case with the number of cores that it may use: separate calls, the sweep on one and two cores."""
    chosen = schemes()
    assert len(chosen) == COUNT
    return {
        "apply() and report(), one after the other": (1, lambda: [qc.report(qc.apply(x, s)) for s in chosen]),
        "sweep on one core": (1, lambda: qc.sweep(x, chosen)),
        "sweep on two cores": (2, lambda: qc.sweep(x, chosen)),
    }


def timed(cores: int, case: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and CPU seconds, with this many cores for the threads that start in the case."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:cores])
    start = time.perf_counter(), time.process_time()
    try:
        case()
    finally:
        os.sched_setaffinity(0, allowed)
    return time.perf_counter() - start[0], time.process_time() - start[1]


def peak(count: int) -> int:
    """Bytes that a sweep of this many schemes adds to the peak memory after a sweep of a few of them."""
    x, few = tensor(), schemes()[:FEW]
    qc.sweep(x, few, workers=2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    qc.sweep(x, few * (count // FEW), workers=2)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peak", type=int, help="print the extra peak of a sweep of this many schemes, in bytes"
    )
    chosen = parser.parse_args().peak
    torch.set_num_threads(1)
    if chosen:
        print(peak(chosen))
        return 0
    times: dict[str, list[tuple[float, float]]] = {}
    for turn in range(ROUNDS + 1):
        for name, (cores, case) in cases(tensor()).items():
            times.setdefault(name, []).append(timed(cores, case))
        if not turn:  # the first round warms up
            times.clear()
    found = {name: min(values) for name, values in times.items()}
    unit, one, two = (clock for clock, _ in found.values())
    print(f"## {COUNT} schemes on {SHAPE[0]} x {SHAPE[1]} float32, the fastest of {ROUNDS} rounds\n")
    print("| what | s | CPU s | times separate calls | budget |\n|---|---:|---:|---:|---:|")
    budgets = dict(zip(found, ("", f"{ONE_CORE_BUDGET}", f"under {TWO_CORES_BUDGET}"), strict=True))
    for name, (clock, cpu) in found.items():
        print(f"| {name} | {clock:.2f} | {cpu:.2f} | {clock / unit:.2f} | {budgets[name]} |")
    bytes_of = {
        n: int(subprocess.check_output([sys.executable, __file__, "--peak", str(n)])) for n in (FEW, COUNT)
    }
    size = 4 * SHAPE[0] * SHAPE[1]
    print("\n| schemes | extra peak, tensors |\n|---:|---:|")
    for n, extra in bytes_of.items():
        print(f"| {n} | {extra / size:.2f} |")
    grows = (bytes_of[COUNT] - bytes_of[FEW]) / size
    good = one <= ONE_CORE_BUDGET * unit and two < TWO_CORES_BUDGET * unit and grows <= MEMORY_BUDGET
    print(
        f"\n{'within' if good else 'OVER'} budget; memory grows by {grows:.2f} tensors (budget "
        f"{MEMORY_BUDGET})"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
