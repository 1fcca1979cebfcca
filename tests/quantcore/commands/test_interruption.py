"""Ctrl+C at any moment ends a command in one line with exit code 130, and nothing but a command."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has other signals")
ROOT = Path(__file__).parents[3]
# sends SIGINT to the process, or writes, when it imports a module or calls a function of the audit hook's events; the
# signal is heard even where the tests were started in the background of a shell script, whose processes ignore it,
# unless INHERITED
HOOK = """
import os, signal, sys
if "INHERITED" not in os.environ:
    signal.signal(signal.SIGINT, signal.default_int_handler)
def hook(event, arguments):
    if event == os.environ["EVENT"] and str(arguments[0]) == os.environ["ARGUMENT"]:
        os.kill(os.getpid(), signal.SIGINT) if "WRITTEN" not in os.environ else os.write(1, b"something")
sys.addaudithook(hook)
"""


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}


def interrupted(environment, event, argument, *command):
    environment = {**environment, "EVENT": event, "ARGUMENT": str(argument)}
    return subprocess.run([sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True)


COMMAND = ["-m", "quantcore", "list", "nothing"]


# those that import torch first take seconds
@pytest.mark.parametrize(
    "module",
    ["torch", *(pytest.param(m, marks=pytest.mark.slow) for m in ("numpy", "quantcore.scheme", "quantcore.commands"))],
)
def test_while_it_imports(environment, module):
    done = interrupted(environment, "import", module, *COMMAND)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_a_reader_that_has_seen_enough_ends_it_without_a_traceback(environment):
    """By the signal that a write to nobody causes, which Python itself ignores."""
    environment = {**environment, "EVENT": "import", "ARGUMENT": "torch", "WRITTEN": "1"}
    program = subprocess.Popen(
        [sys.executable, *COMMAND], env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    program.stdout.close()
    assert program.stderr.read() == b""
    assert program.wait() == -signal.SIGPIPE


def test_another_module_that_is_run_keeps_its_signals(environment, tmp_path):
    """Such as a server that `python -m` starts, whose package imports the library."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "__init__.py").write_text("import quantcore")
    done = interrupted(environment, "import", "torch", "-m", "other")
    assert "KeyboardInterrupt" in done.stderr
    assert "Interrupted." not in done.stderr


@pytest.mark.slow  # by default, commands of `python -m quantcore` are interrupted
def test_the_installed_command(environment, tmp_path):
    script = tmp_path / "quantscope"  # as pip writes it
    script.write_text("import sys\nfrom pages.serving.command import main\nsys.exit(main())\n")
    done = interrupted(environment, "import", "numpy", str(script), "list", "nothing")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


@pytest.mark.slow
def test_while_it_reads_a_file(environment, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((4, 8), np.float32))
    done = interrupted(environment, "open", path, "-m", "quantcore", "apply", str(path), "--scheme", "int4")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


@pytest.mark.slow
def test_on_a_terminal_the_line_covers_the_progress(environment):
    ours, theirs = pty.openpty()
    environment = {**environment, "EVENT": "import", "ARGUMENT": "quantcore.commands"}
    code = subprocess.call([sys.executable, *COMMAND], env=environment, cwd=ROOT, stderr=theirs)
    os.close(theirs)
    assert (code, os.read(ours, 1000).rstrip()) == (130, b"\rInterrupted.")
    os.close(ours)


@pytest.mark.slow
def test_where_it_is_ignored_it_stays_so(environment):
    environment = {**environment, "EVENT": "import", "ARGUMENT": "quantcore.scheme", "INHERITED": ""}
    ignored = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", ignored, sys.executable, *COMMAND]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "nothing" in done.stderr


@pytest.mark.slow
def test_the_library_leaves_signals_alone():
    """In a notebook or a program of one's own, importing it changes nothing."""
    text = (
        "import signal, quantcore.commands\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN\n"
    )
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True)
