"""The option `--smallest` of every benchmark: the smallest size and one round, to see that it runs."""

import os
import sys
from typing import TypeVar

T = TypeVar("T")
OPTION, _ASKED = "--smallest", "SMALLEST_BENCHMARK"
if OPTION in sys.argv:
    sys.argv.remove(OPTION)
    os.environ[_ASKED] = "1"  # also for the processes that a benchmark starts


def sized(usual: T, smallest: T) -> T:
    """Return the size to measure."""
    return smallest if _ASKED in os.environ else usual
