"""Time of every preset against copying the tensor, and its library: python benchmarks/presets.py [name…]

4096 x 4096 float32, one thread. `known`: codes under parameters found before. `whole`: the range, the scales
(and what they are quantized with) and the codes, into reused buffers; the budget is for `whole`. `back`:
dequantizing into a buffer. `bytes`: for gguf's, apply and `qc.checkpoints.encode`, as a fraction of the time
in which the gguf package writes the same bytes. `library`: the time that the preset's library takes to
quantize and to dequantize, if it is installed; a preset must not take longer for both together. The unit is
y.copy_(x), timed before each. Names, or prefixes of names, choose presets. Prints Markdown; exits with 1 if a
budget is exceeded or a library is faster.
"""

import importlib.util
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import quantcore as qc
from benchmarks.quantize import SHAPE, Case, seconds
from benchmarks.smallest import sized
from quantcore.quantization import codes_of, dequantize_with
from quantcore.range_setting import Search

ROUNDS = sized(5, 1)
BUDGETS: dict[type, float] = {qc.IntFormat: 3.0, qc.FloatFormat: 10.0, qc.CodebookFormat: 20.0}
Library = tuple[Callable[[], object], Callable[[object], object]]


def torchao(name: str, x: torch.Tensor) -> Library:
    """Quantizing and dequantizing by torchao."""
    kind, _, mode = name.partition(".")
    if kind == "nf4":
        from torchao.quantization.quantize_.workflows.nf4.nf4_tensor import to_nf4

        return lambda: to_nf4(x), lambda made: made.get_original_weight()
    if kind == "nvfp4":
        from torchao.prototype.mx_formats import nvfp4_tensor as nv

        def to_nvfp4() -> object:
            scale = None if mode else nv.per_tensor_amax_to_scale(x.abs().amax())
            return nv.NVFP4Tensor.to_nvfp4(x, per_tensor_scale=scale)

        return to_nvfp4, lambda made: made.dequantize(torch.float32)
    if kind.startswith("fp8"):
        from torchao.quantization import quant_primitives as p

        dtype = {"fp8_e4m3fn": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}[kind]

        def fp8() -> object:
            scale = p._choose_scale_float8(x, x.shape, dtype)
            return p._quantize_affine_float8(x, scale, dtype), scale

        return fp8, lambda made: p._dequantize_affine_float8(made[0], made[1], torch.float32)
    if kind == "tinygemm_g128":
        from torchao.quantization import quant_primitives as p

        block, ends = (1, 128), (torch.uint8, 0, 15)

        def tinygemm() -> tuple[torch.Tensor, ...]:
            asymmetric = p.MappingType.ASYMMETRIC
            scale, z = p._choose_qparams_affine_tinygemm(x, asymmetric, block, *ends, eps=1e-6)
            return p._quantize_affine_tinygemm(x, block, scale, z, *ends), scale, z

        return tinygemm, lambda made: p._dequantize_affine_tinygemm(
            made[0], block, *made[1:], *ends, output_dtype=torch.float32
        )
    from torchao.prototype.mx_formats import constants, mx_tensor

    dtypes = {
        "mxfp8_e4m3": torch.float8_e4m3fn,
        "mxfp8_e5m2": torch.float8_e5m2,
        "mxfp6_e2m3": constants.DTYPE_FP6_E2M3,
        "mxfp6_e3m2": constants.DTYPE_FP6_E3M2,
        "mxfp4": torch.float4_e2m1fn_x2,
    }
    rule = mx_tensor.ScaleCalculationMode[mode or "FLOOR"]
    return (
        lambda: mx_tensor.MXTensor.to_mx(x, dtypes[kind], 32, rule),
        lambda made: made.dequantize(torch.float32),
    )


def bitsandbytes(name: str, x: torch.Tensor) -> Library:
    """Quantizing and dequantizing by bitsandbytes."""
    from bitsandbytes import functional

    if name == "int8_vectorwise":
        return (
            lambda: functional.int8_vectorwise_quant(x),
            lambda made: functional.int8_vectorwise_dequant(made[0], made[1]),
        )
    if name == "blockwise":
        return (
            lambda: functional.quantize_blockwise(x, blocksize=4096),
            lambda made: functional.dequantize_blockwise(*made),
        )
    return (
        lambda: functional.quantize_4bit(x, blocksize=64, quant_type=name),
        lambda made: functional.dequantize_4bit(*made),
    )


def gguf(name: str, x: torch.Tensor) -> Library:
    """Quantizing and dequantizing by gguf."""
    from gguf import GGMLQuantizationType, quants

    kind, array = GGMLQuantizationType[name], x.numpy()
    return lambda: quants.quantize(array, kind), lambda made: quants.dequantize(made, kind)


LIBRARIES = {"torchao": torchao, "bitsandbytes": bitsandbytes, "gguf": gguf}


def library_of(preset: str, x: torch.Tensor) -> Library | None:
    """The calls of the preset's library; None if it is not installed or not compared."""
    library, _, name = preset.partition(".")
    if library not in LIBRARIES or importlib.util.find_spec(library) is None:
        return None
    if library == "torchao" and name.startswith("int"):  # its integers are compared in quantize.py
        return None
    return LIBRARIES[library](name, x)


def measured(preset: str, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Medians in seconds over rounds in which all take turns."""
    scheme = qc.PRESETS[preset]
    earlier, library = qc.apply(x, scheme), library_of(preset, x)
    cases: dict[str, Case] = {
        "copy": lambda: y.copy_(x),
        "known": lambda: codes_of(x, earlier.params, scheme),
        "whole": lambda: qc.apply(x, scheme, out=earlier),
        "back": lambda: dequantize_with(
            earlier.codes, earlier.params, scheme, earlier.blocks, earlier.dequantizer, y
        ),
    }
    if library is not None:
        quantize, dequantize = library
        made = quantize()
        cases |= {"library": quantize, "library back": lambda: dequantize(made)}
        if preset.startswith("gguf."):
            cases["bytes"] = lambda: qc.checkpoints.encode(qc.apply(x, scheme))
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(ROUNDS + 1):
        for name, case in cases.items():
            taken = seconds(case)
            if turn:  # the first round warms up
                times[name].append(taken)
    return {name: statistics.median(found) for name, found in times.items()}


def main(chosen: list[str]) -> int:
    """Print the table; return the exit status."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    y = torch.empty_like(x)
    print(f"## Presets, {SHAPE[0]} x {SHAPE[1]} float32, one thread, {ROUNDS} rounds, in copies\n")
    print("| preset | known | whole | budget | back | library | its back | ours / the library's | bytes |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    failed = 0
    for preset in qc.PRESETS:
        if chosen and not preset.startswith(tuple(chosen)):
            continue
        if isinstance(qc.PRESETS[preset].range_setting, Search):
            continue  # compared with ggml's C in kquants.py
        times = measured(preset, x, y)
        copies = {name: f"{taken / times['copy']:.1f}" for name, taken in times.items()}
        budget = BUDGETS[type(qc.PRESETS[preset].format)]
        over = times["whole"] / times["copy"] > budget
        share = written = ""
        if "library" in times:
            ratio = (times["whole"] + times["back"]) / (times["library"] + times["library back"])
            share, slower = f"{ratio:.2f}", ratio > 1
            failed |= int(slower)
        if "bytes" in times:
            ratio = times["bytes"] / times["library"]
            written = f"{ratio:.2f}"
            failed |= int(ratio > 1)
        failed |= int(over)
        print(
            f"| {preset} | {copies['known']} | {copies['whole']} | {budget:g}{' EXCEEDED' if over else ''} | "
            f"{copies['back']} | {copies.get('library', '')} | {copies.get('library back', '')} | {share} | "
            f"{written} |",
            flush=True,
        )
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
