"""The store of classes in real databases; only the clock is simulated."""

import contextlib
import itertools
import multiprocessing
import os
import re
import resource
import signal
import sqlite3
import threading
from collections import Counter
from pathlib import Path

import pytest
from grid import for_each
from places import ROOT

from pages.serving import settings
from pages.serving.classroom import (
    ClassError,
    ClassStep,
    ClassStore,
    Question,
    code_of,
    database,
    phones,
    place,
    store,
    viewing,
    word,
)
from pages.serving.classroom import (
    clock as class_clock,
)
from quantcore.errors import QuantError
from quantcore.prediction import NumberKey


def keys(*right):
    return tuple(map(NumberKey, right))


ASKED = Question(
    "Which codes does this row get?",
    "int4, scale 0.5",
    ("x = 0.3", "x = -1.2"),
    keys("1", "-2"),
    link="seed 3",
)
SCALE = Question("Which scale?", "int4", ("scale",), (NumberKey("0.0314", 3),))
FIRST, SECOND = ClassStep("", 3, question=ASKED, id="a"), ClassStep("", 2, question=SCALE, id="b")
PLAN = [
    ClassStep("Welcome", 1, "to quantization", id="w"),
    FIRST,
    ClassStep("Look", 4, view="ranges?bits=4", id="v"),
    SECOND,
]


class Clock:
    time = 1_800_000_000.0

    def __call__(self):
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def classes(tmp_path, clock):
    opened = ClassStore(tmp_path / "made" / "classes", clock)
    yield opened
    opened.close()


@pytest.fixture
def begun(classes):
    return classes, *classes.begin()


def refused(status, work, *arguments):
    with pytest.raises(ClassError) as caught:
        work(*arguments)
    assert caught.value.status == status
    assert str(caught.value).endswith(".")
    return str(caught.value)


def answered(classes, code, secret):
    return classes.tallies(code, secret)[-1]


def test_a_code_has_40_random_bits_and_is_read_as_people_write_it(classes):
    codes = {classes.begin()[0] for _ in range(50)}
    assert len(codes) == 50
    assert {len(code) for code in codes} == {8}
    assert len(store.ALPHABET) == 32
    assert set("".join(codes)) <= set(store.ALPHABET)
    assert all(code_of(f" {code[:4].upper()}-{code[4:]}") == code for code in codes)
    assert code_of("OIL0-zzzz") == "0110zzzz"
    assert [code_of(text) for text in ("", "k3f7", "k3f79qxmm", "k3f7-9qxu", "k3f79qx٣", "'; DROP")] == [
        ""
    ] * 6


def test_an_answer_is_counted_once_per_browser_and_may_be_changed(begun):
    classes, code, secret = begun
    anna, ben = classes.join(code), classes.join(code)
    assert classes.join(code, anna) == anna
    assert classes.join(code, "made up") not in (anna, ben, "made up")
    assert classes.state(code, anna) == (None, None)
    number = classes.ask(code, secret, ASKED)
    classes.answer(code, anna, number, ["1", "-1"])
    classes.answer(code, anna, number, ["01", "−02"])
    classes.answer(code, ben, number, ["0", "-2"])
    assert classes.state(code, anna)[1] == ("1", "-2")
    assert classes.board(code, secret)[:2] == (3, 2)
    tally = answered(classes, code, secret)
    assert (tally.answered, tally.counts) == (2, (Counter({"1": 1, "0": 1}), Counter({"-2": 2})))


def test_locked_and_revealed_answers_stay_as_they_are(begun):
    classes, code, secret = begun
    anna = classes.join(code)
    refused(409, classes.steer, code, secret, "lock")
    first = classes.ask(code, secret, ASKED)
    classes.answer(code, anna, first, ["1", "-2"])
    for act, phase in (("lock", "locked"), ("reveal", "revealed"), ("reveal", "revealed")):
        classes.steer(code, secret, act)
        assert classes.state(code, anna)[0].phase == phase
        assert phase in refused(409, classes.answer, code, anna, first, ["0", "0"])
    refused(409, classes.steer, code, secret, "open")
    refused(409, classes.steer, code, secret, "lock")
    assert classes.state(code, anna)[1] == ("1", "-2")


def test_a_locked_question_can_be_opened_again(begun):
    classes, code, secret = begun
    anna, number = classes.join(code), classes.ask(code, secret, ASKED)
    classes.steer(code, secret, "lock")
    classes.steer(code, secret, "open")
    classes.answer(code, anna, number, ["1", "1"])
    assert classes.board(code, secret)[:2] == (1, 1)


def test_a_revote_keeps_both_votes_and_a_reset_deletes_one(begun):
    classes, code, secret = begun
    anna, first = classes.join(code), classes.ask(code, secret, ASKED)
    classes.answer(code, anna, first, ["0", "0"])
    classes.steer(code, secret, "revote")
    now, mine = classes.state(code, anna)
    assert (now.vote, now.phase, mine, now.question) == (2, "open", None, ASKED)
    refused(409, classes.answer, code, anna, first, ["5", "5"])  # it arrives late
    classes.answer(code, anna, now.number, ["1", "1"])
    classes.steer(code, secret, "reset")
    again, mine = classes.state(code, anna)
    assert (again.vote, mine) == (2, None)
    assert again.number not in (first, now.number)
    classes.answer(code, anna, again.number, ["1", "-2"])
    tallies = classes.tallies(code, secret)
    assert [(tally.round.vote, tally.answered) for tally in tallies] == [(1, 1), (2, 1)]
    assert [tally.counts[1] for tally in tallies] == [Counter({"0": 1}), Counter({"-2": 1})]
    classes.ask(code, secret, SCALE)
    assert classes.state(code, anna)[0].vote == 1


def test_only_the_presenters_secret_steers(begun):
    classes, code, secret = begun
    other = classes.begin()[1]
    for wrong in ("", other, secret[:-1]):
        refused(403, classes.ask, code, wrong, ASKED)
        refused(403, classes.steer, code, wrong, "lock")
        refused(403, classes.tallies, code, wrong)
        refused(403, classes.board, code, wrong)
        refused(403, classes.end, code, wrong)


def test_the_projectors_key_reads_and_steers_nothing(begun):
    classes, code, secret = begun
    key = viewing(secret)
    classes.ask(code, secret, ASKED)
    assert classes.board(code, key) == classes.board(code, secret)
    assert classes.tallies(code, key) == classes.tallies(code, secret)
    assert classes.plan(code, key) == []
    for wrong in (key, viewing(key)):
        refused(403, classes.ask, code, wrong, ASKED)
        refused(403, classes.steer, code, wrong, "reveal")
        refused(403, classes.set_plan, code, wrong, [FIRST])
        refused(403, classes.go, code, wrong, "")
        refused(403, classes.set_word, code, wrong, "blue horse")
        refused(403, classes.end, code, wrong)
    refused(403, classes.board, code, viewing(key))


def test_a_class_goes_through_its_steps_and_asks_each_question_once(begun):
    classes, code, secret = begun
    classes.set_plan(code, secret, PLAN)
    anna, seen = classes.join(code), []
    for step in ("w", "a", "v", "b", "v", "a", "w", ""):
        classes.go(code, secret, step)
        board = classes.board(code, secret)
        number = board.current.number if board.current else 0
        seen.append((board.shown.id if board.shown else "", number))
    assert seen == [("w", 0), ("a", 1), ("v", 1), ("b", 2), ("v", 2), ("a", 2), ("w", 2), ("", 2)]
    assert classes.state(code, anna)[0].question == SCALE  # phones stay at the last question
    assert [tally.round.step for tally in classes.tallies(code, secret)] == ["a", "b"]
    classes.go(code, secret, "a", 2)
    assert (classes.board(code, secret).shown, classes.board(code, secret).page) == (FIRST, 2)
    classes.steer(code, secret, "reset")  # of the question that phones are asked
    assert classes.board(code, secret).shown == SECOND
    assert classes.board(code, secret).page == 0
    assert "plan" in refused(409, classes.go, code, secret, "gone")


def test_a_press_for_another_turn_or_a_bounce_changes_nothing(begun, clock):
    classes, code, secret = begun
    classes.set_plan(code, secret, PLAN)

    def stands():
        board = classes.board(code, secret)
        return board.shown and board.shown.id, board.current and board.current.phase, board.turn

    assert stands() == (None, None, 0)
    classes.go(code, secret, "a", turn=0)
    classes.go(code, secret, "v", turn=0)  # a double click on Next
    assert stands() == ("a", "open", 1)
    classes.steer(code, secret, "reveal", 1)  # within the bounce of the press that asked
    assert stands() == ("a", "open", 1)
    clock.time += store.BOUNCE * 2
    classes.steer(code, secret, "reveal", 0)
    assert stands() == ("a", "open", 1)
    classes.steer(code, secret, "reveal", 1)
    assert stands() == ("a", "revealed", 2)
    clock.time -= 3600  # the clock is set back: not a bounce
    classes.go(code, secret, "v", turn=2)
    assert stands() == ("v", "revealed", 3)


def test_the_votes_on_one_question_are_told_from_those_on_others(begun):
    classes, code, secret = begun
    for question, step, votes in ((ASKED, "a", 2), (SCALE, "b", 3), (ASKED, "a", 1)):
        classes.ask(code, secret, question, step)
        for _ in range(votes - 1):
            classes.steer(code, secret, "revote")
    found = {step: [tally.round.number for tally in classes.tallies(code, secret, step)] for step in "abc"}
    assert found == {"a": [6], "b": [3, 4, 5], "c": []}
    assert [tally.round.number for tally in classes.tallies(code, secret)] == [1, 2, 3, 4, 5, 6]


def test_the_plan_is_kept_with_its_class_and_limited(begun):
    classes, code, secret = begun
    classes.set_plan(code, secret, PLAN)
    assert classes.plan(code, secret) == PLAN
    refused(400, classes.set_plan, code, secret, [FIRST] * (store.MOST_STEPS + 1))
    large = ClassStep("", 1, question=Question(**vars(ASKED) | {"link": "x" * store.MOST_BYTES}))
    refused(400, classes.set_plan, code, secret, [large])
    assert classes.plan(code, secret) == PLAN
    classes.go(code, secret, "v")
    classes.set_plan(code, secret, [FIRST, FIRST, ClassStep("New")])
    assert [step.id for step in classes.plan(code, secret)] == ["a", "1", "2"]
    assert classes.board(code, secret).shown is None


def test_a_class_is_regained_by_its_code_and_word(begun, tmp_path):
    classes, code, secret = begun
    assert refused(403, classes.regain, code, "blue horse") == word.NONE  # it has none yet
    assert refused(403, classes.regain, "zzzzzzzz", "blue horse") == word.NONE
    for bad in ("", "short", "  a   b  ", "x" * 101):
        assert "word" in refused(400, classes.set_word, code, secret, bad)
    classes.set_word(code, secret, "Blue  horse")
    assert classes.regain(code, " blue HORSE ") == secret
    stored = b"".join(path.read_bytes() for path in (tmp_path / "made").iterdir())
    assert secret.encode() not in stored
    assert b"horse" not in stored.lower()
    other, _ = classes.begin()
    assert refused(403, classes.regain, other, "blue horse") == word.NONE


def test_words_can_not_be_tried_for_long(begun, clock, monkeypatch):
    classes, code, secret = begun
    monkeypatch.setitem(word._COST, "n", 2)  # quickly
    classes.set_word(code, secret, "blue horse")
    answers = []
    for _ in range(10):
        try:
            answers.append(classes.regain(code, "red horse"))
        except ClassError as error:
            answers.append(error.status)
    assert answers == [403] * word.TRIES + [429] * 5
    assert "wait a minute" in refused(429, classes.regain, code, "blue horse")
    clock.time += word.PAUSE
    assert classes.regain(code, "blue horse") == secret
    refused(429, classes.regain, code, "blue horse")


def test_who_has_not_joined_does_not_learn_whether_there_is_a_class(begun):
    classes, code, _ = begun
    assert refused(403, classes.state, code, "x") == refused(403, classes.state, "zzzzzzzz", "x")
    assert refused(403, classes.answer, code, "x", 1, []) == refused(
        403, classes.answer, "zzzzzzzz", "x", 1, []
    )
    refused(404, classes.join, "zzzzzzzz")


@pytest.mark.parametrize(
    ("typed", "status"),
    [(["1"], 400), (["1", "2", "3"], 400), (["1", ""], 400), (["1", "two"], 400), (["1", "2.5"], 400), (["1", "1e5"], 400),
     (["1", "٣"], 400), (["1", "9" * 13], 400), (["1", "NaN"], 400), (["1", "<b>"], 400), (["1", "--2"], 400)],
)  # fmt: skip
def test_what_is_not_an_answer_is_refused_and_changes_nothing(begun, typed, status):
    classes, code, secret = begun
    anna, number = classes.join(code), classes.ask(code, secret, ASKED)
    classes.answer(code, anna, number, ["1", "-2"])
    refused(status, classes.answer, code, anna, number, typed)
    assert classes.state(code, anna)[1] == ("1", "-2")


def test_equal_numbers_are_counted_as_equal():
    assert {ASKED.read(text) for text in ("-7", "−7", " -07 ", "-7.0", "-7,")} == {"-7"}
    assert {ASKED.read(text) for text in ("0", "-0", "00")} == {"0"}
    assert ASKED.read("100") == "100"
    assert {SCALE.read(text) for text in ("0.0314", ".0314", "0,0314", " 00.0314")} == {"0.0314"}
    assert [SCALE.read(text) for text in ("-.50", "-0.0", "7.", "12345")] == [
        "-0.50",
        "0",
        "7",
        "12345",
    ]  # as precise as typed


@for_each(
    "change",
    [{"fields": (), "keys": ()}, {"keys": keys("1")}, {"keys": keys("1", "2.5")}, {"keys": keys("1", "-0")},
     {"keys": (NumberKey("1"), NumberKey("0.5", 3))}, {"choices": ("a", "b")}, {"prompt": "ä" * 500},
     {"fields": ("x",), "keys": keys("0"), "choices": ("a",)}, {"fields": ("x",), "keys": keys("2"), "choices": ("a", "b")},
     {"fields": tuple("abcdefghi"), "keys": keys(*"123456789")}],
)  # fmt: skip
def test_a_question_that_phones_can_not_show_is_refused(change):
    with pytest.raises(QuantError, match=r"\.$"):
        Question(**vars(ASKED) | change)


def test_a_class_ends_after_two_idle_hours_and_after_a_day(classes, clock):
    code, secret = classes.begin()
    for _ in range(11):  # in use
        clock.time += store.IDLE - 1
        classes.join(code)
    clock.time += store.IDLE + 1
    assert "code" in refused(404, classes.join, code)
    refused(404, classes.ask, code, secret, ASKED)
    code, secret = classes.begin()
    began = clock.time
    while clock.time + 3600 <= began + store.LONGEST:
        clock.time += 3600
        classes.ask(code, secret, ASKED)
    clock.time += 3600
    refused(404, classes.ask, code, secret, ASKED)
    assert clock.time - began <= 86400


def test_polling_phones_do_not_keep_a_class(classes, clock):
    code, _ = classes.begin()
    anna = classes.join(code)
    clock.time += store.IDLE - 1
    classes.state(code, anna)
    clock.time += 2
    refused(404, classes.state, code, anna)


def test_nothing_stays_in_the_files_of_a_class_that_has_ended(classes, clock, tmp_path):
    def content():
        return b"".join(path.read_bytes() for path in (tmp_path / "made").iterdir())

    for by_itself in (False, True):
        code, secret = classes.begin()
        anna = classes.join(code)
        number = classes.ask(code, secret, ASKED)
        classes.answer(code, anna, number, ["1", "-2"])
        assert code.encode() in content()
        assert b"Which codes" in content()
        assert anna.encode() not in content()
        assert secret.encode() not in content()
        if by_itself:
            clock.time += store.IDLE + 1
            classes.tidy()
        else:
            classes.end(code, secret)
        assert code.encode() not in content()
        assert b"Which codes" not in content()
    assert (tmp_path / "made" / "classes").stat().st_mode & 0o077 == 0
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0


def test_what_a_class_may_take_is_limited(begun, monkeypatch):
    classes, code, secret = begun
    monkeypatch.setattr(store, "MOST_BROWSERS", 2)
    monkeypatch.setattr(store, "MOST_ROUNDS", 2)
    monkeypatch.setattr(store, "MOST_CLASSES", 1)
    anna, _ = classes.join(code), classes.join(code)
    refused(503, classes.join, code)
    assert classes.join(code, anna) == anna
    classes.ask(code, secret, ASKED)
    classes.steer(code, secret, "reset")
    refused(409, classes.ask, code, secret, ASKED)
    refused(503, classes.begin)


def test_a_damaged_database_is_one_sentence(tmp_path):
    (tmp_path / place.NAME).write_bytes(b"no database" * 1000)
    refused(503, place.opened_at, settings.Settings(store=str(tmp_path)))
    (tmp_path / "file").write_text("")
    refused(503, place.opened_at, settings.Settings(store=str(tmp_path / "file")))


def test_upkeep_deletes_what_an_ended_process_left(tmp_path, monkeypatch):
    chosen = settings.Settings(store=str(tmp_path / "store"))
    monkeypatch.setattr(settings, "current", lambda: chosen)
    monkeypatch.setattr(place, "current", lambda: place.opened_at(chosen))
    place.tidy()
    assert not (tmp_path / "store").exists()
    earlier, recent = (tmp_path / "store" / f"{place.EARLIER}{end}" for end in ("", "-wal"))
    long_ago = ClassStore(
        tmp_path / "store" / place.NAME, lambda: class_clock.since_boot() - store.LONGEST - 1
    )
    code, _ = long_ago.begin()
    for file in (earlier, recent):
        file.write_text("answers")
    os.utime(earlier, (0, 0))
    place.tidy()
    assert (earlier.exists(), recent.exists()) == (False, True)
    refused(404, long_ago.join, code)


@for_each("chosen", ["off", "OFF", "s3://bucket/folder", "memory://x"])
def test_without_a_local_folder_there_are_no_classes(chosen):
    assert "QUANTSCOPE_STORE" in refused(503, place.opened_at, settings.Settings(store=chosen))


@for_each("kind", ["nfs4", "cifs", "fuse.sshfs", "9p", "ext4", "overlay"])
def test_a_network_file_system_is_refused(tmp_path, monkeypatch, kind):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 8:2 / {tmp_path}/a\\040b rw shared:1 - {kind} server:/x rw\n"
        f"3 1 8:3 / {tmp_path}/a rw - nfs4 server:/y rw\n"
    )
    monkeypatch.setattr(place, "_MOUNTS", mounts)
    chosen = settings.Settings(store=str(tmp_path / "a b" / "store"))
    if kind in ("ext4", "overlay"):
        place.opened_at(chosen).close()
    else:
        assert f"({kind})" in refused(503, place.opened_at, chosen)
        assert not (tmp_path / "a b").exists()


def test_the_last_of_several_mounts_at_one_place_counts():
    mounts = "1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /s rw - ext4 b rw\n3 1 8:3 / /s rw - nfs c rw\ndamaged\n"
    assert [place.file_system(Path(path), mounts) for path in ("/s/t", "/st", "/")] == ["nfs", "ext4", "ext4"]
    assert place.file_system(Path("/s"), "") == ""


def test_the_limits_are_documented():
    text = (ROOT / "docs" / "hosting.md").read_text("utf-8")
    for what, said in {
        "classes begun from one": f"{place._begins.burst:g} at once, then one per minute",
        "classes at a time": f"{store.MOST_CLASSES:,}",
        "browsers in a class": f"{store.MOST_BROWSERS:,}",
        "students joining from": f"{phones._joins.burst:g} at once, then {phones._joins.per_second:g} per second",
        "requests of phones": f"{phones._requests.burst:,} at once, then {phones._requests.per_second:g} per second",
        "votes included": f"{store.MOST_ROUNDS}",
        "steps of a class": f"{store.MOST_STEPS}, of {store.MOST_BYTES // 1000} kB together",
        "words tried for one class": f"{word.TRIES} at once, then one per minute",
    }.items():
        assert re.search(rf"\| [^|]*{what}[^|]*\| {re.escape(said)}", text), what
    assert 60 * place._begins.per_second == 1
    assert word.PAUSE == 60
    assert (store.IDLE, store.LONGEST <= 24 * 3600, phones.MOST_BYTES) == (2 * 3600, True, 1024)


STUDENTS = 40


def take_part(path, code, number, first, failures):
    """What one of two processes does: half the class joins and answers twice, from several threads."""
    classes = ClassStore(path)

    def student(i):
        try:
            browser = classes.join(code)
            classes.answer(code, browser, number, ["0", "0"])
            classes.answer(code, browser, number, [str(i % 3), str(i % 2)])
        except Exception as error:
            failures.put(repr(error))

    threads = [threading.Thread(target=student, args=(i,)) for i in range(first, first + STUDENTS // 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_two_processes_count_the_same_class(tmp_path):
    path, context = tmp_path / "classes", multiprocessing.get_context("fork")
    classes = ClassStore(path, Clock())
    classes.close()
    classes = ClassStore(path)
    code, secret = classes.begin()
    number, failures = classes.ask(code, secret, ASKED), context.Queue()
    halves = [
        context.Process(target=take_part, args=(path, code, number, first, failures))
        for first in (0, STUDENTS // 2)
    ]
    for process in halves:
        process.start()
    for process in halves:
        process.join(300)
        assert process.exitcode == 0
    assert failures.empty(), failures.get()
    tally = answered(classes, code, secret)
    assert classes.board(code, secret)[:2] == (STUDENTS, STUDENTS)
    assert tally.answered == STUDENTS
    assert tally.counts == (
        Counter(str(i % 3) for i in range(STUDENTS)),
        Counter(str(i % 2) for i in range(STUDENTS)),
    )


def answer_for_ever(path, code, number, told):
    classes = ClassStore(path)
    for i in itertools.count():
        classes.answer(code, classes.join(code), number, [str(i % 3), "-2"])
        told.send(i)


def test_what_a_killed_process_has_acknowledged_is_counted(tmp_path):
    """The answer that it was about to count is there as a whole or not at all, and the class goes on."""
    path, context = tmp_path / "classes", multiprocessing.get_context("fork")
    classes = ClassStore(path)
    code, secret = classes.begin()
    number, (heard, told) = classes.ask(code, secret, ASKED), context.Pipe(duplex=False)
    classes.close()
    process = context.Process(target=answer_for_ever, args=(path, code, number, told))
    process.start()
    told.close()
    while heard.recv() < 20:
        pass
    os.kill(process.pid, signal.SIGKILL)
    last = 20
    with contextlib.suppress(EOFError):
        while True:
            last = heard.recv()
    process.join(60)
    classes = ClassStore(path)
    classes.answer(code, classes.join(code), number, ["7", "7"])
    tally = answered(classes, code, secret)
    assert tally.answered in (last + 2, last + 3)
    assert [sum(counts.values()) for counts in tally.counts] == [tally.answered] * 2
    assert tally.counts[0]["7"] == tally.counts[1]["7"] == 1


def test_processes_that_start_together_make_one_database(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=lambda: ClassStore(tmp_path / "classes").begin()) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0


def test_who_writes_waits_for_another_process_from_its_first_look(tmp_path):
    first, second = ClassStore(tmp_path / "classes"), ClassStore(tmp_path / "classes")
    code, secret = first.begin()
    waiting = threading.Thread(target=second.join, args=(code,))
    with first._transaction(database.WRITE):
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
    waiting.join()
    assert first.board(code, secret)[:2] == (1, 0)


def test_while_another_process_writes_others_read_and_who_writes_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_WAIT", 0.5)
    classes = ClassStore(tmp_path / "classes")
    code, secret = classes.begin()
    browser = classes.join(code)
    number = classes.ask(code, secret, ASKED)
    other = sqlite3.connect(tmp_path / "classes", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    told, waited = [], threading.Event()

    def write():
        told.append(refused(503, classes.answer, code, browser, number, ["1", "-2"]))
        waited.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not waited.is_set():
        assert classes.state(code, browser)[0].number == number
        reads += 1
    writer.join()
    assert reads >= 5  # of 0.5 s
    assert told == [
        "The class can't be reached now, because another process writes to it; nothing was changed. Try again in a moment."
    ]
    other.execute("ROLLBACK")
    classes.answer(code, browser, number, ["1", "-2"])
    assert answered(classes, code, secret).answered == 1
    classes.close()


def end_with_little_room(path, code, secret, told):
    classes = ClassStore(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))  # two pages
    try:
        classes.end(code, secret)
    except ClassError as error:
        told.put((error.status, str(error)))
    else:
        told.put("ended")


def test_a_class_that_cannot_be_ended_for_want_of_room_is_still_there(tmp_path):
    path, context = tmp_path / "classes", multiprocessing.get_context("fork")
    classes = ClassStore(path)
    code, secret = classes.begin()
    browsers = [classes.join(code) for _ in range(100)]
    number = classes.ask(code, secret, ASKED)
    for browser in browsers:
        classes.answer(code, browser, number, ["1", "-2"])
    classes.close()  # which empties the log into the file
    told = context.Queue()
    process = context.Process(target=end_with_little_room, args=(path, code, secret, told))
    process.start()
    status, sentence = told.get(timeout=30)
    process.join(30)
    assert status == 503
    assert re.fullmatch(r"The class can't be [^\n]+; nothing was changed\. Try again in a moment\.", sentence)
    classes = ClassStore(path)
    assert answered(classes, code, secret).answered == 100
    classes.end(code, secret)
    refused(404, classes.board, code, secret)
    classes.close()


@for_each("jump", [-5 * 365 * 86_400, -3600, 3 * 3600, 30 * 86_400])
def test_a_clock_that_jumps_ends_no_class(tmp_path, jump):
    """Of the same process, and of one that starts afterwards; after a boot, nothing goes back."""
    now = [1_800_000_000.0]
    wall = lambda: now[0]  # noqa: E731
    first = ClassStore(tmp_path / "classes", wall=wall)
    code, secret = first.begin()
    browser = first.join(code)
    now[0] += jump
    second = ClassStore(tmp_path / "classes", wall=wall)
    for classes in (first, second):
        classes.tidy()
        number = classes.ask(code, secret, ASKED)
        assert classes.state(code, browser)[0].number == number
        assert classes.answer(code, browser, number, ["1", "-2"])
    second.close()
    if jump < 0:
        booted = ClassStore(tmp_path / "classes", lambda: 5.0, wall)
        booted.tidy()
        assert booted.board(code, secret).joined == 1
        booted.close()
    first.close()
