"""Scales, zero points, codes and values that are those of another weight: at the edges of what can be told."""

import math

import numpy as np
import pytest
import random_releases
import releases
import torch
from grid import for_each
from parts import some
from suspects import COLUMNS, GROUP, ROWS, THIRD, M, W, ct_stored, grid_of, of_layers, sound, suspect, weight

from quantcore.checkpoints.comparison.boxes import PairComparison
from quantcore.checkpoints.comparison.orders import Orders
from quantcore.checkpoints.comparison.pairing import Pair
from quantcore.checkpoints.comparison.parts import Part
from quantcore.checkpoints.findings.against import numbers
from quantcore.checkpoints.findings.against.grid import rounding_of, sums_by_run, width_of
from quantcore.checkpoints.findings.against.measure import leak_of

PEERS = [W.replace(".1.", f".{i}.") for i in (0, 2, 3, 4)]


def exchanged(*lasts):
    def change(stored):
        for last in lasts:
            a, b = f"{M}.{last}", f"{THIRD}.{last}"
            stored[a], stored[b] = stored[b], stored[a]

    return change


def of_other(s, name=f"{THIRD}.weight"):
    (found,) = [e for e in numbers.scales_of_another(s) if e.facts["other"] == name]
    return found


@for_each("form", some(["gptq_desc_act", "awq", "nf4", "fp8", "nvfp4", "ct_int8"], 4))
def test_scales_of_every_format(form, tmp_path):
    """Exchanged with those of layer 3: the error with those is that of the sound weight."""
    lasts = {"gptq_desc_act": "scales", "awq": "scales", "nf4": "weight.absmax"}.get(form, "weight_scale")
    more = ("weight_scale_2",) * (form == "nvfp4")
    _, s = of_layers(tmp_path, exchanged(lasts, *more), form)
    found = of_other(s)
    _, good = of_layers(tmp_path / "sound", lambda stored: None, form)
    assert (found.kind, found.facts["equal"], found.complexity) == ("scales_exchanged", False, 1)
    assert found.fit.relative == pytest.approx(good.now.relative, rel=1e-3)
    assert found.fit.steps == pytest.approx(good.now.steps, rel=1e-3)
    assert s.now.relative > 1.3 * found.fit.relative


def test_scales_with_a_min(tmp_path, monkeypatch):
    """Of MLX's groups, the bias stays where it is."""
    def mlx(module, w):
        return {k: torch.from_numpy(v.view(np.int32) if v.dtype == np.uint32 else v).view(torch.uint32 if v.dtype == np.uint32 else torch.float16)
                for k, v in random_releases.mlx(module, w.numpy()).items()}  # fmt: skip

    monkeypatch.setitem(releases.WRITERS, "mlx", (mlx, {"group_size": 32, "bits": 4}))
    _, s = of_layers(tmp_path, exchanged("scales"), "mlx")
    _, good = of_layers(tmp_path / "sound", lambda stored: None, "mlx")
    assert s.measure.has_min
    assert of_other(s).fit.relative == pytest.approx(good.now.relative, rel=1e-3)


def test_scales_some_of_which_are_0(tmp_path):
    """What their codes were can't be told with any scale; all else is."""
    def change(stored):
        exchanged("weight_scale")(stored)
        stored[f"{M}.weight_scale"] = stored[f"{M}.weight_scale"].clone()
        stored[f"{M}.weight_scale"][5, 1] = 0

    x, s = of_layers(tmp_path, change)
    _, y, _ = sound(x)
    y = y.clone()
    y[5, GROUP : 2 * GROUP] = 0
    assert of_other(s).fit.relative == pytest.approx(float(((x - y) ** 2).sum().sqrt() / (x**2).sum().sqrt()), rel=1e-3)


def test_scales_of_another_shape(tmp_path):
    """A vector beside columns: they are of no use, even where the numbers are the same."""
    def change(stored):
        stored[f"{THIRD}.weight_scale"] = stored[f"{M}.weight_scale"].reshape(-1).clone()

    _, s = of_layers(tmp_path, change, "ct_int8")
    assert s.release.tensors[f"{THIRD}.weight"].storage == s.layout.storage
    found = list(numbers.scales_of_another(s))
    assert f"{THIRD}.weight" not in {e.facts["other"] for e in found}
    assert len(found) == 3


@for_each(("rows", "told"), [(1, False), (2, True)])
def test_two_scales_are_enough(rows, told, tmp_path):
    """A single one may be shared on purpose."""
    def change(stored):
        for name in list(stored):
            stored[name] = stored[name][:rows].clone()
        stored[f"{M}.weight_scale"] = stored[f"{THIRD}.weight_scale"].clone()

    _, s = of_layers(tmp_path, change, "ct_int8", original={n: weight(seed=10 + i)[:rows] for i, n in enumerate([PEERS[0], W, *PEERS[1:]])})
    found = list(numbers.scales_of_another(s))
    assert [e.facts for e in found if e.facts["equal"]] == [{"other": f"{THIRD}.weight", "equal": True}] * told
    assert bool(found) is told


def test_the_best_scales_where_codes_are_0(tmp_path):
    """A block of which every code is 0 has no best scale; the error there stays."""
    def change(stored):
        stored[f"{M}.weight_scale"] = stored[f"{THIRD}.weight_scale"]
        q = grid_of(weight(seed=11))[0]
        q[7, :GROUP] = 0
        stored[f"{M}.weight_packed"] = releases.words(q + 8)

    x, s = of_layers(tmp_path, change)
    _, y, _ = sound(x)
    y = y.clone()
    y[7, :GROUP] = 0
    relative = float(((x - y) ** 2).sum().sqrt() / (x**2).sum().sqrt())
    found = [e for e in numbers.scales_of_another(s) if e.facts["equal"]]
    assert [e.fit.relative for e in found] == [pytest.approx(relative, rel=0.03)]


def test_zero_points_of_others(tmp_path):
    """Those that are the same as its own explain nothing; one alone that is wrong everywhere is found among all."""
    _, s = of_layers(tmp_path, exchanged("qzeros"), "awq")
    found = {e.facts["other"]: e for e in numbers.zero_points_of_another(s)}
    assert found.keys() == set(PEERS)
    _, good = of_layers(tmp_path / "sound", lambda stored: None, "awq")
    assert min(found, key=lambda n: found[n].fit.relative) == f"{THIRD}.weight"
    assert found[f"{THIRD}.weight"].fit.relative == pytest.approx(good.now.relative, rel=1e-4)
    assert {e.complexity for e in found.values()} == {1}

    def copied(stored):
        stored[f"{THIRD}.qzeros"] = stored[f"{M}.qzeros"]

    _, s = of_layers(tmp_path / "same", copied, "awq")
    assert {e.facts["other"] for e in numbers.zero_points_of_another(s)} == set(PEERS) - {f"{THIRD}.weight"}


def test_of_equal_originals_that_of_its_role(tmp_path):
    """And a cosine of 0.7 is not enough."""
    z = weight(seed=13)
    def whole(stored):
        stored.update(releases.ct_int4(M, z))

    twin = W.replace("q_proj", "a_proj")
    _, s = of_layers(tmp_path, whole, original={twin: z})
    s.partners[twin] = twin
    (found,) = numbers.whole_of_another(s)
    assert (found.facts["other"], found.complexity) == (f"{THIRD}.weight", 1)
    del s.partners[f"{THIRD}.weight"]
    (found,) = numbers.whole_of_another(s)
    assert found.facts["other"] == twin
    noise = weight(seed=77)
    for share, told in ((0.9, True), (1.2, False)):  # cosines of 0.74 and 0.64
        _, s = of_layers(tmp_path / f"{share}", whole, original={f"{THIRD}.weight": z + share * noise * float(z.norm() / noise.norm())})
        assert bool(list(numbers.whole_of_another(s))) is told


def test_how_many_others_are_looked_at(tmp_path, monkeypatch):
    """Those of its role first; only those of its shape and storage."""
    def more(stored):
        stored |= releases.ct_int4("a", weight(seed=50)) | releases.ct_int4("b", weight(rows=8, seed=51)) | {"c.weight": weight()}

    _, s = of_layers(tmp_path, more)
    assert [n for n, _ in numbers._alike(s)] == [*PEERS, "a.weight"]
    monkeypatch.setattr(numbers, "_MOST", 2)
    assert [n for n, _ in numbers._alike(s)] == PEERS[:2]
    monkeypatch.setattr(numbers, "_MOST", 5)
    assert [n for n, _ in numbers._alike(s)] == [*PEERS, "a.weight"]
    monkeypatch.setattr(numbers, "_MOST", 3)
    _, s = of_layers(tmp_path / "whole", lambda stored: stored.update(releases.ct_int4(M, weight(seed=14))))
    assert not list(numbers.whole_of_another(s))  # the fourth
    monkeypatch.setattr(numbers, "_MOST", 4)
    assert [e.facts["other"] for e in numbers.whole_of_another(s)] == [PEERS[3]]


# What hypotheses are computed with


def test_runs_of_columns(tmp_path):
    """Those that share a scale; for columns that do not, a number of them."""
    x = weight()
    widths = {"ct_int4": GROUP, "gptq_desc_act": 64, "fp8": COLUMNS, "nvfp4": 16, "mxfp4": 32, "nf4": 64, "awq": GROUP}
    for name, width in widths.items():
        assert width_of(suspect(tmp_path / name, releases.WRITERS[name][0](M, x), x, name).layout) == width, name
    for columns, width in ((32, 32), (96, 96), (192, 64)):
        x = weight(64, columns)
        layout = suspect(tmp_path / f"nf4 {columns}", releases.WRITERS["nf4"][0](M, x), x, "nf4").layout
        assert width_of(layout) == (width if columns % 64 == 0 else columns), columns
        layout = suspect(tmp_path / f"g {columns}", releases.WRITERS["gptq_desc_act"][0](M, x), x, "gptq_desc_act").layout
        assert width_of(layout) == min(64, columns)
    values = np.arange(1.0, 17.0).reshape(2, 8)
    assert sums_by_run(values, 3).tolist() == [[6, 15, 15], [30, 39, 31]]
    assert sums_by_run(values, 8).tolist() == [[36], [100]]


def test_rounding_errors_of_dtypes():
    wanted = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.int8: 0.0}
    assert {dtype: rounding_of(dtype) for dtype in wanted} == wanted


@for_each(
    ("odd", "even", "what"),
    [(4.0, 1.0, "odd"), (1.0, 4.0, "even"), (2.0, 1.0, None), (2.01, 1.0, "odd"), (1.0, 2.0, None), (0.0, 0.0, None), (1.0, 0.0, "odd"), (1.0, 1.0, None)],
)  # fmt: skip
def test_which_columns_leak(odd, even, what, tmp_path):
    """The mean squared error of one parity more than twice that of the other; a few columns do not decide."""
    q, _, step = grid_of(weight())
    given = {f"{M}.qweight": releases.words(q.T + 8, 1, releases.AWQ_ORDER), f"{M}.scales": step[:, ::GROUP].T.half(),
             f"{M}.qzeros": releases.words(torch.full((ROWS, COLUMNS // GROUP), 8).T, 1, releases.AWQ_ORDER)}  # fmt: skip
    awq = suspect(tmp_path / "awq", given, weight(), "awq").layout
    ct = suspect(tmp_path / "ct", ct_stored(q, step), weight()).layout
    errors = np.where(np.arange(COLUMNS) % 2, odd, even) * ROWS
    found = leak_of(ct, errors)
    if what is None:
        assert found is None
    else:
        assert (found.facts["what"], found.facts["worse"], found.facts["large"], found.facts["small"]) == ("columns", what, max(odd, even), min(odd, even))
    assert leak_of(awq, errors) is None  # whose neighbors in a word are rows
    assert leak_of(ct, errors[:1]) is None
    one = np.ones(COLUMNS)
    one[3] = 1000.0  # a single column is far off
    assert leak_of(ct, one) is None


# Rows of two sides


@for_each("shape", [(10,), (10, 1), (5, 4), (5, 2, 2), ()])
def test_rows_of_both_sides(shape, tmp_path):
    """Any rows of a vector, a matrix or more axes, as lines of the last axis; vectors in one line."""
    x = torch.arange(float(math.prod(shape))).reshape(shape)
    s = suspect(tmp_path, {W: x, "model.layers.0.w": -x}, x, "") if x.dim() > 1 else None
    layouts = [t.layout for t in (s.release if s else _opened(tmp_path, x)).tensors.values()]
    pair = Pair(*(Part(layout.name) for layout in layouts), shape)
    both = PairComparison(pair, tuple(layouts), Orders(shape), ())
    lines = x.reshape(-1, shape[-1]) if len(shape) > 1 else x.reshape(1, -1)
    for start, stop in ((0, both.count), (both.count // 2, both.count)):
        a, b = both.read(start, stop)
        part = lines if len(shape) > 1 else lines.reshape(-1)[None]
        width = both.width
        wanted = part.reshape(-1)[start * width : stop * width]
        assert torch.equal(a.reshape(-1).abs(), wanted)
        assert torch.equal(a, -b)
        assert a.shape[1] == (shape[-1] if len(shape) > 1 else wanted.numel())


def _opened(folder, x):
    from quantcore.checkpoints import open_checkpoint

    return open_checkpoint(releases.save(folder / "release", {W: x, "model.layers.0.w": -x}))


def test_boxes_depend_on_shapes_alone(tmp_path, monkeypatch):
    """At least a row, and whole heads."""
    x = weight()
    s = suspect(tmp_path, {W: x}, x, "")
    layouts = (s.measure.source.layout, s.layout)
    pair = Pair(Part(W), Part(W), (ROWS, COLUMNS))
    for chunk, heads, rows in ((1 << 20, 0, 1 << 13), (COLUMNS * 20, 0, 16), (COLUMNS, 0, 8), (1, 0, 8), (COLUMNS * 20, 2, 24), (COLUMNS * 50, 2, 48)):
        monkeypatch.setattr("quantcore.checkpoints.comparison.boxes.CHUNK", chunk)
        work = PairComparison(pair, layouts, Orders((ROWS, COLUMNS), heads), ())
        assert work.rows == rows
        assert work.boxes == -(-ROWS // rows)
        assert sum(work.compare(box)["as stored"].count for box in range(work.boxes)) == x.numel()
