"""The figures of Explore → Ranges show all of their data, in stable colors, on axes that fit."""

import functools
import re

import numpy as np
import pytest
import torch
from grid import for_each

import quantcore as qc
from quantcore import figures

X = torch.randn(8, 30, generator=torch.Generator().manual_seed(4)) ** 3
SCHEME = qc.Scheme(qc.INT4)
each_theme = for_each("theme", ["light", "dark"])


@functools.cache
def every_mark():
    return qc.range_marks(X, SCHEME)


@functools.cache
def curve():
    return qc.range_curve(X, SCHEME)


def own_mark():
    return qc.range_marks(X, SCHEME, settings=(qc.Fixed(-1.5, 1.5),))


def named(mark):
    return mark.name.replace("<", "&lt;")


@each_theme
@pytest.mark.parametrize("log", [False, True])
def test_histogram_shows_elements_range_and_marks(theme, log):
    counts, edges = figures.histogram(X)
    figure = figures.range_histogram(counts, edges, every_mark(), (-1.5, 2.5), log=log, theme=theme)
    bars, *spans = figure.data
    assert np.array_equal(bars.y, counts)
    assert counts.sum() == X.numel()
    assert figure.layout.yaxis.type == ("log" if log else "linear")
    area, *ends = figure.layout.shapes
    assert (area.x0, area.x1) == (-1.5, 2.5)
    assert [line.x0 for line in ends] == [-1.5, 2.5]
    assert [tuple(span.x) for span in spans] == [(mark.low, mark.high) for mark in every_mark()]
    # each is next to its name
    names = dict(zip(figure.layout.yaxis2.tickvals, figure.layout.yaxis2.ticktext, strict=True))
    assert [names[span.y[0]] for span in spans] == [named(mark) for mark in every_mark()]


def test_the_axis_holds_what_is_no_wider_than_the_elements():
    counts, edges = figures.histogram(X)
    low, high = figures.range_histogram(counts, edges, every_mark(), (-1.5, 2.5)).layout.xaxis.range
    assert low < min(edges[0], *(mark.low for mark in every_mark()))
    assert high > max(edges[-1], *(mark.high for mark in every_mark()))
    low, high = figures.range_histogram(counts, edges, every_mark(), (-1e6, 1e6)).layout.xaxis.range
    assert high - low < 10 * (edges[-1] - edges[0])


@each_theme
@pytest.mark.parametrize("symmetric", [True, False])
def test_error_shows_both_parts_their_sum_and_the_minimum(theme, symmetric):
    figure = figures.range_error(curve(), every_mark(), symmetric, theme=theme)
    lines = {trace.name: trace for trace in figure.data}
    for name, values in (("clipping", curve().clipping), ("rounding", curve().rounding), ("total", curve().mse)):
        assert np.array_equal(lines[name].x, curve().widths)
        assert [v or 0.0 for v in lines[name].y] == list(values)  # 0 cannot be drawn on a logarithmic axis
    (line,) = figure.layout.shapes
    assert line.x0 == line.x1 == curve().widths[curve().best]
    assert f"{curve().mse.min():.4g}" in figure.layout.annotations[0].text
    for mark in every_mark():
        assert (lines[named(mark)].x, lines[named(mark)].y) == ((mark.width,), (mark.mse,))
    low, high = figure.layout.yaxis.range
    assert 10**low < curve().mse.min() <= curve().mse.max() < 10**high
    assert ("not clipped" if symmetric else "high - low") in figure.layout.xaxis.title.text


def test_a_range_before_them_leaves_the_others_their_colours():
    counts, edges = figures.histogram(X)

    def colours(marks):
        spans = figures.range_histogram(counts, edges, marks, (-1, 1)).data[1:]
        points = figures.range_error(curve(), marks, True).data[3:]
        assert len({p.marker.symbol for p in points}) == len(points)  # for those who see few colors
        assert [s.line.color for s in spans] == [p.marker.color for p in points]
        return [s.line.color for s in spans]

    own, *others = colours(own_mark() + every_mark())
    assert others == colours(every_mark())
    assert len({own, *others}) == len(every_mark()) + 1
    for colour in (own, *others):  # Streamlit's front end replaces the darkest ones
        assert sum(int(n) for n in re.findall(r"\d+", colour)) > 200


def test_no_error_at_all():
    x = torch.zeros(4, 4)
    marks = qc.range_marks(x, SCHEME, settings=(qc.MinMax(), qc.MinMse()))
    figure = figures.range_error(qc.range_curve(x, SCHEME), marks, True)
    assert all(v is None for trace in figure.data for v in trace.y)
    figures.range_histogram(*figures.histogram(x), marks, (0.0, 0.0)).to_json()


def test_histogram_of_a_width_beyond_float32():
    x = torch.tensor([3e38, -3e38, 1e38, 1e38])
    counts, edges = figures.histogram(x)
    assert np.array_equal(counts, np.histogram(x.double().numpy(), 120)[0])
    assert np.isfinite(edges).all()
