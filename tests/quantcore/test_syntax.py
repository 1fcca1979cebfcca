"""Trees are made by one thread at a time, since Python 3.11.7 and before fail now and then where two make one."""

import ast
import threading
import time
from typing import Any

import pytest

from quantcore import notation, syntax


def test_two_threads_never_make_a_tree_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, parse = 0, 0, ast.parse

    def slow(*given: Any, **named: Any) -> ast.AST:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.02)  # as when another thread is let on meanwhile
        inside -= 1
        return parse(*given, **named)

    monkeypatch.setattr(ast, "parse", slow)
    asked = [
        lambda: notation.parse_call("per_group(32, axis=1)"),
        lambda: syntax.literal("[0.5, -2]"),
        lambda: syntax.module("x = 1\ny = x"),
    ]
    threads = [threading.Thread(target=ask) for ask in asked * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_literal_is_read_as_python_reads_it() -> None:
    for text in ("0.1", " -3", "[[0.1], [0.2]]", "(1, 2)", "1e400"):
        assert syntax.literal(text) == ast.literal_eval(text)
    for text in ("x", "f(1)", "1 +", "[1", "", "1\n2"):
        with pytest.raises((SyntaxError, ValueError)):
            syntax.literal(text)
