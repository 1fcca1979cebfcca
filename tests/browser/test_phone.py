"""The page of a student in a phone's window: it answers, keeps the answer through a reload and a lost connection, and fits."""

import threading
import time

import pytest
import uvicorn
from playwright.sync_api import expect, sync_playwright
from served import free_port
from starlette.applications import Starlette
from starlette.middleware import Middleware

from pages.serving.classroom import ClassStore, Question, phones, place
from pages.serving.middleware.headers import SecurityHeaders

FIELDS = ("x = 0.3", "x = -1.25", "x = 12.5", "x = 100", "x = -0.75", "x = 3")
ASKED = Question("Which codes do these 6 values get?", "int4: codes -8 to 7 · symmetric · scale 0.5 · zero point 0",
                 FIELDS, ("1", "-2", "7", "7", "-2", "6"))  # fmt: skip
SCRIPT = Question("<img src=x onerror=alert(1)>", "<b>bold</b>", ("<i>x</i>",), ("0.5",), 3)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    classes, port = ClassStore(tmp_path_factory.mktemp("class") / "classes"), free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "current", lambda: classes)
        app = Starlette(routes=phones.routes(""), middleware=[Middleware(SecurityHeaders)])
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)  # uvicorn has no event for it
        yield f"http://127.0.0.1:{port}", classes
        server.should_exit = True
        thread.join()
        classes.close()


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def phone(chromium):
    context = chromium.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(error))
    yield page
    context.close()
    assert not errors


def type_answers(phone, *answers):
    for i, answer in enumerate(answers):
        phone.locator("#fields button").nth(i).tap()
        for key in answer:
            phone.locator(f"#keys [data-key='{key}']").tap()


def send(phone):
    phone.locator("#keys .send").tap()


@pytest.mark.slow
def test_a_student_answers_on_a_phone(served, phone, tmp_path):
    address, classes = served
    code, secret = classes.begin()
    phone.goto(f"{address}/class")
    phone.get_by_label("code").fill(f"{code[:4]}-{code[4:]}".upper())
    phone.get_by_role("button", name="Join").tap()
    status = phone.get_by_role("status")
    expect(status).to_contain_text("You have joined")
    number = classes.ask(code, secret, ASKED)
    expect(phone.locator("h1")).to_have_text(ASKED.prompt)
    type_answers(phone, "1", "2-", "7", "7", "-2", "5")
    heights = [box.bounding_box() for box in phone.locator("button:visible").all()]
    assert all(box["height"] >= 48 and box["width"] >= 48 for box in heights)
    assert phone.evaluate("document.documentElement.scrollHeight <= innerHeight && document.documentElement.scrollWidth <= 390")
    phone.screenshot(path=tmp_path / "phone.png")
    phone.reload()  # nothing was sent yet
    expect(phone.locator("#fields b").nth(1)).to_have_text("−2")
    phone.context.set_offline(True)
    send(phone)
    expect(status).to_contain_text("Your answer is kept here")
    assert classes.board(code, secret)[:2] == (1, 0)
    phone.context.set_offline(False)
    expect(status).to_contain_text("Counted")
    assert classes.board(code, secret)[:2] == (1, 1)
    phone.reload()
    expect(status).to_contain_text("Counted")
    phone.locator("#fields button").nth(5).tap()
    phone.locator("[data-key=back]").tap()
    phone.locator("[data-key='6']").tap()
    expect(status).to_contain_text("Press Send to count the change")
    phone.keyboard.press("Enter")
    expect(status).to_contain_text("Counted")
    (tally,) = classes.tallies(code, secret)
    assert [list(counts) for counts in tally.counts] == [["1"], ["-2"], ["7"], ["7"], ["-2"], ["6"]]
    classes.steer(code, secret, "reveal")
    expect(phone.locator(".right")).to_have_count(6)
    expect(phone.locator("#keys")).to_be_hidden()
    phone.screenshot(path=tmp_path / "revealed.png")
    classes.steer(code, secret, "revote")
    expect(phone.locator("h1")).to_contain_text("vote 2")
    expect(phone.locator("#fields b").first).to_have_text("·")
    classes.end(code, secret)
    expect(status).to_contain_text("There is no class with this code now")
    assert number == 1


@pytest.mark.slow
def test_text_is_never_markup(served, phone):
    address, classes = served
    code, secret = classes.begin()
    classes.ask(code, secret, SCRIPT)
    phone.goto(f"{address}/class/{code}")
    expect(phone.locator("h1")).to_have_text(SCRIPT.prompt)
    assert phone.locator("img, i, #facts b").count() == 0
    type_answers(phone, ".5")
    send(phone)
    expect(phone.get_by_role("status")).to_contain_text("Counted")
    assert classes.tallies(code, secret)[0].counts[0] == {"0.5": 1}
