"""Web servers on this machine that stand in for internet hosts, and a client that is led to them.

The client is the app's own. Its resolver returns public addresses (those reserved for documentation do not
count as public), and its connector records each connection and redirects it to this machine.
"""

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from places import DATA

from pages.serving.remote.client import Client
from pages.serving.remote.hosts import parse_hosts

TLS = DATA / "tls"
PUBLIC = "93.184.215.14"
Route = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers each path with its route."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        self.server.requests.append((self.headers["Host"], self.path, dict(self.headers)))
        route = self.server.routes.get(self.path) or self.server.routes.get(self.path.partition("?")[0])
        if route is None:
            self.answer(404, b"nothing here")
        else:
            route(self)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in ({"Content-Length": str(len(body))} | named).items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # the client may have disconnected
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing, as the requests are recorded."""


def file(data: bytes, etag: str = '"1"') -> Route:
    """A file that supports range requests."""

    def route(handler: Handler) -> None:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        if match is None:
            handler.answer(200, data, ETag=etag)
            return
        start, stop = int(match[1]), min(int(match[2]) + 1, len(data))
        if start >= len(data):
            handler.answer(416, Content_Range=f"bytes */{len(data)}")
            return
        handler.answer(
            206, data[start:stop], ETag=etag, Content_Range=f"bytes {start}-{stop - 1}/{len(data)}"
        )

    return route


def redirect(to: str, status: int = 302) -> Route:
    """A redirect to another address."""
    return lambda handler: handler.answer(status, Location=to)


def raw(data: bytes) -> Route:
    """Raw bytes instead of an HTTP response."""

    def route(handler: Handler) -> None:
        handler.close_connection = True
        with contextlib.suppress(OSError):
            handler.wfile.write(data)

    return route


@dataclass
class Internet:
    """The simulated internet: what it serves, the names resolved, the connections made (address, port)."""

    routes: dict[str, Route]
    requests: list[tuple[str, str, dict[str, str]]]
    port: int
    addresses: dict[str, list[str]] = field(default_factory=dict)
    connections: list[tuple[str, int]] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)

    def resolve(self, name: str, port: int) -> list[str]:
        self.resolved.append(name)
        return self.addresses.get(name, [PUBLIC])

    def connect(self, address: str, port: int, seconds: float) -> socket.socket:
        self.connections.append((address, port))
        return socket.create_connection(("127.0.0.1", self.port), seconds)

    def client(self, hosts: str, resolver: Any = None) -> Client:
        context = ssl.create_default_context(cafile=str(TLS / "certificate.pem"))
        return Client(parse_hosts(hosts), resolver or self.resolve, self.connect, context)

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]


@contextlib.contextmanager
def internet() -> Iterator[Internet]:
    """Serve on a free port of this machine until the block ends."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.routes, server.requests = True, {}, []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None  # tests disconnect early on purpose
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield Internet(server.routes, server.requests, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
