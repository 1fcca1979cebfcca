"""The store that the settings name, its upkeep, and how visitors are distinguished."""

import asyncio
import functools
import hashlib
import os

from pages.serving import settings
from pages.serving.network import network
from pages.serving.tensor_store.store import TensorStore, one_line
from pages.serving.tensor_store.upkeep import StoreLimits


def visitor_of(network_address: str | None) -> str:
    """Return a hash that stands for all visitors from one network address; for IPv6, from one /64 network.

    Args:
        network_address: None for a visitor on the server's own machine.
    """
    who = network(network_address or "local")
    return hashlib.sha256(who.encode()).hexdigest()[:16]


def opened_at(chosen: settings.Settings) -> TensorStore | None:
    """Return the store of these settings; None if sharing is off.

    Raises:
        SettingError: the folder can't be used.
    """
    if chosen.store.lower() == settings.OFF:
        return None
    url = chosen.store if "://" in chosen.store else os.path.abspath(os.path.expanduser(chosen.store))
    limits = StoreLimits(int(chosen.store_gb * 1e9), int(chosen.store_visitor_mb * 1e6), chosen.store_days * 86400)
    try:
        return TensorStore(url, limits)
    except ImportError as error:
        reason = f"which needs a package that is not installed ({one_line(error)})"
    except Exception as error:  # each file system has its own exceptions
        reason = f"which can't be used ({one_line(error)})"
    raise settings.SettingError(
        f"QUANTSCOPE_STORE is {chosen.store!r}, {reason}; it must be the path of a folder, an fsspec URL such as "
        f"s3://bucket/folder, or {settings.OFF}."
    )


@functools.cache
def current() -> TensorStore | None:
    """The store of this process; None if sharing is off.

    Raises:
        SettingError: as `opened_at`.
    """
    return opened_at(settings.current())


async def keep_tidy() -> None:
    """Delete old tensors at once and then every hour, even if nobody shares or opens any."""
    store = current()
    while store is not None:
        await asyncio.to_thread(store.tidy)
        await asyncio.sleep(3600)
