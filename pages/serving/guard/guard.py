"""The server's side of the guard: it asks a guest, serves what the guest reads, and ends it."""

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pages.serving.guard.channel import BrokenChannelError, Bytes, Channel, Packet, restored
from pages.serving.guard.nursery import Child, Nursery
from quantcore.errors import QuantError
from quantcore.wording import megabytes

POLL = 0.05  # seconds between two looks whether the visitor is still there
# seconds in which a child that is limited by its processor time may say nothing: the machine is busy
SILENCE = 60.0
IMPORTS = 10.0  # seconds that a new interpreter may take before it begins
AT_ONCE = max(2, os.cpu_count() or 1)  # guests
_READERS = 8  # requests to another machine at the same time
_BY_TIME = {getattr(signal, name) for name in ("SIGPROF", "SIGXCPU") if hasattr(signal, name)}

_NURSERY, _SLOTS = Nursery(), threading.BoundedSemaphore(AT_ONCE)
Function = Callable[..., tuple[Any, Sequence[Bytes]]]


@dataclass(frozen=True)
class GuestWork:
    """What a guest is to do, in words, and what it may take.

    ``subject``, ``remedy``: what begins and ends the sentence if it exceeds a limit: "Reading x.pt", "save it
    again".
    ``seconds``: of processor time; ``memory``: bytes beyond a new process; ``answer``: of its arrays.
    """

    subject: str
    remedy: str
    seconds: float
    memory: int
    answer: int = 0

    def error(self, what: str) -> QuantError:
        """Return the error that says what has ended it."""
        return QuantError(f"{self.subject} {what}; {self.remedy}.")


@dataclass(frozen=True)
class Served:
    """What a guest may call, by name: functions that return a value and bytes, or raise QuantError.

    ``waiting``: those that wait for other machines; they run on threads of their own.
    """

    functions: Mapping[str, Function] = field(default_factory=dict)
    waiting: Mapping[str, Function] = field(default_factory=dict)


@dataclass(frozen=True)
class GuestAnswer:
    """What a guest returns: a plain value and arrays, of which nothing is known to be true."""

    value: Any
    arrays: Sequence[npt.NDArray[np.generic]] = ()


def start() -> None:
    """Prepare for guests, in a process beside this one, so that the first of them does not wait."""
    _NURSERY.start()


def fork_server_pid() -> int:
    """Return the process id of the fork server, 0 if none runs."""
    return _NURSERY.pid


def ask(
    guest: str,
    value: Any,
    blobs: Sequence[Bytes] = (),
    *,
    work: GuestWork,
    served: Served | None = None,
    check: Callable[[], None] = lambda: None,
) -> GuestAnswer:
    """Ask a guest in a process of its own, and end that process, whatever happens.

    Args:
        guest: a name in `guests.GUESTS`; ``value`` and ``blobs`` are what it is given.
        check: called all the while; what it raises ends the guest and is passed on.

    Raises:
        QuantError: the guest refuses, or exceeds a limit.
    """
    slot = _Slot(check)
    slot.hold(True)
    try:
        child = _NURSERY.child()
        try:
            return _Conversation(child, slot, work, served or Served(), check).hold(guest, value, blobs)
        finally:
            child.end()
    finally:
        slot.hold(False)


class _Slot:
    """One of the places for guests that compute; given back while its guest waits for the server.

    The server may then wait for memory, which a run may have that itself waits for a slot.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check, self._is_held = check, False

    def hold(self, wanted: bool) -> None:
        """Take the slot or give it back, if that is not so already."""
        while wanted and not self._is_held:
            self._is_held = _SLOTS.acquire(timeout=POLL)
            if not self._is_held:
                self._check()
        if self._is_held and not wanted:
            self._is_held = False
            _SLOTS.release()


@dataclass
class _Conversation:
    """One request to one child."""

    child: Child
    slot: _Slot
    work: GuestWork
    served: Served
    check: Callable[[], None]

    def hold(self, guest: str, value: Any, blobs: Sequence[Bytes]) -> GuestAnswer:
        """Send the request, follow the guest's calls, and return its answer."""
        channel = Channel(self.child.reader, self.child.writer, max(self.work.answer, 1 << 20))
        heard = queue.SimpleQueue[Packet | None]()
        threading.Thread(target=_listen, args=(channel, heard), daemon=True).start()
        with suppress(OSError):  # it has ended before it has read all: why is seen below
            channel.send(Packet("ask", [guest, value, self.work.seconds, self.work.memory], blobs))
        with _Readers(channel) as readers:
            return self._follow(channel, heard, readers)

    def _follow(
        self, channel: Channel, heard: "queue.SimpleQueue[Packet | None]", readers: "_Readers"
    ) -> GuestAnswer:
        # a new interpreter has no other limit
        silence = SILENCE if _NURSERY.forks else 4 * self.work.seconds + IMPORTS
        last = time.monotonic()
        while True:
            self.check()
            with self._doubting():
                is_waiting = readers.waiting
            self.slot.hold(not is_waiting)
            try:
                message = heard.get(timeout=POLL)
            except queue.Empty:
                if is_waiting:
                    last = time.monotonic()
                if time.monotonic() - last > silence:
                    raise self._over(f"{silence:g} s") from None
                continue
            if message is None:
                raise self._ended(self.child.died_of())
            with self._doubting():
                if message.kind != "call":
                    return self._answer(message)
                self._serve(channel, message, readers)
            last = time.monotonic()

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """End the guest if it sends what our guests do not."""
        try:
            yield
        except QuantError:  # also a ValueError
            raise
        except (BrokenChannelError, ValueError, TypeError, LookupError):
            raise self._ended(0) from None

    def _serve(self, channel: Channel, message: Packet, readers: "_Readers") -> None:
        name, *arguments = message.value
        if name in self.served.waiting:
            readers.submit(self.served.waiting[name], arguments, message.number)
        else:
            self.slot.hold(False)
            _reply(channel, self.served.functions[name], arguments, message.number)

    def _answer(self, message: Packet) -> GuestAnswer:
        from quantcore.checkpoints import NotFound

        if message.kind == "answer":
            value, descriptions = message.value
            pairs = zip(descriptions, message.blobs, strict=True)
            return GuestAnswer(value, [restored(description, blob) for description, blob in pairs])
        if message.kind == "refused":
            sentence, not_found = message.value
            raise (NotFound if not_found else QuantError)(str(sentence))
        if message.kind == "memory":
            raise self._over(f"{megabytes(self.work.memory)} of memory")
        from pages.serving.log import log  # not for guests, who would import streamlit

        log.error("A guest failed: %s", message.value)
        raise self.work.error("failed, which is a defect of this app and was logged")

    def _ended(self, signal_number: int) -> QuantError:
        if signal_number in _BY_TIME:
            return self._over(f"{self.work.seconds:g} s of processor time")
        # the machine's last resort, or the C library's when an allocation fails
        return self.work.error("ended its process, which takes too much memory or is damaged")

    def _over(self, what: str) -> QuantError:
        return self.work.error(f"takes more than {what}, the limit on this server")


class _Readers:
    """Threads that wait for other machines on a guest's behalf."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._pool: ThreadPoolExecutor | None = None
        self._futures: list[Future[None]] = []

    def submit(self, handler: Callable[..., Any], arguments: list[Any], number: int) -> None:
        self._pool = self._pool or ThreadPoolExecutor(_READERS)
        self._futures.append(self._pool.submit(_reply, self._channel, handler, arguments, number))

    @property
    def waiting(self) -> bool:
        """Whether any of them waits; raises what one of them has raised."""
        for future in self._futures:
            if future.done():
                future.result()
        self._futures = [future for future in self._futures if not future.done()]
        return bool(self._futures)

    def __enter__(self) -> "_Readers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _listen(channel: Channel, heard: "queue.SimpleQueue[Packet | None]") -> None:
    try:
        while (message := channel.receive()) is not None:
            heard.put(message)
    except (BrokenChannelError, OSError, ValueError):  # it was killed, or the channel closed meanwhile
        pass
    heard.put(None)


def _reply(channel: Channel, handler: Callable[..., Any], arguments: list[Any], number: int) -> None:
    """Answer a guest's call."""
    from quantcore.checkpoints import NotFound

    try:
        value, blobs = handler(*arguments)
        reply = Packet("reply", value, blobs, number)
    except QuantError as error:
        reply = Packet("refused", [str(error), isinstance(error, NotFound)], number=number)
    with suppress(OSError, ValueError):  # it has ended
        channel.send(reply)
