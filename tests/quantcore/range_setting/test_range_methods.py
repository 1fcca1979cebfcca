"""Range settings beyond min-max: MinMse against exhaustive search, the others against their libraries."""

import contextlib
import dataclasses
import io
import itertools
import json
import math

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some, some_rows
from places import GOLDEN
from torch.utils._python_dispatch import TorchDispatchMode

import quantcore as qc
from quantcore.conventions import CONVENTIONS
from quantcore.qparams import squared_error as grid_trials
from quantcore.qparams.squared_error import BlockErrors, Trials
from quantcore.range_setting import RANGE_SETTINGS
from quantcore.range_setting import entropy as range_entropy
from quantcore.range_setting.protocol import Task

HERE = GOLDEN
RECORDED = json.loads((HERE / "ranges.json").read_text())
with np.load(HERE / "ranges.npz", allow_pickle=False) as _file:
    ARRAYS = dict(_file)
TEXTS = ("min_mse", "min_mse(candidates=20)", "entropy", "entropy(num_bins=160)", "mean_std(3)", "abs_mean",
         "half_quadratic", "half_quadratic(iterations=5, lp_norm=0.5)")  # fmt: skip
NORMAL = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)
DATA = {
    "normal": NORMAL,
    "outliers": NORMAL**5,
    "above zero": np.abs(NORMAL) + 3,
    "below zero": -np.abs(NORMAL) - 0.5,
    "whole": np.rint(3 * NORMAL),
    "huge": NORMAL * np.float32(1e37),
    "tiny": NORMAL * np.float32(1e-36),
    "denormal": NORMAL * np.float32(1e-42),
    "constant": np.full((3, 7), -2.5, np.float32),
    "zero": np.zeros((3, 7), np.float32),
    "one element": NORMAL[:, :1],
    "few": NORMAL[:, :3],
    "one outlier": np.where(np.arange(40) == 7, np.float32(1e6), NORMAL),
}
FORMATS = ("int8", "int4", "int2", "int3n", "uint4 asymmetric", "int2 asymmetric", "e2m1", "e4m3fn", "nf4")
each_data = for_each("data", DATA)


@for_each("text", TEXTS)
def test_text_form(text):
    scheme = qc.Scheme.parse(f"int4 {text}")
    assert qc.Scheme.parse(str(scheme)) == scheme
    assert f" {text} " in str(scheme)


@for_each("text", ["percentile(99.5)", "min_mse(20)", "entropy(512)", "mean_std(2.5)", "abs_mean", "make_qkx2(-1, 0.1, 20)",
                                  "fixed(-1, 2)", "given([[0.1], [0.2]], zero_point=[[1], [2]])"])  # fmt: skip
def test_controls_represent_a_setting(text):
    setting = qc.Scheme.parse(f"int4 {text}").range_setting
    choices = setting.choices()
    assert set(choices) == {control.key for control in setting.controls}
    assert type(setting).chosen(choices) == setting


@for_each("text", ["percentile(50.0005)", "half_quadratic(iterations=5)", "entropy(512, num_quantized_bins=64)"])
def test_controls_refuse_what_they_cannot_represent(text):
    with pytest.raises(qc.QuantError, match=r"must be at least 50\.001|can't be set here; leave it out"):
        qc.Scheme.parse(f"int4 {text}").range_setting.choices()


def test_every_setting_has_one_name():
    assert len(RANGE_SETTINGS) == 16
    for name in RANGE_SETTINGS:
        with pytest.raises(qc.QuantError, match="does not match the arguments"):
            qc.Scheme.parse(f"{name}(nonsense=1)")


# MinMse


def error_of(block, scheme, low, high):
    """The squared error of one block quantized with this range; None if the range is empty."""
    low, high = float(low), float(high)
    if not low < high:
        return None
    fixed = qc.Scheme(scheme.format, scheme.symmetric, qc.PerTensor(), qc.Fixed(low, high))
    result = qc.apply(block, fixed)
    return float(((block - result.dequantized.numpy()).astype(np.float64) ** 2).sum())


def candidates_of(block, symmetric, n):
    """Every range of the grid, computed in numpy's float32."""
    low, high = block.min(), block.max()
    still = np.float32(0) if symmetric else np.clip(np.float32(0), low, high)
    yield low, high
    for k in range(1, n):
        share = np.float32(1) - np.float32(k) / np.float32(n)
        yield still + (low - still) * share, still + (high - still) * share


@for_each(("fmt", "data"), some_rows(itertools.product(FORMATS, DATA), 41))
def test_min_mse_is_the_best_of_all_candidates(fmt, data):
    scheme = qc.Scheme.parse(f"{fmt} per_channel(0) min_mse(candidates=9)")
    x = DATA[data][:4]
    result = qc.apply(x, scheme)
    found = ((x - result.dequantized.numpy()).astype(np.float64) ** 2).sum(1)
    for block, error in zip(x, found, strict=True):
        tried = [error_of(block, scheme, *ends) for ends in candidates_of(block, scheme.symmetric, 9)]
        tried = [t for t in tried if t is not None]
        if tried:
            # the same numbers, summed in another order
            assert error == pytest.approx(min(tried), rel=1e-12, abs=0)


@for_each(
    ("convention", "data"),
    some_rows(
        itertools.product(["textbook", "torch.fake_quantize", "torchao", "onnxruntime", "brevitas"], DATA), 9
    ),
)
def test_min_mse_is_never_worse_than_min_max(convention, data):
    for symmetry in ("symmetric", "asymmetric"):
        errors = []
        for setting in ("min_max", "min_mse"):
            scheme = qc.Scheme.parse(f"int8 {symmetry} per_channel(0) {setting} {convention}")
            try:
                errors.append(qc.block_errors(qc.apply(DATA[data], scheme)))
            except qc.QuantError:
                errors.append(None)
        if None not in errors:
            assert not (errors[1] > errors[0]).any()
        assert (errors[0] is None) == (errors[1] is None)


# blocks whose low / s is a tie, so that the zero_point, and with it the reach of the codes, alternates between
# ranges. Chosen from 20,000 such blocks as ones on which a search that ignores this fails.
TIED = torch.tensor(
    [
        [-0.8527050018310547, 7.674345016479492, 2.574326753616333, 3.0891921520233154, 1.0297306776046753,
         3.6040573120117188, 2.574326753616333, 5.148653507232666],
        [-3.115818977355957, 28.042369842529297, 11.404688835144043, 11.404688835144043, 7.60312557220459,
         13.30547046661377, 5.7023444175720215, 5.7023444175720215],
        [-1.280491828918457, 11.524426460266113, 4.675292015075684, 0.7792153358459473, 4.675292015075684,
         5.454507350921631, 4.675292015075684, 3.116861343383789],
    ]
)  # fmt: skip
# narrow ranges get a larger scale than wide ones
RAISED = dataclasses.replace(
    qc.Scheme.parse("int4"), convention=qc.TEXTBOOK.changed(eps=0.5, eps_replacement=2.0)
)


@for_each(
    ("scheme", "blocks"),
    [(qc.Scheme.parse("uint4 asymmetric"), TIED), (RAISED, torch.tensor([[2.0, 4.0, 6.0, 8.4]]))],
    ids=["zero_point that wavers", "scale that is replaced"],
)
def test_a_search_sees_narrow_ranges_that_reach_farther(scheme, blocks):
    shares = 1 - torch.arange(100) / 100
    measure = BlockErrors(blocks, scheme)
    low, high = blocks.amin(1), blocks.amax(1)
    errors = torch.stack([measure(low, high)] + [measure(low * share, high * share) for share in shares[1:]])
    found = measure.search(low, high, torch.zeros_like(low), shares)
    assert torch.equal(measure(*found), errors.amin(0))


EVERY_CONVENTION = sorted(CONVENTIONS)


@in_parts(19)
@for_each("convention", some(EVERY_CONVENTION, 9))
def test_a_search_finds_what_measuring_every_range_does(convention, part):
    """The search never skips the range with the least error, compared to the last bit."""
    shares = 1 - torch.arange(16) / 16
    searched = 0
    formats = ("int4", "int8 asymmetric", "uint4 asymmetric", "e2m1", "nf4")
    datasets = ("normal", "outliers", "above zero", "whole", "huge", "tiny", "denormal", "one outlier")
    for fmt, data in part(itertools.product(formats, datasets)):
        if fmt == "nf4" and CONVENTIONS[convention].coding.rounding != "half_even":
            continue  # codebooks only round to nearest
        scheme = dataclasses.replace(qc.Scheme.parse(fmt), convention=CONVENTIONS[convention])
        # the fused kernel takes one block
        rows = 1 if CONVENTIONS[convention].coding.kernel == "E" else None
        blocks = torch.from_numpy(DATA[data]).repeat_interleave(2, dim=1)[:rows]
        low, high = blocks.amin(1), blocks.amax(1)
        still = torch.zeros_like(low) if scheme.symmetric else torch.zeros_like(low).clamp(low, high)
        measure = BlockErrors(blocks, scheme)
        # a share of 1 is the range itself, as computing it could round
        ends = [(low, high)]
        ends += [tuple(still + (end - still) * share for end in (low, high)) for share in shares[1:]]
        errors = torch.stack([measure(*end) for end in ends])
        assert torch.equal(measure(*measure.search(low, high, still, shares)), errors.amin(0)), (fmt, data)
        searched += 1
    assert searched >= len(part(range(32)))


@for_each(
    ("text", "power", "most"),
    [
        ("int4", 1, 34),
        ("int4", 3, 31),
        ("int8", 3, 8.5),
        ("uint4 asymmetric", 1, 34),
        ("uint4 asymmetric", 3, 29),
        ("e2m1", 3, 22),
        ("nf4", 3, 21),
    ],
)
def test_a_search_leaves_most_ranges_out(monkeypatch, text, power, most):
    """How many of 100 ranges per block are measured in float32, and again in float64 where float32 can't decide."""
    exact, measured = [], []
    call, measure = BlockErrors.__call__, Trials.measure
    monkeypatch.setattr(
        BlockErrors, "__call__", lambda self, *ends: exact.append(len(self.blocks)) or call(self, *ends)
    )
    monkeypatch.setattr(
        Trials, "measure", lambda self, coding: measured.append(coding.scale.numel()) or measure(self, coding)
    )
    x = torch.randn(400, 64, generator=torch.Generator().manual_seed(0)) ** power
    qc.choose_qparams(x, qc.Scheme.parse(f"{text} per_channel(0) min_mse"))
    assert 400 <= sum(exact) <= 1.2 * 400  # min-max itself is always measured in float64
    assert 7 * 400 <= sum(measured) <= most * 400


@for_each(
    ("fmt", "choices", "size", "expected"),
    [
        ("int4", {}, 4096, True),
        ("int4", {}, 4097, False),
        ("uint4 asymmetric", {}, 8, True),
        ("e2m1", {}, 8, False),
        ("nf4", {}, 8, False),
        ("int4", {"overflow": "wrap"}, 8, False),
        ("int4", {"rounding": "floor"}, 8, False),
        ("int4", {"rounding": "half_up"}, 8, True),
        ("int4 asymmetric", {"zero_point_form": "float"}, 8, False),
        ("int4 asymmetric", {"zero_point_form": "float_rounded"}, 8, True),
        ("int4", {"e8m0_min_as": 1.0}, 8, False),
        ("int4", {"min_divisor": 1.0}, 8, False),
        ("int4", {"kernel": "D"}, 8, True),
    ],
)
def test_which_searches_measure_in_steps(fmt, choices, size, expected):
    """This takes the fewest passes, and is possible if x̂ is the step next to x in any order of operations."""
    scheme = dataclasses.replace(qc.Scheme.parse(fmt), convention=qc.TEXTBOOK.changed(**choices))
    assert grid_trials._takes_steps(BlockErrors(torch.ones(2, size), scheme)) == expected


class Largest(TorchDispatchMode):
    """Records the most elements that a multiplication wrote."""

    elements = 0

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else PyTorch imports its compiler first, which takes 2 s

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and func.__name__.startswith(("mul", "addcmul")):
                self.elements = max(self.elements, tensor.numel())
        return out


def test_a_search_works_on_two_pieces_at_a_time():
    """It tries eight ranges at once, on as many blocks as keep the elements at 2^20."""
    x = torch.randn(1100, 128, generator=torch.Generator().manual_seed(0))
    with Largest() as largest:
        qc.choose_qparams(x, qc.Scheme.parse("int4 per_channel(0) min_mse(9)"))
    assert largest.elements == 2**20


def test_min_mse_of_long_blocks_and_of_many_at_once():
    """Blocks alone, among others, and too long for float32 sums give the same results."""
    x = torch.randn(3000, 16, generator=torch.Generator().manual_seed(1)) ** 3
    scheme = qc.Scheme.parse("int3 per_channel(0) min_mse")
    together = qc.choose_qparams(x, scheme).scale
    assert torch.equal(
        together[::500],
        torch.cat([qc.choose_qparams(x[i : i + 1], scheme).scale for i in range(0, 3000, 500)]),
    )
    long = (x.reshape(1, -1) * 1.0)[:, :20_000]
    found = qc.choose_qparams(long, scheme)
    tried = [error_of(long.numpy(), scheme, *ends) for ends in candidates_of(long.numpy(), True, 100)]
    own = qc.apply(long, scheme)
    assert qc.report(own).sse == pytest.approx(min(tried), rel=1e-12)
    assert found.high.item() < long.abs().max().item()


def test_min_mse_takes_the_widest_of_equals():
    x = torch.tensor([[0.0, 1.0, -1.0, 0.5]])  # magnitudes of 0, 0.5 and 1
    assert qc.choose_qparams(torch.zeros(1, 4), qc.Scheme(range_setting=qc.MinMse())).high.item() == 0
    exact = qc.Scheme.parse("uint2 asymmetric min_mse(candidates=4)")
    assert qc.choose_qparams(x.abs() * 3, exact).high.item() == 3


def test_min_mse_looks_at_the_convention_it_serves():
    """On the same tensor, two conventions can have different best ranges."""
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(3))
    highs = [
        qc.choose_qparams(x, qc.Scheme.parse(f"int2 per_channel(0) min_mse {name}")).high
        for name in ("textbook", "torchao")
    ]
    assert not torch.equal(*highs)


@for_each("candidates", [0, -1, 1.5, 10_001, "9", None, True])
def test_min_mse_refuses(candidates):
    with pytest.raises(qc.QuantError, match="candidates"):
        qc.MinMse(candidates)


@for_each("data", some(DATA, 3))
def test_squared_error_is_that_of_the_report(data):
    x = torch.from_numpy(DATA[data])
    for text in (
        "int4 per_channel(0) fixed(-1, 0.5)",
        "uint3 asymmetric per_channel(0) fixed(-0.75, 1)",
        "e2m1 per_channel(0) fixed(-1, 1)",
    ):
        scheme = qc.Scheme.parse(text)
        result = qc.apply(x, scheme)
        measure = BlockErrors(x, scheme)
        low, high = (
            torch.full((len(x),), scheme.range_setting.low),
            torch.full((len(x),), scheme.range_setting.high),
        )
        assert measure(low, high).numpy() == pytest.approx(
            (qc.block_errors(result) * x.shape[1]).reshape(-1).numpy(), rel=1e-12
        )
        clipping, rounding, clipped = measure.split(low, high)
        report = qc.report(result)
        assert int(clipped.sum()) == report.clipped
        assert float(clipping.sum()) == pytest.approx(report.clipping_sse, rel=1e-12)
        assert float(rounding.sum()) == pytest.approx(report.rounding_sse, rel=1e-12)


# Entropy


@for_each("case", RECORDED["onnxruntime"], ids=lambda c: f"{c['input']}-{c['num_bins']}")
def test_entropy_has_the_recorded_thresholds(case):
    x = torch.from_numpy(ARRAYS[f"x.{case['input']}"]).reshape(1, -1)
    found = qc.Entropy(case["num_bins"])(x, Task(qc.INT8, False))
    assert [float(end).hex() for end in found] == [float.fromhex(case[end]).hex() for end in ("low", "high")]


def divergence(counts, i, quantized):
    """Σ p·log(p/q) with ``i`` bins on each side of the middle one, as in onnxruntime's loops; None if q is 0."""
    middle = len(counts) // 2
    start, stop = middle - i, min(middle + i + 1, len(counts))
    inside = counts[start:stop]
    p = inside.copy()
    p[0] += counts[:start].sum()
    p[-1] += counts[stop:].sum()
    merged = len(inside) // quantized
    q = np.zeros(len(inside), np.int64)
    for k in range(quantized):
        part = slice(k * merged, (k + 1) * merged)
        total = inside[k * merged :].sum() if k == quantized - 1 else inside[part].sum()
        if np.count_nonzero(p[part]):
            q[part] = total // np.count_nonzero(p[part])
    if not q.any():
        return None
    p, q = (np.where(d == 0, 0.0001, d - 0.0001 * (d == 0).sum() / max((d != 0).sum(), 1)) for d in (p, q))
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


@in_parts(13)
@for_each(("bins", "quantized"), [(12, 4), (13, 4), (40, 8), (41, 7), (64, 16), (30, 2)])
def test_divergence_of_every_threshold(bins, quantized, part):
    """Each threshold separately, on sparse histograms, where empty bins and clipped counts matter most."""
    rng = np.random.default_rng(bins)
    counts = rng.poisson(rng.choice([0.1, 0.5, 2, 20], (120, 1)), (120, bins))
    counts = np.array(part(counts * rng.integers(1, 40, (120, bins))))
    counts[:, bins // 2] += 1
    middle = bins // 2
    known = [[divergence(row, i, quantized) for i in range(quantized // 2, middle + 1)] for row in counts]
    for k, i in enumerate(range(quantized // 2, middle + 1)):
        start, stop = middle - i, min(middle + i + 1, bins)
        outside = counts[:, :start].sum(1), counts[:, stop:].sum(1)
        found = range_entropy._divergence(counts[:, start:stop], outside, quantized)
        expected = [math.inf if row[k] is None else row[k] for row in known]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    places = range_entropy.least_divergence(counts, quantized)
    for row, place in zip(known, places, strict=True):
        least = min((v for v in row if v is not None), default=None)
        if least is not None:
            assert row[place - quantized // 2] == pytest.approx(least, rel=1e-4, abs=1e-6)
        else:
            assert place == quantized // 2


def test_histogram_is_numpys():
    """The edges are those of numpy, and elements on edges are counted as numpy does."""
    rng = np.random.default_rng(2)
    for bins in (2, 3, 12, 128, 301):
        x = rng.normal(size=(20, 50)).astype(np.float32)
        x[:, :10] = np.rint(x[:, :10] * 8) / 8
        edges = range_entropy.histogram_edges(np.abs(x).max(1), bins)
        for n in range(20):
            x[n, 10:30] = rng.choice(edges[n], 20)
        counts = range_entropy.histogram_counts(x, edges)
        for row, own, found in zip(x, edges, counts, strict=True):
            assert np.array_equal(own, np.linspace(own[0], own[-1], bins + 1, dtype=np.float32))
            assert own[-1] == -own[0]
            assert np.array_equal(found, np.histogram(row, own)[0])


def onnxruntimes(x, bins, quantized):
    calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
    collector = calibrate.HistogramCollector("entropy", False, bins, quantized, 99.99, "same")
    with contextlib.redirect_stdout(io.StringIO()):
        collector.collect({"x": x})
        return collector.compute_collection_result()["x"][:2]


@pytest.mark.slow  # by default, its recorded thresholds are compared
@for_each(("bins", "quantized"), some_rows([(128, 128), (129, 128), (301, 100), (300, 64), (160, 16)], 4))
@for_each(
    "data",
    [
        "normal",
        "outliers",
        "above zero",
        "below zero",
        "whole",
        "constant",
        "zero",
        "one element",
        "few",
        "one outlier",
    ],
)
def test_entropy_is_onnxruntimes(data, bins, quantized):
    x = torch.from_numpy(DATA[data][:2])
    low, high = qc.Entropy(bins, quantized)(x, Task(qc.INT8, False))
    for block, *ends in zip(x.numpy(), low, high, strict=True):
        assert [float(e) for e in ends] == [float(e) for e in onnxruntimes(block, bins, quantized)]


def test_entropy_of_a_large_tensor_is_onnxruntimes():
    x = np.random.default_rng(5).standard_t(3, size=1 << 17).astype(np.float32)
    found = qc.Entropy(512)(torch.from_numpy(x).reshape(1, -1), Task(qc.INT8, False))
    assert [float(e) for e in found] == [float(e) for e in onnxruntimes(x, 512, 128)]


@for_each("data", some(["denormal", "huge", "tiny"], 3))
def test_entropy_where_onnxruntime_fails_is_scaled(data):
    """Scaling all elements by a power of two scales the thresholds by the same."""
    exponent = {"huge": 126, "tiny": -126, "denormal": -140}[data]
    x = np.ldexp(np.rint(NORMAL * 64).astype(np.float32) / 512, exponent)
    near = np.ldexp(x.astype(np.float64), -exponent).astype(np.float32)
    found, expected = (qc.Entropy(512)(torch.from_numpy(v), Task(qc.INT8, False)) for v in (x, near))
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a.numpy(), np.ldexp(b.numpy().astype(np.float64), exponent).astype(np.float32))


@for_each(
    "arguments", [(1, 1), (128, 256), (8193,), (128.5,), (128, 0), ("many",), (math.nan,)]
)
def test_entropy_refuses(arguments):
    with pytest.raises(qc.QuantError):
        qc.Entropy(*arguments)


def test_entropy_refuses_what_takes_minutes():
    with pytest.raises(qc.QuantError, match="takes minutes; choose fewer bins"):
        qc.apply(torch.ones(4096, 2), qc.Scheme(range_setting=qc.Entropy(8192), granularity=qc.PerChannel(0)))


# HQQ


@for_each("case", RECORDED["hqq"], ids=lambda c: f"{c['input']}-{c['bits']}")
def test_half_quadratic_has_the_recorded_parameters(case):
    name, x = f"hqq.{case['input']}.{case['bits']}", ARRAYS[f"x.{case['input']}"]
    scheme = qc.Scheme.parse(
        f"uint{case['bits']} asymmetric per_group({case['group_size']}) half_quadratic hqq"
    )
    result = qc.apply(x, scheme)
    for what, found in (("scale", result.scale), ("zero_point", result.zero_point), ("codes", result.codes)):
        assert np.array_equal(found.numpy(), ARRAYS[f"{name}.{what}"].astype(found.numpy().dtype)), what


@for_each(
    ("text", "words"),
    [
        ("uint4 asymmetric half_quadratic hqq", "per-channel or per-group"),
        ("uint4 asymmetric per_group(4) half_quadratic", "choose hqq and asymmetric"),
        ("int4 symmetric per_group(4) half_quadratic hqq", "choose hqq and asymmetric"),
        ("uint4 asymmetric per_group(3) half_quadratic hqq", "divides the last axis"),
    ],
)
def test_half_quadratic_refuses(text, words):
    with pytest.raises(qc.QuantError, match=words):
        qc.apply(NORMAL, qc.Scheme.parse(text))


@for_each(
    "arguments", [(0,), (1001,), (1.5,), (20, 0), (20, 1.1), (20, 0.7, 0), (20, 0.7, math.inf)]
)
def test_half_quadratic_refuses_arguments(arguments):
    with pytest.raises(qc.QuantError):
        qc.HalfQuadratic(*arguments)


# MeanStd and AbsMean


@each_data
def test_mean_std_is_numpys(data):
    x = DATA[data]
    low, high = qc.MeanStd(2.5)(torch.from_numpy(x), Task(qc.INT8, False))
    wide = x.astype(np.float64)
    largest = np.finfo(np.float32).max
    for found, sign in ((low, -1), (high, 1)):
        expected = np.clip(wide.mean(1) + sign * 2.5 * wide.std(1), -largest, largest)
        ulp = np.spacing(np.maximum(np.abs(expected), np.abs(wide).max(1)).astype(np.float32)).astype(
            np.float64
        )
        assert (np.abs(found.numpy() - expected) <= ulp / 2 * (1 + 1e-6)).all()


def test_mean_std_of_known_values():
    x = torch.tensor([[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]])  # mean 5, deviation 2
    assert [e.item() for e in qc.MeanStd(3)(x, Task(qc.INT8, False))] == [-1, 11]
    scheme = qc.Scheme.parse("int8 mean_std(3)")  # LSQ+: max(|mean - 3 std|, |mean + 3 std|) / qmax
    assert qc.choose_qparams(x, scheme).scale.item() == np.float32(11) / np.float32(127)


@for_each("k", [0, -1, math.nan, math.inf, "3", None, True])
def test_mean_std_refuses(k):
    with pytest.raises(qc.QuantError, match="k"):
        qc.MeanStd(k)


@each_data
def test_abs_mean_makes_ternary_codes_as_bitnet_does(data):
    x = DATA[data]
    result = qc.apply(x, qc.Scheme.parse("int2n per_channel(0) abs_mean"))
    gamma = np.abs(x.astype(np.float64)).mean(1, keepdims=True).astype(np.float32)
    assert np.array_equal(result.scale.numpy(), np.where(gamma > 0, gamma, 1))
    with np.errstate(all="ignore"):
        ternary = np.clip(np.rint(np.where(gamma > 0, x / gamma, 0)), -1, 1)
    assert np.array_equal(result.codes.numpy(), ternary)


@for_each(
    ("granularity", "text", "data"),
    some_rows(
        itertools.product(["per_tensor", "per_channel(1)", "per_group(3)", "per_block([2,2])"], TEXTS[:6], DATA), 23
    ),
)
def test_odd_input_and_granularities(text, granularity, data):
    if granularity == "per_block([2,2])" and min(DATA[data].shape) < 2:
        granularity = "per_channel(0)"
    if granularity == "per_group(3)" and DATA[data].shape[1] < 3:
        granularity = "per_channel(0)"
    for rest in ("int4 symmetric", "uint4 asymmetric"):
        result = qc.apply(DATA[data], qc.Scheme.parse(f"{rest} {granularity} {text}"))
        assert result.scale.isfinite().all()
        assert (result.scale > 0).all()
        assert result.dequantized.isfinite().all()


@for_each("text", TEXTS[:6])
def test_nan_is_refused_in_words(text):
    x = NORMAL.copy()
    x[2, 3] = np.nan
    for convention in ("textbook", "torchao"):
        with pytest.raises(qc.QuantError, match=r"x contains one NaN at index \(2, 3\)"):
            qc.apply(x, qc.Scheme.parse(f"int8 {text} {convention}"))


CONTROLS = {
    "min-max": "min_max", "min MSE": "min_mse", "percentile": "percentile(99)", "entropy": "entropy(num_bins=2048)",
    "mean ± k·std": "mean_std(3)", "mean |x|": "abs_mean", "half-quadratic": "half_quadratic",
    "fixed": "fixed(-1, 1)", "by hand": "given(0.1)",
}  # fmt: skip


def test_controls_begin_with_the_usual_arguments():
    """What a range setting's controls choose before they are moved."""
    kinds = {kind.option: kind for kind in RANGE_SETTINGS.values()}
    assert CONTROLS.keys() <= kinds.keys()
    for option, text in CONTROLS.items():
        chosen = kinds[option].chosen({control.key: control.default for control in kinds[option].controls})
        assert chosen == qc.Scheme.parse(f"int4 {text}").range_setting, option
