"""What Match says of single elements is evaluated with numpy: every number in every sentence, on generated elements."""

import dataclasses
import math
import re
import warnings

import numpy as np
import pytest
import torch

import quantcore as qc
from quantcore.matching import Corruption, reproduce
from quantcore.matching.hypotheses.scale_sources import inferred, with_given_scale
from quantcore.matching.reasons import explain

F = np.float32
FORMULAS = {
    "x / s": lambda x, s, z: x / s,
    "x / s + z": lambda x, s, z: x / s + z,
    "x · (1/s)": lambda x, s, z: x * (F(1) / s),
    "x · (1/s) + z": lambda x, s, z: x * (F(1) / s) + z,
    "(x - z) · (1/s)": lambda x, s, z: (x - z) * (F(1) / s),
    "round(x / s) + z": lambda x, s, z: np.round(x / s) + z,
    "round(x / s + z)": lambda x, s, z: np.round(x / s + z),
    "round(x · (1/s)) + z": lambda x, s, z: np.round(x * (F(1) / s)) + z,
    "round(x · (1/s) + z)": lambda x, s, z: np.round(x * (F(1) / s) + z),
}
RULES = {
    "half to even": np.round,
    "half away from zero": lambda v: np.trunc(v + np.copysign(0.5, v)),
    "half up": lambda v: np.floor(v + 0.5),
    "rounding down": np.floor,
    "rounding toward zero": np.trunc,
}
SCHEMES = {
    "int8 symmetric per_channel(0) textbook": "half to even",
    "int8 asymmetric per_tensor textbook": "half to even",
    "uint4 asymmetric per_group(4) torchao": "half to even",
    "int8 asymmetric per_channel(0) compressed_tensors": "half to even",
    "uint8 asymmetric per_channel(0) torch.quantize_per_channel": "half to even",
    "int4 symmetric per_tensor textbook(rounding=floor)": "rounding down",
    "int8 asymmetric per_tensor textbook(rounding=toward_zero)": "rounding toward zero",
    "int4 asymmetric per_channel(0) textbook(rounding=half_away)": "half away from zero",
    "int8 asymmetric per_tensor textbook(rounding=half_up)": "half up",
    "int8 symmetric per_tensor textbook(overflow=wrap) given(0.01)": "half to even",
    "int6 symmetric per_tensor given(0.03125)": "half to even",
}  # fmt: skip
NUMBER = r"(-?\d[\d.]*(?:e[-+]\d+)?|-?inf)"


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Cell:
    """One element that differs, with what numpy finds of it."""

    def __init__(self, x, s, z, cell, scheme, rule, kernel, corruption):
        self.x, self.s, self.z = F(x), F(s), F(z)
        self.got, self.expected, self.words = cell.got, cell.expected, cell.reason
        self.fmt, self.rule, self.corruption = scheme.format, RULES[rule], corruption
        self.rule_name, self.shift_first, self.inverse = rule, kernel in "CD", kernel in "BD"
        self.wraps = scheme.convention.coding.overflow == "wrap"

    def code(self, s=None, z=None):
        """The code before the format, exact but for float64, of another scale or zero_point."""
        new_scale = s is not None
        s, z = (float(own if new is None else new) for own, new in ((self.s, s), (self.z, z)))
        if new_scale:
            quotient = float(self.x) / s
        else:  # as float32 has it, which decides beside a tie
            quotient = float(self.x * (F(1) / self.s) if self.inverse else self.x / self.s)
        return self.rule(float(F(quotient + z))) if self.shift_first else self.rule(quotient) + z

    def clamped(self, **others):
        """The code in the format."""
        code = self.code(**others)
        return code if self.wraps else min(max(code, self.fmt.qmin), self.fmt.qmax)


def first_value(c):
    """The formula that the sentence begins with, evaluated in float32, as float64."""
    found = re.search(rf"((?:x|\(x).*?) = {NUMBER}", c.words)
    value = F(FORMULAS[found[1]](c.x, c.s, c.z))
    assert f"{value:.7g}" == found[2], c.words
    return float(value)


def evaluate(kind, c):
    """Check every claim of a sentence."""
    if "have the same lowest" in c.words:
        bits = int(re.search(r"lowest (\d+) bits", c.words)[1])
        assert bits == c.fmt.bits
        assert (c.got - c.expected) % (1 << bits) == 0
        assert c.got != c.expected
        assert kind == "the same bits read as " + ("unsigned" if c.got > c.expected else "signed")
        return
    value = first_value(c)
    added = 0 if c.shift_first else c.z
    gives = re.search(rf" gives {NUMBER}(?: with z = {NUMBER})?(?:,|;) (?:whose|none of)", c.words)
    if gives:
        assert float(gives[1]) == c.rule(value) + added
        assert gives[2] is None or float(gives[2]) == c.z
    if kind == "wrapped":
        lowest = re.search(r"whose lowest (\d+) bits are (-?\d+)", c.words)
        assert (int(lowest[1]), int(lowest[2])) == (c.fmt.bits, c.got)
        assert (float(gives[1]) - c.got) % (1 << c.fmt.bits) == 0
        assert not c.fmt.qmin <= float(gives[1]) <= c.fmt.qmax
    elif kind == "narrow range":
        assert float(gives[1]) <= c.fmt.qmin == c.got - 1
        assert f"none of the given codes is {c.fmt.qmin}, the lowest of {c.fmt}" in c.words
    elif kind == "outside the format":
        assert not c.fmt.qmin <= c.got <= c.fmt.qmax
        assert f"; {c.got} is not a" in c.words
        assert c.words.endswith(f"{c.fmt} code ({c.fmt.qmin} to {c.fmt.qmax})")
    elif kind in ("tie", "off by one"):
        neighbours(kind, c, value, added)
    else:
        assert kind in ("another scale", "another scale or zero_point"), kind
        parameters(kind, c)


def neighbours(kind, c, value, added):
    """Both neighbours of the value, and which rule gives which."""
    tie = math.floor(value) + 0.5
    ulps = re.search(rf", (\d+) ulp from {NUMBER}", c.words)
    if ulps:
        assert float(ulps[2]) == tie
        size = float(np.spacing(F(max(abs(value), abs(value - c.z)))))
        assert int(ulps[1]) == round(abs(value - tie) / size) > 0
    if c.words.startswith("tie: "):
        assert value == tie
        rule, one, other = re.search(
            rf"exactly; (.+) gives {NUMBER}, the other neighbor is {NUMBER}", c.words
        ).groups()
        assert rule == c.rule_name
        assert RULES[rule](value) == float(one)
        assert sorted((float(one), float(other))) == [tie - 0.5, tie + 0.5]
        assert float(other) + added == c.got
    elif kind == "tie":
        formula, made = re.search(rf"; (round.+) gives {NUMBER}$", c.words).groups()
        assert float(FORMULAS[formula](c.x, c.s, c.z)) == c.got
        assert float(made) + added == c.got
        assert value != tie
    else:
        rule, one, way, other = re.search(
            rf"; (half .+|rounding [dt].+) gives {NUMBER}, rounding (.+) gives {NUMBER}$", c.words
        ).groups()
        assert rule == c.rule_name
        assert RULES[rule](value) == float(one) != float(other)
        assert (math.floor if way.startswith("down") else math.ceil)(value) == float(other)
        assert ("toward zero" in way) == (abs(float(other)) < abs(value))
        assert float(other) + added == c.got


def parameters(kind, c):
    """The scales and zero_points that would give the code do, and those beside them do not."""
    near, step = 1e-4, 1e-6  # of a sum near 255 float32 keeps 1.5e-5, of the half step that decides
    scale = re.search(
        rf"{c.got} needs a scale of (at most |at least )?{NUMBER}(?: to {NUMBER})?, not {NUMBER}", c.words
    )
    assert (kind == "another scale") == bool(scale)
    if scale:
        assert f"{c.s:.7g}" == scale[4]
        low, high = (float(scale[2]), float(scale[3])) if scale[3] else {
            "at most ": (None, float(scale[2])), "at least ": (float(scale[2]), None),
        }[scale[1]]  # fmt: skip
        inside = np.geomspace((low or high / 1e3) * (1 + near), (high or low * 1e3) * (1 - near), 7)
        assert {c.clamped(s=s) for s in inside} == {c.got}, c.words
        if low:
            assert c.clamped(s=low * (1 - near - step)) != c.got, c.words
        if high:
            assert c.clamped(s=high * (1 + near + step)) != c.got, c.words
    else:
        assert re.search(rf"no scale gives {c.got}", c.words)
        assert not any(c.clamped(s=s) == c.got for s in np.geomspace(1e-6, 1e6, 400)), c.words
    assert c.words.endswith(", unless it wrapped") == c.wraps
    zero_point = re.search(r", or a zero_point of (at most |at least )?(-?\d+)", c.words)
    if zero_point:
        z = int(zero_point[2])
        assert c.clamped(z=z) == c.got, c.words
        sides = {"at most ": (-1, True, 1, False), "at least ": (1, True, -1, False)}.get(
            zero_point[1], (-1, False, 1, False)
        )
        for side, gives in (sides[:2], sides[2:]):
            assert (c.clamped(z=z + side) == c.got) == gives, c.words
    else:
        assert c.z % 1 != 0


def original(seed, shape):
    """Half of it multiples of 1/8 steps, so that there are ties."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    x.flat[::2] = np.round(x.flat[::2] * 64) / 64
    return torch.from_numpy(x.astype(F))


def corrupted(codes, fmt, seed, wrapped=None):
    """Most codes are others: a neighbor, any of the format, one wrapped, one far away."""
    rng = np.random.default_rng(seed)
    codes = codes.to(torch.int64).numpy().copy()
    wrapped = codes.copy() if wrapped is None else wrapped.numpy()
    for place in np.ndindex(*codes.shape):
        one = codes[place]
        others = [one, wrapped[place], one + 1, one - 1, rng.integers(fmt.qmin, fmt.qmax + 1), fmt.qmin, fmt.qmax,
                  one + (1 << fmt.bits), one - (1 << fmt.bits), fmt.qmax + rng.integers(1, 60)]  # fmt: skip
        codes[place] = others[rng.integers(len(others))]
    return torch.from_numpy(codes)


def cells_of(scheme, x, codes, corruption, rule):
    """All cells that differ, a few at a time since only the first are named."""
    result, expected = qc.apply(x, scheme), reproduce(x, scheme, corruption)
    kernel = scheme.rules.coding.kernel
    s = np.broadcast_to(spread(result.scale, result), x.shape)
    z = np.broadcast_to(spread(result.zero_point.to(torch.float32), result), x.shape)
    z = np.zeros_like(z) if "zero_point_left_out" in corruption.computed else z
    for row in range(len(x)):
        one = expected.to(torch.int64).clone()
        one[row] = codes[row]
        cells, kinds = explain(x, one, expected, scheme, corruption)
        assert len(cells) == sum(n for _, n in kinds) == int((one != expected).sum())
        for cell in cells:
            assert (cell.got, cell.expected) == (int(one[cell.index]), int(expected[cell.index]))
            alone = expected.to(torch.int64).clone()
            alone[cell.index] = cell.got
            ((again,), ((kind, _),)) = explain(x, alone, expected, scheme, corruption)
            yield (
                kind,
                Cell(x[cell.index], s[cell.index], z[cell.index], again, scheme, rule, kernel, corruption),
            )


def spread(values, result):
    """One number an element, by numpy."""
    values, shape = values.numpy(), result.x.shape
    for axis, n in enumerate(shape):
        values = np.repeat(values, -(-n // values.shape[axis]), axis=axis).take(range(n), axis=axis)
    return values


@pytest.mark.parametrize("text", SCHEMES)
def test_every_claim_of_a_reason(text):
    scheme = qc.Scheme.parse(text)
    x = original(len(text), (9, 16) if scheme.format.bits == 6 else (5, 8))
    result = qc.apply(x, scheme)
    wrapping = dataclasses.replace(scheme, convention=scheme.convention.changed(overflow="wrap"))
    wrapped = qc.apply(x, wrapping).codes
    codes = corrupted(result.codes, scheme.format, len(text), wrapped)
    seen = []
    for kind, cell in cells_of(scheme, x, codes, Corruption(), SCHEMES[text]):
        seen.append(kind)
        evaluate(kind, cell)
    assert len(seen) > 15
    if scheme.format.bits == 6:  # a scale of 1/32, many ties, and much beyond the range
        wanted = {"wrapped", "tie", "off by one", "outside the format", "another scale", "another scale or zero_point",
                  "the same bits read as unsigned"}  # fmt: skip
        assert wanted <= set(seen)


def test_reasons_of_a_scheme_with_a_mistake():
    """The zero_point that was left out is not counted in: the code would otherwise be said to need it."""
    scheme, x = qc.Scheme.parse("int8 asymmetric per_channel(0) textbook"), original(5, (6, 8)) + 0.5
    corruption = Corruption(("zero_point_left_out",))
    codes = corrupted(reproduce(x, scheme, corruption), scheme.format, 5)
    for kind, cell in cells_of(scheme, x, codes, corruption, "half to even"):
        evaluate(kind, cell)


def test_lowest_code_left_out():
    """Where no code is the lowest one, and only there, the range may have been narrow."""
    x = torch.tensor([[-1.0, -0.9, 0.2, 1.0], [-1.0, 0.5, 0.3, -0.2]])
    scheme = qc.Scheme.parse("int4 symmetric per_tensor given(0.125)")
    codes = qc.apply(x, scheme).codes.to(torch.int64)
    narrow = codes.clamp(min=-7)
    cells, kinds = explain(x, narrow, codes, scheme)
    assert kinds == (("narrow range", 2),)
    assert all("none of the given codes is -8, the lowest of int4" in cell.reason for cell in cells)
    narrow[1, 0] = -8
    assert dict(explain(x, narrow, codes, scheme)[1]).keys() == {"another scale"}


def test_zero_points_are_the_median_that_codes_ask_for():
    """Of each block, though a third of its codes are clamped."""
    rng = np.random.default_rng(0)
    for rows, n in ((1, 1), (1, 2), (3, 7), (4, 12)):
        x = torch.from_numpy(rng.normal(size=(rows, n)).astype(F))
        scale = torch.from_numpy(rng.uniform(0.01, 0.1, (rows, 1)).astype(F))
        codes = torch.from_numpy(rng.integers(-60, 60, (rows, n)))
        found = inferred(x, codes, scale, qc.PerChannel(0)).reshape(-1).tolist()
        asked = np.sort(codes.numpy() - x.numpy() / scale.numpy(), axis=1)
        for one, row in zip(found, asked, strict=True):
            assert np.sum(row < one - 0.5) <= n / 2
            assert np.sum(row > one + 0.5) <= n / 2
        z = rng.integers(-5, 5, (rows, 1))
        exact = torch.from_numpy(np.round(x.numpy() / scale.numpy()) + z).clamp(-30, 30)
        clamped = (exact.abs() == 30).sum(1)
        truth = [int(v) for v, c in zip(z[:, 0], clamped, strict=True) if c < n / 3]
        again = inferred(x, exact, scale, qc.PerChannel(0)).reshape(-1).tolist()
        assert [v for v, c in zip(again, clamped, strict=True) if c < n / 3] == truth


def test_zero_points_given_that_can_be_none_of_these_codes():
    """A fraction, or another number of them than of scales, gives nothing to try; one of either sign gives two."""
    x, codes = original(0, (2, 4)), torch.zeros((2, 4), dtype=torch.int64)
    whole = [qc.PerTensor()]
    scale = torch.tensor(0.1)
    assert with_given_scale(x, codes, scale, torch.tensor(0.5), whole) == []
    assert with_given_scale(x, codes, scale, torch.tensor([1.0, 2.0]), whole) == []
    tried = with_given_scale(x, codes, scale, torch.tensor(3.0), whole)
    assert [int(source.zero_point) for source in tried] == [3, -3]
    assert [
        int(source.zero_point) for source in with_given_scale(x, codes, scale, torch.tensor(0.0), whole)
    ] == [0]
