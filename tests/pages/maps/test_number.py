"""The number by which a reader of the page, such as a test in a browser, knows that the maps are those of the latest run."""

import json
import re
from typing import Any

from app_page import change, the_app
from streamlit.testing.v1 import AppTest


def number(at: AppTest) -> str:
    """The number of the page, which is that of the picture."""
    assert not at.exception
    sent: dict[str, Any] = next(
        json.loads(c.proto.json)[0] for c in at.get("bidi_component") if '"arrays"' in c.proto.json
    )
    (stands,) = re.findall(r'data-maps="(\w+)"', " ".join(element.proto.body for element in at.get("html")))
    assert sent["number"] == stands
    return str(stands)


def test_each_picture_has_a_number_of_its_own_and_the_same_one_keeps_it() -> None:
    at = the_app().run()
    first = number(at)
    assert number(at.run()) == first
    found = [first]
    for key, value in (("seed", 5), ("cell", "3, 4"), ("borders", True), ("rows", "0:4"), ("bits", 5)):
        found.append(number(change(at, key, value)))  # the scheme stays the same but for the last one
    assert len(set(found)) == len(found)
    other = the_app().run()  # another visitor, whose token is another
    assert number(other) == first
