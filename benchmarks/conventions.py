"""What a library's convention costs compared with the textbook: python benchmarks/conventions.py

4096 x 4096 float32, one thread, including range setting, with reused buffers. Each convention is timed
alternately with the textbook on the same scheme; the figure is the median of the ratios. Prints Markdown;
exits with 1 if one takes over 10 % longer than the textbook, about as much as two runs of the same code
differ.
"""

import statistics
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import quantcore as qc
from benchmarks.smallest import sized

SHAPE, ROUNDS, BUDGET = sized((4096, 4096), (128, 256)), sized(9, 1), 1.1
SCHEMES = [
    "int8 per_tensor",
    "int8 per_channel(0)",
    "int8n per_channel(0)",
    "uint8 asymmetric per_channel(0)",
    "uint8 asymmetric per_tensor",
    "int4 per_group(128)",
    "uint4 asymmetric per_group(128)",
]


def seconds(x: torch.Tensor, scheme: qc.Scheme, earlier: qc.Quantized) -> float:
    start = time.perf_counter()
    qc.apply(x, scheme, out=earlier)
    return time.perf_counter() - start


def ratio(x: torch.Tensor, scheme: qc.Scheme, textbook: qc.Scheme) -> float:
    """The convention's time over the textbook's: the median over alternating runs."""
    earlier = qc.apply(x, scheme)
    return statistics.median(
        seconds(x, scheme, earlier) / seconds(x, textbook, earlier) for _ in range(ROUNDS)
    )


def main() -> int:
    """Print the table; return the exit status."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    print(f"| convention | {' | '.join(SCHEMES)} |\n|---|{'---:|' * len(SCHEMES)}")
    worst = 0.0
    for name in qc.INTEGER_CONVENTIONS:
        cells = []
        for text in SCHEMES:
            scheme = qc.Scheme.parse(f"{text} {name}")
            if qc.unsupported_reason(scheme, SHAPE):
                cells.append("")
                continue
            found = ratio(x, scheme, qc.Scheme.parse(text))
            worst = max(worst, found)
            cells.append(f"{found:.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\nmost: {worst:.2f}, budget {BUDGET} {'kept' if worst <= BUDGET else 'EXCEEDED'}")
    return int(worst > BUDGET)


if __name__ == "__main__":
    sys.exit(main())
