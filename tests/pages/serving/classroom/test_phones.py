"""What phones are answered."""

import json
import re

import pytest
from grid import for_each
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

import quantcore as qc
from pages.learn.classroom.questions import as_choice, ask_about
from pages.serving.classroom import ClassStore, Question, phones, place
from pages.serving.middleware.headers import SecurityHeaders, content_security_policy
from pages.serving.middleware.limits import Rate
from pages.serving.middleware.page_head import Pages
from quantcore.errors import QuantError
from quantcore.prediction import NumberKey

ASKED = Question(
    "Which codes does this row get?", "int4", ("x = 0.3", "x = -1.2"), tuple(map(NumberKey, ("1", "-2")))
)


@pytest.fixture
def classes(tmp_path, monkeypatch):
    opened = ClassStore(tmp_path / "classes")
    monkeypatch.setattr(place, "current", lambda: opened)
    yield opened
    opened.close()


@pytest.fixture
def phone(classes):
    def opens(url_path, query):
        raise AssertionError("the page of a student is not one of Streamlit's")

    middleware = [Middleware(SecurityHeaders), Middleware(Pages, opens=opens, drawing="")]
    app = Starlette(routes=phones.routes("/below"), middleware=middleware)
    with TestClient(app, "http://quant.example") as client:
        yield client


def send(phone, code, name, **content):
    return phone.post(f"/below/class/{code}/{name}", json=content)


def problem(response, status):
    assert response.status_code == status, response.text
    assert list(response.json()) == ["problem"]
    assert response.json()["problem"].endswith(".")
    assert len(response.content) <= 1024
    return response.json()["problem"]


def test_a_student_joins_answers_and_sees_what_is_right(phone, classes):
    code, secret = classes.begin()
    joined = send(phone, f" {code[:4].upper()}-{code[4:]}", "join")
    assert joined.headers["cache-control"] == "no-store"
    me = joined.json()["browser"]
    assert joined.json() == {"code": code, "round": 0, "browser": me}
    number = classes.ask(code, secret, ASKED)
    shown = send(phone, code, "state", browser=me).json()
    question = {"prompt": ASKED.prompt, "facts": "int4", "fields": list(ASKED.fields), "digits": 0}
    assert shown == {"code": code, "round": number, "vote": 1, "phase": "open", "mine": None} | question
    after = send(phone, code, "answer", browser=me, round=number, typed=["1", "−3"])
    assert after.json() == shown | {"mine": ["1", "-3"]}
    classes.steer(code, secret, "lock")
    locked = send(phone, code, "answer", browser=me, round=number, typed=["1", "-2"])
    assert "locked" in problem(locked, 409)
    classes.steer(code, secret, "reveal")
    last = send(phone, code, "join", browser=me).json()  # it opens the page again
    assert last == shown | {
        "phase": "revealed",
        "mine": ["1", "-3"],
        "right": ["1", "-2"],
        "marks": [True, False],
        "browser": me,
    }
    classes.end(code, secret)
    problem(send(phone, code, "state", browser=me), 403)
    problem(send(phone, code, "join", browser=me), 404)


def test_the_largest_question_fits_into_one_kilobyte(phone, classes):
    code, secret = classes.begin()
    fields, keys = tuple(f"ẍ = {i}.123" for i in range(8)), (NumberKey("-1000000"),) * 8
    with pytest.raises(QuantError, match="bytes") as caught:
        Question("p" * 1000, "", fields, keys)
    size, most = map(int, re.findall(r"\d+", str(caught.value)))
    largest = Question("p" * (1000 - size + most), "", fields, keys)
    number, me = classes.ask(code, secret, largest), classes.join(code)
    classes.answer(code, me, number, ["-99999999999"] * 8)
    classes.steer(code, secret, "reveal")
    size = len(send(phone, code, "join", browser=me).content)
    assert 900 < size <= 1024


@for_each(
    ("body", "status"),
    [(b"", 400), (b"[]", 400), (b"{", 400), (b"[" * 1000, 400), (b"\xff", 400), (b" " * 1025, 413), (b'{"browser": 1}', 400),
     (b'{"browser": "\\ud800"}', 400), (b'{"browser": ""}', 400), (b'{"browser": "' + b"a" * 41 + b'"}', 400)],
)  # fmt: skip
def test_what_no_phone_sends_is_one_sentence(phone, classes, body, status):
    code, _ = classes.begin()
    problem(phone.post(f"/below/class/{code}/state", content=body), status)


@for_each(
    "sent",
    [{}, {"round": "1"}, {"round": True, "typed": []}, {"typed": "12"}, {"round": 1.0}, {"typed": ["1"] * 9}, {"typed": [1, 2]},
     {"typed": [["1"], "2"]}, {"typed": ["1", "\ud800"]}, {"typed": ["1", "<img src=x>"]}],
)  # fmt: skip
def test_what_is_not_an_answer_is_one_sentence(phone, classes, sent):
    code, secret = classes.begin()
    number, me = classes.ask(code, secret, ASKED), classes.join(code)
    content = {"browser": me, "round": number} | sent
    problem(phone.post(f"/below/class/{code}/answer", content=json.dumps(content)), 400)
    assert classes.board(code, secret)[:2] == (1, 0)


@for_each("code", ["short", "uuuuuuuu", "zzzzzzzz", "%00", "é" * 8])
def test_a_code_without_a_class_is_one_sentence(phone, code):
    assert "code" in problem(send(phone, code, "join"), 404)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://quant.example:81"])
def test_other_sites_pages_take_no_part(phone, classes, origin):
    code, _ = classes.begin()
    address = f"/below/class/{code}/join"
    problem(phone.post(address, json={}, headers={"origin": origin}), 403)
    assert phone.post(address, json={}, headers={"origin": "http://quant.example"}).status_code == 200


def test_trying_codes_is_limited_and_a_class_is_not_held_up_by_it(phone, classes, monkeypatch):
    code, secret = classes.begin()
    number, me = classes.ask(code, secret, ASKED), classes.join(code)
    monkeypatch.setattr(phones, "_joins", Rate(burst=5, per_second=0))
    for _ in range(5):
        problem(send(phone, "zzzzzzzz", "join"), 404)
    problem(send(phone, code, "join"), 429)
    answer = send(phone, code, "answer", browser=me, round=number, typed=["1", "1"])
    assert answer.status_code == 200
    monkeypatch.setattr(phones, "_requests", Rate(burst=1, per_second=0))
    assert send(phone, code, "state", browser=me).status_code == 200
    problem(send(phone, code, "state", browser=me), 429)


def test_the_page_is_ours_alone_and_its_policy_allows_its_script(phone):
    for address in ("/below/class", "/below/class/k3f7-9qxm"):
        page = phone.get(address)
        assert page.status_code == 200
        assert page.headers.get_list("content-security-policy") == [
            content_security_policy(page.content).decode()
        ]
        (digest,) = re.findall(r"'sha256-[^']+'", page.headers["content-security-policy"])
        assert digest
        assert not re.findall(rb"""(?:src|href)=["'](?!data:)""", page.content)
        assert b"innerHTML" not in page.content
    assert phone.get("/below/class/k3f79qxm/join").status_code == 405


def test_a_phone_learns_why_after_the_reveal(phone, classes):
    """The arithmetic of every number, and the kind and sentence of the mistake in one's own wrong answers."""
    scheme = qc.Scheme.parse("uint4 asymmetric given(0.5, 5)")
    question = ask_about(qc.apply([3.3, 2.0, 9.3], scheme), "codes", places=[(0,), (1,), (2,)])
    code, secret = classes.begin()
    me, other = classes.join(code), classes.join(code)
    number = classes.ask(code, secret, question)
    classes.answer(code, me, number, ["12", "4", "99"])  # right; the zero point is missing; unexplained
    asked = {"browser": me, "round": number}
    problem(send(phone, code, "why", **asked), 409)
    classes.steer(code, secret, "reveal")
    problem(send(phone, code, "why", **asked | {"round": number + 1}), 409)
    found = send(phone, code, "why", **asked).json()["why"]
    assert [(i, [kind for kind, _ in reasons]) for i, _, reasons in found] == [
        (0, []),
        (1, ["zero point forgotten"]),
        (2, ["wrong"]),
    ]
    assert found[1][1:] == [
        "x / s = 4, rounded to 4, plus the zero point 5 is 9.", [["zero point forgotten", "The zero point 5 is missing: 4 + 5."]]]  # fmt: skip
    assert [i for i, *_ in send(phone, code, "why", **asked | {"browser": other}).json()["why"]] == [0, 1, 2]
    assert found[0][1] == "x / s = 6.6, rounded to 7, plus the zero point 5 is 12."


def test_a_right_answer_in_another_form_is_marked_right(phone, classes):
    question = ask_about(qc.apply([0.7385], qc.Scheme.parse("int4")), "scale")
    code, secret = classes.begin()
    browsers = {text: classes.join(code) for text in ("0.105", "0,106", ".1055", "0.107")}
    number = classes.ask(code, secret, question)
    for text, browser in browsers.items():
        classes.answer(code, browser, number, [text])
    classes.steer(code, secret, "reveal")
    marks = {
        text: send(phone, code, "state", browser=browser).json()["marks"]
        for text, browser in browsers.items()
    }
    assert marks == {"0.105": [True], "0,106": [True], ".1055": [True], "0.107": [False]}
    assert send(phone, code, "why", browser=browsers["0.105"], round=number).json()["why"] == [
        [0, question.keys[0].how, []]
    ]


def test_a_choice_is_answered_with_one_of_them(phone, classes):
    question = as_choice(ask_about(qc.apply([0.7385, -0.2], qc.Scheme.parse("int4")), "scale"))
    code, secret = classes.begin()
    me, number = classes.join(code), classes.ask(code, secret, question)
    assert send(phone, code, "state", browser=me).json()["choices"] == list(question.choices)
    for typed in ("-1", str(len(question.choices)), "0.5"):
        problem(send(phone, code, "answer", browser=me, round=number, typed=[typed]), 400)
    wrong = next(known for known in question.keys[0].wrong)
    assert send(phone, code, "answer", browser=me, round=number, typed=[wrong.value]).json()["mine"] == [
        wrong.value
    ]
    classes.steer(code, secret, "reveal")
    ((_, _, reasons),) = send(phone, code, "why", browser=me, round=number).json()["why"]
    assert reasons[0][1] == wrong.sentence
