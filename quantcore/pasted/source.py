"""From pasted text to a syntax tree, within limits; Python itself never runs it."""

import ast
import re
import textwrap

from quantcore.errors import QuantError
from quantcore.wording import count

MAX_CHARS, MAX_LINES, MAX_NODES, MAX_DEPTH = 20_000, 400, 6_000, 40
_PROMPT = re.compile(r"^\s*(?:In \[[\d *]*\]:|>>>)[ \t]?")
_MORE = re.compile(r"^\s*(?:\.\.\.(?::)?)[ \t]?")
_OUTPUT = re.compile(r"^\s*Out ?\[\d*\]:")
_SHELL = re.compile(r"^\s*[%!]\w*")
_PRINT = re.compile(r"^(\s*)print(?=[ \t]+[^\s(=.\[])[^=]*$")


def parse(text: str) -> tuple[str, ast.Module]:
    """Return the parsed text, line by line as given, and its tree.

    Notebook and Python prompts are removed; shell commands and Python 2's print are left out.

    Raises:
        QuantError: the text is empty, too long, too deep, or not Python.
    """
    if not isinstance(text, str) or not text.strip():
        raise QuantError("There is no code yet; paste a few lines of PyTorch or NumPy.")
    if "\0" in text:
        raise QuantError("The text contains a null byte; paste the code as plain text.")
    if len(text) > MAX_CHARS or text.count("\n") >= MAX_LINES:
        raise QuantError(
            f"The code has {count(len(text), 'character')} in {count(text.count(chr(10)) + 1, 'line')}; the "
            f"limit is {MAX_CHARS:,} characters and {MAX_LINES} lines. Paste only the lines that quantize."
        )
    text = _plain(text)
    try:
        tree = ast.parse(text)
    except UnicodeEncodeError:
        raise QuantError(
            "The text contains an incomplete Unicode character; paste it as plain text."
        ) from None
    except SyntaxError as error:
        place = f"Line {error.lineno}: this" if error.lineno else "The text"
        raise QuantError(
            f"{place} is not valid Python ({(error.msg or 'invalid syntax')[:80]}); paste the code alone, "
            "without its output."
        ) from None
    except (RecursionError, MemoryError, ValueError, OverflowError):
        raise QuantError("The code is nested too deeply; paste only the lines that quantize.") from None
    _limit(tree)
    return text, tree


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


def _plain(text: str) -> str:
    """Remove prompts; output and commands become empty lines, so that line numbers stay the same."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).split("\n")
    python = any(re.match(r"\s*>>>", line) for line in lines)
    for i, line in enumerate(lines):
        prompt = _PROMPT.match(line) or (python and _MORE.match(line))
        left = line[prompt.end() :] if prompt else "" if python or _OUTPUT.match(line) else line
        lines[i] = "" if _SHELL.match(left) else _PRINT.sub(r"\1pass", left)
    return textwrap.dedent("\n".join(lines))
