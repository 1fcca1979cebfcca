"""The figures of Compare → Schemes and Explore → Formats show the numbers, and all of them."""

import html
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from grid import for_each
from parts import some_rows

import quantcore as qc
from quantcore import figures
from quantcore.analysis.views import map_data
from quantcore.figures.pareto import AXES

X = np.random.default_rng(3).normal(size=(16, 64)).astype(np.float32)
TEXTS = ["int4", "int8 per_channel", "nf4 per_group(32)", "e4m3fn", "int5 onnxruntime", "int3 per_group(16)"]


@pytest.fixture(scope="module")
def frame():
    output = qc.outputs.output_measure(qc.outputs.activations(8, 64), X)
    return qc.sweep(X, [qc.Scheme.parse(text) for text in TEXTS], output=output)


def named(figure, name):
    return next(trace for trace in figure.data if trace.name == name)


@for_each(("theme", "metric"), some_rows(itertools.product(["light", "dark"], AXES), 2))
def test_every_scheme_is_a_point_of_its_kind(frame, metric, theme):
    figure = figures.pareto(frame, metric, theme=theme)
    drawn = {}
    for kind in ("integers", "floats", "codebooks"):
        trace = named(figure, kind)
        for place, x, y, text in zip(trace.customdata, trace.x, trace.y, trace.text, strict=True):
            drawn[place] = (kind, x, y, text)
    assert sorted(drawn) == [0, 1, 2, 3, 5]  # the scheme at index 4 is refused
    assert [drawn[i][0] for i in (0, 2, 3)] == ["integers", "codebooks", "floats"]
    for place, (_, x, y, text) in drawn.items():
        row = frame.iloc[place]
        assert (x, y) == (row["bits_per_element"], row[metric])
        assert text.split("<br>")[0] == f"<b>{row['scheme']}</b>"


def test_frontier_and_line_of_a_gaussian(frame):
    figure = figures.pareto(frame)
    line = named(figure, "Gaussian limit, 6.02 dB per bit")
    slope = (line.y[1] - line.y[0]) / (line.x[1] - line.x[0])
    assert slope == pytest.approx(20 * math.log10(2))
    assert line.y[0] == line.x[0] == 0
    assert line.y[1] >= frame["sqnr_db"].max()
    # where schemes take more bits than they use, the line ends above them and does not press them together
    dear = figures.pareto(frame.assign(bits_per_element=frame["bits_per_element"] + 25))
    assert named(dear, "Gaussian limit, 6.02 dB per bit").y[1] == pytest.approx(1.15 * frame["sqnr_db"].max())
    best = named(figure, "Pareto frontier")
    for bits, gain in zip(best.x, best.y, strict=True):
        beaten = frame[(frame["bits_per_element"] <= bits) & (frame["sqnr_db"] > gain)]
        assert beaten.empty
    assert max(best.y) == frame["sqnr_db"].max()
    assert not [t for t in figures.pareto(frame, "mse").data if t.name.startswith("Gaussian")]


def test_a_scheme_is_ringed_and_names_stand_for_schemes(frame):
    named_frame = frame.assign(name=[f"scheme {i}" for i in range(len(frame))])
    ring = named(figures.pareto(named_frame, own=frame["scheme"][2]), "the scheme in the sidebar")
    assert list(ring.customdata) == [2]
    assert list(ring.text) == ["<b>scheme 2</b>"]
    names = [trace.name for trace in figures.pareto(frame, own="none of these").data]
    assert "the scheme in the sidebar" not in names


@for_each("metric", AXES)
def test_points_drawn_over_each_other_are_listed_in_each(frame, metric):
    """Points closer than their own size list each other; distant ones are not listed."""
    near = [frame.iloc[0].to_dict() | {"scheme": f"copy {i} <b>", "format": "int4"} for i in range(12)]
    crowded = pd.concat([frame, pd.DataFrame(near)], ignore_index=True)
    trace = named(figures.pareto(crowded, metric), "integers")
    said = dict(zip(trace.customdata, trace.text, strict=True))
    for place, text in said.items():
        lines = text.split("<br>")
        own, others = lines[0], lines[1:]
        assert own == f"<b>{html.escape(crowded['scheme'][place])}</b>"
        if place == 0 or place >= len(frame):
            assert len(others) == 9
            assert others[-1] == "and 4 more"
        else:
            for other in others:
                row = crowded[crowded["scheme"] == html.unescape(other)].iloc[0]
                assert abs(row["bits_per_element"] - crowded["bits_per_element"][place]) < 0.2


def test_the_limit_is_a_line(frame):
    (line,) = figures.pareto(frame, limit=4.5).layout.shapes
    assert (line.x0, line.x1) == (4.5, 4.5)
    assert not figures.pareto(frame).layout.shapes


def test_nothing_to_show_is_an_empty_picture(frame):
    figure = figures.pareto(frame[frame["refused"] != ""])
    assert sum(len(trace.x) for trace in figure.data) == 0


@for_each("count", [1, 2, 4, 6])
def test_error_maps_share_one_scale(count):
    texts = ["int4", "int8", "nf4", "e2m1", "int2", "ternary"][:count]
    results = {text: qc.apply(X, qc.Scheme.parse(text)) for text in texts}
    figure = figures.error_maps(results)
    assert len(figure.data) == count
    largest = 0.0
    for trace, result in zip(figure.data, results.values(), strict=True):
        np.testing.assert_array_equal(trace.z, result.error.numpy())
        assert trace.coloraxis == "coloraxis"
        largest = max(largest, float(result.error.abs().max()))
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (-largest, largest)
    assert [a.text for a in figure.layout.annotations] == texts


def test_error_maps_of_large_and_of_lossless_tensors():
    large = np.random.default_rng(4).normal(size=(600, 700)).astype(np.float32)
    result = qc.apply(large, qc.Scheme())
    (trace,) = figures.error_maps({"int8": result}).data
    data = map_data(result)
    assert data.map("error").shape[0] < 600
    rows, columns = np.asarray(trace.customdata)[..., 0], np.asarray(trace.customdata)[..., 1]
    # each cell names the element it shows
    np.testing.assert_array_equal(trace.z, result.error.numpy()[rows, columns])
    flat = figures.error_maps({"zeros": qc.apply(np.zeros((3, 3), np.float32), qc.Scheme())})
    assert flat.layout.coloraxis.cmax == 1


def test_number_line_of_many_values_keeps_its_ends():
    values = np.asarray(qc.FLOATS["fp16"].values)
    trace = figures.number_line({"fp16": values}).data[0]
    assert (trace.x[0], trace.x[-1]) == (-65504, 65504)
    assert len(trace.x) <= 4000


def test_number_line_marks_what_a_number_becomes():
    figure = figures.number_line({"a": [-1, 0, 2], "b": [0, 4]}, at=1.5, rounded={"a": 2.0, "b": 0.0})
    assert list(figure.data[-1].x) == [2, 0]
    assert list(figure.data[-1].y) == ["a", "b"]
    figure = figures.number_line(
        {"a": [-1, 0, 2], "b": [0, 4]}, log=True, at=-1.5, rounded={"a": -1.0, "b": 0.0}
    )
    assert list(figure.data[0].x) == [1, 2]
    assert list(figure.data[2].x) == [1.5, 1.5]
    assert (list(figure.data[-1].x), list(figure.data[-1].customdata)) == ([1], [-1])


def test_a_number_and_a_code_are_marked_on_every_axis():
    values = {"a": [-2, 0, 2], "b": [-0.5, 0.5], "wide": [-400, 400]}
    for log in (False, True):
        figure = figures.number_line(values, log=log, at=1.0, chosen=("a", 2.0))
        number, code = figure.data[-2:]
        assert list(number.x) == [1.0] * 3
        assert (list(code.x), list(code.y), list(code.customdata)) == ([2.0], ["a"], [2.0])
    low, high = figures.number_line(values, at=1.0, chosen=("a", 2.0)).layout.xaxis.range
    assert (low, high) == (-2.4, 2.4)  # the row in the middle fits, and what is marked
    divided = figures.number_line(values, at=1.0, chosen=("a", 2.0), divide={"a": 2.0, "b": 0.5, "wide": 400.0})
    inside, beyond, code = divided.data[-3:]
    assert (list(inside.x), list(inside.y)) == ([0.5, 1 / 400], ["a", "wide"])
    assert (list(beyond.y), beyond.marker.symbol) == (["b"], "triangle-right")  # 1 is twice b's largest value
    assert (list(code.x), list(code.customdata)) == ([1.0], [2.0])


@for_each("metric", ["sqnr_db", "mse"])
def test_names_on_the_frontier_leave_each_other_room(metric):
    """On a page, and those that a narrow window shows there too: measured with the widths of its plot and of a letter."""
    rng = np.random.default_rng(5)
    texts = [
        "int8 asymmetric per_channel(axis=1)", "e2m1 min_mse(candidates=20)", "int8", "e3m2", "nf4 per_group(32)",
        "int4 per_group(64) min_mse", "int2", "uint6 asymmetric", "e4m3fn per_channel", "int5", "int3", "e5m2",
    ]  # fmt: skip
    shown = np.zeros(2)
    for _ in range(3):
        bits = np.sort(rng.uniform(2, 16, len(texts)))
        sqnr = np.sort(rng.uniform(5, 90, len(texts)))
        points = pd.DataFrame({"scheme": texts, "name": rng.permutation(texts), "format": "int4", "refused": "",
                               "bits_per_element": bits, "sqnr_db": sqnr, "mse": 10 ** (-sqnr / 10)})  # fmt: skip
        narrow, wide = figures.pareto(points, metric, own="int8").data[-2:]
        assert narrow.name == wide.name == "names"
        shown += len(narrow.x) - 1, len(wide.x) - 1
        top = 20 * math.log10(2) * bits.max() if metric == "sqnr_db" else np.ptp(np.log10(points["mse"]))
        for traces, width, height in (([narrow], 286, 230), ([narrow, wide], 720, 300)):
            boxes = []
            for trace in traces:
                for x, y, text in zip(trace.x[:-1], trace.y[:-1], trace.text[:-1], strict=True):
                    right, base = x / bits.max() * width, (y if metric == "sqnr_db" else np.log10(y)) / top * height
                    boxes.append((right - 5.9 * len(text), right, base, base + 14))
            assert min(left for left, *_ in boxes) > 0
            for i, (left, right, low, high) in enumerate(boxes):
                for other in boxes[:i]:
                    assert right < other[0] or left > other[1] or high < other[2] or low > other[3], (boxes[i], other)
    assert shown.min() > 3
