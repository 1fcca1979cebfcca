"""The type of every figure: one family, one scale, nothing smaller than its smallest, and all of it enlarged alike."""

import inspect
import tomllib

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from grid import for_each
from parts import some
from places import ROOT

import quantcore as qc
from quantcore import figures, training
from quantcore.analysis import Leaf, tiles
from quantcore.figures import lessons, typography
from quantcore.figures.typography import FAMILY, LARGER, SCALE, SMALL, TEXT

X = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
SCHEME = qc.Scheme.parse("int4 asymmetric per_channel(axis=0)")
RESULT = qc.apply(X, SCHEME)
ONE = qc.apply([0.2, 1.4, -3.0, 5.0], qc.Scheme.parse("int4 asymmetric fixed(-2, 4)"))
LEAVES = [Leaf("a.weight", 8, 16), Leaf("b.weight", 32, 16)]
HARM = pd.DataFrame({"tensor": ["a", "b"], "bytes": [8, 9], "bits_per_weight": 4.0, "sqnr_db": [9.0, 8.0], "mse": [1e-6, 1e-3]})
POINTS = [training.Point(method, bits, 1, 0.9, 0.85, 0.99) for method in ("ptq", "qat") for bits in (2, 4)]
CODES = RESULT.codes.numpy()
INPUTS = qc.outputs.activations(16, 12)
GPTQ = qc.outputs.gptq(X, INPUTS, "int4")
NUMBERS = np.arange(12, dtype=np.float32)
RANGES = qc.range_marks(X, SCHEME, settings=(qc.MinMax(), qc.MinMse()))
DRAWN = {
    figures.awq_search: lambda: figures.awq_search(qc.outputs.awq(X, INPUTS, "int4").steps),
    figures.cache_granularities: lambda: figures.cache_granularities({"per token": (20.0, 18.0)}),
    figures.cached_keys: lambda: figures.cached_keys(X.numpy()),
    figures.channel_maxima: lambda: figures.channel_maxima({"x": {"before": NUMBERS, "after": NUMBERS}}),
    figures.distribution: lambda: figures.distribution(RESULT),
    figures.drawn_maps: lambda: figures.maps(RESULT, columns=2),
    figures.error_maps: lambda: figures.error_maps({"a": RESULT, "b": RESULT}),
    figures.gptq_column: lambda: figures.gptq_column(GPTQ, 2),
    figures.harm: lambda: figures.harm(HARM, "mse", order="first"),
    figures.histograms: lambda: figures.histograms({"x": {"before": (NUMBERS, NUMBERS)}}),
    figures.maps: lambda: figures.maps(RESULT),
    figures.methods: lambda: figures.methods(qc.outputs.compare(X, INPUTS, INPUTS, "int4")),
    figures.number_line: lambda: figures.number_line({"int4": np.arange(1, 8)}, log=True, at=2.5),
    figures.outlier_columns: lambda: figures.outlier_columns(NUMBERS, 6.0),
    figures.output_errors: lambda: figures.output_errors(qc.outputs.layer(INPUTS, X, "int4")),
    figures.pair: lambda: figures.pair(CODES, CODES + 1, ("a", "b"), bounds=(-8, 8)),
    figures.pareto: lambda: figures.pareto(qc.sweep(X, [SCHEME, qc.Scheme()]), "mse", own=str(SCHEME)),
    figures.range_error: lambda: figures.range_error(qc.range_curve(X, SCHEME), RANGES, False),
    figures.range_histogram: lambda: figures.range_histogram(
        *figures.histogram(X), RANGES, (-1.0, 1.0)
    ),
    figures.scales: lambda: figures.scales(RESULT),
    figures.size_curve: lambda: figures.size_curve([(1e6, 2.0), (2e6, 1.0)], {"int8": (1.5e6, 1.5)}, (1e6, 2.0)),
    figures.search_error: lambda: figures.search_error(
        qc.search_curve(qc.apply(torch.randn(2, 256), qc.PRESETS["gguf.Q4_K"]))
    ),
    figures.tokens_curve: lambda: figures.tokens_curve(
        [qc.outputs.TokensPoint(tokens, "gptq", 20.0 + tokens) for tokens in (4, 8)], 9.0
    ),
    figures.treemap: lambda: figures.treemap(tiles(LEAVES, 10), LEAVES, title="all"),
    lessons.accuracy_against_bits: lambda: lessons.accuracy_against_bits(POINTS, errors=True),
    lessons.accuracy_over_epochs: lambda: lessons.accuracy_over_epochs({"qat": [0.5, 0.9]}, {"float32": 0.9}, 2),
    lessons.bars: lambda: lessons.bars({"int8": 2.0, "int4": 1.0}, ["2 MB", "1 MB"], "MB"),
    lessons.clipping_against_rounding: lambda: lessons.clipping_against_rounding(
        qc.range_curve(X, qc.Scheme(qc.INT4)), 1.0
    ),
    lessons.digit_images: lambda: lessons.digit_images(torch.zeros(2, 64), [1, 2], [1, 3]),
    lessons.error_against_x: lambda: lessons.error_against_x(ONE),
    lessons.error_bars: lambda: lessons.error_bars(np.array([0.1, -0.2]), limit=0.25),
    lessons.quality_against: lambda: lessons.quality_against([0.0, 1.0], {"x": [20.0, 24.0]}, 0.5, "α"),
    lessons.rounding_line: lambda: lessons.rounding_line(ONE),
    lessons.slope: lambda: lessons.slope(lessons.slopes(3, 1.0), "through"),
    lessons.thermometer: lambda: lessons.thermometer(ONE, 1),
}


def fonts(part, path=()):
    """(path, font) of each font that a figure names."""
    if isinstance(part, list | tuple):
        for item in part:
            yield from fonts(item, path)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key.endswith("font"):
                yield (*path, key), value
            yield from fonts(value, (*path, key))


def strings(part):
    if isinstance(part, str):
        yield part
    elif isinstance(part, list | tuple | dict):
        for item in part.values() if isinstance(part, dict) else part:
            yield from strings(item)


def test_every_function_that_draws_is_here():
    for module in (figures, lessons):
        for name, made in vars(module).items():
            drawn = inspect.isfunction(made) and inspect.signature(made).return_annotation in (go.Figure, "go.Figure")
            assert not drawn or made is figures.enlarged or made in DRAWN, name


# by default, other tests draw them
ELSEWHERE = ("distribution", "drawn_maps", "error_maps", "maps", "pair", "pareto", "range_error", "range_histogram", "scales",
             "search_error", "treemap")  # fmt: skip


@for_each(
    "draw",
    [pytest.param(draw, id=made.__name__, marks=[pytest.mark.slow] * (made.__name__ in ELSEWHERE)) for made, draw in DRAWN.items()],
)
def test_type_is_of_one_scale_and_family(draw):
    figure = draw().to_dict()
    go.Figure(figure)  # Plotly knows each name and value, also of figures that are made unchecked
    layout = figure["layout"]
    usual = TEXT if layout["font"]["size"] == TEXT else SMALL
    assert layout["font"]["size"] == usual
    assert layout["font"]["family"] == FAMILY
    named = dict(fonts(figure))
    sizes = {path: font["size"] for path, font in named.items() if "size" in font}
    assert set(sizes.values()) <= set(SCALE.values()), sizes
    assert {font["family"] for font in named.values() if "family" in font} == {FAMILY}
    # where Plotly would take another size than the layout's: 1.2 times it for titles, 13 px for hover
    template = layout["template"]["layout"]
    for part in ("xaxis", "yaxis", "legend"):
        assert template[part]["title"]["font"]["size"] == usual
    assert template["hoverlabel"]["font"]["size"] == template["title"]["font"]["size"] == usual
    for trace in figure["data"]:
        (drawn,) = layout["template"]["data"].get(trace["type"], [{}])
        bar = drawn.get("colorbar") or drawn.get("marker", {}).get("colorbar")
        assert bar["title"]["font"]["size"] == usual, trace["type"]
        # and where it would take the size that fits
        assert "texttemplate" not in trace or trace["textfont"]["size"] == SMALL
    # smaller type inside a text: exponents, subscripts, and ticks between the decades of a logarithmic axis
    assert not [text for text in strings(figure) if "<su" in text or text in ("power", "D1", "D2")]
    for key, axis in layout.items():
        if "axis" in key and axis.get("type") == "log":
            assert "tickvals" in axis or axis["dtick"] >= 1, key


@for_each("draw", some(DRAWN.values(), 7), ids=[made.__name__ for made in DRAWN])
def test_all_type_is_enlarged_alike(draw):
    figure = draw()
    before, after = (dict(fonts(f.to_dict())) for f in (figure, figures.enlarged(figure)))
    assert before.keys() == after.keys()
    for path, font in before.items():
        assert after[path].get("size") == (font["size"] * LARGER if "size" in font else None), path


@for_each(
    ("low", "high", "texts"),
    [
        (0.004, 0.3, "0.001 0.002 0.005 0.01 0.02 0.05 0.1 0.2 0.5 1 2 5"),
        (2e-5, 3e-4, "1e−5 2e−5 5e−5 1e−4 2e−4 5e−4 0.001 0.002 0.005"),
        (1e-9, 1.0, "1e−9 1e−7 1e−5 0.001 0.1"),
    ],
)
def test_ticks_of_a_logarithmic_axis(low, high, texts):
    ticks = figures.style.log_ticks(low, high)
    assert ticks["ticktext"] == texts.split()
    assert [float(text.replace("−", "-")) for text in ticks["ticktext"]] == pytest.approx(ticks["tickvals"])
    assert min(ticks["tickvals"]) <= low


def test_pages_have_the_same_size_of_text():
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert config["theme"]["baseFontSize"] == TEXT
    sizes = {float(size.removesuffix("rem")) * TEXT for size in config["theme"]["headingFontSizes"]}
    assert sizes <= set(typography.SCALE.values())
