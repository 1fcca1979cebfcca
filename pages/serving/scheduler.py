"""The Dask scheduler that an operator names, at whose workers large checkpoints are measured; no visitor can.

One client serves all visitors. It is made when it is first needed, and again when its scheduler is back.
"""

import math
import threading
import time
from typing import TYPE_CHECKING

from pages.serving import settings
from pages.serving.log import log
from quantcore.errors import QuantError

if TYPE_CHECKING:  # optional
    from distributed import Client

RETRY = 30.0  # seconds after which a scheduler that did not answer is asked again
_SECONDS = 3.0  # that it may take to answer


class _Connection:
    """The client, and when the scheduler last did not answer."""

    def __init__(self) -> None:
        self._lock, self._failed = threading.Lock(), -math.inf
        self._client: Client | None = None

    def client(self, scheduler: str) -> "Client | None":
        """Return the client of a scheduler, None if it does not answer."""
        from quantcore.layerwise import connect  # with torch: only where it is needed

        with self._lock:
            if self._client is not None and self._client.status != "running":
                self._client.close()
                self._client = None
            if self._client is None and time.monotonic() - self._failed > RETRY:
                try:
                    self._client = connect(scheduler, _SECONDS)
                except QuantError as reason:
                    self._failed = time.monotonic()
                    log.warning("%s", reason)
            return self._client


_connection = _Connection()


def is_set() -> bool:
    """Whether the operator names a scheduler."""
    return bool(settings.current().scheduler)


def client() -> "Client | None":
    """Return the client of the operator's scheduler; None if none is named, or it does not answer."""
    return _connection.client(settings.current().scheduler) if is_set() else None
