"""Findings on checkpoints: corrupt cases are reported, sound ones are not, and the provenance is right."""

from functools import cache

import numpy as np
import torch
from bounded import in_seconds
from checkpoint_cases import case, cases, changed, sound
from grid import for_each
from parts import in_parts, some
from releases import compressed, release

from quantcore.checkpoints import CheckpointFinding, open_checkpoint, rows
from quantcore.checkpoints.findings import find, steps
from quantcore.diagnosis import Finding

Q = "model.layers.0.self_attn.q_proj.weight"
MODULE = Q.removesuffix(".weight")
AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]


def kinds(findings, severity=None):
    return {finding.kind for finding in findings if severity in (None, finding.severity)}


def only(findings, kind):
    (found,) = [finding for finding in findings if finding.kind == kind]
    return found


@for_each("given", some([*sound(), case("imatrix")], 9), ids=str)
def test_a_sound_release_has_no_error(given):
    found = open_checkpoint(given.release).findings()
    assert kinds(found, "error") == set()
    assert kinds(found, "warning") == set()
    assert len(found) <= 8
    assert all(isinstance(f, Finding) and f.tensors and "\n" not in f.sentence for f in found)


SAID = {
    "bad_unknown_quant_method": ["frobnicate"],
    "bad_gptq_v1_but_zeros_8": ["stored zeros", "v1", "v2", Q],
    "bad_group_size_config": ["group_size", "128", "32", "weight_scale shape", MODULE],
    "bad_index_outside_folder": ["../x.safetensors", "outside the folder"],
    "bad_missing_shard": ["model-00002-of-00002.safetensors", "missing", "model.layers.0.mlp.up_proj.weight"],
    "bad_missing_weight_scale_2": ["weight_scale_2", "missing", "model.layers.0.self_attn.k_proj"],
}


@for_each("name", SAID)
def test_a_damaged_release_is_named(name):
    (finding,) = [f for f in open_checkpoint(case(name).release).findings() if f.severity == "error"]
    assert [word for word in SAID[name] if word not in finding.sentence] == [], finding
    assert finding.tensors


@for_each(
    ("name", "words"),
    [
        (
            "bad_awq_not_interleaved",
            [
                "codes and zero points",
                "permuted 0 4 1 5 2 6 3 7 in each group of eight",
                "but not the scales",
            ],
        ),
        ("bad_q5k_leak", ["larger errors in odd sub-blocks than in even ones"]),
    ],
)
def test_what_only_the_original_shows(name, words, tmp_path):
    given = case(name)
    (weight,) = given.record["tensors"]
    true = given.expected[f"{weight}|true"]
    noise = np.random.default_rng(4).normal(size=true.shape).astype(np.float32)
    original = release(tmp_path / "original", {weight: true + 0.01 * true.std() * noise})
    checkpoint = open_checkpoint(given.release)
    (finding,) = [f for f in checkpoint.findings(original) if f.severity == "error"]
    assert [word for word in (*words, weight) if word not in finding.sentence] == [], finding
    assert kinds(checkpoint.findings(), "error") == set()  # the file alone does not show it


def originals(given, folder, error=0.01):
    """A plain release with the values of a golden one plus a small error."""
    generator = np.random.default_rng(3)
    values = {name: given.expected[name] for name in given.record["tensors"]}
    noisy = {
        n: v + error * v.std() * generator.normal(size=v.shape).astype(np.float32) for n, v in values.items()
    }
    return release(folder, noisy)


@for_each("given", some([c for c in sound() if str(c) not in ("imatrix", "bad_q5k_leak")], 43), ids=str)
def test_a_sound_release_agrees_with_its_original(given, tmp_path):
    found = open_checkpoint(given.release).findings(originals(given, tmp_path / "original"))
    assert kinds(found, "error") == set(), found
    assert kinds(found) & {"far_from_original", "rows_permuted", "missing_tensor"} == set()


def test_rows_of_awq_in_another_format(tmp_path):
    """As from a converter that leaves AWQ's order in a plain weight."""
    weight = torch.randn(32, 64)
    order = (torch.arange(0, 32, 8)[:, None] + torch.tensor(AWQ_ORDER)).reshape(-1)
    read, original = release(tmp_path / "a", {Q: weight[order]}), release(tmp_path / "b", {Q: weight})
    assert only(find(read, original), "awq_order").facts["order"] == "0 4 1 5 2 6 3 7"


@for_each("seed", [0, 47])
def test_rows_of_queries_and_keys(seed, tmp_path):
    """llama.cpp's order of the rows of a head, in either direction; keys have another number of heads.

    In the second case, chance makes columns of q look divided by what rows of k are multiplied by.
    """
    torch.manual_seed(seed)
    names = {n: f"model.layers.0.self_attn.{n}_proj.weight" for n in "qk"}
    weights = {names["q"]: torch.randn(64, 32), names["k"]: torch.randn(32, 32)}
    heads = {names["q"]: 4, names["k"]: 2}

    def permuted(w, n):  # llama.cpp, convert_hf_to_gguf.py: permute
        return w.reshape(n, 2, w.shape[0] // n // 2, -1).swapaxes(1, 2).reshape(w.shape)

    config = {"num_attention_heads": 4, "num_key_value_heads": 2}
    original = release(tmp_path / "original", weights, config)
    other = release(
        tmp_path / "permuted", {n: permuted(w, heads[n]).contiguous() for n, w in weights.items()}
    )
    for checkpoint, against, order in ((other, original, "pairs"), (original, other, "halves")):
        found = members(find(checkpoint, against))
        assert kinds(found) == kinds(found, "error") == {"rows_permuted"}
        assert {f.tensors[0]: f.facts["heads"] for f in found} == heads
        assert {f.facts["order"] for f in found} == {order}


def test_another_original(tmp_path):
    original = release(
        tmp_path / "a", {"a.weight": torch.randn(8, 16), "b.weight": torch.randn(4), "c": torch.ones(2)}
    )
    read = release(
        tmp_path / "b", {"a.weight": torch.randn(8, 16), "b.weight": torch.randn(5), "d": torch.ones(2)}
    )
    found = find(read, original)
    assert "shape (5,), but the original has (4,)" in only(found, "shape_differs").sentence
    assert only(found, "not_the_original").facts["original"] == "'a.weight'"
    assert only(found, "missing_tensor").tensors == ("c",)
    assert only(found, "additional_tensor").tensors == ("d",)


def test_norms_plus_one(tmp_path):
    """llama.cpp adds 1 to the norms of Gemma."""
    weight = torch.randn(64) / 8
    found = find(
        release(tmp_path / "a", {"n.weight": weight + 1}), release(tmp_path / "b", {"n.weight": weight})
    )
    assert kinds(found) == {"plus_one"}


def test_names_of_gguf_are_those_of_the_original(tmp_path):
    given = case("gguf_model")
    name, other = "blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight"
    original = release(tmp_path / "original", {other: -given.expected[name]})
    found = open_checkpoint(given.release).findings(original)
    assert only(found, "sign_flipped").tensors == (name,)


NVFP4, MXFP4 = "modelopt_nvfp4", "ct_mxfp4"
DESC_ACT = "gptq_v1_4bit_g32_asym_desc_act"


def _with(place, value):
    def change(tensor):
        bits = tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor.clone()
        bits[place] = value
        return bits.view(tensor.dtype)

    return change


# a change to a golden release -> severity, kind and facts of the finding
CHANGES = {
    "a scale of infinity": (
        "gptq_v2_4bit_g128_sym", {f"{MODULE}.scales": _with((1, 5), float("inf"))}, {},
        "error", "scale_nonfinite", {"scales": 1, "first": (5, 1)},
    ),
    "a negative scale": (
        "gptq_v2_4bit_g128_sym", {f"{MODULE}.scales": _with((1, 5), -0.5)}, {},
        "warning", "scale_negative", {"scales": 1, "first": (5, 1)},
    ),
    "scales that are missing": (
        "gptq_v2_4bit_g128_sym", {f"{MODULE}.scales": None}, {},
        "error", "missing_tensor", {"lacking": "scales", "module": MODULE},
    ),
    "zero points that differ": (
        "gptq_v2_4bit_g128_sym", {f"{MODULE}.qzeros": _with((1, 0), 0x33333333)}, {},
        "error", "zero_points_differ", {"middle": 8, "zeros": 8},
    ),
    "an unsorted g_idx without desc_act": (
        DESC_ACT, {}, {"desc_act": False},
        "error", "g_idx_unsorted", {},
    ),
    "stored zeros of 8 in a v1 that is not symmetric": (
        DESC_ACT, {f"{MODULE}.qzeros": lambda t: torch.full_like(t, -0x77777778)}, {},
        "warning", "gptq_version", {"middle": 8, "zero_point": 9},
    ),
    "stored zeros of 15 in v1": (
        DESC_ACT, {f"{MODULE}.qzeros": _with((0, 0), 0xF)}, {},
        "note", "zero_point_wraps", {"stored": 15, "unwrapped": 16},
    ),
    "a global scale of the other kind": (
        NVFP4, {f"{MODULE}.weight_scale_2": lambda t: 1 / t}, {},
        "error", "global_scale", {"piece": "weight_scale_2"},
    ),
    "a global scale of the other kind, divided by": (
        "ct_nvfp4", {f"{MODULE}.weight_global_scale": lambda t: 1 / t}, {},
        "error", "global_scale", {"piece": "weight_global_scale"},
    ),
    "an E8M0 scale of 255": (
        MXFP4, {f"{MODULE}.weight_scale": _with((3, 1), 255)}, {},
        "error", "e8m0_nan", {"scales": 1, "first": (3, 1)},
    ),
    "scales rounded to powers of two": (
        "ct_fp8_channel", {f"{MODULE}.weight_scale": lambda t: torch.exp2(torch.log2(t.float()).round())}, {},
        "warning", "scales_powers_of_two", {},
    ),
    "a code of NaN": (
        "ct_fp8_channel", {Q: _with((2, 2), 0x7F)}, {}, "error", "code_nan", {"codes": 1},
    ),
    "zeros that are all -0": (
        MXFP4, {f"{MODULE}.weight_packed": lambda t: t | ((t & 7 == 0) * 8 + (t & 0x70 == 0) * 0x80).to(torch.uint8)},
        {}, "note", "minus_zero", {"plus_zeros": 0},
    ),
    "a bit that is lost": (
        "gptq_v2_4bit_g128_sym", {f"{MODULE}.qweight": lambda t: t & 0x77777777}, {},
        "warning", "bit_constant", {"bit": 3, "value": 0},
    ),
    "a code that never occurs": (
        MXFP4, {f"{MODULE}.weight_packed": lambda t: torch.where((t & 15 == 7) | (t >> 4 == 7), 0, t)}, {},
        "note", "codes_never_used", {"codes": (7,), "format": "e2m1"},
    ),
    "an FP8 weight without a scale": (
        "ct_fp8_channel", {f"{MODULE}.weight_scale": None}, {},
        "error", "missing_tensor", {"dtype": "F8_E4M3"},
    ),
    "NaN in a plain weight": (
        "gptq_v2_4bit_g128_sym", {"model.layers.0.input_layernorm.weight": _with(3, float("nan"))}, {},
        "error", "value_nonfinite", {"values": 1},
    ),
}  # fmt: skip


def members(findings):
    """The findings about single tensors."""
    return [member for finding in findings for member in finding.members or (finding,)]


@cache
def unchanged(name):
    return open_checkpoint(case(name).release).findings()


@for_each("what", CHANGES)
def test_each_kind(what, tmp_path):
    """The change gives one finding about the changed tensor, with these facts; the release as it was, none like it."""
    name, change, config, severity, kind, facts = CHANGES[what]
    before, after = (
        [f for f in members(found) if (f.kind, f.severity) == (kind, severity)]
        for found in (unchanged(name), changed(name, tmp_path, change, config).findings())
    )
    said = [f for f in after if facts.items() <= f.facts.items()]
    assert said, after
    assert not [f for f in before if facts and facts.items() <= f.facts.items()]
    assert all(f.tensors[0] in f.sentence for f in said)
    if change:
        (changed_name,) = change
        assert {f.tensors[0].rpartition(".")[0] for f in said} == {changed_name.rpartition(".")[0]}


def quantized(folder, x, scale, codes):
    """A compressed-tensors release of int4 with groups of 32."""
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
    nibbles = (codes.reshape(len(x), -1, 8).to(torch.int64) + 8) << (4 * torch.arange(8))
    packed = nibbles.sum(-1)
    stored = {
        "m.weight_packed": torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32),
        "m.weight_scale": scale,
        "m.weight_shape": torch.tensor(x.shape),
    }
    return compressed(folder, stored, **weights)


@for_each("stored", [torch.float32, torch.bfloat16])
@for_each("divisor", [7, 7.5, 8])
def test_the_divisor_of_scales(divisor, stored, tmp_path):
    """The original tells which divisor was used; without it, the codes only tell 7 from the others."""
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    groups = x.reshape(64, 8, 32)
    scale = (groups.abs().amax(-1) / divisor).to(torch.float16)
    codes = (groups / scale.float()[..., None]).round().clamp(-8, 7).reshape(64, 256)
    checkpoint = quantized(tmp_path / "q", x, scale, codes)
    original = release(tmp_path / "x", {"m.weight": x.to(stored)})
    alone, against = checkpoint.findings(), checkpoint.findings(original)
    if divisor == 7:
        facts = only(alone, "requantizing_is_identity").facts
        assert (facts["same"], facts["groups"], facts["rule"]) == (1.0, 512, "divisor 7")
    else:
        facts = only(alone, "scale_divisor").facts
        assert (facts["half"], facts["whole"], facts["groups"]) == (7.5, 8, 512)
    (facts,) = [f.facts for f in against if f.kind == "scale_divisor" and "divisor" in f.facts]
    assert (facts["divisor"], facts["share"]) == (divisor, 1.0)


def test_scales_that_were_searched(tmp_path):
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(2))
    groups = x.reshape(64, 8, 32)
    scale = (groups.abs().amax(-1) / 7 * torch.linspace(1.05, 1.3, 8)).to(torch.float16)
    codes = (groups / scale.float()[..., None]).round().clamp(-8, 7).reshape(64, 256)
    checkpoint = quantized(tmp_path / "q", x, scale, codes)
    assert only(checkpoint.findings(), "requantizing_changes").facts["same"] < 0.2
    against = checkpoint.findings(release(tmp_path / "x", {"m.weight": x}))
    assert "not the original's max |w| divided by one of 7, 7.5, 8" in only(against, "scale_divisor").sentence


def test_a_check_can_be_left(tmp_path, monkeypatch):
    """Each step covers one box and says how much is done; what comes after the last step has not been read."""
    monkeypatch.setattr(rows, "ELEMENTS", 1 << 11)
    checkpoint = release(tmp_path, {f"w{i}": torch.randn(128, 64) for i in range(8)})
    headers = checkpoint.counter.total
    done = []
    for step in steps(checkpoint):
        done.append(step.done)
        if len(done) == 6:
            break
    assert done == sorted(done)
    assert 0 < done[-1] < 128 * 64 * 4 * 2
    assert step.total == 8 * 128 * 64 * 4
    assert checkpoint.counter.total - headers <= 2 * 128 * 64 * 4
    assert [s.done for s in steps(checkpoint)][-1] == step.total


@in_parts(62)
def test_boxes_give_what_the_whole_gives(part, tmp_path, monkeypatch):
    """Small boxes that cut through rows, blocks and heads give the same findings."""
    starts = (
        "bad_gptq",
        "ct_int4",
        "gguf_k",
        "hqq_4bit",
        "deepseek",
        "torchao_int4",
        "bnb_nf4",
        "mlx_affine_3",
    )
    names = part(cases(*starts))
    whole = [open_checkpoint(given.release).findings() for given in names]
    monkeypatch.setattr(rows, "ELEMENTS", 500)
    assert [open_checkpoint(given.release).findings() for given in names] == whole
    assert sum(len(members(found)) for found in whole) >= len(names) / 2
    checkpoint = changed(
        "gptq_v2_4bit_g128_sym", tmp_path, {f"{MODULE}.scales": _with((1, 50), float("inf"))}
    )
    assert only(checkpoint.findings(), "scale_nonfinite").facts["first"] == (50, 1)


def test_rows_that_are_too_long_are_not_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MOST_ELEMENTS", 1000)
    found = release(tmp_path, {"long": torch.randn(1, 5000), "w": torch.randn(5, 1000)}).findings()
    assert "5,000 elements must be read at once" in only(found, "not_checked").sentence
    assert found[0].tensors == ("long",)


def test_large_weights_take_little_memory(tmp_path):
    """A weight is checked in boxes, whatever its size: 16 M elements would take 64 MB as values and as much as codes."""
    import resource

    rows, columns = 8192, 2048
    tensors = {
        "m.qweight": torch.randint(-(2**31), 2**31, (columns // 8, rows), dtype=torch.int32),
        "m.qzeros": torch.full((columns // 128, rows // 8), 0x77777777, dtype=torch.int32),
        "m.scales": torch.rand(columns // 128, rows, dtype=torch.float16) + 0.1,
    }
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
    checkpoint = release(tmp_path, tensors, {"quantization_config": config})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with in_seconds(40):
        found = checkpoint.findings()
    assert kinds(found, "error") == set()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 110_000  # kB


def test_findings_are_records_of_the_package():
    """So pages that show findings can show these, too."""
    found = open_checkpoint(case("bad_gptq_v1_but_zeros_8").release).findings()
    assert isinstance(found[0], CheckpointFinding)
    assert found[0].severity == "error"
    assert found[0].boxes == ()
