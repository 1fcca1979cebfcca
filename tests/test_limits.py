"""Where what is taken ends: the last value on either side is taken, and what lies beyond is refused, shortly quoted."""

import math

import pytest
import torch

import quantcore as qc
from quantcore.formats.codebook import CodebookFormat, powers_of_two
from quantcore.formats.codebook_fit import fit_codebook
from quantcore.formats.floating_point import FLOATS
from quantcore.numerics.rounding import rounding
from quantcore.range_setting import METHODS

# what makes it, what is taken, what is not
LIMITS = [
    (qc.MinMse, [(1,), (10_000,)], [(0,), (10_001,)]),
    (qc.Percentile, [(math.nextafter(50, 51),), (100,)], [(50,), (math.nextafter(100, 101),)]),
    (qc.HalfQuadratic, [(1,), (1000,), (20, 1.0), (20, 1e-300, 1e-300)], [(0,), (1001,), (20, 1.0000001), (20, 0.0), (20, 0.7, 0.0)]),
    (qc.Entropy, [(2, 2), (8192, 8192), (8192, 2)], [(2, 1), (8193, 2), (7, 8)]),
    (qc.MeanStd, [(5e-324,)], [(0,)]),
    (qc.PerGroup, [(1,)], [(0,)]),
    (qc.PerFlatGroup, [(1,)], [(0,)]),
    (lambda *shape: qc.PerBlock(shape), [(1,), (-1, 1)], [(0,), (-2,), ()]),
    (qc.Given, [(2.0**-149, 2**31 - 1), (3.4028235e38, -(2**31))], [(2.0**-151,), (3.5e38,), (1.0, 2**31), (1.0, -(2**31) - 1)]),
    (qc.Fixed, [(0.0, 5e-324), (-3.4028234663852886e38, 3.4028234663852886e38)], [(0.0, 0.0), (-3.5e38, 0.0), (0.0, 3.5e38)]),
    (qc.IntFormat, [(2,), (16,)], [(1,), (17,)]),
    (powers_of_two, [(2,), (8,)], [(1,), (9,)]),
    (lambda n: CodebookFormat(tuple(range(n))), [(2,), (256,)], [(1,), (257,)]),
    (lambda value: CodebookFormat((0.0, value)), [(3.4028235e38,), (5e-45,)], [(3.5e38,), (1e-46,)]),
    (lambda n: fit_codebook(torch.arange(300.0), n), [(2,), (256,)], [(1,), (257,)]),
    (lambda n: fit_codebook(torch.arange(5.0), n), [(5,)], [(6,)]),
    (lambda seed: rounding(f"stochastic_{seed}"), [(0,), (2**32 - 1,)], [(2**32,), (10**10,)]),
    (lambda code: FLOATS["e4m3fn"].fields(code), [(0,), (255,)], [(-1,), (256,)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "arguments"), [(make, arguments) for make, taken, _ in LIMITS for arguments in taken]
)
def test_the_last_is_taken(make, arguments):
    make(*arguments)


@pytest.mark.parametrize(
    ("make", "arguments"), [(make, arguments) for make, _, refused in LIMITS for arguments in refused]
)
def test_the_next_is_refused(make, arguments):
    with pytest.raises(qc.QuantError):
        make(*arguments)


LONG = "x" * 500


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda: rounding(LONG), 40),
        (lambda: CodebookFormat((0.0, 1.0), tie=LONG), 40),
        (lambda: CodebookFormat((0.0, 1.0), name=LONG), 40),
        (lambda: fit_codebook([1.0, 2.0], 2, LONG), 40),
        (lambda: qc.parse_format(f"e4m3fn({LONG}=1)"), 60 - len("e4m3fn(")),
        (lambda: qc.parse_format(f"nf4({LONG}=1)"), 60 - len("nf4(")),
    ],
)
def test_long_words_are_quoted_shortly(call, most):
    with pytest.raises(qc.QuantError) as error:
        call()
    assert str(error.value).count("x" * most) == 1
    assert "x" * (most + 1) not in str(error.value)


def test_entropy_of_as_much_work_as_is_taken():
    """Bins, times thresholds, times blocks: up to 2^28, and any number of blocks with one threshold."""
    blocks = torch.tensor([[0.0, 1.0]])
    scheme = qc.Scheme(
        qc.INT8, granularity=qc.PerChannel(0), range_setting=qc.Entropy(2048, 1026)
    )  # 512 thresholds
    task = qc.range_setting.Task(scheme.format, True, None, 256)
    low, high = scheme.range_setting(blocks, task)
    assert (low.item(), high.item()) == (0.0, 1.0)
    with pytest.raises(qc.QuantError, match="512 thresholds in each of 257 blocks"):
        scheme.range_setting(blocks, qc.range_setting.Task(scheme.format, True, None, 257))
    alone = qc.Entropy(8192, 8192)  # one threshold
    assert [e.item() for e in alone(blocks, qc.range_setting.Task(scheme.format, True, None, 1 << 30))] == [
        0,
        1,
    ]


def test_what_is_taken_where_nothing_is_said():
    assert qc.MinMse() == qc.MinMse(100)
    assert qc.Entropy() == qc.Entropy(128, 128)
    assert qc.HalfQuadratic() == qc.HalfQuadratic(20, 0.7, 10.0)
    assert (qc.PerChannel(), qc.PerGroup(8)) == (qc.PerChannel(0), qc.PerGroup(8, -1))
    assert qc.Given(1.0) == qc.Given(1.0, 0)
    assert qc.IntFormat() == qc.IntFormat(8, True, False)
    settings = "min_max min_mse percentile(99) percentile(99.9) entropy(num_bins=2048) mean_std(3) abs_mean half_quadratic"
    assert [qc.Scheme.parse(f"int8 {text}").range_setting for text in settings.split()] == list(METHODS)
