"""Reading GGUF tensors against copying their values, and the gguf package: benchmarks/checkpoints_gguf.py

For each block type, a file with one tensor of 4096 x 4096 elements and random bytes, on one thread; the file
is in the page cache. Each row opens the file, reads the tensor and dequantizes it into a new tensor, as the
gguf package does. The unit is y.copy_(x) of the values into an existing tensor, timed before each. Peak: how
much memory reading takes beyond the values. Prints Markdown; exits with 1 if a budget is exceeded or the
package is faster.
"""

import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from benchmarks.quantize import ROUNDS, Case, median_times, verdict
from benchmarks.smallest import sized
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.ggml import BLOCK_TYPES, BlockType
from tests.support.gguf_bytes import gguf, info

ROWS = COLUMNS = sized(4096, 256)
GRIDS, OTHERS = 40.0, 15.0  # copies
MEMORY = 16 * 2**20  # bytes


def write(folder: Path, kind: BlockType) -> Path:
    """A file with one tensor of the type."""
    blocks = ROWS * COLUMNS // kind.elements
    data = np.random.default_rng(0).integers(0, 256, (blocks, kind.num_bytes), dtype=np.uint8)
    fields = kind.unpack(data)
    for name in {"d", "dmin", "m"} & fields.keys():  # finite, as in every file
        fields[name][...] = 0.01
    path = folder / f"{kind.name}.gguf"
    path.write_bytes(gguf([info("weight", (COLUMNS, ROWS), kind.type_id, 0)], kind.pack(fields).tobytes()))
    return path


def library(path: Path) -> Case | None:
    """The same with the gguf package; None if it does not support the type."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    def run() -> object:
        tensor = GGUFReader(path).tensors[0]
        return dequantize(tensor.data, tensor.tensor_type)

    try:
        run()
    except (NotImplementedError, ValueError):
        return None
    return run


def peak(path: Path) -> int:
    """The peak number of bytes used while the tensor is read, beyond its values."""
    tensor = open_checkpoint(path).tensors["weight"]
    tracemalloc.start()
    values = tensor.read()
    most = tracemalloc.get_traced_memory()[1] - values.nbytes
    tracemalloc.stop()
    return most


def rows(folder: Path, unit: Case) -> Iterator[tuple[str, bool]]:
    """Measure each type; yield a row of the table and whether it is within the budgets."""
    for kind in BLOCK_TYPES.values():
        path = write(folder, kind)
        cases: dict[str, Case] = {"ours": lambda path=path: open_checkpoint(path).tensors["weight"].read()}
        theirs = library(path)
        if theirs is not None:
            cases["theirs"] = theirs
        copy, times = median_times(unit, cases)
        budget = GRIDS if kind.name.startswith("IQ") else OTHERS
        ratio, most = times["ours"] / copy, peak(path)
        other = f"{times['theirs'] / copy:.1f}" if theirs else "not supported"
        yield (
            f"| {kind.name} | {times['ours'] * 1e3:.0f} | {ratio:.1f} | {verdict(ratio, budget)} | {other} | "
            f"{most / 1e6:.1f} |",
            ratio <= budget and times["ours"] <= times.get("theirs", np.inf) and most <= MEMORY,
        )
        path.unlink()


def main() -> int:
    torch.set_num_threads(1)
    x = torch.randn(ROWS, COLUMNS)
    y = torch.empty_like(x)
    print(f"## Reading a GGUF tensor of {ROWS} x {COLUMNS}, one thread, {ROUNDS} rounds\n")
    print(
        "| type | ms | copies | budget | gguf package, copies | peak beyond the values, MB "
        "|\n|---|---:|---:|---:|---:|---:|"
    )
    good = True
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        for row, within in rows(Path(folder), lambda: y.copy_(x)):
            print(row, flush=True)
            good = good and within
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
