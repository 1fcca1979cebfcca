"""PairSums of a chunk, of its worst element and its worst blocks, computed again element by element."""

import math

import numpy as np
import pytest
import torch

from quantcore.analysis import sums as module
from quantcore.checkpoints.comparison.boxes import WORST, PairSums, pair_sums

INF, NAN = math.inf, math.nan


def pair(*shape, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=shape).astype(np.float32)
    return x, (x + 0.1 * generator.normal(size=shape)).astype(np.float32)


def blocks_of(x, y, start, size):
    """Σe², Σx², the flat index of the first element, and the columns of every block of a row with an error, the worst first."""
    found = []
    for row in range(x.shape[0]):
        for column in range(0, x.shape[1], size):
            a, b = (t[row, column : column + size].astype(np.float64) for t in (x, y))
            found.append((((a - b) ** 2).sum(), (a**2).sum(), start + row * x.shape[1] + column, len(a)))
    return sorted((f for f in found if f[0] > 0), key=lambda f: (-f[0], f[2]))[:WORST]


@pytest.mark.parametrize("piece", [1 << 16, 16, 8, 1])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (1, 37), (7, 3), (7, 8), (7, 9), (3, 40), (1, 8), (1, 16)])
def test_sums(shape, piece, monkeypatch):
    """In pieces of any size: of lines, of columns, or of both."""
    monkeypatch.setattr(module, "RUN", 8)
    monkeypatch.setattr(module, "_PIECE", piece)
    x, y = pair(*shape)
    found = pair_sums(torch.from_numpy(x), torch.from_numpy(y), 100)
    a, b = x.astype(np.float64), y.astype(np.float64)
    assert (found.count, found.different, found.nonfinite) == (x.size, int((x != y).sum()), (0, 0, 0, 0))
    assert (found.xx, found.yy, found.xy, found.ee) == pytest.approx(((a * a).sum(), (b * b).sum(), (a * b).sum(), ((a - b) ** 2).sum()))
    worst = np.abs(a - b)
    assert (found.worst, found.worst_at) == (worst.max(), 100 + int(worst.argmax()))
    assert found.relative == pytest.approx(math.sqrt(((a - b) ** 2).sum() / (a * a).sum()))
    wanted = blocks_of(x, y, 100, 8)
    assert [block[2:] for block in found.blocks] == [block[2:] for block in wanted]
    assert [block[:2] for block in found.blocks] == [pytest.approx(block[:2]) for block in wanted]
    assert PairSums.of_list(found.as_list()) == found


def test_worst_of_equal_ones(monkeypatch):
    """The first of the largest differences, and the first of equal blocks; none without an error."""
    monkeypatch.setattr(module, "RUN", 4)
    x = np.zeros((400, 8), np.float32)
    y = x.copy()
    y[3:, 5] = 2.0
    y[7, 1] = -2.0
    found = pair_sums(torch.from_numpy(x), torch.from_numpy(y), 0)
    assert (found.worst, found.worst_at) == (2.0, 29)
    assert [block[2] for block in found.blocks] == [28, 36, 44, 52, 56]
    assert [block[0] for block in found.blocks] == [4.0] * 5
    assert found.relative == math.inf
    same = pair_sums(torch.from_numpy(y), torch.from_numpy(y), 0)
    assert (same.blocks, same.worst, same.worst_at, same.different, same.relative) == ([], 0.0, 0, 0, 0.0)


VALUES = {
    "x": ([NAN, INF, -INF, 1, 2], [0, 0, 0, 1, 4], (1, 2, 0, 0)), "y": ([0, 0, 0, 1, 2], [NAN, NAN, INF, 1, 4], (0, 0, 2, 1)),
    "both": ([NAN, INF, INF, 1, 2], [NAN, INF, 1, 1, 4], (1, 2, 1, 1)), "large": ([3e38, 0, 0, 1, 2], [-3e38, 0, 0, 1, 4], (0, 0, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("what", VALUES)
def test_values_that_are_not_finite(what):
    """Counted by side and left out on both; −0 and 0, and one NaN and another, differ in their bits."""
    x, y, nonfinite = VALUES[what]
    a, b = np.array([x], np.float32), np.array([y], np.float32)
    found = pair_sums(torch.from_numpy(a), torch.from_numpy(b), 10)
    good = np.isfinite(a) & np.isfinite(b)
    p, q = a[good].astype(np.float64), b[good].astype(np.float64)
    assert (found.nonfinite, found.count) == (nonfinite, int(good.sum()))
    assert found.different == int((a.view(np.int32) != b.view(np.int32)).sum())
    assert (found.xx, found.yy, found.xy, found.ee) == pytest.approx(((p * p).sum(), (q * q).sum(), (p * q).sum(), ((p - q) ** 2).sum()))
    assert (found.worst, found.worst_at) == (np.abs(p - q).max(), 10 + (4 if what != "large" else 0))
    assert pair_sums(torch.tensor([[0.0]]), torch.tensor([[-0.0]]), 0).different == 1


def test_sums_of_chunks_add_up():
    """In order; the worst of all chunks, the first on ties."""
    x, y = pair(60, 300)
    y[50, 7] = y[20, 9] = 9.0
    x[50, 7] = x[20, 9] = 0.0
    whole = pair_sums(torch.from_numpy(x), torch.from_numpy(y), 0)
    added = PairSums()
    for first in range(0, 60, 20):
        added.merge(pair_sums(torch.from_numpy(x[first : first + 20]), torch.from_numpy(y[first : first + 20]), first * 300))
    assert (added.count, added.different, added.worst, added.worst_at, added.blocks) == (
        whole.count, whole.different, 9.0, 20 * 300 + 9, whole.blocks,
    )  # fmt: skip
    assert (added.xx, added.yy, added.xy, added.ee) == pytest.approx((whole.xx, whole.yy, whole.xy, whole.ee), rel=1e-12)
    assert pair_sums(torch.zeros(0, 5), torch.zeros(0, 5), 0) == PairSums()
    with pytest.raises((TypeError, ValueError)):
        PairSums.of_list(added.as_list()[:-1])
