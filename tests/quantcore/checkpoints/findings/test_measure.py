"""What one walk over a weight and its original gathers, computed again in numpy from the codes and scales that were written."""

import math

import numpy as np
import pytest
import releases
import torch
from checkpoint_cases import case
from grid import for_each
from suspects import COLUMNS, GROUP, ROWS, M, W, ct_stored, grid_of, suspect, weight

from quantcore.analysis import Sums
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings.against import measure as module
from quantcore.checkpoints.findings.against.grid import CodeGrid
from quantcore.checkpoints.findings.against.judge import decibels_of, far
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.walk import Box, Ordered

RUNS = COLUMNS // GROUP


def measured(folder, stored, x, name="ct_int4"):
    return suspect(folder, stored, x, name).measure


def damaged():
    """A weight whose codes are rounded to nearest, but for three places; one of them is a whole run."""
    x = weight()
    q, _, step = grid_of(x)
    q[3, 40] = 7 if q[3, 40] <= 0 else -7
    q[11, 0:GROUP] = 0
    q[20, 100] += 1 if q[20, 100] < 6 else -1
    return x, q, step


def test_what_is_counted(tmp_path, monkeypatch):
    """Also where rows come in parts."""
    x, q, step = damaged()
    y = (q * step).double()
    error = (x.double() - y).abs()
    units = error / step
    # the code -8 and 7 have no neighbor beyond: errors there may be clipping
    outward = torch.where(x.double() > y, q == 7, q == -8)
    inner = ~outward
    for limit in (1 << 21, 8 * 5 * COLUMNS, 8):
        monkeypatch.setattr(module, "ELEMENTS", limit)
        m = measured(tmp_path / f"{limit}", ct_stored(q, step), x)
        assert m.sums.ee == pytest.approx(float((error**2).sum()), rel=1e-6)
        assert m.sums.xx == pytest.approx(float((x.double() ** 2).sum()), rel=1e-9)
        assert m.relative == pytest.approx(math.sqrt(m.sums.ee / m.sums.xx))
        assert m.sqnr == pytest.approx(-20 * math.log10(m.relative))
        assert m.inner == int(inner.sum())
        assert m.edge == pytest.approx(int(((units > 0.4) & (units <= 0.5))[inner].sum()), abs=1)
        assert m.peak == float(x.abs().max())
        beyond = ((units > 0.51) & inner).nonzero().tolist()
        known = m.roundings.found(10**6)  # of so many elements that these are few
        assert known.margin == 8 / ROWS
        found = {(p.row, p.column): p for p in known.places}
        assert found.keys() == {(r, c) for r, c in map(tuple, beyond) if units[r, c] > 0.5 + known.margin}
        for place, p in found.items():
            assert (p.steps, p.excess) == (
                pytest.approx(float(units[place]), rel=1e-4),
                pytest.approx(float(units[place]) - 0.5, rel=1e-3),
            )
        means = (
            torch.where(inner, units**2, 0.0).reshape(ROWS, RUNS, GROUP).sum(-1)
            / inner.reshape(ROWS, RUNS, GROUP).sum(-1).clamp(min=1)
        ) * 12
        assert m.runs[0] == (pytest.approx(float(means[11, 0]), rel=1e-5), 11, 0)
        assert [r[0] for r in m.runs] == pytest.approx(
            means.reshape(-1).sort(descending=True).values[: module.RUNS].tolist(), rel=1e-4
        )
        for mean, row, column in m.runs:
            assert mean == pytest.approx(float(means[row, column // GROUP]), rel=1e-4)
        by_row = torch.where(inner, units**2, 0.0).sum(1) / inner.sum(1)
        assert m.bulk == pytest.approx(12 * np.median(by_row.numpy()), rel=1e-5)


def test_the_places_that_are_farthest_off_are_kept(tmp_path, monkeypatch):
    """However many rows come at once."""
    x = weight()
    q, _, step = grid_of(x)
    planted = [(r, c) for r in range(20) for c in (3, 40, 70, 99, 120) if abs(int(q[r, c])) < 6]
    for r, c in planted:
        q[r, c] += 1 if float(x[r, c] - q[r, c] * step[r, c]) < 0 else -1  # beyond half a step
    assert len(planted) > 64
    units = (x.double() - q * step).abs() / step
    largest = sorted((float(units[p]) for p in planted), reverse=True)[:64]
    for limit in (1 << 21, 8 * 7 * COLUMNS, 8):
        monkeypatch.setattr(module, "ELEMENTS", limit)
        m = measured(tmp_path / f"{limit}", ct_stored(q, step), x)
        assert [p.steps for p in m.roundings._exact.places] == pytest.approx(largest, rel=1e-4)
        assert m.roundings._exact.count == len(planted)


def test_rows_and_columns_that_are_strange(tmp_path):
    x, q, step = damaged()
    q = q.clone()
    q[5], q[:, 7], q[:, 9] = -q[5], -q[:, 7], 7
    m = measured(tmp_path, ct_stored(q, step), x)
    error, power = ((t.double() ** 2) for t in (x - q * step, x))
    rows = (error.sum(1) > 1.2 * power.sum(1)) & (error.sum(1) > 0.05 * power.sum(1).mean())
    columns = (error.sum(0) > 1.2 * power.sum(0)) & (error.sum(0) > 0.05 * power.sum(0).mean())
    assert (m.strange_rows, m.strange_columns) == (int(rows.sum()), int(columns.sum()))
    assert m.strange_rows >= 1
    assert m.strange_columns == 2
    small = x.clone()
    small[6], small[:, 12] = 1e-5, 1e-5  # wrong, but so small that it does not matter
    m = measured(tmp_path / "small", {W: torch.where(small == 1e-5, -1e-5, small)}, small, "")
    assert (m.strange_rows, m.strange_columns, m.unequal) == (0, 0, ROWS + COLUMNS - 1)


@for_each("name", ["ct_int4", "ct_int8", "awq", "mxfp4", "nf4", "nvfp4", "fp8"])
def test_errors_in_steps_of_their_own_codes(name, tmp_path):
    """The step is the distance to the next level on the side of the original; beyond the last level, it is clipped."""
    x = weight()
    stored = releases.WRITERS[name][0](M, x)
    s = suspect(tmp_path, stored, x, name)
    values, scale, shift = (t.double().numpy() for t in (s.values, s.scales, s.shift))
    generator = np.random.default_rng(7)
    levels = np.unique(s.grid.table[s.grid.table.isfinite()].double().numpy())
    at = np.searchsorted(levels, values)
    side = generator.choice([-1, 1], x.shape)
    near = generator.random(x.shape)
    outside = (at + side < 0) | (at + side >= len(levels))
    gap = np.abs(levels[np.clip(at + side, 0, len(levels) - 1)] - levels[at])
    off = torch.from_numpy(shift + scale * (values + side * near * np.where(outside, 1.0, gap)))
    given = suspect(tmp_path / "off", stored, off.float(), name).measure
    inner = ~outside & (scale > 0)
    size = given.run
    assert given.inner == int(inner.sum())
    assert given.edge == pytest.approx(int(((near > 0.4) & (near <= 0.5) & inner).sum()), abs=2)
    square, count = (t.reshape(ROWS, -1, size).sum(-1) for t in (np.where(inner, near**2, 0.0), inner))
    assert given.runs[0][0] == pytest.approx(12 * float((square / np.maximum(count, 1)).max()), rel=1e-3)


def test_a_run_with_one_element_that_is_not_clipped(tmp_path):
    """Its error alone is the mean of its run, and of its row."""
    x = weight()
    q, _, step = grid_of(x)
    q[20], q[20, 70] = 7, 2
    off = x.clone()
    off[20] = 9 * step[20]
    off[20, 70] = 2.375 * step[20, 70]
    m = measured(tmp_path, ct_stored(q, step), off)
    assert {(r, c): mean for mean, r, c in m.runs}[20, 64] == pytest.approx(12 * 0.375**2, rel=1e-4)
    m.rows = [np.array([[1.0, 0.0, 6.0, 9.0], [1, 0, 3, 3]]), np.array([[0.5], [1]])]
    assert m.done().bulk == pytest.approx(12 * 1.5)


@for_each(("share", "known"), [(0.049, False), (0.051, True)])
def test_errors_near_half_a_step(share, known, tmp_path):
    """One of twenty at least: else codes do not show that they were rounded."""
    m = measured(tmp_path, releases.ct_int4(M, weight()), weight())
    m.edge = share * m.inner
    assert (m.nearest is not None) is known


def test_sizes_in_steps(tmp_path):
    """Where a min is added, what rounding the scale changes is the code, and the min in steps beside it."""
    given, name = case("gguf_legacy"), "blk.0.attn_output.weight"
    tensor = open_checkpoint(given.release).tensors[name]
    codes, scale, least = (
        given.expected[f"{name}|{role}"].astype(np.float64) for role in ("codes", "scale", "min")
    )
    scale, least = (np.repeat(t, 32, 1) for t in (scale, least))
    size = np.abs(codes) + np.abs(least / np.where(scale, scale, np.inf))
    x = torch.from_numpy(scale * (codes + 0.46) + least).float()
    source = open_checkpoint(releases.save(tmp_path, {W: x}))
    rows = slice(0, tensor.shape[0])
    m = module.Measure(tensor.layout, Ordered(source.tensors[W], tensor.shape))
    seen = []
    m.roundings.add = lambda elements, rows, columns: seen.append((elements, rows, columns))
    m.roundings._in_dtype, m.roundings._dtype = [lambda e: e.excess], torch.bfloat16  # whose bounds are wide
    m.add(Box(tensor.layout, rows, m.source))
    ((elements, at, columns),) = seen
    near = (2 * 2.0**-8 * (size + np.abs(codes) + 1) > 0.04) & (codes < codes.max()) & (scale != 0)
    assert sorted(zip(at.tolist(), columns.tolist(), strict=True)) == list(
        map(tuple, np.argwhere(near).tolist())
    )
    assert elements.size.tolist() == pytest.approx(size[at, columns].tolist(), rel=1e-4)
    assert elements.excess.tolist() == pytest.approx([-0.04] * len(at), abs=1e-3)


@for_each("name", ["ct_int4", "awq", "nf4", ""])
def test_a_zero_point_is_no_min(name, tmp_path):
    """It counts in steps, which the scale multiplies."""
    stored = releases.WRITERS[name][0](M, weight()) if name else {W: weight()}
    assert not measured(tmp_path, stored, weight(), name).has_min


def test_a_vector_has_neither_rows_nor_columns(tmp_path):
    x = weight()[0]
    m = measured(tmp_path, {W: -x}, x, "")
    assert (m.strange_rows, m.strange_columns, m.unequal) == (0, 0, COLUMNS)
    x = weight(ROWS, 2)
    m = measured(tmp_path / "two", {W: -x}, x, "")
    power = (x.double() ** 2).sum(1)
    assert (m.strange_rows, m.strange_columns) == (int((4 * power > 0.05 * power.mean()).sum()), 2)


def test_values_that_are_not_finite_are_left_out(tmp_path):
    x, q, step = damaged()
    q, _, step = grid_of(x)
    bad = x.clone()
    bad[2, 3], bad[4, 5] = math.nan, math.inf
    m = measured(tmp_path, ct_stored(q, step), bad)
    good = bad.isfinite()
    assert m.sums.xx == pytest.approx(float((x.double() ** 2)[good].sum()), rel=1e-9)
    assert m.sums.ee == pytest.approx(float(((x - q * step).double() ** 2)[good].sum()), rel=1e-6)
    assert m.peak == float(bad[good].abs().max())


def test_how_codes_were_rounded(tmp_path):
    """Rounded to nearest: to its own scales, or to scales before they were rounded; searched codes: neither."""
    x = torch.cat([weight(seed=s) for s in range(24)])
    q, _, step = grid_of(x)
    own = measured(tmp_path / "own", ct_stored(q, step), x).nearest
    assert (own.tolerance, own.margin, own.places) == (2.0**-20, 8 / len(x), ())
    exact = releases.in_groups(x).abs().amax(-1, keepdim=True).expand(-1, -1, GROUP).reshape(x.shape) / 7
    q, stored = (x / exact).round().clamp(-8, 7), exact.bfloat16().float()
    before = measured(tmp_path / "before", ct_stored(q, stored), x).nearest
    moved = ((x - q * stored).abs() / stored > 0.5) & (q > -8) & (q < 7)
    assert (before.tolerance, before.places) == (2.0**-7.5, ())
    assert before.margin == pytest.approx(16 * float(moved.double().mean()), rel=0.05)
    generator = torch.Generator().manual_seed(3)
    noisy = (x / step + 0.4 * torch.randn(x.shape, generator=generator)).round().clamp(-8, 7)
    assert measured(tmp_path / "noisy", ct_stored(noisy, step), x).nearest is None
    assert (
        measured(tmp_path / "exact", ct_stored(noisy, step), noisy * step).nearest is None
    )  # no error at all
    assert measured(tmp_path / "plain", {W: x}, x, "").nearest is None
    assert measured(tmp_path / "nothing", ct_stored(noisy * 0, step * 0), x).nearest is None


def test_codes_that_share_a_column_were_moved(tmp_path):
    """Three codes that are not the nearest, each in a column of its own, are wrong; in one column they are not."""
    x = weight()
    q, _, step = grid_of(x)
    for columns, is_found in (((5, 40, 77), True), ((40, 40, 40), False)):
        wrong = q.clone()
        rows = [r for r in range(ROWS) if all(abs(int(q[r, c])) < 6 for c in columns)][:3]
        for row, column in zip(rows, columns, strict=True):
            wrong[row, column] += 2
        found = measured(tmp_path / f"{columns}", ct_stored(wrong, step), x).nearest
        assert {(p.row, p.column) for p in found.places} == set(zip(rows, columns, strict=True))
        assert found.in_few_columns is not is_found


def measured_against(folder, y, x):
    release, source = (
        open_checkpoint(releases.save(folder / name, {W: t})) for name, t in (("y", y), ("x", x))
    )
    tensor, rows = release.tensors[W], slice(0, len(y))
    m = module.Measure(tensor.layout, Ordered(source.tensors[W], tensor.shape))
    m.add(Box(tensor.layout, rows, m.source))
    return m.done()


def test_plain_values(tmp_path, monkeypatch):
    """Equal but for rounding to the dtype; else by how much, and where."""
    x = weight()
    m = measured(tmp_path / "half", {W: x.half()}, x, "")
    assert (m.unequal, m.nearest, m.layout.is_plain) == (0, None, True)
    y = x.bfloat16()
    y[30, 70] += 1
    y[31, 2] *= 1.05
    m = measured(tmp_path / "two", {W: y}, x, "")
    assert m.unequal == 2
    size, flat = m.sums.worst, m.sums.worst_at
    assert divmod(flat, COLUMNS) == (30, 70)
    assert size == pytest.approx(float((y.float() - x).abs().max()))
    half = x.half()
    half[7, 3] *= 1.05
    assert measured(tmp_path / "one", {W: half}, x, "").unequal == 1
    # what rounding to both dtypes may make different: 2 (2^-8 + 2^-11) of the value
    for value, other, unequal in ((1.0, 1 + 2.0**-7, 0), (1.0, 1 + 2.0**-6, 1), (1.99609375, 2.015625, 1)):
        given = torch.full((2, 4), value)
        y = torch.where(torch.arange(8).reshape(2, 4) == 5, other, given.bfloat16().float())
        assert measured_against(tmp_path / f"{other}", y.bfloat16(), given.half()).unequal == unequal
    for y, other in ((torch.arange(6), torch.arange(6.0)), (torch.arange(6.0), torch.arange(6))):
        assert measured_against(tmp_path / f"{y.dtype}", y[None], other[None]).unequal == 0
        assert measured_against(tmp_path / f"{y.dtype} 2", y[None] + (y == 2), other[None]).unequal == 1
    monkeypatch.setattr(module, "ELEMENTS", 8)  # a row at once
    for places, (largest, flat) in (((5, 9), (2.0, 5)), ((9, 5), (2.0, 9))):
        zeros = torch.zeros(5, 4)
        zeros[divmod(places[0], 4)], zeros[divmod(places[1], 4)] = 2.0, 1.0
        found = measured_against(tmp_path / f"{places}", zeros, 0 * zeros).sums
        assert (found.worst, found.worst_at) == (largest, flat)
    monkeypatch.undo()
    whole = torch.arange(12).reshape(3, 4)
    m = measured(tmp_path / "whole", {W: whole + (whole == 7)}, whole, "")
    assert (m.unequal, m.sums.worst, m.sums.worst_at) == (1, 1.0, 7)
    zero = measured(tmp_path / "zero", {W: x * 0}, x * 0, "")
    assert (zero.relative, zero.sqnr, zero.unequal) == (0.0, math.inf, 0)
    lost = measured(tmp_path / "lost", {W: x}, x * 0, "")
    assert (lost.relative, lost.sqnr) == (math.inf, -math.inf)
    tiny = torch.tensor([[1e-7, 6e-8, 0.0, 1e-8]])  # subnormal in float16
    assert measured(tmp_path / "tiny", {W: tiny.half()}, tiny, "").unequal == 0


LEVELS = {
    "ct_int4": range(-8, 8), "ct_int8": range(-128, 128), "awq": range(16),
    "mxfp4": releases.E2M1.tolist(), "nf4": releases.NF4.tolist(),
}  # fmt: skip


@for_each("name", LEVELS)
def test_the_grid_of_codes(name, tmp_path):
    """The value of each code, and half the distances to its neighbors; scales of each element; their rounding."""
    x = weight()
    stored = releases.WRITERS[name][0](M, x)
    layout = suspect(tmp_path, stored, x, name).layout
    grid, levels = CodeGrid(layout), sorted(set(LEVELS[name]))
    values = grid.table.tolist()
    assert sorted(set(values)) == pytest.approx(levels)
    if name.startswith("ct"):  # two's complement
        half = len(levels) // 2
        assert values == [*range(half), *range(-half, 0)]
    down, up = grid.limits.view(2, -1).tolist()
    for value, below, above, gap in zip(values, down, up, grid.gaps.tolist(), strict=True):
        at = int(np.argmin(np.abs(np.array(levels) - value)))
        low = (levels[at] - levels[at - 1]) / 2 if at else math.inf
        high = (levels[at + 1] - levels[at]) / 2 if at + 1 < len(levels) else math.inf
        assert (below, above, gap) == pytest.approx((low, high, 2 * min(low, high)), rel=1e-6)
    rows = slice(3, 9)
    scales = grid.scales(rows)
    own = {
        "ct_int4": lambda: stored[f"{M}.weight_scale"].float().repeat_interleave(GROUP, 1),
        "ct_int8": lambda: stored[f"{M}.weight_scale"].float().expand(-1, COLUMNS),
        "awq": lambda: stored[f"{M}.scales"].float().T.repeat_interleave(GROUP, 1),
        "mxfp4": lambda: (stored[f"{M}.weight_scale"].float() - 127).exp2().repeat_interleave(32, 1),
        "nf4": lambda: stored[f"{M}.weight.absmax"].repeat_interleave(64).reshape(ROWS, -1),
    }[name]()
    assert torch.equal(scales, own[rows])
    assert (
        torch.equal(grid.table[grid.bits(layout.codes(rows))] * scales, layout.values(rows, rounded=False))
        or name == "awq"
    )
    rounding = grid.rounding(rows, scales)
    if name == "awq":  # float16: half a unit in the last place, with room; more of subnormal numbers
        assert rounding.min() >= 2.0**-11
        assert rounding.max() < 2.0**-10
        subnormal = grid.rounding(rows, torch.full((1, 1), 2.0**-23))
        assert 0.25 <= float(subnormal) < 0.5
    else:
        assert rounding == (2.0**-7.5 if name.startswith("ct") else 0.0)


def siblings(levels, inner=100_000):
    """Weights with these errors, over that of rounding to nearest."""

    class Of(Measure):
        def __init__(self, bulk):
            self.bulk, self.inner, self.sums = bulk, inner, Sums(xx=1.0, ee=0.01)
            self.layout = type("L", (), {"shape": (10_000, 10)})()

    return [Of(level) for level in levels]


@for_each(
    ("own", "others", "is_far"),
    [
        (1.0, [1.0] * 5, False), (1.1, [1.0] * 5, True), (1.04, [1.0] * 5, False),  # 4 times 0.05 dB
        (1.1, [1.0] * 3, False),  # too few to know
        (1.1, [1.0] * 4, True), (1.95, [1.0, 1.0, 1.0, 1.9, 1.9], False), (3.0, [1.0, 1.0, 1.0, 1.0, 2.9], True),
        (8.0, [4.0] * 6, False), (20.0, [4.0] * 6, False), (70.0, [4.0] * 6, True),  # beyond rounding, layers differ
        (0.0, [1.0] * 5, False), (2.0, [0.0, 1.0, 1.0, 1.0], False), (2.0, [0.0, 1.0, 1.0, 1.0, 1.0], True),
        (1.0, [1.5] * 5, False),
    ],
)  # fmt: skip
def test_far_from_siblings(own, others, is_far):
    (one,) = siblings([own])
    assert far(one, siblings(others)) is is_far


@for_each(
    ("rows", "inner", "level"),
    [(16, 100, 10**0.1), (100, 16, 10**0.1), (64, 64, 10**0.05), (1, 1, 10**0.4), (100, 0, 10**0.4), (1600, 1600, 10**0.02), (6400, 6400, 10**0.02)],
)  # fmt: skip
def test_few_rows_differ_by_chance(rows, inner, level):
    """Four times 1 / √n dB, n the rows or elements, but at least four times 0.05 dB."""
    for factor, is_far in ((0.999, False), (1.001, True)):
        (one,) = siblings([level * factor], inner)
        one.layout.shape = (rows, 10)
        assert far(one, siblings([1.0] * 5)) is is_far


def test_errors_in_decibels():
    one, unknown = siblings([2.0, math.nan])
    assert decibels_of(one) == pytest.approx(3.0103, rel=1e-4)
    assert decibels_of(unknown) == pytest.approx(-20.0)  # over the original: 0.01
    assert not far(unknown, siblings([math.nan] * 5))
    unknown.sums.ee = 0.03  # 4.8 dB more
    assert far(unknown, siblings([math.nan] * 5))
    unknown.sums.ee = 0.024
    assert not far(unknown, siblings([math.nan] * 5))
    unknown.sums.ee = 0.0
    assert decibels_of(unknown) == -math.inf
