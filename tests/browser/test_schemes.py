"""Compare → Schemes in Chromium: cold links, what is clicked, stopping, and files."""

import csv

from playwright.sync_api import expect

import quantcore as qc


def opened(app, path):
    app.expected.append("/_stcore/")  # Streamlit looks for its server below the page first
    app.page.goto(app.address + path)
    settled(app.page)
    return app.page


def settled(page):
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_have_count(
        1, timeout=60_000
    )
    expect(page.get_by_role("heading", name="Which scheme should I use?")).to_be_visible()


def points(page):
    return page.locator(".st-key-sw_chart .scatterlayer .trace path.point")


def test_cold_link_computes_and_holds_the_choice(app):
    page = opened(
        app, "/schemes?sw_set=chosen&sw_formats=int4&sw_formats=e4m3fn&sw_metric=mse&sw_more=int8+torchao"
    )
    # int4: two symmetries × two granularities; e4m3fn: two granularities; and the typed one
    expect(points(page)).to_have_count(4 + 2 + 1)
    page.reload()
    settled(page)
    expect(points(page)).to_have_count(7)


def test_table_is_what_single_calls_give(app, tmp_path):
    page = opened(app, "/schemes?sw_set=chosen&shape=6x8&seed=3")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    path = tmp_path / "sweep.csv"
    download.value.save_as(path)
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == 8
    x = qc.tensors.generate(qc.tensors.Generated("outlier_channel", (6, 8), seed=3))
    for row in rows:
        found = qc.report(qc.apply(x, qc.Scheme.parse(row["scheme"])))
        assert float(row["sqnr_db"]) == found.sqnr_db
        assert float(row["mse"]) == found.mse


def test_large_tensor_waits_for_the_button_and_stops(app):
    page = opened(app, "/schemes?shape=1024x1024")
    page.get_by_role("button", name="Compute").click()
    expect(page.get_by_text(" of 272: ")).to_be_visible(timeout=30_000)
    page.get_by_role("button", name="Stop").click()
    settled(page)
    left = page.get_by_role("button", name="Compute")
    expect(left).to_be_visible()
    assert 0 < int(left.inner_text().split()[1]) < 272
    expect(points(page).first).to_be_visible()


def test_mistyped_scheme_is_one_sentence(app):
    page = opened(app, "/schemes?sw_more=int4+nonsense")
    expect(page.get_by_text("nonsense")).to_be_visible()
