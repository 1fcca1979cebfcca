"""`errors_of`, which keeps only sums, against `report` of the codes: the same errors, element by element, summed less precisely."""

import dataclasses
import math
import re

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts

import quantcore as qc
from quantcore.analysis import Sums, sums_of

GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(48, 130, generator=GENERATOR)
TENSORS = {
    "normal": X, "tiny": X[:, :128] * 1e-30, "huge": X[:, :128] * 3e37, "positive": X[:, :64].abs(), "zero": torch.zeros(8, 64),
    "3d": X[:15, :32].reshape(5, 3, 32), "vector": X.reshape(-1)[:1000], "one value": torch.full((16, 64), 0.1), "grid": torch.arange(64.0).reshape(2, 32),
    "bfloat16": X[:, :128].bfloat16(), "float16": X[:, :128].half(),
}  # fmt: skip
TEXTS = (
    "int8 symmetric per_channel(0) percentile(99)", "uint4 asymmetric per_group(7)", "int4 textbook(overflow=wrap) given(0.1)",
    "int4 asymmetric per_channel(1) min_mse(20)", "int2 asymmetric per_block([5,9])", "int8 given(0.01,3)", "int4 per_tensor mean_std(2)",
)  # fmt: skip
SCHEMES = [
    *qc.PRESETS.values(),
    *(qc.Scheme(fmt, True, qc.PerGroup(32)) for fmt in (*qc.FLOATS.values(), *qc.CODEBOOKS.values())),
    *(qc.Scheme(qc.INT4, symmetric, qc.PerGroup(32), convention=c) for c in qc.CONVENTIONS.values() for symmetric in (True, False)),
    *map(qc.Scheme.parse, TEXTS),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@in_parts(17)
@for_each("what", TENSORS)
def test_the_errors_are_those_of_the_codes(what, part):
    """The largest error and the clipped elements are equal, which shows that the elements are; sums are close."""
    x, compared = TENSORS[what], 0
    for scheme in part(SCHEMES if what == "normal" else SCHEMES[list(TENSORS).index(what) % 3 :: 3]):
        try:
            report = qc.report(qc.apply(x, scheme))
        except qc.QuantError as reason:
            with pytest.raises(qc.QuantError, match=re.escape(str(reason))):
                qc.errors_of(x, scheme)
            continue
        found = qc.errors_of(x, scheme)
        compared += 1
        exact = (found.max_abs_error, found.clipped) == (report.max_abs_error, report.clipped)
        assert exact or math.isnan(report.max_abs_error), scheme
        for name in ("mse", "mae", "sse", "rmse"):
            assert getattr(found, name) == pytest.approx(getattr(report, name), rel=1e-6, abs=0, nan_ok=True), scheme
        assert found.sqnr_db == pytest.approx(report.sqnr_db, abs=1e-5, nan_ok=True), scheme
        assert found.undefined == {name: why for name, why in report.undefined.items() if hasattr(found, name)}
    assert compared


def test_the_power_is_taken_as_given():
    exact = float((X.double() ** 2).sum())
    scheme = qc.Scheme.parse("int4 per_group(32)")
    plain = qc.errors_of(X, scheme)
    assert qc.errors_of(X, scheme, exact) == dataclasses.replace(plain, sqnr_db=qc.errors_of(X, scheme, exact).sqnr_db)
    assert qc.errors_of(X, scheme, 100 * exact).sqnr_db == pytest.approx(plain.sqnr_db + 20, abs=1e-5)


def test_importance_changes_the_search():
    importance = torch.linspace(0.1, 10, 256)
    x = X[:, :128].reshape(-1, 256)
    weighted = qc.errors_of(x, qc.PRESETS["gguf.Q4_K"], importance=importance)
    assert weighted.sse == pytest.approx(qc.report(qc.apply(x, qc.PRESETS["gguf.Q4_K"], importance=importance)).sse, rel=1e-6)
    assert weighted.sse != qc.errors_of(x, qc.PRESETS["gguf.Q4_K"]).sse


@for_each("fmt", qc.FLOATS.values(), ids=str)
def test_rounding_without_codes(fmt):
    """Every midpoint, its neighbors and every value, of both signs, and numbers beyond: the value of the code."""
    values = fmt.values[-600:] if fmt.bits > 8 else fmt.values
    middle = (values[:-1].double() + values[1:].double()).mul(0.5).float()
    beyond = torch.tensor([0.0, 3e38, 1.5 * float(values[-1]), float(values[1]) / 3])
    x = torch.cat([values, middle, *(torch.nextafter(middle, torch.tensor(end)) for end in (-math.inf, math.inf)), beyond])
    x = torch.cat([x, -x])
    work = x.clone()
    if fmt.round_(work):
        assert torch.equal(work, fmt.decode(fmt.encode(x)))
    else:
        assert fmt.mantissa == 0 or fmt.bits > 8 or not fmt.saturate or not fmt.subnormals or fmt.sign != "bit"


def test_sums_of_parts_merge_to_those_of_the_whole():
    """NaN stays the largest error, at its first place; equal errors go to the first place, whatever the order of parts."""
    x, y = X[:, :64], (X[:, :64] * 16).round() / 16
    whole = sums_of(x, y).sums
    added = Sums()
    for row in reversed(range(0, 48, 16)):
        added.merge(sums_of(x[row : row + 16], y[row : row + 16], row * 64).sums)
    error = (x - y).numpy().astype(np.float64)
    assert (added.worst, added.worst_at) == (whole.worst, whole.worst_at) == (np.abs(error).max(), np.abs(error).argmax())
    assert (whole.ee, whole.ae, whole.xx) == pytest.approx(((error**2).sum(), np.abs(error).sum(), float((x.double() ** 2).sum())), rel=1e-13)
    assert (added.ee, added.ae, added.xy) == pytest.approx((whole.ee, whole.ae, whole.xy), rel=1e-13)
    twice = sums_of(torch.zeros(4, 8), torch.ones(4, 8), 32).sums
    twice.merge(sums_of(torch.zeros(4, 8), torch.ones(4, 8)).sums)
    assert (twice.worst, twice.worst_at, twice.count) == (1.0, 0, 64)
    bad = x.clone()
    bad[7, 3] = bad[9, 0] = math.nan
    found = sums_of(bad, y).sums
    found.merge(sums_of(x, y + 100).sums)
    assert math.isnan(found.worst)
    assert (found.worst_at, found.index((48, 64))) == (7 * 64 + 3, None)
