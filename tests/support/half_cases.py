"""What libraries compute of bfloat16, float16 and float64, as recorded in golden/half.*."""

import dataclasses
import gzip
import json
import warnings
from functools import cache

import golden_cases
import numpy as np
import torch
from places import GOLDEN

import quantcore as qc

NO_INTEGER = (-(1 << 31), -(1 << 63))  # recorded in place of NaN


@cache
def _recorded():
    with np.load(GOLDEN / "half.npz", allow_pickle=False) as arrays:
        return json.loads(gzip.decompress((GOLDEN / "half.json.gz").read_bytes())), dict(arrays)


def cases():
    """All recorded cases; arrays are still references."""
    return _recorded()[0]


def x_of(case):
    """The tensor of a case, in its dtype."""
    return _tensor(_recorded()[1][f"x.{case['input']}"].copy(), case["dtype"])


def _tensor(array, dtype):
    stored = torch.from_numpy(array.view(np.int16) if dtype == "bfloat16" else array)
    return stored.view(torch.bfloat16) if dtype == "bfloat16" else stored


def recorded(case, name):
    """The numbers of a result: float64 of floats, int64 of integers; None if there are none."""
    if name not in case["arrays"]:
        return None
    kind, start, shape = case["arrays"][name]
    array = _recorded()[1][kind][start : start + int(np.prod(shape))].reshape(shape).copy()
    dtype = case["dtypes"].get(name, kind)
    if dtype in ("bfloat16", "float16", "float32", "float64"):
        return _tensor(array, dtype).double().numpy()
    return array.astype(np.int64)


def _integers(name, **changes):
    def scheme(case):
        found = golden_cases.scheme_of({**case, "convention": name})
        return dataclasses.replace(found, **changes)

    return scheme


def _floats(name):
    def scheme(case):
        s = case["scheme"]
        granularity = qc.PerTensor() if s["granularity"] == "tensor" else qc.PerChannel(s["axis"])
        fmt = qc.FLOATS[s["fmt"].removeprefix("fp8_")]
        return qc.Scheme(fmt, True, granularity, convention=qc.CONVENTIONS[name])

    return scheme


def _torchao(case):
    mapping = case["scheme"].get("mapping", "")
    return _integers("torchao.no_clipping_err" if "NO_CLIPPING" in mapping else "torchao")(case)


def _mx(case):
    s = case["scheme"]
    return qc.PRESETS[f"torchao.{s['fmt']}" + (f".{s['mode']}" if s["mode"] != "FLOOR" else "")]


def _nvfp4(case):
    return qc.PRESETS["torchao.nvfp4" + (".1level" if case["scheme"]["mode"] == "1level" else "")]


def _four_bits(case):
    preset = qc.PRESETS[f"bitsandbytes.{case['scheme']['fmt']}"]
    return dataclasses.replace(preset, granularity=qc.PerFlatGroup(case["scheme"]["group_size"]))


def _blockwise(case):
    preset = qc.PRESETS["bitsandbytes.blockwise"]
    return dataclasses.replace(preset, granularity=qc.PerFlatGroup(case["scheme"]["group_size"]))


def _torch_quantize(case):
    tensor = case["scheme"]["granularity"] == "tensor"
    return _integers(f"torch.quantize_per_{'tensor' if tensor else 'channel'}")(case)


def _hqq(case):
    rounded = case["scheme"].get("method") == "round_zero"
    return _integers("hqq.round_zero" if rounded else "hqq")(case)


# (library, variant) -> the scheme of a case; what is missing has no name here
SCHEMES = {
    ("torchao", "affine"): _torchao,
    ("torchao", "IntxWeightOnlyConfig"): _torchao,
    ("torchao", "Int8WeightOnlyConfig"): _integers("torchao.int8"),
    ("torchao", "Float8WeightOnlyConfig"): _floats("torchao.float8"),
    ("torchao", "tinygemm"): _integers("torchao.tinygemm"),
    ("torchao", "float8"): _floats("torchao.float8"),
    ("torchao", "mx"): _mx,
    ("torchao", "nvfp4"): _nvfp4,
    ("compressed-tensors", "int"): _integers("compressed_tensors"),
    ("compressed-tensors", "fp8"): _floats("compressed_tensors.float8"),
    ("optimum-quanto", "symmetric"): _integers("quanto"),
    ("optimum-quanto", "affine_shift"): _integers("quanto.affine"),
    ("optimum-quanto", "affine_zeropoint"): _integers("quanto.zero_point"),
    ("optimum-quanto", "qfloat8"): _floats("quanto.float8"),
    ("brevitas", "weight"): _integers("brevitas"),
    ("hqq", "noopt"): _hqq,
    ("hqq", "linear"): _integers("hqq.linear", range_setting=qc.HalfQuadratic()),
    ("bitsandbytes", "4bit"): _four_bits,
    ("bitsandbytes", "blockwise8"): _blockwise,
    ("bitsandbytes", "vectorwise8"): lambda case: qc.PRESETS["bitsandbytes.int8_vectorwise"],
    ("onnxruntime", "tool+kernel"): _integers("onnxruntime"),
    ("onnxruntime", "tool"): _integers("onnxruntime"),
    ("onnxruntime", "matmul_nbits"): _integers("onnxruntime.MatMulNBits"),
    ("onnx", "reference"): _integers("onnx"),
    ("torch", "fake_quantize"): _integers("torch.fake_quantize"),
    ("torch", "decomposed"): _integers("torch.quantized_decomposed"),
    ("torch", "quantize"): _torch_quantize,
    ("gguf", "quantize"): lambda case: qc.PRESETS[f"gguf.{case['scheme']['fmt']}"],
}


def scheme_of(case):
    """The scheme of a case, or None if its call has no name here."""
    found = SCHEMES.get((case["library"], case["variant"]))
    return None if found is None else found(case)


def ours(case, scheme, x):
    """Our numbers under the names of the records."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = qc.apply(x, scheme)
    found = {"codes": result.codes.to(torch.int64), "dequant": result.dequantized, "scale": result.scale}
    if result.zero_point is not None:
        found["zero_point"] = result.zero_point
    library, variant = case["library"], case["variant"]
    if variant in ("mx", "nvfp4"):
        found["scale"] = result.scales.codes.to(torch.int64)
    elif variant == "affine_shift":  # its shift is -min
        found["zero_point"] = -result.zero_point
    elif library == "bitsandbytes":
        found["scale"] = result.params.high
    return {name: t.double().numpy() for name, t in found.items()}


def outcome(case, scheme, flushed=False):
    """For each recorded result, whether ours equals it, or in words why not; None if equal.

    Args:
        flushed: make our subnormal values 0, of their sign.
    """
    x = x_of(case)
    try:
        found = ours(case, scheme, x)
    except qc.QuantError as error:
        said = str(error)
        if "raises" not in case:
            return {"refused": f"refused: {said}"}
        words = case["raises"].partition(": ")[2]
        return {"raises": None if words in said else f"{words!r} is not in {said!r}"}
    if "raises" in case:
        return {"raises": f"not refused, but the library says {case['raises']}"}
    if flushed:
        value, least = found["dequant"], torch.finfo(getattr(torch, case["dtype"])).smallest_normal
        found["dequant"] = np.where(np.abs(value) < least, np.copysign(0.0, value), value)
    return {
        name: _difference(case, name, found)
        for name in ("codes", "scale", "zero_point", "dequant")
        if name in case["arrays"]
    }


def _difference(case, name, found):
    expected = recorded(case, name)
    if name not in found:
        return "is not given"
    got = found[name].reshape(expected.shape) if found[name].size == expected.size else found[name]
    if got.shape != expected.shape:
        return f"has shape {got.shape}, recorded {expected.shape}"
    if expected.dtype.kind == "i":
        skipped = np.isin(expected, NO_INTEGER)
        if case["dtypes"].get(name) in ("uint8", "float8_e4m3fn", "float8_e5m2"):
            got, expected = got.astype(np.int64) & 0xFF, expected & 0xFF
        wrong = (got != expected) & ~skipped
    else:  # a zero point of NaN has no integer
        none = np.isnan(got) | np.isin(got, NO_INTEGER)
        wrong = (got != expected) & ~(none & np.isnan(expected))
    if name == "dequant" and "codes" in case["arrays"]:  # a code of NaN is no integer, and its value NaN
        wrong &= ~np.isin(recorded(case, "codes"), NO_INTEGER)
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{wrong.sum()} of {wrong.size} differ, first at {at}: {got[at]!r}, recorded {expected[at]!r}"
