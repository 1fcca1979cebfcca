"""Long work of a page without its page: when it starts, what ends it, and whom it lets go first."""

import pytest
import streamlit as st
from app_page import PATIENCE
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.shared.computing.cache import CacheKey
from pages.shared.computing.long_work import LongWork, WorkStep

PAGE = """
import streamlit as st
from pages.shared.computing.long_work import LongWork

for key, quick in (("a", False), ("b", False), ("c", True)):
    if LongWork(key, key, quick).starts(st.empty(), f"Start {key}"):
        st.button(f"Stop {key}", on_click=LongWork(key, key, quick).want, args=(False,))
"""


def labels(at: AppTest) -> list[str]:
    assert not at.exception
    return [button.label for button in at.button]


def press(at: AppTest, label: str) -> AppTest:
    return next(button for button in at.button if button.label == label).click().run()


def test_each_work_is_started_and_stopped_on_its_own() -> None:
    at = AppTest.from_string(PAGE, default_timeout=PATIENCE).run()
    assert labels(at) == ["Start a", "Start b", "Stop c"]
    assert labels(press(at, "Start a")) == ["Stop a", "Start b", "Stop c"]
    assert labels(press(at, "Stop c")) == ["Stop a", "Start b", "Start c"]
    assert labels(press(at, "Stop a")) == ["Start a", "Start b", "Start c"]
    assert labels(press(at, "Start c")) == ["Start a", "Start b", "Stop c"]


class Counted:
    """Three steps, and what became of them."""

    def __init__(self, fails_after: int = 9) -> None:
        self.seen: list[str] = []
        self.fails_after = fails_after

    def __call__(self):
        try:
            for step in (1, 2, 3):
                if step > self.fails_after:
                    raise qc.QuantError("It failed.")
                self.seen.append(f"step {step}")
                yield WorkStep(step / 3, "")
        finally:
            self.seen.append("closed")


def test_others_go_first_after_each_step_but_the_last() -> None:
    work = Counted()
    LongWork("x", "x").run(st.empty(), work, CacheKey("x"), let_others=lambda own: work.seen.append("others"))
    assert work.seen == ["step 1", "others", "step 2", "others", "step 3", "closed"]


def test_what_another_visitor_has_done_is_not_done_again() -> None:
    work = Counted()
    LongWork("x", "x").run(st.empty(), work, CacheKey("x"), useless=lambda: True)
    assert work.seen == []


def test_whatever_is_raised_closes_the_work() -> None:
    work = Counted()

    def ends(own: object) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        LongWork("x", "x").run(st.empty(), work, CacheKey("x"), let_others=ends)
    assert work.seen == ["step 1", "closed"]
    failing = Counted(fails_after=1)
    with pytest.raises(qc.QuantError, match="It failed"):
        LongWork("x", "x").run(st.empty(), failing, CacheKey("x"), let_others=None)
    assert failing.seen == ["step 1", "closed"]
