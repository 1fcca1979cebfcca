"""Reading checkpoints against copying their values, and the libraries: python benchmarks/checkpoints.py

For each format, a release with one 4096 x 4096 weight and random codes, on one thread; the files are in the
page cache. Each row opens the release, reads the weight and dequantizes it: quantcore into a reused tensor
and into a new one, the libraries into a new one. The unit is y.copy_(x) of the values into an existing
tensor, timed in the same rounds. Memory: the extra peak of a child process that reads 4096 x 14336, beyond
the values. Prints Markdown; exits with 1 if a budget is exceeded or a library is faster.

GPTQModel's reader is timed if its sources are given: --gptqmodel FOLDER, unpacked from its sdist, because the
package itself needs a compiler.
"""

import argparse
import importlib
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from benchmarks.quantize import ROUNDS, Case, median_times, peak, verdict
from benchmarks.smallest import sized
from quantcore.checkpoints import open_checkpoint

SHAPE, MEMORY_SHAPE = sized((4096, 4096), (256, 256)), sized((4096, 14336), (256, 512))
BUDGET, PLAIN_BUDGET, MEMORY_BUDGET = 15.0, 4.0, 0.5  # copies; of the values
GENERATOR = torch.Generator().manual_seed(0)
Shape = tuple[int, int]
Release = tuple[dict[str, torch.Tensor], dict[str, Any]]  # stored tensors, quantization_config


def words(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31 - 1, shape, dtype=torch.int32, generator=GENERATOR)


def gptq(shape: Shape, bits: int, desc_act: bool = False) -> Release:
    rows, columns = shape
    groups = torch.arange(columns, dtype=torch.int32) // 128
    if desc_act:
        groups = groups[torch.randperm(columns, generator=GENERATOR)].contiguous()
    pieces = {
        "qweight": words(columns * bits // 32, rows),
        "qzeros": words(columns // 128, rows * bits // 32),
        "scales": torch.rand(columns // 128, rows).half(),
        "g_idx": groups,
    }
    return pieces, {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": 128,
        "desc_act": desc_act,
        "sym": False,
    }


def awq(shape: Shape) -> Release:
    rows, columns = shape
    pieces = {
        "qweight": words(columns, rows // 8),
        "qzeros": words(columns // 128, rows // 8),
        "scales": torch.rand(columns // 128, rows).half(),
    }
    return pieces, {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 128,
        "zero_point": True,
        "version": "gemm",
    }


def compressed(pieces: dict[str, torch.Tensor], form: str, **weights: Any) -> Release:
    group = {"targets": ["Linear"], "weights": {"symmetric": True, **weights}, "format": form}
    config = {"quant_method": "compressed-tensors", "format": form, "version": "0.20.0"}
    return pieces, config | {"config_groups": {"group_0": group}}


def packed(shape: Shape, bits: int) -> Release:
    rows, columns = shape
    pieces = {
        "weight_packed": words(rows, columns * bits // 32),
        "weight_scale": torch.rand(rows, columns // 128).bfloat16(),
        "weight_shape": torch.tensor(shape),
    }
    return compressed(pieces, "pack-quantized", num_bits=bits, type="int", group_size=128, strategy="group")


def fp8(shape: Shape) -> Release:
    pieces = {
        "weight": torch.randn(shape).to(torch.float8_e4m3fn),
        "weight_scale": torch.rand(shape[0], 1).bfloat16(),
    }
    return compressed(pieces, "float-quantized", num_bits=8, type="float", strategy="channel")


def nvfp4(shape: Shape) -> Release:
    rows, columns = shape
    pieces = {
        "weight_packed": torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8, generator=GENERATOR),
        "weight_scale": torch.rand(rows, columns // 16).to(torch.float8_e4m3fn),
        "weight_global_scale": torch.tensor([3.0]),
    }
    return compressed(
        pieces, "nvfp4-pack-quantized", num_bits=4, type="float", group_size=16, strategy="tensor_group"
    )


RELEASES: dict[str, Callable[[Shape], Release]] = {
    "gptq int4": lambda shape: gptq(shape, 4),
    "gptq int4 desc_act": lambda shape: gptq(shape, 4, desc_act=True),
    "gptq int3": lambda shape: gptq(shape, 3),
    "gptq int8": lambda shape: gptq(shape, 8),
    "awq int4": awq,
    "compressed-tensors int4": lambda shape: packed(shape, 4),
    "compressed-tensors int3": lambda shape: packed(shape, 3),
    "compressed-tensors e4m3fn": fp8,
    "compressed-tensors nvfp4": nvfp4,
    "plain bfloat16": lambda shape: ({"weight": torch.randn(shape).bfloat16()}, {}),
}


def write(folder: Path, release: Release) -> Path:
    """The release as files."""
    folder.mkdir()
    save_file({f"m.{name}": piece for name, piece in release[0].items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization_config": release[1]}))
    return folder


def read(folder: Path, out: torch.Tensor | None = None) -> torch.Tensor:
    return open_checkpoint(folder).tensors["m.weight"].read(out=out)


def gptqmodel_reader(sources: Path) -> ModuleType:
    """Only its reader, without what the package imports."""
    for name in ("gptqmodel", "gptqmodel.utils", "gptqmodel.quantization"):
        module = ModuleType(name)
        module.__path__ = [str(sources.joinpath(*name.split(".")))]
        sys.modules[name] = module
    log, devices = ModuleType("gptqmodel.utils.logger"), ModuleType("gptqmodel.utils.torch")
    log.setup_logger, devices.HAS_NPU = logging.getLogger, False  # type: ignore[attr-defined]
    sys.modules |= {module.__name__: module for module in (log, devices)}
    return importlib.import_module("gptqmodel.utils.model_dequant")


def library(name: str, folder: Path, config: dict[str, Any], sources: Path | None) -> Case | None:
    """How the library reads the same release on a CPU: into its own dtype, then widened to float32."""
    path = folder / "model.safetensors"

    def pieces() -> dict[str, torch.Tensor]:
        with safe_open(path, "pt") as file:
            return {key.removeprefix("m."): file.get_tensor(key) for key in list(file.keys())}

    if name.startswith("gptq"):
        if sources is None:
            return None
        reader = gptqmodel_reader(sources)
        return lambda: reader.convert_gptq_file(path, torch.float16, config, "cpu")["m.weight"].float()
    if name.startswith("awq"):
        from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter

        converter = AutoAWQConverter()

        def awq_values() -> torch.Tensor:
            given = pieces()
            codes, scale, zeros = converter._convert_gemm_module(
                given["qweight"], given["scales"], given["qzeros"]
            )
            scale, zeros = (p.repeat_interleave(128, 1) for p in (scale, zeros))
            return ((codes.to(torch.float16) - zeros.to(torch.float16)) * scale).float()

        return awq_values
    if name.startswith("compressed"):
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationScheme

        scheme = QuantizationScheme(**config["config_groups"]["group_0"])
        compressor = BaseCompressor.get_value_from_registry(config["format"])
        return lambda: compressor.decompress(pieces(), scheme)["weight"].float()
    return lambda: pieces()["weight"].float()


def extra_memory(name: str) -> float:
    """The extra peak of a child process while it reads a large weight, in multiples of its values."""
    command = [sys.executable, __file__, "--memory", name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def child(name: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        torch.manual_seed(0)
        read(write(Path(temporary) / "small", RELEASES[name]((128, 128))))  # what the first call loads
        make = [sys.executable, __file__, "--write", name, f"{temporary}/release"]
        subprocess.run(make, check=True)
        out = torch.ones(MEMORY_SHAPE)
        before = peak()
        read(Path(temporary) / "release", out)
        print((peak() - before) / out.nbytes)


def row(name: str, folder: Path, release: Release, sources: Path | None) -> bool:
    """Print one line of the table; return whether it is within the budgets."""
    x = read(folder)
    y = torch.empty_like(x)
    cases: dict[str, Case] = {"reused": lambda: read(folder, y), "fresh": lambda: read(folder)}
    theirs = library(name, folder, release[1], sources)
    if theirs is not None:
        cases["library"] = theirs
    unit, times = median_times(lambda: y.copy_(x), cases)
    ratios = {case: time / unit for case, time in times.items()}
    memory = extra_memory(name)
    budget = PLAIN_BUDGET if name.startswith("plain") else BUDGET
    other = f"{ratios['library']:.1f}" if theirs else "not installed"
    print(
        f"| {name} | {times['reused'] * 1e3:.0f} | {ratios['reused']:.1f} | {ratios['fresh']:.1f} | {other} "
        f"| {memory:.2f} | {verdict(ratios['reused'], budget)} |"
    )
    slower = theirs is not None and ratios["fresh"] > ratios["library"]
    return ratios["reused"] <= budget and memory <= MEMORY_BUDGET and not slower


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gptqmodel", type=Path)
    parser.add_argument("--memory")
    parser.add_argument("--write", nargs=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.write:
        write(Path(options.write[1]), RELEASES[options.write[0]](MEMORY_SHAPE))
        return 0
    if options.memory:
        child(options.memory)
        return 0
    print(f"## Reading {SHAPE[0]} x {SHAPE[1]}, one thread, {ROUNDS} rounds\n")
    print("| format | ms | copies, reused | copies, fresh | library | extra memory | budget |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        for number, (name, make) in enumerate(RELEASES.items()):
            release = make(SHAPE)
            good &= row(name, write(Path(temporary) / str(number), release), release, options.gptqmodel)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
