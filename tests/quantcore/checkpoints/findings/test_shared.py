"""What all layers have and no sound model does, a transposed weight, and configs that stored numbers contradict."""

import json

import numpy as np
import pytest
import releases
import torch
from grid import for_each
from parts import some_rows
from releases import CONFIG, WRITERS, release
from suspects import of_layers, weight

from quantcore.checkpoints.findings.against.judge import cause_of, cause_of_places
from quantcore.checkpoints.findings.against.orders import groups_in_another_order
from quantcore.checkpoints.findings.shared import (
    of_constants,
    of_flat,
    of_magnitudes,
    of_signs,
    of_transposes,
)
from quantcore.checkpoints.findings.stored import Flat

NAMES = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(5)]


def loud(opened):
    return [f for f in opened.findings() if f.severity != "note"]


def of_all(*lines):
    return list(of_flat({name: (Flat(*lines),) for name in NAMES}))


def test_flat_lines_of_all_layers():
    """Most of the rows or columns; some, if they lie at the same place; not what a pruner leaves, nor what is no weight."""
    assert {f.severity for f in of_all("row", 40, 64, 1, 3, True, "value")} == {"warning"}
    assert len(of_all("column", 8, 64, 8, 56, True, "code")) == 5
    assert not of_all("column", 8, 64, 7, 56, True, "code")
    assert not of_all("row", 6, 64, 6, 0, True, "value")
    places = {name: (Flat("row", 8, 64, 8, i, True, "value"),) for i, name in enumerate(NAMES)}
    assert not list(of_flat(places))
    assert not list(of_flat({"swin.attn_mask": (Flat("row", 60, 64, 60, 0, True, "value"),)}))
    (one,) = of_flat({"lm_head.weight": (Flat("row", 63, 64, 63, 1, True, "value"),)})
    assert "other layers" not in one.sentence
    assert {k: one.facts[k] for k in ("lines", "of", "first", "side_by_side")} == {
        "lines": 63,
        "of": 64,
        "first": 1,
        "side_by_side": 63,
    }


def test_numbers_that_all_layers_share():
    """Equal scales, unless they are powers of two; an RMS that no model's matrices have, where most of them have it."""
    assert [f.facts["scales"] for f in of_constants(dict.fromkeys(NAMES, (0.01, 64)))] == [64] * 5
    assert len(list(of_constants(dict.fromkeys(NAMES, (1.0, 64))))) == 5
    for given in (
        {NAMES[0]: (0.01, 64)},
        dict.fromkeys(NAMES, (0.25, 64)),
        dict.fromkeys(NAMES, (0.01, 8)),
        dict(zip(NAMES, [(0.01, 64)] * 4 + [(0.02, 64)], strict=True)),
    ):
        assert not list(of_constants(given))
    for spread, side in ((5.0, "larger"), (1e-4, "smaller")):
        for plain, is_model in (([0.02, 0.03], False), ([], True)):
            found = of_magnitudes(dict.fromkeys(NAMES, spread), plain, is_model)
            assert [f.facts["side"] for f in found] == [side] * 5
        # a model whose matrices are all of this size, and one of which nothing is known
        assert not list(of_magnitudes(dict.fromkeys(NAMES, spread), [spread], True))
        assert not list(of_magnitudes(dict.fromkeys(NAMES, spread), [], False))
    for spreads in ([0.02] * 5, [1e-12] * 5, [0.02, 0.02, 0.02, 9.0, 9.0]):
        assert not list(of_magnitudes(dict(zip(NAMES, spreads, strict=True)), [], True))


def test_a_transposed_weight():
    """One of a role, whose others all have the shape that it has transposed; those of a Sequential differ on purpose."""
    shapes = dict.fromkeys(NAMES, (256, 128)) | {NAMES[2]: (128, 256)}
    (found,) = of_transposes(shapes)
    assert (found.tensors, found.severity, found.facts["usual"]) == ((NAMES[2],), "error", (256, 128))
    assert not list(of_transposes(dict.fromkeys(NAMES, (256, 128))))
    assert not list(of_transposes(shapes | {NAMES[3]: (128, 256)}))
    assert not list(of_transposes({f"net.{i}.weight": shape for i, shape in enumerate(shapes.values())}))
    assert not list(of_transposes(dict.fromkeys(NAMES, (64, 64))))


def test_a_transposed_weight_without_siblings(tmp_path):
    """The original, and the other matrices, show it; where most are transposed, a library stores them so."""
    w = {
        f"model.{n}.weight": weight(32, 64, seed=i) for i, n in enumerate(("head", "in", "out", "up", "down"))
    }
    original = release(tmp_path / "original", w)
    turned = w | {"model.up.weight": w["model.up.weight"].T}
    (found,) = [f for f in release(tmp_path / "one", turned).findings(original) if f.severity == "error"]
    assert (found.kind, found.tensors, found.facts["others"]) == ("transposed", ("model.up.weight",), 4)
    every = {name: x.T for name, x in w.items()}
    assert not [f for f in release(tmp_path / "all", every).findings(original) if f.severity == "error"]


def test_bits_of_float16_that_are_called_bfloat16(tmp_path):
    """Scales, and values, with the medians of both readings."""
    stored = WRITERS["ct_int4"][0]("m", weight())
    half = stored["m.weight_scale"].half()
    stored["m.weight_scale"] = half.view(torch.bfloat16)
    config = {"quantization_config": WRITERS["ct_int4"][1]}
    (found,) = loud(release(tmp_path / "scales", stored, config))
    assert (found.kind, found.severity) == ("bits_reinterpreted", "warning")
    assert found.facts["other"] == float(half.float().median())
    assert found.facts["stored"] == float(half.view(torch.bfloat16).float().abs().median())
    (found,) = loud(release(tmp_path / "values", {"m.weight": weight().half().view(torch.bfloat16)}))
    assert "values of" in found.sentence


def test_zero_points_beside_a_symmetric_config(tmp_path):
    """The config is wrong, not they: values are those of an asymmetric config. Zero points of 0 contradict nothing."""
    x = weight()
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    scale = (high - low) / 255
    zero = (-128 - low / scale).round()
    codes = ((x / scale).round() + zero).clamp(-128, 127)
    stored = {
        "m.weight": codes.to(torch.int8),
        "m.weight_scale": scale,
        "m.weight_zero_point": zero.to(torch.int8),
    }
    config = {"quantization_config": WRITERS["ct_int8"][1]}
    opened = release(tmp_path / "asymmetric", stored, config)
    (found,) = loud(opened)
    assert (found.kind, found.facts["zeros"]) == ("config_symmetric", int((zero != 0).sum()))
    assert torch.equal(opened.tensors["m.weight"].read(), (codes - zero) * scale)
    stored["m.weight_zero_point"] *= 0
    assert loud(release(tmp_path / "zeros", stored, config)) == []
    stored = WRITERS["awq"][0]("m", x)
    (found,) = loud(
        release(tmp_path / "awq", stored, {"quantization_config": WRITERS["awq"][1] | {"zero_point": False}})
    )
    assert (found.kind, found.facts["middle"]) == ("config_symmetric", 8)


def test_a_format_that_does_not_exist(tmp_path):
    """At the top of the config: each group's is used."""
    config = json.loads(json.dumps(WRITERS["ct_int4"][1])) | {"format": "packed-quantised"}
    opened = release(tmp_path, WRITERS["ct_int4"][0]("m", weight()), {"quantization_config": config})
    assert [(f.kind, f.facts["format"]) for f in loud(opened)] == [
        ("config_contradicted", "'packed-quantised'")
    ]
    assert opened.tensors["m.weight"].is_quantized


@for_each(("stored", "said"), [(4, 8), (2, 6), (8, 3)])
def test_bits_of_mlx(stored, said, tmp_path):
    """Those that fit the group size are believed before a group that MLX does not have."""
    codes = np.random.default_rng(1).integers(0, 1 << stored, (16, 128))
    packed = (
        codes.reshape(16, -1, 32 // stored).astype(np.uint32)
        << (stored * np.arange(32 // stored, dtype=np.uint32))
    ).sum(-1)
    scales, biases = torch.full((16, 4), 0.01).half(), torch.full((16, 4), -0.1).half()
    config = CONFIG | {"quantization": {"bits": said, "group_size": 32}}
    opened = release(
        tmp_path, {"m.weight": packed.astype(np.uint32), "m.scales": scales, "m.biases": biases}, config
    )
    product = (torch.from_numpy(codes).half() * scales[0, 0]).half()
    assert torch.equal(opened.tensors["m.weight"].read(), (product + biases[0, 0]).half().float())
    facts = [f.facts for f in loud(opened) if f.kind == "config_contradicted"]
    assert [(f["said"], f["bits"]) for f in facts] == [(said, stored)]


@for_each(
    ("stored", "said"), [((4, 64), (8, 32)), ((4, 64), (2, 128)), ((8, 32), (4, 64)), ((4, 64), None)]
)
def test_bits_of_mlx_that_two_group_sizes_fit(stored, said, tmp_path):
    """A layer that takes the hidden state has its width, so that the shapes have one reading; its sibling has it too."""
    (bits, size), names = stored, ("model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj")
    words = torch.arange(16 * 128 * bits // 32, dtype=torch.int64).reshape(16, -1).to(torch.uint32)
    scales = torch.full((16, 128 // size), 0.01).half()
    tensors = {
        f"{n}.{part}": value
        for n in names
        for part, value in (("weight", words.clone()), ("scales", scales.clone()), ("biases", -scales))
    }
    config = CONFIG | ({"quantization": dict(zip(("bits", "group_size"), said, strict=True))} if said else {})
    opened = release(tmp_path, tensors, config)
    for name in names:
        layout = opened.tensors[f"{name}.weight"].layout
        assert (layout.shape, layout.element.bits, layout.granularity.size) == ((16, 128), bits, size)
    wanted = ("config_contradicted", said[0], bits, size) if said else ("config_missing", None, None, None)
    errors = [f for f in opened.findings() if f.severity == "error"]
    assert {(f.kind, *map(f.facts.get, ("said", "bits", "size"))) for f in errors} == {wanted}


def test_values_on_one_side_of_0(tmp_path):
    """Of all layers: a warning without an original. One weight, or three of five, may be so."""
    means = dict(zip(NAMES, (0.8, 0.82, 0.79, 0.8, 0.81), strict=True))
    assert [f.facts["share"] for f in of_signs(means)] == list(means.values())
    assert not list(of_signs(means | {NAMES[0]: 0.02, NAMES[1]: -0.1}))
    assert not list(of_signs(dict(list(means.items())[:3])))
    stored = {
        k: v
        for i, name in enumerate(NAMES)
        for k, v in WRITERS["ct_int8"][0](name[:-7], weight(seed=i)).items()
    }
    stored |= {k: v.clamp(min=0) for k, v in stored.items() if v.dtype == torch.int8}
    assert {"one_sided"} <= {
        f.kind for f in loud(release(tmp_path, stored, {"quantization_config": WRITERS["ct_int8"][1]}))
    }


def test_groups_in_another_order(tmp_path):
    """Reversed scales: that cause, with the error of the sound weight, and no flipped bit."""

    def turned(stored):
        key = "model.layers.1.self_attn.q_proj.weight_scale"
        stored[key] = stored[key].flip(1)

    x, s = of_layers(tmp_path / "scales", turned)
    (found,) = groups_in_another_order(s)
    q, step = releases.symmetric(x, releases.GROUP, 7, torch.bfloat16)
    right = q * step.float().repeat_interleave(releases.GROUP, 1)
    assert found.fit.relative == pytest.approx(float((x - right).norm() / x.norm()), rel=1e-4)
    assert {k: found.facts[k] for k in ("moved", "of", "order")} == {"moved": 4, "of": 4, "order": "reversed"}
    assert cause_of(s).kind == "groups_permuted" or cause_of_places(s) is not None
    assert [f.kind for f in s.release.findings(s.source) if f.severity == "error"] == ["groups_permuted"]


@for_each(("name", "kind"), some_rows([("gptq_desc_act", "g_idx_reversed"), ("gptq", "groups_permuted")], 2))
def test_a_reversed_g_idx(name, kind, tmp_path):
    def index(stored):
        key = "model.layers.1.self_attn.q_proj.g_idx"
        stored[key] = stored[key].flip(0)

    _, s = of_layers(tmp_path / name, index, name)
    assert kind in {f.kind for f in s.release.findings(s.source) if f.severity == "error"}


def test_flat_lines_are_counted_once_for_all_weights():
    """Not once for each, which takes half a minute for 7,500 weights."""
    asked = []

    class Asked(dict):
        def items(self):
            asked.append("items")
            return super().items()

        def values(self):
            asked.append("values")
            return super().values()

    names = [f"model.layers.{i}.up.weight" for i in range(20)]
    assert not list(of_flat(Asked(dict.fromkeys(names, ()))))
    lines = Asked({name: (Flat("row", 9, 64, 9, 0, True, "value"),) for name in names})
    assert [found.kind for found in of_flat(lines)] == ["flat_rows"] * 20
    assert len(asked) <= 8
