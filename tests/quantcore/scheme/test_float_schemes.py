"""Schemes with small floats and codebooks, against torch's casts and the nearest values."""

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some

import quantcore as qc

TORCH = {
    "e4m3fn": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
NAMES = [name for name in qc.FLOATS if name != "e8m0"]
CODEBOOKS = [*qc.CODEBOOKS, "log2_6", "codebook([-3,0,0.5,0.5,2], name=mine)"]


def sample(shape=(6, 64), seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3


@for_each("name", TORCH)
@for_each("granularity", ["per_tensor", "per_channel(0)", "per_group(16)", "per_flat_group(24)"])
def test_codes_are_torch_s_cast(name, granularity):
    """The codes are the bits of x / s as torch casts it, with s = max|x| / max divided in float32."""
    scheme = qc.Scheme.parse(f"{name} {granularity}")
    result = qc.apply(sample(), scheme)
    width = {"per_tensor": 384, "per_channel(0)": 64, "per_group(16)": 16, "per_flat_group(24)": 24}[
        granularity
    ]
    blocks = sample().reshape(-1, width)
    scale = blocks.abs().amax(1, keepdim=True) / torch.finfo(TORCH[name]).max
    cast = (blocks / scale).to(TORCH[name])
    assert torch.equal(result.scale.reshape(-1), scale.reshape(-1))
    bits = cast.view(torch.uint8 if cast.itemsize == 1 else torch.int16).to(torch.int32) & (
        0xFF if cast.itemsize == 1 else 0xFFFF
    )
    assert torch.equal(result.codes.reshape(-1, width).to(torch.int32) & 0xFFFF, bits)
    assert torch.equal(result.dequantized.reshape(-1, width), cast.float() * scale)
    assert result.zero_point is None


@for_each("name", some(NAMES, 9))
def test_every_part_takes_floats(name):
    scheme = qc.Scheme.parse(f"{name} per_group(16)")
    result = qc.apply(sample(), scheme)
    fmt = scheme.format
    error, step = result.error.abs(), fmt.max * 2.0 ** -(fmt.mantissa + 1)
    assert (
        error <= step * result.scale.repeat_interleave(16, 1)
    ).all()  # half a step at the highest exponent
    report = qc.report(result)
    assert report.clipped == 0
    assert report.mse == pytest.approx(float(result.error.double().square().mean()), rel=1e-12)
    assert report.codes_used == len(result.codes.unique())
    trace = qc.trace(result, (2, 5))
    assert trace.code == result.codes[2, 5]
    assert trace.dequantized == result.dequantized[2, 5]
    assert [s.name for s in trace.steps()] == [
        "x",
        "scale s",
        "x / s",
        "value v",
        "code q",
        "dequantized x̂",
        "error x - x̂",
    ]
    data = qc.views.map_data(result)
    assert np.array_equal(data.map("dequantized"), result.dequantized.numpy())
    for figure in (qc.figures.maps, qc.figures.distribution, qc.figures.scales):
        assert figure(result).data
    again = qc.apply(result.dequantized, scheme)  # values on the grid stay the same
    assert torch.equal(again.dequantized, result.dequantized)
    exec(
        qc.snippets.quantcore_script(
            f"import torch\n\nx = torch.tensor({sample((2, 16)).tolist()})", qc.apply(sample((2, 16)), scheme)
        ),
        {},
    )
    assert qc.Scheme.parse(str(scheme)) == scheme
    assert qc.storage(scheme, (6, 64)).codes == 384 * fmt.bits


def test_clipping_is_beyond_half_a_step():
    x = torch.tensor([448.0, 463.9, 464.1, -500.0])
    result = qc.apply(x, qc.Scheme.parse("e4m3fn given(1)"))
    assert qc.report(result).clipped == 2
    assert result.dequantized.tolist() == [448, 448, 448, -448]
    assert [qc.trace(result, i).overflow for i in range(4)] == [None, None, "saturate", "saturate"]


@for_each("rounding", ["toward_zero", "ceil", "stochastic_3"])
def test_rounding_of_floats(rounding):
    scheme = qc.Scheme.parse(f"e3m2 given(1) textbook(rounding={rounding})")
    x = sample().clamp(-28, 28)
    result = qc.apply(x, scheme)
    codes = scheme.format.encode(x, rounding)
    assert torch.equal(result.codes, codes)


def test_what_floats_have_not():
    x = sample()
    with pytest.raises(qc.QuantError, match="no zero_point"):
        qc.apply(x, qc.Scheme.parse("e4m3fn asymmetric"))
    with pytest.raises(qc.QuantError, match="integer codes only; here the format is e2m1"):
        qc.apply(x, qc.Scheme.parse("e2m1 onnxruntime"))
    with pytest.raises(qc.QuantError, match="use the quantcore script"):
        qc.snippets.torch_script(
            "import torch\n\nx = torch.zeros(2)", qc.apply([1.0, 2.0], qc.Scheme.parse("e2m1"))
        )
    assert qc.nearest_supported(qc.Scheme.parse("e4m3fn asymmetric"), (4, 4)) == qc.Scheme.parse("e4m3fn")


def test_blocks_with_powers_of_two_as_scales():
    """The OCP MX mechanism: with one 8-bit scale per 32 elements, it takes 4.25 bits per element."""
    scheme = qc.Scheme.parse("e2m1 per_group(32) scales(e8m0 given(1) textbook(rounding=ceil))")
    result = qc.apply(sample(), scheme)
    exponent = torch.log2(result.scale)
    assert torch.equal(exponent, exponent.round())
    assert torch.equal(result.scales.codes.int(), (exponent + 127).int())
    assert (result.scale >= result.params.raw).all()
    assert (result.scale < 2 * result.params.raw).all()
    assert qc.bits_per_element(scheme, (6, 64)) == 4.25
    assert qc.Scheme.parse(str(scheme)) == scheme


@for_each("name", CODEBOOKS)
@for_each("granularity", some(["per_group(24)", "per_tensor", "per_channel(0)", "per_flat_group(50)"]))
def test_codebooks_take_the_nearest_value(name, granularity):
    """s = max|x| / the largest magnitude, and every code is that of the value nearest to x / s."""
    scheme = qc.Scheme.parse(f"{name} {granularity}")
    result = qc.apply(sample(), scheme)
    scale = qc.granularity.cells_of(result.scale, result.blocked_shape, result.block).reshape(6, 64)
    quotient = sample() / scale
    distance = (quotient[..., None].double() - scheme.format.table.double()).abs()
    chosen = distance.gather(-1, result.codes[..., None].long())[..., 0]
    assert (chosen <= distance.amin(-1) * (1 + 1e-6)).all()
    assert torch.equal(result.dequantized, scheme.format.table[result.codes.long()] * scale)
    block = qc.apply(sample(), qc.Scheme.parse(f"int8 {granularity}"))
    largest = block.scale * 127
    assert torch.allclose(result.scale * scheme.format.max, largest, rtol=1e-6)
    assert qc.Scheme.parse(str(scheme)) == scheme


@for_each("name", some(CODEBOOKS, 4))
def test_every_part_takes_codebooks(name):
    scheme = qc.Scheme.parse(f"{name} per_group(16)")
    result = qc.apply(sample(), scheme)
    fmt, report = scheme.format, qc.report(result)
    assert report.mse == pytest.approx(float(result.error.double().square().mean()), rel=1e-12)
    assert report.clipped == 0 or max(fmt.values) != -min(fmt.values)
    assert report.codes_used == len(result.codes.unique())
    assert report.codes_available == len(fmt.values)
    trace = qc.trace(result, (2, 5))
    assert trace.code == result.codes[2, 5]
    assert trace.dequantized == result.dequantized[2, 5]
    assert trace.steps()[-4].name == "value v"
    assert trace.steps()[-3].formula == f"index {trace.code} in a table of {len(fmt.values)} values"
    data = qc.views.map_data(result)
    assert np.array_equal(data.map("dequantized"), result.dequantized.numpy())
    for figure in (qc.figures.maps, qc.figures.distribution, qc.figures.scales):
        assert figure(result).data
    exec(
        qc.snippets.quantcore_script(
            f"import torch\n\nx = torch.tensor({sample((2, 16)).tolist()})", qc.apply(sample((2, 16)), scheme)
        ),
        {},
    )
    assert qc.storage(scheme, (6, 64)).codes == 384 * fmt.bits
    assert result.zero_point is None


def test_clipping_of_codebooks_is_beyond_half_a_step():
    x = torch.tensor([1.0, 1.138, 1.139, -1.15, -1.16, 0.0])
    result = qc.apply(x, qc.Scheme.parse("nf4 given(1)"))
    assert qc.report(result).clipped == 2
    assert [qc.trace(result, i).overflow for i in range(5)] == [None, None, "saturate", None, "saturate"]


def test_what_codebooks_have_not():
    with pytest.raises(qc.QuantError, match="no zero_point"):
        qc.apply(sample(), qc.Scheme.parse("nf4 asymmetric"))
    with pytest.raises(qc.QuantError, match="supports integer codes only; here the format is nf4"):
        qc.apply(sample(), qc.Scheme.parse("nf4 torchao"))
    with pytest.raises(qc.QuantError, match="supports small floats only; here the format is int8"):
        qc.apply(sample(), qc.Scheme.parse("int8 torchao.mx.FLOOR per_group(16)"))
    with pytest.raises(qc.QuantError, match="rounds to the nearest value"):
        qc.apply(sample(), qc.Scheme.parse("nf4 textbook(rounding=floor)"))
    assert qc.nearest_supported(qc.Scheme.parse("nf4 asymmetric"), (4, 4)) == qc.Scheme.parse("nf4")
