"""Numbers for practice: few digits, easy scales, and some ties and out-of-range values."""

from fractions import Fraction

import numpy as np
from grid import for_each
from parts import Part, in_parts, some

import quantcore as qc
from quantcore.prediction import practice

EASY = {0.25, 0.5, 1, 2, 4, 5, 10}


@for_each("clipping", [True, False])
@for_each("scheme", some(["int4", "int4 asymmetric", "uint4 asymmetric", "int8", "int3 asymmetric"], 4))
@in_parts(10)
def test_numbers_that_are_worked_out_mentally(scheme: str, clipping: bool, part: Part) -> None:
    asked = qc.Scheme.parse(scheme)
    fmt = asked.format
    assert isinstance(fmt, qc.IntFormat)
    for seed in part(range(201 if fmt == qc.INT4 else 40)):
        found = practice(fmt, asked.symmetric, seed, clipping)
        assert found.scale in EASY
        chosen = qc.Fixed(found.low, found.high) if clipping else qc.MinMax()
        result = qc.apply(found.x, qc.Scheme(fmt, asked.symmetric, range_setting=chosen))
        assert (float(result.scale), int(result.params.zero_point)) == (found.scale, found.zero_point)
        for row, codes in zip(found.x, result.codes.tolist(), strict=True):
            ties = beyond = 0
            for x, code in zip(row, codes, strict=True):
                exact = Fraction(np.format_float_positional(x))  # as written on the page, not as in float32
                digits = str(abs(exact.numerator) * 10**9 // exact.denominator).strip("0")
                assert len(digits) <= 3
                steps = exact / Fraction(found.scale)
                assert (steps * 100).denominator == 1
                whole = round(steps) + found.zero_point  # half to even
                assert code == min(max(whole, fmt.qmin), fmt.qmax)
                ties += steps % 1 == Fraction(1, 2) and fmt.qmin <= whole <= fmt.qmax
                beyond += whole != code
            assert ties >= 1
            assert beyond >= clipping
            assert (row < 0).any()


def test_a_seed_gives_everyone_the_same_tensor() -> None:
    np.testing.assert_array_equal(practice(qc.INT4, True, 7).x, practice(qc.INT4, True, 7).x)
    assert not np.array_equal(practice(qc.INT4, True, 7).x, practice(qc.INT4, True, 8).x)
    for bits in (2, 16):  # the narrowest and the widest formats have tensors, too
        assert practice(qc.IntFormat(bits), False, 0, True).x.shape == (4, 6)
