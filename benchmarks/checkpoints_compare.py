"""Comparing two checkpoints: python benchmarks/checkpoints_compare.py [--gb 1] [--folder FOLDER]

For each format, a generated bfloat16 original (one shard per layer, Llama's shapes) and a quantized
checkpoint of 1 GB: GPTQ int4 in shards, and GGUF Q4_K with q and k permuted as llama.cpp does, so that both
row orders are tried. They are compared in a separate process, first on one thread, then on one per core, then
stopped at 40 % and continued in another process from the record on disk. Packed MB/s counts the bytes of the
quantized checkpoint per second of CPU time, which other processes affect little; in parentheses, the bytes of
both. "On all cores" is wall-clock time. Prints Markdown; exits with 1 if a budget is exceeded or a continued
comparison finds anything different. Needs 5 GB of disk, which are freed at the end.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.processes import resident
from benchmarks.smallest import sized
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison import CheckpointComparison, ComparisonState
from quantcore.checkpoints.ggml import BLOCK_TYPES
from tests.support.gguf_bytes import STRING, U32, gguf, info

RATE, FIRST, MEMORY = 50.0, 0.5, 600.0  # MB per second of CPU time; seconds; MB
HEADS, KEY_HEADS = 32, 8
SHAPES = {
    "self_attn.q_proj": ("attn_q", (4096, 4096)),
    "self_attn.k_proj": ("attn_k", (1024, 4096)),
    "self_attn.v_proj": ("attn_v", (1024, 4096)),
    "self_attn.o_proj": ("attn_output", (4096, 4096)),
    "mlp.gate_proj": ("ffn_gate", (14336, 4096)),
    "mlp.up_proj": ("ffn_up", (14336, 4096)),
    "mlp.down_proj": ("ffn_down", (4096, 14336)),
}
CONFIG = {"num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS}


def gptq_pieces(rows: int, columns: int) -> dict[str, torch.Tensor]:
    """Random codes, symmetric zeros (v1), scales about 0.01."""
    words = torch.randint(-(2**31), 2**31 - 1, (columns // 8, rows), dtype=torch.int32)
    return {
        "qweight": words,
        "qzeros": torch.full((columns // 128, rows // 8), 0x77777777, dtype=torch.int32),
        "scales": (0.005 + 0.01 * torch.rand(columns // 128, rows)).half(),
        "g_idx": torch.arange(columns, dtype=torch.int32) // 128,
    }


def q4_k(rows: int, columns: int) -> bytes:
    """Random super-blocks with moderate scales."""
    kind = BLOCK_TYPES["Q4_K"]
    data = np.random.default_rng(0).integers(0, 256, (rows * columns // 256, kind.num_bytes), dtype=np.uint8)
    fields = kind.unpack(data)
    fields["d"][...], fields["dmin"][...] = 0.0005, 0.003
    return kind.pack(fields).tobytes()


def layers(gigabytes: float) -> int:
    per_layer = sum(rows * columns for _, (rows, columns) in SHAPES.values()) * 4.25 / 8
    return max(1, round(gigabytes * 1e9 / per_layer))


def noisy(values: torch.Tensor) -> torch.Tensor:
    """An original: the values with an error such as int4 would cause."""
    return (values + 0.05 * values.std() * torch.randn_like(values)).bfloat16()


def write_original(folder: Path, values: dict[str, torch.Tensor], count: int) -> None:
    folder.mkdir()
    weight_map = {}
    for layer in range(count):
        shard = f"model-{layer + 1:05}-of-{count:05}.safetensors"
        tensors = {f"model.layers.{layer}.{name}.weight": v for name, v in values.items()}
        save_file(tensors, folder / shard)
        weight_map |= dict.fromkeys(tensors, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(CONFIG))


def write_gptq(folder: Path, count: int) -> tuple[Path, Path]:
    """A GPTQ release in shards, and its original."""
    quantized, values = folder / "quantized", {}
    quantized.mkdir()
    pieces = {name: gptq_pieces(*shape) for name, (_, shape) in SHAPES.items()}
    weight_map = {}
    for layer in range(count):
        shard = f"model-{layer + 1:05}-of-{count:05}.safetensors"
        stored = {
            f"model.layers.{layer}.{name}.{role}": piece
            for name, own in pieces.items()
            for role, piece in own.items()
        }
        save_file(stored, quantized / shard)
        weight_map |= dict.fromkeys(stored, shard)
    (quantized / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
    (quantized / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": config}))
    opened = open_checkpoint(quantized)
    for name in SHAPES:
        values[name] = noisy(opened.tensors[f"model.layers.0.{name}.weight"].read())
    write_original(folder / "original", values, count)
    return folder / "original", quantized


def write_gguf(folder: Path, count: int) -> tuple[Path, Path]:
    """A GGUF file of Q4_K, and its original."""
    path = folder / "quantized.gguf"
    kind, infos, offset = BLOCK_TYPES["Q4_K"], [], 0
    data = {name: q4_k(*shape) for name, (_, shape) in SHAPES.items()}
    for layer in range(count):
        for name, (own, (rows, columns)) in SHAPES.items():
            infos.append(info(f"blk.{layer}.{own}.weight", (columns, rows), kind.type_id, offset))
            offset += len(data[name])
    keys = [
        ("general.architecture", STRING, "llama"),
        ("llama.attention.head_count", U32, HEADS),
        ("llama.attention.head_count_kv", U32, KEY_HEADS),
    ]
    with path.open("wb") as file:
        file.write(gguf(infos, b"", keys))
        for _ in range(count):
            for name in SHAPES:
                file.write(data[name])
    opened, values = open_checkpoint(path), {}
    for name, (own, (rows, columns)) in SHAPES.items():
        found = opened.tensors[f"blk.0.{own}.weight"].read()
        heads = {"self_attn.q_proj": HEADS, "self_attn.k_proj": KEY_HEADS}.get(name)
        if heads:  # the file has the two halves of each head interleaved
            found = (
                found.reshape(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
            )
        values[name] = noisy(found)
    write_original(folder / "original", values, count)
    return folder / "original", path


def child(original: str, quantized: str, threads: int, stop: float, record: str) -> None:
    """Compare in a separate process, and print time and memory as JSON."""
    torch.set_num_threads(1)
    before, began, at_work = resident(os.getpid()), time.perf_counter(), time.process_time()
    comparison = CheckpointComparison(open_checkpoint(original), open_checkpoint(quantized))
    state = None
    if record and Path(record).exists():
        state = ComparisonState.of_dict(json.loads(Path(record).read_text()))
    first, peak, steps = 0.0, before, comparison.steps(state, threads)
    for number, step in enumerate(steps):
        if number == 1:  # step 0 comes before anything is read
            first = time.perf_counter() - began
        if number % 20 == 0:
            peak = max(peak, resident(os.getpid()))
        if stop and step.done > stop * comparison.total:
            Path(record).write_text(json.dumps(step.state.as_dict()))
            break
    steps.close()
    took, worked = time.perf_counter() - began, time.process_time() - at_work
    print(json.dumps({
        "first": first, "took": took, "worked": worked, "memory": peak - before,
        "state": step.state.as_dict(),
        "permuted": sum(result.order != "as stored" for result in comparison.results(step.state)),
        "packed": sum(tensor.num_bytes for tensor in comparison.other.tensors.values()),
        "total": comparison.total,
    }))  # fmt: skip


def run(pair: tuple[Path, Path], threads: int, stop: float = 0.0, record: str = "") -> dict:
    arguments = ["--child", *map(str, pair), str(threads), str(stop), record]
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gb", type=float, default=sized(1.0, 0.01))
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    cores, failed = len(os.sched_getaffinity(0)), False
    print("| quantized | packed, per core | on all cores | first progress | extra memory | continued |")
    print("|---|---:|---:|---:|---:|---|")
    for name, write in (("GPTQ int4", write_gptq), ("GGUF Q4_K", write_gguf)):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            pair = write(Path(folder), layers(options.gb))
            one, all_ = run(pair, 1), run(pair, cores)
            record = f"{folder}/record.json"
            stopped = run(pair, 1, 0.4, record)
            again = run(pair, cores, 0.0, record)
        same = one["state"] == all_["state"] == again["state"] != stopped["state"]
        rate, both = (one[key] / one["worked"] / 1e6 for key in ("packed", "total"))
        fast = all_["packed"] / all_["took"] / 1e6
        over = rate < RATE or one["first"] > FIRST or one["memory"] > MEMORY or not same
        failed |= over
        print(
            f"| {name}, {one['packed'] / 1e9:.2f} GB, {one['permuted']} permuted | {rate:.0f} MB/s "
            f"({both:.0f}) | {fast:.0f} MB/s | {one['first']:.2f} s | {one['memory']:.0f} MB | "
            f"{'equal' if same else 'DIFFERENT'} |" + (" over budget" if over else "")
        )
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        original, quantized, threads, stop, record = sys.argv[2:]
        child(original, quantized, int(threads), float(stop), record)
    else:
        sys.exit(main())
