"""What releases of llm-compressor showed, made here by its arithmetic: codes narrower than a byte, quotients in bfloat16."""

import pytest
import releases
import torch
from grid import for_each
from parts import some
from releases import model, save

from quantcore.checkpoints import open_checkpoint

NAME = "model.layers.2.mlp.up_proj"


def config(bits, strategy, size=None):
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": strategy, "group_size": size}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": groups}


def release(folder, weights, quantize):
    """A release and the original, each linear weight as the codes and scales that ``quantize`` returns."""
    found = {}
    for name, w in weights.items():
        linear = ".self_attn." in name or ".mlp." in name
        codes, scale = quantize(w) if linear else (w, None)
        found |= {name: codes} | ({f"{name}_scale": scale} if linear else {})
    return found, save(folder / "original", weights)


def four_bits(w):
    groups = w.reshape(len(w), -1, 32)
    scale = groups.abs().amax(-1) / 7.5
    codes = (groups.float() / scale.float()[..., None]).round().clamp(-8, 7)
    return codes.reshape(w.shape).to(torch.int8), scale


def test_four_bits_in_a_byte(tmp_path):
    """W4A8: int8 tensors that hold int4 codes, as the config says; a code that int4 does not have is named."""
    found, original = release(tmp_path, model(), four_bits)
    sound = open_checkpoint(save(tmp_path / "sound", found, config(4, "group", 32)))
    assert sound.tensors[f"{NAME}.weight"].storage == "compressed-tensors int4 per_group(32) symmetric"
    findings = sound.findings(open_checkpoint(original))
    assert {f.severity for f in findings} == {"note"}
    assert {f.facts.get("divisor", f.facts.get("half")) for f in findings} == {7.5}
    found[f"{NAME}.weight"][3, 5:7] = torch.tensor([8, -9], dtype=torch.int8)
    broken = open_checkpoint(save(tmp_path / "broken", found, config(4, "group", 32)))
    (error,) = [f for f in broken.findings() if f.severity == "error"]
    assert (error.kind, error.tensors, error.facts["codes"]) == ("code_outside", (f"{NAME}.weight",), 2)


STEP = 1.5 * 2.0**-10  # few quotients of bfloat16 numbers by it lie near a tie


def per_tensor(w):
    return (w / STEP).round().to(torch.int8), torch.tensor([STEP], dtype=torch.bfloat16)


@for_each("flipped", [None, 3, pytest.param(0, marks=pytest.mark.slow)])
def test_quotients_in_bfloat16(flipped, tmp_path):
    """Codes that are off by up to 3/4 of a step because x / s was rounded to bfloat16 are sound; a flipped bit is not."""
    draw = torch.Generator().manual_seed(3)
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(5)]
    weights = {name: (torch.randn(256, 256, generator=draw) * 5 * STEP).bfloat16() for name in names}
    for w in weights.values():
        w[:3, 0] = 112 * 2.0**-10  # 74 2/3 steps, in bfloat16 74.5
    found, original = release(tmp_path, weights, per_tensor)
    codes = found[f"{NAME}.weight"]
    assert bool(((weights[f"{NAME}.weight"].float() / STEP - codes).abs() > 0.6).any())
    if flipped is not None:
        codes[3, 5] ^= 1 << flipped
    release_of = open_checkpoint(save(tmp_path / "release", found, config(8, "tensor")))
    errors = [f for f in release_of.findings(open_checkpoint(original)) if f.severity != "note"]
    if flipped is None:
        assert [f.sentence for f in errors] == []
    else:
        (error,) = errors
        facts = {key: error.facts[key] for key in ("elements", "row", "column", "bit")}
        assert (error.kind, facts) == ("code_impossible", {"elements": 1, "row": 3, "column": 5, "bit": flipped})


FEW = 2  # layers: one, and another of its kind


def scaled(spread):
    """As AWQ and SmoothQuant scale it: what a norm feeds by its factors, up_proj by those of down_proj as well."""
    draw = torch.Generator().manual_seed(5)
    found = {name: w.float().clone() for name, w in model(layers=FEW).items()}
    for layer in range(FEW):
        at = f"model.layers.{layer}."
        before, inside = (1.3 * torch.exp(spread * torch.randn(n, generator=draw)) for n in (releases.HIDDEN, releases.INNER))
        found[f"{at}input_layernorm.weight"] /= before
        for module in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj"):
            found[f"{at}{module}.weight"] *= before
        found[f"{at}mlp.up_proj.weight"] /= inside[:, None]
        found[f"{at}mlp.down_proj.weight"] *= inside
    return {name: w.to(torch.bfloat16) for name, w in found.items()}


def said(folder, tensors, name, original):
    found = open_checkpoint(save(folder, tensors, releases.WRITERS[name][1])).findings(open_checkpoint(original))
    return [f for f in found if f.severity != "note"], [f for f in found if f.severity == "note"]


CASES = [(name, spread) for name in ("ct_int4", "gptq_feedback", "fp8", "nvfp4") for spread in (0.1, 0.4)]
FAST = (("ct_int4", 0.1),)


@pytest.mark.slow  # by default, factors of norms and columns are found in test_places.py and test_hypotheses.py
@pytest.mark.parametrize(
    ("name", "spread"), [pytest.param(*c, marks=[] if c in FAST else pytest.mark.slow) for c in CASES]
)
def test_scaled_weights(name, spread, tmp_path):
    """Factors near a constant, and of rows and columns at once, are not taken for wrong scales, codes or norms."""
    original = save(tmp_path / "original", model(layers=FEW))
    problems, notes = said(tmp_path / "release", releases.quantized(scaled(spread), name), name, original)
    assert [f.sentence for f in problems] == []
    norms = {tensor for f in notes if f.kind == "norm_scaled" for tensor in f.tensors}
    assert norms == {f"model.layers.{i}.input_layernorm.weight" for i in range(FEW)}
    columns = {tensor for f in notes if f.kind == "column_factors" for tensor in f.tensors}
    fed = {f"model.layers.{i}.{m}.weight" for i in range(FEW) for m in releases.SHAPES if "down" not in m}
    assert columns >= fed
    assert len(notes) <= 8


def norm_of_one(found):
    found["model.layers.1.input_layernorm.weight"][7] *= 4


def scale_of_one(found):
    found["model.layers.1.self_attn.q_proj.weight_scale"][3, 1] *= 4


def rows_alone(found):
    found |= releases.ct_int4("model.layers.1.mlp.down_proj", model()["model.layers.1.mlp.down_proj.weight"])


WRONG = {norm_of_one: {"column_factors"}, scale_of_one: {"scale_wrong"}, rows_alone: {"row_factors"}}


@for_each(("change", "kinds"), some(WRONG.items()))
def test_scaled_weights_that_are_wrong(change, kinds, tmp_path):
    original = save(tmp_path / "original", model(layers=FEW))
    tensors = releases.quantized(scaled(0.4), "ct_int4")
    change(tensors)
    problems, _ = said(tmp_path / "release", tensors, "ct_int4", original)
    wrong = {f.kind for f in problems if f.severity == "error"}
    assert wrong == kinds


def test_rotated_weights(tmp_path):
    """QuIP's and SpinQuant's weights are others than the original's, as the config says; only levels are not compared."""
    draw, rotated = torch.Generator().manual_seed(1), {}
    for name, w in model().items():
        turned = torch.linalg.qr(torch.randn(w.shape[-1], w.shape[-1], generator=draw)).Q
        level = 40 if "layers.2" in name else 1  # a norm folded into it
        rotated[name] = (w.float() @ turned * level).to(w.dtype) if w.dim() > 1 else w
    one = {"apply": [{"location": "weight_input", "targets": ["Linear"]}]}
    setting = releases.WRITERS["ct_int4"][1]
    found = releases.quantized(rotated, "ct_int4")
    original = open_checkpoint(save(tmp_path / "original", model()))
    with_word = open_checkpoint(save(tmp_path / "a", found, setting | {"transform_config": {"config_groups": {"R1": one}}}))
    assert {f.severity for f in with_word.findings(original)} == {"note"}
    assert "rotated" in {f.kind for f in with_word.findings(original)}
    without = open_checkpoint(save(tmp_path / "b", found, setting)).findings()
    assert {f.kind for f in without if f.severity == "error"} == {"far_spread"}
