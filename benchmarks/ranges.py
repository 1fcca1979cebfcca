"""Time of range settings against copying the tensor: python benchmarks/ranges.py

4096 x 4096 float32, int4, one thread: the time to find the scales, for groups of 128 and for the whole
tensor. The unit is y.copy_(x), timed before each. Prints Markdown; exits with 1 if a budget is exceeded.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import quantcore as qc
from benchmarks.quantize import ROUNDS, SHAPE, median_times, verdict

BUDGETS = {"int4 symmetric per_group(128) min_mse": 120.0, "int4 asymmetric per_group(128) min_mse": 120.0}
SETTINGS = ("min_max", "min_mse", "percentile(99)", "mean_std(3)", "abs_mean")
GRANULARITIES = ("per_group(128)", "per_tensor")


def main() -> int:
    torch.set_num_threads(1)
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    y = torch.empty_like(x)
    texts = [f"int4 symmetric {per} {setting}" for per in GRANULARITIES for setting in SETTINGS]
    texts += ["int4 asymmetric per_group(128) min_mse", "int4 symmetric per_tensor entropy(num_bins=2048)"]
    schemes = [qc.Scheme.parse(text) for text in texts]
    cases = {
        text: lambda scheme=scheme: qc.choose_qparams(x, scheme)
        for text, scheme in zip(texts, schemes, strict=True)
    }
    unit, times = median_times(lambda: y.copy_(x), cases)
    print(f"## The range of {SHAPE[0]} x {SHAPE[1]} float32, one thread, {ROUNDS} rounds\n")
    print(
        f"| scheme | ms | copies | budget |\n|---|---:|---:|---:|\n| y.copy_(x) | {unit * 1e3:.1f} | 1.0 | |"
    )
    for name, time_s in times.items():
        ratio = time_s / unit
        print(f"| {name} | {time_s * 1e3:.1f} | {ratio:.1f} | {verdict(ratio, BUDGETS.get(name))} |")
    return 0 if all(times[name] / unit <= budget for name, budget in BUDGETS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
