"""A loop over cases says which of them fail, and runs those that are slow apart."""

import pytest
from grid import for_each
from parts import some


def test_every_case_that_fails_is_named():
    @for_each("n", range(6))
    @for_each("sign", ["plus", "minus"])
    def check(n, sign):
        assert n % 3 or sign == "plus"

    with pytest.raises(ExceptionGroup, match="2 of 12 cases: 0-minus; 3-minus") as caught:
        check()
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["in the case 0-minus"],
        ["in the case 3-minus"],
    ]


def test_cases_marked_slow_run_apart():
    seen = []

    @for_each("n", some(range(5), 2))
    def check(n):
        seen.append(n)

    check()
    assert seen == [0, 2, 4]
    check(grid_is_slow=True)
    assert seen == [0, 2, 4, 1, 3]


def test_a_case_has_a_folder_and_changes_of_its_own(tmp_path, monkeypatch):
    @for_each("n", range(3))
    def check(n, tmp_path, monkeypatch):
        assert not hasattr(pytest, "of_a_case")
        monkeypatch.setattr(pytest, "of_a_case", n, raising=False)
        (tmp_path / "file").touch(exist_ok=False)

    check(tmp_path=tmp_path, monkeypatch=monkeypatch)
    assert not hasattr(pytest, "of_a_case")


@for_each("skipped", [(0,), (0, 1)])
def test_only_if_every_case_is_skipped_the_test_is(skipped):
    @for_each("n", range(2))
    def check(n):
        if n in skipped:
            pytest.skip("not here")

    if len(skipped) == 2:
        with pytest.raises(pytest.skip.Exception, match="not here"):
            check()
    else:
        check()


def test_a_case_of_several_values_may_be_slow():
    seen = []

    @for_each(("a", "b"), some({1: 2, 3: 4}.items(), 2))
    def check(a, b):
        seen.append((a, b))

    check()
    check(grid_is_slow=True)
    assert seen == [(1, 2), (3, 4)]
