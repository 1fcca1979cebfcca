"""Both sides of limits of findings that only some formats, blocks or sizes reach; every fact is recomputed (claims.py)."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from claims import check
from grid import for_each
from parts import some, some_rows

import quantcore as qc
from quantcore.diagnosis import _has_error
from quantcore.diagnosis.alternatives import better_scheme
from quantcore.diagnosis.blocks import tiny_block
from quantcore.diagnosis.codes import outside
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.ranges import clips_too_little
from quantcore.range_setting import Stored

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
NORMAL = np.random.default_rng(5).standard_normal((16, 64)).astype(np.float32)


def findings(x, scheme):
    """The findings by kind, after checking each of them."""
    result = qc.apply(np.asarray(x, np.float32), qc.Scheme.parse(scheme) if isinstance(scheme, str) else scheme)
    found = qc.diagnose(result)
    for finding in found:
        check(result, finding)
    return {finding.kind: finding for finding in found}


@for_each("scheme", some(["int4 percentile(99)", "int4 percentile(97)", "int4 fixed(-100, 100)", "nf4 percentile(99)"], 2))
def test_no_outlier_sets_the_scale_of_percentiles_and_fixed_ranges(scheme):
    """Between two elements, a percentile of few moves with the largest, but it is not that element that sets the range."""
    for x in (np.r_[NORMAL[0], 100], np.vstack([NORMAL[:4, :8], 100 * NORMAL[4:5, :8]])):
        assert not {"outlier_element", "outlier_channel"} & set(findings(x, scheme))
        assert {"outlier_element", "outlier_channel"} & set(findings(x, scheme.split()[0]))


@for_each(("shape", "granularity"), [((3, 400, 450), "per_tensor"), ((1100, 500), "per_flat_group(1000)")])
def test_elements_outside_of_a_large_tensor_are_named_by_their_place(shape, granularity):
    """More elements than are read at once; the worst comes first, the others in order."""
    x = torch.zeros(shape)
    flat = [7, 499_999, 524_287, 524_288, x.numel() - 1]
    values = torch.tensor([9.0, -10.0, 30.0, 9.0, -12.0])
    x.reshape(-1)[flat] = values
    context = Context(qc.apply(x, qc.Scheme.parse(f"int4 {granularity} given(1)")))
    places = [tuple(map(int, np.unravel_index(i, shape))) for i in flat]
    pairs = list(zip(places, values.tolist(), strict=True))
    assert outside(context) == [pairs[2], *pairs[:2], *pairs[3:]]


@for_each(
    ("low", "least", "found"), [(1, -0.2, True), (1, 1.2, False), (0, -0.2, True), (-1, -0.9, False), (-1, -1.9, False)]
)
def test_negatives_are_lost_where_the_minimum_of_a_block_is_not_negative(low, least, found):
    """Codes of a format with minima begin at the minimum, here one that is given."""
    x = np.linspace(least, 2, 64).reshape(2, 32)
    finding = findings(x, f"uint4 asymmetric per_group(32) given(0.1, zero_point={low}) gguf.Q4_1").get("negatives_lost")
    assert (finding is not None) == found
    if finding is not None:
        assert finding.facts["becomes"] == low


@for_each(("rows", "words"), [(1, "become 0.5"), (2, "they become the lowest value of their block")])
def test_what_negatives_become_in_blocks_of_different_scales(rows, words):
    x = np.abs(NORMAL[:4, :8]) + np.float32(0.5)
    x[0, 0], x[1, 0] = 4, 8
    x[:rows] *= -1
    x[0, 0], x[1, 0] = 4, 8
    finding = findings(x, "codebook([0.5, 1, 2, 4]) per_channel(0)")["negatives_lost"]
    assert finding.sentence.endswith(f"{words}.")


@for_each(("times", "found"), [(3.5, False), (4.5, True)])
def test_clipping_must_cost_so_many_times_what_rounding_does(times, found):
    x = NORMAL / np.abs(NORMAL).max()
    rounding = (qc.apply(x, qc.Scheme.parse("int8 fixed(-1, 1)")).error.double() ** 2).sum().item()
    x = x.copy()
    x[:4, 0] = 1 + math.sqrt(times * rounding / 4)
    result = qc.apply(x, qc.Scheme.parse("int8 fixed(-1, 1)"))
    cost = (result.error.numpy().astype(float) ** 2)[np.abs(x) > 1 + 0.5 / 127].sum()
    rest = (result.error.numpy().astype(float) ** 2).sum() - cost
    assert (cost > 4 * rest) == found, "the case must lie on this side"
    assert ("clipped_too_much" in findings(x, "int8 fixed(-1, 1)")) == found


@for_each("name", some(sorted(qc.CONVENTIONS), 3))
def test_a_block_of_zeros_is_not_too_small(name):
    """Next to ordinary blocks, whatever scale a library gives it."""
    x = NORMAL[:4, :32].copy()
    x[3] = 0
    for fmt in ("int8", "uint4 asymmetric", "e4m3fn", "nf4"):
        try:
            result = qc.apply(x, qc.Scheme.parse(f"{fmt} per_group(32) {name}"))
        except qc.QuantError:
            continue
        assert not list(tiny_block(Context(result)))


@for_each("scheme", some(["e2m1 per_channel(0)", "nf4 per_channel(0)", "int4 per_channel(0)", "nf4 per_flat_group(64) bitsandbytes.4bit",
                                    "e2m1 per_group(16) torchao.nvfp4", "nf4 per_group(32) gguf.TQ2_0"], 4))  # fmt: skip
def test_rows_of_zeros_are_on_neither_side(scheme):
    """Libraries give them a scale of 1, of 0, or of some small number."""
    x = np.abs(NORMAL)
    x[3] = 0
    assert "one_sided" in findings(x, scheme)
    x[3] = -1 - x[4]
    assert ("one_sided" in findings(x, scheme)) == ("int" in scheme)  # of tables, all blocks must be on one side
    assert "one_sided" not in findings(np.zeros((4, 64)), scheme)


@for_each(("fmt", "other"), some_rows([("binary", "uint2"), ("ternary", "uint2"), ("e2m1", "uint4"), ("nf4", "uint4"), ("e3m2", "uint6")], 3))
def test_the_integers_that_one_sided_data_are_better_off_with(fmt, other):
    """Of as many bits, but at least 2."""
    x = np.abs(NORMAL) if fmt != "binary" else np.abs(np.sign(NORMAL) + np.sign(NORMAL[::-1]) + 1)
    finding = findings(x, fmt).get("one_sided")
    if fmt in ("ternary", "e3m2"):
        assert finding is None or str(finding.fix).startswith(f"{other} asymmetric")
    else:
        assert str(finding.fix).startswith(f"{other} asymmetric per_tensor min_max textbook")


@for_each(("noise", "found"), [(0.001, False), (0.012, False), (0.07, True)])
def test_asymmetry_is_not_credited_with_what_integers_gain(noise, found):
    """Multiples of 1/7 with some noise: symmetric int4 loses about as little as asymmetric uint4 does."""
    rng = np.random.default_rng(0)
    x = np.clip(rng.integers(0, 8, (16, 64)) / 7 + noise * rng.uniform(-1, 1, (16, 64)), 0, 1)
    x[0, 0] = 1
    db = [qc.report(qc.apply(x.astype(np.float32), qc.Scheme.parse(s))).sqnr_db for s in ("e2m1", "int4", "uint4 asymmetric")]
    assert db[2] > db[0] + 3, "asymmetric integers must be better"
    assert (db[2] >= db[1] + 3) == found, "the case must lie on this side"
    assert ("one_sided" in findings(x, "e2m1")) == found


@for_each(("low", "found"), [(1.5, False), (2.0, True)])
def test_a_zero_point_that_rounding_moves_is_not_clamped(low, found):
    """In steps of 1, the zero point would be 255 + low, and 255 is the nearest code."""
    x = np.linspace(low, low + 255, 32).reshape(4, 8)
    assert ("zero_point_clamped" in findings(-x, "uint8 asymmetric brevitas")) == found


@for_each(("least", "found"), [(-0.4, False), (-0.6, True)])
@for_each(("values", "scale"), [([0, 1, 3], 1), ([2, 3, 5], 0.25)])
def test_negatives_within_half_a_step_are_not_lost_to_a_codebook(values, scale, least, found):
    """The step is that of the two lowest values."""
    x = np.linspace(1, 5, 32)
    x[3] = least
    assert ("negatives_lost" in findings(x * scale, f"codebook({values}) given({scale})")) == found


@for_each("axis", [0, 1])
@for_each(
    ("sizes", "found"),
    [((1, 0.6, 0.4, 0.3, 0.3, 0.2, 0.2, 0.2), True), ((1, 0.5, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2), True),
     ((1, 0.7, 0.5, 0.3, 0.3, 0.3, 0.2, 0.2), False), ((0, 0, 0, 0, 0, 0, 0, 0), False)],
)  # fmt: skip
def test_a_scale_per_channel_must_gain_one_bit(axis, sizes, found):
    """Uniform channels of these sizes: the squared step of the largest over the mean of all."""
    x = np.random.default_rng(0).uniform(-1, 1, (8, 1500)) * np.array(sizes)[:, None]
    x = x if axis == 0 else np.ascontiguousarray(x.T)
    if any(sizes):
        gain = 10 * math.log10(max(sizes) ** 2 / np.mean(np.square(sizes)))
        assert (gain > 6.1, gain < 5.9) == (found, not found), "the case must lie on this side"
    finding = findings(x, "int8").get("per_channel")
    assert (finding is not None) == found
    if finding is not None:
        assert finding.facts["axis"] == axis


@for_each(("n", "found"), [(3, False), (4, True), (5, True)])
@for_each("fmt", ["e2m1", "nf4", "int4"])
def test_so_many_elements_of_a_block_are_on_one_side_by_chance(n, found, fmt):
    x = (np.arange(4 * n).reshape(4, n) % 15 + 1) / 15
    x[:, 0] = 1
    assert ("one_sided" in findings(x, f"{fmt} per_channel(0)")) == found


@for_each(
    ("scheme", "top", "found"),
    [("codebook([-4, -3, -2, -1, 0, 1, 2, 3, 4]) given(1)", 1.0, True), ("codebook([-4, -3, -2, -1, 0, 1, 2, 3, 4]) given(1)", 2.0, False),
     ("codebook([-4, -3, -2, -1, 0, 1, 2, 3]) given(1)", 1.0, True), ("codebook([-4, -3, -2, 0, 1, 3]) given(1)", 1.0, False)],
)  # fmt: skip
def test_half_of_the_values_of_a_table_are_used(scheme, top, found):
    """3 of 9, 5 of 9, 3 of 8, and exactly half: -2, 0 and 1 of 6."""
    x = np.linspace(-top, top, 33) if "-2, 0" not in scheme else np.linspace(-1.1, 1, 33)
    assert ("codes_unused" in findings(x, scheme)) == found


@for_each(("clipped", "found"), [(False, True), (True, False)])
@for_each("scheme", some(["nf4 fixed(-9, 9)", "int4 fixed(-90, 90)", "nf4 per_channel(0) given(9)"], 3))
def test_values_are_not_unused_where_some_are_clipped(scheme, clipped, found):
    x = NORMAL / 4
    x[0, 0] = 900 if clipped else 1
    assert ("codes_unused" in findings(x, scheme)) == found


@for_each(
    ("codebook", "way"),
    [("[-3, -2, -1, 0, 1, 2, 3], tie=lower", "down"), ("[-3, -2, -1, 0, 1, 2, 3], tie=upper", "up"),
     ("[-3, -2, -1, 0, 1, 2, 3], tie=away", "away from 0"), ("[0, 1, -1, 2, -2, 3, -3], tie=first", "toward 0"),
     ("[3, -3, 2, -2, 1, -1, 0], tie=first", "away from 0"), ("[1, -1, 3, -3, 0, 2, -2], tie=first", "up or down"),
     # a tie at 0 itself goes away from 0 whatever becomes of it
     ("[-0.5, 0.5, 1.5, -1.5, 2.5, -2.5, 3], tie=first", "up or down"), ("[3, -2.5, 2.5, -1.5, 1.5, -0.5, 0.5], tie=first", "away from 0")],
)  # fmt: skip
def test_which_way_ties_of_a_codebook_go(codebook, way):
    x = np.resize([-2.5, -1.5, 0.25, 1.5, 2.5, 0.5, -0.5, 3.0] if "0.5" not in codebook else [-2, -1, 0, 0.25, 1, 2, 3], 64)
    assert findings(x, f"codebook({codebook}) given(1)")["ties"].facts["way"] == way


@for_each(("rows", "words"), [((1,), "All elements of row 1 have"), ((1, 3), "All elements of 2 of 5 blocks (first: row 1) have")])
@for_each("name", ["torchao.mxfp4", "torchao.mxfp8_e4m3", "compressed_tensors.mxfp4"])
def test_blocks_that_are_divided_by_another_number_than_their_scale(name, rows, words):
    """2^-127 is subnormal in float32, and torchao divides by 2^-126 instead."""
    x = np.array(NORMAL[:5, :32])
    for size, row in zip((1e-41, 3e-40), rows, strict=False):
        x[row] = np.sign(x[row]) * size
    finding = findings(x, qc.PRESETS[name]).get("tiny_block")
    assert (finding is None) == ("torchao" not in name)
    if finding is not None:
        assert finding.sentence.startswith(words)
        assert (finding.facts["scale"], finding.facts["divisor"]) == (2.0**-127, 2.0**-126)


def test_a_scale_that_its_own_quantization_makes_0_is_no_power_that_is_divided_by_1():
    tiny = np.sign(np.array(NORMAL[:2, :32])) * 2e-34
    for stored, words in (("e8m0", "the scale is 5.877e-39, but torchao divides by 1"), ("e4m3fn", None)):
        finding = findings(tiny, f"fp16 per_group(32) torchao.mx.RCEIL scales({stored} given(1))").get("tiny_block")
        assert (finding is not None and words in finding.sentence) if words else finding is None


def test_a_mean_below_zero_that_is_added_last_leaves_negatives_their_sign():
    x = np.float32([[-7, -6, -5.5, -4], [-7, -6.5, -5, -3]])
    assert "negatives_lost" in findings(x, "uint8 asymmetric per_channel given(0.1)")
    assert "negatives_lost" not in findings(x, "uint8 asymmetric per_channel given(0.1) torchao.nf4.scales")


def test_half_of_a_subnormal_step_is_not_rounded_up_to_the_element_that_is_lost():
    """Steps are 31 times the smallest number, and the element is -16 times that."""
    x = np.array([124, -16, 31, 62], np.float32) * np.float32(2.0**-149)
    assert findings(x, "codebook([0,1,2,4])")["negatives_lost"].facts["elements"] == 1


def test_an_error_is_fixed_before_anything_else():
    """Where a fix of an error is proposed, no other scheme is; where that is not possible, one may be."""
    for x, scheme in ((NORMAL, "int4 given(0.01) textbook(overflow=wrap)"), (NORMAL, "uint4 given(0.4)"), (NORMAL, "int4 given(0.1, zero_point=90)")):
        found = findings(x, scheme)
        assert any(f.severity == "error" and f.fix for f in found.values())
        assert "better_scheme" not in found
    assert "better_scheme" in findings(NORMAL, "int4 fixed(-60, 60)") or "codes_unused" in findings(NORMAL, "int4 fixed(-60, 60)")


@for_each(
    ("kind", "x", "scheme", "fix"),
    [("zero_point_outside", (-100, 100), "int8 given(1, zero_point=128)", "uint8 given(1, zero_point=128)"),
     ("zero_point_outside", (-100, 100), "uint8 given(1, zero_point=-20)", "int8 given(1, zero_point=-20)"),
     # the codes fit uint8, but the zero point does not
     ("zero_point_outside", (-200, -50), "int8 given(1, zero_point=300)", "int8 asymmetric min_max"),
     ("wrapped", (0, 200), "int8 given(1) textbook(overflow=wrap)", "uint8 given(1)"),
     ("wrapped", (-100, 100), "uint8 given(1) textbook(overflow=wrap)", "int8 given(1)"),
     ("wrapped", (-90, 127.6), "int8 given(1) textbook(overflow=wrap)", "int8 given(1)"),
     ("wrapped", (-508, 508), "int8 given(1) textbook(overflow=wrap)", "int8 min_max"),
     ("negatives_lost", (-100, 100), "uint8 given(1)", "int8 given(1)"),
     ("negatives_lost", (-100, 150), "uint8 given(1)", "uint8 asymmetric min_max")],
)  # fmt: skip
def test_the_fix_of_wrong_codes_keeps_what_it_can(kind, x, scheme, fix):
    """Integers, or every fourth, that the other signedness, a clamp or the range of min-max gives exactly."""
    low, high = x
    values = np.arange(math.ceil(low), math.floor(high) + 1, 4 if high > 500 else 1)
    finding = findings(np.append(values, high).astype(np.float32), scheme)[kind]
    assert str(finding.fix) == str(qc.Scheme.parse(fix))


@for_each(("scheme", "size", "found"), [("int2 per_group(32) scales(e2m1 given(1))", 0.3, False), ("int2 per_group(32) scales(uint8 given(1))", 0.5, False),
                                                      ("int4 per_group(32) scales(e2m1 given(1))", 0.3, True)])  # fmt: skip
def test_a_coarse_scale_that_costs_little_is_not_told(scheme, size, found):
    """By chance, the stored scale suits the elements nearly as well."""
    result = qc.apply(NORMAL * np.float32(size), qc.Scheme.parse(scheme))
    off = abs(result.scales.dequantized - result.params.raw) > 0.25 * result.params.raw
    assert off.any()
    assert ("scale_out_of_range" in findings(NORMAL * np.float32(size), scheme)) == found


@for_each(("largest", "found"), [(28, False), (28.0625, True), (21, False), (3, True), (2.625, True), (3.5, True), (4.375, True)])
def test_a_stored_scale_may_differ_by_a_quarter(largest, found):
    """Of 1 and 3, the nearest to largest / 7; int4 with a scale a quarter off loses more than 3 dB."""
    x = NORMAL / np.abs(NORMAL).max(1, keepdims=True) * np.float32(largest)
    x = np.where(np.abs(x) > 0.75 * largest, np.sign(x) * largest, x)
    assert ("scale_out_of_range" in findings(x, "int4 per_channel(0) scales(codebook([1, 3]) given(1))")) == found


@for_each("name", ["torchao.nvfp4.1level", "torchao.nvfp4", "compressed_tensors.nvfp4", "gguf.Q4_1"])
def test_the_scale_of_a_block_of_zeros_is_never_out_of_range(name):
    """Although some libraries store another number than the 0 that it would be."""
    x = np.array(NORMAL)
    x[3], x[5] = 0, x[5] * 1e-9
    finding = findings(x, qc.PRESETS[name])["scale_out_of_range"]
    assert finding.facts["blocks"] * qc.apply(x, qc.PRESETS[name]).block[1] == 64


@for_each(("zero_point", "others"), [(0, None), (1, ("orders of operations",))])
def test_ties_that_all_rules_round_alike(zero_point, others):
    """1.5 becomes 2 by every rule, but 2.5 does if an odd zero point is added first."""
    finding = findings(np.resize([1.5, 3.5, 5.5, -6.25], 64), f"int8 asymmetric given(1, zero_point={zero_point})").get("ties")
    assert (finding and finding.facts["others"]) == others


@for_each(("scheme", "ends"), [("int4 given(1)", (-7.5, 6.5)), ("uint4 asymmetric given(1, zero_point=5)", (-4.5, 9.5))])
def test_ties_next_to_the_ends_of_the_format_count_and_those_beyond_do_not(scheme, ends):
    x = np.array([ends[0] - 1, ends[0], 0.25, ends[1], ends[1] + 1])
    assert [box[0][0] for box in findings(x, scheme)["ties"].boxes] == [1, 3]


@for_each(("scale", "zero_point", "found"), [(-0.1, 255, True), (-0.1, 0, False), (0.1, 0, True), (0.1, 255, False)])
def test_negatives_are_lost_where_all_values_of_a_file_s_scale_are_positive(scale, zero_point, found):
    """A negative scale turns the codes around: those below the zero point stand for positive numbers."""
    setting = Stored(scale=torch.tensor(scale), zero_point=torch.tensor(zero_point), origin="the file")
    scheme = dataclasses.replace(qc.Scheme.parse("uint8"), range_setting=setting)
    finding = findings(np.linspace(-2, 2, 33), scheme).get("negatives_lost")
    assert (finding is not None) == found
    assert finding is None or finding.facts["becomes"] == 0


@for_each(("scale", "minimum", "found"), [(-0.125, 2, True), (-0.125, 1.75, False), (0.125, 0, True), (0.125, -0.5, False)])
def test_negatives_are_lost_where_the_smallest_of_all_values_is_0(scale, minimum, found):
    """With a min instead of a zero point: 15 steps from it, which a negative scale makes downwards."""
    setting = Stored(scale=torch.full((1, 2), scale), zero_point=torch.full((1, 2), float(minimum)), origin="the file")
    scheme = dataclasses.replace(qc.Scheme.parse("uint4 asymmetric per_group(32) gguf.Q4_1"), range_setting=setting)
    finding = findings(np.linspace(-2, 2, 64)[None], scheme).get("negatives_lost")
    assert (finding is not None) == found
    assert finding is None or finding.facts["becomes"] == min(minimum, minimum + 15 * scale)


@for_each(
    ("x", "scheme", "severity"),
    [(NORMAL, "int8 given(0.004) textbook(overflow=wrap)", "error"), (NORMAL, "uint8 symmetric aimet.2024.Quantize", "error"),
     (NORMAL, "codebook([0, 1, 2])", "error"), (-5 - NORMAL**2, "uint8 asymmetric brevitas", "error"),
     (NORMAL * np.float32(1e-4), "int4 per_group(32) scales(e4m3fn given(1))", "error"),
     (NORMAL * np.float32(0.005), "e2m1 per_group(16) torchao.nvfp4 scales(e4m3fn given(1) torchao.nvfp4.scales)", "warning"), (NORMAL, "int2", None)],
)  # fmt: skip
def test_a_scheme_with_an_error_is_no_fix_and_one_with_a_warning_may_be(x, scheme, severity):
    scheme = qc.Scheme.parse(scheme)
    found = [f.severity for f in qc.diagnose(qc.apply(x, scheme)) if f.kind not in ("ties", "better_scheme")]
    assert severity is None or severity in found
    assert severity == "error" or "error" not in found
    plain = qc.apply(x, qc.Scheme.parse("int16"))
    trial = Context(plain, unfit=_has_error).trial(scheme)
    assert (trial is None) == (severity == "error")
    assert trial is None or trial.sqnr_db == qc.report(qc.apply(x, scheme)).sqnr_db
    assert Context(plain).trial(scheme) is None


@for_each(("zero_point", "found"), [(0, True), (-25, True), (-26, False), (-100, False), (127, True), (128, False), (200, False)])
def test_codes_on_the_other_side_of_a_given_zero_point(zero_point, found):
    """At least 40 % of the codes, and not all of them, lie below the zero point; the range of x is another matter."""
    x = np.linspace(0, 60, 64)
    assert ("one_sided" in findings(x, f"int8 given(1, zero_point={zero_point})")) == found


@for_each(("shape", "scheme", "cost"), [((8, 64), "int4 per_channel(0) fixed(-60, 60)", "the same"), ((512, 64), "int4", "more")])
def test_what_a_better_scheme_costs(shape, scheme, cost):
    """Columns of different sizes, so that scales along the other axis are better; or a range that is too wide."""
    x = np.random.default_rng(0).uniform(-1, 1, shape)
    x = x if "fixed" in scheme else x * np.where(np.arange(shape[1]) % 8, 1, 9)
    (finding,) = better_scheme(context_of(x, scheme))
    check(finding=finding, result=qc.apply(x.astype(np.float32), qc.Scheme.parse(scheme)))
    assert f"{cost} storage." in finding.sentence


def context_of(x, scheme):
    return Context(qc.apply(np.asarray(x, np.float32), qc.Scheme.parse(scheme)), unfit=_has_error)


@for_each(("n", "found"), [(15, False), (16, True), (17, True)])
def test_so_many_elements_must_share_a_range_that_is_too_wide(n, found):
    """In every row one element is 1.8 times the largest of the others, which 2 bits turn into 0."""
    x = np.random.default_rng(0).uniform(0.5, 1, (64, n)) * np.random.default_rng(1).choice([-1, 1], (64, n))
    x[:, 3] = 1.8
    assert bool(list(clips_too_little(context_of(x, "int2 per_channel(0)")))) == found


@for_each("above", [1, 2, 7])
def test_blocks_on_either_side_of_0_are_counted(above):
    x = -np.abs(NORMAL[:8]) - 0.2
    x[:above] *= -1
    assert findings(x, "int8 per_channel(0)")["one_sided"].facts["above"] == above


@for_each("scheme", ["int8 per_group(32)", "int4 per_group(32)", "e2m1 per_group(32)"])
def test_a_power_of_two_may_be_half_a_step_away(scheme):
    """Scales stored as the nearest power of two are off by up to a third, which their format can't help."""
    result = qc.apply(NORMAL, qc.Scheme.parse(f"{scheme} scales(e8m0 given(1))"))
    off = abs(result.scales.dequantized - result.params.raw) / result.params.raw
    assert (off > 0.25).any()
    assert "scale_out_of_range" not in findings(NORMAL, f"{scheme} scales(e8m0 given(1))")


@for_each("scheme", ["uint4 given(1)", "codebook([0, 3, 9]) given(1)"])
def test_elements_above_the_range_are_not_those_that_lose_their_sign(scheme):
    finding = findings(np.linspace(-5, 30, 64), scheme)["negatives_lost"]
    assert finding.boxes


@for_each(
    ("scheme", "others"),
    [("codebook([-7, -5, -3, -1, 1, 3, 5, 7]) given(1)", ["int3"]), ("uint4 asymmetric hqq", ["uint4 asymmetric hqq.round_zero", "uint4 asymmetric"]),
     ("uint4 asymmetric per_group(32) gguf.Q4_1", ["uint4 asymmetric per_group(32)"]), ("int8 torchao.nf4.scales", ["int8"]),
     # of as many bits, but at least 2
     ("binary given(4)", ["int2"]), ("codebook([-6, -3, 3, 6]) given(1)", ["int2"]), ("iq4_nl", ["int4"])],
)  # fmt: skip
@for_each("zeros", some([1, 9, 40, 150], 4))
def test_an_exact_0_may_cost_one_decibel(scheme, others, zeros):
    """Few zeros among many values: the codes without an exact 0 are the better ones, with more zeros by less."""
    x = np.random.default_rng(5).uniform(-7, 7, 512)
    x[:2], x[2 : 2 + zeros] = (-7, 7), 0
    if "int" in scheme or "iq4" in scheme:
        x[x < 0] *= 0.31
    result = qc.apply(x.astype(np.float32), qc.Scheme.parse(scheme))
    if result.dequantized[2] == 0:
        return
    gained = {text: sqnr_db(x, text) - sqnr_db(x, scheme) for text in others}
    assert all(abs(gain + 1) > 0.01 for gain in gained.values()), "the case must lie on one side"
    fix = next((str(qc.Scheme.parse(text)) for text, gain in gained.items() if gain > -1), "None")
    assert str(findings(x, scheme)["zero_not_exact"].fix) == fix


def sqnr_db(x, scheme):
    x = np.asarray(x, np.float32)
    error = (x - qc.apply(x, qc.Scheme.parse(scheme)).dequantized.numpy()).astype(float)
    return 10 * math.log10((x.astype(float) ** 2).sum() / (error**2).sum())


@for_each("name", some(["gguf.Q4_0", "gguf.Q5_0", "gguf.Q3_K", "gguf.Q6_K", "gguf.IQ4_NL", "gguf.IQ4_XS", "gguf.Q8_0", "gguf.Q4_1"]))
@for_each("sign", [1, -1])
def test_a_scale_below_0_that_underflows_gets_0_and_not_minus_0(name, sign):
    """The scales of these formats have the sign of the element that is the largest."""
    x = sign * np.abs(np.resize(NORMAL, (4, 256))) * 1e-9
    finding = findings(x, qc.PRESETS[name])["scale_out_of_range"]
    assert " and gets 0. " in finding.sentence


@for_each(("values", "scale"), [("-7, -2, -1", -0.5), ("-9, -8, -3", -0.5), ("1, 2, 7", 0.5), ("3, 8, 9", 0.5)])
@for_each(("steps", "found"), [(-0.4, False), (-0.6, True)])
def test_negatives_are_lost_to_a_table_that_a_file_s_scale_turns_around(values, scale, steps, found):
    """Within half the distance of the two lowest values, they round to the lowest even where there is none below it."""
    table = np.sort(np.array([float(v) for v in values.split(",")]) * scale)
    setting = Stored(scale=torch.tensor(scale), zero_point=torch.tensor(0), origin="the file")
    scheme = dataclasses.replace(qc.Scheme.parse(f"codebook([{values}])"), range_setting=setting)
    finding = findings(np.r_[np.linspace(0, 4, 31), steps * (table[1] - table[0])], scheme).get("negatives_lost")
    assert (finding is not None) == found
    assert finding is None or finding.facts["becomes"] == table[0]
