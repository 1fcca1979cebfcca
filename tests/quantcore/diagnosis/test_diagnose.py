"""Every kind of finding: what causes it, what almost does, and that its fix is better when recomputed."""

import functools
import itertools
import math
import re
import warnings

import numpy as np
import pytest
import torch
from claims import check
from grid import for_each
from parts import in_parts, some, some_rows

import quantcore as qc
from quantcore import tensors
from quantcore.diagnosis import KINDS, in_brief
from quantcore.diagnosis.record import MAX_BOXES, SEVERITIES
from quantcore.tensors import Generated

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
EXAMPLES = {name: kind.example for name, kind in KINDS.items()}
EXERCISE = EXAMPLES["wrapped"].load()
RNG = np.random.default_rng(7)

NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def found(x, scheme):
    return qc.diagnose(qc.apply(x, qc.Scheme.parse(scheme)))


@functools.cache
def of_example(kind):
    return found(EXAMPLES[kind].load(), EXAMPLES[kind].scheme)


def only(kind, x, scheme):
    (finding,) = [f for f in found(x, scheme) if f.kind == kind]
    return finding


def generated(name, *shape, **parameters):
    return tensors.generate(Generated(name, shape, parameters=tuple(parameters.items())))


def test_every_kind_has_an_example_and_a_near_one():
    assert set(KINDS) == set(NEAR)
    assert {name for kind in KINDS.values() for name in kind.follows} <= set(KINDS)


@for_each("kind", EXAMPLES)
def test_example_shows_its_kind_first(kind):
    example = EXAMPLES[kind]
    findings = of_example(kind)
    assert findings[0].kind == kind
    scheme = qc.Scheme.parse(example.scheme)
    assert str(scheme) == str(qc.Scheme.parse(str(scheme)))


@for_each("kind", EXAMPLES)
def test_every_sentence_of_the_examples_is_true(kind):
    result = qc.apply(EXAMPLES[kind].load(), qc.Scheme.parse(EXAMPLES[kind].scheme))
    for finding in of_example(kind):
        check(result, finding)


@for_each("kind", EXAMPLES)
def test_in_brief_it_is_short_and_has_no_number_of_its_own(kind):
    for finding in of_example(kind):
        said = in_brief(finding, EXAMPLES[kind].load().ndim)
        assert 15 < len(said) <= 120
        assert said.endswith(".")
        long = set(NUMBER.findall(finding.sentence))
        facts = finding.facts
        if {"sqnr_with", "sqnr_without"} <= facts.keys():  # a ratio and a difference of what the long one has
            first, second = (facts.get("first", facts.get("value")), facts["second"])
            long |= {f"{abs(first) / second:.0f}", f"{facts['sqnr_without'] - facts['sqnr_with']:.0f}"}
        assert set(NUMBER.findall(said)) <= long, (said, finding.sentence)


@for_each("convention", some(qc.INTEGER_CONVENTIONS, 17))
def test_a_zero_point_outside_the_format_is_told_where_it_is_stored_as_a_code(convention):
    """A float zero point or a minimum may be any number."""
    x, told = RNG.normal(size=(8, 32)).astype(np.float32), set()
    for fmt, granularity in (
        ("uint4 asymmetric", "per_tensor"), ("int8", "per_tensor"), ("int8", "per_channel(0)"), ("uint4 asymmetric", "per_group(32)"),
    ):  # fmt: skip
        for zero_point in (-300, 300):
            try:
                scheme = f"{fmt} {granularity} given(0.1, zero_point={zero_point}) {convention}"
                kinds = [f.kind for f in found(x, scheme)]
            except qc.QuantError:
                continue
            told.add("zero_point_outside" in kinds)
    stores_a_code = qc.CONVENTIONS[convention].zero_point.is_integer
    assert told <= {stores_a_code}


@for_each("setting", ["min_mse", "percentile(99.9)", "entropy", "fixed(-100, 100)"])
def test_an_outlier_is_told_where_it_sets_the_scale(setting):
    """Range settings other than min-max leave the outlier out of the range, or do not depend on it."""
    x = np.random.default_rng(5).normal(size=(16, 16)).astype(np.float32)
    x[3, 4] = 100
    assert "outlier_element" in [f.kind for f in found(x, "int4 per_tensor")]
    assert "outlier_element" not in [f.kind for f in found(x, f"int4 per_tensor {setting}")]


@for_each("shape", [(3, 5, 32), (6, 2, 32)])
def test_a_group_may_be_a_whole_row(shape):
    """Groups of one row: channels would give too few scales against this outlier, smaller groups too many."""
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    x[0, 0, 5] = 40
    assert str(only("outlier_element", x, "int4").fix) == "int4 symmetric per_group(32) min_max textbook"


@for_each("kind", EXAMPLES)
def test_finding_is_well_formed(kind):
    x = EXAMPLES[kind].load()
    for finding in of_example(kind):
        assert finding.severity in SEVERITIES
        assert finding.sentence[0].isupper() or finding.sentence[0].isdigit() or finding.sentence[0] == "x"
        assert finding.sentence.endswith(".")
        assert len(finding.sentence) < 250
        assert len(finding.boxes) <= MAX_BOXES
        for box in finding.boxes:
            assert len(box) == x.ndim
            assert all(0 <= a < b <= n for (a, b), n in zip(box, x.shape, strict=True))
        assert (finding.fix is None) == (finding.gain is None)


LEAST_DB = {
    "wrapped": 1, "zero_point_outside": 1, "zero_point_clamped": 1, "negatives_lost": 1, "one_sided": 3,
    "outlier_channel": 3, "outlier_element": 3, "clipped_too_much": 1, "clips_too_little": 4, "codes_unused": 3,
    "per_channel": 6, "small_groups": 3, "better_scheme": 6, "scale_out_of_range": 1,
}  # fmt: skip


@for_each("kind", EXAMPLES)
def test_fix_is_better_when_computed_anew(kind):
    x, scheme = EXAMPLES[kind].load(), EXAMPLES[kind].scheme
    (finding,) = [f for f in of_example(kind) if f.kind == kind]
    if finding.fix is None:
        assert kind in ("nan", "tiny_block", "zero_block", "constant_block", "ties", "half_precision")
        return
    before, after = (qc.apply(x, s) for s in (qc.Scheme.parse(scheme), finding.fix))
    sqnr = [qc.errors(x, r.dequantized).sqnr_db for r in (before, after)]
    if finding.gain.what == "SQNR":
        assert [finding.gain.before, finding.gain.after] == pytest.approx(sqnr, abs=1e-6)
        assert sqnr[1] >= sqnr[0] + LEAST_DB[kind]
    elif finding.gain.what == "error at 0":
        lost = [float(abs(r.dequantized[x == 0]).max()) for r in (before, after)]
        assert lost == [pytest.approx(finding.gain.before), 0.0]
        assert sqnr[1] >= sqnr[0] - 1
    else:
        bits = [qc.bits_per_element(s, x.shape) for s in (qc.Scheme.parse(scheme), finding.fix)]
        assert [finding.gain.before, finding.gain.after] == bits
        assert bits[1] < bits[0]
        assert sqnr[1] >= min(sqnr[0] - 0.5, 130)
    assert str(finding.gain).count("→") == 1


@for_each("kind", EXAMPLES)
def test_fixed_scheme_no_longer_has_the_finding(kind):
    x = EXAMPLES[kind].load()
    (fix,) = [f.fix for f in of_example(kind) if f.kind == kind]
    if fix is not None:
        assert kind not in [f.kind for f in found(x, str(fix))]


# Tensors and schemes close to the examples that do not have the finding
TERNARY, HALVES = EXAMPLES["spare_bits"].load(), EXAMPLES["ties"].load()
COLUMNS = EXAMPLES["better_scheme"].load()
HALF = EXAMPLES["half_precision"].load()
NEAR = {
    "half_precision": [(HALF.float(), "int8 per_channel(0) torchao"), (HALF, "int8 per_channel(0)"),
                       (HALF, "int4 per_channel(0) torchao"), (HALF.half(), "int8 per_channel(0) torchao")],
    "wrapped": [(EXERCISE, "int8 given(0.0119) textbook(overflow=wrap)"), (EXERCISE, "int8 given(0.0116)")],
    "zero_point_outside": [([1, 2.5, 3, 4.5, 5], "int8 given(0.1, zero_point=127)"),
                           ([1, 2.5, 3, 4.5, 5], "uint8 given(0.1, zero_point=128)")],
    "zero_point_clamped": [(-generated("uniform", 4, 4, low=5.0, high=6.0), "uint8 asymmetric"),
                           (generated("uniform", 4, 4, low=5.0, high=6.0), "uint8 asymmetric brevitas"),
                           (generated("uniform", 4, 4), "uint8 asymmetric brevitas")],
    "negatives_lost": [(generated("relu", 8, 8), "uint8 symmetric aimet.2024.Quantize"),
                       (generated("normal", 8, 8), "int8 symmetric aimet.2024.Quantize"),
                       (generated("normal", 8, 8), "uint8 symmetric")],
    "zero_not_exact": [(generated("sparse", 16, 16, density=0.3), "uint4 asymmetric per_channel(0) hqq.round_zero"),
                       (generated("normal", 16, 16), "uint4 asymmetric per_channel(0) hqq"),
                       (generated("sparse", 16, 16, density=0.3), "uint4 asymmetric per_channel(0)")],
    "one_sided": [(generated("relu", 16, 16) - 0.4, "int4"), (generated("relu", 16, 16), "int4 asymmetric")],
    "outlier_channel": [(generated("outlier_channel", 16, 16, factor=2.0), "int8"),
                        (generated("outlier_channel", 16, 16), "int8 per_channel(1)"),
                        (generated("normal", 16, 16), "int8")],
    "outlier_element": [(generated("outlier_element", 16, 16, factor=9.0), "int8"),
                        (generated("outlier_channel", 16, 16), "int8"),
                        (generated("outlier_element", 64, 64), "int8 per_group(32)")],
    "clipped_too_much": [(generated("normal", 16, 16), "int8 fixed(-3, 3)"), (generated("normal", 16, 16), "int8"),
                         (generated("normal", 64, 64), "int4 percentile(99)")],
    "clips_too_little": [(generated("laplace", 128, 256), "int4 percentile(99)"),
                         (generated("uniform", 128, 256), "int4"), (generated("normal", 64, 128), "int8")],
    "codes_unused": [(generated("normal", 16, 16), "int8 fixed(-5, 5)"), (generated("normal", 16, 16), "int8")],
    "per_channel": [(generated("outlier_channel", 64, 64, factor=3.5), "int8"),
                    (generated("outlier_channel", 512, 64, factor=1.5), "int8"),
                    (generated("outlier_channel", 512, 64, factor=3.5), "int8 per_channel(1)")],
    "small_groups": [(generated("normal", 32, 64), "int4 per_group(32)"), (generated("normal", 32, 64), "int4")],
    "tiny_block": [([[1e-30, -2e-30], [1, 2]], "int8 per_channel(0)"), (np.zeros((2, 2)), "int8 per_channel(0)")],
    "zero_block": [([[0.5, -1.1, 0.3, 2], [0, 0, 1e-3, 0]], "int8 per_channel(0)"),
                   (generated("sparse", 64, 128), "int4 per_group(16)")],
    "constant_block": [([[0.5, -1.1, 0.3, 2], [0.7, 0.7, 0.7, 0.70001]], "int8 per_channel(0)"),
                       ([[0.5, -1.1], [0.7, 0.7]], "int8 per_channel(1)")],
    "spare_bits": [(TERNARY + 1e-2 * RNG.standard_normal((4, 4)).astype(np.float32), "int8"), (TERNARY, "int2n")],
    "better_scheme": [(COLUMNS, "int4 per_channel(1)"), (COLUMNS, "int8 per_channel(0)"), (COLUMNS.T, "int4 per_channel(0)")],
    "ties": [(HALVES + 0.01, "int8 given(1)"), (HALVES, "int8 given(0.99)"),
             (HALVES, "int8 given(1) textbook(rounding=floor)")],
    "scale_out_of_range": [(generated("normal", 16, 64, std=0.005), "e2m1 per_group(16) torchao.nvfp4 scales(e4m3fn torchao.nvfp4.scales)"),
                           (generated("normal", 16, 64, std=0.2), "int4 per_group(32) scales(e4m3fn given(1))"),
                           (generated("normal", 16, 64), "int4 per_group(16) scales(int8)")],
    "nan": [([0, 0.5, 1, -1], "int8 torch.fake_quantize"), ([0.1, 0.5, 1, -1], "int8 given(1e-3) torch.fake_quantize")],
}  # fmt: skip


@for_each(("kind", "x", "scheme"), [each for k, pairs in NEAR.items() for each in some_rows(((k, *pair) for pair in pairs), 9)])
def test_near_one_has_it_not(kind, x, scheme):
    assert kind not in [f.kind for f in found(x, scheme)]


# No false alarms on what each scheme is made for
HEALTHY = {
    "normal": ["int8", "int8 per_channel(0)", "int4 per_group(32)", "uint4 asymmetric per_group(32)",
               "int8 per_group(128) percentile(99.99)"],
    "uniform": ["int8", "uint8 asymmetric", "int4 per_channel(0)", "int4 asymmetric per_group(32)"],
    "laplace": ["int8", "int8 per_channel(0)", "int4 per_group(32)"],
    "student_t": ["int8 per_channel(0)", "int4 per_group(32)", "int8 per_group(64)"],
    "bimodal": ["int8", "int4 per_channel(0)", "uint8 asymmetric"],
    "relu": ["uint8 asymmetric", "uint8 asymmetric per_channel(0)", "uint4 asymmetric per_group(32)"],
    "log_normal": ["uint8 asymmetric per_channel(0)", "uint4 asymmetric per_group(32)",
                   "uint8 asymmetric per_group(64)"],
    "sparse": ["int8", "int8 per_channel(0)", "int8 per_group(64)"],
}  # fmt: skip


@in_parts(19)
def test_no_finding_on_200_healthy_tensors(part):
    pairs = [(name, scheme) for name, schemes in HEALTHY.items() for scheme in schemes]
    shapes = [(64, 128), (32, 256), (128, 64)]
    alarms = []
    for seed, (name, scheme) in part(zip(range(200), itertools.cycle(pairs), strict=False)):
        x = tensors.generate(Generated(name, shapes[seed % 3], seed))
        alarms += [(name, scheme, seed, f.kind, f.sentence) for f in found(x, scheme)]
    assert alarms == []


# The numbers in the sentences, recomputed with numpy


def test_wrapped_names_cells_and_codes():
    wide = np.round(EXERCISE / np.float32(0.01)).astype(np.int64)
    cast = wide.astype(np.int8)
    places = {tuple(map(int, p)) for p in np.argwhere(wide != cast)}
    finding = only("wrapped", EXERCISE, "int8 given(0.01) textbook(overflow=wrap)")
    assert {tuple(a for a, _ in box) for box in finding.boxes} == places
    first = tuple(a for a, _ in finding.boxes[0])
    assert f"{len(places)} codes do not fit" in finding.sentence
    assert f"{wide[first]} became {cast[first]}" in finding.sentence


def test_outlier_channel_is_outlined_as_a_whole():
    x = RNG.standard_normal((8, 6, 5)).astype(np.float32)
    x[:, 2, :] *= 40
    finding = only("outlier_channel", x, "int8")
    assert finding.boxes == (((0, 8), (2, 3), (0, 5)),)
    others = np.delete(x, 2, axis=1)
    for name, result in (
        ("sqnr_with", np.delete(qc.apply(x, qc.Scheme()).dequantized.numpy(), 2, axis=1)),
        ("sqnr_without", qc.apply(others, qc.Scheme()).dequantized.numpy()),
    ):
        # the sums are in another order
        assert finding.facts[name] == pytest.approx(qc.errors(others, result).sqnr_db, rel=1e-12)


def test_outlier_element_in_a_row_of_few():
    x = RNG.standard_normal((4, 32)).astype(np.float32)
    x[2, 5] = 60
    finding = only("outlier_element", x, "int8 per_channel(0)")
    assert finding.boxes == (((2, 3), (5, 6)),)
    alone = np.delete(x[2], 5)
    without = qc.errors(alone, qc.apply(alone, qc.Scheme()).dequantized).sqnr_db
    assert finding.facts["sqnr_without"] == pytest.approx(without, rel=1e-12)


def test_ties_are_counted_exactly():
    x = (np.arange(64, dtype=np.float32).reshape(8, 8) - 32) / 4
    finding = only("ties", x, "int8 given(1)")
    ties = np.argwhere(np.abs(x) % 1 == 0.5)
    assert [tuple(a for a, _ in box) for box in finding.boxes] == [tuple(map(int, p)) for p in ties]
    assert finding.facts["elements"] == len(ties)


@for_each("library", ["torchao", "compressed_tensors", "quanto"])
def test_what_half_precision_costs_is_what_float32_gives(library):
    """The numbers of the sentence are those of the remedy that it names."""
    x = torch.from_numpy(generated("normal", 32, 64)).bfloat16()
    scheme = qc.Scheme.parse(f"int8 per_channel(0) {library}")
    finding = only("half_precision", x, f"int8 per_channel(0) {library}")
    now, then = qc.apply(x, scheme), qc.apply(x.float(), scheme)
    facts = finding.facts
    assert facts["differ"] == int((now.codes != then.codes).sum()) > 100
    assert facts["now_db"] == qc.report(now).sqnr_db
    assert facts["then_db"] == qc.errors(x, then.dequantized.bfloat16()).sqnr_db > facts["now_db"] + 0.5
    assert ("(most in the codes)" in finding.sentence) == (facts["worst"] == "codes") >= (library == "torchao")
    for words in (f"Computing scale, codes and values in bfloat16, as {library} does", f"{facts['differ']:,} of 2,048 codes", "x.float()"):
        assert words in finding.sentence


def test_zeros_that_are_not_exact_are_the_ones_outlined():
    example = EXAMPLES["zero_not_exact"]
    x = example.load()
    finding = only("zero_not_exact", x, example.scheme)
    x_hat = qc.apply(x, qc.Scheme.parse(example.scheme)).dequantized.numpy()
    assert finding.facts["elements"] == np.count_nonzero((x == 0) & (x_hat != 0))
    assert finding.facts["worst"] == np.abs(x_hat[x == 0]).max()
    assert all(x[tuple(a for a, _ in box)] == 0 for box in finding.boxes)


def test_nan_through_a_library():
    x = np.array([[1, np.nan, 2], [3, np.inf, -1]], np.float32)
    finding = found(x, "int8 torchao")[0]
    assert finding.kind == "nan"
    assert finding.severity == "error"
    assert finding.boxes[0] == ((0, 1), (1, 2))
    assert (finding.facts["elements"], finding.facts["at"]) == (2, (0, 1))


def test_of_small_tensors_every_clipped_element_is_outlined():
    x = EXAMPLES["clipped_too_much"].load()
    finding = only("clipped_too_much", x, "int8 fixed(-1, 1)")
    scale = np.float32(1 / 127)
    wide = np.round(x / scale)
    places = {tuple(map(int, p)) for p in np.argwhere((wide < -128) | (wide > 127))}
    assert {tuple(a for a, _ in box) for box in finding.boxes} == places
    assert finding.facts["clipped"] == len(places)


@for_each(
    ("scheme", "words"),
    [("int8 torch.fake_quantize", "qmin, the lowest code."), ("int8 torchao", "the code 0."),
     ("int8 torch.quantize_per_tensor", "qmax, the highest code."), ("int8 aimet.Quantize", "0 is used here.")],
)  # fmt: skip
def test_what_a_library_makes_of_nan_in_words(scheme, words):
    assert found([[1, np.nan], [3, -1]], scheme)[0].sentence.endswith(words)


def test_blocks_over_the_ends_of_rows():
    x = RNG.standard_normal((4, 6)).astype(np.float32)
    x.reshape(-1)[4:8] = 0
    finding = only("zero_block", x, "int8 per_flat_group(4)")
    assert finding.boxes == (((0, 1), (4, 5)),)  # a run that is not a box is shown by its first element
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    x[1, 4:] = 0
    assert only("zero_block", x, "int8 per_flat_group(4)").boxes == (((1, 2), (4, 8)),)


# No input of a user breaks it

ODD = {
    "scalar": np.float32(3),
    "one": np.array([-2.0], np.float32),
    "zeros": np.zeros((3, 4), np.float32),
    "constant": np.full((3, 4), 5, np.float32),
    "huge": np.array([[3e38, -3e38], [1, 2]], np.float32),
    "denormal": np.array([[1e-45, -3e-45], [0, 0]], np.float32),
    "rank 4": RNG.standard_normal((2, 3, 4, 5)).astype(np.float32),
    "row": RNG.standard_normal((1, 40)).astype(np.float32),
    "short last": RNG.standard_normal((5, 13)).astype(np.float32),
}
SCHEMES = [
    "int8", "int2", "uint4 asymmetric", "int4n per_group(4)", "uint4 asymmetric per_group(3) hqq", "int8 per_flat_group(3)",
    "int4 percentile(90)", "int8 fixed(-1, 1) textbook(overflow=wrap)", "uint8 given(0.1, zero_point=-9)", "int8 torchao",
    "uint8 asymmetric brevitas", "int16", "e4m3fn", "uint8 aimet.2024.Quantize", "int8 per_group(2) scales(int8)",
]  # fmt: skip


@for_each("scheme", some(SCHEMES, 11))
@for_each("name", ODD)
def test_odd_tensors(name, scheme):
    try:
        result = qc.apply(ODD[name], qc.Scheme.parse(scheme))
    except qc.QuantError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        findings = qc.diagnose(result)
    for finding in findings:
        assert "nan" not in finding.sentence.lower() or finding.kind == "nan"
        if finding.gain is not None:
            assert not math.isnan(finding.gain.after)
        if finding.fix is not None:
            qc.apply(ODD[name], finding.fix)


def test_input_is_left_alone():
    for example in list(EXAMPLES.values())[::4]:
        x = example.load()
        result = qc.apply(x, qc.Scheme.parse(example.scheme))
        before = [t.clone() for t in (result.x, result.codes, result.scale)]
        qc.diagnose(result)
        assert all(
            bool((a == b).all()) for a, b in zip(before, (result.x, result.codes, result.scale), strict=True)
        )
