"""Opening a checkpoint: from the menu, by typing, by a link, from files; the other page then has it, too."""


import pytest
from page_rest import expect
from places import CHECKPOINTS

RELEASE = CHECKPOINTS / "gptq_v1_4bit_g128_sym" / "checkpoint"
OTHER = RELEASE.parent.parent / "gptq_v1_8bit_channel" / "checkpoint" / "model.safetensors"
NAMED = "gptq_v1_4bit_g128_sym/checkpoint"


def at(app, **parameters):
    app.address = f"{app.address}/checkpoint"
    app.page.goto(
        app.address + ("?" + "&".join(f"{k}={v}" for k, v in parameters.items()) if parameters else "")
    )
    return app


def meter(app, key="ck"):
    return app.key(f"opening_{key}_meter")


def go(app):
    """Go to the other page of the section."""
    app.page.get_by_text("Models", exact=True).first.click()
    app.page.locator("a[href*='compare-checkpoints']").first.click()


@pytest.mark.slow  # tested without a browser
def test_typed_and_kept(app):
    at(app)
    app.type("ck", NAMED)
    expect(meter(app)).to_contain_text("read")
    app.expect_parameters(ck=NAMED)
    app.page.reload()
    expect(app.input("ck")).to_have_value(NAMED)
    expect(meter(app)).to_contain_text("read")
    app.type("ck", "../secret")
    expect(app.page.get_by_test_id("stAlert")).to_contain_text("is not a path inside")
    expect(app.input("ck")).to_have_value("../secret")
    app.expect_parameters(ck="../secret")


@pytest.mark.slow  # tested without a browser
def test_it_goes_along_to_the_other_page(app):
    app.page.set_viewport_size({"width": 1280, "height": 720})
    at(app, ck="example:minilm-gptq")
    expect(meter(app)).to_contain_text("read")
    app.wait("document.querySelector('.st-key-opening_ck').getBoundingClientRect().height <= 44")  # one row, above the page
    go(app)
    app.wait("location.pathname.endsWith('/compare-checkpoints')")
    expect(app.input("ck")).to_have_value("example:minilm-gptq")
    expect(meter(app)).to_contain_text("read")
    app.expect_parameters(ck="example:minilm-gptq")


def give(app, *files):
    app.key("opening_ck").get_by_role("button", name="Upload").click()
    app.page.get_by_test_id("stFileUploaderDropzoneInput").first.set_input_files(files)


@pytest.mark.slow  # tested without a browser
def test_uploaded_and_asked_for(app):
    at(app)
    give(app, RELEASE / "model.safetensors", RELEASE / "config.json")
    expect(app.input("ck")).to_have_value("upload:model.safetensors and 1 more")
    expect(meter(app)).to_contain_text("read")
    app.wait("new URLSearchParams(location.search).get('ck_files')?.includes(':model.safetensors')")
    link = app.page.url
    go(app)
    app.wait("location.pathname.endsWith('/compare-checkpoints')")
    expect(meter(app)).to_contain_text("read")  # the files are still there

    other = app.another()
    other.page.goto(link)
    alert = other.page.get_by_test_id("stAlert")
    expect(alert).to_contain_text(
        "model.safetensors (SHA-256 6a7f6c07db9b…), which it does not carry: upload them."
    )
    give(other, OTHER)
    expect(alert).to_contain_text("has the same name, but is another file")
    assert other.page.url == link
    other.page.get_by_test_id("stFileUploaderDropzoneInput").first.set_input_files(
        [RELEASE / "model.safetensors", RELEASE / "config.json"]
    )
    expect(meter(other)).to_contain_text("read")
    assert other.page.url == link
