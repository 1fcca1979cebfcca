"""What Match says about single elements is checked with numpy: every number in every sentence."""

import dataclasses
import math
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some

import quantcore as qc
from quantcore.conventions import KERNELS
from quantcore.matching import (
    Candidate,
    Corruption,
    Reinterpreted,
    Transposed,
    answer,
    match_steps,
    nearest,
    reproduce,
    rules,
    search,
)
from quantcore.matching.candidates import Evaluator, _alternatives, _nearest
from quantcore.matching.explanations import explain_corruption
from quantcore.matching.hypotheses.corruption import changed
from quantcore.matching.hypotheses.sample import inferred, with_given_scale
from quantcore.matching.hypotheses.scoring import NAMED, OF_PERCENTILE, WORKED_OUT, WRITTEN, Hypothesis
from quantcore.matching.hypotheses.search_space import granularities
from quantcore.matching.inputs import on_grid, parameter_note, read_codes, read_parameter
from quantcore.matching.reasons import DifferingElement, _bounds_of, _scale_words, explain, reason
from quantcore.notation import write_call
from quantcore.qparams import wrap

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
    """An element that differs, with what numpy computes for it."""

    def __init__(self, x, s, z, cell, scheme, rule, kernel, corruption):
        self.x, self.s, self.z = F(x), F(s), F(z)
        self.got, self.expected, self.words = cell.got, cell.expected, cell.reason
        self.fmt, self.rule, self.corruption = scheme.format, RULES[rule], corruption
        self.rule_name, self.shift_first, self.inverse = rule, kernel in "CD", kernel in "BD"
        self.wraps = scheme.convention.coding.overflow == "wrap"

    def code(self, s=None, z=None):
        """The code before it is clamped, in float64, with another scale or zero_point if given."""
        new_scale = s is not None
        s, z = (float(own if new is None else new) for own, new in ((self.s, s), (self.z, z)))
        if new_scale:
            quotient = float(self.x) / s
        else:  # in float32, which matters next to a tie
            quotient = float(self.x * (F(1) / self.s) if self.inverse else self.x / self.s)
        return self.rule(float(F(quotient + z))) if self.shift_first else self.rule(quotient) + z

    def clamped(self, **others):
        """The code after clamping."""
        code = self.code(**others)
        return code if self.wraps else min(max(code, self.fmt.qmin), self.fmt.qmax)


def first_value(c):
    """The value of the formula at the start of the sentence, computed in float32, as a Python float."""
    found = re.search(rf"((?:x|\(x).*?) = {NUMBER}", c.words)
    value = F(FORMULAS[found[1]](c.x, c.s, c.z))
    assert f"{value:.7g}" == found[2], c.words
    return float(value)


def evaluate(kind, c):
    """Check every claim in a sentence."""
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
        assert f"none of the given codes is {c.fmt.qmin}, the lowest code of {c.fmt}" in c.words
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
    """Check both neighbors of the value, and which rule gives which."""
    tie = math.floor(value) + 0.5
    ulps = re.search(rf", (\d+) ulp from {NUMBER}", c.words)
    if ulps:
        assert float(ulps[2]) == tie
        size = float(np.spacing(F(max(abs(value), abs(value - c.z) if c.shift_first else 0))))
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
    """Check that the scales and zero_points named give the code, and those next to them do not."""
    near, step = 1e-4, 1e-6  # float32 sums near 255 are off by 1.5e-5
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
    """A random tensor, half of it multiples of 1/64, so that there are ties."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    x.flat[::2] = np.round(x.flat[::2] * 64) / 64
    return torch.from_numpy(x.astype(F))


def corrupted(codes, fmt, seed, wrapped=None):
    """Codes, most of them replaced by a neighbor, any code of the format, a wrapped one, or one far away."""
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
    """All cells that differ, explained row by row, since only the first cells are named."""
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
    """Parameters expanded to one per element, with numpy."""
    values, shape = values.numpy(), result.x.shape
    for axis, n in enumerate(shape):
        values = np.repeat(values, -(-n // values.shape[axis]), axis=axis).take(range(n), axis=axis)
    return values


@for_each("text", some(SCHEMES, 4))
def test_every_claim_of_a_reason(text):
    scheme = qc.Scheme.parse(text)
    x = original(len(text), (9, 16) if scheme.format.bits == 6 else (4, 8))
    result = qc.apply(x, scheme)
    wrapping = dataclasses.replace(scheme, convention=scheme.convention.changed(overflow="wrap"))
    wrapped = qc.apply(x, wrapping).codes
    codes = corrupted(result.codes, scheme.format, len(text), wrapped)
    seen = []
    for kind, cell in cells_of(scheme, x, codes, Corruption(), SCHEMES[text]):
        seen.append(kind)
        evaluate(kind, cell)
    assert len(seen) > 15
    if scheme.format.bits == 6:  # its scale is 1/32, with many ties and values out of range
        wanted = {"wrapped", "tie", "off by one", "outside the format", "another scale", "another scale or zero_point",
                  "the same bits read as unsigned"}  # fmt: skip
        assert wanted <= set(seen)


def test_reasons_of_a_scheme_with_a_mistake():
    """A zero_point that was left out is not part of the reasons, which would otherwise say that codes need it."""
    scheme, x = qc.Scheme.parse("int8 asymmetric per_channel(0) textbook"), original(5, (6, 8)) + 0.5
    corruption = Corruption(("zero_point_left_out",))
    codes = corrupted(reproduce(x, scheme, corruption), scheme.format, 5)
    for kind, cell in cells_of(scheme, x, codes, corruption, "half to even"):
        evaluate(kind, cell)


def test_lowest_code_left_out():
    """A narrow range is only suggested if the lowest code does not occur."""
    x = torch.tensor([[-1.0, -0.9, 0.2, 1.0], [-1.0, 0.5, 0.3, -0.2]])
    scheme = qc.Scheme.parse("int4 symmetric per_tensor given(0.125)")
    codes = qc.apply(x, scheme).codes.to(torch.int64)
    narrow = codes.clamp(min=-7)
    cells, kinds = explain(x, narrow, codes, scheme)
    assert kinds == (("narrow range", 2),)
    assert all("none of the given codes is -8, the lowest code of int4" in cell.reason for cell in cells)
    narrow[1, 0] = -8
    assert dict(explain(x, narrow, codes, scheme)[1]).keys() == {"another scale"}


def test_zero_points_are_the_median_that_codes_ask_for():
    """This holds in each block, even if up to a third of its codes are clamped."""
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
    """A zero_point that is fractional, or not one per scale, gives nothing to try; others are tried with both signs."""
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


@for_each(
    ("codes", "words"),
    [
        ([-32768, 32767], None), ([0, 65535], None), ([-32769, 0], "-32769 at index (0,) does not fit 16 bits"),
        ([0, 65536], "65536 at index (1,) does not fit 16 bits"), ([-1, 32767], None),
        ([-1, 32768], "run from -1 to 32768"), ([0.0, -3.0], None), ([0.0, 2.5], "2.5 at index (1,)"),
        ([7], "1 codes, 1 too few: the original of shape (2,) has 2 elements"),
        ([7, 8, 9, 10], "4 codes, 2 too many"), (torch.tensor([3, -4], dtype=torch.bfloat16), None),
    ],
)  # fmt: skip
def test_codes_that_are_read(codes, words):
    if words is None:
        found = read_codes(codes, (2,))
        assert (found.dtype, found.tolist()) == (torch.int32, [int(q) for q in codes])
        return
    with pytest.raises(qc.QuantError) as raised:
        read_codes(codes, (2,))
    assert words in str(raised.value)


def parameter_error(value, what, shape):
    with pytest.raises(qc.QuantError) as raised:
        read_parameter(value, what, shape, granularities(shape))
    return str(raised.value)


def test_parameters_that_are_read():
    for n in (1, 2, 4, 8, 16):
        assert read_parameter([0.5] * n, "scale", (16,), granularities((16,))).tolist() == [0.5] * n
    assert read_parameter(-3, "zero_point", (16,), granularities((16,))).item() == -3
    assert read_parameter(None, "scale", (16,), granularities((16,))) is None
    # five numbers are listed, each with the simplest granularity
    assert parameter_error([1.0] * 3, "scale", (16,)).endswith(
        "The scale has 3 values, which matches no granularity of a tensor of shape (16,); give 1 (per_tensor), 2 (per_group(8)), "
        "4 (per_group(4)), 8 (per_group(2)), 16 (per_channel)."
    )
    assert parameter_error([1.0] * 3, "scale", (32,)).endswith(", 8 (per_group(4)), 16 (per_group(2)), ….")
    assert parameter_error([1] * 3, "zero_point", (2, 4)).endswith(
        "give 1 (per_tensor), 2 (per_channel), 4 (per_channel(axis=1))."
    )
    assert "scale at index (1,) must be a positive and finite float32 number, not 0." in parameter_error(
        [1, 0], "scale", (2, 4)
    )
    assert "The zero_point must be a finite float32 number, not nan." in parameter_error(
        math.nan, "zero_point", (2,)
    )


@for_each(
    ("values", "grid", "fits"),
    [
        ((4,), (4, 1), True), ((2, 2), (2, 2), True), ((4,), (2, 2), True), ((1, 4), (2, 2), True),
        ((2, 2), (4, 1), False), ((2, 1, 3), (2, 3), True), ((3, 2), (2, 3), False), ((3,), (4,), False), ((), (1, 1), True),
    ],
)  # fmt: skip
def test_parameters_in_the_form_of_blocks(values, grid, fits):
    flat = torch.arange(math.prod(values), dtype=torch.float32)
    found = on_grid(flat.reshape(values), grid)
    assert (found is not None) == fits
    if found is not None:
        assert torch.equal(found, flat.reshape(grid))


def test_how_given_parameters_differ():
    two = torch.tensor([[0.25], [0.3]])
    for given, found, words in (
        (two, two, ""),
        (1 / two, two, "the given scale is the inverse, 1/s"),
        (torch.tensor(0.5), torch.tensor([[0.1]]), "the given scale differs: 0.5 instead of 0.100000001"),
        (torch.tensor([0.25, 0.5]), two,
         "the given scale differs in 1 of 2 blocks, first in block (1, 0): 0.5 instead of 0.300000012"),
        (two * 2, two, "the given scale differs in 2 of 2 blocks, first in block (0, 0): 0.5 instead of 0.25"),
        (torch.tensor(0.5), two, "the given scale has another granularity: 1 value for 2 blocks"),
        (two, torch.tensor([[0.5]]), "the given scale has another granularity: 2 values for 1 block"),
    ):  # fmt: skip
        assert parameter_note("scale", given, found) == words
    z = torch.tensor([[3], [-4]], dtype=torch.int32)
    opposite = "the given zero_point has the opposite sign, like AIMET's offset"
    for given, found, words in (
        (z.float(), z, ""),
        (-z.float(), z, opposite),
        (torch.tensor(3.0), z,
         "the given zero_point differs in 1 of 2 blocks, first in block (1, 0): 3 instead of -4"),
        (torch.tensor([3.0]), torch.tensor([[3], [3]]), ""),
        (torch.tensor(-3.0), torch.tensor([[3], [3]]), opposite),
        (torch.ones(3), z, "the given zero_point has another granularity: 3 values for 2 blocks"),
    ):  # fmt: skip
        assert parameter_note("zero_point", given, found) == words


@for_each(
    ("found", "expected", "rank", "differences"),
    [
        ("int8 per_channel(1)", "int8 per_channel(-1)", 2, 0),
        ("int8 per_channel(1)", "int8 per_channel(-1)", 3, 1),
        ("int8 per_channel(0)", "int8 per_channel(-1)", 1, 0), ("int8 per_group(4, 0)", "int8 per_group(4, -1)", 1, 0),
        ("int8 per_channel(0)", "int8 per_channel(0)", 0, 0),
        ("int8 per_group(4)", "int8 per_group(8)", 2, 1),
        ("int8 per_group(4, 0)", "int8 per_group(8)", 2, 1),
        ("int8 per_group(4, 1)", "int8 per_group(4)", 2, 0),
        ("int8 per_tensor", "int8 per_group(4)", 2, 1),
        ("int8n symmetric", "uint8 asymmetric", 2, 3),
        ("uint6 asymmetric", "int4 symmetric", 1, 3),
        ("int8 symmetric", "e4m3fn symmetric", 1, 1),
        ("nf4 symmetric", "nf4 symmetric", 1, 0), ("nf4 per_tensor", "iq4_nl per_tensor", 1, 1),
        ("int8 per_tensor torchao", "int8 per_tensor", 1, 1),
    ],
)  # fmt: skip
def test_the_scheme_nearest_to_the_expected_one(found, expected, rank, differences):
    scheme, wanted = qc.Scheme.parse(found), qc.Scheme.parse(expected)
    rival = wanted
    changes = [
        {"convention": qc.CONVENTIONS["hqq"]}, {"granularity": qc.PerBlock((2, 2))},
        {"format": dataclasses.replace(wanted.format, bits=16) if wanted.format.has_zero_point else qc.INT8},
        {"symmetric": not wanted.symmetric},
    ]  # fmt: skip
    for number, change in enumerate([{}, *changes]):
        rival = dataclasses.replace(rival, **change)
        both = Candidate(rival, 0, same=(scheme,))
        assert nearest(both, wanted, rank) == (scheme if differences < number else rival)
        assert both.schemes == (rival, scheme)


def element(
    value,
    got,
    *,
    x=10.0,
    scale=1.0,
    z=0.0,
    added=0.0,
    unclamped=None,
    rule="half_even",
    kernel="A",
    fmt="int8",
    **others,
):
    """An element with these intermediate results."""
    made = RULES_OF[rule](value) + added if unclamped is None else unclamped
    fmt = qc.Scheme.parse(fmt).format
    expected = int(min(max(made, fmt.qmin), fmt.qmax)) if math.isfinite(made) else 0
    return DifferingElement(
        x, scale, z, value, made, added, expected, got, KERNELS[kernel], rule, fmt, **others
    )


RULES_OF = {"half_even": np.round, "floor": np.floor, "toward_zero": np.trunc, "ceil": np.ceil}


@for_each(
    ("one", "kind", "words"),
    [
        (element(math.inf, 3, unclamped=math.inf), "not finite", "x / s = inf, which can't be rounded to an integer"),
        (element(130.0, -126), "wrapped", "x / s = 130 gives 130, whose lowest 8 bits are -126"),
        (element(127.0, -1, added=3.0, z=3.0, fmt="int4"), "wrapped", None),
        (element(127.0, 2, added=3.0, z=3.0, fmt="int4"), "wrapped",
         "x / s = 127 gives 130 with z = 3, whose lowest 4 bits are 2"),
        (element(-8.0, -7, fmt="int4", lowest_used=False), "narrow range",
         "x / s = -8 gives -8; none of the given codes is -8, the lowest code of int4"),
        (element(-8.0, -7, fmt="int4", x=-8.0), "another scale", None),
        (element(-7.6, -6, fmt="int4", x=-7.6, lowest_used=False), "another scale", None),
        (element(-1.0, 255), "the same bits read as unsigned", "255 and -1 have the same lowest 8 bits"),
        (element(200.0, -56, fmt="uint8"), "the same bits read as signed", "-56 and 200 have the same lowest 8 bits"),
        (element(1.0, 255), "outside the format", "x / s = 1; 255 is not an int8 code (-128 to 127)"),
        (element(1.0, 256, fmt="uint8"), "outside the format", "x / s = 1; 256 is not a uint8 code (0 to 255)"),
        (element(2.5, 3), "tie", "tie: x / s = 2.5 exactly; half to even gives 2, the other neighbor is 3"),
        (element(2.5, 3, rule="ceil", unclamped=2), "tie", "tie: x / s = 2.5 exactly; rounding up gives 2, the other neighbor is 3"),
        (element(2.5, 2, kernel="F", z=1.0, rule="floor", unclamped=3), "tie",
         "tie: x · (1/s) + z = 2.5 exactly; adding ½ and truncating gives 3, the other neighbor is 2"),
        (element(2.75, 2), "off by one", "x / s = 2.75; half to even gives 3, rounding down, toward zero, gives 2"),
        (element(2.25, 3), "off by one", "x / s = 2.25; half to even gives 2, rounding up gives 3"),
        (element(-2.75, -2), "off by one", "x / s = -2.75; half to even gives -3, rounding up, toward zero, gives -2"),
        (element(-2.25, -3), "off by one", "x / s = -2.25; half to even gives -2, rounding down gives -3"),
        (element(2.5 + 4 * 2**-22, 2), "off by one",
         "x / s = 2.500001, 4 ulp from 2.5; half to even gives 3, rounding down, toward zero, gives 2"),
        (element(2.5 + 5 * 2**-22, 2), "off by one",
         "x / s = 2.500001; half to even gives 3, rounding down, toward zero, gives 2"),
        (element(2.5 + 2 * 2**-17, 2, z=-100.0, kernel="C"), "off by one",
         "x / s + z = 2.500015, 2 ulp from 2.5; half to even gives 3, rounding down, toward zero, gives 2"),
        (element(102.5 + 2 * 2**-17, 102, z=100.0, kernel="C"), "off by one",
         "x / s + z = 102.5, 2 ulp from 102.5; half to even gives 103, rounding down, toward zero, gives 102"),
        # z is added to what has been rounded, or is in the units of x
        (element(2.5 + 2 * 2**-22, -98, z=-100.0, added=-100.0), "off by one",
         "x / s = 2.5, 2 ulp from 2.5; half to even gives 3, rounding down, toward zero, gives 2"),
        (element(2.5 + 5 * 2**-22, -98, z=-100.0, added=-100.0), "off by one",
         "x / s = 2.500001; half to even gives 3, rounding down, toward zero, gives 2"),
        (element(2.5 + 2 * 2**-22, 2, z=-100.0, kernel="G", unclamped=3), "off by one",
         "(x - z) · (1/s) = 2.5, 2 ulp from 2.5; adding ½ and truncating gives 3, rounding down, toward zero, gives 2"),
        (element(2.5 + 2**-22, 2, x=2.5), "tie",
         "near a tie: x / s = 2.5, 1 ulp from 2.5; round(x · (1/s)) + z gives 2"),
        (element(3.0, 4), "another scale", "x / s = 3; 4 needs a scale of 2.222222 to 2.857143, not 1, or a zero_point of 1"),
        (element(0.0, 4, x=0.0), "another scale or zero_point", "x / s = 0; no scale gives 4, or a zero_point of 4"),
        (element(0.0, 4, x=0.0, z=2.0, added=2.0), "another scale or zero_point",
         "x / s = 0; no scale gives 4 with z = 2, or a zero_point of 4"),
        (element(3.0, 7, fmt="int4"), "another scale",
         "x / s = 3; 7 needs a scale of at most 1.538462, not 1, or a zero_point of at least 4"),
        (element(3.0, 7, fmt="int4", beyond="wrapped"), "another scale",
         "x / s = 3; 7 needs a scale of 1.333333 to 1.538462, not 1, or a zero_point of 4, unless it wrapped"),
        (element(3.0, -8, fmt="int4", x=-10.0), "another scale",
         "x / s = 3; -8 needs a scale of at most 1.333333, not 1, or a zero_point of at most -11"),
        (element(13.0, 20, kernel="F", rule="floor", z=3.0), "another scale",
         "x · (1/s) + z = 13; 20 needs a scale of 0.5714286 to 0.6060606, not 1, or a zero_point of 10"),
        (element(6.0, 8, kernel="G", rule="floor", z=4.0), "another scale",
         "(x - z) · (1/s) = 6; 8 needs a scale of 0.7058824 to 0.8, not 1"),
        (element(10.0, 3, scale=-1.0), "another scale", None),
    ],
)  # fmt: skip
def test_reason_of_an_element(one, kind, words):
    if words is None and kind == "wrapped":
        assert reason(one)[0] != kind
        return
    found = reason(one)
    assert found[0] == kind
    if words is not None:
        assert found[1] == words


@for_each("rule", ["floor", "ceil", "toward_zero", "half_even"])
@for_each("got", range(-2, 2))
@for_each("beyond", ["clamped", "wrapped"])
def test_values_that_are_rounded_to_a_code(rule, got, beyond):
    """Exactly the values within the bounds are; when clamping, the format's ends have only one bound."""
    one = element(9.0, got, rule=rule, fmt="int2", beyond=beyond)
    low, high = _bounds_of(one)
    assert (low == -math.inf) == (got == -2 and beyond == "clamped")
    assert (high == math.inf) == (got == 1 and beyond == "clamped")
    for value, inside in ((low + 0.01, True), (low - 0.01, False), (high - 0.01, True), (high + 0.01, False)):
        if math.isfinite(value):
            code = RULES_OF[rule](value)
            assert (min(max(code, -2), 1) == got if beyond == "clamped" else code == got) == inside


@for_each(
    ("x", "low", "high", "words"),
    [
        (6.0, 2.0, 3.0, "of 2 to 3"), (-6.0, -3.0, -2.0, "of 2 to 3"), (6.0, -1.0, 3.0, "of at least 2"),
        (6.0, 0.0, 3.0, "of at least 2"), (6.0, 2.0, math.inf, "of at most 3"), (6.0, -3.0, 0.0, ""), (6.0, -3.0, -2.0, ""),
        (0.0, 2.0, 3.0, ""), (6.0, -1.0, math.inf, ""), (-6.0, -math.inf, -2.0, "of at most 3"),
    ],
)  # fmt: skip
def test_scales_between_bounds(x, low, high, words):
    assert _scale_words(x, low, high) == words


def test_lowest_bits():
    for code in range(-700, 700, 17):
        assert int(wrap(torch.tensor(float(code)), qc.Scheme.parse("int8").format)) == int(
            np.array(code).astype(np.int8)
        )
        assert int(wrap(torch.tensor(float(code)), qc.Scheme.parse("uint8").format)) == code % 256
        assert int(wrap(torch.tensor(float(code)), qc.Scheme.parse("int8n").format)) == int(
            np.array(code).astype(np.int8)
        )


def test_as_many_cells_as_are_listed_and_counted():
    """20 are listed and 1,000 are counted."""
    x = torch.linspace(-1, 1, 1010).reshape(5, -1)
    scheme = qc.Scheme.parse("int8 symmetric per_tensor")
    expected = qc.apply(x, scheme).codes.to(torch.int64)
    for n in (1, 19, 20, 21, 999, 1000, 1001, 1010):
        codes = expected.clone().reshape(-1)
        codes[:n] += 1000
        cells, kinds = explain(x, codes.reshape(x.shape), expected, scheme)
        assert [c.index for c in cells] == [divmod(i, 202) for i in range(min(n, 20))]
        assert sum(count for _, count in kinds) == min(n, 1000)


def sentences(text, x, *kinds, own_scale=True):
    """The sentences about the codes of a scheme with mistakes."""
    scheme, corruption = changed(qc.Scheme.parse(text), kinds), Corruption(kinds)
    codes = reproduce(x, scheme, corruption)
    return explain_corruption(x, codes, scheme, corruption, own_scale)


def test_sentences_of_scales_and_zero_points():
    x = torch.tensor([[0.0, 2.55], [-0.5, 4.6]])
    whole, rows = "int8 asymmetric per_tensor", "int8 asymmetric per_channel(0)"
    for text, kind, one, words in (
        (whole, "zero_point_left_out", x, ("asymmetric scale: (4.6 + 0.5) / 255 = 0.02", "zero_point 0 instead of -103")),
        (whole, "zero_point_left_out", x[:1],
         ("asymmetric scale: (2.55 - 0) / 255 = 0.01", "zero_point 0 instead of -128")),
        (rows, "zero_point_left_out", x,
         ("2 asymmetric scales, (high - low) / 255, ranging from 0.01 to 0.02",
          "zero_point 0 in all 2 blocks instead of -128 to -103")),
        (rows, "zero_point_negated", x, ("zero_points from 103 to 128 instead of -128 to -103",)),
        (whole, "zero_point_negated", x, ("zero_point 103 instead of -103",)),
    ):  # fmt: skip
        assert sentences(text, one, kind)[: len(words)] == words
    tiny = torch.tensor([[1e-7, 1.0], [1e-7, -1e-8], [2e-8, 0.0]])
    for rows, words in (((0, 1), "1 scale underflows"), ((0, 1, 2), "2 scales underflow")):
        found = sentences("int8 symmetric per_channel(0)", tiny[list(rows)], "scale_float16")
        assert found == (f"{words} to 0 in float16, so x / scale is infinite",)
    (rounded,) = sentences("int8 symmetric per_tensor", torch.tensor([1.0, 0.3]), "scale_float16")
    right = qc.apply(torch.tensor([1.0]), qc.Scheme.parse("int8 symmetric per_tensor")).scale.item()
    assert rounded == f"scale {right:.9g} is rounded to {float(np.float16(right)):.9g} in float16"
    assert sentences("int8 symmetric per_tensor given(0.5)", torch.tensor([1.0]), "scale_float16") == ()


def test_sentences_of_codes():
    """Two elements are named, with "…" if there are more; a count of one takes the singular."""
    x = torch.tensor([[2.5, 1.0, 4.5], [-2.5, 6.5, 0.25]])
    for n, words in (
        (1, "1 code differs from rounding half to even: 2 → 3 at (0, 0)"),
        (3, "2 codes differ from rounding half to even: 2 → 3 at (0, 0), 4 → 5 at (0, 2)"),
    ):
        assert sentences("int8 symmetric per_tensor given(1.0)", x[:1, :n], "half_away") == (words,)
    assert sentences("int8 symmetric per_tensor given(1.0)", x, "half_away") == (
        "4 codes differ from rounding half to even: 2 → 3 at (0, 0), 4 → 5 at (0, 2), …",
    )
    assert sentences("int8 symmetric per_tensor given(1.0)", x[:, 1:2].floor(), "floor") == (
        "0 codes differ from rounding half to even",
    )
    ends = torch.tensor([[8.0, 7.0, -8.0], [-9.0, 20.0, 0.0]])
    assert sentences("int4 symmetric per_tensor given(1.0)", ends, "wrapped") == (
        "3 codes wrapped: 8 → -8 at (0, 0), -9 → 7 at (1, 0), …",
    )
    assert sentences("int4 symmetric per_tensor given(1.0)", ends[:1], "wrapped") == (
        "1 code wrapped: 8 → -8 at (0, 0)",
    )
    assert sentences("int4 symmetric per_tensor given(1.0)", ends, "unclamped") == (
        "3 codes lie outside int4: 8 at (0, 0)",
    )
    assert sentences("int4 symmetric per_tensor given(1.0)", ends[1:, :1], "unclamped") == (
        "1 code lies outside int4: -9 at (0, 0)",
    )
    below = torch.tensor([-0.4, -0.6, -3.0, 2.0, 0.0])
    lost = "there are no codes for negative values: 2 of 5 elements became 0"
    assert sentences("uint8 asymmetric per_tensor given(1.0)", below) == (lost,)
    assert sentences("uint8 asymmetric per_tensor given(1.0, 1)", below) == ()
    assert sentences("uint8 asymmetric per_tensor given(1.0)", below[3:]) == ()


def test_scales_that_codes_allow_are_told():
    x, given = torch.tensor([1.0, 2.0, -3.0, 10.0]), "symmetric per_tensor given(0.5)"
    words = f"the codes allow scales from {10 / 20.5:.7g} to {10 / 19.5:.7g}"
    for text, told in (
        (f"int8 {given}", (words,)), (f"int9 {given}", ()), ("int8 symmetric per_tensor", ()),
        ("int8 symmetric per_group(4) given(0.5)", (words,)),
        ("int8 symmetric per_group(2) given([1, 0.5])", (f"the codes of elements 0–1 allow scales from {2 / 2.5:.7g} to {2 / 1.5:.7g}",)),
    ):  # fmt: skip
        assert sentences(text, x, own_scale=False) == told, text
    kept = sentences(f"int4 {given}", x, "unclamped", own_scale=False)
    assert kept == ("1 code lies outside int4: 20 at (3,)",)
    assert sentences(f"int8 {given}", x, own_scale=True) == ()


def test_nearest_candidates():
    """At most eight are kept; with more mistakes or conversions, a candidate must have less than half as many differences."""

    def groups(*pairs):
        return [[SimpleNamespace(differing=n, steps=steps)] for steps, n in pairs]

    def kept(*pairs):
        return [g[0].differing for g in _nearest(groups(*pairs))]

    assert kept(*((0, n) for n in range(9))) == list(range(8))
    assert kept((0, 10), (1, 4)) == [10, 4]
    assert kept((0, 10), (1, 5)) == [10]
    assert kept((1, 4), (0, 10), (0, 9), (1, 5)) == [4, 10, 9]
    assert kept((0, 100), (1, 40), (2, 19), (2, 20)) == [100, 40, 19]


def test_other_explanations_are_counted():
    first, *others = (
        Candidate(qc.Scheme.parse(t), 0) for t in ("int8", "int4 per_tensor given(0.5)", "uint8", "int6")
    )
    start = f"also possible: int4 {write_call(others[0].scheme.range_setting)}"
    for n, more in ((1, ""), (2, ", and 1 more"), (3, ", and 2 more")):
        (words,) = _alternatives([first, *others[:n]])
        assert words == start + more
    wrapped = dataclasses.replace(others[0], corruption=Corruption(("wrapped",)))
    assert _alternatives([first, wrapped])[0].endswith(
        ", cast without a clamp: codes out of range wrapped around"
    )


@for_each(
    ("doubts", "told"),
    [((1, 3), ""), ((0, 1), None), ((1,), None), ((1, 2, 3), ", and 1 more"), ((0, 0, 0), None)],
)
def test_other_explanations_are_told_where_the_scale_of_the_first_is_doubtful(doubts, told):
    x = torch.tensor([0.1, 0.2, -0.3, 1.0])
    evaluator = Evaluator(x, torch.tensor([1, 2, -3, 10]), None, None, [qc.PerTensor()])
    for scale, doubt in zip((0.1, 0.101, 0.102), doubts, strict=False):
        evaluator.evaluate(
            Hypothesis(qc.Scheme.parse(f"int8 per_tensor given({scale})"), Corruption(), 0.0, doubt)
        )
    assert not any(c.explanations for c in evaluator.candidates())
    first, *others = evaluator.candidates(explained=True)
    assert first.scheme.range_setting.scale == 0.1
    said = [words for words in first.explanations if words.startswith("also possible: ")]
    assert said == ([] if told is None else [f"also possible: int8 given(0.101){told}"])
    assert len(others) == len(doubts) - 1
    assert not any("also possible" in words for c in others for words in c.explanations)


def test_a_scale_with_a_better_reason_comes_first():
    evaluator = Evaluator(torch.tensor([0.1, 0.2, -0.3, 1.0]), torch.tensor([1, 2, -3, 10]), None, None, [qc.PerTensor()])
    doubts, scales = (WORKED_OUT, OF_PERCENTILE, WRITTEN, NAMED, 0), [0.1, 0.101, 0.102, 0.099, 0.098]
    for doubt, scale in zip(doubts, scales, strict=True):
        evaluator.evaluate(Hypothesis(qc.Scheme.parse(f"int8 per_tensor given({scale})"), Corruption(), 0.0, doubt))
    assert [c.scheme.range_setting.scale for c in evaluator.candidates()] == scales[::-1]


def test_what_libraries_make_of_nan_is_told_apart():
    """With a given scale, equal arithmetic gives equal codes only of numbers."""
    x = torch.tensor([0.3, math.nan, -0.2])
    evaluator = Evaluator(x, torch.tensor([3, 0, -2]), None, None, [qc.PerTensor()])
    names = ("torchao", "torch.fake_quantize", "compressed_tensors", "onnxruntime")
    for name in names:
        evaluator.evaluate(
            Hypothesis(qc.Scheme.parse(f"int8 per_tensor given(0.1) {name}"), Corruption(), 0.0)
        )
    assert [v.differing for v in evaluator.evaluations] == [0, 1, 0, 1]


def test_progress_of_a_search_that_finds_nothing(monkeypatch):
    """Progress is counted in fifteenths; the last fifth of a round is spent on the whole tensor."""
    stored = search.stored_corruptions  # of all corruptions, which are searched one by one, the first
    monkeypatch.setattr(search, "stored_corruptions", lambda *given: stored(*given)[:2])
    monkeypatch.setattr(search, "DTYPES", (torch.float32, torch.bfloat16))  # of three, searched one by one
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.normal(size=14).astype(F))
    steps = list(match_steps(x, rng.integers(-100, 100, 14)))
    starts = {}
    for step in steps[1:]:
        starts.setdefault(re.split("[:,]", step.what)[0], step.fraction)
    assert steps[0].what == "drawing samples"
    names = ["schemes", "gguf's formats and hqq's search", "other group sizes", "rules of the scale", "corrupted codes", "mistakes in the arithmetic",
             "wider formats", "percentiles", "combined mistakes", "scales derived from the codes", "x converted to other dtypes",
             "the nearest schemes", "done"]  # fmt: skip
    assert list(starts) == names
    assert list(starts.values()) == pytest.approx(
        [n / 15 for n in (0, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15)]
    )
    for step in steps:
        if step.what.endswith(", the whole tensor"):
            assert step.fraction * 15 % 1 >= 0.8 - 1e-9
    assert all(len(s.matches.candidates) <= 8 for s in steps)
    assert (
        (qc.Matches().candidates, qc.Matches().tried)
        == (steps[0].matches.candidates, steps[0].matches.tried)
        == ((), 0)
    )
    tried = [s.matches.tried for s in steps]
    assert tried == sorted(tried)
    assert not steps[-1].matches.exact
    assert steps[-1].matches.candidates[0].differing > 5


@for_each(
    ("text", "rank", "words"),
    [
        ("int8", 2, "int8 symmetric, one scale"), ("uint4 asymmetric per_channel(0)", 2, "uint4 asymmetric, one scale per row (axis 0)"),
        ("int8 per_channel(-1)", 2, "int8 symmetric, one scale per column (axis 1)"),
        ("int8 per_channel(-1)", 3, "int8 symmetric, one scale per index of axis 2"),
        ("int8 per_channel(0)", 1, "int8 symmetric, one scale per index of axis 0"),
        ("int8 per_channel(-1)", 1, "int8 symmetric, one scale per index of axis 0"),
        ("int8 per_channel(0)", 0, "int8 symmetric, one scale per index of axis 0"),
        ("int8 per_group(8)", 2, "int8 symmetric, one scale per 8 elements along axis 1"),
        ("int8 per_group(8, axis=0)", 2, "int8 symmetric, one scale per 8 elements along axis 0"),
        ("int8 per_group(8)", 1, "int8 symmetric, one scale per 8 elements along axis 0"),
        ("int8 per_group(8)", 0, "int8 symmetric, one scale per 8 elements along axis 0"),
        ("int8 per_block([2, 3])", 2, "int8 symmetric, one scale per block of 2×3"),
        ("e2m1 per_flat_group(8)", 2, "e2m1, one scale per 8 elements in row-major order"), ("int4 given(0.5)", 2, "int4 symmetric, one scale, with fixed scales"),
    ],
)  # fmt: skip
def test_rules_in_words(text, rank, words):
    assert rules(qc.Scheme.parse(text), rank) == words
    assert answer(Candidate(qc.Scheme.parse(text), 0), 1000, rank) == f"All 1,000 integers are {words}."


def test_the_answer_tells_mistakes_first_and_how_many_differ():
    assert Reinterpreted(8, signed=False).told == "Signed 8-bit codes are read as unsigned"
    assert Reinterpreted(3, signed=True).told == "Unsigned 3-bit codes are read as signed"
    assert Transposed((0, 2, 1)).told == "The axes of the codes are permuted to (0, 2, 1)"
    scheme, mistakes = qc.Scheme.parse("int8"), Corruption(("wrapped",), (Transposed((1, 0)),))
    told = "The cast has no clamp: codes out of range wrap around. The codes are transposed"
    note = "the given scale is the inverse, 1/s"
    made = "int8 symmetric, one scale"
    for corruption, notes, lead in (
        (Corruption(), (), ""), (mistakes, (), told), (mistakes, (note,), f"{told}. The given scale is the inverse, 1/s"),
        (Corruption(), (note,), "The given scale is the inverse, 1/s"),
    ):  # fmt: skip
        of = lambda differing: answer(Candidate(scheme, differing, corruption, notes=notes), 2000, 2)  # noqa: E731, B023
        assert of(0) == (f"{lead}; everything else is {made}." if lead else f"All 2,000 integers are {made}.")
        start = f"{lead}. " if lead else ""
        assert of(1) == f"{start}1 of 2,000 integers differs; all others are {made}."
        assert of(200) == f"{start}200 of 2,000 integers differ; all others are {made}."
        how = " (the codes are transposed)" if corruption else ""
        for n in (201, 2000):
            assert of(n) == (
                f"No rules that were tried make these integers: of {made}{how}, the closest, {n:,} of 2,000 differ."
            )
