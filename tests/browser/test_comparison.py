"""Models → Two checkpoints in Chromium: a cold link, a click that opens the checkpoint, Back, and the download."""

import csv
from urllib.parse import parse_qs, urlsplit

import pytest
from page_rest import at_rest, expect

from quantcore.checkpoints import EXAMPLES, open_checkpoint
from quantcore.checkpoints.comparison import CheckpointComparison, by_harm

ORIGINAL, OTHER = "minilm", "minilm-q4_k_m"
HEADING = "How do two checkpoints differ?"


def opened(app, more=""):
    app.page.goto(
        f"{app.address}/compare-checkpoints?ck_original=example:{ORIGINAL}&ck=example:{OTHER}{more}"
    )
    at_rest(app.page, HEADING)
    return app.page


def bars(page):
    return page.locator(".st-key-cmp_chart .barlayer .point path")


@pytest.mark.slow  # the page is tested without a browser, and by default a click on a tile in test_checkpoint.py
def test_a_cold_link_and_a_click_that_opens_the_place(app):
    page = opened(app, "&cmp_sort=Bytes&cmp_part=Remarks")
    expect(bars(page)).to_have_count(2)  # the other tensors are equal
    comparison = CheckpointComparison(open_checkpoint(EXAMPLES[ORIGINAL]), open_checkpoint(EXAMPLES[OTHER]))
    *_, step = comparison.steps()
    worst = by_harm(comparison.results(step.state))[0]
    expect(page.get_by_text("6 pairs compared, 4 of them bit-equal")).to_be_visible()
    box = bars(page).first.bounding_box()  # here the largest tensor has the largest error
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url("**/checkpoint?**ck_tensor=**")
    query = parse_qs(urlsplit(page.url).query)
    assert query["ck_tensor"] == [worst.name]
    assert query["ck_cell"] == [", ".join(map(str, worst.other_index))]
    start, stop = map(int, query["ck_rows"][0].split(":"))
    assert start <= worst.other_index[0] < stop
    page.go_back()
    at_rest(page, HEADING)
    expect(bars(page)).to_have_count(2)
    assert "cmp_sort=Bytes" in page.url


@pytest.mark.slow  # the CSV's content is tested without a browser
def test_the_download_holds_the_numbers_of_the_module(app):
    page = opened(app, "&cmp_filter=attn_q+Q5_0")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    (row,) = csv.DictReader(download.value.path().read_text("utf-8").splitlines())
    comparison = CheckpointComparison(open_checkpoint(EXAMPLES[ORIGINAL]), open_checkpoint(EXAMPLES[OTHER]))
    *_, step = comparison.steps()
    (wanted,) = [r for r in comparison.results(step.state) if r.name == row["tensor"]]
    assert (float(row["sqnr_db"]), float(row["mse"])) == (wanted.sqnr_db, wanted.mse)
    assert row["worst_block"] == ", ".join(map(str, wanted.worst[0].index))
