"""The plan of a class: a question before each part's view, and its right numbers by arithmetic of their own."""

from collections import Counter
from urllib.parse import parse_qsl

import numpy as np
from app_page import lines, the_app

from pages.learn import material
from pages.learn.classroom import plan, views
from pages.registry import PAGES
from pages.serving.classroom import Board, Round, Tally
from pages.shared.curriculum import LESSONS, step_key


def quantized(values, scale, low, high):
    """Codes and values by Python's own division and rounding."""
    codes = [min(max(round(x / scale), low), high) for x in values]
    return codes, [code * scale for code in codes]


def asked(start):
    (question,) = [each for each in plan.questions() if each.prompt.startswith(start)]
    return question


def test_each_part_of_the_plan_asks_before_it_shows():
    steps = plan.steps()
    assert sum(step.minutes for step in steps) == 60
    every = [plan.steps_of(part) for part in plan.CLASS]
    assert list(steps) == [step for each in every for step in each]
    for part, (*before, after) in zip(
        (*plan.CLASS, *plan.CHOICES), [*every, *map(plan.steps_of, plan.CHOICES)], strict=True
    ):
        assert before
        assert sum(step.minutes for step in before) + after.minutes == part.minutes
        assert all(step.minutes for step in (*before, after))
        assert all(step.question or step.title.endswith((".", "?")) for step in before)
        assert not any(step.view for step in before)
        url, _, query = after.view.partition("?")
        (page,) = [page for page in PAGES if page.url_path == url]
        assert dict(parse_qsl(query))[step_key(part.lesson)] == part.step
        assert {key for key, _ in parse_qsl(query)} <= page.keys
        assert after.title == LESSONS[part.lesson].steps[part.step].headline
        if before[0].question:
            assert before[0].question.link == after.view


def test_nothing_that_is_shown_before_the_vote_has_the_answer():
    for question in plan.questions():
        tally = Tally(Round(1, 1, "open", question), 0, tuple(Counter() for _ in question.keys))
        shown = views.scene(Board(0, 0, tally.round, None, 0, 1), [tally])
        for key in question.keys:
            assert key.how
            assert key.how not in shown
            if not question.choices and len(key.right) > 2:
                assert key.right.replace("-", "−") not in shown


def test_the_right_numbers_are_those_of_plain_arithmetic():
    assert asked("With one more bit").right == (str(2 ** (3 + 1) - 1),)
    step = 100 / 7
    back = quantized(material.READINGS, step, 0, 7)[1]
    errors = [abs(x - y) for x, y in zip(material.READINGS, back, strict=True)]
    question = asked("Which reading")
    assert question.choices[int(question.right[0])] == f"{material.READINGS[errors.index(max(errors))]:g} °C"
    assert f"off by {max(errors):.6g}" in question.keys[0].how
    assert max(errors) <= step / 2
    clipped = quantized([99.0], 80 / 7, 0, 7)[1][0]
    assert float(asked("What is the error").right[0]) == round(99.0 - clipped, 9)
    scale = max(material.RELU) / 7
    assert asked("No value is negative").right == (
        str(len(set(quantized(np.linspace(0, 4.6, 999), scale, -8, 7)[0]))),
    )
    rows, scale = material.OUTLIER_ROW.tolist(), 9.6 / 7
    zero = [i for i, row in enumerate(rows) if not any(quantized(row, scale, -8, 7)[0])]
    question = asked("How many of these rows")
    assert question.right == (str(len(zero)),)
    assert question.keys[0].how.endswith(f"rows {', '.join(map(str, zero))}.")
    assert asked("How many bits").right == (f"{(8 * 64 * 4 + 8 * 64 // 32 * 32) / (8 * 64):g}",)


def test_the_questions_contain_a_tie_and_a_zero_point_that_common_mistakes_miss():
    (question,) = [each for each in plan.questions() if each.link.startswith("?")]
    codes = [round(x / 0.5) + round(-8 + 1 / 0.5) for x in (1.25, 2.2)]  # Python rounds half to even
    assert question.right == tuple(map(str, codes))
    assert "scale 0.5 · zero point -6" in question.facts
    half_up, left_out = str(codes[0] + 1), str(codes[1] + 6)
    assert [mark.mistake for mark in question.reasons(0, half_up)]
    assert "zero_point_left_out" in [mark.mistake for mark in question.reasons(1, left_out)]
    at = the_app()
    for key, value in parse_qsl(question.link[1:]):
        at.query_params[key] = value
    at.run()
    assert not at.exception
    assert not at.warning
    shown = "\n".join(lines(at))
    assert "zero point z" in shown
    assert "-6" in shown.replace("−", "-")
