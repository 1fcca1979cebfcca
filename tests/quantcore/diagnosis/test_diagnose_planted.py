"""Each kind of finding for ranks 0 to 4 and shapes from 1×1 to 3×2000: what is planted is found, nothing else is
claimed, and all facts are recomputed (claims.py)."""

import itertools
import math

import numpy as np
import pytest
import torch
from claims import CLAIMS, check
from grid import for_each
from parts import in_parts, some, some_rows

import quantcore as qc
from quantcore import tensors
from quantcore.diagnosis import KINDS, record
from quantcore.tensors import Generated
from quantcore.wording import along

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
EXAMPLES = {name: kind.example for name, kind in KINDS.items()}
SHAPES = [
    (), (1,), (7,), (2000,), (1, 1), (1, 8), (8, 1), (3, 3), (3, 20), (20, 3), (8, 16), (3, 200), (8, 500), (3, 2000),
    (1, 3, 1), (2, 3, 8), (5, 4, 3), (1, 1, 1, 1), (2, 2, 2, 2), (8, 4, 3, 3), (4, 5, 10, 10),
]  # fmt: skip


def plain(shape, seed=0):
    """Numbers of magnitude 0.5 to 1 with both signs: nothing is wrong with them."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 1, shape) * rng.choice([-1.0, 1.0], shape)
    return np.asarray(x, np.float32)


def one(x, value):
    """x with its last element replaced."""
    x = x.copy()
    x[tuple(n - 1 for n in x.shape)] = value
    return x


def spread(shape, low, high):
    """Distinct numbers from low to high, shuffled."""
    n = math.prod(shape)
    order = np.random.default_rng(1).permutation(n)
    return np.linspace(low, high, n, dtype=np.float32)[order].reshape(shape)


def halves(shape):
    """Positive numbers halfway between int4 codes, if the largest is 1."""
    return np.resize((np.arange(7, dtype=np.float32) + 0.5) / 7, shape)


def fewer(shape, n):
    return math.prod(shape) < n


def outlier_axes(shape):
    """Axes along which a channel can be an outlier: at least two channels of at least two elements."""
    return [axis for axis, n in enumerate(shape) if n > 1 and math.prod(shape) // n > 1 and len(shape) > 1]


def with_outlier(shape, axis):
    x = plain(shape)
    np.moveaxis(x, axis, 0)[shape[axis] // 2] *= 100
    return x


def tails(shape):
    """Some elements are 3.6 times as large: at 2 bits, where the only positive code is 1, they push the others to 0."""
    x = plain(shape) / 2
    x.reshape(-1)[::40] *= 3.6
    return x


def steep(shape, axis):
    """Channels scaled by 1, 0.5, 0.25, …"""
    x = np.moveaxis(plain(shape), axis, 0)
    for i in range(len(x)):
        x[i] *= 0.5**i
    return np.ascontiguousarray(np.moveaxis(x, 0, axis))


def a_scale_is_cheap(shape):
    """The first axis with more than 4 channels whose scales cost less than 1 % of int8's storage."""
    found = [a for a, n in enumerate(shape) if n > 4 and 32 * n < 0.01 * 8 * math.prod(shape)]
    return found[0] if found else None


def first_rows(shape, value):
    """A tensor and a granularity such that all elements of one block have this value."""
    x = plain(shape)
    if len(shape) > 1 and shape[0] > 1 and math.prod(shape[1:]) >= 4:
        x[0] = value
        return x, "per_channel(0)"
    return np.full_like(x, value), "per_tensor"


# kind -> shape -> (tensor, scheme), or the reason why no tensor of this shape can have this finding
PLANTED = {
    "nan": lambda s: (one(plain(s), np.nan), "int8 torchao"),
    "wrapped": lambda s: (one(plain(s), 1.0), "int8 given(0.004) textbook(overflow=wrap)"),
    "zero_point_outside": lambda s: (plain(s), "int8 given(0.1, zero_point=200)"),
    "zero_point_clamped": lambda s: "the range of one number has no width" if fewer(s, 2) else
        (spread(s, -6, -5), "uint8 asymmetric brevitas"),
    "negatives_lost": lambda s: (one(plain(s), -1.0), "uint8 symmetric aimet.2024.Quantize"),
    "zero_not_exact": lambda s: "0 has a code where it is an end of the range" if fewer(s, 3) else
        (one(spread(s, -0.31, 1), 0.0), "uint4 asymmetric hqq"),
    "one_sided": lambda s: "fewer than 4 elements are on one side by chance" if fewer(s, 4) else
        (one(halves(s), 1.0), "int4"),
    "outlier_channel": lambda s: (with_outlier(s, outlier_axes(s)[-1]), "int8") if outlier_axes(s) else
        "there are no two channels of two elements",
    "outlier_element": lambda s: "fewer than 3 others share the scale" if fewer(s, 4) else
        (one(plain(s), 100.0), "int8"),
    "clipped_too_much": lambda s: (3 * plain(s), "int8 fixed(-1, 1)"),
    "clips_too_little": lambda s: "fewer than 16 elements share a range" if fewer(s, 16) else
        (tails(s) if not fewer(s, 180) else plain(s), "int2"),
    "codes_unused": lambda s: (plain(s), "int8 fixed(-90, 90)"),
    "per_channel": lambda s: "a scale per channel costs more than 1 % of the storage, or there are 4 channels at most"
        if a_scale_is_cheap(s) is None else (steep(s, a_scale_is_cheap(s)), "int8"),
    "small_groups": lambda s: "there are no groups of 4, or so few that nothing larger remains"
        if not s or s[-1] < 4 or fewer(s, 17) else (plain(s), "int4 per_group(4)"),
    "tiny_block": lambda s: (plain(s) * np.float32(1e-40), "int8"),
    "zero_block": lambda s: "fewer than 4 elements are 0 by chance" if fewer(s, 4) else
        (lambda x, g: (x, f"int8 {g}"))(*first_rows(s, 0.0)),
    "constant_block": lambda s: "fewer than 4 elements are equal by chance" if fewer(s, 4) else
        (lambda x, g: (x, f"int8 {g}"))(*first_rows(s, 0.7)),
    "spare_bits": lambda s: (np.sign(plain(s)) * np.float32(0.3), "int8"),
    "better_scheme": lambda s: (plain(s), "int4 fixed(-60, 60)"),
    "scale_out_of_range": lambda s: (plain(s) * np.float32(1e-4), "int4 scales(e4m3fn given(1))"),
    "half_precision": lambda s: "too few elements to tell" if fewer(s, 100) else
        (torch.from_numpy(np.random.default_rng(1).uniform(-1.7, 1.7, s)).bfloat16(), "int8 quanto"),
    "ties": lambda s: (2 * np.floor(2 * plain(s)) + np.float32(0.5), "int8 given(1)"),
}  # fmt: skip

# a better scheme is not proposed where the fix of another finding leads there
LEADS = {"better_scheme": ("codes_unused",)}


def diagnosed(x, scheme):
    """The findings, after checking each of them."""
    result = qc.apply(x, qc.Scheme.parse(scheme))
    findings = qc.diagnose(result)
    for finding in findings:
        check(result, finding)
    return findings


def test_every_kind_is_planted_and_evaluated():
    assert set(PLANTED) == set(KINDS) == set(CLAIMS)


@for_each("case", some(itertools.product(PLANTED, SHAPES), 53), ids=str)
def test_what_is_planted_is_found_in_every_shape(case):
    kind, shape = case
    planted = PLANTED[kind](shape)
    if isinstance(planted, str):
        for scheme in ("int8", "int4", "int2", "int8 given(0.1)"):
            assert kind not in [f.kind for f in diagnosed(plain(shape), scheme)], planted
        return
    kinds = [finding.kind for finding in diagnosed(*planted)]
    assert {kind, *KINDS[kind].follows, *LEADS.get(kind, ())} & set(kinds), kinds


@for_each("rows", some([1, 3], 2))
@for_each(
    ("size", "scheme"),
    [(1e-40, "int8 per_channel(0) torchao"), (1e-10, "int8 per_channel(0) torch.fake_quantize"),
     (1e-40, "int8 per_channel(0) onnxruntime"), (1e-10, "int8 per_channel(0) aimet.Quantize"),
     (1e-13, "int8n per_channel(0) brevitas"), (1e-40, "int8 per_channel(0) quanto")],
)  # fmt: skip
def test_what_is_too_small_for_a_library(size, scheme, rows):
    """Rows that are lost are reported, however a library bounds its scales."""
    x = plain((5, 8))
    assert "tiny_block" not in [f.kind for f in diagnosed(x, scheme)]
    x[1 : 1 + rows] *= np.float32(size)
    result = qc.apply(x, qc.Scheme.parse(scheme))
    lost = x[1] - result.dequantized.numpy()[1]
    kinds = [f.kind for f in diagnosed(x, scheme)]
    assert ("tiny_block" in kinds) or np.abs(lost).max() < np.abs(x[1]).max() / 100


# Outlier channels


@for_each("scheme", some(["int4", "int8", "int8 per_channel({other})", "uint8 asymmetric"], 2))
@for_each(("shape", "axis"), some_rows(((s, a) for s in SHAPES for a in outlier_axes(s)), 9), ids=str)
def test_an_outlier_channel_is_found_along_any_axis(shape, axis, scheme):
    other = next(a for a in range(len(shape)) if a != axis)
    x = with_outlier(shape, axis)
    found = [f for f in diagnosed(x, scheme.format(other=other)) if f.kind == "outlier_channel"]
    box = tuple((n // 2, n // 2 + 1) if i == axis else (0, n) for i, n in enumerate(shape))
    if "{" in scheme and math.prod(shape) // shape[other] == shape[axis]:
        return  # there, each channel has only one element per scale, which is an outlier element
    assert [f for f in found if f.boxes == (box,)], found


def without(x, axis, channel):
    """The SQNR in dB of the other channels at int8, with the channel and without it."""
    others = np.delete(x, channel, axis)
    error = np.delete(x - qc.apply(x, qc.Scheme()).dequantized.numpy(), channel, axis)
    alone = others - qc.apply(others, qc.Scheme()).dequantized.numpy()
    return [
        10 * math.log10((others.astype(float) ** 2).sum() / (e.astype(float) ** 2).sum())
        for e in (error, alone)
    ]


@for_each(
    "shape",
    some([(3, 20), (20, 3), (3, 200), (3, 2000), (8, 4, 3, 3), (64, 128), (2, 3, 8), (16, 16)], 8),
    ids=str,
)
@in_parts(2)
def test_no_false_all_clear_with_a_generated_outlier_channel(shape, part):
    """Where the others would gain two and a half bits without the column, an outlier is reported."""
    lost, seeds = 0, part(range(6))
    for seed in seeds:
        x = tensors.generate(Generated("outlier_channel", shape, seed))
        columns = np.abs(x).reshape(-1, shape[-1]).max(0)
        now, alone = without(x, -1, int(columns.argmax()))
        kinds = {f.kind for f in diagnosed(x, "int4")} & {f.kind for f in diagnosed(x, "int8")}
        if alone - now > 15:
            lost += 1
            assert kinds & {"outlier_channel", "outlier_element"}, (seed, now, alone)
    assert lost or (shape[0] == 3 and len(seeds) < 6)  # of three rows, the first seeds lose less


def test_two_outlier_channels_of_many():
    x = plain((4, 24))
    x[:, [3, 17]] *= np.array([60, 25], np.float32)
    (finding,) = [f for f in diagnosed(x, "int8") if f.kind == "outlier_channel"]
    assert (finding.facts["axis"], finding.facts["channels"]) == (1, (3, 17))
    assert finding.boxes == (((0, 4), (3, 4)), ((0, 4), (17, 18)))
    x = plain((2, 40, 3))
    x[:, ::9] *= 50
    (finding,) = [f for f in diagnosed(x, "int8") if f.kind == "outlier_channel"]
    assert (finding.facts["axis"], finding.facts["channels"]) == (1, (0, 9, 18, 27, 36))
    assert finding.sentence.startswith("Channels 0, 9, 18 and 2 more of axis 1 (max")


def test_outlier_channels_of_groups():
    x = plain((6, 64))
    x[:, 5] *= 50
    x[:, 40] *= 90
    (finding,) = [f for f in diagnosed(x, "int8 per_group(16)") if f.kind == "outlier_channel"]
    assert (finding.facts["channels"], finding.facts["among"], finding.facts["runs"]) == ((40,), (32, 48), 2)
    assert [box[1][0] for box in finding.boxes] == [40, 5]
    x[:, [5, 40]] = plain((6, 2))
    assert diagnosed(x, "int8 per_group(16)") == []


def test_outlier_elements_of_several_blocks():
    x = plain((8, 32))
    for row, column in ((1, 4), (3, 30), (6, 0)):
        x[row, column] = 40 + row
    (finding,) = [f for f in diagnosed(x, "int8 per_channel(0)") if f.kind == "outlier_element"]
    assert [finding.facts[name] for name in ("value", "at", "blocks")] == [46, (6, 0), 3]


@for_each("bad", [2, 3, 7])
def test_several_blocks_of_different_constants(bad):
    x = plain((9, 6))
    for row in range(bad):
        x[row] = row + 1
    (finding,) = diagnosed(x, "int8 per_channel(0)")
    assert finding.facts == {"value": 1, "blocks": bad}
    assert finding.boxes == tuple(((row, row + 1), (0, 6)) for row in range(bad))
    x[:bad] = 0
    assert {f.kind for f in diagnosed(x, "int8 per_channel(0)")} == {"zero_block"}
    x[:bad] = 1e-41
    assert "tiny_block" in {f.kind for f in diagnosed(x, "int8 per_channel(0)")}


@for_each(
    "convention", ["textbook", "torch.fake_quantize", "torch.quantize_per_tensor", "onnxruntime"]
)
@for_each("zero_point", [0, 3])
def test_where_halves_go_is_read_from_the_codes(convention, zero_point):
    x = (np.arange(24, dtype=np.float32).reshape(4, 6) - 12) / 2
    findings = diagnosed(x, f"int8 asymmetric given(1, zero_point={zero_point}) {convention}")
    assert "ties" in [f.kind for f in findings]


# No false alarms

HEALTHY = {
    "normal": ["int8", "int8 per_channel(0)", "int4 per_group(32)"],
    "uniform": ["int8", "int4 per_channel(0)"],
    "bimodal": ["int8", "uint8 asymmetric"],
}  # fmt: skip
LARGE = [
    (64,),
    (1000,),
    (3, 20),
    (20, 3),
    (3, 200),
    (3, 2000),
    (8, 4, 3, 3),
    (6, 5, 4),
    (4, 5, 10, 10),
    (40, 1),
    (1, 40),
]


@in_parts(11)
@for_each("shape", LARGE, ids=str)
def test_no_outlier_is_claimed_in_healthy_tensors_of_any_rank(shape, part):
    """Healthy tensors have no findings in these schemes."""
    alarms = []
    for seed in part(range(8)):
        for name, schemes in HEALTHY.items():
            scheme = schemes[seed % len(schemes)]
            if "per_group" in scheme and (shape[-1] < 32 or shape[-1] % 32):
                scheme = schemes[0]
            if "per_channel" in scheme and math.prod(shape) // shape[0] < 16:
                scheme = schemes[0]
            alarms += [
                (name, scheme, seed, f.sentence)
                for f in diagnosed(tensors.generate(Generated(name, shape, seed)), scheme)
            ]
    assert alarms == []


def sentences(x, scheme):
    return {finding.kind: finding.sentence for finding in diagnosed(np.asarray(x, np.float32), scheme)}


def test_of_so_many_others_one_element_stands_out():
    """At least three others are needed; with two, nobody could say what is usual."""
    assert "outlier_element" not in sentences([1.0, -1.2, 100.0], "int4")
    assert "outlier_element" in sentences([1.0, -1.2, 0.9, 100.0], "int4")


def test_groups_are_small_up_to_a_size():
    x = plain((16, 256), 3)
    assert "small_groups" in sentences(x, "int4 per_group(8)")
    assert "small_groups" not in sentences(x, "int4 per_group(16)")


def test_a_narrower_range_of_channels_of_different_sizes():
    """The largest |x| in the sentence is that of all channels."""
    x = np.random.default_rng(5).standard_t(5, size=(4, 2000)) * [[1], [2], [30], [4]]
    largest = many(x, "int4 per_channel(0)")["clips_too_little"].facts["largest"]
    assert largest == np.abs(x.astype(np.float32)).max()


@for_each(("bits", "enough"), [(5, 4), (6, 4), (4, 3), (8, 2)])
def test_as_many_bits_are_spare_as_the_values_leave(bits, enough):
    most = 2 ** (enough - 1) - 1
    x = np.resize(np.arange(-most, most + 1), (4, 15))
    assert many(x, f"int{bits} given(1)")["spare_bits"].facts["bits"] == enough


def test_a_channel_of_two_elements_stands_out():
    x = plain((16, 2), 1)
    x[5] *= 100
    assert "outlier_channel" in sentences(x, "int8")


def test_of_four_channels_one_stands_out_and_of_eight_two():
    for channels, most in ((4, 1), (8, 2)):
        for larger in (1, 2, 3):
            x = plain((channels, 64), 2)
            x[:larger] *= 50
            assert ("outlier_channel" in sentences(x, "int4")) == (larger <= most), (channels, larger)


@for_each(("times", "found"), [(6, True), (4, False)])
def test_in_few_elements_a_channel_must_be_larger_to_stand_out(times, found):
    """For 16 elements, the limit is 4.5 times the others."""
    x = np.where(np.indices((4, 4)).sum(0) % 2, 1.0, -0.9)
    x[1] *= times
    assert ("outlier_channel" in sentences(x, "int4")) == found


def test_the_worst_of_the_elements_that_wrapped_comes_first():
    x = np.full((4, 8), 0.25)
    x[0, 1], x[2, 3], x[3, 3] = 0.9, 1.5, 0.8  # in steps of 0.1: 9, 15 and 8; the largest code is 7
    result = qc.apply(x.astype(np.float32), qc.Scheme.parse("int4 given(0.1) textbook(overflow=wrap)"))
    (finding,) = [f for f in qc.diagnose(result) if f.kind == "wrapped"]
    worst = np.unravel_index(np.abs(result.error.numpy()).argmax(), x.shape)
    assert tuple(start for start, _ in finding.boxes[0]) == worst
    assert finding.facts["at"] == worst
    assert worst != (0, 1), "the first element that wrapped must not be the worst, or the test shows nothing"


# Both sides of every limit


def many(x, scheme):
    """The findings by kind."""
    return {finding.kind: finding for finding in diagnosed(np.asarray(x, np.float32), scheme)}


def ones(*shape):
    """Alternating 1 and -0.9: nothing is one-sided or constant."""
    return np.where(np.indices(shape).sum(0) % 2, -0.9, 1.0)


@for_each(
    ("n", "times", "found"),
    [(16, 4, True), (16, 3.9, False), (16, 4.1, True), (40, 4, True), (40, 3.9, False), (15, 4.2, False),
     (15, 4.3, True), (8, 7.9, False), (8, 8, True)],
)  # fmt: skip
def test_how_far_an_element_must_be_from_the_others(n, times, found):
    x = ones(n)
    x[1] = times
    assert ("outlier_element" in many(x, "int4")) == found


@for_each(("others", "found"), [(2, False), (3, True)])
def test_zeros_are_no_others(others, found):
    x = np.zeros(12)
    x[:others] = ones(others)
    x[9] = 100
    assert ("outlier_element" in many(x, "int4")) == found


@for_each(
    ("blocks", "bad", "found"),
    [(16, 1, True), (17, 1, False), (33, 2, False), (32, 2, True), (1040, 65, True), (1056, 65, False)],
)
def test_a_sixteenth_of_the_blocks_must_have_an_outlier(blocks, bad, found):
    x = ones(blocks, 16)
    x[:bad, 3] = 50 + np.arange(bad)
    assert ("outlier_element" in many(x, "int8 per_channel(0)")) == found


@for_each(
    ("bad", "words"), [(1, ""), (2, " 2 blocks"), (64, " 64 blocks"), (65, " At least 64 blocks")]
)
def test_so_many_blocks_with_outliers_are_looked_at(bad, words):
    x = ones(max(bad, 4), 16)
    x[:bad, 3] = 50 + np.arange(bad)
    finding = many(x, "int8 per_channel(0)")["outlier_element"]
    told = finding.sentence.partition(" without.")[2].partition(" The fix")[0]
    assert told == (f"{words} have such an outlier." if words else "")
    assert (finding.facts["blocks"], finding.facts["at_least"]) == (min(bad, 64), bad > 64)
    assert len(finding.boxes) == min(bad, 64)


@for_each("noise", [0.12, 0.15])
def test_an_outlier_that_hardly_matters_is_not_claimed(noise):
    """The others happen to be close to the codes, so without the outlier almost as much would be lost."""
    x = np.resize(np.arange(-31, 32), 400) + np.random.default_rng(2).uniform(-noise, noise, 400)
    x[100] = 127
    others = np.delete(x, 100)
    now = sum((others - np.rint(others)) ** 2)
    step = np.abs(others).max() / 127
    without = sum((others - np.rint(others / step) * step) ** 2)
    assert abs(10 * math.log10(now / without)) < 3
    assert "outlier_element" not in many(x, "int8")


@for_each(("times", "found"), [(4.4, False), (4.5, False), (4.55, True)])
def test_how_far_a_channel_of_16_elements_must_be_from_the_others(times, found):
    x = np.where(np.indices((4, 4)).sum(0) % 2, 1.0, -0.9)
    x[1] = times * np.array([1, -1, 1, -1])
    assert ("outlier_channel" in many(x, "int4")) == found


def test_channels_of_zeros_are_not_the_next_largest():
    x = np.zeros((8, 64))
    x[:2] = plain((2, 64))
    x[0] *= 100
    assert many(x, "int4")["outlier_channel"].facts["channels"] == (0,)


@for_each(("exceed", "found"), [(2, False), (3, True), (4, True)])
def test_so_many_elements_of_a_channel_exceed_the_others(exceed, found):
    """More than a quarter of the channel's 8 elements must exceed the others."""
    x = ones(12, 8)
    x[3] = 1
    x[3, :exceed] = 50
    assert ("outlier_channel" in many(x, "int8")) == found
    x[5] = 60
    assert ("outlier_channel" in many(x, "int8")) == found  # also next to a larger one


@for_each(("groups", "found"), [(16, True), (17, False)])
def test_a_sixteenth_of_the_runs_must_have_an_outlier_channel(groups, found):
    x = ones(8, 16 * groups)
    x[:, 5] = 50 * ones(8)
    assert ("outlier_channel" in many(x, "int8 per_group(16)")) == found


@for_each("runs", [2, 64, 65])
def test_so_many_runs_are_looked_at(runs):
    x = ones(8, 4 * runs)
    x[:, 1::4] *= 40 + np.arange(runs)
    finding = many(x, "int8 per_group(4)")["outlier_channel"]
    assert len(finding.boxes) == min(runs, 64)
    assert finding.facts["runs"] == min(runs, 64)


def test_the_last_run_of_channels_is_shorter():
    x = ones(6, 70)
    x[:, 66] *= 50
    assert many(x, "int8 per_group(16)")["outlier_channel"].facts["among"] == (64, 70)


def test_one_channel_sets_and_two_set():
    x = ones(20, 24)
    x[:, 7] *= 50
    said = many(x, "int8")["outlier_channel"].sentence
    assert said.startswith("Column 7 (max |x| 50) sets the scale of the others (max |x| 1). ")
    assert " dB with it, " in said
    x[:, 9] *= 40
    said = many(x, "int8")["outlier_channel"].sentence
    assert said.startswith("Columns 7 and 9 (max |x| 50) set the scale of the others (max |x| 1). ")
    assert " dB with them, " in said


@for_each(("value", "kind"), [(0.0, "zero_block"), (0.7, "constant_block")])
@for_each(("n", "found"), [(3, False), (4, True)])
def test_blocks_of_so_many_equal_elements(value, kind, n, found):
    x = ones(5, n)
    x[2] = value
    assert (kind in many(x, "int8 per_channel(0)")) == found


@for_each(("dead", "found"), [(15, False), (16, True)])
def test_so_many_blocks_may_be_zero_by_chance(dead, found):
    """Half of the others are 0, so chance makes 4 of 64 blocks of 4 zero; three times that plus 3 is normal."""
    x = ones(64, 4)
    x[:, :2] = 0
    x[:dead] = 0
    assert ("zero_block" in many(x, "int8 per_channel(0)")) == found


@for_each(("rows", "words"), [(1, " The scale, "), (2, " The first scale, ")])
def test_the_scale_of_one_and_of_two_dead_rows(rows, words):
    x = ones(5, 8)
    x[2 : 2 + rows] = 0
    assert words in many(x, "int8 per_channel(0)")["zero_block"].sentence


def test_of_one_element_it_is_said_in_the_singular():
    (finding,) = [f for f in diagnosed(np.float32(8e-41).reshape(()), "int8") if f.kind == "tiny_block"]
    assert finding.sentence.startswith("The only element has |x| ≤ 8")


@for_each("scheme", ["int8 per_channel(0)", "bf16 per_channel(0)"])
def test_of_several_tiny_rows_the_first_scale_and_the_largest_element(scheme):
    x = ones(5, 8)
    for row, size in ((1, 2e-39), (2, 8e-39), (4, 4e-39)):
        x[row] *= size
    result = qc.apply(np.asarray(x, np.float32), qc.Scheme.parse(scheme))
    (finding,) = [f for f in qc.diagnose(result) if f.kind == "tiny_block"]
    scale = float(result.scale.reshape(-1)[1 if "int" in scheme else 0])
    assert finding.facts["scale"] == scale
    if "int" in scheme:
        assert finding.facts["blocks"] == 3
        assert finding.facts["largest"] == float(np.float32(8e-39))
        assert finding.boxes[0] == ((1, 2), (0, 8))


@for_each(
    ("kind", "x", "scheme"),
    [("wrapped", 10 * ones(20, 20), "int4 given(1) textbook(overflow=wrap)"),
     ("clipped_too_much", 10 * ones(20, 20), "int4 given(1)"),
     ("negatives_lost", -ones(20, 20) ** 2, "uint8 given(0.02)"),
     ("ties", ones(20, 20).round() / 2, "int8 given(1)"),
     ("nan", np.full((20, 20), np.nan), "int8 torchao"),
     ("zero_block", np.vstack([np.zeros((300, 8)), ones(3, 8)]), "int8 per_channel(0)"),
     ("zero_point_outside", ones(300, 4), "int8 per_channel(0) given(0.1, zero_point=200)")],
)  # fmt: skip
def test_256_boxes_are_drawn_of_more(kind, x, scheme):
    assert len(many(x, scheme)[kind].boxes) == 256


def test_256_outlier_channels_are_drawn_of_more():
    x = np.hstack([ones(4, 900), 50 * ones(4, 300)]).astype(np.float32)
    (finding,) = [f for f in qc.diagnose(qc.apply(x, qc.Scheme())) if f.kind == "outlier_channel"]
    assert finding.boxes == tuple(((0, 4), (i, i + 1)) for i in range(900, 1156))
    assert finding.sentence.startswith("Columns 900, 901, 902 and 297 more (max")


@for_each(("low", "found"), [(-0.5, False), (-0.51, True)])
def test_what_rounds_to_0_is_not_lost(low, found):
    x = np.linspace(0.5, 90.2, 32)
    x[3] = low
    assert ("negatives_lost" in many(x, "uint8 given(1)")) == found


@for_each(
    ("kind", "words", "make", "scheme"),
    [("clipped_too_much", ("1 element (3.12 %) lies outside the range and is clipped", "2 elements (6.25 %) lie outside the range and are clipped"),
      lambda n: np.r_[np.full(n, 9.0), ones(32 - n)], "int8 fixed(-1, 1)"),
     ("nan", ("1 element of x is NaN", "2 elements of x are NaN"), lambda n: np.r_[np.full(n, np.nan), ones(32 - n)], "int8 torchao"),
     ("zero_not_exact", ("1 element (3.12 %) is exactly 0 but dequantizes to", "2 elements (6.25 %) are exactly 0 but dequantize to"),
      lambda n: np.r_[np.zeros(n), np.linspace(-0.31, 1, 32 - n)], "uint4 asymmetric hqq"),
     ("ties", ("1 element at (0) lies exactly halfway between two codes and is rounded",
               "2 elements, such as (0), lie exactly halfway between two codes and are rounded"),
      lambda n: np.r_[np.full(n, 2.5), 4 * ones(32 - n)], "int8 given(1)"),
     ("wrapped", ("1 code does not fit int4", "2 codes do not fit int4"),
      lambda n: np.r_[np.full(n, 1.5), np.full(32 - n, 0.25)], "int4 given(0.1) textbook(overflow=wrap)"),
     ("negatives_lost", ("1 element is negative, down to -3,", "2 elements are negative, down to -3,"),
      lambda n: np.r_[np.full(n, -3), np.linspace(0.5, 4, 32 - n)], "uint8 given(0.02)"),
     ("negatives_lost", ("1 element is negative, down to -3,", "2 elements are negative, down to -3,"),
      lambda n: np.r_[np.full(n, -3), np.linspace(0.5, 4, 32 - n)], "float(4, 3, sign=dropped)"),
     ("scale_out_of_range", ("1 of 8 scales (12.5 %) is too small for fp16", "2 of 8 scales (25 %) are too small for fp16"),
      lambda n: ones(8, 32) * np.where(np.arange(8) < n, 1e-9, 1)[:, None], "int4 per_channel(0) scales(fp16 given(1))"),
     ("scale_out_of_range", ("1 of 8 mins (12.5 %) is too small for fp16", "2 of 8 mins (25 %) are too small for fp16"),
      lambda n: ones(8, 32) * np.where(np.arange(8) < n, 1e-9, 1)[:, None], "uint4 asymmetric per_group(32) scales(fp16 given(1)) gguf.Q4_1")],
)  # fmt: skip
@for_each("n", some([1, 2], 2))
def test_one_is_and_two_are(kind, words, make, scheme, n):
    """What follows the subject agrees with it, too (claims.py)."""
    assert many(make(n), scheme)[kind].sentence.startswith(words[n - 1])


@for_each(("n", "found"), [(100, True), (101, False), (16384, False)])
def test_ties_are_told_from_a_hundredth_on(n, found):
    x = 4 * ones(n)
    x[7] = 2.5
    assert ("ties" in many(x, "int8 given(1)")) == found


@for_each(("n", "words"), [(16384, "8,192 elements, such as (0),"), (16385, "About ")])
def test_of_large_tensors_a_sample_is_read(n, words):
    assert many(np.resize([2.5, 4.8], n), "int8 given(1)")["ties"].sentence.startswith(words)


@for_each(
    ("n", "low", "found"), [(4, -1, True), (3, -1, False), (40, -1, True), (40, -1.05, False)]
)
def test_one_side_is_so_much_smaller(n, low, found):
    x = np.linspace(low, 10, n)
    assert ("one_sided" in many(x, "int4")) == found


@for_each(("sided", "found"), [(8, False), (9, True), (10, True)])
def test_nine_of_ten_blocks_are_one_sided(sided, found):
    x = np.linspace(-1, 1, 32) * np.ones((10, 1))
    x[:sided] = np.linspace(0, 1, 32)
    assert ("one_sided" in many(x, "int4 per_channel(0)")) == found


@for_each(("low", "found"), [(-63.4, True), (-64.4, False)])
def test_half_of_the_codes_are_used(low, found):
    assert ("codes_unused" in many(np.linspace(low, 63.4, 1001), "int8 given(1)")) == found


@for_each(("n", "found"), [(16, False), (20, True)])
def test_of_so_few_elements_groups_are_not_small(n, found):
    assert ("small_groups" in many(plain((n,), 1), "int4 per_group(4)")) == found


SIZES = {
    "negatives_lost": (8, 8), "zero_not_exact": (16, 16), "one_sided": (16, 16), "outlier_channel": (16, 16),
    "outlier_element": (16, 16), "clipped_too_much": (16, 16), "clips_too_little": (128, 256),
    "codes_unused": (16, 16), "per_channel": (512, 64), "small_groups": (32, 64), "scale_out_of_range": (16, 64),
    "half_precision": (16, 64),
}  # fmt: skip


def test_sizes_of_the_examples():
    generated = {kind: e.load().shape for kind, e in EXAMPLES.items() if isinstance(e.tensor, Generated)}
    assert generated == SIZES


@for_each(
    ("rank", "axis", "places", "words"),
    [(2, 0, [8], "Row 8"), (2, 1, [8], "Column 8"), (2, 1, [3, 8], "Columns 3 and 8"), (2, 0, [1, 3, 8], "Rows 1, 3 and 8"),
     (2, 0, [1, 3, 8, 9], "Rows 1, 3, 8 and 1 more"), (3, 1, [4], "Channel 4 of axis 1"),
     (3, 2, [0, 1, 2, 5, 6, 7], "Channels 0, 1, 2 and 3 more of axis 2"), (1, 0, [2], "Channel 2 of axis 0")],
)  # fmt: skip
def test_how_channels_are_named(rank, axis, places, words):
    assert record.channels(rank, axis, places) == words


def test_how_numbers_are_written():
    assert [along(2, 0), along(2, 1)] == ["row (axis 0)", "column (axis 1)"]
    assert [along(1, 0), along(3, 2)] == ["index of axis 0", "index of axis 2"]
    assert record.percent(0.12345) == "12.3 %"
    # all and none are said only of all and none
    shares = (1.0, 0.99996, 0.0, 1 / 3000, 1e-9, 0.010001, 0.020004, 0.5)
    assert [record.percent(share) for share in shares] == [f"{v} %" for v in ("100", "99.996", "0", "0.0333", "1e-07", "1", "2", "50")]
    assert record.gains(10.0, 13.26) == "gains 3.3 dB SQNR"
    assert record.gains(10.0, math.inf) == "takes the SQNR from 10.0 dB to exact"


@for_each(
    ("scheme", "shape", "fix"),
    some_rows([("int4 per_group(4)", (8, 256), "int8 per_group(16)"), ("int2 per_group(8)", (8, 256), "int4 per_group(16)"),
     ("int4 per_group(4)", (2, 16), "int8 per_group(16)"), ("int3 per_group(5)", (4, 160), "int8 per_group(32)"),
     ("int4 per_group(7)", (2, 448), "int8 per_group(64)"), ("int3 per_group(6)", (2, 384), "int8 per_group(128)"),
     ("int4 per_group(4)", (6, 8), "int8"), ("int4 per_group(2)", (8, 256), "int16 per_group(16)"),
     ("int4 per_group(2)", (4, 8), "int16"), ("int4 per_group(2, axis=0)", (256, 8), "int16 per_group(16, axis=0)"),
     ("int4 per_group(4, axis=0)", (64, 2, 2), "int8 per_group(16, axis=0)"),
     ("int4 per_flat_group(4)", (8, 256), "int8 per_group(16, axis=1)"),
     ("int4 per_flat_group(4)", (3, 4, 64), "int8 per_group(16, axis=2)"),
     ("int4 per_block([2,2])", (8, 64), "int8 per_group(16, axis=1)"),
     ("uint4 asymmetric per_group(4)", (8, 256), "uint8 asymmetric per_group(16)")], 5),
)  # fmt: skip
def test_the_smallest_of_the_larger_groups_within_the_storage(scheme, shape, fix):
    """A common bit width is proposed if it fits: with groups of n, the scales take 32 / n bits per element."""
    x = plain(shape, 1)
    found = qc.diagnose(qc.apply(x, qc.Scheme.parse(scheme)))
    (finding,) = [f for f in found if f.kind == "small_groups"]
    expected = qc.apply(x, qc.Scheme.parse(fix))
    assert finding.fix.format == expected.scheme.format
    assert qc.apply(x, finding.fix).block == expected.block  # its axis may count from the end


@for_each(("over", "found"), [(23.8, False), (24.2, True), (24.8, True)])
@for_each("bits", [4, 8, 12])
def test_values_closer_to_the_codes_than_chance_leaves_need_fewer_bits(bits, over, found):
    """±1 plus small errors: 2 bits give the same SQNR. Beyond 6.02 dB per bit plus 24 dB, this is not by chance."""
    rng = np.random.default_rng(0)
    noise = np.abs(rng.standard_normal((32, 32)))
    noise *= 10 ** (-(6.02 * bits + over) / 20) / np.sqrt((noise**2).mean())
    x = np.sign(rng.standard_normal((32, 32))) * (1 - noise)
    x[0, :2] = 1, -1
    assert ("spare_bits" in many(x.astype(np.float32), f"int{bits}")) == found


def finest(x, scheme):
    """Of the schemes with finer scales and the fewest extra bits, the first with about the largest gain over 3 dB."""
    now, block = qc.Scheme.parse(scheme), math.prod(qc.apply(x, qc.Scheme.parse(scheme)).block)
    texts = [f"per_channel({axis})" for axis in range(x.ndim) if x.ndim > 1]
    texts += [f"per_group({n})" for n in (128, 32, 16, 8) if n <= x.shape[-1] and n < block]
    schemes = [qc.Scheme.parse(f"{now.format} {text}") for text in texts]
    schemes = [s for s in schemes if s.granularity != now.granularity]
    db = lambda s: decibels_of(x, qc.apply(x, s).dequantized.numpy())  # noqa: E731
    for more in (0.1, 1.5, 5):
        cheap = [
            s for s in schemes if qc.bits_per_element(s, x.shape) <= qc.bits_per_element(now, x.shape) + more
        ]
        better = [(db(s), s) for s in cheap if db(s) >= db(now) + 3]
        if better:
            return next(s for value, s in better if value >= max(v for v, _ in better) - 0.5)
    return None


def decibels_of(x, x_hat):
    return 10 * math.log10((x.astype(float) ** 2).sum() / ((x - x_hat).astype(float) ** 2).sum())


@for_each("scheme", ["int8", "int8 per_channel(0)"])
@for_each(
    ("shape", "near"),
    some_rows([((1, 1024), 128), ((4, 512), 32), ((40,), 8),
     ((4, 32), 32), ((256,), 128), ((64,), 32), ((32,), 16), ((16,), 8), ((9, 8), 8), ((3, 128), 128)], 5),
)  # fmt: skip
def test_the_finer_scales_proposed_for_an_outlier(shape, near, scheme):
    """The outlier's neighbors in its group of ``near`` elements are small, so this group size suits it."""
    if "channel" in scheme and len(shape) == 1:
        return
    x = plain(shape, 4)
    x[..., :near] *= np.float32(0.01)
    x.reshape(-1)[near // 2] = 200
    finding = many(x, scheme).get("outlier_element")
    if finding is not None:
        assert str(finding.fix) == str(finest(x, scheme))
    assert finding is not None or "group" in scheme or len(shape) > 1 or near == math.prod(shape)


@pytest.mark.slow  # by default, the finer scales proposed for an outlier are those that suit its group
@for_each("group", [128, 32, 16, 8])
def test_the_groups_that_libraries_have_are_proposed_for_an_outlier(group):
    """Next to the outlier, its group of this size holds zeros and a few small numbers; what lies beyond loses nothing."""
    x = plain((1, 2 * group), 3)
    x[0, :group] = 0
    x[0, :5] = 100, 0.1, 0.1, -0.1, 0.1
    fix = many(x, "int8")["outlier_element"].fix
    assert str(fix) == str(finest(x, "int8")) == f"int8 symmetric per_group({group}) min_max textbook"


@for_each(
    ("x", "words"), [(np.full((4, 8), 0.3), "1 code: 2 bits"), (0.3 * np.sign(ones(4, 8)), "2 codes: 2 bits")]
)
def test_one_code_is_used_and_two_are(x, words):
    assert many(x, "int8")["spare_bits"].sentence.startswith(f"x uses only {words} instead of 8 are enough.")


@for_each(("n", "words"), [(1, "With 1 element per scale"), (2, "With 2 elements per scale")])
def test_groups_of_one_and_of_two(n, words):
    x = np.random.default_rng(8).standard_normal((4, 64)) ** 3
    finding = many(x, f"int2 per_group({n})").get("small_groups")
    assert finding is None or finding.sentence.startswith(words)
    assert finding is None or finding.facts["elements"] == n
    assert finding is not None or n == 1


def test_a_range_per_block_on_either_side_of_0():
    """Blocks above and below 0: the codes that symmetric ones spend are counted for each."""
    x = np.abs(plain((8, 32))) + np.float32(0.2)
    x[2:5] *= -1
    (finding,) = [f for f in diagnosed(x, "int8 per_channel(0)") if f.kind == "one_sided"]
    assert [finding.facts[name] for name in ("above", "below")] == [5, 3]
    assert [finding.facts[name] for name in ("unused", "codes")] == [5 * 128 + 3 * 127, 8 * 256]


def test_asymmetry_is_not_credited_with_what_another_range_gains():
    x = np.abs(plain((16, 32))) + np.float32(0.01)
    kinds = many(x, "int8 fixed(-60, 60)")
    assert "codes_unused" in kinds
    assert "one_sided" not in kinds or " over a symmetric one." in kinds["one_sided"].sentence
