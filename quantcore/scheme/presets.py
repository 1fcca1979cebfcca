"""Schemes named as in their libraries, and exact: the same values for the same tensor."""

from dataclasses import replace

from quantcore.conventions import CONVENTIONS
from quantcore.formats import CODEBOOKS, FLOATS, INT4, INT8, Format, IntFormat
from quantcore.granularity import PER_TENSOR, Granularity, PerChannel, PerFlatGroup, PerGroup
from quantcore.range_setting import Given, HalfQuadratic
from quantcore.scheme.ggml_presets import GGUF
from quantcore.scheme.names import PRESETS
from quantcore.scheme.scheme import Scheme

_E8M0 = Scheme(FLOATS["e8m0"], range_setting=Given(1.0), convention=CONVENTIONS["stored"])
_MX = {
    "mxfp8_e4m3": FLOATS["e4m3fn"],
    "mxfp8_e5m2": FLOATS["e5m2"],
    "mxfp6_e2m3": FLOATS["e2m3"],
    "mxfp6_e3m2": FLOATS["e3m2"],
    "mxfp4": FLOATS["e2m1"],
}


def _named(fmt: Format, granularity: Granularity, convention: str, scales: Scheme | None = None) -> Scheme:
    """Return the symmetric scheme of a library's call."""
    return Scheme(fmt, granularity=granularity, convention=CONVENTIONS[convention], scales=scales)


def _torchao() -> dict[str, Scheme]:
    found = {
        f"torchao.fp8_{name}": _named(FLOATS[name], PER_TENSOR, "torchao.float8")
        for name in ("e4m3fn", "e5m2")
    }
    for name, fmt in _MX.items():
        for mode in ("FLOOR", "EVEN", "CEIL", "RCEIL"):
            scheme = _named(fmt, PerGroup(32), f"torchao.mx.{mode}", _E8M0)
            found[f"torchao.{name}" + (f".{mode}" if mode != "FLOOR" else "")] = scheme
    scales = _named(INT8, PerFlatGroup(256), "torchao.nf4.scales")
    found["torchao.nf4"] = _named(CODEBOOKS["nf4_torchao"], PerFlatGroup(64), "torchao.nf4", scales)
    # quantize_(linear, IntxWeightOnlyConfig(torch.int4, PerGroup(size)))
    found |= {f"torchao.int4_g{size}": _named(INT4, PerGroup(size), "torchao") for size in (32, 64, 128)}
    found["torchao.tinygemm_g128"] = Scheme(
        IntFormat(4, signed=False), False, PerGroup(128), convention=CONVENTIONS["torchao.tinygemm"]
    )
    found["torchao.int8"] = _named(INT8, PerChannel(0), "torchao.int8")
    scales = _named(FLOATS["e4m3fn"], PER_TENSOR, "torchao.nvfp4.scales")
    found["torchao.nvfp4"] = _nvfp4("torchao", scales)
    found["torchao.nvfp4.1level"] = _nvfp4("torchao", replace(scales, range_setting=Given(1.0)))
    return found


def _nvfp4(library: str, scales: Scheme) -> Scheme:
    return _named(FLOATS["e2m1"], PerGroup(16), f"{library}.nvfp4", scales)


def _compressed_tensors() -> dict[str, Scheme]:
    found = {"fp8_e4m3fn": _named(FLOATS["e4m3fn"], PER_TENSOR, "compressed_tensors.float8")}
    # its byte 255 is 2^128, beyond float32, not NaN
    e8m0 = replace(FLOATS["e8m0"], infinities=True, nan="none", saturate=False, sign="dropped")
    scales = replace(_E8M0, format=e8m0)
    for name, rule in (("mxfp4", "mx"), ("mxfp6_e2m3", "mx"), ("mxfp8_e4m3", "mx8")):
        found[name] = _named(_MX[name], PerGroup(32), f"compressed_tensors.{rule}", scales)
    levels = _named(FLOATS["e4m3fn"], PER_TENSOR, "compressed_tensors.nvfp4.scales")
    found["nvfp4"] = _nvfp4("compressed_tensors", levels)
    return {f"compressed_tensors.{name}": scheme for name, scheme in found.items()}


def _quanto() -> dict[str, Scheme]:
    found = {
        f"qint{bits}_g128": Scheme(
            IntFormat(bits, signed=False), False, PerGroup(128), convention=CONVENTIONS["quanto.affine"]
        )
        for bits in (4, 2)
    }
    found["qint4_g128.zeropoint"] = replace(found["qint4_g128"], convention=CONVENTIONS["quanto.zero_point"])
    found["qfloat8_e4m3fn"] = _named(FLOATS["e4m3fn"], PerChannel(0), "quanto.float8")
    return {f"quanto.{name}": scheme for name, scheme in found.items()}


def _microxcaling() -> dict[str, Scheme]:
    """Its integers are the digits of x.xxx: their scale is the block's power of two over 2^(bits-2)."""
    elements: dict[str, tuple[Format, float]] = {name: (fmt, 1.0) for name, fmt in _MX.items()}
    elements |= {f"mxint{bits}": (IntFormat(bits, narrow=True), 2.0 ** (2 - bits)) for bits in (8, 4)}
    found = {}
    for suffix in ("", ".nearest"):
        for name, (fmt, unit) in elements.items():
            scales = replace(_E8M0, range_setting=Given(unit))
            found[f"microxcaling.{name}{suffix}"] = _named(fmt, PerGroup(32), f"microxcaling{suffix}", scales)
    return found


_PRESETS: dict[str, Scheme] = {
    **_torchao(),
    # the grid to which GPTQ rounds (Quantizer.find_params in its quant.py), without error compensation
    "gptq_like.int4_g128": Scheme(IntFormat(4, signed=False), symmetric=False, granularity=PerGroup(128)),
    **_compressed_tensors(),
    **_quanto(),
    # MatMulNBits of a weight (K, N), as its quantizer writes it
    "onnxruntime.uint4_g32": Scheme(
        IntFormat(4, signed=False), False, PerGroup(32, 0), convention=CONVENTIONS["onnxruntime.MatMulNBits"]
    ),
    "onnxruntime.uint4_g32.symmetric": _named(
        IntFormat(4, signed=False), PerGroup(32, 0), "onnxruntime.MatMulNBits"
    ),
    "hqq.linear_4bit": Scheme(
        IntFormat(4, signed=False), False, PerGroup(64), HalfQuadratic(), CONVENTIONS["hqq.linear"]
    ),
    "torch.quantized_decomposed.int8": _named(INT8, PerChannel(0), "torch.quantized_decomposed"),
    "bitsandbytes.nf4": _named(CODEBOOKS["nf4"], PerFlatGroup(64), "bitsandbytes.4bit"),
    "bitsandbytes.fp4": _named(CODEBOOKS["fp4_bitsandbytes"], PerFlatGroup(64), "bitsandbytes.4bit"),
    "bitsandbytes.blockwise": _named(CODEBOOKS["dynamic8"], PerFlatGroup(4096), "bitsandbytes.blockwise"),
    "bitsandbytes.int8_vectorwise": _named(INT8, PerChannel(0), "bitsandbytes.int8_vectorwise"),
    **GGUF,
    **_microxcaling(),
}
PRESETS.update(_PRESETS)
