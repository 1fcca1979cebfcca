"""Every weight of a checkpoint under several schemes: the numbers of `report`, however the weights are read, stopped or divided."""

import csv
import itertools
import json
import math
import re
import struct

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some, some_rows
from safetensors.torch import save_file

import quantcore as qc
from quantcore import layerwise
from quantcore.__main__ import main
from quantcore.checkpoints import open_checkpoint
from quantcore.layerwise import measure, picture

SCHEMES = ["int8 per_channel(0)", "int4 per_group(32)", "uint4 asymmetric per_tensor", "int4 symmetric per_channel(1)", "torchao.nvfp4", "e4m3fn per_channel(0)"]
SHAPES = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64), "mlp.down_proj": (64, 128)}


def weights(seed=0):
    generator = torch.Generator().manual_seed(seed)
    found = {f"model.layers.{i}.{n}.weight": 0.1 * (1 + i) * torch.randn(shape, generator=generator) for i in range(2) for n, shape in SHAPES.items()}
    found["model.embed_tokens.weight"] = torch.randn(300, 64, generator=generator)
    return found


def saved(folder, tensors):
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return open_checkpoint(str(folder))


def finished(checkpoint, schemes=SCHEMES, **more):
    *_, last = qc.sensitivity(checkpoint, schemes, **more)
    return last.table


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    checkpoint = saved(tmp_path_factory.mktemp("whole"), weights())
    return checkpoint, finished(checkpoint)


def scheme_of(text):
    return qc.PRESETS.get(text) or qc.Scheme.parse(text)


def same(cell, x, scheme):
    report = qc.report(qc.apply(x, scheme))
    assert (cell.max_abs_error, cell.clipped) == (report.max_abs_error, report.clipped)
    assert (cell.mse, cell.sse) == pytest.approx((report.mse, report.sse), rel=1e-6)
    assert cell.sqnr_db == pytest.approx(report.sqnr_db, abs=1e-5)


def test_each_number_is_that_of_the_report(whole):
    _, table = whole
    assert (table.is_finished, len(table.rows)) == (True, 11)
    for name, x in weights().items():
        row = table.rows[name]
        assert (row.reason, row.power) == ("", pytest.approx(float((x.double() ** 2).sum()), rel=1e-6))
        for text, cell in zip(SCHEMES, row.cells, strict=True):
            same(cell, x, scheme_of(text))
            assert 8 * cell.num_bytes / x.numel() == qc.bits_per_element(scheme_of(text), tuple(x.shape))


HALF = [
    "int8 per_channel(0) torchao", "uint4 asymmetric per_group(32) torchao", "int4 per_group(32) compressed_tensors", "int8 per_channel(0) quanto",
    "quanto.qint4_g128", "torchao.int4_g32", "bitsandbytes.nf4", "compressed_tensors.nvfp4", "int4 per_channel(0)",
]  # fmt: skip


@for_each(
    ("dtype", "whole"),
    some_rows([(torch.bfloat16, measure.WHOLE), (torch.bfloat16, 1024), (torch.float16, measure.WHOLE), (torch.float16, 1024)]),
)
def test_half_precision_is_measured_as_libraries_quantize_it(dtype, whole, tmp_path, monkeypatch):
    """Not as float32, in which every library but hqq, ggml and the textbook gives other codes."""
    monkeypatch.setattr(measure, "WHOLE", whole)
    x = 0.02 * torch.randn(96, 128, generator=torch.Generator().manual_seed(6))
    x = (x * torch.linspace(0.3, 3, 96)[:, None]).to(dtype)
    checkpoint, differ = saved(tmp_path, {"w": x}), set()
    for text, cell in zip(HALF, finished(checkpoint, HALF).rows["w"].cells, strict=True):
        if cell.problem.startswith("needs all elements at once"):
            continue
        same(cell, x, scheme_of(text))
        bits = qc.bits_per_element(scheme_of(text).in_dtype(dtype), tuple(x.shape))
        assert 8 * cell.num_bytes / x.numel() == bits, text
        differ |= {text} if cell.sse != qc.report(qc.apply(x.float(), scheme_of(text))).sse else set()
    assert {*HALF[:4]} <= differ


def test_a_library_that_refuses_the_dtype_is_one_sentence(tmp_path):
    """Estimates and the rest of the table go on."""
    x = torch.randn(640, 64, generator=torch.Generator().manual_seed(7)).to(torch.float16)
    checkpoint, texts = saved(tmp_path, {"w": x}), ["torchao.mxfp4", "int8 per_channel(0) torchao"]
    with pytest.raises(qc.QuantError) as refused:
        qc.apply(x, scheme_of(texts[0]))
    *_, last = qc.sensitivity(checkpoint, texts, sample=True)
    for row in (last.table.rows["w"], last.table.estimates["w"], layerwise.outline(checkpoint, texts).rows["w"]):
        assert [cell.problem for cell in row.cells] == [str(refused.value), ""]


def test_estimates_of_half_precision(tmp_path):
    """From rows quantized in the weight's dtype; with few rows drawn, all that is drawn at random is alike."""
    row = 0.02 * torch.randn(1, 64, generator=torch.Generator().manual_seed(8))
    x, text = row.repeat(640, 1).to(torch.bfloat16), "int8 per_channel(0) torchao"
    *_, last = qc.sensitivity(saved(tmp_path, {"w": x}), [text], sample=True)
    (cell,), report = last.table.estimates["w"].cells, qc.report(qc.apply(x, scheme_of(text)))
    assert (cell.sqnr_low, cell.sqnr_high) == pytest.approx((report.sqnr_db, report.sqnr_db), abs=1e-5)


BOXED = [
    "int8 per_channel(0)", "int4 per_group(32)", "uint4 asymmetric per_tensor", "uint8 asymmetric per_channel(1)", "int4 per_block([3,16])", "int8 given(0.01)",
    "int4 per_flat_group(96)", "int4 per_channel(0) percentile(99)", str(qc.PRESETS["bitsandbytes.nf4"]), str(qc.PRESETS["microxcaling.mxfp4"]),
]  # fmt: skip


def test_a_large_weight_is_read_in_boxes_of_rows(tmp_path, monkeypatch):
    """The same numbers, and nothing of its size is allocated; what needs all elements at once says so."""
    x = torch.randn(100, 64, generator=torch.Generator().manual_seed(3))
    checkpoint = saved(tmp_path, {"w": x})
    monkeypatch.setattr(measure, "WHOLE", 1024)
    read = []
    values = measure.ready(checkpoint.tensors["w"].layout).__class__.values
    monkeypatch.setattr(measure.ready(checkpoint.tensors["w"].layout).__class__, "values", lambda self, rows, *a: read.append(rows) or values(self, rows, *a))
    (cells,) = (row.cells for row in finished(checkpoint, BOXED).rows.values())
    assert max(rows.stop - rows.start for rows in read) * 64 <= 3 * 1024 < x.numel()
    for text, cell in zip(BOXED, cells, strict=True):
        assert not cell.problem, text
        same(cell, x, qc.Scheme.parse(text))
    texts = ["torchao.nvfp4", "int8 per_tensor percentile(99)", "int4 per_group(33)"]
    found = finished(checkpoint, texts).rows["w"].cells
    assert [cell.problem.startswith("needs all elements at once") for cell in found] == [True, True, False]
    same(found[2], x, qc.Scheme.parse(texts[2]))


def test_which_rows_stay_together():
    cases = {"int4 per_group(32)": 1, "int8 per_tensor": 0, "int8 per_channel(1)": 0, "int4 per_block([4,8])": 4, "int4 per_flat_group(96)": 3, "int8 per_tensor given(0.5)": 1}
    for text, rows in cases.items():
        assert layerwise.rows_together(qc.Scheme.parse(text), (300, 64)) == rows, text
    assert layerwise.rows_together(qc.PRESETS["torchao.nvfp4"], (300, 64)) == 0
    assert layerwise.rows_together(qc.PRESETS["gguf.Q4_K"], (300, 256)) == 1
    assert layerwise.rows_together(qc.PRESETS["bitsandbytes.nf4"], (300, 64)) == 1


def test_what_is_left_alone_has_its_reason(tmp_path):
    """NaN, vectors, integers, no elements, a scheme that does not fit, and a weight that can't be read; the rest goes on."""
    x = torch.randn(8, 48, generator=torch.Generator().manual_seed(4))
    bad = x.clone()
    bad[3, 5] = math.nan
    tensors = {"a": x, "nan": bad, "norm.weight": x[0], "none": x[:0], "codes": torch.arange(6).view(2, 3), "m.qweight": torch.zeros(4, 4, dtype=torch.int32), "z": x}
    tensors |= {"m.qzeros": torch.zeros(1, 1, dtype=torch.int32), "m.scales": torch.zeros(3, 7)}
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}))
    table = finished(saved(tmp_path / "broken", tensors), ["int8 per_channel(0)", "gguf.Q4_K"])
    said = {name: row.reason for name, row in table.rows.items() if row.reason}
    begins = {"nan": "contains NaN", "norm.weight": "is a norm", "none": "has no elements", "codes": "holds integers", "m.weight": "can't be read: "}
    assert said.keys() == begins.keys()
    assert all(said[name].startswith(text) for name, text in begins.items())
    again = layerwise.Table.of_dict(json.loads(json.dumps(table.as_dict(), allow_nan=False)))
    assert [name for name, row in again.rows.items() if not row.is_readable] == ["m.weight"]
    for name in ("a", "z"):
        first, second = table.rows[name].cells
        same(first, x, qc.Scheme.parse("int8 per_channel(0)"))
        assert "256" in second.problem
        assert math.isnan(second.sqnr_db)
    lines = table.as_rows()
    assert len(lines) == 2 * 2 + 5
    assert {line["problem"] for line in lines if line["tensor"] == "nan"} == {said["nan"]}


def imatrix(path, entries, calls=4):
    """The legacy form: counts, names and sums of squares."""
    parts = [struct.pack("<i", len(entries))]
    for name, means in entries.items():
        values = (means * calls).float()
        parts += [struct.pack("<i", len(name)), name.encode(), struct.pack("<ii", calls, len(values)), values.numpy().tobytes()]
    path.write_bytes(b"".join(parts))
    return open_checkpoint(str(path))


@pytest.mark.parametrize("rows", some([1024, 1 << 24], 2))
def test_the_output_error_is_that_of_a_product(rows, tmp_path, monkeypatch):
    """‖XΔW‖² for inputs whose second moments are the imatrix's and whose products are 0; names of llama.cpp are found."""
    monkeypatch.setattr(measure, "WHOLE", rows)
    tensors, generator = weights(), torch.Generator().manual_seed(6)
    means = torch.rand(64, generator=generator) + 0.1
    inputs = imatrix(tmp_path / "model.imatrix", {"blk.0.attn_q.weight": means, "model.embed_tokens.weight": means[:7]})
    texts = ["int4 per_group(32)", "int4 per_flat_group(96)"]
    table = finished(saved(tmp_path / "model", tensors), texts, imatrix=inputs)
    name = "model.layers.0.self_attn.q_proj.weight"
    x = tensors[name].double()
    outer = torch.diag(means.double().sqrt())  # one token per input
    for text, cell in zip(texts, table.rows[name].cells, strict=True):
        error = qc.apply(tensors[name], qc.Scheme.parse(text)).error.double()
        assert cell.output_error == pytest.approx(float((outer @ error.T).square().sum()), rel=1e-6)
        assert cell.output_relative == pytest.approx(cell.output_error / float((outer @ x.T).square().sum()), rel=1e-6)
    other = table.rows["model.layers.1.self_attn.q_proj.weight"]
    assert (other.coverage, math.isnan(other.cells[0].output_error)) == ("no entry", True)
    assert table.rows["model.embed_tokens.weight"].coverage == "its entry has 7 inputs, the weight 64"
    with pytest.raises(qc.QuantError, match="has no output error"):
        layerwise.plan(table, 1e9, "output")
    before = layerwise.outline(saved(tmp_path / "model", tensors), texts), layerwise.Imatrix(inputs.tensors, "llama")
    layerwise.check_error(before[0], "output_relative", before[1])
    with pytest.raises(qc.QuantError, match=r"10 weights of 11 have no entry in the imatrix, the first .* Choose output_relative"):
        layerwise.check_error(before[0], "output", before[1])
    cells = [(row, row.cells[0]) for row in table.ordered]
    summed = sum(cell.sse / row.power if math.isnan(cell.output_relative) else cell.output_relative for row, cell in cells)
    assert layerwise.trade_off(table, "output_relative").uniform[table.schemes[0]][1] == pytest.approx(summed)
    with pytest.raises(qc.QuantError, match="no imatrix was given"):
        layerwise.plan(finished(saved(tmp_path / "model", tensors), texts), 1e9, "output_relative")


@pytest.mark.parametrize(("value", "said"), [(-0.5, "-0.5"), (math.nan, "nan"), (math.inf, "inf")])
def test_an_imatrix_that_is_none_is_refused(value, said, tmp_path, whole):
    checkpoint, _ = whole
    means = torch.ones(64)
    means[5] = value
    with pytest.raises(qc.QuantError, match=f"entry 'blk.0.attn_q.weight' contains {said}, which is not a mean of squares"):
        finished(checkpoint, imatrix=imatrix(tmp_path / "bad.imatrix", {"fine": torch.ones(3), "blk.0.attn_q.weight": means}))
    with pytest.raises(qc.QuantError, match="not an imatrix"):
        finished(checkpoint, imatrix=checkpoint)


def drawn(kind, rng, shape=(640, 128)):
    """Weights that samples find easy, and harder ones."""
    x = rng.standard_t(3, shape) if kind == "student_t(3)" else rng.normal(size=shape)
    if kind == "one outlier column":
        x[:, 7] *= 50
    elif kind == "one row with half of the energy":
        x[5] *= math.sqrt((x**2).sum() / (x[5] ** 2).sum())
    elif kind == "blocks of zeros":
        for _ in range(8):
            row, column = rng.integers(512), rng.integers(64)
            x[row : row + 128, column : column + 64] = 0
    return torch.from_numpy(x.astype(np.float32))


SAMPLED = ["int4 per_group(32)", "int4 per_channel(0)", "int8 asymmetric per_tensor", "e4m3fn per_channel(0)", "int8 per_channel(1)"]


@for_each("trials", [2, pytest.param(1000, marks=pytest.mark.slow)])
@for_each("kind", some(["normal", "student_t(3)", "one outlier column", "one row with half of the energy", "blocks of zeros"], 2))
def test_intervals_hold(kind, trials, tmp_path):
    """In 93 % of the trials of each kind and scheme; of a few, in most."""
    rng, schemes = np.random.default_rng(1), list(map(qc.Scheme.parse, SAMPLED))
    held = np.zeros(len(schemes))
    for trial in range(trials):
        tensor = saved(tmp_path, {f"w.{trial}": drawn(kind, rng)}).tensors[f"w.{trial}"]
        exact, found = layerwise.measured(tensor, schemes), layerwise.estimated(tensor, schemes)
        assert found.power == pytest.approx(exact.power, rel=1e-6)
        for i, (cell, truth) in enumerate(zip(found.cells, exact.cells, strict=True)):
            assert cell.sqnr_low <= cell.sqnr_db <= cell.sqnr_high < cell.sqnr_low + 6
            assert cell.num_bytes == truth.num_bytes
            assert 0 < cell.seconds < 10
            held[i] += cell.sqnr_low - 1e-5 <= truth.sqnr_db <= cell.sqnr_high + 1e-5
    assert (held >= (0.93 if trials > 100 else 0.5) * trials).all(), held


@pytest.mark.slow  # by default, intervals hold the exact errors
def test_intervals_are_as_wide_as_estimates_scatter(tmp_path):
    """Where a quarter of the rows is drawn, 2.1 standard deviations of 60 draws, which are known to a tenth."""
    x, scheme = drawn("normal", np.random.default_rng(3))[:257, :16].clone(), qc.Scheme.parse("int4 per_channel(0)")
    checkpoint = saved(tmp_path, {f"w.{draw}": x for draw in range(60)})
    rows = [layerwise.estimated(tensor, [scheme]) for tensor in checkpoint.tensors.values()]
    ends = [[row.power * 10 ** (-db / 10) for db in (row.cells[0].sqnr_low, row.cells[0].sqnr_high)] for row in rows]
    half = np.median([(most - least) / 2 for most, least in ends])
    assert half / np.std([row.cells[0].sse for row in rows], ddof=1) == pytest.approx(2.1, rel=0.3)


def test_estimates_come_first(whole, tmp_path):
    """Of small weights they are the numbers themselves; where no interval can be given, it is said."""
    checkpoint, table = whole
    steps = list(qc.sensitivity(checkpoint, SCHEMES, sample=True))
    assert [step.is_estimate for step in steps] == [False] + [True] * 11 + [False] * 11
    assert steps[11].table.estimates.keys() == table.rows.keys()
    assert steps[-1].table.as_dict() == table.as_dict()
    name = "model.layers.0.self_attn.q_proj.weight"
    first, exact = steps[-1].table.estimates[name].cells[0], table.rows[name].cells[0]
    assert (first.sqnr_low, first.sqnr_high) == (exact.sqnr_db, exact.sqnr_db)
    (large,) = saved(tmp_path, {"w": drawn("normal", np.random.default_rng(2))}).tensors.values()
    schemes = [qc.PRESETS["torchao.nvfp4"], qc.Scheme.parse("int4 per_block([2,16])"), qc.Scheme.parse("int4 per_group(32)")]
    cells = layerwise.estimated(large, schemes).cells
    assert cells[0].problem == "no interval can be given: the scheme needs all elements at once"
    exact = layerwise.measured(large, schemes).cells
    assert all(cell.sqnr_low <= truth.sqnr_db <= cell.sqnr_high for cell, truth in zip(cells[1:], exact[1:], strict=True))


def test_stopped_and_resumed_it_is_the_same(whole):
    """After any weight, in another process, on threads."""
    checkpoint, table = whole
    for stop in (5,):
        run = qc.sensitivity(checkpoint, SCHEMES)
        steps = [next(run) for _ in range(stop + 1)]
        run.close()
        kept = layerwise.Table.of_dict(json.loads(json.dumps(steps[-1].table.as_dict(), allow_nan=False)))
        assert len(kept.rows) == stop
        rest = list(qc.sensitivity(checkpoint, SCHEMES, table=kept))
        assert (len(rest), rest[-1].done) == (12 - stop, rest[-1].total)
        assert rest[-1].table.as_dict() == table.as_dict()
    assert str(finished(checkpoint, threads=2).ordered) == str(table.ordered)


def test_tables_of_other_runs_are_refused(whole, tmp_path):
    checkpoint, table = whole
    other = saved(tmp_path, {"w": torch.ones(4, 4)})
    for call in (
        lambda: finished(other, table=table), lambda: finished(checkpoint, SCHEMES[:2], table=table),
    ):  # fmt: skip
        with pytest.raises(qc.QuantError, match="different checkpoints"):
            call()
    plain = table.as_dict()
    first = plain["rows"][0]
    changes = ({}, {"cells": [{}]}, {"num_bytes": "many"}, {"storage": None}, {"reason": 1}, {"power": "much"})
    wrong_rows = [plain | {"rows": [first | change if change else {}]} for change in changes]
    for damaged in ({}, plain | {"format": 0}, *wrong_rows):
        with pytest.raises(qc.QuantError, match="not a table"):
            layerwise.Table.of_dict(damaged)
    for schemes, said in (([], "1 to 12 schemes"), (SCHEMES * 3, "not 18")):
        with pytest.raises(qc.QuantError, match=said):
            finished(checkpoint, schemes)


def test_a_plan_is_never_over_its_size(whole):
    """Fused weights share a scheme; the error falls as the size grows; the floor is said."""
    _, table = whole
    sizes = [row.num_bytes for row in table.rows.values()]
    before = math.inf
    for size in (40_500, 44_000, 60_000, 100_000, sum(sizes)):
        found = layerwise.plan(table, size)
        assert found.num_bytes <= size
        assert found.error <= before
        before = found.error
        by_text = {scheme: i for i, scheme in enumerate(table.schemes)}
        cost = sum(
            row.num_bytes if found.schemes[name] == layerwise.AS_STORED else row.cells[by_text[found.schemes[name]]].num_bytes
            for name, row in table.rows.items()
        )
        assert found.num_bytes == pytest.approx(cost)
        assert found.bits_per_weight == pytest.approx(8 * cost / sum(row.elements for row in table.rows.values()))
        for layer in (0, 1):
            for fused in (("self_attn.q_proj", "self_attn.k_proj"), ("mlp.gate_proj", "mlp.up_proj")):
                assert len({found.schemes[f"model.layers.{layer}.{name}.weight"] for name in fused}) == 1
    assert (before, set(found.schemes.values())) == (0.0, {layerwise.AS_STORED})
    kept = {name: 1e6 for name in table.rows if "down_proj" in name}
    factors = layerwise.plan(table, 60_000, factors=kept).schemes
    assert all(factors[name] in (layerwise.AS_STORED, table.schemes[0]) for name in kept)
    minimum = layerwise.minimum_of("*down_proj*=7; *.0.*=5;*=4.2 ; ")
    bits = {name: [8 * cell.num_bytes / row.elements for cell in row.cells] for name, row in table.rows.items()}
    for name, scheme in layerwise.plan(table, 70_000, minimum=minimum).schemes.items():
        least = 7 if "down_proj" in name else 5 if ".0." in name else 4.2
        assert scheme == layerwise.AS_STORED or bits[name][by_text[scheme]] >= least
    assert layerwise.trade_off(table, minimum=minimum).best[0][0] > layerwise.trade_off(table).best[0][0]
    with pytest.raises(qc.QuantError, match="lower the minimum"):
        layerwise.plan(table, 44_000, minimum=minimum)
    with pytest.raises(qc.QuantError, match="'up_proj' fits no weight"):
        layerwise.plan(table, 70_000, minimum={"up_proj": 4})
    with pytest.raises(qc.QuantError, match=r"No choice takes at most 30.0 kB: the cheapest takes"):
        layerwise.plan(table, 30_000)
    with pytest.raises(qc.QuantError, match="There is no error 'importance'"):
        layerwise.plan(table, 60_000, "importance")
    with pytest.raises(qc.QuantError, match="11 weights of the table are not measured"):
        layerwise.plan(layerwise.Table(table.identity, table.schemes, table.names), 1)


@for_each(
    ("name", "kind"),
    [
        ("model.layers.3.self_attn.v_proj.weight", "q, k, v"), ("blk.0.attn_q.weight", "q, k, v"), ("blk.0.attn_output.weight", "o"),
        ("model.layers.0.mlp.experts.5.up_proj.weight", "experts gate, up"), ("blk.1.ffn_down_exps.weight", "experts down"), ("token_embd.weight", "embeddings"),
        ("output.weight", "output"), ("lm_head.weight", "output"), ("blk.0.attn_norm.weight", "norm"), ("model.layers.0.mlp.gate.weight", "router"),
        ("blk.0.ffn_gate.weight", "gate, up"), ("transformer.h.0.attn.c_attn.weight", "q, k, v"), ("conv.3.weight", "conv.*.weight"), ("output_norm.weight", "norm"),
    ],
)  # fmt: skip
def test_kinds_by_name(name, kind):
    assert layerwise.kind_of(name) == kind


ENCODER = "model.encoder.layers.0.self_attn"


@for_each(
    ("names", "groups"),
    [
        ([f"model.layers.3.self_attn.{k}_proj.weight" for k in "qkvo"], 2),
        ([f"encoder.layer.0.attention.self.{k}.weight" for k in ("query", "key", "value")], 1),
        ([f"blk.0.attn_{k}.weight" for k in "qkv"], 1), (["blk.0.attn_q.weight", "blk.1.attn_q.weight"], 2),
        (["blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"], 2),
        ([f"blk.0.ffn_{k}_exps.weight" for k in ("gate", "up", "down")], 3), (["blk.0.ffn_gate_shexp.weight", "blk.0.ffn_up_shexp.weight"], 1),
        ([f"model.layers.1.mlp.experts.{e}.{k}_proj.weight" for e in (0, 11) for k in ("gate", "up", "down")], 1),
        (["model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.experts.down_proj"], 1),
        ([f"model.layers.1.mlp.shared_experts.{k}_proj.weight" for k in ("gate", "up")], 1),
        ([f"model.layers.1.{k}.gate_proj.weight" for k in ("mlp.shared_experts", "mlp.experts.0")], 2),
        ([f"model.layers.{n}.block_sparse_moe.experts.0.w1.weight" for n in (0, 1)], 2),
        ([f"embeddings.{k}_embeddings.weight" for k in ("word", "position", "token_type")], 3), (["model.embed_tokens.weight", "lm_head.weight"], 2),
        ([f"{ENCODER}.q_proj.weight", f"{ENCODER.replace('en', 'de')}.q_proj.weight", f"{ENCODER.replace('self', 'encoder')}.q_proj.weight"], 3),
        ([f"{k}.layers.0.self_attn.q_proj.weight" for k in ("vision_tower", "language_model")], 2),
    ],
)  # fmt: skip
def test_only_what_a_loader_needs_alike_is_tied(names, groups):
    rows = {name: layerwise.WeightRow(name, (4, 4), "F32", "", 64, cells=(layerwise.WeightError(),)) for name in names}
    assert len(layerwise.groups_of(layerwise.Table("", ("int8",), tuple(names), rows))) == groups


@pytest.mark.parametrize("error", ["relative", "absolute"])
def test_the_error_of_any_choice_is_that_of_its_weights(whole, error):
    _, table = whole
    chosen = layerwise.plan(table, 60_000, error)
    assert layerwise.error_of(table, chosen.schemes, error) == pytest.approx(chosen.error, rel=1e-12)
    assert layerwise.error_of(table, {}) == 0
    for scheme, (_, own) in layerwise.trade_off(table, error).uniform.items():
        fits = {row.name: scheme for row in table.ordered if row.cells and not row.cells[table.schemes.index(scheme)].problem}
        assert layerwise.error_of(table, fits, error) == pytest.approx(own, rel=1e-12)
    with pytest.raises(qc.QuantError, match=r"was not measured under gguf\.Q4_K; add it"):
        layerwise.error_of(table, {table.names[0]: "gguf.Q4_K"})
    with pytest.raises(qc.QuantError, match="no error 'effect' of single weights"):
        layerwise.error_of(table, {}, "effect")


def test_a_tie_can_be_given_and_no_uniform_choice_is_better(whole):
    _, table = whole
    alone = layerwise.trade_off(table, tie=lambda name: name)
    for error, tie in itertools.product(("relative", "absolute"), (None, lambda name: name, lambda name: "all")):
        own = {} if tie is None else {"tie": tie}
        for size, least in layerwise.trade_off(table, error, **own).uniform.values():
            found = layerwise.plan(table, size, error, **own)
            assert found.error <= least * (1 + 1e-12)
            assert found.gap == 0
            if tie is not None and tie("") == "all":
                assert len({found.schemes[name] for name, row in table.rows.items() if row.cells}) == 1
    assert len(alone.best) >= len(layerwise.trade_off(table).best)


def command(capsys, *arguments):
    code = main(["sensitivity", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_the_command(whole, tmp_path, capsys):
    """Files of every kind, a table that is continued, and a plan within the size."""
    _, table = whole
    path = tmp_path / "model"
    saved(path, weights())
    texts = "; ".join(SCHEMES)
    files = {name: tmp_path / f"out.{name}" for name in ("json", "csv", "html")}
    written = [part for name, file in files.items() for part in (f"--{name}", file)]
    code, out, err = command(capsys, path, "--schemes", texts, "--size", "60kB", "--threads", 1, *written)
    assert (code, err) == (0, "")
    assert "11 weights measured, 0 left alone, 0 not yet measured." in out
    assert "the lowest possible" in out
    assert out.count("leave out how much the model's output depends on each") == 1
    lines = out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("layer "))
    legend = dict(line.split(" = ") for line in lines[:head] if re.match(r"[a-z-] = ", line))
    chosen = json.loads(files["json"].read_text())["plan"]["schemes"]
    assert [line.split()[0] for line in lines[head + 1 : head + 3]] == ["model.layers.0", "model.layers.1"]
    for name, scheme in chosen.items():
        if "layers" in name:
            line = next(line for line in lines[head + 1 :] if line.startswith(name[:14] + " "))
            start = lines[head].index(layerwise.kind_of(name))
            assert legend[line[start]] == scheme
        else:
            assert f"'{name}': {scheme}" in out
    plain = json.loads(files["json"].read_text())
    assert layerwise.Table.of_dict(plain).rows.keys() == table.rows.keys()
    assert 0 < plain["plan"]["num_bytes"] <= 60_000
    with files["csv"].open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 11 * len(SCHEMES)
    assert float(rows[0]["sqnr_db"]) == table.ordered[0].cells[0].sqnr_db
    numbers = re.findall(r"<td.*?>(.*?)</td>", files["html"].read_text())
    assert numbers == [f"{cell.sqnr_db:.1f}" for row in table.ordered for cell in row.cells]
    assert files["html"].read_text().count('"qs-taken"') == sum(each != layerwise.AS_STORED for each in plain["plan"]["schemes"].values())
    assert "Estimates with 95 % intervals" in command(capsys, path, "--sample")[1]
    unseen = tmp_path / "unseen.json"
    assert command(capsys, path, "--schemes", texts, "--json", unseen, "--resume")[0] == 0
    assert len(json.loads(unseen.read_text())["rows"]) == 11
    again = command(capsys, path, "--schemes", texts, "--json", unseen, "--resume", "--bits", 6)
    assert (again[0], "11 weights measured" in again[1]) == (0, True)
    assert "bits per weight" in again[1]


def test_a_command_that_was_stopped_continues(tmp_path, capsys, monkeypatch):
    """With what its file of --json holds, which is written while it measures."""
    saved(tmp_path / "model", weights())
    kept = tmp_path / "kept.json"
    arguments = [tmp_path / "model", "--schemes", SCHEMES[0], "--threads", 1, "--json", kept]
    done = []

    def interrupted(tensor, *more):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(tensor.name)
        return measure.measured(tensor, *more)

    monkeypatch.setattr("quantcore.commands.sensitivity._EVERY", 0.0)
    monkeypatch.setattr("quantcore.layerwise.run.measured", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command(capsys, *arguments)
    assert [row["name"] for row in json.loads(kept.read_text())["rows"]] == done
    monkeypatch.setattr("quantcore.layerwise.run.measured", lambda tensor, *more: done.append(tensor.name) or measure.measured(tensor, *more))
    assert "11 weights measured" in command(capsys, *arguments, "--resume")[1]
    assert len(done) == len(set(done)) == 11


@for_each(
    ("arguments", "said"),
    [
        (["--size", "10kB"], "No choice takes at most 10.0 kB: the cheapest takes"), (["--size", "4.2"], "--size 4.2 is not a size"), (["--scheduler", "smoke://10.0.0.1"], "No Dask scheduler answers at 'smoke://10.0.0.1' (unknown address scheme 'smoke'"),
        (["--schemes", "int99"], "99"), (["--resume"], "--resume needs the file"),
        (["--imatrix", "none.dat"], "none.dat"), (["--factors", "none.json"], "none.json can't be read"), (["--bits", "8.5", "--error", "output"], "The error output needs an imatrix"), (["--bits", "8.5", "--error", "effect"], "The error effect needs effects"), (["--bits", "nan"], "--bits nan is not a number of bits"),
        (["--minimum", "8"], "The minimum '8' is not a pattern"), (["--minimum", "*=x"], "*=x"), (["--minimum", "*=-1"], "*=-1"), (["--bits", "8.5", "--minimum", "head=4"], "'head' fits no weight"),
    ],
)  # fmt: skip
def test_what_the_command_does_not_understand(arguments, said, tmp_path, capsys, monkeypatch):
    """One sentence, before anything is measured."""
    saved(tmp_path / "model", {"w.weight": torch.ones(128, 128)})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("quantcore.layerwise.run.measured", None)
    code, out, err = command(capsys, tmp_path / "model", "--schemes", "int8 per_channel(0)", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_the_picture_has_every_number():
    """A row per weight and a cell per scheme, named, colored by its SQNR; names are text, and the file needs nothing else."""
    rows = [
        layerwise.WeightRow(name, (4, 8), "F32", "o", 128, cells=tuple(layerwise.WeightError(sqnr_db=value) for value in values))
        for name, values in (("a.b.weight", [20.0, math.inf]), ("<b>", [math.nan, 7.5]))
    ]
    written = picture.document(rows, ["int8 per_tensor", "<x>"], taken={"a.b.weight": "<x>"})
    table = written[written.index("<table") : written.index("</table>")]
    assert re.findall(r'<th scope="col" title="(.*?)">', table) == ["int8 per_tensor", "&lt;x&gt;"]
    assert [re.sub("<wbr>", "", name) for name in re.findall(r'<th scope="row".*?>(.*?)</th>', table)] == ["a.b", "&lt;b&gt;"]
    cells = re.findall(r'<td class="(.*?)" style="(.*?)".*?>(.*?)</td>', table)
    assert [(mark, number) for mark, _, number in cells] == [("", "20.0"), ("qs-taken", "exact"), ("", "–"), ("", "7.5")]
    low, high = (f"background:{color};" for color in ("rgb(253,231,37)", "rgb(68,1,84)"))  # the ends of Viridis
    assert [style.partition("color")[0] for _, style, _ in cells] == [high, high, "", low]
    assert not re.search("<script|https?:|<link|<b>|<x>", written)


def test_what_the_command_can_t_read_or_write_is_one_sentence(whole, tmp_path, capsys):
    """A file that can't be written loses nothing that was measured: it is printed before."""
    path, kept, missing = tmp_path / "model", tmp_path / "kept.json", tmp_path / "missing" / "out"
    saved(path, weights())
    arguments = [path, "--schemes", "; ".join(SCHEMES), "--json", kept, "--resume"]
    kept.write_text("[" * 100_000)
    code, out, err = command(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "kept.json can't be read as JSON" in err
    kept.write_text(json.dumps(whole[1].as_dict()))
    for kind in ("html", "csv"):
        code, out, err = command(capsys, *arguments, f"--{kind}", missing)
        assert (code, err.count("\n")) == (1, 1)
        assert "can't be written" in err
        assert "11 weights measured" in out


@for_each(("field", "value"), [("num_bytes", -5), ("num_bytes", 2**70), ("shape", [-1, 4]), ("shape", [2**70])])
def test_a_table_with_impossible_numbers_is_refused(field, value, tmp_path, capsys):
    save_file({"w": torch.ones(4, 4)}, tmp_path / "model.safetensors")
    kept, arguments = tmp_path / "kept.json", [tmp_path / "model.safetensors", "--schemes", "int8", "--json"]
    assert command(capsys, *arguments, kept)[0] == 0
    stored = json.loads(kept.read_text())
    for row in (stored["rows"][0], *([] if field == "shape" else [stored["rows"][0]["cells"][0]])):
        before = row[field]
        row[field] = value
        kept.write_text(json.dumps(stored))
        code, _, err = command(capsys, *arguments, kept, "--resume")
        assert (code, err.strip()) == (2, "This is not a table of sensitivities; begin without it.")
        row[field] = before


def test_factors_are_finite_and_none_is_negative(tmp_path, capsys):
    save_file({"w": torch.ones(4, 4)}, tmp_path / "model.safetensors")
    factors = tmp_path / "factors.json"
    for wrong in ("9" * 400, "-0.5"):
        factors.write_text(f'{{"w": {wrong}}}')
        code, _, err = command(capsys, tmp_path / "model.safetensors", "--bits", 8, "--factors", factors)
        assert code == 2
        assert "must hold one number of 0 or more per name" in err
        assert len(err.splitlines()) == 1
    for right in ("0", "0.5"):
        factors.write_text(f'{{"w": {right}}}')
        assert command(capsys, tmp_path / "model.safetensors", "--bits", 32, "--factors", factors)[0] == 0


def test_json_follows_no_link_where_it_is_prepared(tmp_path, capsys):
    save_file({"w": torch.ones(4, 4)}, tmp_path / "model.safetensors")
    (tmp_path / "other").write_text("mine")
    (tmp_path / "out.json.new").symlink_to(tmp_path / "other")
    assert command(capsys, tmp_path / "model.safetensors", "--schemes", "int8", "--json", tmp_path / "out.json")[0] == 0
    assert (tmp_path / "other").read_text() == "mine"
    assert json.loads((tmp_path / "out.json").read_text())["rows"]
    assert not (tmp_path / "out.json.new").exists()
