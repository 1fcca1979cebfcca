"""Releases written by the installed libraries in the test: widths, shapes and dtypes beyond the golden ones."""

import itertools

import pytest
import quanto_library
import torch
from grid import for_each
from parts import in_parts, some
from releases import release

from quantcore.checkpoints import encode

HALVES = (torch.float16, torch.bfloat16)


def weight(shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def assert_equal(checkpoint, name, wanted):
    """Values, dtype, separately read rows, re-encoded bytes and the maps' result agree with the library."""
    tensor = checkpoint.tensors[name]
    values = tensor.read()
    assert torch.equal(values, wanted.float())
    assert f"torch.{tensor.dtype}" == str(wanted.dtype)
    n = len(wanted)
    for rows in (slice(0, 1), slice(n // 3, n // 2 + 2), slice(n - 1, n)):
        assert torch.equal(tensor.read(rows), wanted[rows].float())
    for piece, data in encode(tensor).items():
        assert bytes(checkpoint.release.stored[piece].bytes()) == data, piece
    assert torch.equal(tensor.quantized().dequantized.to(wanted.dtype), wanted)
    tensor.locate([i - 1 for i in wanted.shape])


WIDTHS = [8, 6, 5, 4, 3, 2, 1.58, 1]


@pytest.mark.slow  # by default, HQQ's golden releases are read in test_golden.py
@in_parts(3)
@for_each("bits", WIDTHS)
@for_each("axis", [0, 1])
def test_hqq(bits, axis, part, tmp_path):
    """Group sizes that pack evenly or not, no groups, other dtypes, and words stored as floats."""
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    linear = torch.nn.Linear(80, 64, bias=False)
    linear.weight.data.copy_(weight((64, 80)))
    cases = [(64, torch.float16, False), (40, torch.bfloat16, True), (None, torch.float32, False)]
    turn = (WIDTHS.index(bits) + axis) % 3
    for size, dtype, as_float in part(cases[turn:] + cases[:turn]):
        config = BaseQuantizeConfig(nbits=4, group_size=size, axis=axis, view_as_float=as_float)
        config["weight_quant_params"] |= {"nbits": bits, "optimize": False}
        layer = HQQLinear(linear, config, compute_dtype=dtype, device="cpu", del_orig=False)
        state = {f"m.{k}": v for k, v in layer.state_dict().items() if v is not None}
        checkpoint = release(tmp_path, state)
        assert_equal(checkpoint, "m.weight", layer.dequantize())
        assert checkpoint.format == "hqq"


@pytest.mark.slow  # by default, golden releases of bitsandbytes are read in test_golden.py
@for_each("kind", ["nf4", "fp4"])
@for_each("nested", [False, True])
def test_bitsandbytes(kind, nested, tmp_path):
    """Odd numbers of elements, short last blocks, and words stored as another dtype."""
    import bitsandbytes.functional as functional

    cases = [((48, 256), 64, torch.uint8), ((300, 70), 128, torch.bfloat16), ((5, 33), 64, torch.uint8)]
    for (shape, size, storage), dtype in itertools.product(cases, HALVES):
        packed, state = functional.quantize_4bit(
            weight(shape, dtype), None, None, size, nested, kind, storage
        )
        own = {f"m.weight.{k}": v for k, v in state.as_dict(packed=True).items()}
        checkpoint = release(tmp_path, {"m.weight": packed, **own})
        scale = state.absmax
        if nested:
            scale = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
        tensor = checkpoint.tensors["m.weight"]
        assert torch.equal(tensor.scale(), scale.float())
        each = scale.float().repeat_interleave(size)[: tensor.codes().numel()].view(shape)
        assert_equal(checkpoint, "m.weight", (state.code[tensor.codes().long()] * each).to(dtype))
        if shape[1] % size == 0:
            assert torch.equal(functional.dequantize_4bit(packed, state).float(), tensor.read())


@pytest.mark.slow  # by default, golden releases of quanto are read in test_golden.py
@for_each("kind", some(["qint2", "qint4", "qfloat8_e4m3fnuz", "qint8", "qfloat8_e5m2"], 2))
def test_quanto(kind, tmp_path):
    """The shape of packed weights is inferred from the bias or the hidden size, given quanto's groups."""
    quanto = quanto_library.quanto()

    cases = [((48, 256), True), ((20, 100), True), ((30, 160), False), ((24, 192), False), ((7, 128), True)]
    for ((rows, columns), biased), dtype in itertools.product(cases, HALVES):
        model = torch.nn.Sequential()
        model.add_module("q_proj", torch.nn.Linear(columns, rows, bias=biased, dtype=dtype))
        model.q_proj.weight.data.copy_(weight((rows, columns)))
        quanto.quantize(model, weights=getattr(quanto, kind))
        quanto.freeze(model)
        config = None if biased else {"hidden_size": columns}
        checkpoint = release(tmp_path, model.state_dict(), config)
        assert_equal(checkpoint, "q_proj.weight", model.q_proj.weight.dequantize())


def torchao_tensors():
    import torchao.quantization as ao
    from torchao.prototype.mx_formats.mx_tensor import MXTensor

    def quantized(config, given):
        model = torch.nn.Sequential(torch.nn.Linear(*given.shape[::-1], bias=False, dtype=given.dtype))
        model[0].weight.data.copy_(given)
        ao.quantize_(model, config)
        return model[0].weight

    given = weight((24, 96), torch.bfloat16)
    for bits in range(2, 9):
        integers = ao.IntxWeightOnlyConfig(
            weight_dtype=getattr(torch, f"int{bits}"),
            granularity=ao.PerGroup(32),
            mapping_type=ao.MappingType.ASYMMETRIC,
        )
        yield f"int{bits}", quantized(integers, given)
    yield "float32", quantized(ao.Float8WeightOnlyConfig(), given.float())
    yield "e5m2", ao.Float8Tensor.from_hp(given, float8_dtype=torch.float8_e5m2)
    # scales below the smallest normal float32 and above the largest float16
    for factor in (1e-38, 1.0, 1e30):
        yield f"mx {factor}", MXTensor.to_mx(given * factor, torch.float8_e5m2, 32)


@pytest.mark.slow  # by default, golden releases of torchao are read in test_golden.py
def test_torchao(tmp_path):
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    for what, tensor in torchao_tensors():
        tensors, metadata = flatten_tensor_state_dict({"m.weight": tensor})
        checkpoint = release(tmp_path, tensors, None, metadata)
        assert checkpoint.problems == (), what
        assert_equal(checkpoint, "m.weight", tensor.dequantize())
