"""Every step of every lesson without a browser: what it shows is computed, and bad input gets one sentence."""

import dataclasses
import itertools
import json
import re
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from app_page import key_figures, said, script_of, the_app, widget
from grid import for_each
from lesson_app import assert_clean, blocks, by_hand, code, hyphens, marks, numbers, opened, tables
from parts import some, some_rows
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.registry import KEYS
from pages.shared import curriculum
from quantcore import tensors
from quantcore.figures import style
from quantcore.mistakes import CASES, compare
from quantcore.mistakes import lines as lines_of
from quantcore.prediction import practice
from quantcore.wording import signed

LESSONS = list(curriculum.LESSONS)


def labelled(at: AppTest, label: str) -> Any:
    (found,) = [e for e in at if getattr(e, "label", None) == label]
    return found


STEPS = [(name, step) for name in LESSONS for step in curriculum.LESSONS[name].steps]


@for_each(("name", "step"), some_rows(STEPS, 19))
def test_every_step_opens_by_its_link(name: str, step: str) -> None:
    at = opened(name, step)
    assert_clean(at)
    assert widget(at, curriculum.step_key(name)).value == step
    assert said(at.warning) == []
    assert any(m.value.startswith("# ") for m in at.markdown)
    assert any(c.value.startswith("Sources:") for c in at.caption)
    labels = {button.label.lower() for button in at.button}
    assert labels & {"previous", "next"}
    assert hyphens(at) == []
    assert not labels & {step.lower() for found in curriculum.LESSONS.values() for step in found.steps}


def test_lessons_stand_in_their_order() -> None:
    first = ["why_quantize", "scale", "zero_point", "granularity", "error", "mistakes", "predict"]
    later = ["ptq_or_qat", "inside_a_layer", "outliers", "gptq", "rotation", "small_floats"]
    assert [*first, *later] == list(curriculum.LESSONS) == LESSONS
    assert {curriculum.step_key(name) for name in LESSONS} <= KEYS


@for_each("name", some(LESSONS, 13))
def test_next_and_previous_walk_the_steps(name: str) -> None:
    at = opened(name)
    steps = list(curriculum.LESSONS[name].steps)
    cases = [f"Case {number} of {len(steps)}" for number in range(1, len(steps) + 1)]
    words = cases if name == "mistakes" else [curriculum.step_words(step) for step in steps]
    assert [word.lower() for word in widget(at, curriculum.step_key(name)).options] == [
        word.lower() for word in words
    ]
    for here, there in itertools.pairwise(steps):
        assert widget(at, curriculum.step_key(name)).value == here
        widget(at, f"learn_{name}_next").click().run()
        assert widget(at, curriculum.step_key(name)).value == there
    widget(at, f"learn_{name}_previous").click().run()
    assert widget(at, curriculum.step_key(name)).value == steps[-2]


@for_each("tensor", some(["2x3x4", "1x1", "7", "4x5"]))
@for_each(("name", "step", "more"), [
    ("scale", "yours", {}), *(pytest.param(name, step, {}, marks=pytest.mark.slow) for name, step in (("zero_point", "choose"), ("error", "yours"))),
    ("mistakes", "truncated", {"learn_mistakes_mine": "true", "learn_mistakes_shown": "reveal"}),
    ("predict", "codes", {"learn_predict_mine": "true"}),
    pytest.param("predict", "scale", {"learn_predict_mine": "true"}, marks=pytest.mark.slow),
])  # fmt: skip
def test_tensors_of_every_shape(name: str, step: str, more: dict[str, str], tensor: str) -> None:
    assert_clean(opened(name, step, shape=tensor, dist="normal", **more))


@for_each("name", ["scale", "zero_point", "predict"])
def test_without_a_tensor_the_page_says_what_to_do(name: str) -> None:
    more = {"learn_predict_mine": "true"} if name == "predict" else {}
    at = opened(name, "" if name == "predict" else "yours", src="paste", **more)
    assert not at.exception
    assert "There is no tensor yet" in said(at.info)[0]


def test_a_practice_tensor_needs_no_tensor_of_the_visitor() -> None:
    pages = [opened("predict", **link) for link in ({}, {"src": "paste"})]
    asked = [[e.key for e in at.text_input if str(e.key).startswith("learn_predict_answer_")] for at in pages]
    assert asked[0] == asked[1] != []
    assert_clean(pages[1])


@for_each("name", some(LESSONS, 13))
def test_large_mode_is_a_part_of_the_link_and_of_every_page(name: str) -> None:
    at = opened(name, learn_large="true")
    assert_clean(at)
    assert widget(at, "learn_large").value is True
    assert "learn_large" in at.query_params
    at.query_params.clear()  # as links between pages do
    assert widget(at.switch_page(script_of("formats")).run(), "learn_large").value is True
    assert widget(opened(name), "learn_large").value is False


@for_each("name", some(CASES, 7))
def test_a_case_does_not_give_its_answer_away(name: str) -> None:
    at = opened("mistakes", name)
    seen = [*said(at.markdown), code(at), *at.selectbox[-1].options]
    (shown,) = [s for s in at.selectbox if s.label == "Case"]
    assert len(set(shown.options)) == len(CASES)
    text = " ".join([*seen, *shown.options]).lower().replace("_", " ").replace("-", " ")
    assert CASES[name].title.lower() not in text
    assert name.replace("-", " ") not in text
    assert "def quantize(x):" in code(at)


# The overview


def test_the_overview_links_to_the_lessons() -> None:
    at = the_app("learn").run()
    assert_clean(at)
    links = [element.proto for element in at.get("page_link")]
    for link, (name, lesson) in zip(links, curriculum.LESSONS.items(), strict=True):
        assert f"learn-{name.replace('_', '-')}" in link.page
        assert dict(parse_qsl(link.query_string)) == {curriculum.step_key(name): next(iter(lesson.steps))}
    cards = [
        element.proto.body
        for element in at.get("html")
        if element.proto.body.startswith('<p class="qs-card"')
    ]
    assert len(cards) == len(LESSONS)
    for card, name in zip(cards, LESSONS, strict=True):
        found = curriculum.LESSONS[name]
        assert found.idea in card
        assert f"{found.minutes} min" in card
        assert f"{len(found.steps)} steps" in card


def test_a_link_to_a_part_of_a_plan_says_where_plans_are() -> None:
    at = opened("scale", "back", plan="3")
    assert not at.exception
    (warning,) = said(at.warning)
    assert "plan=3" in warning
    assert "now on the page Class" in warning


# Scale


@for_each(("bits", "low", "high"), [(3, 0, 100), (2, -40, 120), (8, 0, 5)])
def test_the_scale_of_a_thermometer(bits: int, low: int, high: int) -> None:
    controls = {"learn_scale_bits": str(bits), "learn_scale_low": str(low), "learn_scale_high": str(high)}
    at = opened("scale", "marks", **controls)
    assert f"({high} - {low}) / {2**bits - 1} = {(high - low) / (2**bits - 1):.6g} °C" in code(at)
    assert f"{2**bits} marks" in by_hand(at)["html"]["learn_hand_words"]


def test_one_more_bit() -> None:
    shown = opened("scale", "bits").table[0].value
    assert list(shown["Scale"]) == [f"{100 / (2**b - 1):.4g} °C" for b in range(2, 9)]


@for_each(
    ("step", "low"),
    some_rows([("code", "0"), ("marks", "-20"), ("code", "-20"), ("yours", "0"), ("back", "-20")], 2),
)
def test_the_first_lessons_do_not_speak_of_zero_points(step: str, low: str) -> None:
    at = opened("scale", step, learn_scale_low=low)
    shown = code(at) + " ".join([*said(at.markdown), *(e.proto.body for e in at.get("html"))])
    assert "zero point" not in shown
    assert "+ z" not in shown
    if step in ("code", "back"):
        assert ("code of 0" in shown) == (low != "0")


# Zero point


def test_one_sided_data_waste_half_of_the_codes() -> None:
    found = key_figures(opened("zero_point", "one-sided"))
    assert found["codes below 0, never used"] == "8 of 16"


def test_a_range_without_zero_is_widened() -> None:
    at = opened("zero_point", "zero")
    shown = code(at)
    assert hyphens(at) == []
    assert "lowest x = 2.0, but low = 0, high = 4" in shown
    assert "= (4 - 0) / 15" in shown


def test_asymmetric_gains_six_decibels_on_one_sided_data() -> None:
    shown = opened("zero_point", "choose").table[0].value
    gain = [
        float(a.split()[0]) - float(s.split()[0])
        for a, s in zip(shown["SQNR, asymmetric"], shown["SQNR, symmetric"], strict=True)
    ]
    assert abs(gain[0]) < 1
    assert 5.5 < gain[1] < 7
    assert len(gain) == 4  # including the visitor's tensor


# Granularity

X = np.array(
    [[0.11, -0.32, 0.05, 0.27, -0.14, 0.21], [0.4, 0.18, -0.35, 0.02, 0.33, -0.29],
     [9.6, -4.1, 7.2, 2.5, -8.8, 5.3], [-0.06, 0.24, 0.37, -0.19, 0.12, -0.41]])  # fmt: skip


@for_each(("step", "axis"), [("rows", 0), ("columns", 1)])
def test_scales_broadcast_as_numpy_says(step: str, axis: int) -> None:
    shown = tables(opened("granularity", step))
    largest = np.abs(X).max(axis=1 - axis, keepdims=True)
    np.testing.assert_allclose(numbers(shown["s = max|x| / 7"]), largest / 7, atol=5e-4)
    np.testing.assert_allclose(
        numbers(shown["s, broadcast"]), np.broadcast_to(largest / 7, X.shape), atol=5e-4
    )
    np.testing.assert_array_equal(numbers(shown["codes = round(x / s)"]), np.round(X / (largest / 7)))
    tints = np.array(marks(shown["x"]))
    same = [len(set(line)) for line in (tints if axis == 0 else tints.T)]
    assert same == [1] * X.shape[axis]


def test_the_shape_that_divides_columns() -> None:
    shown = tables(opened("granularity", "trap"))
    m, s = np.arange(1.0, 10).reshape(3, 3), np.array([1.0, 5, 10])
    np.testing.assert_allclose(numbers(shown["x / s, intended"]), m / s[:, None], atol=5e-4)
    np.testing.assert_allclose(numbers(shown["x / s, actual"]), m / s, atol=5e-4)


@for_each(("down", "across"), some_rows(itertools.product([1, 2, 4], [1, 3, 6]), 4))
def test_blocks(down: int, across: int) -> None:
    at = opened(
        "granularity", "blocks", learn_granularity_down=str(down), learn_granularity_across=str(across)
    )
    tiles = np.abs(X).reshape(4 // down, down, 6 // across, across).max(axis=(1, 3))
    assert key_figures(at)["shape of the scales"] == str(tiles.shape)
    np.testing.assert_allclose(numbers(tables(at)["scale s"]), tiles / 7, atol=5e-4)
    assert key_figures(at)["bits per element"] == f"{4 + 32 / (down * across):.3g}"


# Error


def test_the_signs_of_errors_are_counted() -> None:
    """By Python's own rounding; truncation leaves x - x̂ the sign of x, as every error but 0 has it."""
    x, s = [0.9, -0.4, 2.0, -0.8, 0.1, 1.1], 2 / 3
    errors = [round(v - round(v / s) * s, 6) for v in x]
    wrong = [(e, v) for e, v in zip(errors, x, strict=True) if e]
    said_ = " ".join(m.value for m in opened("error", "signed").markdown)
    assert f"{sum(e * v > 0 for e, v in wrong)} of the {len(wrong)} errors here have the sign" in said_
    assert all((v - int(v / s) * s) * v >= 0 for v in x)


def test_metrics_with_their_numbers_put_in() -> None:
    x = np.array([0.9, -0.4, 2.0, -0.8, 0.1, 1.1], np.float32)
    error = (x - np.round(x / np.float32(2 / 3)) * np.float32(2 / 3)).astype(np.float64)
    shown = code(opened("error", "means"))
    assert f"= {np.abs(error).mean():.5g}\n" in shown
    assert f"= {(error**2).sum():.5g}\n" in shown
    assert f"/ 6 = {(error**2).mean():.5g}\n" in shown
    assert shown.endswith(f"= {np.abs(error).max():.5g}")
    assert error.min() < 0 < error.max()


def test_clipping_moves_with_the_range() -> None:
    x = tensors.generate(tensors.Generated("laplace", (16, 16), 1))
    for limit in ("100", "40"):
        found = key_figures(opened("error", "clipping", learn_error_limit=limit))
        edge = np.abs(x).max() * int(limit) / 100
        assert found["range"] == f"±{edge:.3g}"
        assert found["clipped"] == f"{int(((x > edge * 7.5 / 7) | (x < -edge * 8.5 / 7)).sum())} of 256"


# Mistakes


@for_each("name", some(CASES, 7))
def test_the_wrong_table_stands_there_unmarked_until_it_is_revealed(name: str) -> None:
    comparison = compare(CASES[name])
    at = opened("mistakes", name)
    shown = tables(at)
    assert numbers(shown["codes"]) == np.atleast_2d(comparison.wrong.codes.numpy()).tolist()
    assert {mark for row in marks(shown["x̂"]) for mark in row} == {""}
    why = signed(CASES[name].why)
    assert why not in " ".join(said(at.markdown))
    assert hyphens(at) == []
    at = opened("mistakes", name, learn_mistakes_shown="reveal")
    wrong = np.atleast_2d(comparison.wrong_cells.numpy())
    revealed = np.array(marks(tables(at)["x"]))
    np.testing.assert_array_equal(revealed == "wrong", wrong)
    sent = [json.loads(c.proto.json or "{}") for c in at.get("bidi_component")]
    drawn = [table for data in sent if isinstance(data, dict) for table in data.get("tables", [])]
    errors = [
        text
        for table in drawn
        if table["title"].startswith("x − x̂")
        for row in table["cells"]
        for text, _ in row
    ]
    assert len(errors) == 2 * wrong.size
    assert (
        len({len(text.partition(".")[2]) for text in errors if "e" not in text}) <= 1
    )  # of both, equally many decimals
    verb = "is" if wrong.sum() == 1 else "are"
    assert f"{int(wrong.sum())} of {wrong.size} cells {verb} wrong." in " ".join(said(at.markdown))
    assert why in " ".join(said(at.markdown))
    (block,) = blocks(at)
    assert block.language == "diff"
    sources = [[line.text for line in way] for way in lines_of(CASES[name])]
    for sign, source in zip("-+", sources, strict=True):  # each version is complete without the other's lines
        assert [line[2:] for line in block.value.splitlines() if line[0] in (" ", sign)][1:] == source[1:]
    assert {"-", "+"} <= {line[0] for line in block.value.splitlines()}


def test_cells_that_were_found_missed_and_falsely_chosen() -> None:
    at = opened("mistakes", "wraps-per-column", learn_mistakes_shown="reveal")
    at.session_state["_learn_found"] = {"wraps-per-column ": frozenset({(2, 0), (0, 0)})}
    at.run()
    shown = np.array(marks(tables(at)["x"]))
    assert (shown[2, 0], shown[0, 0]) == ("right", "false")
    assert (shown == "missed").sum() == 4
    assert "you found 1, and marked 1 correct cell." in " ".join(said(at.markdown))


def test_a_mistake_on_a_tensor_that_it_does_not_take() -> None:
    more = {"dist": "uniform", "uniform_low": "0", "uniform_high": "1e-30", "learn_mistakes_mine": "true"}
    at = opened("mistakes", "truncated", **more, shape="2x2")
    assert not at.exception
    at = opened("mistakes", "wraps-per-column", learn_mistakes_mine="true", shape="5")
    assert_clean(at)  # a vector becomes a table with one row


# Predict


def fresh(seed: int, fmt: qc.IntFormat = qc.INT4, symmetric: bool = True) -> np.ndarray:
    """The tensor of a question about codes."""
    return practice(fmt, symmetric, seed, clipping=True).x


def result_of(scheme: str, seed: int, clipping: bool = False) -> qc.Quantized:
    """The answers of a step: codes for a fixed range that clips, scale and zero point for min-max."""
    asked = qc.Scheme.parse(scheme)
    found = practice(asked.format, asked.symmetric, seed, clipping)
    if clipping:
        asked = dataclasses.replace(asked, range_setting=qc.Fixed(found.low, found.high))
    return qc.apply(found.x, asked)


def answer(at: AppTest, *typed: str) -> AppTest:
    """Type into the fields in order and press Check."""
    fields = [e for e in at.text_input if str(e.key).startswith("learn_predict_answer_")]
    assert len(fields) == len(typed)
    for field, text in zip(fields, typed, strict=True):
        field.set_value(text)
    return labelled(at, "Check").click().run()


@pytest.mark.parametrize("seed", some([7, 0]))
def test_right_codes(seed: int) -> None:
    codes = result_of("int4", seed, clipping=True).codes
    at = answer(
        opened("predict", learn_predict_seed=str(seed), learn_predict_row="2"), *map(str, codes[2].tolist())
    )
    assert_clean(at)
    assert marks(tables(at)["your answers"]) == [["right"] * 6]
    assert key_figures(at)["right here"] == "6 of 6"


def test_wrong_blank_and_words() -> None:
    result = result_of("uint4 asymmetric", 0, clipping=True)
    codes, z = result.codes[0].tolist(), int(result.zero_point)
    typed = [str(codes[0]), "", "many", str(codes[3] - z), str(codes[4] + 40), "1.5"]
    at = answer(opened("predict", codes="unsigned", mode="asymmetric"), *typed)
    assert_clean(at)
    shown = marks(tables(at)["your answers"])[0]
    assert shown == ["right", "faint", "wrong", "wrong", "wrong", "wrong"]
    told = said(at.markdown)
    assert any("'many' is not a number" in text for text in told)
    assert any("Zero point forgotten." in text for text in told)
    assert any("Not an integer." in text and "is an integer" in text for text in told)
    assert key_figures(at)["right here"] == "1 of 6"
    assert "correct" not in tables(at)  # not shown until asked for
    labelled(at, "Show the answers").set_value(True).run()
    assert [float(t) for t, _ in tables(at)["correct"][0]] == codes


@pytest.mark.slow  # by default, the answers of one row are counted
def test_the_score_adds_up_over_rows_and_steps() -> None:
    result = result_of("int4", 0, clipping=True)
    at = answer(opened("predict"), *map(str, result.codes[0].tolist()))
    widget(at, "learn_predict_row").set_value(1).run()
    at = answer(at, *["99"] * 6)
    assert key_figures(at) == {"right here": "0 of 6", "right so far": "6 of 12", "questions checked": "2"}
    widget(at, curriculum.step_key("predict")).set_value("scale").run()
    at = answer(at, f"{float(result_of('int4', 0).scale):.4g}")
    assert key_figures(at) == {"right here": "1 of 1", "right so far": "7 of 13", "questions checked": "3"}


@pytest.mark.slow  # by default, the scale of a tensor is asked for, and the blocks are named
def test_scale_and_zero_point_of_blocks() -> None:
    result = result_of("int4 asymmetric per_channel(axis=1)", 3)
    link = {"mode": "asymmetric", "per": "channel", "axis": "1", "learn_predict_seed": "3"}
    at = answer(opened("predict", "zero_point", **link), *(str(z) for z in result.zero_point[0].tolist()))
    assert marks(tables(at)["your answers"]) == [["right"] * 6]
    at = answer(opened("predict", "scale", **link), *(f"{s * 15 / 16:.4g}" for s in result.scale[0].tolist()))
    assert marks(tables(at)["your answers"]) == [["wrong"] * 6]
    assert sum("16 codes have 15 steps" in text for text in said(at.markdown)) >= 5


def test_a_new_tensor_is_the_next_seed() -> None:
    at = opened("predict", learn_predict_seed="4")
    assert numbers(tables(at)["x"])[0] == pytest.approx(fresh(4)[0].tolist(), abs=1e-6)
    widget(at, "learn_predict_fresh").click().run()
    assert widget(at, "learn_predict_seed").value == 5
    assert numbers(tables(at)["x"])[0] == pytest.approx(fresh(5)[0].tolist(), abs=1e-6)


def test_hostile_answers_are_shown_as_text() -> None:
    at = answer(opened("predict"), "<script>alert(1)</script>", "**1**", "$x$", "[a](b)", ":red[x]", "`1`")
    assert_clean(at)
    assert marks(tables(at)["your answers"]) == [["wrong"] * 6]
    bullets = [m.value for m in at.markdown if m.value.startswith("- ")]
    assert len(bullets) == sum("your answer " in b for b in bullets) == 6
    assert not any(
        re.search(r"(?<!\\)[<$\[`:]", b.partition("your answer ")[2].replace(": ", "")) for b in bullets
    )


@for_each(("step", "link", "words"), [
    ("scale", {"range": "by hand"}, "given, not computed"),
    pytest.param("zero_point", {"range": "by hand"}, "given, not computed", marks=pytest.mark.slow),
    ("codes", {"per": "block", "block": "2x2x2"}, "lengths"),
])  # fmt: skip
def test_what_cannot_be_asked(step: str, link: dict[str, str], words: str) -> None:
    at = opened("predict", step, **link)
    assert not at.exception
    (sentence,) = said(at.error)
    assert words in sentence or step == "codes"


def test_an_element_that_is_not_there() -> None:
    at = opened("scale", "yours", learn_scale_cell="99, 0")
    assert not at.exception
    assert "is not in a tensor of shape (8, 8)" in said(at.warning)[0]


def test_groups_of_which_no_two_look_alike() -> None:
    """Each block has its own color; with more blocks than colors, cells also show a number."""
    at = opened("granularity", "groups")
    for size in (3, 1, 2, 6):
        shown = tables(widget(at, "learn_granularity_size").set_value(size).run())
        figures = key_figures(at)
        assert figures["shape of the scales"] == f"(4, {6 // size})"
        assert figures["bits per element"] == f"{4 + 32 / size:.3g}"
        assert len(numbers(shown["scale s"])[0]) == 6 // size
        looks = [mark for row in marks(shown["scale s"]) for mark in row]
        assert len(set(looks)) == len(looks) == 24 // size
        assert all(":" in look for look in looks) == (len(looks) > len(style.BLOCKS["light"]))
        rows = marks(shown["x"])
        assert rows == marks(shown["codes"])
        assert rows == [[looks[(6 * i + j) // size] for j in range(6)] for i in range(4)]
        # neighbors differ in color, not just in the number
        hue = np.array([[mark.partition(":")[0] for mark in row[::size]] for row in rows])
        assert (hue[1:] != hue[:-1]).all()
        assert (hue[:, 1:] != hue[:, :-1]).all()


def followed(at: AppTest) -> str:
    (text,) = [e.value for e in at.markdown if "Arithmetic of element" in e.value]
    return re.search(r"element \(([\d, ]+)\)", text)[1]


@pytest.mark.slow  # by default, answers are checked row by row, without what explains them
def test_predict_explains_the_element_that_was_asked() -> None:
    """It explains the first wrong answer or, if none is wrong, the first element of the row asked about."""
    at = opened("predict", per="channel", axis="1")
    result = result_of("int4 per_channel(1)", 0)
    for row, wrong in ((2, None), (3, 3)):
        widget(at, "learn_predict_row").set_value(row).run()
        typed = [str(int(code) + (9 if i == wrong else 0)) for i, code in enumerate(result.codes[row])]
        answer(at, *typed)
        labelled(at, "Show the answers").set_value(True).run()
        assert followed(at) == f"{row}, {wrong or 0}"
        if wrong is None:  # an element that the user picks is followed until the next question
            widget(at, "learn_predict_cell").set_value("1, 2").run()
            assert followed(at) == "1, 2"
    widget(at, curriculum.step_key("predict")).set_value("scale").run()
    answer(at, *(["x"] * 2 + ["1"] * 4))
    labelled(at, "Show the answers").set_value(True).run()
    assert followed(at) == "3, 0"  # of the row asked about, not of the column's block


@for_each(
    ("link", "names"),
    [
        pytest.param({}, ["scale of the tensor"], marks=pytest.mark.slow),
        pytest.param({"per": "channel", "axis": "0"}, ["scale of row 0"], marks=pytest.mark.slow),
        ({"per": "channel", "axis": "1"}, [f"scale of column {i}" for i in range(6)]),
        ({"per": "group", "group": "2"}, [f"scale of row 0, columns {i}–{i + 1}" for i in (0, 2, 4)]),
    ],
)
def test_a_block_is_asked_for_by_its_name(link: dict[str, str], names: list[str]) -> None:
    at = opened("predict", "scale", **link)
    assert [e.label for e in at.text_input if str(e.key).startswith("learn_predict_answer_")] == names
