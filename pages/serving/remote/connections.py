"""Connections to hosts, at public addresses only.

A name is resolved once for each connection, all of its addresses must be public, and the connection is made
to one of the checked addresses, with TLS verified against the name.
"""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from pages.serving.network import is_public
from pages.serving.remote.hosts import Host
from quantcore.errors import QuantError

SECONDS = 10.0  # to open a connection
SILENCE = 20.0  # seconds without a byte
_IDLE = 15.0  # seconds after which a connection is not used again
_ADDRESSES = 3  # of a name to try

Resolver = Callable[[str, int], list[str]]
Connector = Callable[[str, int, float], socket.socket]


def resolve(name: str, port: int) -> list[str]:
    """Return the addresses of a host."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def connect(address: str, port: int, seconds: float) -> socket.socket:
    """Open a connection to an address."""
    return socket.create_connection((address, port), seconds)


class Connections:
    """Opens connections, and keeps those that are idle for a while. Thread-safe."""

    def __init__(self, resolver: Resolver, connector: Connector, context: ssl.SSLContext) -> None:
        self._resolve, self._connect, self._context = resolver, connector, context
        self._idle: dict[Host, list[tuple[float, http.client.HTTPSConnection]]] = {}
        self._lock = threading.Lock()

    def keep(self, host: Host, connection: http.client.HTTPSConnection) -> None:
        """Keep a connection whose answer was read to the end."""
        with self._lock:
            self._idle.setdefault(host, []).append((time.monotonic(), connection))

    def idle(self, host: Host) -> http.client.HTTPSConnection | None:
        """Return a connection that is open already, if there is one."""
        with self._lock:
            kept = self._idle.get(host, [])
            while kept:
                since, connection = kept.pop()
                if time.monotonic() - since < _IDLE and connection.sock is not None:
                    return connection
                connection.close()
        return None

    def open(self, host: Host) -> http.client.HTTPSConnection:
        """Return a new connection to a checked address.

        Raises:
            QuantError: an address is not public, or the certificate is not the host's.
            OSError: no address answers.
        """
        addresses = self._resolve(host.name, host.port)
        if not addresses or not all(map(is_public, addresses)):
            raise QuantError(
                f"{host} does not have public addresses only, so it is not read; upload the files instead."
            )
        error: OSError = OSError("no address answers")
        for address in addresses[:_ADDRESSES]:
            try:
                secured = self._secured(self._connect(address, host.port, SECONDS), host)
            except ssl.SSLCertVerificationError:
                raise QuantError(f"{host} could not be verified: its certificate is not valid.") from None
            except OSError as each:
                error = each
                continue
            connection = http.client.HTTPSConnection(host.name, host.port, context=self._context)
            connection.auto_open = 0  # it must never resolve the name itself
            connection.sock = secured
            return connection
        raise error

    def _secured(self, plain: socket.socket, host: Host) -> ssl.SSLSocket:
        plain.settimeout(SECONDS)
        secured = self._context.wrap_socket(plain, server_hostname=host.name, do_handshake_on_connect=False)
        watch = Watch(secured, SECONDS)
        try:
            secured.do_handshake()
        except BaseException:
            secured.close()
            raise
        finally:
            watch.cancel()
        secured.settimeout(SILENCE)
        return secured


class Watch:
    """Ends a connection after a fixed time, since the connection's own timeout starts again with every byte.

    ``late``: whether it has ended the connection.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.late, self._connection = False, connection
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Stop watching; the connection stays open."""
        self._timer.cancel()

    def _end(self) -> None:
        self.late = True
        with suppress(OSError):  # it has ended already
            # not the method of ssl.SSLSocket, after which a reader would get undecrypted bytes
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)
