"""Each mistake gives its printed table or torch's own numbers, and each right version the recorded error."""

import inspect
import json

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts
from places import DATA
from torch.ao.quantization import MinMaxObserver

import quantcore as qc
from pages.shared.curriculum import LESSONS
from quantcore.matching import Corruption, reproduce
from quantcore.matching.hypotheses.corruption import changed
from quantcore.mistakes import CASES as MISTAKES
from quantcore.mistakes import MISTAKES as catalogue
from quantcore.mistakes import answers, compare, lines, run

CASES = {
    case["id"]: case
    for case in json.loads((DATA / "worked_cases.json").read_text())["cases"]
}
IN_PRINT = {
    "wraps-per-tensor": "s0-symmetric-wraps",
    "wraps-per-column": "s0-per-channel-wraps",
    "wraps-per-group": "s0-per-group-wraps",
    "clamp-of-another-type": "s1-clamp-then-cast",
    "range-without-minimum": "s2-asymmetric-that-is-not",
    "percentile-of-signed-values": "s2-percentile-out-of-range",
    "negatives-lost": "s4-symmetric-unsigned",
}
every = for_each("name", MISTAKES)
in_print = for_each(("name", "case_id"), IN_PRINT.items())


def rounded(values, decimals=4):
    return np.round(np.asarray(values, dtype=np.float64), decimals).tolist()


def cells(mask):
    return [tuple(place) for place in mask.nonzero().tolist()]


def of(case_id):
    """The comparison on the printed tensor, whose 4 decimals leave x[0, 0] open (see the cases)."""
    name = next(n for n, c in IN_PRINT.items() if c == case_id)
    x = MISTAKES[name].x()
    if case_id.startswith("s2"):
        x[0, 0] = -2.11036
    return compare(MISTAKES[name], x)


def test_every_marked_case_is_a_mistake():
    marked = [i for i, case in CASES.items() if "pitfall" in case]
    assert sorted(IN_PRINT.values()) == sorted(marked)


@in_print
def test_tensor_is_the_printed_one(name, case_id):
    assert rounded(MISTAKES[name].x()) == rounded(CASES[case_id]["x"])


@in_print
def test_wrong_way_gives_the_printed_table(name, case_id):
    case, wrong = CASES[case_id], of(case_id).wrong
    assert wrong.codes.tolist() == case["codes"]
    assert rounded(wrong.dequantized) == case["dequantized"]
    for metric, decimals in (("mae", 6), ("sse", 4)):
        if metric in case:
            assert rounded(getattr(wrong, metric), decimals) == case[metric]


@for_each("case_id", [i for i in IN_PRINT.values() if "mae_done_right" in CASES[i]])
def test_right_way_gives_the_recorded_error(case_id):
    assert of(case_id).right.mae == pytest.approx(CASES[case_id]["mae_done_right"], rel=1e-7)


def test_right_ways_whose_codes_are_recorded():
    assert of("s1-clamp-then-cast").right.codes.tolist() == CASES["s1-clamp-then-cast"]["codes_done_right"]
    today = CASES["s4-symmetric-unsigned"]["today"].split("codes ")[1].split("]]")[0] + "]]"
    assert of("s4-symmetric-unsigned").right.codes.tolist() == json.loads(today)


def test_percentile_that_was_meant():
    """If only clamped, the error is the recorded one, from clipping -2.11; with the right percentile it is tiny."""
    case = CASES["s2-percentile-out-of-range"]
    comparison = compare(MISTAKES["percentile-of-signed-values"])  # derived from the printed digits
    scale = comparison.wrong.scale.flatten()[0]
    assert float(scale) * 127 == pytest.approx(case["percentile_value"], abs=2e-6)
    clamped = comparison.wrong.codes.clamp(-128, 127) * scale
    assert rounded(qc.errors(comparison.x, clamped).sse) == case["sse_clamped"]
    meant = qc.apply(comparison.x, qc.Scheme(range_setting=qc.Percentile(case["percentile"])))
    assert torch.equal(comparison.right.codes.to(torch.int8), meant.codes)
    assert comparison.right.sse < case["sse_clamped"] / 1000


def observed(x, dtype, symmetric=False):
    """Scale and zero_point of torch's own observer."""
    scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
    observer = MinMaxObserver(dtype=dtype, qscheme=scheme)
    observer(x)
    scale, zero_point = observer.calculate_qparams()
    return float(scale), int(zero_point)


@for_each(
    ("name", "dtype"),
    [
        ("range-without-minimum", torch.qint8),
        ("zero-point-left-at-zero", torch.qint8),
        ("zero-point-forgotten", torch.quint8),
        ("zero-point-added", torch.quint8),
        ("zero-point-after-scale", torch.quint8),
    ],
)
def test_right_ways_give_what_torch_gives(name, dtype):
    comparison = compare(MISTAKES[name])
    theirs = torch.quantize_per_tensor(comparison.x, *observed(comparison.x, dtype), dtype)
    assert comparison.right.codes.tolist() == theirs.int_repr().tolist()
    assert torch.equal(comparison.right.dequantized, theirs.dequantize())


@for_each(
    ("name", "scale", "low", "high"),
    [
        ("cast-without-clamp", 1.5 / 127, -128, 127),
        ("clamp-in-place", 1.5 / 127, -127, 127),
        ("quantized-twice", 1 / 7, -8, 7),
        ("truncated", 1 / 7, -8, 7),
        ("scale-in-float16", 2e-6 / 127, -128, 127),
    ],
)
def test_right_ways_of_a_given_scale_give_what_torch_gives(name, scale, low, high):
    comparison = compare(MISTAKES[name])
    theirs = torch.fake_quantize_per_tensor_affine(comparison.x, scale, 0, low, high)
    assert torch.allclose(
        comparison.right.dequantized, theirs, rtol=1e-6, atol=0
    )  # torch rounds the scale again


# the cells that each mistake changes, worked out by hand
WRONG = {
    "wraps-per-tensor": [(2, 0)],
    "wraps-per-column": [(1, 2), (2, 0), (2, 3), (3, 2), (1, 1)],
    "wraps-per-group": [(2, 0), (2, 3), (3, 2)],
    "clamp-of-another-type": [(i,) for i in range(5)],
    "range-without-minimum": [(0, 0), (0, 3), (2, 0), (2, 3)],
    "percentile-of-signed-values": [(0, 0)],
    "negatives-lost": [(0, 0), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 1), (3, 3)],
    "cast-without-clamp": [(0, 0), (0, 3)],
    "zero-point-left-at-zero": [(0, 3), (1, 2), (2, 0), (2, 1)],
    "clamp-in-place": [(0, 0), (0, 3)],
    "quantized-twice": [(0, 1), (1, 0), (1, 2)],
}


@for_each("name", WRONG)
def test_wrong_cells(name):
    assert sorted(cells(compare(MISTAKES[name]).wrong_cells)) == sorted(WRONG[name])


@every
def test_the_wrong_way_is_wrong_and_the_right_one_right(name):
    mistake = MISTAKES[name]
    comparison = compare(mistake)
    assert comparison.wrong_cells.any()
    turned = compare(
        type(mistake)(**{**vars(mistake), "wrong": mistake.right, "right": mistake.right}), comparison.x
    )
    assert not (turned.too_far | turned.hidden).any()
    assert torch.equal(comparison.right.x, comparison.x)


def test_the_shift_of_each_wrong_dequantization():
    x = MISTAKES["zero-point-forgotten"].x()
    scale, zero_point = observed(x, torch.quint8)
    for name, shift in {
        "zero-point-forgotten": -zero_point * scale,
        "zero-point-added": -2 * zero_point * scale,
        "zero-point-after-scale": zero_point - zero_point * scale,
    }.items():
        comparison = compare(MISTAKES[name])
        drift = comparison.wrong.true_error - comparison.right.true_error
        assert torch.allclose(drift, torch.full_like(drift, shift), atol=1e-5)


def test_clamping_in_place_hides_the_clipping_error():
    comparison = compare(MISTAKES["clamp-in-place"])
    assert comparison.x[0, 0] < -2
    assert comparison.wrong.x[0, 0] == -1.5
    assert torch.equal(comparison.wrong.dequantized, comparison.right.dequantized)
    assert comparison.wrong.error.abs().max() < 0.01 < comparison.right.error.abs().max()
    assert cells(comparison.hidden) == [(0, 0), (0, 3)]


def test_float16_makes_the_scale_zero():
    comparison = compare(MISTAKES["scale-in-float16"])
    assert comparison.wrong.scale.unique().tolist() == [0.0]
    assert set(comparison.wrong.codes.unique().tolist()) == {-128, 127}
    assert not comparison.wrong.dequantized.any()


@every
def test_shown_code_is_the_code_that_runs(name):
    mistake = MISTAKES[name]
    for way, shown in zip((mistake.wrong, mistake.right), lines(mistake), strict=True):
        source = "\n".join(line.text for line in shown)
        assert max(len(line.text) for line in shown) <= 52  # the lesson shows them whole in large mode
        assert source == inspect.getsource(way).rstrip().replace("(x: Tensor) -> Parts:", "(x):")
        scope = {"torch": torch}
        exec(source, scope)
        assert torch.equal(scope[way.__name__](mistake.x())[2], run(way, mistake.x()).dequantized)


@every
def test_the_lines_that_differ_are_marked(name):
    wrong, right = lines(MISTAKES[name])
    assert [w.text for w in wrong[1:] if not w.differs] == [r.text for r in right[1:] if not r.differs]
    marked = {w.text for w in wrong if w.differs}, {r.text for r in right if r.differs}
    assert all(marked)
    assert not marked[0] & marked[1]
    assert not wrong[0].differs
    assert len(marked[0]) <= 3


@every
def test_the_input_is_left_alone(name):
    x = MISTAKES[name].x()
    kept = x.clone()
    compare(MISTAKES[name], x)
    assert torch.equal(x, kept)


@for_each(
    ("name", "x", "words"),
    [
        ("wraps-per-group", torch.ones(4), "does not run on a tensor of shape (4,)"),
        ("zero-point-forgotten", torch.full((2, 2), 3.0), "whose range has no width"),
        ("truncated", torch.zeros(2, 2), "whose range has no width"),
    ],
)
def test_a_tensor_that_a_way_does_not_take(name, x, words):
    with pytest.raises(qc.QuantError, match=r"\.$") as error:
        compare(MISTAKES[name], x)
    assert words in str(error.value)


@every
def test_what_is_said(name):
    mistake = MISTAKES[name]
    for text in (mistake.hint, mistake.why, mistake.fix, mistake.source):
        assert text.rstrip().endswith((".", "?"))
    assert len(mistake.title) < 50


def test_every_lesson_of_the_catalogue_exists():
    for mistake in catalogue.values():
        lesson, step = mistake.lesson or ("scale", "")
        assert step in {"", *LESSONS[lesson].steps}


def test_no_two_mistakes_have_one_place():
    every = [*catalogue.values()]
    for ranks in ([m.in_answers.rank for m in every if m.in_answers], [m.in_codes.rank for m in every if m.in_codes]):
        assert len(set(ranks)) == len(ranks)
    assert sorted(case.number for m in every for case in m.cases) == list(range(1, len(MISTAKES) + 1))


TIES = torch.arange(-40, 40).reshape(8, 10) / 4
EVALUATED = {
    "half_away": "int4 given(1)", "half_up": "int4 given(1)", "toward_zero": "int4 given(1)", "floor": "int4 given(1)",
    "wrapped": "int4 given(1)", "unclamped": "int4 given(1)", "narrow": "int4 given(1)",
    "zero_point_negated": "uint4 asymmetric", "zero_point_left_out": "uint4 asymmetric", "middle_left_out": "uint4",
}  # fmt: skip


@for_each("name", EVALUATED)
@in_parts(7)
def test_a_mistake_is_the_same_in_all_codes_and_in_one_cell(name, part):
    """Match evaluates it on tensors, Predict on one element."""
    scheme = qc.Scheme.parse(EVALUATED[name])
    result = qc.apply(TIES, scheme)
    codes = reproduce(TIES, changed(scheme, (name,)), Corruption((name,)))
    cells = [tuple(place) for place in (codes != result.codes).nonzero().tolist()]
    assert cells
    for place in part(cells):
        assert catalogue[name] in giving(result, "codes", place, float(codes[place]))


def giving(result, asked, place, value):
    """The mistakes that give this code, scale or zero point."""
    return [answer.mistake for answer in answers(result, asked, place) if answer.value == value]


def test_answers_are_only_wrong_values():
    result = qc.apply(TIES, qc.Scheme.parse("uint4 asymmetric per_channel(0)"))
    assert giving(result, "codes", (0, 0), float(result.codes[0, 0])) == []
    assert giving(result, "scale", (0, 0), 2 * float(result.scale[0])) == []
    (doubled,) = giving(result, "scale", (1, 0), float(result.scale[1]) * 10)
    assert doubled is catalogue["decimal_point"]
    with pytest.raises(qc.QuantError, match="is not an integer format"):
        giving(qc.apply(TIES, qc.Scheme.parse("e4m3fn")), "codes", (0, 0), 1.0)
