"""A lesson without a browser: opened by a link, and what it shows."""

import json
import re
from typing import Any

from app_page import lines, said, the_app
from streamlit.testing.v1 import AppTest

from pages.learn.lesson_pages import LESSON_URLS
from pages.shared import curriculum


def opened(name: str, step: str = "", **parameters: str) -> AppTest:
    """A lesson opened by a link with these parameters."""
    at = the_app(LESSON_URLS[name])
    if step:
        parameters[curriculum.step_key(name)] = step
    for key, value in parameters.items():
        at.query_params[key] = value
    return at.run()


def tables(at: AppTest) -> dict[str, list[list[list[str]]]]:
    """The tables of cells: title -> rows of [text, mark]; the last one if titles are equal."""
    found = {}
    for component in at.get("bidi_component"):
        data = json.loads(component.proto.json or "{}")  # the component without data watches the history
        if isinstance(data, list):  # maps, and figures that a hand moves
            continue
        found |= {table["title"]: table["cells"] for table in data.get("tables", [])}
    return found


def by_hand(at: AppTest) -> dict[str, Any]:
    """What a step whose figure is moved by hand was given: its figure, its sentences, and where to ask."""
    (found,) = [c.proto.json for c in at.get("bidi_component") if "handles" in (c.proto.json or "")]
    return dict(json.loads(json.loads(found)[0]))


def numbers(rows: list[list[list[str]]]) -> list[list[float]]:
    return [[float(text) for text, _ in row] for row in rows]


def marks(rows: list[list[list[str]]]) -> list[list[str]]:
    return [[mark for _, mark in row] for row in rows]


def blocks(at: AppTest) -> list[Any]:
    """The code blocks, except for the link."""
    return [block for block in at.code if not block.value.startswith(("http", "/"))]


def code(at: AppTest) -> str:
    """The text of the blocks of code and arithmetic, with a hyphen for a minus sign, as Python writes it."""
    text = "\n".join([*(block.value for block in blocks(at)), *lines(at)])
    return text.replace("−", "-")


def hyphens(at: AppTest) -> list[str]:
    """The texts with a hyphen where a minus sign belongs; not those with code."""
    shown = [*lines(at), *tables(at), *(text for text in said(at.markdown) if "`" not in text)]
    return [
        text for text in shown if re.search(r"(?<!\w)-( ?[\d.(]| \w)", text) and not text.startswith("- ")
    ]


def assert_clean(at: AppTest) -> None:
    assert not at.exception
    assert said(at.error) == []
