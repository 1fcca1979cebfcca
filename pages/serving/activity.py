"""What visitors are doing at this moment, so that what the server does by itself gives way to them."""

import asyncio
import time

QUIET = 1.0  # seconds since the last request or run; a browser's requests for a page follow each other faster
PATIENCE = 10.0  # seconds after which a step comes all the same, or a busy server would never be warm
_STEP = 0.05  # seconds between two looks


class Activity:
    """The runs of visitors that are in work, and when the last request came or the last run ended."""

    def __init__(self) -> None:
        self.runs = 0
        self._last = -QUIET

    def seen(self) -> None:
        """Record that a visitor's browser has asked for something."""
        self._last = time.monotonic()

    def begin(self) -> None:
        """Record the beginning of a visitor's run."""
        self.runs += 1
        self.seen()

    def end(self) -> None:
        """Record the end of a visitor's run."""
        self.runs -= 1
        self.seen()

    async def rest(self, patience: float = PATIENCE) -> bool:
        """Wait until no run is in work and nothing was asked for `QUIET` seconds; tell whether that came.

        Args:
            patience: seconds to wait at most.
        """
        until = time.monotonic() + patience
        while self.runs or time.monotonic() - self._last < QUIET:
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(_STEP)
        return True


VISITORS = Activity()  # recorded by the middleware `Metrics`, which sees every request and every run
