"""Reading releases that libraries wrote, against their readers: python benchmarks/checkpoints_libraries.py

Releases with one 4096 x 4096 weight, on one thread; the files are in the page cache. quantcore opens the
release, reads the weight and dequantizes it, into a reused tensor and into a new one. The library loads the
file with safetensors, creates its own object from it and dequantizes that, and the result is widened to
float32 if necessary. The unit is y.copy_(x) of the values into an existing tensor, timed in the same rounds.
Prints Markdown; exits with 1 if bitsandbytes is over its budget, a library is faster, or its values differ.
--size N: N x N.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from benchmarks.quantize import ROUNDS, median_times, verdict
from benchmarks.smallest import sized
from quantcore.checkpoints import open_checkpoint

# A layer of a model. Its values are new memory in every round, as when a model is loaded. Below 32 MB (--size
# 2048), glibc reuses what the last round freed, which spares a library the page faults that take most of its
# time, unless MALLOC_MMAP_THRESHOLD_=4000000 is in the environment.
SIZE, BUDGET = sized(4096, 256), 15.0
Pieces = dict[str, torch.Tensor]
# name, stored tensors, metadata of the header, and a function that turns what the library loaded into its
# weight
Release = tuple[str, Pieces, dict[str, str] | None, Callable[[Pieces, dict[str, str]], torch.Tensor]]


def loaded(path: Path) -> tuple[Pieces, dict[str, str]]:
    """The stored tensors and the metadata of a file, as libraries load them; bytes are read when used."""
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in list(file.keys())}, file.metadata() or {}


def bitsandbytes(weight: torch.Tensor) -> Iterator[Release]:
    import bitsandbytes.functional as functional

    def read_4bit(pieces: Pieces, _: dict[str, str]) -> torch.Tensor:
        packed = pieces.pop("m.weight")
        return functional.dequantize_4bit(
            packed, functional.QuantState.from_dict(pieces, torch.device("cpu"))
        )

    for kind, nested in (("nf4", False), ("nf4", True), ("fp4", False)):
        packed, state = functional.quantize_4bit(
            weight.bfloat16(), quant_type=kind, compress_statistics=nested
        )
        own = {f"m.weight.{k}": v for k, v in state.as_dict(packed=True).items()}
        yield f"bitsandbytes {kind}{' nested' * nested}", {"m.weight": packed, **own}, None, read_4bit
    codes, scale, _ = functional.int8_vectorwise_quant(weight.half())
    yield (
        "bitsandbytes int8",
        {"m.weight": codes, "m.SCB": scale},
        None,
        lambda pieces, _: functional.int8_vectorwise_dequant(pieces["m.weight"], pieces["m.SCB"]),
    )


def hqq(weight: torch.Tensor) -> Iterator[Release]:
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    def read(pieces: Pieces, _: dict[str, str]) -> torch.Tensor:
        layer = HQQLinear(None, None, compute_dtype=torch.float16, device="cpu", initialize=False)
        layer.load_state_dict({name.removeprefix("m."): piece for name, piece in pieces.items()})
        return layer.dequantize()

    linear = torch.nn.Linear(*weight.shape[::-1], bias=False)
    linear.weight.data.copy_(weight)
    for bits, axis in ((4, 1), (4, 0), (3, 1), (8, 1)):
        config = BaseQuantizeConfig(nbits=bits, group_size=64, axis=axis)
        config["weight_quant_params"]["optimize"] = False
        layer = HQQLinear(linear, config, compute_dtype=torch.float16, device="cpu", del_orig=False)
        state = {f"m.{k}": v for k, v in layer.state_dict().items() if v is not None}
        yield f"hqq int{bits} axis {axis}", state, None, read


def optimum_quanto(weight: torch.Tensor) -> Iterator[Release]:
    from optimum import quanto

    size, stride, missing = weight.size(), weight.stride(), []

    def read_qint4(pieces: Pieces, _: dict[str, str]) -> torch.Tensor:
        # not converted to its class for matrix units, from which dequantizing takes 40 times as long
        load = quanto.WeightQBitsTensor.load_from_state_dict
        return load(pieces, "m.weight.", quanto.qint4, 0, 128, size, stride, missing).dequantize()

    def read_qint8(pieces: Pieces, _: dict[str, str]) -> torch.Tensor:
        load = quanto.WeightQBytesTensor.load_from_state_dict
        return load(pieces, "m.weight.", quanto.qint8, 0, size, stride, None, missing).dequantize()

    for kind, read in (("qint4", read_qint4), ("qint8", read_qint8)):
        model = torch.nn.Sequential()
        model.add_module("m", torch.nn.Linear(*weight.shape[::-1], dtype=torch.bfloat16))
        model.m.weight.data.copy_(weight)  # type: ignore[operator, union-attr]
        quanto.quantize(model, weights=getattr(quanto, kind))
        quanto.freeze(model)
        yield f"quanto {kind}", model.state_dict(), None, read


def torchao(weight: torch.Tensor) -> Iterator[Release]:
    import torchao.quantization as ao
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
    from torchao.prototype.safetensors.safetensors_support import (
        flatten_tensor_state_dict,
        unflatten_tensor_state_dict,
    )

    def quantized(config: Any) -> Any:
        model = torch.nn.Sequential(torch.nn.Linear(*weight.shape[::-1], bias=False, dtype=torch.bfloat16))
        model[0].weight.data.copy_(weight)
        ao.quantize_(model, config)
        return model[0].weight

    def read(pieces: Pieces, metadata: dict[str, str]) -> torch.Tensor:
        return unflatten_tensor_state_dict(pieces, metadata)[0]["m.weight"].dequantize()

    groups = ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(32))
    tensors = {
        "Float8Tensor": quantized(ao.Float8WeightOnlyConfig()),
        "Int8Tensor": quantized(ao.Int8WeightOnlyConfig(version=2)),
        "IntxUnpackedToInt8Tensor": quantized(groups),
        "MXTensor fp4": MXTensor.to_mx(weight.bfloat16(), torch.float4_e2m1fn_x2, 32),
        "NVFP4Tensor": NVFP4Tensor.to_nvfp4(weight.bfloat16()),
    }
    for name, tensor in tensors.items():
        pieces, metadata = flatten_tensor_state_dict({"m.weight": tensor})
        yield f"torchao {name}", pieces, metadata, read


def row(folder: Path, release: Release) -> bool:
    """Print one line of the table; return whether it is within any budget and as fast as the library."""
    name, pieces, metadata, theirs = release
    path = folder / "model.safetensors"
    save_file({k: v.contiguous() for k, v in pieces.items()}, path, metadata)
    x = open_checkpoint(folder).tensors["m.weight"].read()
    y = torch.empty_like(x)
    cases: dict[str, Callable[[], torch.Tensor]] = {
        "reused": lambda: open_checkpoint(folder).tensors["m.weight"].read(out=y),
        "fresh": lambda: open_checkpoint(folder).tensors["m.weight"].read(),
        "library": lambda: theirs(*loaded(path)).float(),
    }
    same = torch.equal(cases["library"](), x)
    unit, times = median_times(lambda: y.copy_(x), cases)
    ratios = {case: time / unit for case, time in times.items()}
    bounded = name.startswith("bitsandbytes")
    slower = ratios["fresh"] > ratios["library"]
    print(
        f"| {name} | {ratios['reused']:.1f} | {ratios['fresh']:.1f} | {ratios['library']:.1f} | "
        f"{ratios['fresh'] / ratios['library']:.2f}{', SLOWER' * slower}{', OTHER VALUES' * (not same)} | "
        f"{verdict(ratios['reused'], BUDGET) if bounded else ''} |",
        flush=True,
    )
    return same and not slower and not (bounded and ratios["reused"] > BUDGET)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=SIZE)
    size = parser.parse_args().size
    torch.set_num_threads(1)
    torch.manual_seed(0)
    weight = torch.randn(size, size)
    print(f"## Reading {size} x {size}, one thread, {ROUNDS} rounds\n")
    print("| format | copies, reused | copies, fresh | library | ours / the library's | budget |")
    print("|---|---:|---:|---:|---:|---:|")
    good = True
    for library in (bitsandbytes, hqq, optimum_quanto, torchao):
        for release in library(weight):
            with tempfile.TemporaryDirectory() as folder:
                good &= row(Path(folder), release)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
