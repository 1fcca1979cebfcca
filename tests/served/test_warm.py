"""The warm-up before the first visitor, observed in the serving process."""

import pytest
from loops import finish
from served import serve

from benchmarks.visitor import visit

TABS = ("Distribution", "Scales", "Numbers", "Code", "Export")
APP = """
import streamlit as st
from pages.serving import log
from pages.serving.warm import warm_up
from contextlib import asynccontextmanager

@asynccontextmanager
async def lifespan(app):
    log.configure()
    await warm_up()
    yield {}

app = st.App("pages/main.py", lifespan=lifespan, on_script_error=log.report_failure)
"""
MAIN = """
import streamlit as st
st.navigation([st.Page(f"{name}.py", url_path=name) for name in ("first", "broken", "last")]).run()
"""
LAST = """
import chunk
import streamlit as st
one, two = st.tabs(["One", "Two"], key="tab", bind="query-params", on_change="rerun")
if two.open:
    import sndhdr
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("served"), QUANTSCOPE_WARM_UP="all") as server:
        yield server


def test_no_visit_imports_anything(app):
    before = app.look_inside()
    assert before["frozen"] > 100_000
    # some of torch's functions import it, which takes half a second of the start
    assert "sympy" not in before["modules"]
    pages = finish(visit(app.host)).pages
    assert len(pages) >= 14
    for page in pages:
        finish(visit(app.host, page))
        after = app.look_inside()
        assert set(after["modules"]) - set(before["modules"]) == set(), page
    for tab in TABS:
        finish(visit(app.host, "", f"tab={tab}"))
        assert set(app.look_inside()["modules"]) - set(before["modules"]) == set(), tab
    assert after["frozen"] <= before["frozen"]  # frozen only once


def test_only_the_first_page_is_opened(tmp_path):
    with serve(tmp_path, QUANTSCOPE_WARM_UP="first") as server:
        before = set(server.look_inside()["modules"])
        finish(visit(server.host, ""))
        assert set(server.look_inside()["modules"]) == before
        finish(visit(server.host, "checkpoint"))
        assert set(server.look_inside()["modules"]) > before


@pytest.mark.slow  # starts a server of its own
def test_a_page_that_fails_in_the_warm_up_is_one_line_in_the_log(tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "pages" / "main.py").write_text(MAIN)
    (tmp_path / "pages" / "first.py").write_text("import wave")
    (tmp_path / "pages" / "broken.py").write_text("raise ValueError('what a visitor pasted')")
    (tmp_path / "pages" / "last.py").write_text(LAST)
    with serve(tmp_path, tmp_path / "app.py", "--logger.enableRich=false") as server:
        inside = server.look_inside()
        assert {"wave", "chunk", "sndhdr"} <= set(inside["modules"])
        assert inside["sessions"] == 0  # the warm-up's sessions are closed
        finish(visit(server.host, "last"))
        assert server.look_inside()["sessions"] == 1
        problems = [line for line in server.lines() if "ValueError" in line]
    assert len(problems) == 1
    assert "page=/broken request=- ValueError at" in problems[0]
    assert "broken.py:1" in problems[0]
    assert "pasted" not in server.log.read_text()
