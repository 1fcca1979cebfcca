"""The server, as a guest sees it."""

import itertools
import os
import queue
import threading
from typing import Any

from pages.serving.guard.channel import Bytes, Channel, Packet
from quantcore.checkpoints import NotFound
from quantcore.errors import QuantError


class GuestHost:
    """The server, as a guest sees it: it is asked for files, a range of bytes at a time."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._numbers = channel, itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Packet | None]] = {}
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
        number, box = next(self._numbers), queue.SimpleQueue[Packet | None]()
        self._waiting[number] = box
        self._channel.send(Packet("call", [what, *arguments], number=number))
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
