"""Answers with one wrong step are marked wrong, and the step is named."""

import math
import re
from decimal import Decimal

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some

import quantcore as qc
from quantcore import prediction, tensors
from quantcore.granularity.kinds import cells_of
from quantcore.mistakes import traced

X = [[0.5, -1.0, 2.0, 0.1], [-3.0, 0.6, 1.75, -0.2]]
ASYMMETRIC = "uint4 asymmetric"  # s = 5 / 15, z = 9


def of(scheme, x=X):
    return qc.apply(x, qc.Scheme.parse(scheme))


def mark_codes(result, places, typed):
    return prediction.mark(result, "codes", places, typed)


def mark_scales(result, blocks, typed):
    return prediction.mark(result, "scale", blocks, typed)


def mark_zero_points(result, blocks, typed):
    return prediction.mark(result, "zero_point", blocks, typed)


def code_mark(scheme, place, typed, x=X):
    (mark,) = mark_codes(of(scheme, x), [place], [typed])
    return mark


@for_each(
    "scheme", ["int4", ASYMMETRIC, "int8 per_channel(axis=1)", "int3 asymmetric per_group(2)"]
)
def test_right_answers(scheme):
    result = of(scheme)
    places = list(np.ndindex(2, 4))
    typed = [str(code) for code in result.codes.flatten().tolist()]
    marks = mark_codes(result, places, typed)
    assert [m.right for m in marks] == [True] * 8
    assert [m.sentence for m in marks] == [""] * 8
    blocks = list(np.ndindex(*result.scale.shape))
    scales, zeros = result.scale.flatten().tolist(), result.zero_point.flatten().tolist()
    assert all(m.right for m in mark_scales(result, blocks, [f"{s:.7g}" for s in scales]))
    assert all(m.right for m in mark_scales(result, blocks, [f"{s:.3g}" for s in scales]))
    assert all(m.right for m in mark_zero_points(result, blocks, [f" {z} " for z in zeros]))


# x = 0.5, z = 9, s = 1/3: x/s = 1.5, so 2 + 9 = 11; x = -3: -9 + 9 = 0; x = 2: 6 + 9 = 15
@for_each(
    ("place", "typed", "kind", "words"),
    [
        ((0, 0), "11", "right", ""),
        ((0, 0), "11.0", "right", ""),
        ((0, 0), "", "blank", ""),
        ((0, 0), "  ", "blank", ""),
        ((0, 0), "eleven", "not a number", "'eleven' is not a number"),
        ((0, 0), "nan", "not a number", "is not a number"),
        ((0, 0), "1e999999999", "not a number", "is not a number"),
        ((0, 0), "10,5", "not an integer", "is an integer"),
        ((0, 0), "10", "right", ""),  # 0.5 / 0.33333334, as shown, is no tie
        ((0, 0), "12", "off by one", "Too high by one. x / s = 1.5, rounded to 2, plus the zero point 9 is 11."),
        ((0, 0), "2", "zero point forgotten", "The zero point 9 is missing: 2 + 9."),
        ((1, 3), "10", "sign of x", "The sign is wrong: x is -0.2."),
        ((0, 0), "7", "codes of another format", "-8..7, the codes of int4; the codes of uint4 are 0..15"),
        ((0, 2), "−3", "sign of zero point", "it must be added: 6 + 9."),
        ((0, 2), "-5", "wrong", "x / s = 6"),
        ((0, 2), "0", "sign of zero point", "it must be added: 6 + 9."),
        ((0, 3), "8", "off by one", "rounded to 0"),
        ((0, 3), "10", "rounding", "rounded up to 1"),
        ((1, 2), "5", "zero point forgotten", "5 + 9"),
        ((1, 2), "10", "multiplied", "it must be divided: 1.75 / 0.33333334."),
    ],
)  # fmt: skip
def test_codes(place, typed, kind, words):
    mark = code_mark(ASYMMETRIC, place, typed)
    assert (mark.kind, mark.typed) == (kind, typed)
    assert words in mark.sentence
    assert mark.answer == {(0, 0): "11", (0, 2): "15", (0, 3): "9", (1, 2): "14", (1, 3): "8"}[place]


# fixed(-1, 1) at 4 bits: s = 1/7, 2.0 / s = 14 is clamped to 7 and would wrap to -2
@for_each(
    ("scheme", "place", "typed", "kind", "words"),
    [
        ("int4 fixed(-1, 1)", (0, 2), "7", "right", ""),
        ("int4 fixed(-1, 1)", (0, 2), "-2", "wrapped", "14 is outside -8..7"),
        ("int4 fixed(-1, 1)", (0, 2), "14", "not clamped", "14 is outside -8..7, so the code must be 7."),
        ("int5 fixed(-0.5, 0.5)", (0, 2), "31", "codes of another format", "0..31, the codes of uint5"),
        ("int4 fixed(-1, 1) textbook(overflow=wrap)", (0, 2), "-2", "right", ""),
        ("int4 fixed(-1, 1) textbook(overflow=wrap)", (0, 2), "7", "clamped", "wraps it to -2"),
        ("int4 fixed(-1, 1)", (0, 0), "-3", "sign of x", "The sign is wrong: x is 0.5."),
        ("int4 fixed(-1, 1)", (0, 0), "4", "rounding", "rounded up to 4"),
        ("int8 per_channel(axis=0)", (0, 2), "85", "another block", "of block (1, 0); this is block (0, 0)"),
        ("int8", (1, 0), "-3", "not scaled", "was not divided"),
        ("int8", (1, 0), "-126", "off by one", "Too high by one"),
        ("int4 textbook(rounding=toward_zero)", (1, 3), "-1", "rounding", "rounded down to -1"),
        ("int4n brevitas", (0, 0), "1", "right", ""),
    ],
)  # fmt: skip
def test_codes_of_other_schemes(scheme, place, typed, kind, words):
    mark = code_mark(scheme, place, typed)
    assert (mark.kind, mark.right) == (kind, kind == "right")
    assert words in mark.sentence


# s = 3 / 7 symmetric; 5 / 15 asymmetric
@for_each(
    ("scheme", "typed", "kind", "words"),
    [
        ("int4", "0.428571", "right", ""),
        ("int4", "0.4285", "right", ""),
        ("int4", "0.429", "right", ""),
        ("int4", ".43", "too few digits", "give 3 significant digits"),
        ("int4", "", "blank", ""),
        ("int4", "big", "not a number", "'big' is not a number"),
        ("int4", "0.375", "divisor", "Divided by 8; the highest code is the zero point + 7. It is max|x| / 7 = 3 / 7."),
        ("uint4 symmetric", "0.375", "divisor", "Divided by 8; the highest code is the zero point + 7."),
        ("int4", "0.2", "divisor", "max|x| covers half of the codes, not all of them."),
        ("int4", "0.333", "symmetry", "This scheme is symmetric."),
        ("int4", "0.4", "another convention", "Some libraries divide max|x| by 7.5; this one divides it by 7."),
        ("int4", "0.1875", "divisor", "Divided by 2^4 = 16, the number of codes; max|x| covers half of them."),
        ("int4", "0.2857", "absolute value", "but |-3| is larger"),
        ("int4", "2.333", "inverse", "That is 1 / s"),
        ("int4", "3", "not divided", "divided into steps"),
        ("int4", "4.29", "decimal point", "off by one place"),
        ("int4", "17", "wrong", "It is max|x| / 7 = 3 / 7 = 0.42857143."),
        ("int4 percentile(80)", "0.4286", "range", "That uses the range from min to max."),
        (ASYMMETRIC, "0.33333", "right", ""),
        (ASYMMETRIC, "0.3125", "divisor", "16 codes have 15 steps"),
        (ASYMMETRIC, "0.1333", "low forgotten", "starts at low"),
        (ASYMMETRIC, "-0.0667", "sign of low", "low must be subtracted from high, not added."),
        (ASYMMETRIC, "0.4286", "symmetry", "This scheme is asymmetric."),
        (ASYMMETRIC, "0.4", "symmetry", "max|x| / 7.5 is a scale of symmetric codes; this scheme is asymmetric."),
        ("int4 per_channel(axis=0)", "0.4286", "another block", "whole tensor"),
        ("int4 per_channel(axis=1)", "0.1429", "another block", "another block"),
    ],
)  # fmt: skip
def test_scales(scheme, typed, kind, words):
    (mark,) = mark_scales(of(scheme), [(0, 0)], [typed])
    assert mark.kind == kind
    assert words in mark.sentence


def test_three_digits_tell_127_from_128():
    result = of("int8", [[1.4967]])
    assert [m.kind for m in mark_scales(result, [(0, 0)] * 2, ["0.0118", "0.0117"])] == ["right", "divisor"]


def test_what_another_library_divides_by_is_a_convention():
    """max x / 127 where the library divides by 127.5, and no value is larger than max x."""
    (mark,) = mark_scales(of("int8 torchao", [[2.0, -1.0]]), [(0, 0)], ["0.015748"])
    assert (mark.kind, mark.answer) == ("another convention", "0.015686275")
    assert mark.sentence.startswith("Some libraries divide max|x| by 127; this one divides it by 127.5.")


def test_scale_whose_range_needs_zero():
    (mark,) = mark_scales(of("uint4 asymmetric", [[1.5, 3.0]]), [(0, 0)], ["0.1"])
    assert (mark.kind, mark.answer) == ("zero left out", "0.2")


def test_a_scale_stored_as_zero_has_no_inverse():
    marks = mark_scales(of("int8 scales(fp16 given(1))", [[1e-9, -2e-9]]), [(0, 0)], ["3"])
    assert [(mark.kind, mark.answer) for mark in marks] == [("wrong", "0")]


# uint4 asymmetric: -round(-3 / (1/3)) = 9; int4: -8 + 9 = 1; int8: s = 5/255, -128 + 153 = 25
@for_each(
    ("scheme", "typed", "kind", "words"),
    [
        (ASYMMETRIC, "9", "right", ""),
        (ASYMMETRIC, "-9", "sign of low", "It is qmin - round(low / s) = 0 - round(-9)."),
        (ASYMMETRIC, "1", "codes of another format", "the zero point of int4"),
        (ASYMMETRIC, "", "blank", ""),
        (ASYMMETRIC, "nine", "not a number", "'nine' is not a number"),
        (ASYMMETRIC, "8.5", "not an integer", "is an integer: round it"),
        (ASYMMETRIC, "10", "off by one", "Too high by one. It is clamp(qmin - round(low / s))"),
        ("int4 asymmetric", "1", "right", ""),
        ("int4 asymmetric", "-1", "sign of zero point", "The sign is wrong"),
        ("int4 asymmetric", "9", "lowest code forgotten", "low must get the lowest code, -8"),
        ("int8 asymmetric", "25", "right", ""),
        ("int8 asymmetric", "-25", "sign of zero point", "The sign is wrong"),
        ("int8 asymmetric", "153", "lowest code forgotten", "the lowest code, -128"),
        ("int8", "0", "right", ""),
        ("int8", "128", "symmetry", "Symmetric codes are centered on 0"),
        ("uint8", "0", "symmetry", "Symmetric unsigned codes are centered on 128"),
    ],
)  # fmt: skip
def test_zero_points(scheme, typed, kind, words):
    (mark,) = mark_zero_points(of(scheme), [(0, 0)], [typed])
    assert mark.kind == kind
    assert words in mark.sentence


def simulated(x, s, z, low, high, how):
    """The code that a learner computes with the step ``how`` wrong, in plain Python."""
    q = x / s
    whole = {"cut": math.trunc, "down": math.floor}.get(how, round)(q)
    code = whole - z if how == "sign" else whole if how == "forgotten" else whole + z
    if how == "wrap":
        return (code - low) % (high - low + 1) + low
    return code if how == "unclamped" else min(max(code, low), high)


KINDS = {
    "cut": "rounding",
    "down": "rounding",
    "sign": "sign of zero point",
    "forgotten": "zero point forgotten",
    "wrap": "wrapped",
    "unclamped": "not clamped",
}


@for_each("how", KINDS)
@for_each("scheme", some(["int8 asymmetric percentile(90)", "uint6 asymmetric percentile(80)"]))
def test_a_learner_with_one_habit_is_told_so(scheme, how):
    """Of the elements that a habit gets wrong, at least 90 % are explained by it, and all by some wrong step."""
    x = tensors.generate(tensors.Generated("normal", (10, 20), 5)) + 0.37
    result = of(scheme, x)
    fmt, z = result.scheme.format, int(result.zero_point)
    answers = {
        p: simulated(float(x[p]) / 1.0, float(result.scale), z, fmt.qmin, fmt.qmax, how)
        for p in np.ndindex(10, 20)
    }
    missed = [p for p, code in answers.items() if code != int(result.codes[p])]
    places = missed[:20] + [p for p in answers if p not in missed][:5]
    typed = [answers[p] for p in places]
    marks = mark_codes(result, places, [str(code) for code in typed])
    for place, code, mark in zip(places, typed, marks, strict=True):
        assert mark.right == (code == int(result.codes[place]))
    wrong = [m.kind for m in marks if not m.right]
    assert len(wrong) >= 15
    assert wrong.count(KINDS[how]) >= 0.9 * len(wrong)
    assert "wrong" not in wrong


# (0, 0): x = 0.5 as above; the range of all is -3 to 2
@for_each(
    ("step", "place", "answers"),
    [
        ("codes", (0, 0), [2 - 9, 0, 2, 9, 11]),  # z subtracted, clamped and wrapped; z forgotten
        ("scale", (0, 0), [(2 - 3) / 15, 2 / 15, 5 / 16, 5 / 15, 3 / 7]),
        ("zero_point", (0, 0), [-9, 0, 1, 8, 9]),  # sign of low; of int8, int4 and symmetric uint4
    ],
)
def test_usual_answers(step, place, answers):
    """The right one and those of likely errors, none twice, and all of them marked as what they are."""
    result, marker = of(ASYMMETRIC), {"codes": mark_codes, "scale": mark_scales, "zero_point": mark_zero_points}[step]
    found = prediction.usual_answers(result, step, place)
    assert [float(text) for text in found] == pytest.approx(answers, rel=1e-6)
    kinds = [mark.kind for mark in marker(result, [place] * len(found), found)]
    assert kinds.count("right") == 1
    assert "wrong" not in kinds


def test_blank_rows_and_hostile_text():
    result = of("int4")
    places = [(0, i) for i in range(4)]
    marks = mark_codes(result, places, ["", "<script>alert(1)</script>", "9" * 400, "0"])
    assert [m.kind for m in marks] == ["blank", "not a number", "not a number", "right"]
    assert all(len(m.sentence) < 200 for m in marks)


@for_each(
    ("call", "words"),
    [
        (lambda: mark_codes(of("e4m3fn"), [(0, 0)], ["1"]), "e4m3fn is not an integer format"),
        (lambda: mark_scales(of("int4 given(0.5)"), [(0, 0)], ["1"]), "given, not computed"),
        (lambda: mark_scales(of("int4 per_flat_group(3)"), [(0,)], [""]), "cross row boundaries"),
        (lambda: mark_zero_points(of("int4 given(0.5)"), [(0, 0)], ["1"]), "given, not computed"),
        (lambda: mark_codes(of("int4"), [(0, 0)], ["1", "2"]), "2 answers to 1 questions"),
        (lambda: mark_zero_points(of("uint4 asymmetric hqq per_group(2)"), [(0, 0)], ["1"]), "choose the textbook"),
        (lambda: traced(of("int4 per_flat_group(3)"), "zero_point", (0,)), "cross row boundaries"),
    ],
)  # fmt: skip
def test_what_cannot_be_predicted(call, words):
    with pytest.raises(qc.QuantError) as error:
        call()
    assert words in str(error.value)


def test_every_library_marks_its_own_codes_right():
    x = torch.tensor(X)
    for name, convention in qc.INTEGER_CONVENTIONS.items():
        scheme = qc.Scheme(qc.INT8, convention=convention)
        scheme = qc.nearest_supported(scheme, tuple(x.shape)) or scheme
        if not isinstance(scheme.format, qc.IntFormat):
            continue
        result = qc.apply(x, scheme)
        places = list(np.ndindex(2, 4))[::2]
        marks = mark_codes(result, places, [str(int(result.codes[place])) for place in places])
        assert all(m.right for m in marks), name
        assert not any(m.right for m in mark_codes(result, places[:1], ["200"])), name


@for_each("granularity", ["per_tensor", "per_channel(0)", "per_channel(1)", "per_group(3)"])
def test_every_answer_is_explained_with_the_numbers_of_its_own_element(granularity):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(8))
    result = qc.apply(x, qc.Scheme.parse(f"uint4 asymmetric {granularity}"))
    scale = cells_of(result.scale, (4, 6), result.block)
    for row in (0, 3):
        places = [(row, column) for column in range(6)]
        far = [str(int(result.codes[place]) + 40) for place in places]
        for place, mark in zip(places, mark_codes(result, places, far), strict=True):
            assert mark.answer == str(int(result.codes[place]))
            quotient = float(re.search(r"x / s = ([-+.\de]+)", mark.sentence)[1])
            assert quotient == pytest.approx(float(x[place] / scale[place]), rel=1e-5)


def test_a_number_that_was_rounded_is_shown_as_no_integer():
    """low / s is -3.9999998, the float32 next to -4."""
    (mark,) = mark_zero_points(of("int4 asymmetric", [[-0.1778497, 0.48908669]]), [(0, 0)], ["-5"])
    assert "-3.9999998 was rounded to -3" in mark.sentence


def test_low_in_steps_is_that_of_the_library():
    """low / s is -7 in float32, and -7.0000002 in float64."""
    result = of("int4 asymmetric", [[-1.905881, 2.1781497]])
    assert float(result.x.min()) / result.scale.item() < -7
    (mark,) = mark_zero_points(result, [(0, 0)], ["0"])
    assert (mark.kind, mark.answer) == ("symmetry", "-1")  # and not rounded up
    (mark,) = mark_zero_points(result, [(0, 0)], ["7"])
    assert "round(-7)" in mark.sentence


def test_a_small_negative_value_is_rounded_to_0_without_a_sign():
    """Students know no -0."""
    result = of("int4 fixed(-7, 7)", [[-0.2, 3.0]])
    assert prediction.correct_steps(qc.trace(result, (0, 0)), result, "codes") == "x / s = -0.2, rounded to 0."


# int4: s = 0.7385 / 7 = 0.1055, in float32 a little less: both roundings to three digits are right, as is 0.1055
@for_each(
    ("values", "typed", "kind"),
    [
        ([0.7385], "0.105", "right"),
        ([0.7385], "0.106", "right"),
        ([0.7385], "0,1055", "right"),
        ([0.7385], "0.1061", "wrong"),
        ([0.7385], "0.104", "wrong"),
        ([0.41], "0.0513", "divisor"),  # 0.41 / 8 = 0.05125
        ([0.41], "0.0512", "divisor"),
        ([0.41], "0.06", "too few digits"),
        ([0.41], "0.050", "wrong"),
    ],
)
def test_a_scale_is_right_at_three_digits_of_the_exact_one(values, typed, kind):
    (mark,) = mark_scales(of("int4", [values]), [(0, 0)], [typed])
    assert mark.kind == kind


def test_of_scales_that_end_in_a_five_both_roundings_are_right():
    """Each max |x| seven times a scale of four digits, computed in decimals."""
    for i in range(0, 200, 19):
        scale = Decimal(1005 + 10 * i).scaleb(-4)
        result = of("int4", [[float(7 * scale)]])
        half = Decimal("0.0005")
        typed = [f"{scale - half}"[:-1], f"{scale + half}"[:-1], f"{scale}", f"{scale + 3 * half}"[:-1]]
        marks = prediction.number_key(result, "scale", (0, 0), for_class=True)
        assert [marks.marks(text)[0].right for text in typed] == [True, True, True, False], scale


def test_a_tie_of_the_numbers_shown_may_be_rounded_as_a_tie():
    """0.35 / 0.1 is 3.5, in float32 3.4999998: both 4 and 3 are right; 0.45 / 0.1 is a tie in both."""
    result = of("int4 given(0.1)", [[0.35, 0.45]])
    assert [m.right for m in mark_codes(result, [(0, 0)] * 3, ["4", "3", "2"])] == [True, int(result.codes[0, 0]) == 3, False]
    result = of("int4 asymmetric", [[-1.43, 2.47]])  # -1.43 / 0.26 is -5.5, in float32 -5.4999995
    assert int(result.zero_point) == -8 + 5
    assert [m.right for m in mark_zero_points(result, [(0, 0)] * 3, ["-2", "-3", "-4"])] == [True, True, False]


# uint4 asymmetric, s = 0.5, z = 5: 3.3 / 0.5 = 6.6, 7 + 5 = 12; 9 / 0.5 = 18, 23 is clamped to 15
@for_each(
    ("x", "typed", "kind", "words"),
    [
        (3.25, "12", "rounding", "6.5 is a tie: it is rounded to the even integer, 6, not 7."),
        (9.3, "23", "rounding", "18.6 was truncated to 18; the scheme rounds it to 19. And 23 is outside 0..15."),
        (9.3, "3", "zero point forgotten", "The zero point 5 is missing: 19 + 5. And 19 was wrapped."),
        (9.3, "8", "wrapped", "24 is outside 0..15."),
    ],
)
def test_usual_wrong_codes(x, typed, kind, words):
    (mark,) = mark_codes(of("uint4 asymmetric given(0.5, 5)", [[x]]), [(0, 0)], [typed])
    assert mark.kind == kind
    assert words in mark.sentence


def test_a_code_counted_from_zero():
    (mark,) = mark_codes(of("int4 given(0.5)", [[1.6]]), [(0, 0)], ["11"])
    assert (mark.kind, mark.answer) == ("counted from 0", "3")
    assert mark.sentence == "That is q - qmin; the codes of int4 begin at -8, not at 0."


def test_a_zero_point_of_0_was_treated_as_symmetric():
    (mark,) = mark_zero_points(of("uint8 asymmetric", [[-1.0, 2.0]]), [(0, 0)], ["0"])
    assert (mark.kind, mark.answer) == ("symmetry", "85")
    assert mark.sentence.startswith("0 is the zero point of symmetric codes; this scheme is asymmetric.")


def test_two_fields_swapped():
    result = of("int4 given(0.5)", [[1.6, -0.4, 0.5]])  # 3, -1, 1
    marks = mark_codes(result, [(0, 0), (0, 1), (0, 2)], ["3", "1", "-1"])
    assert [mark.kind for mark in marks] == ["right", "sign of x", "sign of x"]
    marks = mark_codes(result, [(0, 0), (0, 2)], ["1", "3"])
    assert [mark.kind for mark in marks] == ["swapped", "swapped"]
    assert marks[0].sentence == "Answers 1 and 2 stand in each other's place."


# uint4, s = 0.25, z = 5: x = 1.65 gives 12, x̂ = (12 - 5) · 0.25 = 1.75, error -0.1
@for_each(
    ("asked", "typed", "kind"),
    [
        ("dequantized", "1.75", "right"),
        ("dequantized", "1,750", "right"),
        ("dequantized", "1.8", "too few digits"),
        ("dequantized", "3", "zero point forgotten"),
        ("dequantized", "4.25", "sign of zero point"),
        ("dequantized", "-2", "zero point after scaling"),
        ("dequantized", "12", "code instead of value"),
        ("dequantized", "7", "code instead of value"),
        ("dequantized", "1.5", "rounding"),
        ("dequantized", "1.65", "not rounded"),
        ("dequantized", "9", "wrong"),
        ("error", "-0.1", "right"),
        ("error", "-.100", "right"),
        ("error", "0.1", "sign of the error"),
        ("error", "-0.4", "in steps"),
        ("error", "0.15", "rounding"),
        ("error", "5", "wrong"),
        ("error", "0", "not rounded"),
    ],
)
def test_values_and_errors(asked, typed, kind):
    (mark,) = prediction.mark(of("uint4 given(0.25, 5)", [[1.65]]), asked, [(0, 0)], [typed])
    assert mark.kind == kind, mark
    if asked == "error" and kind in ("rounding", "not rounded"):
        assert mark.sentence.startswith(f"x̂ was taken as {1.65 - float(typed):g}. "), mark


# x̂ = (12 - 5) · 0.25 = 1.75, so the error is -0.1
@for_each(
    ("typed", "kinds"),
    [
        ("- 0,1", ["right"]),
        ("-1/10", ["right"]),
        ("-10 %", ["right"]),
        ("−1e-1", ["right"]),
        ("1 0", ["not a number"]),
        ("-1/0", ["not a number"]),
    ],
)
def test_numbers_as_students_write_them(typed, kinds):
    key = prediction.number_key(of("uint4 given(0.25, 5)", [[1.65]]), "error", (0, 0))
    assert [mark.kind for mark in key.marks(typed)] == kinds


@for_each(
    ("typed", "kinds"),
    [
        ("2.98", ["rounding"]),
        ("2.9", ["rounding"]),
        ("2.97", ["wrong"]),
        ("3", ["code instead of value", "too few digits"]),
        ("3.0", ["code instead of value", "too few digits"]),
    ],
)
def test_digits_that_are_cut_off_or_too_few(typed, kinds):
    result = of("int4 asymmetric fixed(-1, 4.6)", [[3.1]])  # 8 · 5.6 / 15 = 2.98667
    assert [m.kind for m in prediction.number_key(result, "dequantized", (0, 0)).marks(typed)] == kinds


def test_a_negative_code_read_without_its_sign():
    (mark,) = mark_codes(of("int8", [[-22.0, 127.0]]), [(0, 0)], ["234"])
    assert (mark.kind, mark.mistake) == ("wrapped", "wrapped")
    assert "2^8 = 256, it is -22" in mark.sentence


# 64 codes of 4 bits, 8 scales of 32 and 8 zero points of 4: (256 + 256 + 32) / 64 = 8.5
@for_each(("typed", "kind"), [("8.5", "right"), ("4", "parameters not counted"), ("8", "parameters not counted"), ("6.5", "parameters not counted"), ("8.6", "wrong")])
def test_bits_per_element(typed, kind):
    x = np.arange(64).reshape(8, 8) / 7
    (mark,) = prediction.mark(of("uint4 asymmetric per_channel(0)", x), "bits", [(0, 0)], [typed])
    assert mark.kind == kind
    assert mark.right or not mark.sentence.startswith("In bits") or "= 8.5" in mark.sentence or "is 8.5." in mark.sentence


def test_a_class_is_shown_no_tails_of_float32():
    result = of("uint4 asymmetric", [[-3.0, 2.0, 1.2]])  # a scale of a third, and 1.2 / s = 3.6000001 in float32
    keys = [prediction.number_key(result, "codes", (0, 2), for_class=for_class) for for_class in (False, True)]
    assert keys[0].how.replace("3.6000001", "3.6") == keys[1].how == "x / s = 3.6, rounded to 4, plus the zero point 9 is 13."
    assert prediction.shown(float(result.scale)) == "0.333333"
