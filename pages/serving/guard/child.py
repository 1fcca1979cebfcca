"""A guest's process: it takes one request, works within its limits, and answers."""

import contextlib
import math
import signal
import sys
import traceback
from typing import BinaryIO

from pages.serving.guard.channel import Channel, Packet, described
from pages.serving.guard.guests import GUESTS
from pages.serving.guard.host import GuestHost
from quantcore.checkpoints import NotFound
from quantcore.errors import QuantError

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_FRAMES = 8  # calls that are reported of a failure
_NO_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc")  # as torch says it


def run(reader: BinaryIO, writer: BinaryIO) -> None:
    """Take a request from a stream, and answer it on another."""
    channel = Channel(reader, writer)
    request = channel.receive()
    if request is None:
        return
    guest, value, seconds, memory = request.value
    _limit(seconds, memory)
    try:
        found, arrays = GUESTS[guest](GuestHost(channel), value, *request.blobs)
        answer = Packet("answer", [found, [described(x) for x in arrays]], [x.data for x in arrays])
    except BaseException as error:
        answer = _of_error(error)
    _unlimit_memory()
    channel.send(answer)


def _of_error(error: BaseException) -> Packet:
    """Return the message that says why there is no answer."""
    if isinstance(error, QuantError):
        return Packet("refused", [str(error), isinstance(error, NotFound)])
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return Packet("memory")
    # classes and calls, never the message, which may quote what the visitor gave
    frames = reversed(traceback.extract_tb(error.__traceback__)[-_FRAMES:])
    calls = " < ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    return Packet("failed", f"{type(error).__name__} at {calls}")


def _limit(seconds: float, memory: int) -> None:
    """End this process after so much processor time, and let no allocation exceed so many bytes more."""
    if resource is None:
        return
    signal.setitimer(
        signal.ITIMER_PROF, seconds
    )  # its signal ends a process, also within one operation of torch
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
