"""Models in bfloat16 and float16, quantized here by the libraries: what a check against the original and a comparison say.

Nothing that arithmetic in float32 would give otherwise may be reported, and what is broken must be.
"""

import itertools
from functools import partial

import library_releases
import pytest
import random_releases
import torch
from grid import for_each
from parts import some_rows
from releases import release

import quantcore as qc
from quantcore.checkpoints.comparison import CheckpointComparison

DTYPES = [torch.bfloat16, torch.float16]
W = "model.layers.0.mlp.up_proj.weight"
MORE = {"hidden_size": 128}


def compressed(scheme):
    return partial(library_releases.compressed_tensors, scheme=scheme)


# what writes it, the package, the divisor of its scales, the scheme here, and its tensors of codes and scales
LIBRARIES = {
    "torchao int8": (library_releases.torchao, "torchao", 127.5, "torchao.int8", "_weight_qdata", "_weight_scale"),
    "torchao int4": (library_releases.torchao_int4, "torchao", 7.5, "int4 per_group(32) torchao", "_weight_qdata", "_weight_scale"),
    "compressed-tensors int4": (compressed("W4A16"), "compressed_tensors", 7.5, "int4 per_group(128) compressed_tensors", "weight_packed", "weight_scale"),
    "compressed-tensors int8": (compressed("W8A8"), "compressed_tensors", 127.5, "int8 per_channel(0) compressed_tensors", "weight", "weight_scale"),
    "quanto int8": (library_releases.quanto, "optimum.quanto", 127.0, "int8 per_channel(0) quanto", "weight._data", "weight._scale"),
}  # fmt: skip
EVERY = list(itertools.product(LIBRARIES, DTYPES))
BROKEN = some_rows(EVERY, 10)  # by day one of one library


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(random_releases, "WIDTH", 128)
    monkeypatch.setattr(random_releases, "INNER", 256)


def written(library, dtype, folder):
    """The original, opened, and what is stored of its quantized model, to be written by `opened`."""
    write, package, *_ = LIBRARIES[library]
    pytest.importorskip(package)
    weights = random_releases.weights("llama", 2, 1)  # whose mean ratios are between 127 and 127.5
    config = random_releases.CONFIGS["llama"] | MORE
    original = release(folder / "original", library_releases.original(weights, dtype), config)
    tensors, metadata, more = write(weights, dtype=dtype)
    return original, lambda name, changed: release(folder / name, tensors | changed, config | more, metadata), tensors


@pytest.mark.slow  # quotients in bfloat16 are sound in a quick test of test_compressor.py
@for_each(("library", "dtype"), EVERY)
def test_a_sound_model_has_no_finding_that_float32_invents(library, dtype, tmp_path):
    """No warning, the library's divisor for all weights, and each error is that of our codes in the dtype."""
    _, _, divisor, text, *_ = LIBRARIES[library]
    original, opened, _ = written(library, dtype, tmp_path)
    checkpoint = opened("sound", {})
    found = checkpoint.findings(original)
    assert [f.sentence for f in found if f.severity != "note"] == []
    divisors = [f for f in found if f.kind == "scale_divisor" and "divisor" in f.facts]
    assert [f.facts["divisor"] for f in divisors] == [divisor]
    assert len(divisors[0].tensors) == 7
    comparison = CheckpointComparison(original, checkpoint)
    *_, last = comparison.steps()
    results = {r.name: r for r in comparison.results(last.state)}
    assert [sentence for r in results.values() for sentence in r.sentences()] == []
    scheme = qc.PRESETS.get(text) or qc.Scheme.parse(text)
    *_, measured = qc.sensitivity(original, [scheme])
    for name in divisors[0].tensors:
        ours = qc.apply(original.tensors[name].read().to(dtype), scheme)
        assert torch.equal(ours.codes.int(), checkpoint.tensors[name].codes().int()), name
        (cell,) = measured.table.rows[name].cells
        assert cell.sqnr_db == pytest.approx(results[name].sqnr_db, abs=1e-4), name


@pytest.mark.slow  # by default, flipped bits of a release in bfloat16 are found in test_compressor.py
@for_each(("library", "dtype"), BROKEN)
def test_what_is_broken_is_found(library, dtype, tmp_path):
    """A bit of one code, the scale of one block, two rows exchanged."""
    *_, codes, scales = LIBRARIES[library]
    original, opened, tensors = written(library, dtype, tmp_path)
    prefix = W.removesuffix("weight")
    q, s = tensors[prefix + codes], tensors[prefix + scales]
    bit, factor, rows = q.clone(), s.clone(), q.clone()
    bits = bit.view(torch.uint8).view(-1)
    bits[1000] ^= 0x04 if library == "torchao int4" else 0x40
    factor.view(-1)[5] *= 2
    rows[[5, 9]] = rows[[9, 5]]
    for what, changed in {"bit": {codes: bit}, "scale": {scales: factor}, "rows": {codes: rows}}.items():
        found = opened(what, {prefix + name: t for name, t in changed.items()}).findings(original)
        assert {f.tensors for f in found if f.severity == "error"} == {(W,)}, what
