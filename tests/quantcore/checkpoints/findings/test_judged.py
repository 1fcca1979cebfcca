"""What the errors of a weight are judged by, at the edges of each rule, and what is said of a cause."""

import math
from dataclasses import replace

import pytest
import releases
import torch
from grid import for_each
from parts import some_rows
from suspects import COLUMNS, ROWS, M, W, ct_stored, grid_of, of_layers, suspect, weight

from quantcore.analysis import Sums
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison.orders import Heads
from quantcore.checkpoints.findings.against.judge import _is_wide, _Judgement
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.suspect import Cause, Residual
from quantcore.checkpoints.findings.walk import Ordered


def kinds(s, measure, **others):
    """What is found about a weight with these measures, beside others."""
    judgement = _Judgement({measure.name: measure} | others, s.release, s.source, Heads())
    return [(f.severity, f.kind) for f in judgement.of(measure)]


def measured(s, relative, bulk, **more):
    """A measure with this relative error and error of a typical row, in which no single place stands out."""
    given = {"sums": Sums(xx=1.0, yy=1.0, ee=relative**2), "bulk": bulk, "runs": [], "edge": 0} | more
    changed = replace(s.measure, **given)
    changed.strange_rows = changed.strange_columns = 0
    return changed


@for_each(
    ("relative", "bulk", "tried"),
    [
        (0.5, 2.0, False), (0.5, 2.001, True), (0.5, 0.5, False), (0.9, 1.0, False),
        (0.75, math.nan, False), (0.751, math.nan, True), (1.0, 1.0, False), (1.001, 1.0, True), (1.0, 2.0, False),
    ],
)  # fmt: skip
def test_from_which_error_on_a_cause_is_searched(relative, bulk, tried, tmp_path):
    """Twice the error of rounding; three quarters of the original where that is not known; more than the original."""
    q, _, step = grid_of(weight())
    s = suspect(tmp_path, ct_stored(q, 1.5 * step), weight())
    assert kinds(s, measured(s, relative, bulk)) == [("error", "constant_factor")] * tried


def test_a_weight_that_equals_its_original_is_not_searched(tmp_path):
    q, _, step = grid_of(weight())
    s = suspect(tmp_path, ct_stored(q, 1.5 * step), weight())
    assert kinds(s, measured(s, 0.0, 9.0)) == []


@for_each(
    ("rows", "kind"), some_rows([(12, "scale_wrong"), (6, "scale_wrong"), (13, "row_factors"), (30, "row_factors")], 2)
)
def test_factors_of_few_rows_are_wrong_scales(rows, kind, tmp_path):
    """Of more than a quarter of the rows they are one cause."""
    q, _, step = grid_of(weight())
    by = torch.ones(ROWS, 1)
    by[:rows] = 2.0
    s = suspect(tmp_path, ct_stored(q, step * by), weight())
    s.measure.bulk = 3.0
    found = _Judgement({W: s.measure}, s.release, s.source, Heads()).of(s.measure)
    assert {(f.severity, f.kind) for f in found if f.kind != "code_impossible"} == {("error", kind)}
    if kind == "row_factors":
        assert [f.facts["rows"] for f in found] == [rows]


@for_each(
    ("facts", "wide"),
    [({"rows": 12, "of": 48}, False), ({"rows": 13, "of": 48}, True), ({"columns": 32, "of": 128}, False),
     ({"columns": 33, "of": 128}, True), ({"blocks": 100, "of": 128}, False), ({}, False)],
)  # fmt: skip
def test_wide_causes(facts, wide):
    assert _is_wide(Cause("", "", facts, Residual(1, 1), 3)) is wide


def test_rows_that_are_exchanged_are_found_where_lines_are_strange(tmp_path):
    """Rows or columns that no longer resemble the original's, if nothing is found at single places."""
    two = weight()
    two[[3, 9]] = two[[9, 3]]
    s = suspect(tmp_path, releases.ct_int4(M, two), weight())
    for rows, columns, found in (
        (0, 0, []),
        (1, 0, [("error", "rows_permuted")]),
        (0, 1, [("error", "rows_permuted")]),
    ):
        m = measured(s, 0.3, 1.0)
        m.strange_rows, m.strange_columns = rows, columns
        assert kinds(s, m) == found
    assert kinds(s, s.measure) == [("error", "rows_permuted")]  # as it is measured


def of_parts(folder, differing, equal):
    """A release of plain weights with names, of which some differ by little, and the measures of all."""
    x = weight(4, 32)
    y = x.clone()
    y[1, 3] *= 1.25
    names = [*differing, *equal]
    release = open_checkpoint(
        releases.save(folder / "release", {n: y if n in differing else x for n in names})
    )
    source = open_checkpoint(releases.save(folder / "original", dict.fromkeys(names, x)))
    s = suspect(folder / "one", {W: y}, x, "")
    found = {}
    for name in names:
        tensor = release.tensors[name]
        m = replace(
            s.measure, layout=tensor.layout, source=replace(s.measure.source, tensor=source.tensors[name])
        )
        m.unequal = int(name in differing)
        found[name] = m
    return _Judgement(found, release, source, Heads()), found


@for_each(
    ("differing", "equal", "severity"),
    [
        (["a.0.w"], ["b.0.w", "c.0.w"], "error"), (["a.0.w"], ["b.0.w"], "note"), (["a.0.w", "d.0.w"], ["b.0.w"] , "note"),
        (["a.0.w", "d.0.w"], ["b.0.w", "c.0.w", "e.0.w"], "note"), (["a.0.w", "d.0.w"], ["b.0.w", "c.0.w", "e.0.w", "f.0.w"], "error"),
        # all of its siblings are equal
        (["a.0.w", *"bcde"], ["a.1.w", "a.2.w", "a.3.w"], "note"), (["a.0.w", *"bcde"], ["a.1.w", "a.2.w", "a.3.w", "a.4.w"], "error"),
        (["a.0.w", "a.5.w", *"bcd"], ["a.1.w", "a.2.w", "a.3.w", "a.4.w"], "note"),
    ],
)  # fmt: skip
def test_plain_weights_that_differ_alone(differing, equal, severity, tmp_path):
    """Where two thirds of all, or four siblings and no fewer than all, equal the original, one that does not is wrong."""
    judgement, measures = of_parts(tmp_path, differing, equal)
    (finding,) = judgement.of(measures["a.0.w"])
    assert (finding.severity, finding.kind, finding.facts["values"]) == (severity, "plain_differs", 1)
    assert judgement.of(measures[equal[0]]) == []


@for_each(
    ("stored", "severity"),
    some_rows([(1, "note"), (0, "error"), (-1, "note"), (2, "error"), (3, "error"), (4, "error"), (5, "error")], 3),
)
def test_factors_of_columns_that_a_stored_scale_undoes(stored, severity, tmp_path):
    """Beside the codes, by column, multiplied or divided; neither another vector, one of another length or weight, nor a bias."""
    x = weight()
    by = torch.exp(
        torch.linspace(-0.7, 0.7, COLUMNS)[
            torch.randperm(COLUMNS, generator=torch.Generator().manual_seed(2))
        ]
    )
    more = {
        0: {}, 1: {f"{M}.pre_quant_scale": by}, -1: {f"{M}.pre_quant_scale": 1 / by},
        2: {f"{M}.pre_quant_scale": by.flip(0)}, 3: {f"{M}.pre_quant_scale": by[:64]},
        4: {M.replace(".1.", ".2.") + ".pre_quant_scale": by}, 5: {f"{M}.bias": by},
    }[stored]  # fmt: skip
    s = suspect(tmp_path, releases.ct_int4(M, x * by) | more, x)
    (finding,) = _Judgement({W: s.measure}, s.release, s.source, Heads()).of(s.measure)
    assert (finding.kind, finding.severity, finding.facts["columns"]) == (
        "column_factors",
        severity,
        pytest.approx(COLUMNS, abs=8),
    )
    assert ("Neither" in finding.sentence) is (severity == "error")


@for_each(
    ("name", "original", "heads"),
    [(W, "a.weight", 8), ("a.weight", W, 8), (W, W, 8), ("a.weight", "b.weight", 0)],
)
def test_heads_by_either_name(name, original, heads, tmp_path):
    x = weight()
    release, source = (
        open_checkpoint(releases.save(tmp_path / side, {n: x}))
        for side, n in (("release", name), ("original", original))
    )
    tensor = release.tensors[name]
    m = Measure(tensor.layout, Ordered(source.tensors[original], tensor.shape)).done()
    assert _Judgement({name: m}, release, source, Heads((8,), (2,))).suspect(m, []).heads == heads


def test_the_spread_of_siblings_in_a_sentence(tmp_path):
    """A weight far from its siblings whose cause is not known: their SQNR beside its own."""
    x, s = of_layers(tmp_path, lambda stored: None, count=6)
    noisy = x + 0.004 * torch.randn(x.shape, generator=torch.Generator().manual_seed(8))
    _, bad = of_layers(tmp_path / "bad", lambda stored: stored.update(releases.ct_int4(M, noisy)), count=6)
    others = {}
    for number, name in enumerate(s.peers):
        m = replace(
            s.measure,
            layout=s.release.tensors[name].layout,
            sums=replace(s.measure.sums, ee=s.measure.sums.ee * (1 + number / 100)),
        )
        others[name] = m
    bad.measure.edge, bad.measure.runs = 0, []
    (finding,) = _Judgement({W: bad.measure} | others, bad.release, bad.source, Heads()).of(bad.measure)
    assert (finding.kind, finding.severity, finding.facts["siblings"]) == ("far_from_siblings", "error", 5)
    assert finding.facts["sqnr"] == pytest.approx(10 * math.log10(bad.measure.sums.xx / bad.measure.sums.ee))
    assert finding.facts["high"] == pytest.approx(s.measure.sqnr)
    assert finding.facts["low"] == pytest.approx(s.measure.sqnr - 10 * math.log10(1.04))
