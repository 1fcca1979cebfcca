"""The presenter's page and the projector's view, without a browser."""

import html
import json
import re
from urllib.parse import parse_qsl

import pytest
from app_page import lines, script_of, the_app, widget
from grid import for_each
from parts import some

from pages.learn.classroom import editor, plan
from pages.serving import settings
from pages.serving.classroom import ClassStep, ClassStore, from_file, place, store, to_file, viewing
from pages.serving.middleware.limits import Rate
from pages.shared.curriculum import numbered
from quantcore.mistakes import MISTAKES

CODES, ZERO = plan.questions()[1], plan.questions()[5]
PLAN = [
    ClassStep("Why anyone quantizes", 2, "memory", id="t"),
    ClassStep("", 4, question=CODES, id="q"),
    ClassStep("How it is done", 3, view="learn-scale?learn_scale_step=code", id="v"),
    ClassStep("", 5, question=ZERO, id="z"),
]


class Clock:
    time = 1_800_000_000.0

    def __call__(self):
        self.time += (
            2 * store.BOUNCE
        )  # between any two looks, so that only a press in the same moment is a bounce
        return self.time


@pytest.fixture
def classes(tmp_path, monkeypatch):
    opened = ClassStore(tmp_path / "classes", Clock())
    monkeypatch.setattr(place, "current", lambda: opened)
    monkeypatch.setattr("pages.serving.classroom.current", lambda: opened)
    monkeypatch.setattr(place, "_begins", Rate(burst=2, per_second=0))
    monkeypatch.setattr(place, "network", lambda address: "192.0.2.1")  # AppTest has another at each look
    yield opened
    opened.close()


def opened(**parameters):
    at = the_app("learn-class")
    for key, value in parameters.items():
        at.query_params[key] = value
    at.run()
    assert not at.exception
    return at


def begun(**parameters):
    code, secret = place.begin("", PLAN)
    return opened(presenter=f"{code}.{secret}", **parameters), code, secret


def asked(**parameters):
    """A class that is asked for codes."""
    at, code, secret = begun(**parameters)
    press(at, "Show the text")
    return press(at, "Ask the question"), code, secret


def body_of(at):
    """What the class sees, as HTML."""
    (body,) = [e.proto.body for e in at.get("html") if 'class="qs-class' in e.proto.body]
    return body


def clock_of(at):
    return [re.sub("<[^>]*>", "", e.proto.body) for e in at.get("html") if 'class="qs-time"' in e.proto.body]


def scene(at):
    """What the class sees, as text."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body_of(at))).replace("−", "-").split())


def button(at, start):
    (found,) = [b for b in at.button if b.label.startswith(start)]
    return found


def press(at, start):
    button(at, start).click().run()
    assert not at.exception
    return at


def said(at):
    return [e.value.replace("\\", "") for e in [*at.error, *at.warning]]


def test_a_class_goes_step_by_step_and_nothing_is_revealed_before_the_second_vote(classes):
    at = opened()
    widget(at, "class_begin").click().run()
    assert not at.exception
    code, secret = at.query_params["presenter"].split(".")
    classes.set_plan(code, secret, PLAN)
    at.run()
    anna, ben = classes.join(code), classes.join(code)
    assert "2 joined" in scene(at.run())
    assert button(at, "Previous").disabled
    assert clock_of(at) == []  # nothing is shown yet
    press(at, "Show the text")
    assert scene(at) == "Why anyone quantizes memory"
    (clock,) = clock_of(at)
    assert clock.startswith(f"step 1 of {len(PLAN)} · 0–{PLAN[0].minutes} of {sum(step.minutes for step in PLAN)} min")
    assert button(at, "Show").disabled
    press(at, "Ask the question")
    assert classes.state(code, anna)[0].question == CODES
    wrong = CODES.keys[1].wrong[0]
    classes.answer(code, anna, 1, [CODES.right[0], wrong[0]])
    at.run()
    assert "1 of 2 answered · voting" in scene(at)
    assert "qs-answer" not in body_of(at)
    widget(at, "class_peek").set_value(True).run()
    assert wrong[2] in scene(at)
    widget(at, "class_peek").set_value(False).run()
    press(at, "Show the answers")
    assert classes.state(code, anna)[0].phase == "locked"
    assert wrong[0] in scene(at)
    assert not re.search(f"[✓✗]|{re.escape(wrong[2])}", scene(at))
    press(at, "Vote again")  # since not most have it right
    classes.answer(code, anna, 2, CODES.right)
    assert "qs-answer" not in body_of(at)
    press(at, "Reveal what is right")
    assert classes.state(code, ben)[0].phase == "revealed"
    assert "0% → 100% right" in scene(at)
    press(at, "Show the view")
    assert scene(at) == "How it is done"
    press(at, "Ask the question")
    assert classes.state(code, anna)[0].question == ZERO
    press(at, "Previous")
    press(at, "Previous")
    assert "0% → 100% right" in scene(at)
    assert classes.state(code, anna)[0].question == ZERO
    assert button(at, "Revote").disabled
    press(at, "Show the view")
    widget(at, f"class_choice_{classes.board(code, secret).turn}_4").set_value(3).run()
    press(at, "Ask the question")  # which was asked already: its answers are kept
    assert "voting" in scene(at)
    classes.answer(code, ben, 3, ["1"])
    widget(at, f"class_reset_{classes.board(code, secret).turn}").click().run()
    assert classes.board(code, secret).answered == 0
    assert [(tally.round.number, tally.round.step) for tally in classes.tallies(code, secret)] == [
        (1, "q"),
        (2, "q"),
        (4, "z"),
    ]
    widget(at, f"class_reveal_{classes.board(code, secret).turn}").click().run()
    assert button(at, "No further step").disabled


def test_what_explains_the_answers_is_paged_by_next_and_previous(classes):
    at, code, secret = asked()
    for known in CODES.keys[1].wrong:
        classes.answer(code, classes.join(code), 1, [CODES.keys[0].wrong[0].value, known.value])
    widget(at, f"class_reveal_{classes.board(code, secret).turn}").click().run()
    shown = viewing(secret)
    pages = []
    while any(b.label.startswith("Why: page") for b in at.button):
        press(at, "Why: page")
        pages.append(scene(at))
    assert pages
    assert pages[-1].split(CODES.fields[0], 1)[1] in scene(opened(projector=f"{code}.{shown}"))
    assert button(at, "Show the view")
    press(at, "Previous")
    assert classes.board(code, secret).page == len(pages) - 1
    assert all(known.sentence in " ".join(pages) for known in CODES.keys[1].wrong)


def test_what_most_have_right_is_revealed_without_a_second_vote(classes):
    at, code, _ = asked()
    students = [classes.join(code) for _ in range(4)]
    for i, student in enumerate(students):
        classes.answer(code, student, 1, [CODES.right[0], CODES.right[1] if i else "99"])
    at.run()
    files = [e.proto.label for e in at.get("download_button")]
    assert files == ["plan.json", "class.csv", "class.html"]
    press(at, "Show the answers")
    assert button(at, "Reveal what is right")  # 75%
    press(at, "Open again")
    classes.answer(code, students[1], 1, ["99", CODES.right[1]])
    classes.answer(code, students[2], 1, ["99", CODES.right[1]])
    press(at, "Show the answers")
    assert button(at, "Vote again")  # 50%


def test_a_press_too_many_changes_nothing(classes):
    at, code, secret = asked()
    stale = button(at, "Show the answers")
    press(at, "Show the answers")
    press(at, "Reveal what")
    assert button(at, "Show the view").key != stale.key
    before = classes.board(code, secret)
    for work in (classes.steer, classes.go):
        work(code, secret, "reset" if work == classes.steer else "z", turn=before.turn - 1)
    assert classes.board(code, secret) == before


def test_what_the_projector_opens_reads_and_steers_nothing(classes):
    at, code, secret = asked()
    (address,) = [e.proto.url for e in at.get("link_button") if e.proto.label == "Projector"]
    assert secret not in address
    key = re.search(r"projector=\w+\.(\w+)$", address)[1]
    shown = opened(projector=f"{code}.{key}")
    assert "0 of 0 answered · voting" in scene(shown)
    assert not [b for b in shown.button if (b.key or "").startswith("class_")]
    assert not [e for e in shown.get("html") if secret in e.proto.body]
    for act in store.Act.__args__:
        with pytest.raises(store.ClassError, match="presenter"):
            classes.steer(code, key, act)
    anna, wrong = classes.join(code), CODES.keys[0].wrong[0]
    classes.answer(code, anna, 1, [wrong[0], CODES.right[1]])
    widget(at, f"class_reveal_{classes.board(code, secret).turn}").click().run()
    shown.run()
    assert wrong[2] in scene(shown)
    assert CODES.keys[0].how in scene(shown)
    (body,) = [e.proto.body for e in shown.get("html") if 'class="qs-class' in e.proto.body]
    assert re.search(r'href="learn-\w+\?learn_\w+_step=\w+', body)


def test_links_to_copy_leave_the_class_out(classes):
    at, code, secret = begun()
    shown = [block.value for block in at.code]
    assert shown
    assert not [text for text in shown if secret in text or code in text]
    at = opened(projector=f"{code}.{viewing(secret)}")
    assert not [block.value for block in at.code if viewing(secret) in block.value]


@pytest.mark.slow  # by default, most tests here open a class by this link
def test_the_presenters_link_opens_the_class_elsewhere(classes):
    at, code, secret = asked()
    other = opened(presenter=f"{code}.{secret}")
    press(other, "Show the answers")
    press(other, "Reveal what")
    at.run()
    assert button(at, "Show the view")
    at.switch_page(script_of("")).run().switch_page(script_of("learn-class")).run()  # and back
    assert at.query_params["presenter"] == f"{code}.{secret}"
    assert button(at, "Show the view")


@pytest.mark.slow  # by default, the teacher's own question is about cells that are picked
def test_the_teachers_own_question_is_about_the_sidebars_tensor(classes):
    at, code, secret = begun(class_mine="true", bits="8", seed="3", mode="asymmetric")
    press(at, "Show the text")
    press(at, "Add to the plan")
    own = classes.plan(code, secret)[1].question  # after the step that is shown
    assert own.facts.startswith("int8: codes -128 to 127 · asymmetric")
    assert {"bits=8", "seed=3", "mode=asymmetric"} <= set(own.link.removeprefix("?").split("&"))
    assert button(at, "In the plan already").disabled
    widget(at, "class_asked").set_value("zero_point").run()
    press(at, "Add to the plan")
    assert [step.question and step.question.asked for step in classes.plan(code, secret)] == [
        None, "zero_point", "codes", "codes", None, "zero_point",
    ]  # fmt: skip
    widget(at, "class_asked").set_value("codes").run()
    widget(at, "class_element").set_value("9, 0").run()
    assert "not in a tensor of shape" in said(at)[-1]
    press(at, "Ask the question")
    assert classes.board(code, secret).current.question.asked == "zero_point"


def test_the_teacher_picks_the_cells_and_may_offer_choices(classes):
    at, code, secret = begun(class_mine="true", bits="4", seed="3")
    widget(at, "class_asked").set_value("dequantized").run()
    widget(at, "class_element").set_value("0, 1; 2, 0").run()
    press(at, "Add to the plan")
    own = classes.plan(code, secret)[0].question
    assert own.asked == "dequantized_values"
    assert [(own.part.rows[row], own.part.columns[column]) for row, column in own.part.marked] == [
        ("0", "1"),
        ("2", "0"),
    ]
    widget(at, "class_choices").set_value(True).run()
    assert "choose one element" in said(at)[-1]
    widget(at, "class_element").set_value("0, 1").run()
    (told,) = [e.value for e in at.caption if e.value.startswith("Mistakes that show")]
    press(at, "Add to the plan")
    own = classes.plan(code, secret)[0].question
    assert own.choices[int(own.right[0])] in own.keys[0].how
    assert len(own.choices) >= 2
    assert own.fields[0].replace(" = ", "") in told.replace("\\", "").replace(" = ", "")
    kinds = {MISTAKES[known.mistake].in_answers.kind for known in own.keys[0].wrong}
    assert any(kind in told for kind in kinds)


def test_the_steps_are_edited(classes):
    at, code, secret = begun()
    widget(at, "class_edit").set_value(True).run()
    widget(at, "class_title_t").set_value("Why?")
    widget(at, "class_minutes_t").set_value(7)
    widget(at, "class_text_t").set_value("speed")
    widget(at, "class_view_t").set_value("https://quant.example/app/ranges?bits=4")
    press(at, "Save")
    first = ClassStep("Why?", 7, "speed", "ranges?bits=4", id="t")
    assert classes.plan(code, secret)[0] == first
    widget(at, "class_view_t").set_value("https://quant.example/app/not here")
    press(at, "Save")
    assert "page of this app" in said(at)[-1]
    assert classes.plan(code, secret)[0] == first
    press(at, "Down")
    assert [step.id for step in classes.plan(code, secret)] == ["q", "t", "v", "z"]
    widget(at, "class_edited").set_value("z").run()
    widget(at, "class_minutes_z").set_value(9)
    press(at, "Save")
    assert classes.plan(code, secret)[3] == ClassStep("", 9, question=ZERO, id="z")
    press(at, "Up")
    press(at, "Text")
    widget(at, "class_edited").set_value("q").run()
    press(at, "Remove")
    assert [step.title for step in classes.plan(code, secret)] == [
        "Why?",
        ZERO.prompt,
        "New text",
        "How it is done",
    ]
    press(at, f"{numbered('outliers')}: Where can an outlier go?")
    steps = classes.plan(code, secret)
    index = [step.title for step in steps].index("Where can an outlier go?")
    assert steps[index].view == "learn-outliers?learn_outliers_step=move"
    assert "where is the outlier at 0" in steps[index - 1].title
    assert widget(at, "class_edited").value == steps[index - 1].id


def test_a_plan_begins_by_its_link(classes):
    at = opened(class_steps=editor.packed(PLAN))
    press(at, "Begin a class with these 4 steps")
    code, secret = at.query_params["presenter"].split(".")
    assert [step.title for step in classes.plan(code, secret)] == [step.title for step in PLAN]
    assert "class_steps" not in at.query_params
    for bad in ("!!!", editor.packed(PLAN)[:-20]):
        at = opened(class_steps=bad)
        assert len(said(at)) == 1
        assert button(at, "Begin a class")


def test_the_plan_that_is_kept_is_the_one_that_was_edited(classes):
    at, *_ = begun()
    labels = [e.proto.label for e in at.get("download_button")]
    assert labels[0] == "plan.json"
    assert from_file(to_file(PLAN)) == [
        ClassStep(**vars(step) | {"id": str(i)}) for i, step in enumerate(PLAN, 1)
    ]
    assert any(editor.packed(PLAN) in block.value for block in at.code)


def places(block, at=()):
    """Where the expanders stand, by their path."""
    for index, child in block.children.items():
        if child.type == "expander":
            yield (*at, index)
        yield from places(child, (*at, index)) if hasattr(child, "children") else ()


def test_a_class_is_regained_on_another_machine(classes):
    at, code, secret = begun()
    widget(at, "class_word_typed").set_value("short")
    press(at, "Keep")
    assert "word" in said(at)[-1]
    widget(at, "class_word_typed").set_value("blue horse")
    press(at, "Keep")
    other = opened()
    widget(other, "class_code_typed").set_value(code.upper())
    widget(other, "class_word_typed").set_value("red horse")
    before = list(places(other.main))
    press(other, "Get it back")
    assert "this code and this word" in said(other)[-1]
    assert before
    assert list(places(other.main)) == before  # else the browser draws it anew, and closed
    widget(other, "class_word_typed").set_value("Blue horse")
    press(other, "Get it back")
    assert other.query_params["presenter"] == f"{code}.{secret}"
    press(other, "Show the text")


@pytest.mark.parametrize("link", some(["zzzzzzzz.secret", "x", "zzzzzzzz", ".", "a" * 5000, "1e999999.1"], 3))
def test_a_link_to_no_class_is_one_sentence_and_a_way_on(classes, link):
    at = opened(presenter=link)
    assert any("no longer open" in text for text in said(at))
    assert button(at, "Begin a class")
    at = opened(projector=link)
    assert any("no longer open" in text for text in said(at))


def test_a_wrong_secret_is_one_sentence(classes):
    _, code, _ = begun()
    at = opened(presenter=f"{code}.wrong")
    assert any("Only the presenter's own link" in text for text in said(at))


def test_who_ends_a_class_can_begin_another(classes):
    at, code, secret = begun()
    shown = opened(projector=f"{code}.{viewing(secret)}")
    widget(at, "class_end").click().run()
    assert not at.exception
    with pytest.raises(store.ClassError):
        classes.board(code, secret)
    shown.run()
    assert "Thank you for taking part" in scene(shown)
    assert not said(shown)
    assert "presenter" not in at.query_params
    press(at, "Begin a class")
    other = at.query_params["presenter"]
    assert not other.startswith(code)
    widget(at, "class_end").click().run()
    press(at, "Begin a class")
    assert any("Too many classes" in text for text in said(at))


def test_who_only_looks_at_the_page_stores_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(settings, "current", lambda: settings.Settings(store=str(tmp_path / "store")))
    place.current.cache_clear()
    assert button(opened(), "Begin a class")
    assert not (tmp_path / "store").exists()


@for_each("chosen", ["off", "s3://bucket/folder"])
def test_without_a_store_there_is_one_sentence(monkeypatch, chosen):
    monkeypatch.setattr(settings, "current", lambda: settings.Settings(store=chosen))
    at = opened()
    assert any("QUANTSCOPE_STORE" in text for text in said(at))
    assert not [b for b in at.button if b.label == "Begin a class"]


def lesson(link):
    """What a lesson shows that is opened by this link: its text, and the numbers of its tables."""
    url, _, query = link.partition("?")
    at = the_app(url)
    for key, value in parse_qsl(query):
        at.query_params[key] = value
    at.run()
    assert not at.exception
    data = [json.loads(e.proto.json or "{}") for e in at.get("bidi_component")]
    tables = [table for each in data if isinstance(each, dict) for table in each.get("tables", [])]
    return "\n".join(lines(at)).replace("−", "-"), {
        float(text) for table in tables for row in table["cells"] for text, _ in row
    }


def test_the_plans_questions_are_those_of_the_lessons_that_they_link_to():
    """Where the lesson shows the arithmetic, it comes to the right answer; else it shows the tensor."""
    for question in (
        each
        for each in plan.questions()
        if each.asked in ("codes", "scales", "zero_point") and each.link[0] != "?"
    ):
        text, numbers = lesson(question.link)
        if text:
            scale = re.search(r"scale ([\d.]+)", question.facts)[1]
            assert re.search(rf"^scale s .*= {scale}\d*$", text, re.MULTILINE)
            if question.asked == "zero_point":
                assert re.search(rf"^zero point z .*= {question.right[0]}$", text, re.MULTILINE)
        else:
            assert question.part
            assert {float(value) for row in question.part.texts for value in row} <= numbers
