"""What is pasted or dropped anywhere on a page in the browser: text, a tensor, a checkpoint, a notebook, what is refused."""

import base64
import io
import json
from typing import Any

import numpy as np
import pytest
from page_rest import at_rest, expect
from places import CHECKPOINTS

from tests.browser.test_tensors import assert_codes, wait_for

X = np.array([[0.5, -1.25, 3], [2, 0.25, -4]], np.float32)
TEXT = "tensor([[ 0.5000, -1.2500,  3.0000],\n        [ 2.0000,  0.2500, -4.0000]])"
BRING = """([kind, where, files, text]) => {
    const data = new DataTransfer();
    for (const [name, content] of files) data.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name));
    if (text) data.setData("text/plain", text);
    const more = { bubbles: true, cancelable: true }, at = document.querySelector(where);
    const event = kind === "paste" ? new ClipboardEvent(kind, { clipboardData: data, ...more }) : new DragEvent(kind, { dataTransfer: data, ...more });
    at.dispatchEvent(event);
    return event.defaultPrevented;
}"""


def bring(app: Any, kind: str, where: str = "body", files: dict[str, bytes] | None = None, text: str = "") -> bool:
    """Paste, drag over or drop; returns whether the page has taken it from the browser."""
    encoded = [[name, base64.b64encode(content).decode()] for name, content in (files or {}).items()]
    taken: bool = app.page.evaluate(BRING, [kind, where, encoded, text])
    return taken


def npy(x: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, x)
    return stream.getvalue()


def notice(app: Any) -> Any:
    return app.key("qs_brought")


def undo(app: Any) -> None:
    notice(app).get_by_role("button", name="Undo").click()


@pytest.mark.slow  # by default, one file is dropped in test_history.py; what several are is tested without a browser
def test_of_several_files_one_is_chosen_undo_returns_to_the_file_before_and_other_text_is_refused(app: Any) -> None:
    app.open()
    app.rest()
    a_dropped_file_is_the_tensor(app)
    of_two_files_one_is_chosen_and_undo_returns(app)
    a_file_that_cannot_be_opened_is_refused_in_a_sentence(app)
    text_without_numbers_is_refused(app)


def notes_when_pages_can_ask(app: Any) -> None:
    """On pages that are opened from now on."""
    app.page.add_init_script("document.addEventListener('qs-can-ask', () => document.told = true)")


def pasted_text_is_the_tensor_and_undo_returns(app: Any) -> None:
    before = app.map("x")
    assert not bring(app, "paste", ".st-key-_scheme_text input", text="int8")  # the field's own
    assert bring(app, "paste", text=TEXT)
    assert_codes(app, X)
    expect(notice(app)).to_contain_text("Pasted: a tensor of shape (2, 3).")
    expect(notice(app).get_by_role("button", name="Open Explore")).to_have_count(0)  # here it is
    undo(app)
    wait_for(app, before)
    app.expect_parameters()  # nothing is left of it in the link
    expect(notice(app)).to_have_count(0)


def a_dropped_file_is_the_tensor(app: Any) -> None:
    assert bring(app, "dragover", files={"x.npy": b""})
    expect(app.page.locator(".qs-drop")).to_be_visible()
    assert bring(app, "drop", files={"first.npy": npy(X)})
    expect(app.page.locator(".qs-drop")).to_be_hidden()
    wait_for(app, X)
    app.expect_parameter("file", "first.npy")


def of_two_files_one_is_chosen_and_undo_returns(app: Any) -> None:
    bring(app, "drop", files={"second.npy": npy(-X), "third.npy": npy(2 * X)})
    notice(app).get_by_role("button", name="third.npy").click()
    wait_for(app, 2 * X)
    undo(app)
    wait_for(app, X)  # the file before
    app.expect_parameter("file", "first.npy")


def a_file_that_cannot_be_opened_is_refused_in_a_sentence(app: Any) -> None:
    assert bring(app, "drop", files={"report.docx": b"PK"})
    expect(notice(app)).to_contain_text("'report.docx' can't be opened here: .npy, .npz,")
    wait_for(app, X)


def text_without_numbers_is_refused(app: Any) -> None:
    assert bring(app, "paste", text="to be or not to be")
    expect(notice(app)).not_to_contain_text("docx")
    expect(notice(app).get_by_role("button", name="Undo")).to_have_count(0)
    wait_for(app, X)


def what_is_pasted_before_the_page_is_drawn_is_taken_then(app: Any) -> None:
    """Also where nothing of the page changes then: it may be drawn already when the code that asks comes."""
    assert app.page.evaluate("document.told")  # when the page was opened
    app.page.evaluate("document.asks = document.qsAsk; document.qsAsk = undefined")
    assert bring(app, "paste", text="7 8\n9 -10")
    app.page.evaluate("document.qsAsk = document.asks; document.dispatchEvent(new Event('qs-can-ask'))")
    wait_for(app, np.array([[7, 8], [9, -10]]))


@pytest.mark.slow  # by default, a file for the page that is open is dropped in test_history.py
def test_files_go_to_the_page_that_they_belong_to(app: Any) -> None:
    app.open()
    before = app.map("x")
    release = CHECKPOINTS / "gptq_v1_4bit_g128_sym" / "checkpoint"
    files = {name: (release / name).read_bytes() for name in ("model.safetensors", "config.json")}
    bring(app, "drop", files=files)
    notice(app).get_by_role("button", name="2 files as a checkpoint").click()
    app.wait("location.pathname.endsWith('/checkpoint')")
    expect(app.input("ck")).to_have_value("upload:model.safetensors and 1 more")
    expect(app.key("opening_ck_meter")).to_contain_text("read")
    expect(notice(app)).to_contain_text("2 files as a checkpoint: opened here.")
    expect(app.page.get_by_test_id("stPopoverBody")).to_have_count(0)
    undo(app)
    app.wait("!location.pathname.endsWith('/checkpoint')")
    wait_for(app, before)
    source = "import torch\nx = torch.tensor([0.5, -1.0])\nscale = x.abs().max() / 127\nq = torch.round(x / scale).clamp(-128, 127)\n"
    cells = [{"cell_type": "code", "source": source.splitlines(True), "metadata": {}, "outputs": []}]
    bring(app, "drop", files={"homework.ipynb": json.dumps({"cells": cells, "nbformat": 4}).encode()})
    app.wait("location.pathname.endsWith('/match')")
    app.wait("document.querySelector('.st-key-match_code textarea')?.value.includes('torch.round')")
    app.page.go_back()
    wait_for(app, before)


@pytest.mark.slow  # by default, text is pasted outside a field in test_history.py
def test_choosing_paste_puts_the_focus_into_the_field_which_is_read_as_one_pastes(app: Any) -> None:
    app.open()
    app.choose("src", "paste")
    app.wait("document.activeElement?.matches('.st-key-_pasted textarea')")
    app.page.evaluate("(text) => document.execCommand('insertText', false, text)", TEXT)
    bring(app, "paste", ".st-key-_pasted textarea", text=" ")
    assert_codes(app, X)


@pytest.mark.slow  # by default, a page with a tensor is tested
def test_on_a_page_without_a_tensor_the_notice_leads_to_it(app: Any, server: str) -> None:
    app.page.goto(f"{server}/checkpoint")
    at_rest(app.page)
    bring(app, "paste", text=TEXT)
    expect(notice(app)).to_contain_text("It is the tensor of other pages.")
    app.button("Open Explore")
    wait_for(app, X)


@pytest.mark.slow  # by default, the order on a wide window is tested
def test_on_a_phone_the_tensor_comes_before_the_list_of_pages(app: Any) -> None:
    app.page.set_viewport_size({"width": 390, "height": 844})
    app.open()
    expect(app.page.locator(".st-key-qs_link")).to_be_visible()
    app.page.get_by_test_id("stExpandSidebarButton").click()
    expect(app.page.locator(".st-key-qs_link")).to_be_hidden()  # it would lie over the edge of the sidebar
    expect(app.key("src")).to_be_in_viewport()
    app.wait("""(() => {
        const top = (selector) => document.querySelector(selector).getBoundingClientRect().top;
        return top(".st-key-tensor_controls") < top("[data-testid=stSidebarNav]");
    })()""")


@pytest.mark.slow  # by default, the sentences are tested without a browser
def test_question_and_finding_are_whole_and_the_button_leads_to_the_field(app: Any) -> None:
    app.page.set_viewport_size({"width": 1280, "height": 720})
    app.open()
    for place in (".qs-question", ".st-key-finding_line p"):
        app.wait(f"(({{ scrollWidth, clientWidth }}) => scrollWidth <= clientWidth)(document.querySelector('{place}'))")
    app.page.set_viewport_size({"width": 390, "height": 844})
    app.button("Paste or drop a tensor")
    app.wait("document.activeElement?.matches('.st-key-_pasted textarea')")
    expect(app.input("_pasted")).to_be_in_viewport()
