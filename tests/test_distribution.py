"""What pip installs: the wheel as it is built from this checkout, without the checkout beside it."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from contextlib import suppress
from pathlib import Path
from time import sleep

import pytest
from served import free_port

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED_AS = {"pillow": "PIL", "dask": "distributed", "prometheus-client": "prometheus_client"}
# of what Streamlit brings
BY_STREAMLIT = {"anyio", "google", "httptools", "python_multipart", "starlette", "uvicorn", "websockets"}


def names(requirements):
    """How the packages of some requirements are imported."""
    found = {re.split(r"[\[<>=; ]", requirement)[0] for requirement in requirements}
    return {IMPORTED_AS.get(name, name) for name in found}


def imports(folder):
    """The packages that the modules of a folder import, but for Python's own and ours."""
    found = set()
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add((node.module or "").partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"quantcore", "pages"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("quantscope-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel):
    """A folder of packages with nothing of the checkout, in an environment that has what they require."""
    site = wheel.parent / "site"
    install = ["pip", "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, "-m", *install], check=True, capture_output=True)
    return site


def run(site, *command):
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False)


def test_only_what_is_declared_is_imported():
    extras = PROJECT["optional-dependencies"]
    library = names(PROJECT["dependencies"])
    optional = names(need for name, needs in extras.items() if name != "app" for need in needs)
    app = names(extras["app"])
    assert imports(ROOT / "quantcore") - library - optional == set()
    assert (imports(ROOT / "pages") | imports(ROOT / "app.py")) - library - optional - app <= BY_STREAMLIT
    pinned = (ROOT / "requirements.txt").read_text(encoding="utf-8").replace('"', "'").split("\n")
    assert set(extras["app"]) <= set(pinned)
    assert PROJECT["requires-python"] == ">=3.11"


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


def test_the_library_and_its_command_work_where_they_are_installed(installed):
    text = "import quantcore as qc; print(qc.__file__, qc.apply([[0.5, -1.0]], 'int4').codes.tolist())"
    done = run(installed, sys.executable, "-c", text)
    assert done.stdout.split() == [str(installed / "quantcore" / "__init__.py"), "[[3,", "-7]]"], done.stderr
    example = installed / "quantcore" / "checkpoints" / "examples" / "data" / "minilm-q4_k_m.gguf"
    command = installed / "bin" / "quantscope"
    listed = run(installed, command, "list", str(example))
    assert (listed.returncode, "gguf" in listed.stdout) == (0, True), listed.stderr


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
