"""The error curve and the marks of all range settings, compared with quantizing with these ranges."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some, some_rows

import quantcore as qc
from quantcore.analysis.range_curves import MAX_ELEMENTS, elements_of, measured_blocks
from quantcore.range_setting import METHODS

X = torch.randn(6, 40, generator=torch.Generator().manual_seed(2)) ** 3 + 0.5
SCHEMES = [
    "int4",
    "int4 asymmetric",
    "uint8 asymmetric per_channel(0) torchao",
    "int8 per_channel(1) onnxruntime",
    "int4 per_group(7)",
    "uint2 asymmetric per_block([4,16])",
    "int4 per_flat_group(11)",
    "e4m3fn per_channel(0)",
    "e2m1 per_group(16)",
    "nf4 per_group(10)",
]
QUICK = *METHODS[:4], qc.Entropy(160), *METHODS[5:]  # of 2,048 bins, Entropy takes longer than all others
each_scheme = for_each("text", some(SCHEMES, 5))


def ranged(scheme, setting):
    return dataclasses.replace(scheme, range_setting=setting)


def blocks_of(x, scheme):
    """Every block with its place in the grid of scales."""
    result = qc.apply(x, ranged(scheme, qc.MinMax()))
    places = np.ndindex(*result.scale.shape) if result.scale.dim() else [()]
    return [(place, elements_of(x, scheme.granularity, place)) for place in places]


def alone(block, scheme, low, high):
    """The report on one block quantized with this range; None if the range is empty."""
    if not low < high:
        return None
    return qc.report(
        qc.apply(block, ranged(dataclasses.replace(scheme, granularity=qc.PerTensor()), qc.Fixed(low, high)))
    )


@for_each(("text", "i"), some_rows(itertools.product(SCHEMES, [9, 24, 49, 61]), 34))
def test_curve_is_what_quantizing_with_these_ranges_gives(text, i):
    scheme = qc.Scheme.parse(text)
    curve = qc.range_curve(X, scheme)
    share = curve.fractions[i]
    clipping = rounding = clipped = 0.0
    for _, block in blocks_of(X, scheme):
        low, high = block.min(), block.max()
        still = torch.zeros(()) if scheme.symmetric else torch.zeros(()).clamp(low, high)
        ends = [float(end if share == 1 else still + (end - still) * float(share)) for end in (low, high)]
        found = alone(block, scheme, *ends)
        if found is None:
            pytest.skip("a block without a range")
        clipping += found.clipping_sse
        rounding += found.rounding_sse
        clipped += found.clipped
    n = X.numel()
    # the same numbers, summed in another order
    assert curve.clipping[i] == pytest.approx(clipping / n, rel=1e-12)
    assert curve.rounding[i] == pytest.approx(rounding / n, rel=1e-12)
    assert curve.clipped[i] == clipped / n
    assert (curve.measured, curve.elements) == (n, n)


@each_scheme
def test_curve_without_shrinking_is_min_max(text):
    scheme = qc.Scheme.parse(text)
    curve = qc.range_curve(X, ranged(scheme, qc.Percentile(80)))
    (whole,) = np.flatnonzero(curve.fractions == 1)
    report = qc.report(qc.apply(X, scheme))
    assert curve.mse[whole] == pytest.approx(report.mse, rel=1e-12)
    assert curve.clipped[whole] == report.clipped_fraction
    assert curve.best == np.flatnonzero(curve.mse == curve.mse.min())[-1]


@for_each("text", some(sorted(SCHEMES, key=lambda text: "torchao" not in text), len(SCHEMES)))  # one block is the quickest
def test_marks_are_the_reports(text):
    scheme = qc.Scheme.parse(text)
    x = X[: 4 if "per_block" in text else 1]  # a row, and no less than a block
    marks = qc.range_marks(x, scheme)
    expected = [s for s in METHODS if not qc.unsupported_reason(ranged(scheme, s), tuple(x.shape))]
    # with many blocks, entropy uses fewer bins
    kinds = (qc.Entropy,)
    assert [type(m.setting) for m in marks] == [type(s) for s in expected]
    assert [m.setting for m in marks if type(m.setting) not in kinds] == [
        s for s in expected if type(s) not in kinds
    ]
    for mark in marks:
        result = qc.apply(x, ranged(scheme, mark.setting))
        report = qc.report(result)
        assert mark.mse == pytest.approx(report.mse, rel=1e-12), mark.name
        assert mark.sqnr_db == pytest.approx(report.sqnr_db, rel=1e-12)
        assert mark.clipped == report.clipped_fraction
        assert (mark.low, mark.high) == pytest.approx(qc.range_in_use(result), rel=1e-12)


@for_each("text", some(SCHEMES[4:] + SCHEMES[:4], 8))
def test_one_block_is_a_tensor_of_its_own(text):
    scheme = qc.Scheme.parse(text)
    place, block = blocks_of(X, scheme)[-1]
    own = dataclasses.replace(scheme, granularity=qc.PerTensor())
    part, whole = qc.range_curve(X, scheme, place), qc.range_curve(block, own)
    for field in ("widths", "clipping", "rounding", "clipped"):
        # elements are in another order after to_blocks
        np.testing.assert_allclose(getattr(part, field), getattr(whole, field), rtol=1e-12)
    assert part.elements == block.numel()
    for a, b in zip(qc.range_marks(X, scheme, place, QUICK), qc.range_marks(block, own, None, QUICK), strict=True):
        assert (a.setting, a.low, a.high) == (b.setting, b.low, b.high)
    result = qc.apply(X, scheme)
    minmax = qc.range_marks(X, scheme, place, (qc.MinMax(),))[0]
    assert qc.range_in_use(result, place) == (minmax.low, minmax.high)


def test_half_quadratic_is_marked_where_hqq_has_it():
    scheme = qc.Scheme.parse("uint4 asymmetric per_group(8) hqq")
    mark = qc.range_marks(X, scheme, settings=(qc.HalfQuadratic(),))[0]
    report = qc.report(qc.apply(X, ranged(scheme, qc.HalfQuadratic())))
    assert mark.mse == pytest.approx(report.mse, rel=1e-12)
    assert mark.clipped == report.clipped_fraction


def test_parameters_by_hand_are_no_mark_but_a_range():
    scheme = qc.Scheme.parse("uint4 asymmetric given(0.5, 3)")
    assert qc.range_marks(X, scheme, settings=(scheme.range_setting,)) == ()
    assert qc.range_in_use(qc.apply(X, scheme)) == (-1.5, 6.0)
    assert qc.range_in_use(qc.apply(X, qc.Scheme.parse("e2m1 given(0.5)"))) == (-3.0, 3.0)


@pytest.mark.slow  # by default, which elements are measured is tested
def test_large_tensors_are_measured_in_part_with_their_extremes():
    x = torch.randn(1100, 500, generator=torch.Generator().manual_seed(0))
    x[7, 5] = 40
    curve = qc.range_curve(x, qc.Scheme(qc.INT8))
    assert curve.measured < MAX_ELEMENTS < curve.elements == x.numel()
    assert curve.widths[curve.fractions == 1] == [40]
    assert qc.range_marks(x, qc.Scheme(qc.INT8), settings=(qc.MinMax(),))[0].high == 40
    channels = qc.range_curve(x, qc.Scheme(qc.INT8, granularity=qc.PerChannel(0)))
    assert channels.measured % 500 == 0  # complete channels
    assert channels.measured < MAX_ELEMENTS
    assert channels.blocks == 1100


@for_each(
    ("rows", "columns"),
    some_rows([(2, 262144), (2, 262145), (4, 262144), (1100, 1000), (6, 174762), (1, 1572864), (1, 1572870)], 3),
)
@for_each("granularity", some(["per_tensor", "per_channel(0)"]))
def test_which_elements_of_a_large_tensor_are_measured(rows, columns, granularity):
    """Beyond 2^19 elements, every k-th block of each box is measured or, in boxes of fewer than k blocks, every k-th
    element and the two extremes; k is odd."""
    x = torch.linspace(-1, 2, rows * columns).reshape(rows, columns).flip(1).contiguous()
    n = rows * columns
    blocks = x.reshape(1, -1) if granularity == "per_tensor" else x
    k = math.ceil(n / 2**19)
    k += 1 - k % 2
    expected = {}
    for box in blocks.split(max(1, 2**19 // blocks.shape[1])):
        if n <= 2**19:
            part = box
        elif len(box) >= k:
            part = box[::k]
        else:
            part = torch.cat([box[:, ::k], box.amin(1, keepdim=True), box.amax(1, keepdim=True)], 1)
        expected.setdefault(part.shape[1], []).append(part)
    found = measured_blocks(x, qc.Scheme.parse(f"int8 {granularity}"))
    assert {group.shape[1]: group.tolist() for group in found.block_groups} == {
        size: torch.cat(parts).tolist() for size, parts in expected.items()
    }
    assert (found.elements, found.blocks) == (n, len(blocks))
    assert found.elements_measured == sum(group.numel() for group in found.block_groups)
    assert found.blocks_measured == sum(len(group) for group in found.block_groups)


def test_groups_are_blocks_of_one_size():
    """Blocks are grouped by size; a single block is the one at its place."""
    x = torch.arange(70.0).reshape(7, 10)
    scheme = qc.Scheme.parse("int8 per_block([3,4])")
    found = measured_blocks(x, scheme)
    sizes = {group.shape[1]: group for group in found.block_groups}
    assert sorted(sizes) == [2, 4, 6, 12]
    assert [len(sizes[n]) for n in (2, 4, 6, 12)] == [1, 2, 2, 4]
    assert sizes[2].tolist() == [[68, 69]]
    assert (found.shape, found.elements, found.blocks, found.elements_measured, found.blocks_measured) == (
        (7, 10),
        70,
        9,
        70,
        9,
    )
    for place in np.ndindex(3, 3):
        down, across = (slice(3 * place[0], 3 * place[0] + 3), slice(4 * place[1], 4 * place[1] + 4))
        one = measured_blocks(x, scheme, place)
        assert one.block_groups[0].tolist() == [x[down, across].reshape(-1).tolist()]
        assert (one.elements, one.blocks) == (x[down, across].numel(), 1)


def test_fractions_of_the_curve():
    curve = qc.range_curve(X, qc.Scheme(qc.INT4, False, qc.PerGroup(7)))
    assert curve.fractions.tolist() == [k / 50 for k in range(1, 63)]  # 50 · 5/4 = 62.5 rounds to even
    assert curve.blocks == 36
    low, high = (
        torch.stack([end(b) for _, b in blocks_of(X, qc.Scheme(granularity=qc.PerGroup(7)))])
        for end in (torch.amin, torch.amax)
    )
    low, high = low.double(), high.double()
    anchor = torch.zeros_like(low).clamp(low, high)
    for fraction, width in zip(curve.fractions, curve.widths, strict=True):
        narrow = [anchor + (end - anchor) * fraction for end in (low, high)]
        expected = (narrow[1].clamp(min=0) - narrow[0].clamp(max=0)).mean().item()
        assert width == pytest.approx(expected, rel=1e-6)


@for_each(
    ("blocks", "bins"),
    [
        (2, 2048),
        (17, 2048),
        (18, 1024),
        (72, 1024),
        (73, 512),
        (339, 512),
        (340, 256),
        (2016, 256),
        (2017, None),
    ],
)
def test_bins_of_the_entropy_by_the_work(blocks, bins):
    """As many bins are used as keep bins times thresholds times blocks at 2^25 or less."""
    found = qc.Entropy(2048).quicker(blocks)
    assert (None if found is None else found.num_bins) == bins
    assert bins is None or found.num_quantized_bins == 128
    work = {b: b * (b // 2 - 64 + 1) for b in (2048, 1024, 512, 256)}
    fits = [b for b in work if work[b] * blocks <= 2**25]
    assert (fits[0] if fits else None) == bins


def test_entropy_never_gets_more_bins_or_fewer_than_it_quantizes_to():
    assert qc.Entropy(700, 300).quicker(1) == qc.Entropy(700, 300)
    assert qc.Entropy(700, 300).quicker(2000) is None
    assert qc.Entropy(512, 512).quicker(65536) == qc.Entropy(512, 512)
    assert qc.Entropy(512, 512).quicker(65537) is None
    assert qc.Percentile(99).quicker(10**9) == qc.Percentile(99)


@for_each("value", some([0.0, 3e38, -2.5, 1e-42], 4))
@for_each("text", some(["int4", "uint4 asymmetric", "e4m3fn", "nf4"]))
def test_odd_values(value, text):
    for x in (torch.full((3, 5), value), torch.tensor([value]), torch.tensor([[value, -value, value / 2]])):
        scheme = qc.Scheme.parse(text)
        curve = qc.range_curve(x, scheme)
        assert 0 <= curve.best < len(curve.fractions)
        for mark in qc.range_marks(x, scheme, settings=QUICK):
            report = qc.report(qc.apply(x, ranged(scheme, mark.setting)))
            assert mark.sqnr_db == pytest.approx(report.sqnr_db, rel=1e-9, nan_ok=True)


@for_each("place", [(6, 0), (0,), (-1, 0), (0, 1)])
def test_a_block_that_is_not_there(place):
    scheme = qc.Scheme(granularity=qc.PerChannel(0))
    with pytest.raises(qc.QuantError, match=r"There is no block .*\(0, 0\) to \(5, 0\)\."):
        qc.range_curve(X, scheme, place)


def test_nan_is_refused():
    with pytest.raises(qc.QuantError, match="NaN"):
        qc.range_curve([1.0, math.nan], qc.Scheme())


def test_entropy_of_many_blocks_takes_fewer_bins_or_none():
    x = torch.randn(4096, 8)
    entropies = [
        m.setting
        for m in qc.range_marks(x, qc.Scheme(granularity=qc.PerChannel(0)))
        if isinstance(m.setting, qc.Entropy)
    ]
    assert [e.num_bins for e in entropies] == []
    few = qc.range_marks(x[:100], qc.Scheme(granularity=qc.PerChannel(0)))
    assert [m.setting.num_bins for m in few if isinstance(m.setting, qc.Entropy)] == [512]
