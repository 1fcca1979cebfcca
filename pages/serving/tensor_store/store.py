"""Sharing tensors, and opening shared ones."""

import functools
import hashlib
import logging
import os
import re
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from pages.serving import settings
from pages.serving.network import network
from pages.serving.tensor_store.folder import SharedFolder
from pages.serving.tensor_store.record import (
    ADDRESS,
    CONTENT,
    MAX_RECORD,
    RECORD,
    StoreLimits,
    TensorRecord,
    delete,
    delete_useless,
    make_room,
    note,
    shared_today,
)
from quantcore.errors import QuantError
from quantcore.tensors import read_tensor
from quantcore.wording import megabytes

Float32Array = npt.NDArray[np.float32]
LOG = logging.getLogger("quantscope")
_HEADER = 1000  # bytes that a tensor's file may have in addition to the elements
_AGAIN = "ask the sender to share it again."


class TensorStore:
    """The shared tensors in a folder.

    Args:
        url: the folder, a path or an fsspec URL.
        now: the clock, in seconds since 1970.
    """

    def __init__(self, url: str, limits: StoreLimits, now: Callable[[], float] = time.time) -> None:
        self.limits = limits
        self._url, self._folder, self._now = url, SharedFolder(url), now
        self._sharing = threading.Lock()  # one at a time: sharing takes twice the tensor's memory
        # visitors of one process who open the same tensor share one copy, as long as one of them shows it
        self._shown: weakref.WeakValueDictionary[str, Float32Array] = weakref.WeakValueDictionary()
        self._locks: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
        self._guard = threading.Lock()

    @property
    def days(self) -> float:
        """Days after which a shared tensor is deleted."""
        return self.limits.age / 86400

    @property
    def where(self) -> str:
        """Where the tensors are stored, to end a sentence."""
        return described(self._url)

    def share(self, x: Float32Array, visitor: str, limit: int) -> str:
        """Store a tensor and return its address.

        Args:
            visitor: whose daily limit applies, see `visitor_of`.
            limit: the most bytes that a tensor may have.

        Raises:
            QuantError: a limit does not allow it, or the folder can't be written.
        """
        most = min(limit, self.limits.space - _HEADER, self.limits.of_a_visitor - _HEADER)
        if x.nbytes > most:
            raise QuantError(
                f"This tensor takes {megabytes(x.nbytes)}, and at most {megabytes(most)} can be shared here; "
                "share a slice of it, or send the file."
            )
        with self._sharing, _answered("can't be stored now", "try again later, or send the file."):
            content = safetensors.numpy.save({"x": np.asarray(x, dtype="<f4", order="C")})
            return self._write(content, visitor)

    def open(self, address: str, limit: int) -> Float32Array:
        """Return a shared tensor; never modify it.

        Args:
            limit: the most bytes that a tensor may have.

        Raises:
            QuantError: the address is not one, or the tensor is missing, damaged, too large, or unreadable.
        """
        with self._guard:
            lock = self._locks.setdefault(address, threading.Lock())
        with lock, _answered("can't be read now", "reload the page later."):
            record = self._record(address, limit)
            known = f"{address} {record.sha256}"
            x = self._shown.get(known)
            if x is None:
                try:
                    content = self._folder.read(address + CONTENT, record.size + 1)
                except FileNotFoundError:
                    raise self._missing() from None
                if len(content) != record.size or hashlib.sha256(content).hexdigest() != record.sha256:
                    damaged = "is damaged (its SHA-256 differs) and was not opened"
                    raise QuantError(f"The shared tensor of this link {damaged}; {_AGAIN}")
                x = read_tensor(content, address + CONTENT, "x", limit + _HEADER)
                with self._guard:
                    self._shown[known] = x
            self._note_opened(address, record)
        return x

    def size(self, address: str, limit: int) -> int:
        """Return how many bytes `open` would read.

        Raises:
            QuantError: as for `open`.
        """
        with _answered("can't be read now", "reload the page later."):
            return self._record(address, limit).size

    def tidy(self) -> None:
        """Delete what is too old and what ended processes left behind; log what prevents it."""
        try:
            with self._sharing:
                delete_useless(self._folder, self._folder.sizes(), self.limits.age, self._now())
        except Exception as error:  # each file system has its own
            LOG.error("Old shared tensors can't be deleted: %s", one_line(error))

    def _write(self, content: bytes, visitor: str) -> str:
        """Note, count, make room, and only then write; return the address."""
        now, address = self._now(), secrets.token_hex(16)
        noted = note(visitor, len(content), now)
        try:
            self._folder.write(noted, b"")
            record = TensorRecord(hashlib.sha256(content).hexdigest(), len(content), now, now)
            self._folder.write(address + RECORD, record.to_bytes())
            sizes = self._folder.sizes()
            if shared_today(sizes, visitor, now) > self.limits.of_a_visitor:
                raise QuantError(
                    f"With this tensor of {megabytes(len(content))} you would share more than "
                    f"{megabytes(self.limits.of_a_visitor)} today, the limit here; share it tomorrow, or "
                    "send the file."
                )
            records = delete_useless(self._folder, sizes, self.limits.age, now)
            make_room(self._folder, records, address, self.limits.space, now)
            self._folder.write(address + CONTENT, content)
            if not self._folder.exists(address + RECORD):
                # another process needed the space
                raise QuantError("The space for shared tensors is full right now; share this one again.")
        except BaseException:
            delete(self._folder, address)
            self._folder.delete(noted)
            raise
        return address

    def _record(self, address: str, limit: int) -> TensorRecord:
        """Return the record of a tensor that may be opened."""
        if not ADDRESS.fullmatch(address):
            raise QuantError(
                "The address of the shared tensor in this link is damaged; copy the complete link again."
            )
        try:
            record = TensorRecord.from_bytes(self._folder.read(address + RECORD, MAX_RECORD))
        except FileNotFoundError:
            raise self._missing() from None
        if record is None or record.is_from_the_future(self._now()):
            raise QuantError(f"The record of this link's shared tensor is damaged; {_AGAIN}")
        if self._now() - record.shared > self.limits.age:
            delete(self._folder, address)
            raise self._missing()
        if record.size > limit + _HEADER:
            raise QuantError(
                f"The shared tensor of this link takes {megabytes(record.size)}; the limit is "
                f"{megabytes(limit)}. Ask the sender for a slice of it."
            )
        return record

    def _note_opened(self, address: str, record: TensorRecord) -> None:
        """Record when the tensor was opened; if that can't be written, it is opened anyway."""
        try:
            if self._folder.exists(address + CONTENT):
                self._folder.write(address + RECORD, replace(record, opened=self._now()).to_bytes())
        except Exception as error:  # each file system has its own
            LOG.warning("The opening of a shared tensor can't be recorded: %s", one_line(error))

    def _missing(self) -> QuantError:
        return QuantError(
            f"The shared tensor of this link is no longer stored: tensors are kept for {self.days:g} days, "
            f"or less if space runs out; {_AGAIN}"
        )


@contextmanager
def _answered(problem: str, advice: str) -> Iterator[None]:
    """Log what the file system raises, which differs between file systems, and raise it as one sentence."""
    try:
        yield
    except QuantError:
        raise
    except Exception as error:
        LOG.error("A shared tensor %s: %s", problem, one_line(error))
        raise QuantError(f"The shared tensor {problem} ({type(error).__name__}); {advice}") from error


def described(url: str) -> str:
    """Say where a folder is, to end a sentence, without details that only the administrator may know."""
    parts = urlsplit(url.rpartition("::")[2])
    if parts.scheme == "memory":
        return "in this server's memory, until it restarts"
    if "://" not in url or parts.scheme in ("file", "local"):
        return "on this server"
    return f"at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def one_line(error: Exception) -> str:
    """Write an exception as one line, without addresses of tensors, which only their visitors may know."""
    text = re.sub(r"[0-9a-f]{32}", "…", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:300]}"


def visitor_of(network_address: str | None) -> str:
    """Return a hash that stands for all visitors from one network address; for IPv6, from one /64 network.

    Args:
        network_address: None for a visitor on the server's own machine.
    """
    who = network(network_address or "local")
    return hashlib.sha256(who.encode()).hexdigest()[:16]


def opened_at(chosen: settings.Settings) -> TensorStore | None:
    """Return the store of these settings; None if sharing is off.

    Raises:
        SettingError: the folder can't be used.
    """
    if chosen.store.lower() == settings.OFF:
        return None
    url = chosen.store if "://" in chosen.store else os.path.abspath(os.path.expanduser(chosen.store))
    space, of_a_visitor = int(chosen.store_gb * 1e9), int(chosen.store_visitor_mb * 1e6)
    limits = StoreLimits(space, of_a_visitor, chosen.store_days * 86400)
    try:
        return TensorStore(url, limits)
    except ImportError as error:
        reason = f"which needs a package that is not installed ({one_line(error)})"
    except Exception as error:  # each file system has its own exceptions
        reason = f"which can't be used ({one_line(error)})"
    raise settings.SettingError(
        f"QUANTSCOPE_STORE is {chosen.store!r}, {reason}; it must be the path of a folder, an fsspec URL "
        f"such as s3://bucket/folder, or {settings.OFF}."
    )


@functools.cache
def current() -> TensorStore | None:
    """Return the store of this process; None if sharing is off.

    Raises:
        SettingError: as `opened_at`.
    """
    return opened_at(settings.current())


def tidy() -> None:
    """Delete old tensors of this process's store."""
    store = current()
    if store is not None:
        store.tidy()
