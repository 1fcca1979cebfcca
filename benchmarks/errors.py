"""Time of error metrics against copying the tensor: python benchmarks/errors.py

4096 x 4096 float32, one thread: `apply` and `report`, `apply` alone, and `errors_of`. The unit is y.copy_(x),
timed before every case; times are the thread's own CPU time, so that other processes count little. Prints
Markdown; exits with 1 beyond a budget.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import quantcore as qc
from benchmarks.smallest import sized

SHAPE, ROUNDS = sized((4096, 4096), (128, 256)), sized(7, 1)
GRANULARITIES = {
    **dict.fromkeys(("per_tensor", "per_channel(0)", "per_channel(1)"), 8),
    **dict.fromkeys(("per_group(128)", "per_group(32)", "per_block([128,128])"), 4),
}
FLOATS = (
    *("e4m3fn per_tensor", "e4m3fn per_channel(0)", "e5m2 per_channel(0)"),
    *("e2m1 per_group(32)", "e2m3 per_group(32)", "nf4 per_group(64)"),
)
# copies: of `apply` and `report`, and of `errors_of`
BUDGETS = {"symmetric": (16.0, 6.0), "asymmetric": (20.0, 8.0), "float": (24.0, 12.0)}
BUDGETS["codebook"] = (math.inf, math.inf)
KINDS = {
    **{
        f"int{bits} {kind} {granularity}": kind
        for kind in ("symmetric", "asymmetric")
        for granularity, bits in GRANULARITIES.items()
    },
    **{text: "codebook" if text.startswith("nf4") else "float" for text in FLOATS},
}


def seconds(case: Callable[[], object]) -> float:
    start = time.thread_time()
    case()
    return time.thread_time() - start


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="a part of the schemes' texts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    y = torch.empty_like(x)
    units: list[float] = []
    times: dict[str, tuple[list[float], ...]] = {}
    sums = getattr(qc, "errors_of", None)
    for turn in range(options.rounds + 1):
        for text in KINDS:
            if options.only not in text:
                continue
            scheme = qc.Scheme.parse(text)
            cases = [
                lambda scheme=scheme: qc.apply(x, scheme),
                lambda scheme=scheme: qc.report(qc.apply(x, scheme)),
            ]
            cases += [lambda scheme=scheme: sums(x, scheme)] if sums else []
            found = [(seconds(lambda: y.copy_(x)), seconds(case)) for case in cases]
            if turn:  # the first round warms up
                units += [unit for unit, _ in found]
                for kept, (_, took) in zip(times.setdefault(text, ([], [], [])), found, strict=False):
                    kept.append(took)
    unit = statistics.median(units)
    print(f"y.copy_(x): {unit * 1e3:.1f} ms\n")
    print(
        "| scheme | apply | apply and report | budget | errors_of | budget |\n|---|---:|---:|---:|---:|---:|"
    )
    all_kept = True
    for text, taken in times.items():
        alone, both, only = (statistics.median(t) / unit if t else float("nan") for t in taken)
        budgets = BUDGETS[KINDS[text]]
        kept = both <= budgets[0] and not only > budgets[1]
        all_kept &= kept
        numbers = f"{alone:.1f} | {both:.1f} | {budgets[0]:g} | {only:.1f} | {budgets[1]:g}"
        print(f"| {text} | {numbers}{'' if kept else ' EXCEEDED'} |", flush=True)
    return 0 if all_kept else 1


if __name__ == "__main__":
    sys.exit(main())
