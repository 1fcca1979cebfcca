"""What pip installs: the wheel as it is built from this checkout, without the checkout beside it."""

import os
import subprocess
import sys
import urllib.request
import zipfile
from contextlib import suppress
from pathlib import Path
from time import sleep

import pytest
from served import free_port

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


def test_the_library_and_its_command_work_where_they_are_installed(unpacked):
    example = unpacked / "quantcore" / "checkpoints" / "examples" / "data" / "minilm-q4_k_m.gguf"
    text = (
        "import sys, quantcore as qc; from importlib.metadata import distributions; "
        "print(qc.__file__, qc.apply([[0.5, -1.0]], 'int4').codes.tolist()); "
        f"sys.argv = ['quantscope', 'list', {str(example)!r}]; "
        f"(found,) = distributions(name='quantscope', path=[{str(unpacked)!r}]); "
        "(command,) = found.entry_points.select(group='console_scripts', name='quantscope'); "
        "sys.exit(command.load()())"
    )
    done = run(unpacked, sys.executable, "-c", text)
    first, _, listed = done.stdout.partition("\n")
    assert first.split() == [str(unpacked / "quantcore" / "__init__.py"), "[[3,", "-7]]"], done.stderr
    assert (done.returncode, "gguf" in listed) == (0, True), done.stderr


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
