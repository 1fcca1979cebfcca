"""Match names each mistake of the lessons from its codes alone, and what it says of the numbers is evaluated."""

import re
import warnings

import numpy as np
import pytest
import torch

import quantcore as qc
from pages.compare.match.lesson_links import explained_by
from quantcore.formats.integer import INT8, UINT8
from quantcore.matching import match
from quantcore.matching.hypotheses.scale_from_codes import fits, likely
from quantcore.mistakes import MISTAKES, compare

THREE = ("asymmetric scale", "zero_point left out", "cast without a clamp")
# What must be said of each, in the corruption or in the sentences beside it
WORDS = {
    "wraps-per-tensor": THREE,
    "wraps-per-column": THREE,
    "wraps-per-group": THREE,
    "clamp-of-another-type": ("unsigned codes read as signed",),
    "range-without-minimum": ("range from 0 to max|x| instead of min to max", "zero_point left out"),
    "percentile-of-signed-values": ("a percentile of x instead of |x|",),
    "negatives-lost": ("no code stands for a negative value",),
    "cast-without-clamp": ("cast without a clamp",),
    "zero-point-left-at-zero": ("asymmetric scale", "zero_point left out"),
    "quantized-twice": ("quantized twice",),
    "truncated": ("rounded towards zero",),
    "scale-in-float16": ("scale rounded to float16",),
}
# Where the codes leave the scale open: they are also those of another rule, or of no rule but a number
NOT_BIT_FOR_BIT = {"negatives-lost"}
NUMBER = r"(-?\d[\d.]*(?:e[-+]\d+)?)"


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def spread(scale, block, shape):
    scale = scale.numpy()
    for axis, n in enumerate(block):
        scale = np.repeat(scale, n, axis=axis).take(range(shape[axis]), axis=axis)
    return np.broadcast_to(scale, shape)


def named(found, comparison, words, bit_for_bit=True):
    """The first candidate gives every code, with the scale that was used and the words; returns it."""
    best = found.candidates[0]
    assert best.differing == 0, str(best.scheme)
    said = "; ".join([str(best.damage), *best.told])
    for word in words:
        assert word in said
    result = qc.apply(comparison.x, best.scheme)
    used = spread(result.scale, result.block, comparison.x.shape)
    right = comparison.wrong.scale.expand_as(comparison.x).numpy()
    if bit_for_bit:
        np.testing.assert_array_equal(used, right)
    evaluate(best, comparison, used)
    return best


def evaluate(candidate, comparison, used):
    """Check every number that is told."""
    x, codes, fmt = comparison.x.numpy(), comparison.wrong.codes.numpy().astype(int), candidate.scheme.format
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.float32(x) / np.float32(used)
    for told in candidate.told:
        for before, after, place in re.findall(r"(-?\d+) → (-?\d+) at \(([\d, ]+)\)", told):
            at = tuple(int(i) for i in place.strip(", ").split(", "))
            assert codes[at] == int(after), told
            assert round(float(quotient[at])) == int(before), told
        count = re.match(r"([\d,]+) codes? (wrapped|differs?|is not|are not)", told)
        if count:
            rounded = np.round(quotient)
            wrong = (codes != rounded) if count[2][0] in "wd" else (codes < fmt.qmin) | (codes > fmt.qmax)
            assert int(count[1]) == wrong.sum(), told
        formula = re.search(rf"\({NUMBER} ([-+]) {NUMBER}\) / (\d+) = {NUMBER}", told)
        if formula:
            high, low = float(formula[1]), float(formula[3]) * (-1 if formula[2] == "+" else 1)
            assert (high, low) == pytest.approx((max(x.max(), 0), min(x.min(), 0)), rel=1e-6)
            assert float(formula[5]) == pytest.approx((high - low) / int(formula[4]), rel=1e-5)
            assert float(formula[5]) == pytest.approx(used.reshape(-1)[0], rel=1e-6)
        allowed = re.search(rf"the codes allow a scale of {NUMBER} to {NUMBER}", told)
        if allowed:
            bounds(candidate, x, codes, float(allowed[1]), float(allowed[2]))
        lost = re.search(r"negative value: (\d+) of (\d+) became 0", told)
        if lost:
            assert (int(lost[1]), int(lost[2])) == (((x < 0) & (quotient < -0.5)).sum(), x.size)


def bounds(candidate, x, codes, low, high):
    """Every scale between gives the codes, and none outside; z as the candidate's mistakes leave it."""
    fmt, kinds = candidate.scheme.format, candidate.damage.computed
    z = 0 if "zero_point_left_out" in kinds else candidate.scheme.range_setting.zero_point
    given = candidate.damage.undo(torch.from_numpy(codes)).numpy()

    def gives(s):
        whole = np.round(x.astype(float) / s) + z
        if "wrapped" in kinds:
            return np.array_equal((whole - fmt.qmin) % (1 << fmt.bits) + fmt.qmin, given)
        return np.array_equal(whole.clip(fmt.qmin, fmt.qmax), given)

    assert all(gives(s) for s in np.linspace(low * (1 + 1e-5), high * (1 - 1e-5), 9))
    assert not gives(low * (1 - 1e-5))
    assert not gives(high * (1 + 1e-5))


def test_zero_point_left_out_and_two_codes_wrapped():
    """(max - min) / 255 and a cast: 204 became -52, 191 became -65."""
    x = np.array([[191.6, -13.5, 728.6], [92.14, 295.5, -184], [0, 684.6, 245.5]], np.float32)
    codes = np.array([[54, -4, -52], [26, 83, -51], [0, -65, 69]])
    best = match(x, codes).candidates[0]
    assert best.differing == 0
    assert qc.apply(x, best.scheme).scale.item() == (x.max() - x.min()) / np.float32(255)
    assert all(word in str(best.damage) for word in THREE)
    assert "2 codes wrapped: 204 → -52 at (0, 2), 191 → -65 at (2, 1)" in best.told
    assert "zero_point 0 instead of -77" in best.told


def test_every_mistake_with_other_codes_is_here():
    differing = set()
    for name, mistake in MISTAKES.items():
        comparison = compare(mistake)
        if not torch.equal(comparison.wrong.codes.float(), comparison.right.codes.float()):
            differing.add(name)
    assert differing == set(WORDS)


@pytest.mark.parametrize("name", WORDS)
def test_mistake_is_named_from_its_codes(name):
    comparison = compare(MISTAKES[name])
    found = match(comparison.x, comparison.wrong.codes)
    best = named(found, comparison, WORDS[name], name not in NOT_BIT_FOR_BIT)
    assert ("mistakes", name) in [explained_by(c) for c in found.exact]
    if name == "clamp-of-another-type":
        # x has no negative value: the same codes as of int8 with zero_point -128, which is no mistake
        assert not best.damage
        assert any("unsigned codes read as signed" in str(c.damage) for c in found.exact)
    elif name != "negatives-lost":
        assert best.damage


@pytest.mark.parametrize("name", ["wraps-per-column", "range-without-minimum", "clamp-of-another-type"])
def test_mistake_is_named_on_a_random_tensor(name):
    mistake = MISTAKES[name]
    x = torch.randn(mistake.x().shape, generator=torch.Generator().manual_seed(1002)) * 3
    if name == "wraps-per-column":
        x[:, 0] = x[:, 0].abs() + 1  # (max - min) without 0 between
    comparison = compare(mistake, x)
    assert named(match(x, comparison.wrong.codes), comparison, WORDS[name]).damage


def test_percentile_without_a_mistake_comes_first():
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(4))
    scheme = qc.Scheme.parse("int8 symmetric per_tensor percentile(99)")
    found = match(x, qc.apply(x, scheme).codes)
    assert scheme in found.candidates[0].schemes
    assert not found.candidates[0].damage
    assert found.candidates[0].differing == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("fmt", "zero_point", "wrapped"), [(INT8, 0, False), (INT8, 0, True), (UINT8, 128, False),
                                                            (INT8, -37, False), (UINT8, 3, False)])  # fmt: skip
def test_scale_is_worked_out_from_codes(fmt, zero_point, wrapped, seed):
    """The scale that was used lies in one of the intervals, all of which give the codes, and none beside them does."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=24).astype(np.float32)
    s = np.abs(x).max() / (190 if wrapped else 150)
    whole = np.round(x / s) + zero_point
    codes = (whole + 128) % 256 - 128 if wrapped else whole.clip(fmt.qmin, fmt.qmax)
    found = fits(x.astype(float), codes, fmt)
    assert any(f.zero_point == zero_point and f.wrapped == wrapped and f.low <= s <= f.high for f in found)
    for fit in found:
        for scale, right in ((fit.low * (1 + 1e-5), True), (fit.high * (1 - 1e-5), True), ((fit.low + fit.high) / 2, True),
                             (fit.low * (1 - 1e-5), False), (fit.high * (1 + 1e-5), False)):  # fmt: skip
            again = np.round(x.astype(float) / scale) + fit.zero_point
            again = (again - fmt.qmin) % 256 + fmt.qmin if fit.wrapped else again.clip(fmt.qmin, fmt.qmax)
            assert np.array_equal(again, codes) == right


def test_few_codes_are_no_evidence_of_a_scale():
    assert fits(np.array([1.0, 2.0]), np.array([10.0, 20.0]), INT8) == []
    rng = np.random.default_rng(0)
    assert fits(rng.normal(size=9), rng.integers(-128, 128, 9).astype(float), INT8) == []


def test_scale_as_a_person_would_write_it():
    assert likely(0.0995, 0.1004, INT8) == (0.1, True)
    assert likely(0.01179, 0.01184, INT8) == (1.5 / 127, True)
    assert likely(0.0391, 0.0393, UINT8) == (5 / 127, True) or likely(0.0391, 0.0393, UINT8) == (
        10 / 255,
        True,
    )
    # 1.57 / 127 is the shortest, and no range that a person would write
    value, written = likely(0.01236, 0.012364, INT8)
    assert (value, written) == (1.57 / 127, False)
    low, high = 0.0123412, 0.0123433
    value, written = likely(low, high, INT8)
    assert low < value < high
    assert not written
