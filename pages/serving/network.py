"""Network addresses: what counts as one visitor's, and which are of this machine alone."""

from ipaddress import IPv6Address, ip_address, ip_network


def network(address: str) -> str:
    """What counts as one address: of IPv6 the /64 network, in which one visitor may have them all.

    >>> network("203.0.113.7"), network("::ffff:203.0.113.7"), network("2001:db8::1:2:3:4")
    ('203.0.113.7', '203.0.113.7', '2001:db8::/64')
    """
    try:
        found = ip_address(address.partition("%")[0])  # what follows names a network card of this machine
    except ValueError:  # a proxy may name its visitors otherwise
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((found, 64), strict=False))
    return str(found)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what is served at ``host``, an address or a name.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
