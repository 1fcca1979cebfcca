"""x of bfloat16 and float16 against the installed libraries: thousands of rows made to tell roundings apart.

Each row has four numbers and its own scale: ranges with low/s next to a tie, one-sided, tiny, constant and large ranges,
and elements next to a tie of the row's scale, as it is in the dtype of x.
"""

import warnings

import numpy as np
import pytest
import quanto_library
import torch
from grid import for_each

import quantcore as qc

ROWS = 4000
HALF = [torch.bfloat16, torch.float16]


def rows(dtype, seed=3):
    """Rows of a dtype, (ROWS, 4): the ends of the range, and two elements next to a tie of a scale."""
    rng = np.random.default_rng(seed)
    low, high = -rng.uniform(0, 1, ROWS), rng.uniform(0, 1, ROWS)
    kind = rng.integers(0, 10, ROWS)
    high[kind == 0] *= -low[kind == 0]  # |low| > high
    low[kind == 1] = high[kind == 1] * rng.uniform(0, 1, (kind == 1).sum())  # all positive
    low[kind == 2] = high[kind == 2] = -2.5  # constant
    tiny, large = (1e-6, 3e4) if dtype == torch.float16 else (1e-39, 1e37)
    size = np.where(kind == 3, 1e-3, np.where(kind == 4, tiny, np.where(kind == 5, large, 1.0)))
    low, high = (torch.from_numpy(end * size).to(dtype) for end in (low, high))
    s = torch.maximum(low.abs(), high.abs()) / torch.from_numpy(rng.choice([7.0, 7.5, 127.0, 127.5], ROWS)).to(dtype)
    ties = [torch.from_numpy(rng.integers(-100, 100, ROWS) + 0.5).to(dtype) for _ in range(2)]
    inside = [torch.minimum(torch.maximum(s * tie, torch.minimum(low, high)), torch.maximum(low, high)) for tie in ties]
    return torch.stack([low, *inside, high], 1)


def ours(x, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return qc.apply(x, qc.Scheme.parse(text))


def check(result, scale, codes, value=None, zero_point=None):
    """Every scale, zero point, code and value is equal; NaN to NaN."""
    theirs = {"scale": scale, "codes": codes, "dequantized": value, "zero_point": zero_point}
    for name, expected in theirs.items():
        if expected is None:
            continue
        found, expected = getattr(result, name).double(), expected.detach().double()
        expected = expected.reshape(found.shape)
        if name == "codes" and not result.scheme.format.has_zero_point:  # NaN has several
            found, expected = (result.scheme.format.decode(codes.to(torch.uint8)) for codes in (found, expected))
        none = found.isnan() | (found == -(2**31))  # what stands for a zero point of NaN
        wrong = (found != expected) & ~(none & expected.isnan())
        if name in ("codes", "dequantized"):  # a code of NaN is no integer
            wrong &= ~theirs["codes"].double().isnan().reshape(wrong.shape)
        assert not wrong.any(), f"{name}: {wrong.sum()} of {wrong.numel()}, first {found[wrong][0]}, not {expected[wrong][0]}"
    if value is not None:
        assert result.value_dtype == value.dtype


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("dtype", HALF)
@for_each("text", ["int8 symmetric", "int8 asymmetric", "uint4 asymmetric", "int4 symmetric", "uint8 symmetric"])
@for_each("name", ["torchao", "torchao.no_clipping_err"])
def test_torchao(dtype, text, name):
    primitives = pytest.importorskip("torchao.quantization.quant_primitives")
    if "clipping" in name and ("asymmetric" in text or "uint" in text):
        return
    x, fmt = rows(dtype), qc.Scheme.parse(text).format
    mapping = "ASYMMETRIC" if "asym" in text else "SYMMETRIC" + "_NO_CLIPPING_ERR" * ("clipping" in name)
    mapping, kind = getattr(primitives.MappingType, mapping), torch.int8 if fmt.signed else torch.uint8
    scale, z = primitives.choose_qparams_affine(x, mapping, (1, 4), kind, fmt.qmin, fmt.qmax)
    codes = primitives.quantize_affine(x, (1, 4), scale, z, kind, fmt.qmin, fmt.qmax)
    value = primitives.dequantize_affine(
        codes, (1, 4), scale, z, kind, fmt.qmin, fmt.qmax, output_dtype=dtype
    )
    assert scale.dtype == dtype
    check(ours(x, f"{text} per_channel(0) {name}"), scale, codes, value, z)


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("dtype", [torch.float32, *HALF])
@for_each("granularity", ["per_channel(0)", "per_tensor", "per_group(2)"])
def test_torchao_tinygemm(dtype, granularity):
    """Also in float32; constant, infinite and NaN rows too."""
    primitives = pytest.importorskip("torchao.quantization.quant_primitives")
    x = rows(dtype)
    if granularity != "per_tensor":
        x = torch.cat([x, rows(dtype, 4), x[:200] / 3e4, torch.full((4, 4), 3e-6, dtype=dtype)])
        x = torch.cat([x, torch.tensor([[1, torch.nan, 2, 3], [1, torch.inf, 2, 3], [-torch.inf, 0, 1, 2]], dtype=dtype)])
    block = {"per_channel(0)": (1, 4), "per_tensor": tuple(x.shape), "per_group(2)": (1, 2)}[granularity]
    asymmetric, bounds = primitives.MappingType.ASYMMETRIC, (torch.uint8, 0, 15)
    scale, z = primitives._choose_qparams_affine_tinygemm(x, asymmetric, block, *bounds, eps=1e-6)
    codes = primitives._quantize_affine_tinygemm(x, block, scale, z, *bounds)
    value = primitives._dequantize_affine_tinygemm(codes, block, scale, z, *bounds, output_dtype=dtype)
    result = ours(x, f"uint4 asymmetric {granularity} torchao.tinygemm")
    check(result, scale, codes, value, z)
    assert len(result.codes.unique()) == 16


def test_torchao_tinygemm_refuses():
    """In the library's words."""
    primitives = pytest.importorskip("torchao.quantization.quant_primitives")
    x = rows(torch.float32).double()
    with pytest.raises(AssertionError, match=r"Unsupported input dtype: torch\.float64"):
        primitives._quantize_affine_tinygemm(x, (1, 4), x[:, 0], x[:, 1], torch.uint8, 0, 15)
    with pytest.raises(qc.QuantError, match=r"Unsupported input dtype: torch\.float64"):
        qc.apply(x, qc.Scheme.parse("uint4 asymmetric per_channel(0) torchao.tinygemm"))
    symmetric = primitives.MappingType.SYMMETRIC
    with pytest.raises(AssertionError, match="Unsupported mapping type"):
        primitives._choose_qparams_affine_tinygemm(x.float(), symmetric, (1, 4), torch.uint8, 0, 15)
    with pytest.raises(qc.QuantError, match=r"stores the value of the middle code.*choose asymmetric"):
        qc.apply(x.float(), qc.Scheme.parse("uint4 symmetric per_channel(0) torchao.tinygemm"))


@for_each("dtype", HALF)
@for_each("granularity", ["per_channel(0)", "per_tensor", "per_group(2)"])
def test_torchao_int8(dtype, granularity):
    """The weights of a Linear: the scale is computed in the dtype of x, codes and values are not."""
    torchao = pytest.importorskip("torchao.quantization")
    of = {"per_channel(0)": torchao.PerRow(), "per_tensor": torchao.PerTensor(), "per_group(2)": torchao.PerGroup(2)}
    x = rows(dtype)
    layer = torch.nn.Linear(4, len(x), bias=False, dtype=dtype)
    layer.weight.data = x.clone()
    torchao.quantize_(layer, torchao.Int8WeightOnlyConfig(granularity=of[granularity]))
    check(ours(x, f"int8 {granularity} torchao.int8"), layer.weight.scale, layer.weight.qdata, layer.weight.dequantize())


@for_each("dtype", HALF)
@for_each("fmt", ["e4m3fn", "e5m2"])
def test_torchao_float8(dtype, fmt):
    primitives = pytest.importorskip("torchao.quantization.quant_primitives")
    x, kind = rows(dtype), getattr(torch, f"float8_{fmt}")
    scale = primitives._choose_scale_float8(x, [1, 4], kind)
    codes = primitives._quantize_affine_float8(x, scale, kind)
    value = primitives._dequantize_affine_float8(codes, scale, dtype)
    check(ours(x, f"{fmt} per_channel(0) torchao.float8"), scale, codes.view(torch.uint8), value)


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("dtype", HALF)
@for_each("text", ["int8 symmetric", "int8 asymmetric", "int4 asymmetric", "int4 symmetric", "e4m3fn symmetric"])
def test_compressed_tensors(dtype, text):
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
    from compressed_tensors.quantization.utils import calculate_qparams

    x, fmt, small = rows(dtype), qc.Scheme.parse(text).format, text.startswith("e4m3")
    arguments = QuantizationArgs(
        num_bits=fmt.bits, strategy="channel", symmetric="asym" not in text, type="float" if small else "int"
    )
    scale, z = calculate_qparams(x.amin(1, keepdim=True), x.amax(1, keepdim=True), arguments)
    codes = quantize(x, scale, z, arguments)
    value = dequantize(codes, scale, z, arguments)
    name = "compressed_tensors.float8" if small else "compressed_tensors"
    codes = codes.to(torch.float8_e4m3fn).view(torch.uint8) if small else codes
    check(ours(x, f"{text} per_channel(0) {name}"), scale, codes, value, None if small else z)


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("dtype", HALF)
@for_each("axis", [0, -1])
def test_quanto(dtype, axis):
    quanto = pytest.importorskip("optimum.quanto")
    x = rows(dtype) if axis == 0 else rows(dtype).T.contiguous()
    scale = quanto.AbsmaxOptimizer()(x, quanto.qint8, axis=axis)
    q = quanto.quantize_weight(x, quanto.qint8, axis, scale)
    check(ours(x, f"int8 per_channel({axis}) quanto"), scale, q._data, q.dequantize())


@pytest.mark.slow  # by default, recorded integers are compared in test_presets.py
@for_each("dtype", [torch.float32, *HALF])
@for_each("bits", [2, 4])
@for_each("zeropoint", [False, True])
@for_each("size", [None, 2])
def test_quanto_affine(dtype, bits, zeropoint, size):
    """Also in float32. Its float shift is -min."""
    quanto = quanto_library.quanto()
    x, kind = rows(dtype), quanto.qint4 if bits == 4 else quanto.qint2
    scale, shift = quanto.MaxOptimizer()(x, kind, axis=0, group_size=size, zeropoint=zeropoint)
    codes = torch.ops.quanto.quantize_affine(x, bits, 0, size, scale, shift)
    value = quanto.quantize_weight(x, kind, 0, scale, shift, size).dequantize()
    granularity = "per_channel(0)" if size is None else f"per_group({size})"
    name = "quanto.zero_point" if zeropoint else "quanto.affine"
    result = ours(x, f"uint{bits} asymmetric {granularity} {name}")
    check(result, scale, codes, value, shift if zeropoint else -shift)


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("dtype", [torch.float32, *HALF])
def test_quanto_float8(dtype):
    """Also in float32."""
    quanto = pytest.importorskip("optimum.quanto")
    x = rows(dtype)
    scale = quanto.AbsmaxOptimizer()(x, quanto.qfloat8_e4m3fn, axis=0)
    q = quanto.quantize_weight(x, quanto.qfloat8_e4m3fn, 0, scale)
    check(ours(x, "e4m3fn per_channel(0) quanto.float8"), scale, q._data.view(torch.uint8), q.dequantize())


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("dtype", HALF)
@for_each("text", ["int8n symmetric", "int4n symmetric", "uint8 asymmetric", "uint4 asymmetric"])
@for_each("granularity", ["per_channel(0)", "per_tensor"])
def test_brevitas(dtype, text, granularity):
    pytest.importorskip("brevitas")
    import brevitas.quant as quantizers
    from brevitas.nn import QuantLinear

    x = rows(dtype)
    x = x[(x.abs() < 1e4).all(1)]  # ranges that do not overflow
    kind = "Int8WeightPer" if "asym" not in text else "ShiftedUint8WeightPer"
    kind = getattr(quantizers, f"{kind}{'Tensor' if granularity == 'per_tensor' else 'Channel'}Float")
    layer = QuantLinear(4, len(x), bias=False, weight_quant=kind, weight_bit_width=qc.Scheme.parse(text).format.bits)
    layer.weight.data = x.float()
    layer = layer.to(dtype)
    assert torch.equal(layer.weight, x)
    weight, quantizer = layer.quant_weight(), layer.weight_quant.tensor_quant
    scale, z = weight.scale, weight.zero_point
    codes = quantizer.int_quant.to_int(scale, z, weight.bit_width, layer.weight)
    result = ours(x, f"{text} {granularity} brevitas")
    check(result, scale, codes, weight.value, z.expand(result.scale.shape))


@for_each("dtype", HALF)
@for_each("granularity", ["per_channel(0)", "per_tensor"])
@for_each("symmetric", [True, False])
def test_torch_fake_quantize(dtype, granularity, symmetric):
    """Scale and codes as of float32; the value is rounded once."""
    from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver

    x, whole = rows(dtype), granularity == "per_tensor"
    x = x[(x.abs() < 1e3).all(1)]
    kind = f"per_{'tensor' if whole else 'channel'}_{'symmetric' if symmetric else 'affine'}"
    observer = (MinMaxObserver if whole else PerChannelMinMaxObserver)(dtype=torch.qint8, qscheme=getattr(torch, kind))
    observer(x)
    scale, z = observer.calculate_qparams()
    if whole:
        value = torch.fake_quantize_per_tensor_affine(x, scale, z.int(), -128, 127)
    else:
        value = torch.fake_quantize_per_channel_affine(x, scale, z.int(), 0, -128, 127)
    result = ours(x, f"int8 {'symmetric' if symmetric else 'asymmetric'} {granularity} torch.fake_quantize")
    check(result, scale, result.codes, value, z)


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("text", ["int8 asymmetric", "uint8 asymmetric", "int8 symmetric"])
def test_onnxruntime(text):
    """float16, the tool's scales of rows and the CPU kernel; the tool refuses bfloat16."""
    pytest.importorskip("onnxruntime")
    import onnx
    from onnx import TensorProto, helper
    from onnxruntime import InferenceSession
    from onnxruntime.quantization.quant_utils import compute_scale_zp, get_qmin_qmax_for_qType

    x = rows(torch.float16).numpy()[::5]
    kind, symmetric = getattr(TensorProto, text.split()[0].upper()), "asym" not in text
    qmin, qmax = get_qmin_qmax_for_qType(kind, reduce_range=False, symmetric=symmetric)
    found = [compute_scale_zp(row.min(), row.max(), qmin, qmax, symmetric) for row in x]
    scale = np.array([s for _, s in found], np.float16)
    z = np.array([z for z, _ in found]).astype(text.split()[0])
    names = [("x", TensorProto.FLOAT16), ("s", TensorProto.FLOAT16), ("z", kind)]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=0),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=0),
    ]
    outs = [helper.make_tensor_value_info(n, t, None) for n, t in (("q", kind), ("y", TensorProto.FLOAT16))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, t, None) for n, t in names], outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    codes, value = (torch.from_numpy(a) for a in session.run(None, {"x": x, "s": scale, "z": z}))
    result = ours(torch.from_numpy(x), f"{text} per_channel(0) onnxruntime")
    check(result, torch.from_numpy(scale), codes, value, torch.from_numpy(z))
    del onnx


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("dtype", HALF)
@for_each("round_zero", [False, True])
def test_hqq(dtype, round_zero):
    """Everything in float32, whatever comes."""
    quantizer = pytest.importorskip("hqq.core.quantize").Quantizer
    x = rows(dtype)
    codes, meta = quantizer.quantize(
        x, nbits=4, group_size=4, axis=1, optimize=False, round_zero=round_zero, bitpack=False, device="cpu"
    )
    name = "hqq.round_zero" if round_zero else "hqq"
    check(ours(x, f"uint4 asymmetric per_channel(0) {name}"), meta["scale"], codes, None, meta["zero"])


@pytest.mark.slow  # by default, recorded integers are compared in test_presets.py
@for_each("dtype", [torch.float32, *HALF])
def test_hqq_linear(dtype):
    """Also in float32. Codes are computed with the zero point before it is cast to the dtype of x."""
    hqq = pytest.importorskip("hqq.core.quantize")
    x = rows(dtype)[:2000].view(-1, 8)
    linear = torch.nn.Linear(8, len(x), bias=False, dtype=dtype)
    linear.weight.data = x.clone()
    config = hqq.BaseQuantizeConfig(nbits=4, group_size=8, axis=1)
    layer = hqq.HQQLinear(linear, config, compute_dtype=dtype, device="cpu")
    codes = hqq.Quantizer.unpack[layer.meta["packing"]](layer.W_q)
    result = ours(x, "uint4 asymmetric per_group(8) half_quadratic hqq.linear")
    check(result, layer.meta["scale"], codes, layer.dequantize(), layer.meta["zero"])
    if dtype != torch.float32:
        with pytest.raises(qc.QuantError, match="zero points that differ from the stored ones"):
            qc.snippets.torch_script("x = None", result)


@for_each("dtype", [torch.float32, *HALF])
@for_each("symmetric", [True, False])
def test_torch_decomposed(dtype, symmetric):
    """Also in float32."""
    from torch.ao.quantization import PerChannelMinMaxObserver
    from torch.ao.quantization.fx import _decomposed  # noqa: F401 -- defines the operators

    x = rows(dtype)
    scheme = torch.per_channel_symmetric if symmetric else torch.per_channel_affine
    observer = PerChannelMinMaxObserver(ch_axis=0, dtype=torch.qint8, qscheme=scheme)
    observer(x)
    operators, (scale, z) = torch.ops.quantized_decomposed, observer.calculate_qparams()
    codes = operators.quantize_per_channel(x, scale, z, 0, -128, 127, torch.int8)
    value = operators.dequantize_per_channel(codes, scale, z, 0, -128, 127, torch.int8, out_dtype=dtype)
    text = f"int8 {'symmetric' if symmetric else 'asymmetric'} per_channel(0) torch.quantized_decomposed"
    check(ours(x, text), scale, codes, value, z)


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("dtype", HALF)
@for_each("kind", ["nf4", "fp4"])
def test_bitsandbytes(dtype, kind):
    functional = pytest.importorskip("bitsandbytes.functional")
    x = rows(dtype)[:4096]
    packed, state = functional.quantize_4bit(x, quant_type=kind, blocksize=64)
    value = functional.dequantize_4bit(packed, state)
    nibbles = torch.stack([packed >> 4, packed & 15], 2).reshape(x.shape)
    result = ours(x, str(qc.PRESETS[f"bitsandbytes.{kind}"]))
    check(result, result.scale, nibbles, value)
    assert torch.equal(result.params.high, state.absmax)


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("dtype", HALF)
@for_each("kind", ["nf4", "fp4"])
def test_bitsandbytes_subnormal(dtype, kind):
    """The values of blocks of subnormal numbers; a CPU's conversion to bfloat16 may make all of them 0."""
    functional = pytest.importorskip("bitsandbytes.functional")
    least = torch.finfo(dtype).smallest_normal
    x = (torch.linspace(-1, 1, 256).double() * least).to(dtype).view(4, 64)
    value = functional.dequantize_4bit(*functional.quantize_4bit(x, quant_type=kind, blocksize=64)).double()
    found = ours(x, str(qc.PRESETS[f"bitsandbytes.{kind}"])).dequantized.double()
    assert (found.abs() < least).sum() > 200
    kept = bool((torch.full((64,), least / 2).to(dtype) != 0).all())
    assert torch.equal(value, found if kept or dtype == torch.float16 else found * (found.abs() >= least))


@pytest.mark.slow  # by default, recorded cases are compared in test_half.py
@for_each("dtype", [torch.float32, *HALF])
@for_each("size", [64, 256])
def test_bitsandbytes_blockwise(dtype, size):
    """Also in float32, with each float32 beside a midpoint of the library's grid, blocks of 0 and a shorter last one."""
    functional = pytest.importorskip("bitsandbytes.functional")
    points = torch.arange(65536).double() / 32767.5 - 1
    middle = ((points[1:] + points[:-1]) / 2).float()
    x = torch.cat([middle, middle.nextafter(torch.tensor(2.0)), middle.nextafter(torch.tensor(-2.0))]).to(dtype)
    x[::size] = 1
    x = torch.cat([x, torch.zeros(2 * size).to(dtype), rows(dtype).flatten()[: 4000 * 16 + 7]])
    codes, state = functional.quantize_blockwise(x, blocksize=size)
    result = ours(x, f"dynamic8 symmetric per_flat_group({size}) bitsandbytes.blockwise")
    check(result, state.absmax, codes, functional.dequantize_blockwise(codes, state))


@for_each("dtype", [torch.float32, torch.float16])
@for_each("bits", [2, 4, 8])
@for_each("kind", ["symmetric", "asymmetric"])
def test_matmul_nbits(dtype, bits, kind):
    """Also in float32; of a weight (64, 1000) in groups of 16 rows, with columns of ties, of 0 and of one sign."""
    library = pytest.importorskip("onnxruntime.capi._pybind_state")
    x = rows(dtype).reshape(1000, 16).T.repeat(4, 1)
    x[:16] /= 3
    x[16:] *= torch.rand(48, 1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[48:, :100], x[32:, 100:300] = 0, x[32:, 100:300].abs() * (-1) ** torch.arange(200)
    x[::2, 300:400], x[1::2, 300:400] = x[:1, 300:400], -x[:1, 300:400]
    x = torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.5, x, (x * 8).round() / 8)
    packed, zeros = np.zeros((1000, 4, 2 * bits), np.uint8), np.zeros((1000, max(1, bits // 2)), np.uint8)
    scale = np.zeros((1000, 4), x.numpy().dtype)
    call = getattr(library, f"quantize_matmul_{bits}bits")
    call(packed, x.contiguous().numpy(), scale, zeros, 16, 1000, 64, kind == "symmetric")
    codes, zero_point = (
        np.stack([a >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], -1).reshape(1000, -1).T
        for a in (packed, zeros)
    )
    result = ours(x, f"uint{bits} {kind} per_group(16, 0) onnxruntime.MatMulNBits")
    assert np.array_equal(result.scale.numpy(), scale.T)
    assert np.array_equal(result.codes.numpy(), codes)
    if kind == "asymmetric":
        assert np.array_equal(result.zero_point.numpy(), zero_point[:4])
    else:
        assert (result.zero_point == 1 << bits - 1).all()
