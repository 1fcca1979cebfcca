"""The warm-up, before the first visitor and behind the first page, observed in the serving process."""

import asyncio

import pytest
from loops import finish
from parts import in_parts
from places import ROOT
from served import serve

from benchmarks.visitor import Visitor, visit
from pages.serving import activity
from pages.serving.activity import Activity

TABS = ("Distribution", "Scales", "Numbers", "Code", "Export")
# on a busy machine, a visitor's requests follow each other slowly
LONG_PAUSES = """
from pages.serving import activity
activity.QUIET, activity.Activity.rest.__defaults__ = 60.0, (3600.0,)
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("served"), QUANTSCOPE_WARM_UP="all") as server:
        yield server


# imported by pages or tabs other than the first, or by functions that no page calls
NOT_AT_FIRST = {
    "pandas", "pyarrow", "quantcore.checkpoints", "quantcore.layerwise", "pages.models.opening", "onnx",
    "altair", "pydeck", "sympy", "torch._dynamo", "torch._inductor",
}  # fmt: skip


@pytest.mark.slow  # warms every page of the app
@in_parts(3)
def test_no_visit_imports_anything(app, part):
    app.await_warm()
    before, modules = app.look_inside(), app.imported()
    assert before["frozen"] > 100_000
    # some of torch's functions import it, which takes half a second of the start
    assert "sympy" not in modules
    pages = finish(visit(app.host)).pages
    assert len(pages) >= 14
    for page in part(pages):
        finish(visit(app.host, page))
        assert app.imported() - modules == set(), page
    for tab in part(TABS):
        finish(visit(app.host, "", f"tab={tab}"))
        assert app.imported() - modules == set(), tab
    assert app.look_inside()["frozen"] <= before["frozen"]  # frozen only once


def test_only_the_first_page_is_opened(started):
    assert started.before & NOT_AT_FIRST == set()
    assert "quantcore" in started.before
    assert started.after == started.before
    finish(visit(started.server.host, "checkpoint"))
    assert started.server.imported() > started.before


@pytest.mark.slow  # fourteen pages at once
def test_visitors_of_every_page_are_served_while_the_others_are_warmed(tmp_path):
    """All at once, and as soon as the server answers: each imports what its page needs while others do."""

    async def come(host, pages):
        visitors = await asyncio.gather(*(visit(host, page) for page in pages))
        return [text for visitor in visitors for text in visitor.texts if "hit a bug" in text]

    with serve(tmp_path, QUANTSCOPE_WARM_UP="all") as server:
        assert not any("every page" in line for line in server.lines())  # it answers before it is warm
        pages = finish(visit(server.host)).pages
        assert finish(come(server.host, pages)) == []
        server.await_warm()
        assert [line for line in server.lines() if "ERROR" in line or "WARNING" in line] == []


@pytest.mark.slow  # starts a server of its own
def test_a_visitor_goes_before_the_warm_up(tmp_path):
    """While a visitor comes again and again, no page but the visitor's is opened, by the server's count."""
    (tmp_path / "sitecustomize.py").write_text(LONG_PAUSES)

    async def stay(server):
        async with Visitor(server.host) as visitor:
            others = []
            for _ in range(2):  # in the first half, a page that was being opened is done
                for _ in range(20):
                    await visitor.run()
                    await asyncio.sleep(0.05)
                others.append(len(server.look_inside()["runs"]) - 20 * (len(others) + 1))
            return others

    with serve(tmp_path, QUANTSCOPE_WARM_UP="all", PYTHONPATH=f"{tmp_path}:{ROOT}") as server:
        before, after = finish(stay(server))
        assert not any("every page" in line for line in server.lines())
        assert abs(after - before) <= 1  # a run is counted a moment after its end


def test_rest_comes_when_nobody_is_served(monkeypatch):
    monkeypatch.setattr(activity, "QUIET", 0.1)

    async def waits():
        visitors = Activity()
        assert await visitors.rest(0.0)  # nobody has come yet
        visitors.begin()
        assert not await visitors.rest(0.3)  # a run is in work, however long
        visitors.end()
        assert not await visitors.rest(0.0)  # it has only just ended
        assert await visitors.rest(60.0)
        visitors.seen()
        assert not await visitors.rest(0.0)

    finish(waits())
