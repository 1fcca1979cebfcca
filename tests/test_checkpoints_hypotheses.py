"""Each hypothesis about a wrong weight, alone: what it claims is what was done, and undoing it gives the sound weight.

The sound weight is quantized here (`releases`); its error, in steps and relative, is computed in numpy.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import releases
import torch
from checkpoint_cases import case, flipped
from checkpoint_cases import sound as golden
from releases import GROUP, WRITERS, save

import quantcore as qc
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison.orders import Heads
from quantcore.checkpoints.findings.against import (
    causes,
    global_scales,
    numbers,
    orders,
    others,
    places,
    plain,
    said,
)
from quantcore.checkpoints.findings.against.grid import Grid
from quantcore.checkpoints.findings.against.judge import _Judgement, judge
from quantcore.checkpoints.findings.against.leak import leak_of
from quantcore.checkpoints.findings.against.measure import measure_of
from quantcore.checkpoints.findings.against.ordered import Ordered
from quantcore.checkpoints.findings.against.suspect import Explained, Fit, Suspect

M = "model.layers.1.self_attn.q_proj"
W = f"{M}.weight"
ROWS, COLUMNS = 48, 128


def weight(rows=ROWS, columns=COLUMNS, seed=3):
    """Rows and columns of different spread, none of them alike."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(rows, columns, generator=generator) * 0.02
    return (w * torch.exp(0.3 * torch.randn(rows, 1, generator=generator))).bfloat16().float()


def suspect(folder, stored, x, name="ct_int4", **more):
    """A weight as `stored` says, against the original ``x``, with what one walk over it measures."""
    release = open_checkpoint(save(folder / "release", stored, WRITERS[name][1] if name else None))
    source = open_checkpoint(save(folder / "original", {W: x}))
    tensor = release.tensors[W]
    original = Ordered(source.tensors[W], tensor.shape)
    measure, rows = measure_of(tensor, original), slice(0, tensor.shape[0])
    codes = None if measure.grid is None else tensor.layout.codes(rows)
    measure.add(original.read(rows), tensor.layout.values(rows, rounded=False), rows, codes)
    given = {"peers": {}, "partners": {}, "normal": math.nan, "usual": math.nan, "heads": 0, "gguf_differs": False}
    return Suspect(tensor, original, measure.done(), release, source, **(given | more))


def fit_of(x, y, step):
    """Steps and relative error: the median |error| over a quarter of a step (of two middle ones the lower), RMS over RMS."""
    x, y, step = (np.broadcast_to(np.asarray(t, np.float64), np.shape(x)) for t in (x, y, step))
    ratio = np.sort((np.abs(x - y) / step).ravel())
    return ratio[(ratio.size - 1) // 2] / 0.25, np.sqrt(((x - y) ** 2).sum() / (x**2).sum())


def grid_of(x, qmax=7):
    """Codes, values and steps of ct_int4's symmetric grid."""
    q, s = releases.symmetric(x, GROUP, qmax, torch.bfloat16)
    step = s.float().repeat_interleave(GROUP, 1)
    return q, q * step, step


# how many numbers each needs: of two that fit alike, the simpler one is said
COMPLEXITY = {
    "sign_flipped": 0, "transposed": 0, "scales_of_another": 0, "codes_of_another": 0, "constant_factor": 1, "zero_point_off": 1,
    "code_bit": 1, "code_format": 1, "bits_reinterpreted": 1, "bytes_swapped": 1, "nibbles_swapped": 1, "awq_order": 1,
    "codes_permuted": 1, "scales_exchanged": 1, "zero_points_exchanged": 1, "another_weight": 1, "rows_permuted": 2,
    "columns_permuted": 2, "g_idx_wrong": 3, "row_factors": 3, "column_factors": 3, "block_factors": 4,
    "row_and_column_factors": 5,
}  # fmt: skip


def same(found, kind, fit, **facts):
    """The one explanation of this kind and these facts whose fit is that of the sound weight."""
    found = list(found)
    # codes that are permuted within words need no list of places
    free = {"moved"} & set().union(*(e.facts for e in found))
    assert all(e.complexity == max(COMPLEXITY[e.kind], 2 * len(free)) for e in found if e.kind != "g_idx_wrong")
    said = [e for e in found if e.kind == kind and facts.items() <= e.facts.items()]
    near = [e for e in said if (e.fit.steps, e.fit.relative) == (pytest.approx(fit, rel=1e-4) if isinstance(fit, tuple) else fit)]
    assert near, [(e.kind, e.facts, e.fit) for e in found]
    return near[0]


# Orders


def even_first(n):
    return [*range(0, n, 2), *range(1, n, 2)]


def each(n, size, inside):
    return [start + i for start in range(0, n, size) for i in inside]


def swaps(n, size):
    return [i + size if i // size % 2 == 0 else i - size for i in range(n)]


def back(order):
    return [order.index(i) for i in range(len(order))]


def by_name(n):
    """Orders by what they are called: which element of the file belongs at each place."""
    found = {}
    if n % 2 == 0:
        found["swapped in pairs"] = swaps(n, 1)
        found["with the two halves swapped"] = [*range(n // 2, n), *range(n // 2)]
        if n > 2:
            found["with the two halves interleaved"] = even_first(n)
            found["with even and odd ones separated"] = back(even_first(n))
    for size in (2, 4, 8, 16, 32):
        if n % (2 * size) == 0 and n != 2 * size:
            found[f"with runs of {size} swapped"] = swaps(n, size)
        if n % size == 0 and size != 2:
            found[f"reversed in runs of {size}"] = each(n, size, range(size)[::-1])
    for size in (32, 64, 256):
        if n % size == 0 and n != size:
            found[f"with the two halves interleaved in runs of {size}"] = each(n, size, even_first(size))
            found[f"with even and odd ones separated in runs of {size}"] = each(n, size, back(even_first(size)))
    if n % 8 == 0:
        for name in ("0 4 1 5 2 6 3 7", "0 2 4 6 1 3 5 7"):
            found[name] = each(n, 8, back([int(i) for i in name.split()]))
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 64, 96, 128, 256, 320, 512])
def test_orders_within_words(n):
    assert {name: places.tolist() for name, places in orders._runs(n)} == {
        name: list(places) for name, places in by_name(n).items()
    }


def llama(n, heads):
    """The rows of the original in the order of llama.cpp's file (convert_hf_to_gguf.py, permute)."""
    return np.arange(n).reshape(heads, 2, n // heads // 2).swapaxes(1, 2).reshape(-1).tolist()


NAMED = [
    # rows of the original as they stand in the file, the likely heads -> (heads, order)
    (llama(16, 2), 2, (2, "pairs")),  # without a number of heads it is AWQ's order
    (llama(16, 2), 0, (0, "0 4 1 5 2 6 3 7")),
    (back(llama(16, 2)), 0, (0, "0 2 4 6 1 3 5 7")),
    (llama(24, 2), 2, (2, "pairs")),
    (back(llama(24, 2)), 0, (2, "halves")),
    (llama(20, 5), 0, (5, "halves")),  # of heads of four rows, which it is can't be told
    (llama(8, 1), 2, (0, "0 4 1 5 2 6 3 7")),
    (llama(10, 1), 0, (1, "pairs")),
    ([9, *range(1, 9), 0], 0, (0, "row 0 and row 9 exchanged")),
    ([0, 4, 2, 3, 1], 0, (0, "row 1 and row 4 exchanged")),
    ([1, 0], 0, (0, "reversed")),
    ([*reversed(range(7))], 0, (0, "reversed")),
    ([*reversed(range(16))], 2, (0, "reversed")),
    ([9, *range(9)], 0, (0, "shifted by 1")),
    ([*range(5, 10), *range(5)], 0, (0, "shifted by 5")),
    ([*range(4, 10), *range(4)], 0, (0, "shifted by −4")),
    ([*range(1, 7), 0], 0, (0, "shifted by −1")),
    (each(6, 2, [1, 0]), 0, (0, "reversed in runs of 2")),
    (each(12, 4, [3, 2, 1, 0]), 0, (0, "reversed in runs of 4")),
    (each(24, 8, range(8)[::-1]), 0, (0, "reversed in runs of 8")),
    (each(48, 16, range(16)[::-1]), 0, (0, "reversed in runs of 16")),
    (each(96, 32, range(32)[::-1]), 0, (0, "reversed in runs of 32")),
    ([0, 2, 3, 1, 4, 5, 6], 0, (0, "row 1 is row 2 of the original")),
]  # fmt: skip


@pytest.mark.parametrize(("file", "likely", "wanted"), NAMED)
def test_names_of_orders(file, likely, wanted):
    assert orders.order_of(torch.tensor(back(file)), likely) == wanted


@pytest.mark.parametrize(("n", "most", "wanted"), [(5, 8, range(5)), (8, 8, range(8)), (9, 3, (0, 4, 8)), (1, 4, (0,))])
def test_rows_spread_evenly(n, most, wanted):
    assert orders.evenly(n, most).tolist() == list(wanted)


def test_rows_that_are_matched():
    """Each row finds its own; those that are alike stay, or take what is left."""
    x = weight(40, 24)
    places = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    y = torch.empty_like(x)
    y[places] = x
    for noise in (0.001, 0.8):  # and where a row and its own are hardly alike
        assert torch.equal(orders._matches(y + noise * x.std() * torch.randn(40, 24, generator=torch.Generator().manual_seed(2)), x), places)
    assert orders._matches(x, x) is None
    assert orders._matches(torch.randn(40, 24), x) is None
    assert orders._matches(y[:, :3], x[:, :3]) is None  # too short to tell
    assert torch.equal(orders._matches(y[:, :4], x[:, :4]), places)
    assert orders._matches(y[:1], x[:1]) is None
    assert torch.equal(orders._matches(x[:2].flip(0), x[:2]), torch.tensor([1, 0]))
    empty = x.clone()
    empty[[3, 5, 8]] = 0
    moved = empty.clone()
    moved[[10, 20]] = moved[[20, 10]]
    wanted = torch.arange(40)
    wanted[[10, 20]] = torch.tensor([20, 10])
    assert torch.equal(orders._matches(moved, empty), wanted)
    moved[[5, 30]] = moved[[30, 5]]  # an empty row in the place of another
    wanted[[5, 30]] = torch.tensor([30, 5])
    assert torch.equal(orders._matches(moved, empty), wanted)
    for alike, found in ((20, True), (21, False)):  # half of the rows must be told apart
        z = x.clone()
        z[:alike] = z[0]
        moved = z.clone()
        moved[[30, 31]] = moved[[31, 30]]
        assert (orders._matches(moved, z) is not None) is found


# Weights


def test_rows_in_memory(tmp_path):
    """At most ``most`` elements in whole rows, and at least one row."""
    s = suspect(tmp_path, releases.ct_int4(M, weight()), weight())
    for most, stop in ((1, 1), (2 * COLUMNS - 1, 1), (2 * COLUMNS, 2), (ROWS * COLUMNS - 1, ROWS - 1), (1 << 24, ROWS)):
        cut = replace(s, most=most)
        assert (cut.rows, cut.is_whole) == (slice(0, stop), stop == ROWS)
        assert cut.x.shape == cut.y.shape == cut.step.shape == (stop, COLUMNS)
    narrow = suspect(tmp_path / "narrow", {W: weight(8, 1)}, weight(8, 1), "")
    assert replace(narrow, most=3).rows == slice(0, 3)
    stack = suspect(tmp_path / "stack", {W: weight(8, 6).reshape(4, 2, 6)}, weight(8, 6).reshape(4, 2, 6), "")
    assert replace(stack, most=24).rows == slice(0, 2)
    assert replace(stack, most=24).x.shape == (4, 6)


def awq_of(w):
    """Codes, zero points and scales of AWQ's grid, each of its element."""
    g = releases.in_groups(w)
    low, high = g.amin(-1).clamp(max=0), g.amax(-1).clamp(min=0)
    s = ((high - low) / 15).half().float().repeat_interleave(GROUP, 1)
    z = (-low.repeat_interleave(GROUP, 1) / s).round().clamp(0, 15)
    return ((w / s).round() + z).clamp(0, 15), z, s


def awq_stored(q, z, s):
    pick = slice(None, None, GROUP)
    return {
        f"{M}.qweight": releases.words(q.T, 1, releases.AWQ_ORDER),
        f"{M}.qzeros": releases.words(z[:, pick].T, 1, releases.AWQ_ORDER),
        f"{M}.scales": s[:, pick].T.half().contiguous(),
    }


def ct_stored(q, s):
    return {
        f"{M}.weight_packed": releases.words(q + 8), f"{M}.weight_scale": s[:, ::GROUP].bfloat16(),
        f"{M}.weight_shape": torch.tensor(q.shape),
    }  # fmt: skip


def permutation(n, seed=1):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def test_transposed(tmp_path):
    x = weight(64, 64)
    q, y, step = grid_of(x.T)
    s = suspect(tmp_path, ct_stored(q, step), x)
    same(orders.transposed(s), "transposed", fit_of(x.T, y, step))
    assert not list(orders.transposed(replace(s, most=63 * 64)))
    stack = torch.stack([x, weight(64, 64, 5)])
    s = suspect(tmp_path / "plain", {W: stack.mT.contiguous()}, stack, "")
    (found,) = orders.transposed(s)
    assert found.fit.relative == 0
    for shape in ((64,), (48, 64)):
        s = suspect(tmp_path / str(shape), {W: torch.ones(shape)}, torch.ones(shape), "")
        assert not list(orders.transposed(s))


@pytest.mark.parametrize("order", ["swapped in pairs", "with the two halves swapped", "reversed in runs of 8"])
def test_codes_in_another_order(order, tmp_path):
    """Codes of columns, or of rows, are permuted; scales are where they belong."""
    x = weight()
    q, y, step = grid_of(x)
    fit = fit_of(x, y, step)
    of = lambda n: back(list(by_name(n)[order]))  # noqa: E731
    kind = {"swapped in pairs": "nibbles_swapped"}.get(order, "codes_permuted")
    s = suspect(tmp_path / "columns", ct_stored(q[:, of(COLUMNS)], step), x)
    same(orders.codes_in_words(s), kind, fit, order=order, axis="columns", which="codes")
    s = suspect(tmp_path / "rows", ct_stored(q[of(ROWS)], step), x)
    same(orders.rows_of_words(s), "codes_permuted", fit, order=order, axis="rows", which="codes")
    q, z, step = awq_of(x)
    fit = fit_of(x, (q - z) * step, step)
    for zeros in (False, True):
        s = suspect(tmp_path / f"awq {zeros}", awq_stored(q[of(ROWS)], z[of(ROWS)] if zeros else z, step), x, "awq")
        which = "codes and zero points" if zeros else "codes"
        same(orders.rows_of_words(s), "codes_permuted", fit, order=order, axis="rows", which=which)
        assert {e.facts["which"] for e in orders.codes_in_words(s)} == {"codes"}


@pytest.mark.parametrize("order", ["0 4 1 5 2 6 3 7", "0 2 4 6 1 3 5 7"])
def test_an_interleave_that_was_forgotten(order, tmp_path):
    x = weight()
    file = [start + i for start in range(0, ROWS, 8) for i in map(int, order.split())]
    q, z, step = awq_of(x)
    s = suspect(tmp_path / "awq", awq_stored(q[file], z[file], step), x, "awq")
    found = same(orders.rows_of_words(s), "awq_order", fit_of(x, (q - z) * step, step), order=order, axis="rows")
    assert found.facts["of"] == "output channels"
    assert "AWQ's interleave" in found.words
    q, y, step = grid_of(x)
    file = [start + i for start in range(0, COLUMNS, 8) for i in map(int, order.split())]
    s = suspect(tmp_path / "ct", ct_stored(q[:, file], step), x)
    found = same(orders.codes_in_words(s), "awq_order", fit_of(x, y, step), order=order, axis="columns", of="columns")
    assert "AWQ's interleave" not in found.words
    rows = [start + i for start in range(0, ROWS, 8) for i in map(int, order.split())]
    s = suspect(tmp_path / "values", ct_stored(q[rows], step[rows]), x)
    same(orders.rows_in_another_order(s), "awq_order", fit_of(x, y, step), order=order, moved=ROWS * 3 // 4, of=ROWS)


def test_which_codes_share_a_byte(tmp_path):
    """4-bit codes of neighbors along the axis that is packed; GPTQ's are packed along columns, AWQ's rows of eight are not."""
    x = weight()
    kinds = {}
    for name, stored in (
        ("gptq", releases.gptq(M, x)), ("awq", releases.awq(M, x)), ("ct_int4", releases.ct_int4(M, x)), ("ct_int8", releases.ct_int8(M, x)), ("mxfp4", releases.mxfp4(M, x)), ("nvfp4", releases.nvfp4(M, x)),
    ):  # fmt: skip
        s = suspect(tmp_path / name, stored, x, name)
        for axis, hypothesis in (("columns", orders.codes_in_words), ("rows", orders.rows_of_words)):
            found = next(e for e in hypothesis(s) if e.facts["order"] == "swapped in pairs")
            kinds[name, axis] = found.kind == "nibbles_swapped"
            assert ("two codes of each byte" in found.words) is kinds[name, axis]
    assert {key for key, share in kinds.items() if share} == {(n, "columns") for n in ("gptq", "ct_int4", "mxfp4", "nvfp4")}


def test_rows_in_another_order(tmp_path):
    """Rows with their scales, codes and zero points without scales, codes alone."""
    x, places = weight(), permutation(ROWS)
    q, z, step = awq_of(x)
    fit = fit_of(x, (q - z) * step, step)
    moved = int((places != torch.arange(ROWS)).sum())
    for number, which in enumerate(((q, z, step), (q, z), (q,))):
        parts = [t[places] for t in which] + [q, z, step][len(which) :]
        s = suspect(tmp_path / str(number), awq_stored(*parts), x, "awq")
        kind = "rows_permuted" if number == 0 else "codes_permuted"
        found = same(list(orders.rows_in_another_order(s))[number : number + 1], kind, fit, moved=moved, of=ROWS)
        first = next(i for i in range(ROWS) if int(places[i]) != i)
        assert found.facts["order"] == f"row {first} is row {int(places[first])} of the original"
    heads = torch.tensor(llama(ROWS, 4))
    q, y, step = grid_of(x)
    for order, file in (("pairs", heads), ("halves", heads.argsort())):
        s = suspect(tmp_path / order, ct_stored(q[file], step[file]), x)
        found = same(orders.rows_in_another_order(s), "rows_permuted", fit_of(x, y, step), order=order, heads=4)
        said = {"pairs": "the two halves interleaved", "halves": "the even rows before the odd ones"}
        assert said[order] in found.words


def test_columns_in_another_order(tmp_path):
    """Columns with their scales; codes without: each place keeps its own scale and zero point."""
    x, places = weight(), permutation(COLUMNS)
    moved = int((places != torch.arange(COLUMNS)).sum())
    other = x[:, places]
    q, y, step = grid_of(other)
    s = suspect(tmp_path / "columns", ct_stored(q, step), x)
    found = same(orders.columns_in_another_order(s), "columns_permuted", fit_of(other, y, step), moved=moved, of=COLUMNS)
    first = next(i for i in range(COLUMNS) if int(places[i]) != i)
    assert found.facts["order"] == f"column {first} is column {int(places[first])} of the original"
    inside = torch.cat([32 * g + permutation(32, g) for g in range(COLUMNS // 32)])
    q, z, step = awq_of(x)
    s = suspect(tmp_path / "codes", awq_stored(q[:, inside], z, step), x, "awq")
    same(orders.columns_in_another_order(s), "codes_permuted", fit_of(x, (q - z) * step, step))
    vector = suspect(tmp_path / "vector", {W: x[0]}, x[0].flip(0), "")
    assert not list(orders.columns_in_another_order(vector))


def test_values_of_a_vector_in_another_order(tmp_path):
    x, places = weight()[0], permutation(COLUMNS)
    for differs, heads, legitimate in ((True, 4, True), (False, 4, False), (True, 2, False), (True, 0, False)):
        file = torch.tensor(llama(COLUMNS, 4))
        s = suspect(tmp_path / f"{differs} {heads}", {W: x[file]}, x, "", gguf_differs=differs, heads=heads)
        (found,) = orders.rows_in_another_order(s)
        assert (found.kind, found.legitimate, found.fit.relative) == ("rows_permuted", legitimate, 0)
        assert found.facts == {"moved": int((x[file] != x).sum()), "of": COLUMNS, "order": "pairs"}
    s = suspect(tmp_path / "shuffled", {W: x[places]}, x, "")
    (found,) = orders.rows_in_another_order(s)
    assert found.fit.relative == 0


def test_columns_of_other_groups(tmp_path):
    """Where columns are quantized with the scales of another group, that group is found for each."""
    x = weight()
    index = (torch.arange(COLUMNS) // GROUP)[permutation(COLUMNS)]
    order = index.argsort(stable=True)
    q, _, step = grid_of(x[:, order])
    stored = releases.gptq(M, x)
    now = torch.arange(COLUMNS) // GROUP
    back_to = order.argsort()
    stored |= {
        f"{M}.qweight": releases.words((q[:, back_to] + 8).T, 0), f"{M}.scales": step[:, ::GROUP].T.half().contiguous(),
        f"{M}.g_idx": now.int(),
    }  # fmt: skip
    s = suspect(tmp_path / "g_idx", stored, x, "gptq_desc_act")
    first = int((index != now).nonzero()[0])
    facts = {"moved": int((index != now).sum()), "of": COLUMNS, "first": first}
    exact = step[:, back_to].half().float()
    found = same(orders.groups_of_columns(s), "g_idx_wrong", fit_of(x, q[:, back_to] * exact, exact), **facts)
    assert "in the order of their groups" not in found.words
    # codes are stored in the order of their groups
    stored |= {f"{M}.qweight": releases.words((q + 8).T, 0), f"{M}.g_idx": index.int()}
    s = suspect(tmp_path / "sorted", stored, x[:, order], "gptq_desc_act")
    (found,) = orders.groups_of_columns(s)
    assert "in the order of their groups" in found.words
    q, z, step = awq_of(x[:, order])
    s = suspect(tmp_path / "awq", awq_stored(q[:, back_to], z, step), x, "awq")
    found = same(
        orders.groups_of_columns(s), "g_idx_wrong", fit_of(x, ((q - z) * step)[:, back_to], step[:, back_to]), **facts
    )
    assert "by their order" in found.words
    sound = suspect(tmp_path / "sound", releases.ct_int4(M, x), x)
    assert not list(orders.groups_of_columns(sound))


def test_columns_of_other_groups_with_a_min(tmp_path):
    """Q4_1: each group has a scale and a min."""
    given, name = case("gguf_legacy"), "blk.0.attn_output.weight"
    release = open_checkpoint(given.release)
    codes, scale, least = (given.expected[f"{name}|{role}"].astype(np.float64) for role in ("codes", "scale", "min"))
    size = codes.shape[1] // scale.shape[1]
    now = np.arange(codes.shape[1]) // size
    other = now.copy()
    other[[2, size + 3]] = other[[size + 3, 2]]
    x = torch.from_numpy(codes * scale[:, other] + least[:, other]).float()
    source = open_checkpoint(save(tmp_path, {W: x}))
    tensor = release.tensors[name]
    original = Ordered(source.tensors[W], tensor.shape)
    s = Suspect(tensor, original, measure_of(tensor, original), release, source, {}, {}, math.nan, math.nan, 0, False)
    (found,) = orders.groups_of_columns(s)
    assert (found.kind, found.facts) == ("g_idx_wrong", {"moved": 2, "of": codes.shape[1], "first": 2})
    assert found.fit.relative < 1e-6


def test_columns_of_other_groups_of_small_floats(tmp_path):
    """MXFP4: the step differs between codes, and many groups have the same scale."""
    x = weight()
    x[:, 32:64] *= 4
    good = releases.mxfp4(M, x)
    s = suspect(tmp_path / "sound", good, x, "mxfp4")
    assert not list(orders.groups_of_columns(s))
    order = torch.arange(COLUMNS)
    order[[5, 40]] = torch.tensor([40, 5])
    codes = good[f"{M}.weight_packed"]
    nibbles = torch.stack([codes & 15, codes >> 4], -1).reshape(ROWS, -1).long()[:, order]
    good[f"{M}.weight_packed"] = releases.bytes_of(nibbles)
    s = suspect(tmp_path / "swapped", good, x[:, order], "mxfp4")
    (found,) = orders.groups_of_columns(s)
    assert found.facts == {"moved": 2, "of": COLUMNS, "first": 5}
    power = (good[f"{M}.weight_scale"].float() - 127).exp2()
    own = power.repeat_interleave(32, 1)[:, order]
    value = releases.E2M1[nibbles]
    gap = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.5, 1, 1, 2])[nibbles & 7]
    assert (found.fit.steps, found.fit.relative) == pytest.approx(fit_of(x[:, order], own * value, own * gap), rel=1e-5)


# Numbers


def sound(x, name="ct_int4"):
    """What is stored for a weight, its values and its steps: each of an element."""
    if name == "awq":
        q, z, step = awq_of(x)
        return awq_stored(q, z, step), (q - z) * step, step
    q, y, step = grid_of(x)
    return ct_stored(q, step), y, step


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
    for by, name in ((2.0 * 1.015, 2.0), (2.0 * 1.03, 2.06), (1.5, 1.5), (-0.5 * 1.03, -0.515), (-0.5 * 1.015, -0.5)):
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
    for by, way, right in ((1, "large", "1 less"), (-1, "small", "1 more"), (2, "large", "that undone"), (-2, "small", "that undone")):
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
    assert found.fit.relative == pytest.approx(fit_of(x, y, step)[1], rel=0.02)  # its scale is rounded to bfloat16
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
    assert found.vector.tolist() == pytest.approx([1.0 if abs(1 / f - 1) <= 0.02 else f for f in every[:, 0].tolist()], rel=1e-4)
    for other in (x, x * 1.01, x[:3] * every[:3], x[:, :15] * every):
        s = suspect(tmp_path / f"{other.shape}{float(other[0, 0])}", {W: other}, x[: len(other), : other.shape[1]], "")
        assert not list(numbers.factor_per_row(s))
    s = suspect(tmp_path / "least", {W: x[:4, :16] * every[:4]}, x[:4, :16], "")
    assert [e.facts["rows"] for e in numbers.factor_per_row(s)] == [4]
    noise = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(8)) * 0.5 * x.abs().mean(1, keepdim=True)
    assert not list(numbers.factor_per_row(suspect(tmp_path / "noise", {W: x + noise}, x, "")))


def test_factors_of_columns(tmp_path):
    x = weight()
    by = torch.ones(1, COLUMNS)
    by[0, 9], by[0, 30] = 0.5, -4.0
    s = suspect(tmp_path / "some", {W: x * by}, x, "")
    one, both = numbers.factor_per_column(s)
    assert (one.facts["columns"], one.facts["of"]) == (2, COLUMNS)
    assert (one.facts["low"], one.facts["high"]) == pytest.approx((0.5, 4.0), rel=1e-4)
    assert one.vector.tolist() == pytest.approx(by[0].tolist(), rel=1e-4)
    assert one.fit.relative < 1e-6
    many = torch.linspace(0.5, 3, COLUMNS)[None]
    stored, y, step = sound(x * many)
    s = suspect(tmp_path / "steps", stored, x)
    steps, relative = fit_of(x * many, y, step)[0], fit_of(x, y / many, step)[1]
    for found in numbers.factor_per_column(s):
        assert (found.fit.steps, found.fit.relative) == pytest.approx((steps, relative), rel=0.06)
        assert (found.vector / many[0]).tolist() == pytest.approx([1.0] * COLUMNS, rel=0.1)
    rows = torch.linspace(0.5, 2, ROWS)[:, None]
    s = suspect(tmp_path / "both", {W: x * by.abs() * rows}, x, "")
    one, both = numbers.factor_per_column(s)
    assert one.kind == "column_factors"
    assert one.fit.relative > 0.1
    assert both.kind == "row_and_column_factors"
    assert both.fit.relative < 0.002
    ratio = both.vector / both.vector[0]
    assert ratio.tolist() == pytest.approx(by.abs()[0].tolist(), rel=0.01)
    assert both.complexity == COMPLEXITY[both.kind]
    for other in (x, x * 1.01, x[:15] * by, x[:, :3] * rows):
        s = suspect(tmp_path / f"{other.shape}{float(other[0, 0])}", {W: other}, x[: len(other), : other.shape[1]], "")
        assert not list(numbers.factor_per_column(s))
    s = suspect(tmp_path / "least", {W: x[:16, 8:12] * by[:, 8:12]}, x[:16, 8:12], "")
    assert [e.facts["columns"] for e in numbers.factor_per_column(s)] == [1, 1]


def test_factors_of_blocks(tmp_path):
    x = weight()
    q, y, step = grid_of(x)
    by = torch.ones(ROWS, COLUMNS // GROUP)
    by[5, 2], by[30, 0], by[31, 0] = 0.5, 2.0, 8.0
    q[6, :GROUP], y[6, :GROUP] = 0, 0  # of which no factor is known
    s = suspect(tmp_path / "some", ct_stored(q, step * by.repeat_interleave(GROUP, 1)), x)
    (found,) = numbers.factor_per_block(s)
    facts = found.facts
    assert (facts["blocks"], facts["of"], facts["first"]) == (3, by.numel(), (5, 2))
    assert (facts["low"], facts["high"]) == pytest.approx((0.5, 8.0), rel=0.03)
    assert found.fit.relative == pytest.approx(fit_of(x, y, step)[1], rel=0.02)
    assert found.fit.steps == pytest.approx(fit_of(x, y, step)[0], rel=0.02)
    for changed, count in ((by * 0 + 2, 0), (by * 0 + 1.1, 0), (torch.where(torch.arange(by.numel()).reshape(by.shape) < 20, 1.0, 2.0), 1)):
        s = suspect(tmp_path / f"{float(changed[0, 0])}{count}", ct_stored(q, step * changed.repeat_interleave(GROUP, 1)), x)
        assert len(list(numbers.factor_per_block(s))) == count
    assert not list(numbers.factor_per_block(suspect(tmp_path / "plain", {W: x * 2}, x, "")))
    one = suspect(tmp_path / "one", releases.ct_int4(M, 2 * x[:, :GROUP]), x[:, :GROUP])
    assert not list(numbers.factor_per_block(one))


# Others


def of_layers(folder, change, name="ct_int4", count=5, original=None):
    """The weight of layer 1 of several, with what is stored changed, and its siblings as peers."""
    names = [W.replace(".1.", f".{i}.") for i in range(count)]
    weights = {n: weight(seed=10 + i) for i, n in enumerate(names)}
    stored = {}
    for n, w in weights.items():
        stored |= WRITERS[name][0](n.removesuffix(".weight"), w)
    change(stored)
    release = open_checkpoint(save(folder / "release", stored, WRITERS[name][1]))
    source = open_checkpoint(save(folder / "original", weights | (original or {})))
    tensor = release.tensors[W]
    ordered = Ordered(source.tensors[W], tensor.shape)
    measure, rows = measure_of(tensor, ordered), slice(0, tensor.shape[0])
    measure.add(ordered.read(rows), tensor.layout.values(rows, rounded=False), rows, tensor.layout.codes(rows))
    peers = {n: n for n in names if n != W}
    return weights[W], Suspect(
        tensor, ordered, measure.done(), release, source, peers, peers | {W: W}, math.nan, math.nan, 0, False
    )


THIRD = M.replace(".1.", ".3.")


def test_scales_of_another_weight(tmp_path):
    def copied(stored):
        stored[f"{M}.weight_scale"] = stored[f"{THIRD}.weight_scale"]

    x, s = of_layers(tmp_path / "copied", copied)
    _, y, step = sound(x)
    found = same(others.scales_of_another(s), "scales_of_another", pytest.approx(fit_of(x, y, step), rel=0.03), other=f"{THIRD}.weight")
    assert found.facts["equal"] is True

    def exchanged(stored):
        a, b = f"{M}.weight_scale", f"{THIRD}.weight_scale"
        stored[a], stored[b] = stored[b], stored[a]

    x, s = of_layers(tmp_path / "exchanged", exchanged)
    found = list(others.scales_of_another(s))
    same(found, "scales_exchanged", fit_of(x, y, step), other=f"{THIRD}.weight", equal=False)
    assert {e.facts["other"] for e in found} == set(s.peers)


def test_zero_points_of_another_weight(tmp_path):
    def exchanged(stored):
        a, b = f"{M}.qzeros", f"{THIRD}.qzeros"
        stored[a], stored[b] = stored[b], stored[a]

    x, s = of_layers(tmp_path, exchanged, "awq")
    _, y, step = sound(x, "awq")
    same(others.zero_points_of_another(s), "zero_points_exchanged", fit_of(x, y, step), other=f"{THIRD}.weight")
    _, s = of_layers(tmp_path / "ct", lambda stored: None)
    assert not list(others.zero_points_of_another(s))


def test_values_and_codes_of_another_weight(tmp_path):
    def whole(stored):
        for last in ("weight_packed", "weight_scale"):
            stored[f"{M}.{last}"] = stored[f"{THIRD}.{last}"]

    _, s = of_layers(tmp_path / "whole", whole)
    z = weight(seed=13)
    _, y, step = sound(z)
    (found,) = others.whole_of_another(s)
    assert found.facts == {"other": f"{THIRD}.weight", "original": W}
    assert found.fit.relative == pytest.approx(fit_of(z, y, step)[1], rel=1e-5)
    (found,) = others.codes_of_another(s)
    assert (found.kind, found.facts, found.fit) == ("codes_of_another", {"other": f"{THIRD}.weight"}, s.now)
    _, s = of_layers(tmp_path / "sound", lambda stored: None)
    assert not list(others.whole_of_another(s))
    assert not list(others.codes_of_another(s))


# What explains


@pytest.mark.parametrize(
    ("what", "fit", "explains"),
    [
        # of a plain weight: no more than rounding, and half of before
        ("plain", Fit(0, 1e-7), True), ("plain", Fit(0, 1e-6), True), ("plain", Fit(0, 2e-6), False),
        # of codes with steps: about as near as rounding to nearest, and less than before
        ("codes", Fit(1.0, 0.1), True), ("codes", Fit(1.0, 0.95), False), ("codes", Fit(1.4, 0.5), True),
        ("codes", Fit(2.5, 0.1), False), ("codes", Fit(1.7, 0.5), True), ("codes", Fit(1.7, 0.75), False),
        # beside siblings: their error
        ("siblings", Fit(1.0, 0.14), True), ("siblings", Fit(1.0, 0.16), False), ("siblings", Fit(1.7, 0.1), True),
        ("siblings", Fit(2.0, 0.1), False),
    ],
)  # fmt: skip
def test_what_explains_an_error(what, fit, explains, tmp_path):
    """Before: a relative error of 1, a median |error| twice that of rounding to nearest."""
    x = weight()
    s = suspect(tmp_path, {W: 2 * x} if what == "plain" else sound(x)[0], x, "" if what == "plain" else "ct_int4")
    if what == "siblings":  # whose errors are twice those of rounding to nearest
        s = replace(s, normal=2.0, usual=0.1)
    s.__dict__["now"] = Fit(2.0, 1.0)
    assert s.explains(fit) is explains


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
    assert s.improves(Fit(s.now.steps, 0.99 * s.now.relative))
    assert not s.improves(Fit(s.now.steps, 0.999 * s.now.relative))
    assert s.improves(Fit(1.04 * s.now.steps, 0.9 * s.now.relative))
    assert not s.improves(Fit(1.06 * s.now.steps, 0.9 * s.now.relative))


# Places


@pytest.mark.parametrize(
    ("name", "role", "bits"),
    [
        ("gptq_v2_4bit_g128_sym", "scale", 16), ("ct_int4_sym_g128", "scale", 16), ("ct_fp8_channel", "scale", 16),
        ("ct_mxfp4", "scale_code", 8), ("ct_nvfp4", "scale_code", 8), ("gguf_legacy", "d", 16), ("bnb_int8", "scale", 32),
    ],
)  # fmt: skip
def test_what_a_flipped_bit_of_a_scale_does(name, role, bits, tmp_path):
    """Flipped in the file and read again, the scale is larger by the factor that is predicted for the flip."""
    given = case(name)
    checkpoint = open_checkpoint(given.release)
    weight = next(n for n, t in checkpoint.tensors.items() if t.is_quantized and len(t.shape) == 2)
    tensor = checkpoint.tensors[weight]
    row, start = 5, 32 if tensor.layout.blocks.block[-1] == 32 else 0
    original = Ordered(tensor, tensor.shape)
    run = places.Lines(tensor, original, measure_of(tensor, original)).run(row, start)
    found = {bit: factor for factor, bit in places._flips(run)}
    place = tensor.layout.locate((row, start)).parameters[role]
    assert len(place.bits) == bits
    now = float(Grid(tensor.layout).scales(slice(row, row + 1))[0, start])
    for bit in range(bits):
        other = flipped(given, place, bit, tmp_path).tensors[weight]
        then = float(Grid(other.layout).scales(slice(row, row + 1))[0, start])
        if then and math.isfinite(then):
            assert found[bit] == pytest.approx(then / now, rel=1e-6), bit
        else:
            assert bit not in found


def wrong_at(folder, stored, x, name="ct_int4"):
    s = suspect(folder, stored, x, name)
    lines = places.Lines(s.tensor, s.original, s.measure)
    return s, lines, *places.wrong_runs(lines)


def run_errors(x, before, after, row, cut):
    power = float((x[row, cut] ** 2).sum())
    return [math.sqrt(float(((x - y)[row, cut] ** 2).sum()) / power) for y in (before, after)]


def test_a_scale_that_is_wrong(tmp_path):
    """Its run, the factor, the bit if it is one, and the errors before and after."""
    x = weight()
    q, y, step = grid_of(x)
    for by in (2.0, 0.25, 1.5, -1.0, 16.0):
        wrong = step.clone()
        wrong[20, 64:96] *= by
        wrong = wrong.bfloat16().float()
        _, lines, explained, left = wrong_at(tmp_path / f"{by}", ct_stored(q, wrong), x)
        (place,) = explained
        assert not left
        assert (place.row, place.column, place.stop, place.what) == (20, 64, 96, "scale")
        assert place.factor == pytest.approx(by, rel=0.02)
        bits = [int(t[20, 64].bfloat16().view(torch.int16)) & 0xFFFF for t in (step, wrong)]
        changed = bits[0] ^ bits[1]
        assert place.bit == (changed.bit_length() - 1 if changed.bit_count() == 1 else -1)
        before, after = run_errors(x, q * wrong, y, 20, slice(64, 96))
        assert place.before == pytest.approx(before, rel=1e-5)
        assert place.after == pytest.approx(after, rel=1e-4 if place.bit >= 0 else 0.05)
        assert (lines.start_of(64), lines.start_of(95), lines.start_of(96)) == (64, 64, 96)
        run = lines.run(20, 64)
        assert run.columns.tolist() == list(range(64, 96))
        assert run.power == pytest.approx(float((x[20, 64:96] ** 2).sum()), rel=1e-5)
        assert run.error(run.y) == pytest.approx(float(((x - q * wrong)[20, 64:96] ** 2).sum()), rel=1e-4)


def test_a_zero_point_that_is_wrong(tmp_path):
    x = weight()
    q, z, step = awq_of(x)
    for by in (1, -2, 3):
        wrong = z.clone()
        wrong[20, 64:96] += by
        _, _, explained, _ = wrong_at(tmp_path / f"{by}", awq_stored(q, wrong, step), x, "awq")
        (place,) = explained
        assert (place.row, place.column, place.stop, place.what, place.factor) == (20, 64, 96, "zero point", by)
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
    (finding,) = said.of_codes_and_runs(s.measure, s.tensor)
    assert finding.kind == "code_impossible"
    steps = float((x - wrong * step).abs()[7, 33] / step[7, 33])
    assert finding.facts == {
        "elements": 1, "row": 7, "column": 33, "code": int(wrong[7, 33]) & 15, "nearest": int(q[7, 33]) & 15, "bit": 0,
        "steps": pytest.approx(steps, rel=1e-4),
    }  # fmt: skip


def test_runs_that_nothing_explains(tmp_path):
    """Zeroed, or no longer like the original; what hardly matters is left."""
    x = weight()
    q, y, step = grid_of(x)
    zero = q.clone()
    zero[9, 32:64], zero[30, 96:] = 0, 0
    s, *_ = wrong_at(tmp_path / "zero", ct_stored(zero, step), x)
    (finding,) = [f for f in said.of_codes_and_runs(s.measure, s.tensor) if f.kind == "zeroed"]
    assert finding.facts == {"runs": 2, "row": 9, "first": 32, "last": 63}
    noise = q.clone()
    generator = torch.Generator().manual_seed(4)
    noise[12, 32:64] = torch.randint(-8, 8, (32,), generator=generator).float()
    _, _, _, left = wrong_at(tmp_path / "noise", ct_stored(noise, step), x)
    assert [(p.row, p.column, p.what) for p, _ in left] == [(12, 32, "")]
    assert left[0][0].before == pytest.approx(run_errors(x, noise * step, y, 12, slice(32, 64))[0], rel=1e-4)


LEAKS = {"Q4_K": 32, "Q5_K": 32, "Q4_0": 16, "Q4_1": 16, "Q5_0": 16, "Q5_1": 16, "Q8_0": 0, "Q6_K": 0}


@pytest.mark.parametrize("kind", LEAKS)
def test_where_bits_leak_to(kind, tmp_path):
    """The columns that share their bytes with those before them, by the blocks of ggml-common.h."""
    model = {n: w for n, w in releases.model().items() if "mlp.down_proj" in n}
    release = open_checkpoint(releases.save_gguf(tmp_path / "m.gguf", model, kind))
    layout = next(t.layout for t in release.tensors.values() if t.is_quantized)
    rows, size = layout.shape[0], LEAKS[kind] or 16
    parity = np.arange(layout.shape[1]) // size % 2
    for odd, even, worse in ((5.0, 1.0, "odd"), (1.0, 5.0, "even"), (2.25, 1.0, "odd"), (1.875, 1.0, ""), (1.0, 1.0, ""), (0.0, 0.0, "")):
        found = leak_of(layout, np.where(parity == 1, odd, even) * rows)
        assert (found is not None) is bool(worse and LEAKS[kind])
        if found is not None:
            assert (found.worse, found.large, found.small) == (worse, max(odd, even), min(odd, even))
            assert found.what == ("sub-blocks" if size == 32 else "halves of blocks")
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
            assert (found.what, found.worse, found.large, found.small) == ("columns", "odd", 5.0, 1.0)
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
    (finding,) = said.of_codes_and_runs(s.measure, s.tensor)
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
    (finding,) = said.of_codes_and_runs(s.measure, s.tensor)
    assert (finding.facts["runs"], finding.facts["rows"]) == (2, 1)
    assert "2 blocks of row 20" in finding.sentence
    wrong[20, 32:64] /= 2
    s = suspect(tmp_path / "two causes", ct_stored(q, wrong), x)
    assert [f.facts["factor"] for f in said.of_codes_and_runs(s.measure, s.tensor)] == pytest.approx([3.0, 1.5], rel=0.03)
    q, z, step = awq_of(x)
    off = z.clone()
    off[20, 64:96] += 2
    s = suspect(tmp_path / "zero", awq_stored(q, off, step), x, "awq")
    (finding,) = said.of_codes_and_runs(s.measure, s.tensor)
    assert (finding.kind, finding.facts["steps"], finding.facts["first"], finding.facts["last"]) == ("zero_point_wrong", 2, 64, 95)
    assert "row 20, columns 64 to 95" in finding.sentence


# Plain weights


def of_values(folder, y, x, alone=True, scaled=None, **more):
    s = suspect(folder, {W: y}, x, "", **more)
    return plain.of_plain(s, None, alone, scaled or {})


def test_what_converters_do_on_purpose(tmp_path):
    """1 added to or taken from norms; the negative exponential of GGUF's A_log."""
    x = 0.1 * weight()[0]
    for by, sign in ((1, "plus"), (-1, "minus")):
        (finding,) = of_values(tmp_path / sign, x + by, x)
        assert (finding.kind, finding.severity, finding.facts["sign"]) == ("plus_one", "note", sign)
        before = float(1 / (x.double() ** 2).mean().sqrt())
        assert finding.facts["before"] == pytest.approx(before, rel=1e-5)
        assert finding.facts["after"] < 1e-4
    (finding,) = of_values(tmp_path / "2", x + 2, x)
    assert finding.kind != "plus_one"
    (finding,) = of_values(tmp_path / "matrix", weight() + 1, weight())
    assert finding.kind != "plus_one"
    (finding,) = of_values(tmp_path / "half", (x + 1).bfloat16(), x)
    assert finding.kind == "plus_one"
    (finding,) = of_values(tmp_path / "off", (x + 1).bfloat16() + (torch.arange(COLUMNS) == 5), x)
    assert finding.kind != "plus_one"
    for differs, kind in ((True, "negative_exponential"), (False, "not_the_original")):
        (finding,) = of_values(tmp_path / f"exp {differs}", -x.exp(), x, gguf_differs=differs)
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
    facts = {"values": 2, "of": x.numel(), "largest": pytest.approx(largest), "first": at, "relative": pytest.approx(relative, rel=1e-5)}
    for alone, severity in ((True, "error"), (False, "note")):
        (finding,) = of_values(tmp_path / severity, y, x, alone)
        assert (finding.kind, finding.severity, finding.facts) == ("plain_differs", severity, facts)
    (finding,) = of_values(tmp_path / "far", 1.06 * x, x, False)
    assert finding.severity == "error"
    (finding,) = of_values(tmp_path / "near", 1.04 * x, x, False)
    assert finding.severity == "note"
    (finding,) = of_values(tmp_path / "vector", x[0] + (torch.arange(COLUMNS) == 9) * 0.001, x[0])
    assert finding.facts["first"] == (9,)
    (finding,) = of_values(tmp_path / "another", -1.5 * x, x)
    assert (finding.kind, finding.facts["relative"]) == ("not_the_original", pytest.approx(2.5))


def test_factors_that_cancel(tmp_path):
    """Products are constant, but for the noise of estimates; of Gemma's norms, those of 1 + weight."""
    generator = torch.Generator().manual_seed(6)
    by = torch.exp(0.5 * torch.randn(COLUMNS, generator=generator))
    noise = torch.exp(0.02 * torch.randn(COLUMNS, generator=generator))
    assert plain.undone(1 / by, by)
    assert plain.undone(3 / by * noise, by)
    assert not plain.undone(by, by)
    assert not plain.undone(torch.ones(COLUMNS), by)
    assert not plain.undone(1 / by[:5], by)
    assert not plain.undone(-1 / by, by)
    assert not plain.undone(1 / by, torch.exp(0.5 * torch.randn(COLUMNS, generator=generator)))
    x = 1 + 0.1 * torch.randn(COLUMNS, generator=generator)
    cause = numbers.Explained("column_factors", "", {}, Fit(0, 0), 3, vector=by)
    layer = W.replace("q_proj", "k_proj")
    for number, (y, old, scaled, kind) in enumerate((
        (x / by, x, {layer: cause}, "norm_scaled"), ((x / by) - 1, x - 1, {layer: cause}, "norm_scaled"),
        (x / by, x, {layer.replace(".1.", ".2."): cause}, "plain_differs"), (x * by, x, {layer: cause}, "plain_differs"),
        (x[:64] / by[:64], x[:64], {layer: cause}, "plain_differs"), (x / by * (torch.arange(COLUMNS) != 3), x, {layer: cause}, "plain_differs"),
    )):  # fmt: skip
        (finding,) = of_values(tmp_path / f"{number}", y, old, scaled=scaled)
        assert finding.kind in ({kind, "not_the_original"} if kind != "norm_scaled" else {kind}), number
        if kind == "norm_scaled":
            assert finding.facts["other"] == layer


def test_every_weight_is_judged(tmp_path):
    """One after the other, those that are quantized first."""
    _, s = of_layers(tmp_path, lambda stored: None)
    measures = {s.measure.name: s.measure}
    for name in s.peers:
        t, o = s.release.tensors[name], s.source.tensors[name]
        m = measure_of(t, Ordered(o, t.shape))
        rows = slice(0, ROWS)
        m.add(o.read(), t.layout.values(rows, rounded=False), rows, t.layout.codes(rows))
        measures[name] = m.done()
    found = list(judge(measures, s.release, s.source, Heads()))
    assert [(v.done, v.of) for v in found] == [(n, 5) for n in range(1, 6)]
    assert [v.findings for v in found] == [()] * 5


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
    ones = {f"{i}": global_scales._One(p / 448.0, False, (p,)) for i, p in enumerate((1.0, 2.0, 3.0, 5.0, 7.0))}
    assert constant(ones) == 448.0
    ones["shared"] = global_scales._One(9.0 / 448.0, False, (4.0, 9.0))
    assert constant(ones) == 448.0
    assert constant({n: global_scales._One(p / 447.3, False, (p,)) for n, p in (("a", 1.0), ("b", 2.0))}) == pytest.approx(447.3)


def test_which_weights_have_one_scale(tmp_path):
    x = weight()
    for name, has in (("nvfp4", True), ("mxfp4", False), ("ct_int8", False), ("fp8", False), ("ct_int4", False)):
        s = suspect(tmp_path / name, WRITERS[name][0](M, x), x, name)
        assert global_scales.has_one(s.layout) is has, name
    given = case("ct_fp8_tensor")
    layouts = [t.layout for t in open_checkpoint(given.release).tensors.values() if t.is_quantized]
    assert all(global_scales.has_one(layout) for layout in layouts)


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
        for hypothesis in dict.fromkeys((*causes.LOCAL, *causes.GLOBAL, *causes.OF_PLACES)):
            for e in hypothesis(s):
                assert e.complexity == complexity_of(e), e.kind
                assert 0 <= e.fit.relative < math.inf
                seen[e.kind] = True
    assert {"transposed", "sign_flipped", "code_bit", "code_format", "bytes_swapped", "rows_permuted", "row_factors", "column_factors"} <= seen.keys()


def test_the_simplest_cause_wins(tmp_path):
    """Of those that explain an error about equally well; none if nothing does."""
    x = weight(64, 64)
    assert causes.cause_of(suspect(tmp_path / "sign", {W: -x}, x, "")).kind == "sign_flipped"
    assert causes.cause_of(suspect(tmp_path / "half", {W: 2 * x}, x, "")).kind == "constant_factor"
    assert causes.cause_of(suspect(tmp_path / "t", {W: x.T.contiguous()}, x, "")).kind == "transposed"
    assert causes.cause_of(suspect(tmp_path / "rows", {W: x[permutation(64)]}, x, "")).kind == "rows_permuted"
    assert causes.cause_of(suspect(tmp_path / "columns", {W: x[:, permutation(64)]}, x, "")).kind == "columns_permuted"
    assert causes.cause_of(suspect(tmp_path / "other", {W: weight(64, 64, 9)}, x, "")) is None
    many = [Explained(kind, "", {}, Fit(1, relative), complexity)
            for kind, relative, complexity in (("a", 0.100, 3), ("b", 0.114, 1), ("c", 0.116, 0), ("d", 0.110, 1))]  # fmt: skip
    assert causes._simplest(many).kind == "d"
    assert causes._simplest(many[:1]).kind == "a"
    two = x.clone()
    two[[3, 9]] = two[[9, 3]]
    s = suspect(tmp_path / "two", releases.ct_int4(M, two), x)
    found = causes.cause_of_places(s)
    assert (found.kind, found.facts["moved"], found.facts["order"]) == ("rows_permuted", 2, "row 3 and row 9 exchanged")
    assert causes.cause_of_places(suspect(tmp_path / "sound", releases.ct_int4(M, x), x)) is None


def test_what_a_suspect_knows_of_its_siblings(tmp_path):
    """The median error of at least four others, in steps and relative; the number of heads of q."""
    _, s = of_layers(tmp_path, lambda stored: None, count=6)
    measures = {s.measure.name: s.measure}
    for name in s.peers:
        t, o = s.release.tensors[name], s.source.tensors[name]
        m, rows = measure_of(t, Ordered(o, t.shape)), slice(0, ROWS)
        m.add(o.read(), t.layout.values(rows, rounded=False), rows, t.layout.codes(rows))
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
    assert judgement.suspect(s.measure, others).normal == pytest.approx(np.median([m.bulk for m in others[1:]]))


def suits():
    """The first weight of each golden checkpoint whose codes are on a grid, of two axes."""
    for given in golden():
        tensors = open_checkpoint(given.release).tensors
        for name in given.record["tensors"]:
            t = tensors[name]
            if (t.is_quantized and len(t.shape) == 2 and Grid.suits(t.layout)) and t.layout.zero_point() is None and t.layout.min() is None:
                yield pytest.param(t, id=str(given))
                break


@pytest.mark.parametrize("tensor", suits())
def test_values_are_on_the_grid(tensor):
    """Scale times the value of the code: the values before they are rounded, where no zero point or min is added."""
    layout, rows = tensor.layout, slice(1, 7)
    grid, y = Grid(layout), layout.values(rows, rounded=False)
    shift = y - grid.scales(rows) * grid.table[grid.bits(layout.codes(rows))]
    assert float(shift.abs().max()) <= 1e-6 * float(y.abs().max())


# Runs


def lines_of(folder, stored, x, name="ct_int4"):
    s = suspect(folder, stored, x, name)
    return s, places.Lines(s.tensor, s.original, s.measure)


def scaled_run(run, by):
    """The run as it would be with another scale."""
    return replace(run, scale=run.scale * by, y=run.y * by, gap=run.gap * abs(by))


@pytest.mark.parametrize(("by", "said"), [(1.5, None), (2.0, 2.0), (0.25, 0.25), (2.2, 2.0), (2.6, None), (-2.0, -2.0), (1.1, 1.0), (1.01, "")])
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
    s, lines = lines_of(tmp_path, ct_stored(q, step), x)
    run = lines.run(20, 64)
    for model in (0, 1, 2):
        assert places._nearest(scaled_run(run, 1.5), run.y, run.gap, s.measure, model)
        assert not places._nearest(run, run.y, run.gap, s.measure, model)  # nothing was wrong
        assert not places._nearest(scaled_run(run, 1.5), run.y * 1.2, run.gap, s.measure, model)
    inner = ((run.value.abs() < 6) & ((run.x - run.y).abs() < 0.3 * run.gap)).nonzero().reshape(-1)
    for count, enough in ((2, False), (3, True)):
        off = run.y.clone()
        off[inner[:count]] += run.gap[inner[:count]]
        assert places._nearest(replace(run, y=off), run.y, run.gap, s.measure, 0) is enough
    off = run.y.clone()
    off[inner[:5]] += run.gap[inner[:5]]
    left = run.y.clone()
    left[inner[0]] += run.gap[inner[0]]
    assert not places._nearest(replace(run, y=off), left, run.gap, s.measure, 0)
    ends = run.value == run.value.max()  # clipping may leave more there
    clipped = torch.where(ends, run.y - run.gap, run.y)
    assert places._nearest(replace(run, y=off), clipped, run.gap, s.measure, 0)
    # a tolerance in proportion to the code, for scales that were rounded: 7 · 2^-7.5 of a step, not 2^-20
    near = run.y + 0.49 * run.gap * (run.x - run.y).sign()
    almost = replace(run, x=near + 0.02 * run.gap * (near - run.y).sign(), y=run.y + 2 * run.gap)
    assert [places._nearest(almost, run.y, run.gap, s.measure, m) for m in (0, 1, 2)] == [False, True, True]


@pytest.mark.parametrize(("factor", "is_power"), [(1.0, True), (0.5, True), (-4.0, True), (3.0, False), (0.75, False), (1.001, False)])
def test_powers_of_two(factor, is_power):
    assert places._is_power(factor) is is_power


def test_the_middle_of_numbers():
    assert places._median(torch.tensor([3.0, 1.0, math.nan, 2.0, math.inf])) == 2
    assert places._median(torch.tensor([math.nan])) == 0


def test_runs_with_a_min(tmp_path):
    """Q4_1: a scale or a min that is wrong, and neither the other."""
    given, name = case("gguf_legacy"), "blk.0.attn_output.weight"
    tensor = open_checkpoint(given.release).tensors[name]
    codes, scale, least = (given.expected[f"{name}|{role}"].astype(np.float64) for role in ("codes", "scale", "min"))
    scale, least = (np.repeat(t, 32, 1) for t in (scale, least))
    noise = np.random.default_rng(5).uniform(-0.5, 0.5, codes.shape) * np.abs(scale)
    for what, by in (("scale", 1.5), ("min", 1.5), ("scale", 0.6), ("min", 0.5), ("", 1.0)):
        f, g = np.ones_like(scale), np.ones_like(scale)
        (f if what == "scale" else g)[7, 64:96] = by
        x = torch.from_numpy(codes * scale * f + least * g + noise).float()
        source = open_checkpoint(save(tmp_path / f"{what}{by}", {W: x}))
        original, rows = Ordered(source.tensors[W], tensor.shape), slice(0, tensor.shape[0])
        measure = measure_of(tensor, original)
        measure.add(x, tensor.layout.values(rows, rounded=False), rows, tensor.layout.codes(rows))
        lines = places.Lines(tensor, original, measure.done())
        run = lines.run(7, 64)
        assert torch.allclose(run.shift, torch.from_numpy(least[7, 64:96]).float(), rtol=1e-4)
        explained, _ = places.wrong_runs(lines)
        assert [(p.row, p.column, p.what) for p in explained if (p.row, p.column) == (7, 64)] == [(7, 64, what)] * bool(what)
        if what:
            (place,) = [p for p in explained if (p.row, p.column) == (7, 64)]
            assert place.factor == pytest.approx(1 / by, rel=0.1)
            changes = {c[0] for c in places._changes(run)}
            assert what in changes
            assert "zero point" not in changes
            for kind, factor, values, gap, bit in places._changes(run):
                wanted = run.scale * run.value / (factor if kind == "scale" else 1) + run.shift / (factor if kind == "min" else 1)
                assert torch.allclose(values, wanted, rtol=1e-4, atol=1e-5)
                assert torch.allclose(gap, run.gap / abs(factor if kind == "scale" else 1), rtol=1e-4), bit


def test_runs_that_are_too_short_or_have_no_scale(tmp_path):
    x = weight()
    q, _, step = grid_of(x)
    s, lines = lines_of(tmp_path, ct_stored(q, step), x)
    wrong = scaled_run(lines.run(20, 64), 2.0)
    assert places._place_of(wrong, s.measure, 1.0, None).what == "scale"
    for n, what in ((6, "scale"), (5, "")):
        short = replace(wrong, **{k: getattr(wrong, k)[:n] for k in ("columns", "x", "y", "scale", "value", "gap")})
        assert places._place_of(short, s.measure, 1.0, None).what == what
    dead = replace(wrong, scale=torch.where(torch.arange(32) == 3, 0.0, wrong.scale))
    place = places._place_of(dead, s.measure, 1.0, None)
    assert (place.what, place.factor, place.bit, place.after) == ("", 1.0, -1, math.inf)
    assert (place.row, place.column, place.stop) == (20, 64, 96)
