"""Steps whose figures a hand moves: what follows it is what the page's run then draws."""

import json
import re
from typing import Any

import numpy as np
import pytest
from grid import for_each
from lesson_app import by_hand, opened
from parts import some_rows

from pages.learn.hand import MovedNumber
from pages.maps import live
from quantcore.errors import QuantError
from tests.pages.maps.test_live import ask


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a server had the route."""
    monkeypatch.setattr(live, "_served", True)


def answered(sent: dict[str, Any], **values: object) -> dict[str, Any]:
    answer = ask(sent["at"], **values)
    assert answer.status_code == 200
    return dict(json.loads(bytes(answer.body)))


MOVED = [
    ("scale", "back", {"learn_scale_bits": 4, "learn_scale_low": -20, "learn_scale_reading": 67.4}),
    ("zero_point", "asymmetric", {"learn_zero_point_high": 3.3, "learn_zero_point_x": -0.7}),
    ("error", "clipping", {"learn_error_limit": 62, "learn_error_bits": 3}),
]


@for_each(("lesson", "step", "values"), some_rows(MOVED))
def test_a_run_draws_what_followed_the_hand(lesson: str, step: str, values: dict[str, float]) -> None:
    at = opened(lesson, step)
    followed = answered(by_hand(at), **values)
    drawn = by_hand(opened(lesson, step, **{key: str(value) for key, value in values.items()}))
    assert {**by_hand(at)["values"], **values} == followed["values"]
    assert followed == {key: value for key, value in drawn.items() if key not in ("at", "base")}
    assert followed["figure"] != by_hand(at)["figure"]


def test_the_reading_under_the_hand_gets_its_code() -> None:
    at = opened("scale", "code")  # whoever leaves the page is not answered
    sent = by_hand(at)
    for reading in (0.0, 20.4, 99.9, 120.0):
        lines = answered(sent, learn_scale_reading=reading, learn_scale_bits=5)["html"]["learn_hand_below"]
        code = min(31, round(np.float32(reading) / np.float32(np.float32(100) / np.float32(31))))
        assert re.search(rf"clamp\(\d+, 0, 31\) = {code}[,<]", lines), (reading, lines)


def test_what_a_control_does_not_have_is_refused() -> None:
    at = opened("scale", "marks")
    sent = by_hand(at)
    for text in ("9", "nan", "x"):
        answer = ask(sent["at"], learn_scale_bits=text)
        assert (answer.status_code, bytes(answer.body).decode()) == (
            400, f"Bits is a number from 2 to 8, not {text!r}."
        )  # fmt: skip
    assert answered(sent, another="1")["values"] == sent["values"]


def test_a_number_is_the_nearest_that_its_control_has() -> None:
    number = MovedNumber("key", -5.0, 5.0, 0.1, "x")
    assert (number.read("0.333"), number.read("-5")) == (0.3, -5.0)
    assert isinstance(MovedNumber("key", 2, 8, 1, "Bits").read("3.0"), int)
    with pytest.raises(QuantError, match="from -5 to 5"):
        number.read("5.2")
