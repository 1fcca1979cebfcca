"""Other ways to start the pages than `streamlit run app.py` at the root of a host."""

from collections.abc import Callable
from typing import Any

import pytest
from page_rest import expect

from pages.maps import drawing_script


@pytest.mark.slow
def test_without_the_entry(new_app: Callable[..., Any], serving: Callable[..., Any]) -> None:
    """`streamlit run pages/main.py` has no route for what draws the maps, so they are a Streamlit chart."""
    with serving("pages/main.py") as address:
        app = new_app(address)
        app.expected = [drawing_script.NAME]  # Streamlit answers with its own page
        app.open(bits="5", tab="Code")
        expect(app.input("_scheme_text")).to_have_value("int5 symmetric per_tensor min_max textbook")
        chart = app.page.get_by_test_id("stPlotlyChart")
        expect(chart.locator(".heatmaplayer").first).to_be_visible()
        app.type("_scheme_text", "int6")
        expect(app.input("_scheme_text")).to_have_value("int6 symmetric per_tensor min_max textbook")
        app.expect_parameters(bits="6", tab="Code")
        app.page.goto("about:blank")  # leave before the server stops


@pytest.mark.slow
def test_below_a_path(new_app: Callable[..., Any], serving: Callable[..., Any]) -> None:
    """With server.baseUrlPath, every route is below that path, and a cold deep link finds its server at once."""
    with serving("app.py", "--server.baseUrlPath=/quant/", below="/quant") as address:
        app = new_app(address, width=1920)
        for link in ("ranges?bits=5", "?bits=6"):
            app.page.goto(f"{address}/{link}")
            app.wait(f"document.querySelector('.qs-maps')?.dataset.painted?.includes('int{link[-1]}')")
        app.rest()
        app.point(2, 3)
        # beside the maps, from a route of ours
        expect(app.page.locator(".qs-standing:not(.qs-late) > b")).to_contain_text("(2, 3)")
        app.page.goto("about:blank")  # leave before the server stops
