"""Codes, group indices and extremes of weights, counted by hand."""

import math
import random
from statistics import median

import numpy as np
import pytest
import releases
import torch
from checkpoint_cases import case, changed
from grid import for_each
from suspects import COLUMNS, GROUP, ROWS, M, W, ct_stored, grid_of, weight

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings import record, stored
from quantcore.checkpoints.findings import summary as summaries
from quantcore.checkpoints.findings.record import subject_of
from quantcore.checkpoints.findings.siblings import (
    DEVIATION,
    FEW,
    GAP,
    GAP_LEAST,
    QUANTITIES,
    SIBLINGS,
    TIMES,
    _by_gap,
    _by_scatter,
    _outside,
)
from quantcore.checkpoints.findings.stored import Histogram
from quantcore.checkpoints.findings.summary import TRIMMED, Extremes, Largest, Summary, _sampled, of_quantized
from quantcore.checkpoints.findings.walk import Box
from quantcore.checkpoints.statement import named, some
from tests.quantcore.checkpoints.findings.test_findings import members


def layout_of(folder, stored, name="ct_int4"):
    return open_checkpoint(releases.save(folder, stored, releases.WRITERS[name][1])).tensors[W].layout


def found_in(layout):
    histogram = Histogram(layout)
    for start in range(0, ROWS, 20):
        histogram.add(Box(layout, slice(start, min(start + 20, ROWS))))
    return histogram, list(histogram.found())


def random_codes(low=-8, high=8):
    return torch.randint(low, high, (ROWS, COLUMNS), generator=torch.Generator().manual_seed(7)).float()


def test_how_often_each_code_occurs(tmp_path, monkeypatch):
    step = grid_of(weight())[2]
    q = random_codes()
    for limit in (1 << 21, 100):
        monkeypatch.setattr(stored, "ELEMENTS", limit)
        histogram, found = found_in(layout_of(tmp_path / f"{limit}", ct_stored(q, step)))
        wanted = [int((q == (c - 16 if c > 7 else c)).sum()) for c in range(16)]
        assert (histogram.counts.tolist(), histogram.total, found) == (wanted, ROWS * COLUMNS, [])


LOST = [
    # codes that are left -> what is found, and the facts of each
    (lambda q: torch.where(q == 5, 4, q), [("codes_never_used", {"codes": (5,), "format": "int4"})]),
    (lambda q: q.clamp(-7, 6), [("codes_never_used", {"codes": (-8, 7), "format": "int4"})]),
    (lambda q: q.clamp(0, 7), [("bit_constant", {"bit": 3, "value": 0, "codes": 16})]),
    (lambda q: q.clamp(-8, -1), [("bit_constant", {"bit": 3, "value": 1, "codes": 16})]),
    (lambda q: (q / 2).floor() * 2, [("bit_constant", {"bit": 0, "value": 0, "codes": 16})]),
    (
        lambda q: q * 0 + 3,
        [("codes_never_used", {"codes": tuple(c for c in range(-8, 8) if c != 3), "format": "int4"})],
    ),
    (
        lambda q: torch.where(q > 0, 1, 0),
        [("bit_constant", {"bit": b, "value": 0, "codes": 16}) for b in (1, 2, 3)],
    ),
]


@for_each(("change", "wanted"), LOST)
def test_codes_that_never_occur(change, wanted, tmp_path):
    _, found = found_in(layout_of(tmp_path, ct_stored(change(random_codes()).float(), grid_of(weight())[2])))
    assert [(f.kind, f.facts) for f in found] == wanted
    for f in found:
        if f.kind == "codes_never_used":
            assert ("uses the codes " if len(f.facts["codes"]) > 1 else "uses the code ") in f.sentence


UNUSED = {
    "ct_int4_sym_g128": -15, "awq_gemm_g128": 1, "mlx_affine_3_6": 1, "ct_int8_w8a8": None, "gptq_v1_8bit_channel": None, "ct_mxfp4": 0.5,
    "gptq_v1_2bit_g32_asym": 1,
}  # fmt: skip


@for_each("name", UNUSED)
def test_a_code_that_never_occurs(name):
    """The number or the bits of a code, of formats up to 6 bits; of wider ones, the tails are rare."""
    for tensor in open_checkpoint(case(name).release).tensors.values():
        if not tensor.is_quantized:
            continue
        histogram = Histogram(tensor.layout)
        bits = tensor.layout.element.bits
        signed = name.startswith("ct_int")
        for code in (1, (1 << bits) - 1):
            histogram.counts[:] = 100
            histogram.counts[code] = 0
            found = [f for f in histogram.found() if f.kind == "codes_never_used"]
            number = code - (1 << bits) if signed and code > 1 else code
            assert [f.facts["codes"] for f in found] == ([(number,)] if bits <= 6 else [])
        histogram.counts[:] = 64
        assert not [f for f in histogram.found() if f.kind == "codes_never_used"]


SUBJECTS = [
    (3, 3, "'l.0.w', 'l.1.w' and 'l.2.w'"), (4, 4, "All 4 tensors"), (4, 7, "4 of 7 tensors (all but 'x4', 'x5' and 'x6')"),
    (4, 8, "4 tensors 'l.*.w' (layers 0–3)"), (3, 9, "'l.0.w', 'l.1.w' and 'l.2.w'"), (1, 1, "'l.0.w'"),
]  # fmt: skip


@for_each(("n", "of", "wanted"), SUBJECTS)
def test_what_several_weights_are_called(n, of, wanted):
    names = [f"l.{i}.w" for i in range(n)]
    assert subject_of(names, [*names, *(f"x{i}" for i in range(n, of))]) == wanted


def test_how_much_of_a_name_is_shown():
    """Eighty characters of each, a hundred of a role."""
    long = ["a" * 90, "b" * 90, "c" * 90, "d" * 90]
    shown = "'" + "a" * 79 + "…'"
    assert subject_of(long[:1], long[:1]) == shown
    assert subject_of([*long, "x"], [*long, "x", *"pqrst"]).startswith(f"5 of 10 tensors ({shown}, ")
    assert subject_of("wxyz", [*"wxyz", long[0]]) == f"4 of 5 tensors (all but {shown})"
    role = [f"{'l' * 110}.{i}.w" for i in range(4)]
    assert subject_of(role, [*role, *"pqrst"]) == "4 tensors '" + "l" * 99 + "…' (layers 0–3)"


def test_several_roles_and_many_layers():
    mixed = ["l.0.w", "l.0.v", "l.1.w", "l.1.v", "l.2.v"]
    assert subject_of(mixed, [*mixed, *"abcd"]) == "5 of 9 tensors ('l.0.w', 'l.0.v', 'l.1.w' and 2 more)"
    assert record._layers([f"l.{i}.w" for i in range(0, 16, 2)]) == "0, 2, 4, 6, 8, 10, 12 and 14"
    assert record._layers([f"l.{i}.w" for i in range(0, 20, 2)]) == "0, 2, 4, 6, 8, 10, 12, 14 and 2 more"
    assert record._layers(["a.3.w", "a.1.w", "b.2.w", "a.7.w", "c"]) == "1–3 and 7"
    assert (record.layer_of("a.123456789.b"), record.layer_of("a.1234567890.b")) == (123456789, None)
    order = ["b", "l.1234567890.w", "l.10.w", "l.9.w", "l.2.w.1"]
    assert sorted(order, key=record.in_layer_order) == ["b", "l.2.w.1", "l.9.w", "l.10.w", "l.1234567890.w"]


def test_few_codes_show_nothing(tmp_path):
    """64 elements per code are enough, and wide codes often lack those for the tails."""
    step = grid_of(weight())[2]
    for rows, count in ((8, 1), (7, 0)):  # of 128 columns
        layout = layout_of(tmp_path / f"{rows}", ct_stored(random_codes().clamp(-7, 7)[:rows], step[:rows]))
        histogram = Histogram(layout)
        histogram.add(Box(layout, slice(0, rows)))
        assert len(list(histogram.found())) == count
    stored = releases.ct_int8(M, torch.cat([weight(seed=s) for s in range(3)]))
    layout = layout_of(tmp_path / "8", stored, "ct_int8")
    histogram = Histogram(layout)
    histogram.add(Box(layout, slice(0, 3 * ROWS)))
    assert histogram.total >= 64 * 256
    assert list(histogram.found()) == []


def test_zeros_with_a_sign(tmp_path):
    """-0 of FP4: how many of all codes, and how many +0 there are; of eight bits it is common."""
    x = weight()
    good = releases.mxfp4(M, x)
    key = f"{M}.weight_packed"
    nibbles = torch.stack([good[key] & 15, good[key] >> 4], -1).reshape(ROWS, -1).long()
    for change, who in (
        (torch.where(nibbles == 0, 8, nibbles), True), (torch.where((nibbles == 0) & (torch.arange(COLUMNS) % 3 == 0), 8, nibbles), False),
    ):  # fmt: skip
        _, found = found_in(layout_of(tmp_path / f"{who}", good | {key: releases.bytes_of(change)}, "mxfp4"))
        (finding,) = [f for f in found if f.kind == "minus_zero"]
        minus, plus = int((change == 8).sum()), int((change == 0).sum())
        total = ROWS * COLUMNS
        assert finding.facts == {"codes": minus, "total": total, "share": minus / total, "plus_zeros": plus}
        assert ("ModelOpt" in finding.sentence) is who
    good = releases.nvfp4(M, x)
    nibbles = torch.stack([good[f"{M}.weight"] & 15, good[f"{M}.weight"] >> 4], -1).reshape(ROWS, -1).long()
    _, found = found_in(
        layout_of(
            tmp_path / "nv",
            good | {f"{M}.weight": releases.bytes_of(torch.where(nibbles == 0, 8, nibbles))},
            "nvfp4",
        )
    )
    assert [("ModelOpt" in f.sentence) for f in found if f.kind == "minus_zero"] == [False]
    fp8 = releases.fp8(M, x)
    bits = fp8[f"{M}.weight"].view(torch.uint8).clone()
    bits[0, :5], bits[1, :3] = 0x80, 0x7F
    _, found = found_in(
        layout_of(tmp_path / "8", fp8 | {f"{M}.weight": bits.view(torch.float8_e4m3fn)}, "fp8")
    )
    assert [(f.kind, f.facts) for f in found] == [("code_nan", {"codes": 3})]


# Columns and their groups

NOW = torch.arange(COLUMNS) // GROUP
SWAPPED = torch.where(torch.arange(COLUMNS) == 40, 2, torch.where(torch.arange(COLUMNS) == 70, 1, NOW))
INDICES = [
    (NOW, "gptq", []), (NOW, "gptq_desc_act", [("config_unused", "note", {"says": "desc_act true", "groups": 4})]),
    (SWAPPED, "gptq", [("g_idx_unsorted", "error", {"column": 41, "group": 1, "before": 2})]),
    (SWAPPED, "gptq_desc_act", [("g_idx_unsorted", "note", {"column": 41, "group": 1, "before": 2})]),
    (NOW.flip(0), "gptq_desc_act", [("g_idx_unsorted", "note", {"column": 32, "group": 2, "before": 3})]),
    (torch.where(torch.arange(COLUMNS) == 64, 1, NOW), "gptq", [("g_idx_unbalanced", "error", {"group": 1, "columns": 33, "size": 32})]),
    (torch.where(NOW == 3, 2, NOW), "gptq", [("g_idx_unbalanced", "error", {"group": 2, "columns": 64, "size": 32})]),
    (NOW * 0 - 1, "ct_int4", []), (NOW, "ct_int4", []),
    (SWAPPED, "ct_int4", [("g_idx_unsorted", "error", {"column": 41, "group": 1, "before": 2})]),
]  # fmt: skip


@for_each(("index", "name", "wanted"), INDICES)
def test_the_groups_of_columns(index, name, wanted, tmp_path):
    stored = releases.WRITERS["gptq" if "gptq" in name else name][0](M, weight())
    key = f"{M}.g_idx" if "gptq" in name else f"{M}.weight_g_idx"
    path = releases.save(tmp_path, stored | {key: index.to(torch.int32)}, releases.WRITERS[name][1])
    kinds = ("g_idx_unsorted", "g_idx_unbalanced", "config_unused")
    found = [f for f in members(open_checkpoint(path).findings()) if f.kind in kinds]
    assert [(f.kind, f.severity, f.facts) for f in found] == wanted


def test_a_group_index_that_was_never_set_is_none(tmp_path):
    """compressed-tensors begins with -1 everywhere: the columns are in order, whatever the config says of activations."""
    name = "ct_int4_actorder_group"
    indices = [
        stored for stored in open_checkpoint(case(name).release).release.stored if stored.endswith("g_idx")
    ]
    unset = changed(name, tmp_path / "unset", dict.fromkeys(indices, lambda index: index * 0 - 1))
    without = changed(name, tmp_path / "without", dict.fromkeys(indices))
    quantized = [name for name, tensor in without.tensors.items() if tensor.is_quantized]
    assert quantized
    for name in quantized:
        assert torch.equal(unset.tensors[name].read(), without.tensors[name].read())
        assert unset.tensors[name].origin((0, 5)).value == without.tensors[name].read()[0, 5]
    kinds = {"g_idx_unsorted", "g_idx_unbalanced", "config_unused", "unreadable_tensor"}
    assert not kinds & {finding.kind for finding in unset.findings()}


# Extremes


def summary(name, spread):
    return Summary(name, "plain", (64, 64), spread, Largest(4 * spread, 3.9 * spread, (1, 2)))


def test_what_is_far_from_the_others():
    """The median, lowest and highest of the others, of those that are not 0."""
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(9)]
    spreads = [0.020, 0.021, 0.022, 0.019, 0.020, 0.9, 0.021, 0.020, 0.022]
    of_role = [summary(n, s) for n, s in zip(names, spreads, strict=True)]
    by_kind = {q.kind: list(_outside(of_role, q)) for q in QUANTITIES}
    ((one, middle, low, high),) = by_kind["far_spread"]
    others = sorted(s for s in spreads if s != 0.9)
    assert one.name == names[5]
    assert (low, high) == pytest.approx((others[0], others[-1]))
    assert middle == pytest.approx(math.sqrt(others[3] * others[4]))
    assert by_kind["isolated_scale"] == []
    assert [s.name for s, *_ in by_kind["far_value"]] == [names[5]]
    assert list(_outside(of_role[:4], QUANTITIES[2])) == []


def test_far_is_what_its_definition_says():
    """Neither the nearest alone nor running sums change it: the definition looks at every pair and every cut."""
    generator = random.Random(3)
    found = [0, 0]
    for _ in range(1500):
        count, spread = generator.randint(1, 16), generator.choice((0.01, 0.3, 3.0))
        logs = [generator.gauss(0, spread) for _ in range(count)]
        for i in generator.sample(range(count), generator.randint(0, min(3, count))):
            logs[i] += generator.uniform(-6, 6)
        weights = [generator.choice((1.0, 1.5, 9.0)) for _ in logs]
        middle = median(logs)
        reach = TIMES * max(DEVIATION * median(abs(v - middle) for v in logs), 0.3)
        far = {i for i in range(count) if abs(logs[i] - middle) > reach * weights[i]}
        inside = [logs[i] for i in range(count) if i not in far]
        alone = {i for i in far if all(abs(v - logs[i]) > abs(middle - logs[i]) / 2 for v in inside)}
        assert _by_scatter(logs, weights, 0.3) == alone
        order = sorted(range(count), key=logs.__getitem__)
        cuts = [
            (set(order[:few]), order[few:]) if low else (set(order[-few:]), order[:-few])
            for few in range(max(1, count // FEW), 0, -1)
            for low in (True, False)
        ]
        beyond: set[int] = next((end for end, rest in cuts if _is_gap(logs, weights, end, rest)), set())
        assert _by_gap(logs, weights, 0.1) == beyond
        found = [found[0] + bool(alone), found[1] + bool(beyond)]
    assert min(found) > 100


def _is_gap(logs, weights, end, rest):
    """Whether the gap to an end is wider than the rest is apart."""
    if len(rest) < SIBLINGS:
        return False
    numbers = [logs[i] for i in rest]
    gap = min(abs(logs[i] - v) for i in end for v in numbers)
    needed = GAP_LEAST * 0.1 * max(weights[i] for i in end)
    return gap > max(GAP * (max(numbers) - min(numbers)), needed)


@for_each(
    ("logs", "far"),
    [([0.0] * 8 + [5.0], {8}), ([0.0] * 8 + [-5.0], {8}), ([0.0] * 8 + [0.1], set()), ([0, 1, 2, 3, 4, 5, 6, 7, 8], set())],
)  # fmt: skip
def test_far_by_scatter(logs, far):
    found = _by_scatter(logs, [1.0] * len(logs), 0.3)
    assert found == far
    assert _by_scatter(logs, [100.0] * len(logs), 0.3) == set()


@for_each(
    ("logs", "beyond"),
    [([0, 0.1, 0.2, 0.3, 0.4, 9.0], {5}), ([-9, 0, 0.1, 0.2, 0.3, 0.4], {0}), ([0, 1, 2, 3, 4, 5.5], set()), ([0.0, 9.0], set()),
     ([9.0, 0, 0.1, 0.2, 0.3, 0.4], {0}), ([0, 0.1, 0.2, 0.3, 0.35, 0.4, 9.0, 9.1], {6, 7}), ([0, 0.1, 0.2, 9.0, 9.1, 9.2], set())],
)  # fmt: skip
def test_beyond_a_gap(logs, beyond):
    assert _by_gap(logs, [1.0] * len(logs), 0.01) == beyond


def test_summaries(tmp_path, monkeypatch):
    """The RMS of a sample without its largest values, the two largest and where the first is; of scales too."""
    x = weight()
    x[30, 70], x[2, 5] = 3.0, -2.0
    layout = open_checkpoint(releases.save(tmp_path / "plain", {W: x})).tensors[W].layout
    for step, box in ((1, ROWS), (1, 7), (5, ROWS)):
        extremes = Extremes(layout, step)
        sample = []
        for start in range(0, ROWS, box):
            values = x[start : start + box]
            extremes.add(Box(layout, slice(start, min(start + box, ROWS))))
            sample += values.reshape(-1)[::step].abs().tolist()
        found = extremes.summary()
        sample.sort()
        kept = sample[: len(sample) - 1 - int(TRIMMED * len(sample))]
        assert found.spread == pytest.approx(math.sqrt(sum(v * v for v in kept) / len(kept)), rel=1e-6)
        assert (found.largest, found.zero) == (Largest(3.0, 2.0, (30, 70)), False)
    one = Extremes(layout, 1)
    box = Box(layout, slice(3, 4))
    box.values = torch.tensor([[5.0]])
    one.add(box)
    assert (one.summary().spread, one.summary().largest) == (5.0, Largest(5.0, 0.0, (3, 0)))
    nothing = Extremes(layout, 1)
    box.values = torch.zeros(2, 2)
    nothing.add(box)
    assert nothing.summary().zero
    q, _, step = grid_of(weight())
    step = step.clone()
    step[9, 32:64], step[11, :32] = 2.0, 1.5
    found = of_quantized(layout_of(tmp_path / "scales", ct_stored(q, step)))
    assert (found.scales, found.zero_scales) == (Largest(2.0, 1.5, (9, 1)), False)
    monkeypatch.setattr(summaries, "SAMPLE", 10 * COLUMNS)  # ten rows, spread over all
    rows = sorted(r for box in _sampled(layout) for r in range(box.start, box.stop))
    assert (rows[0], rows[-1]) == (0, ROWS - 1)
    assert len(rows) == len(set(rows)) <= 10
    monkeypatch.setattr(summaries, "SAMPLE", (ROWS - 1) * COLUMNS + 1)  # hardly less than all
    assert [r for box in _sampled(layout) for r in range(box.start, box.stop)] == list(range(ROWS))
    monkeypatch.setattr(summaries, "SAMPLE", COLUMNS)
    assert [(b.start, b.stop) for b in _sampled(layout)] == [(0, 1)]
    alone = torch.zeros(ROWS, COLUMNS)
    alone[17, 3] = 7.0  # outside of the sample
    qq = (alone > 0) * 7.0
    found = of_quantized(layout_of(tmp_path / "alone", ct_stored(qq, torch.ones_like(alone))))
    assert (found.zero, found.largest.first, found.largest.at) == (False, 7.0, (17, 3))
    assert np.isfinite(found.spread)


def test_how_many_names_are_listed():
    """Five, and the number of the others."""
    names = [f"w{i}" for i in range(7)]
    assert some(names[:1]) == "'w0'"
    assert some(names[:5]) == "'w0', 'w1', 'w2', 'w3', 'w4'"
    assert some(names) == "'w0', 'w1', 'w2', 'w3', 'w4' and 2 more"
    assert some(["x" * 100])[:-2] == "'" + "x" * 79
    assert named("x" * 120) == repr("x" * 120)
    assert named("x" * 121) == repr("x" * 119 + "…")
