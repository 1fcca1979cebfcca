"""Reads byte ranges over https from the operator's hosts, and from nowhere else.

Redirects are followed here, each checked in the same way. Nothing is taken from the environment (proxies,
credentials), only the request is sent, and no content is decoded.
"""

import http.client
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urljoin

from pages.serving.remote.connections import Connections, Connector, Resolver, Watch, connect, resolve
from pages.serving.remote.hosts import Hosts, Url
from quantcore.checkpoints import NotFound
from quantcore.errors import QuantError

MAX_REDIRECTS = 5
MAX_CONNECTIONS = 16  # of the process
WHOLE = 4 * 2**20  # bytes; a server that ignores ranges may send files up to this size whole
MAX_WORDS = 2**16  # bytes; the body of a redirect, which is read if it is shorter
ANSWER = 20.0  # seconds until an answer is complete, not counting the time for its body
SLOWEST = 100_000  # bytes per second of a body
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")
_EMPTY = re.compile(r"bytes \*/0")


class NotServed(NotFound):
    """The server has no such file, or the file is not public."""


@dataclass(frozen=True)
class HttpContent:
    """What a server sent.

    ``start``: where the bytes start in the file; ``total``: size of the file; ``identity``: changes with the
    file's content; ``url``: the address after all redirects; ``next``: address of the rest of a list, if any.
    """

    data: memoryview
    start: int
    total: int
    identity: str
    url: Url
    next: str = ""


class Client:
    """Requests to the operator's hosts. Thread-safe.

    Args:
        hosts: where it may read from.
        resolver, connector: how names are resolved and connections are opened.
        context: how TLS is verified; by default as the system does.
    """

    def __init__(
        self,
        hosts: Hosts,
        resolver: Resolver = resolve,
        connector: Connector = connect,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.hosts = hosts
        self._connections = Connections(resolver, connector, context or ssl.create_default_context())
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def part(self, url: Url, start: int, stop: int) -> HttpContent:
        """Return bytes of a file, fewer where it ends before ``stop``; a small file may come whole.

        Raises:
            QuantError: they can't be read; `NotServed` if there is no such public file.
        """
        with self._request(url, stop - start, {"Range": f"bytes={start}-{stop - 1}"}) as (answer, final):
            if answer.status == 416 and _EMPTY.fullmatch(answer.getheader("Content-Range", "")):
                return HttpContent(memoryview(bytearray()), 0, 0, _identity(answer, 0), final)
            if answer.status == 200:
                whole = _length(answer)
                if whole is None or whole > WHOLE:
                    raise QuantError(
                        f"{final.host} does not send parts of a file, and this one is too large or of "
                        "unknown size; download the file and upload it here."
                    )
                return HttpContent(_body(answer, whole, final), 0, whole, _identity(answer, whole), final)
            _check_status(answer, final, 206)
            match = _RANGE.fullmatch(answer.getheader("Content-Range", ""))
            first, last, total = (int(n) for n in match.groups()) if match else (-1, -1, -1)
            if (first, last) != (start, min(stop, total) - 1):
                raise QuantError(f"{final.host} sent different bytes than requested; try again later.")
            data = _body(answer, last + 1 - first, final)
            return HttpContent(data, start, total, _identity(answer, total), final)

    def text(self, url: Url, limit: int) -> HttpContent:
        """Return a whole answer of at most ``limit`` bytes, such as a list of files.

        Raises:
            QuantError: as `part`, or it is longer.
        """
        with self._request(url, limit, {}) as (answer, final):
            _check_status(answer, final, 200)
            length = _length(answer)
            if length is not None and length > limit:
                raise QuantError(f"{final.host} sent a list of {length:,} bytes; the limit is {limit:,}.")
            data = _body(answer, length, final, limit)
            more = re.search(r'<([^<>]*)>; *rel="next"', answer.getheader("Link", ""))
            return HttpContent(data, 0, len(data), "", final, urljoin(str(final), more[1]) if more else "")

    @contextmanager
    def _request(
        self, url: Url, size: int, headers: dict[str, str]
    ) -> Iterator[tuple[http.client.HTTPResponse, Url]]:
        """Yield the answer after all redirects; ``size``: of the body, which determines the time limit."""
        with self._room:
            seconds = ANSWER + size / SLOWEST
            for _ in range(MAX_REDIRECTS + 1):
                with self._answer(url, headers, seconds) as answer:
                    if answer.status not in (301, 302, 303, 307, 308):
                        yield answer, url
                        return
                    url = self._redirected(url, answer)
                    if (_length(answer) or MAX_WORDS) < MAX_WORDS:
                        answer.read()  # so that the connection can be used again
            raise QuantError(
                f"{url.host} redirects more than {MAX_REDIRECTS} times; give the file's own address."
            )

    def _redirected(self, url: Url, answer: http.client.HTTPResponse) -> Url:
        try:
            return Url.parse(urljoin(str(url), answer.getheader("Location", "")))
        except (QuantError, ValueError):
            raise QuantError(
                f"{url.host} redirects to an address that is not a plain https one, so it is not followed."
            ) from None

    @contextmanager
    def _answer(
        self, url: Url, headers: dict[str, str], seconds: float
    ) -> Iterator[http.client.HTTPResponse]:
        """Yield the answer to one request. The connection is used again if its body was read to the end."""
        if not self.hosts.reaches(url.host):
            raise QuantError(
                f"{url.host} is not one of the hosts that this server may read from; upload the files "
                "instead."
            )
        connection, answer, watch, done = None, None, None, False
        try:
            connection, answer, watch = self._sent(url, headers, seconds)
            yield answer
            done = answer.isclosed() and not answer.will_close
        except (OSError, http.client.HTTPException) as error:
            late = TimeoutError() if watch is not None and watch.late else error
            raise QuantError(f"{url.host} can't be read: {_reason(late)}.") from None
        finally:
            if watch is not None:
                watch.cancel()
            if connection is not None and done:
                self._connections.keep(url.host, connection)
            elif connection is not None:
                connection.close()

    def _sent(
        self, url: Url, headers: dict[str, str], seconds: float
    ) -> "tuple[http.client.HTTPSConnection, http.client.HTTPResponse, Watch]":
        """Send a request; on a new connection if an idle one turns out to be closed."""
        for known in (self._connections.idle(url.host), None):
            connection = known or self._connections.open(url.host)
            assert connection.sock is not None
            watch = Watch(connection.sock, seconds)
            try:
                connection.request("GET", url.target, headers={"User-Agent": "Quantscope", **headers})
                answer = connection.getresponse()
                if watch.late:  # a closed connection looks like the end of the headers
                    raise TimeoutError
                return connection, answer, watch
            except (OSError, http.client.HTTPException) as error:
                late = watch.late
                watch.cancel()
                connection.close()
                if late or known is None:
                    raise (TimeoutError() if late else error) from None
        raise AssertionError("the second connection is new")


def _check_status(answer: http.client.HTTPResponse, url: Url, wanted: int) -> None:
    """Raise a QuantError if an answer has a different status."""
    status = answer.status
    if status in (404, 410):
        raise NotServed(f"{url.host} has nothing at that address (status {status}); check the address.")
    if status in (401, 403):
        raise NotServed(
            f"{url.host} does not make that public (status {status}), and this server sends no credentials; "
            "download the files and upload them here."
        )
    if status == 429:
        raise QuantError(f"{url.host} gets too many requests (status 429); try again in a few minutes.")
    if status != wanted:
        raise QuantError(f"{url.host} answered with status {status} instead of {wanted}; try again later.")


def _body(answer: http.client.HTTPResponse, size: int | None, url: Url, limit: int = 0) -> memoryview:
    """Return the body of an answer, which must have ``size`` bytes; None: at most ``limit``."""
    if answer.getheader("Content-Encoding", "identity").lower() != "identity":
        raise QuantError(
            f"{url.host} sent compressed content, which was not requested; upload the files instead."
        )
    most = limit if size is None else size
    data, done = memoryview(bytearray(most + 1)), 0
    while done < most + 1:
        count = answer.readinto(data[done:])
        if not count:
            break
        done += count
    if size is not None and done < size:
        raise http.client.IncompleteRead(b"", size - done)
    if done > most:
        raise QuantError(f"{url.host} sent more bytes than allowed; try again later.")
    return data[:done]


def _length(answer: http.client.HTTPResponse) -> int | None:
    text = answer.getheader("Content-Length", "")
    return int(text) if re.fullmatch(r"\d{1,19}", text) else None


def _identity(answer: http.client.HTTPResponse, total: int) -> str:
    return f"{answer.getheader('ETag') or answer.getheader('Last-Modified') or ''} {total}"


def _reason(error: Exception) -> str:
    """Say why a connection failed, in words; what a server sent is not repeated."""
    if isinstance(error, TimeoutError):
        return "it takes too long"
    if isinstance(error, socket.gaierror):
        return "its name can't be resolved"
    if isinstance(error, http.client.HTTPException):
        return "it does not answer as a web server does, or stopped midway"
    return "the connection failed"
