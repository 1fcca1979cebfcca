"""The examples in docstrings print what they say."""

import doctest
import importlib

import pytest
from grid import for_each
from parts import some
from places import ROOT

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "quantcore").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@for_each("name", some(MODULES))
def test_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = doctest.testmod(importlib.import_module(name))  # those that need a file of the reader's own are skipped
    printed = capsys.readouterr().out
    assert not found.failed, printed
