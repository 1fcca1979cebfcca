"""A checkpoint of about 5 GB on the page Models → Checkpoint, through the app's own protocol.

    python benchmarks/checkpoint_page.py [--layers 32] [--folder FOLDER]

Writes a sharded GPTQ checkpoint with the shapes of an 8B model and random codes (to `--folder` if given,
where it is kept for later runs, otherwise to a temporary folder), starts the app, and opens it by links, each
in its own session: the list, then tensors of every shape: the first view, rows in the middle, and the whole
tensor. Prints the seconds from the request to the end of the run, and the peak resident memory of the
process. Exits with 1 if a budget is exceeded.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]  # not tests, where `served` is another folder

import numpy as np
from served import Server, serve

from benchmarks.processes import resident
from benchmarks.smallest import sized
from benchmarks.visitor import Visitor

LIST_BUDGET, TENSOR_BUDGET, MEMORY_BUDGET = 2.0, 1.0, 600.0  # seconds, seconds, MB
HIDDEN, INNER, KEYS, GROUP, SHARDS = 4096, 14336, 1024, 128, 5
VOCABULARY = sized(128_256, 1024)
LINEAR = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KEYS, HIDDEN),
    "self_attn.v_proj": (KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
Pieces = dict[str, tuple[str, tuple[int, ...]]]  # name -> dtype and shape
SIZES = {"I32": 4, "F16": 2, "BF16": 2}


def stored(layers: int) -> list[Pieces]:
    """The stored tensors of each shard."""
    shards: list[Pieces] = [{} for _ in range(SHARDS)]
    shards[0]["model.embed_tokens.weight"] = "BF16", (VOCABULARY, HIDDEN)
    shards[-1]["lm_head.weight"] = "BF16", (VOCABULARY, HIDDEN)
    for layer in range(layers):
        shard, start = shards[layer * SHARDS // layers], f"model.layers.{layer}"
        for name, (rows, columns) in LINEAR.items():
            shard[f"{start}.{name}.qweight"] = "I32", (columns // 8, rows)
            shard[f"{start}.{name}.qzeros"] = "I32", (columns // GROUP, rows // 8)
            shard[f"{start}.{name}.scales"] = "F16", (columns // GROUP, rows)
            shard[f"{start}.{name}.g_idx"] = "I32", (columns,)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shard[f"{start}.{name}.weight"] = "BF16", (HIDDEN,)
    return shards


def content(name: str, dtype: str, shape: tuple[int, ...], noise: np.ndarray) -> bytes:
    """The bytes of a stored tensor: random codes, finite values."""
    count = int(np.prod(shape))
    if name.endswith("g_idx"):
        return (np.arange(count, dtype=np.int32) // GROUP).tobytes()
    if dtype == "I32":
        return bytes(noise[: 4 * count]) if 4 * count <= len(noise) else np.resize(noise, 4 * count).tobytes()
    words = np.resize(noise.view(np.uint16)[: 1 << 20], count) & np.uint16(0x83FF)  # a sign and a mantissa
    return (words | np.uint16(0x2400 if dtype == "F16" else 0x3C00)).tobytes()


def write(folder: Path, layers: int) -> None:
    """Write the checkpoint, unless it exists."""
    if (folder / "config.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.frombuffer(np.random.default_rng(0).bytes(1 << 25), np.uint8)
    places: dict[str, str] = {}
    for number, pieces in enumerate(stored(layers), 1):
        file, header, offset = f"model-{number:05}-of-{SHARDS:05}.safetensors", {}, 0
        for name, (dtype, shape) in pieces.items():
            size = SIZES[dtype] * int(np.prod(shape))
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
            offset += size
            places[name] = file
        text = json.dumps(header).encode()
        with (folder / file).open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for name, (dtype, shape) in pieces.items():
                out.write(content(name, dtype, shape, noise))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    quantization = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False}
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))


async def watch(process: int, peak: list[float]) -> None:
    """Record the peak memory of the server."""
    while True:
        peak[0] = max(peak[0], resident(process))
        await asyncio.sleep(0.01)


async def seconds(host: str, **parameters: str) -> float:
    """Open a link in its own session; return the seconds to the end of the run."""
    async with Visitor(host, "checkpoint", urlencode(parameters)) as visitor:
        began = time.perf_counter()
        await visitor.run()
        found = time.perf_counter() - began
    wrong = [text for text in visitor.texts if "can't" in text or "no tensor" in text]
    if wrong:
        raise SystemExit(f"{parameters}: {wrong[0]}")
    return found


async def measure(server: Server, name: str) -> bool:
    """Open the list and the tensors, print the table, and return whether all budgets are kept."""
    peak = [0.0]
    watching = asyncio.create_task(watch(server.process.pid, peak))
    rows: list[tuple[str, float, float | None]] = []
    before = resident(server.process.pid)
    rows.append(("the list, first time", await seconds(server.host, ck=name), LIST_BUDGET))
    rows.append(("the list again", await seconds(server.host, ck=name), LIST_BUDGET))
    tensors = [f"model.layers.{i}.{m}.weight" for i, m in enumerate(LINEAR)]
    for tensor in [*tensors, "model.layers.1.input_layernorm.weight", "model.embed_tokens.weight"]:
        short = tensor.removeprefix("model.").removesuffix(".weight")
        rows.append(
            (f"{short}, first view", await seconds(server.host, ck=name, ck_tensor=tensor), TENSOR_BUDGET)
        )
        if "norm" not in tensor:
            middle = {"ck_rows": "500:900", "ck_cols": "100:3000"}
            took = await seconds(server.host, ck=name, ck_tensor=tensor, **middle)
            rows.append((f"{short}, 400 rows in the middle", took, TENSOR_BUDGET))
    for tensor in ("model.layers.5.mlp.up_proj.weight", "lm_head.weight"):
        took = await seconds(server.host, ck=name, ck_tensor=tensor, ck_rows="all")
        rows.append((f"{tensor}, whole, with progress", took, None))
    watching.cancel()
    print("| what | measured | budget |\n|---|---:|---:|")
    for what, took, budget in rows:
        over = ", over budget" if budget and took > budget else ""
        print(f"| {what} | {took:.2f} s{over} | {f'{budget:g} s' if budget else ''} |")
    over = ", over budget" if peak[0] > MEMORY_BUDGET else ""
    print(f"| peak memory, {before:.0f} MB before | {peak[0]:.0f} MB{over} | {MEMORY_BUDGET:.0f} MB |")
    return peak[0] <= MEMORY_BUDGET and all(budget is None or took <= budget for _, took, budget in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=sized(32, 7))
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        models = options.folder or Path(scratch) / "models"
        write(models / "llama", options.layers)
        size = sum(file.stat().st_size for file in (models / "llama").iterdir())
        print(f"{size / 1e9:.2f} GB in {SHARDS} shards, {os.cpu_count()} cores")
        log = Path(scratch) / "server"
        log.mkdir()
        with serve(log, QUANTSCOPE_MODELS=str(models), QUANTSCOPE_WARM_UP="all") as server:
            server.await_warm()
            return 0 if asyncio.run(measure(server, "llama")) else 1


if __name__ == "__main__":
    sys.exit(main())
