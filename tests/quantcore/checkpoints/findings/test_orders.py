"""Hypotheses about the order of codes, rows, columns and groups: what they claim is what was done."""

import math
from dataclasses import replace

import numpy as np
import pytest
import releases
import torch
from checkpoint_cases import case
from grid import for_each
from parts import some
from releases import save
from suspects import (
    COLUMNS,
    COMPLEXITY,
    GROUP,
    ROWS,
    M,
    W,
    awq_of,
    awq_stored,
    ct_stored,
    fit_of,
    grid_of,
    permutation,
    same,
    suspect,
    weight,
)

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings.against import orders
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.suspect import Suspect
from quantcore.checkpoints.findings.walk import Ordered

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
            found[f"with even and odd ones separated in runs of {size}"] = each(
                n, size, back(even_first(size))
            )
    if n % 8 == 0:
        for name in ("0 4 1 5 2 6 3 7", "0 2 4 6 1 3 5 7"):
            found[name] = each(n, 8, back([int(i) for i in name.split()]))
    return found


@for_each("n", [1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 64, 96, 128, 256, 320, 512])
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


@for_each(("file", "likely", "wanted"), NAMED)
def test_names_of_orders(file, likely, wanted):
    assert orders.order_of(torch.tensor(back(file)), likely) == wanted


@for_each(
    ("n", "most", "wanted"), [(5, 8, range(5)), (8, 8, range(8)), (9, 3, (0, 4, 8)), (1, 4, (0,))]
)
def test_rows_spread_evenly(n, most, wanted):
    assert orders.evenly(n, most).tolist() == list(wanted)


def test_rows_that_are_matched():
    """Each row finds its own; those that are alike stay, or take what is left."""
    x = weight(40, 24)
    places = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    y = torch.empty_like(x)
    y[places] = x
    for noise in (0.001, 0.8):  # and where a row and its own are hardly alike
        assert torch.equal(
            orders._matches(
                y + noise * x.std() * torch.randn(40, 24, generator=torch.Generator().manual_seed(2)), x
            ),
            places,
        )
    assert orders._matches(x, x) is None
    assert orders._matches(weight(40, 24, 77), x) is None
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
    for most, stop in (
        (1, 1),
        (2 * COLUMNS - 1, 1),
        (2 * COLUMNS, 2),
        (ROWS * COLUMNS - 1, ROWS - 1),
        (1 << 24, ROWS),
    ):
        cut = replace(s, most=most)
        assert (cut.rows, cut.is_whole) == (slice(0, stop), stop == ROWS)
        assert cut.x.shape == cut.y.shape == cut.step.shape == (stop, COLUMNS)
    narrow = suspect(tmp_path / "narrow", {W: weight(8, 1)}, weight(8, 1), "")
    assert replace(narrow, most=3).rows == slice(0, 3)
    stack = suspect(tmp_path / "stack", {W: weight(8, 6).reshape(4, 2, 6)}, weight(8, 6).reshape(4, 2, 6), "")
    assert replace(stack, most=24).rows == slice(0, 2)
    assert replace(stack, most=24).x.shape == (4, 6)


def test_transposed(tmp_path):
    x = weight(64, 64)
    q, y, step = grid_of(x.T)
    s = suspect(tmp_path, ct_stored(q, step), x)
    same(list(orders.transposed(s))[:1], "transposed", fit_of(x.T, y, step))
    assert not list(orders.transposed(replace(s, most=63 * 64)))
    q, y, step = grid_of(x)
    (_, codes) = orders.transposed(suspect(tmp_path / "codes", ct_stored(q.T, step), x))
    same([codes], "codes_transposed", fit_of(x, y, step))
    stack = torch.stack([x, weight(64, 64, 5)])
    s = suspect(tmp_path / "plain", {W: stack.mT.contiguous()}, stack, "")
    (found,) = orders.transposed(s)
    assert found.fit.relative == 0
    for shape in ((64,), (48, 64)):
        s = suspect(tmp_path / str(shape), {W: torch.ones(shape)}, torch.ones(shape), "")
        assert not list(orders.transposed(s))


@for_each(
    "order", some(["with the two halves swapped", "reversed in runs of 8", "swapped in pairs"], 2)
)
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
        s = suspect(
            tmp_path / f"awq {zeros}", awq_stored(q[of(ROWS)], z[of(ROWS)] if zeros else z, step), x, "awq"
        )
        which = "codes and zero points" if zeros else "codes"
        same(orders.rows_of_words(s), "codes_permuted", fit, order=order, axis="rows", which=which)
        assert {e.facts["which"] for e in orders.codes_in_words(s)} == {"codes"}


@for_each("order", ["0 4 1 5 2 6 3 7", "0 2 4 6 1 3 5 7"])
def test_an_interleave_that_was_forgotten(order, tmp_path):
    x = weight()
    file = [start + i for start in range(0, ROWS, 8) for i in map(int, order.split())]
    q, z, step = awq_of(x)
    s = suspect(tmp_path / "awq", awq_stored(q[file], z[file], step), x, "awq")
    found = same(
        orders.rows_of_words(s), "awq_order", fit_of(x, (q - z) * step, step), order=order, axis="rows"
    )
    assert found.facts["of"] == "output channels"
    assert "AWQ's interleave" in found.words
    q, y, step = grid_of(x)
    file = [start + i for start in range(0, COLUMNS, 8) for i in map(int, order.split())]
    s = suspect(tmp_path / "ct", ct_stored(q[:, file], step), x)
    found = same(
        orders.codes_in_words(s), "awq_order", fit_of(x, y, step), order=order, axis="columns", of="columns"
    )
    assert "AWQ's interleave" not in found.words
    rows = [start + i for start in range(0, ROWS, 8) for i in map(int, order.split())]
    s = suspect(tmp_path / "values", ct_stored(q[rows], step[rows]), x)
    same(
        orders.rows_in_another_order(s),
        "awq_order",
        fit_of(x, y, step),
        order=order,
        moved=ROWS * 3 // 4,
        of=ROWS,
    )


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
    assert {key for key, share in kinds.items() if share} == {
        (n, "columns") for n in ("gptq", "ct_int4", "mxfp4", "nvfp4")
    }


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
        found = same(
            list(orders.rows_in_another_order(s))[number : number + 1], kind, fit, moved=moved, of=ROWS
        )
        first = next(i for i in range(ROWS) if int(places[i]) != i)
        assert found.facts["order"] == f"row {first} is row {int(places[first])} of the original"
    heads = torch.tensor(llama(ROWS, 4))
    q, y, step = grid_of(x)
    for order, file in (("pairs", heads), ("halves", heads.argsort())):
        s = suspect(tmp_path / order, ct_stored(q[file], step[file]), x)
        found = same(
            orders.rows_in_another_order(s), "rows_permuted", fit_of(x, y, step), order=order, heads=4
        )
        said = {"pairs": "the two halves interleaved", "halves": "the even rows before the odd ones"}
        assert said[order] in found.words


def test_columns_in_another_order(tmp_path):
    """Columns with their scales; codes without: each place keeps its own scale and zero point."""
    x, places = weight(), permutation(COLUMNS)
    moved = int((places != torch.arange(COLUMNS)).sum())
    other = x[:, places]
    q, y, step = grid_of(other)
    s = suspect(tmp_path / "columns", ct_stored(q, step), x)
    found = same(
        orders.columns_in_another_order(s),
        "columns_permuted",
        fit_of(other, y, step),
        moved=moved,
        of=COLUMNS,
    )
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
    for differs, heads, legitimate in (
        (True, 4, True),
        (False, 4, False),
        (True, 2, False),
        (True, 0, False),
    ):
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
    assert found.complexity == COMPLEXITY["g_idx_wrong"]
    # codes are stored in the order of their groups
    stored |= {f"{M}.qweight": releases.words((q + 8).T, 0), f"{M}.g_idx": index.int()}
    s = suspect(tmp_path / "sorted", stored, x[:, order], "gptq_desc_act")
    (found,) = orders.groups_of_columns(s)
    assert "in the order of their groups" in found.words
    q, z, step = awq_of(x[:, order])
    s = suspect(tmp_path / "awq", awq_stored(q[:, back_to], z, step), x, "awq")
    found = same(
        orders.groups_of_columns(s),
        "g_idx_wrong",
        fit_of(x, ((q - z) * step)[:, back_to], step[:, back_to]),
        **facts,
    )
    assert "by their order" in found.words
    sound = suspect(tmp_path / "sound", releases.ct_int4(M, x), x)
    assert not list(orders.groups_of_columns(sound))


def test_columns_of_other_groups_with_a_min(tmp_path):
    """Q4_1: each group has a scale and a min."""
    given, name = case("gguf_legacy"), "blk.0.attn_output.weight"
    release = open_checkpoint(given.release)
    codes, scale, least = (
        given.expected[f"{name}|{role}"].astype(np.float64) for role in ("codes", "scale", "min")
    )
    size = codes.shape[1] // scale.shape[1]
    now = np.arange(codes.shape[1]) // size
    other = now.copy()
    other[[2, size + 3]] = other[[size + 3, 2]]
    x = torch.from_numpy(codes * scale[:, other] + least[:, other]).float()
    source = open_checkpoint(save(tmp_path, {W: x}))
    tensor = release.tensors[name]
    original = Ordered(source.tensors[W], tensor.shape)
    s = Suspect(Measure(tensor.layout, original), release, source, {}, {}, math.nan, math.nan, 0, False)
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
    assert (found.fit.steps, found.fit.relative) == pytest.approx(
        fit_of(x[:, order], own * value, own * gap), rel=1e-5
    )
