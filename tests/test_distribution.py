"""What pip installs: the wheel as it is built from this checkout, without the checkout beside it."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from time import sleep

import pytest
from served import free_port

from tests.test_architecture import LATER

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("quantscope-*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(wheel):
    """What the wheel holds, as pip lays it out, but for the commands: pip itself takes seconds."""
    site = wheel.parent / "unpacked"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    for source in (ROOT / "quantcore").rglob("*.py"):
        copy = site / source.relative_to(ROOT)
        compiled, place = (Path(cache_from_source(str(path))) for path in (source, copy))
        if compiled.exists():  # of the same text: compiling takes seconds
            shutil.copystat(source, copy)
            place.parent.mkdir(exist_ok=True)
            shutil.copy(compiled, place)
    return site


@pytest.fixture(scope="module")
def installed(wheel):
    """A folder of packages with nothing of the checkout, in an environment that has what they require."""
    site = wheel.parent / "site"
    install = ["pip", "install", "--no-deps", "--no-index", "--no-compile", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, "-m", *install], check=True, capture_output=True)
    return site


def run(site, *command):
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_has_every_file_that_is_read(wheel):
    with zipfile.ZipFile(wheel) as packed:
        inside = set(packed.namelist())
    for folder, place in (("quantcore", "quantcore"), ("pages", "quantscope/pages")):
        listed = ["git", "ls-files", folder]
        tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        files = {place + name.removeprefix(folder) for name in tracked.split("\n") if name}
        assert files
        assert files - inside == set()
    assert {"quantscope/app.py", "quantscope/.streamlit/config.toml"} <= inside
    assert not any("__pycache__" in name or name.startswith("tests") for name in inside)


SCRIPT = """
import gc, json, sys
import torch
full = []
gc.callbacks.append(lambda phase, run: full.append(phase) if run["generation"] == 2 else None)
import quantcore as qc
gc.callbacks.clear()
result = qc.apply(torch.tensor([[0.5, -1.0]]), "int4 per_channel(0) torchao")
qc.report(result), qc.trace(result, (0, 0)).steps(), result.dequantized
first = sorted(sys.modules)
known = dir(qc)
missing = [name for name in qc.__all__ if getattr(qc, name, None) is None or name not in known]
codes = qc.apply([[0.5, -1.0]], "int4").codes.tolist()
print(json.dumps([qc.__file__, codes, first, missing, sorted(sys.modules), len(full), gc.isenabled()]))
from importlib.metadata import distributions
(found,) = distributions(name="quantscope", path=[sys.argv[1]])
(command,) = found.entry_points.select(group="console_scripts", name="quantscope")
sys.argv = ["quantscope", "list", sys.argv[2]]
sys.exit(command.load()())
"""


@pytest.fixture(scope="module")
def done(unpacked):
    """One fresh process for all that is asked of one: torch alone takes it seconds."""
    example = unpacked / "quantcore" / "checkpoints" / "examples" / "data" / "minilm-q4_k_m.gguf"
    return run(unpacked, sys.executable, "-c", SCRIPT, str(unpacked), str(example))


@pytest.mark.slow  # by default, the files of the wheel are looked at
def test_the_library_and_its_command_work_where_they_are_installed(done, unpacked):
    first, _, listed = done.stdout.partition("\n")
    place = str(unpacked / "quantcore" / "__init__.py")
    assert json.loads(first or "[]")[:2] == [place, [[3, -7]]], done.stderr
    assert (done.returncode, "gguf" in listed) == (0, True), done.stderr


@pytest.mark.slow  # by default, test_architecture reads what is imported at once
def test_what_apply_does_not_need_is_imported_when_it_is_asked_for(done):
    first, missing, last, full, collects = json.loads(done.stdout.partition("\n")[0])[2:]
    assert set(first) & LATER == set()
    assert missing == []
    assert {f"quantcore.{name}" for name in ("matching", "pasted", "comparison", "diagnosis")} <= set(last)
    assert "PIL" not in last  # until an image is read
    assert full == 0  # a collection of torch's objects would take a tenth as long as importing them
    assert collects


@pytest.mark.slow  # starts a server
def test_the_command_serves_the_app(installed):
    port = free_port()
    picture = f"http://127.0.0.1:{port}/preview.png"
    command = [installed / "bin" / "quantscope", "serve", f"--server.port={port}", "--server.headless=true"]
    environment = {**os.environ, "PYTHONPATH": str(installed), "QUANTSCOPE_WARM_UP": "first"}
    with subprocess.Popen(command, cwd=installed, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            answer = b""
            while not answer:
                assert process.poll() is None, "the server ended"
                with suppress(OSError), urllib.request.urlopen(picture) as found:
                    answer = found.read()
                sleep(0.1)
            assert answer.startswith(b"\x89PNG")
        finally:
            process.terminate()
