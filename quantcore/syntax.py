"""Python's syntax trees, of one thread at a time.

Up to Python 3.11.7, two threads that make trees share a counter of their depth, and now and then one of them
gets a SystemError (https://github.com/python/cpython/issues/106905); a server has a thread per visitor.
"""

import ast
import threading
from typing import Any

_ONE = threading.RLock()  # what is thrown away meanwhile may make a tree, in the same thread


def module(text: str) -> ast.Module:
    """Return the tree of statements; raises what `ast.parse` does."""
    with _ONE:
        return ast.parse(text)  # noqa: TID251


def expression(text: str) -> ast.expr:
    """Return the tree of an expression; raises what `ast.parse` does."""
    with _ONE:
        return ast.parse(text, mode="eval").body  # noqa: TID251


def literal(text: str) -> Any:
    """Return a number, or a list of them, from its text; raises what `ast.literal_eval` does."""
    return ast.literal_eval(expression(text.lstrip(" \t")))
