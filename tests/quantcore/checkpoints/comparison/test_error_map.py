"""Where in a tensor the error is, against means over each cell's own elements in float64."""

import json

import numpy as np
import pytest
import torch
from releases import release

from quantcore.checkpoints.comparison import CheckpointComparison, ComparisonState, boxes
from quantcore.errors import QuantError


def by_definition(error):
    """The mean of the squares of the elements of each of at most 24 × 24 cells."""
    lines = error.reshape(-1, error.shape[-1])
    high, wide = (min(24, n) for n in lines.shape)
    found = np.empty((high, wide))
    for i in range(high):
        for j in range(wide):
            rows = [r for r in range(len(lines)) if r * high // len(lines) == i]
            columns = [c for c in range(lines.shape[1]) if c * wide // lines.shape[1] == j]
            found[i, j] = np.square(lines[np.ix_(rows, columns)]).mean()
    return found


def test_each_cell_has_the_mean_of_its_squares(tmp_path, monkeypatch):
    """With several boxes, on threads, of any shape, with values that are not finite or whose squares float32 lacks."""
    monkeypatch.setattr(boxes, "CHUNK", 1 << 10)
    random = np.random.default_rng(7)
    shapes = {"wide": (130, 77), "tall": (1800, 5), "small": (3, 4), "vector": (100,), "experts": (6, 9, 30), "bad": (96, 96)}
    x = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    errors = {name: 0.01 * random.normal(size=shape) for name, shape in shapes.items()}
    errors["bad"][:8, 88:] *= 1000  # a corner
    y = {name: (x[name] + errors[name]).astype(np.float32) for name in shapes}
    y["wide"][3, 5], x["wide"][100, 70], y["tall"][7, 1] = np.nan, np.inf, 1e30
    sides = [
        release(tmp_path / name, {n: torch.from_numpy(v) for n, v in values.items()})
        for name, values in (("x", x), ("y", y))
    ]
    comparison = CheckpointComparison(*sides)
    *_, last = comparison.steps(None, 2)
    found = comparison.error_maps(last.state)
    assert found.keys() == shapes.keys()
    for name in shapes:
        with np.errstate(invalid="ignore"):
            error = x[name].astype(np.float64) - y[name].astype(np.float64)
        wanted = by_definition(np.where(np.isfinite(error), error, 0.0))
        assert np.allclose(found[name], wanted, rtol=1e-5, atol=0), name
    corner = found["bad"] > 100 * np.median(found["bad"])
    assert np.argwhere(corner).tolist() == [[i, j] for i in range(2) for j in range(22, 24)]
    # a record keeps them to the last bit, within a bound; one of an earlier version has none
    plain = json.loads(json.dumps(last.state.as_dict()))
    again = comparison.error_maps(ComparisonState.of_dict(plain))
    assert all(np.array_equal(again[name], found[name]) for name in shapes)
    assert max(len(json.dumps(record["cells"])) for record in plain["finished"]) < 6300
    for wrong in ([24, 24, "AAAA"], [25, 1, ""], [1, 1, "?"], None):
        spoiled = plain | {"finished": [{**plain["finished"][0], "cells": {"as stored": wrong}}]}
        with pytest.raises(QuantError, match="not the record of a comparison"):
            ComparisonState.of_dict(spoiled)
    for record in plain["finished"]:
        del record["cells"]
    assert comparison.error_maps(ComparisonState.of_dict(plain)) == {}


def test_experts_that_are_compared_one_by_one_stand_on_top_of_each_other(tmp_path):
    parts = torch.randn(4, 8, 6, generator=torch.Generator().manual_seed(2))
    fused = parts + torch.arange(1.0, 5.0)[:, None, None] * 0.01
    name = "model.layers.0.mlp.experts"
    single = {f"{name}.{i}.down_proj.weight": part.contiguous() for i, part in enumerate(parts)}
    sides = [release(tmp_path / "x", single), release(tmp_path / "y", {f"{name}.down_proj": fused})]
    comparison = CheckpointComparison(*sides)
    *_, last = comparison.steps()
    assert len(comparison.pairing.pairs) == 4
    (found,) = comparison.error_maps(last.state).values()
    wanted = np.square(np.repeat([0.01, 0.02, 0.03, 0.04], 8))[:, None].repeat(6, 1)
    assert found.shape == (24, 6)
    assert np.allclose(found[[0, -1]], wanted[[0, -1]], rtol=1e-3)
