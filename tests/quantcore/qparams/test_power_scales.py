"""Scales that are powers of two: each rule against its definition in exact arithmetic."""

import dataclasses
import math

import numpy as np
import torch
from grid import for_each
from parts import some

import quantcore as qc

FLOATS = ("e2m1", "e2m3", "e3m2", "e4m3fn", "e5m2")
LEAST, MOST = -127, 127  # the exponents of e8m0


def magnitudes():
    """Powers of two from subnormal to the largest, and the numbers at which some rule changes its result."""
    parts = [1, 1.125, 1.25, 1.375, 1.4375, 1.5, 1.75, 1.8, 1.875, 1.9375, 1.96875, 1.99]
    seeds = np.float32(
        [math.ldexp(p, k) for k in (*range(-149, -120), -3, -1, 0, 1, 2, 7, 100) for p in parts]
    )
    seeds = np.concatenate([seeds, np.float32([math.ldexp(p, k) for k in range(108, 128) for p in parts])])
    near = [np.nextafter(seeds, np.float32(end)) for end in (0, np.inf)]
    found = np.unique(np.concatenate([seeds, *near, np.float32([0, 3.4028235e38])]))
    return [float(v) for v in found if np.isfinite(v)]


def bits_exponent(v):
    """The exponent in the bits of v: floor(log2(v)), -127 for zero and subnormals, and 128 for infinity."""
    if math.isinf(v):
        return 128
    return math.frexp(v)[1] - 1 if v >= 2.0**-126 else -127


def raised(v, mantissa):
    """The exponent of v plus half a step of the mantissa."""
    if math.isinf(v):
        return 128
    e = bits_exponent(v)
    return bits_exponent(v + 2.0 ** (max(e, -126) - mantissa - 1))


def log2(v):
    """The logarithm rounded to float32."""
    return float(np.float32(math.log2(v)))


def expected(rule, v, largest, mantissa, unit=0):
    """The scale of a block whose largest magnitude is v; ``largest`` is the largest value of the format."""
    emax = math.frexp(largest)[1] - 1
    if rule == "power_log2_wrapped":
        e = math.floor(log2(v)) - emax if 0 < v < math.inf else None
        return 2.0 ** (((e + 128) & 0xFF if e is not None else 0) - 128)
    if rule.startswith("power_rounded") and not v < math.inf:
        return math.inf
    if math.isnan(v):
        return math.nan
    if rule == "power_log2_floor":
        e = math.floor(log2(v or 2.0**-126)) - emax if v < math.inf else math.inf
    elif rule == "power_log2_ceil":
        quotient = float(np.float32(v) / np.float32(largest))
        e = MOST if math.isinf(v) else math.ceil(log2(quotient)) if quotient else LEAST
    elif rule == "power_ceil":
        e = bits_exponent(v) + (math.frexp(v)[0] not in (0, 0.5) and v < math.inf) - emax
        if 0 < v < 2.0**-126:
            e = -126 - emax
    elif rule == "power_floor":
        e = bits_exponent(v) - emax
    else:
        e = raised(v, 1 if rule == "power_rounded_e2m1" else mantissa)
        e = math.inf if e == 128 and rule != "power_even" else e - emax  # rounded up beyond float32
    if e > MOST + unit:
        beyond = {"power_log2_floor": math.nan, "power_rounded": math.inf, "power_rounded_e2m1": math.inf}
        return beyond.get(rule, 2.0 ** (MOST + unit))
    return 2.0 ** max(e, LEAST + unit)


RULES = ("power_floor", "power_log2_floor", "power_log2_wrapped", "power_even", "power_rounded",
         "power_rounded_e2m1", "power_ceil", "power_log2_ceil")  # fmt: skip


def scales_of(values, fmt, rule):
    """The scales of one-element blocks, with the textbook's convention changed to this rule."""
    plain = qc.TEXTBOOK.changed(symmetric_scale=rule, eps=0.0, nan="zero")
    scheme = dataclasses.replace(qc.Scheme.parse(f"{fmt} per_channel(0)"), convention=plain)
    return qc.choose_qparams(torch.tensor(values).reshape(-1, 1), scheme).scale.reshape(-1).tolist()


@for_each("rule", some(RULES, 2))
@for_each("fmt", some(FLOATS, 8))
def test_scale_of_a_float_block(fmt, rule):
    book = qc.FLOATS[fmt]
    values = [*magnitudes(), math.inf]
    for sign in (1, -1):
        # with infinity, without it, and with NaN: each may take its own code path
        for part in (values, values[:-1], [math.nan, 1.5, 3e38]):
            found = scales_of([sign * v for v in part], fmt, rule)
            wanted = [expected(rule, v, book.max, book.mantissa) for v in part]
            wrong = [
                (v, a, b) for v, a, b in zip(part, found, wanted, strict=True) if a != b and not math.isnan(b)
            ]
            assert not wrong, wrong[:3]
            assert [math.isnan(a) for a in found] == [math.isnan(b) for b in wanted]


@for_each("rule", ["power_floor", "power_even", "power_ceil", "power_rounded"])
@for_each("bits", [4, 8])
def test_scale_of_an_integer_block(bits, rule):
    """Integer codes are read as 1.xxx · 2^0, so e8m0's bounds apply to 2^(bits - 2) times the scale."""
    values = magnitudes()
    found = scales_of(values, f"int{bits}", rule)
    wanted = [expected(rule, v, 2 ** (bits - 1) - 1, bits - 2, unit=2 - bits) for v in values]
    wrong = [(v, a, b) for v, a, b in zip(values, found, wanted, strict=True) if a != b]
    assert not wrong, wrong[:3]
