"""What of a pasted text is Python: without prompts, outputs, magics and prose, on the same lines.

A notebook is pasted as its file (.ipynb), as its cells with their prompts, or as text around code.
"""

import json
import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

from quantcore import syntax
from quantcore.errors import QuantError

_PROMPT = re.compile(r"^\s*(?:In ?\[[\d *]*\]:|>>>)[ \t]?")
_MORE = re.compile(r"^\s*\.\.\.(?::|(?=\s|$))[ \t]?")
_TRACEBACK, _RAISED = "Traceback (most recent call last)", re.compile(r"\w*(?:Error|Exception|Interrupt)\b")
_OUTPUT = re.compile(r"^\s*Out ?\[\d*\]:")
_CELL = re.compile(r"^\s*(?:In ?\[[\d *]*\]:|# ?In ?\[|# ?%%)")
_FENCE = re.compile(r"^\s*(?:```|~~~)\s*([\w+-]*)")
_SHELL = re.compile(r"^\s*(?:[%!?]|\$ |(?:pip|pip3|conda|python3?) [\w-])|^\s*[\w.]+\?{1,2}\s*$")
_ASSIGNED = re.compile(r"^(\s*)(\w+)\s*=\s*[!%]\w")
_OTHER_CELL = re.compile(
    r"^\s*%%(?:bash|sh|script|cmd|html|javascript|js|latex|markdown|svg|writefile|file|perl|ruby|R|cython|sql)\b"
)
_PRINT = re.compile(r"^(\s*)print(?=[ \t]+[^\s(=.\[])[^=]*$")
_PYTHON_FENCES = {"", "python", "py", "python3", "ipython", "ipython3", "pycon", "jupyter"}
_TOKEN = re.compile(r"\"\"\"|'''|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|#.*|[()\[\]{}]")
_GOES_ON = re.compile(r"\s*(?:(?:else|elif|except|finally)\b|[)\]}])")
_TARGET = r"[\w.]+(?:\[[^\]]*\])?"
_CODE = re.compile(
    rf"\s*(?:@\w|(?:def|class) \w+\s*[(:]|for \w.* in .*:|import \w|from [\w.]+ import|return\b"
    rf"|(?:if|elif|while|with|try|else)\b.*:|(?P<names>{_TARGET}(?:\s*,\s*{_TARGET})*)"
    r"\s*(?:[-+*/@%&|^]|//|\*\*|<<|>>)?=(?!=)(?P<right>.*))"
)
_PRINTED = re.compile(r"\s*(?:[-+]?[\d.][\w.+-]*\s+[^\s#*/+%<>=&|^-]|$)")  # numbers with their units
_MOST_SCANNED = 20_000  # lines, each as often as it is looked at
_LONGEST = 300  # lines of one statement
MAX_FILE = 8_000_000  # characters of a notebook's file, outputs included


@dataclass
class PythonLines:
    """A text as its lines: ``shown``, as it is shown; ``code``: the Python of each, empty if there is none;
    ``skipped``: the lines, from 1, that are neither code nor empty; ``broken``: (line, names, why) of
    statements that are not valid Python, though they look like it; ``statements``: how many are valid.
    """

    shown: list[str]
    code: list[str]
    skipped: list[int] = field(default_factory=list)
    broken: list[tuple[int, tuple[str, ...], str]] = field(default_factory=list)
    statements: int = 0


def python_lines(text: str) -> PythonLines:
    """Return what of a text is Python.

    Raises:
        QuantError: it is a notebook without Python, or most of it is not Python.
    """
    text = _of_file(text) if text.lstrip()[:1] == "{" else text
    lines = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).split("\n")
    whole = textwrap.dedent("\n".join(lines))
    # to Python, a prompt is an annotation
    if not any(_PROMPT.match(line) for line in lines) and _problem(whole) is None:
        return PythonLines(lines, whole.split("\n"))
    found = PythonLines(lines, _without_outputs(lines))
    code = textwrap.dedent("\n".join(found.code))
    if _problem(code) is None:
        found.code = code.split("\n")
    else:
        _recover(found)
    broken = {line for line, *_ in found.broken}
    found.skipped = [
        i
        for i, (line, left) in enumerate(zip(lines, found.code, strict=True), 1)
        if line.strip() and not left.strip() and not (_PROMPT.fullmatch(line) or i in broken)
    ]
    return found


def _of_file(text: str) -> str:
    """Return the code cells of a notebook's file, each under its number; other text as it is."""
    if '"cells"' not in text and '"worksheets"' not in text:
        return text
    if len(text) > MAX_FILE:
        raise QuantError(
            f"The notebook has {len(text):,} characters; the limit is {MAX_FILE:,}. Clear its "
            "outputs, or paste only the cells that quantize."
        )
    try:
        book = json.loads(text)
    except (ValueError, RecursionError):
        raise QuantError(
            "The notebook's JSON is incomplete; copy the whole file, or paste its cells as text."
        ) from None
    cells = book.get("cells") or [
        c for sheet in _listed(book.get("worksheets")) for c in _listed(sheet.get("cells"))
    ]
    language = _named(book, "metadata", "kernelspec", "language") or "python"
    found, number = list[str](), 0
    for cell in (c for c in _listed(cells) if c.get("cell_type") == "code"):
        source, number = cell.get("source", cell.get("input", "")), number + 1
        parts = source if isinstance(source, list) else [source]
        found += [f"# In [{number}]", *"".join(p for p in parts if isinstance(p, str)).split("\n"), ""]
    if not found or language != "python":
        what = "has no code cells" if not found else f"is written in {str(language)[:20]}"
        raise QuantError(f"The notebook {what}; open one with Python code.")
    return "\n".join(found)


def _listed(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _named(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _without_outputs(lines: list[str]) -> list[str]:
    """Return the lines without prompts; outputs, commands and what surrounds fenced code become empty."""
    doctest, cells = (any(re.match(p, line) for line in lines) for p in (r"\s*>>>", r"\s*In ?\[[\d *]*\]:"))
    fences = [
        i for i, line in enumerate(lines) if (m := _FENCE.match(line)) and m[1].lower() in _PYTHON_FENCES
    ]
    inside, skips, traced, found = not fences, False, False, list[str]()
    for line in lines:
        fence = _FENCE.match(line) if fences else None
        if fence:
            inside = not inside and fence[1].lower() in _PYTHON_FENCES
        if _CELL.match(line):
            skips = False
        prompt = _PROMPT.match(line) or ((doctest or cells) and _MORE.match(line))
        skips |= bool(_OUTPUT.match(line) or _OTHER_CELL.match(line))
        left = line[prompt.end() :] if prompt else "" if doctest else line
        skips |= bool(_OTHER_CELL.match(left))
        traced = (traced or _TRACEBACK in line) and not prompt
        if fence or not inside or skips or traced or _SHELL.match(left):
            left = ""
        traced = traced and (_TRACEBACK in line or not _RAISED.match(line))
        left = _ASSIGNED.sub(r"\1\2 = None  # ", left)
        found.append(_PRINT.sub(r"\1pass", left))
    return found


def _problem(code: str) -> tuple[int, str] | None:
    """Return the line and the message of what is not valid Python; None if all is."""
    try:
        syntax.module(code)
    except SyntaxError as error:
        return error.lineno or 1, (error.msg or "invalid syntax")[:80]
    except UnicodeEncodeError:
        raise
    except (RecursionError, MemoryError, ValueError, OverflowError):
        return 1, "nested too deeply"
    return None


def _recover(found: PythonLines) -> None:
    """Keep the statements that are valid Python, one after another; prose and outputs become empty."""
    given, i, room = found.code, 0, _MOST_SCANNED
    kept = [""] * len(given)
    while i < len(given):
        if not given[i].strip():
            i += 1
            continue
        end = _end(given, i)
        room -= end - i + 1
        if room < 0:
            raise QuantError("Most of this text is not Python; paste the code alone.")
        block = textwrap.dedent("\n".join(given[i:end])).split("\n")
        problem = _problem("\n".join(block))
        if problem and _problem(block[0]) is None:  # what is indented under it is an output
            block, end, problem = block[:1], i + 1, None
        elif problem:  # a bracket that is never closed takes in other statements
            end = _end(given, i, brackets=False)
        if problem is None:
            kept[i:end] = block
            found.statements += not block[0].startswith("#")
        elif (code := _CODE.match(given[i])) and not _PRINTED.match(code["right"] or "x"):
            names = re.findall(r"(?:^|,)\s*(\w+)\s*(?=,|$)", code["names"] or "")
            names += re.findall(r"^\s*(?:def|class) (\w+)", given[i])
            why = f"this is not valid Python ({problem[1]})"
            found.broken.append((i + problem[0], tuple(names), why))
        else:
            end = i + 1
        i = end
    found.code = kept


def _end(lines: list[str], start: int, *, brackets: bool = True) -> int:
    """Return the line after the statement that begins at ``start``: what is indented, or inside brackets."""
    indent, depth, quote, last = _indent(lines[start]), 0, "", start
    for i in range(start, min(len(lines), start + _LONGEST)):
        line = lines[i]
        if i > start and not depth and not quote and not lines[i - 1].rstrip().endswith("\\"):
            decorated = lines[last].lstrip().startswith("@")
            if line.strip() and not (_indent(line) > indent or _GOES_ON.match(line) or decorated):
                return last + 1
            if _CELL.match(line):
                return last + 1
        depth, quote = _opened(line, depth, quote) if brackets else (0, "")
        last = i if line.strip() else last
    return last + 1


def _opened(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Return how many brackets are open after a line, and the quotes that are."""
    at = 0
    while at < len(line):
        if quote:
            close = line.find(quote, at)
            if close < 0:
                return depth, quote
            at, quote = close + 3, ""
            continue
        token = _TOKEN.search(line, at)
        if token is None:
            break
        text, at = token[0], token.end()
        if text in ('"""', "'''"):
            quote = text
        elif text in "([{":
            depth += 1
        elif text in ")]}":
            depth = max(depth - 1, 0)
    return depth, quote


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
