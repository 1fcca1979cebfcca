"""What the answers of a class show: counts, and the mistakes that give exactly what was answered."""

import csv
import io
import re
from collections import Counter
from datetime import UTC, datetime
from urllib.parse import parse_qsl

import pytest

import quantcore as qc
from pages.learn.classroom.files import as_csv, as_html
from pages.learn.classroom.questions import ask_about
from pages.learn.classroom.results import NO_MISTAKE, Why, results
from pages.registry import PAGES
from pages.serving.classroom import ClassStore, Round, Tally, words
from pages.shared.curriculum import LESSONS
from quantcore.mistakes import MISTAKES, answers

X = [[0.75, -1.25, 2.0, -0.1, 3.5, 0.5]]  # scale 0.5: 0.75 and -1.25 are ties
RESULT = qc.apply(X, qc.Scheme(qc.INT4, range_setting=qc.Fixed(-3.5, 3.5)))
ASKED = ask_about(RESULT, "codes", "learn-predict?seed=<3>&a=1")
AT = "https://quant.example/app/"


@pytest.fixture
def class_of_seven(tmp_path):
    """Seven students, two votes; the first number is answered wrongly by most."""
    classes = ClassStore(tmp_path / "classes")
    code, secret = classes.begin()
    students = [classes.join(code) for _ in range(7)]
    for wrong in (5, 1):
        number = (
            classes.state(code, students[0])[0].number if wrong == 1 else classes.ask(code, secret, ASKED)
        )
        for i, student in enumerate(students):
            first = (
                str(int(ASKED.right[0]) - 1) if i < wrong - 1 else "99" if i == wrong - 1 else ASKED.right[0]
            )
            classes.answer(code, student, number, [first, *ASKED.right[1:]])
        classes.steer(code, secret, "revote" if wrong == 5 else "reveal")
    found = classes.tallies(code, secret), classes.ballots(code, secret)
    classes.close()
    return found


@pytest.fixture
def tallies(class_of_seven):
    return class_of_seven[0]


@pytest.fixture
def ballots(class_of_seven):
    return class_of_seven[1]


def test_each_wrong_answer_is_counted_and_has_exactly_its_mistakes(tallies):
    before, after = (results(tally) for tally in tallies)
    first = before[0]
    assert (first.right_count, first.answered, first.fraction_right) == (2, 7, 2 / 7)
    assert [(given.value, given.students) for given in first.wrong] == [
        (str(int(ASKED.right[0]) - 1), 4),
        ("99", 1),
    ]
    place = next((0, i) for i, x in enumerate(X[0]) if ASKED.fields[0] == f"x = {x:g}")
    for given in first.wrong:
        wrong = answers(RESULT, "codes", place)
        expected = {answer.sentence for answer in wrong if answer.value == int(given.value)}
        assert sorted(why.sentence for why in given.why) == sorted(expected)  # each once
    assert first.wrong[0].why
    assert not first.wrong[1].why  # 99
    assert after[0].right_count == 6
    assert all(result.right_count == 7 and not result.wrong for result in before[1:])


def test_a_mistake_names_the_lesson_that_treats_it(tallies):
    steps = [why.step for result in results(tallies[0]) for given in result.wrong for why in given.why]
    assert any(steps)
    assert all(not step or any(lesson.title in step for lesson in LESSONS.values()) for step in steps)
    assert (Why("toward_zero", "", "").step, Why("toward_zero", "", "").link) == (
        "lesson 6 · Mistakes: truncated", "learn-mistakes?learn_mistakes_step=truncated")  # fmt: skip
    whole = Why("zero_point_negated", "", "")  # treated in several steps
    assert (whole.step, whole.link) == ("lesson 3 · Zero point", "learn-zero-point")
    assert (Why("decimal_point", "", "").step, Why("decimal_point", "", "").link) == ("", "")
    for name in MISTAKES:
        url, _, query = Why(name, "", "").link.partition("?")
        if url:
            (page,) = [page for page in PAGES if page.url_path == url]
            assert {key for key, _ in parse_qsl(query, True)} <= page.keys
            assert all(
                value in LESSONS[MISTAKES[name].lesson[0]].steps for _, value in parse_qsl(query, True)
            )


def test_a_question_that_nobody_answered(tallies):
    tally = Tally(Round(3, 1, "revealed", ASKED), 0, tuple(Counter() for _ in ASKED.fields))
    assert [result.fraction_right for result in results(tally)] == [0.0] * len(ASKED.fields)


def test_the_table_pairs_both_votes_of_each_student_in_words(tallies, ballots):
    text = as_csv(tallies, ballots, AT)
    assert text.startswith("\ufeff")
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    assert len(rows) == 7 * len(ASKED.fields)
    assert {row["link"] for row in rows} == {f"{AT}learn-predict?seed=<3>&a=1"}
    mine = [row for row in rows if row["asked for"] == ASKED.fields[0]]
    low = str(int(ASKED.right[0]) - 1)
    pairs = Counter((row["vote 1"], row["right 1"], row["vote 2"], row["right 2"]) for row in mine)
    right = ASKED.right[0]
    assert pairs == {
        ("99", "no", right, "yes"): 1,
        (low, "no", "99", "no"): 1,
        (low, "no", right, "yes"): 3,
        (right, "yes", right, "yes"): 2,
    }
    assert {row["why 1"] for row in mine if row["vote 1"] == "99"} == {NO_MISTAKE}
    assert {row["why 1"] for row in mine if row["right 1"] == "yes"} == {""}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row["time 1 (UTC)"]) for row in rows)
    internal = {mistake.in_answers.kind for mistake in MISTAKES.values() if mistake.in_answers} - set(
        words.KINDS
    )
    assert not internal


def test_a_student_who_missed_a_vote_and_a_question_nobody_answered(tmp_path):
    classes = ClassStore(tmp_path / "classes")
    code, secret = classes.begin()
    anna = classes.join(code)
    classes.ask(code, secret, ASKED, "a")
    classes.steer(code, secret, "revote")
    classes.answer(code, anna, 2, ASKED.right)
    classes.ask(code, secret, ASKED, "b")
    found = classes.tallies(code, secret), classes.ballots(code, secret)
    rows = list(csv.reader(io.StringIO(as_csv(*found, AT), newline="")))
    assert len(rows) == 1 + len(ASKED.fields)
    assert {len(row) for row in rows} == {len(rows[0])}
    assert rows[1][5:10] == ["", "", "", "", ASKED.right[0]]
    assert as_csv([], [], AT).count("\n") == 1
    assert "Nobody has answered" in as_html([], [], AT)
    classes.close()


def test_the_page_has_every_answer_its_tensor_and_date_and_its_text_is_no_markup(tallies, ballots):
    page = as_html(tallies, ballots, AT)
    assert page.count("4 of 7") == 1
    assert "Vote 2 · 7 students" in page
    assert page.count("<h2>") == 1
    assert re.search(rf'href="{AT}learn-\w+\?learn_\w+_step=', page)
    assert 'href="https://quant.example/app/learn-predict?seed=&lt;3&gt;&amp;a=1"' in page
    assert "<script" not in page
    assert "src=" not in page
    assert f"{datetime.fromtimestamp(ballots[0].time, UTC):%Y-%m-%d} · 7 students answered" in page
    assert "int4: codes −8 to 7" in page
    for value in X[0]:
        assert f">{value:g}</td>".replace("-", "−") in page
