"""Questions to a class: what they ask for is told apart by the catalogue of mistakes, whose answers they carry."""

import itertools
import re
from collections import Counter

import numpy as np
import pytest
from grid import for_each
from parts import some

import quantcore as qc
from pages.learn.classroom import questions
from pages.learn.classroom.questions import ask_about
from quantcore.mistakes import answers
from quantcore.prediction import as_typed, practice, shown

FOUND = practice(qc.INT4, False, 3, clipping=True)
RESULT = qc.apply(FOUND.x, qc.Scheme(qc.INT4, False, range_setting=qc.Fixed(FOUND.low, FOUND.high)))
ROWS = qc.apply(FOUND.x, qc.Scheme.parse("int8 asymmetric per_channel(0)"))


def shortened(sentence):
    """A sentence with at most five digits after a point, rounded as Python does."""
    return re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.6g}", sentence)


def places(result, asked, question):
    """The elements or blocks of a question."""
    if asked != "codes":
        return list(np.ndindex(result.scale.shape))
    return [
        (int(question.part.rows[row]), int(question.part.columns[column]))
        for row, column in question.part.marked
    ]


@for_each(
    ("result", "asked"), [(RESULT, "codes"), (ROWS, "codes"), (ROWS, "zero_point"), (RESULT, "zero_point")]
)
def test_every_wrong_answer_has_exactly_the_mistakes_that_give_it(result, asked):
    question = ask_about(result, asked)
    explained = 0
    for key, place in zip(question.keys, places(result, asked, question), strict=True):
        exact = result.codes if asked == "codes" else result.zero_point
        assert float(key.right) == float(exact[place])
        given = list(answers(result, asked, place))
        for value in range(-300, 301):
            sentences = {shortened(sentence) for text, _, sentence in key.wrong if text == str(value)}
            assert sentences == {shortened(answer.sentence) for answer in given if answer.value == value}
            explained += bool(sentences)
        assert key.right in key.how
    assert explained > len(question.fields)


TENSORS = {
    "lesson": (RESULT, (0, 0)),
    "rows": (ROWS, (1, 0)),
    "reading": (
        qc.apply([3.2, 17.0, 36.6, 58.4, 71.9, 99.0], qc.Scheme.parse("uint3 asymmetric fixed(0, 100)")),
        (0,),
    ),
    "zeros": (qc.apply([0.0, 0.0, 0.0, 1.0, 0.0, -2.5], qc.Scheme.parse("int4")), (0,)),
    "one": (qc.apply(3.0, qc.Scheme.parse("int8")), ()),
    "symmetric": (qc.apply(practice(qc.INT8, True, 5).x, qc.Scheme.parse("int8")), (0, 0)),
    "wrap": (qc.apply(FOUND.x, qc.Scheme.parse("int4 fixed(-7, 7) textbook(overflow=wrap)")), (0, 0)),
    "library": (qc.apply(FOUND.x, qc.Scheme.parse("uint8 asymmetric onnxruntime")), (0, 0)),
}


def told(result, places):
    """The mistakes that alone give one of these elements' codes."""
    found = set()
    for place in places:
        given = {(answer.value, answer.mistake.name) for answer in answers(result, "codes", place)}
        often = Counter(value for value, _ in given)
        found |= {name for value, name in given if often[value] == 1}
    return found


@for_each("name", some(TENSORS, 2))
def test_no_other_elements_tell_more_mistakes_apart(name):
    """As many as all elements of the block together, and no element could be left out."""
    result, block = TENSORS[name]
    t = qc.trace(result, tuple(block))
    chosen = questions.telling(result, t.block)
    inside = list(itertools.product(*(range(*bounds) for bounds in t.bounds)))
    assert set(chosen) <= set(inside)
    assert chosen == sorted(chosen)
    alone = {place: told(result, [place]) for place in inside}
    every, mine = set().union(*alone.values()), set().union(*(alone[place] for place in chosen))
    if len(chosen) < questions.CELLS:
        assert mine == every
    values = {float(result.x[place]) for place in chosen}
    assert len(values) == len(chosen)
    assert len(chosen) >= min(2, len({float(result.x[place]) for place in inside}))
    assert len(max(alone.values(), key=len)) == max(len(alone[place]) for place in chosen)
    if len(chosen) > 2:
        smaller = [
            set().union(*(alone[p] for p in few)) for few in itertools.combinations(chosen, len(chosen) - 1)
        ]
        assert max(map(len, smaller)) < len(mine) or len(chosen) == questions.CELLS


def test_a_class_is_told_what_it_needs():
    assert ask_about(ROWS, "codes", at=(2, 1)).facts.startswith(
        "int8: codes -128 to 127 · asymmetric · scale "
    )
    assert {row for row, _ in places(ROWS, "codes", ask_about(ROWS, "codes", at=(2, 1)))} == {2}
    scale = ask_about(RESULT, "scale", "scheme=int4")
    assert (scale.digits, scale.right) == (3, (as_typed(FOUND.scale, 3),))
    assert "scale" not in scale.facts
    assert scale.link == "scheme=int4"


@for_each(
    ("scheme", "asked"),
    [("int4 given(0.5)", "scale"), ("int4 given(0.5)", "zero_point"), ("uint4 asymmetric hqq", "zero_point")],
)
def test_what_is_not_computed_is_not_asked(scheme, asked):
    with pytest.raises(qc.QuantError, match=r"(given|integers).*\.$"):
        ask_about(qc.apply(FOUND.x, qc.Scheme.parse(scheme)), asked)


@for_each("scheme", ["nf4 per_block([1, 64])", "e4m3", "int4 per_flat_group(5)"])
def test_what_can_not_be_asked_is_one_sentence(scheme):
    with pytest.raises(qc.QuantError, match=r"\.$"):
        ask_about(qc.apply(FOUND.x, qc.Scheme.parse(scheme)), "codes")


def test_a_scale_that_no_phone_can_type_is_one_sentence():
    assert as_typed(1.25e-9, 3) == "0.00000000125"
    with pytest.raises(qc.QuantError, match=r"typed in 12 characters; .*\.$"):
        ask_about(qc.apply(FOUND.x * 1e-12, qc.Scheme.parse("int4")), "scale")


def test_a_large_tensor_is_asked_about_without_being_shown():
    x = np.arange(-64, 64, dtype=np.float32).reshape(8, 16) / 10
    result = qc.apply(x, qc.Scheme.parse("int8 asymmetric per_channel(0)"))
    codes, scales, zeros = (ask_about(result, asked, at=(3, 5)) for asked in ("codes", "scale", "zero_point"))
    part = codes.part
    assert part
    assert len(part.columns) <= questions.CELLS
    assert [part.texts[row][column] for row, column in part.marked] == [
        name.removeprefix("x = ") for name in codes.fields
    ]
    for row, column in part.marked:
        assert float(part.texts[row][column]) == pytest.approx(
            float(x[int(part.rows[row]), int(part.columns[column])])
        )
    assert scales.part is None
    assert scales.fields[1] == "row 1, range -4.8 to 0"  # a range has 0 in it
    assert zeros.fields[1] == f"row 1, range -4.8 to 0, scale {shown(float(result.scale[1, 0]))}"


@for_each("shape", [(), (5,), (2, 3, 4)])
def test_a_tensor_of_any_rank_is_shown_by_its_indices(shape):
    x = (np.arange(int(np.prod(shape)), dtype=np.float32) / 4 - 1).reshape(shape)
    part = ask_about(qc.apply(x, qc.Scheme.parse("int4")), "codes").part
    assert [name for row in part.texts for name in row] == [shown(float(v)) for v in x.ravel()]
    assert part.rows == {(): ("",), (5,): ("",)}.get(
        shape, tuple(f"{i}, {j}" for i in range(2) for j in range(3))
    )


def test_numbers_too_long_for_a_projector_are_not_shown():
    x = np.random.default_rng(0).normal(0, 1234, (8, 8)).astype(np.float32)
    result = qc.apply(x, qc.Scheme.parse("int8 per_channel(0)"))
    scales = ask_about(result, "scale")
    assert scales.part is None
    assert scales.fields[2].startswith("row 2, range -")
    codes = ask_about(result, "codes").part
    assert len(codes.columns) == len(codes.marked)


def test_what_a_library_does_differently_is_said():
    question = ask_about(TENSORS["library"][0], "codes")
    assert "as onnxruntime" in question.facts
    assert "textbook" not in ask_about(RESULT, "codes").facts


def test_a_range_that_is_not_min_max_is_given():
    result = qc.apply(FOUND.x, qc.Scheme.parse("int4 asymmetric percentile(90)"))
    t = qc.trace(result, (0, 0))
    assert f"range {shown(t.low)} to {shown(t.high)}" in ask_about(result, "scale").facts


def test_a_block_without_a_finite_value_is_one_sentence():
    x = np.array([[1.0, 2.0], [np.nan, np.inf]], np.float32)
    with pytest.warns(UserWarning, match="NaN"):
        codes = qc.apply(x, qc.Scheme.parse("int4 per_channel(0) torch.fake_quantize"))
    assert {row for row, _ in places(codes, "codes", ask_about(codes, "codes"))} == {0}
    with pytest.raises(qc.QuantError, match=r"finite.*\.$"):
        ask_about(codes, "codes", at=(1, 0))
    with pytest.raises(qc.QuantError, match=r"finite.*\.$"):
        ask_about(codes, "scale")
