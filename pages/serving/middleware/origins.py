"""Which pages may open a session: those of the app itself, and those of the origins that a setting names.

A browser sends the origin of the page that opens a websocket, and lets any page open one, so this check keeps
other sites' pages out. It replaces Streamlit's, which, for a foreign origin, asks a web service for this
machine's public address while every visitor waits (Streamlit 1.67, server_util.is_url_from_allowed_origins).
"""

import re
from ipaddress import AddressValueError, IPv6Address
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config

from pages.serving.log import log
from pages.serving.metrics import REFUSED
from pages.serving.middleware.limits import Rate
from pages.serving.settings import SettingError

SETTING = "server.corsAllowedOrigins"
SESSIONS = "/_stcore/stream"
POLICY_VIOLATION = 1008  # the code that closes a websocket
DEFAULT_PORTS = {"http": 80, "https": 443}

_PLACE = r"(?P<name>[a-z0-9_-][a-z0-9._-]*|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?"
_HOST = re.compile(_PLACE)
_ORIGIN = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]*)://{_PLACE}")


class HostPort(NamedTuple):
    """A host and a port; the port is None if none is given and none is known."""

    name: str
    port: int | None


class WebOrigin(NamedTuple):
    """Where a page is from. The port is never None if the scheme is http or https."""

    scheme: str
    place: HostPort

    def is_at(self, place: HostPort) -> bool:
        """Tell whether the page is from a host and port; without one, from its scheme's default port."""
        port = DEFAULT_PORTS.get(self.scheme)
        return port is not None and self.place == (place if place.port else place._replace(port=port))


def origin_of(text: str) -> WebOrigin | None:
    """Return the origin that a header or setting names; None for ``null`` and whatever is not an origin.

    >>> origin_of("https://Example.org:443") == origin_of("https://example.org")
    True
    >>> origin_of("https://[2001:DB8:0::1]:8501").place
    HostPort(name='[2001:db8::1]', port=8501)
    >>> origin_of("null"), origin_of("https://you@example.org"), origin_of("https://example.org/")
    (None, None, None)
    """
    found = _ORIGIN.fullmatch(text.lower()) if text.isascii() else None
    place = _host_port(found)
    if found is None or place is None:
        return None
    port = place.port or DEFAULT_PORTS.get(found["scheme"])
    return WebOrigin(found["scheme"], place._replace(port=port))


def host_port_of(text: str) -> HostPort | None:
    """Return the host and port that a Host header names; None if it is not exactly that.

    >>> host_port_of("Example.org:8501"), host_port_of("example.org."), host_port_of("you@example.org")
    (HostPort(name='example.org', port=8501), HostPort(name='example.org.', port=None), None)
    """
    return _host_port(_HOST.fullmatch(text.lower()) if text.isascii() else None)


def _host_port(found: re.Match[str] | None) -> HostPort | None:
    if found is None:
        return None
    name, port = found["name"], int(found["port"] or 0) or None
    if name.startswith("["):
        try:
            name = f"[{IPv6Address(name[1:-1])}]"  # an address can be written in several ways
        except AddressValueError:
            return None
    return None if port and port > 65535 else HostPort(name, port)


def check_settings() -> None:
    """Check the settings that name origins, when the app starts.

    Raises:
        SettingError: one of them can't be used.
    """
    if not config.get_option("server.enableCORS"):
        return  # every origin is allowed
    for text in _listed():
        if origin_of(text) is None:
            raise SettingError(
                f"{SETTING} contains {text[:200]!r}, which is not an origin; write each as scheme://host or "
                "scheme://host:port, without a path or a slash at the end, such as https://quant.example.org."
            )
    if config.is_manually_set("browser.serverAddress") and own_address() is None:
        raise SettingError(
            f"browser.serverAddress is {config.get_option('browser.serverAddress')[:200]!r}, which is not a "
            "host; it must be a name or an IP address."
        )


def _listed() -> list[str]:
    return [str(text).strip() for text in config.get_option(SETTING)]


def own_address() -> HostPort | None:
    """Return where `browser.serverAddress` and `browser.serverPort` say that the app is; None if nowhere."""
    if not config.is_manually_set("browser.serverAddress"):  # its default is localhost
        return None
    address = str(config.get_option("browser.serverAddress")).strip()
    try:
        address = f"[{IPv6Address(address)}]"
    except AddressValueError:
        try:
            address = urlsplit(address if "://" in address else f"//{address}").netloc  # a path may follow
        except ValueError:
            return None
    place = host_port_of(address)
    own_port = int(config.get_option("browser.serverPort"))
    return place and place._replace(port=place.port or own_port)


def refusal(origins: list[str], hosts: list[str]) -> str:
    """Return why a page may not open a session, as one sentence; an empty text if it may.

    Args:
        origins: the Origin headers of its request. Programs send none.
        hosts: the Host headers.
    """
    if not origins or not config.get_option("server.enableCORS"):
        return ""
    page = origin_of(origins[0]) if len(origins) == 1 else None
    if page is None:
        return "The Origin header of this request does not name one origin, so no session was opened."
    here = host_port_of(hosts[0]) if len(hosts) == 1 else None
    own = filter(None, (here, own_address()))
    if any(map(page.is_at, own)) or page in map(origin_of, _listed()):
        return ""
    reached = f"at the host {hosts[0][:200]}" if here else "without a valid Host header"
    return (
        f"A page from {origins[0][:300]} may not open a session with this server, which was reached "
        f"{reached}. If that page is this app behind a proxy, let the proxy pass the Host header on "
        f"unchanged, or add the origin to {SETTING}."
    )


class Origins:
    """Let only pages from allowed origins open a session, and tell the others why not.

    Args:
        app: the application behind this one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._logged = Rate(burst=5, per_second=1 / 60)  # other sites must not fill the log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a websocket's request; pass it on without its Origin, so that Streamlit looks nothing up.

        A POST to the same address is answered with the reason, which a refused websocket does not tell a
        page. Only st.login, which the app does not use, reads the header later.
        """
        question = scope["type"] == "http" and scope["method"] == "POST" and scope["path"].endswith(SESSIONS)
        if scope["type"] != "websocket" and not question:
            await self.app(scope, receive, send)
            return
        asked = Headers(scope=scope)
        problem = refusal(asked.getlist("origin"), asked.getlist("host"))
        if question:
            await PlainTextResponse(problem, 403 if problem else 200)(scope, receive, send)
            return
        if not problem:
            others = [(name, value) for name, value in scope["headers"] if name != b"origin"]
            await self.app({**scope, "headers": others}, receive, send)
            return
        REFUSED.labels("origins").inc()
        if self._logged.allows(""):
            log.warning("%s", problem)
        await receive()  # the request to connect
        if "websocket.http.response" in scope.get("extensions", {}):
            await PlainTextResponse(problem, 403)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
