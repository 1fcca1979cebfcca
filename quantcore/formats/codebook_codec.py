"""Encode float32 as the nearest value of a codebook, with ties exactly as in the libraries.

Every tie rule reduces to one float32 threshold per pair of neighbors: the largest number that rounds to the
lower one. The upper 16 bits of a number select at most one threshold; a look-up and one comparison decide.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from quantcore.numerics import like

TIES = ("lower", "upper", "away", "first", "grid")
_GRID = 65535  # steps from -1 to 1 between the points of `grid`

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Codebook = tuple[tuple[float, ...], str]  # values in the order of their codes, and the rule for ties


@lru_cache(maxsize=64)
def steps(codebook: Codebook) -> tuple[list[int], list[float]]:
    """Return the codes by rising values, and the largest float32 that rounds to each but the last.

    Of equal values, ``first`` uses only the first. With the other rules, the lowest of their codes takes the
    numbers below, and the highest takes the numbers above.
    """
    values, tie = codebook
    table = np.array(values, dtype=np.float32)
    order = np.argsort(table, kind="stable")
    if tie == "first":
        order = order[np.concatenate([[True], np.diff(table[order]) > 0])]
    low, high = table[order[:-1]], table[order[1:]]
    if tie == "first":
        return order.tolist(), _nearest(low, high, order[:-1] < order[1:]).tolist()
    if tie == "grid":
        return order.tolist(), _on_grid(low, high).tolist()
    middle = low * np.float32(0.5) + high * np.float32(0.5)  # float32, as in the libraries
    up = (tie == "upper") | ((tie == "away") & (middle >= 0))
    threshold = np.where(up, _next(middle, -1), middle)
    # between adjacent float32 numbers the midpoint rounds to one of them: each still rounds to itself
    own = np.minimum(np.maximum(threshold, low), _next(high, -1))
    return order.tolist(), np.where(low < high, own, threshold).tolist()


def _next(values: Floats, direction: int) -> Floats:
    return np.nextafter(values, np.float32(direction * np.inf))


def _nearest(low: Floats, high: Floats, low_first: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
    """Return the largest float32 that argmin(|x - table|), computed in float32, maps to the lower value.

    Both distances are rounded, so they are equal on an interval around the midpoint, where the lower code
    wins. Found by bisection: as x rises, one distance never falls and the other never rises.
    """
    below, above = _rank(low), _rank(high)
    while (above - below > 1).any():
        middle = (below + above) // 2
        x = _from_rank(middle)
        to_low, to_high = x - low, high - x
        takes_low = (to_low < to_high) | ((to_low == to_high) & low_first)
        below, above = np.where(takes_low, middle, below), np.where(takes_low, above, middle)
    return _from_rank(below)


def _on_grid(low: Floats, high: Floats) -> Floats:
    """Return the largest float32 whose nearest point of the grid is nearest to the lower value.

    bitsandbytes 0.50, csrc/cpu_ops.cpp, norm_to_lut_index and build_quantize_lut: numbers clamped to -1..1
    take the nearest of 65,536 points, by one fused multiplication and addition; the code is the point's.
    """
    points = np.float32(-1) + (np.float32(2) * np.arange(_GRID + 1, dtype=np.float32)) / np.float32(_GRID)
    last = (
        np.searchsorted(points, np.float32(0.5) * (low + high), side="right") - 1
    )  # at or below the midpoint
    below, above = _rank(np.full_like(low, -1)) - 1, _rank(np.full_like(low, 1)) + 1
    while (above - below > 1).any():
        middle = (below + above) // 2
        half = (_from_rank(middle).clip(-1, 1) + np.float32(1)) * np.float32(0.5)
        place = (half.astype(np.float64) * _GRID + 0.5).astype(np.float32).astype(np.int64)
        below, above = np.where(place <= last, middle, below), np.where(place <= last, above, middle)
    return _from_rank(below)


def _rank(values: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the place of float32 values in ascending order: neighbors differ by 1, and 0 is 0."""
    bits = (values + np.float32(0)).view(np.int32).astype(np.int64)  # -0 counts as 0
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def _from_rank(ranks: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Floats:
    bits = np.where(ranks < 0, 0x80000000 - ranks, ranks).astype(np.uint32)
    return bits.view(np.float32)


@lru_cache(maxsize=64)
def _halves(codebook: Codebook) -> tuple[Tensor, Tensor] | None:
    """Return, for the upper 16 bits of a float32, the threshold among its numbers and the codes around it.

    As (65536,) float32, infinite without a threshold, and (65536,) int32, code below + 256 · code above; None
    if some upper half has two thresholds.
    """
    codes, thresholds = steps(codebook)
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    bounds = np.sort(np.stack([upper, upper | 0xFFFF]).view(np.float32), axis=0)
    below, above = np.searchsorted(np.array(thresholds, dtype=np.float32), bounds)
    number = ~np.isnan(bounds).any(axis=0)
    if (above - below)[number].max() > 1:
        return None
    limit = np.array([*thresholds, np.inf], dtype=np.float32)[below]
    limit[(above == below) | ~number] = np.inf
    order = np.array([*codes, codes[-1]], dtype=np.int32)
    both = order[below] | order[np.minimum(below + 1, len(codes))] << 8
    return torch.from_numpy(limit), torch.from_numpy(both)


def encode_(work: Tensor, out: Tensor, codebook: Codebook) -> Tensor:
    """Write the codes of ``work``, float32 and contiguous, into ``out`` of the same shape."""
    halves, (codes, thresholds) = _halves(codebook), steps(codebook)
    found = _search(work, codes, thresholds) if halves is None else _look_up(work, *halves)
    if bool(work.amax().isnan()):
        found.masked_fill_(work.isnan(), 0 if codebook[1] in ("first", "grid") else codes[-1])
    return out.copy_(found)


def _look_up(work: Tensor, limit: Tensor, both: Tensor) -> Tensor:
    """Look up the threshold by the upper half of each number, and choose the code below or above it."""
    x = work.reshape(-1)
    index, found = (like(x, place, torch.int32) for place in ("index", "found"))
    torch.bitwise_right_shift(x.view(torch.int32), 16, out=index).bitwise_and_(0xFFFF)
    torch.index_select(both.to(work.device), 0, index, out=found)
    passed = torch.index_select(limit.to(work.device), 0, index, out=like(x, "passed"))
    # float32 instead of bool: comparing into booleans takes four times as long
    torch.gt(x, passed, out=passed)
    found.bitwise_right_shift_(index.copy_(passed.mul_(8)))
    return found.bitwise_and_(0xFF).view(work.shape)


def _search(work: Tensor, codes: list[int], thresholds: list[float]) -> Tensor:
    """Binary search for all elements at once: for codebooks with values very close together."""
    half = 1 << (len(thresholds).bit_length() - 1)
    padded = torch.full((2 * half,), torch.inf, device=work.device)
    padded[: len(thresholds)] = torch.tensor(thresholds, device=work.device)
    x = work.reshape(-1)
    place, limit, passed = torch.zeros_like(x, dtype=torch.int32), torch.empty_like(x), torch.empty_like(x)
    while half:
        torch.index_select(padded[half - 1 :], 0, place, out=limit)
        place.add_(torch.gt(x, limit, out=passed).to(torch.int32), alpha=half)
        half >>= 1
    order = torch.tensor(codes, dtype=torch.int32, device=work.device)
    return order.index_select(0, place).view(work.shape)
