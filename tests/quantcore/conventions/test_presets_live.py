"""Presets against the installed libraries, on blocks made to reveal differences.

gguf, bitsandbytes and microxcaling are not among the development requirements; they are tested if installed.
"""

import dataclasses
import itertools
import warnings

import numpy as np
import pytest
import torch
from grid import for_each

import quantcore as qc

ROWS = 2000
MX_FORMATS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4")


def hard_rows(width, seed=5, finite=True):
    """Rows of float32, shape (ROWS, width): all magnitudes, maxima next to powers of two, elements next to ties,
    zeros, tiny and huge numbers; with ``finite=False``, NaN or infinity in some rows."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, width)).astype(np.float32)
    kind = rng.integers(0, 12, ROWS)
    x[kind == 1] = np.exp2(rng.integers(-149, 127, ((kind == 1).sum(), 1))) * x[kind == 1] / 8
    x[kind == 2] = rng.integers(-25, 26, ((kind == 2).sum(), width)) / 8  # ties, equal extremes
    x[kind == 3] *= 1e-39
    x[kind == 4] *= 5e37
    x[kind == 5] = np.abs(x[kind == 5])
    x[kind == 6, : width // 2] = 0
    x[kind == 7] = 0
    x[kind == 8] = -0.0
    # a maximum next to a power of two, everything else below it
    edge = kind >= 9
    power = np.exp2(rng.integers(-20, 20, edge.sum())).astype(np.float32)
    near = power.copy()
    for _ in range(3):
        step = rng.integers(-1, 2, edge.sum())
        near = np.where(step == 0, near, np.nextafter(near, np.where(step > 0, np.inf, 0).astype(np.float32)))
    part = rng.integers(-64, 65, (edge.sum(), width)) / np.float32(64) * power[:, None]
    moved = np.nextafter(part, np.float32(0))
    part = np.where(rng.integers(0, 3, part.shape) == 0, moved, part)
    part[:, 0] = near * rng.choice([-1, 1], edge.sum())
    x[edge] = np.clip(part, -near[:, None], near[:, None])
    if not finite:
        bad = rng.choice(ROWS, 60, replace=False)
        x[bad, rng.integers(0, width, 60)] = rng.choice([np.nan, np.inf, -np.inf], 60)
    return torch.from_numpy(np.ascontiguousarray(x.astype(np.float32)))


def ours(x, preset):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return qc.apply(x, qc.PRESETS[preset])


def check(x, mine, theirs, what):
    mine, theirs = (torch.as_tensor(t).to(torch.float32).reshape(x.shape[0], -1) for t in (mine, theirs))
    wrong = (mine != theirs) & ~(mine.isnan() & theirs.isnan())
    if wrong.any():
        row, column = (int(i) for i in wrong.nonzero()[0])
        pytest.fail(
            f"{what}: {int(wrong.sum())} of {wrong.numel()} differ, first at {row, column}: {float(mine[row, column])!r}, "
            f"the library {float(theirs[row, column])!r}, row {x[row].tolist()}"
        )


@pytest.mark.slow  # by default, recorded cases are compared in test_presets.py
@for_each("mode", ["FLOOR", "EVEN", "CEIL", "RCEIL"])
@for_each("name", MX_FORMATS)
def test_torchao_mx(name, mode):
    mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    from torchao.prototype.mx_formats.constants import DTYPE_FP6_E2M3, DTYPE_FP6_E3M2

    dtype = dict(
        zip(
            MX_FORMATS,
            (torch.float8_e4m3fn, torch.float8_e5m2, DTYPE_FP6_E2M3, DTYPE_FP6_E3M2, torch.float4_e2m1fn_x2),
            strict=True,
        )
    )[name]
    x = hard_rows(64, finite=False)
    made = mx.MXTensor.to_mx(x, dtype, 32, mx.ScaleCalculationMode[mode])
    result = ours(x, f"torchao.{name}" + (f".{mode}" if mode != "FLOOR" else ""))
    check(x, result.scales.codes, made.scale.view(torch.uint8), "scales")
    check(x, result.dequantized, made.dequantize(torch.float32), "dequantized")


@pytest.mark.slow  # by default, recorded cases are compared in test_presets.py
@pytest.mark.parametrize("name", ["mxfp4", "mxfp6_e2m3", "mxfp8_e4m3", "fp8_e4m3fn"])
def test_compressed_tensors(name):
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
    from compressed_tensors.quantization.utils import calculate_qparams

    x = hard_rows(64)
    if name == "fp8_e4m3fn":
        args = QuantizationArgs(num_bits=8, type="float", strategy="tensor", symmetric=True)
        x = x[x.abs().amax(1) < 1e30]
        scale, zero_point = calculate_qparams(x.min(), x.max(), args)
    else:
        bits = int(name[4])
        args = QuantizationArgs(
            num_bits=bits, type="float", strategy="group", group_size=32, symmetric=True,
            scale_dtype=torch.uint8, zp_dtype=torch.uint8,
        )  # fmt: skip
        blocks = x.reshape(x.shape[0], -1, 32)
        scale, zero_point = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args)
    codes = quantize(x, scale, zero_point, args)
    result = ours(x, f"compressed_tensors.{name}")
    check(x[:1] if scale.numel() == 1 else x, result.scale, scale, "scale")
    check(x, result.scheme.format.decode(result.codes), codes, "values")
    check(x, result.dequantized, dequantize(codes, scale, zero_point, args), "dequantized")


def nvfp4_rows():
    """One tensor per range of magnitudes, since each tensor has a single scale of scales."""
    x = hard_rows(64)
    sizes = x.abs().amax(1)
    ends = (0.0, 1e-41, 1e-38, 1e-36, 1e-6, 1.0, 10.0, 1e30, 3.5e38)
    parts = [x[(low < sizes) & (sizes <= high)] for low, high in itertools.pairwise(ends)]
    bad = hard_rows(64, finite=False)
    some_nan, some_infinite = bad[bad.isnan().any(1)], bad[bad.isinf().any(1)]
    return [
        x,
        *parts,
        torch.zeros(2, 16),
        -torch.zeros(1, 32),
        torch.full((1, 16), 5.0),
        some_nan,
        some_infinite,
    ]


@pytest.mark.parametrize("levels", [1, 2])
def test_torchao_nvfp4(levels):
    nvfp4 = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
    from torchao.prototype.mx_formats.kernels import unpack_uint4

    for x in nvfp4_rows():
        assert len(x)
        scale = nvfp4.per_tensor_amax_to_scale(x.abs().amax()) if levels == 2 else None
        made = nvfp4.NVFP4Tensor.to_nvfp4(x, per_tensor_scale=scale)
        result = ours(x, "torchao.nvfp4" + (".1level" if levels == 1 else ""))
        table = qc.FLOATS["e4m3fn"].decode
        check(x, table(result.scales.codes), table(made.scale.view(torch.uint8)), "scales")
        # with a NaN scale, the codes are arbitrary
        numbers = ~result.scale.isnan().repeat_interleave(16, 1)
        check(x, result.codes * numbers, unpack_uint4(made.qdata.view(torch.uint8)) * numbers, "codes")
        check(x, result.dequantized, made.dequantize(torch.float32), "dequantized")


@pytest.mark.slow  # by default, recorded cases are compared in test_presets.py
def test_compressed_tensors_nvfp4():
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    args = QuantizationArgs(
        num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True,
        scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn,
    )  # fmt: skip
    for x in nvfp4_rows():
        blocks = x.reshape(len(x), -1, 16)
        level = generate_gparam(x.min(), x.max())
        scale, zero_point = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, level)
        values = quantize(x, scale, zero_point, args, global_scale=level)
        result = ours(x, "compressed_tensors.nvfp4")
        check(x[:1], result.scales.params.inverse, level, "global scale")
        check(x, result.scales.scheme.format.decode(result.scales.codes), scale, "scales")
        mine = result.scheme.format.decode(result.codes)
        check(x, mine, torch.where(values.isnan(), mine, values), "values")  # e2m1 has no NaN
        theirs = dequantize(values, scale, zero_point, args, global_scale=level)
        check(x, result.dequantized, theirs, "dequantized")


@pytest.mark.parametrize("size", [256, 16, 1])
def test_torchao_nf4(size):
    nf4 = pytest.importorskip("torchao.quantization.quantize_.workflows.nf4.nf4_tensor")
    preset = qc.PRESETS["torchao.nf4"]
    preset = dataclasses.replace(
        preset, scales=dataclasses.replace(preset.scales, granularity=qc.PerFlatGroup(size))
    )
    x = hard_rows(64)[:1792]
    sizes = x.abs().amax(1)
    usual = x[(sizes > 1e-20) & (sizes < 1e20)]
    usual = usual[: len(usual) // 256 * 256]
    constant, zero = torch.full((256, 64), -3.0), torch.zeros(512, 32)
    for part in (x, usual, usual * 1e-38, usual[:256] * 1e36, constant, zero):
        assert len(part)
        made = nf4.to_nf4(part, 64, size)
        codes = torch.stack([made.quantized_data >> 4, made.quantized_data & 15], 1).reshape(part.shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = qc.apply(part, preset)
        check(part, result.codes, codes, "codes")
        check(part[:1], result.scales.params.center, made.scaler_mean, "mean")
        check(part[:1], result.scales.params.inverse, made.quantization_factor, "factor")
        check(part[:1], result.scales.codes, made.quantized_scalers, "scales")
        check(part, result.dequantized, made.get_original_weight(), "dequantized")


@for_each("mode", ["even", "nearest"])
@for_each("name", [*MX_FORMATS, "mxint8", "mxint4"])
def test_microxcaling(name, mode):
    mx_ops = pytest.importorskip("mx.mx_ops")
    element = {"mxfp4": "fp4_e2m1"}.get(name, name[2:])
    for width in (64, 40):  # a short last block too
        x = hard_rows(width, finite=False)
        theirs = mx_ops._quantize_mx(x.clone(), 8, element, axes=[-1], block_size=32, round=mode)
        result = ours(x, f"microxcaling.{name}" + (f".{mode}" if mode != "even" else ""))
        check(x, result.dequantized, theirs, "values")


@pytest.mark.slow  # by default, recorded cases are compared in test_presets.py
@for_each("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4", "TQ1_0", "TQ2_0"])
def test_gguf(name):
    gguf = pytest.importorskip("gguf")
    x = hard_rows(512 if name.startswith("TQ") else 64)
    kind = gguf.GGMLQuantizationType[name]
    with np.errstate(all="ignore"):
        packed = gguf.quants.quantize(x.numpy(), kind)
        theirs = gguf.quants.dequantize(packed, kind)
    result = ours(x, f"gguf.{name}")
    check(x, result.dequantized, theirs, "dequantized")
    packed = packed.reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])
    bits = qc.bits_per_element(result.scheme, x.shape)
    assert bits * x.numel() == packed.size * 8, "must be the file's size"
    if name[0] == "Q" and name[1] in "458":
        scale = packed[:, :2].copy().view(np.float16).astype(np.float32)
        check(x, result.scale, scale.reshape(x.shape[0], -1), "scale")
    if name == "Q8_0":
        check(x, result.codes, packed[:, 2:].copy().view(np.int8), "codes")
    if name in ("Q4_0", "Q4_1"):
        nibbles = packed[:, -16:]
        check(x, result.codes, np.concatenate([nibbles & 15, nibbles >> 4], 1), "codes")


@pytest.mark.slow  # by default, recorded cases are compared in test_presets.py
@for_each("size", [64, 128, 256])
@for_each("name", ["nf4", "fp4"])
def test_bitsandbytes(name, size):
    functional = pytest.importorskip("bitsandbytes.functional")
    for shape in ((ROWS, 64), (ROWS, 61), (3, 7), (1, 1)):
        x = hard_rows(64, finite=False).reshape(-1)[: shape[0] * shape[1]].reshape(shape).contiguous()
        packed, state = functional.quantize_4bit(x, blocksize=size, quant_type=name)
        codes = torch.stack([packed.reshape(-1) >> 4, packed.reshape(-1) & 15], 1).reshape(-1)[: x.numel()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            preset = qc.PRESETS[f"bitsandbytes.{name}"]
            result = qc.apply(x, dataclasses.replace(preset, granularity=qc.PerFlatGroup(size)))
        check(x, result.codes, codes.reshape(shape), "codes")
        check(x[:1], result.scale, state.absmax, "scale")
        # recomputed as table times largest magnitude, since the CPU kernel uses another block's where rows cut blocks
        theirs = state.code[codes.long()] * state.absmax.repeat_interleave(size)[: x.numel()]
        check(x, result.dequantized, theirs.reshape(shape), "dequantized")


def test_bitsandbytes_int8():
    functional = pytest.importorskip("bitsandbytes.functional")
    for width in (64, 61, 1):
        x = hard_rows(64, finite=False)[:, :width].contiguous()
        codes, largest, _ = functional.int8_vectorwise_quant(x.clone())
        result = ours(x, "bitsandbytes.int8_vectorwise")
        check(x, result.codes, codes, "codes")
        check(x, result.params.high, largest, "largest")
        check(x, result.dequantized, functional.int8_vectorwise_dequant(codes, largest), "dequantized")


def weights_of(x, config):
    """The quantized weight of a linear layer, by torchao."""
    torchao = pytest.importorskip("torchao.quantization")
    linear = torch.nn.Linear(x.shape[1], x.shape[0], bias=False)
    linear.weight.data = x.clone()
    torchao.quantize_(linear, config(torchao))
    return linear.weight


@for_each("size", [32, 64, 128])
def test_torchao_int4_weights(size):
    from torchao.quantization.granularity import PerGroup

    x = hard_rows(128)
    theirs = weights_of(
        x, lambda t: t.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(size))
    )
    result = ours(x, f"torchao.int4_g{size}")
    check(x, result.codes, theirs.qdata, "codes")
    check(x, result.scale, theirs.scale, "scale")
    check(x, result.dequantized, theirs.dequantize(), "dequantized")


@for_each("name", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
def test_torchao_int8_weights(name):
    x = hard_rows(64)
    theirs = weights_of(x, lambda t: getattr(t, name)())
    result = ours(x, "torchao.int8")
    check(x, result.codes, theirs.qdata, "codes")
    check(x, result.scale, theirs.scale, "scale")
    check(x, result.dequantized, theirs.dequantize(), "dequantized")


def test_gptq_like_grid():
    """The grid of GPTQ's quant.py: maxq = 15, a range that includes 0, zero = round(-xmin / scale)."""
    x = hard_rows(256)
    x = x[(x.abs().amax(1) < 1e30) & (x.abs().amax(1) > 1e-30)]  # it does not handle the ends of float32
    groups = x.reshape(-1, 128)
    groups = groups[(groups != 0).any(1)]
    high, low = groups.amax(1).clamp(min=0), groups.amin(1).clamp(max=0)
    scale = (high - low) / 15
    zero = torch.round(-low / scale)
    codes = torch.clamp(torch.round(groups / scale[:, None]) + zero[:, None], 0, 15)
    result = ours(groups, "gptq_like.int4_g128")
    check(groups, result.codes, codes, "codes")
    check(groups, result.scale, scale, "scale")
    check(groups, result.zero_point, zero, "zero_point")
    check(groups, result.dequantized, scale[:, None] * (codes - zero[:, None]), "dequantized")
