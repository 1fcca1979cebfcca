"""The bytes of the gguf schemes, compared with ggml's own in tests/data/golden_checkpoints/gguf_quantizer."""

from functools import cache

import numpy as np
import pytest
from places import CHECKPOINTS

import quantcore as qc
from quantcore.scheme import gguf_type, with_importance

CASE = CHECKPOINTS / "gguf_quantizer" / "expected.npz"
TYPES = [name.removeprefix("gguf.") for name in qc.PRESETS if name.startswith("gguf.")]
WEIGHTED = [name for name in TYPES if name not in ("Q8_0", "MXFP4", "TQ1_0", "TQ2_0")]


@cache
def recorded():
    with np.load(CASE, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays}


@pytest.mark.parametrize("name", TYPES)
def test_bytes(name):
    found = recorded()
    cases = [key.split("|")[2:] for key in found if key.startswith(f"bytes|{name}|")]
    assert len(cases) == (38 if name in WEIGHTED else 11)
    for x, importance in cases:
        given = None if importance == "none" else found[f"imatrix|{importance}"]
        result = qc.apply(found[f"x|{x}"], qc.PRESETS[f"gguf.{name}"], importance=given)
        assert qc.checkpoints.encode(result) == found[f"bytes|{name}|{x}|{importance}"].tobytes(), (
            x,
            importance,
        )


@pytest.mark.parametrize("name", WEIGHTED)
def test_texts_are_the_schemes(name):
    """With and without importance, the scheme's text reads back and gives the same bytes."""
    found = recorded()
    x, importance = found["x|outlier"], found["imatrix|im_skewed"]
    for scheme, given in (
        (qc.PRESETS[f"gguf.{name}"], None),
        (with_importance(qc.PRESETS[f"gguf.{name}"]), importance),
    ):
        back = qc.Scheme.parse(str(scheme))
        assert back == scheme
        assert gguf_type(back) == name
        kind = "none" if given is None else "im_skewed"
        result = qc.apply(x, back, importance=given)
        assert result.scheme == scheme
        assert qc.checkpoints.encode(result) == found[f"bytes|{name}|outlier|{kind}"].tobytes()


@pytest.mark.parametrize("name", TYPES)
def test_bits_are_those_of_the_bytes(name):
    x = recorded()["x|normal"]
    scheme = qc.PRESETS[f"gguf.{name}"]
    stored = qc.checkpoints.encode(qc.apply(x, scheme))
    assert qc.bits_per_element(scheme, x.shape) == 8 * len(stored) / x.size


def test_other_schemes_have_no_bytes():
    x = recorded()["x|normal"]
    for text in ("int4 per_group(32)", "uint4 symmetric per_group(32) gguf.Q4_0"):
        with pytest.raises(qc.QuantError, match="have a packing"):
            qc.checkpoints.encode(qc.apply(x, qc.Scheme.parse(text)))
