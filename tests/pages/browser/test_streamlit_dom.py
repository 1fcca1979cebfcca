"""Streamlit's names in its page stand in one file, and the installed front end has them all."""

import re
from pathlib import Path

import streamlit
from places import ROOT

from pages.browser.streamlit_dom import NAMES, filled

PAGES = ROOT / "pages"
NAME = re.compile(r"\bst[A-Z]\w+|data-test|dataset\.test|data-tag")


def test_they_stand_in_one_file():
    homes = {
        path.name
        for path in PAGES.rglob("*")
        if path.suffix in (".py", ".js", ".css") and NAME.search(path.read_text(encoding="utf-8"))
    }
    assert homes - {"for_navigation"} == {"streamlit_dom.py"}


def test_the_installed_front_end_has_them():
    scripts = (Path(streamlit.__file__).parent / "static" / "static" / "js").glob("*.js")
    code = b"\n".join(path.read_bytes() for path in scripts)
    # the parts of a selector or attribute: an attribute is also written as the name of a property, such as testScriptState
    for name, written in NAMES.items():
        word = re.split(r"[=\]\[.]", written.strip("[]"))[-1]
        assert word.encode() in code, name


def test_every_name_is_used():
    texts = [
        path.read_text(encoding="utf-8") for path in PAGES.rglob("*") if path.suffix in (".py", ".js", ".css")
    ]
    unused = [name for name in NAMES if not any(f"%{name}%" in text for text in texts)]
    assert unused == []


def test_a_style_names_them():
    assert filled("%main% { width: 50% }") == "[data-testid=stMain] { width: 50% }"


def test_no_rule_of_every_page_asks_what_the_whole_page_has():
    """With `body:has(…)` each change of the page is a search: the maps followed a drag half as fast."""
    # html:has(> head > …) looks at the head alone
    rule = re.compile(r"(?:body|html|%app%)[^{},]*:has\((?!> head)")
    for path in ("browser/page.css", "browser/scripts.css", "maps/maps.css", "maps/cells.css", "learn/lesson.css"):
        styles = re.sub(r"/\*.*?\*/", "", (PAGES / path).read_text(encoding="utf-8"), flags=re.S)
        assert rule.findall(styles) == [], path


def test_a_length_of_a_page_is_not_named_as_one_of_all_pages():
    """A page that does not set its own would get the other: the rows of a lesson's tables were low in large mode."""
    common = set(re.findall(r"(--qs-[\w-]+):", (PAGES / "browser/page.css").read_text(encoding="utf-8")))
    for path in sorted((PAGES / "learn").glob("*.css")):
        assert common & set(re.findall(r"var\((--qs-[\w-]+),", path.read_text(encoding="utf-8"))) == set(), path
