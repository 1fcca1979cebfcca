"""A real server for tests: `streamlit run` in a process of its own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from places import ROOT


@dataclass
class Server:
    """A running server: ``host`` is "address:port", ``log`` its log file."""

    host: str
    process: subprocess.Popen[bytes]
    log: Path
    inside: Path

    @property
    def address(self) -> str:
        return f"http://{self.host}"

    def look_inside(self) -> dict[str, Any]:
        """The report of the process; see inspected_server.py."""
        self.inside.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        while not self.inside.exists():
            assert self.process.poll() is None, "the server ended"
            time.sleep(0.02)  # it answers the signal by writing the file
        found: dict[str, Any] = json.loads(self.inside.read_text(encoding="utf-8"))
        return found

    def imported(self) -> set[str]:
        """Its modules, but for codecs: which are imported depends on what is said, and on how busy it is."""
        return {name for name in self.look_inside()["modules"] if not name.startswith("encodings.")}

    def await_warm(self) -> None:
        """Wait until every page has been opened behind the first."""
        while not any("Opened every page once" in line for line in self.lines()):
            assert self.process.poll() is None, "the server ended"
            time.sleep(0.05)  # it writes a line to its log

    def lines(self) -> list[str]:
        """The log lines that are records: those that begin with a date."""
        return [line for line in self.log.read_text(encoding="utf-8").splitlines() if line[:2] == "20"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serve(folder: Path, script: Path = ROOT / "app.py", *options: str, **settings: str) -> Iterator[Server]:
    """Run a script in ``folder`` with these settings as environment variables; yields it once it is healthy.

    Only the first page is warm, unless the settings say otherwise.
    """
    host, log = f"127.0.0.1:{free_port()}", folder / "log"
    command = [
        sys.executable,
        str(ROOT / "tests" / "support" / "inspected_server.py"),
        str(folder / "inside"),
        str(script),
    ]
    command += [f"--server.port={host.rpartition(':')[2]}", "--server.headless=true"]
    # on an IPv4 address uvicorn trusts the client address that a local proxy forwards; on "::" it does not
    command += ["--server.address=127.0.0.1", *options]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "QUANTSCOPE_WARM_UP": "first",
    }
    environment |= settings
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, env=environment)
    server = Server(host, process, log, folder / "inside")
    try:
        deadline = time.monotonic() + 300
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{server.address}/_stcore/health", timeout=120).close()
                break
            assert process.poll() is None, f"the server ended: {log.read_text()}"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait()
