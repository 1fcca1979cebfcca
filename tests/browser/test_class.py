"""A class as it is held: a presenter, a projector and phones against one server; and a student's page in a phone's window."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_rest import at_rest, expect

from pages.browser import scripts, streamlit_dom
from pages.learn.classroom import plan, views
from pages.serving.classroom import ClassStep, ClassStore, Question, place
from pages.serving.classroom.store import BOUNCE
from quantcore.prediction import NumberKey

FIELDS = ("x = 0.3", "x = -1.25", "x = 12.5", "x = 100", "x = -0.75", "x = 3")
ASKED = Question("Which codes do these 6 values get?", "int4: codes -8 to 7 · symmetric · scale 0.5 · zero point 0",
                 FIELDS, tuple(map(NumberKey, ("1", "-2", "7", "7", "-2", "6"))))  # fmt: skip
SCRIPT = Question("<img src=x onerror=alert(1)>", "<b>bold</b>", ("<i>x</i>",), (NumberKey("0.5", 3),))
# what is cut off at the window's edges, and whether the page can be scrolled
OVERFLOWS = """() => {
    const main = document.querySelector("[data-testid=stMain]"), wide = document.documentElement.clientWidth;
    const out = [...document.querySelectorAll(".qs-class *")].filter((e) => e.getBoundingClientRect().right > wide + 1);
    const scrolls = [main, ...document.querySelectorAll(".qs-answers > div")].filter((e) => e.scrollHeight > e.clientHeight + 1);
    return [...out.map((e) => e.textContent.slice(0, 40)), ...scrolls.map((e) => `${e.className} scrolls`)];
}"""


@pytest.fixture
def classes() -> Iterator[ClassStore]:
    """The store of the server's classes."""
    opened = ClassStore(Path(os.environ["QUANTSCOPE_STORE"]) / place.NAME)
    yield opened
    opened.close()


class Phone:
    """A student's page. At an address of its own, which makes it another browser: each origin keeps its own."""

    def __init__(self, app: Any, code: str) -> None:
        self.app, self.page = app, app.page
        self.page.set_viewport_size({"width": 390, "height": 844})
        self.page.goto(f"{app.address}/class/{code}")

    @property
    def status(self) -> Any:
        return self.page.get_by_role("status")

    def type(self, *answers: str) -> None:
        self.page.bring_to_front()  # of a tab in the background, the browser draws nothing
        self.app.wait(
            "document.querySelector('#keys button')?.checkVisibility() && !document.querySelector('#fields button').disabled"
        )
        self.page.evaluate(
            """(answers) => answers.forEach((answer, i) => {
                document.querySelectorAll("#fields button")[i].click();
                for (const key of answer) document.querySelector(`#keys [data-key="${key}"]`).click();
            })""",
            list(answers),
        )

    def send(self) -> None:
        self.page.locator("#keys .send").click()

    def answer(self, *answers: str) -> None:
        self.type(*answers)
        self.send()
        self.expect_counted()

    def expect_counted(self) -> None:
        """Wait until the server has taken the answer, or says why not."""
        said = self.app.wait(
            "(() => { const said = document.querySelector('#status').textContent; return /^(Counted|The answers|That )/.test(said) && said; })()"
        )
        assert said.startswith("Counted"), said

    def choose(self, index: str) -> None:
        self.page.bring_to_front()
        self.app.wait("document.querySelector('#choices button:enabled')")
        self.page.evaluate(
            "(index) => document.querySelectorAll('#choices button')[index].click()", int(index)
        )
        self.expect_counted()


@pytest.fixture
def phones(new_app: Callable[..., Any], server: str) -> Callable[..., Phone]:
    numbers = iter(range(2, 200))

    def open_one(code: str) -> Phone:
        return Phone(new_app(server.replace("127.0.0.1", f"127.0.0.{next(numbers)}"), width=390), code)

    return open_one


class Presenter:
    """The presenter's page of a class that it began, and the projector's."""

    def __init__(self, new_app: Callable[..., Any], server: str) -> None:
        self.app = new_app(server)
        self.app.page.goto(f"{server}/learn-class")
        at_rest(self.app.page, "Class")
        self.app.button("Begin a class")
        self.app.page.locator(".st-key-class_steer").wait_for()
        at_rest(self.app.page)
        self.code, self.secret = re.search(r"presenter=(\w+)\.([\w-]+)", self.app.page.url).groups()  # type: ignore[union-attr]
        self.link = self.app.page.get_by_role("link", name="Projector").get_attribute("href")
        self.projector = new_app(server)
        self.projector.page.goto(self.link)

    def press(self, key: str, then: str) -> None:
        """Press a key as a clicker does, and wait for the label that the blue button then has."""
        self.app.page.bring_to_front()
        self.app.page.wait_for_timeout(1000 * BOUNCE)  # between two presses that are meant
        self.app.page.evaluate("document.activeElement.blur()")
        self.app.page.keyboard.press(key)
        self.expect_next(then)

    def expect_next(self, label: str) -> None:
        self.app.page.bring_to_front()
        self.app.wait(
            "(label) => document.querySelector('.st-key-lesson_next button')?.textContent.includes(label)",
            label,
        )

    def expect_shown(self, text: str) -> None:
        """Wait until the projector shows this."""
        self.projector.page.bring_to_front()
        shown = "document.querySelector('.qs-class')?.textContent.replaceAll('−', '-').includes(text)"
        self.projector.wait(f"(text) => {shown}", text)

    def expect_step(self, step: ClassStep) -> None:
        """Wait until the projector shows a step that asks nothing."""
        if not step.view:
            self.expect_shown(step.title)
            return
        self.projector.page.bring_to_front()
        self.projector.wait(
            "(view) => document.querySelector('.st-key-class_projected iframe')?.src.includes(view)",
            step.view,
        )

    def expect_other(self, before: str) -> None:
        """Wait until the projector shows something else."""
        self.projector.page.bring_to_front()
        self.projector.wait(
            "(before) => ![before, undefined].includes(document.querySelector('.qs-class')?.innerHTML)",
            before,
        )


def test_a_class_is_asked_answers_and_sees_why(
    new_app: Callable[..., Any], server: str, phones: Callable[..., Phone]
) -> None:
    presenter = Presenter(new_app, server)
    assert presenter.secret not in presenter.link
    assert presenter.code not in presenter.app.page.evaluate("document.qsAddress()")
    assert presenter.code not in presenter.projector.page.evaluate("document.qsAddress()")
    student, first = phones(presenter.code), plan.questions()[0]
    presenter.expect_shown("1 joined")
    presenter.press("PageDown", "Show the answers")
    student.answer("16")
    presenter.expect_shown("1 of 1 answered · voting")
    presenter.press("PageDown", "Vote again")
    expect(student.status).to_contain_text("is counted; the answers are locked")
    expect(student.page.locator("body")).not_to_contain_text("✗")
    presenter.app.button("Reveal")
    presenter.expect_next("Show the view")
    expect(student.page.locator("body")).to_contain_text("✗ right: 15")
    presenter.expect_shown(first.keys[0].how)
    student.app.expected.append("Failed to load resource")  # of a class that has ended
    presenter.app.page.get_by_role("button", name="End", exact=True).click()
    presenter.app.button("End the class")
    presenter.projector.page.bring_to_front()
    presenter.expect_shown("Thank you for taking part")
    expect(student.status).to_contain_text("The class has ended. Thank you for taking part.")


@pytest.mark.slow  # the view is a whole page more
def test_a_clicker_goes_on_from_the_view_that_the_projector_shows(
    new_app: Callable[..., Any], server: str, phones: Callable[..., Phone]
) -> None:
    presenter = Presenter(new_app, server)
    student = phones(presenter.code)
    presenter.press("PageDown", "Show the answers")
    student.answer(*plan.questions()[0].right)
    presenter.app.button("Reveal")
    presenter.expect_next("Show the view")
    presenter.press("ArrowRight", "Ask the question")
    view = presenter.projector.page.frame_locator(".st-key-class_projected iframe")
    expect(view.locator("h1")).to_contain_text("How far apart are the marks?")
    presenter.projector.page.bring_to_front()  # where the lecturer moves a slider, and then presses the clicker
    view.locator("h1").click()
    presenter.projector.page.keyboard.press("PageDown")
    presenter.expect_next("Show the answers")
    presenter.expect_shown(plan.questions()[1].prompt)


def test_a_press_before_the_page_is_drawn_waits_for_it_and_a_double_press_counts_once(
    new_app: Callable[..., Any], server: str
) -> None:
    """The presenter's page without its server or a clock: what is slow to be drawn, and what time it is, is set here."""
    page = new_app(server, own=True).page
    page.clock.install()
    page.set_content(
        """<div data-testid=stApp data-test-script-state=notRunning><div class=st-key-lesson_next>
        <div class=st-key-class_next_1><button onclick="window.pressed = [...(window.pressed ?? []), turn]">Next</button></div></div></div>"""
    )
    page.evaluate(streamlit_dom.read(Path(scripts.__file__).with_name("presenter.js")))
    shown = """([turn, state]) => {
        window.turn = turn;
        document.querySelector("[class^=st-key-class_next]").className = `st-key-class_next_${turn}`;
        document.querySelector("[data-testid=stApp]").setAttribute("data-test-script-state", state);
    }"""
    late = 1600 * BOUNCE
    page.evaluate(shown, [1, "notRunning"])
    page.clock.run_for(late)
    page.keyboard.press("PageDown")
    page.keyboard.press("PageDown")  # a double press
    assert page.evaluate("window.pressed") == [1]
    page.evaluate(shown, [1, "running"])
    page.clock.run_for(late)
    page.keyboard.press("PageDown")  # what the first one asked for is not drawn yet
    page.clock.run_for(late)
    assert page.evaluate("window.pressed") == [1]
    page.evaluate(shown, [2, "notRunning"])
    page.clock.run_for(2 * late)
    assert page.evaluate("window.pressed") == [1, 2]
    page.keyboard.press(
        "PageDown"
    )  # nothing came of it, and nothing is under way: the next one presses again
    page.clock.run_for(late)
    page.keyboard.press("PageDown")
    page.clock.run_for(late)
    assert page.evaluate("window.pressed") == [1, 2, 2, 2]


@pytest.mark.slow
def test_twelve_phones_and_a_projector(
    new_app: Callable[..., Any], server: str, phones: Callable[..., Phone], classes: ClassStore
) -> None:
    """Every question of the plan, with a second vote; nothing is lost, and the projector shows it without scrolling."""
    presenter = Presenter(new_app, server)
    students = [phones(presenter.code) for _ in range(12)]
    steps = plan.steps()
    for number, step in enumerate(steps):
        if not step.question:
            presenter.press("PageDown", "")
            presenter.expect_step(step)
            continue
        question = step.question
        presenter.press("PageDown", "Show the answers")
        given = []
        for i, student in enumerate(students):
            typed = [
                key.wrong[i % len(key.wrong)].value if i % 3 and key.wrong else key.right
                for key in question.keys
            ]
            given.append([text[:12].removesuffix(".0") for text in typed])
            if not i % 4:
                student.page.reload()
            if question.choices:
                student.choose(given[-1][0])
            else:
                student.answer(*given[-1])
        presenter.expect_shown("12 of 12 answered · voting")
        presenter.app.button("Reveal")
        presenter.expect_shown("12 of 12 answered · revealed")
        tally = classes.tallies(presenter.code, presenter.secret)[-1]
        assert tally.answered == 12
        for i, counts in enumerate(tally.counts):
            assert counts == {v: [g[i] for g in given].count(v) for v in {g[i] for g in given}}
        for page in range(views.pages([tally])):
            if page:
                before = presenter.projector.page.locator(".qs-class").inner_html()
                presenter.press("PageDown", "")
                presenter.expect_other(before)
            for width, height in ((1280, 720), (1366, 768), (1920, 1080)):
                for theme in ("light", "dark"):
                    presenter.projector.page.set_viewport_size({"width": width, "height": height})
                    presenter.projector.page.emulate_media(color_scheme=theme)
                    assert presenter.projector.page.evaluate(OVERFLOWS) == [], (question, page, width)
        presenter.expect_next("question" if steps[number + 1].question else "Show the view")


@pytest.mark.slow
def test_a_student_answers_on_a_phone(phones: Callable[..., Phone], classes: ClassStore) -> None:
    code, secret = classes.begin()
    phone = phones("")
    page = phone.page
    page.get_by_label("code").fill(f"{code[:4]}-{code[4:]}".upper())
    page.get_by_role("button", name="Join").click()
    expect(phone.status).to_contain_text("You have joined")
    number = classes.ask(code, secret, ASKED)
    expect(page.locator("h1")).to_have_text(ASKED.prompt)
    phone.type("1", "2-", "7", "7", "-2", "5")
    heights = [box.bounding_box() for box in page.locator("button:visible").all()]
    assert all(box["height"] >= 48 and box["width"] >= 48 for box in heights)
    assert page.evaluate(
        "document.documentElement.scrollHeight <= innerHeight && document.documentElement.scrollWidth <= 390"
    )
    page.reload()  # nothing was sent yet
    expect(page.locator("#fields b").nth(1)).to_have_text("−2")
    phone.app.expected.append("Failed to load resource")
    page.route("**/class/**", lambda route: route.abort())
    phone.send()
    expect(phone.status).to_contain_text("Your answer is kept here")
    assert classes.board(code, secret)[:2] == (1, 0)
    page.unroute_all()
    expect(phone.status).to_contain_text("Counted")
    assert classes.board(code, secret)[:2] == (1, 1)
    page.reload()
    expect(phone.status).to_contain_text("Counted")
    page.locator("#fields button").nth(5).click()
    page.locator("[data-key=back]").click()
    page.locator("[data-key='6']").click()
    expect(phone.status).to_contain_text("Press Send to count the change")
    page.keyboard.press("Enter")
    expect(phone.status).to_contain_text("Counted")
    (tally,) = classes.tallies(code, secret)
    assert [list(counts) for counts in tally.counts] == [["1"], ["-2"], ["7"], ["7"], ["-2"], ["6"]]
    classes.steer(code, secret, "reveal")
    expect(page.locator(".right")).to_have_count(6)
    expect(page.locator("#keys")).to_be_hidden()
    classes.steer(code, secret, "revote")
    expect(page.locator("h1")).to_contain_text("vote 2")
    expect(page.locator("#fields b").first).to_have_text("·")
    classes.end(code, secret)
    expect(phone.status).to_contain_text("The class has ended. Thank you for taking part.")
    assert number == 1


@pytest.mark.slow
def test_text_is_never_markup(phones: Callable[..., Phone], classes: ClassStore) -> None:
    code, secret = classes.begin()
    classes.ask(code, secret, SCRIPT)
    phone = phones(code)
    expect(phone.page.locator("h1")).to_have_text(SCRIPT.prompt)
    assert phone.page.locator("img, i, #facts b").count() == 0
    phone.answer(".5")
    assert classes.tallies(code, secret)[0].counts[0] == {"0.5": 1}
    assert json.loads(phone.page.evaluate("localStorage.getItem('quantscope-class')"))["code"] == code
