"""Explore → Formats in Chromium: values on a line, how a number rounds, and bits that can be switched."""

import pytest
from page_rest import at_rest, expect

import quantcore as qc
from quantcore.formats import about


def opened(app, path):
    app.page.goto(app.address + path)
    at_rest(app.page, "Which numbers can a format hold?")
    return app.page


def marks(page):
    return page.locator(".st-key-fmt_chart .scatterlayer .trace path.point")


@pytest.mark.slow  # tested without a browser
def test_cold_link_shows_every_value(app):
    page = opened(app, "/formats?fmt_shown=e2m1&fmt_shown=int3&fmt_axis=value")
    # the values, what 2.6 rounds to in each format, and the code of the bits
    expect(marks(page)).to_have_count(15 + 8 + 2 + 1)
    for name, fmt in (("e2m1", qc.FLOATS["e2m1"]), ("int3", qc.IntFormat(3))):  # to be read whole
        expect(page.get_by_role("listitem").filter(has_text=f"{name}: {about(fmt)}")).to_be_visible()


@pytest.mark.slow  # tested without a browser, but for the colors
def test_bits_stand_in_the_link_and_have_the_color_of_their_kind(app):
    page = opened(app, "/formats?fmt_code=e4m3fn&fmt_bits=sign&fmt_bits=E3&fmt_bits=M1")
    expect(page.get_by_text("1 1000 010: -2^(8 - 7) · (1 + 2/8) = -2.5")).to_be_visible()
    colors = []
    for name in ("sign", "E3", "M1"):
        bit = page.locator(".st-key-fmt_bits").get_by_role("button", name=name, exact=True)
        expect(bit).to_have_attribute("aria-pressed", "true")
        look = bit.evaluate("e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).borderTopColor]")
        assert look[0] == look[1]
        colors.append(look[0])
    assert len(set(colors)) == 3
    page.get_by_role("button", name="M0", exact=True).click()
    expect(page.get_by_text("1 1000 011: -2^(8 - 7) · (1 + 3/8) = -2.75")).to_be_visible()


@pytest.mark.slow  # tested without a browser
def test_typed_format_and_one_that_is_none(app):
    page = opened(app, "/formats?fmt_shown=float(2%2C+2)&fmt_shown=float(9%2C+9)&fmt_axis=value")
    expect(page.get_by_text("exponent=9")).to_be_visible()
    expect(marks(page)).not_to_have_count(0)


@pytest.mark.slow  # tested without a browser
def test_codebooks_and_one_fitted_to_the_tensor(app):
    page = opened(
        app,
        "/formats?fmt_shown=nf4&fmt_shown=log2_4&fmt_shown=fitted&fmt_size=5&fmt_axis=value&fmt_x=0.3&seed=2",
    )
    expect(marks(page)).to_have_count(16 + 15 + 5 + 3 + 1)
    page.get_by_label("Size of the fitted codebook").fill("7")
    page.keyboard.press("Enter")
    expect(marks(page)).to_have_count(16 + 15 + 7 + 3 + 1)
    page.get_by_role("radio", name="logarithmic").click()
    # zero is not shown there, and the magnitudes of log2_4 and the ends of nf4 coincide
    expect(marks(page)).to_have_count(14 + 7 + 7 + 3 + 1)
