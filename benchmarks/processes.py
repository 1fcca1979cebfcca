"""What a process takes of the machine."""

import os
from pathlib import Path


def resident(process: int) -> float:
    """MB (10⁶ bytes) of resident memory of a process at the moment."""
    pages = int(Path(f"/proc/{process}/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
