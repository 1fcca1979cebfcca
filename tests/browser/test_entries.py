"""Other ways to start the pages than `streamlit run app.py`."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect


@pytest.mark.slow
def test_without_the_entry(new_app: Callable[..., Any], serving: Callable[..., Any]) -> None:
    """`streamlit run pages/main.py` has no route for plotly.js, so the maps are a Streamlit chart."""
    with serving("pages/main.py") as address:
        app = new_app(address)
        app.expected = ["plotly.min.js", "Unexpected"]  # Streamlit answers with its own page
        app.open(bits="5", tab="Code")
        expect(app.input("_scheme_text")).to_have_value("int5 symmetric per_tensor min_max textbook")
        chart = app.page.get_by_test_id("stPlotlyChart")
        expect(chart.locator(".heatmaplayer").first).to_be_visible()
        app.type("_scheme_text", "int6")
        expect(app.input("_scheme_text")).to_have_value("int6 symmetric per_tensor min_max textbook")
        app.expect_parameters(bits="6", tab="Code")
        app.page.goto("about:blank")  # leave before the server stops
