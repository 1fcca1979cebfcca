"""Quantized weights whose scales have unknown names, or whose config is missing: read if dtypes and shapes settle it, else an error."""

import json
import struct

import numpy as np
import pytest
import releases
import torch
from checkpoint_cases import case
from releases import WRITERS, model, release
from safetensors.torch import load_file

from quantcore.checkpoints import open_checkpoint
from quantcore.errors import QuantError

W = "blocks.0.attn.q"


def x():
    return torch.randn(32, 64, generator=torch.Generator().manual_seed(2)) * 0.03


def fp8(scale):
    return (x() / scale).to(torch.float8_e4m3fn)


def loud(opened):
    return {f.kind: f for f in opened.findings() if f.severity != "note"}


def test_scales_of_any_spelling(tmp_path):
    """FP8 and int8 times one number, one per row, or one per group, whatever its name."""
    one, rows = x().abs().max().reshape(1) / 448, x().abs().amax(1) / 448
    for last, scale in {
        "scale_weight": one,
        "weight_scales": rows,
        "weight_scaling_factor": rows[:, None],
        "weight.scale": one.reshape(()),
    }.items():
        spread = scale[:, None] if scale.dim() == 1 and len(scale) > 1 else scale
        codes = fp8(spread)
        opened = release(
            tmp_path / last, {f"{W}.weight": codes, f"{W}.{last}": scale, f"{W}.scale_input": torch.ones(1)}
        )
        assert torch.equal(opened.tensors[f"{W}.weight"].read(), codes.float() * spread), last
        assert loud(opened) == {}
    scale = x().reshape(32, 4, 16).abs().amax(2) / 127
    codes = (x() / scale.repeat_interleave(16, 1)).round().to(torch.int8)
    opened = release(tmp_path / "int8", {f"{W}.weight": codes, f"{W}.qscale": scale})
    assert torch.equal(opened.tensors[f"{W}.weight"].read(), codes.float() * scale.repeat_interleave(16, 1))


def test_what_nothing_settles(tmp_path):
    """Codes without a scale, an inverse, and words that no config explains; a plain cast to FP8 is sound."""
    scale = x().abs().max() / 448
    cases = {
        "unscaled": {f"{W}.weight": fp8(scale), f"{W}.amax": scale.reshape(1)},
        "scale_inverted": {f"{W}.weight": fp8(scale), f"{W}.inv_scale": 1 / scale.reshape(1)},
        "config_missing": {f"{W}.weight": (x() / scale).round().to(torch.int8)},
    }
    for kind, stored in cases.items():
        found = loud(release(tmp_path / kind, stored))
        assert {k: f.severity for k, f in found.items()} == {kind: "error"}
    assert "looks like" not in found["config_missing"].sentence
    bitnet = load_file(case("bitnet_offline").release / "model.safetensors")
    found = loud(release(tmp_path / "bitnet", bitnet))
    assert "looks like BitNet or ModelOpt" in found["config_missing"].sentence
    codes = cases["config_missing"][f"{W}.weight"]
    np.savez(tmp_path / "codes.npz", weight=codes.numpy())  # as a program exports them
    assert loud(open_checkpoint(tmp_path / "codes.npz")) == {}
    assert loud(release(tmp_path / "cast", {f"{W}.weight": x().to(torch.float8_e4m3fn)})) == {}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] * (n != "ct_int4"))
        for n in ("ct_int4", "ct_int8", "gptq", "awq", "nvfp4", "mxfp4", "fp8")
    ],
)
def test_without_a_config(name, tmp_path):
    """The values are those with it; a model's config.json that does not mention it is an error."""
    stored = {k: v for k, v in releases.quantized(model(layers=1), name).items() if ".mlp." in k}
    right = release(tmp_path / "right", stored, releases.CONFIG | {"quantization_config": WRITERS[name][1]})
    for folder, config, said in (("none", None, set()), ("removed", releases.CONFIG, {"config_missing"})):
        opened = release(tmp_path / folder, stored, config)
        for weight, tensor in right.tensors.items():
            assert torch.equal(opened.tensors[weight].read(), tensor.read()), (folder, weight)
        found = loud(opened)
        assert (set(found), [f.severity for f in found.values()]) == (said, ["error"] * len(said))
        assert len(json.dumps([f.as_dict() for f in found.values()]))


def test_codes_of_4_bits_without_a_quant_state(tmp_path):
    """bitsandbytes stores them in one column, which is no matrix: the config alone does not make them readable."""
    stored = {
        k: v
        for k, v in releases.quantized(model(layers=1), "nf4").items()
        if ".mlp." in k and k.endswith(".weight")
    }
    assert {v.shape[1] for v in stored.values()} == {1}
    found = loud(release(tmp_path, stored, releases.CONFIG | {"quantization_config": WRITERS["nf4"][1]}))
    assert {kind: f.severity for kind, f in found.items()} == {"config_missing": "error"}
    assert "bitsandbytes" in found["config_missing"].sentence


def test_versions_of_gptq_without_a_config(tmp_path):
    """Stored zeros that are all the middle of the codes are those of v2; in v1, they are one less."""
    for name in ("gptq_v2_4bit_g128_sym", "gptq_v1_4bit_g128_sym"):
        given = case(name)
        opened = release(tmp_path / name, load_file(given.release / "model.safetensors"))
        for weight in given.record["tensors"]:
            assert torch.equal(opened.tensors[weight].read(), torch.from_numpy(given.expected[weight])), (
                name,
                weight,
            )
        assert loud(opened) == {}


def test_a_dtype_that_is_not_known(tmp_path):
    """It is named, and the tensors beside it are read."""
    records = {
        "a.weight": ("F32", [4, 8], [0, 128]),
        "b.weight": ("X9", [4, 8], [128, 160]),
        "c.weight": ("F16", [4], [160, 168]),
    }
    header = {k: dict(zip(("dtype", "shape", "data_offsets"), v, strict=True)) for k, v in records.items()}
    text = json.dumps(header).encode()
    values = torch.arange(32.0)
    data = values.numpy().tobytes() + bytes(40)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    opened = open_checkpoint(tmp_path)
    assert torch.equal(opened.tensors["a.weight"].read(), values.view(4, 8))
    assert [(p.tensors, "dtype X9" in p.sentence) for p in opened.problems] == [(("b.weight",), True)]
    assert [f.tensors for f in opened.findings() if f.severity == "error"] == [("b.weight",)]
    with pytest.raises(QuantError, match="X9"):
        opened.tensors["b.weight"].read()


def test_blocks_of_fp8_without_a_config(tmp_path):
    """The shapes give their lengths where 128 does not fit; with a config, that decides."""
    w = torch.randn(64, 96, generator=torch.Generator().manual_seed(4)) * 0.03
    tiles = w.reshape(2, 32, 3, 32)
    scale = tiles.abs().amax((1, 3)) / 448
    spread = scale.repeat_interleave(32, 0).repeat_interleave(32, 1)
    stored = {f"{W}.weight": (w / spread).to(torch.float8_e4m3fn), f"{W}.weight_scale_inv": scale}
    opened = release(tmp_path / "removed", stored, releases.CONFIG)
    assert torch.equal(opened.tensors[f"{W}.weight"].read(), stored[f"{W}.weight"].float() * spread)
    assert {kind: f.severity for kind, f in loud(opened).items()} == {"config_missing": "error"}
    usual = {f"{W}.weight": stored[f"{W}.weight"], f"{W}.weight_scale_inv": scale[:1, :1]}
    opened = release(tmp_path / "usual", usual, releases.CONFIG)
    assert torch.equal(opened.tensors[f"{W}.weight"].read(), stored[f"{W}.weight"].float() * scale[0, 0])


def test_an_order_of_columns_that_no_config_can_say(tmp_path):
    stored = {k: v for k, v in releases.quantized(model(layers=1), "gptq_desc_act").items() if ".mlp." in k}
    found = loud(release(tmp_path, stored, releases.CONFIG))
    assert set(found) == {"config_missing", "g_idx_unsorted"}
    assert "no config says desc_act" in found["g_idx_unsorted"].sentence


def test_a_transpose_is_that_of_the_original(tmp_path):
    names = [f"{role}.weight" for role in "abcdefghi"]
    original = {
        name: torch.randn(8, 16, generator=torch.Generator().manual_seed(i)) for i, name in enumerate(names)
    }
    stored = original | {names[1]: original[names[1]].T.contiguous()}
    pair = release(tmp_path / "turned", stored), release(tmp_path / "original", original)
    said = [f.sentence for f in pair[0].findings(against=pair[1]) if f.severity == "error"]
    assert any(
        f"'{names[1]}' is stored as [16, 8], the original as its transpose [8, 16]." in text for text in said
    ), said
