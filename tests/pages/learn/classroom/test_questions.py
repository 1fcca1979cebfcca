"""Questions to a class: what they ask for is told apart by the catalogue of mistakes, whose answers they carry."""

import pytest

import quantcore as qc
from pages.learn.classroom.questions import Source, as_typed, ask_about
from quantcore.mistakes import giving
from quantcore.prediction.practice import practice

FOUND = practice(qc.INT4, False, 3, clipping=True)
RESULT = qc.apply(FOUND.x, qc.Scheme(qc.INT4, False, range_setting=qc.Fixed(FOUND.low, FOUND.high)))
ROWS = qc.apply(FOUND.x, qc.Scheme.parse("int8 asymmetric per_channel(0)"))


@pytest.mark.parametrize(("result", "asked"), [(RESULT, "codes"), (ROWS, "codes"), (ROWS, "zero_point"), (RESULT, "zero_point")])
def test_every_wrong_answer_has_exactly_the_mistakes_that_give_it(result, asked):
    question = ask_about(result, asked)
    source = Source.of(question)
    explained = 0
    for each, right in zip(source.fields, question.right, strict=True):
        exact = result.codes if asked == "codes" else result.zero_point
        assert float(right) == float(exact[each.place])
        for value in range(-300, 301):
            names = {name for text, name, _ in each.wrong if text == str(value)}
            assert names == {answer.mistake.name for answer in giving(result, asked, each.place, value)}
            explained += bool(names)
        assert right in each.how
    assert explained > len(question.fields)


def test_the_elements_asked_for_tell_mistakes_apart():
    question = ask_about(RESULT, "codes")
    told = set()
    for each in Source.of(question).fields:
        values = [text for text, _, _ in each.wrong]
        alone = {name for text, name, _ in each.wrong if values.count(text) == 1}
        assert alone - told or len(question.fields) == 2
        told |= alone
    assert len(told) >= 4
    assert len(set(question.fields)) > 1


def test_a_class_is_told_what_it_needs():
    assert ask_about(ROWS, "codes", at=(2, 1)).facts.startswith("int8: codes -128 to 127 · asymmetric · scale ")
    assert {each.place[0] for each in Source.of(ask_about(ROWS, "codes", at=(2, 1))).fields} == {2}
    scale = ask_about(RESULT, "scale", "scheme=int4")
    assert (scale.digits, scale.right) == (3, (as_typed(FOUND.scale, 3),))
    assert "scale" not in scale.facts
    assert Source.of(scale).link == "scheme=int4"


@pytest.mark.parametrize(
    ("scheme", "asked"), [("int4 given(0.5)", "scale"), ("int4 given(0.5)", "zero_point"), ("uint4 asymmetric hqq", "zero_point")]
)
def test_what_is_not_computed_is_not_asked(scheme, asked):
    with pytest.raises(qc.QuantError, match=r"(given|integers).*\.$"):
        ask_about(qc.apply(FOUND.x, qc.Scheme.parse(scheme)), asked)


@pytest.mark.parametrize("scheme", ["nf4 per_block([1, 64])", "e4m3", "int4 per_flat_group(5)"])
def test_what_can_not_be_asked_is_one_sentence(scheme):
    with pytest.raises(qc.QuantError, match=r"\.$"):
        ask_about(qc.apply(FOUND.x, qc.Scheme.parse(scheme)), "codes")


def test_a_scale_that_no_phone_can_type_is_one_sentence():
    assert as_typed(1.25e-9, 3) == "0.00000000125"
    with pytest.raises(qc.QuantError, match=r"typed in 12 characters; .*\.$"):
        ask_about(qc.apply(FOUND.x * 1e-12, qc.Scheme.parse("int4")), "scale")
