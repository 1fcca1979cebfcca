"""Scales that are themselves quantized: one mechanism for any number of levels."""

import pytest
import torch
from grid import for_each

import quantcore as qc

TEXTS = [
    "int4 symmetric per_group(8) scales(uint8 asymmetric)",
    "uint4 asymmetric per_group(8) percentile(99) scales(int8 per_channel(0))",
    "int4 symmetric per_flat_group(16) scales(int8 per_flat_group(3))",
    "int4 symmetric per_group(4) torchao scales(int6 per_group(4) scales(int8 asymmetric))",
]


def sample():
    return torch.randn(6, 32, generator=torch.Generator().manual_seed(4)) * torch.linspace(0.1, 4, 6)[:, None]


@for_each("text", TEXTS)
def test_scale_is_what_the_quantized_scales_give(text):
    scheme = qc.Scheme.parse(text)
    result = qc.apply(sample(), scheme)
    alone = qc.apply(result.params.raw, scheme.scales)
    assert torch.equal(result.scale, alone.dequantized)
    assert torch.equal(result.scales.codes, alone.codes)
    assert (result.scale != result.params.raw).any()
    given = qc.quantize(sample(), result.scale, result.zero_point, scheme)
    assert torch.equal(result.codes, given)
    assert torch.equal(
        result.dequantized, qc.dequantize(result.codes, result.scale, result.zero_point, scheme)
    )
    trace = qc.trace(result, (3, 7))
    assert trace.code == result.codes[3, 7]
    assert trace.raw_scale == result.params.raw[trace.block]
    assert "quantized (" in trace.steps()[1].formula


@for_each("text", TEXTS)
def test_text_round_trips(text):
    scheme = qc.Scheme.parse(text)
    assert scheme.scales is not None
    assert qc.Scheme.parse(str(scheme)) == scheme


def test_every_level_is_counted():
    scheme = qc.Scheme.parse("int4 per_group(32) scales(uint8 asymmetric per_group(4))")
    # 64 × 128: 256 groups of 8-bit scales; 64 groups of 4 scales with a float32 scale and an 8-bit zero_point
    assert qc.storage(scheme, (64, 128)).scales == 256 * 8 + 64 * (32 + 8)
    assert qc.bits_per_element(scheme, (64, 128)) == 4 + (256 * 8 + 64 * 40) / 8192


def test_scale_that_becomes_zero():
    """The smallest scales round to 0; their elements get code 0 and dequantize to 0."""
    x = torch.tensor([[1e-4, -1e-4, 0.0, 1e-4], [100.0, -50.0, 3.0, 1.0]])
    result = qc.apply(x, qc.Scheme.parse("int4 per_channel(0) scales(uint4 asymmetric)"))
    assert result.scale[0] == 0
    assert result.codes[0].tolist() == [0, 0, 0, 0]
    assert result.dequantized[0].tolist() == [0, 0, 0, 0]


@for_each(
    ("text", "words"),
    [
        ("int4 scales(int8) scales(int8)", "scales twice"),
        ("int4 scales(nonsense)", "not a format"),
        ("int4 scales(", "can't be read|not a format"),
        ("int4 " + "scales(int8 " * 9 + ")" * 9, "more than 4 levels"),
        ("int4 " + "scales(" * 5000 + ")" * 5000, "more than 4 levels"),
    ],
)
def test_text_that_is_none(text, words):
    with pytest.raises(qc.QuantError, match=words):
        qc.Scheme.parse(text)


def test_scripts_hold():
    result = qc.apply(sample(), qc.Scheme.parse(TEXTS[0]))
    code = "import torch\n\nx = torch.tensor(" + repr(result.x.tolist()) + ")"
    for script in (qc.snippets.quantcore_script, qc.snippets.torch_script):
        exec(script(code, result), {})
