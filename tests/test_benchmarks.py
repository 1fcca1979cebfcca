"""The benchmarks that docs/performance.md names run in their smallest size, and budget.py's table is kept."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import chromium
import pytest
from places import ROOT

FOLDER = ROOT / "benchmarks"
# scripts without a measurement of their own
NONE = {"floor_page", "processes", "smallest", "visitor"}
SCRIPTS = sorted({path.stem for path in FOLDER.glob("*.py")} - NONE)


def run(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark as its documentation says; no setting of the tests reaches its servers."""
    known = {key: value for key, value in os.environ.items() if not key.startswith("QUANTSCOPE_")}
    return subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *options],
        cwd=ROOT,
        env=known | {"QUANTSCOPE_WARM_UP": "first"},
        capture_output=True,
        text=True,
        timeout=1200,
    )


def test_one_runs_here_in_its_smallest_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(FOLDER / "errors.py")
    monkeypatch.setattr(sys, "argv", [script, "--smallest"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "benchmarks.smallest", raising=False)  # it looks at the options once
    monkeypatch.setenv("SMALLEST_BENCHMARK", "")
    monkeypatch.delenv("SMALLEST_BENCHMARK")  # as it was before, however the script sets it
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    assert ended.value.code in (0, 1)
    rows = capsys.readouterr().out
    assert rows.count("\n| int") == 12
    assert "nan" not in rows


def test_the_browser_is_found_wherever_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        SystemExit, match=r"^There is no Chromium: install chromium-headless-shell, or set CHROM"
    ):
        chromium.find()
    for name in ("chromium", "chromium-headless-shell", "other"):  # the second is taken first
        (tmp_path / name).touch(0o755)
        expected = "chromium" if name == "chromium" else "chromium-headless-shell"
        assert chromium.find() == str(tmp_path / expected)
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "other"))
    assert chromium.find() == str(tmp_path / "other")
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "missing"))
    with pytest.raises(SystemExit, match=r"no Chromium at .*missing"):
        chromium.find()


def test_a_server_is_awaited_to_be_warm_only_if_it_opens_every_page() -> None:
    """serve() opens the first page alone by default, so that the others would be awaited forever."""
    sources = {name: (FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in SCRIPTS}
    awaiting = [name for name, source in sources.items() if ".await_warm()" in source]
    assert awaiting
    assert [name for name in awaiting if 'QUANTSCOPE_WARM_UP="all"' not in sources[name]] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_they_run_in_their_smallest_size(name: str) -> None:
    found = run(name, "--smallest")
    # 1: over a budget, which says nothing in this size
    assert found.returncode in (0, 1), found.stderr[-2000:]
    assert "Traceback" not in found.stderr, found.stderr[-2000:]
    assert "|" in found.stdout, found.stderr[-2000:]  # its table


@pytest.mark.slow
def test_nothing_is_worse_than_the_table_allows() -> None:
    found = run("budget")
    assert found.returncode == 0, found.stdout + found.stderr[-2000:]


def test_a_row_that_is_worse_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import budget

    table = json.loads((FOLDER / "budget.json").read_text(encoding="utf-8"))
    assert {name.partition(":")[0] for name in table} >= {"copies", "MB", "kB"}
    kept = {name: row["value"] for name, row in table.items()}
    assert budget.compare(kept, table) == []
    for name, row in table.items():
        assert budget.compare({name: row["value"] + row["worse"] + 0.01}, table) == [name]
    assert budget.compare({"a new row": 0.0}, table) == ["a new row"]
    # no table allows more than the promise
    name = "MB: twelve large tensors"
    assert budget.compare({name: 901.0}, {name: {"value": 5000.0, "worse": 0.0}}) == [name]
    assert "worse" in capsys.readouterr().out
