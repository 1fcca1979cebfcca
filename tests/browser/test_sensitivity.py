"""Models → Sensitivity in Chromium: a click on a cell opens its weight and scheme in the maps, and arrows the next."""

from typing import Any

import pytest
from page_rest import at_rest, expect

import quantcore as qc
from quantcore.checkpoints import EXAMPLES, open_checkpoint

HEADING = "Which layer takes which scheme?"
TEXTS = ["int8 per_tensor", "int4 per_group(32)"]


@pytest.mark.slow  # what a click leads to is asked of the page itself; that a chart is clicked, of Schemes
def test_a_click_opens_the_weight_and_the_scheme(app: Any) -> None:
    page = app.page
    page.goto(f"{app.address}/sensitivity?ck=example:minilm&sn_more={'; '.join(TEXTS)}&sn_sort=harm")
    at_rest(page, HEADING)
    weights = open_checkpoint(EXAMPLES["minilm"]).tensors
    schemes = [qc.Scheme.parse(text) for text in TEXTS]
    errors = {
        name: [qc.report(qc.apply(weight.read(), scheme)).sqnr_db for scheme in schemes]
        for name, weight in weights.items() if len(weight.shape) == 2
    }  # fmt: skip
    names = sorted(errors, key=lambda name: errors[name][0])
    cells = page.locator(".qs-layers tbody tr").nth(1).locator("td")
    expect(cells).to_have_count(len(schemes))
    assert [float(text.removeprefix("✓ ")) for text in cells.all_inner_texts()] == [round(e, 1) for e in errors[names[1]]]

    cells.nth(1).click()
    app.expect_parameter("sn_tensor", names[1])
    app.expect_maps(str(schemes[1]))
    why = page.locator(".st-key-sn_why")
    expect(why).to_contain_text(f"{names[1]} under {schemes[1]}: SQNR {qc.decibels(errors[names[1]][1])}.")
    shown = app.map("codes")
    wanted = qc.apply(weights[names[1]].read(), schemes[1])
    assert shown.min() >= wanted.codes.min()
    assert set(shown.ravel().tolist()) <= set(wanted.codes.unique().tolist())

    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    app.expect_parameter("sn_scheme", str(schemes[0]))
    expect(page.locator(".st-key-sn_why")).to_contain_text(f"{names[1]} under {schemes[0]}")
