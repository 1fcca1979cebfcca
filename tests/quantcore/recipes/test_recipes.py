"""Recipes, given to the real libraries: they must take them, and do what they say on a small model."""

import json
import shlex
from collections import OrderedDict
from itertools import pairwise

import numpy as np
import pytest
import torch
from grid import for_each
from torch import nn

import quantcore as qc
from quantcore.checkpoints import EXAMPLES, open_checkpoint
from quantcore.errors import QuantError
from quantcore.layerwise import plan, sensitivity
from quantcore.recipes import FTYPES, TOOLS, ftype_file, ftype_types, recipe

MATRICES = ("encoder.layer.0.attention.self.query", "encoder.layer.0.output.dense")
INT4, INT8, UINT4 = "int4 per_group(32)", "int8 per_channel(0)", "uint4 asymmetric per_group(64)"


class Block(nn.Module):
    """Names of which one is the beginning of another, and one contains another."""

    def __init__(self):
        super().__init__()
        self.up, self.up_two, self.down = nn.Linear(64, 128), nn.Linear(64, 128), nn.Linear(128, 64)


def model():
    torch.manual_seed(0)
    return nn.ModuleDict({"layers": nn.ModuleList([Block() for _ in range(11)]), "head": nn.Linear(64, 16)})


CHOSEN = {
    "layers.1.up.weight": INT4, "layers.1.down.weight": INT8, "layers.10.down.weight": UINT4,
    "layers.0.up.weight": "as stored", "head.weight": "as stored",
}  # fmt: skip


def quantized_values(chosen=CHOSEN, convention="torchao"):
    """The weights that are to change, as quantcore has them."""
    weights = model().state_dict()
    schemes = {name: f"{scheme} {convention}" for name, scheme in chosen.items() if scheme != "as stored"}
    return {name: qc.apply(weights[name], scheme) for name, scheme in schemes.items()}


@pytest.mark.slow
def test_torchao_quantizes_these_modules_and_no_others():
    from torchao.core.config import config_from_dict
    from torchao.quantization import FqnToConfig, quantize_

    made, ours = recipe(CHOSEN, "torchao"), model()
    config = config_from_dict(made.json)
    assert isinstance(config, FqnToConfig)
    quantize_(ours, config, filter_fn=None)
    expected, before = quantized_values(), model().state_dict()
    assert len(expected) == 3
    for name, own in ours.named_parameters():
        is_changed = name in expected
        assert hasattr(own, "qdata") == is_changed, name
        value = own.dequantize() if is_changed else own
        assert torch.equal(value, expected[name].dequantized if is_changed else before[name]), name


@pytest.mark.slow
def test_the_script_for_torchao_is_the_same_config():
    from torchao.core.config import config_from_dict

    made = recipe(CHOSEN, "torchao")
    names = {"model": model()}
    exec(made.text, names)
    assert names["config"].fqn_to_config == config_from_dict(made.json).fqn_to_config
    assert "layers.1.up': scheme_0,  # as given" in made.text


def test_torchaos_config_has_bits_granularity_and_mapping():
    chosen = CHOSEN | {"head.weight": "e4m3fn per_channel(0)"}
    modules = recipe(chosen, "torchao").json["_data"]["fqn_to_config"]
    told = {name: [value["_data"] for value in own["_data"].values()] for name, own in modules.items()}
    assert told == {
        "layers.1.up": ["int4", {"group_size": 32}, "SYMMETRIC"], "layers.1.down": ["int8", {"axis": 0}, "SYMMETRIC"],
        "layers.10.down": ["int4", {"group_size": 64}, "ASYMMETRIC"], "head": ["float8_e4m3fn", {"dim": -1}],
    }  # fmt: skip


FP4 = {
    "layers.1.up.weight": "compressed_tensors.nvfp4", "layers.2.up.weight": "compressed_tensors.mxfp4",
    "layers.3.up.weight": "e4m3fn per_channel(0)", "layers.4.up.weight": "e4m3fn per_tensor",
}  # fmt: skip


@pytest.mark.slow
def test_compressed_tensors_takes_the_groups_and_ignores_the_rest():
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.quant_scheme import MXFP4A16, NVFP4A16

    made, ours = recipe(CHOSEN | FP4 | {"layers.1.up.weight": INT4, "layers.5.up.weight": FP4["layers.1.up.weight"]},
                        "compressed-tensors"), model()  # fmt: skip
    config = QuantizationConfig.model_validate(json.loads(made.text))
    assert config.format == "mixed-precision"
    apply_quantization_config(ours, config)
    found = {n: m.quantization_scheme for n, m in ours.named_modules() if hasattr(m, "quantization_scheme")}
    assert {n: (s.weights.num_bits, s.weights.strategy, s.weights.group_size, s.weights.symmetric) for n, s in found.items()} == {
        "layers.1.up": (4, "group", 32, True), "layers.1.down": (8, "channel", None, True),
        "layers.10.down": (4, "group", 64, False), "layers.2.up": (4, "group", 32, True),
        "layers.3.up": (8, "channel", None, True), "layers.4.up": (8, "tensor", None, True),
        "layers.5.up": (4, "tensor_group", 16, True),
    }  # fmt: skip
    assert found["layers.5.up"].weights == NVFP4A16["weights"]
    assert found["layers.2.up"].weights == MXFP4A16["weights"]
    assert set(config.ignore) == {"layers.0.up", "head"}


@pytest.mark.slow
def test_the_formats_are_those_that_compressed_tensors_would_choose():
    from compressed_tensors.compressors.format import infer_module_format
    from compressed_tensors.quantization import QuantizationConfig

    for scheme in TOOLS["compressed-tensors"].menu:
        data = recipe({"a.weight": scheme}, "compressed-tensors").json
        (group,) = QuantizationConfig.model_validate(data).config_groups.values()
        assert infer_module_format(nn.Linear, group).value == data["format"] == group.format, scheme


@pytest.mark.slow
def test_compressed_tensors_stores_the_weights_of_these_modules():
    from compressed_tensors.compressors import compress_module, decompress_module
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config

    ours, before = model(), model().state_dict()
    apply_quantization_config(ours, QuantizationConfig.model_validate(recipe(CHOSEN, "compressed-tensors").json))
    signed = {name: scheme.replace("uint4", "int4") for name, scheme in CHOSEN.items()}
    expected = quantized_values(signed, "compressed_tensors")
    for name, result in expected.items():
        module = ours.get_submodule(name.removesuffix(".weight"))
        module.weight_scale.data = result.scale.reshape(module.weight_scale.shape)
        if module.quantization_scheme.weights.symmetric is False:
            module.weight_zero_point.data = result.zero_point.reshape(module.weight_scale.shape).to(torch.int8)
        compress_module(module)
        assert not hasattr(module, "weight")
        decompress_module(module)
        assert torch.equal(module.weight, result.dequantized), name
    others = {n: p for n, p in ours.named_parameters() if n in before.keys() - expected.keys()}
    assert len(others) == len(before) - 3
    assert all(torch.equal(value, before[name]) for name, value in others.items())


@pytest.fixture
def chain(tmp_path):
    """A model of four MatMuls."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def weights(name):
        return numpy_helper.from_array(np.full((64, 64), 0.5, np.float32), name)

    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], f"node_{i}") for i in range(4)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in ("x0", "x4")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weights(f"w{i}") for i in range(4)])
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), file)
    return file


OF_MATMUL = "uint4 asymmetric per_group(32, axis=0)"


def test_onnxruntime_excludes_nodes_by_their_names(chain):
    checkpoint = open_checkpoint(chain)
    made = recipe({"w1": OF_MATMUL, "w3": OF_MATMUL}, "onnxruntime", checkpoint)
    assert made.json == {"bits": 4, "block_size": 32, "is_symmetric": False, "nodes_to_exclude": ["node_0", "node_2"]}
    assert 'nodes_to_exclude=["node_0", "node_2"]' in made.text
    with pytest.raises(QuantError, match="gives all MatMuls one scheme"):
        recipe({"w1": OF_MATMUL, "w3": "uint8 asymmetric per_group(32, axis=0)"}, "onnxruntime", checkpoint)
    with pytest.raises(QuantError, match="give the ONNX model"):
        recipe({"w1": OF_MATMUL}, "onnxruntime")
    with pytest.raises(QuantError, match="give the ONNX model"):
        recipe({"w.weight": OF_MATMUL}, "onnxruntime", open_checkpoint(EXAMPLES["minilm"]))


def test_onnxruntime_quantizes_these_matmuls_and_no_others(chain):
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = recipe({"w1": OF_MATMUL, "w3": OF_MATMUL}, "onnxruntime", open_checkpoint(chain))
    quantizer = MatMulNBitsQuantizer(onnx.load(chain), **made.json)
    quantizer.process()
    assert [node.op_type for node in quantizer.model.model.graph.node] == ["MatMul", "MatMulNBits"] * 2


def test_mlx_quantizes_these_modules_and_no_others():
    """By the rule of mlx-lm's loader: a module's own entry, else whether the file has scales for it."""
    nn_of_mlx = pytest.importorskip("mlx.nn", reason="MLX is no part of the checks: pip install mlx[cpu]")
    chosen = {"up.weight": UINT4, "up_two.weight": "as stored", "down.weight": "torchao.mxfp4"}
    quantization = recipe(chosen, "MLX").json["quantization"]
    ours = nn_of_mlx.Module()
    for name in ("up", "up_two", "down", "other"):
        setattr(ours, name, nn_of_mlx.Linear(64, 32))
    nn_of_mlx.quantize(
        ours, quantization["group_size"], quantization["bits"], mode=quantization["mode"],
        class_predicate=lambda path, module: quantization.get(path, False),
    )  # fmt: skip
    assert (ours.up.group_size, ours.up.bits, ours.up.mode) == (64, 4, "affine")
    assert (ours.down.group_size, ours.down.bits, ours.down.mode) == (32, 4, "mxfp4")
    assert type(ours.up_two) is type(ours.other) is nn_of_mlx.Linear


def test_mlx_has_a_default_and_an_entry_for_every_module():
    made = recipe({"a.weight": UINT4, "b.weight": UINT4, "c.weight": "torchao.nvfp4", "d.weight": "as stored"}, "MLX")
    affine = {"group_size": 64, "bits": 4, "mode": "affine"}
    nvfp4 = {"group_size": 16, "bits": 4, "mode": "nvfp4"}
    assert made.json == {"quantization": {**affine, "a": affine, "b": affine, "c": nvfp4, "d": False}}
    assert json.loads(made.text) == made.json


def test_modelopt_lists_what_is_quantized_and_excludes_nothing():
    """A name in exclude_modules excludes every module that contains it: layers.1 would exclude layers.10."""
    chosen = {"layers.10.up.weight": "e4m3fn per_tensor", "layers.2.up.weight": "torchao.nvfp4", "layers.1.up.weight": "as stored"}
    made = recipe(chosen, "modelopt")
    assert made.json["quantization"] == {
        "quant_algo": "MIXED_PRECISION", "exclude_modules": [],
        "quantized_layers": {"layers.10.up": {"quant_algo": "FP8"}, "layers.2.up": {"quant_algo": "W4A16_NVFP4", "group_size": 16}},
    }  # fmt: skip


def test_auto_round_has_16_bits_for_what_stays():
    alone = dict.fromkeys(("c.weight", "c_norm.weight", "embed_tokens.weight"), "as stored")
    made = recipe({"a.weight": INT4, "b.weight": INT8} | alone, "AutoRound")
    of_ints = {"sym": True, "data_type": "int", "act_bits": 16}
    assert made.json == {
        "a": {"bits": 4, "group_size": 32, **of_ints}, "b": {"bits": 8, "group_size": -1, **of_ints},
        "c": {"bits": 16, "data_type": "fp", "act_bits": 16, "act_data_type": "fp"},
    }  # fmt: skip


@for_each("tool", ["compressed-tensors", "torchao", "ModelOpt", "AutoRound", "MLX"])
def test_what_a_tool_is_said_to_have_it_has(tool):
    for scheme in TOOLS[tool].menu:
        made = recipe({"layers.0.up.weight": scheme}, tool)
        assert made.reasons == {"layers.0.up.weight": made.reasons["layers.0.up.weight"]}


@for_each(
    ("scheme", "tool", "nearest"),
    [
        (INT4, "MLX", "uint4 asymmetric per_group(32)"),
        ("int4 per_channel(0)", "MLX", "uint4 asymmetric per_group(128)"),
        ("int7 per_channel(0)", "AutoRound", "int8 symmetric per_channel(0)"),
        ("int8 asymmetric per_channel(0)", "AutoRound", "int8 symmetric per_channel(0)"),
        (INT8, "ModelOpt", "e4m3fn per_tensor"),
        (INT4, "llama.cpp", "gguf.Q4_0"),
        ("Q4_K", "torchao", "int4 asymmetric per_group(128)"),
        ("IQ2_XXS", "AutoRound", "int2 symmetric per_group(128)"),
        ("int4 per_group(32) min_mse", "torchao", "int4 symmetric per_group(32)"),
        ("int16 per_channel(0)", "torchao", "int8 symmetric per_channel(0)"),
        ("bitsandbytes.nf4", "compressed-tensors", "compressed_tensors.nvfp4"),
        ("int4 per_tensor", "compressed-tensors", "int4 symmetric per_channel(0)"),
    ],
)  # fmt: skip
def test_a_scheme_that_a_tool_lacks_is_refused_with_the_nearest(scheme, tool, nearest):
    with pytest.raises(QuantError, match=r"has no .*; the nearest that it has is ") as error:
        recipe({"a.weight": scheme, "b.weight": "as stored"}, tool)
    assert str(error.value).endswith(f" {nearest}.")


@for_each(
    ("chosen", "tool", "words"),
    [
        ({"a.weight": "as stored"}, "torchao", "No tensor is to be quantized"),
        ({"a.weight": INT4}, "tensorrt", "no recipes for the text 'tensorrt'"),
        ({"a.scale": INT4}, "torchao", "'a.scale' is not the weight of a module"),
        ({"a.weight": "int4 per_grup(32)"}, "torchao", "per_grup"),
        ([INT4], "torchao", "not a list"),
        ({"a.weight": [INT4]}, "torchao", "scheme is a list"),
        ({"l.0.attn.q_proj.weight": INT4, "l.0.attn.k_proj.weight": INT8}, "compressed-tensors", "fuse .*q_proj.* and .*k_proj"),
        ({"l.0.mlp.up_proj.weight": "e4m3fn per_tensor", "l.0.mlp.gate_proj.weight": "as stored"}, "ModelOpt", "fuse"),
        ({"layers.0.up.weight": "Q4_K"}, "llama.cpp", r"What llama.cpp calls 'layers.0.up.weight' can't be told"),
        ({"blk.0.attn_q.weight": "Q4_K", "output.weight": "as stored"}, "llama.cpp", "How 'output.weight' is stored"),
        ({"blk.0.attn_norm.weight": "Q4_K"}, "llama.cpp", "llama.cpp never quantizes 'blk.0.attn_norm.weight'"),
    ],
)  # fmt: skip
def test_what_fits_no_recipe_is_said(chosen, tool, words):
    with pytest.raises(QuantError, match=words):
        recipe(chosen, tool)


def test_a_checkpoint_shows_what_does_not_fit():
    minilm = open_checkpoint(EXAMPLES["minilm"])
    name = "encoder.layer.0.attention.self.query.weight"
    with pytest.raises(QuantError, match="rows of 384, which groups of 256 do not divide"):
        recipe({name: "int4 per_group(256)"}, "torchao", minilm)
    with pytest.raises(QuantError, match=r"no tensor 'encoder.layer.0.attention.self.qery.weight'; the nearest name"):
        recipe({name.replace("query", "qery"): INT4}, "torchao", minilm)
    with pytest.raises(QuantError, match=r"would make 'blk.0.attn_q.weight' Q5_0 instead of Q4_K \(384 columns"):
        recipe({name: "Q4_K"}, "llama.cpp", minilm)


def test_llama_cpp_gives_a_plan_its_types():
    """The patterns, given to the preview that agrees with llama.cpp, lead to the types of the plan."""
    minilm = open_checkpoint(EXAMPLES["minilm"])
    *_, last = sensitivity(minilm, ["gguf.Q4_0", "gguf.Q8_0"])
    chosen = plan(last.table, 560_000)
    made = recipe(chosen, "llama.cpp", minilm, last.table)
    types = ftype_types(minilm, **made.json | {"imatrix": False})
    assert (types["blk.0.attn_q.weight"], types["blk.0.ffn_down.weight"]) == ("Q8_0", "Q4_0")
    assert made.text.splitlines()[0].startswith("llama-quantize --pure")
    assert made.reasons["encoder.layer.0.output.dense.weight"].startswith("gguf.Q4_0: chosen by the plan, SQNR")
    assert "4.5 bits per weight" in made.reasons["encoder.layer.0.output.dense.weight"]
    assert made.reasons["encoder.layer.0.output.LayerNorm.weight"].startswith("as stored: it ")


@for_each("ftype", ["Q4_K_M", "Q2_K", "IQ3_XXS", "MXFP4_MOE"])
def test_a_recipe_of_an_ftype_leads_to_its_types(ftype):
    minilm = open_checkpoint(EXAMPLES["minilm"])
    file = ftype_file(minilm, ftype, dry_run=True)
    made = recipe(file)
    assert ftype_types(minilm, **made.json | {"imatrix": True}) == dict(file.types)


@for_each("kind", ["IQ2_S", "IQ2_XS", "IQ3_S", "Q3_K", "MXFP4", "Q8_0"])
def test_the_words_are_as_llama_quantize_reads_them(kind):
    """A shell splits them, and the program lowers the letters of a pattern, which ends at the first =."""
    minilm = open_checkpoint(EXAMPLES["minilm"])
    made = recipe({f"{name}.weight": "Q4_0" if "query" in name else kind for name in MATRICES}, "llama.cpp", minilm)
    program, *words = shlex.split(made.text.replace("\\\n", " "))
    parts = [word.partition("=") for before, word in pairwise(words) if before == "--tensor-type"]
    assert program == "llama-quantize"
    rules = [(pattern.lower(), name) for pattern, _, name in parts]
    types = ftype_types(minilm, words[-1], "--imatrix" in words, pure="--pure" in words, tensor_types=rules)
    assert (types["blk.0.attn_q.weight"], types["blk.0.ffn_down.weight"]) == ("Q4_0", kind)


def test_layers_share_a_pattern_and_numbers_are_whole():
    chosen = {f"blk.{i}.ffn_down.weight": "Q6_K" if i in (1, 10) else "Q4_K" for i in range(12)}
    chosen |= {"token_embd.weight": "Q4_K", "output.weight": "Q6_K", "blk.0.attn=A.weight": "Q8_0"}
    made = recipe(OrderedDict(chosen))
    assert made.json["tensor_types"] == [
        (r"^blk\.(1|10)\.ffn_down\.weight$", "Q6_K"), (r"^output\.weight$", "Q6_K"), (r"^blk\.0\.attn..\.weight$", "Q8_0")
    ]  # fmt: skip
    assert made.json["ftype"] == "Q4_K_S"
    assert r"  --tensor-type '^output\.weight$=q6_K' \\"[:-1] in made.text.splitlines()


def test_the_file_type_has_the_type_that_most_are_to_have():
    """Not by its name: most of an IQ2_S is IQ2_XS."""
    for kind in {kind for _, kind in FTYPES.values()} - {"", "F32", "F16", "BF16"}:
        assert FTYPES[recipe({"blk.0.attn_q.weight": kind}).json["ftype"]][1] == kind


def test_an_imatrix_is_asked_for_where_llama_cpp_needs_one():
    assert "--imatrix" in recipe({"blk.0.attn_q.weight": "IQ2_XXS"}).text
    assert "--imatrix" not in recipe({"blk.0.attn_q.weight": "IQ3_S"}).text
