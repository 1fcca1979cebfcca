"""A guest's process: it takes one request, works within its limits, and answers."""

import contextlib
import itertools
import math
import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any, BinaryIO

from pages.serving.guard.channel import Bytes, Channel, Message, described
from quantcore.checkpoints import NotFound
from quantcore.errors import QuantError

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_FRAMES = 8  # calls that are reported of a failure
_NO_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc")  # as torch says it


class Host:
    """The server, as a guest sees it: it is asked for files, a range of bytes at a time."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._numbers = channel, itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Message | None]] = {}
        self._reader: threading.Thread | None = None
        self._starting = threading.Lock()

    def call(self, what: str, *arguments: Any) -> tuple[Any, Bytes]:
        """Ask the server; return its JSON value and bytes. Several threads may ask at once.

        Raises:
            QuantError: the server's own refusal, such as of a file that is not there.
        """
        with self._starting:
            if self._reader is None:
                self._reader = threading.Thread(target=self._receive, daemon=True)
                self._reader.start()
        number, box = next(self._numbers), queue.SimpleQueue[Message | None]()
        self._waiting[number] = box
        self._channel.send(Message("call", [what, *arguments], number=number))
        reply = box.get()
        del self._waiting[number]
        if reply is None:
            raise SystemExit
        if reply.kind == "refused":
            sentence, not_found = reply.value
            raise (NotFound if not_found else QuantError)(sentence)
        return reply.value, reply.blobs[0] if reply.blobs else b""

    def _receive(self) -> None:
        while (reply := self._channel.receive()) is not None:
            self._waiting[reply.number].put(reply)
        os._exit(0)  # the server no longer listens


def run(reader: BinaryIO, writer: BinaryIO) -> None:
    """Take a request from a stream, and answer it on another."""
    from pages.serving.guard.guests import GUESTS

    channel = Channel(reader, writer)
    request = channel.receive()
    if request is None:
        return
    guest, value, seconds, memory = request.value
    _limit(seconds, memory)
    try:
        found, arrays = GUESTS[guest](Host(channel), value, *request.blobs)
        answer = Message("answer", [found, [described(x) for x in arrays]], [x.data for x in arrays])
    except BaseException as error:
        answer = _of_error(error)
    _unlimit_memory()
    channel.send(answer)


def _of_error(error: BaseException) -> Message:
    """Return the message that says why there is no answer."""
    if isinstance(error, QuantError):
        return Message("refused", [str(error), isinstance(error, NotFound)])
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return Message("memory")
    # classes and calls, never the message, which may quote what the visitor gave
    frames = reversed(traceback.extract_tb(error.__traceback__)[-_FRAMES:])
    calls = " < ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    return Message("failed", f"{type(error).__name__} at {calls}")


def _limit(seconds: float, memory: int) -> None:
    """End this process after so much processor time, and let no allocation exceed so many bytes more."""
    if resource is None:
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends a process, also within one operation of torch
    whole = math.ceil(seconds)
    with contextlib.suppress(OSError, ValueError):  # a system without one of them
        resource.setrlimit(resource.RLIMIT_CPU, (whole + 1, whole + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm", encoding="ascii") as sizes:
            now = int(sizes.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, resource.RLIM_INFINITY))


def _unlimit_memory() -> None:
    """Let the answer be sent."""
    if resource is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


if __name__ == "__main__":  # where a system can't fork
    sent, sys.stdout = sys.stdout.buffer, sys.stderr
    run(sys.stdin.buffer, sent)
