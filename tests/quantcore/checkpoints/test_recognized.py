"""Layouts that only some kernels use, against the libraries that write them: scales in tiles, W4A8, one bit, and more."""

import json

import numpy as np
import torch
from checkpoint_cases import case
from grid import for_each
from releases import release
from safetensors.torch import load_file, save_file

import quantcore as qc
from quantcore.checkpoints import open_checkpoint

SHAPES = [(40, 96), (128, 64), (200, 192)]


def weight(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def saved(folder, tensors, metadata=None, **config):
    return release(folder, tensors, config, metadata)


def assert_reads(tensor, values):
    """Values, rows, places and bytes of a weight."""
    values = values.float()
    assert torch.equal(tensor.read(), values)
    assert torch.equal(tensor.read(slice(7, 33)), values[7:33])
    last = tuple(n - 1 for n in tensor.shape)
    assert tensor.origin(last).value == values[last]
    for role, field in tensor.layout.fields.items():
        assert qc.checkpoints.encode(tensor)[field.piece.name] == bytes(field.piece.bytes()), role


def of_torchao(quantized, folder):
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    tensors, metadata = flatten_tensor_state_dict({"m.weight": quantized})
    return saved(folder, tensors, metadata, quantization_config={"quant_method": "torchao"}).tensors["m.weight"]


@for_each("shape", SHAPES, ids=str)
@for_each("kind", ["nvfp4", "e4m3fn", "fp4"])
def test_torchao_in_tiles(kind, shape, tmp_path):
    from torchao.prototype.mx_formats.mx_tensor import MXTensor  # slow to import, here and below
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor

    x = weight(shape)
    if kind == "nvfp4":
        made = NVFP4Tensor.to_nvfp4(x, is_swizzled_scales=True, per_tensor_scale=torch.tensor(0.002))
    else:
        element = torch.float8_e4m3fn if kind == "e4m3fn" else torch.float4_e2m1fn_x2
        made = MXTensor.to_mx(x, element, 32, is_swizzled_scales=True)
    assert_reads(of_torchao(made, tmp_path), made.dequantize(torch.float32))


@for_each("shape", SHAPES, ids=str)
@for_each("form", ["matrix", "row of bytes"])
def test_modelopt_in_tiles(form, shape, tmp_path):
    """Scales as ModelOpt's enable_swizzle_layout leaves them, padded, or as one row of bytes."""
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
    from torchao.prototype.mx_formats.utils import to_blocked

    plain = NVFP4Tensor.to_nvfp4(weight(shape), per_tensor_scale=torch.tensor(0.002))
    tiles = to_blocked(plain.scale.view(torch.uint8))
    rows, columns = -(-shape[0] // 128) * 128, -(-shape[1] // 64) * 4
    scale = tiles if form == "row of bytes" else tiles.view(torch.float8_e4m3fn).view(rows, columns)
    tensors = {"m.weight": plain.qdata.view(torch.uint8), "m.weight_scale": scale, "m.weight_scale_2": torch.tensor(0.002)}
    config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    tensor = saved(tmp_path, tensors, **config).tensors["m.weight"]
    if form == "matrix" and (rows, columns) == (shape[0], shape[1] // 16):  # nothing tells that these are tiles
        (rival,) = [r for r in tensor.rivals((5, 20)) if r.key == "scales_swizzled"]
        assert rival.value == plain.dequantize(torch.float32)[5, 20]
        return
    assert_reads(tensor, plain.dequantize(torch.float32))


@for_each("shape", [(127, 4), (128, 3), (256, 8)], ids=str)
def test_scales_that_are_no_tiles(shape, tmp_path):
    tensors = {
        "m.weight": torch.zeros(128, 32, dtype=torch.uint8), "m.weight_scale": torch.zeros(shape, dtype=torch.float8_e4m3fn),
        "m.weight_scale_2": torch.tensor(1.0),
    }  # fmt: skip
    (problem,) = saved(tmp_path, tensors, quantization_config={"quant_method": "modelopt"}).problems
    assert f"has shape {shape}" in problem.sentence


def test_modelopt_w4a8(tmp_path):
    """The second scale brings the weights into the range of FP8 for the product; it is no part of their values."""
    packed = torch.randint(0, 256, (20, 64), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    scale = torch.rand(40, 2) + 0.1
    config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ", "group_size": 32}}
    four = {"m.weight": packed, "m.weight_scale": scale}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    without = saved(tmp_path / "a", four, **config).tensors["m.weight"].read()
    tensor = saved(tmp_path / "b", four | {"m.weight_scale_2": torch.tensor([3.0])}, **config).tensors["m.weight"]
    codes = np.stack([packed.numpy() & 15, packed.numpy() >> 4], 1).reshape(40, 64).astype(np.float32)
    codes[codes > 7] -= 16
    assert np.array_equal(without.numpy(), codes * scale.numpy().repeat(32, 1))
    assert_reads(tensor, without)


@for_each("mapping", ["SYMMETRIC", "ASYMMETRIC"])
def test_torchao_one_bit(mapping, tmp_path):
    from torchao.quantization import IntxWeightOnlyConfig, MappingType, quantize_
    from torchao.quantization.granularity import PerGroup

    module = torch.nn.Sequential(torch.nn.Linear(64, 40, bias=False))
    module[0].weight.data = weight((40, 64))
    quantize_(module, IntxWeightOnlyConfig(weight_dtype=torch.int1, granularity=PerGroup(32), mapping_type=MappingType[mapping]))
    tensor = of_torchao(module[0].weight, tmp_path)
    assert tensor.storage.startswith("torchao int1 per_group(32)")
    assert set(tensor.codes().unique().tolist()) <= {-1, 0}
    assert tensor.layout.element.bits == 2  # the smallest integers there are
    assert_reads(tensor, module[0].weight.dequantize())


def test_shapes_of_quanto_from_the_config(tmp_path):
    """A name that says nothing: the model's sizes tell which rows its groups make, and two answers are none."""
    tensors = load_file(case("quanto_qint4").release / "model.safetensors")
    known = "model.layers.0.self_attn.q_proj.weight"  # 32 x 256 in groups of 128
    own = {f"m.mixer.weight{name.removeprefix(known)}": t for name, t in tensors.items() if name.startswith(known)}
    expected = case("quanto_qint4").expected[known]
    for sizes, shape in (
        ({"d_model": 256, "d_ff": 32}, (32, 256)),
        ({"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 1}, (32, 256)),
        ({"hidden_size": 128, "intermediate_size": 64}, (64, 128)),
        ({"d_model": 256, "vocab_size": 1000, "n_head": 8, "other": 1}, (64, 128)),  # 32 rows of 256: no such length
        ({"d_model": 256, "d_ff": 32, "vocab_size": 64, "n_head": 2, "num_key_value_heads": 1}, (64, 128)),
    ):
        tensor = saved(tmp_path, own, quantization_config={"quant_method": "quanto"}, **sizes).tensors["m.mixer.weight"]
        assert tensor.shape == shape
        assert np.array_equal(tensor.read().numpy().reshape(32, 256), expected)
        assert bool(tensor.notes()) == (len(sizes) > 3)  # no shape fits, or both: the guess is said


def test_a_tensor_in_another_shard_than_the_index_says(tmp_path):
    a, b, c = weight((3, 4)), weight((3, 4), 1), weight((3, 4), 2)
    shards = {f"model-0000{i}-of-00003.safetensors": t for i, t in enumerate(({"a": a}, {"b": b}, {"c": c}), 1)}
    for name, tensors in shards.items():
        save_file(tensors, tmp_path / name)
    one, two, _ = shards
    index = {"weight_map": {"a": two, "b": two, "c": one, "d": one}}  # the third shard is not named at all
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = open_checkpoint(tmp_path)
    assert {name: tensor.read().tolist() for name, tensor in checkpoint.tensors.items()} == {
        "a": a.tolist(), "b": b.tolist(), "c": c.tolist(),
    }  # fmt: skip
    said = {problem.tensors: (problem.kind, problem.sentence) for problem in checkpoint.problems}
    assert {tensors: kind for tensors, (kind, _) in said.items()} == {
        ("a",): "wrong_shard", ("c",): "wrong_shard", ("d",): "missing_tensor",
    }  # fmt: skip
    assert f"but '{one}' does" in said[("a",)][1]
    assert "00003-of-00003" in said[("c",)][1]
