"""How codes and scales were computed: counted again in float64 by quantizing what was dequantized, group by group."""

import pytest
import releases
import torch
from checkpoint_cases import case
from grid import for_each
from releases import GROUP, WRITERS, save
from suspects import COLUMNS, ROWS, M, W, awq_of, awq_stored, ct_stored, grid_of, weight

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings import provenance
from quantcore.checkpoints.findings.provenance import TOLERANCE, Provenance
from quantcore.checkpoints.findings.walk import Box

COUNT = COLUMNS // GROUP


def seen_of(folder, stored, name="ct_int4", boxes=(slice(0, 20), slice(20, ROWS)), original=None, rounding=0.0):
    layout = open_checkpoint(save(folder, stored, WRITERS[name][1])).tensors[W].layout
    assert Provenance.suits(layout)
    seen = Provenance(layout)
    for box in boxes:
        seen.add(Box(layout, box))
        if original is not None:
            seen.compare(original[box], box, rounding)
    return seen


def again(y, s, top, dtype):
    """Whether max |y| / top, in the dtype of the scales, is the stored scale."""
    new = (y.double().abs().amax(-1) / top).to(dtype).double()
    return (new - s.double()).abs() <= 2.0**-22 * s.double()


def groups(t):
    return t.reshape(len(t), -1, GROUP)


def test_symmetric_codes(tmp_path):
    """Groups of equal codes show nothing; a scale of 0 with codes that differ is dead."""
    x = weight()
    q, _, step = grid_of(x)
    q[3, :32], q[4, 32:64] = 2, -8
    q[5, 0], q[6, 40] = -8, -8
    q[7, :GROUP] = q[7, :GROUP].clamp(-6, 6)
    q[8, :GROUP] = q[8, :GROUP].clamp(-7, 6)
    s = step.clone()
    s[9, :GROUP], s[3, :GROUP] = 0, 0
    seen = seen_of(tmp_path, ct_stored(q, s))
    g, scale = groups(q), groups(s)[..., 0]
    known = g.amax(-1) != g.amin(-1)
    assert (seen.groups, seen.symmetric) == (int(known.sum()), True)
    assert seen.groups == ROWS * COUNT - 2
    assert seen.highest == int(((torch.maximum(-g.amin(-1), g.amax(-1)) == 7) & known).sum())
    assert seen.lowest == int(((g.amin(-1) == -8) & known).sum()) == 2
    assert seen.dead == 1
    assert seen.same == int((again(groups(q * s), scale, 7, torch.bfloat16) & known).sum())
    found = {f.kind: f for f in seen.found()}
    assert found["scale_zero"].facts == {"dead": 1, "groups": seen.groups}
    assert found["scale_zero"].severity == "error"
    facts = found["requantizing_is_identity"].facts
    assert facts == {"same": seen.same / seen.groups, "groups": seen.groups, "rule": "divisor 7"}
    every = {f.kind for f in seen_of(tmp_path, ct_stored(q, s * 0)).found()}
    assert "scale_zero" not in every


def test_symmetric_codes_with_a_zero_point(tmp_path):
    """GPTQ's codes from 0 to 15 are counted from their zero point of 8."""
    stored = WRITERS["gptq"][0](M, weight())
    seen = seen_of(tmp_path, stored, "gptq")
    q = groups(open_checkpoint(tmp_path).tensors[W].codes().int() - 8)
    assert (seen.groups, seen.symmetric) == (int((q.amax(-1) != q.amin(-1)).sum()), True)
    assert seen.highest == int((q.abs().amax(-1) == 7).sum()) > 100
    assert seen.lowest == int((q.amin(-1) == -8).sum())


def test_asymmetric_codes(tmp_path):
    x = weight() + 0.005
    q, z, step = awq_of(x)
    q[2, :GROUP] = q[2, :GROUP].clamp(1, 15)
    q[3, :GROUP] = q[3, :GROUP].clamp(0, 14)
    q[4, :GROUP] = 5
    q[5, :GROUP] = q[5, :GROUP].clamp(2, 13)  # 13 + 2 is 15, but 13 - 2 is not
    q[5, 0], q[5, 1] = 2, 13
    seen = seen_of(tmp_path, awq_stored(q, z, step), "awq")
    g = groups(q)
    width = g.amax(-1) - g.amin(-1)
    assert (seen.groups, seen.symmetric) == (int((width > 0).sum()), False)
    new = (width.double() * groups(step)[..., 0] / 15).half().double()
    same = (new - groups(step)[..., 0]).abs() <= 2.0**-22 * new
    assert seen.same == int((same & (width > 0)).sum())
    assert (seen.highest, seen.lowest) == (0, 0)
    (finding,) = seen.found()
    assert (finding.kind, finding.facts["rule"]) == ("requantizing_is_identity", "15 steps")
    seen.compare(x, slice(0, ROWS), 0.0)
    assert seen.compared == 0


@for_each(("divisor", "kind"), [(7, "requantizing_is_identity"), (7.5, "scale_divisor"), (8, "scale_divisor"), (6, "requantizing_changes")])
def test_what_scales_were_divided_by(divisor, kind, tmp_path):
    """The counts of each divisor tried, and the mean ratio, from the original's max |w| of each group."""
    x = weight()
    high = groups(x).abs().amax(-1, keepdim=True)
    s = (high / divisor).bfloat16().float()
    q = (groups(x) / s).round().clamp(-8, 7).reshape(x.shape)
    step = s.expand(-1, -1, GROUP).reshape(x.shape)
    seen = seen_of(tmp_path, ct_stored(q, step), original=x)
    ratio = (high.double() / s.double()).reshape(-1)
    assert seen.compared == ratio.numel()
    assert seen.ratios == pytest.approx(float(ratio.sum()), rel=1e-6)
    for tried, count in seen.divided.items():
        assert count == int(((ratio / tried - 1).abs() <= 2 * 2.0**-8).sum()), tried
    assert list(seen.divided) == [7.0, 7.5, 8.0]
    assert not kind.endswith("identity") or seen.same == seen.groups
    first, scales = seen.found()
    assert (first.kind, scales.kind) == (kind, "scale_divisor")
    if kind == "scale_divisor":
        reached = (seen.lowest + seen.highest) / seen.groups
        assert first.facts == {"share": reached, "groups": seen.groups, "lowest": -8, "highest": 7, "half": 7.5, "whole": 8}
    share = seen.divided[min(max(divisor, 7.0), 8.0)] / seen.compared
    assert scales.facts == {"divisor": max(divisor, 7.0), "share": share, "tried": "7, 7.5, 8"}
    assert (share == 1.0) is (divisor != 6)


@for_each("stored", [torch.bfloat16, torch.float32])
@for_each("divisor", [127.0, 127.5, 128.0])
def test_a_divisor_is_tried_in_the_dtype_of_the_original(divisor, stored, tmp_path):
    """Largest values that are all rounded the same way when divided; torchao stores the quotients as float32."""
    x = weight().bfloat16()
    x[:, 0] = torch.linspace(129, 150, ROWS).round() * 2.0**-8  # only above 191 do 127 and 127.5 differ
    x[::4, 0] = 240 * 2.0**-8
    s = (x.float().abs().amax(1, keepdim=True) / divisor).to(stored)
    rounded = (x.abs().amax(1, keepdim=True) / divisor).bfloat16()
    q = (x.float() / rounded.float()).round().clamp(-128, 127).to(torch.int8)
    for dtype, scale in ((torch.bfloat16, rounded.to(stored)), (torch.float32, s)):
        name = f"{dtype} {stored}"
        tensors = {f"{M}.weight": q, f"{M}.weight_scale": scale}
        layout = open_checkpoint(save(tmp_path / name, tensors, WRITERS["ct_int8"][1])).tensors[W].layout
        seen = Provenance(layout)
        seen.add(Box(layout, slice(0, ROWS)))
        seen.compare(x.float(), slice(0, ROWS), 2.0**-8, dtype)
        *_, found = seen.found()
        assert (found.facts["divisor"], found.facts["share"]) == (divisor, 1.0), name


def test_a_rounded_scale_explains_the_lowest_code(tmp_path):
    """Codes of -128 do not rule out 127 if scales are in bfloat16, whatever dtype stores them."""
    x = weight()
    for stored, said in ((torch.bfloat16, True), (torch.float32, True), (None, False)):
        s = x.abs().amax(1, keepdim=True) / 127.5
        s = s if stored is None else s.bfloat16().to(stored)
        q = (x / s.float()).round().clamp(-128, 127).to(torch.int8)
        q[:, 0] = -128
        found = list(seen_of(tmp_path / str(stored), {f"{M}.weight": q, f"{M}.weight_scale": s}, "ct_int8").found())
        assert [f.kind for f in found] == ["scale_divisor"]
        assert ("by 127 and rounded to bfloat16, by 127.5 or 128" in found[0].sentence) is said, stored


def test_groups_that_are_not_compared(tmp_path):
    """Those of an original of 0, or a scale of 0; a less precise original widens the tolerance."""
    x = weight()
    q, _, step = grid_of(x)
    s = step.clone()
    s[9, :GROUP] = 0
    zero = x.clone()
    zero[10, :GROUP] = 0
    seen = seen_of(tmp_path, ct_stored(q, s), original=zero)
    assert seen.compared == ROWS * COUNT - 2
    reached = int((groups(q).abs().amax(-1) == 7).sum())
    for rounding in (0.0, 0.05):
        for part, count in ((0.98, reached), (1.02, 0)):
            off = q * step * (1 + part * 2 * (2.0**-8 + rounding))
            seen = seen_of(tmp_path / f"{rounding} {part}", ct_stored(q, step), original=off, rounding=rounding)
            assert seen.divided[7.0] == count


def test_a_last_group_that_is_short(tmp_path):
    given = case("ct_int4_channel_odd")
    layout = next(t for t in open_checkpoint(given.release).tensors.values() if t.is_quantized).layout
    seen, rows = Provenance(layout), slice(0, layout.shape[0])
    codes = layout.codes(rows)
    seen.add(Box(layout, rows))
    assert seen.groups == int((codes.amax(1) != codes.amin(1)).sum())
    assert seen.highest == int((codes.abs().amax(1) == 7).sum())


@for_each("columns", [3, 4, 8, 10])
def test_the_ends_of_groups(columns):
    """The last group may be shorter, or the only one."""
    values = torch.randint(-9, 9, (3, columns), generator=torch.Generator().manual_seed(columns))
    parts = [values[:, start : start + 4] for start in range(0, columns, 4)]
    low, high = provenance._extremes(values, 4)
    assert low.tolist() == [[int(p[r].min()) for p in parts] for r in range(3)]
    assert high.tolist() == [[int(p[r].max()) for p in parts] for r in range(3)]


SUITS = {
    "gptq_v1_4bit_g128_sym": True, "awq_gemm_g128": True, "ct_int4_sym_g128": True, "ct_int8_w8a8": True,
    "quanto_qint8": True, "gptq_v1_4bit_g32_asym_desc_act": False, "ct_fp8_channel": False, "gguf_legacy": False, "bnb_nf4": False,
    "mlx_affine_4bit": False, "hqq_4bit_axis1": False, "ct_int4_actorder_group": False, "ct_nvfp4": False, "deepseek_fp8": False,
}  # fmt: skip


@for_each("name", SUITS)
def test_which_weights_show_it(name):
    """Integers in groups of adjacent columns with integer zero points or none."""
    tensors = [t for t in open_checkpoint(case(name).release).tensors.values() if t.is_quantized and len(t.shape) == 2]
    assert {Provenance.suits(t.layout) for t in tensors} == {SUITS[name]}


def test_stored_zero_points_of_0_are_symmetric(tmp_path):
    """torchao stores them for signed codes; a zero point anywhere else makes the weight asymmetric."""
    for name, wanted in (
        ("torchao_int8", True), ("quanto_qint8", True), ("gptq_v1_2bit_g32_asym", False), ("ct_int4_asym_g32", False), ("ct_int8_pack_asym", False),
    ):  # fmt: skip
        tensors = [t for t in open_checkpoint(case(name).release).tensors.values() if t.is_quantized and len(t.shape) == 2]
        assert {Provenance(t.layout).symmetric for t in tensors} == {wanted}, name
    q, z, step = awq_of(weight())
    assert not seen_of(tmp_path, awq_stored(q, z * 0, step), "awq").symmetric  # codes from 0 on have one side


def test_tolerances_are_half_a_unit_in_the_last_place():
    """Of a number next to 1; of float32, two units."""
    half, brain, single = (torch.finfo(t).eps for t in (torch.float16, torch.bfloat16, torch.float32))
    assert {"F16": half / 2, "BF16": brain / 2, "F32": 2 * single} == TOLERANCE


def test_int8_scales_of_rows(tmp_path):
    """bfloat16 scales of 8-bit codes: arithmetic in bfloat16 is one of the reasons that are offered."""
    x = weight()
    s = (x.abs().amax(1, keepdim=True) / 110).bfloat16()
    q = (x / s.float()).round().clamp(-128, 127)
    stored = {f"{M}.weight": q.to(torch.int8), f"{M}.weight_scale": s}
    (finding,) = seen_of(tmp_path, stored, "ct_int8").found()
    assert (finding.kind, finding.facts["rule"]) == ("requantizing_changes", "divisor 127")
    assert "arithmetic in bfloat16" in finding.sentence
    (finding,) = seen_of(tmp_path / "4", ct_stored(*[(grid_of(x)[i] / (2 if i == 0 else 1)).round() if i == 0 else grid_of(x)[i] for i in (0, 2)])).found()
    assert finding.kind == "requantizing_changes"
    assert "arithmetic in bfloat16" not in finding.sentence
    nothing = seen_of(tmp_path / "equal", stored | {f"{M}.weight": torch.ones(ROWS, COLUMNS, dtype=torch.int8)}, "ct_int8")
    assert list(nothing.found()) == []


def test_most_of_the_groups(tmp_path):
    """Nine of ten, exactly."""
    seen = seen_of(tmp_path, releases.ct_int4(M, weight()))
    for same, kind in ((90, "requantizing_is_identity"), (89, "requantizing_changes")):
        seen.groups, seen.same, seen.lowest, seen.highest, seen.dead = 100, same, 0, 0, 0
        assert [f.kind for f in seen.found()] == [kind]
    for lowest, highest, kind in ((1, 89, "scale_divisor"), (1, 88, "requantizing_changes"), (0, 95, "requantizing_changes")):
        seen.same, seen.lowest, seen.highest = 0, lowest, highest
        assert [f.kind for f in seen.found()] == [kind]
