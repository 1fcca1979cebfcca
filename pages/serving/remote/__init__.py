"""Checkpoints on hosts that the operator allows: the addresses that visitors type, and the folders behind them."""

import functools

from pages.serving import settings
from pages.serving.remote.client import Client
from pages.serving.remote.folders import locate
from pages.serving.remote.hosts import Hosts, parse_hosts


@functools.cache
def current() -> Client:
    """Return the client of this process, which reads from the hosts of the settings.

    Raises:
        SettingError: the setting can't be used.
    """
    return Client(parse_hosts(settings.current().model_hosts))
