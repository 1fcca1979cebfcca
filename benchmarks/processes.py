"""CPU time and memory of a process."""

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def processor_time(process: int) -> float:
    """CPU seconds used by a process and its ended children."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK


def resident(process: int) -> float:
    """Current resident memory of a process in MB (10⁶ bytes)."""
    pages = int(Path(f"/proc/{process}/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
