"""Every preset on difficult tensors: no traceback, no warning from torch, and what presets refuse."""

import warnings

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some

import quantcore as qc
from quantcore.quantization import apply_quietly
from quantcore.range_setting import Search

each_preset = for_each("preset", qc.PRESETS)
SHAPE = (64, 256)
ODD_SHAPES = [(1, 1), (5,), (3, 33), (2, 100), (2, 3, 31)]
# families that allow a short last block; others refuse sizes that their blocks do not divide
SHORT_BLOCKS = ("bitsandbytes.nf4", "bitsandbytes.fp4", "bitsandbytes.blockwise", "microxcaling.")
SEARCHED = [name for name, scheme in qc.PRESETS.items() if isinstance(scheme.range_setting, Search)]
PER_TENSOR = ("torchao.fp8", "compressed_tensors.fp8")
ROWS_OF_ANY_SHAPE = ("quanto.qfloat8", "torch.quantized_decomposed")


def whole_numbers():
    return torch.randint(-6, 7, SHAPE, generator=torch.Generator().manual_seed(0)).float()


def hard_tensors(shape):
    ints = whole_numbers()[: shape[0]]
    mixed = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    mixed[:5] = torch.tensor([0.0, 2.0, 1e-40, 3e38, -3e38])[:, None]
    return {
        "zeros": torch.zeros(shape),
        "minus zeros": -torch.zeros(shape),
        "fives": torch.full(shape, 5.0),
        "minus threes": torch.full(shape, -3.0),
        "denormals": ints * 1e-40,
        "smallest": ints * 2.0**-149,
        "±3e38": torch.where(ints > 0, 3e38, -3e38),
        "3e38": torch.full(shape, 3e38),
        "±max": ints.sign() * torch.finfo(torch.float32).max,
        "mixed": mixed,
    }


@for_each("preset", some(qc.PRESETS, 23))
def test_hard_tensors(preset):
    scheme = qc.PRESETS[preset]
    shape = SHAPE if preset == "torchao.nf4" else (6, 256)  # its scales are quantized in blocks of 256
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, x in hard_tensors(shape).items():
            if preset in SEARCHED and x.abs().max() > 1e37:  # sums of squares overflow
                with pytest.raises(qc.QuantError, match=r"overflow float32|not a finite number"):
                    apply_quietly(x, scheme)
                continue
            result = apply_quietly(x, scheme)
            assert result.dequantized.shape == result.codes.shape == x.shape, name
            assert 0 <= qc.report(result).codes_used <= scheme.format.available, name
            for note in result.warnings:  # one sentence on what the library makes of NaN
                assert scheme.convention.library in note, name
                assert note.endswith("."), name


@each_preset
@pytest.mark.parametrize("shape", ODD_SHAPES, ids=str)
def test_odd_sizes(preset, shape):
    scheme = qc.PRESETS[preset]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    if preset in ("bitsandbytes.int8_vectorwise", "torchao.int8") or preset.startswith("onnxruntime."):
        taken = len(shape) == 2
    else:
        taken = preset.startswith(SHORT_BLOCKS + PER_TENSOR + ROWS_OF_ANY_SHAPE)
    if taken:
        assert apply_quietly(x, scheme).dequantized.shape == shape
        return
    with pytest.raises(qc.QuantError) as refused:
        qc.apply(x, scheme)
    said = str(refused.value)
    assert scheme.convention.library in said
    assert scheme.convention.version in said
    assert said.count(". ") <= 1, said


# x̂ changes slightly when quantized again: torchao's NF4 subtracts another mean from its scales, bitsandbytes
# divides rows by 127 in two roundings, and GPTQ's grid, quanto's zero point and torchao's middle recompute their
# range in float32
MOVING = (
    *("torchao.nf4", "bitsandbytes.int8_vectorwise", "gptq_like.int4_g128", "quanto.qint4_g128.zeropoint"),
    "onnxruntime.uint4_g32",
    "torchao.tinygemm_g128",
    "bitsandbytes.blockwise",  # the nearest point of a grid is taken first
)
# with the scale max|x| / 7.5, the largest code 7 is less than max|x|, so the range shrinks each time
SHRINKING = (
    *("torchao.int4_g32", "torchao.int4_g64", "torchao.int4_g128", "torchao.int8"),
    "torch.quantized_decomposed.int8",
)


@for_each("preset", some(qc.PRESETS, 9))
def test_quantizing_again_changes_nothing(preset):
    scheme = qc.PRESETS[preset]
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(3))
    once = apply_quietly(x, scheme).dequantized
    again = apply_quietly(once, scheme).dequantized
    if preset in SHRINKING:
        assert apply_quietly(once, scheme).scale.max() <= apply_quietly(x, scheme).scale.max()
        assert (once - again).abs().max() <= apply_quietly(x, scheme).scale.max()
    elif preset in SEARCHED or scheme.range_setting.moves_zero_point:
        # searching again from the result may improve it by some steps
        assert qc.errors(once, again).sqnr_db > qc.errors(x, once).sqnr_db + 6
    elif preset in MOVING:
        step = apply_quietly(x, scheme).scale.max()
        assert (once - again).abs().max() < step / 10
    else:
        np.testing.assert_allclose(again, once, rtol=0, atol=0, strict=True, equal_nan=False)


@for_each("preset", some(list(qc.PRESETS)[::-1], 11))
def test_on_the_grid(preset):
    """No block has more distinct values than the format, or codes outside of it."""
    scheme = qc.PRESETS[preset]
    result = apply_quietly(torch.randn(SHAPE, generator=torch.Generator().manual_seed(4)), scheme)
    size = {qc.PerTensor: SHAPE[0] * SHAPE[1], qc.PerChannel: SHAPE[1]}.get(type(scheme.granularity))
    size = size or scheme.granularity.size
    # groups along the first axis become rows
    values = result.dequantized.T if getattr(scheme.granularity, "axis", -1) == 0 and size < SHAPE[1] else result.dequantized
    most = max(len(block.unique()) for block in values.reshape(-1, size))
    assert 1 < most <= scheme.format.available
    assert scheme.format.qmin <= int(result.codes.min())
    assert int(result.codes.max()) <= scheme.format.qmax


@for_each("shape", [(64, 256), (256, 1024)])
@for_each(
    ("preset", "each", "whole"),
    [
        ("torchao.mxfp4", 4.25, 0), ("torchao.mxfp6_e2m3", 6.25, 0), ("torchao.mxfp8_e4m3", 8.25, 0),
        ("torchao.nvfp4", 4.5, 32), ("torchao.nvfp4.1level", 4.5, 0), ("compressed_tensors.nvfp4", 4.5, 32),
        ("gguf.Q4_0", 4.5, 0), ("gguf.Q4_1", 5.0, 0), ("gguf.Q5_0", 5.5, 0), ("gguf.Q5_1", 6.0, 0),
        ("gguf.Q8_0", 8.5, 0), ("gguf.TQ1_0", 1.6875, 0), ("gguf.TQ2_0", 2.0625, 0), ("gguf.MXFP4", 4.25, 0),
        # bytes per super-block of 256: 84, 110, 144, 176, 210, 136
        ("gguf.Q2_K", 2.625, 0), ("gguf.Q3_K", 3.4375, 0), ("gguf.Q4_K", 4.5, 0), ("gguf.Q5_K", 5.5, 0),
        ("gguf.Q6_K", 6.5625, 0), ("gguf.IQ4_NL", 4.5, 0), ("gguf.IQ4_XS", 4.25, 0),
        # 8 bits per block of 64, one float32 per 256 of these, and the mean
        ("torchao.nf4", 4 + 8 / 64 + 32 / (64 * 256), 32),
        ("bitsandbytes.nf4", 4.5, 0), ("microxcaling.mxint8", 8.25, 0),
    ],
)  # fmt: skip
def test_bits(preset, each, whole, shape):
    """Bits per element (``each``) and per tensor (``whole``), as in the library's files and tensors."""
    n = shape[0] * shape[1]
    assert qc.bits_per_element(qc.PRESETS[preset], shape) == each + whole / n


def test_short_blocks_are_their_own():
    """A short last block is quantized like a tensor of its own."""
    x = torch.randn(1, 100, generator=torch.Generator().manual_seed(5))
    for preset in qc.PRESETS:
        if not preset.startswith(SHORT_BLOCKS):
            continue
        scheme = qc.PRESETS[preset]
        size = scheme.granularity.size
        rest = 100 - 100 % size
        whole = apply_quietly(x, scheme).dequantized[:, rest:]
        alone = apply_quietly(x[:, rest:].clone(), scheme).dequantized
        np.testing.assert_allclose(whole, alone, rtol=0, atol=0, strict=True, equal_nan=False)
