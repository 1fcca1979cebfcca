"""Where much is lost, the best scheme of the same storage is proposed: held against the whole table, computed."""

import dataclasses
import math
import random
import warnings

import numpy as np
import pytest
from grid import for_each
from parts import some_rows

import quantcore as qc
from quantcore.diagnosis import alternatives
from quantcore.tensors import Generated, generate

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SETTINGS = (qc.MinMax(), qc.MinMse(), qc.Percentile(99.0), qc.Percentile(99.9))
FAR_DB = 3.0


def storage_of(scheme, shape):
    try:
        return qc.bits_per_element(scheme, shape)
    except qc.QuantError:
        return math.inf


def offered(scheme, shape):
    """Yield for each granularity and symmetry the schemes of about the same storage that may be proposed instead.

    Of the same bits and at most `STORAGE` times the storage: symmetric and asymmetric, every granularity of
    `granularities`, every setting of `SETTINGS`; of the same library, and of the textbook.
    """
    most = alternatives.STORAGE * qc.bits_per_element(scheme, shape)
    for granularity in dict.fromkeys((scheme.granularity, *alternatives.granularities(shape))):
        for symmetric in (True, False) if scheme.format.has_zero_point else (True,):
            every = dict.fromkeys(alternatives._written(scheme, granularity, symmetric, qc.MinMax()))
            stored = [other for other in every if storage_of(other, shape) <= most]
            yield [dataclasses.replace(other, range_setting=s) for s in SETTINGS for other in stored]


def best_of(x, schemes):
    """The highest SQNR of these schemes, in dB."""
    found = []
    for other in schemes:
        try:
            found.append(qc.analysis.sqnr(qc.apply(x, other)))
        except qc.QuantError:  # a library that refuses the tensor
            continue
    return max(found, default=-np.inf)


def best_of_table(x, scheme):
    """The highest SQNR of what is offered, in dB."""
    return max(best_of(x, alike) for alike in offered(scheme, tuple(x.shape)))


def is_reached(x, scheme, least):
    """Whether a scheme that is offered reaches ``least``, in dB.

    In each granularity the textbook first tries a few ranges. All others are computed unless that falls short by
    `FAR_DB`: in 10,000 schemes of cases as `drawn`, none was better than these few ranges by more than 1.7 dB.
    """
    for alike in offered(scheme, tuple(x.shape)):
        few = [
            dataclasses.replace(other, range_setting=qc.MinMse(8))
            for other in alike
            if (other.convention.name, other.format) == ("textbook", scheme.format)
        ]
        if few and best_of(x, few[:1]) < least - FAR_DB:
            continue
        if best_of(x, alike) >= least:
            return True
    return False


def reached(x, scheme, findings):
    """The SQNR of the best fix of about the same storage, in dB."""
    most = alternatives.STORAGE * qc.bits_per_element(scheme, tuple(x.shape))
    fixes = [f for f in findings if f.fix and f.gain.what == "SQNR"]
    return max(
        (f.gain.after for f in fixes if qc.bits_per_element(f.fix, tuple(x.shape)) <= most), default=-np.inf
    )


@for_each(
    ("distribution", "parameters", "shape", "scheme"),
    some_rows([("bimodal", {}, (8, 200), "int2"), ("outlier_channel", {}, (3, 200), "int4"),
     ("sparse", {"density": 0.3}, (4, 3), "int2 per_channel(0)"), ("normal", {"mean": -2.0}, (32, 3), "int2 asymmetric"),
     ("student_t", {"df": 2.5}, (16, 16), "e2m1 per_group(8, axis=0)"), ("normal", {}, (3, 2, 40), "int3 fixed(-20, 20) torchao"),
     ("laplace", {}, (50, 4), "int4 per_flat_group(64)")], 7),
)  # fmt: skip
def test_a_fix_leads_to_the_best_scheme_of_the_same_storage(distribution, parameters, shape, scheme):
    x = generate(Generated(distribution, shape, parameters=tuple(parameters.items())))
    scheme = qc.Scheme.parse(scheme)
    result = qc.apply(x, scheme)
    before, best = qc.analysis.sqnr(result), best_of_table(x, scheme)
    findings = qc.diagnose(result)
    after = reached(x, scheme, findings)
    if before < alternatives.LOSSY_DB and best >= before + 6:
        assert after >= best - 3.5  # 3, and half a decibel of the estimate
    else:
        assert "better_scheme" not in [finding.kind for finding in findings]


def test_nothing_is_proposed_where_little_is_lost():
    x = generate(Generated("outlier_channel", (16, 16), parameters=(("factor", 2.0),)))
    for scheme in ("int8", "int8 per_channel(0)", "int16 percentile(99.99)"):
        result = qc.apply(x, qc.Scheme.parse(scheme))
        assert qc.analysis.sqnr(result) >= alternatives.LOSSY_DB
        assert "better_scheme" not in [f.kind for f in qc.diagnose(result)]


def test_the_library_is_kept_where_it_can_be():
    x = generate(Generated("normal", (16, 64), parameters=(("std", 0.02),)))
    for library in ("torchao", "onnxruntime", "torch.fake_quantize"):
        fixes = [
            f.fix for f in qc.diagnose(qc.apply(x, qc.Scheme.parse(f"int4 fixed(-1, 1) {library}"))) if f.fix
        ]
        assert fixes
        assert all(fix.convention.name == library for fix in fixes)


DISTRIBUTIONS = {
    "normal": {"std": (0.02, 1.0, 5.0), "mean": (0, 0, 1, -2)}, "laplace": {}, "student_t": {"df": (2.5, 3, 4, 8)},
    "uniform": {}, "log_normal": {"sigma": (0.5, 1, 1.5)}, "bimodal": {"separation": (4, 6, 12, 40)}, "relu": {},
    "sparse": {}, "outlier_channel": {"factor": (2, 3.5, 8, 12, 50)}, "outlier_element": {"factor": (8, 20, 50)},
}  # fmt: skip
FORMATS = (
    "int2",
    "int3",
    "int4",
    "int4",
    "int4",
    "uint4",
    "int5",
    "int6",
    "int8",
    "nf4",
    "e2m1",
    "e4m3fn",
    "ternary",
)
GRANULARITIES = (
    "per_tensor",
    "per_tensor",
    "per_channel(0)",
    "per_channel(1)",
    "per_group(32)",
    "per_group(16)",
)
RANGES = (
    "min_max",
    "min_max",
    "min_max",
    "min_mse",
    "percentile(99)",
    "percentile(99.9)",
    "fixed(-1, 1)",
    "fixed(-20, 20)",
)
LIBRARIES = (
    "textbook",
    "textbook",
    "torch.fake_quantize",
    "torchao",
    "onnxruntime",
    "brevitas",
    "compressed_tensors",
    "hqq",
)


def drawn(rng):
    """An ordinary case: a result up to 64×256."""
    while True:
        name = rng.choice(list(DISTRIBUTIONS))
        shape = rng.choice((3, 4, 8, 12, 16, 32, 64)), rng.choice((3, 8, 16, 40, 64, 128, 200, 256))
        values = tuple((key, rng.choice(of)) for key, of in DISTRIBUTIONS[name].items())
        x = generate(Generated(name, shape, seed=rng.randrange(10**6), parameters=values))
        fmt = rng.choice(FORMATS)
        symmetry = " asymmetric" if "int" in fmt and rng.random() < 0.4 else ""
        text = f"{fmt}{symmetry} {rng.choice(GRANULARITIES)} {rng.choice(RANGES)} {rng.choice(LIBRARIES)}"
        try:
            return qc.apply(np.ascontiguousarray(x.T) if rng.random() < 0.15 else x, qc.Scheme.parse(text))
        except qc.QuantError:
            continue


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_few_ordinary_cases_are_silent(seed):
    """Under 2 % of those that a scheme of the same storage improves by 6 dB; goal none.

    Of the cases with findings those count that a fix improves by 6 dB: not all that any scheme would, which makes
    the bound stricter.
    """
    rng, possible, silent = random.Random(seed), 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(300):
            result = drawn(rng)
            x, report = result.x.numpy(), qc.report(result)
            if not report.sqnr_db < alternatives.LOSSY_DB:
                continue
            findings, least = qc.diagnose(result, report), report.sqnr_db + alternatives.BETTER_DB
            if findings:
                possible += reached(x, result.scheme, findings) >= least
            elif is_reached(x, result.scheme, least):
                possible += 1
                silent.append((x.shape, str(result.scheme)))
    print(f"{len(silent)} of {possible} silent")
    assert len(silent) < 0.02 * possible, silent


@pytest.mark.slow
def test_few_findings_on_ordinary_weights():
    """At most 5 % of ordinary schemes on normal weights get a finding that is no error."""
    rng, told, total = random.Random(0), [], 0
    ordinary = ("int8", "int8 per_channel(0)", "int8 asymmetric", "uint8 asymmetric per_channel(0)", "int4 per_channel(0)",
                "int4 per_group(32)", "int4 per_group(128)", "uint4 asymmetric per_group(64)", "nf4 per_flat_group(64)",
                "e4m3fn", "e2m1 per_group(32)", "int4", "int6 per_channel(0)")  # fmt: skip
    for _ in range(500):
        shape = rng.choice((16, 32, 64, 128)), rng.choice((128, 256, 512))
        x = generate(
            Generated(
                "normal",
                shape,
                seed=rng.randrange(10**6),
                parameters=(("std", rng.choice((0.01, 0.02, 0.05, 1.0))),),
            )
        )
        scheme = rng.choice(ordinary)
        total += 1
        told += [scheme for f in qc.diagnose(qc.apply(x, qc.Scheme.parse(scheme))) if f.severity != "error"][
            :1
        ]
    print(f"{len(told)} of {total} told: {sorted(set(told))}")
    assert len(told) <= 0.05 * total
