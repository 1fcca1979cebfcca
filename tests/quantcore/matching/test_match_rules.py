"""Match: rules of scales and zero points that no library has, from codes made with NumPy alone."""

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some

import quantcore as qc
from quantcore.formats import INT8
from quantcore.matching import Candidate, answer, search
from quantcore.matching.hypotheses.corruption import Corruption
from quantcore.matching.hypotheses.named_scales import block_fits, named
from quantcore.matching.hypotheses.narrowed import in_order
from quantcore.matching.hypotheses.sample import draw
from quantcore.matching.hypotheses.scale_rules import BlockStatistics, rules
from quantcore.matching.hypotheses.scoring import GivenCodes
from quantcore.matching.hypotheses.search_space import granularities

F = np.float32


def normal(seed, shape=(12, 16), scale=1.0, shift=0.0):
    return (np.random.default_rng(seed).normal(size=shape) * scale + shift).astype(F)


def codes(x, scale, bits=8, signed=True, z=0, rounded=np.round):
    low = -(1 << (bits - 1)) if signed else 0
    return np.clip(rounded(x / np.asarray(scale, F)) + z, low, low + (1 << bits) - 1).astype(int)


def largest(x, axis=None):
    return np.abs(x).max(axis, keepdims=axis is not None)


def width(x, axis=None):
    return x.max(axis, keepdims=axis is not None) - x.min(axis, keepdims=axis is not None)


def zero(x, scale, axis=None):
    return np.round(-x.min(axis, keepdims=axis is not None) / scale)


SHIFTED, X, ROWS = normal(1, shift=0.3), normal(6), normal(2, (4, 64)) * np.arange(1, 5, dtype=F)[:, None]
GROUPS = normal(3, (6, 96)).reshape(6, 4, 24) * np.arange(1, 5, dtype=F)[:, None]
IN_GROUPS, NARROW, HALVES = GROUPS.reshape(6, 96), ROWS[:, :24], ROWS[:, :32]
IN_BFLOAT16 = torch.from_numpy(largest(NARROW, 1) / F(7.5)).bfloat16().float().numpy()
STD_OF_GROUPS, OF_GROUPS = GROUPS.std(-1, keepdims=True), width(GROUPS, -1) / 16
STD, OF_ROWS = ROWS.std(1, keepdims=True), width(ROWS, 1)
NAMED = {
    "(max - min) / 256": (SHIFTED, codes(SHIFTED, width(SHIFTED) / 256, signed=False, z=zero(SHIFTED, width(SHIFTED) / 256))),
    "(max - min) / 16": (SHIFTED, codes(SHIFTED, width(SHIFTED) / 16, 4, False, zero(SHIFTED, width(SHIFTED) / 16))),
    "max|x| / 128": (X, codes(X, largest(X) / 128, rounded=np.floor)),
    "2^-7, a power of two, fixed point Q0.7": (X / 4, codes(X / 4, 2**-7)),
    "3 · std(x) / 127": (X, codes(X, 3 * X.std() / 127, rounded=np.trunc)),
    "2 · mean|x| / √127": (X, codes(X, 2 * np.abs(X).mean() / np.sqrt(127))),
    "max|x| / 127, at least 1e-05": (X * F(1e-4), codes(X * F(1e-4), 1e-5)),
    "3 · std(x) / 127 ": (ROWS, codes(ROWS, 3 * STD / 127)),
    "(max - min) / 256 ": (ROWS, codes(ROWS, OF_ROWS / 256, signed=False, z=zero(ROWS, OF_ROWS / 256, 1))),
    "max|x| / 7.5, rounded to bfloat16": (IN_GROUPS, codes(GROUPS, torch.from_numpy(largest(GROUPS, -1) / F(7.5)).bfloat16().float().numpy(), 4).reshape(6, 96)),
    "(max - min) / 16 ": (IN_GROUPS, codes(GROUPS, OF_GROUPS, 4, False, zero(GROUPS, OF_GROUPS, -1)).reshape(6, 96)),
    "max|x| / 128 ": (IN_GROUPS, codes(GROUPS, largest(GROUPS, -1) / 128, rounded=np.trunc).reshape(6, 96)),
    "3 · std(x) / 7": (IN_GROUPS, codes(GROUPS, 3 * STD_OF_GROUPS / 7, 4).reshape(6, 96)),
    "0.8 · max|x| / 127": (X, codes(X, 0.8 * largest(X) / 127)),
    "max|x| / 100": (X, codes(X, largest(X) / 100)),
    "(max - min) / 255 + 1e-08": (X * F(2e-6), codes(X * F(2e-6), width(X * F(2e-6)) / 255 + 1e-8, signed=False, z=zero(X * F(2e-6), width(X * F(2e-6)) / 255 + 1e-8))),
    "2^-8, a power of two, fixed point Q7.8": (X * 4, codes(X * 4, 2**-8, 16)),
    "power of two, max|x| / 127 rounded up": (ROWS, codes(ROWS, 2 ** np.ceil(np.log2(largest(ROWS, 1) / 127)))),
    "max|x| / 7.5, rounded to bfloat16 ": (NARROW, codes(NARROW, IN_BFLOAT16, 4)),
}  # fmt: skip


def best(x, given):
    found = qc.match(x, given)
    first = found.candidates[0]
    return first, answer(first, x.size, x.ndim)


@pytest.mark.slow  # a quick test has a rule of rows, among which some are zeros
@for_each("rule", NAMED)
def test_the_rule_of_a_scale_is_named(rule):
    x, given = NAMED[rule]
    first, said = best(x, given)
    assert first.differing == 0
    assert first.rule == rule.strip()
    blocks = " per row (axis 0)" * (x is ROWS or x is NARROW) + " per 24 elements along axis 1" * (x is IN_GROUPS)
    assert said.endswith(f"one scale{blocks}: {rule.strip()}.")
    rounded = {
        "max|x| / 128": "Values are rounded down;",
        "max|x| / 128 ": "Values are rounded toward zero;",
        "3 · std(x) / 127": "Values are rounded toward zero;",
    }
    assert said.startswith(rounded.get(rule, "All "))


def test_rules_have_the_scales_of_their_words():
    """With a least scale or range, and rounded to a dtype; a least one that changes nothing is not offered."""
    blocks = torch.tensor([[3e-4, -1e-4, 2e-4], [0.3, -1.9, 1.1], [0.7, 0.1, -0.2]])
    of_words = {rule.words: rule.scale for rule in rules(BlockStatistics.of(blocks), INT8, True, 0.01)}
    scale = np.array([3e-4, 1.9, 0.7], F).astype(np.float64) / 127
    wanted = {
        "max|x| / 127": scale,
        "max|x| / 127, at least 1e-05": [1e-5, *scale[1:]],
        "max|x| / 127, the range at least 0.001": [1e-3 / 127, *scale[1:]],
        "max|x| / 127, rounded to bfloat16": torch.from_numpy(scale.astype(F)).bfloat16().double().numpy(),
        "max|x| / 127, rounded to float16": scale[1:].astype(np.float16),
    }
    for words, scales in wanted.items():
        assert of_words[words][-len(scales) :] == pytest.approx(scales, rel=1e-12), words
    assert "max|x| / 127, at least 1e-08" not in of_words


def test_scales_that_no_rule_gives_are_intervals_of_the_first_row():
    x = ROWS[:2, :23]
    scale = largest(x, 1) / 127 * np.array([[0.97], [1.03]])
    first, said = best(x, codes(x, scale, rounded=np.floor))
    assert first.differing == 0
    assert (
        said
        == "Values are rounded down; everything else is int8 symmetric, one scale per row (axis 0), with fixed scales."
    )
    allowed = next(
        text for text in first.explanations if text.startswith("the codes of row 0 allow scales from ")
    )
    low, high = map(float, allowed.split(" from ")[1].split(" to "))
    assert low < scale[0, 0] < high < low * 1.01


@pytest.mark.slow  # their sentences are asked for without a search, and rows stand above
def test_scales_of_groups_that_no_rule_gives_are_intervals_of_the_first_group(monkeypatch):
    monkeypatch.setattr(search, "DTYPES", (torch.float32,))  # of three, which are searched one by one
    groups = GROUPS[:2]
    scale = largest(groups, -1) / 7 * np.linspace(0.8, 1.2, 8).reshape(2, 4, 1)
    first, said = best(groups.reshape(2, 96), codes(groups, scale, 4).reshape(2, 96))
    assert first.differing == 0
    assert said.endswith("int4 symmetric, one scale per 24 elements along axis 1, with fixed scales.")
    (allowed,) = (text for text in first.explanations if text.startswith("the codes of row 0, columns 0–23 "))
    low, high = map(float, allowed.split(" from ")[1].split(" to "))
    assert low < scale[0, 0, 0] < high < low * 1.2


def test_blocks_of_zeros_have_any_scale():
    rows = ROWS[:3, :61].copy()
    rows[2] = 0
    scale = np.where(rows.any(1, keepdims=True), width(rows, 1) / 256, 1)
    first, said = best(rows, codes(rows, scale, signed=False, z=zero(rows, scale, 1)))
    assert said == "All 183 integers are uint8 asymmetric, one scale per row (axis 0): (max - min) / 256."
    start = f"the scales, (max - min) / 256 of each row (axis 0), range from {scale[0].item():.7g} to "
    assert any(text.startswith(start) for text in first.explanations)


@pytest.mark.slow
def test_scales_rounded_to_float16_are_not_taken_for_a_percentile():
    x = np.random.default_rng(58).laplace(size=(8, 60)).astype(F)
    scale = (largest(x, 1) / 127).astype(np.float16).astype(F)
    first, said = best(x, codes(x, scale))
    assert first.differing == 0
    assert "float16" in said
    assert "percentile" not in str(first.scheme)


@pytest.mark.slow  # a quick test has those of the number of codes
def test_codes_counted_from_the_lowest_value():
    """(x - min) / s has no zero point: x / s - min / s is cut off to another code in one element of 400."""
    x = normal(38, (20, 20)).reshape(-1)[:397]
    scale = width(x) / F(255)
    given = ((x - x.min()) / scale).astype(int)
    other = (x * (F(1) / scale) - x.min() / scale).astype(F).astype(int)
    assert (given != other).any()
    first, said = best(x, given)
    assert first.differing == 0
    end = "uint8 asymmetric, one scale, (x − min) / scale without a zero point."
    assert said == f"Values are rounded toward zero; everything else is {end}"


CENTERED, POSITIVE = np.random.default_rng(1).normal(size=(5, 11)), np.random.default_rng(2).uniform(0.3, 2.7, (5, 11))
FROM_MIN = {
    "floor, codes, less 128": (CENTERED, None, 256, np.floor, 128), "round, codes, of rows": (POSITIVE, 1, 256, np.rint, 0),
    "floor, codes, of rows": (CENTERED, 1, 256, np.floor, 0), "truncated, 4 bits": (CENTERED, 1, 16, np.trunc, 0),
    "round, codes": (POSITIVE, None, 256, np.rint, 0), "round, steps, less 128": (POSITIVE, 1, 255, np.rint, 128),
}  # fmt: skip


@for_each("name", some(FROM_MIN, 12))
def test_codes_counted_from_the_lowest_value_by_the_number_of_codes(name):
    """floor((x - min) / ((max - min) / 256)) and its siblings; the code of max is clamped."""
    x, axis, parts, rounded, lowered = FROM_MIN[name]
    x = x.astype(F)
    low, high = (end(x, axis=axis, keepdims=axis is not None) for end in (np.min, np.max))
    top = parts - (parts % 2 == 0)
    given = np.clip(rounded((x - low) / ((high - low) / F(parts))), 0, top).astype(int) - lowered
    first, said = best(x, given)
    bits, rows = (8 if parts > 16 else 4), " per row (axis 0)" * (axis is not None)
    wrong = ["Values are rounded toward zero"] * (rounded is not np.rint)
    wrong += [f"{lowered} is subtracted from the codes"] * (lowered > 0)
    start = f"{'. '.join(wrong)}; everything else is" if wrong else f"All {x.size} integers are"
    of_scale = f": (max − min) / {parts}" * (parts != 255)
    end = ", (x − min) / scale without a zero point."
    assert said == f"{start} uint{bits} asymmetric, one scale{rows}{of_scale}{end}"
    again = qc.apply(first.given(x), first.scheme)
    assert (again.codes.numpy().astype(int) - lowered == given).all()
    np.testing.assert_array_equal(again.scale.numpy(), np.broadcast_to((high - low) / F(parts), again.scale.shape))


@pytest.mark.slow  # a quick test finds a percentile of signed values; its scales are asked for without a search
def test_a_percentile_is_named():
    x = ROWS[:3, :61]
    scale = np.quantile(np.abs(x), 0.98, axis=1, keepdims=True) / 127
    said = best(x, codes(x, scale))[1]
    assert said == (
        "All 183 integers are int8 symmetric, one scale per row (axis 0), range setting percentile(98)."
    )


def test_the_least_scale_of_a_library_is_told():
    """A small tensor has 30 codes on both sides, but an int8 format: the scale does not depend on x."""
    x = X[:7, :11] * F(1e-6)
    given = torch.quantize_per_tensor(torch.from_numpy(x), 2.0**-23, 0, torch.qint8).int_repr()
    first, said = best(x, given.numpy())
    assert said == "All 77 integers are int8 symmetric, one scale."
    assert first.explanations == ("the scale is 1.192093e-07, the least that torch allows",)


def test_a_given_scale_may_be_of_an_unusual_group():
    x = normal(8, (5040,))  # of 60 divisors, so that groups of 45 are not among the first
    scale = largest(x.reshape(-1, 45), -1) / F(7)
    given = codes(x.reshape(-1, 45), scale, 4).reshape(-1)
    first = qc.match(x, given, scale.reshape(-1)).candidates[0]
    assert (first.differing, first.scheme.granularity) == (0, qc.PerGroup(45))


def test_a_rule_is_not_named_where_it_is_there_by_chance():
    """Of scales that are drawn, about 1 in 200 is named while the search has other hopes."""
    chance, found = np.random.default_rng(0), 0
    for seed in range(30):
        x, bits = normal(seed, (10, 20)), (4, 8)[seed % 2]
        given = codes(x, largest(x) / (1 << bits) * chance.uniform(1.6, 2.9), bits)
        reading = GivenCodes(Corruption(), torch.from_numpy(given), (qc.IntFormat(bits),))
        found += bool(list(named(block_fits(torch.from_numpy(x), reading), every=False)))
    assert found <= 1


def test_rounding_of_the_zero_point():
    x = np.random.default_rng(4).uniform(-126.5 / 8, 128.5 / 8, 113).astype(F)
    x[:2] = -126.5 / 8, 128.5 / 8
    first, said = best(x, codes(x, 0.125, signed=False, z=127))
    assert said == "All 113 integers are uint8 asymmetric, one scale: (max - min) / 255."
    assert "zero point 127, because qmin - low / s = 126.5 is rounded away from zero" in first.explanations


@pytest.mark.slow  # of one scale, the rounding of a zero point is told above
def test_rounding_of_the_zero_points_of_rows():
    x = HALVES[:, :31]
    scale = width(x, 1) / 255
    first, said = best(x, codes(x, scale, signed=False, z=np.floor(-x.min(1, keepdims=True) / scale)))
    assert said == "All 124 integers are uint8 asymmetric, one scale per row (axis 0): (max - min) / 255."
    assert "the zero points qmin - low / s are rounded toward zero or down" in first.explanations


@in_parts(2)
def test_symmetric_unsigned_codes_below_the_middle(part):
    for bits, shape in part(((8, (4, 32)), (4, (4, 4, 8)))):
        grouped, middle = HALVES.reshape(shape), (1 << (bits - 1)) - 1
        scale = np.abs(grouped).max(-1, keepdims=True) / F(middle)
        given = np.clip(np.round(grouped / scale) + middle, 0, 2 * middle + 1).reshape(HALVES.shape)
        first, said = best(HALVES, given.astype(int))
        blocks = "row (axis 0)" if len(shape) == 2 else "8 elements along axis 1"
        assert (
            said
            == f"All 128 integers are uint{bits} symmetric around zero point {middle}, one scale per {blocks}."
        )
        assert torch.equal(
            qc.apply(torch.from_numpy(HALVES), first.scheme).codes.int(), torch.from_numpy(given).int()
        )


@pytest.mark.slow  # what is nearest, and how it is said, are asked for without a search
def test_no_cause_is_named_where_many_codes_differ(monkeypatch):
    """The codes of an asymmetric scale without its zero point, of which 2 in 5 are noise."""
    monkeypatch.setattr(search, "DTYPES", (torch.float32,))  # of three, which are searched one by one
    rng = np.random.default_rng(3)
    made = np.round(SHIFTED / (width(SHIFTED) / F(255)))
    given = np.where(
        rng.random(SHIFTED.shape) < 0.4, rng.integers(-128, 128, SHIFTED.shape), (made + 128) % 256 - 128
    )
    said = best(SHIFTED, given.astype(int))[1]
    assert said.startswith("No rules that were tried make these integers: of int8 ")
    assert "zero point" not in said
    few = given.copy()
    few[1:] = ((made + 128) % 256 - 128)[1:]
    assert "the zero point is omitted" in best(SHIFTED, few.astype(int))[1]


def test_granularities_without_order_are_not_searched_again():
    x = normal(7, (32, 48))
    searched, rng = granularities(x.shape), np.random.default_rng(1)
    samples = draw(torch.from_numpy(x), searched)
    noise = rng.integers(-128, 128, x.shape)
    whole, rows = codes(x, largest(x) / 127), codes(x * np.exp(normal(8, (32, 1), 2)), largest(x) / 20)
    damaged = np.where(rng.random(x.shape) < 0.1, noise, whole)

    def kept(given, base=None):
        readings = [
            None if each is None else GivenCodes(Corruption(), torch.from_numpy(each), ())
            for each in (given, base)
        ]
        return in_order(samples, *readings)

    assert len(kept(noise)) < len(searched) / 4
    assert kept(whole) == searched == kept(whole, whole)
    assert set(searched) - set(kept(damaged)) <= {
        g for g in searched if isinstance(g, qc.PerGroup) and g.size < 4
    }
    assert qc.PerTensor() not in kept(rows)
    assert qc.PerChannel(0) in kept(rows)
    assert qc.PerTensor() not in kept(whole % 256, whole)
    assert qc.PerTensor() in kept(whole % 256)


def test_codes_with_scales_below_0_are_in_order():
    """Where the largest |x| of a block gets the lowest code, as in MatMulNBits, codes fall if it is above 0."""
    x = normal(7, (32, 48))
    blocks = x.reshape(4, 8, 48)
    ends = np.take_along_axis(blocks, np.abs(blocks).argmax(1, keepdims=True), 1)
    given = torch.from_numpy(codes(blocks, ends / -8, bits=4).reshape(x.shape))
    searched = granularities(x.shape)
    kept = in_order(draw(torch.from_numpy(x), searched), GivenCodes(Corruption(), given, ()))
    assert qc.PerGroup(8, 0) in kept
    assert len(kept) < len(searched) / 4


def test_narrow_ranges_in_words():
    for bits in (2, 4, 8):
        end = (1 << (bits - 1)) - 1
        scheme = qc.Scheme.parse(f"int{bits}n")
        said = answer(Candidate(scheme, 0), 9, 1)
        assert said == f"All 9 integers are int{bits} symmetric, narrow range −{end}..{end}, one scale."
