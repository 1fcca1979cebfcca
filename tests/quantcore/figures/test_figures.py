"""Figures: colors mean what they should, the payload has all numbers, and pages open offline."""

import itertools
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import plotly.io
import pytest
import torch
from grid import for_each
from parts import in_parts, some, some_rows
from plotly.colors import sample_colorscale, unlabel_rgb

import quantcore as qc
from quantcore import figures
from quantcore.analysis.views import View, map_data
from quantcore.figures.scales import largest
from quantcore.figures.typography import SMALL

SHAPES = [(), (7,), (6, 10), (3, 4, 5), (2, 3, 4, 5), (300, 20)]
SCHEMES = [
    qc.Scheme(),
    qc.Scheme(qc.UINT4, False, range_setting=qc.Percentile(80)),
    qc.Scheme(qc.UINT16, False),
    qc.Scheme(qc.IntFormat(3, narrow=True)),
]


def result_of(shape, scheme=SCHEMES[1], shift=0.0):
    return qc.apply(torch.randn(shape, generator=torch.Generator().manual_seed(1)) + shift, scheme)


def rgb(colour):
    return [int(n) for n in re.fullmatch(r"rgb\((\d+), ?(\d+), ?(\d+)\)", colour).groups()]


@for_each(("scheme", "shape"), some_rows(itertools.product(SCHEMES, SHAPES), 11))
def test_maps_show_the_result(shape, scheme):
    result = result_of(shape, scheme)
    data = map_data(result)
    original, codes, dequantized, error = figures.maps(result).data[:4]
    for trace, name in ((original, "x"), (codes, "codes"), (dequantized, "dequantized"), (error, "error")):
        assert np.array_equal(trace.z, data.map(name))
        assert trace.z.dtype == (np.int32 if name == "codes" else np.float32)
    # equal colors mean equal values
    assert (original.zmin, original.zmax, original.colorscale) == (
        dequantized.zmin,
        dequantized.zmax,
        dequantized.colorscale,
    )
    shown = np.concatenate([data.map("x").ravel(), data.map("dequantized").ravel()])
    assert original.zmin <= shown.min()
    assert shown.max() <= original.zmax
    assert error.zmin == -error.zmax
    assert error.zmax == np.abs(data.map("error")).max() or not data.map("error").any()
    assert error.zmax > 0
    assert (codes.zmin, codes.zmax) == (scheme.format.qmin, scheme.format.qmax)


@pytest.mark.parametrize(
    ("x", "low", "high"),
    [([-1, 3], -3, 3), ([-4, 3], -4, 4), ([2, 5], 0, 5), ([-5, -2], -5, 0), ([3, 5], 3, 5), ([-5, -3], -5, -3)],
)
def test_values_are_centred_where_both_signs_occur(x, low, high):
    original = figures.maps(qc.apply(x, qc.Scheme(range_setting=qc.Given(1.0)))).data[0]
    assert (original.zmin, original.zmax) == (low, high)
    if low * high <= 0:  # a sign has its colors, and 0 the neutral one, whatever else there is
        colors = [[2 * at - 1, color] for at, color in figures.palette("diverging")]
        top = max(-low, high)
        shown = [[(low + at * (high - low)) / top, color] for at, color in original.colorscale]
        expected = [c for c in colors if low / top <= c[0] <= high / top]
        assert [color for _, color in shown] == [color for _, color in expected]
        assert np.allclose([at for at, _ in shown], [at for at, _ in expected])


@for_each("value", [0.0, 5.0, -5.0])
def test_one_value_alone_has_a_range(value):
    for trace in figures.maps(qc.apply([[value] * 3], qc.Scheme())).data[:4]:
        assert trace.zmin < trace.zmax
        assert (trace.zmin <= trace.z).all()
        assert (trace.z <= trace.zmax).all()


def test_infinite_dequantized_leaves_finite_colours():
    result = qc.apply([3.4028235e38, 1.0], qc.Scheme(range_setting=qc.Given(2.2e38)))
    assert torch.isinf(result.dequantized).any()
    for trace in figures.maps(result).data[:4]:
        assert np.isfinite([trace.zmin, trace.zmax]).all()
        assert trace.zmin < trace.zmax


@for_each("name", ["diverging", "error", "codes", "sequential"])
@for_each("theme", ["light", "dark"])
def test_palettes(name, theme):
    places, colours = zip(*figures.palette(name, theme), strict=True)
    assert (places[0], places[-1]) == (0, 1)
    assert list(places) == sorted(set(places))
    assert len({tuple(rgb(colour)) for colour in colours}) == len(colours)
    if name in ("diverging", "error"):
        assert len(colours) % 2 == 1  # 0 has its own color
        middle = rgb(colours[len(colours) // 2])
        assert max(middle) - min(middle) < 12


@for_each("shape", [(6, 10), (300, 20)], ids=str)
def test_tooltip_of_each_map_has_all_numbers_of_the_element_shown(shape):
    result = result_of(shape)
    arrays = (result.x, result.codes, result.dequantized, result.error)
    for number, trace in enumerate(figures.maps(result).data[:4]):
        row, column, *values = (trace.customdata[..., i] for i in range(8))
        at = (row.astype(int), column.astype(int))
        for shown, array in zip(values, arrays, strict=False):
            assert np.array_equal(shown, array.numpy()[at])
        assert np.array_equal(trace.z, values[number])
        assert all(f"customdata[{i}]" in trace.hovertemplate for i in range(8))


@for_each("columns", [4, 2])
@for_each("theme", ["light", "dark"])
def test_maps_are_linked_and_lie_apart(columns, theme):
    figure = figures.maps(result_of((6, 10)), View(rows=(1, 5)), columns=columns, theme=theme, borders=True)
    layout = figure.to_dict()["layout"]
    assert [layout[f"xaxis{i}"]["matches"] for i in (2, 3, 4)] == ["x"] * 3
    assert [layout[f"yaxis{i}"]["matches"] for i in (2, 3, 4)] == ["y"] * 3
    assert layout["yaxis"]["range"] == [4.5, 0.5]  # rows run downwards
    boxes = [(layout[f"xaxis{i}"]["domain"], layout[f"yaxis{i}"]["domain"]) for i in ("", 2, 3, 4)]
    for (x, y), (u, v) in ((a, b) for i, a in enumerate(boxes) for b in boxes[:i]):
        assert x[1] < u[0] or u[1] < x[0] or y[1] < v[0] or v[1] < y[0]
    assert [a["text"].split()[0] for a in layout["annotations"]] == [
        "Original",
        "Codes",
        "Dequantized",
        "Error",
    ]


@for_each(
    ("shape", "columns", "written"),
    some_rows([
        ((16, 16), 2, "0100"),
        ((4, 2), 4, "1111"),
        ((16, 16), 4, "0000"),
        ((4, 4), 2, "1111"),
        ((4, 65), 2, "0000"),
    ]),
)
def test_numbers_stand_where_they_fit(shape, columns, written):
    """In a figure 1,000 px wide, where codes have two figures and values up to six; they are never smaller."""
    drawn = figures.maps(result_of(shape), columns=columns).data
    texts = [trace for trace in drawn if trace.type == "scatter"]
    assert "".join(str(int(trace.yaxis in [t.yaxis for t in texts])) for trace in drawn[:4]) == written
    assert all(trace.textfont.size == SMALL for trace in texts)
    assert {t.type for t in figures.maps(result_of(shape), numbers=False).data} == {"heatmap"}
    assert all(len(trace.text) == drawn[0].z.size for trace in texts)


@for_each("theme", ["light", "dark"])
def test_numbers_are_read_on_the_color_of_their_cell(theme):
    """Plotly's own choice, #444 or white, has a contrast of 3.3 on some colors."""
    figure = figures.maps(result_of((4, 4)), columns=2, theme=theme)
    cells = {t.yaxis: t for t in figure.data if t.type == "heatmap"}
    texts = [t for t in figure.data if t.type == "scatter"]
    assert len(texts) == 4
    for trace in texts:
        under = cells[trace.yaxis]
        for x, y, ink, text in zip(trace.x, trace.y, trace.textfont.color, trace.text, strict=True):
            value = under.z[round((y - under.y0) / under.dy), round((x - under.x0) / under.dx)]
            assert float(text.replace("−", "-")) == pytest.approx(value, rel=5e-3)
            at = min(max((value - under.zmin) / (under.zmax - under.zmin), 0), 1)
            color = sample_colorscale([[p, c] for p, c in under.colorscale], [at], colortype="tuple")[0]
            assert contrast(color, [v / 255 for v in unlabel_rgb(ink)]) >= 4.5, (trace.yaxis, value, ink)


def contrast(one, other):
    """The contrast ratio of two sRGB colors, whose channels are from 0 to 1 (WCAG 2.2)."""
    lights = [
        sum(
            w * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
            for w, c in zip((0.2126, 0.7152, 0.0722), color, strict=True)
        )
        for color in (one, other)
    ]
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@for_each("theme", ["light", "dark"])
@for_each("tensors", [3, 40])  # as bars, as circles
def test_the_tooltip_of_a_tensor_is_readable(theme, tensors):
    rows = {"tensor": [f"t{i}" for i in range(tensors)], "bytes": 100, "bits_per_weight": 4.0, "sqnr_db": 20.0}
    label = figures.harm(pd.DataFrame(rows), theme=theme).layout.hoverlabel
    assert label.bgcolor, "without one, the tooltip takes the color of the mark below it"
    paper, ink = ([v / 255 for v in unlabel_rgb(color)] for color in (label.bgcolor, label.font.color))
    assert contrast(paper, ink) >= 4.5


def test_a_pair_bears_the_names_as_they_are_written():
    figure = figures.pair(np.array([[1, 2]]), np.array([[1, 3]]), ("onnx", "aimet.Quantize"), bounds=(-8, 7))
    assert [trace.name for trace in figure.data[:3]] == ["onnx", "aimet.Quantize", "onnx − aimet.Quantize"]
    assert [a.text.removeprefix("<b>").removesuffix("</b>") for a in figure.layout.annotations] == [
        trace.name for trace in figure.data[:3]
    ]


@in_parts(41)
@pytest.mark.parametrize("shape", some([(300, 530), (3, 171, 600), (600,)]), ids=str)
@pytest.mark.parametrize("differing", some([0.15, 0.0, 1.0]))
def test_a_reduced_pair_shows_how_many_differ(shape, differing, part):
    rng = np.random.default_rng(5)
    first = rng.integers(-8, 7, shape)
    second = np.where(rng.random(shape) < differing, first + rng.integers(1, 4, shape), first)
    data = figures.pair_data(first, second)
    down, across = data.step
    a, b = (c.reshape(-1, shape[-1]) for c in (first, second))
    trace = figures.pair(first, second, ("A", "B"), bounds=(-8, 10)).data[2]
    for i, j in part([*np.ndindex(*data.first.shape)][::-1]):  # from the last cell, which is the smallest
        box = (slice(i * down, (i + 1) * down), slice(j * across, (j + 1) * across))
        unequal = a[box] != b[box]
        assert (data.differing[i, j], data.size[i, j]) == (unequal.sum(), unequal.size)
        assert trace.z[i, j] == pytest.approx(100 * unequal.mean())
        gap = abs(data.first[i, j] - data.second[i, j])
        assert gap == abs(a[box] - b[box]).max()
        assert (trace.customdata[i, j, -2:] == (unequal.sum(), unequal.size)).all()
    # the legend agrees with the picture: the mean of all cells, weighted by size
    said = float(re.search(r"Overall, ([\d.]+) % of the elements differ", data.legend)[1])
    assert said == pytest.approx(np.average(trace.z, weights=data.size), abs=0.05)
    assert said == pytest.approx(100 * (a != b).mean(), abs=0.05)
    assert f"{down} × {across} elements" in data.legend
    assert (trace.zmin, trace.zmax) == (0, 100)
    assert trace.name == "Elements that differ (%)"


def test_one_element_of_a_large_cell_stands_out_from_none():
    first = np.zeros((2048, 4096), np.int8)
    second = first.copy()
    second[1000, 3000] = 1
    data = figures.pair_data(first, second)
    trace = figures.pair(first, second, ("A", "B"), bounds=(-8, 7)).data[2]
    places = [place for place, _ in trace.colorscale]
    assert places == sorted(places)
    assert trace.colorscale[0][1] == trace.colorscale[1][1] != trace.colorscale[2][1]
    fewest = trace.z[trace.z > 0].min() / 100
    assert fewest >= places[2]
    assert "less than 0.1 % of the elements differ" in data.legend


def test_borders_stand_between_blocks():
    result = result_of((6, 10), qc.Scheme(granularity=qc.PerBlock((4, 3))))
    assert not figures.maps(result).layout.shapes
    shapes = figures.maps(result, borders=True).layout.shapes
    lines = {(s.x0, s.x1, s.y0, s.y1) for s in shapes if s.xref == "x3"}
    assert lines == {(-0.5, 9.5, 3.5, 3.5), *((c, c, -0.5, 5.5) for c in (2.5, 5.5, 8.5))}
    assert len(shapes) == 4 * len(lines)


@for_each(
    "x", [torch.linspace(-2, 3, 1000), torch.zeros(5), torch.full((4,), -7.0), torch.tensor(2.5)]
)
def test_histogram_counts_every_element(x):
    counts, edges = figures.histogram(x, bins=10)
    assert counts.sum() == x.numel()
    assert (len(counts), len(edges)) == (10, 11)
    assert edges[0] <= x.min() <= x.max() <= edges[-1]
    assert (np.diff(edges) > 0).all()


def test_histogram_of_a_large_tensor():
    x = torch.randn(1_500_000, generator=torch.Generator().manual_seed(2))
    counts, edges = figures.histogram(x)
    expected, borders = np.histogram(x.numpy(), 120, (float(x.min()), float(x.max())))
    assert np.array_equal(counts, expected)
    assert edges == pytest.approx(borders)


@for_each("scheme", SCHEMES, ids=str)
def test_grid_values_are_what_codes_stand_for(scheme):
    result = result_of((6, 10), scheme)
    values = figures.grid_values(result, (0, 0))
    codes = torch.arange(scheme.format.qmin, scheme.format.qmax + 1)
    scale, zero_point = result.scale.item(), result.zero_point.item()
    assert np.array_equal(values, qc.dequantize(codes, scale, zero_point, qc.Scheme()).numpy())


@for_each("name", ["gguf.Q4_0", "gguf.Q4_1", "gguf.Q2_K", "bitsandbytes.int8_vectorwise", "torchao.nf4"])
def test_grid_values_hold_what_the_codes_of_a_library_stand_for(name):
    """Also where a minimum is added, or the scale is negative."""
    result = qc.apply(torch.linspace(-1, 3, 256).reshape(1, 256), qc.PRESETS[name])
    values = figures.grid_values(result, (0,) * result.scale.dim())
    assert (np.diff(values) > 0).all()
    first = result.dequantized.reshape(-1)[: result.block[-1]]
    assert set(first.tolist()) <= set(values.tolist())


@for_each(("shape", "log", "theme"), some_rows(itertools.product(SHAPES, [False, True], ["light", "dark"]), 5))
def test_distribution(shape, log, theme):
    result = result_of(shape)
    figure = figures.distribution(result, log=log, theme=theme)
    assert sum(figure.data[0].y) == result.x.numel()
    assert figure.layout.yaxis.type == ("log" if log else "linear")


def test_distribution_of_one_block():
    result = result_of((6, 10), qc.Scheme(granularity=qc.PerBlock((4, 3))))
    figure = figures.distribution(result, (1, 3), alone=True)
    assert sum(figure.data[0].y) == 2 * 1
    values = figures.grid_values(result, (1, 3))
    shade = figure.layout.shapes[0]
    assert (shade.x0, shade.x1) == (values[0], values[-1])


BLOCKS = {  # for shape (6, 10): place, name and numpy index
    "per_tensor": ((0, 0), "the whole tensor", np.s_[:, :]),
    "per_channel(0)": ((1, 0), "row 1", np.s_[1]),
    "per_channel(1)": ((0, 7), "column 7", np.s_[:, 7]),
    "per_group(4)": ((3, 2), "row 3, columns 8–9", np.s_[3, 8:]),
    "per_block([4,3])": ((1, 3), "rows 4–5, column 9", np.s_[4:, 9]),
    "per_block([4,10])": ((1, 0), "rows 4–5", np.s_[4:]),
}


@for_each("granularity", BLOCKS)
@for_each("setting", some(["percentile(60)", "min_max", "percentile(90)"], 3))
def test_a_block_is_drawn_with_its_own_range_over_all_elements(granularity, setting):
    result = result_of((6, 10), qc.Scheme.parse(f"int4 asymmetric {granularity} {setting}"))
    position, name, where = BLOCKS[granularity]
    x, block = result.x.numpy(), result.x.numpy()[where]
    data = figures.distribution_data(result, position)
    edges = np.linspace(float(x.min()), float(x.max()), 121)
    np.testing.assert_allclose(data.edges, edges, rtol=1e-6)
    assert np.array_equal(data.counts, np.histogram(block, 120, (x.min(), x.max()))[0])
    assert (data.name, data.size) == (name, block.size)
    scale, zero_point = (float(p[position]) for p in (result.scale, result.zero_point))
    np.testing.assert_allclose(data.values, (np.arange(-8, 8) - zero_point) * scale, rtol=1e-6)
    q = np.round(block / np.float32(scale)) + zero_point
    assert data.clipped == ((q < -8) | (q > 7)).sum()
    if granularity == "per_tensor":
        assert data.whole is None
        assert data.clipped == qc.report(result).clipped
    else:
        assert np.array_equal(data.whole, np.histogram(x, 120, (x.min(), x.max()))[0])
    # the figure draws these counts, in percent if there are two histograms
    figure = figures.distribution(result, position)
    drawn, parts = [t for t in figure.data if t.type == "bar"], [x, block] if data.whole is not None else [x]
    for bars, part in zip(drawn, parts, strict=True):
        counts = np.histogram(part, 120, (x.min(), x.max()))[0]
        assert np.array_equal(bars.customdata, counts)
        np.testing.assert_allclose(bars.y, counts if len(parts) == 1 else 100 * counts / part.size)
    shade = figure.layout.shapes[0]
    assert (shade.x0, shade.x1) == (data.values[0], data.values[-1])
    title = figure.layout.title.text
    ends = f"{data.values[0]:.4g} to {data.values[-1]:.4g}".replace("-", "\N{MINUS SIGN}")
    assert title.lower().startswith(f"<b>{name}</b>: codes represent {ends} (shaded)")
    assert (
        f"{data.clipped} of {block.size} elements clipped ({100 * data.clipped / block.size:.3g} %)" in title
    )


def test_the_blocks_of_a_tensor_have_all_that_is_clipped():
    for shape in ((7,), (6, 10), (3, 4, 5)):
        for granularity in (qc.PerGroup(3), qc.PerChannel(0), qc.PerFlatGroup(4)):
            scheme = qc.Scheme(qc.INT4, False, granularity, qc.Fixed(-0.3, 0.4))
            result = result_of(shape, scheme)
            positions = list(np.ndindex(*result.scale.shape))
            found = [figures.distribution_data(result, p, alone=True) for p in positions]
            assert sum(data.clipped for data in found) == qc.report(result).clipped > 0
            assert sum(data.size for data in found) == result.x.numel()
            assert len({data.name for data in found}) == len(positions)


@for_each(
    ("shape", "granularity"),
    [
        ((), qc.PerTensor()),
        ((7,), qc.PerGroup(3)),
        ((6, 10), qc.PerChannel(0)),
        ((6, 10), qc.PerBlock((4, 3))),
        ((3, 4, 5), qc.PerGroup(2)),
        ((300, 700), qc.PerGroup(1)),
    ],
)
def test_scales_show_the_largest_of_every_block(shape, granularity):
    result = result_of(shape, qc.Scheme(qc.INT4, granularity=granularity))
    figure = figures.scales(result)
    for trace, values in zip(figure.data, (result.scale, qc.block_errors(result)), strict=True):
        cells = np.asarray(trace.y if trace.type == "bar" else trace.z)
        assert cells.max() == np.float32(values.max())
        if values.numel() <= 256:
            assert sorted(cells.ravel()) == sorted(values.float().flatten().tolist())
        assert max(cells.shape) <= 256


FIGURES = [
    lambda result: figures.maps(result, borders=True),
    figures.distribution,
    figures.scales,
]


@for_each("make", FIGURES)
@for_each("shape", some(SHAPES, 5), ids=str)
def test_arrays_travel_as_bytes(make, shape):
    """Nested lists would make the payload several times as large; plotly sends numpy's own types as base64."""
    text = plotly.io.to_json(make(result_of(shape)))
    for trace in json.loads(text)["data"]:
        for name in ("z", "customdata", "x", "y"):
            value = trace.get(name)
            if isinstance(value, dict):
                assert value["dtype"] in ("i1", "i2", "i4", "u1", "f4", "f8")
            else:
                assert value is None or len(value) == 0 or isinstance(value, str)
    assert "#0000" not in text


class Sources(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href", "data", "action")]


@for_each("make", FIGURES)
def test_page_opens_offline(make):
    page = figures.to_html(make(result_of((6, 10))))
    parser = Sources()
    parser.feed(page)
    assert parser.found == []
    assert "plotly.js v" in page
    assert "Plotly.newPlot" in page
    assert len(page) > 3_000_000
    assert '"showSendToCloud": false' in page


def values_map(values):
    x = torch.tensor(values, dtype=torch.float32).reshape(64, -1)
    return map_data(qc.apply(x, qc.Scheme(qc.INT8)))


def test_a_few_far_outliers_do_not_take_the_colors_of_all_others():
    x = np.random.default_rng(0).normal(0, 0.1, 64 * 64)
    x[5] = -50
    data = values_map(x)
    colors = figures.scales_of_maps(data, qc.INT8)["x"]
    usual = np.sort(np.abs(np.concatenate([data.map("x").ravel(), data.map("dequantized").ravel()])))
    assert colors["zmin"] == -colors["zmax"] == -usual[-1 - len(usual) // 1000]
    beyond = int((usual > colors["zmax"]).sum())
    assert (
        f"{beyond} cells lie outside the color range of the values, the farthest at −50."
        in figures.beyond_colors(data)
    )


@for_each("share", [0.0, 0.01])
def test_many_outliers_have_colors_of_their_own(share):
    x = np.random.default_rng(0).normal(0, 0.1, 64 * 64)
    x[: int(share * x.size)] = 50
    data = values_map(x)
    assert figures.scales_of_maps(data, qc.INT8)["x"]["zmax"] == np.abs(x).max().astype(np.float32)
    assert "values" not in figures.beyond_colors(data)


@for_each("theme", ["light", "dark"])
@for_each("scheme", ["int4", "int8 per_channel(0)", "uint4", "int3", "uint8 asymmetric"])
def test_the_code_of_0_is_the_quietest_color(scheme, theme):
    """As in the other maps: neutral, so that what is not 0 stands out; the middle of unsigned codes."""
    fmt = qc.Scheme.parse(scheme).format
    data = map_data(qc.apply(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), qc.Scheme.parse(scheme)))
    colors = figures.scales_of_maps(data, fmt, theme)["codes"]
    assert (colors["zmin"], colors["zmax"]) == (fmt.qmin, fmt.qmax)
    at = (fmt.middle - fmt.qmin) / (fmt.qmax - fmt.qmin)
    (neutral,) = [color for place, color in colors["colorscale"] if place == pytest.approx(at)]
    rgb = [int(v) for v in re.findall(r"\d+", neutral)]
    assert max(rgb) - min(rgb) <= 8
    assert [colors["colorscale"][i][0] for i in (0, -1)] == [0, 1]


def test_file_types_without_an_error_stand_at_the_foot_of_the_curve():
    """On an axis of their own: that of errors is logarithmic and has no foot."""
    files = {"Q4_K_M": (2e6, 0.5), "Q8_0": (4e6, math.nan), "Q6_K": (4.01e6, math.nan)}
    made = figures.size_curve([(1e6, 2.0), (5e6, 1.0)], {}, files=files)
    drawn = {trace.name: trace for trace in made.data}
    known, others = drawn["llama.cpp's file types"], drawn["llama.cpp's file types: sizes alone"]
    assert (list(known.x), list(known.y), list(known.text)) == ([2.0], [0.5], ["Q4_K_M"])
    assert (list(others.x), list(others.text), list(others.customdata)) == ([4.0, 4.01], ["Q8_0", ""], ["Q8_0", "Q6_K"])
    assert (others.yaxis, made.layout.yaxis2.type, made.layout.yaxis.type) == ("y2", None, "log")
    low, high = made.layout.yaxis2.range
    assert all(low < y < high for y in others.y)


def test_what_rounds_to_0_has_no_sign():
    weight = torch.randn(4, 12, generator=torch.Generator().manual_seed(0))
    made = figures.gptq_column(qc.outputs.gptq(weight, qc.outputs.activations(16, 12), "int8"), 2)
    texts = [text for trace in made.data if trace.type == "scatter" for text in trace.text]
    assert {"0.00"} == {text for text in texts if text.endswith("0.00")}


def test_the_largest_of_a_reduced_plane_stands_where_it_is():
    plane = np.random.default_rng(0).normal(size=(300, 700))
    cells, row, column, step = largest(plane)
    assert step == (2, 3)
    assert np.array_equal(plane[row, column], cells)
    assert cells[5, 7] == plane[10:12, 21:24].max()
