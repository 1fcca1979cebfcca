"""A sweep gives the results of single calls in order, with refusals as rows; the frontier has the unbeaten ones."""

import importlib
import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some

import quantcore as qc

sweep_module = importlib.import_module(qc.sweep.__module__)


def sample(shape=(24, 64)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 2


@for_each("workers", [1, 3])
def test_rows_are_single_calls(workers):
    schemes = qc.default_schemes((24, 64))[::41]
    frame = qc.sweep(sample(), schemes, workers)
    assert list(frame["scheme"]) == [str(s) for s in schemes]
    for scheme, row in zip(schemes, frame.itertuples(), strict=True):
        report = qc.report(qc.apply(sample(), scheme))
        for name in (
            "mse",
            "mae",
            "sse",
            "rmse",
            "sqnr_db",
            "max_abs_error",
            "cosine",
            "clipped",
            "clipping_sse",
            "codes_used",
        ):
            assert getattr(row, name) == getattr(report, name), (scheme, name)
        assert row.bits_per_element == qc.bits_per_element(scheme, (24, 64))
        assert row.refused == ""
        assert row.seconds > 0


def test_refused_schemes_are_rows_with_the_reason():
    schemes = [qc.Scheme(), qc.Scheme.parse("int5 onnxruntime"), qc.Scheme.parse("int4 per_channel(5)")]
    frame = qc.sweep(sample(), schemes)
    assert "4, 8 and 16 bits" in frame["refused"][1]
    assert "axis 5" in frame["refused"][2]
    assert frame["sqnr_db"].isna().tolist() == [False, True, True]
    with pytest.raises(qc.QuantError, match="no elements"):
        qc.sweep(torch.empty(0), schemes)


def test_the_output_is_measured_as_numpy_does():
    w, x = sample().numpy(), qc.outputs.activations(9, 64, seed=3)
    schemes = ["int4", "int3 per_channel(0)", "nf4 per_group(16)", "int5 onnxruntime"]
    frame = qc.sweep(w, schemes, output=qc.outputs.output_measure(x, w))
    y = x.double().numpy() @ w.astype(np.float64).T
    for scheme, found in zip(schemes[:3], frame["output_sqnr_db"], strict=False):
        y_hat = x.double().numpy() @ qc.apply(w, scheme).dequantized.double().numpy().T
        assert found == pytest.approx(10 * np.log10((y**2).sum() / ((y_hat - y) ** 2).sum()), abs=1e-4)
        assert found == pytest.approx(qc.outputs.layer(x, w, scheme).sqnr_db, abs=1e-9)
    assert math.isnan(frame["output_sqnr_db"][3])
    assert "output_sqnr_db" not in qc.sweep(w, schemes)
    with pytest.raises(qc.QuantError, match="x has 9 columns, but w has 64"):
        qc.outputs.output_measure(x.T, w)


def test_rows_come_while_work_goes_on_and_can_be_left():
    begun = []

    def schemes():
        for bits in itertools.cycle((2, 3, 4)):
            begun.append(bits)
            yield qc.Scheme(qc.IntFormat(bits))

    rows = qc.sweep_rows(sample(), schemes(), workers=2)
    first = [next(rows) for _ in range(4)]
    assert len({row.index for row in first}) == 4
    rows.close()
    assert len(begun) <= 4 + 3 + 2  # of the endless list, only rows that were requested or in progress


@for_each("shape", some([(2, 64), (3, 40, 200), (1,), (), (5,)]))
@in_parts(23)
def test_sensible_schemes_fit(shape, part):
    schemes = qc.default_schemes(shape)
    assert len(set(schemes)) == len(schemes) >= 10
    frame = qc.sweep(sample(shape), part(schemes))
    assert (frame["refused"] == "").all()


def written_out(shape):
    """The schemes that the docstring of `default_schemes` lists, as texts, even those that do not fit the shape."""
    ints = [
        f"int{bits} {symmetry}" for bits in (2, 3, 4, 5, 6, 8) for symmetry in ("symmetric", "asymmetric")
    ]
    codebooks, floats = ["ternary", "nf4", "iq4_nl"], ["e2m1", "e2m3", "e3m2", "e4m3fn", "e5m2"]
    four_bits = ("int2 ", "int3 ", "int4 ", "ternary", "nf4", "iq4_nl", "e2m1")
    rank = len(shape)
    channels = [f"per_channel({axis})" for axis in range(rank)]
    groups = [f"per_group({size})" for size in (16, 32, 64, 128) if shape and size < shape[-1]]
    if rank > 1:
        groups += [f"per_group({size}, axis=0)" for size in (32, 128) if size < shape[0]]
    blocks = (
        [f"per_block([{','.join(['1'] * (rank - 2) + ['32', '32'])}])"]
        if rank > 1 and min(shape[-2:]) > 32
        else []
    )
    for fmt in (*ints, *codebooks, *floats):
        for granularity in ("per_tensor", *channels, *groups, *blocks):
            yield f"{fmt} {granularity} min_max"
            if fmt.startswith(four_bits):
                yield f"{fmt} {granularity} min_mse(candidates=20)"
            if fmt in ints and granularity in ("per_tensor", *channels):
                yield f"{fmt} {granularity} percentile(99.9)"
    for bits, granularity in itertools.product(
        (2, 3, 4, 8), (*channels, *(g for g in groups if g == "per_group(64)"))
    ):
        yield f"uint{bits} asymmetric {granularity} half_quadratic hqq"


@for_each(
    "shape",
    some(
        [(), (1,), (5,), (16,), (17,), (24, 64), (40, 65), (33, 33), (32, 200), (64, 32), (3, 40, 129), (2, 2, 64, 128)],
        3,
    ),
)
def test_sensible_schemes_are_those_of_the_words(shape):
    schemes = [qc.Scheme.parse(text) for text in written_out(shape)] + list(qc.PRESETS.values())
    if not shape:  # there are no axes
        schemes = [s for s in schemes if isinstance(s.granularity, qc.PerTensor | qc.PerFlatGroup)]
    fits = [s for s in dict.fromkeys(schemes) if qc.unsupported_reason(s, shape) is None]
    assert qc.default_schemes(shape) == fits


def test_as_many_threads_as_cores(monkeypatch):
    counts = []
    monkeypatch.setattr(
        sweep_module, "ThreadPoolExecutor", lambda n, **_: counts.append(n) or ThreadPoolExecutor(n)
    )
    for cores in (3, None):
        monkeypatch.delattr(sweep_module.os, "sched_getaffinity", raising=False)
        monkeypatch.setattr(sweep_module.os, "cpu_count", lambda cores=cores: cores)
        assert len(list(qc.sweep_rows(sample(), [qc.Scheme()] * 5))) == 5
    list(qc.sweep_rows(sample(), [qc.Scheme()], workers=2))
    assert counts == [3, 1, 2]


def test_frontier_against_every_pair():
    rng = np.random.default_rng(2)
    for n in (1, 2, 7, 60):
        bits, gain = rng.integers(2, 9, n).astype(float), rng.normal(size=n).round(1)
        gain[rng.random(n) < 0.1] = math.nan
        found = qc.frontier(bits, gain)
        known = [i for i in range(n) if not math.isnan(gain[i])]
        beaten = {
            i for i in known for j in known
            if (bits[j] <= bits[i] and gain[j] > gain[i]) or (bits[j] < bits[i] and gain[j] >= gain[i])
        }  # fmt: skip
        # of equal points only the first is listed
        assert {(bits[i], gain[i]) for i in found} == {(bits[i], gain[i]) for i in set(known) - beaten}
        assert sorted(found, key=lambda i: bits[i]) == found
