"""The benchmarks that docs/performance.md names can be started: their imports exist."""

import importlib
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted(path.stem for path in Path(__file__).parents[1].joinpath("benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "floor_page"])
def test_they_can_be_imported(name, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))  # each benchmark adds the root to it
    importlib.import_module(f"benchmarks.{name}")
