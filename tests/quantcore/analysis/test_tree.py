"""A hierarchy of names as tiles, and their treemap."""

import plotly.graph_objects as go
from bounded import in_seconds
from grid import for_each

from quantcore import figures
from quantcore.analysis import Leaf, tiles

MODEL = [
    Leaf(f"model.layers.{i}.{name}.weight", 100 * (k + 1), 800)
    for i in range(40)
    for k, name in enumerate(["self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "norm"])
] + [Leaf("lm_head.weight", 5000, 2000)]


def assert_sums(drawn):
    """Every tile is as large as its children combined."""
    for sums in ("size", "elements", "leaves"):
        total = {}
        for tile in drawn:
            total[tile.parent] = total.get(tile.parent, 0) + getattr(tile, sums)
        assert all(total.get(place, getattr(t, sums)) == getattr(t, sums) for place, t in enumerate(drawn))


@for_each("most", [1000, 200, 100, 12, 2])
def test_tiles_hold_everything(most):
    drawn = tiles(MODEL, most)
    assert len(drawn) <= most
    assert drawn[0].leaves == len(MODEL)
    assert_sums(drawn)
    leaves = [tile.leaf for tile in drawn if tile.leaf is not None]
    assert len(set(leaves)) == len(leaves)
    assert len(leaves) + sum(tile.leaves for tile in drawn if tile.folded) == len(MODEL)
    assert (most < 1000) == any(tile.folded for tile in drawn)


def test_single_parts_are_joined():
    labels = {tile.label for tile in tiles(MODEL, 1000)}
    assert {"model.layers", "lm_head.weight", "q_proj.weight", "norm.weight", "self_attn"} <= labels
    assert "weight" not in labels


def test_of_a_level_that_does_not_fit_the_largest_are_opened():
    leaves = [Leaf(f"a{i}.{part}", 10 * i + 1, 8) for i in range(30) for part in "xyz"]
    drawn = tiles(leaves, 61)
    assert {tile.path for tile in drawn if tile.folded} == {f"a{i}" for i in range(20)}


def test_many_in_one_place_are_the_largest_and_the_rest():
    with in_seconds(15):
        drawn = tiles([Leaf(f"t{i}", i + 1, 8) for i in range(20_000)], 500)
    assert drawn[-1].folded
    assert (drawn[-1].label, drawn[-1].leaves, len(drawn)) == ("19,502 smaller", 19_502, 500)
    assert drawn[1].label == "t19999"


@for_each(
    "names",
    [
        ["a", "a.b", "a.b.c"],
        ["", ".", "..", "...a"],
        ["x." * 3000 + "y", "x"],
        ["a.b", "a"],
        ["a..b", "a.b"],
        [],
    ],
    ids=["prefixes", "dots", "deep", "later", "empty part", "none"],
)
def test_hostile_names(names):
    drawn = tiles([Leaf(name, 10, 5) for name in names], 50)
    assert_sums(drawn)
    assert sorted(tile.leaf for tile in drawn if tile.leaf is not None) == list(range(len(names)))


def test_the_treemap_shows_names_as_they_are():
    evil = '<a href="javascript:alert(1)">x</a>\n\u202e'
    leaves = [Leaf(evil, 8, 4), Leaf("b" * 5000, 8, 4)]
    drawn = tiles(leaves, 10)
    figure = figures.treemap(drawn, leaves, {0: evil, 1: "fact"}, title=evil)
    trace = figure.data[0]
    texts = [*trace.labels, *trace.text]
    assert not any("<a" in text or "\n" in text or "\u202e" in text for text in texts)
    assert all(len(text) < 600 for text in texts)
    assert list(trace.customdata) == [-1, 0, 1]


def test_the_color_is_bits_or_values():
    leaves = [Leaf("a", 8, 16), Leaf("b", 32, 16), Leaf("c", 8, 0)]
    drawn = tiles(leaves, 10)
    bits = figures.treemap(drawn, leaves).data[0]
    assert list(bits.marker.colors[1:]) == [2.0, 4.0, None]
    assert bits.marker.colorbar.ticktext == ("2", "3", "4", "6", "8", "≥16")
    by_value = figures.treemap(
        drawn, leaves, values={"a": 10.0, "b": float("inf"), "c": float("nan")}, unit="SQNR (dB)"
    )
    assert list(by_value.data[0].marker.colors[1:]) == [10.0, 10.0, None]
    assert isinstance(by_value, go.Figure)
