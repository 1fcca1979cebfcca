"""When columns of a weight count as multiplied by the factors of a norm, and by which factors rows are."""

import math

import pytest
import torch
from grid import for_each
from releases import save
from suspects import COLUMNS, ROWS, W, suspect, weight

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison.pairing import Pair
from quantcore.checkpoints.comparison.parts import Part
from quantcore.checkpoints.findings.against import changes
from quantcore.checkpoints.findings.against.changes import (
    Originals,
    Rescaled,
    are_multiplied,
    error_of,
    row_factors,
)
from quantcore.checkpoints.findings.walk import Ordered

NORM = "model.layers.1.input_layernorm.weight"


def of(folder, y, x):
    """A weight of the original, and how the release stores it, as values."""
    s = suspect(folder, {W: y}, x, "")
    return s.measure.source, s.layout


def factors_of(count, by, others=1.0):
    factors = torch.full((COLUMNS,), others)
    factors[5 : 5 + count] = by
    return factors


@for_each(
    ("share", "told"),
    [(0.0, False), (0.7, False), (0.75, False), (0.8, True), (1.0, True), (1.2, True), (1.3, False)],
)
def test_columns_that_take_a_part_of_their_factors(share, told, tmp_path):
    """A factor whose effect is half there explains as much error as it adds."""
    x = (100 * weight()).round()  # so that three quarters, the limit, are exact
    x[:, 60:68] = x[:, 5:13]
    factors = factors_of(8, 1.5)
    factors[60:68] = 0.5
    assert are_multiplied(*of(tmp_path, x * (1 + share * (factors - 1)), x), factors) is told


@for_each(
    ("clear", "slight", "least", "told"),
    [
        (8, 0, changes.CLEAR, True), (7, 0, changes.CLEAR, False), (7, 9, changes.CLEAR, False),
        (7, 1, 0.01, True), (7, 0, 0.01, False), (0, 8, 0.01, True), (0, 8, 0.03, False),
    ],
)  # fmt: skip
def test_how_many_columns_show_it(clear, slight, least, told, tmp_path):
    """Eight whose factor differs from 1 by more than 5 %, else by more than what is asked for."""
    x = weight()
    factors = factors_of(clear, 1.06)
    factors[60 : 60 + slight] = 0.98
    original, layout = of(tmp_path, x * factors, x)
    assert are_multiplied(original, layout, factors, least) is told


def test_clear_factors_decide(tmp_path):
    """Those of 2 % may be noise where eight of more than 5 % are there."""
    x = weight()
    factors = factors_of(8, 1.5)
    factors[40:] = 1.02
    mixed = torch.where(factors == 1.5, factors, 1 / factors)
    original, layout = of(tmp_path, x * mixed, x)
    assert are_multiplied(original, layout, factors, 0.01)


def test_columns_of_0_show_nothing(tmp_path):
    x = weight()
    x[:, 5:12] = 0
    factors = factors_of(14, 1.5)
    assert not are_multiplied(*of(tmp_path / "seven", x * factors, x), factors)
    factors = factors_of(15, 1.5)
    assert are_multiplied(*of(tmp_path / "eight", x * factors, x), factors)


def test_rows_may_be_multiplied_too(tmp_path):
    """By any factors; columns then show theirs beside the typical one alone."""
    x = weight()
    rows = torch.linspace(0.4, 2.5, ROWS)[torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))][
        :, None
    ]
    columns = torch.exp(
        torch.linspace(-0.7, 0.7, COLUMNS)[
            torch.randperm(COLUMNS, generator=torch.Generator().manual_seed(2))
        ]
    )
    assert are_multiplied(*of(tmp_path / "both", x * rows * columns, x), columns)
    assert not are_multiplied(*of(tmp_path / "rows", x * rows, x), columns)
    assert not are_multiplied(*of(tmp_path / "inverse", x * rows / columns, x), columns)
    factors = torch.where(torch.arange(COLUMNS) % 2 == 0, 3.05, 2.96)
    factors[5:13], there = 3.6, torch.ones(COLUMNS)
    there[5:13] = 1.2
    assert are_multiplied(*of(tmp_path / "typical", x * rows * there, x), factors)


@for_each(("elements", "rows"), [(1, 1), (COLUMNS, 1), (2 * COLUMNS - 1, 1), (5 * COLUMNS, 5), (10**6, ROWS)])
def test_the_error_in_the_first_rows(elements, rows, tmp_path, monkeypatch):
    """Of as many elements, but of one row at least; values that are not finite count as 0."""
    monkeypatch.setattr(changes, "_SAMPLE", elements)
    x = weight()
    y = x * torch.linspace(0.5, 2, ROWS)[:, None]
    bad = y.clone()
    bad[0, 3], y[0, 3] = math.inf, 0.0
    wanted = float(((x - y).double() ** 2)[:rows].sum())
    assert error_of(*of(tmp_path / "two", bad, x)) == pytest.approx(wanted, rel=1e-6)
    shape = (ROWS, 4, COLUMNS // 4)
    assert error_of(*of(tmp_path / "three", y.reshape(shape), x.reshape(shape))) == pytest.approx(
        wanted, rel=1e-6
    )


@for_each("shape", [(ROWS, COLUMNS), (ROWS, 4, COLUMNS // 4)])
def test_factors_of_rows(shape, tmp_path):
    """By least squares, in any number of boxes; 1 where the original is 0."""
    x = weight()
    x[7] = 0
    by = torch.linspace(-1.5, 2.5, ROWS)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(5)) * 0.01
    y = x * by[:, None] + noise
    wanted = (x.double() * y).sum(1) / (x.double() ** 2).sum(1)
    wanted[7] = 1.0
    found = row_factors(*of(tmp_path, y.reshape(shape), x.reshape(shape)))
    assert found.double().tolist() == pytest.approx(wanted.tolist(), rel=1e-4)


@for_each("shape", [(ROWS, COLUMNS), (ROWS, 4, COLUMNS // 4)])
@for_each(("axis", "what"), [(0, "row"), (-1, "column")])
def test_products(shape, axis, what, tmp_path):
    """The rows asked for, and how many factors differ from 1 by more than 1 %."""
    x = weight().reshape(shape)
    original, layout = of(tmp_path, x, x)
    factors = torch.ones(shape[axis])
    factors[3], factors[9], factors[11], factors[12] = 0.25, 3.0, 1.009, 0.991
    by = factors if axis else factors.reshape(-1, *[1] * (len(shape) - 1))
    product = Rescaled.of(original, factors, axis, "norm", "{other} is")
    for part in (slice(0, ROWS), slice(2, 10)):
        assert torch.equal(product.read(part), (x * by)[part])
    (finding,) = product.said(layout)
    assert (finding.severity, finding.kind) == ("note", f"{what}_factors")
    assert finding.facts == {"n": 2, "of": shape[axis], "low": 0.25, "high": 3.0, "other": "norm"}
    twice = Rescaled.of(product, factors, axis, "norm", "{other} is")
    assert torch.equal(twice.read(slice(0, ROWS)), x * by * by)
    assert len(list(twice.said(layout))) == 2


def norms(folder, x, y, of_source, of_release, names=(NORM,)):
    """What a weight is compared with, beside vectors of both."""
    source = open_checkpoint(save(folder / "source", {W: x} | of_source))
    release = open_checkpoint(save(folder / "release", {W: y} | of_release))
    pairs = {name: [Pair(Part(name), Part(name), tuple(of_source[name].shape))] for name in names}
    original = Ordered(source.tensors[W], tuple(y.shape))
    originals = Originals(source, release)
    originals.pairs = pairs
    found = originals.rescaled(W, original)
    return None if found is original else found


@for_each("added", [0.0, 1.0])
def test_what_a_norm_is_divided_by(added, tmp_path):
    """With 1 added to what is stored, or not."""
    x = weight()
    by, was = torch.linspace(0.5, 2, COLUMNS), torch.linspace(1.5, 0.5, COLUMNS)
    found = norms(tmp_path, x, x * by, {NORM: was - added}, {NORM: was / by - added})
    assert (found.axis, found.other) == (-1, NORM)
    assert torch.allclose(found.factors, by, rtol=1e-5)
    assert torch.allclose(found.read(slice(0, ROWS)), x * by, rtol=1e-5)
    x = x[:, None]
    assert norms(tmp_path / "axes", x, x * by, {NORM: was - added}, {NORM: was / by - added}).other == NORM


@for_each(
    "why",
    [
        "not multiplied",
        "same norm",
        "another layer",
        "another length",
        "a matrix",
        "one is 0",
        "one was 0",
        "one sign",
        "all signs",
    ],
)
def test_norms_that_multiply_nothing(why, tmp_path):
    x, by = weight(), torch.linspace(0.5, 2, COLUMNS)
    was, name = torch.linspace(1.5, 2.5, COLUMNS), NORM
    now, y = was / by, x * by
    if why == "not multiplied":
        y = x
    elif why == "same norm":
        now = was
    elif why == "another layer":
        name = NORM.replace(".1.", ".2.")
    elif why == "another length":
        was, now = was[:64], now[:64]
    elif why == "a matrix":
        was, now = was[None], now[None]
    elif why == "one is 0":  # as it is, and with 1 added
        now = now.clone()
        now[3:5] = torch.tensor([0.0, -1.0])
    elif why == "one was 0":
        was = was.clone()
        was[3] = 0
    elif why == "one sign":
        now = now.clone()
        now[3] *= -1
    else:
        now = -now - 2
    assert norms(tmp_path, x, y, {name: was}, {name: now}, (name,)) is None


def test_the_best_of_several_norms(tmp_path):
    """Both reduce the error; the second is exact."""
    x, by = weight(), torch.linspace(0.5, 2, COLUMNS)
    was, other = torch.linspace(1.5, 2.5, COLUMNS), NORM.replace("input", "other")
    near = 1 + 0.9 * (by - 1)
    for first, second in ((by, near), (near, by)):
        given = {NORM: was, other: was}
        found = norms(
            tmp_path / str(float(first[0])),
            x,
            x * by,
            given,
            {NORM: was / first, other: was / second},
            (NORM, other),
        )
        assert found.other == (NORM if first is by else other)


def test_one_factor_for_all(tmp_path):
    x, was = weight(), torch.linspace(1.5, 2.5, COLUMNS)
    found = norms(tmp_path, x, 2 * x, {NORM: was}, {NORM: was / 2})
    assert found.factors.tolist() == [2.0] * COLUMNS


def test_vectors_are_not_multiplied(tmp_path):
    x, by = torch.linspace(1.0, 2.0, COLUMNS), torch.linspace(0.5, 2, COLUMNS)
    assert norms(tmp_path, x, x * by, {NORM: x}, {NORM: x / by}) is None
    none = torch.zeros(0, COLUMNS)
    assert norms(tmp_path / "empty", none, none, {NORM: x}, {NORM: x / by}) is None
