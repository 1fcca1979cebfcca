"""A cache bounded by bytes, in which each result is computed once, however many visitors ask for it."""

import dataclasses
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from pages.serving.work.admission import POLL

VALUES = "values"  # the result that all other results of a tensor refer to
Entry = tuple[Any, dict[int, int]]  # a result, and its pieces of memory: address -> bytes
_SMALL = 512  # bytes counted for an object that is not looked into
_LEAVES = (str, bytes, int, float, complex, bool, type(None), type)


def storages(value: Any) -> dict[int, int]:
    """Return a result's pieces of memory: address -> bytes; all other objects together are one piece."""
    found, others = dict[int, int](), 0
    seen: set[int] = set()
    left = [value]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor):
            memory = each.untyped_storage()
            found[memory.data_ptr()] = memory.nbytes()
        elif isinstance(each, np.ndarray):
            whole = each
            while isinstance(whole.base, np.ndarray):  # which owns the memory of a view
                whole = whole.base
            found[whole.ctypes.data] = whole.nbytes
            left += each.flat if each.dtype.hasobject and each.size < 1 << 16 else ()
        else:
            others += sys.getsizeof(each, _SMALL)
            left += _parts(each)
    return found | {id(value): others}


def _parts(value: Any) -> Iterator[Any]:
    """Yield what a container or a record contains; nothing for a function or a module."""
    if isinstance(value, _LEAVES):
        return
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif dataclasses.is_dataclass(value):
        yield from (getattr(value, each.name, None) for each in dataclasses.fields(value))
    elif not callable(value):
        yield from getattr(value, "__dict__", {}).values()


class ContentResults:
    """The results of one tensor, the most recently used last. ``bytes``: of all, what they share once."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, Entry] = OrderedDict()
        self.bytes = 0
        self._users: Counter[int] = Counter()

    def put(self, what: str, value: Any, pieces: dict[int, int]) -> None:
        """Add a result."""
        self.entries[what] = value, pieces
        self.bytes += sum(size for piece, size in pieces.items() if not self._users[piece])
        self._users.update(pieces.keys())

    def pop(self) -> Entry:
        """Take out the least recently used result."""
        _, (value, pieces) = self.entries.popitem(last=False)
        self._users.subtract(pieces.keys())
        self.bytes -= sum(size for piece, size in pieces.items() if not self._users[piece])
        self._users = +self._users
        return value, pieces


class ByteCache:
    """Results by tensor and name; the least recently used make room. Thread-safe.

    Args:
        limit: bytes that the tensors not in work may take at the moment.
        in_work: the tensors in work -> bytes that each may take.
        entries: how many results are kept at most.
    """

    def __init__(
        self, limit: Callable[[], int], in_work: Callable[[], dict[str, int]] = dict, entries: int = 1000
    ) -> None:
        self._limit, self._in_work, self._most = limit, in_work, entries
        self._changed = threading.Condition()
        self._groups: OrderedDict[str, ContentResults] = OrderedDict()
        self._computing: set[tuple[str, str]] = set()

    def get(
        self,
        tensor: str,
        what: str,
        make: Callable[[], Any],
        admit: Callable[[Callable[[], bool]], bool] = lambda useless: True,
        check: Callable[[], None] = lambda: None,
        size: int | Callable[[Any], int] | None = None,
    ) -> Any:
        """Return the result, computed by ``make`` unless it is known or another thread is computing it.

        Errors that ``make`` raises are not cached.

        Args:
            tensor, what: the key.
            admit: waits until ``make`` may run; returns False once its argument returns True.
            check: called while another thread computes the result; what it raises ends the wait.
            size: bytes of the result, or what tells them, if counting would take longer than it is worth.
        """
        key = tensor, what
        while True:
            with self._changed:
                found = self._find(key)
                if found is not None:
                    return found[0]
                elsewhere = key in self._computing
                if elsewhere:
                    self._changed.wait(POLL)
            if elsewhere:
                check()
            elif admit(lambda: self._pending(key)) and self._claim(key):
                break
        try:
            value = make()
            known = size(value) if callable(size) else size
            pieces = storages(value) if known is None else {id(value): known}
            with self._changed:
                self._groups.setdefault(tensor, ContentResults()).put(what, value, pieces)
                self._find(key)
        finally:
            with self._changed:
                self._computing.discard(key)
                self._changed.notify_all()
        self.make_room()
        return value

    def peek(self, tensor: str, what: str) -> Any:
        """Return a result if it is known, else None."""
        with self._changed:
            found = self._find((tensor, what))
            return None if found is None else found[0]

    def make_room(self) -> None:
        """Forget results: of tensors in work what exceeds their places, of others the least recently used."""
        limit, in_work, forgotten = self._limit(), self._in_work(), []
        with self._changed:
            count = sum(len(group.entries) for group in self._groups.values())
            idle = sum(group.bytes for tensor, group in self._groups.items() if tensor not in in_work)
            for tensor, group in list(self._groups.items()):
                before, most = group.bytes, in_work.get(tensor)
                # a tensor in work keeps at least what was used last, since its work goes on with that
                while len(group.entries) > (most is not None) and (
                    count > self._most or (idle > limit if most is None else group.bytes > most)
                ):
                    forgotten.append(group.pop())
                    count -= 1
                    if most is None:
                        idle, before = idle + group.bytes - before, group.bytes
                if not group.entries:
                    del self._groups[tensor]
        del forgotten  # memory is given back outside the lock, since that takes a while

    @property
    def bytes(self) -> int:
        """Bytes of all results."""
        with self._changed:
            return sum(group.bytes for group in self._groups.values())

    def _pending(self, key: tuple[str, str]) -> bool:
        """Tell whether a result is known, or being computed."""
        with self._changed:
            group = self._groups.get(key[0])
            return key in self._computing or (group is not None and key[1] in group.entries)

    def _claim(self, key: tuple[str, str]) -> bool:
        """Take a result for this thread to compute; False if another was faster."""
        with self._changed:
            if self._pending(key):
                return False
            self._computing.add(key)
            return True

    def _find(self, key: tuple[str, str]) -> Entry | None:
        """Return a known result, which becomes the most recently used."""
        group = self._groups.get(key[0])
        if group is None or key[1] not in group.entries:
            return None
        self._groups.move_to_end(key[0])
        # the values after it: without them nothing else of the tensor can be computed
        for used in (key[1], VALUES):
            if used in group.entries:
                group.entries.move_to_end(used)
        return group.entries[key[1]]
