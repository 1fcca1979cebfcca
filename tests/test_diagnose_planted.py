"""Each kind of finding over ranks 0 to 4 and shapes from 1×1 to 3×2000: planted it is found, elsewhere it is not claimed,
and every sentence is evaluated (`diagnosed`)."""

import math
import re

import numpy as np
import pytest
from diagnosed import PATTERNS, VARIANTS, check

import quantcore as qc
from quantcore import tensors
from quantcore.diagnosis import FOLLOWS, KINDS
from quantcore.diagnosis.examples import EXAMPLES
from quantcore.tensors import Generated

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SHAPES = [
    (), (1,), (7,), (2000,), (1, 1), (1, 8), (8, 1), (3, 3), (3, 20), (20, 3), (8, 16), (3, 200), (8, 500), (3, 2000),
    (1, 3, 1), (2, 3, 8), (5, 4, 3), (1, 1, 1, 1), (2, 2, 2, 2), (8, 4, 3, 3), (4, 5, 10, 10),
]  # fmt: skip


def plain(shape, seed=0):
    """Numbers of 0.5 to 1 in size with both signs: nothing is wrong with them."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 1, shape) * rng.choice([-1.0, 1.0], shape)
    return np.asarray(x, np.float32)


def one(x, value):
    """x with its last element replaced."""
    x = x.copy()
    x[tuple(n - 1 for n in x.shape)] = value
    return x


def spread(shape, low, high):
    """Different numbers from low to high."""
    n = math.prod(shape)
    order = np.random.default_rng(1).permutation(n)
    return np.linspace(low, high, n, dtype=np.float32)[order].reshape(shape)


def halves(shape):
    """Half a step beside a code of int4, where the largest is 1: all positive."""
    return np.resize((np.arange(7, dtype=np.float32) + 0.5) / 7, shape)


def fewer(shape, n):
    return math.prod(shape) < n


def outlier_axes(shape):
    """Axes along which a channel can be an outlier: of two channels or more, of two elements or more."""
    return [axis for axis, n in enumerate(shape) if n > 1 and math.prod(shape) // n > 1 and len(shape) > 1]


def with_outlier(shape, axis):
    x = plain(shape)
    np.moveaxis(x, axis, 0)[shape[axis] // 2] *= 100
    return x


def tails(shape):
    """Many of size 1 and a few of 2.5: at 2 bits, whose only positive code is 1, the few push the many to 0."""
    x = plain(shape) / 2
    x.reshape(-1)[::40] *= 3.6
    return x


def steep(shape, axis):
    """Channels of sizes 1, 0.5, 0.25, …"""
    x = np.moveaxis(plain(shape), axis, 0)
    for i in range(len(x)):
        x[i] *= 0.5**i
    return np.ascontiguousarray(np.moveaxis(x, 0, axis))


def a_scale_is_cheap(shape):
    """The axis whose scales cost less than 1 % of int8's storage, and along which there are 4 channels or more."""
    found = [a for a, n in enumerate(shape) if n > 4 and 32 * n < 0.01 * 8 * math.prod(shape)]
    return found[0] if found else None


def first_rows(shape, value):
    """A tensor and granularity in which one block holds one value."""
    x = plain(shape)
    if len(shape) > 1 and shape[0] > 1 and math.prod(shape[1:]) >= 4:
        x[0] = value
        return x, "per_channel(0)"
    return np.full_like(x, value), "per_tensor"


# kind -> shape -> (tensor, scheme), or the reason why no tensor of this shape can have it
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
    "clips_too_little": lambda s: "clipping one of few costs more than the others gain" if fewer(s, 180) else
        (tails(s), "int2"),
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
    "ties": lambda s: (2 * np.floor(2 * plain(s)) + np.float32(0.5), "int8 given(1)"),
}  # fmt: skip


def diagnosed(x, scheme):
    """The findings, each of them evaluated."""
    result = qc.apply(x, qc.Scheme.parse(scheme))
    findings = qc.diagnose(result)
    for finding in findings:
        check(result, finding)
    return findings


def test_every_kind_is_planted_and_evaluated():
    variants = {name for names in VARIANTS.values() for name in names}
    assert set(PLANTED) == set(KINDS) == set(PATTERNS) - variants


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_planted_is_found_in_every_shape(kind, shape):
    planted = PLANTED[kind](shape)
    if isinstance(planted, str):
        for scheme in ("int8", "int4", "int2", "int8 given(0.1)"):
            assert kind not in [f.kind for f in diagnosed(plain(shape), scheme)], planted
        return
    kinds = [finding.kind for finding in diagnosed(*planted)]
    assert {kind, *FOLLOWS.get(kind, ())} & set(kinds), kinds


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_sentence_of_the_examples_is_true(kind):
    assert diagnosed(EXAMPLES[kind].load(), EXAMPLES[kind].scheme)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("size", "scheme"),
    [(1e-40, "int8 per_channel(0) torchao"), (1e-10, "int8 per_channel(0) torch.fake_quantize"),
     (1e-40, "int8 per_channel(0) onnxruntime"), (1e-10, "int8 per_channel(0) aimet.Quantize"),
     (1e-13, "int8n per_channel(0) brevitas"), (1e-40, "int8 per_channel(0) quanto")],
)  # fmt: skip
def test_what_is_too_small_for_a_library(size, scheme, rows):
    """0.0 dB is not "No known problem", whichever way a library bounds its scales."""
    x = plain((5, 8))
    assert "tiny_block" not in [f.kind for f in diagnosed(x, scheme)]
    x[1 : 1 + rows] *= np.float32(size)
    result = qc.apply(x, qc.Scheme.parse(scheme))
    lost = x[1] - result.dequantized.numpy()[1]
    kinds = [f.kind for f in diagnosed(x, scheme)]
    assert ("tiny_block" in kinds) or np.abs(lost).max() < np.abs(x[1]).max() / 100


# Outlier channels


@pytest.mark.parametrize("scheme", ["int4", "int8", "uint8 asymmetric", "int8 per_channel({other})"])
@pytest.mark.parametrize(("shape", "axis"), [(s, a) for s in SHAPES for a in outlier_axes(s)], ids=str)
def test_an_outlier_channel_is_found_along_any_axis(shape, axis, scheme):
    other = next(a for a in range(len(shape)) if a != axis)
    x = with_outlier(shape, axis)
    found = [f for f in diagnosed(x, scheme.format(other=other)) if f.kind == "outlier_channel"]
    box = tuple((n // 2, n // 2 + 1) if i == axis else (0, n) for i, n in enumerate(shape))
    if "{" in scheme and math.prod(shape) // shape[other] == shape[axis]:
        return  # the other axis leaves one element of each channel, which is an outlier element
    assert [f for f in found if f.boxes == (box,)], found


def without(x, axis, channel):
    """The others' SQNR in dB at int8: now, and after the channel was made as its largest neighbour."""
    others = np.delete(x, channel, axis)
    error = np.delete(x - qc.apply(x, qc.Scheme()).dequantized.numpy(), channel, axis)
    alone = others - qc.apply(others, qc.Scheme()).dequantized.numpy()
    return [
        10 * math.log10((others.astype(float) ** 2).sum() / (e.astype(float) ** 2).sum())
        for e in (error, alone)
    ]


@pytest.mark.parametrize(
    "shape", [(3, 20), (20, 3), (3, 200), (3, 2000), (8, 4, 3, 3), (2, 3, 8), (16, 16), (64, 128)], ids=str
)
def test_no_false_all_clear_with_a_generated_outlier_channel(shape):
    """Where the others would have two bits and a half more without the column, something is said."""
    lost = 0
    for seed in range(6):
        x = tensors.generate(Generated("outlier_channel", shape, seed))
        columns = np.abs(x).reshape(-1, shape[-1]).max(0)
        now, alone = without(x, -1, int(columns.argmax()))
        kinds = {f.kind for f in diagnosed(x, "int4")} & {f.kind for f in diagnosed(x, "int8")}
        if alone - now > 15:
            lost += 1
            assert kinds & {"outlier_channel", "outlier_element"}, (seed, now, alone)
    assert lost


def test_two_outlier_channels_of_many():
    x = plain((4, 24))
    x[:, [3, 17]] *= np.array([60, 25], np.float32)
    (finding,) = [f for f in diagnosed(x, "int8") if f.kind == "outlier_channel"]
    assert finding.sentence.startswith("Columns 3 and 17 (max")
    assert finding.boxes == (((0, 4), (3, 4)), ((0, 4), (17, 18)))
    x = plain((2, 40, 3))
    x[:, ::9] *= 50
    (finding,) = [f for f in diagnosed(x, "int8") if f.kind == "outlier_channel"]
    assert finding.sentence.startswith("Channels 0, 9, 18 and 2 more of axis 1 (max")


def test_outlier_channels_of_groups():
    x = plain((6, 64))
    x[:, 5] *= 50
    x[:, 40] *= 90
    (finding,) = [f for f in diagnosed(x, "int8 per_group(16)") if f.kind == "outlier_channel"]
    assert "Column 40 (max" in finding.sentence
    assert "among 32–47" in finding.sentence
    assert [box[1][0] for box in finding.boxes] == [40, 5]
    assert finding.sentence.endswith("2 runs of channels have outlier channels.")
    x[:, [5, 40]] = plain((6, 2))
    assert diagnosed(x, "int8 per_group(16)") == []


def test_outlier_elements_of_several_blocks():
    x = plain((8, 32))
    for row, column in ((1, 4), (3, 30), (6, 0)):
        x[row, column] = 40 + row
    (finding,) = [f for f in diagnosed(x, "int8 per_channel(0)") if f.kind == "outlier_element"]
    assert finding.sentence.startswith("Outlier 46 at (6, 0) sets")
    assert finding.sentence.endswith(" 3 blocks have such an outlier.")


@pytest.mark.parametrize("bad", [3, 7])
def test_several_blocks_of_different_constants(bad):
    x = plain((9, 6))
    for row in range(bad):
        x[row] = row + 1
    (finding,) = diagnosed(x, "int8 per_channel(0)")
    assert finding.sentence.startswith(
        f"In {bad} of 9 blocks all elements are equal; in the first, row 0, they"
    )
    x[:bad] = 0
    assert {f.kind for f in diagnosed(x, "int8 per_channel(0)")} == {"zero_block"}
    x[:bad] = 1e-41
    assert "tiny_block" in {f.kind for f in diagnosed(x, "int8 per_channel(0)")}


@pytest.mark.parametrize(
    "convention", ["textbook", "torch.fake_quantize", "torch.quantize_per_tensor", "onnxruntime"]
)
@pytest.mark.parametrize("zero_point", [0, 3])
def test_where_halves_go_is_read_from_the_codes(convention, zero_point):
    x = (np.arange(24, dtype=np.float32).reshape(4, 6) - 12) / 2
    findings = diagnosed(x, f"int8 asymmetric given(1, zero_point={zero_point}) {convention}")
    assert "ties" in [f.kind for f in findings]


# No false alarm

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


@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_no_outlier_is_claimed_in_healthy_tensors_of_any_rank(shape):
    """What small blocks show by chance (ties, one side of 0) may be said, outliers and bad ranges not."""
    alarms = []
    for seed in range(8):
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
    """From three others on; of two nobody can say which of them is usual."""
    assert "outlier_element" not in sentences([1.0, -1.2, 100.0], "int4")
    assert "outlier_element" in sentences([1.0, -1.2, 0.9, 100.0], "int4")


def test_groups_are_small_up_to_a_size():
    x = plain((16, 256), 3)
    assert "small_groups" in sentences(x, "int4 per_group(8)")
    assert "small_groups" not in sentences(x, "int4 per_group(16)")


@pytest.mark.parametrize(("count", "verb"), [(1, "1 code does"), (2, "2 codes do"), (3, "3 codes do")])
def test_one_code_does_and_two_do_not_fit(count, verb):
    x = np.full((4, 8), 0.25)
    x[0, :count] = 1.5
    said = sentences(x, "int4 given(0.1) textbook(overflow=wrap)")["wrapped"]
    assert said.startswith(f"{verb} not fit int4")


def test_a_narrower_range_of_channels_of_different_sizes():
    """The largest |x| that is named is that of all channels."""
    x = np.random.default_rng(5).standard_t(5, size=(4, 2000)) * [[1], [2], [30], [4]]
    said = sentences(x, "int4 per_channel(0)")["clips_too_little"]
    largest = float(re.search(r"largest \|x\|, (-?[\d.]+)", said)[1])
    assert largest == pytest.approx(np.abs(x).max(), rel=1e-3)


@pytest.mark.parametrize(("bits", "enough"), [(5, 4), (6, 4), (4, 3), (8, 2)])
def test_as_many_bits_are_spare_as_the_values_leave(bits, enough):
    most = 2 ** (enough - 1) - 1
    x = np.resize(np.arange(-most, most + 1), (4, 15))
    assert f"{enough} bits instead of {bits} are enough" in sentences(x, f"int{bits} given(1)")["spare_bits"]


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


@pytest.mark.parametrize(("times", "found"), [(6, True), (4, False)])
def test_in_few_elements_a_channel_must_be_larger_to_stand_out(times, found):
    """4.5 times the others, of 16 elements."""
    x = np.where(np.indices((4, 4)).sum(0) % 2, 1.0, -0.9)
    x[1] *= times
    assert ("outlier_channel" in sentences(x, "int4")) == found


@pytest.mark.parametrize(("count", "words"), [(1, ("1 element is negative", "it becomes 0")),
                                              (2, ("2 elements are negative", "all become 0"))])  # fmt: skip
def test_one_negative_is_lost_and_two_are(count, words):
    x = np.linspace(0.5, 4, 32).reshape(4, 8)
    x[0, :count] = -3
    said = sentences(x, "uint8 given(0.02)")["negatives_lost"]
    assert said.startswith(words[0])
    assert said.endswith(f"{words[1]}.")


def test_the_worst_of_the_elements_that_wrapped_comes_first():
    x = np.full((4, 8), 0.25)
    x[0, 1], x[2, 3], x[3, 3] = 0.9, 1.5, 0.8  # of 0.1 a code: 9, 15 and 8, one step beyond 7 and eight
    result = qc.apply(x.astype(np.float32), qc.Scheme.parse("int4 given(0.1) textbook(overflow=wrap)"))
    (finding,) = [f for f in qc.diagnose(result) if f.kind == "wrapped"]
    worst = np.unravel_index(np.abs(result.error.numpy()).argmax(), x.shape)
    assert tuple(start for start, _ in finding.boxes[0]) == worst
    assert f"at ({worst[0]}, {worst[1]})" in finding.sentence
    assert worst != (0, 1), "the first in order must not be the worst, or nothing is told"
