"""What the server's memory and processor do, measured once when a lesson first shows it."""

import threading
import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch

TOKENS, SIZE = 16, 1024  # of the product that is timed: x of [TOKENS, SIZE] and a weight of [SIZE, SIZE]
COPIED = 64 << 20  # bytes: more than the caches of most processors
_REPEATS = 9  # the fastest counts: others waited for other work on the server
_LOCK = threading.Lock()


class ProductTimes(NamedTuple):
    """Seconds of one product in float32 and in int8, and on what."""

    float32: float
    int8: float
    processor: str
    threads: int


def bandwidth() -> float:
    """Return the bytes per second that a copy reads and writes."""
    with _LOCK:  # a second visitor waits, since two measurements at a time disturb each other
        return _bandwidth()


def product_times() -> ProductTimes:
    """Return how long x·wᵀ takes in float32, and with int8 weights and activations by torch's kernel.

    The int8 product includes the quantization of x, and its output is float32, as in a dynamically quantized
    layer.
    """
    with _LOCK:
        return _product_times()


@cache
def _bandwidth() -> float:
    source = torch.ones(COPIED, dtype=torch.uint8)
    target = torch.zeros_like(source)
    return 2 * COPIED / _fastest(lambda: target.copy_(source))


@cache
def _product_times() -> ProductTimes:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(rows, SIZE, generator=generator) for rows in (TOKENS, SIZE))
    with warnings.catch_warnings():
        # torch 2.13 announces that it will remove its quantized tensors; its int8 kernels still take them
        warnings.simplefilter("ignore", UserWarning)
        codes = torch.quantize_per_tensor(w, float(w.abs().max()) / 127, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(codes, None)
    return ProductTimes(
        _fastest(lambda: x @ w.T),
        _fastest(lambda: torch.ops.quantized.linear_dynamic(x, packed, True)),
        torch.backends.cpu.get_cpu_capability(),
        torch.get_num_threads(),
    )


def _fastest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of a few runs."""
    found = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)
