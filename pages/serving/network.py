"""Network addresses: which count as one visitor's, which only this machine reaches, and which are public."""

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

_IN_CONTAINER = (Path("/.dockerenv"), Path("/run/.containerenv"))
_GLOBAL_UNICAST = IPv6Network("2000::/3")  # all that has been assigned
_NAT64 = IPv6Network("64:ff9b::/96")
# Protocol assignments, relays of 6to4, documentation: Python's is_global lets (parts of) these through
_SPECIAL = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv6Network("3fff::/20"))


def network(address: str) -> str:
    """Return what counts as one address: for IPv6 the /64 network, all of which one visitor may have.

    >>> network("203.0.113.7"), network("::ffff:203.0.113.7"), network("2001:db8::1:2:3:4")
    ('203.0.113.7', '203.0.113.7', '2001:db8::/64')
    """
    try:
        found = ip_address(address.partition("%")[0])  # after it: a network interface of this machine
    except ValueError:  # a proxy may name its visitors in another way
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((found, 64), strict=False))
    return str(found)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach what is served at ``host``, an address or a name.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_in_network() -> str | None:
    """Return the address at which others in its network reach this machine; None if it is in none.

    This machine's routes tell it: nothing is sent.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))  # documentation's; any address beyond this network would do
            found: str = asking.getsockname()[0]
        except OSError:
            return None
    return None if is_loopback(found) or found == "0.0.0.0" else found


def in_container() -> bool:
    """Tell whether this is a container, whose address others in its machine's network do not reach."""
    return any(file.exists() for file in _IN_CONTAINER)


def is_public(address: str) -> bool:
    """Tell whether an address is one host's on the public internet, or embeds an IPv4 address that is.

    >>> [is_public(at) for at in ("93.184.216.34", "10.0.0.1", "::ffff:10.0.0.1", "2002:a00:1::")]
    [True, False, False, False]
    """
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if found not in _GLOBAL_UNICAST or found.scope_id:
            return False
    special = any(found in network for network in _SPECIAL if network.version == found.version)
    return found.is_global and not (found.is_multicast or found.is_reserved or special)
