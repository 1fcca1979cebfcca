"""Schemes named as in their libraries, and exact: the same values for the same tensor."""

from dataclasses import replace

from quantcore.conventions import CONVENTIONS
from quantcore.formats import CODEBOOKS, FLOATS, INT4, INT8, Format, IntFormat
from quantcore.granularity import PerChannel, PerFlatGroup, PerGroup
from quantcore.range_setting import Given
from quantcore.scheme.ggml_presets import GGUF
from quantcore.scheme.scheme import Scheme

_E8M0 = Scheme(FLOATS["e8m0"], range_setting=Given(1.0), convention=CONVENTIONS["stored"])
_MX = {
    "mxfp8_e4m3": FLOATS["e4m3fn"],
    "mxfp8_e5m2": FLOATS["e5m2"],
    "mxfp6_e2m3": FLOATS["e2m3"],
    "mxfp6_e3m2": FLOATS["e3m2"],
    "mxfp4": FLOATS["e2m1"],
}


def _torchao() -> dict[str, Scheme]:
    convention = CONVENTIONS["torchao.float8"]
    found = {
        f"torchao.fp8_{name}": Scheme(FLOATS[name], convention=convention) for name in ("e4m3fn", "e5m2")
    }
    for name, fmt in _MX.items():
        for mode in ("FLOOR", "EVEN", "CEIL", "RCEIL"):
            convention = CONVENTIONS[f"torchao.mx.{mode}"]
            scheme = Scheme(fmt, granularity=PerGroup(32), convention=convention, scales=_E8M0)
            found[f"torchao.{name}" + (f".{mode}" if mode != "FLOOR" else "")] = scheme
    found["torchao.nf4"] = Scheme(
        CODEBOOKS["nf4_torchao"],
        granularity=PerFlatGroup(64),
        convention=CONVENTIONS["torchao.nf4"],
        scales=Scheme(INT8, granularity=PerFlatGroup(256), convention=CONVENTIONS["torchao.nf4.scales"]),
    )
    found |= {
        f"torchao.int4_g{size}": Scheme(
            INT4, granularity=PerGroup(size), convention=CONVENTIONS["torchao"]
        )  # quantize_(linear, IntxWeightOnlyConfig(torch.int4, PerGroup(size)))
        for size in (32, 64, 128)
    }
    found["torchao.int8"] = Scheme(INT8, granularity=PerChannel(0), convention=CONVENTIONS["torchao.int8"])
    scales = Scheme(FLOATS["e4m3fn"], convention=CONVENTIONS["torchao.nvfp4.scales"])
    found["torchao.nvfp4"] = _nvfp4("torchao", scales)
    found["torchao.nvfp4.1level"] = _nvfp4("torchao", replace(scales, range_setting=Given(1.0)))
    return found


def _nvfp4(library: str, scales: Scheme) -> Scheme:
    convention = CONVENTIONS[f"{library}.nvfp4"]
    return Scheme(FLOATS["e2m1"], granularity=PerGroup(16), convention=convention, scales=scales)


def _compressed_tensors() -> dict[str, Scheme]:
    found = {"fp8_e4m3fn": Scheme(FLOATS["e4m3fn"], convention=CONVENTIONS["compressed_tensors.float8"])}
    # its byte 255 is 2^128, beyond float32, not NaN
    e8m0 = replace(FLOATS["e8m0"], infinities=True, nan="none", saturate=False, sign="dropped")
    scales = replace(_E8M0, format=e8m0)
    for name, rule in (("mxfp4", "mx"), ("mxfp6_e2m3", "mx"), ("mxfp8_e4m3", "mx8")):
        convention = CONVENTIONS[f"compressed_tensors.{rule}"]
        found[name] = Scheme(_MX[name], granularity=PerGroup(32), convention=convention, scales=scales)
    levels = Scheme(FLOATS["e4m3fn"], convention=CONVENTIONS["compressed_tensors.nvfp4.scales"])
    found["nvfp4"] = _nvfp4("compressed_tensors", levels)
    return {f"compressed_tensors.{name}": scheme for name, scheme in found.items()}


def _microxcaling() -> dict[str, Scheme]:
    """Its integers are the digits of x.xxx: their scale is the block's power of two over 2^(bits-2)."""
    elements: dict[str, tuple[Format, float]] = {name: (fmt, 1.0) for name, fmt in _MX.items()}
    elements |= {f"mxint{bits}": (IntFormat(bits, narrow=True), 2.0 ** (2 - bits)) for bits in (8, 4)}
    found = {}
    for suffix in ("", ".nearest"):
        convention = CONVENTIONS[f"microxcaling{suffix}"]
        for name, (fmt, unit) in elements.items():
            scales = replace(_E8M0, range_setting=Given(unit))
            found[f"microxcaling.{name}{suffix}"] = Scheme(
                fmt, granularity=PerGroup(32), convention=convention, scales=scales
            )
    return found


def _bitsandbytes() -> dict[str, Scheme]:
    blocks, convention = PerFlatGroup(64), CONVENTIONS["bitsandbytes.4bit"]
    rows = CONVENTIONS["bitsandbytes.int8_vectorwise"]
    return {
        "bitsandbytes.nf4": Scheme(CODEBOOKS["nf4"], granularity=blocks, convention=convention),
        "bitsandbytes.fp4": Scheme(CODEBOOKS["fp4_bitsandbytes"], granularity=blocks, convention=convention),
        "bitsandbytes.int8_vectorwise": Scheme(INT8, granularity=PerChannel(0), convention=rows),
    }


PRESETS: dict[str, Scheme] = {
    **_torchao(),
    # the grid to which GPTQ rounds (Quantizer.find_params in its quant.py), without error compensation
    "gptq_like.int4_g128": Scheme(IntFormat(4, signed=False), symmetric=False, granularity=PerGroup(128)),
    **_compressed_tensors(),
    **_bitsandbytes(),
    **GGUF,
    **_microxcaling(),
}
