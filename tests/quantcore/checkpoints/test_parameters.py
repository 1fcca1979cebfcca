"""What is said of stored scales, zero points and global scales alone: each rule at its edges, with its numbers."""

import math

import pytest
import releases
import torch
from checkpoint_cases import case
from grid import for_each
from suspects import COLUMNS, GROUP, ROWS, M, W, awq_of, awq_stored, grid_of, weight

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings.stored import _Marked, of_parameters, scale_boxes

GROUPS = COLUMNS // GROUP


def layout_of(folder, stored, form, **config):
    given = releases.WRITERS[form][1] | config if form else None
    return open_checkpoint(releases.save(folder, stored, given)).tensors[W].layout


def found_in(layout):
    return {f.kind: (f.severity, dict(f.facts)) for f in of_parameters(layout)}


def put(tensor, *places):
    tensor = tensor.clone()
    for place, value in places:
        tensor[place] = value
    return tensor


def written(form, **changes):
    stored = releases.WRITERS[form][0](M, weight())
    for last, change in changes.items():
        name = f"{M}.{last}"
        stored[name] = change(stored[name])
    return stored


NAN = [((5, 1), math.nan), ((7, 0), math.inf), ((40, 2), math.inf)]
SCALES = {
    "sound": ("ct_int4", {}, {}),
    "not finite": ("ct_int4", {"weight_scale": lambda s: put(s, *NAN)}, {"scale_nonfinite": ("error", {"scales": 3, "first": (5, 1)})}),
    "infinite alone": ("ct_int4", {"weight_scale": lambda s: put(s, NAN[2])}, {"scale_nonfinite": ("error", {"scales": 1, "first": (40, 2)})}),
    "negative": (
        "ct_int4", {"weight_scale": lambda s: put(s, ((3, 3), -1.0), ((9, 0), -2.0))},
        {"scale_negative": ("warning", {"scales": 2, "share": 2 / (ROWS * GROUPS), "first": (3, 3)})},
    ),
    "zero": ("ct_int4", {"weight_scale": lambda s: put(s, ((3, 3), 0.0))}, {}),
    "of all rows": ("ct_int8", {"weight_scale": lambda s: put(s, ((17, 0), math.nan))}, {"scale_nonfinite": ("error", {"scales": 1, "first": (17, 0)})}),
    "E8M0": ("mxfp4", {"weight_scale": lambda s: put(s, ((6, 2), 255), ((8, 1), 255))}, {"e8m0_nan": ("error", {"scales": 2, "first": (6, 2)})}),
    "E8M0 up to 254": ("mxfp4", {"weight_scale": lambda s: put(s, ((6, 2), 254))}, {}),
    "E4M3": ("nvfp4", {"weight_scale": lambda s: put(s.float(), ((6, 2), math.nan)).to(s.dtype)}, {"scale_nonfinite": ("error", {"scales": 1, "first": (6, 2)})}),
    "asymmetric and negative": ("awq", {"scales": lambda s: put(s, ((1, 7), -1.0))}, {}),
    "bitsandbytes": ("nf4", {"weight.absmax": lambda s: put(s, ((9,), -1.0))}, {"scale_negative": ("warning", {"scales": 1, "share": 1 / 96, "first": (9,)})}),
}  # fmt: skip


@for_each("what", SCALES)
@for_each("rows", [1 << 21, 5 * COLUMNS])
def test_scales(what, rows, tmp_path, monkeypatch):
    """Also in boxes of five rows."""
    monkeypatch.setattr("quantcore.checkpoints.rows.ELEMENTS", rows)
    form, changes, wanted = SCALES[what]
    assert found_in(layout_of(tmp_path, written(form, **changes), form)) == wanted


@for_each(
    ("value", "kind"), [(1.0, None), (1.001, "error"), (0.5, None), (1000.0, "error"), (math.nan, None)]
)
def test_global_scales_that_multiply(value, kind, tmp_path):
    layout = layout_of(tmp_path, written("nvfp4", weight_scale_2=lambda s: s * 0 + value), "nvfp4")
    found = found_in(layout).get("global_scale")
    assert found == (("error", {"piece": "weight_scale_2", "value": pytest.approx(value)}) if kind else None)


POWERS = {
    "powers of two": (lambda s: 2.0 ** s.log2().round(), "all"), "with a 0": (lambda s: put(2.0 ** s.log2().round(), ((0, 0), 0.0)), "but one"),
    "one of them is not": (lambda s: put(2.0 ** s.log2().round(), ((4, 0), 0.75)), None), "all 1": (torch.ones_like, None),
    "all 0": (torch.zeros_like, None), "1 and 2": (lambda s: put(torch.ones_like(s), ((5, 0), 2.0)), "all"), "not": (lambda s: s, None),
    "in bfloat16": (lambda s: (2.0 ** s.log2().round()).bfloat16(), None), "seven": (lambda s: 2.0 ** s[:7].log2().round(), None),
    "eight": (lambda s: 2.0 ** s[:8].log2().round(), "all"), "negative": (lambda s: -(2.0 ** s.log2().round()), "all"),
}  # fmt: skip


@for_each("what", POWERS)
def test_scales_that_are_powers_of_two(what, tmp_path):
    """Of at least eight, in float32, apart from 0; 1 alone is no choice of a power."""
    change, which = POWERS[what]
    codes = (weight() / 0.001).round().clamp(-127, 127).to(torch.int8)
    scale = change(weight().abs().amax(1, keepdim=True).float() / 127)
    stored = {f"{M}.weight": codes[: len(scale)], f"{M}.weight_scale": scale}
    found = found_in(layout_of(tmp_path, stored, "ct_int8")).get("scales_powers_of_two")
    number = {None: 0, "all": len(scale), "but one": len(scale) - 1}[which]
    assert found == (("warning", {"scales": number}) if which else None)


def gptq(zeros, sym, version):
    """A weight of GPTQ with these stored zero points of each group."""
    q, _, step = grid_of(weight())
    z = torch.as_tensor(zeros).expand(GROUPS, ROWS)
    stored = {
        f"{M}.qweight": releases.words(q.T + 8, 0), f"{M}.qzeros": releases.words(z), f"{M}.scales": step[:, ::GROUP].T.half(),
        f"{M}.g_idx": torch.arange(COLUMNS, dtype=torch.int32) // GROUP,
    }  # fmt: skip
    return stored, {"sym": sym, "checkpoint_format": version}


def some(value, others, count=3):
    z = torch.full((GROUPS, ROWS), others)
    z[1, 4 : 4 + count] = value
    return z


SHARE = 3 / (GROUPS * ROWS)
ZEROS = {
    "v1 in the middle": (7, True, "gptq", {}), "v2 in the middle": (8, True, "gptq_v2", {}),
    "v1 with the middle of v2": (8, True, "gptq", {"gptq_version": ("error", {"version": "gptq", "said": "v1", "truth": "v2", "bits": 4, "expected": 7, "stored": 8})}),
    "v2 with the middle of v1": (7, True, "gptq_v2", {"gptq_version": ("error", {"version": "gptq_v2", "said": "v2", "truth": "v1", "bits": 4, "expected": 8, "stored": 7})}),
    "v1 that is v2": (8, False, "gptq", {"gptq_version": ("warning", {"middle": 8, "zero_point": 9})}),
    "v2 that looks like v1": (9, False, "gptq_v2", {}),
    "v1 asymmetric by name": (7, False, "gptq", {"config_unused": ("note", {"middle": 8, "says": "sym false"})}),
    "v2 asymmetric by name": (8, False, "gptq_v2", {"config_unused": ("note", {"middle": 8, "says": "sym false"})}),
    "v1 but for some": (some(5, 7), False, "gptq", {}),
    "v1 that wraps": (some(15, 6), False, "gptq", {"zero_point_wraps": ("note", {"stored": 15, "unwrapped": 16, "zeros": 3, "share": SHARE})}),
    "v2 of 0": (some(0, 6), False, "gptq_v2", {}),
    "v1 symmetric but for some": (some(4, 7), True, "gptq", {"zero_points_differ": ("error", {"middle": 8, "example": 5, "zeros": 3, "share": SHARE})}),
    "v2 symmetric but for some": (some(4, 8), True, "gptq_v2", {"zero_points_differ": ("error", {"middle": 8, "example": 4, "zeros": 3, "share": SHARE})}),
}  # fmt: skip


@for_each("what", ZEROS)
def test_zero_points_of_gptq(what, tmp_path):
    zeros, sym, version, wanted = ZEROS[what]
    stored, config = gptq(zeros, sym, version)
    assert found_in(layout_of(tmp_path, stored, "gptq", **config)) == wanted


def test_boxes_of_scales(tmp_path, monkeypatch):
    """All scales, each once, by the rows of their blocks; those of flat groups and of the whole weight at once."""
    monkeypatch.setattr("quantcore.checkpoints.rows.ELEMENTS", 7 * COLUMNS)
    q, z, s = awq_of(weight())
    forms = {"awq": (awq_stored(q, z, s), 7), "ct_int8": (written("ct_int8"), 7), "nf4": (written("nf4"), None)}
    for form, (stored, rows) in forms.items():
        layout = layout_of(tmp_path / form, stored, form)
        found = list(scale_boxes(layout))
        assert torch.equal(torch.cat([scale for _, scale in found]), layout.scale())
        assert [start for start, _ in found] == (list(range(0, ROWS, rows)) if rows else [0])
    for tensor in open_checkpoint(case("ct_fp8_tensor").release).tensors.values():
        if tensor.is_quantized:
            assert [(start, scale.tolist()) for start, scale in scale_boxes(tensor.layout)] == [(0, [float(tensor.layout.scale())])]


def test_marks_over_boxes():
    marked = _Marked()
    for start in (0, 2, 4):
        mask = torch.zeros(2, 3, dtype=torch.bool)
        if start:
            mask[1, 2] = mask[1, 1] = True
        marked.add(mask, start)
    assert (marked.count, marked.first) == (4, (3, 1))
    one = _Marked()
    one.add(torch.tensor(True), 0)
    assert (one.count, one.first) == (1, ())
