"""What a check must not say: sentences that once were false of sound releases, and two findings of one cause."""

import dataclasses

import numpy as np
import torch
from checkpoint_cases import case
from grid import for_each
from random_releases import stored
from releases import release
from safetensors.numpy import save_file

from quantcore.__main__ import main
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison import CheckpointComparison, summary
from quantcore.checkpoints.findings.record import finding_of, grouped
from quantcore.checkpoints.findings.siblings import of_siblings
from quantcore.checkpoints.findings.summary import Largest, Summary
from quantcore.checkpoints.protocol.release import Release
from quantcore.checkpoints.statement import write


def test_plain_rounding_with_stored_zero_points_of_0_is_symmetric():
    """torchao stores zero points of 0 for symmetric weights; its int8 rounding keeps every scale."""
    tensors = open_checkpoint(case("torchao_int8").release).tensors
    assert any(
        not t.layout.symmetric and t.zero_point() is not None for t in tensors.values() if t.is_quantized
    )
    (found,) = open_checkpoint(case("torchao_int8").release).findings()
    assert (found.kind, found.facts["rule"], found.facts["same"]) == (
        "requantizing_is_identity",
        "divisor 127",
        1.0,
    )


def test_the_minus_zero_of_fp8_is_not_a_finding(tmp_path):
    tensors, config = stored("llama", "fp8", 0, 2)
    for tensor in tensors.values():
        if tensor.dtype == torch.float8_e4m3fn:  # small negative values
            tensor.view(torch.uint8)[0, :5] = 0x80
    assert release(tmp_path, tensors, config).findings() == []


def test_scales_of_0_are_no_powers_of_two(tmp_path):
    tensors, config = stored("llama", "fp8_blocks", 0, 6)
    name = "model.layers.3.self_attn.q_proj.weight"
    tensors[f"{name}_scale_inv"] = torch.zeros(8, 8)
    tensors[name] = torch.ones(256, 256).to(torch.float8_e4m3fn)
    kinds = {f.kind for f in release(tmp_path, tensors, config).findings()}
    assert "scale_zero" in kinds
    assert "scales_powers_of_two" not in kinds


@for_each(
    ("name", "values"),
    [
        ("embeddings.position_ids", np.arange(8)[None]),
        ("embeddings.token_type_ids", np.zeros((1, 8), np.int64)),
        ("h.0.attn.bias", np.ones((1, 1, 4, 4), np.float32)),
        ("layers.0.self_attn.rotary_emb.inv_freq", np.ones(4, np.float32)),
    ],
)
def test_a_buffer_that_one_side_lacks_is_nothing_wrong(name, values, tmp_path, capsys):
    weight = {"a.weight": np.ones((4, 4), np.float32)}
    save_file(weight | {name: values}, tmp_path / "a.safetensors")
    save_file(weight, tmp_path / "b.safetensors")
    both = [open_checkpoint(tmp_path / f"{n}.safetensors") for n in "ab"]
    assert both[1].findings(both[0]) == []
    assert [u.kind for u in CheckpointComparison(*both).pairing.unpaired] == ["buffer"]
    assert main(["compare", *(str(tmp_path / f"{n}.safetensors") for n in "ab")]) == 0
    assert name in capsys.readouterr().out


def test_a_bias_is_not_a_buffer(tmp_path):
    save_file({"h.0.attn.bias": np.ones(4, np.float32)}, tmp_path / "a.safetensors")
    save_file({"b.weight": np.ones((4, 4), np.float32)}, tmp_path / "b.safetensors")
    both = [open_checkpoint(tmp_path / f"{n}.safetensors") for n in "ab"]
    assert {u.kind for u in CheckpointComparison(*both).pairing.unpaired} == {"absent"}


def test_the_overall_sqnr_leaves_equal_pairs_out(tmp_path):
    x = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    large = {"large.weight": 100 * x}
    save_file(large | {"w.weight": x}, tmp_path / "a.safetensors")
    save_file(large | {"w.weight": x * np.float32(1.1)}, tmp_path / "b.safetensors")
    comparison = CheckpointComparison(*(open_checkpoint(tmp_path / f"{n}.safetensors") for n in "ab"))
    *_, step = comparison.steps()
    assert "overall SQNR of the others 20.0 dB" in summary(
        comparison.results(step.state)
    )  # 20 log10(1 / 0.1)


def test_an_error_of_the_weight_alone_is_not_said_twice():
    spreads = [0.02, 0.02, 0.02, 5.0, 0.02, 0.02, 0.02]
    given = [Summary(f"l.{i}.weight", "gptq", (8, 8), s, Largest(s, s)) for i, s in enumerate(spreads)]
    assert [f.tensors for f in of_siblings(given, Release({}))] == [("l.3.weight",)]
    given[3] = dataclasses.replace(given[3], damaged=True)
    assert list(of_siblings(given, Release({}))) == []


def test_findings_come_by_severity_then_by_layer():
    """Layer 2 before layer 10, whatever the order in which they were found; members, too."""
    names = ["l.10.a.weight", "l.2.a.weight", "l.2.b.weight", "b.weight"]
    found = [finding_of("note", (names[1],), "x", "is fine.")]
    found += [finding_of("error", (name,), f"kind {i}", "is wrong.") for i, name in enumerate(names)]
    found += [finding_of("warning", (name,), "same", "{has} {n:scale}.", n=1) for name in names[:2]]
    ordered = grouped(found, dict.fromkeys(names, "gptq"))
    assert [f.severity for f in ordered] == [*["error"] * 4, "warning", "note"]
    assert [f.tensors[0] for f in ordered[:4]] == [
        "b.weight",
        "l.2.a.weight",
        "l.2.b.weight",
        "l.10.a.weight",
    ]
    assert ordered[4].tensors == ("l.2.a.weight", "l.10.a.weight")


def test_words_agree_with_the_number_of_weights():
    words = "{has} {n:scale} of 0 at {at} ({share:%})."
    one, two = {"n": 1, "at": (3, 4), "share": 0.5}, {"n": 3, "at": (0, 0), "share": 0.25}
    assert write(words, "'a'", [one], ["a"]) == "'a' has 1 scale of 0 at (3, 4) (50 %)."
    assert write(words, "Two", [one, two], ["a", "b"]) == (
        "Two have 1 to 3 scales each of 0 at (3, 4) in 'a' (25 % to 50 %)."
    )
    assert (
        write("{is} {x}", "'{y}'", [{"x": "{has}"}], ["{y}"]) == "'{y}' is {has}"
    )  # names are not templates
