"""The presenter's page and the projector's view, without a browser."""

import html
import json
import re
from urllib.parse import parse_qsl

import pytest
from app_page import lines, script_of, the_app, widget

from pages.learn.classroom import controls
from pages.serving import settings
from pages.serving.classroom import ClassStore, place, store, viewing
from pages.serving.middleware.limits import Rate


class Clock:
    time = 1_800_000_000.0

    def __call__(self):
        self.time += 2 * store.BOUNCE  # between any two looks, so that only a press in the same moment is a bounce
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
    at = the_app()
    for key, value in parameters.items():
        at.query_params[key] = value
    at.run().switch_page(script_of("learn-class"))
    for key, value in parameters.items():
        at.query_params[key] = value
    at.run()
    assert not at.exception
    return at


def begun(**parameters):
    at = opened(**parameters)
    widget(at, "class_begin").click().run()
    assert not at.exception
    return at, *at.query_params["presenter"].split(".")


def body_of(at):
    """What the class sees, as HTML."""
    (body,) = [e.proto.body for e in at.get("html") if 'class="qs-class' in e.proto.body]
    return body


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


def test_a_class_is_steered_in_two_steps_and_both_votes_are_shown(classes):
    at, code, secret = begun()
    questions = controls.questions()
    assert classes.plan(code, secret) == list(questions)
    anna, ben = classes.join(code), classes.join(code)
    assert button(at, "Answers").disabled
    press(at, "Ask the first question")
    assert classes.state(code, anna)[0].question == questions[0]
    wrong = questions[0].keys[1].wrong[0]
    classes.answer(code, anna, 1, [questions[0].right[0], wrong[0]])
    at.run()
    assert "1 of 2 answered · voting" in scene(at)
    assert wrong[2] not in scene(at)
    widget(at, "class_peek").set_value(True).run()
    assert wrong[2] in scene(at)
    widget(at, "class_peek").set_value(False).run()
    press(at, "Show the answers")
    assert classes.state(code, anna)[0].phase == "locked"
    assert wrong[0] in scene(at)
    assert not re.search(f"[✓✗]|{re.escape(wrong[2])}", scene(at))
    press(at, "Open again")
    press(at, "Show the answers")
    press(at, "Vote again")  # since not most have it right
    classes.answer(code, anna, 2, questions[0].right)
    assert "qs-answer" not in body_of(at)
    press(at, "Reveal what is right")
    assert classes.state(code, ben)[0].phase == "revealed"
    assert "0% → 100% right" in scene(at)
    assert button(at, "Answers").disabled
    press(at, "Revote")
    press(at, "Reveal what is right")
    press(at, "Ask the next question")
    assert classes.state(code, anna)[0].question == questions[1]
    press(at, "Previous")
    assert "100% → 0% right" in scene(at)
    assert button(at, "Revote").disabled
    assert classes.state(code, anna)[0].number == 4
    press(at, "Forward")
    assert questions[1].prompt in scene(at)
    classes.answer(code, ben, 4, ["1"])
    widget(at, "class_reset_4_4_open").click().run()
    assert classes.board(code, secret).answered == 0
    assert [tally.round.number for tally in classes.tallies(code, secret)] == [1, 2, 3, 5]


def test_what_most_have_right_is_revealed_without_a_second_vote(classes):
    at, code, _ = begun()
    press(at, "Ask the first question")
    question, students = controls.questions()[0], [classes.join(code) for _ in range(4)]
    for i, student in enumerate(students):
        classes.answer(code, student, 1, [question.right[0], question.right[1] if i else "99"])
    at.run()
    press(at, "Show the answers")
    assert button(at, "Reveal what is right")  # 75%
    press(at, "Open again")
    classes.answer(code, students[1], 1, ["99", question.right[1]])
    classes.answer(code, students[2], 1, ["99", question.right[1]])
    press(at, "Show the answers")
    assert button(at, "Vote again")  # 50%


def test_a_press_too_many_changes_nothing(classes):
    at, code, secret = begun()
    first = classes.plan(code, secret)[0]
    press(at, "Ask the first question")
    stale = button(at, "Show the answers")
    press(at, "Show the answers")
    press(at, "Reveal what")
    assert button(at, "Ask the next").key != stale.key
    for number, act in ((0, "reveal"), (2, "reset")):
        classes.steer(code, secret, act, number)
    assert classes.ask(code, secret, first, after=0) == 1
    assert classes.board(code, secret).current.number == 1
    moment = classes._now()
    classes._now = lambda: moment
    classes.steer(code, secret, "revote", 1)  # follows the reveal
    assert classes.board(code, secret).current.number == 2
    classes.steer(code, secret, "reveal", 2)  # the same press again
    assert classes.board(code, secret).current.phase == "open"
    classes._now = lambda: moment + 2 * store.BOUNCE
    classes.steer(code, secret, "reveal", 2)
    assert classes.board(code, secret).current.phase == "revealed"


def test_what_the_projector_opens_reads_and_steers_nothing(classes):
    at, code, secret = begun()
    press(at, "Ask the first question")
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
    anna, question = classes.join(code), controls.questions()[0]
    wrong = next(w for w in question.keys[0].wrong)
    classes.answer(code, anna, 1, [wrong[0], question.right[1]])
    widget(at, "class_reveal_1_1_open").click().run()
    shown.run()
    assert wrong[2] in scene(shown)
    assert question.keys[0].how in scene(shown)
    (body,) = [e.proto.body for e in shown.get("html") if 'class="qs-class' in e.proto.body]
    assert re.search(r'href="learn-\w+\?learn_\w+_step=\w+', body)


def test_links_to_copy_leave_the_class_out(classes):
    at, code, secret = begun()
    shown = [block.value for block in at.code]
    assert shown
    assert not [text for text in shown if secret in text or code in text]
    at = opened(projector=f"{code}.{viewing(secret)}")
    assert not [block.value for block in at.code if viewing(secret) in block.value]


def test_the_presenters_link_opens_the_class_elsewhere(classes):
    at, code, secret = begun()
    press(at, "Ask the first question")
    other = opened(presenter=f"{code}.{secret}")
    press(other, "Show the answers")
    press(other, "Reveal what")
    at.run()
    assert button(at, "Ask the next question")
    at.switch_page(script_of("")).run().switch_page(script_of("learn-class")).run()  # and back
    assert at.query_params["presenter"] == f"{code}.{secret}"
    assert button(at, "Ask the next question")


def test_the_teachers_own_question_is_about_the_sidebars_tensor(classes):
    at, code, secret = begun(class_mine="true", bits="8", seed="3", mode="asymmetric")
    press(at, "Add to the questions")
    *_, own = classes.plan(code, secret)
    assert own.facts.startswith("int8: codes -128 to 127 · asymmetric")
    assert {"bits=8", "seed=3", "mode=asymmetric"} <= set(own.link.removeprefix("?").split("&"))
    assert button(at, "On the list already").disabled
    widget(at, "class_asked").set_value("zero_point").run()
    press(at, "Add to the questions")
    assert [q.asked for q in classes.plan(code, secret)[-2:]] == ["codes", "zero_point"]
    widget(at, "class_asked").set_value("codes").run()
    widget(at, "class_element").set_value("9, 0").run()
    assert "not in a tensor of shape" in said(at)[-1]
    widget(at, "class_choice_0_8").set_value(7).run()
    press(at, "Remove")
    assert len(classes.plan(code, secret)) == 7
    widget(at, "class_choice_0_7").set_value(6).run()
    press(at, "Ask the first question")
    assert classes.board(code, secret).current.question == own


def test_files_of_the_answers(classes):
    at, code, _ = begun()
    press(at, "Ask the first question")
    classes.answer(code, classes.join(code), 1, ["0", "77"])
    at.run()
    names = [e.proto.label for e in at.get("download_button")]
    assert names == ["class.csv", "class.html"]


@pytest.mark.parametrize("link", ["x", "zzzzzzzz.secret", ".", "zzzzzzzz", "a" * 5000, "1e999999.1"])
def test_a_link_to_no_class_is_one_sentence_and_a_way_on(classes, link):
    at = opened(presenter=link)
    assert any("no class with this code" in text for text in said(at))
    assert button(at, "Begin a class")
    at = opened(projector=link)
    assert any("no class with this code" in text for text in said(at))


def test_a_wrong_secret_is_one_sentence(classes):
    _, code, _ = begun()
    at = opened(presenter=f"{code}.wrong")
    assert any("Only the presenter's own link" in text for text in said(at))


def test_who_ends_a_class_can_begin_another(classes):
    at, code, secret = begun()
    widget(at, "class_end").click().run()
    assert not at.exception
    with pytest.raises(store.ClassError):
        classes.board(code, secret)
    assert "presenter" not in at.query_params
    press(at, "Begin a class")
    other = at.query_params["presenter"]
    assert not other.startswith(code)
    widget(at, "class_end").click().run()
    press(at, "Begin a class")
    print(place._begins,at.query_params, said(at), [b.label for b in at.button])
    assert any("Too many classes" in text for text in said(at))


def test_who_only_looks_at_the_page_stores_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(settings, "current", lambda: settings.Settings(store=str(tmp_path / "store")))
    place.current.cache_clear()
    assert button(opened(), "Begin a class")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("chosen", ["off", "s3://bucket/folder"])
def test_without_a_store_there_is_one_sentence(monkeypatch, chosen):
    monkeypatch.setattr(settings, "current", lambda: settings.Settings(store=chosen))
    at = opened()
    assert any("QUANTSCOPE_STORE" in text for text in said(at))
    assert not [b for b in at.button if b.label == "Begin a class"]


def lesson(link):
    """What a lesson shows that is opened by this link: its text, and the numbers of its tables."""
    url, _, query = link.partition("?")
    at = the_app()
    for key, value in parse_qsl(query):
        at.query_params[key] = value
    at.run().switch_page(script_of(url)).run()
    assert not at.exception
    data = [json.loads(e.proto.json or "{}") for e in at.get("bidi_component")]
    tables = [table for each in data if isinstance(each, dict) for table in each.get("tables", [])]
    return "\n".join(lines(at)), {float(text) for table in tables for row in table["cells"] for text, _ in row}


def test_the_plans_questions_are_those_of_the_lessons_that_they_link_to():
    """Where the lesson shows the arithmetic, it comes to the right answer; else it shows the tensor."""
    for question in controls.questions():
        text, numbers = lesson(question.link)
        if text:
            scale = re.search(r"scale ([\d.]+)", question.facts)[1]
            assert re.search(rf"^scale s .*= {scale}\d*$", text, re.MULTILINE)
            if question.asked == "zero_point":
                assert re.search(rf"^zero point z .*= {question.right[0]}$", text, re.MULTILINE)
        else:
            assert question.part
            assert {float(value) for row in question.part.texts for value in row} <= numbers
