"""Where guests' processes come from: a fork server, or new interpreters where a system can't fork."""

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from pages.serving.guard.channel import NUMBER, streams

PATIENCE = 30.0  # seconds until a child that has ended is buried, on a machine with other work
ROOT = Path(__file__).resolve().parents[3]
FORKS = hasattr(os, "fork") and hasattr(socket, "send_fds")
# a guest has no use for the server's secrets
_INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TEMP", "SYSTEMROOT", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
    "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
)  # fmt: skip
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Child(Protocol):
    """A guest's process and the streams to it."""

    reader: BinaryIO
    writer: BinaryIO

    def died_of(self) -> int:
        """Return the signal that has ended it, 0 if none has; for a child whose channel has ended."""

    def end(self) -> None:
        """Kill it if it still runs, and close the streams."""


class Nursery:
    """Makes children; starts the fork server when it is first needed, and again if it has died.

    ``forks``: whether it does; otherwise each child is a new interpreter.
    """

    def __init__(self, forks: bool = FORKS) -> None:
        self.forks = forks
        self._lock = threading.Lock()
        self._server: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def start(self) -> None:
        """Start the fork server, if it does not run yet; it prepares itself while others go on."""
        if self.forks:
            with self._lock:
                self._control()

    @property
    def pid(self) -> int:
        """The fork server's process id; 0 if none runs."""
        return self._server[0].pid if self._server is not None else 0

    def child(self) -> Child:
        """Return a new child, once the fork server is prepared."""
        if not self.forks:
            return _Interpreter()
        ours, theirs = socket.socketpair()
        status, wanted = os.pipe()
        with theirs:
            try:
                self._tell(0, [theirs.fileno(), wanted])
            finally:
                os.close(wanted)
        return _Fork(self, ours, status)

    def kill(self, pid: int) -> None:
        """Kill a child, unless it has ended."""
        with contextlib.suppress(OSError):  # the fork server has died, and its children with it
            self._tell(pid, [])

    def _tell(self, number: int, descriptors: list[int]) -> None:
        message = NUMBER.pack(number)
        with self._lock:
            try:
                socket.send_fds(self._control(), [message], descriptors)
            except OSError:  # it has died since it was last seen
                self._forget()
                socket.send_fds(self._control(), [message], descriptors)

    def _control(self) -> socket.socket:
        if self._server is not None and self._server[0].poll() is not None:
            self._forget()
        if self._server is None:
            ours, theirs = socket.socketpair()
            with theirs:
                command = [sys.executable, "-m", "pages.serving.guard.fork_server", str(theirs.fileno())]
                process = subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    cwd=ROOT,
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                )
            self._server = process, ours
        return self._server[1]

    def _forget(self) -> None:
        if self._server is not None:
            process, control = self._server
            control.close()
            process.kill()
            process.wait()
            self._server = None


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return kept | _ONE_THREAD | {"PYTHONPATH": str(ROOT)}


@dataclass(init=False)
class _Fork:
    """A child of the fork server."""

    reader: BinaryIO
    writer: BinaryIO

    def __init__(self, nursery: Nursery, connection: socket.socket, status: int) -> None:
        self._nursery, self._connection, self._status = nursery, connection, status
        self.reader, self.writer = streams(connection)
        self._pid = 0

    def died_of(self) -> int:
        self._pid = self._pid or self._next(PATIENCE) or 0
        status = self._next(PATIENCE)
        return 0 if status is None or not os.WIFSIGNALED(status) else os.WTERMSIG(status)

    def end(self) -> None:
        # 0 if it has not begun: it will find its channel closed
        pid = self._pid or self._next(0)
        if pid:
            self._nursery.kill(pid)
        with contextlib.suppress(OSError):  # what was still to be written
            self.writer.close()
        self.reader.close()
        self._connection.close()
        os.close(self._status)

    def _next(self, seconds: float) -> int | None:
        """Return the next number of the fork server, a process id or a status; None if none comes."""
        ready = select.poll()  # not `select.select`, which fails from the 1,024th descriptor on
        ready.register(self._status, select.POLLIN)
        if not ready.poll(1000 * seconds):
            return None
        data = os.read(self._status, NUMBER.size)
        return NUMBER.unpack(data)[0] if len(data) == NUMBER.size else None


@dataclass(init=False)
class _Interpreter:
    """A new Python process, for systems without fork: starts in seconds; the server's clock limits it."""

    reader: BinaryIO
    writer: BinaryIO

    def __init__(self) -> None:
        command = [sys.executable, "-m", "pages.serving.guard.child"]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=1 << 16,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.reader, self.writer = self._process.stdout, self._process.stdin  # type: ignore[assignment]

    def died_of(self) -> int:
        return max(0, -self._process.wait())

    def end(self) -> None:
        self._process.kill()
        with contextlib.suppress(OSError):
            self.writer.close()
        self.reader.close()
        self._process.wait()
