"""Fitted codebooks against scikit-learn, the optimum by exhaustive search, and the quantizers that Max tabulated."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some
from places import GOLDEN

import quantcore as qc
from quantcore import QuantError
from quantcore.formats.codebook_fit import METHODS, fit_codebook

with np.load(GOLDEN / "codebooks.npz", allow_pickle=False) as arrays:
    RECORDED = {key: arrays[key] for key in arrays if key.startswith("kmeans.")}
TENSORS = {key.removeprefix("kmeans."): x for key, x in RECORDED.items() if key.count(".") == 1}


def squared_error(x, centres):
    return (np.abs(x.astype(np.float64)[:, None] - np.asarray(centres, np.float64)).min(1) ** 2).sum()


def slack(x, centres):
    """What float32 may cost: each value, the mean of its cell, is off by up to half a step, and sums round."""
    step = np.spacing(np.abs(np.asarray(centres, np.float32)).max()) / 2
    return len(x) * float(step) ** 2 + len(x) * 2.0**-52 * (x.astype(np.float64) ** 2).sum()


def costs(x):
    """The squared error of every stretch of the sorted elements as one cell."""
    x = np.sort(x.astype(np.float64))
    cost = np.full((len(x) + 1, len(x) + 1), np.inf)
    for a, b in itertools.combinations(range(len(x) + 1), 2):
        cost[a, b] = ((x[a:b] - x[a:b].mean()) ** 2).sum()
    return cost


def best(cost, size):
    """The least squared error of any codebook, over every way to cut the sorted elements into cells."""
    least = cost[0]
    for _ in range(size - 1):
        least = (least[:, None] + cost).min(0)
    return least[-1]


@for_each("size", [2, 3, 4, 8])
@for_each("name", TENSORS)
def test_kmeans_is_as_good_as_scikit_learn(name, size):
    x = TENSORS[name]
    values = fit_codebook(x, size, "kmeans").values
    theirs = RECORDED[f"kmeans.{name}.{size}.centres"]
    assert squared_error(x, values) <= squared_error(x, theirs) + slack(x, values)


@for_each("size", some([3, 2, 5], 3))
@for_each("name", TENSORS)
def test_kmeans_finds_the_best(name, size):
    x = TENSORS[name][:60]
    values = fit_codebook(x, size, "kmeans").values
    assert squared_error(x, values) <= best(costs(x), size) + slack(x, values)


@for_each("size", some([2, 3, 16, 4, 8], 2))
@for_each("method", METHODS)
@for_each("name", TENSORS)
def test_every_value_is_the_mean_of_what_takes_it(name, method, size):
    """Lloyd's condition; tensors with means that float32 cannot tell from a boundary would fail here."""
    x = torch.from_numpy(TENSORS[name])
    book = fit_codebook(x, size, method)
    codes = book.encode(x)
    assert book.values == tuple(sorted(set(book.values)))
    for code, value in enumerate(book.values):
        assert np.float32(x[codes == code].double().mean().item()) == np.float32(value)


def lloyd(x, centres, steps=300):
    """Lloyd's method as it is defined, in float64; elements on a boundary go to the lower center."""
    for _ in range(steps):
        boundaries = (centres[1:] + centres[:-1]) / 2
        cells = np.searchsorted(boundaries, x, side="left")
        moved = np.array([x[cells == k].mean() for k in range(len(centres))])
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def quantiles(x, size):
    """The middle elements of ``size`` equal parts of the sorted elements, or if some coincide, of the distinct ones."""
    for values in (np.sort(x), np.unique(x)):
        start = values[[int((k + 0.5) * len(values) / size) for k in range(size)]]
        if (np.diff(start) > 0).all():
            return start
    raise AssertionError


@for_each("size", some([3, 2, 4, 8, 5, 7], 3))
def test_lloyd_from_the_quantiles(size):
    rng = np.random.default_rng(size)
    for n in (31, 64, 100, 500):
        for x in (
            rng.normal(size=n),
            rng.standard_t(2, n),
            np.rint(rng.normal(size=n) * 4),
            rng.exponential(size=n) ** 2,
        ):
            x = np.sort(x.astype(np.float32).astype(np.float64))
            with np.errstate(invalid="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = lloyd(x, quantiles(x, size))
            if np.isnan(expected).any():
                continue  # a cell has lost all its elements
            values = fit_codebook(x.astype(np.float32), size).values
            assert values == pytest.approx(expected, rel=1e-6, abs=1e-7), n


def test_the_best_where_lloyd_rests_too_early():
    """The largest clump contains all quantiles, so only a search over cuts finds the others."""
    better = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        clumps = [c + rng.normal(size=n) * 0.05 for c, n in ((0, 60), (9, 2), (10, 3), (-40, 1))]
        x = np.concatenate(clumps).astype(np.float32)
        cost = costs(x)
        for size in (3, 4, 5):
            values = fit_codebook(x, size, "kmeans").values
            assert squared_error(x, values) <= best(cost, size) + slack(x, values)
            better += squared_error(x, fit_codebook(x, size).values) > 1.01 * squared_error(x, values)
    assert better > 3


def test_stretches_of_more_values_than_are_cut():
    """2,000 values in eight clumps: each stretch lies within one clump, so using stretches loses nothing."""
    rng = np.random.default_rng(4)
    middles = np.array([-100, -99, -98, 0, 1, 2, 3, 50])
    x = np.concatenate(
        [
            m + rng.normal(size=n) * 1e-3
            for m, n in zip(middles, (900, 800, 2, 100, 90, 80, 20, 8), strict=True)
        ]
    )
    values = fit_codebook(x.astype(np.float32), 8, "kmeans").values
    assert values == pytest.approx(middles, abs=0.002)


def test_a_value_that_loses_all_its_elements():
    """From this tensor's quantiles, Lloyd's second step leaves one of five values without elements."""
    x = [1.6677896, 0.14901064, 16.324701, 7.195825, 0.0170625, 0.0259024, 7.0379405, 3.5152628, 4.77305, 0.9014913,
         0.9564917, 0.1059986]  # fmt: skip
    book = fit_codebook(x, 5)
    assert len(set(book.encode(x).tolist())) == 5


@for_each(
    ("size", "values", "distortion"),
    [
        pytest.param(2, [0.7980], 0.3634, marks=pytest.mark.slow),
        (4, [0.4528, 1.510], 0.1175),
        pytest.param(8, [0.2451, 0.7560, 1.344, 2.152], 0.03454, marks=pytest.mark.slow),
    ],
)
def test_the_quantizers_of_the_normal_distribution(size, values, distortion):
    """Max 1960, table I, as printed: four digits, the last of which may be off by one."""
    n = 1 << 20
    x = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n).float()
    book = fit_codebook(x, size)
    for ours, printed in zip(book.values[size // 2 :], values, strict=True):
        assert abs(ours - printed) < 1.5 * 10.0 ** (np.floor(np.log10(printed)) - 3)
    error = (x - book.decode(book.encode(x))).double().square().mean().item()
    assert abs(error - distortion) < 1.5 * 10.0 ** (np.floor(np.log10(distortion)) - 3)


@in_parts(2)
def test_kmeans_of_more_values_than_are_cut(part):
    """Cutting stretches instead of elements costs little: the result is never worse than Lloyd's local optimum."""
    x = np.random.default_rng(5).standard_t(3, 1 << 17).astype(np.float32)
    for size in part((4, 256, 16)):
        ours, lloyd = (fit_codebook(x, size, method).values for method in ("kmeans", "lloyd_max"))
        assert squared_error(x, ours) <= squared_error(x, lloyd) + slack(x, ours)


@for_each("method", METHODS)
def test_as_many_values_as_there_are(method):
    x = [3.0, 1.0, 1.0, 1.0, 2.5, -7.0] + [0.0] * 500
    assert fit_codebook(x, 5, method).values == (-7.0, 0.0, 1.0, 2.5, 3.0)


@for_each("method", METHODS)
def test_outliers_among_a_million_equal_ones(method):
    """All quantiles are 0."""
    x = torch.zeros(1 << 20)
    x[:3] = torch.tensor([1.0, 2.0, -50.0])
    assert fit_codebook(x, 4, method).values == (-50.0, 0.0, 1.0, 2.0)


@for_each("method", METHODS)
@for_each("sign", [1, -1])
def test_one_value_is_held_and_the_others_are_means(method, sign):
    x = torch.tensor([0.0, 0.125, 0.25, 0.5, 0.5, 0.625, 0.9375, 1.0, 3.0]) * sign
    book = fit_codebook(x, 4, method, reach=1.0)
    assert float(sign) in book.values
    assert book.values == tuple(sorted(book.values))
    codes = book.encode(x)
    for code, value in enumerate(book.values):
        if value != sign:
            assert x[codes == code].mean().item() == value


def test_held_at_the_end_that_more_elements_reach():
    assert fit_codebook([-1.0, 0.2, 0.3, 1.0, 1.0], 3, reach=1.0).values[-1] == 1
    assert fit_codebook([-1.0, -1.0, 0.2, 0.3, 1.0], 3, reach=1.0).values[0] == -1
    assert fit_codebook([-0.9, 0.2, 0.3, 0.8], 3, reach=1.0).values[0] == -1


@for_each("granularity", some(["per_tensor", "per_channel", "per_group(32)", "per_block([8,16])"][::-1], 4))
@for_each("setting", some(["min_max", "percentile(99)", "mean_std(2)"], 2))
def test_fitted_scheme_beats_a_codebook_for_another_distribution(granularity, setting):
    """The error is measured where the codebook is fitted: in units of the scale, clamped to ±1."""
    x = torch.from_numpy(np.random.default_rng(7).laplace(size=(24, 64)).astype(np.float32))
    scheme = qc.Scheme.parse(f"int4 {granularity} {setting}")
    fitted = qc.fit_scheme(x, scheme, 16)
    assert qc.Scheme.parse(str(fitted)) == fitted
    assert max(map(abs, fitted.format.values)) == 1
    errors = []
    for other in (fitted, qc.Scheme.parse(f"nf4 {granularity} {setting}")):
        scale = qc.apply(x, other).scale
        for axis in range(2):
            scale = scale.repeat_interleave(x.shape[axis] // scale.shape[axis], axis)
        y = (x / scale).clamp(-1, 1)
        errors.append((y - other.format.decode(other.format.encode(y))).double().square().sum().item())
    assert errors[0] < errors[1]


def test_fitted_scheme_without_scales_to_speak_of_is_the_fit_of_x():
    x = np.random.default_rng(8).normal(size=500).astype(np.float32)
    fitted = qc.fit_scheme(x, qc.Scheme(range_setting=qc.Given(1.0)), 8, "kmeans")
    assert fitted.format.values == fit_codebook(x, 8, "kmeans").values


def test_fitted_scheme_of_odd_tensors():
    for x in (np.array([1e-42, 2e-42, 0, -3e-42]), np.array([3e38, -3e38, 1e38, 0])):
        result = qc.apply(x.astype(np.float32), qc.fit_scheme(x, qc.Scheme(), 3))
        assert bool(result.dequantized.isfinite().all())
    for constant, words in ((0.0, "1 different values"), (5.0, "1 different values")):
        with pytest.raises(QuantError, match=words):
            qc.fit_scheme(np.full((4, 4), constant), qc.Scheme(), 2)
    with pytest.raises(QuantError, match="NaN"):
        qc.fit_scheme([1.0, float("nan")], qc.Scheme(), 2)


def test_x_is_left_alone():
    x = torch.tensor([3.0, 1.0, 2.0])
    fit_codebook(x, 2)
    assert x.tolist() == [3, 1, 2]


@for_each(
    ("x", "size", "method", "words"),
    [
        ([1.0, 1.0, 2.0], 3, "kmeans", "2 different values"),
        ([1.0, 2.0], 1, "kmeans", "size=1"),
        ([1.0, 2.0], 257, "lloyd_max", "size=257"),
        ([1.0, 2.0], 2, "median", "choose lloyd_max or kmeans"),
        ([1.0, float("nan")], 2, "kmeans", "NaN"),
        ([1.0, float("inf")], 2, "kmeans", "infinity"),
        ([1.0, 2.0], 2.5, "kmeans", "integer"),
        ([], 2, "kmeans", "no elements"),
    ],
)
def test_what_is_refused(x, size, method, words):
    with pytest.raises(QuantError, match=words):
        fit_codebook(x, size, method)
