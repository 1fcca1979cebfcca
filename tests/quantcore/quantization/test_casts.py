"""What casts make of numbers that no integer type holds, against the casts themselves and their descriptions."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some_rows

import quantcore as qc
from quantcore.quantization import codes as casts

NAN_CODES = {"zero": 0, "qmin": -128, "qmax": 127, "undefined": 0}
# float32 numbers around the limits of 32 and 64 bits
EDGES = [2.0**31 - 128, 2.0**31, 2.0**40, 2.0**62, 2.0**63 - 2.0**39, 2.0**63, 3e38]
VALUES = [300.0, *EDGES, math.inf]


def code_of(quotient, z, cast, nan):
    """The int8 code that this cast gives for round(x/s) = ``quotient`` and an integer z."""
    if math.isnan(quotient):
        if cast == "none":
            return NAN_CODES[nan]
        if cast == "int32":  # NaN becomes the lowest integer, and adding a negative z wraps around
            return 127 if z < 0 else -128
        return 0 if cast == "low_bits" else -128
    total = float(np.float32(quotient) + np.float32(z))
    if cast == "low_bits":
        return int(np.clip(total, -128, 127)) if abs(total) < 2.0**31 else 0
    if cast == "int64" and not abs(total) < 2.0**63:
        return -128
    if cast == "int32" and not abs(quotient) < 2.0**31:
        return 127 if z < 0 else -128
    return int(np.clip(total, -128, 127))


@for_each(
    ("cast", "kernel"),
    # the others in the slow run
    some_rows([("int32", "B"), ("none", "A"), ("none", "B"), ("int32", "A"), ("int64", "A"), ("int64", "B"),
               ("low_bits", "B"), ("low_bits", "A")], 7),
)
@in_parts(22)
def test_a_cast_of_what_is_too_large(cast, kernel, part):
    """One such number among small ones, in the block with the smaller or the larger scale."""
    compared, values = set(), [*VALUES, *(-v for v in VALUES), math.nan]
    every = itertools.product(NAN_CODES, ([1.0, 2.0**-9], [2.0**9, 1.0], [1.0, 1.0]))
    settings = [(nan, scales) for nan, scales in every if nan == "zero" or scales[0] == 1]
    for (nan, scales), z, value, row in part(itertools.product(settings, (0, 5, -5), values, (0, 1))):
        convention = qc.TEXTBOOK.changed(cast=cast, nan=nan, kernel=kernel)
        scheme = dataclasses.replace(qc.Scheme.parse("int8 asymmetric per_channel(0)"), convention=convention)
        x = torch.zeros(2, 3)
        x[row, 1] = value
        codes = qc.quantize(x, torch.tensor(scales)[:, None], torch.full((2, 1), z), scheme)
        expected = torch.full((2, 3), z)
        with np.errstate(over="ignore"):
            quotient = float(np.rint(np.float32(value) / np.float32(scales[row])))
        expected[row, 1] = code = code_of(quotient, z, cast, nan)
        compared.add(code)
        assert torch.equal(codes.int(), expected.int()), (value, row, z, nan, scales)
    assert {-128, 127} <= compared


@for_each("z", [2**31 - 1, -(2**31), 2**30])
@for_each("cast", ["int64", "low_bits"])
def test_a_zero_point_is_cast_with_the_number(cast, z):
    """Even the zero point alone may be too large."""
    scheme = dataclasses.replace(
        qc.Scheme.parse("int8 asymmetric"), convention=qc.TEXTBOOK.changed(cast=cast, nan="zero")
    )
    values = [0.0, 1.0, -1.0, 2.0**30, -(2.0**30), 2.0**31, -(2.0**31)]
    for value in values:
        found = qc.quantize([value], 1.0, z, scheme).item()
        assert found == code_of(value, z, cast, "zero"), value


@for_each("granularity", [qc.PerTensor(), qc.PerChannel(0)])
def test_low_bits_of_a_range_that_was_found(granularity):
    """Also with a computed range: infinity makes the scale infinite, so quotients are 0 or NaN."""
    convention = qc.TEXTBOOK.changed(cast="low_bits", nan="zero")
    scheme = dataclasses.replace(qc.Scheme.parse("int8"), convention=convention, granularity=granularity)
    with pytest.warns(UserWarning, match="becomes? NaN"):
        result = qc.apply([[1.0, math.inf], [1.0, math.inf]], scheme)
    assert result.codes.tolist() == [[0, 0], [0, 0]]


def test_how_many_come_to_nan_is_said():
    scheme = qc.Scheme.parse("int8 given(1) torchao")
    for count, words in (
        (1, "1 element becomes NaN"),
        (2, "2 elements become NaN"),
        (1500, "1,500 elements become"),
    ):
        x = torch.ones(2000)
        x[:count] = math.nan
        with pytest.warns(UserWarning, match=f"^{words}"):
            qc.apply(x, scheme)


@for_each(("cast", "end"), [("int32", 2.0**31), ("low_bits", 2.0**31), ("int64", 2.0**63)])
@for_each("kernel", ["A", "B"])
def test_elements_are_looked_at_where_some_come_half_as_far(kernel, cast, end):
    """Blocks are judged by their own scale, by the end that is farther from 0, and including the zero_point."""
    scheme = qc.Scheme(
        granularity=qc.PerChannel(0),
        range_setting=qc.Given(1.0),
        convention=qc.TEXTBOOK.changed(cast=cast, nan="zero", kernel=kernel),
    )
    below = float(np.nextafter(np.float32(end / 2), np.float32(0)))
    for value, scale, z, expected in (
        (below, 1.0, 0, False),
        (end / 2, 1.0, 0, True),
        (-below, 1.0, 0, False),
        (-end / 2, 1.0, 0, True),
        (below / 4, 0.25, 0, False),
        (end / 8, 0.25, 0, True),
        (below / 2, 1.0, 2**28, False),
        (end / 2, 1.0, -(2**29), True),
    ):
        x = torch.tensor([[value, 0.0], [1.0, 2.0]])
        params = qc.QParams(torch.tensor([[scale], [2.0]]), torch.tensor([[z], [0]]))
        found = casts.may_leave_integers(x, params, scheme, scheme.convention)
        assert found == expected, (value, scale, z)
