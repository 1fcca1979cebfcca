"""What a process takes of the machine."""

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def processor_time(process: int) -> float:
    """Seconds that a process and its ended children have used."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK


def resident(process: int) -> float:
    """MB (10⁶ bytes) of resident memory of a process at the moment."""
    pages = int(Path(f"/proc/{process}/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
