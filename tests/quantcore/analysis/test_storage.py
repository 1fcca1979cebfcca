"""Storage in bits, compared with counts by hand."""

import itertools
import math

import pytest
from grid import for_each

import quantcore as qc

BY_BLOCKS = [
    (qc.PerTensor(), (64, 128), 1),
    (qc.PerTensor(), (), 1),
    (qc.PerChannel(0), (64, 128), 64),
    (qc.PerChannel(-1), (64, 128), 128),
    (qc.PerGroup(32), (64, 128), 64 * 4),
    (qc.PerGroup(100), (64, 128), 64 * 2),
    (qc.PerBlock((16, 48)), (64, 128), 4 * 3),
]


@for_each(("granularity", "shape", "blocks"), BY_BLOCKS)
def test_bits(granularity, shape, blocks):
    elements = math.prod(shape)
    for bits, signed, symmetric in itertools.product((2, 4, 5, 8, 16), (True, False), (True, False)):
        scheme = qc.Scheme(qc.IntFormat(bits, signed), symmetric, granularity)
        found = qc.storage(scheme, shape)
        zero_points = 0 if symmetric else blocks * bits
        assert found == qc.Storage(elements, elements * bits, blocks * 32, zero_points)
        total = elements * bits + blocks * 32 + zero_points
        assert found.bits_per_element == qc.bits_per_element(scheme, shape) == total / elements
        assert qc.compression_ratio(scheme, shape) == pytest.approx(32 * elements / total)
        assert qc.compression_ratio(scheme, shape, 16) == pytest.approx(16 * elements / total)


def test_known_costs():
    int4 = qc.Scheme(qc.INT4, granularity=qc.PerGroup(32))
    assert qc.bits_per_element(int4, (64, 128)) == 5.0
    assert qc.compression_ratio(int4, (64, 128)) == 6.4
    asymmetric = qc.Scheme(qc.INT4, False, qc.PerGroup(32))
    assert qc.bits_per_element(asymmetric, (64, 128)) == 5.125


@for_each(
    ("fmt", "zero_point", "bits"),
    [
        (qc.INT8, 0, 0),
        (qc.INT8, 5, 16),
        (qc.INT8, ((0,), (0,)), 0),
        (qc.INT8, ((0,), (1,)), 16),
        (qc.UINT8, 128, 0),
        (qc.UINT8, ((128,), (128,)), 0),
        (qc.UINT8, 0, 0),
        (qc.UINT8, 5, 16),
    ],
)
def test_zero_points_by_hand(fmt, zero_point, bits):
    setting = qc.Given(0.1, zero_point)
    scheme = qc.Scheme(fmt, True, qc.PerChannel(0), setting)
    assert qc.storage(scheme, (2, 8)).zero_points == bits
    assert qc.storage(qc.Scheme(fmt, False, qc.PerChannel(0), setting), (2, 8)).zero_points == 16


@for_each("shape", [(0,), (3, 0), (2, -1)])
def test_shape_without_elements(shape):
    with pytest.raises(qc.QuantError, match="no elements"):
        qc.storage(qc.Scheme(), shape)


@for_each(
    ("text", "codes", "scales", "zero_points"),
    [
        # 2 rows of 4 groups of 8: 8 scales
        ("int4 per_group(8) scales(uint8 asymmetric)", 64 * 4, 8 * 8 + 32 + 8, 0),
        ("int4 asymmetric per_group(8) scales(int6 per_channel(0))", 64 * 4, 8 * 6 + 2 * 32, 8 * 4),
        ("int4 per_group(8) scales(uint8 asymmetric given(0.5, 3))", 64 * 4, 8 * 8, 0),
        ("int4 per_group(8) scales(e8m0 given(1))", 64 * 4, 8 * 8, 0),
        ("int4 per_group(8) scales(int8 textbook(center=mean))", 64 * 4, 8 * 8 + 32 + 32, 0),
        ("uint4 asymmetric per_group(8) textbook(zero_point_form=min)", 64 * 4, 8 * 32, 8 * 32),
        (
            "uint4 asymmetric per_group(8) textbook(zero_point_form=min) scales(fp16 given(1))",
            64 * 4,
            8 * 16,
            8 * 16,
        ),
        ("uint4 asymmetric per_group(8) hqq", 64 * 4, 8 * 32, 8 * 32),
        ("int4 per_group(8) textbook(code_bits=1.6)", 103, 8 * 32, 0),  # 102.4, rounded up
    ],
)
def test_bits_of_scales_and_zero_points(text, codes, scales, zero_points):
    found = qc.storage(qc.Scheme.parse(text), (2, 32))
    assert (found.codes, found.scales, found.zero_points) == (codes, scales, zero_points)


def test_scheme_that_does_not_fit():
    with pytest.raises(qc.QuantError, match="longer than axis"):
        qc.bits_per_element(qc.Scheme(granularity=qc.PerGroup(32)), (8, 16))
