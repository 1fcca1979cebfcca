"""What a map shows, compared with a search through all elements."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from grid import for_each

import quantcore as qc
from quantcore.analysis.views import MAX_CELLS, View, element, map_data, place
from quantcore.granularity.kinds import cells_of

SCHEMES = (
    "int4 symmetric per_tensor min_max textbook",
    "uint4 asymmetric per_channel(0) percentile(80) textbook",
    "int8 symmetric per_group(9) min_mse torchao",
    "int2 asymmetric per_block([4,9]) min_max textbook",
)
INT4 = qc.Scheme(qc.INT4, False, range_setting=qc.Percentile(95))


def randn(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2


def with_granularity(granularity):
    return dataclasses.replace(INT4, granularity=granularity)


def check_cells(result, data, view, rows, columns, step):
    """Each cell of a map shows the largest or worst element of its box, with the right numbers."""
    shape = tuple(result.x.shape)
    x, codes, x_hat, error = (t.numpy() for t in (result.x, result.codes, result.dequantized, result.error))
    scale = cells_of(result.scale, shape, result.block).numpy()
    zero_point = cells_of(result.zero_point, shape, result.block).numpy()
    assert (data.rows, data.columns, data.step) == (rows, columns, step)
    assert (data.worst is data.largest) == (step == (1, 1))
    for map_name in ("x", "codes", "dequantized", "error"):
        assert data.map(map_name) is getattr(data.of(map_name), map_name)
        # the original, codes and x̂ are reduced by |x| only, which no scheme changes
        assert data.of(map_name) is (data.worst if map_name == "error" else data.largest)
    for cells, by in ((data.largest, x), (data.worst, error)):
        check_map(cells, by, (x, codes, x_hat, error, scale, zero_point), view, rows, columns, step)


def check_map(cells, by, true, view, rows, columns, step):
    """Every cell has all numbers of the element of its box with the largest |by|."""
    shape = by.shape
    height, width = (-(-(stop - start) // s) for (start, stop), s in zip((rows, columns), step, strict=True))
    for name in ("x", "codes", "dequantized", "error", "scale", "zero_point", "row", "column"):
        array = getattr(cells, name)
        assert array.shape == (height, width)
        assert array.flags.c_contiguous
        whole = name in ("codes", "zero_point", "row", "column")
        assert array.dtype == (np.int32 if whole else np.float32)
    sizes = np.empty((rows[1] - rows[0], columns[1] - columns[0]))
    for r, c in np.ndindex(*sizes.shape):
        sizes[r, c] = abs(by[element(view, shape, r + rows[0], c + columns[0])])
    for i, j in np.ndindex(height, width):
        top, left = i * step[0], j * step[1]
        box = sizes[top : top + step[0], left : left + step[1]]
        row, column = int(cells.row[i, j]), int(cells.column[i, j])
        assert 0 <= row - rows[0] - top < box.shape[0]
        assert 0 <= column - columns[0] - left < box.shape[1]
        index = element(view, shape, row, column)
        assert abs(by[index]) == box.max()
        shown = (cells.x, cells.codes, cells.dequantized, cells.error, cells.scale, cells.zero_point)
        assert [a[i, j].item() for a in shown] == [t[index].item() for t in true]


@for_each(
    ("shape", "granularity", "view", "rows", "columns"),
    [
        ((), qc.PerTensor(), View(), (0, 1), (0, 1)),
        ((7,), qc.PerGroup(3), View(), (0, 1), (0, 7)),
        ((7,), qc.PerChannel(0), View(columns=(2, 5)), (0, 1), (2, 5)),
        ((6, 10), qc.PerGroup(4), View(), (0, 6), (0, 10)),
        ((6, 10), qc.PerBlock((4, 3)), View(rows=(1, 5), columns=(4, 10)), (1, 5), (4, 10)),
        ((6, 10), qc.PerGroup(4), View(rows=(0, 6), columns=(0, 10)), (0, 6), (0, 10)),
        ((6, 10), qc.PerGroup(4), View(rows=(5, 6), columns=(9, 10)), (5, 6), (9, 10)),
        ((3, 4, 5), qc.PerGroup(2), View(index=(0,), rows=(0, 1)), (0, 1), (0, 5)),
        ((6, 10), qc.PerChannel(0), View(axes=(1, 0)), (0, 10), (0, 6)),
        ((6, 10), qc.PerBlock((4, 3)), View(axes=(1, 0), rows=(3, 9), columns=(5, 6)), (3, 9), (5, 6)),
        ((3, 4, 5), qc.PerGroup(2), View(), (0, 4), (0, 5)),
        ((3, 4, 5), qc.PerBlock((2, 3, 2)), View(index=(2,)), (0, 4), (0, 5)),
        ((3, 4, 5), qc.PerBlock((2, 3, 2)), View(axes=(0, 2), index=(3,)), (0, 3), (0, 5)),
        ((3, 4, 5), qc.PerBlock((2, 3, 2)), View(axes=(2, 0), index=(3,)), (0, 5), (0, 3)),
        ((2, 3, 4, 5), qc.PerBlock((1, 2, 3, 4)), View(index=(1, 2)), (0, 4), (0, 5)),
        ((2, 3, 4, 5), qc.PerBlock((1, 2, 3, 4)), View(axes=(3, 0), index=(2, 1)), (0, 5), (0, 2)),
        ((2, 3, 4, 5), qc.PerTensor(), View(axes=(0, 1)), (0, 2), (0, 3)),
    ],
)
def test_plane_shown_element_by_element(shape, granularity, view, rows, columns):
    result = qc.apply(randn(shape, 1), with_granularity(granularity))
    data = map_data(result, view)
    check_cells(result, data, view, rows, columns, (1, 1))
    assert data.legend == ""


@for_each(
    ("shape", "granularity", "view", "rows", "columns", "step"),
    [
        ((257, 5), qc.PerChannel(0), View(), (0, 257), (0, 5), (2, 1)),
        ((3, 600), qc.PerGroup(7), View(), (0, 3), (0, 600), (1, 3)),
        ((600,), qc.PerGroup(7), View(), (0, 1), (0, 600), (1, 3)),
        ((600,), qc.PerTensor(), View(columns=(10, 500)), (0, 1), (10, 500), (1, 2)),
        pytest.param((300, 530), qc.PerBlock((7, 9)), View(), (0, 300), (0, 530), (2, 3), marks=pytest.mark.slow),
        ((6, 530), qc.PerTensor(), View(axes=(1, 0), rows=(5, 530)), (5, 530), (0, 6), (3, 1)),
        pytest.param((300, 530), qc.PerTensor(), View(axes=(1, 0), rows=(5, 530)), (5, 530), (0, 300), (3, 2), marks=pytest.mark.slow),
        ((2, 530, 3), qc.PerBlock((1, 4, 2)), View(index=(1,), rows=(1, 520)), (1, 520), (0, 3), (3, 1)),
    ],
)
def test_plane_reduced_to_the_largest_and_the_worst(shape, granularity, view, rows, columns, step):
    result = qc.apply(randn(shape, 2), with_granularity(granularity))
    data = map_data(result, view)
    check_cells(result, data, view, rows, columns, step)
    assert f"stands for {step[0]} × {step[1]} elements" in data.legend
    # one per block, which the browser looks up by the place of the element that a cell shows
    for cells in (data.largest, data.worst):
        block = (cells.row // data.block[0], cells.column // data.block[1])
        np.testing.assert_array_equal(data.scales[block], cells.scale)
        np.testing.assert_array_equal(data.zero_points[block], cells.zero_point)


def test_reduced_original_is_the_same_under_every_scheme():
    x = randn((300, 513), 3)
    seen = [map_data(qc.apply(x, qc.Scheme.parse(text))) for text in SCHEMES]
    for data in seen[1:]:
        for name in ("x", "row", "column"):
            np.testing.assert_array_equal(getattr(data.largest, name), getattr(seen[0].largest, name))
    # but the places of the errors differ
    assert len({data.worst.row.tobytes() for data in seen}) == len(seen)


@pytest.mark.filterwarnings("ignore:1 element becomes NaN")
def test_not_a_number_is_not_hidden():
    """NaN counts as the largest of its box, in the original and in the error map."""
    x = randn((512, 300), 4)
    x[100, 201] = torch.nan
    x[7, 8] = torch.inf
    data = map_data(qc.apply(x, qc.Scheme.parse("int8 symmetric per_tensor given(0.5) torch.fake_quantize")))
    for cells in (data.largest, data.worst):
        assert (cells.row[50, 100], cells.column[50, 100]) == (100, 201)
        assert (cells.row[3, 4], cells.column[3, 4]) == (7, 8)


@for_each("at", [(0, 0), (511, 1020), (512, 1021), (1100, 2047)])
def test_one_bad_element_of_many_is_shown(at):
    """The reduction works in bands of rows; it finds the worst element in any band, and in short last cells."""
    x = torch.zeros(1101, 2048)
    x[at] = 9.25
    data = map_data(qc.apply(x, qc.Scheme(range_setting=qc.Given(1.0))))
    assert data.step == (5, 8)
    for cells in (data.largest, data.worst):
        assert cells.x.shape == (221, 256)
        assert int((cells.error != 0).sum()) == int((cells.x != 0).sum()) == 1
        i, j = (int(n) for n in np.argwhere(cells.error)[0])
        assert (cells.error[i, j], cells.x[i, j], cells.codes[i, j]) == (0.25, 9.25, 9)
        assert (cells.row[i, j], cells.column[i, j]) == at
        assert (i, j) == (at[0] // 5, at[1] // 8)


def test_no_map_is_larger_than_the_limit():
    for shape in ((256, 256), (257, 512), (2000, 1), (1, 70_000)):
        data = map_data(qc.apply(randn(shape), qc.Scheme()))
        assert max(data.largest.x.shape) <= MAX_CELLS
        assert (data.step == (1, 1)) == (max(shape) <= MAX_CELLS)


@for_each("shape", [(), (4,), (3, 4), (2, 3, 4), (2, 3, 2, 4)])
def test_element_and_place_are_inverse(shape):
    rank = len(shape)
    for axes in itertools.permutations(range(rank), 2) if rank >= 2 else [None]:
        others = [n for i, n in enumerate(shape) if axes is None or i not in axes]
        for index in itertools.product(*map(range, others)) if rank > 2 else [()]:
            view = View(axes=axes, index=index)
            height, width = (shape[a] for a in axes) if axes else (1, shape[0] if shape else 1)
            seen = set()
            for row, column in np.ndindex(height, width):
                at = element(view, shape, row, column)
                assert place(view, at) == (row, column)
                seen.add(at)
            everything = set(itertools.product(*map(range, shape)))
            assert seen <= everything
            assert len(seen) == height * width
            assert all(place(view, other) is None for other in everything - seen)


@for_each(
    ("view", "borders"),
    [
        (View(), ((4, 8, 12), (3, 6, 9))),
        (View(rows=(4, 9), columns=(5, 7)), ((4, 8), (6,))),
        (View(axes=(1, 0)), ((3, 6, 9), (4, 8, 12))),
        (View(rows=(1, 3)), ((), (3, 6, 9))),
    ],
)
def test_borders(view, borders):
    result = qc.apply(randn((13, 10)), with_granularity(qc.PerBlock((4, 3))))
    assert map_data(result, view).borders == borders


def test_too_many_borders_are_left_out():
    result = qc.apply(randn((65, 64)), with_granularity(qc.PerGroup(1)))
    assert map_data(result).borders == ((), tuple(range(1, 64)))


@pytest.mark.filterwarnings("ignore:The zero_point")
@for_each("zero_point", [2**24 + 1, -(2**24) - 1, 2**31 - 1, -(2**31)])
def test_zero_point_beyond_float32(zero_point):
    result = qc.apply([[1.0, -5.0]], qc.Scheme(range_setting=qc.Given(0.5, zero_point)))
    data = map_data(result)
    assert np.array_equal(data.map("dequantized"), result.dequantized.numpy())
    assert np.array_equal(data.map("error"), result.error.numpy())


@for_each(
    ("shape", "view", "words"),
    [
        ((4, 5), View(rows=(0, 5)), "rows 0:5 are not within 0:4"),
        ((4, 5), View(columns=(3, 3)), "columns 3:3"),
        ((4, 5), View(columns=(-1, 3)), "columns -1:3"),
        ((4, 5), View(rows=(3, 1)), "rows 3:1"),
        ((4, 5), View(axes=(0, 0)), "not two different axes"),
        ((4, 5), View(axes=(0, 2)), "not two different axes"),
        ((4, 5), View(axes=(-1, 0)), "not two different axes"),
        ((4, 5), View(index=(0,)), r"index \(0,\)"),
        ((3, 4, 5), View(index=(3,)), r"index \(3,\) is not on the axes \[0\]"),
        ((3, 4, 5), View(index=(-1,)), r"index \(-1,\)"),
        ((3, 4, 5), View(index=(0, 0)), r"index \(0, 0\)"),
        ((7,), View(columns=(0, 8)), "columns 0:8"),
        ((), View(rows=(0, 2)), "rows 0:2"),
    ],
)
def test_views_of_what_is_not_there(shape, view, words):
    with pytest.raises(qc.QuantError, match=words):
        map_data(qc.apply(randn(shape), qc.Scheme()), view)


@for_each("shape", [(6, 9), *(pytest.param(shape, marks=pytest.mark.slow) for shape in ((700, 300), (300, 20), (260, 259))), (2, 5, 600), (1000,), (), (20, 300)])
def test_difference_of_the_errors_of_two_results(shape):
    x = randn(shape, 4)
    result, other = (
        qc.apply(x, qc.Scheme.parse(text)) for text in (SCHEMES[0], SCHEMES[0].replace("int4", "int3"))
    )
    view = View(index=(1,)) if len(shape) == 3 else View()
    data = map_data(result, view, other)
    sizes = (result.error.abs() - other.error.abs()).numpy()
    plane = sizes[1] if len(shape) == 3 else sizes.reshape(1, -1) if len(shape) < 2 else sizes
    drawn = data.map("error")
    np.testing.assert_array_equal(drawn, plane[data.worst.row, data.worst.column])
    for (r, c), shown in np.ndenumerate(drawn):
        box = plane[r * data.step[0] : (r + 1) * data.step[0], c * data.step[1] : (c + 1) * data.step[1]]
        assert np.abs(box).max() == abs(shown)
    # the other maps do not change
    np.testing.assert_array_equal(data.map("x"), map_data(result, view).map("x"))
    assert ("errors differ most" in data.legend) == (data.step != (1, 1))
    # no difference to itself
    assert not map_data(result, view, result).map("error").any()


@for_each("shape", [(600, 1030), (257, 3), (2, 513)])
def test_rms_of_each_cell(shape):
    """Against sums over the boxes in float64, also where the last ones have fewer elements."""
    result = qc.apply(torch.randn(shape, generator=torch.Generator().manual_seed(0)), qc.Scheme(qc.INT4))
    data = map_data(result, rms=True)
    error, (down, across) = result.error.double().numpy(), data.step
    rows, columns = range(0, shape[0], down), range(0, shape[1], across)
    sums, counts = (
        np.add.reduceat(np.add.reduceat(each, rows, 0), columns, 1) for each in (error**2, np.ones(shape))
    )
    np.testing.assert_allclose(data.map("error"), np.sqrt(sums / counts), rtol=1e-5)
    assert "RMS of all their errors" in data.legend
    assert map_data(qc.apply(result.x[:4, :4], qc.Scheme(qc.INT4)), rms=True).rms is None
    assert map_data(result, against=result, rms=True).rms is None
