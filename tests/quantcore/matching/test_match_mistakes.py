"""Match names each mistake of the lessons from its codes alone; the numbers that it gives and the parts of its
search are checked by recomputing them."""

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
from pages.compare.match.views import explained_by
from quantcore.conventions import KERNELS
from quantcore.formats import IntFormat
from quantcore.formats.integer import INT8, UINT8
from quantcore.matching import Corruption, Reinterpreted, Transposed, match
from quantcore.matching.candidates import Evaluator
from quantcore.matching.hypotheses.corruption import (
    of_blocks,
    stored_corruptions,
)
from quantcore.matching.hypotheses.mistaken_scales import (
    PERCENTILES,
    TriedParams,
    mistaken,
    percentiles,
    signed_percentiles,
    tried,
)
from quantcore.matching.hypotheses.sample import (
    _some,
    _zero_points,
    by_range,
    draw,
    inferred,
    is_lost,
    swapped_axes,
    write_given,
)
from quantcore.matching.hypotheses.scale_from_codes import _shortest, _wrapped, drawn, fits, interval, likely
from quantcore.matching.hypotheses.scoring import OF_PERCENTILE, GivenCodes, Hypothesis, SearchTask, score
from quantcore.matching.hypotheses.search_space import (
    beyond_formats,
    granularities,
    group_sizes,
    likely_formats,
    other_formats,
    other_groups,
    signed_bits,
)
from quantcore.matching.reasons import explain
from quantcore.matching.search import _likeliest, _Search, known_mistakes
from quantcore.mistakes import CASES, codes_of_values, compare, program_of
from quantcore.qparams import QParams, parameters

THREE = ("asymmetric scale", "zero_point omitted", "cast without a clamp")
# Words that must be said about each mistake, in the corruption or in the explanations
WORDS = {
    "wraps-per-tensor": THREE,
    "wraps-per-column": THREE,
    "wraps-per-group": THREE,
    "clamp-of-another-type": ("unsigned 8-bit codes read as signed",),
    "range-without-minimum": ("range 0 to max |x| instead of min to max", "zero_point omitted"),
    "percentile-of-signed-values": ("percentile of x instead of |x|",),
    "negatives-lost": ("there are no codes for negative values",),
    "cast-without-clamp": ("cast without a clamp",),
    "zero-point-left-at-zero": ("asymmetric scale", "zero_point omitted"),
    "quantized-twice": ("quantized twice",),
    "truncated": ("rounded toward zero",),
    "scale-in-float16": ("scale rounded to float16",),
}
# The codes do not determine the scale: another rule, or a plain number, gives them too
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
    """The first candidate reproduces every code, has the scale that was used, and says these words; returns it."""
    best = found.candidates[0]
    assert best.differing == 0, str(best.scheme)
    said = "; ".join([str(best.corruption), *best.explanations])
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
    """Check every number in the explanations."""
    x, codes, fmt = comparison.x.numpy(), comparison.wrong.codes.numpy().astype(int), candidate.scheme.format
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.float32(x) / np.float32(used)
    for sentence in candidate.explanations:
        for before, after, place in re.findall(r"(-?\d+) → (-?\d+) at \(([\d, ]+)\)", sentence):
            at = tuple(int(i) for i in place.strip(", ").split(", "))
            assert codes[at] == int(after), sentence
            assert round(float(quotient[at])) == int(before), sentence
        count = re.match(r"([\d,]+) codes? (wrapped|differs?|lies?)", sentence)
        if count:
            rounded = np.round(quotient)
            wrong = (codes != rounded) if count[2][0] in "wd" else (codes < fmt.qmin) | (codes > fmt.qmax)
            assert int(count[1]) == wrong.sum(), sentence
        formula = re.search(rf"\({NUMBER} ([-+]) {NUMBER}\) / (\d+) = {NUMBER}", sentence)
        if formula:
            high, low = float(formula[1]), float(formula[3]) * (-1 if formula[2] == "+" else 1)
            assert (high, low) == pytest.approx((max(x.max(), 0), min(x.min(), 0)), rel=1e-6)
            assert float(formula[5]) == pytest.approx((high - low) / int(formula[4]), rel=1e-5)
            assert float(formula[5]) == pytest.approx(used.reshape(-1)[0], rel=1e-6)
        allowed = re.search(rf"the codes allow scales from {NUMBER} to {NUMBER}", sentence)
        if allowed:
            bounds(candidate, x, codes, float(allowed[1]), float(allowed[2]))
        lost = re.search(r"negative values: (\d+) of (\d+) elements became 0", sentence)
        if lost:
            assert (int(lost[1]), int(lost[2])) == (((x < 0) & (quotient < -0.5)).sum(), x.size)


def bounds(candidate, x, codes, low, high):
    """All scales between low and high give the codes, and those outside do not."""
    fmt, kinds = candidate.scheme.format, candidate.corruption.computed
    z = 0 if "zero_point_left_out" in kinds else candidate.scheme.range_setting.zero_point
    given = candidate.corruption.undo(torch.from_numpy(codes)).numpy()

    def gives(s):
        whole = np.round(x.astype(float) / s) + z
        if "wrapped" in kinds:
            return np.array_equal((whole - fmt.qmin) % (1 << fmt.bits) + fmt.qmin, given)
        return np.array_equal(whole.clip(fmt.qmin, fmt.qmax), given)

    assert all(gives(s) for s in np.linspace(low * (1 + 1e-5), high * (1 - 1e-5), 9))
    assert not gives(low * (1 - 1e-5))
    assert not gives(high * (1 + 1e-5))


@pytest.mark.slow  # by default, mistakes are found one by one
def test_zero_point_left_out_and_two_codes_wrapped():
    """(max - min) / 255 and a cast: 204 became -52, 191 became -65."""
    x = np.array([[191.6, -13.5, 728.6], [92.14, 295.5, -184], [0, 684.6, 245.5]], np.float32)
    codes = np.array([[54, -4, -52], [26, 83, -51], [0, -65, 69]])
    best = match(x, codes).candidates[0]
    assert best.differing == 0
    assert qc.apply(x, best.scheme).scale.item() == (x.max() - x.min()) / np.float32(255)
    assert all(word in str(best.corruption) for word in THREE)
    assert "2 codes wrapped: 204 → -52 at (0, 2), 191 → -65 at (2, 1)" in best.explanations
    assert "zero_point 0 instead of -77" in best.explanations


def test_every_mistake_with_other_codes_is_here():
    differing = set()
    for name, mistake in CASES.items():
        comparison = compare(mistake)
        if not torch.equal(comparison.wrong.codes.float(), comparison.right.codes.float()):
            differing.add(name)
    assert differing == set(WORDS)


# by day the one that is found first
@for_each("name", some([*list(WORDS)[8:], *list(WORDS)[:8]], 12))
def test_mistake_is_named_from_its_codes(name):
    comparison = compare(CASES[name])
    found = match(comparison.x, comparison.wrong.codes)
    best = named(found, comparison, WORDS[name], name not in NOT_BIT_FOR_BIT)
    assert ("mistakes", name) in [explained_by(c) for c in found.exact]
    if name == "clamp-of-another-type":
        # x has no negative values, so the codes are also those of int8 with zero_point -128, without a mistake
        assert not best.corruption
        assert any("unsigned 8-bit codes read as signed" in str(c.corruption) for c in found.exact)
    elif name != "negatives-lost":
        assert best.corruption


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["wraps-per-column", "range-without-minimum", "clamp-of-another-type"]))
def test_mistake_is_named_on_a_random_tensor(name):
    mistake = CASES[name]
    x = torch.randn(mistake.x().shape, generator=torch.Generator().manual_seed(1002)) * 3
    if name == "wraps-per-column":
        x[:, 0] = x[:, 0].abs() + 1  # a range without 0
    comparison = compare(mistake, x)
    assert named(match(x, comparison.wrong.codes), comparison, WORDS[name]).corruption


def random_cases(name, count):
    """The mistake made on random tensors of its own shape and range, only those where it changes codes."""
    mistake, seed = CASES[name], 0
    own = mistake.x()
    while count:
        seed += 1
        x = torch.randn(own.shape, generator=torch.Generator().manual_seed(seed)) * own.abs().max() / 2.5
        comparison = compare(mistake, x.abs() if own.min() >= 0 else x)
        if not torch.equal(comparison.wrong.codes.float(), comparison.right.codes.float()):
            count -= 1
            yield comparison


@for_each("name", WORDS)
@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_mistake_is_named_on_random_tensors(name, count):
    """Even where a scheme without a mistake has the same codes; with the scale that was used."""
    for comparison in random_cases(name, count):
        known = {m.name: m for m in known_mistakes(comparison.x, comparison.wrong.codes)}
        assert set(known) <= set(WORDS)
        scale = comparison.wrong.scale
        assert known[name][2:] == (scale.min().item(), scale.max().item())
        assert known[name].title == CASES[name].title
        right = {m.name for m in known_mistakes(comparison.x, comparison.right.codes)}
        assert name not in right


@pytest.mark.slow  # by default, known mistakes are asked for without a search
def test_known_mistakes_stand_beside_a_scheme_without_one():
    """Unsigned codes with a symmetric range lose negative values, which is also one library's regular behavior."""
    *_, comparison = random_cases("negatives-lost", 4)
    x, codes = comparison.x, comparison.wrong.codes
    found = match(x, codes)
    assert not found.candidates[0].corruption
    assert found.candidates[0].differing == 0
    (known,) = found.mistakes
    assert known.name == "negatives-lost"
    assert known.smallest_scale == known.largest_scale == float(comparison.wrong.scale.max())
    assert match(x, codes, scale=known.smallest_scale).mistakes == ()
    assert known_mistakes(x, codes.T) == ()


@pytest.mark.slow  # another percentile is searched for among the rules of scales
def test_percentile_without_a_mistake_comes_first():
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(4))
    scheme = qc.Scheme.parse("int8 symmetric per_tensor percentile(99)")
    found = match(x, qc.apply(x, scheme).codes)
    assert scheme in found.candidates[0].schemes
    assert not found.candidates[0].corruption
    assert found.candidates[0].differing == 0


@for_each("seed", range(6))
@for_each(("fmt", "zero_point", "wrapped"), [(INT8, 0, False), (INT8, 0, True), (UINT8, 128, False),
                                                            (INT8, -37, False), (UINT8, 3, False)])  # fmt: skip
def test_scale_is_worked_out_from_codes(fmt, zero_point, wrapped, seed):
    """The scale that was used is in one of the intervals; only scales in these give the codes."""
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
    # 1.57 / 127 is the shortest, but not a range that a person would write
    assert likely(0.1225, 0.1235, INT8) == (0.123, False)  # nor is a scale with three digits
    assert likely(0.01179, 0.01184, UINT8) == (1.5 / 127, True)  # a symmetric range of unsigned codes
    value, written = likely(0.01236, 0.012364, INT8)
    assert (value, written) == (1.57 / 127, False)
    low, high = 0.0123412, 0.0123433
    value, written = likely(low, high, INT8)
    assert low < value < high
    assert not written


POWERS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


def texts(items):
    return " ".join(map(str, items))


@for_each(
    ("n", "sizes"),
    [
        (1, []), (2, [2]), (3, [2, 3]), (12, [2, 3, 4, 6, 8, 12]), (1024, POWERS), (4096, [*POWERS, 4096]),
        (2050, sorted([*POWERS, 5, 10, 25, 41, 50, 82, 205, 410, 2050])), (2520, [*POWERS, 2520]),
    ],
)  # fmt: skip
def test_group_sizes(n, sizes):
    assert group_sizes(n) == sizes


def test_divisors_are_left_out_if_there_are_many():
    """All divisors are kept if there are up to 24 sizes."""
    seen = set()
    for n in range(100, 1000):
        every = {i for i in range(2, n) if n % i == 0 or i in POWERS}
        seen.add(len(every))
        kept = every if len(every) <= 24 else every & set(POWERS)
        assert group_sizes(n) == sorted(kept | {n}), n
    assert {24, 25} <= seen


def test_unusual_groups_have_up_to_128():
    assert other_groups((2,)) == other_groups((3,)) == other_groups(()) == []
    assert other_groups((12,)) == [qc.PerGroup(n, -1) for n in (5, 7, 9, 10, 11)]
    assert other_groups((6, 7)) == [qc.PerGroup(5, 0), *(qc.PerGroup(n, -1) for n in (3, 5, 6))]
    sizes = [g.size for g in other_groups((263,))]
    assert sizes == [n for n in range(2, 129) if n not in POWERS]
    assert [g.size for g in other_groups((130,))][-2:] == [126, 127]
    assert other_groups((129,))[-1].size == 127


def test_granularities_of_shapes():
    blocks = [qc.PerBlock(b) for b in ((2, 2), (2, 4), (4, 2), (4, 4), (6, 2))]
    groups = [*(qc.PerGroup(n, 0) for n in (2, 3, 4, 6)), *(qc.PerGroup(n, -1) for n in (2, 4))]
    assert granularities(()) == [qc.PerTensor()]
    assert granularities((1,)) == [qc.PerTensor(), qc.PerChannel(0)]
    assert granularities((6, 4)) == [qc.PerTensor(), qc.PerChannel(0), qc.PerChannel(1), *groups, *blocks]

    def of(*shape):
        return [g.shape for g in granularities(shape) if isinstance(g, qc.PerBlock)]

    assert of(1, 6) == of(5, 1) == of(8) == []
    assert of(5, 4, 3) == [(1, a, b) for a, b in ((2, 2), (2, 3), (4, 2), (4, 3))]
    assert of(3, 9) == [(2, 2), (2, 4), (2, 8), (2, 9), (3, 2), (3, 3), (3, 4), (3, 8)]
    assert max(a for a, _ in of(1024, 6) if a < 1024) == 256
    assert (257, 257) not in of(514, 514)
    assert {(86, 86), (129, 129)} <= set(of(258, 258))
    assert of(256, 512)[-1] == (256, 256)


@for_each(("code", "bits"), [(-129, 9), (-128, 8), (-2, 2), (-1, 1), (0, 1), (1, 2), (127, 8), (128, 9)])  # fmt: skip
def test_bits_that_a_signed_code_needs(code, bits):
    assert signed_bits(code) == bits


def likely_of(codes):
    return texts(likely_formats(torch.tensor(codes)))


def test_formats_of_codes():
    """The formats tried first: the narrowest, one bit more, and the common widths."""
    wider = "int8 int8n uint8 int16 int16n uint16"
    assert likely_of([0, 15]) == f"uint4 int5 int5n uint5 {wider}"
    assert (
        likely_of([1, 15])
        == "uint4 uint4n int5 int5n uint5 uint5n int8 int8n uint8 uint8n int16 int16n uint16 uint16n"
    )
    assert likely_of([-8, 7]) == "int4 int5 int5n int8 int8n int16 int16n"
    assert likely_of([-7, 7]) == "int4 int4n int5 int5n int8 int8n int16 int16n"
    assert likely_of([0, 0]) == f"int2 int2n uint2 int3 int3n uint3 int4 int4n uint4 {wider}"
    assert likely_of([-40000, 7]) == ""
    assert likely_of([-32768, 7]) == "int16"
    assert likely_of([0, 65535]) == "uint16"


@for_each("n", [99, 100, 200, 201, 400, 401])
@for_each(("low", "high"), [(0, 0), (1, 1), (2, 2), (3, 3), (0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (3, 0)])
def test_few_codes_beyond_a_format_do_not_rule_it_out(n, low, high):
    """Up to half of 1 % at each end, rounded up, minus one."""
    codes = [-8, 7] * n
    codes = codes[: n - low - high] + [-100] * low + [100] * high
    cut = math.ceil(0.005 * n) if n >= 100 else 1
    kept = sorted(codes)[cut - 1 : n - cut + 1]
    narrowest = "int4" if (kept[0], kept[-1]) == (-8, 7) else "int8"
    assert likely_of(codes).split()[0] == narrowest
    wide = [*range(4, 6), 8, 9, 16] if low or high else [4, 5, 8, 16]
    assert {f.bits for f in likely_formats(torch.tensor(codes))} == {
        b for b in wide if b >= int(narrowest[3:])
    }


def test_formats_beyond_and_others():
    for bounds, names in (((-200, 200), "int8 uint8"), ((-128, 127), "uint8 int4 uint4"), ((0, 255), "int8 int4 uint4"),
                          ((0, 256), "int8 uint8"), ((-129, 0), "int8 uint8"), ((-32768, 0), "int8 uint8"),
                          ((-32769, 0), ""), ((0, 65535), "int8 uint8"), ((0, 7), ""), ((0, 8), "int4"),
                          ((0, 15), "int4"), ((0, 16), "int4 uint4"), ((-1, 7), "uint8 uint4")):  # fmt: skip
        assert texts(beyond_formats(*bounds)) == names, bounds
    tried = [IntFormat(14), IntFormat(15, False)]
    assert texts(other_formats(-5000, 8191, tried)) == "int15 int16"
    assert texts(other_formats(1, 8192, tried)) == "uint14 int15 int16 uint16"
    assert other_formats(0, 65536, []) == other_formats(-1, 32768, []) == []
    assert texts(other_formats(0, 1, []))[:16] == "int2 uint2 int3 "


@for_each(
    ("codes", "says"),
    [
        ([0, 1], []), ([0, 2], [(2, False)]), ([0, 3], [(2, False)]), ([0, 4], [(3, False)]),
        ([0, 65535], [(16, False)]), ([0, 65536], []), ([-1, 0], [(2, True), (8, True), (16, True)]),
        ([-3, 0], [(3, True), (8, True), (16, True)]), ([-1, 4], [(4, True), (8, True), (16, True)]),
        ([-128, 127], [(8, True), (16, True)]), ([-129, 0], [(9, True), (16, True)]),
        ([-32768, 32767], [(16, True)]), ([-1, 32768], []),
    ],
)  # fmt: skip
def test_what_integers_may_have_been_read_as(codes, says):
    found = [c.stored for c in stored_corruptions(torch.tensor(codes), (2,))]
    assert found == [(), *((Reinterpreted(*one),) for one in says)]


def test_codes_read_as_another_type_are_read_again():
    codes = np.array([0, 1, 127, 128, 200, 255])
    again = Reinterpreted(8, False).undo(torch.from_numpy(codes)).tolist()
    assert again == codes.astype(np.uint8).view(np.int8).tolist()
    assert Reinterpreted(8, True).undo(torch.tensor(again)).tolist() == codes.tolist()
    assert Reinterpreted(3, False).undo(torch.arange(8)).tolist() == [0, 1, 2, 3, -4, -3, -2, -1]
    assert Reinterpreted(3, True).undo(torch.tensor([-4, -1, 0, 3])).tolist() == [4, 7, 0, 3]
    assert str(Reinterpreted(3, True)) == "unsigned 3-bit codes read as signed"
    assert str(Reinterpreted(3, False)) == "signed 3-bit codes read as unsigned"


def test_permuted_axes():
    def orders(given, shape):
        return [c.stored for c in stored_corruptions(torch.zeros(given, dtype=torch.int64), shape)]

    def moved(*all_orders):
        return [(Transposed(o),) for o in all_orders]

    assert orders((2, 3), (2, 3)) == [()]
    assert orders((3, 2), (2, 3)) == moved((1, 0))
    assert orders((2, 2), (2, 2)) == [(), *moved((1, 0))]
    cube = [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    assert orders((2, 2, 2), (2, 2, 2)) == [(), *moved(*cube)]
    assert orders((3, 4, 2), (2, 3, 4)) == moved((1, 2, 0))
    swaps = [(1, 0, 2, 3), (2, 1, 0, 3), (3, 1, 2, 0), (0, 2, 1, 3), (0, 3, 2, 1), (0, 1, 3, 2)]
    assert orders((2,) * 4, (2,) * 4) == [(), *moved(*swaps)]
    assert orders((5, 3, 4, 2), (2, 3, 4, 5)) == moved((3, 1, 2, 0))
    x = torch.arange(24).reshape(2, 3, 4)
    for order in cube:
        assert torch.equal(Transposed(order).undo(x.permute(order)), x)
    both = [c.stored for c in stored_corruptions(torch.tensor([[0, 9], [9, 0]]), (2, 2))]
    assert both == [
        (),
        (Reinterpreted(4, False),),
        *moved((1, 0)),
        (Transposed((1, 0)), Reinterpreted(4, False)),
    ]
    assert (str(Transposed((1, 0))), str(Transposed((0, 2, 1)))) == (
        "transposed",
        "axes permuted to (0, 2, 1)",
    )


def test_arithmetic_with_mistakes():
    values, fmt = torch.tensor([-9.0, -8.0, 0.0, 7.0, 8.0, 23.0]), IntFormat(4)
    for kinds, codes in (((), [-8, -8, 0, 7, 7, 7]), (("narrow",), [-7, -7, 0, 7, 7, 7]),
                         (("wrapped",), [7, -8, 0, 7, -8, 7]), (("unclamped",), values.tolist())):  # fmt: skip
        assert codes_of_values(values, qc.TEXTBOOK.coding, kinds, fmt).tolist() == codes
    x, s, z = torch.tensor([0.5, 1.5, -0.5, -1.7]), torch.tensor(1.0), torch.tensor([3.0])

    def computed(kinds, name, **numbers):
        return program_of(qc.TEXTBOOK.coding, kinds).write(name, numbers, torch.empty_like(numbers["x"])).tolist()

    for kinds, codes in (((), [3, 5, 3, 1]), (("zero_point_negated",), [-3, -1, -3, -5]), (("half_up",), [4, 5, 3, 1]),
                         (("zero_point_left_out", "floor"), [0, 1, -1, -2]), (("half_away",), [4, 5, 2, 1]),
                         (("middle_left_out", "wrapped", "toward_zero"), [0, 1, 0, -1])):  # fmt: skip
        assert computed(kinds, "v", x=x, s=s, z=z) == codes
    x, twice = torch.tensor([-200.0, 200.0, 0.26, 0.24]), ("quantized_twice",)
    assert computed(twice, "x", x=x, s8=torch.tensor(0.5)) == [-64.0, 63.5, 0.5, 0.0]
    assert computed(twice, "v", x=x, s=s, z=z[:1], s8=torch.tensor(0.5)) == [-61.0, 67.0, 3.0, 3.0]
    scale = torch.tensor([0.1, 0.3])
    used = program_of(qc.TEXTBOOK.coding, ("scale_float16",)).write("s", {"s": scale})
    assert used.tolist() == np.float16([0.1, 0.3]).tolist()
    assert program_of(qc.TEXTBOOK.coding).write("s", {"s": scale}) is scale


@for_each("dtype", ["bfloat16", "float16"])
@for_each(
    "text", ["int8 torchao", "uint8 asymmetric torchao", "int4 compressed_tensors", "int8 torch.fake_quantize"]
)
def test_codes_in_half_precision_are_those_of_another_convention(text, dtype):
    """What a library computes in the dtype of x is one more convention for the arithmetic of the search."""
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype))
    scheme, values = qc.Scheme.parse(f"{text} per_channel(0)"), x.float()
    rules = scheme.in_dtype(x.dtype).rules
    low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
    found, program = parameters(low, high, scheme.symmetric, scheme.format, rules), program_of(rules.coding)
    unclamped = program.write("v", {"x": values, **of_blocks(program, found)}, torch.empty_like(values))
    codes = codes_of_values(unclamped, rules.coding, (), scheme.format)
    assert torch.equal(codes.to(torch.int32), qc.apply(x, scheme).codes.to(torch.int32))


def test_one_code_that_differs_where_scale_and_zero_point_are_of_the_tensor():
    x, scheme = torch.tensor([[0.3, -1.0], [2.0, 0.7]]), qc.Scheme.parse("int8 asymmetric torch.quantize_per_tensor")
    assert KERNELS[scheme.rules.coding.kernel].fused
    codes = qc.apply(x, scheme).codes.to(torch.int64)
    other = codes.clone()
    other[0, 1] += 1
    (cell,), _ = explain(x, other, codes, scheme)
    assert (cell.index, cell.got) == ((0, 1), int(codes[0, 1]) + 1)


@for_each("kernel", KERNELS)
def test_a_mistake_is_one_changed_line(kernel):
    """Whatever the order of operations, and whether or not the library stores 1/s."""
    x, s = torch.tensor([0.3, -1.26, 7.7, -9.1]), torch.tensor([0.3])
    z = torch.tensor([0.6]) if KERNELS[kernel].subtracts else torch.tensor([3.0])
    coding = qc.TEXTBOOK.changed(kernel=kernel).coding
    right = program_of(coding)
    for kind, z_used, s_used in (("zero_point_negated", -z, s), ("zero_point_left_out", 0 * z, s),
                                 ("scale_float16", z, s.half().float())):  # fmt: skip
        program = program_of(coding, (kind,))
        assert len(program.lines) == len(right.lines) + 1
        wrong, wanted = (
            p.write("v", {"x": x} | of_blocks(p, QParams(*numbers)), torch.empty_like(x))
            for p, numbers in ((program, (s, z)), (right, (s_used, z_used)))
        )
        assert torch.equal(wrong, wanted), kind


@for_each(
    ("fmt", "fewest"), [(IntFormat(2), 13), (IntFormat(4), 8), (INT8, 5), (IntFormat(6), 6)]
)
def test_evidence_for_a_scale(fmt, fewest):
    """The unclamped codes of nonzero values must have enough bits for the scale, the zero_point and 20 more."""
    for n in (fewest - 1, fewest):
        values = np.resize([-0.9, -1.1, -0.3, -0.8, -1.2, 0.25], n)
        others = [(9.0, fmt.qmax), (-999.0, fmt.qmin), (0.0, 0.0)]
        x = np.concatenate([values, [v for v, _ in others]])
        codes = np.concatenate([np.round(values), [q for _, q in others]])
        x[n] = fmt.qmax + 1
        found = fits(x, codes, fmt)
        assert bool(found) == (n == fewest)
        assert not any(f.wrapped for f in found)


@for_each(("bits", "fewest"), [(5, 8), (8, 5)])
def test_evidence_for_wrapped_codes(bits, fewest):
    """Each code counts log2(3) bits less, since it may have wrapped up, down, or not at all."""
    fmt, half = IntFormat(bits), 1 << (bits - 1)
    for n in (fewest - 1, fewest):
        x = np.resize([half * 1.3, -half * 1.2, half * 0.4, -half * 0.3, half * 0.11], n)
        codes = (np.round(x) + half) % (2 * half) - half
        wrapped = [f for f in fits(x, codes, fmt) if f.wrapped]
        assert bool(wrapped) == (n == fewest)
        assert not any(f.wrapped for f in fits(x, codes, fmt, wraps=False))
        assert not any(f.wrapped for f in fits(x, codes, IntFormat(bits, narrow=True)))


@for_each("fmt", [IntFormat(4), IntFormat(4, signed=False), INT8, UINT8])
@for_each("above", [1, 3, 5])
def test_zero_points_nearest_to_the_middle_come_first(fmt, above):
    """Equal codes of nearly equal numbers have many: as many steps below each code as the numbers leave."""
    x = np.linspace(5.0, 5.2, 12)
    found = fits(x, np.full(12, fmt.middle + above), fmt, wraps=False)
    away = [f.zero_point - fmt.middle for f in found]
    assert {0, -1, -2, above - 1} <= set(away)
    assert [abs(z) for z in away] == sorted(map(abs, away))
    for f in found:
        for scale in np.linspace(f.low, f.high, 5)[1:-1]:
            assert (np.round(x / scale) + f.zero_point == fmt.middle + above).all()


@for_each(("largest", "code", "wrapped"), [(3, 3, False), (150, -106, True)])
def test_equal_numbers_with_different_codes_have_no_scale(largest, code, wrapped):
    """Not even where the number lies exactly between the two codes."""
    x = np.array([0.5, -0.25, 0.75, 1.0, -1.25, 2.0, 2.25, -0.25, 0.5, largest]) * 3
    numbers = torch.from_numpy(x).float()
    for z in (0, 2):
        codes = np.array([0, 0, 1, 1, -1, 2, 2, 0, 0, code]) + z
        low, high = interval(numbers, torch.from_numpy(codes), INT8, z, wrapped, 3.001)
        assert low < 3.001 < high
        assert (z, wrapped) in [(f.zero_point, f.wrapped) for f in fits(x, codes, INT8)] or (z and wrapped)
        codes[0] += 1
        assert interval(numbers, torch.from_numpy(codes), INT8, z, wrapped, 3.0) == (3.0, 3.0)
        assert not fits(x, codes, INT8)


@for_each("zero_point", [0, 4])
@for_each("seed", some(range(6), 3))
def test_scales_of_codes_that_wrapped_once(seed, zero_point):
    """Compared with every scale of a fine grid."""
    fmt = IntFormat(3, signed=not zero_point)
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, 4)
    x[0] = 0.0
    s = np.abs(x).max() / (6 + seed % 5)
    codes = (np.round(x / s) + zero_point - fmt.qmin) % 8 + fmt.qmin
    spans = _wrapped(x, codes, fmt, zero_point)
    for scale in np.geomspace(s / 20, s * 20, 1501):
        turns = (np.round(x / scale) + zero_point - codes) / 8
        gives = bool((turns % 1 == 0).all() and turns.any() and np.abs(turns).max() <= 1)
        near = any(abs(end / scale - 1) < 1e-4 for span in spans for end in span)
        assert near or any(a < scale < b for a, b in spans) == gives, scale
    assert not _wrapped(np.zeros(3), np.zeros(3), fmt, zero_point)
    assert not _wrapped(x, np.where(x == 0, codes + 1, codes), fmt, zero_point)


def test_the_interval_that_holds_a_scale():
    rng = np.random.default_rng(3)
    x = rng.normal(size=9).astype(np.float32)
    s = float(np.abs(x).max() / 13)
    codes = (np.round(x / s) + 8) % 16 - 8
    spans = _wrapped(x.astype(float), codes, IntFormat(4), 0)
    for low, high in spans:
        for near in (low, (low + high) / 2, high):
            assert interval(torch.from_numpy(x), torch.from_numpy(codes), IntFormat(4), 0, True, near) == (
                low,
                high,
            )
    assert interval(torch.from_numpy(x), torch.from_numpy(codes), IntFormat(4), 0, True, 9.0) == (9.0, 9.0)
    # codes of 0 allow any scale from some on, which is no interval
    zeros = torch.zeros(9)
    assert interval(torch.from_numpy(x), zeros, IntFormat(4), 0, False, 9.0) == (9.0, 9.0)
    assert interval(zeros, zeros, IntFormat(4), 0, False, 9.0) == (9.0, 9.0)
    with_zeros = [torch.tensor(v) for v in ([0.0, -0.0, 1.0, -2.0, 0.0], [0.0, 0.0, 3.0, -6.0, 0.0])]
    low, high = interval(*with_zeros, IntFormat(4), 0, False, 0.33)
    assert (low, high) == pytest.approx((2 / 6.5, 2 / 5.5))
    with_zeros[1][4] = 1
    assert interval(*with_zeros, IntFormat(4), 0, False, 0.33) == (0.33, 0.33)
    clamped = np.round(x / s).clip(-8, 7)
    low, high = interval(torch.from_numpy(x), torch.from_numpy(clamped), IntFormat(4), 0, False, s)
    assert low < s < high
    for scale, right in (
        (low * 1.0001, True),
        (low * 0.9999, False),
        (high * 0.9999, True),
        (high * 1.0001, False),
    ):
        assert np.array_equal(np.round(x.astype(float) / scale).clip(-8, 7), clamped) == right


@for_each(
    ("low", "high", "found"),
    [
        (0.9, 1.2, (1, 1.0)), (1.0, 1.2, (2, 1.1)), (1.24, 1.26, (3, 1.25)), (1.2, 1.3, (3, 1.25)), (90.0, 130.0, (1, 100.0)),
        (np.nextafter(0.1234567890123456, 0), np.nextafter(0.1234567890123456, 1), (16, 0.1234567890123456)),
        (0.3, np.nextafter(0.30000000000000004, 1), (17, 0.30000000000000004)),
    ],
)  # fmt: skip
def test_number_with_the_fewest_digits(low, high, found):
    assert _shortest(float(low), float(high)) == found


def test_elements_that_constrain_a_scale():
    """All finite elements if there are up to 2048, otherwise the 1024 largest and as many random ones."""
    x = torch.randn(2048, generator=torch.Generator().manual_seed(0))
    x[[3, 5]] = torch.tensor([float("inf"), float("nan")])
    values, codes = drawn(x.reshape(2, -1), torch.arange(2048.0).reshape(2, -1))
    kept = np.delete(np.arange(2048), [3, 5])
    np.testing.assert_array_equal(codes, kept)
    np.testing.assert_array_equal(values, x.numpy()[kept].astype(float))
    x = torch.arange(2049.0) - 5000
    values, codes = drawn(x, x + 1)
    assert len(values) == 2048
    assert sorted(values[:1024]) == list(range(-5000, -3976))
    np.testing.assert_array_equal(codes, values + 1)
    assert values[1024:].max() > -3500


def trials_of(trials, x, *formats):
    return list(trials(x, formats))


def test_scales_of_percentiles():
    """They are those of the percentile range setting, for both symmetries, for the tensor and along each axis.

    The 99.9th percentile of 9 elements is hardly less than the largest: it is left out.
    """
    x = torch.randn(6, 9, generator=torch.Generator().manual_seed(2)) + 0.3
    found = trials_of(percentiles, x, INT8, UINT8)
    assert len(found) == (7 + 5 + 5) * 2 * 2
    assert {str(t.granularity) for t in found} == {
        str(g) for g in (qc.PerTensor(), qc.PerChannel(0), qc.PerChannel(1))
    }
    for t in found:
        own = qc.apply(x, qc.Scheme(t.format, t.symmetric, t.granularity, t.setting))
        assert torch.equal(t.scale, own.scale)
        assert torch.equal(t.zero_point, own.zero_point.float())
    assert {t.granularity for t in trials_of(percentiles, x[0], INT8)} == {qc.PerTensor()}
    signed = trials_of(signed_percentiles, x, INT8, UINT8, IntFormat(8, narrow=True))
    highs = [np.quantile(x.numpy().astype(float), p / 100) / 127 for p in PERCENTILES]
    assert [t.scale.item() for t in signed[: len(highs)]] == pytest.approx(highs, rel=1e-5)
    rows = np.quantile(x.numpy().astype(float), PERCENTILES[0] / 100, axis=1)[:, None] / 127
    np.testing.assert_allclose(signed[len(highs)].scale.numpy(), rows, rtol=1e-5)
    assert len(signed) == 3 * len(highs)
    assert all(not t.zero_point.any() and t.symmetric for t in signed)
    positive = x.abs()
    positive[0, 0] = 0
    assert trials_of(signed_percentiles, positive, INT8) == trials_of(mistaken, positive, INT8) == []


def test_scales_of_a_range_from_zero():
    x = torch.tensor([[1.0, -5.1], [2.55, 0.3]])
    signed = trials_of(mistaken, x, INT8, IntFormat(8, narrow=True))
    assert [t.scale.reshape(-1).tolist() for t in signed] == [
        pytest.approx(v) for v in ([0.02], [0.02, 0.01], [0.01, 0.02])
    ]
    assert [tuple(t.scale.shape) for t in signed] == [(1, 1), (2, 1), (1, 2)]
    assert {float(z) for t in signed for z in t.zero_point.reshape(-1)} == {-128.0}
    omitted = ("zero_point_left_out",)
    assert {t.then for t in signed} == {(omitted, (*omitted, "wrapped"), (*omitted, "unclamped"))}
    first, second, *_ = trials_of(mistaken, x, UINT8)
    assert (first.scale.item(), first.zero_point.item()) == (pytest.approx(0.02), 0)
    assert first.then == ((), ("wrapped",), ("unclamped",))
    assert (second.scale.item(), second.zero_point.item()) == (pytest.approx(5.1 / 128), 128)
    assert (first.symmetric, second.symmetric) == (False, True)


@for_each(("n", "all_drawn"), [(511, True), (512, True), (513, False), (900, False)])
def test_scales_are_tried_on_512_elements(n, all_drawn):
    """A trial with a smaller fraction of wrong codes than the limit becomes a hypothesis."""
    x = torch.arange(n) / 8.0 % 100
    codes = torch.round(x)
    codes[::3] += 1
    trial = TriedParams(qc.PerTensor(), INT8, True, torch.tensor([1.0]), torch.tensor([0.0]))
    unusable = [
        TriedParams(qc.PerTensor(), INT8, True, torch.tensor([s]), torch.tensor([0.0])) for s in (0.0, math.inf)
    ]
    (found,) = tried(x, GivenCodes(Corruption(), codes, (INT8,)), iter([*unusable, trial]), 2.0)
    exact = len(codes[::3]) / n
    if all_drawn:
        assert found.fraction == pytest.approx(exact)
    else:
        assert found.fraction * 512 % 1 == 0
        assert found.fraction == pytest.approx(exact, abs=0.07)
        assert found.fraction != exact
    for limit, kept in ((found.fraction, 0), (found.fraction + 1e-6, 1)):
        assert len(list(tried(x, GivenCodes(Corruption(), codes, (INT8,)), iter([trial]), limit))) == kept
    assert found.doubt == 0
    of_signed = dataclasses.replace(trial, range=("signed_percentile",))
    (doubtful,) = tried(x, GivenCodes(Corruption(), codes, (INT8,)), iter([of_signed]), 2.0)
    assert doubtful.doubt == OF_PERCENTILE
    shifted = dataclasses.replace(trial, zero_point=torch.tensor([-9.0]), then=((), ("zero_point_negated",), ("zero_point_left_out",)))
    for z, right in ((-9, 0), (9, 1), (0, 2)):
        made = GivenCodes(Corruption(), torch.round(x) + z, (INT8,))
        fractions = [h.fraction for h in tried(x, made, iter([shifted]), 2.0)]
        assert [fraction == 0 for fraction in fractions] == [i == right for i in range(3)]


@for_each(
    ("shape", "searched"),
    [
        ((6, 10), [qc.PerTensor(), qc.PerChannel(0), qc.PerChannel(1), qc.PerGroup(4, -1), qc.PerGroup(5, 0)]),
        ((40, 64), [qc.PerTensor(), qc.PerChannel(0), qc.PerGroup(16, 1), qc.PerBlock((8, 16))]),
        ((3, 5, 7), [qc.PerTensor(), qc.PerChannel(1), qc.PerGroup(3, 2), qc.PerBlock((1, 2, 3))]),
        pytest.param((20, 20000), [qc.PerChannel(0)], marks=pytest.mark.slow), ((2, 270000), [qc.PerChannel(0)]), ((), [qc.PerTensor()]),
    ],
)  # fmt: skip
def test_sampled_elements_and_ranges(shape, searched):
    """256 elements of up to 16 blocks with up to 2^18 elements in all; ranges are those of complete blocks."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    kinds = draw(x, searched)
    assert [g for sample in kinds for g in sample.granularities] == searched
    for sample in kinds:
        assert torch.equal(sample.x, x.reshape(-1)[sample.index])
        sizes, first = sample.sizes, 0
        assert sizes.sum() == len(sample.x)
        counted = sample.count(torch.arange(len(sample.x)) % 2 == 0)
        for i, granularity in enumerate(sample.granularities):
            block = qc.block_shape(granularity, shape)
            grid = [-(-n // b) for n, b in zip(shape, block, strict=True)]
            places = sample.blocks[i].tolist()
            most = min(16, max(1, 2**18 // math.prod(block)))
            assert len(places) == min(most, math.prod(grid)) == len(set(places))
            assert places == sorted(places)
            start = int(sample.starts[i])
            own = slice(start, start + int(sizes[i]))
            assert counted[i] == sum(place % 2 == 0 for place in range(own.start, own.stop))
            each = int(sizes[i]) // len(places)
            largest = max(math.prod(min((p + 1) * b, n) - p * b for p, b, n in zip(np.unravel_index(place, grid), block, shape, strict=True)) for place in places) if shape else 1  # fmt: skip
            assert each == 2 + min(-(-256 // len(places)), largest)
            for j, place in enumerate(places):
                position = np.unravel_index(place, grid) if grid else ()
                part = x[tuple(slice(p * b, (p + 1) * b) for p, b in zip(position, block, strict=True))]
                assert (sample.low[first + j], sample.high[first + j]) == (part.min(), part.max())
                mine = sample.x[own][sample.block[own] == first + j]
                assert len(mine) == each
                assert set(mine.tolist()) <= set(part.reshape(-1).tolist())
                if part.numel() <= -(-256 // len(places)):
                    assert set(mine.tolist()) == set(part.reshape(-1).tolist())
            first += len(places)
        assert first == len(sample.low) == len(sample.high)


def test_blocks_that_are_drawn():
    """Up to 4,096 blocks are drawn without repetition."""
    for count in (5, 16, 17, 4096):
        found = _some(count, 16, torch.Generator().manual_seed(1)).tolist()
        assert found == sorted(set(found))
        assert len(found) == min(count, 16)
        assert found == sorted(
            torch.randperm(count, generator=torch.Generator().manual_seed(1))[:16].tolist()
        )
    found = _some(4097, 16, torch.Generator().manual_seed(1)).tolist()
    assert found == sorted(torch.randint(4097, (16,), generator=torch.Generator().manual_seed(1)).tolist())
    values = torch.tensor([2.0**31 - 128, 2.0**31, -(2.0**31), 2 - 2.0**31 + 126, math.nan, math.inf, 0.0])
    assert is_lost(values).tolist() == [False, True, True, False, True, True, False]


def test_samples_of_scales_along_the_other_axis():
    x = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    (source,) = swapped_axes(x)
    (sample,) = source.samples
    assert swapped_axes(x[:4]) == swapped_axes(x[0]) == swapped_axes(x[None]) == []
    assert sample.sizes.tolist() == [256, 256]
    low = torch.cat([x.amin(1), x.amin(0)])
    assert torch.equal(sample.low, low)
    assert torch.equal(sample.high, torch.cat([x.amax(1), x.amax(0)]))
    rows, columns = sample.index // 5, sample.index % 5
    assert torch.equal(sample.x, x[rows, columns])
    assert torch.equal(sample.block[:256], columns[:256])
    assert torch.equal(sample.block[256:], rows[256:] + 5)
    assert set(sample.block.tolist()) == set(range(10))


def test_zero_points_are_inferred_for_up_to_2_20_elements():
    for n, choices in ((1 << 20, 2), ((1 << 20) + 1, 1)):
        x = torch.zeros(n)
        found = _zero_points(x, x, torch.ones(1), None, qc.PerTensor())
        assert len(found) == choices
    far = inferred(torch.zeros(2, 1), torch.tensor([[70000], [-70000]]), torch.ones(2, 1), qc.PerChannel(0))
    assert far.reshape(-1).tolist() == [65536, -65536]
    setting = write_given(torch.tensor([[0.1], [0.25]]), torch.tensor([[3.0], [-4.0]]))
    assert (setting.scale, setting.zero_point) == (((0.1,), (0.25,)), ((3,), (-4,)))
    assert (write_given(torch.tensor([0.1]), torch.tensor([3.0])).scale) == 0.1


def test_formats_of_a_task_and_the_nearest_granularities():
    codes = torch.zeros(64)
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    ranged = by_range(x, granularities((4, 16)))
    formats = (UINT8, IntFormat(4), IntFormat(8, narrow=True), INT8, IntFormat(4, False))
    task = SearchTask(
        ranged, [GivenCodes(Corruption(), codes, formats[:3]), GivenCodes(Corruption(), codes, formats[2:])]
    )
    assert texts(task.formats()) == "int4 uint4 int8 int8n uint8"
    noise = torch.randint(-8, 8, (4, 16), generator=torch.Generator().manual_seed(0)).float()
    alone = SearchTask(ranged, [GivenCodes(Corruption(), noise, (INT8,))], conventions=(qc.CONVENTIONS["textbook"],))
    found = list(score(alone, INT8, (4, 16), 2.0))
    kinds = len(ranged.samples)
    assert kinds == 4
    # tensor, channels, groups, blocks: the nearest one, two, three and three, of both symmetries
    assert len(found) == 2 * (1 + 2 + 3 + 3)
    assert alone.tried == 2 * len(granularities((4, 16)))
    least = min(h.fraction for h in found)
    assert not list(score(alone, INT8, (4, 16), least))
    uniform = dataclasses.replace(alone, uniform=True)
    assert not list(score(uniform, INT8, (4, 16), 2.0))
    rows = qc.apply(x, qc.Scheme.parse("int8 per_channel(0)")).codes.float()
    fitting = dataclasses.replace(uniform, readings=[GivenCodes(Corruption(), rows, (INT8,))])
    assert {str(h.scheme.granularity) for h in score(fitting, INT8, (4, 16), 2.0)} >= {str(qc.PerChannel(0))}


def test_tensors_that_are_sorted_and_searched_for_groups():
    """Percentiles are tried for up to 2^20 finite elements."""
    for x, parts in (
        (torch.zeros(1), 1),
        (torch.zeros(1 << 20), 1),
        (torch.zeros((1 << 20) + 1), 0),
        (torch.full((4,), math.inf), 0),
    ):
        search = _Search(Evaluator(x, torch.zeros(x.shape, dtype=torch.int32), None, None, [qc.PerTensor()]))
        assert len(search._tried(percentiles)) == parts
    reading = GivenCodes(Corruption(), torch.zeros(2), tuple(IntFormat(b) for b in (3, 5, 6, 8, 16)))
    assert texts(_likeliest(reading).formats) == "int3 int5 int8"


def test_hypotheses_are_evaluated_in_steps():
    """Each step evaluates ten, or one for large tensors, for which fewer of the nearest are evaluated."""
    for n, steps, nearest in (
        (4, [0, 10, 20], 40),
        (1 << 20, [0, 10, 20], 40),
        ((1 << 20) + 1, list(range(25)), 12),
    ):
        x = torch.zeros(n)
        evaluator = Evaluator(x, torch.zeros(n, dtype=torch.int32), None, None, [qc.PerTensor()])
        search = _Search(evaluator)
        search.near = [SimpleNamespace(fraction=i / 100) for i in range(50)]
        assert len(search._nearest()) == nearest
        assert search._limit() == 0.49
        search.near = search.near[:39]
        assert search._limit() == 2.0
        search.near.append(SimpleNamespace(fraction=0.7))
        assert search._limit() == 0.7
        evaluator.evaluate = lambda _: None
        assert list(search._evaluate(list(range(25)))) == [i / 25 for i in steps]


@pytest.mark.slow  # by default, every search evaluates what fits its sample
def test_of_what_fits_the_sample_the_simplest_400_are_evaluated():
    """Zeros, which every scheme gives."""
    x = torch.zeros(2, 2)
    evaluator, evaluated = Evaluator(x, x.to(torch.int32), None, None, granularities((2, 2))), []
    evaluator.evaluate = evaluated.append
    search = _Search(evaluator)
    task = SearchTask(by_range(x, evaluator.searched), search.readings)
    fractions = [fraction for fraction, _ in search._round([task])]
    assert len(evaluated) == 400 < search.tried
    assert fractions == sorted(fractions)
    assert (fractions[0], max(f for f in fractions if f < 0.8)) == (0, 0.8 * (1 - 1 / len(task.formats())))
    assert fractions[-1] == pytest.approx(0.8 + 0.2 * 390 / 400)
    order = [(h.scheme.format.bits, evaluator.searched.index(h.scheme.granularity)) for h in evaluated]
    assert order == sorted(order)


def test_candidates_of_a_large_tensor_are_explained_in_part():
    for n, explained in ((1 << 20, 3), ((1 << 20) + 1, 2)):
        x = torch.zeros(n)
        x[1] = 1.0
        given = torch.zeros(n, dtype=torch.int32)
        evaluator = Evaluator(x, given, None, None, [qc.PerTensor()])
        for scale in (1.0, 0.5, 0.25):
            evaluator.evaluate(
                Hypothesis(qc.Scheme.parse(f"int8 per_tensor given({scale})"), Corruption(), 0.5)
            )
        found = evaluator.candidates(explained=True)
        assert [bool(c.cells) for c in found] == [i < explained for i in range(3)]
        assert not any(c.cells for c in evaluator.candidates())


@pytest.mark.parametrize("p", some([*PERCENTILES[1:], PERCENTILES[0]], 9))
def test_the_percentile_of_signed_values_is_named_with_its_value(p):
    """x has 1,999 elements, a prime, with a negative tail that the percentile of x ignores."""
    x = torch.randn(1999, generator=torch.Generator().manual_seed(3))
    x[:25] = -torch.linspace(10, 40, 25)
    scale = torch.quantile(x, p / 100) / 127
    codes = (x / scale).round().clamp(-128, 127).to(torch.int8)
    high = float(scale * 127)
    # torch computes the position among so many elements in float32, which is off by at most 2^-13
    assert high == pytest.approx(np.quantile(x.numpy().astype(float), p / 100), abs=1e-4)
    beyond = int((x.abs() > scale * 127).sum())
    expected = f"{p:g}th percentile of x = {high:.7g}; |x| exceeds it in {beyond:,} of 1,999 elements"
    found = match(x, codes)
    said = [
        text for c in found.exact if "signed_percentile" in c.corruption.computed for text in c.explanations
    ]
    assert expected in said


@for_each("bits", [3, 4])
def test_a_scale_that_makes_codes_wrap_makes_one_wrap(bits):
    """In the middle of its interval, every code is as given modulo 2^bits, and some value is out of range."""
    fmt = qc.IntFormat(bits)
    wrapped = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x = np.append(rng.uniform(-1, 1, 30), -1.0)
        steps = np.round(x * rng.uniform(-fmt.qmin - 0.4, 1.6 * fmt.qmax))
        codes = (steps - fmt.qmin) % (1 << bits) + fmt.qmin
        for fit in fits(x, codes.astype(np.int64), fmt, True):
            if not fit.wrapped:
                continue
            wrapped += 1
            values = np.round(x * (1 / fit.low + 1 / fit.high) / 2) + fit.zero_point
            assert np.array_equal((values - codes) % (1 << bits), np.zeros(len(x)))
            assert values.min() < fmt.qmin or values.max() > fmt.qmax
    assert wrapped


@for_each("zero_point", [0, 4])
def test_codes_that_reach_the_ends_of_the_format_need_not_have_wrapped(zero_point):
    """With the lowest and the highest code, and one of the numbers beyond them."""
    fmt = qc.IntFormat(3, signed=not zero_point)
    steps = np.array([fmt.qmin, fmt.qmax, -1, 1, 2, -2, 1, 2, -1, 3, -3]) - np.array([zero_point] * 2 + [0] * 9)
    for beyond in (0, 1, -1):
        steps[:2] += (beyond < 0) * np.array([-1, 0]) + (beyond > 0) * np.array([0, 1])
        codes = (steps + zero_point - fmt.qmin) % 8 + fmt.qmin
        spans = _wrapped(steps * 0.7, codes, fmt, zero_point)
        assert any(a < 0.7 < b for a, b in spans) == bool(beyond)


def test_mistakes_are_not_run_on_more_than_2_20_elements():
    x = torch.randn((1 << 20) + 1, generator=torch.Generator().manual_seed(0)).reshape(1, -1)
    codes = compare(CASES["truncated"], x).wrong.codes
    assert known_mistakes(x, codes) == ()
    few = x[:, :100].clone()
    codes = compare(CASES["truncated"], few).wrong.codes
    assert [m.name for m in known_mistakes(few, codes)] == ["truncated"]
    assert known_mistakes(few, codes[:, :99]) == ()
    few[0, 3] = math.inf
    assert known_mistakes(few, codes) == ()


def test_the_elements_of_a_large_block_are_drawn_from_all_of_it():
    (sample,) = draw(torch.linspace(0, 1, 4096), [qc.PerTensor()])
    assert sample.index[:2].tolist() == [0, 4095]
    counts = np.histogram(sample.index[2:].numpy(), 8, (0, 4096))[0]
    assert counts.sum() == 256
    assert counts.min() > 10
