"""From pasted text to a syntax tree, within limits; Python itself never runs it."""

import ast
from dataclasses import dataclass

from quantcore import syntax
from quantcore.errors import QuantError
from quantcore.pasted.notebook import PythonLines, python_lines
from quantcore.wording import count

MAX_CHARS, MAX_LINES, MAX_NODES, MAX_DEPTH = 200_000, 5_000, 30_000, 40
_INVALID = "is not valid Python"


@dataclass(frozen=True)
class BrokenStatement:
    """The value of a statement that is not valid Python, and ``why``."""

    why: str


@dataclass(frozen=True)
class PastedSource:
    """A pasted text: ``text``, as it is shown, of a notebook's file its code; its ``tree``; ``lines``: the
    Python of each line; ``skipped``: the lines, from 1, that are no Python."""

    text: str
    tree: ast.Module
    lines: tuple[str, ...]
    skipped: tuple[int, ...]


def parse(text: str) -> tuple[str, ast.Module]:
    """Return the text as it is shown and the tree of its Python; see `read_source`."""
    source = read_source(text)
    return source.text, source.tree


def read_source(text: str) -> PastedSource:
    """Return a pasted text with the tree of its Python.

    A notebook is accepted as its file or as text: prompts are removed; outputs, shell commands, magics,
    prose and Python 2's print are left out.

    Raises:
        QuantError: the text is empty, too long, too deep, or not Python.
    """
    if not isinstance(text, str) or not text.strip():
        raise QuantError("There is no code yet; paste a few lines of PyTorch or NumPy.")
    if "\0" in text:
        raise QuantError("The text contains a null byte; paste the code as plain text.")
    if text.lstrip()[:1] != "{":
        _check_length(text)
    try:
        found = python_lines(text)
        shown = "\n".join(found.shown)
        _check_length(shown)
        tree = _tree(found)
    except UnicodeEncodeError:
        raise QuantError(
            "The text contains an incomplete Unicode character; paste it as plain text."
        ) from None
    except (RecursionError, MemoryError, ValueError, OverflowError) as error:
        if isinstance(error, QuantError):
            raise
        raise QuantError("The code is nested too deeply; paste only the lines that quantize.") from None
    _limit(tree)
    return PastedSource(shown, tree, tuple(found.code), tuple(found.skipped))


def _check_length(text: str) -> None:
    if len(text) > MAX_CHARS or text.count("\n") >= MAX_LINES:
        raise QuantError(
            f"The code has {count(len(text), 'character')} in {count(text.count(chr(10)) + 1, 'line')}; the "
            f"limit is {MAX_CHARS:,} characters and {MAX_LINES:,} lines. Paste only the lines that quantize."
        )


def _tree(found: PythonLines) -> ast.Module:
    """Return the tree of all statements, with those that are broken in their place."""
    tree = syntax.module("\n".join(found.code))
    effects = sum(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in tree.body)
    if found.broken and len(found.broken) > effects:
        line, _, why = found.broken[0]
        raise QuantError(f"Line {line}: {why}; paste the code alone, without its output.")
    if not effects and found.skipped:
        raise QuantError(
            f"Line {found.skipped[0]}: this {_INVALID}; paste the code alone, without its output."
        )
    for line, names, why in found.broken:
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names or ("_",)]
        value = ast.Constant(BrokenStatement(why))  # type: ignore[arg-type]
        broken = ast.Assign(targets, value, lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
        tree.body.append(ast.fix_missing_locations(broken))
    tree.body.sort(key=lambda node: node.lineno)
    return tree


def _limit(tree: ast.Module) -> None:
    nodes, line, level = 0, 1, list[ast.AST]([tree])
    for _ in range(MAX_DEPTH + 1):
        nodes += len(level)
        if nodes > MAX_NODES:
            raise QuantError(
                f"The code is too long: more than {MAX_NODES:,} syntax nodes; paste only the lines that "
                "quantize, without tables."
            )
        line = next((node.lineno for node in level if isinstance(node, ast.stmt | ast.expr)), line)
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise QuantError(
        f"Line {line}: the code is nested more than {MAX_DEPTH} levels deep; split it into more lines."
    )
