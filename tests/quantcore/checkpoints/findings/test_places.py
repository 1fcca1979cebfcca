"""What is wrong at single places, plain weights that differ, and global scales: what was planted is found, in numbers."""

import math
from dataclasses import replace

import numpy as np
import pytest
import releases
import torch
from checkpoint_cases import case, flipped
from grid import for_each
from parts import in_parts, some
from releases import WRITERS, save
from suspects import COLUMNS, ROWS, M, W, awq_of, awq_stored, ct_stored, grid_of, of_layers, suspect, weight

from quantcore.analysis import Sums
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison.orders import Heads
from quantcore.checkpoints.findings.against import changes, global_scales, places
from quantcore.checkpoints.findings.against.grid import CodeGrid, Nearest
from quantcore.checkpoints.findings.against.judge import _Judgement, judge
from quantcore.checkpoints.findings.against.measure import Measure, leak_of
from quantcore.checkpoints.findings.walk import Box, Ordered

# Places


@for_each(
    ("name", "role", "bits"),
    [
        ("gptq_v2_4bit_g128_sym", "scale", 16), ("ct_int4_sym_g128", "scale", 16), ("ct_fp8_channel", "scale", 16),
        ("ct_mxfp4", "scale_code", 8), ("ct_nvfp4", "scale_code", 8), ("gguf_legacy", "d", 16), ("bnb_int8", "scale", 32),
    ],
)  # fmt: skip
@in_parts(7)
def test_what_a_flipped_bit_of_a_scale_does(name, role, bits, part, tmp_path):
    """Flipped in the file and read again, the scale is larger by the factor that is predicted for the flip."""
    given = case(name)
    checkpoint = open_checkpoint(given.release)
    weight = next(n for n, t in checkpoint.tensors.items() if t.is_quantized and len(t.shape) == 2)
    tensor = checkpoint.tensors[weight]
    row, start = 5, 32 if tensor.layout.blocks.block[-1] == 32 else 0
    original = Ordered(tensor, tensor.shape)
    run = places.Lines(Measure(tensor.layout, original)).run(row, start)
    found = {bit: factor for factor, bit in places._flips(run)}
    place = tensor.layout.locate((row, start)).parameters[role]
    assert len(place.bits) == bits
    now = float(CodeGrid(tensor.layout).scales(slice(row, row + 1))[0, start])
    for bit in part(range(bits)):
        other = flipped(given, place, bit, tmp_path).tensors[weight]
        then = float(CodeGrid(other.layout).scales(slice(row, row + 1))[0, start])
        if then and math.isfinite(then):
            assert found[bit] == pytest.approx(then / now, rel=1e-6), bit
        else:
            assert bit not in found


def wrong_at(folder, stored, x, name="ct_int4"):
    s = suspect(folder, stored, x, name)
    lines = places.Lines(s.measure)
    return s, lines, *places.wrong_runs(lines)


def run_errors(x, before, after, row, cut):
    power = float((x[row, cut] ** 2).sum())
    return [math.sqrt(float(((x - y)[row, cut] ** 2).sum()) / power) for y in (before, after)]


def test_a_scale_that_is_wrong(tmp_path):
    """Its run, the factor, the bit if it is one, and the errors before and after."""
    x = weight()
    q, y, step = grid_of(x)
    for by in (2.0, 0.5, 0.25, 1.5, -1.0, 8.0, 16.0, 2.2):
        wrong = step.clone()
        wrong[20, 64:96] *= by
        wrong = wrong.bfloat16().float()
        _, lines, explained, left = wrong_at(tmp_path / f"{by}", ct_stored(q, wrong), x)
        (place,) = explained
        assert not left
        assert (place.row, place.column, place.stop, place.what) == (20, 64, 96, "scale")
        assert place.factor == pytest.approx(by, rel=0.02 if by in (1.5, 2.2) else 1e-9)
        bits = [int(t[20, 64].bfloat16().view(torch.int16)) & 0xFFFF for t in (step, wrong)]
        changed = bits[0] ^ bits[1]
        assert place.bit == (changed.bit_length() - 1 if changed.bit_count() == 1 else -1)
        before, after = run_errors(x, q * wrong, y, 20, slice(64, 96))
        assert place.before == pytest.approx(before, rel=1e-5)
        assert place.after == pytest.approx(after, rel=1e-4 if place.bit >= 0 else 0.05)
        assert (lines.start_of(64), lines.start_of(95), lines.start_of(96)) == (64, 64, 96)
        run = lines.run(20, 64)
        assert run.columns.tolist() == list(range(64, 96))
        assert run.error(run.y) == pytest.approx(float(((x - q * wrong)[20, 64:96] ** 2).sum()), rel=1e-4)


@for_each("bit", range(5))
def test_a_bit_of_a_power_of_two_that_is_flipped(bit, tmp_path):
    """It is said, although a power of two as a factor is as good."""
    x, stored = weight(), releases.mxfp4(M, weight())
    scale = stored[f"{M}.weight_scale"].clone()
    factor = 2.0 ** ((1 - 2 * (int(scale[20, 2]) >> bit & 1)) << bit)
    scale[20, 2] ^= 1 << bit
    _, _, explained, _ = wrong_at(tmp_path, stored | {f"{M}.weight_scale": scale}, x, "mxfp4")
    (place,) = explained
    assert (place.row, place.column, place.stop, place.what, place.bit, place.factor) == (
        20,
        64,
        96,
        "scale",
        bit,
        factor,
    )


def test_runs_of_an_order(tmp_path):
    """The columns of a group are side by side in the order of g_idx: where each of them starts."""
    x = weight()
    stored = releases.gptq(M, x, "desc_act")
    _, lines, _, _ = wrong_at(tmp_path, stored, x, "gptq_desc_act")
    index = stored[f"{M}.g_idx"]
    for column in range(COLUMNS):
        start = lines.start_of(column)
        assert start == int(index[column]) * 32
        assert (
            lines.run(20, start).columns.tolist() == (index == index[column]).nonzero().reshape(-1).tolist()
        )


def test_a_zero_point_that_is_wrong(tmp_path):
    x = weight()
    q, z, step = awq_of(x)
    for by in (1, -2, 3):
        wrong = z.clone()
        wrong[20, 64:96] += by
        _, _, explained, _ = wrong_at(tmp_path / f"{by}", awq_stored(q, wrong, step), x, "awq")
        (place,) = explained
        assert (place.row, place.column, place.stop, place.what, place.factor) == (
            20,
            64,
            96,
            "zero point",
            by,
        )
        before, after = run_errors(x, (q - wrong) * step, (q - z) * step, 20, slice(64, 96))
        assert (place.before, place.after) == pytest.approx((before, after), rel=1e-4)


def test_codes_at_one_place(tmp_path):
    """The stored code and the nearest one."""
    x = weight()
    q, _, step = grid_of(x)
    assert abs(int(q[7, 33])) < 7
    wrong = q.clone()
    wrong[7, 33] = float((int(q[7, 33]) & 15) ^ 1)
    wrong[7, 33] -= 16 * (wrong[7, 33] > 7)
    s, lines, _, _ = wrong_at(tmp_path, ct_stored(wrong, step), x)
    assert lines.codes_at(7, 33) == (int(wrong[7, 33]) & 15, int(q[7, 33]) & 15)
    (finding,) = places.of_codes_and_runs(s.measure)
    assert finding.kind == "code_impossible"
    steps = float((x - wrong * step).abs()[7, 33] / step[7, 33])
    assert finding.facts == {
        "elements": 1, "row": 7, "column": 33, "code": int(wrong[7, 33]) & 15, "nearest": int(q[7, 33]) & 15, "bit": 0,
        "steps": pytest.approx(steps, rel=1e-4),
    }  # fmt: skip


def test_codes_at_places_with_a_zero_point(tmp_path):
    x = weight() + 0.01
    q, z, step = awq_of(x)
    wrong = q.clone()
    wrong[7, 33], wrong[30, 100] = (q[7, 33] + 5) % 16, (q[30, 100] + 9) % 16
    _, lines, _, _ = wrong_at(tmp_path, awq_stored(wrong, z, step), x, "awq")
    for at in ((7, 33), (30, 100), (12, 5)):
        assert lines.codes_at(*at) == (int(wrong[at]), int(q[at]))


def test_two_bits_of_a_code(tmp_path):
    """More than one bit is not called a flip; the lowest bit of a scale is."""
    x = weight()
    q, _, step = grid_of(x)
    assert int(q[7, 33]) not in (-8, 7)
    wrong = q.clone()
    changed = (int(q[7, 33]) & 15) ^ 6
    wrong[7, 33] = changed - 16 if changed > 7 else changed
    s, *_ = wrong_at(tmp_path, ct_stored(wrong, step), x)
    (finding,) = places.of_codes_and_runs(s.measure)
    assert "bit" not in finding.facts
    assert "flipped" not in finding.sentence
    for bit, words in ((0, "(bit 0 of the stored number is flipped)"), (-1, "columns 0 to 31:")):
        place = places.WrongRun(3, 0, 32, "scale", 1.5, bit, 0.5, 0.1)
        assert words in places._of_places(s.layout, [place]).sentence


def test_runs_that_nothing_explains(tmp_path):
    """Zeroed, or no longer like the original; what hardly matters is left."""
    x = weight()
    q, y, step = grid_of(x)
    zero = q.clone()
    zero[9, 32:64], zero[30, 96:] = 0, 0
    s, *_ = wrong_at(tmp_path / "zero", ct_stored(zero, step), x)
    (finding,) = [f for f in places.of_codes_and_runs(s.measure) if f.kind == "zeroed"]
    assert finding.facts == {"runs": 2, "row": 9, "first": 32, "last": 63}
    noise = q.clone()
    generator = torch.Generator().manual_seed(4)
    noise[12, 32:64] = torch.randint(-8, 8, (32,), generator=generator).float()
    _, _, _, left = wrong_at(tmp_path / "noise", ct_stored(noise, step), x)
    assert [(p.row, p.column, p.what) for p, _ in left] == [(12, 32, "")]
    assert left[0][0].before == pytest.approx(run_errors(x, noise * step, y, 12, slice(32, 64))[0], rel=1e-4)


LEAKS = {"Q4_K": 32, "Q5_K": 32, "Q4_0": 16, "Q4_1": 16, "Q5_0": 16, "Q5_1": 16, "Q8_0": 0, "Q6_K": 0}


@for_each("kind", LEAKS)
def test_where_bits_leak_to(kind, tmp_path):
    """The columns that share their bytes with those before them, by the blocks of ggml-common.h."""
    model = {n: w for n, w in releases.model().items() if "mlp.down_proj" in n}
    release = open_checkpoint(releases.save_gguf(tmp_path / "m.gguf", model, kind))
    layout = next(t.layout for t in release.tensors.values() if t.is_quantized)
    rows, size = layout.shape[0], LEAKS[kind] or 16
    parity = np.arange(layout.shape[1]) // size % 2
    for odd, even, worse in (
        (5.0, 1.0, "odd"),
        (1.0, 5.0, "even"),
        (2.25, 1.0, "odd"),
        (1.875, 1.0, ""),
        (1.0, 1.0, ""),
        (0.0, 0.0, ""),
    ):
        found = leak_of(layout, np.where(parity == 1, odd, even) * rows)
        assert (found is not None) is bool(worse and LEAKS[kind])
        if found is not None:
            assert (found.facts["worse"], found.facts["large"], found.facts["small"]) == (
                worse,
                max(odd, even),
                min(odd, even),
            )
            assert found.facts["what"] == ("sub-blocks" if size == 32 else "halves of blocks")
    single = np.ones(layout.shape[1]) * rows
    single[parity.argmax()] = 1e6  # a single column does not decide
    assert leak_of(layout, single) is None


def test_where_nibbles_leak_to(tmp_path):
    """Columns of codes in bytes; not of eight bits, of rows, or in few elements."""
    for name, has in (("ct_int4", True), ("ct_int8", False), ("awq", False), ("gptq", True)):
        s = suspect(tmp_path / name, WRITERS[name][0](M, weight()), weight(), name)
        found = leak_of(s.layout, np.tile([1.0, 5.0], COLUMNS // 2) * ROWS)
        assert (found is not None) is has, name
        if found is not None:
            assert (
                found.facts["what"],
                found.facts["worse"],
                found.facts["large"],
                found.facts["small"],
            ) == ("columns", "odd", 5.0, 1.0)
    for rows, has in ((8, True), (7, False)):  # 512 elements of each parity
        x = weight(rows)
        s = suspect(tmp_path / f"{rows}", releases.ct_int4(M, x), x)
        assert (leak_of(s.layout, np.tile([1.0, 5.0], COLUMNS // 2) * rows) is not None) is has


def test_places_of_one_cause(tmp_path):
    """Runs with the same wrong factor are one finding: how many, in how many rows, the first and its errors."""
    x = weight()
    q, y, step = grid_of(x)
    wrong = step.clone()
    for row, start in ((20, 64), (20, 0), (31, 96)):
        wrong[row, start : start + 32] *= 3.0
    s = suspect(tmp_path / "three", ct_stored(q, wrong), x)
    (finding,) = places.of_codes_and_runs(s.measure)
    before, after = run_errors(x, q * wrong, y, 20, slice(0, 32))
    assert finding.kind == "scale_wrong"
    assert finding.facts == {
        "factor": pytest.approx(3.0, rel=0.03), "row": 20, "first": 0, "last": 31, "rows": 2, "runs": 3, "bit": -1,
        "before": pytest.approx(before, rel=1e-4), "after": pytest.approx(after, rel=0.05),
    }  # fmt: skip
    assert "3 blocks in 2 rows" in finding.sentence
    wrong = step.clone()
    wrong[20, :64] *= 3.0
    s = suspect(tmp_path / "row", ct_stored(q, wrong), x)
    (finding,) = places.of_codes_and_runs(s.measure)
    assert (finding.facts["runs"], finding.facts["rows"]) == (2, 1)
    assert "2 blocks of row 20" in finding.sentence
    wrong[20, 32:64] /= 2
    s = suspect(tmp_path / "two causes", ct_stored(q, wrong), x)
    assert [f.facts["factor"] for f in places.of_codes_and_runs(s.measure)] == pytest.approx(
        [3.0, 1.5], rel=0.03
    )
    q, z, step = awq_of(x)
    off = z.clone()
    off[20, 64:96] += 2
    s = suspect(tmp_path / "zero", awq_stored(q, off, step), x, "awq")
    (finding,) = places.of_codes_and_runs(s.measure)
    assert (finding.kind, finding.facts["steps"], finding.facts["first"], finding.facts["last"]) == (
        "zero_point_wrong",
        2,
        64,
        95,
    )
    assert "row 20, columns 64 to 95" in finding.sentence


# Runs


def lines_of(folder, stored, x, name="ct_int4"):
    s = suspect(folder, stored, x, name)
    return s, places.Lines(s.measure)


def scaled_run(run, by):
    """The run as it would be with another scale."""
    return replace(run, scale=run.scale * by, y=run.y * by, gap=run.gap * abs(by))


@for_each(
    ("by", "said"),
    [(1.5, None), (2.0, 2.0), (0.25, 0.25), (2.2, 2.0), (2.6, None), (-2.0, -2.0), (1.1, 1.0), (1.01, "")],
)
def test_what_a_run_could_be(by, said, tmp_path):
    """Its scale by the power of two that is near, and as it is measured; nothing within 2 %."""
    x = weight()
    q, y, step = grid_of(x)
    _, lines = lines_of(tmp_path, ct_stored(q, step), x)
    run = lines.run(20, 64)
    assert torch.equal(run.y, y[20, 64:96])
    assert torch.equal(run.gap, step[20, 64:96])
    assert torch.allclose(run.shift, torch.zeros(32), atol=1e-7)
    wrong = scaled_run(run, by)
    found = [c for c in places._changes(wrong) if c[4] < 0]
    large = run.value.abs() >= run.value.abs().mean()
    ratio = (x[20, 64:96][large].double() / wrong.y[large].double()).sort().values
    middle = float(ratio[(len(ratio) - 1) // 2])
    scales = [c for c in found if c[0] == "scale"]
    if said == "":
        assert scales == []
        return
    assert [c[1] for c in scales] == pytest.approx(([said] if said else []) + [1 / middle], rel=1e-5)
    for _, factor, values, gap, _ in scales:
        assert torch.allclose(values, wrong.y / factor, rtol=1e-4)
        assert torch.allclose(gap, wrong.gap / abs(factor), rtol=1e-4)


def test_a_run_that_rounding_explains(tmp_path):
    """Every error within half a step, of those that are not at the ends, and at least three that were not."""
    x = weight()
    q, _, step = grid_of(x)
    _, lines = lines_of(tmp_path, ct_stored(q, step), x)
    run = lines.run(20, 64)
    exact, of_scale = Nearest(2.0**-20, 0.1, (), 0, False), Nearest(2.0**-7.5, 0.1, (), 0, False)
    for nearest in (exact, of_scale):
        assert places._rounded(scaled_run(run, 1.5), run.y, run.gap, nearest)
        assert not places._rounded(run, run.y, run.gap, nearest)  # nothing was wrong
        assert not places._rounded(scaled_run(run, 1.5), run.y * 1.2, run.gap, nearest)
    inner = ((run.value.abs() < 6) & ((run.x - run.y).abs() < 0.3 * run.gap)).nonzero().reshape(-1)
    for count, enough in ((2, False), (3, True)):
        off = run.y.clone()
        off[inner[:count]] += run.gap[inner[:count]]
        assert places._rounded(replace(run, y=off), run.y, run.gap, exact) is enough
    off = run.y.clone()
    off[inner[:5]] += run.gap[inner[:5]]
    left = run.y.clone()
    left[inner[0]] += run.gap[inner[0]]
    assert not places._rounded(replace(run, y=off), left, run.gap, exact)
    ends = run.value == run.value.max()  # clipping may leave more there
    clipped = torch.where(ends, run.y - run.gap, run.y)
    assert places._rounded(replace(run, y=off), clipped, run.gap, exact)
    # a tolerance in proportion to the code, for scales that were rounded: 7 · 2^-7.5 of a step, not 2^-20
    near = run.y + 0.49 * run.gap * (run.x - run.y).sign()
    almost = replace(run, x=near + 0.02 * run.gap * (near - run.y).sign(), y=run.y + 2 * run.gap)
    assert [places._rounded(almost, run.y, run.gap, n) for n in (exact, of_scale)] == [False, True]


@for_each(
    ("factor", "is_power"),
    [(1.0, True), (0.5, True), (-4.0, True), (3.0, False), (0.75, False), (1.001, False)],
)
def test_powers_of_two(factor, is_power):
    assert places._is_power(factor) is is_power


def test_the_middle_of_numbers():
    assert places._median(torch.tensor([3.0, 1.0, math.nan, 2.0, math.inf])) == 2
    assert places._median(torch.tensor([math.nan])) == 0


def test_runs_with_a_min(tmp_path):
    """Q4_1: a scale or a min that is wrong, and neither the other."""
    given, name = case("gguf_legacy"), "blk.0.attn_output.weight"
    tensor = open_checkpoint(given.release).tensors[name]
    codes, scale, least = (
        given.expected[f"{name}|{role}"].astype(np.float64) for role in ("codes", "scale", "min")
    )
    scale, least = (np.repeat(t, 32, 1) for t in (scale, least))
    noise = np.random.default_rng(5).uniform(-0.5, 0.5, codes.shape) * np.abs(scale)
    for what, by in (("scale", 1.5), ("min", 1.5), ("scale", 0.6), ("min", 0.5), ("", 1.0)):
        f, g = np.ones_like(scale), np.ones_like(scale)
        (f if what == "scale" else g)[7, 64:96] = by
        x = torch.from_numpy(codes * scale * f + least * g + noise).float()
        source = open_checkpoint(save(tmp_path / f"{what}{by}", {W: x}))
        original, rows = Ordered(source.tensors[W], tensor.shape), slice(0, tensor.shape[0])
        measure = Measure(tensor.layout, original)
        measure.add(Box(tensor.layout, rows, original))
        lines = places.Lines(measure.done())
        run = lines.run(7, 64)
        assert torch.allclose(run.shift, torch.from_numpy(least[7, 64:96]).float(), rtol=1e-4)
        explained, _ = places.wrong_runs(lines)
        assert [(p.row, p.column, p.what) for p in explained if (p.row, p.column) == (7, 64)] == [
            (7, 64, what)
        ] * bool(what)
        if what:
            (place,) = [p for p in explained if (p.row, p.column) == (7, 64)]
            assert place.factor == pytest.approx(1 / by, rel=0.1)
            assert place.bit == -1
            changes = {c[0] for c in places._changes(run)}
            assert what in changes
            assert "zero point" not in changes
            for kind, factor, values, gap, bit in places._changes(run):
                wanted = run.scale * run.value / (factor if kind == "scale" else 1) + run.shift / (
                    factor if kind == "min" else 1
                )
                assert torch.allclose(values, wanted, rtol=1e-4, atol=1e-5)
                assert torch.allclose(gap, run.gap / abs(factor if kind == "scale" else 1), rtol=1e-4), bit
    # a min that differs by less than 2 % is none that is wrong
    for by, found in ((1.01, False), (0.99, False), (1.03, True), (0.97, True)):
        near = replace(run, x=run.scale * run.value + by * run.shift)
        assert ("min" in {c[0] for c in places._changes(near)}) is found


def test_runs_that_are_too_short_or_have_no_scale(tmp_path):
    x = weight()
    q, _, step = grid_of(x)
    _, lines = lines_of(tmp_path, ct_stored(q, step), x)
    wrong = scaled_run(lines.run(20, 64), 2.0)
    assert places._place_of(wrong, 1.0, None).what == "scale"
    for n, what in ((6, "scale"), (5, "")):
        short = replace(
            wrong, **{k: getattr(wrong, k)[:n] for k in ("columns", "x", "y", "scale", "value", "gap")}
        )
        assert places._place_of(short, 1.0, None).what == what
    dead = replace(wrong, scale=torch.where(torch.arange(32) == 3, 0.0, wrong.scale))
    place = places._place_of(dead, 1.0, None)
    assert (place.what, place.factor, place.bit, place.after) == ("", 1.0, -1, math.inf)
    assert (place.row, place.column, place.stop) == (20, 64, 96)


@for_each(
    ("bulk", "mean", "looked_at"),
    [
        (1.0, 5.9, False),
        (1.0, 6.1, True),
        (4.0, 23.9, False),
        (4.0, 24.1, True),
        (0.02, 0.59, False),
        (0.02, 0.61, True),
    ],
)
def test_which_runs_are_looked_at(bulk, mean, looked_at, tmp_path):
    """Those whose squared error is six times that of the weight, or six tenths of that of rounding, at least."""
    x = weight()
    s, lines = lines_of(tmp_path, releases.ct_int4(M, x), x)
    s.measure.bulk, s.measure.edge, s.measure.runs = bulk, 0, [(mean, 20, 64), (0.1, 3, 0)]
    explained, left = places.wrong_runs(lines)
    assert not explained
    assert [(p.row, p.column) for p, _ in left] == ([(20, 64)] if looked_at else [])


def test_which_flips_are_possible(tmp_path):
    """The factor of each bit of a stored scale that, flipped, leaves a number; in E4M3 some bits leave NaN or 0."""
    x = weight()
    stored = releases.nvfp4(M, x)
    for code in (0x01, 0x08, 0x38, 0x77, 0x7E, 0x5F):
        scale = stored[f"{M}.weight_scale"].clone().view(torch.uint8)
        scale[20, 4] = code
        _, lines = lines_of(
            tmp_path / f"{code}", stored | {f"{M}.weight_scale": scale.view(torch.float8_e4m3fn)}, x, "nvfp4"
        )
        numbers = (
            torch.tensor([code] + [code ^ 1 << bit for bit in range(8)], dtype=torch.uint8)
            .view(torch.float8_e4m3fn)
            .double()
        )
        factors = {bit: float(n / numbers[0]) for bit, n in enumerate(numbers[1:]) if n and n.isfinite()}
        assert {bit: factor for factor, bit in places._flips(lines.run(20, 64))} == factors
        assert len(factors) < 8 or code in (0x38, 0x5F, 0x08)


def away(run, errors):
    """The run with the original off by so many steps."""
    return replace(run, x=run.y + torch.tensor(errors) * run.gap)


@for_each("name", some(["mxfp4", "awq", "ct_int4"], 2))
def test_how_far_rounding_may_be_off(name, tmp_path):
    """Half a step, and the tolerance times the code, its zero point and 1, in steps; and a thousandth of a step."""
    x = weight() + 0.01
    _, lines = lines_of(tmp_path, WRITERS[name][0](M, x), x, name)
    run = lines.run(20, 64)
    zero = ((run.y / run.scale) - run.value).double().numpy()
    step = (run.gap / run.scale).double().numpy()
    inner = [i for i in range(32) if run.value.min() < run.value[i] < run.value.max()]
    assert len({float(step[i]) for i in inner}) == (1 if name != "mxfp4" else 2)
    for tolerance in (0.0, 0.02):
        room = tolerance * (np.abs(run.value.numpy()) + np.abs(zero) + 1) / step
        for i in inner:
            for off, is_rounded in ((0.4985, True), (0.5005, True), (0.5025, False)):
                errors = [0.0] * 32
                errors[i] = off + float(room[i])
                given = away(run, errors)
                assert (
                    places._rounded(
                        scaled_run(given, 5.0), run.y, run.gap, Nearest(tolerance, 0.1, (), 0, False)
                    )
                    is is_rounded
                ), (i, off)
    for margin, off, found in (
        (0.3, 0.79, False),
        (0.3, 0.81, True),
        (0.0, 0.499, False),
        (0.0, 0.501, True),
    ):
        before = away(run, [off] * 3 + [0.0] * 29)  # what must have been wrong: three beyond by the margin
        assert places._rounded(before, before.x, run.gap, Nearest(0.0, margin, (), 0, False)) is found


@for_each(
    ("off", "bulk", "what"),
    [
        (0.95, 1.0, ""),
        (0.95, 2.8, ""),
        (0.95, 3.7, "scale"),
        (0.45, 0.1, "scale"),
        (0.55, 0.1, ""),
        (0.55, 1.3, "scale"),
    ],
)
def test_what_is_left_after_a_change(off, bulk, what, tmp_path):
    """At most three times the squared error of the weight, or of rounding: 12 off² of steps."""
    x = weight()
    q, _, step = grid_of(x)
    _, lines = lines_of(tmp_path, ct_stored(q, step), x)
    run = lines.run(20, 64)
    signs = torch.tensor([1.0, -1.0] * 16)
    run = replace(run, x=run.y + off * signs * run.gap)
    wrong = scaled_run(run, 16.0)
    place = places._place_of(wrong, bulk, None)
    assert (12 * off**2 < 3 * max(1.0, bulk)) is bool(what)
    assert place.what == what


def test_runs_of_one_magnitude(tmp_path):
    """Where all values are as large, each tells the factor."""
    x = weight()
    _, lines = lines_of(tmp_path, releases.ct_int4(M, x), x)
    run = lines.run(20, 64)
    signs = torch.tensor([1.0, -1.0] * 16)
    y = 7 * signs * run.scale
    one = replace(run, value=7 * signs, y=y, x=y)
    place = places._place_of(scaled_run(one, 3.0), 1.0, None)
    assert (place.what, place.factor, place.after) == (
        "scale",
        pytest.approx(3.0),
        pytest.approx(0.0, abs=1e-6),
    )


def test_what_is_no_change(tmp_path):
    """A sound run has no wrong zero point, and none is off by 65,536 steps or more."""
    x = weight() + 0.01
    q, z, step = awq_of(x)
    _, lines = lines_of(tmp_path, awq_stored(q, z, step), x, "awq")
    run = lines.run(20, 64)
    for by, found in (
        (0, []),
        (1, [1.0]),
        (-3, [-3.0]),
        (65_535, [65_535.0]),
        (65_536, []),
        (-65_535, [-65_535.0]),
        (-65_536, []),
        (1e30, []),
    ):
        moved = replace(run, x=run.y + by * run.scale)
        assert [c[1] for c in places._changes(moved) if c[0] == "zero point"] == found


# Plain weights


def of_values(folder, y, x, alone=True, scaled=None, **more):
    s = suspect(folder, {W: y}, x, "", **more)
    return changes.of_plain(s, None, alone, scaled or {})


def test_what_converters_do_on_purpose(tmp_path):
    """1 added to or taken from norms; the negative exponential of GGUF's A_log."""
    x = 0.1 * weight()[0]
    for by, sign in ((1, "plus"), (-1, "minus")):
        finding = of_values(tmp_path / sign, x + by, x)
        assert (finding.kind, finding.severity, finding.facts["sign"]) == ("plus_one", "note", sign)
        before = float(1 / (x.double() ** 2).mean().sqrt())
        assert finding.facts["before"] == pytest.approx(before, rel=1e-5)
        assert finding.facts["after"] < 1e-4
    finding = of_values(tmp_path / "2", x + 2, x)
    assert finding.kind != "plus_one"
    finding = of_values(tmp_path / "matrix", weight() + 1, weight())
    assert finding.kind != "plus_one"
    finding = of_values(tmp_path / "half", (x + 1).bfloat16(), x)
    assert finding.kind == "plus_one"
    finding = of_values(tmp_path / "off", (x + 1).bfloat16() + (torch.arange(COLUMNS) == 5), x)
    assert finding.kind != "plus_one"
    # of bfloat16, two units in the last place of 1 + |x|
    ones = torch.full((64,), 0.25)
    for units, kind in ((1.9, "plus_one"), (2.1, "plain_differs")):
        off = 1 + ones + (torch.arange(64) == 3) * (units * 2.0**-7 * 1.25)
        s = suspect(tmp_path / f"units {units}", {W: off.bfloat16()}, ones, "")
        s.__dict__["y"] = off[None]
        finding = changes.of_plain(s, None, True, {})
        assert finding.kind == kind or (kind != "plus_one" and finding.kind == "not_the_original")
    for by, kind in ((1 + 0.9e-3, "negative_exponential"), (1 + 1.1e-3, "not_the_original")):
        finding = of_values(tmp_path / f"exp {by}", -x.exp() * by, x, gguf_differs=True)
        assert finding.kind == kind
    for differs, kind in ((True, "negative_exponential"), (False, "not_the_original")):
        finding = of_values(tmp_path / f"exp {differs}", -x.exp(), x, gguf_differs=differs)
        assert finding.kind == kind


def test_values_that_differ(tmp_path):
    """How many by more than rounding, the largest, where; an error alone or beyond 5 %, a note if all others differ too."""
    x = weight()
    y = x.clone()
    y[3, 9] += 0.01
    y[40, 2] -= 0.5 * float((x**2).sum().sqrt()) * 0.04
    largest = float((y - x).abs().max())
    at = (40, 2) if abs(float(y[40, 2] - x[40, 2])) == largest else (3, 9)
    relative = float(((x - y).double() ** 2).sum().sqrt() / (x.double() ** 2).sum().sqrt())
    assert relative < 0.05
    facts = {
        "values": 2,
        "of": x.numel(),
        "largest": pytest.approx(largest),
        "first": at,
        "relative": pytest.approx(relative, rel=1e-5),
    }
    for alone, severity in ((True, "error"), (False, "note")):
        finding = of_values(tmp_path / severity, y, x, alone)
        assert (finding.kind, finding.severity, finding.facts) == ("plain_differs", severity, facts)
    finding = of_values(tmp_path / "far", 1.06 * x, x, False)
    assert finding.severity == "error"
    finding = of_values(tmp_path / "near", 1.04 * x, x, False)
    assert finding.severity == "note"
    finding = of_values(tmp_path / "vector", x[0] + (torch.arange(COLUMNS) == 9) * 0.001, x[0])
    assert finding.facts["first"] == (9,)
    finding = of_values(tmp_path / "another", -1.5 * x, x)
    assert (finding.kind, finding.facts["relative"]) == ("not_the_original", pytest.approx(2.5))


def test_factors_that_cancel(tmp_path):
    """Products are constant, but for the noise of estimates; of Gemma's norms, those of 1 + weight."""
    generator = torch.Generator().manual_seed(6)
    by = torch.exp(0.5 * torch.randn(COLUMNS, generator=generator))
    noise = torch.exp(0.02 * torch.randn(COLUMNS, generator=generator))
    assert changes.undone(1 / by, by)
    assert changes.undone(3 / by * noise, by)
    assert not changes.undone(by, by)
    assert not changes.undone(torch.ones(COLUMNS), by)
    assert not changes.undone(1 / by[:5], by)
    assert not changes.undone(-1 / by, by)
    assert not changes.undone(1 / by, torch.exp(0.5 * torch.randn(COLUMNS, generator=generator)))
    x = 1 + 0.1 * torch.randn(COLUMNS, generator=generator)
    layer = W.replace("q_proj", "k_proj")
    for number, (y, old, scaled, kind) in enumerate((
        (x / by, x, {layer: by}, "norm_scaled"), ((x / by) - 1, x - 1, {layer: by}, "norm_scaled"),
        (x / by, x, {layer.replace(".1.", ".2."): by}, "plain_differs"), (x * by, x, {layer: by}, "plain_differs"),
        (x[:64] / by[:64], x[:64], {layer: by}, "plain_differs"), (x / by * (torch.arange(COLUMNS) != 3), x, {layer: by}, "plain_differs"),
    )):  # fmt: skip
        finding = of_values(tmp_path / f"{number}", y, old, scaled=scaled)
        assert finding.kind in ({kind, "not_the_original"} if kind != "norm_scaled" else {kind}), number
        if kind == "norm_scaled":
            assert finding.facts["other"] == layer


def test_every_weight_is_judged(tmp_path):
    """One after the other, those that are quantized first."""
    _, s = of_layers(tmp_path, lambda stored: None)
    measures = {s.measure.name: s.measure}
    for name in s.peers:
        t, o = s.release.tensors[name], s.source.tensors[name]
        m = Measure(t.layout, Ordered(o, t.shape))
        rows = slice(0, ROWS)
        m.add(Box(t.layout, rows, m.source))
        measures[name] = m.done()
    found = list(judge(measures, s.release, s.source, Heads()))
    assert found == [()] * 5


# Global scales


def test_constants_of_global_scales():
    """max |w| / constant, or its inverse; of weights that may share one, the peak that is nearest."""
    one = global_scales._One(0.5, False, (1000.0, 1344.0))
    assert one.constants() == [2000.0, 2688.0]
    assert one.away(2688.0) == (0.0, 0.5)
    inverse = global_scales._One(2.0, True, (1000.0, 1344.0))
    assert inverse.constants() == [2000.0, 2688.0]
    assert inverse.away(2688.0) == (0.0, 2.0)
    away, nearest = global_scales._One(0.55, False, (1344.0,)).away(2688.0)
    assert (away, nearest) == (pytest.approx(0.1), 0.5)
    constant = global_scales.GlobalScales._constant
    ones = {
        f"{i}": global_scales._One(p / 448.0, False, (p,)) for i, p in enumerate((1.0, 2.0, 3.0, 5.0, 7.0))
    }
    assert constant(ones) == 448.0
    ones["shared"] = global_scales._One(9.0 / 448.0, False, (4.0, 9.0))
    assert constant(ones) == 448.0
    assert constant(
        {n: global_scales._One(p / 447.3, False, (p,)) for n, p in (("a", 1.0), ("b", 2.0))}
    ) == pytest.approx(447.3)


def test_which_weights_have_one_scale(tmp_path):
    x = weight()
    for name, has in (
        ("nvfp4", True),
        ("mxfp4", False),
        ("ct_int8", False),
        ("fp8", False),
        ("ct_int4", False),
    ):
        s = suspect(tmp_path / name, WRITERS[name][0](M, x), x, name)
        assert global_scales.has_one(s.layout) is has, name
    given = case("ct_fp8_tensor")
    layouts = [t.layout for t in open_checkpoint(given.release).tensors.values() if t.is_quantized]
    assert all(global_scales.has_one(layout) for layout in layouts)


@for_each(
    ("relative", "bulk", "is_far", "kind"),
    [(1.1, 9.0, False, "not_the_original"), (1.1, 1.9, False, ""), (1.1, 2.0, False, ""), (1.0, 9.0, False, "far_from_original"), (0.75, 9.0, False, ""), (1.1, math.nan, False, "not_the_original"), (0.9, 9.0, False, "far_from_original"),
     (0.9, 7.0, False, ""), (0.9, 8.0, False, ""), (0.9, 8.1, False, "far_from_original"), (0.7, 9.0, False, ""), (0.9, math.nan, False, "far_from_original"), (0.3, 9.0, True, "far_from_siblings")],
)  # fmt: skip
def test_errors_that_nothing_explains(relative, bulk, is_far, kind, tmp_path):
    """By the relative error and that of a typical row over rounding's; beside siblings, theirs is said."""
    _, s = of_layers(tmp_path, lambda stored: None)
    m = s.measure
    m.sums, m.bulk = Sums(xx=1.0, ee=relative**2), bulk
    others = [replace(m, sums=Sums(xx=1.0, ee=e**2)) for e in (0.1, 0.2, 0.15, 0.12)]
    found = _Judgement({m.name: m}, s.release, s.source, Heads())._unexplained(m, others, is_far)
    assert [f.kind for f in found] == ([kind] if kind else [])
    if is_far:
        levels = {"sqnr": -20 * math.log10(relative), "low": -20 * math.log10(0.2), "high": 20.0}
        assert found[0].facts == {"siblings": 4} | {k: pytest.approx(v) for k, v in levels.items()}
    elif found:
        assert found[0].facts == {"original": repr(W), "relative": pytest.approx(relative)}
