"""The steps of a class, and the file that a lecturer keeps, edits and opens again."""

import json
import re

import pytest
from grid import for_each
from places import ROOT

from pages.serving.classroom import ClassStep, Question, from_file, to_file, view_of
from pages.serving.classroom.step import FORMAT, MOST_BYTES, MOST_STEPS
from quantcore.errors import QuantError
from quantcore.prediction import KnownWrong, NumberKey

KEY = NumberKey("1", how="0.3 / 0.25 = 1.2", wrong=(KnownWrong("2", "toward_zero", "Rounded up."),))
ASKED = Question("Which code?", "int4", ("x = 0.3",), (KEY,), link="learn-scale?learn_scale_step=code")
PLAN = [
    ClassStep("Why anyone quantizes", 3, "memory\nbandwidth, “speed”", id="1"),
    ClassStep("How a range is chosen", 5, view="ranges?bits=4&t=1.a-b", id="2"),
    ClassStep("", 4, question=ASKED, id="3"),
]


def test_a_file_is_read_as_it_was_written_and_people_can_read_it():
    text = to_file(PLAN)
    assert from_file(text) == from_file(text.encode()) == PLAN
    found = json.loads(text)
    assert found["steps"][0] == {
        "title": "Why anyone quantizes",
        "minutes": 3,
        "text": "memory\nbandwidth, “speed”",
    }
    assert found["steps"][1] == {
        "title": "How a range is chosen",
        "minutes": 5,
        "view": "ranges?bits=4&t=1.a-b",
    }
    assert found["steps"][2]["question"]["keys"][0]["right"] == "1"
    assert PLAN[2].title == ASKED.prompt
    assert max(map(len, text.splitlines())) < 200
    assert "“speed”" in text


def changed(change):
    found = json.loads(to_file(PLAN))
    change(found)
    return json.dumps(found)


def at(index, **values):
    return lambda found: found["steps"][index].update(values)


@for_each(
    "number",
    range(16),
)
def test_a_bad_file_is_one_sentence_that_names_the_place(number):
    text, said = BAD[number]
    with pytest.raises(QuantError) as caught:
        from_file(text)
    assert said in str(caught.value), str(caught.value)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


BAD = [
    ('{"format":\n "quantscope class",}', "in line 2, at character 21"),
    (b"\xff\xfe\x00", "UTF-8"),
    ("[" * 100_000, "JSON"),
    ("[]", f'"format": "{FORMAT}"'),
    (changed(lambda found: found.update(version=2)), "version 2"),
    (changed(lambda found: found.pop("steps")), '"steps"'),
    (changed(lambda found: found.update(steps=[])), f"1 to {MOST_STEPS}"),
    (changed(lambda found: found.update(steps=found["steps"] * 30)), f"1 to {MOST_STEPS}"),
    (changed(at(1, minutes=-1)), "Step 2 of the file: The minutes"),
    (changed(at(1, minutes=2.5)), "Step 2 of the file: The minutes"),
    (changed(at(0, title="")), "Step 1 of the file: A step needs a title"),
    (changed(at(0, colour="red")), "Step 1 of the file: A step has no 'colour'"),
    (changed(at(1, view="https://example.org/x")), "Step 2 of the file: The view"),
    (changed(at(0, text="x" * 2000)), "Step 1 of the file: The text"),
    (
        changed(lambda found: found["steps"][2]["question"].pop("keys")),
        "Step 3 of the file: This question asks",
    ),
    (" " * (MOST_BYTES + 1), "at most"),
]


@for_each(
    "view", ["javascript:alert(1)", "//example.org", "../x", "x#y", "X?a", "a b", "ranges?a b", "http:x"]
)
def test_a_view_is_a_page_of_this_app(view):
    with pytest.raises(QuantError, match="view"):
        ClassStep("title", view=view)


def test_a_link_is_read_however_much_of_the_address_it_has():
    for link in (
        "https://quant.example.org/app/ranges?bits=4",
        "/ranges?bits=4",
        " ranges?bits=4 ",
        "127.0.0.1:8501/ranges?bits=4",
    ):
        assert view_of(link) == "ranges?bits=4"
    assert view_of("http://127.0.0.1:8501/?src=a/b") == "?src=a/b"
    with pytest.raises(QuantError, match="not both"):
        ClassStep("x", view="ranges", question=ASKED)


def test_the_file_in_the_documents_is_read():
    text = (ROOT / "docs" / "hosting.md").read_text("utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    first, second, third = from_file(example)
    assert (first.text, second.view, third.question.right) == (
        "Less memory.\nLess to move.",
        "ranges?bits=4",
        ("1",),
    )
    assert third.title == third.question.prompt
