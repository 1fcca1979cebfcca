"""Time of small floats and codebooks against copying the tensor: python benchmarks/formats.py

4096 x 4096 float32, one thread: finding the largest magnitude, dividing by the scale, encoding, decoding and
multiplying by the scale, in pieces that fit the cache and into reused buffers. The unit is y.copy_(x), timed
before each. Prints Markdown; exits with 1 if a budget is exceeded.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.quantize import ROUNDS, SHAPE, Case, median_times, verdict
from quantcore.formats.codebook import CODEBOOKS, CodebookFormat
from quantcore.formats.floating_point import FLOATS, FloatFormat
from quantcore.numerics.float32 import CHUNK
from quantcore.numerics.rounding import half_even, rounding

FLOAT_BUDGET, CODEBOOK_BUDGET = 10.0, 20.0
OTHER_ROUNDINGS = ("half_away", "floor", "stochastic")  # of one format, for comparison


def round_trip(x: torch.Tensor, y: torch.Tensor, fmt: FloatFormat | CodebookFormat, rule: str) -> Case:
    """Quantize and dequantize x into y with one scale."""
    codes, work = torch.empty(x.shape, dtype=fmt.dtype), torch.empty(CHUNK)
    pieces = [slice(start, start + CHUNK) for start in range(0, x.numel(), CHUNK)]

    def run() -> None:
        rounds = half_even if rule == "half_even" else rounding(rule)
        low, high = x.aminmax()
        scale = torch.maximum(-low, high) / fmt.max
        for piece in pieces:
            torch.div(x[piece], scale, out=work)
            fmt.encode_(work, codes[piece], rounds)
            fmt.decode_(codes[piece], y[piece]).mul_(scale)

    return run


def main() -> int:
    torch.set_num_threads(1)
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).view(-1)
    y = torch.empty_like(x)
    cases = {name: round_trip(x, y, fmt, "half_even") for name, fmt in (FLOATS | CODEBOOKS).items()}
    # without e8m0, which has no negative numbers: it is for scales, of which there are few
    del cases["e8m0"]
    budgets = {name: CODEBOOK_BUDGET if name in CODEBOOKS else FLOAT_BUDGET for name in cases}
    cases |= {f"e4m3fn {rule}": round_trip(x, y, FLOATS["e4m3fn"], rule) for rule in OTHER_ROUNDINGS}
    many = CodebookFormat(torch.linspace(-1, 1, 256))
    cases["codebook of 256 values"] = round_trip(x, y, many, "half_even")
    unit, times = median_times(lambda: y.copy_(x), cases)
    print(f"## Quantize and dequantize {SHAPE[0]} x {SHAPE[1]} float32, one thread, {ROUNDS} rounds\n")
    print(
        f"| format | ms | copies | budget |\n|---|---:|---:|---:|\n| y.copy_(x) | {unit * 1e3:.1f} | 1.0 | |"
    )
    for name, time_s in times.items():
        ratio = time_s / unit
        print(f"| {name} | {time_s * 1e3:.1f} | {ratio:.1f} | {verdict(ratio, budgets.get(name))} |")
    return 0 if all(times[name] / unit <= budget for name, budget in budgets.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
