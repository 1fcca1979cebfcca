"""The range of each block against numpy; manual parameters, valid and invalid."""

import math
import warnings

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some

import quantcore as qc
from quantcore.granularity.extremes import extremes, magnitude
from quantcore.range_setting.basic import Task

SYMMETRIC, ASYMMETRIC = Task(qc.INT8, True), Task(qc.INT8, False)


def blocks(count, size, seed=0):
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed)) + 0.5


@for_each("task", [SYMMETRIC, ASYMMETRIC])
def test_min_max(task):
    x = blocks(5, 9)
    low, high = qc.MinMax()(x, task)
    assert low.tolist() == [min(row) for row in x.tolist()]
    assert high.tolist() == [max(row) for row in x.tolist()]


@for_each("p", [50.001, 60, 75, 90, 99, 99.9, 99.999, 100])
@for_each("size", [1, 2, 3, 8, 101, 1000])
def test_percentile_is_numpys_in_float64(p, size):
    x = blocks(4, size, seed=size)
    wide = x.numpy().astype(np.float64)
    low, high = qc.Percentile(p)(x, ASYMMETRIC)
    assert low.dtype == high.dtype == torch.float32
    # numpy interpolates from the nearer end, so the two may differ by an ulp in float64 before the cast
    for found, percent in ((low, 100 - p), (high, p)):
        expected = np.percentile(wide, percent, axis=-1)
        ulp = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
        assert (np.abs(found.numpy() - expected) <= ulp * (0.5 + 1e-6)).all()
    low, high = qc.Percentile(p)(x, SYMMETRIC)
    assert torch.equal(low, -high)
    assert np.array_equal(high.numpy(), np.percentile(np.abs(wide), p, axis=-1).astype(np.float32))


def test_percentile_of_known_values():
    x = torch.tensor([[4.0, 0.0, 3.0, 1.0, -2.0]])
    assert [v.item() for v in qc.Percentile(75)(x, ASYMMETRIC)] == [0.0, 3.0]
    assert [v.item() for v in qc.Percentile(87.5)(x, ASYMMETRIC)] == [-1.0, 3.5]
    assert [v.item() for v in qc.Percentile(75)(x, SYMMETRIC)] == [-3.0, 3.0]
    assert [v.item() for v in qc.Percentile(100)(x, SYMMETRIC)] == [-4.0, 4.0]


def test_range_settings_leave_the_blocks_alone():
    x = blocks(3, 50)
    for setting in (qc.MinMax(), qc.Percentile(90), qc.Fixed(-1, 2)):
        for task in (SYMMETRIC, ASYMMETRIC):
            before = x.clone()
            setting(x, task)
            assert torch.equal(x, before)


@for_each("p", [50, 49.9, 100.1, 0, -99, math.nan, math.inf, "99", None, True, 10**400])
def test_percentile_outside_its_range(p):
    with pytest.raises(qc.QuantError, match=r"[Pp]ercentile"):
        qc.Percentile(p)


@for_each(
    ("low", "high", "symmetric", "expected"),
    [
        (-1, 3, False, (-1, 3)),
        (-1, 3, True, (-3, 3)),
        (-4, 3, True, (-4, 4)),
        (1, 3, False, (0, 3)),
        (-3, -1, False, (-3, 0)),
        (-3, -1, True, (-3, 3)),
    ],
)
def test_fixed(low, high, symmetric, expected):
    scheme = qc.Scheme(qc.INT8, symmetric, qc.PerGroup(2), qc.Fixed(low, high))
    params = qc.choose_qparams(blocks(3, 4), scheme)
    assert params.low.unique().tolist() == [expected[0]]
    assert params.high.unique().tolist() == [expected[1]]
    width = np.float32(expected[1] if symmetric else expected[1] - expected[0])
    assert params.scale.unique().tolist() == [float(width / np.float32(127 if symmetric else 255))]


@for_each(
    ("low", "high"),
    [
        (1, 1),
        (2, 1),
        (math.nan, 1),
        (0, math.inf),
        (-math.inf, 0),
        (-1e39, 1),
        ("0", 1),
        (0, True),
        (0, 10**400),
    ],
)
def test_fixed_that_is_no_range(low, high):
    with pytest.raises(qc.QuantError):
        qc.Fixed(low, high)


def test_fixed_may_be_all_of_float32():
    largest = torch.finfo(torch.float32).max
    assert qc.Fixed(-largest, largest).high == largest


def test_given_for_all_blocks_or_one_a_block():
    x = torch.ones(2, 6)
    scheme = qc.Scheme(granularity=qc.PerGroup(2), range_setting=qc.Given(0.5, 3))
    params = qc.choose_qparams(x, scheme)
    assert (params.scale.tolist(), params.zero_point.tolist()) == ([[0.5] * 3] * 2, [[3] * 3] * 2)
    scales, zero_points = ((0.1, 0.2, 0.3), (1.0, 2.0, 1e-40)), ((0, 1, -2), (3, 4, 5))
    for by_hand in (
        qc.Given(scales, zero_points),
        qc.Given([list(row) for row in scales], [list(row) for row in zero_points]),
        qc.Given(np.array(scales), torch.tensor(zero_points)),
    ):
        params = qc.choose_qparams(x, qc.Scheme(granularity=qc.PerGroup(2), range_setting=by_hand))
        assert params.scale.tolist() == np.float32(scales).tolist()
        assert params.zero_point.tolist() == [list(row) for row in zero_points]
        assert by_hand == qc.Given(scales, zero_points)
        assert hash(by_hand) == hash(qc.Given(scales, zero_points))
    assert qc.Given(np.float32(0.5), np.int64(3)) == qc.Given(0.5, 3)
    assert qc.Given(1, 2.0) == qc.Given(1.0, 2)
    assert qc.Given(1, (2**31 - 1, -(2**31))).zero_point == (2**31 - 1, -(2**31))
    assert qc.Given(1.4e-45).scale == 1.4e-45


@for_each(
    ("scale", "zero_point", "words"),
    [
        (0, 0, "positive"),
        (-0.1, 0, "positive"),
        (1e-50, 0, "positive and within float32"),
        (1e39, 0, "positive and within float32"),
        (10**400, 0, "larger than any float64"),
        (math.nan, 0, "finite"),
        (math.inf, 0, "finite"),
        ("0.1", 0, "finite"),
        (None, 0, "finite"),
        (True, 0, "finite"),
        ((0.1, 0), 0, "positive"),
        (((0.1,), (math.nan,)), 0, "finite"),
        (0.1, 1.5, "zero_point must be an integer"),
        (0.1, math.nan, "zero_point must be an integer"),
        (0.1, (1, 1.5), "zero_point must be an integer"),
        (0.1, "3", "zero_point must be an integer"),
        (0.1, 10**400, "larger than any float64"),
        (0.1, 2**31, "does not fit in 32 bits"),
        (0.1, (0, -(2**31) - 1), "does not fit in 32 bits"),
        (0.1, 2**70, "does not fit in 32 bits"),
    ],
)
def test_given_that_is_no_parameter(scale, zero_point, words):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(qc.QuantError, match=words):
            qc.Given(scale, zero_point)


@for_each(
    ("scale", "zero_point", "words"),
    [
        ((0.1, 0.2), 0, r"scale has shape \(2,\), but the blocks form a grid of \(2, 1\)"),
        (((0.1, 0.2),), 0, r"scale has shape \(1, 2\)"),
        (((0.1,),), 0, r"scale has shape \(1, 1\)"),
        ((), 0, "scale has shape"),
        (0.1, ((1,), (2,), (3,)), r"zero_point has shape \(3, 1\)"),
        (((0.1,), (0.2, 0.3)), 0, "rows of scale have different lengths"),
        ((0.1, (0.2,)), 0, "rows of scale have different lengths"),
        (0.1, ((1,), 2), "rows of zero_point have different lengths"),
    ],
)
def test_given_that_does_not_fit_the_tensor(scale, zero_point, words):
    scheme = qc.Scheme(granularity=qc.PerChannel(0), range_setting=qc.Given(scale, zero_point))
    with pytest.raises(qc.QuantError, match=words):
        qc.choose_qparams(torch.ones(2, 6), scheme)


def test_only_the_range_of_a_block_decides_its_parameters():
    x = blocks(4, 8)
    other = x.clone()
    other[2] *= 10
    scheme = qc.Scheme(granularity=qc.PerChannel(0), range_setting=qc.Percentile(80))
    before, after = (qc.choose_qparams(t, scheme).scale.flatten() for t in (x, other))
    assert (before == after).tolist() == [True, True, False, True]


@for_each("size", [2, 7, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65])
@for_each("groups", some([5, 1, 6, 2], 2))
@for_each("rest", [0, 1])
def test_the_largest_of_short_groups(size, groups, rest):
    """Short groups are processed in pairs where possible; their scales must be those of single groups."""
    x = torch.randn(6, size * groups + rest, generator=torch.Generator().manual_seed(size))
    params = qc.choose_qparams(x, qc.Scheme.parse(f"int8 per_group({size})"))
    largest = torch.stack([g.abs().amax(1) for g in x.split(size, dim=1)], 1)
    assert torch.equal(params.high, largest)
    assert torch.equal(params.low, -largest)


@for_each("shape", [(2, 64), (2, 60), (1, 66), (256,), (2, 96)])
def test_short_groups_go_the_fast_way(shape):
    """Only runs of 2 to 64 along the last axis do, those under 32 only in pairs and without NaN."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for n in (n for n in range(1, shape[-1] + 1) if shape[-1] % n == 0):
        block = (*(1,) * (len(shape) - 1), n)
        fast = magnitude(x, block)
        paired = n < 32
        assert (fast is not None) == (2 <= n <= 64 and not (paired and shape[-1] % (2 * n))), n
        if fast is not None:
            low, high = extremes(x, block)
            assert torch.equal(fast[1].reshape(-1), torch.maximum(-low, high).reshape(-1))
            assert torch.equal(fast[0], -fast[1])
            odd = x.clone()
            odd.view(-1)[5] = math.nan
            with_nan = magnitude(odd, block)
            assert (with_nan is None) == paired
        if len(shape) == 2 and shape[0] == 2:
            assert magnitude(x, (2, n)) is None
    assert magnitude(torch.tensor(3.0), ()) is None


@for_each("value", [0.0, math.nan, math.inf, -math.inf])
@for_each(("shape", "block"), [((64, 6), (64, 1)), ((192, 3, 2), (64, 1, 1)), ((63, 5), (63, 1))])
def test_ends_of_tall_blocks(shape, block, value):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x.view(-1)[20] = value
    rows = qc.to_blocks(x, block)
    low, high = extremes(x, block)
    assert torch.equal(low.reshape(-1).nan_to_num(9), rows.amin(1).nan_to_num(9))
    assert torch.equal(high.reshape(-1).nan_to_num(9), rows.amax(1).nan_to_num(9))


@for_each("at", [0, 5, 16, 31, 40])
def test_nan_stays_in_its_group(at):
    x = torch.ones(2, 64)
    x[1, at] = float("nan")
    scale = qc.choose_qparams(x, qc.PRESETS["torchao.nvfp4.1level"]).scale
    assert scale.isnan().tolist() == [[False] * 4, [g == at // 16 for g in range(4)]]
