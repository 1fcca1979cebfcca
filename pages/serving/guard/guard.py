"""The server's side of the guard: it asks a guest, serves what the guest reads, and ends it."""

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pages.serving.guard.channel import BrokenChannelError, Bytes, Channel, Packet, restored
from pages.serving.guard.nursery import FORKS, Child, Nursery
from quantcore.errors import QuantError
from quantcore.wording import megabytes

POLL = 0.05  # seconds between two looks whether the visitor is still there
# seconds in which a child that is limited by its processor time may say nothing: the machine is busy
SILENCE = 60.0
AT_ONCE = max(2, os.cpu_count() or 1)  # guests
_READERS = 8  # requests to another machine at the same time
_BY_TIME = {getattr(signal, name) for name in ("SIGPROF", "SIGXCPU") if hasattr(signal, name)}

Serve = Mapping[str, Callable[..., tuple[Any, Sequence[Bytes]]]]
_NURSERY, _SLOTS = Nursery(), threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True)
class GuestLimits:
    """What a guest may take.

    ``seconds`` of processor time, bytes of ``memory`` beyond what a new process has, and bytes of arrays in
    its ``answer``.
    """

    seconds: float
    memory: int
    answer: int = 0


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
    subject: str,
    remedy: str,
    limits: GuestLimits,
    serve: Serve | None = None,
    aside: frozenset[str] = frozenset(),
    check: Callable[[], None] = lambda: None,
) -> GuestAnswer:
    """Ask a guest in a process of its own, and end that process, whatever happens.

    Args:
        guest: a name in `guests.GUESTS`; ``value`` and ``blobs`` are what it is given.
        subject, remedy: begin and end the sentence if it exceeds a limit: "Reading x.pt", "save it again".
        serve: what the guest may call, by name: functions that return a value and bytes, or raise QuantError.
        aside: those of them that wait for other machines; they run on threads of their own.
        check: called all the while; what it raises ends the guest and is passed on.

    Raises:
        QuantError: the guest refuses, or exceeds a limit.
    """
    slot = _Slot(check)
    slot.hold(True)
    try:
        child = _NURSERY.child()
        try:
            conversation = _Conversation(child, slot, limits, serve or {}, aside, check, subject, remedy)
            return conversation.hold(guest, value, blobs)
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
    limits: GuestLimits
    serve: Serve
    aside: frozenset[str]
    check: Callable[[], None]
    subject: str
    remedy: str

    def hold(self, guest: str, value: Any, blobs: Sequence[Bytes]) -> GuestAnswer:
        """Send the request, follow the guest's calls, and return its answer."""
        channel = Channel(self.child.reader, self.child.writer, max(self.limits.answer, 1 << 20))
        heard = queue.SimpleQueue[Packet | None]()
        threading.Thread(target=_listen, args=(channel, heard), daemon=True).start()
        with suppress(OSError):  # it has ended before it has read all: why is seen below
            channel.send(Packet("ask", [guest, value, self.limits.seconds, self.limits.memory], blobs))
        with _Readers(channel) as readers:
            return self._follow(channel, heard, readers)

    def _follow(
        self, channel: Channel, heard: "queue.SimpleQueue[Packet | None]", readers: "_Readers"
    ) -> GuestAnswer:
        silence = (
            SILENCE if FORKS else 4 * self.limits.seconds + 10
        )  # there it has no other limit, and imports first
        last = time.monotonic()
        while True:
            self.check()
            self.slot.hold(not readers.waiting)
            try:
                message = heard.get(timeout=POLL)
            except queue.Empty:
                if readers.waiting:
                    last = time.monotonic()
                if time.monotonic() - last > silence:
                    raise self._over(f"{silence:g} s") from None
                continue
            if message is None:
                raise self._ended(self.child.died_of())
            if message.kind != "call":
                try:
                    return self._answer(message)
                except QuantError:  # also a ValueError
                    raise
                except (BrokenChannelError, ValueError, TypeError):  # not what our guests send
                    raise self._ended(0) from None
            self._serve(channel, message, readers)
            last = time.monotonic()

    def _serve(self, channel: Channel, message: Packet, readers: "_Readers") -> None:
        name, *arguments = message.value
        handler = self.serve[name]
        if name in self.aside:
            readers.submit(handler, arguments, message.number)
        else:
            self.slot.hold(False)
            _reply(channel, handler, arguments, message.number)

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
            raise self._over(f"{megabytes(self.limits.memory)} of memory")
        from pages.serving.log import log  # not for guests, who would import streamlit

        log.error("A guest failed: %s", message.value)
        raise QuantError(
            f"{self.subject} failed, which is a defect of this app and was logged; {self.remedy}."
        )

    def _ended(self, signal_number: int) -> QuantError:
        if signal_number in _BY_TIME:
            return self._over(f"{self.limits.seconds:g} s of processor time")
        # the machine's last resort, or the C library's when an allocation fails
        return QuantError(
            f"{self.subject} ended its process, which takes too much memory or is damaged; {self.remedy}."
        )

    def _over(self, what: str) -> QuantError:
        return QuantError(f"{self.subject} takes more than {what}, the limit on this server; {self.remedy}.")


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
