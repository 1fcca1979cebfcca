"""Each choice of a convention about computing scale and zero_point, against its formula in numpy's float32."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts

import quantcore as qc

F = np.float32
RANGES = [
    (-1.0, 3.0),
    (-3.0, 1.0),
    (-2.7, 2.7),
    (0.1, 0.7),
    (-0.7, -0.1),
    (-5.0, 0.0),
    (0.0, 11.0),
    (-3e38, 3e38),
    (-1e-3, 2e-3),
]
FORMATS = [qc.IntFormat(bits, signed, narrow) for bits in (2, 3, 4, 8, 9, 16) for signed in (True, False) for narrow in (False, True)]  # fmt: skip
SIGNED = [fmt for fmt in FORMATS if fmt.signed]


def parameters(fmt, symmetric, low, high, **choices):
    """The parameters for a range, by the textbook convention with these choices."""
    scheme = qc.Scheme(fmt, symmetric, qc.PerTensor(), qc.Fixed(low, high), qc.TEXTBOOK.changed(**choices))
    return qc.choose_qparams(torch.ones(2), scheme)


def ends(fmt):
    """qmin, qmax and their difference, from the format's definition."""
    qmin = (-(2 ** (fmt.bits - 1)) if fmt.signed else 0) + fmt.narrow
    qmax = 2 ** (fmt.bits - 1) - 1 if fmt.signed else 2**fmt.bits - 1
    return qmin, qmax, qmax - qmin


def with_zero(low, high, rule="both"):
    low, high = F(low), F(high)
    return (min(low, F(0)) if rule != "no" else low), (max(high, F(0)) if rule == "both" else high)


def regridded(low, high, fmt):
    steps = ends(fmt)[2]
    above, below = steps // 2, steps - steps // 2
    step = max(high / F(above + 1 if steps == 3 else above), -low / F(below))
    low, high = (
        np.clip(F(-below * step), F(-3.4028235e38), None),
        np.clip(F(above * step), None, F(3.4028235e38)),
    )
    return (high - low) / F(steps)


SYMMETRIC = {
    "amax_over_qmax": lambda low, high, fmt: max(-low, high) / F(2 ** (fmt.bits - 1) - 1),
    "amax_over_half_range": lambda low, high, fmt: max(-low, high) / F(ends(fmt)[2] / 2),
    "full_range": lambda low, high, fmt: (max(-low, high) + max(-low, high)) / F(ends(fmt)[2]),
    "max_of_sides": lambda low, high, fmt: max(low / F(ends(fmt)[0]), high / F(ends(fmt)[1])),
    "aligned_grid": regridded,
    "amax": lambda low, high, fmt: max(-low, high),
    "amax_over_half_codes": lambda low, high, fmt: max(-low, high) / F(2 ** (fmt.bits - 1)),
    "signed_amax": lambda low, high, fmt: (high if high > -low else low) / F(-(2 ** (fmt.bits - 1))),
}


@in_parts(31)
@for_each("rule", SYMMETRIC)
def test_symmetric_scale(rule, part):
    formats = SIGNED if rule == "max_of_sides" else FORMATS
    for fmt, (low, high) in part(itertools.product(formats, RANGES)):
        found = parameters(
            fmt, True, low, high, symmetric_scale=rule, eps=0.0, finite_range=rule == "aligned_grid"
        )
        with np.errstate(over="ignore"):
            wanted = SYMMETRIC[rule](*with_zero(low, high), fmt)
        assert found.scale.item() == wanted, (fmt, low, high)
        if rule not in ("max_of_sides", "aligned_grid"):
            assert (found.low.item(), found.high.item()) == (-max(F(high), F(-low)), max(F(high), F(-low)))


@in_parts(11)
def test_widths_whose_symmetric_scale_leaves_out_the_lowest_code(part):
    rules = ("amax_over_half_range", "full_range")
    for fmt, widths, rule in part(itertools.product(FORMATS, ((), (8,), (2, 16)), rules)):
        found = parameters(fmt, True, -1.0, 3.0, symmetric_scale=rule, narrow_scale_bits=widths)
        as_narrow = dataclasses.replace(fmt, narrow=True) if fmt.signed and fmt.bits in widths else fmt
        assert found.scale.item() == SYMMETRIC[rule](F(-1), F(3), as_narrow)


@for_each("rule", ["middle", "observer", "below_middle", "zero"])
@for_each("widths", [(2, 3, 4, 7, 8, 15, 16), pytest.param(tuple(range(2, 17)), marks=pytest.mark.slow)])
def test_symmetric_zero_point(rule, widths):
    for bits, signed, narrow in itertools.product(widths, (True, False), (True, False)):
        fmt = qc.IntFormat(bits, signed, narrow)
        qmin, qmax, _ = ends(fmt)
        z = {"middle": 2 ** (bits - 1), "below_middle": 2 ** (bits - 1) - 1, "zero": 0}.get(rule)
        if rule == "observer":
            z = 2 ** (bits - 1) if bits in (8, 16) else (qmin + qmax) // 2
        found = parameters(fmt, True, -1.0, 1.0, unsigned_symmetric_zero_point=rule)
        assert found.zero_point.item() == (0 if signed else z)


@in_parts(67)
@for_each("precision", ["float32", "float64"])
@for_each("order", ["round_quotient", "round_difference"])
@for_each("zero", ["both", "low", "no"])
def test_asymmetric_parameters(zero, order, precision, part):
    for fmt, (low, high) in part(itertools.product(FORMATS, RANGES)):
        found = parameters(
            fmt, False, low, high, zero_in_range=zero, zero_point_order=order, zero_point_precision=precision
        )
        qmin, qmax, steps = ends(fmt)
        low, high = with_zero(low, high, zero)
        with np.errstate(over="ignore"):
            scale = (high - low) / F(steps) if np.isfinite(high - low) else high / F(steps) - low / F(steps)
        kind = getattr(np, precision)
        quotient = kind(low) / kind(scale)
        z = qmin - np.rint(quotient) if order == "round_quotient" else np.rint(kind(qmin) - quotient)
        assert (found.scale.item(), found.zero_point.item()) == (scale, np.clip(z, qmin, qmax)), (
            fmt,
            low,
            high,
        )
        assert (found.low.item(), found.high.item()) == (low, high)


def test_a_range_raised_to_the_smallest():
    for fmt in FORMATS:
        steps = ends(fmt)[2]
        for width, raised in ((0.5, 0.75), (0.75, 0.75), (1.0, 1.0)):
            wide = parameters(fmt, False, 0.0, width, min_range=0.75)
            assert wide.scale.item() == F(raised) / F(steps)
            both = parameters(fmt, True, -width, 0.0, min_range=0.75, symmetric_scale="full_range")
            assert both.scale.item() == F(2 * raised) / F(steps)


@in_parts(7)
@for_each("symmetric", [True, False])
def test_a_narrow_range_is_widened(symmetric, part):
    """By N times the smallest scale: upwards or, if symmetric, half at each end, with an odd step below."""
    least = 2.0**-4
    for fmt, times in part(itertools.product(FORMATS, (1 / 2, 1, 2))):
        steps = ends(fmt)[2]
        width = steps * least * times
        found = parameters(
            fmt, symmetric, -width / 2, width / 2, widen_to_eps=True, eps=least, eps_replacement=1.0,
            symmetric_scale="max_of_sides" if fmt.signed else "amax_over_qmax",
        )  # fmt: skip
        more = (steps // 2, steps - steps // 2) if symmetric else (steps, 0)
        above, below = more if times < 1 else (0, 0)
        low, high = F(-width / 2 - below * least), F(width / 2 + above * least)
        if symmetric and not fmt.signed:
            low, high = -max(-low, high), max(-low, high)
        assert (found.low.item(), found.high.item()) == (low, high)


@for_each("rule", ["computed", "zero", "zero_if_asymmetric"])
@for_each("symmetric", [True, False])
def test_a_scale_that_is_too_small_is_replaced(symmetric, rule):
    """Only below the smallest scale, not at it; the zero_point of such a block is another choice."""
    choices = {"eps": 0.25, "eps_replacement": 0.5, "replaced_zero_point": rule}
    for step, replaced in ((0.125, True), (0.25, False), (0.5, False)):
        high = 127 * step
        found = parameters(
            qc.UINT8, symmetric, -high if symmetric else -step, high * (1 if symmetric else 2), **choices
        )
        assert found.scale.item() == (0.5 if replaced else step)
        assert found.replaced.item() == replaced
        z = 128 if symmetric else (0 if replaced else 1)  # -low/0.5 = 0.25
        if replaced and (rule == "zero" or (rule == "zero_if_asymmetric" and not symmetric)):
            z = 0
        assert found.zero_point.item() == z


def test_replaced_zero_points_of_signed_codes():
    for rule, z in (("computed", -128), ("zero", 0), ("zero_if_asymmetric", 0)):
        choices = {"eps": 1.0, "eps_replacement": 9.0, "replaced_zero_point": rule}
        assert parameters(qc.INT8, False, -0.5, 0.5, **choices).zero_point.item() == z


@for_each("where", ["final", "raw"])
def test_which_scale_the_zero_point_is_found_with(where):
    choices = {"eps": 1.0, "eps_replacement": 4.0, "zero_point_scale": where}
    found = parameters(qc.UINT8, False, -50.0, 52.0, **choices)
    assert found.scale.item() == 4
    assert found.zero_point.item() == (12 if where == "final" else np.rint(F(50) / (F(102) / F(255))))


@in_parts(11)
def test_inverse_of_the_range(part):
    """1/s is computed from 1/max|x|, with two roundings."""
    for fmt, (low, high), divisor in part(itertools.product(FORMATS, RANGES, (1.0, 6.0))):
        largest = max(F(-low), F(high))
        found = parameters(fmt, True, low, high, inverse="of_range", divisor=divisor)
        assert found.inverse.item() == F(1) / largest * F((2 ** (fmt.bits - 1) - 1) * divisor)
        half = parameters(fmt, True, low, high, inverse="of_range", symmetric_scale="amax_over_half_codes")
        with np.errstate(over="ignore"):
            assert half.inverse.item() == F(1) / (F(2) * largest) * F(2**fmt.bits)


@for_each("rule", ["kept", "one"])
def test_inverse_of_no_range(rule):
    scheme = qc.Scheme(convention=qc.TEXTBOOK.changed(inverse="of_range", bad_inverse=rule, nan="zero"))
    for x, bad in ((torch.zeros(3), math.inf), (torch.tensor([math.nan, 1.0]), math.nan)):
        found = qc.choose_qparams(x, scheme).inverse.item()
        assert found == 1 if rule == "one" else str(found) == str(bad)


@in_parts(13)
@for_each("zero_point", ["float", "float_rounded"])
def test_inverse_range(zero_point, part):
    """As in hqq: 1/s = N · (1/(high - low)), but 1 for widths up to 1e-4, and at most 2e4."""
    narrow = float(F(1e-4))
    widths = (narrow, float(np.nextafter(F(narrow), F(1))), 0.5e-4, 1e-3, 0.1, 3.0, 255 / 2e4, 1e5)
    for fmt, width, low in part(itertools.product(FORMATS, widths, (0.0, -0.5))):
        low = F(low * width)
        high = F(low + F(width))
        found = parameters(
            fmt,
            False,
            float(low),
            float(high),
            asymmetric_scale="inverse_range",
            zero_point_form=zero_point,
            zero_in_range="no",
        )
        width = high - low
        inverse = F(1) if width <= F(1e-4) else min(F(1) / width * F(ends(fmt)[2]), F(2e4))
        assert found.inverse.item() == inverse, (fmt, width)
        assert found.scale.item() == F(1) / inverse
        z = -low * inverse
        assert found.zero_point.item() == (np.rint(z) if zero_point == "float_rounded" else z)


def test_a_range_divided_by_the_number_of_codes():
    """s = (high - low) / 2^bits; N is not that of symmetric scales."""
    rules = {"asymmetric_scale": "range_over_codes", "zero_in_range": "no"}
    for fmt, (low, high) in itertools.product(FORMATS, [(-1.5, 0.75), (0.5, 2.0)]):
        _, _, steps = ends(fmt)
        found = parameters(fmt, False, low, high, **rules)
        assert found.scale.item() == F(high - low) / F(int(steps) + 1), fmt
        symmetric = parameters(fmt, True, low, high, asymmetric_scale="range_over_codes")
        assert symmetric.scale.item() == parameters(fmt, True, low, high).scale.item()
    phrases = qc.differences("uint8 asymmetric textbook(asymmetric_scale=range_over_codes)")
    assert phrases == ["the scale is high - low divided by the 256 codes, not by the steps"]


@in_parts(5)
@for_each("nan_zero_point", ["lowest", "zero", "wrapped"])
def test_zero_point_of_no_range(nan_zero_point, part):
    for fmt in part(FORMATS):
        qmin, qmax, _ = ends(fmt)
        choices = {"nan": "zero", "nan_zero_point": nan_zero_point}
        scheme = qc.Scheme(fmt, False, convention=qc.TEXTBOOK.changed(**choices))
        found = qc.choose_qparams(torch.tensor([math.nan, 1.0]), scheme)
        # qmin - (-2^31) wraps around: to the highest code, or if qmin is 0, to -2^31, so the lowest code
        wrapped = qmax if qmin else qmin
        assert found.zero_point.item() == {"lowest": -(2**31), "zero": 0, "wrapped": wrapped}[nan_zero_point]


@for_each("x", [[1.0, 2.0], [math.inf, 1.0], [math.nan, 1.0], [-math.inf, 0.5], [-math.inf, math.inf]])
@for_each("rule", ["kept", "nan", "nonfinite"])
def test_scales_that_are_refused(rule, x):
    """One bad scale among good ones."""
    scheme = qc.Scheme(
        qc.INT8, True, qc.PerChannel(0), convention=qc.TEXTBOOK.changed(nan="zero", bad_scale=rule)
    )
    tensor = torch.tensor([[1.0, -2.0], x, [3.0, 4.0]])
    largest = tensor.abs().amax(1)
    bad = {
        "kept": False,
        "nan": bool(largest.isnan().any()),
        "nonfinite": not bool(largest.isfinite().all()),
    }[rule]
    if bad:
        with pytest.raises(qc.QuantError, match="refuses a scale"):
            qc.choose_qparams(tensor, scheme)
    else:
        qc.choose_qparams(tensor, scheme)
