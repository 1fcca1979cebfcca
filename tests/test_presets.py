"""Every preset gives what its library gave, as recorded in golden/presets.*: see golden/README.md."""

import dataclasses
import json
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import quantcore as qc

HERE = Path(__file__).parent / "golden"


@cache
def recorded():
    with np.load(HERE / "presets.npz", allow_pickle=False) as arrays:
        return json.loads((HERE / "presets.json").read_text())["cases"], {n: arrays[n] for n in arrays}


def array(reference):
    dtype, start, shape = reference
    return recorded()[1][dtype][start : start + int(np.prod(shape))].reshape(shape)


def cases(preset):
    return [case for case in recorded()[0] if case["preset"] == preset]


def scheme_of(case):
    """The case's preset, with another granularity where the case has one."""
    scheme = qc.PRESETS[case["preset"]]
    if "granularity" not in case:
        return scheme
    return dataclasses.replace(scheme, granularity=qc.Scheme.parse(case["granularity"]).granularity)


def found(case, scheme):
    """What we have of all that is recorded, by its name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = qc.apply(array(case["x"]), scheme)
    codes = result.codes.numpy()
    ours = {"dequantized": result.dequantized.numpy(), "codes": codes, "scale": result.scale.numpy()}
    if not isinstance(scheme.format, qc.IntFormat):
        ours["values"] = scheme.format.decode(result.codes).numpy()
    if result.scales is not None:
        ours["scale_codes"] = result.scales.codes.numpy()
    return ours


def no_number(name, values, scheme):
    if name == "codes" and isinstance(scheme.format, qc.FloatFormat):
        values = scheme.format.decode(values.astype(np.int32)).numpy()
    return np.isnan(values)


def differences(case, scheme):
    """What differs from the record, in words; empty if nothing does.

    The sign of zero is left aside, and with which of its patterns a NaN is written.
    """
    ours, words = found(case, scheme), []
    for name in ("scale", "scale_codes", "codes", "values", "dequantized"):
        if name not in case:
            continue
        theirs = array(case[name])
        mine = ours[name].reshape(theirs.shape)
        wrong = (mine != theirs) & ~(no_number(name, mine, scheme) & no_number(name, theirs, scheme))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            words.append(
                f"{case['id']}: {name}: {wrong.sum()} of {wrong.size} differ, "
                f"first at {at}: {mine[at]!r}, recorded {theirs[at]!r}"
            )
    return words


@pytest.mark.parametrize("preset", qc.PRESETS)
def test_exact(preset):
    assert cases(preset), f"nothing is recorded of {preset}"
    words = [line for case in cases(preset) for line in differences(case, scheme_of(case))]
    assert not words, "\n".join(words)


@pytest.mark.parametrize("preset", qc.PRESETS)
def test_text_round_trips(preset):
    scheme = qc.PRESETS[preset]
    assert qc.Scheme.parse(str(scheme)) == scheme
