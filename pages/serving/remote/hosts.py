"""The hosts that the operator lets the server read checkpoints from, and URLs as checked against them."""

import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from pages.serving.settings import OFF, PREFIX, SettingError
from quantcore.errors import QuantError
from quantcore.wording import short

HTTPS, HUB, BUCKETS = "https", "hf", "s3"
SCHEMES = (HTTPS, HUB, BUCKETS)
MAX_URL = 8192
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"({_LABEL}\.)*{_LABEL}")


class Host(NamedTuple):
    """A name in lower case and ASCII, without a dot at its end, and a port."""

    name: str
    port: int

    def __str__(self) -> str:
        return self.name if self.port == 443 else f"{self.name}:{self.port}"


@dataclass(frozen=True)
class Url:
    """An https URL: its host, and the path and query as they are sent."""

    host: Host
    target: str

    @classmethod
    def parse(cls, text: str) -> "Url":
        """Return a URL.

        Raises:
            QuantError: it is malformed, not https, or contains a user name or a #.
        """
        if len(text) > MAX_URL:
            raise QuantError(f"The address has {len(text):,} characters; give one with at most {MAX_URL:,}.")
        if re.search(r"[\x00-\x20\x7f\\]", text) or not text.isprintable():
            raise QuantError(
                "The address contains a space, a backslash or an invisible character; correct it."
            )
        try:
            parts = urlsplit(text)
        except ValueError:
            raise QuantError(f"{short(text, 120)} is not a URL; check the address.") from None
        if parts.scheme != HTTPS:
            raise QuantError(
                f"{short(text, 120)} is not an https address; give one that begins with https://."
            )
        if "@" in parts.netloc:
            raise QuantError("The address contains a user name, but no credentials are sent; leave it out.")
        if "#" in text:
            raise QuantError(
                "The address contains a #, which is not sent to a server; leave it out or write %23."
            )
        path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
        query = quote(parts.query, safe="/%:@!$&'()*+,;=~?")
        return cls(host_of(parts.netloc), f"{path}?{query}" if query else path)

    def __str__(self) -> str:
        return f"{HTTPS}://{self.host}{self.target}"


def host_of(text: str) -> Host:
    """Return a host by its name, with a port if it is not 443.

    Raises:
        QuantError: it is an IP address instead of a name, or malformed.
    """
    name, colon, port = text.rpartition(":") if re.search(r":\d*$", text) else (text, "", "")
    try:
        name = name.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        name = ""
    last = name.rpartition(".")[2]
    number = int(port) if port and len(port) <= 5 else 443
    # a name whose last part is a number is another way to write an IPv4 address
    if not _NAME.fullmatch(name) or len(name) > 253 or re.fullmatch(r"\d+|0x[0-9a-f]*", last):
        raise QuantError(f"{short(text, 120)} is not a host name; give a name instead of an IP address.")
    if (colon and not port) or len(port) > 5 or not 0 < number < 65536:
        raise QuantError(f"{short(text, 120)} does not have a port from 1 to 65535; correct it.")
    return Host(name, number)


@dataclass(frozen=True)
class Hosts:
    """What the operator allows.

    Attributes:
        https: hosts whose https addresses visitors may open.
        hub: the host of hf:// addresses; None: they can't be opened.
        buckets: the host of s3:// addresses.
        delivery: hosts that these may redirect to; ``*.name`` matches all names below ``name``.
    """

    https: frozenset[Host] = frozenset()
    hub: Host | None = None
    buckets: Host | None = None
    delivery: frozenset[str] = frozenset()

    def schemes(self) -> list[str]:
        """Return the schemes of addresses that visitors may open."""
        return [s for s, on in zip(SCHEMES, (self.https, self.hub, self.buckets), strict=True) if on]

    def reaches(self, host: Host) -> bool:
        """Tell whether anything may be read from a host, if only after a redirect."""
        if host in self.https or host in (self.hub, self.buckets) or str(host) in self.delivery:
            return True
        parents = (host.name.split(".", n)[-1] for n in range(1, host.name.count(".") + 1))
        return host.port == 443 and any(f"*.{parent}" in self.delivery for parent in parents)


def parse_hosts(text: str) -> Hosts:
    """Return the hosts of the setting: separated by spaces or commas; empty or "off": none.

    Raises:
        SettingError: one is not a host, or there are two for hf or s3.
    """
    words = [] if text.lower() == OFF else re.split(r"[\s,]+", text.strip())
    found: dict[str, set[Host]] = {scheme: set() for scheme in SCHEMES}
    delivery = []
    for word in filter(None, words):
        scheme, separator, name = word.rpartition("://")
        try:
            if not separator:
                delivery.append(_pattern(word))
            elif scheme.lower() in found:
                found[scheme.lower()].add(host_of(name.rstrip("/")))
            else:
                prefixes = ", ".join(f"{each}://" for each in SCHEMES)
                raise QuantError(f"{short(word, 120)} does not begin with {prefixes}.")
        except QuantError as error:
            raise SettingError(f"{PREFIX}MODEL_HOSTS can't be used: {error}") from None
    for scheme in (HUB, BUCKETS):
        if len(found[scheme]) > 1:
            problem = f"names {len(found[scheme])} hosts for {scheme}://; name one."
            raise SettingError(f"{PREFIX}MODEL_HOSTS {problem}")
    hub, buckets = (next(iter(found[scheme]), None) for scheme in (HUB, BUCKETS))
    return Hosts(frozenset(found[HTTPS]), hub, buckets, frozenset(delivery))


def _pattern(word: str) -> str:
    stem = word.removeprefix("*.")
    host = host_of(stem)
    if stem != word and (host.port != 443 or "." not in host.name):
        raise QuantError(f"{short(word, 120)} must stand for names with at least two parts, on port 443.")
    return f"*.{host.name}" if stem != word else str(host)
