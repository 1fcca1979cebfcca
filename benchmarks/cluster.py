"""How time falls with the workers of a Dask cluster: python benchmarks/cluster.py

Writes the headers of a model of 70 billion parameters in Llama's shapes, with sparse files for its zeros, and
measures its first layers in this process and at 1, 2, … workers of it. On a busy machine the seconds say
little: what bounds many workers follows from processor times. Prints Markdown.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from distributed import Client, LocalCluster

import quantcore as qc
from benchmarks.smallest import sized
from quantcore.checkpoints import Checkpoint
from quantcore.layerwise import USUAL, schemes_of

HIDDEN, WIDE, NARROW, VOCABULARY = sized((8192, 28672, 1024, 128256), (256, 512, 128, 1024))
LAYERS = sized(80, 2)
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (NARROW, HIDDEN),
    "self_attn.v_proj": (NARROW, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (WIDE, HIDDEN), "mlp.up_proj": (WIDE, HIDDEN), "mlp.down_proj": (HIDDEN, WIDE),
}  # fmt: skip
ENDS = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "lm_head.weight": (VOCABULARY, HIDDEN)}


def generate(folder: Path) -> None:
    """Write a shard per layer, and one of embeddings and head."""
    index = {}
    for i in range(LAYERS + 1):
        own = {f"model.layers.{i}.{name}.weight": shape for name, shape in SHAPES.items()}
        name, header, end = f"model-{i:05}.safetensors", {}, 0
        for tensor, (rows, columns) in (ENDS if i == LAYERS else own).items():
            size = 2 * rows * columns
            header[tensor] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [end, end + size]}
            index[tensor], end = name, end + size
        text = json.dumps(header).encode()
        with (folder / name).open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            out.truncate(8 + len(text) + end)  # sparse: takes no space on disk
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def measured(checkpoint: Checkpoint, most: int, client: Client | None = None) -> tuple[float, float, int]:
    """Measure the first weights; return seconds, those until workers had been checked, and bytes."""
    start = time.perf_counter()
    steps = qc.sensitivity(checkpoint, schemes_of(USUAL), client=client)
    next(steps)
    began = time.perf_counter()
    for step in steps:
        if step.row is not None and len(step.table.rows) == most:
            steps.close()
            break
    return time.perf_counter() - began, began - start, step.done


def at(checkpoint: Checkpoint, most: int, workers: int) -> list[str]:
    """Measure at some workers; return a line of the table."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        client.run(lambda: qc.layerwise.USUAL)  # they import it
        before, own = client.run(time.process_time), time.process_time()
        took, checked, done = measured(checkpoint, most, client)
        used = sum(client.run(time.process_time).values()) - sum(before.values())
        own = time.process_time() - own
    return line(f"{workers} worker{'s' * (workers > 1)}", took, used, own, checked, done)


def line(name: str, took: float, used: float, own: float, checked: float, done: int) -> list[str]:
    """Return the cells of a line."""
    return [name, f"{took:.1f}", f"{used:.1f}", f"{own:.2f}", f"{checked:.2f}", f"{done / used / 1e6:.0f}"]


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--weights", type=int, default=len(SHAPES), help="how many of the first are measured")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        checkpoint = qc.checkpoints.open_checkpoint(scratch)
        elements = sum(size.num_bytes for size in checkpoint.tensors.values()) // 2
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        print(
            f"{elements / 1e9:.1f} billion parameters in {len(checkpoint.tensors)} weights, of which the "
            f"first {options.weights} are measured;"
        )
        print(f"{len(schemes_of(USUAL))} schemes, {cores} cores, load {os.getloadavg()[0]:.1f}\n")
        cpu = time.process_time()
        took, _, done = measured(checkpoint, options.weights)
        lines = [line("this process", took, time.process_time() - cpu, 0.0, 0.0, done)]
        lines += [at(checkpoint, options.weights, workers) for workers in options.workers]
    print("| | s | CPU of workers, s | CPU of client and scheduler, s | check, s | MB per CPU second |")
    print("|---|" + "---:|" * 5)
    print(*(f"| {' | '.join(cells)} |" for cells in lines), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
