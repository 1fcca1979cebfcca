"""The estimate of errors, held against the schemes that it stands for, computed with the library."""

import math

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some_rows

import quantcore as qc
from quantcore.diagnosis import estimate
from quantcore.diagnosis.estimate import Drawn
from quantcore.granularity import blocked_shape


def numbers(shape, seed=0):
    """Long tails, zeros, and one block of zeros."""
    x = np.random.default_rng(seed).standard_t(3, shape).astype(np.float32)
    x.reshape(-1)[::7] = 0
    x.reshape(-1)[: max(1, x.size // 8)] = 0
    return torch.from_numpy(x)


def drawn(x, granularity):
    low, high = x.aminmax()
    return Drawn(x.reshape(blocked_shape(granularity, tuple(x.shape))), (float(low), float(high)))


def squares(x, scheme, fraction):
    """The squared error of every element if all scales of min-max are multiplied by ``fraction``."""
    params = qc.choose_qparams(x, scheme)
    scale = params.scale * np.float32(fraction)
    x_hat = qc.dequantize(qc.quantize(x, scale, params.zero_point, scheme), scale, params.zero_point, scheme)
    return (x.double() - x_hat.double()).square().numpy()


def by_block(values, scheme, shape):
    """Sums over blocks; a dictionary from the block's place."""
    whole, sums = blocked_shape(scheme.granularity, shape), {}
    lengths = qc.block_shape(scheme.granularity, shape)
    for place, value in np.ndenumerate(values.reshape(whole)):
        block = tuple(i // n for i, n in zip(place, lengths, strict=True))
        sums[block] = sums.get(block, 0.0) + value
    return sums


CASES = [
    ((4, 24), "int4 per_channel(0)"), ((4, 24), "int4 per_channel(1)"), ((5, 26), "int3 per_group(8)"),
    ((26, 5), "int4 asymmetric per_group(8, axis=0)"), ((3, 4, 10), "uint4 asymmetric per_group(4)"),
    ((7, 9), "int2 asymmetric per_block([2, 4])"), ((6, 7), "int4n per_flat_group(8)"), ((4, 24), "uint4 per_channel(0)"),
    ((90,), "int5 per_group(16)"), ((4, 24), "nf4 per_channel(0)"), ((4, 24), "e2m1 per_group(8)"), ((4, 300), "int4 per_group(32)"),
    ((4, 256), "int4 per_group(32)"), ((5, 205), "int4 per_channel(0)"),
]  # fmt: skip


@for_each(("shape", "text"), some_rows(CASES, 13))
def test_of_a_small_tensor_the_estimate_is_exact(shape, text):
    """Up to 4,096 elements are all drawn: with min-max, and with the best of the fractions for every block."""
    x, scheme = numbers(shape), qc.Scheme.parse(text)
    (found,) = drawn(x, scheme.granularity).estimates(scheme.format, [(scheme.granularity, scheme.symmetric)])
    assert (found.granularity, found.symmetric) == (scheme.granularity, scheme.symmetric)
    fractions = [k / 32 for k in range(32, 0, -1)]
    if x.numel() > 1024:
        fractions = [1, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.22, 0.15, 0.1]
    errors = {fraction: squares(x, scheme, fraction) for fraction in fractions}
    plain = qc.apply(x, scheme).error.double().square().mean().item()
    assert found.min_max == pytest.approx(plain, rel=1e-4)
    best = min(fractions, key=lambda f: errors[f].sum())
    assert found.shrink == pytest.approx(best)
    sums = [by_block(e, scheme, shape) for e in errors.values()]
    least = sum(min(s[block] for s in sums) for block in sums[0])
    assert found.searched == pytest.approx(least / x.numel(), rel=1e-4)
    assert found.searched < found.min_max


def test_of_one_block_the_fraction_is_that_of_the_tensor():
    x, scheme = numbers((4, 24)), qc.Scheme.parse("int4")
    (found,) = drawn(x, qc.PerTensor()).estimates(scheme.format, [(qc.PerTensor(), True)])
    assert found.searched == pytest.approx(squares(x, scheme, found.shrink).mean(), rel=1e-4)
    assert found.min_max == pytest.approx(squares(x, scheme, 1).mean(), rel=1e-4)


def test_several_estimates_at_once_are_those_one_by_one(monkeypatch):
    x, fmt = numbers((6, 40)), qc.IntFormat(4)
    pairs = [(g, symmetric) for g in (qc.PerTensor(), qc.PerChannel(0), qc.PerGroup(8)) for symmetric in (True, False)]
    together = drawn(x, qc.PerTensor()).estimates(fmt, pairs)
    assert together == [drawn(x, qc.PerTensor()).estimates(fmt, [pair])[0] for pair in pairs]
    monkeypatch.setattr(estimate, "_TOGETHER", 10_000)
    assert drawn(x, qc.PerTensor()).estimates(fmt, pairs) == together
    assert drawn(x, qc.PerTensor()).estimates(fmt, []) == []


@for_each("shape", [(3,) * 13, (2,) * 24, (1,) * 5 + (9,) * 20])
def test_few_elements_are_drawn_of_many_axes(shape):
    assert 1 <= math.prod(map(len, estimate._places(shape))) <= 4096


@for_each("shape", [(4096,), (4097,), (3, 2000), (2000, 3), (64, 64), (65, 64), (40, 6, 50), (9, 8, 7, 30), (50, 50, 50, 9), ()])
def test_which_elements_are_drawn(shape):
    """All of 4,096, else nearly as many, in runs of 8 along the last axis where it is not drawn as a whole."""
    places = estimate._places(shape)
    assert [list(p) for p in estimate._places(shape)] == [list(p) for p in places]
    assert len(places) == len(shape)
    count = math.prod(map(len, places))
    for place, n in zip(places, shape, strict=True):
        assert (np.diff(place) > 0).all()
        assert 0 <= place[0] <= place[-1] < n
    if math.prod(shape) <= 4096:
        assert count == math.prod(shape)
    else:
        assert 1200 <= count <= 4096
        if len(places[-1]) < shape[-1]:
            runs = places[-1].reshape(-1, 8)
            assert (runs[:, 0] % 8 == 0).all()
            assert (np.diff(runs) == 1).all()
            assert all(len(p) == n for p, n in zip(places[:-1], shape[:-1], strict=True) if n < 8)


@for_each("granularity", [qc.PerTensor(), qc.PerChannel(0), qc.PerChannel(1), qc.PerGroup(48), qc.PerGroup(7, 0),
                                         qc.PerBlock((16, 64))])  # fmt: skip
def test_the_ranges_of_drawn_elements_are_those_of_their_whole_blocks(granularity):
    x = numbers((70, 300))
    found = drawn(x, granularity)
    low, high = found.range(granularity)
    chosen = np.ix_(*found.places)
    blocks = tuple(p // n for p, n in zip(found.places, qc.block_shape(granularity, (70, 300)), strict=True))
    wanted = qc.choose_qparams(x, qc.Scheme(granularity=granularity, symmetric=False))
    for ends, expected in ((low, wanted.low), (high, wanted.high)):
        exact = np.clip(expected.numpy()[np.ix_(*blocks)].reshape(-1), *((None, 0) if ends is low else (0, None)))
        assert np.array_equal(np.broadcast_to(np.clip(ends, *((None, 0) if ends is low else (0, None))), exact.shape), exact)
    assert np.array_equal(found.values, x.numpy()[chosen].reshape(-1))
    inside = (low <= found.values) & (found.values <= high)
    assert inside.all()
