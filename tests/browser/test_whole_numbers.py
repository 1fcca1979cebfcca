"""No number in a figure is cut off at its edge, however small or large."""

from typing import Any

import numpy as np
import pytest
from page_rest import REST
from parts import some

from quantcore.tensors import link

# Texts of figures and maps that extend beyond the left or right edge of their figure
OUTSIDE = """() => [...document.querySelectorAll(".stPlotlyChart .js-plotly-plot, .qs-plot")].flatMap((plot) => {
    const box = plot.getBoundingClientRect();
    return [...plot.querySelectorAll("svg text")].filter((text) => {
        const own = text.getBoundingClientRect();
        return text.textContent.trim() && own.width && (own.left < box.left - 1 || own.right > box.right + 1);
    }).map((text) => text.textContent);
})"""
RNG = np.random.default_rng(3)
TENSORS = {
    "tiny": (RNG.normal(size=(6, 8)) * 1e-5 - 3e-5).astype(np.float32),
    "huge": (RNG.normal(size=(6, 8)) * 1e6 - 3e6).astype(np.float32),
}


@pytest.mark.slow  # three pages of charts
@pytest.mark.parametrize("size", some(TENSORS, 2))
def test_no_number_of_a_figure_is_cut_off(app: Any, size: str) -> None:
    shown = {"t": link.encode(TENSORS[size]), "src": "paste", "mode": "asymmetric", "per": "channel"}
    app.open(**shown, tab="Scales")
    for tab in ("Scales", "Distribution"):
        app.tab(tab)
        app.expect_parameter("tab", tab)
        app.rest()
        app.wait(
            "document.querySelector('.stPlotlyChart .js-plotly-plot svg text')"
            " && document.querySelectorAll('.stPlotlyChart svg text, .qs-plot svg text').length > 20"
        )
        assert app.maps(OUTSIDE) == []
    app.page.get_by_test_id("stTopNavSection").first.click()
    app.page.get_by_test_id("stTopNavDropdownLink").filter(has_text="Ranges").click()
    app.wait(f"{REST} && document.querySelectorAll('.st-key-rng_curve .annotation-text').length > 0")
    assert app.page.evaluate(OUTSIDE) == []
