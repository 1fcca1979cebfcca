"""A file on a host, read by ranges: small reads keep what follows, so that a header takes a few requests."""

import threading
from collections import OrderedDict

from pages.serving.remote.client import Client, NotServed
from pages.serving.remote.hosts import Url
from quantcore.checkpoints import ByteCounter, ByteSource
from quantcore.errors import QuantError
from quantcore.wording import short

FIRST = 128 * 2**10  # bytes of a file's first request, and of later ones that need fewer
LONGEST_AHEAD = 4 * 2**20  # bytes; the most that a sequential read requests ahead
DIRECT = 2**20  # bytes; reads this large neither read ahead nor are kept
MAX_KEPT = 8 * 2**20  # bytes of all files of a folder; 16 folders may be open


class PieceCache:
    """The latest pieces of the files of one folder. Thread-safe."""

    def __init__(self, limit: int = MAX_KEPT) -> None:
        self._limit, self._bytes = limit, 0
        self._pieces: OrderedDict[tuple[str, int], memoryview] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, name: str, offset: int, size: int) -> memoryview | None:
        """Return bytes of a file if one piece contains them all."""
        with self._lock:
            for (of, start), data in reversed(self._pieces.items()):
                if of == name and start <= offset and offset + size <= start + len(data):
                    self._pieces.move_to_end((of, start))
                    return data[offset - start : offset - start + size]
        return None

    def put(self, name: str, start: int, data: memoryview) -> None:
        """Keep a piece; the least recently used make room."""
        with self._lock:
            self._bytes += len(data) - len(self._pieces.pop((name, start), b""))
            self._pieces[name, start] = data
            while self._bytes > self._limit:
                self._bytes -= len(self._pieces.popitem(last=False)[1])


class PinnedSource(ByteSource):
    """A file that the client reads. Its counter counts the bytes that were sent, not those asked for.

    Args:
        url: of the file.
        name: as messages show it.
        size: bytes of the file, if a list gave it.

    Raises:
        QuantError: it can't be read, or has a different size.
    """

    gap = 2**18
    is_remote = True

    def __init__(
        self,
        client: Client,
        url: Url,
        name: str,
        counter: ByteCounter,
        pieces: PieceCache,
        size: int | None = None,
    ) -> None:
        self._client, self._url, self._cache = client, url, pieces
        self._target = url  # what answered last: redirects to signed addresses stay valid for a while
        self._end, self._ahead = 0, FIRST
        answer = client.part(url, 0, FIRST if size is None else max(1, min(FIRST, size)))
        super().__init__(name, answer.total, counter)
        counter.add(name, answer.start, answer.start + len(answer.data))
        self._identity, self._target = answer.identity, answer.url
        if size is not None and answer.total != size:
            raise self._changed()
        self._keep(answer.start, answer.data)

    @property
    def identity(self) -> str:
        """The server's name for the content (ETag) or the time of the last change, and the size."""
        return self._identity

    def _count(self, start: int, stop: int) -> None:
        """Count nothing: bytes are counted as they arrive."""

    def _read(self, offset: int, size: int) -> memoryview:
        found = self._cache.find(self.name, offset, size)
        if found is not None:
            return memoryview(bytearray(found))
        if size >= DIRECT:
            return self._fetch(offset, offset + size)
        self._ahead = min(2 * self._ahead, LONGEST_AHEAD) if offset <= self._end <= offset + size else FIRST
        data = self._fetch(offset, min(offset + max(size, self._ahead), self.size))
        self._keep(offset, data)
        return memoryview(bytearray(data[:size]))

    def _keep(self, start: int, data: memoryview) -> None:
        self._end = start + len(data)
        self._cache.put(self.name, start, data)

    def _fetch(self, start: int, stop: int) -> memoryview:
        target = self._target
        try:
            answer = self._client.part(target, start, stop)
        except NotServed:
            if target == self._url:
                raise
            answer = self._client.part(self._url, start, stop)  # the signed address has expired
        self._target = answer.url
        self.counter.add(self.name, answer.start, answer.start + len(answer.data))
        if answer.identity != self._identity:
            raise self._changed()
        return answer.data[start - answer.start : stop - answer.start]

    def _changed(self) -> QuantError:
        return QuantError(
            f"{short(self.name, 120)} has changed since it was opened; open the checkpoint again."
        )
