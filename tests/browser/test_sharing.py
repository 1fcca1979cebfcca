"""Tensors too large for a link, passed from one browser to another by address or by file; and the QR code."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import segno
from page_rest import REST, SHOWN, expect

import quantcore as qc
from quantcore.figures.typography import SCALE, TEXT

X = np.random.default_rng(0).normal(size=(48, 40)).astype(np.float32)
FILE = safetensors.numpy.save({"bias": X[0], "first.weight": X + 1, "second.weight": X})
SCHEME = "int5 symmetric per_channel min_max textbook"
# Whether each module of the QR code is black, read from the picture as drawn
MODULES = """async (count) => {
    const image = document.querySelector(".qs-qr"), canvas = document.createElement("canvas"), size = 8 * count;
    await image.decode();
    canvas.width = canvas.height = size;
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0, size, size);
    const pixels = context.getImageData(0, 0, size, size).data;
    const black = (row, column) => pixels[4 * ((8 * row + 4) * size + 8 * column + 4)] < 128;
    return Array.from({length: count}, (_, row) => Array.from({length: count}, (_, column) => black(row, column)));
}"""


def upload(app: Any, data: bytes, name: str = "big.safetensors") -> None:
    app.page.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(
        {"name": name, "mimeType": "application/octet-stream", "buffer": data}
    )


def opened(app: Any, **more: str) -> Any:
    """Open the second weight of the file in another scheme than the default."""
    app.open(src="upload", bits="5", per="channel", **more)
    upload(app, FILE)
    app.expect_scheme(SCHEME)
    app.choose("tensor", "second.weight")
    app.expect_parameter("tensor", "second.weight")
    assert_view(app)
    return app


def assert_view(app: Any) -> None:
    # for a moment, another tensor may still be shown in the same scheme
    app.wait(f"(first) => {REST} && {SHOWN}('x')?.[0][0] === first", float(X[0, 0]))
    app.expect_scheme(SCHEME)
    np.testing.assert_array_equal(app.map("x"), X)
    np.testing.assert_array_equal(app.map("codes"), qc.apply(X, qc.Scheme.parse(SCHEME)).codes.numpy())


@pytest.mark.slow  # starts a second server; tested without a browser
def test_a_shared_tensor_opens_where_nothing_is_known_of_it(
    app: Any, new_app: Callable[..., Any], serving: Callable[..., Any], server: str
) -> None:
    """In another process that shares only the folder with the first, and from another origin."""
    folder = Path(os.environ["QUANTSCOPE_STORE"])
    opened(app)
    app.button("Link")
    popover = app.page.get_by_test_id("stPopoverBody")
    expect(popover).to_contain_text("stores its 7.7 kB on this server, for 30 days")
    before = set(folder.iterdir())
    app.button("Share this tensor")
    expect(popover).to_contain_text("Whoever opens this link sees the same tensor, scheme and view")
    link = popover.get_by_test_id("stCode").inner_text().strip()
    app.wait("(link) => location.href === link", link)
    (content,) = {path for path in folder.iterdir() if path.suffix == ".safetensors"} - before
    assert f"t=shared.{content.stem}" in link

    with serving() as second:
        other = new_app(second)
        other.open(link.replace(server, second))
        assert_view(other)
        expect(other.page.get_by_test_id("stAlert")).to_have_count(0)
        expect(other.page.get_by_role("dialog")).to_have_count(0)  # nor is a page missing
        other.type("_scheme_text", "int6")  # and the page works
        other.expect_scheme("int6 symmetric per_tensor min_max textbook")
        other.close()  # before its server stops


def a_qr_code_is_the_link_and_large_above_the_address(app: Any, link: str) -> None:
    expect(app.page.get_by_test_id("stPopoverBody").get_by_test_id("stCode")).to_have_text(link)
    app.button("QR code")
    expect(app.page.locator(".qs-qr")).to_be_visible()
    code = segno.make_qr(link, error="l").matrix
    drawn = np.array(app.page.evaluate(MODULES, len(code) + 8))
    np.testing.assert_array_equal(drawn, np.pad(np.array(code, bool), 4))
    box = app.page.locator(".qs-qr").bounding_box()
    assert min(box["width"], box["height"]) >= 2 / 3 * app.page.viewport_size["height"]
    app.page.set_viewport_size({"width": 1280, "height": 720})
    below = app.page.locator(".qs-address")
    expect(below).to_have_text(link)
    expect(below).to_be_in_viewport(ratio=1)
    size = "(e) => parseFloat(getComputedStyle(e).fontSize)"
    root = app.page.locator(":root").evaluate(size)
    assert below.evaluate(size) == pytest.approx(SCALE["title"] / TEXT * root, abs=0.1)
    assert below.bounding_box()["y"] >= sum(app.page.locator(".qs-qr").bounding_box()[k] for k in ("y", "height"))
    app.page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(app.page.locator(".qs-qr")).to_have_count(0)


TOAST, COPIED = ".qs-toast.qs-shown", "clipboard.readText()"


def a_click_on_link_copies_the_address_and_says_so_and_a_qr_code_is_the_link(app: Any) -> None:
    app.page.evaluate("window.clipboard = navigator.clipboard, 0")
    app.page.get_by_role("button", name="Link", exact=True).focus()
    app.page.keyboard.press("Enter")
    expect(app.page.locator(TOAST)).to_have_text("Link copied")
    expect(app.page.locator(TOAST)).to_have_attribute("role", "status")
    link = app.page.evaluate(COPIED)
    assert link == app.page.url.replace("&learn_large=true", "")  # which no link carries
    a_qr_code_is_the_link_and_large_above_the_address(app, link)


@pytest.mark.slow  # by default, the newer clipboard is tested in test_frame.py
def test_without_the_newer_clipboard_a_click_copies_and_without_any_it_shows_the_address(
    app: Any, clipboard: None
) -> None:
    """One visit, as on a page without TLS; a failure names its step."""
    app.open(bits="5")
    app.expect_scheme("int5 symmetric per_tensor min_max textbook")
    app.page.evaluate("window.clipboard = navigator.clipboard, 0")
    app.page.evaluate("delete Navigator.prototype.clipboard")
    app.button("Link")
    expect(app.page.locator(TOAST)).to_have_text("Link copied")
    assert app.page.evaluate(COPIED) == f"{app.address}/?bits=5"
    app.page.keyboard.press("Escape")
    expect(app.page.locator(TOAST)).to_have_count(0)
    app.type("_scheme_text", "int6")
    app.expect_scheme("int6 symmetric per_tensor min_max textbook")
    app.button("Link")
    expect(app.page.locator(TOAST)).to_have_text("Link copied")
    assert app.page.evaluate(COPIED) == f"{app.address}/?bits=6"
    app.page.keyboard.press("Escape")
    expect(app.page.locator(TOAST)).to_have_count(0)
    a_browser_that_denies_the_clipboard_shows_the_address(app)


def a_browser_that_denies_the_clipboard_shows_the_address(app: Any) -> None:
    app.page.evaluate("document.execCommand = () => false")
    app.button("Link")
    box = app.page.locator(TOAST)
    expect(box).to_contain_text("This browser does not let a page copy")
    expect(box.locator("code")).to_have_text(f"{app.address}/?bits=6")
    assert app.page.evaluate("getSelection().toString()") == f"{app.address}/?bits=6"
    app.page.keyboard.press("Escape")
    expect(box).to_have_count(0)


@pytest.mark.slow  # tested without a browser
def test_after_a_reload_the_page_asks_for_exactly_the_file(app: Any) -> None:
    opened(app)
    app.page.reload()
    app.rest()
    hint = app.page.get_by_test_id("stAlert")
    expect(hint).to_contain_text("the tensor second.weight of the file big.safetensors (SHA-256 ")
    upload(app, safetensors.numpy.save({"other.weight": X + 2, "bias": X[0]}))
    expect(hint).to_contain_text("has the same name, but is another file")
    expect(app.page.locator(".qs-plot")).to_have_count(0)
    app.expect_parameter("file", "big.safetensors")
    upload(app, FILE, "copy.safetensors")
    assert_view(app)
    expect(app.input("tensor")).to_have_value("second.weight")
    expect(hint).to_have_count(0)


@pytest.mark.slow  # by default, sharing is tested without a browser, and Back in test_history.py
def test_a_copy_says_what_the_link_carries_and_back_from_sharing_and_forward_again(
    app: Any, clipboard: None
) -> None:
    opened(app)
    app.button("Link")
    expect(app.page.locator(TOAST)).to_contain_text("Link copied. It does not carry everything")
    app.button("Share this tensor")
    app.wait(f"{REST} && location.search.includes('t=shared.')")
    app.page.keyboard.press("Escape")
    link = app.page.url
    app.button("Link")
    expect(app.page.locator(TOAST)).to_have_text("Link copied")
    app.page.keyboard.press("Escape")
    app.page.go_back()
    app.expect_parameter("t", None)
    assert_view(app)
    app.page.go_forward()
    app.wait("(link) => location.href === link", link)
    assert_view(app)
