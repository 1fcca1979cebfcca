"""A fork server for the guests of a process of tests, forked from it: a new one would import for seconds."""

import os
import signal
import socket
from typing import Any


class Forked:
    """What `subprocess.Popen` is for a new process, for one that was forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def kill(self) -> None:
        """End it, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait until it has ended."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


def start() -> None:
    """Fork the server; if it dies, the next is a new process, as outside tests."""
    from pages.serving.guard import fork_server, guard

    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            kept = theirs.fileno()
            os.closerange(3, kept)  # the channels of the runner of tests, which would seem to be alive
            os.closerange(kept + 1, 1 << 16)
            fork_server.main(theirs)
        finally:
            os._exit(0)
    theirs.close()
    server: Any = Forked(pid), ours
    guard._NURSERY._server = server
