"""Conventions against the installed libraries on rows made to reveal differences: every integer must be equal.

Each row has three numbers and its own scale: ranges with low/s next to a tie, one-sided, tiny, constant and huge
ranges, and elements next to a tie of the row's scale.
"""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from grid import for_each

import quantcore as qc

ROWS = 6000


def hard_rows(seed=3, rows=ROWS):
    """Rows of float32, shape (rows, 3): the ends of the range, and one element next to a tie of an 8-bit scale."""
    rng = np.random.default_rng(seed)
    low = -rng.uniform(0, 1, rows)
    high = rng.uniform(0, 1, rows)
    kind = rng.integers(0, 10, rows)
    high[kind == 0] = -rng.uniform(0, 1, (kind == 0).sum()) * low[kind == 0]  # |low| > high
    low[kind == 1] = high[kind == 1] * rng.uniform(0, 1, (kind == 1).sum())  # all positive
    low[kind == 2] = high[kind == 2] = -2.5  # constant
    size = np.where(kind == 3, 1e-9, np.where(kind == 4, 1e-39, np.where(kind == 5, 1e38, 1.0)))
    low, high = (low * size).astype(np.float32), (high * size).astype(np.float32)
    largest = np.maximum(np.abs(low), np.abs(high))
    ties = rng.integers(-100, 100, rows) + 0.5
    divisor = rng.choice([127.0, 127.5, 128.0, 255.0], rows)
    middle = (largest / divisor.astype(np.float32) * ties).astype(np.float32)
    middle = np.clip(middle, np.minimum(low, high), np.maximum(low, high))
    return torch.from_numpy(np.stack([low, middle, high], 1))


def tie_rows():
    """Rows with low/s within a few ulps of a tie, where it matters whether rounding or subtraction comes first."""
    ties = np.repeat(np.arange(64) + np.float32(0.5), 33)
    low = -(ties * (1 + np.tile(np.arange(-16, 17), 64) * 2.0**-24)).astype(np.float32) / np.float32(256)
    high = np.float32(255 / 256) + low  # s = 1/256
    quotient = low / ((high - low) / np.float32(255))
    apart = np.round(np.float32(-128) - quotient) != np.float32(-128) - np.round(quotient)
    assert apart.sum() > 50
    return torch.from_numpy(np.stack([low, low / 3, high], 1))


def ours(x, name, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return qc.apply(x, qc.Scheme.parse(f"{text} per_channel(0) {name}"))


def check(result, scale, zero_point, codes):
    """Scales (bit for bit), zero points and codes are equal in every row."""
    scale, zero_point = torch.as_tensor(scale).reshape(-1), torch.as_tensor(zero_point).reshape(-1)
    found = result.scale.reshape(-1)
    same = (found.view(torch.int32) == scale.to(torch.float32).view(torch.int32)) | (
        found.isnan() & scale.isnan()
    )
    assert same.all(), f"scale of {(~same).sum()} rows, first {result.x[~same][0]}"
    z = result.zero_point.reshape(-1).to(torch.float64)
    assert torch.equal(z, zero_point.to(torch.float64)), f"zero_point of {(z != zero_point).sum()} rows"
    wrong = (result.codes.to(torch.float64) != torch.as_tensor(codes).to(torch.float64)).any(1)
    assert not wrong.any(), f"codes of {wrong.sum()} rows, first {result.x[wrong][0]}"


def both():
    return torch.cat([hard_rows(), tie_rows()])


OBSERVED = {"int8": torch.qint8, "uint8": torch.quint8}


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")  # deprecated, still deployed
@for_each("symmetry", ["symmetric", "asymmetric"])
@for_each("fmt", OBSERVED)
@for_each("call", ["torch.fake_quantize", "torch.quantize_per_channel"])
def test_torch(call, fmt, symmetry):
    from torch.ao.quantization import PerChannelMinMaxObserver

    x = both()
    scheme = torch.per_channel_symmetric if symmetry == "symmetric" else torch.per_channel_affine
    observer = PerChannelMinMaxObserver(ch_axis=0, dtype=OBSERVED[fmt], qscheme=scheme)
    observer(x)
    scale, zero_point = observer.calculate_qparams()
    if call == "torch.quantize_per_channel":
        codes = torch.quantize_per_channel(x, scale, zero_point, 0, OBSERVED[fmt]).int_repr()
    else:
        ends = (-128, 127) if fmt == "int8" else (0, 255)
        back = torch.fake_quantize_per_channel_affine(x, scale, zero_point.to(torch.int32), 0, *ends)
        # x̂/s + z is within 2^-15 of the code: the product and the quotient each round once
        codes = torch.round(back.double() / scale[:, None].double()) + zero_point[:, None]
    check(ours(x, call, f"{fmt} {symmetry}"), scale, zero_point, codes)


@for_each("fmt", OBSERVED)
def test_torch_per_tensor(fmt):
    from torch.ao.quantization import MinMaxObserver

    for seed, symmetric in ((1, False), (2, True), (3, False)):
        x = torch.randn(101, 77, generator=torch.Generator().manual_seed(seed))
        scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
        observer = MinMaxObserver(dtype=OBSERVED[fmt], qscheme=scheme)
        observer(x)
        scale, zero_point = observer.calculate_qparams()
        ends = x.view(-1)[x.argmin()].item(), x.view(-1)[x.argmax()].item()
        beside = 1 + (torch.arange(4000) % 7 - 3) * 2.0**-23
        x.view(-1)[:4000] = (torch.arange(4000) % 200 - 99.5) * scale.item() * beside
        x.clamp_(*ends).view(-1)[-2:] = torch.tensor(ends)
        theirs = torch.quantize_per_tensor(x, scale.item(), int(zero_point), OBSERVED[fmt]).int_repr()
        text = f"{fmt} {'symmetric' if symmetric else 'asymmetric'} torch.quantize_per_tensor"
        result = qc.apply(x, qc.Scheme.parse(text))
        assert result.scale.item() == scale.item()
        assert torch.equal(result.codes, theirs)


@for_each("z", [-128, -5, 0, 3, 127])
def test_torch_cast_of_what_is_too_large(z):
    """Per channel, the rounded value is first cast to int64; beyond 2^63 it becomes the lowest code."""
    x = torch.tensor([[1e30, -1e30, float("inf"), float("-inf"), float("nan"), 9.3e17, 0.25]]).repeat(2, 1)
    s, zero_points = torch.tensor([0.1, 0.1]), torch.tensor([z, z], dtype=torch.int32)
    back = torch.fake_quantize_per_channel_affine(x, s, zero_points, 0, -128, 127)
    scheme = qc.Scheme.parse(f"int8 asymmetric per_channel(0) given(0.1,zero_point={z}) torch.fake_quantize")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = qc.apply(x, scheme)
    assert torch.equal(result.codes, torch.round(back / 0.1).to(torch.int32).add(z).to(torch.int8))
    one = torch.fake_quantize_per_tensor_affine(x, 0.1, z, -128, 127)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        per_tensor = qc.apply(x, dataclasses.replace(scheme, granularity=qc.PerTensor()))
    assert torch.equal(per_tensor.codes, torch.round(one / 0.1).to(torch.int32).add(z).to(torch.int8))


@for_each(
    "text",
    [
        "int8 symmetric",
        "int8 asymmetric",
        "uint4 asymmetric",
        "uint8 symmetric",
        "int3 asymmetric",
        "int2 symmetric",
    ],
)
def test_torchao(text):
    pytest.importorskip("torchao")
    from torchao.quantization.quant_primitives import MappingType, choose_qparams_affine, quantize_affine

    x = both()
    fmt = qc.Scheme.parse(text).format
    mapping = MappingType.ASYMMETRIC if "asymmetric" in text else MappingType.SYMMETRIC
    dtype = torch.int8 if fmt.signed else torch.uint8
    scale, zero_point = choose_qparams_affine(x, mapping, (1, 3), dtype, fmt.qmin, fmt.qmax)
    codes = quantize_affine(x, (1, 3), scale, zero_point, dtype, fmt.qmin, fmt.qmax)
    check(ours(x, "torchao", text), scale, zero_point, codes)
    if mapping is MappingType.SYMMETRIC and fmt.signed:
        mapping = MappingType.SYMMETRIC_NO_CLIPPING_ERR
        scale, zero_point = choose_qparams_affine(x, mapping, (1, 3), dtype, fmt.qmin, fmt.qmax)
        codes = quantize_affine(x, (1, 3), scale, zero_point, dtype, fmt.qmin, fmt.qmax)
        check(ours(x, "torchao.no_clipping_err", text), scale, zero_point, codes)


@pytest.mark.slow  # by default, its recorded integers are compared in test_conventions.py
@for_each(
    "text",
    [
        "int8 symmetric",
        "int8 asymmetric",
        "int4 asymmetric",
        "int2 symmetric",
        "int16 asymmetric",
        "int5 asymmetric",
    ],
)
def test_compressed_tensors(text):
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.utils import calculate_qparams

    x = both()
    arguments = QuantizationArgs(
        num_bits=qc.Scheme.parse(text).format.bits, strategy="channel", symmetric="asym" not in text
    )
    scale, zero_point = calculate_qparams(x.amin(1, keepdim=True), x.amax(1, keepdim=True), arguments)
    codes = quantize(x, scale, zero_point, arguments, dtype=torch.int32)
    check(ours(x, "compressed_tensors", text), scale, zero_point, codes)


@pytest.mark.slow  # by default, its recorded integers are compared in test_conventions.py
@for_each(
    "text",
    [
        "int8 symmetric",
        "int8 asymmetric",
        "uint8 asymmetric",
        "uint8 symmetric",
        "int4 symmetric",
        "uint4 asymmetric",
        "int16 symmetric",
        "uint16 asymmetric",
    ],
)
def test_onnxruntime_tool(text):
    pytest.importorskip("onnxruntime")
    import onnx
    from onnxruntime.quantization.quant_utils import compute_scale_zp, get_qmin_qmax_for_qType

    x = both().numpy()[::13]
    fmt = qc.Scheme.parse(text).format
    symmetric = "asymmetric" not in text
    kind = getattr(onnx.TensorProto, str(fmt).upper())
    qmin, qmax = get_qmin_qmax_for_qType(kind, reduce_range=False, symmetric=symmetric)
    found = [compute_scale_zp(row.min(), row.max(), qmin, qmax, symmetric) for row in x]
    zero_point = torch.tensor([float(z) for z, _ in found])
    scale = torch.tensor(np.array([s for _, s in found], np.float32))
    codes = torch.clamp(
        torch.round(torch.from_numpy(x) / scale[:, None]) + zero_point[:, None], fmt.qmin, fmt.qmax
    )
    check(ours(x, "onnxruntime", text), scale, zero_point, codes)
    check(ours(x, "onnx", text), scale, zero_point, codes)


@pytest.mark.parametrize("z", [-128, -5, 0, 100])
def test_onnx_cast_of_what_is_too_large(z):
    """The reference casts to int32 before adding z: too large a value becomes the lowest one and may wrap."""
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])
    names = [
        helper.make_tensor_value_info(n, t, None)
        for n, t in (("x", TensorProto.FLOAT), ("s", TensorProto.FLOAT), ("z", TensorProto.INT8))
    ]
    out = helper.make_tensor_value_info("q", TensorProto.INT8, None)
    model = helper.make_model(
        helper.make_graph([node], "g", names, [out]), opset_imports=[helper.make_opsetid("", 21)]
    )
    x = np.array([1e30, -1e30, np.inf, -np.inf, np.nan, 3e8, -3e8, 0.25], np.float32)
    with np.errstate(invalid="ignore"):
        codes = ReferenceEvaluator(model).run(None, {"x": x, "s": np.float32(0.1), "z": np.int8(z)})[0]
    scheme = qc.Scheme.parse(f"int8 asymmetric given(0.1,zero_point={z}) onnx")
    assert qc.quantize(x, np.float32(0.1), z, scheme).tolist() == codes.tolist()


@pytest.mark.slow  # by default, its recorded integers are compared in test_conventions.py
@pytest.mark.parametrize(
    "text", ["int8n symmetric", "int4n symmetric", "uint8 asymmetric", "uint4 asymmetric"]
)
def test_brevitas(text):
    pytest.importorskip("brevitas")
    import brevitas.quant as quantizers
    from brevitas.nn import QuantLinear

    x = both()
    x = x[(x.abs() < 1e30).all(1)]  # it refuses scales that overflow
    kind = (
        quantizers.Int8WeightPerChannelFloat
        if "asym" not in text
        else quantizers.ShiftedUint8WeightPerChannelFloat
    )
    layer = QuantLinear(
        3, len(x), bias=False, weight_quant=kind, weight_bit_width=qc.Scheme.parse(text).format.bits
    )
    layer.weight.data = x
    weight = layer.quant_weight()
    zero_point = weight.zero_point.expand_as(weight.scale).detach()
    check(ours(x, "brevitas", text), weight.scale.detach(), zero_point, weight.int(float_datatype=False))


@pytest.mark.slow  # by default, its recorded integers are compared in test_conventions.py
@pytest.mark.parametrize(("fmt", "qtype"), [("int8", "qint8"), ("int4", "qint4"), ("int2", "qint2")])
def test_quanto(fmt, qtype):
    pytest.importorskip("optimum.quanto")
    from optimum.quanto import AbsmaxOptimizer, qtypes

    x = both()
    scale = AbsmaxOptimizer()(x, qtypes[qtype], axis=0)
    codes = torch.ops.quanto.quantize_symmetric(x, torch.int8, 0, scale)
    check(ours(x, "quanto", f"{fmt} symmetric"), scale, torch.zeros(len(x)), codes)


@pytest.mark.slow  # by default, its recorded integers are compared in test_conventions.py
@for_each("bits", [2, 3, 4, 5, 6, 8])
@for_each("round_zero", [False, True])
def test_hqq(bits, round_zero):
    quantizer = pytest.importorskip("hqq.core.quantize").Quantizer
    x = both()
    codes, meta = quantizer.quantize(
        x,
        nbits=bits,
        group_size=3,
        axis=1,
        optimize=False,
        round_zero=round_zero,
        bitpack=False,
        device="cpu",
    )
    name = "hqq.round_zero" if round_zero else "hqq"
    check(ours(x, name, f"uint{bits} asymmetric"), meta["scale"], meta["zero"], codes.reshape(x.shape))
