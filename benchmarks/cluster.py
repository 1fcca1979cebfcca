"""How time falls with the workers of a Dask cluster: python benchmarks/cluster.py

Writes the headers of a model of 70 billion parameters in Llama's shapes, with sparse files for its zeros, and
measures its first weights in this process and at 1, 2, … workers of it. Then one worker measures all weights
of a model with as many, 1024 times smaller, which shows what handing them out costs. On a busy machine the
seconds say little: the processor time of the busiest worker is what it would take on an idle one. Prints
Markdown.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from distributed import Client, LocalCluster

import quantcore as qc
from benchmarks.smallest import sized
from quantcore.checkpoints import Checkpoint
from quantcore.layerwise import USUAL, outline, schemes_of

LAYERS = sized(80, 2)
SHAPES = {
    "self_attn.q_proj": (8192, 8192), "self_attn.k_proj": (1024, 8192), "self_attn.v_proj": (1024, 8192),
    "self_attn.o_proj": (8192, 8192), "mlp.gate_proj": (28672, 8192), "mlp.up_proj": (28672, 8192),
    "mlp.down_proj": (8192, 28672),
}  # fmt: skip
ENDS = {"model.embed_tokens.weight": (128256, 8192), "lm_head.weight": (128256, 8192)}
SMALL = 32  # by which both axes are divided in the model of small weights


def generate(folder: Path, divided: int) -> Checkpoint:
    """Write a shard per layer, and one of embeddings and head."""
    index = {}
    for i in range(LAYERS + 1):
        own = {f"model.layers.{i}.{name}.weight": shape for name, shape in SHAPES.items()}
        name, header, end = f"model-{i:05}.safetensors", {}, 0
        for tensor, (rows, columns) in (ENDS if i == LAYERS else own).items():
            shape = [rows // divided, columns // divided]
            size = 2 * shape[0] * shape[1]
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
            index[tensor], end = name, end + size
        text = json.dumps(header).encode()
        with (folder / name).open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            out.truncate(8 + len(text) + end)  # sparse: takes no space on disk
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return qc.checkpoints.open_checkpoint(folder)


def measured(checkpoint: Checkpoint, most: int, client: Client | None = None) -> tuple[float, float]:
    """Measure the first weights; return seconds, and those until workers had been checked."""
    schemes = schemes_of(USUAL)
    table = next(qc.sensitivity(checkpoint, schemes)).table
    others = list(outline(checkpoint, schemes).rows.items())[most:]
    table.rows |= others  # as if they were done
    start = time.perf_counter()
    steps = qc.sensitivity(checkpoint, schemes, table=table, client=client)
    next(steps)
    began = time.perf_counter()
    for _ in steps:
        pass
    return time.perf_counter() - began, began - start


def at(name: str, checkpoint: Checkpoint, most: int, workers: int) -> str:
    """Measure at some workers; return a line of the table."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        client.run(schemes_of, USUAL)  # they import it
        before, own = client.run(time.process_time), time.process_time()
        took, checked = measured(checkpoint, most, client)
        own = time.process_time() - own
        used = [after - before[worker] for worker, after in client.run(time.process_time).items()]
    return line(name, checkpoint, most, (took, sum(used), max(used), own, checked))


def line(name: str, checkpoint: Checkpoint, most: int, found: Sequence[float]) -> str:
    """Return a line of the table."""
    done = sum(tensor.num_bytes for tensor in list(checkpoint.tensors.values())[:most])
    cells = [name, str(most), *(f"{value:.2f}" for value in found), f"{done / found[1] / 1e6:.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--weights", type=int, default=4, help="how many of the first are measured")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    most = options.weights
    with tempfile.TemporaryDirectory() as large, tempfile.TemporaryDirectory() as small:
        checkpoint = generate(Path(large), sized(1, SMALL))
        elements = sum(tensor.num_bytes for tensor in checkpoint.tensors.values()) // 2
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        print(
            f"{elements / 1e9:.1f} billion parameters, {len(schemes_of(USUAL))} schemes, {cores} cores, ",
            end="",
        )
        print(f"load {os.getloadavg()[0]:.1f}\n")
        cpu = time.process_time()
        took, _ = measured(checkpoint, most)
        lines = [line("this process", checkpoint, most, (took, *[time.process_time() - cpu] * 2, 0.0, 0.0))]
        lines += [at(f"workers: {each}", checkpoint, most, each) for each in options.workers]
        checkpoint = generate(Path(small), SMALL)
        lines.append(at("small weights", checkpoint, len(checkpoint.tensors), 1))
    print(
        "| | weights | s | CPU of workers, s | of the busiest | of client, scheduler | check, s | MB/CPU s |"
    )
    print("|---|" + "---:|" * 7)
    print(*lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
