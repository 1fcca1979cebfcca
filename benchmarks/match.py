"""Time of a search for the schemes of given integers: python benchmarks/match.py

64 x 128 float32, one thread: the codes of some schemes, intact and corrupted, and noise, which no scheme
explains. The unit is one `qc.apply` of int4 per_group(32), timed in the same rounds: the cost of trying a
single scheme. Prints Markdown; exits with 1 if the budget is exceeded.
"""

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import quantcore as qc
from benchmarks.smallest import sized

SHAPE, ROUNDS = sized((64, 128), (8, 64)), sized(5, 1)
UNIT = "int4 per_group(32)"
BUDGET = 8000  # times the unit, which is about 0.25 ms: 2 s
Codes = torch.Tensor


def codes_of(text: str, x: torch.Tensor) -> Codes:
    """The codes of a scheme."""
    return qc.apply(x, qc.Scheme.parse(text)).codes.to(torch.int32)


def cases(x: torch.Tensor) -> dict[str, Codes]:
    """The codes to search for, by name."""
    plain = codes_of("int4 symmetric per_group(32) torchao", x)
    signed = codes_of("int8 asymmetric per_channel(0) aimet.Quantize", x)
    corrupted = signed.clone()
    corrupted[3, 4] += 1
    noise = torch.randint(-8, 8, SHAPE, generator=torch.Generator().manual_seed(1))
    return {
        "torchao, int4 in groups of 32": plain,
        "onnxruntime, uint8 per channel": codes_of("uint8 asymmetric per_channel(0) onnxruntime", x),
        "hqq, uint4 in groups of 64": codes_of("uint4 asymmetric per_group(64) hqq", x),
        "transposed": signed.T,
        "signed read as unsigned, transposed": (signed % 256).T,
        "a cast without a clamp": codes_of("int8 symmetric per_channel(0) torchao(overflow=wrap)", x),
        "one code off by one": corrupted,
        "noise": noise,
    }


def seconds(run: Callable[[], object]) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main() -> int:
    """Time all cases and print them."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    scheme = qc.Scheme.parse(UNIT)
    timed: dict[str, list[float]] = {name: [] for name in cases(x)}
    units = []
    for _ in range(ROUNDS):
        units += [seconds(lambda: qc.apply(x, scheme)) for _ in range(50)]
        for name, codes in cases(x).items():
            timed[name].append(seconds(lambda codes=codes: qc.match(x, codes)))
    unit = statistics.median(units)
    print(f"64×128, one thread; the unit is {UNIT}, {unit * 1e3:.2f} ms\n")
    print("| integers | schemes tried | ms | times the unit (budget 8,000) |\n|---|---:|---:|---:|")
    worst = 0.0
    for name, codes in cases(x).items():
        median = statistics.median(timed[name])
        worst = max(worst, median / unit)
        print(f"| {name} | {qc.match(x, codes).tried:,} | {median * 1e3:,.0f} | {median / unit:,.0f} |")
    return int(worst > BUDGET)


if __name__ == "__main__":
    sys.exit(main())
