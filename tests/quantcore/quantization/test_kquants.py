"""ggml's searches as schemes: what they refuse, how they are explained, and what they can be combined with."""

import dataclasses
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some
from script_run import run

import quantcore as qc
from quantcore.scheme import with_importance
from quantcore.snippets import library_script, quantcore_script
from quantcore.tensors import literal

TYPES = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")
WEIGHTED = (*TYPES, "Q4_0", "Q4_1", "Q5_0", "Q5_1")
SUPER_BLOCKS = tuple(name for name in TYPES if name != "IQ4_NL")


def preset(name):
    return qc.PRESETS[f"gguf.{name}"]


def sample(shape=(4, 512), seed=0):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    x[..., 5] *= 40
    x[..., :32] *= 1e-3
    return x


def weights(columns=512, seed=1):
    return torch.rand(columns, generator=torch.Generator().manual_seed(seed))


@for_each("name", ["Q2_K", "Q4_K", "Q5_K"])
def test_the_range_of_a_search_is_that_of_its_groups(name):
    """Within two steps: the search moves scale and min a little from the extremes of a group, or 0."""
    x = torch.randn(8, 512, generator=torch.Generator().manual_seed(2))
    result = qc.apply(x, preset(name))
    low, high, step = result.params.low, result.params.high, result.params.raw
    groups = x.view(*low.shape, -1)
    assert torch.allclose(high - low, step * result.scheme.format.qmax, rtol=1e-5)
    assert ((low - groups.amin(-1).clamp(max=0)).abs() < 2 * step).all()
    assert ((high - groups.amax(-1)).abs() < 2 * step).all()


@for_each("name", SUPER_BLOCKS)
@for_each("columns", [8, 128, 300, 257, 384])
def test_rows_of_other_lengths(name, columns):
    with pytest.raises(qc.QuantError, match=rf"n_per_row % QK_K == 0.*rows have {columns} elements"):
        qc.apply(torch.ones(2, columns), preset(name))


@for_each("name", WEIGHTED)
@for_each("bad", [np.nan, np.inf])
def test_nonfinite_numbers_are_refused(name, bad):
    x = sample()
    x[1, 3] = bad
    if name in TYPES:
        with pytest.raises(qc.QuantError, match=r"at index \(1, 3\)"):
            qc.apply(x, preset(name))
    with pytest.raises(qc.QuantError, match=r"at index \(1, 3\)"):
        qc.apply(x, preset(name), importance=weights())


@for_each(
    ("importance", "words"),
    [
        (torch.rand(511), "one number per column"),
        (torch.rand(4, 511), "one number per column"),
        (torch.rand(3, 512), "one number per column"),
        (-torch.rand(512), "negative"),
        (torch.full((512,), torch.nan), "non-finite"),
    ],
)
def test_importance_that_is_refused(importance, words):
    with pytest.raises(qc.QuantError, match=words):
        qc.apply(sample(), preset("Q4_K"), importance=importance)


def test_schemes_without_importance():
    for scheme in (qc.Scheme(), qc.PRESETS["gguf.Q8_0"], qc.PRESETS["torchao.mxfp4"]):
        with pytest.raises(qc.QuantError, match=r"does not support importance; use one of gguf\.Q4_0"):
            qc.apply(sample(), scheme, importance=weights())
    for name in WEIGHTED:
        with pytest.raises(qc.QuantError, match="give importance="):
            qc.apply(sample(), with_importance(preset(name)))


def test_importance_of_every_element_is_that_of_its_column():
    x, by_column = sample(), weights()
    each = qc.apply(x, preset("Q5_K"), importance=by_column.expand(x.shape))
    assert torch.equal(each.codes, qc.apply(x, preset("Q5_K"), importance=by_column).codes)
    assert not torch.equal(each.codes, qc.apply(x, preset("Q5_K")).codes)


@for_each("name", some(TYPES, 3))
def test_any_rank_and_layout(name):
    x = sample((2, 3, 512))
    flat = qc.apply(x.reshape(6, 512), preset(name))
    whole = qc.apply(x, preset(name))
    assert torch.equal(whole.codes.reshape(6, 512), flat.codes)
    one = qc.apply(x[1, 2], preset(name))
    assert torch.equal(one.codes, flat.codes[5])
    strided = qc.apply(x.transpose(0, 1), preset(name))
    assert torch.equal(strided.dequantized.transpose(0, 1), whole.dequantized)
    again = qc.apply(x, preset(name), out=whole)
    assert again.codes is whole.codes


SENTENCES = {
    "Q4_K": (
        "a scale of 0 stays 0 until it is stored",
        "a non-finite scale is refused",
        "there is no zero point: x̂ is q · s - min",
        "where the scale is stored as 0, the search's codes are used",
        "codes are round((x + min) / s)",
        "for the scales, a scale of 0 stays 0 until it is stored",
        "for the scales, the zero point is 0",
        "for the scales, codes are chosen by the search, not computed with the stored scale",
    ),
    "Q6_K": (
        "a scale of 0 stays 0 until it is stored",
        "a non-finite scale is refused",
        "where the scale is stored as 0, the search's codes are used",
        "for the scales, a scale of 0 stays 0 until it is stored",
        "for the scales, codes are chosen by the search, not computed with the stored scale",
    ),
    "IQ4_XS": (
        "a scale of 0 stays 0 until it is stored",
        "a non-finite scale is refused",
        "codes are computed with the scale's code times the scale of the scales before it is stored",
        "codes are round(x · (1/s))",
        "for the scales, a scale of 0 stays 0 until it is stored",
        "for the scales, codes are chosen by the search, not computed with the stored scale",
    ),
    "IQ4_NL": (
        "a scale of 0 stays 0 until it is stored",
        "a non-finite scale is refused",
        "codes are computed with the scale before it is stored",
        "codes are round(x · (1/s))",
    ),
}


@for_each("name", SENTENCES)
def test_what_is_said(name):
    assert tuple(qc.differences(preset(name))) == SENTENCES[name]


@for_each("name", ["Q2_K", "Q4_K", "Q5_K"])
def test_codes_as_they_are_said(name):
    """The codes are round((x + min) / s), as the sentences say, except where the scale is 0."""
    result = qc.apply(sample(), preset(name))
    size = result.scheme.granularity.size
    s, z = (p.numpy().repeat(size, -1) for p in (result.scale, result.zero_point))
    d, dmin = (
        part.scale.numpy().repeat(256 // size, -1).repeat(size, -1) for part in (result.scales, result.mins)
    )
    codes, mins = (
        part.codes.numpy().repeat(size, -1).astype(np.float32) for part in (result.scales, result.mins)
    )
    assert np.array_equal(s, d * codes)
    assert np.array_equal(z, -(dmin * mins))
    with np.errstate(all="ignore"):
        expected = np.clip(np.rint((result.x.numpy() - z) / s), 0, result.scheme.format.qmax)
    kept = s != 0
    assert kept.any()
    assert not kept.all()
    assert np.array_equal(result.codes.numpy()[kept], expected[kept])
    assert np.array_equal(result.dequantized.numpy(), result.codes.numpy() * s + z)


@for_each("name", some(WEIGHTED, 3))
def test_trace_with_importance(name):
    """The trace goes through the search and both levels of scales to the code in the result."""
    x = sample()
    result = qc.apply(x, preset(name), importance=weights())
    searched = 0
    for index in [(0, 3), (1, 40), (2, 5), (3, 511), (2, 300)]:
        t = qc.trace(result, index)
        steps = {step.name: step for step in t.steps()}
        assert t.search is not None
        assert t.code == int(result.codes[index])
        assert t.dequantized == float(result.dequantized[index])
        assert steps["weight w"].formula.startswith("importance")
        assert float(t.search.group.scale) == float(result.params.raw[t.block])
        searched += "code q (searched)" in steps
        if result.scales.scales is not None:
            level = t.search.of_scale
            assert t.scale == level.code * level.stored
    assert searched == 5 if name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1") else searched < 5


def test_trace_where_a_scale_is_stored_as_0():
    result = qc.apply(sample(), preset("Q4_K"))
    place = (result.scale == 0).nonzero()[0].tolist()
    t = qc.trace(result, (place[0], place[1] * 32 + 1))
    assert t.overflow == "searched"
    assert t.steps()[-3].formula == "chosen by the search, since the scale is stored as 0"


@for_each("name", some(TYPES, 3))
def test_curve_of_a_group(name):
    """The best trial has the least error, and its scale is that of the group before it is stored."""
    result = qc.apply(sample(), preset(name))
    for block in ((0, 3), (3, 7), (2, 2)):
        curve = qc.search_curve(result, block)
        (best,) = np.flatnonzero(curve.best)
        assert curve.scales[best] == abs(float(result.params.raw[block]))
        assert curve.errors[best] <= np.nanmin(curve.errors) * (1 + 1e-4)
        assert (curve.measured, curve.groups) == (1, result.scale.numel())
    every = qc.search_curve(result)
    assert every.best.sum() == every.measured == result.scale.numel()
    assert qc.figures.search_error(every).data
    with pytest.raises(qc.QuantError, match="is not a search"):
        qc.search_curve(qc.apply(sample(), qc.Scheme()))


def test_the_search_lowers_its_error():
    """Compared with nmax / (max - min), the first trial."""
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(3))
    curve = qc.search_curve(qc.apply(x, preset("Q4_K")))
    assert curve.best[0] < curve.best.sum() / 10
    no_search = dataclasses.replace(preset("Q4_K"), range_setting=qc.MakeQkx2(-1.0, 0.1, 0))
    assert qc.report(qc.apply(x, preset("Q4_K"))).sqnr_db > qc.report(qc.apply(x, no_search)).sqnr_db + 0.2


OWN = [
    ("int4 per_group(32) make_qx", 5.0),
    ("int5 per_group(64) make_q3", 5.5),
    ("iq4_nl per_group(64) make_iq4_nl(ntry=3)", 4.5),
    (
        "uint3 asymmetric per_group(32) make_qkx2(-0.5, 0.1, 15) gguf.Q4_K "
        "scales(uint8 symmetric per_group(16) max_scale gguf.scales "
        "scales(fp16(saturate=False) given(1) stored))",
        3 + 2 * (8 / 32 + 16 / 512),
    ),
]


@for_each(("text", "bits"), OWN)
def test_searches_of_other_formats(text, bits):
    """A search is a range setting like any other and works with other bit widths, groups and super-blocks."""
    scheme = qc.Scheme.parse(text)
    x = torch.randn(8, 512, generator=torch.Generator().manual_seed(4))
    assert qc.Scheme.parse(str(scheme)) == scheme
    assert qc.bits_per_element(scheme, (8, 512)) == bits
    found = qc.apply(x, scheme)
    assert qc.report(found).sqnr_db > 6 * (scheme.format.bits - 1)
    zeros = qc.apply(torch.zeros(2, 512), scheme)
    if "iq4_nl" not in text:  # its values do not include 0
        assert not zeros.dequantized.any()


@for_each(
    ("text", "words"),
    [
        ("int4 make_qx", "choose per_group"),
        ("int4 per_group(24) make_q3", "512 elements are not a multiple of 24"),
        ("uint4 asymmetric per_group(32) make_qkx2(-1, 0.1, 20)", "convention that stores minima"),
        ("int4 per_group(32) make_qkx2(-1, 0.1, 20)", "unsigned asymmetric codes"),
        ("nf4 per_group(32) make_iq4_nl", "codebook of ascending integers"),
        ("int4 per_group(32) gguf.Q6_K", "one of ggml's searches"),
        ("int4 per_group(32) make_qx gguf.Q6_K", "the scales are float32"),
    ],
)
def test_searches_that_do_not_fit(text, words):
    with pytest.raises(qc.QuantError, match=words):
        qc.apply(torch.ones(2, 512), qc.Scheme.parse(text))


@for_each(
    "text",
    ["make_qkx2(-1, 0.1, 2.5)", "make_qkx2(-1, 0.1, 5000)", "make_qx(weights=mine)", "make_qkx2(-1, 0.1)",
     "make_qkx3(-1, 0.1, 3, over=-1)", "make_iq4_nl(ntry=-1)", "make_qkx2(-1, 0.1, 3, use_mad=2)"],
)  # fmt: skip
def test_arguments_that_are_refused(text):
    with pytest.raises(qc.QuantError):
        qc.Scheme.parse(text)


@pytest.mark.slow
def test_match_finds_them():
    x = sample((1, 256), 5)
    for name in TYPES:
        found = qc.match(x, qc.apply(x, preset(name)).codes).candidates
        assert preset(name) in [scheme for candidate in found for scheme in candidate.schemes], name
        assert not found[0].differing


def test_a_scale_of_code_0_is_found():
    result = qc.apply(sample(), preset("Q4_K"))
    finding = next(f for f in qc.diagnose(result) if f.kind == "scale_out_of_range")
    assert (finding.facts["what"], finding.facts["too_large"], finding.facts["stored"]) == ("scale", False, 0)
    assert finding.facts["stored_in"] == "uint6 · fp16"
    lost = (result.scales.codes == 0) | ((result.scale - result.scales.x).abs() > result.scales.x / 4)
    assert finding.facts["blocks"] == int(lost.sum())


@pytest.mark.parametrize("name", ["Q2_K", "Q6_K", "Q4_0", "Q5_1"])
def test_scripts_with_importance(name):
    result = qc.apply(sample((1, 512)), preset(name), importance=weights())
    run(quantcore_script(literal(result.x.numpy()), result))
    pytest.importorskip("gguf")
    run(library_script(result))


@pytest.mark.slow  # by default, that a tensor is walked in boxes is tested in test_quantize.py
def test_memory_in_boxes():
    """Besides codes and parameters, a search allocates a few boxes in numpy, not copies of the tensor."""
    x = torch.randn(768, 4096)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracemalloc.start()
        qc.apply(x, preset("IQ4_NL"))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < x.numel() * 4
