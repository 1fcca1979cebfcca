"""Two replicas of the app behind nginx, set up as in deploy/ and the Dockerfile, but on loopback."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from places import ROOT

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
START = 120  # seconds; generous, so that a slow machine does not fail a test


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
SKIP = "there is no nginx: install it (Debian: apt-get install nginx)"


def command() -> list[str]:
    """The command that the container runs."""
    (found,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    return list(json.loads(found))


def unpack(folder: Path) -> None:
    """Copy the files that the image contains, and nothing else."""
    for source, target in re.findall(
        r"^COPY (\S+) (\S+)$", DOCKERFILE.rpartition("\nFROM ")[2], re.MULTILINE
    ):
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / target)
        else:
            shutil.copy(ROOT / source, folder / target)


class Replica:
    """The app in a process of its own, which can be killed and started again."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.port = name, free_port()
        self.app, self.log = folder / "app", folder / f"{name}.log"
        self.store = folder / "store"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it unless it is running."""
        if self.process and self.process.poll() is None:
            return
        options = command()
        options[options.index("--host") + 1] = "127.0.0.1"
        options[options.index("--port") + 1] = str(self.port)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *options],
                cwd=self.app,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "QUANTSCOPE_REPLICA": self.name,
                    "QUANTSCOPE_STORE": str(self.store),
                    "OMP_NUM_THREADS": "1",
                },
            )

    def wait(self) -> None:
        """Wait until it is ready."""
        answers(f"http://127.0.0.1:{self.port}/_stcore/health", self.process, self.log)

    def kill(self) -> None:
        """Kill it at once, as if its machine were gone."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def stop(self) -> float:
        """Stop it as a restart does; returns how many seconds that takes."""
        assert self.process
        begin = time.monotonic()
        self.process.terminate()
        self.process.wait()
        return time.monotonic() - begin


def answers(address: str, process: "subprocess.Popen[bytes] | None", log: Path) -> None:
    deadline = time.monotonic() + START
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
            if answer.status == 200:
                return
        assert process is not None
        assert process.poll() is None, log.read_text("utf-8")
        assert time.monotonic() < deadline, f"{address} does not answer: {log.read_text('utf-8')}"
        time.sleep(0.05)


@contextlib.contextmanager
def cluster(folder: Path) -> "Iterator[tuple[str, list[Replica]]]":
    """Run nginx and the replicas; yields the address of nginx and the replicas."""
    (folder / "app").mkdir()
    unpack(folder / "app")
    replicas = [Replica(name, folder) for name in ("app-1", "app-2")]
    port = free_port()
    config = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
    config = config.replace("/tmp/", f"{folder}/").replace("listen 8080", f"listen 127.0.0.1:{port}")
    for replica in replicas:
        config = config.replace(f"{replica.name}:8501", f"127.0.0.1:{replica.port}")
    (folder / "nginx.conf").write_text(config, "utf-8")
    assert NGINX
    log = folder / "nginx.log"
    processes = []
    try:
        for replica in replicas:
            replica.start()
        with log.open("ab") as output:
            nginx = subprocess.Popen(
                [NGINX, "-p", folder, "-c", folder / "nginx.conf", "-g", "daemon off;"],
                stdout=output,
                stderr=output,
            )
        processes.append(nginx)
        for replica in replicas:
            replica.wait()
        answers(f"http://127.0.0.1:{port}/_stcore/health", nginx, log)
        yield f"http://127.0.0.1:{port}", replicas
    finally:
        for process in [*processes, *(r.process for r in replicas if r.process)]:
            process.terminate()
        for process in [*processes, *(r.process for r in replicas if r.process)]:
            process.wait()
