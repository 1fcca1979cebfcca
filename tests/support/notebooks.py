"""Runs the code of a notebook without Jupyter, and says what its cells show."""

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8"))


def text_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def run(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the outputs of each code cell, as nbformat 4 has them; all cells share one namespace."""
    names: dict[str, Any] = {"__name__": "__main__"}
    codes = [text_of(cell) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [_shown(source, number, names) for number, source in enumerate(codes, 1)]


def _shown(source: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; what it prints and the value of a last expression are its outputs."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"<cell {number}>", "exec"), names)
        if last is not None:
            value = eval(compile(last, f"<cell {number}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        shown = {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        outputs.append(shown)
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
