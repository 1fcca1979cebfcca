"""Time of ggml's quantizers in quantcore and in ggml's own C on the same machine, in ns per element.

Needs requirements-dev.txt, whose pywhispercpp contains ggml. One thread; CPU time,
so that other processes affect it less; the best of several runs. The budget is 150 ns.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "support")]

import ggml_oracle

import quantcore as qc
from benchmarks.smallest import sized

BUDGET = 150


def seconds(run: Callable[[], object], repeats: int) -> float:
    """The least CPU time of several runs, not counting the first."""
    run()
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    """Measure every type that takes an imatrix, without and with one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=sized(512, 2))
    parser.add_argument("--columns", type=int, default=sized(4096, 512))
    parser.add_argument("--repeats", type=int, default=sized(3, 1))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((given.rows, given.columns), dtype=np.float32)
    tensor, imatrix = torch.from_numpy(x), rng.random(given.columns, dtype=np.float32)
    has_ggml = ggml_oracle.library_path() is not None
    print(f"{x.shape} float32, ns per element (budget {BUDGET})")
    print(
        "| type | quantcore | ggml | ratio | with imatrix | ggml | ratio "
        "|\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for name in ggml_oracle.WEIGHTED:
        scheme, cells = qc.PRESETS[f"gguf.{name}"], []
        for importance in (None, imatrix):
            ours = seconds(lambda: qc.apply(tensor, scheme, importance=importance), given.repeats)  # noqa: B023
            ours *= 1e9 / x.size
            cells.append(f"{ours:.0f}" + (", over budget" if ours > BUDGET else ""))
            if has_ggml:
                theirs = seconds(lambda: ggml_oracle.quantize(name, x, importance), given.repeats)  # noqa: B023
                theirs *= 1e9 / x.size
                cells += [f"{theirs:.0f}", f"{ours / theirs:.1f}"]
            else:
                cells += ["", ""]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
