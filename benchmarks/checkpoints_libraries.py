"""Reading releases that libraries wrote, against their own readers: python benchmarks/checkpoints_libraries.py

Releases with one weight of 2048 x 2048, one thread; they are in the system's cache of files. quantcore opens the release,
reads the weight and dequantizes it, into a tensor that is reused and into a new one; with the library, the file is loaded
by safetensors, and what it holds, made before, is dequantized and widened to float32. The unit is y.copy_(x) of the values into an
existing tensor, timed in the same rounds. Prints Markdown; exits 1 when bitsandbytes is over its budget.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from safetensors.torch import load_file, save_file

from benchmarks.quantize import ROUNDS, median_times, verdict
from quantcore.checkpoints import open_checkpoint

N, BUDGET = 2048, 15.0
# name, stored tensors, metadata of the header, the library's own dequantized weight
Release = tuple[str, dict[str, torch.Tensor], dict[str, str] | None, Callable[[], torch.Tensor]]


def bitsandbytes(weight: torch.Tensor) -> Iterator[Release]:
    import bitsandbytes.functional as functional

    for kind, nested in (("nf4", False), ("nf4", True), ("fp4", False)):
        packed, state = functional.quantize_4bit(
            weight.bfloat16(), quant_type=kind, compress_statistics=nested
        )
        own = {f"m.weight.{k}": v for k, v in state.as_dict(packed=True).items()}
        read = lambda packed=packed, state=state: functional.dequantize_4bit(packed, state)  # noqa: E731
        yield f"bitsandbytes {kind}{' nested' * nested}", {"m.weight": packed, **own}, None, read
    codes, scale, _ = functional.int8_vectorwise_quant(weight.half())
    pieces = {"m.weight": codes, "m.SCB": scale}
    yield "bitsandbytes int8", pieces, None, lambda: functional.int8_vectorwise_dequant(codes, scale)


def hqq(weight: torch.Tensor) -> Iterator[Release]:
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    linear = torch.nn.Linear(N, N, bias=False)
    linear.weight.data.copy_(weight)
    for bits, axis in ((4, 1), (4, 0), (3, 1), (8, 1)):
        config = BaseQuantizeConfig(nbits=bits, group_size=64, axis=axis)
        config["weight_quant_params"]["optimize"] = False
        layer = HQQLinear(linear, config, compute_dtype=torch.float16, device="cpu", del_orig=False)
        state = {f"m.{k}": v for k, v in layer.state_dict().items() if v is not None}
        yield f"hqq int{bits} axis {axis}", state, None, layer.dequantize


def optimum_quanto(weight: torch.Tensor) -> Iterator[Release]:
    from optimum import quanto

    for kind in ("qint4", "qint8"):
        model = torch.nn.Sequential()
        model.add_module("m", torch.nn.Linear(N, N, dtype=torch.bfloat16))
        model.m.weight.data.copy_(weight)  # type: ignore[operator, union-attr]
        quanto.quantize(model, weights=getattr(quanto, kind))
        quanto.freeze(model)
        yield f"quanto {kind}", model.state_dict(), None, model.m.weight.dequantize  # type: ignore[union-attr, misc]


def torchao(weight: torch.Tensor) -> Iterator[Release]:
    import torchao.quantization as ao
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    def quantized(config: Any) -> Any:
        model = torch.nn.Sequential(torch.nn.Linear(N, N, bias=False, dtype=torch.bfloat16))
        model[0].weight.data.copy_(weight)
        ao.quantize_(model, config)
        return model[0].weight

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
        yield f"torchao {name}", pieces, metadata, tensor.dequantize


def row(folder: Path, release: Release) -> bool:
    """Print one line of the table; return whether it is within its budget, if it has one."""
    name, pieces, metadata, theirs = release
    save_file({k: v.contiguous() for k, v in pieces.items()}, folder / "model.safetensors", metadata)
    x = open_checkpoint(folder).tensors["m.weight"].read()
    y = torch.empty_like(x)
    cases: dict[str, Callable[[], object]] = {
        "reused": lambda: open_checkpoint(folder).tensors["m.weight"].read(out=y),
        "fresh": lambda: open_checkpoint(folder).tensors["m.weight"].read(),
        "library": lambda: (load_file(folder / "model.safetensors"), theirs().float()),
    }
    unit, times = median_times(lambda: y.copy_(x), cases)
    ratios = {case: time / unit for case, time in times.items()}
    bounded = name.startswith("bitsandbytes")
    print(
        f"| {name} | {ratios['reused']:.1f} | {ratios['fresh']:.1f} | {ratios['library']:.1f} | "
        f"{verdict(ratios['reused'], BUDGET) if bounded else ''} |"
    )
    return not bounded or ratios["reused"] <= BUDGET


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    weight = torch.randn(N, N)
    print(f"## Reading {N} x {N}, one thread, {ROUNDS} rounds\n")
    print("| format | copies, reused | copies, fresh | library | budget |")
    print("|---|---:|---:|---:|---:|")
    good = True
    for library in (bitsandbytes, hqq, optimum_quanto, torchao):
        for release in library(weight):
            with tempfile.TemporaryDirectory() as folder:
                good &= row(Path(folder), release)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
