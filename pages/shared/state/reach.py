"""Where phones reach this server: a page that is open at a local address is at another one for them."""

from urllib.parse import urlsplit

import streamlit as st

from pages.serving.network import address_in_network, in_container, is_loopback
from pages.shared import messages

EVERYWHERE = ("0.0.0.0", "::")  # addresses at which a server listens on every network


def is_local(address: str) -> bool:
    """Tell whether only its own machine reaches an address of this server."""
    return is_loopback(urlsplit(address).hostname or "")


def for_phones(address: str) -> str:
    """Return an address of this server as phones reach it: at this machine's own, if it is a local one.

    It stays local where the server is reached in no other way, or the machine's own address is unknown.
    """
    serves = st.get_option("server.address") or EVERYWHERE[0]
    may = is_local(address) and serves in EVERYWHERE and not in_container()
    own = address_in_network() if may else None
    if own is None:
        return address
    parts = urlsplit(address)
    port = f":{parts.port}" if parts.port else ""
    return parts._replace(netloc=f"{own}{port}").geturl()


def tell(address: str, join: str) -> None:
    """Say where phones reach this server, if ``address``, at which this page is open, is a local one.

    Args:
        address: of a page.
        join: how the sentence begins; it goes on with the address, up to the page.
    """
    if not is_local(address):
        return
    there = for_phones(address)
    if there == address:
        messages.warning(
            "Phones can't reach this address: open this page at the machine's own name or address, and "
            "start the server without an address such as localhost."
        )
        return
    messages.hint(
        f"{join} {there.partition('?')[0]}, this machine's own address. If one can't, this machine's "
        "firewall may block the port, or the network keeps its devices apart, as guest networks do: use a "
        "phone's hotspot then."
    )
