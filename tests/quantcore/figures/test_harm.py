"""The picture of a comparison: what each circle shows, which tensors are left out, hostile names."""

import math

import numpy as np
import pandas as pd
from grid import for_each

from quantcore.figures import HARM_AXES, harm


def frame(values, metric="sqnr_db"):
    n = len(values)
    made = pd.DataFrame(
        {"tensor": [f"t{i}.weight" for i in range(n)], "bytes": [100 * (i + 1) for i in range(n)]}
    )
    made = made.assign(bits_per_weight=[4.0 + i for i in range(n)], sqnr_db=20.0)
    return made.assign(**{metric: values})


@for_each("metric", HARM_AXES)
def test_circles_are_rows_with_a_finite_metric(metric):
    values = [0.5, math.inf, 0.25, math.nan, *(0.125,) * 11]
    (trace,) = harm(frame(values, metric), metric, order="first").data
    assert trace.type == "scatter"
    assert list(trace.y) == [0.5, 0.25, *(0.125,) * 11]
    assert list(trace.customdata) == [0, 2, *range(4, 15)]
    assert list(trace.x) == list(range(13))
    assert np.diff(trace.marker.size)[0] > 0  # the sizes in bytes increase
    assert list(trace.marker.color) == [math.log2(b) for b in (4, 6, *range(8, 19))]


@for_each("metric", HARM_AXES)
def test_a_few_are_bars_from_zero_with_their_names(metric):
    values = [0.5, math.inf, 0.25]
    figure = harm(frame(values, metric), metric, order="first")
    (trace,) = figure.data
    if metric == "cosine":
        assert trace.type == "scatter"
        return
    assert (trace.type, trace.orientation, list(trace.x)) == ("bar", "h", [0.5, 0.25])
    assert list(trace.customdata) == [0, 2]
    assert list(figure.layout.yaxis.ticktext) == ["t0", "t2"]
    first, last = figure.layout.yaxis.range
    assert first > last  # the first row is on top
    assert figure.layout.xaxis.type != "log"
    assert figure.layout.xaxis.title.text == HARM_AXES[metric][0]
    assert figure.layout.meta["caption"] == "2 tensors, first; 1 more is exact or not finite"


def test_of_many_the_worst_are_bars_and_the_others_one_that_spans_them():
    values = [math.nan, *np.linspace(9.0, 0.5, 18), 0.0]
    figure = harm(frame(values, "mse"), "mse", order="first", worst_first=True)
    worst, others = figure.data
    assert list(worst.x) == values[1:13]
    assert list(worst.customdata) == list(range(1, 13))
    assert (others.base[0], others.base[0] + others.x[0]) == (values[18], values[13])
    assert others.text == ("6 other tensors: MSE from 0.5 to 3",)
    assert others.customdata is None  # a click opens none of them
    assert list(figure.layout.yaxis.ticktext) == [*(f"t{i}" for i in range(1, 13)), "6 more"]
    assert figure.layout.meta["caption"] == "18 tensors, first; 2 more are exact or not finite"
    (circles,) = harm(frame(values, "cosine"), "cosine", worst_first=True).data
    assert circles.type == "scatter"


def test_an_error_of_zero_has_no_place_on_a_logarithmic_axis():
    figure = harm(frame([0.0, 1.0], "mse"), "mse", order="first")
    assert list(figure.data[0].customdata) == [1]
    assert figure.layout.meta["caption"] == "1 tensor of 5 bits per weight, first; 1 more is exact or not finite"


def test_a_color_bar_that_would_show_one_color_is_words():
    made = frame([20.0] * 20)
    assert harm(made, order="first").data[0].marker.showscale
    figure = harm(made.assign(bits_per_weight=[4.5, 4.53] * 10), order="first")
    assert not figure.data[0].marker.showscale
    assert figure.layout.meta["caption"] == "20 tensors of 4.5 to 4.53 bits per weight, first"


def test_small_differences_of_sqnr_do_not_look_large():
    low, high = harm(frame([20.0, 20.001] * 10)).layout.yaxis.range
    assert high - low >= 4
    assert harm(frame([20.0, 30.0] * 10)).layout.yaxis.range is None


def test_names_are_text():
    made = frame([20.0, 21.0])
    made["tensor"] = ["<b>x</b>" * 40, "a" * 500]
    figure = harm(made, order="first")
    assert all("<b>x" not in text.removeprefix("<b>") for text in figure.data[0].text)
    assert all(len(text) < 500 for text in figure.data[0].text)
    assert "<" not in "".join(figure.layout.yaxis.ticktext)


def test_nothing_to_draw():
    assert len(harm(frame([math.inf])).data[0].x) == 0
