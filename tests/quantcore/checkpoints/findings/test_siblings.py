"""Weights compared with their siblings of other layers: what is damaged is named, and nothing in sound models is."""

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import library_releases
import numpy as np
import pytest
import random_releases
import torch
from grid import for_each
from parts import some_rows
from random_releases import stored, weights
from releases import release

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings import siblings
from quantcore.checkpoints.findings.record import in_layer_order, layer_of, role_of, subject_of
from quantcore.checkpoints.findings.siblings import of_siblings
from quantcore.checkpoints.findings.structure import of_structure
from quantcore.checkpoints.findings.summary import Extremes, Largest, Summary, _sampled
from quantcore.checkpoints.findings.walk import Box
from quantcore.checkpoints.protocol.release import Release

Q, UP = "model.layers.3.self_attn.q_proj", "model.layers.5.mlp.up_proj"
NORM = "model.layers.2.input_layernorm.weight"


def without(*starts):
    def change(tensors, config):
        for name in [n for n in tensors if n.startswith(starts)]:
            del tensors[name]

    return change


def put(name, make):
    def change(tensors, config):
        tensors[name] = make(tensors[name].clone())

    return change


def at(place, value):
    def change(tensor):
        tensor[place] = value
        return tensor

    return change


def config(**changes):
    return lambda tensors, given: given["quantization_config"].update(changes)


def arguments(**changes):
    def change(tensors, given):
        given["quantization_config"]["config_groups"]["group_0"]["weights"].update(changes)

    return change


def zeros(tensor):
    return torch.zeros(tensor.shape).to(tensor.dtype)


def unwritten(tensor):
    """As a file whose last eighth was never written."""
    tensor.view(-1)[-tensor.numel() // 8 :] = 0
    return tensor


def shuffled(tensor):
    return tensor[torch.randperm(len(tensor), generator=torch.Generator().manual_seed(0))]


# what is done to a release in one of these formats -> the only error: its kind, the tensors that it is about, and facts
BROKEN = {
    "q gone": (["plain", "gptq", "nvfp4"], without(f"{Q}."), "missing_tensor", f"{Q}.weight", {"layers": 5}),
    "up gone": (["awq", "fp8_blocks"], without(f"{UP}."), "missing_tensor", f"{UP}.weight", {"layers": 5}),
    "v gone": (["int8"], without(f"{Q[:-6]}v_proj."), "missing_tensor", f"{Q[:-6]}v_proj.weight", {"layers": 5}),
    "g_idx gone": (["gptq_desc_act"], without(f"{Q}.g_idx"), "missing_tensor", f"{Q}.g_idx", {"layers": 5}),
    "scales gone": (["mlx"], without(f"{Q}.scales"), "missing_tensor", f"{Q}.scales", {"layers": 5}),
    "weight 0": (["plain"], put(f"{Q}.weight", zeros), "all_zero", f"{Q}.weight", {"alive": 5, "siblings": 5}),
    "codes 0": (["fp8", "int8"], put(f"{Q}.weight", zeros), "all_zero", f"{Q}.weight", {"alive": 5, "siblings": 5}),
    "norm 0": (["gptq"], put(NORM, zeros), "all_zero", NORM, {"alive": 12, "siblings": 12}),
    "final norm 0": (["awq"], put("model.norm.weight", zeros), "all_zero", "model.norm.weight", {"alive": 12}),
    "scales 0": (["gptq", "awq", "mlx"], put(f"{Q}.scales", zeros), "scale_zero", f"{Q}.weight", {"alive": 5}),
    "block scales 0": (["nvfp4"], put(f"{Q}.weight_scale", zeros), "scale_zero", f"{Q}.weight", {"alive": 5}),
    "global scale 0": (
        ["modelopt_nvfp4"], put(f"{Q}.weight_scale_2", zeros), "scale_zero", f"{Q}.weight", {"alive": 5},
    ),
    "scales of a row 0": (
        ["pack_quantized"], put(f"{Q}.weight_scale", at(5, 0.0)), "scale_zero", f"{Q}.weight", {"dead": 2, "groups": 128},
    ),
    "an element of 2.3e36": (["plain"], put(f"{Q}.weight", at((3, 4), 2.3e36)), "isolated_value", f"{Q}.weight", {"at": (3, 4)}),
    "a norm of 2.3e36": (["gptq"], put(NORM, at(3, 2.3e36)), "isolated_value", NORM, {"at": (3,)}),
    "a scale times 1,000": (
        ["gptq"], put(f"{Q}.scales", lambda t: at((0, 5), t[0, 5] * 1000)(t)), "isolated_scale", f"{Q}.weight", {"at": (5, 0)},
    ),
    "scales times 64": (["awq"], put(f"{Q}.scales", lambda t: t * 64), "far_spread", f"{Q}.weight", {"siblings": 5}),
    "a global scale off by 2^7": (
        ["nvfp4"], put(f"{Q}.weight_global_scale", lambda t: t / 128), "far_spread", f"{Q}.weight", {"siblings": 5},
    ),
    "the end of scales never written": (
        ["fp8", "gptq_desc_act", "pack_quantized"], lambda t, c: put(next(n for n in t if n.startswith(f"{UP}.") and "scale" in n), unwritten)(t, c),
        "scale_zero", f"{UP}.weight", {},
    ),
    "the end of block scales never written": (
        ["nvfp4", "fp8_blocks"], lambda t, c: put(next(n for n in t if n.startswith(f"{UP}.weight_scale")), unwritten)(t, c),
        "scale_zero", f"{UP}.weight", {},
    ),
    "exponents off by 7": (["mxfp4"], put(f"{Q}.weight_scale", lambda t: t + 7), "far_spread", f"{Q}.weight", {}),
    "scales inverted": (["fp8_blocks"], put(f"{Q}.weight_scale_inv", lambda t: 1 / t), "far_spread", f"{Q}.weight", {}),
    "g_idx shuffled": (["gptq"], put(f"{Q}.g_idx", shuffled), "g_idx_unsorted", f"{Q}.weight", {}),
    "g_idx unbalanced": (
        ["gptq_desc_act"], put(f"{Q}.g_idx", torch.zeros_like), "g_idx_unbalanced", f"{Q}.weight", {"columns": 64, "size": 32},
    ),
    "weight_shape": (
        ["pack_quantized"], put(f"{Q}.weight_shape", lambda t: t - torch.tensor([0, 8])), "weight_shape", f"{Q}.weight",
        {"stored": (64, 56), "shape": (64, 64)},
    ),
    "group_size": (["gptq", "awq"], config(group_size=64), "config_contradicted", None, {"said": 64, "size": 32, "tensors": 14}),
    "format": (["pack_quantized", "fp8"], config(format="packed"), "unreadable_tensor", None, {"tensors": 14}),
    "another format": (["int8"], config(format="float-quantized"), "config_contradicted", None, {"tensors": 14}),
    "strategy": (["int8", "mxfp4"], arguments(strategy="row"), "unreadable_tensor", None, {"tensors": 14}),
    "sym": (["gptq"], config(sym="yes"), "unreadable_tensor", None, {"tensors": 14}),
    "a layer gone": (["plain", "gptq"], without("model.layers.2."), "missing_layer", "model.layers.2", {"layer": 2, "layers": 5}),
    "the last layer gone": (
        ["awq", "plain"], without("model.layers.5."), "missing_layer", "model.layers.5", {"said": 6, "last": 4},
    ),
    "the end never written": (
        ["plain", "fp8", "int8", "mlx"], put(f"{UP}.weight", unwritten), "flat_rows", f"{UP}.weight", {"alive": 5, "lines": 16},
    ),
    "the end of codes never written": (
        ["gptq", "awq"], put(f"{UP}.qweight", unwritten), "flat_columns", f"{UP}.weight", {"lines": 8, "first": 56},
    ),
    "one value": (["plain"], put(f"{UP}.weight", lambda t: t * 0 + 0.01), "flat_rows", f"{UP}.weight", {"lines": 128, "first": 0}),
    "zero points off by one": (["awq"], put(f"{UP}.qzeros", lambda t: t + 0x11111111), "far_mean", f"{UP}.weight", {"siblings": 5}),
    "bits of bfloat16 as float16": (
        ["plain"], put(f"{UP}.weight", lambda t: t.view(torch.float16)), "far_spread", f"{UP}.weight", {"siblings": 5},
    ),
    "bits": (["pack_quantized"], arguments(num_bits=8), "unreadable_tensor", None, {"tensors": 14}),
}  # fmt: skip
MLX = "model.layers.1.self_attn.q_proj"


@for_each(
    "change", [without(f"{MLX}.biases"), put(f"{MLX}.scales", lambda t: t.view(torch.int16))]
)
def test_biases_that_are_gone_and_scales_that_are_integers(change, tmp_path):
    tensors, given = stored("llama", "mlx", 5, 2)
    change(tensors, given)
    found = [f for f in release(tmp_path, tensors, given).findings() if f.severity == "error"]
    assert any(f.kind == "unreadable_tensor" and "biases" in f.sentence for f in found), found
    assert any(name.startswith(MLX) for f in found for name in f.tensors)


FIRST = [(what, forms[0]) for what, (forms, *_) in BROKEN.items()]
REST = [
    pytest.param(what, f, marks=pytest.mark.slow) for what, (forms, *_) in BROKEN.items() for f in forms[1:]
]


@for_each(("what", "form"), [*some_rows(FIRST, 34), *REST])
def test_what_is_broken_is_one_error(what, form, tmp_path):
    _, change, kind, name, facts = BROKEN[what]
    tensors, given = stored("llama", form, 5, 2 if name is None else 6)
    given = copy.deepcopy(given)
    change(tensors, given)
    found = [f for f in release(tmp_path, tensors, given).findings() if f.severity != "note"]
    (error,) = found
    assert (error.severity, error.kind) == ("error", kind)
    assert facts.items() <= error.facts.items()
    if name is not None:
        assert error.tensors == (name,)


@for_each(
    ("change", "says"), [(config(sym=False), "sym false"), (config(desc_act=True), "desc_act true")]
)
def test_a_config_that_the_tensors_contradict_without_harm(change, says, tmp_path):
    tensors, given = stored("llama", "gptq", 1, 2)
    given = copy.deepcopy(given)
    change(tensors, given)
    found = {f.kind: f for f in release(tmp_path, tensors, given).findings()}
    assert {f.severity for f in found.values()} == {"note"}
    assert (found["config_unused"].facts["says"], found["config_unused"].facts["tensors"]) == (says, 14)


def test_flags_that_are_numbers(tmp_path):
    tensors, given = stored("llama", "gptq", 1, 2)
    given["quantization_config"] = given["quantization_config"] | {"sym": 1, "desc_act": 0}
    assert (
        "int4 per_group(32) symmetric"
        in release(tmp_path, tensors, given).tensors[f"{Q[:-18]}1.self_attn.q_proj.weight"].storage
    )


@for_each(("kind", "form"), some_rows([("bert", "gptq_desc_act"), ("hybrid", "nvfp4")], 2))
def test_a_sound_model_has_no_warning(kind, form, tmp_path):
    found = release(tmp_path, *stored(kind, form, 3, 6)).findings()
    assert [f.sentence for f in found if f.severity != "note"] == []
    assert len(found) <= 8


@pytest.mark.slow
@pytest.mark.parametrize("form", random_releases.FORMATS)
@pytest.mark.parametrize("kind", random_releases.CONFIGS)
def test_sound_models_have_no_warning(kind, form, tmp_path):
    for seed in range(10, 15):
        found = release(tmp_path / str(seed), *stored(kind, form, seed)).findings()
        assert [f.sentence for f in found if f.severity != "note"] == []
        assert len(found) <= 8


LIBRARIES = {
    "hqq": (library_releases.hqq, ("hqq",)),
    "bitsandbytes": (library_releases.bitsandbytes, ("bitsandbytes",)),
    "bitsandbytes nested": (lambda w: library_releases.bitsandbytes(w, nested=True), ("bitsandbytes",)),
    "bitsandbytes int8": (library_releases.bitsandbytes_int8, ("bitsandbytes",)),
    "quanto": (library_releases.quanto, ("optimum.quanto",)),
    "torchao int8": (library_releases.torchao, ("torchao",)),
    "torchao int4": (library_releases.torchao_int4, ("torchao",)),
    "torchao float8": (library_releases.torchao_float8, ("torchao",)),
    "mlx": (library_releases.mlx, ("mlx.core",)),
    **{
        scheme: (lambda w, s=scheme: library_releases.compressed_tensors(w, s), ("compressed_tensors",))
        for scheme in ("W4A16", "W4A16_ASYM", "W8A16", "W8A8", "FP8_DYNAMIC", "NVFP4", "MXFP4")
    },
}


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setattr(random_releases, "WIDTH", 256)
    monkeypatch.setattr(random_releases, "INNER", 512)


@pytest.mark.slow
@pytest.mark.parametrize("kind", random_releases.CONFIGS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_libraries_write_has_no_warning(library, kind, wide, tmp_path):
    write, needed = LIBRARIES[library]
    for module in needed:
        pytest.importorskip(module)
    tensors, metadata, more = write(weights(kind, 1, 6))
    checkpoint = release(
        tmp_path, tensors, random_releases.CONFIGS[kind] | {"hidden_size": 256} | more, metadata
    )
    found = checkpoint.findings()
    assert sum(tensor.is_quantized for tensor in checkpoint.tensors.values()) >= 18
    assert [f.sentence for f in found if f.severity != "note"] == []
    assert len(found) <= 8


@pytest.mark.slow
@library_releases.ggml_oracle.needs_ggml
@pytest.mark.parametrize(
    "types", [("Q4_K", "Q6_K"), ("Q2_K", "Q3_K"), ("Q4_0", "Q5_0"), ("Q8_0", "Q8_0"), ("IQ4_XS", "Q5_K")]
)
def test_what_ggml_writes_has_no_warning(types, wide, tmp_path):
    library_releases.gguf_file(weights("llama", 1), tmp_path / "m.gguf", types)
    found = open_checkpoint(tmp_path / "m.gguf").findings()
    assert [f.sentence for f in found if f.severity != "note"] == []


def summaries(spreads, name="model.layers.{}.mlp.up_proj.weight", shape=(8, 8), **more):
    return [
        Summary(
            name.format(i),
            "plain bfloat16",
            shape,
            s,
            Largest(s * 4, s * 3.9, (0, 0)),
            **more,
        )
        for i, s in enumerate(spreads)
    ]


def found_in(given, **model):
    return {(f.kind, f.severity, f.tensors[0]): f.facts for f in of_siblings(given, Release({}, model))}


SPREADS = [0.05, 0.021, 0.02, 0.024, 0.022, 0.025, 0.023, 0.07]


def test_what_is_far_depends_on_the_scatter_of_the_others():
    """The same factor stands out among weights that agree, not among weights that differ widely."""
    assert found_in(summaries(SPREADS)) == {}
    far = [*SPREADS[:3], SPREADS[3] * 16, *SPREADS[4:]]
    ((key, facts),) = found_in(summaries(far)).items()
    assert key == ("far_spread", "error", "model.layers.3.mlp.up_proj.weight")
    assert (facts["low"], facts["high"], facts["siblings"]) == (pytest.approx(0.02), pytest.approx(0.07), 7)
    assert facts["value"] == pytest.approx(0.024 * 16)
    scattered = [0.02 * 2.0**k for k in (0, 3, -2, 4, 1, -3, 2, 5)]
    assert found_in(summaries([*scattered[:3], 0.02 * 16, *scattered[4:]])) == {}


def test_an_end_may_differ_more_and_a_trend_is_not_an_outlier():
    first = [SPREADS[1] * 12, *SPREADS[1:]]
    assert found_in(summaries(first)) == {}
    assert found_in(summaries([SPREADS[1] * 200, *SPREADS[1:]])) != {}
    assert found_in(summaries([0.02 * 2**k for k in range(8)])) == {}


def test_four_siblings_of_the_same_storage_are_needed():
    assert found_in(summaries([0.02, 0.02, 5.0, 0.02])) == {}
    assert found_in(summaries([0.02, 0.02, 5.0, 0.02, 0.02])) != {}
    four = summaries([0.02, 0.02, 0.02, 0.02])
    other = Summary("model.layers.4.mlp.up_proj.weight", "gptq int4", (8, 8), 5.0, Largest(20.0))
    assert found_in([*four, other]) == {}


def test_several_that_are_far_do_not_hide_one_another():
    spreads = [*SPREADS[:7], *SPREADS[2:7], SPREADS[7]]
    far = [*spreads[:3], spreads[3] * 64, spreads[4] * 64, *spreads[5:]]
    assert {name for _, _, name in found_in(summaries(far))} == {
        f"model.layers.{i}.mlp.up_proj.weight" for i in (3, 4)
    }


UP_PROJ = "model.layers.{}.mlp.up_proj.weight"


@for_each(
    ("means", "shape", "said"),
    [
        # |mean| / RMS of each layer
        ([0.01, 0.3, 0.01, 0.02, 0.0], (32, 32), 1), ([0.01, -0.3, 0.01, 0.02, 0.0], (32, 32), 1),
        ([0.01, 0.3, 0.01, 0.02], (32, 32), None),  # too few siblings
        ([0.01, 0.3, 0.01, 0.02, 0.0], (31, 33), None), ([0.01, 0.3, 0.01, 0.02, 0.0], (1024,), None),
        ([0.01, 0.3, 0.01, 0.02, 0.0], (1, 1024), None), ([0.01, 0.3, 0.01, 0.02, 0.0], (512, 1, 2), 1),
        ([0.01, 0.19, 0.01, 0.02, 0.0], (32, 32), None), ([0.01, 0.21, 0.01, 0.02, 0.0], (32, 32), 1),
        ([0.01, 0.25, 0.01, -0.051, 0.0], (32, 32), None), ([0.01, 0.25, 0.01, -0.049, 0.0], (32, 32), 1),
    ],
)  # fmt: skip
def test_means_that_lie_to_one_side(means, shape, said):
    """A fifth of the RMS and more, of which no sibling has a fifth."""
    of_role = [
        Summary(UP_PROJ.format(i), "gptq int4", shape, 2.0, Largest(9.0), 2 * mean)
        for i, mean in enumerate(means)
    ]
    found = list(siblings._shifted(of_role))
    assert [f.tensors for f in found] == ([(UP_PROJ.format(said),)] if said is not None else [])
    for finding in found:
        others = [abs(mean) for i, mean in enumerate(means) if i != said]
        assert finding.facts == pytest.approx(
            {"share": abs(means[said]), "high": max(others), "siblings": len(others)}
        )
        # without a spread there is no share, and one sibling fewer
        assert list(siblings._shifted([*of_role[:4], replace(of_role[4], spread=0.0)])) == []


def test_zeros():
    up, norm, bias = (
        "model.layers.{}.mlp.up_proj.weight",
        "model.layers.{}.input_layernorm.weight",
        "model.layers.{}.fc.bias",
    )
    some, every = [0.0, 1.0, 1.0, 1.0, 1.0, 1.0], [0.0] * 6
    assert {s for _, s, _ in found_in(summaries(some, up))} == {"error"}
    assert [s for _, s, _ in found_in(summaries(every, up))] == ["warning"] * 6
    assert [s for _, s, _ in found_in(summaries([0.0], "lm_head.weight"))] == ["warning"]
    assert {s for _, s, _ in found_in(summaries(some, norm, (8,)), model_type="llama")} == {"error"}
    for model in ({"model_type": "gemma2"}, {"text_config": {"model_type": "gemma3_text"}}):
        assert found_in(summaries(some, norm, (8,)), **model) == {}
    assert found_in(summaries(every, bias, (8,))) == {}
    assert {s for _, s, _ in found_in(summaries(some, bias, (8,)))} == {"error"}


class Piece:
    """The header of a stored tensor."""

    def __init__(self, shape=(8, 8), dtype="BF16", file="model.safetensors"):
        self.shape, self.dtype = shape, dtype
        self.source = type("Source", (), {"name": file})


def lacking(names, **more):
    release = Release({n: Piece((8,) if "norm" in n else (8, 8), **more) for n in names})
    return {(f.severity, f.tensors[0]) for f in of_structure(release)}


def layers(*parts, of=range(6), stack="model.layers"):
    return [f"{stack}.{i}.{part}.weight" for i in of for part in parts]


ATTENTION = tuple(f"self_attn.{n}_proj" for n in "qkvo")
MLP = tuple(f"mlp.{n}_proj" for n in ("gate", "up", "down"))


@for_each("part", [*ATTENTION, *MLP])
def test_one_of_a_set(part):
    every = layers(*ATTENTION, *MLP, "input_layernorm")
    gone = f"model.layers.4.{part}.weight"
    assert lacking([n for n in every if n != gone]) == {("error", gone)}


@for_each(
    ("stack", "parts"),
    [
        ("bert.encoder.layer", [f"attention.self.{n}" for n in ("query", "key", "value")] + ["attention.output.dense", "output.dense"]),
        ("blk", ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]),
        ("transformer.h", ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]),
        ("gpt_neox.layers", ["attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"]),
        ("encoder.block", [f"layer.0.SelfAttention.{n}" for n in "qkvo"] + ["layer.1.DenseReluDense.wi", "layer.1.DenseReluDense.wo"]),
        ("model.decoder.layers", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "fc1", "fc2"]),
        ("model.layers", ["self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"]),
    ],
)  # fmt: skip
def test_one_of_a_set_under_other_names(stack, parts):
    every = layers(*parts, "norm", stack=stack)
    assert lacking(every) == set()
    for part in parts:
        gone = f"{stack}.3.{part}.weight"
        assert lacking([n for n in every if n != gone]) == {("error", gone)}


def test_roles_that_whole_layers_lack():
    """Hybrid attention, first dense layers, shared keys and values, layers without attention or MLP."""
    sound = [
        layers(*ATTENTION, of=(1, 3, 5)) + layers("linear_attn.in_proj", "linear_attn.out_proj", of=(0, 2, 4)) + layers(*MLP),
        layers(*MLP, of=(0,)) + layers("mlp.gate", *(f"mlp.experts.{e}.{n}_proj" for e in range(3) for n in ("gate", "up", "down")), of=range(1, 6)),
        layers(*ATTENTION, of=(0, 1, 2)) + layers("self_attn.q_proj", "self_attn.o_proj", of=(3, 4, 5)) + layers(*MLP),
        layers(*ATTENTION, of=(0, 1, 3, 4)) + layers("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", of=(2, 5)),
        layers(*ATTENTION) + layers(*MLP, of=(0, 1, 3, 4, 5)),
        layers(*ATTENTION, *MLP, "attn_norm", of=range(1, 6)) + layers(*ATTENTION, *MLP, of=(0,)),
    ]  # fmt: skip
    for names in sound:
        assert {severity for severity, _ in lacking(names)} <= {"note"}, names


def test_an_expert_that_one_layer_lacks():
    """One before the last is lost; a layer with fewer experts lacks the last ones."""
    experts = [f"mlp.experts.{e}.{n}_proj" for e in range(4) for n in ("gate", "up", "down")]
    every = layers(*ATTENTION, "mlp.gate", *experts)
    for expert, severity in ((1, "error"), (3, "note")):
        gone = {f"model.layers.2.mlp.experts.{expert}.{n}_proj.weight" for n in ("gate", "up", "down")}
        assert lacking([n for n in every if n not in gone]) == {(severity, name) for name in gone}


def test_keys_and_values_that_one_layer_lacks():
    """Of one layer alone they are lost, if no config says that layers share them."""
    names = (
        layers(*ATTENTION, of=(0, 1, 3, 4))
        + layers("self_attn.q_proj", "self_attn.o_proj", of=(2,))
        + layers(*MLP, of=range(5))
    )
    gone = {("error", f"model.layers.2.self_attn.{n}_proj.weight") for n in "kv"}
    assert lacking(names) == gone
    stored_so = {name: Piece() for name in names}
    for key in ("num_kv_shared_layers", "text_config"):
        config = {key: 1 if key != "text_config" else {"num_kv_shared_layers": 1}}
        found = of_structure(Release(stored_so, config))
        assert {f.severity for f in found} <= {"note"}
    # two layers of four share
    two = layers(*ATTENTION, of=(0, 1, 3)) + layers("self_attn.q_proj", "self_attn.o_proj", of=(2, 4))
    assert {severity for severity, _ in lacking(two)} <= {"note"}


def test_a_single_shard_lacks_what_others_hold():
    names = layers(*ATTENTION, *MLP)[:-2]
    assert lacking(names, file="model-00001-of-00002.safetensors") == set()
    assert lacking(names) != set()


def test_parts_of_modules():
    """A stored tensor that one module lacks; a module stored in another way lacks nothing."""
    stored_so = {
        f"model.layers.{i}.q.{n}": Piece(dtype="I32")
        for i in range(6)
        for n in ("qweight", "qzeros", "scales", "bias")
    }
    release = {k: v for k, v in stored_so.items() if k != "model.layers.2.q.bias"}
    ((finding),) = of_structure(Release(release))
    assert (finding.tensors, finding.severity, finding.facts["layers"]) == (
        ("model.layers.2.q.bias",),
        "error",
        5,
    )
    plain = {k: v for k, v in stored_so.items() if ".2." not in k} | {"model.layers.2.q.weight": Piece()}
    assert list(of_structure(Release(plain))) == []


def test_roles_and_subjects():
    assert role_of("model.layers.3.mlp.experts.5.up.weight") == "model.layers.*.mlp.experts.*.up.weight"
    assert role_of("h.10.attn.w1") == "h.*.attn.w1"
    assert (layer_of("blk.12.ffn_up.weight"), layer_of("lm_head.weight")) == (12, None)
    assert sorted(["l.10.w", "l.2.w", "a"], key=in_layer_order) == ["a", "l.2.w", "l.10.w"]
    names = [f"l.{i}.w" for i in (0, 1, 2, 3, 7)]
    assert (
        subject_of(names, [*names, *"abcdef"], "gptq tensor") == "5 gptq tensors 'l.*.w' (layers 0–3 and 7)"
    )
    assert subject_of(names, names) == "All 5 tensors"
    assert subject_of(names[:2], names) == "'l.0.w' and 'l.1.w'"
    assert subject_of([*names, "x"], [*names, "x", "y"]) == "6 of 7 tensors (all but 'y')"


def test_print_and_near_names(tmp_path):
    checkpoint = release(
        tmp_path, {"model.layers.0.self_attn.q_proj.weight": torch.ones(2, 2), "b": torch.ones(3)}, {}
    )
    assert str(checkpoint) == repr(checkpoint) == "Checkpoint safetensors · 2 tensors · 28 bytes"
    with pytest.raises(KeyError, match=r"nearest name is .*0\.self_attn\.q_proj\.weight"):
        checkpoint.tensors["model.layers.0.self_attn.q_proj"]
    assert "c" not in checkpoint.tensors
    assert checkpoint.tensors.get("c") is None


@for_each(("columns", "first_and_last"), [(70_000, (0,)), (40_000, (0, 9)), (30_000, (0, 9))])
def test_a_sample_is_spread_over_the_rows(columns, first_and_last):
    """One run of rows begins at the first; of several, the last ends at the last row."""
    runs = list(_sampled(SimpleNamespace(shape=(10, columns))))
    assert (runs[0].start, runs[-1].start) == (first_and_last[0], first_and_last[-1])
    assert [run.stop - run.start for run in runs] == [1] * len(runs)


def test_summaries_are_those_of_the_values(tmp_path):
    values = np.random.default_rng(0).normal(size=(300, 70)).astype(np.float32)
    values[7, 3] = -40
    layout = release(tmp_path, {"w": torch.from_numpy(values)}, {}).tensors["w"].layout
    extremes = Extremes(layout)
    for start in range(0, 300, 64):
        extremes.add(Box(layout, slice(start, min(start + 64, 300))))
    found = extremes.summary()
    assert (found.largest.first, found.largest.at) == (40.0, (7, 3))
    assert found.largest.second == pytest.approx(np.sort(np.abs(values).ravel())[-2])
    kept = np.sort(np.abs(values.astype(np.float64)).ravel())[: values.size - 1 - int(1e-3 * values.size)]
    assert found.spread == pytest.approx(math.sqrt((kept**2).mean()))


@pytest.mark.slow
def test_columns_that_were_never_written_are_no_factors_of_rows(tmp_path):
    """A factor near 0 halves any error, but what it leaves does not resemble the original."""
    tensors, given = stored("llama", "gptq", 11)
    plain, of_plain = stored("llama", "plain", 11)
    name = "model.layers.3.mlp.up_proj"
    put(f"{name}.qweight", unwritten)(tensors, given)
    found = release(tmp_path / "q", tensors, given).findings(release(tmp_path / "o", plain, of_plain))
    errors = [f.kind for f in found if f.severity == "error" and f.tensors == (f"{name}.weight",)]
    assert errors == ["far_from_siblings", "flat_columns"]


def test_weights_of_zeros_are_counted_once_for_all_of_them(monkeypatch):
    """Not once for each: the 7,500 of a small file would take half a minute."""
    asked = []
    monkeypatch.setattr(Summary, "zero", property(lambda summary: asked.append(summary.name) or True))
    count = 200
    for of_one_role in ("model.layers.{}.mlp.weight", "model.layers.{}.norm.weight", "model.norm_{}.weight"):
        asked.clear()
        many = [Summary(of_one_role.format(i), "F32", (8,), 0.0, Largest()) for i in range(count)]
        found = list(of_siblings(many, Release({}, {})))
        assert [finding.kind for finding in found] == ["all_zero"] * count, of_one_role
        assert len(asked) <= 4 * count, of_one_role
