"""Compare → Schemes in Chromium: cold links, clicks, stopping, and files."""

import csv

import pytest
from page_rest import at_rest, expect

import quantcore as qc

HEADING = "Which scheme should I use?"


def opened(app, path):
    app.page.goto(app.address + path)
    settled(app.page)
    return app.page


def settled(page, heading=HEADING):
    at_rest(page, heading)


def points(page):
    return page.locator(".st-key-sw_chart .scatterlayer .trace path.point")


@pytest.mark.slow  # tested without a browser
def test_cold_link_computes_and_holds_the_choice(app):
    page = opened(
        app,
        "/schemes?sw_set=chosen&sw_formats=int4&sw_formats=e4m3fn&sw_metric=mse&sw_more=int8+torchao"
        "&sw_filter=int4&sw_maps=int4+per_tensor&sw_maps=int4+per_channel",
    )
    # int4: two symmetries × two granularities; e4m3fn: two granularities; the typed one; the ring around ours
    expect(points(page)).to_have_count(4 + 2 + 1 + 1)
    page.reload()
    settled(page)
    expect(points(page)).to_have_count(8)
    expect(page.locator(".st-key-sw_error_maps .heatmaplayer .hm")).to_have_count(2)
    expect(page.get_by_label("Filter the table", exact=True)).to_have_value("int4")
    last = page.locator(".st-key-sw_chart .scatterlayer > .trace").last  # names that only a wide window has room for
    assert last.evaluate("e => getComputedStyle(e).display") == "inline"
    page.set_viewport_size({"width": 390, "height": 844})
    assert last.evaluate("e => getComputedStyle(e).display") == "none"


@pytest.mark.slow  # tested without a browser
def test_the_link_that_is_shown_holds_every_choice(app):
    page = opened(app, "/schemes?sw_set=chosen&sw_formats=int4&sw_formats=nf4&sw_formats=e2m1")
    page.get_by_role("button", name="Link").click()
    link = page.locator("[data-testid=stPopoverBody] code")
    expect(link).to_contain_text("sw_formats=int4&sw_formats=nf4&sw_formats=e2m1")
    page.goto(link.inner_text())
    settled(page)
    # int4: two symmetries × two granularities; the others: two granularities each; and our ring
    expect(points(page)).to_have_count(4 + 2 + 2 + 1)


@pytest.mark.slow  # by default, buttons open schemes without a browser
def test_click_opens_the_scheme_in_explore(app):
    page = opened(
        app, "/schemes?sw_set=chosen&sw_formats=nf4&sw_per=per_group%284%29&sw_metric=mse&seed=3&per=channel"
    )
    expect(points(page)).to_have_count(3)
    box = points(page).nth(1).bounding_box()  # integers come first; the first is ours
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    app.expect_scheme("nf4 symmetric per_group(4, axis=1) min_max textbook")
    expect(page.get_by_label("Seed", exact=True)).to_have_value("3")


@pytest.mark.slow
def test_table_is_what_single_calls_give(app, tmp_path):
    page = opened(app, "/schemes?sw_set=chosen&shape=6x8&seed=3&sw_range=min_max&sw_range=min_mse")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    path = tmp_path / "sweep.csv"
    download.value.save_as(path)
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == 16
    x = qc.tensors.generate(qc.tensors.Generated("outlier_channel", (6, 8), seed=3))
    for row in rows:
        found = qc.report(qc.apply(x, qc.Scheme.parse(row["scheme"])))
        assert float(row["sqnr_db"]) == found.sqnr_db
        assert float(row["mse"]) == found.mse
        assert int(row["codes_used"].removesuffix(".0")) == found.codes_used


@pytest.mark.slow  # stopping is tested without a browser
def test_large_tensor_waits_for_the_button_shows_what_it_has_and_stops(app):
    page = opened(app, "/schemes?shape=1024x1024")
    total = len(qc.default_schemes((1024, 1024)))
    page.get_by_role("button", name="Compute").click()
    expect(page.get_by_text(f" of {total}: ")).to_be_visible(timeout=30_000)
    # the picture appears before the end
    expect(page.locator(".js-plotly-plot .scatterlayer .trace path.point").first).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    settled(page)
    left = page.get_by_role("button", name="Compute")
    expect(left).to_be_visible()
    assert 0 < int(left.inner_text().split()[1]) < total
    expect(points(page).first).to_be_visible()


@pytest.mark.slow  # tested without a browser, but for the grid of Streamlit
def test_rows_of_the_table_become_error_maps(app):
    page = opened(app, "/schemes?sw_set=chosen&sw_filter=int8")
    table, maps = page.locator(".st-key-sw_table"), page.locator(".st-key-sw_error_maps .heatmaplayer .hm")
    table.scroll_into_view_if_needed()
    cells = table.locator(".dvn-scroller")
    for row in (1, 2):  # the checkbox before a row's first cell
        cells.click(position={"x": 18, "y": 35 * row + 18})
        page.wait_for_function(f"() => location.search.split('sw_maps=int8').length === {row + 1}")
        expect(maps).to_have_count(row)


@pytest.mark.slow  # tested without a browser
def test_mistyped_scheme_is_one_sentence(app):
    page = opened(app, "/schemes?sw_more=int4+nonsense")
    expect(page.get_by_text("nonsense")).to_be_visible()
