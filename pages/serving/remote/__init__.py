"""Checkpoints on hosts that the operator allows: addresses that visitors type, and folders behind them."""

import functools
from typing import TYPE_CHECKING

from pages.serving import settings
from pages.serving.remote.hosts import Hosts, parse_hosts

if TYPE_CHECKING:  # imported where a checkpoint is opened; the server starts without
    from pages.serving.remote.client import Client


def allowed() -> Hosts:
    """Return the hosts of the settings.

    Raises:
        SettingError: the setting can't be used.
    """
    return parse_hosts(settings.current().model_hosts)


@functools.cache
def current() -> "Client":
    """Return the client of this process, which reads from the hosts of the settings.

    Raises:
        SettingError: as `allowed`.
    """
    from pages.serving.remote.client import Client

    return Client(allowed())
