"""How much memory the process may use, according to Linux's files."""

import os
from pathlib import Path

from grid import for_each

from pages.serving.work import memory

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
GB = 10**9


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


V2, V1 = "sys__fs__cgroup", "sys__fs__cgroup__memory"


@for_each(
    ("files", "expected"),
    [
        ({}, MACHINE),
        ({"proc__self__cgroup": "0::/", f"{V2}__memory_dot_max": "max"}, MACHINE),
        ({"proc__self__cgroup": "0::/", f"{V2}__memory_dot_max": "1000000000"}, GB),
        # in a container, its own group is mounted as the root while its path is the host's
        ({"proc__self__cgroup": "0::/docker/1a2b", f"{V2}__memory_dot_max": "1000000000"}, GB),
        # the limit of an enclosing group counts, too
        (
            {
                "proc__self__cgroup": "0::/app/run",
                f"{V2}__app__run__memory_dot_max": "max",
                f"{V2}__app__memory_dot_max": "500000000",
                f"{V2}__memory_dot_max": "1000000000",
            },
            GB // 2,
        ),
        ({"proc__self__cgroup": "5:cpu:/\n4:memory:/", f"{V1}__memory_dot_limit_in_bytes": "1000000000"}, GB),
        ({"proc__self__cgroup": "4:memory:/", f"{V1}__memory_dot_limit_in_bytes": str(2**63 - 4096)}, MACHINE),
    ],
)  # fmt: skip
def test_the_least_of_machine_and_containers(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert memory.usable(write(tmp_path, **files)) == expected


def test_this_machine() -> None:
    assert 0 < memory.usable() <= MACHINE
