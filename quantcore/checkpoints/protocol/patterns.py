"""Regular expressions of a config that match module names; they come from a file, so their time is bounded."""

import re
import time

from quantcore.errors import QuantError
from quantcore.wording import short

_SECONDS = 5.0  # for all patterns of a config
_REPEATS = re.compile(r"[*+}]")
_NESTED = re.compile(r"[*+}]\??\)[*+{]")


class Patterns:
    """Matches regular expressions against module names, and keeps track of the time spent."""

    def __init__(self) -> None:
        self._spent = 0.0

    def matches(self, pattern: str, module: str) -> bool:
        """Whether a pattern matches a name from its start.

        Raises:
            QuantError: the pattern can't be read, or all of them take too long.
        """
        # nested repeats, or many in a row, can take time exponential in the length of the name
        if len(pattern) > 1000 or len(module) > 1000 or _NESTED.search(pattern):
            raise QuantError(
                f"The pattern {short(pattern)} of the config is too complex; write a simpler one."
            )
        if len(_REPEATS.findall(pattern)) > 4 or self._spent > _SECONDS:
            raise QuantError(
                f"The patterns of the config, such as {short(pattern)}, can take too long; simplify them."
            )
        start = time.perf_counter()
        try:
            return re.match(pattern, module) is not None
        except (re.error, RecursionError, OverflowError):
            raise QuantError(
                f"The pattern {short(pattern)} of the config can't be read; correct it."
            ) from None
        finally:
            self._spent += time.perf_counter() - start
