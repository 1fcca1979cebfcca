"""Each hypothesis about a wrong weight, alone and together: what it claims is what was done, and undoing it gives the sound weight."""

import math
from dataclasses import replace

import numpy as np
import pytest
import releases
import torch
from checkpoint_cases import case
from checkpoint_cases import sound as golden
from grid import for_each
from parts import some_rows
from releases import save
from suspects import (
    COLUMNS,
    COMPLEXITY,
    GROUP,
    ROWS,
    THIRD,
    M,
    W,
    awq_of,
    awq_stored,
    ct_stored,
    fit_of,
    grid_of,
    of_layers,
    permutation,
    same,
    sound,
    suspect,
    weight,
)

import quantcore as qc
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison.orders import Heads
from quantcore.checkpoints.findings.against import judge, numbers
from quantcore.checkpoints.findings.against.grid import CodeGrid
from quantcore.checkpoints.findings.against.judge import _Judgement
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.suspect import Cause, Residual, Suspect
from quantcore.checkpoints.findings.walk import Box, Ordered

# Numbers


def test_signs_and_constant_factors(tmp_path):
    x = weight()
    _, y, step = sound(x)
    fit = fit_of(x, y, step)
    q = (y / step).round()
    s = suspect(tmp_path / "sign", sound(-x)[0], x)
    same(numbers.sign_flipped(s), "sign_flipped", fit_of(-x, *sound(-x)[1:]))
    for by in (2.0, 0.25, -4.0):
        s = suspect(tmp_path / f"{by}", ct_stored(q, step * by), x)
        found = list(numbers.constant_factor(s))
        assert found[0].facts["factor"] == by
        same(found, "constant_factor", fit, factor=by)
        assert 1 < len(found) <= 2  # and as it is measured
        assert found[1].facts["factor"] == pytest.approx(by, rel=0.02)
    # near a power of two: which it is called
    for by, name in (
        (2.0 * 1.015, 2.0),
        (2.0 * 1.03, 2.06),
        (1.5, 1.5),
        (-0.5 * 1.03, -0.515),
        (-0.5 * 1.015, -0.5),
    ):
        s = suspect(tmp_path / f"plain {by}", {W: x * by}, x, "")
        found = list(numbers.constant_factor(s))
        assert found[0].facts["factor"] == pytest.approx(name, rel=1e-5)
        assert found[-1].fit.relative < 1e-6
        assert found[-1].facts["factor"] == pytest.approx(by, rel=1e-5)
    for other, count in ((x * 1.0005, 0), (x * 1.002, 1), (x * 0, 0)):
        s = suspect(tmp_path / f"{count}{float(other[0, 0])}", {W: other}, x, "")
        assert len({e.facts["factor"] for e in numbers.constant_factor(s) if e.facts["factor"] != 1}) == count
    signs = x.sign()  # all of one magnitude
    s = suspect(tmp_path / "signs", {W: 0.25 * signs}, 0.75 * signs, "")
    assert [e.facts["factor"] for e in numbers.constant_factor(s)][-1] == pytest.approx(1 / 3)
    # half of the large elements are elsewhere: their median misleads, least squares don't
    lost = x.clone()
    s = suspect(tmp_path / "lost", {W: torch.where(torch.arange(COLUMNS) % 2 == 0, lost, 0.0)}, 3 * x, "")
    assert list(numbers.constant_factor(s))[-1].facts["factor"] == pytest.approx(1 / 3, rel=1e-4)


def test_zero_points_that_are_off(tmp_path):
    x = weight() + 0.01
    q, z, step = awq_of(x)
    fit = fit_of(x, (q - z) * step, step)
    room = int(min(z.min(), 15 - z.max()))
    assert room >= 1
    for by, way, right in (
        (1, "large", "1 less"),
        (-1, "small", "1 more"),
        (2, "large", "that undone"),
        (-2, "small", "that undone"),
    ):
        if abs(by) <= room:
            s = suspect(tmp_path / f"{by}", awq_stored(q, z + by, step), x, "awq")
            same(numbers.zero_point_off(s), "zero_point_off", fit, by=abs(by), way=way, right=right)
    assert not list(numbers.zero_point_off(suspect(tmp_path / "sound", awq_stored(q, z, step), x, "awq")))
    assert not list(numbers.zero_point_off(suspect(tmp_path / "zero", ct_stored(q * 0, step * 0), x)))
    far = suspect(tmp_path / "far", ct_stored(q - z, step), x + 70_000 * step)
    assert not list(numbers.zero_point_off(far))
    plain = suspect(tmp_path / "plain", {W: x}, x + 1, "")
    assert not list(numbers.zero_point_off(plain))
    assert not list(numbers.zero_point_off(suspect(tmp_path / "nf4", releases.nf4(M, x), x + 1, "nf4")))


def test_bits_of_codes(tmp_path):
    """A bit of every code is flipped; of the top one of integers, the reason is said."""
    x = weight()
    q, z, step = awq_of(x)
    fit = fit_of(x, (q - z) * step, step)
    for bit in range(4):
        s = suspect(tmp_path / f"{bit}", awq_stored((q.long() ^ (1 << bit)).float(), z, step), x, "awq")
        found = same(numbers.code_bits(s), "code_bit", fit, bit=bit)
        assert ("two's complement" in found.words) is (bit == 3)
        assert [e.facts["bit"] for e in numbers.code_bits(s)] == [3, 2, 1, 0]
    good = releases.mxfp4(M, x)
    codes = good[f"{M}.weight_packed"]
    s = suspect(tmp_path / "mxfp4", good | {f"{M}.weight_packed": codes ^ 0x88}, x, "mxfp4")
    nibbles = torch.stack([codes & 15, codes >> 4], -1).reshape(ROWS, -1).long()
    scale = (good[f"{M}.weight_scale"].float() - 127).exp2().repeat_interleave(32, 1)
    (found,) = [e for e in numbers.code_bits(s) if e.facts.get("bit") == 3]
    assert found.fit.relative == pytest.approx(fit_of(x, scale * releases.E2M1[nibbles], scale)[1], rel=1e-5)
    assert "two's complement" not in found.words


def test_codes_of_another_float(tmp_path):
    """E5M2 bits stored as E4M3: read so, the weight is the sound one."""
    x = weight()
    scale = x.abs().amax(1, keepdim=True) / 448
    codes = (x / scale).to(torch.float8_e5m2)
    stored = {f"{M}.weight": codes.view(torch.float8_e4m3fn), f"{M}.weight_scale": scale}
    s = suspect(tmp_path, stored, x, "fp8")
    (found,) = [e for e in numbers.code_bits(s) if e.facts.get("format") == "e5m2"]
    y = scale * codes.float()
    assert found.fit.relative == pytest.approx(fit_of(x, y, scale)[1], rel=1e-5)
    formats = {e.facts["format"] for e in numbers.code_bits(s) if e.kind == "code_format"}
    assert "e8m0" not in formats
    assert "e4m3fn" not in formats  # its own
    assert all(qc.FLOATS[name].bits == 8 for name in formats)
    assert len({e.facts["bit"] for e in numbers.code_bits(s) if e.kind == "code_bit"}) == 8


def test_bits_read_as_another_float(tmp_path):
    x = weight()
    stored, y, step = sound(x)
    fit = fit_of(x, y, step)
    wrong = stored | {f"{M}.weight_scale": stored[f"{M}.weight_scale"].view(torch.float16)}
    s = suspect(tmp_path / "scales", wrong, x)
    same(numbers.other_bits(s), "bits_reinterpreted", fit, truth="bfloat16", stored="float16")
    stored, y, step = sound(x, "awq")
    wrong = stored | {f"{M}.scales": stored[f"{M}.scales"].view(torch.bfloat16)}
    s = suspect(tmp_path / "awq", wrong, x, "awq")
    (found,) = numbers.other_bits(s)
    assert found.facts == {"truth": "float16", "stored": "bfloat16"}
    assert found.fit.relative == pytest.approx(
        fit_of(x, y, step)[1], rel=0.02
    )  # its scale is rounded to bfloat16
    half = x.half()
    for kind, bits, facts in (
        ("bits_reinterpreted", half.view(torch.bfloat16), {"truth": "float16", "stored": "bfloat16"}),
        ("bytes_swapped", half.view(torch.uint8).reshape(-1, 2).flip(1).reshape(ROWS, -1).view(torch.float16),
         {"truth": "float16", "stored": "float16"}),
        ("bytes_swapped", half.view(torch.uint8).reshape(-1, 2).flip(1).reshape(ROWS, -1).view(torch.bfloat16),
         {"truth": "float16", "stored": "bfloat16"}),
    ):  # fmt: skip
        s = suspect(tmp_path / f"{kind}{facts}", {W: bits}, half.float(), "")
        (found,) = [e for e in numbers.other_bits(s) if e.kind == kind and e.facts == facts]
        assert found.fit.relative == 0
    assert not list(numbers.other_bits(suspect(tmp_path / "32", {W: x}, x, "")))
    assert not list(numbers.other_bits(suspect(tmp_path / "nf4", releases.nf4(M, x), x, "nf4")))


@for_each("name", ["bitnet_offline", "mlx_affine_4bit"])
def test_bits_of_scales_that_divide_or_have_a_min(name, tmp_path):
    """What is computed from other scales is what the format computes from them: a quotient, or a product and its min."""
    opened = open_checkpoint(case(name).release)
    tensor = next(t for t in opened.tensors.values() if t.is_quantized)
    layout, shape = tensor.layout, tuple(tensor.shape)
    own = {"F16": torch.float16, "BF16": torch.bfloat16}[layout.fields["scale"].piece.dtype]
    other = torch.bfloat16 if own == torch.float16 else torch.float16
    scale = layout.scale().to(own).view(other).float()
    if name == "bitnet_offline":
        x = layout.codes().float() / scale
    else:
        width = shape[1] // scale.shape[1]
        scale, added = (t.repeat_interleave(width, 1) for t in (scale, layout.zero_point()))
        x = layout.codes().float() * scale + added
    source = open_checkpoint(save(tmp_path, {"x": x}))
    measure = Measure(layout, Ordered(source.tensors["x"], shape))
    (found,) = numbers.other_bits(Suspect(measure, opened, source, {}, {}, math.nan, math.nan, 0, False))
    assert found.facts == {"truth": str(other)[6:], "stored": str(own)[6:]}
    assert found.fit.relative < 1e-6


def test_factors_of_rows(tmp_path):
    """Some rows are multiplied by mistake, or all on purpose."""
    x = weight()
    q, y, step = grid_of(x)
    by = torch.ones(ROWS, 1)
    by[7], by[20] = 0.5, 4.0
    s = suspect(tmp_path / "some", ct_stored(q, step * by), x)
    (found,) = numbers.factor_per_row(s)
    facts = found.facts
    assert (facts["rows"], facts["of"], facts["first"]) == (2, ROWS, 7)
    assert (facts["low"], facts["high"]) == pytest.approx((0.5, 4.0), rel=0.03)
    assert found.vector.tolist() == pytest.approx(by[:, 0].tolist(), rel=0.03)
    # the factor is estimated: better than the sound weight, by little
    assert found.fit.relative == pytest.approx(fit_of(x, y, step)[1], rel=0.02)
    assert found.fit.relative <= fit_of(x, y, step)[1]
    assert found.fit.steps == pytest.approx(fit_of(x, y, step)[0], rel=0.02)
    every = torch.linspace(0.5, 2, ROWS)[:, None]
    s = suspect(tmp_path / "all", {W: x * every}, x, "")
    (found,) = numbers.factor_per_row(s)
    assert found.fit.relative < 0.006  # what differs by less than 2 % is left
    assert found.facts["rows"] == int(((1 / every - 1).abs() > 0.02).sum())
    assert found.vector.tolist() == pytest.approx(
        [1.0 if abs(1 / f - 1) <= 0.02 else f for f in every[:, 0].tolist()], rel=1e-4
    )
    for other in (x, x * 1.01, x[:3] * every[:3], x[:, :15] * every):
        s = suspect(
            tmp_path / f"{other.shape}{float(other[0, 0])}", {W: other}, x[: len(other), : other.shape[1]], ""
        )
        assert not list(numbers.factor_per_row(s))
    s = suspect(tmp_path / "least", {W: x[:4, :16] * every[:4]}, x[:4, :16], "")
    assert [e.facts["rows"] for e in numbers.factor_per_row(s)] == [4]
    noise = (
        torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(8))
        * 0.5
        * x.abs().mean(1, keepdim=True)
    )
    assert not list(numbers.factor_per_row(suspect(tmp_path / "noise", {W: x + noise}, x, "")))


def test_factors_of_columns(tmp_path):
    x = weight()
    by = torch.ones(1, COLUMNS)
    by[0, 9], by[0, 30] = 0.5, -4.0
    s = suspect(tmp_path / "some", {W: x * by}, x, "")
    (one,) = numbers.factor_per_column(s)  # rows are not tried for two columns
    assert (one.facts["columns"], one.facts["of"]) == (2, COLUMNS)
    assert (one.facts["low"], one.facts["high"]) == pytest.approx((-4.0, 0.5), rel=1e-4)
    assert one.vector.tolist() == pytest.approx(by[0].tolist(), rel=1e-4)
    assert one.fit.relative < 1e-6
    many = torch.linspace(0.5, 3, COLUMNS)[None]
    tall = weight(16 * ROWS)  # many rows show the factors well enough to tell that all columns are multiplied
    stored, y, step = sound(tall * many)
    s = suspect(tmp_path / "steps", stored, tall)
    steps, relative = fit_of(tall * many, y, step)[0], fit_of(tall, y / many, step)[1]
    for found in numbers.factor_per_column(s):
        assert (found.fit.steps, found.fit.relative) == pytest.approx((steps, relative), rel=0.06)
        assert (found.vector / many[0]).tolist() == pytest.approx([1.0] * COLUMNS, rel=0.1)
    rows = torch.linspace(0.5, 2, len(tall))[:, None]
    s = suspect(tmp_path / "both", {W: tall * many * rows}, tall, "")
    one, both = numbers.factor_per_column(s)
    assert one.kind == "column_factors"
    assert one.fit.relative > 0.1
    assert both.kind == "row_and_column_factors"
    assert both.fit.relative < 0.002
    ratio = both.vector / both.vector[0]
    assert ratio.tolist() == pytest.approx((many / many[0, 0])[0].tolist(), rel=0.01)
    assert both.complexity == COMPLEXITY[both.kind]
    for other in (x, x * 1.01, x[:15] * by, x[:, :3] * rows[:ROWS]):
        s = suspect(
            tmp_path / f"{other.shape}{float(other[0, 0])}", {W: other}, x[: len(other), : other.shape[1]], ""
        )
        assert not list(numbers.factor_per_column(s))
    s = suspect(tmp_path / "least", {W: x[:16, 8:12] * by[:, 8:12]}, x[:16, 8:12], "")
    assert [e.facts["columns"] for e in numbers.factor_per_column(s)] == [1, 1]


def test_factors_of_blocks(tmp_path):
    x = weight()
    q, y, step = grid_of(x)
    by = torch.ones(ROWS, COLUMNS // GROUP)
    by[5, 2], by[30, 0], by[31, 0] = 0.5, 2.0, 8.0
    q[6, :GROUP], y[6, :GROUP] = 0, 0  # of which no factor is known
    x[8, :GROUP] = 0  # nor of these: their codes are not 0
    s = suspect(tmp_path / "some", ct_stored(q, step * by.repeat_interleave(GROUP, 1)), x)
    (found,) = numbers.factor_per_block(s)
    facts = found.facts
    assert (facts["blocks"], facts["of"], facts["first"]) == (3, by.numel(), (5, 2))
    assert (facts["low"], facts["high"]) == pytest.approx((0.5, 8.0), rel=0.03)
    assert found.fit.relative == pytest.approx(fit_of(x, y, step)[1], rel=0.02)
    assert found.fit.steps == pytest.approx(fit_of(x, y, step)[0], rel=0.02)
    for changed, count in (
        (by * 0 + 2, 0),
        (by * 0 + 1.1, 0),
        (torch.where(torch.arange(by.numel()).reshape(by.shape) < 20, 1.0, 2.0), 1),
    ):
        s = suspect(
            tmp_path / f"{float(changed[0, 0])}{count}",
            ct_stored(q, step * changed.repeat_interleave(GROUP, 1)),
            x,
        )
        assert len(list(numbers.factor_per_block(s))) == count
    assert not list(numbers.factor_per_block(suspect(tmp_path / "plain", {W: x * 2}, x, "")))
    one = suspect(tmp_path / "one", releases.ct_int4(M, 2 * x[:, :GROUP]), x[:, :GROUP])
    assert not list(numbers.factor_per_block(one))


# Others


def test_scales_of_another_weight(tmp_path):
    def copied(stored):
        stored[f"{M}.weight_scale"] = stored[f"{THIRD}.weight_scale"]

    x, s = of_layers(tmp_path / "copied", copied)
    _, y, step = sound(x)
    found = same(
        numbers.scales_of_another(s),
        "scales_of_another",
        pytest.approx(fit_of(x, y, step), rel=0.03),
        other=f"{THIRD}.weight",
    )
    assert found.facts["equal"] is True

    def exchanged(stored):
        a, b = f"{M}.weight_scale", f"{THIRD}.weight_scale"
        stored[a], stored[b] = stored[b], stored[a]

    x, s = of_layers(tmp_path / "exchanged", exchanged)
    found = list(numbers.scales_of_another(s))
    same(found, "scales_exchanged", fit_of(x, y, step), other=f"{THIRD}.weight", equal=False)
    assert {e.facts["other"] for e in found} == set(s.peers)


def test_zero_points_of_another_weight(tmp_path):
    def exchanged(stored):
        a, b = f"{M}.qzeros", f"{THIRD}.qzeros"
        stored[a], stored[b] = stored[b], stored[a]

    x, s = of_layers(tmp_path, exchanged, "awq")
    _, y, step = sound(x, "awq")
    same(
        numbers.zero_points_of_another(s),
        "zero_points_exchanged",
        fit_of(x, y, step),
        other=f"{THIRD}.weight",
    )
    _, s = of_layers(tmp_path / "ct", lambda stored: None)
    assert not list(numbers.zero_points_of_another(s))


def test_values_and_codes_of_another_weight(tmp_path):
    def whole(stored):
        for last in ("weight_packed", "weight_scale"):
            stored[f"{M}.{last}"] = stored[f"{THIRD}.{last}"]

    _, s = of_layers(tmp_path / "whole", whole)
    z = weight(seed=13)
    _, y, step = sound(z)
    (found,) = numbers.whole_of_another(s)
    assert found.facts == {"other": f"{THIRD}.weight", "original": W}
    assert found.fit.relative == pytest.approx(fit_of(z, y, step)[1], rel=1e-5)
    (found,) = numbers.codes_of_another(s)
    assert (found.kind, found.facts, found.fit) == ("codes_of_another", {"other": f"{THIRD}.weight"}, s.now)
    _, s = of_layers(tmp_path / "sound", lambda stored: None)
    assert not list(numbers.whole_of_another(s))
    assert not list(numbers.codes_of_another(s))


# What explains


@for_each(
    ("what", "fit", "explains"),
    some_rows([
        # of a plain weight: no more than rounding, and half of before
        ("plain", Residual(0, 1e-7), True), ("plain", Residual(0, 1e-6), True), ("plain", Residual(0, 2e-6), False),
        # of codes with steps: about as near as rounding to nearest, and less than before
        ("codes", Residual(1.0, 0.1), True), ("codes", Residual(1.0, 0.95), False), ("codes", Residual(1.4, 0.5), True),
        ("codes", Residual(2.5, 0.1), False), ("codes", Residual(1.7, 0.5), True), ("codes", Residual(1.7, 0.75), False),
        # beside siblings: their error
        ("siblings", Residual(1.0, 0.14), True), ("siblings", Residual(1.0, 0.16), False), ("siblings", Residual(1.7, 0.1), True),
        ("siblings", Residual(2.0, 0.1), False),
        # at the edges: what is no less than the given part of before explains nothing
        ("codes", Residual(1.0, 0.9), False), ("codes", Residual(1.6, 0.7), False), ("codes", Residual(1.599, 0.8), True), ("codes", Residual(1.7, 0.699), True),
        ("siblings", Residual(1.0, 0.15), True), ("siblings", Residual(1.25 * math.sqrt(2.0), 0.1), False),
        # of bfloat16 against float16: twice the rounding errors of both, 2^-8 and 2^-11
        ("bfloat16", Residual(0, 2 * (2.0**-8 + 2.0**-11)), True), ("bfloat16", Residual(0, 2.02 * (2.0**-8 + 2.0**-11)), False),
        ("small", Residual(0, 0.0049), True), ("small", Residual(0, 0.005), False),
        # of codes without steps: half of before and, beside siblings, 1.3 times their error
        ("rows of a grid", Residual(0, 0.499), True), ("rows of a grid", Residual(0, 0.5), False), ("few rows of a grid", Residual(0, 0.64), True),
        ("few rows of a grid", Residual(0, 0.651), False), ("siblings of a grid", Residual(0, 0.129), True), ("siblings of a grid", Residual(0, 0.131), False),
    ], 2),
)  # fmt: skip
def test_what_explains_an_error(what, fit, explains, tmp_path):
    """Before: a relative error of 1, a median |error| twice that of rounding to nearest."""
    x = weight()
    s = suspect(
        tmp_path, {W: 2 * x} if what == "plain" else sound(x)[0], x, "" if what == "plain" else "ct_int4"
    )
    if what in ("bfloat16", "small"):
        source = open_checkpoint(releases.save(tmp_path / "half", {W: x.half()}))
        s = suspect(tmp_path / what, {W: (2 * x).bfloat16()}, x, "")
        s = replace(s, measure=replace(s.measure, source=Ordered(source.tensors[W], (ROWS, COLUMNS))))
    if what == "siblings":  # whose errors are twice those of rounding to nearest
        s = replace(s, normal=2.0, usual=0.1)
    if what == "siblings of a grid":
        s = replace(s, usual=0.1)
    before = {"small": 0.01, "few rows of a grid": 2.0}.get(what, 1.0)
    s.__dict__["now"] = Residual(2.0, before)
    if "grid" in what:  # where codes have no values of their own
        s.measure.grid = None
    assert s.explains(fit) is explains


def test_the_steps_of_a_weight(tmp_path):
    """Of codes, the scale times the distance to the nearer neighbor; of plain values, what rounding both sides may change."""
    x = weight()
    for dtype, stored, eps in (
        (torch.bfloat16, torch.float16, 2.0**-8 + 2.0**-11),
        (torch.float32, torch.bfloat16, 2.0**-24 + 2.0**-8),
    ):
        release = {W: x.to(dtype)}
        s = suspect(tmp_path / f"{dtype}", release, x, "")
        source = open_checkpoint(releases.save(tmp_path / f"{stored}", {W: x.to(stored)}))
        s = replace(s, measure=replace(s.measure, source=Ordered(source.tensors[W], (ROWS, COLUMNS))))
        assert torch.equal(s.step, s.x.abs() * (2 * eps))
    levels = {"nf4": None, "fp8": 448.0, "mxfp4": 6.0}
    for name in levels:
        s = suspect(tmp_path / name, releases.WRITERS[name][0](M, x), x, name)
        table = np.unique(np.where(np.isfinite(t := s.grid.table.double().numpy()), t, 0.0))
        gaps = np.diff(table)
        at = np.searchsorted(table, s.values.double().numpy())
        near = np.minimum(np.append(gaps, np.inf)[at], np.insert(gaps, 0, np.inf)[at])
        assert s.step.numpy() == pytest.approx(np.abs(s.scales.numpy()) * near, rel=1e-5)
    vector = suspect(tmp_path / "vector", {W: x[0]}, x[0], "")
    assert vector.x.shape == vector.y.shape == (1, COLUMNS)


def test_a_fit_in_steps(tmp_path):
    x = weight()
    stored, y, step = sound(x)
    s = suspect(tmp_path, stored, x)
    assert (s.now.steps, s.now.relative) == pytest.approx(fit_of(x, y, step), rel=1e-5)
    assert s.in_place
    assert not suspect(tmp_path / "other", sound(weight(seed=8))[0], x).in_place
    assert not suspect(tmp_path / "vector", {W: x[0]}, x[0], "").in_place
    assert s.fit(s.x).relative == s.fit(s.x).steps == 0
    assert s.fit(s.y, s.step * 0).steps == pytest.approx(float((s.x - s.y).abs().median()) * 4)
    zero = suspect(tmp_path / "zero", {W: x}, x * 0, "")
    assert zero.now.relative == math.inf
    assert suspect(tmp_path / "zeros", {W: x * 0}, x * 0, "").now.relative == 0
    assert s.improves(Residual(s.now.steps, 0.99 * s.now.relative))
    assert not s.improves(Residual(s.now.steps, 0.999 * s.now.relative))
    assert s.improves(Residual(1.04 * s.now.steps, 0.9 * s.now.relative))
    assert not s.improves(Residual(1.06 * s.now.steps, 0.9 * s.now.relative))
    s.__dict__["now"] = Residual(4.0, 2.0)
    assert not s.improves(Residual(1.0, 1.99))
    assert not s.improves(Residual(4.2, 1.0))


# Together


def complexity_of(e):
    """As `COMPLEXITY` says; codes that are permuted among all rows or columns need their list of places."""
    by_place = "moved" in e.facts and e.kind != "g_idx_wrong"
    return max(COMPLEXITY[e.kind], 2 if by_place else 0)


def test_how_much_each_hypothesis_needs(tmp_path):
    """Of all that is tried on weights of several formats, whatever is wrong with them."""
    x = weight(64, 64)
    seen = {}
    places_ = permutation(64)
    given = [("awq", releases.awq(M, x[places_])), ("gptq", releases.gptq(M, x[:, places_])), ("nvfp4", releases.nvfp4(M, 2 * x)),
             ("fp8", releases.fp8(M, x)), ("ct_int4", releases.ct_int4(M, x.T)), ("", {W: x.half()}), ("", {W: x[0].half()})]  # fmt: skip
    by = torch.linspace(0.5, 2, 64)
    for number, (name, stored) in enumerate(given):
        original = x[0].flip(0) if stored.get(W, x).dim() == 1 else x * by if number % 2 else x * by[:, None]
        s = suspect(tmp_path / f"{number}", stored, original, name)
        for hypothesis in dict.fromkeys((*judge.LOCAL, *judge.GLOBAL, *judge.OF_PLACES)):
            for e in hypothesis(s):
                assert e.complexity == complexity_of(e), e.kind
                assert 0 <= e.fit.relative < math.inf
                seen[e.kind] = True
    assert {
        "transposed",
        "sign_flipped",
        "code_bit",
        "code_format",
        "bytes_swapped",
        "rows_permuted",
        "row_factors",
        "column_factors",
    } <= seen.keys()


def test_the_simplest_cause_wins(tmp_path):
    """Of those that explain an error about equally well; none if nothing does."""
    x = weight(64, 64)
    assert judge.cause_of(suspect(tmp_path / "sign", {W: -x}, x, "")).kind == "sign_flipped"
    assert judge.cause_of(suspect(tmp_path / "half", {W: 2 * x}, x, "")).kind == "constant_factor"
    assert judge.cause_of(suspect(tmp_path / "t", {W: x.T.contiguous()}, x, "")).kind == "transposed"
    assert judge.cause_of(suspect(tmp_path / "rows", {W: x[permutation(64)]}, x, "")).kind == "rows_permuted"
    assert (
        judge.cause_of(suspect(tmp_path / "columns", {W: x[:, permutation(64)]}, x, "")).kind
        == "columns_permuted"
    )
    assert judge.cause_of(suspect(tmp_path / "other", {W: weight(64, 64, 9)}, x, "")) is None
    many = [Cause(kind, "", {}, Residual(1, relative), complexity)
            for kind, relative, complexity in (("a", 0.100, 3), ("b", 0.114, 1), ("c", 0.116, 0), ("d", 0.110, 1))]  # fmt: skip
    assert judge._simplest(many).kind == "d"
    assert judge._simplest(many[:1]).kind == "a"
    two = x.clone()
    two[[3, 9]] = two[[9, 3]]
    s = suspect(tmp_path / "two", releases.ct_int4(M, two), x)
    found = judge.cause_of_places(s)
    assert (found.kind, found.facts["moved"], found.facts["order"]) == (
        "rows_permuted",
        2,
        "row 3 and row 9 exchanged",
    )
    assert judge.cause_of_places(suspect(tmp_path / "sound", releases.ct_int4(M, x), x)) is None


def test_what_a_suspect_knows_of_its_siblings(tmp_path):
    """The median error of at least four others, in steps and relative; the number of heads of q."""
    _, s = of_layers(tmp_path, lambda stored: None, count=6)
    measures = {s.measure.name: s.measure}
    for name in s.peers:
        t, o = s.release.tensors[name], s.source.tensors[name]
        m, rows = Measure(t.layout, Ordered(o, t.shape)), slice(0, ROWS)
        m.add(Box(t.layout, rows, m.source))
        measures[name] = m.done()
    judgement = _Judgement(measures, s.release, s.source, Heads((8,), (2,)))
    others = judgement.siblings(s.measure)
    assert [m.name for m in others] == list(s.peers)
    found = judgement.suspect(s.measure, others)
    assert found.normal == pytest.approx(np.median([m.bulk for m in others]))
    assert found.usual == pytest.approx(np.median([m.relative for m in others]))
    assert (found.heads, found.peers, found.gguf_differs, found.is_far) == (8, s.peers, False, False)
    few = judgement.suspect(s.measure, others[:3])
    assert math.isnan(few.normal)
    assert math.isnan(few.usual)
    four = judgement.suspect(s.measure, others[:4], True)
    assert four.usual == pytest.approx(np.median([m.relative for m in others[:4]]))
    assert four.is_far
    others[0].bulk = math.nan
    assert math.isnan(judgement.suspect(s.measure, others[:4]).normal)
    assert judgement.suspect(s.measure, others).normal == pytest.approx(
        np.median([m.bulk for m in others[1:]])
    )


@for_each("given", golden(), ids=str)
def test_values_are_on_the_grid(given):
    """Scale times the value of the code: the values before they are rounded, where no zero point or min is added."""
    for tensor in open_checkpoint(given.release).tensors.values():
        layout, rows = tensor.layout, slice(0, tensor.shape[0] // 2 if tensor.shape else 0)
        if (
            tensor.is_quantized
            and len(layout.shape) == 2
            and CodeGrid.suits(layout)
            and layout.zero_point() is None
            and layout.min() is None
        ):
            grid, y = CodeGrid(layout), layout.values(rows, rounded=False)
            shift = y - grid.scales(rows) * grid.table[grid.bits(layout.codes(rows))]
            assert float(shift.abs().max()) <= 1e-6 * float(y.abs().max())
            break
