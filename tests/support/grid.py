"""Tests of many small cases: one test loops over them and reports every one that fails.

A case of its own costs pytest more than many of these take, in each worker once more.
"""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

MOST_TRACEBACKS = 5
# Only of a case that fails is the name made: of some hundred tensors it would take a second, in each worker
Name = Callable[[], str]
Case = tuple[list[Name], dict[str, Any]]


def for_each(names: str | tuple[str, ...], values: Iterable[Any], ids: Any = None) -> Callable[[Any], Any]:
    """Decorate as ``pytest.mark.parametrize`` does, for a loop over the cases; stacked, over the product.

    A case has a ``tmp_path`` and a ``monkeypatch`` of its own; other fixtures are shared by the cases. Cases
    marked slow are a second test, which is slow.
    """
    names = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    ids = ids if ids is None or callable(ids) else list(ids)
    axis = [_value(value, names, ids, number) for number, value in enumerate(values)]

    def decorate(test: Any) -> Any:
        axes = [axis, *getattr(test, "grid_axes", [])]
        body = getattr(test, "grid_body", test)
        cases: dict[bool, list[Case]] = {False: [], True: []}
        for values in itertools.product(*axes):
            arguments = {name: value for _, named, _ in values for name, value in named.items()}
            cases[any(slow for *_, slow in values)].append(([name for name, *_ in values], arguments))
        looped = {name for _, named, _ in itertools.chain(*axes) for name in named} | set(names)
        own = [p for p in inspect.signature(body).parameters.values() if p.name not in looped]

        @functools.wraps(body)
        def run(grid_is_slow: bool = False, **fixtures: Any) -> None:
            _run(body, cases[grid_is_slow], fixtures)

        del run.__wrapped__  # type: ignore[attr-defined]
        run.grid_axes, run.grid_body = axes, body  # type: ignore[attr-defined]
        run.pytestmark = [m for m in getattr(test, "pytestmark", []) if m.args[:1] != ("grid_is_slow",)]  # type: ignore[attr-defined]
        if not cases[True]:
            run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
            return run
        both = inspect.Parameter("grid_is_slow", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__signature__ = inspect.Signature([*own, both])  # type: ignore[attr-defined]
        halves = [pytest.param(False, id="quick")] * bool(cases[False])
        halves.append(pytest.param(True, id="others", marks=pytest.mark.slow))
        return pytest.mark.parametrize("grid_is_slow", halves)(run)

    return decorate


def _value(value: Any, names: tuple[str, ...], ids: Any, number: int) -> tuple[Name, dict[str, Any], bool]:
    """What gives a value's name, its arguments, and whether it is marked slow."""
    name, slow = None, False
    if isinstance(value, type(pytest.param())):
        name, slow = value.id, any(mark.name == "slow" for mark in value.marks)
        assert all(mark.name == "slow" for mark in value.marks), "a loop knows no other mark than slow"
        (value,) = value.values if len(value.values) == 1 else (value.values,)
    given = (value,) if len(names) == 1 else tuple(value)
    assert len(given) == len(names), f"{len(given)} values for {names}"
    return functools.partial(_name, name, given, ids, number), dict(zip(names, given, strict=True)), slow


def _name(name: str | None, given: tuple[Any, ...], ids: Any, number: int) -> str:
    if name is None and ids is not None:
        name = "-".join(str(ids(v)) for v in given) if callable(ids) else str(ids[number])
    name = name or "-".join(str(v)[:60] for v in given)
    return name.encode("utf-8", "backslashreplace").decode()


def _run(body: Any, cases: list[Case], fixtures: dict[str, Any]) -> None:
    failed, skipped = {}, []
    for number, (names, arguments) in enumerate(cases):
        given = dict(fixtures)
        if "tmp_path" in given:
            given["tmp_path"] = fixtures["tmp_path"] / str(number)
            given["tmp_path"].mkdir()
        with pytest.MonkeyPatch.context() as patch:
            if "monkeypatch" in given:
                given["monkeypatch"] = patch
            try:
                body(**given, **arguments)
            except pytest.skip.Exception as why:
                skipped.append(str(why))
            except (Exception, pytest.fail.Exception) as error:
                name = "-".join(given_name() for given_name in names)
                failed[name] = error if isinstance(error, Exception) else AssertionError(str(error))
                failed[name].add_note(f"in the case {name}")
    if failed:
        words = f"{len(failed)} of {len(cases)} cases: {'; '.join(failed)}"
        raise ExceptionGroup(words, list(failed.values())[:MOST_TRACEBACKS])
    if skipped and len(skipped) == len(cases):
        pytest.skip(skipped[0])
