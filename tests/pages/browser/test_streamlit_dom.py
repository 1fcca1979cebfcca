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
    code = "\n".join(path.read_text(encoding="utf-8") for path in scripts)
    # the parts of a selector or attribute: an attribute is also written as the name of a property, such as testScriptState
    for name, written in NAMES.items():
        word = re.split(r"[=\]\[.]", written.strip("[]"))[-1]
        assert word in code, name


def test_every_name_is_used():
    texts = [
        path.read_text(encoding="utf-8") for path in PAGES.rglob("*") if path.suffix in (".py", ".js", ".css")
    ]
    unused = [name for name in NAMES if not any(f"%{name}%" in text for text in texts)]
    assert unused == []


def test_a_style_names_them():
    assert filled("%main% { width: 50% }") == "[data-testid=stMain] { width: 50% }"
