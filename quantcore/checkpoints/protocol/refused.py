"""A weight that can't be read: it is listed, and every access raises the reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from quantcore.checkpoints.protocol.fields import Field
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.errors import QuantError


@dataclass(frozen=True, eq=False)
class Refused(Layout):
    """A weight whose stored tensors don't fit each other or their config; ``reason``: one sentence; ``cause``: equal
    for weights that are refused for the same reason.
    """

    reason: str
    cause: str = ""

    @property
    def storage(self) -> str:
        """That it can't be read."""
        return "can't be read"

    def _refuse(self) -> NoReturn:
        raise QuantError(self.reason)

    @property
    def element(self) -> NoReturn:
        """Raises `reason`."""
        self._refuse()

    @property
    def granularity(self) -> NoReturn:
        """Raises `reason`."""
        self._refuse()

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Raises `reason`."""
        self._refuse()
