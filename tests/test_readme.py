"""Code of the README and of docs/ runs and prints what they show; the README's commands are the check's."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from grid import for_each

import quantcore as qc

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")


# by default, the README's; the calls of the others have tests of their own
@for_each(
    "name",
    [
        "README.md",
        *(pytest.param(f"docs/{name}.md", marks=pytest.mark.slow) for name in ("checkpoints", "plans")),
    ],
)
def test_examples_run(name, monkeypatch):
    monkeypatch.setattr("plotly.graph_objects.Figure.show", lambda figure: None)
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.DOTALL))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    promised = re.findall(r"^# (.+)$", code, re.MULTILINE)
    assert promised
    assert [line for line in promised if line not in printed.getvalue().splitlines()] == []


def test_the_check_runs_the_readmes_tests():
    first = "\n".join(README.splitlines()[:20])
    (command,) = re.findall(r"python -m pytest.*", first)
    assert command in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert "streamlit run app.py" in first


def test_names_in_the_tables_are_those_of_quantcore():
    named = {
        name
        for row in re.findall(r"^\| (`.+) \|", README, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    }
    assert set(qc.INTEGER_CONVENTIONS) - {"textbook"} <= named
