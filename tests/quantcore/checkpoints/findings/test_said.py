"""What is said of codes and blocks that a walk over a weight found, at the edges of each rule; the records are given."""

import math
from dataclasses import replace

import pytest
import torch
from grid import for_each
from suspects import COLUMNS, ROWS, W, ct_stored, grid_of, suspect, weight

from quantcore.checkpoints.findings.against import places
from quantcore.checkpoints.findings.against.grid import KEPT, Beyond, Nearest
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.places import WrongRun


@pytest.fixture
def sound(tmp_path):
    """A sound weight, its codes, and its rows."""
    q, _, step = grid_of(weight())
    s = suspect(tmp_path, ct_stored(q, step), weight())
    return s, q, places.Lines(s.measure)


def codes(s, lines, monkeypatch, found, taken=(), **more):
    nearest = Nearest(0.0, 0.0, tuple(found), **{"unexplained": len(found), "in_few_columns": False} | more)
    monkeypatch.setattr(Measure, "nearest", nearest)
    return places._codes(s.measure, lines, set(taken))


def test_the_code_that_is_farthest_off_is_said(sound, monkeypatch):
    s, q, lines = sound
    found = [Beyond(0.05, 3, 7, 0.55), Beyond(2.5, 9, 70, 3.0), Beyond(0.5, 11, 100, 1.0)]
    finding = codes(s, lines, monkeypatch, found)
    stored = int(q[9, 70]) & 15
    assert (finding.severity, finding.kind, finding.tensors) == ("error", "code_impossible", (W,))
    # the code is the nearest one here: no bit of it is flipped
    assert finding.facts == {
        "elements": 3,
        "row": 9,
        "column": 70,
        "steps": 3.0,
        "code": stored,
        "nearest": stored,
    }
    for at, steps in ((slice(0, 2), 3.0), (slice(0, 1), 0.55)):
        finding = codes(s, lines, monkeypatch, found[at])
        assert (finding.facts["elements"], finding.facts["steps"]) == (len(found[at]), steps)


def test_codes_of_runs_that_are_explained_are_not_said_again(sound, monkeypatch):
    s, _, lines = sound
    found = [Beyond(0.5, 3, 7, 1.0), Beyond(2.5, 9, 70, 3.0)]
    assert codes(s, lines, monkeypatch, found, [(9, 64)]).facts["row"] == 3
    assert codes(s, lines, monkeypatch, found, [(9, 32), (3, 64)]).facts["elements"] == 2
    assert codes(s, lines, monkeypatch, found, [(9, 64), (3, 0)]) is None
    assert codes(s, lines, monkeypatch, []) is None
    assert codes(s, lines, monkeypatch, found, in_few_columns=True) is None


@for_each(
    ("kept", "unexplained", "words"), [(2, 2, "all others"), (2, 3, "nearly all others")]
)
def test_how_many_others_are_rounded_to_nearest(kept, unexplained, words, sound, monkeypatch):
    s, _, lines = sound
    found = [Beyond(0.5, 3, column, 1.0) for column in range(kept)]
    assert f"although {words} are" in codes(s, lines, monkeypatch, found, unexplained=unexplained).sentence


@for_each(
    ("count", "words"), [(KEPT - 1, f"has {KEPT - 1} codes"), (KEPT, f"has at least {KEPT} codes")]
)
def test_more_codes_than_are_kept(count, words, sound, monkeypatch):
    s, _, lines = sound
    found = [Beyond(0.5, 3, column, 1.0) for column in range(count)]
    assert words in codes(s, lines, monkeypatch, found).sentence


WORSE = [
    # rounded to nearest, all 0, its mean squared error in steps, that of a typical row, relative error -> what is said
    (True, False, 31.0, 1.0, 1.1, "block_far"), (True, False, 30.0, 1.0, 1.1, None), (True, False, 31.0, 1.0, 1.0, None),
    (True, False, 31.0, 0.5, 1.1, "block_far"), (True, False, 61.0, 2.0, 1.1, "block_far"), (True, False, 59.0, 2.0, 1.1, None),
    (False, False, 91.0, 1.0, 2.1, "block_far"), (False, False, 90.0, 1.0, 2.1, None), (False, False, 91.0, 1.0, 2.0, None),
    (False, False, 31.0, 1.0, 2.1, None),
    (True, True, 11.0, 1.0, 0.9, "zeroed"), (True, True, 10.0, 1.0, 0.9, None), (False, True, 31.0, 3.0, 0.9, "zeroed"),
    (True, True, 31.0, 1.0, 1.1, "zeroed"),
]  # fmt: skip


@pytest.mark.parametrize(("is_nearest", "is_zero", "mean", "bulk", "before", "kind"), WORSE)
def test_from_where_on_a_block_is_far(is_nearest, is_zero, mean, bulk, before, kind, sound, monkeypatch):
    """30 times the error of a typical row and more than the original; more where error feedback may have left it."""
    s, _, lines = sound
    monkeypatch.setattr(Measure, "nearest", Nearest(0.0, 0.0, (), 0, False) if is_nearest else None)
    m = replace(s.measure, bulk=bulk, runs=[(mean, 20, 64)])
    run = lines.run(20, 64)
    left = [
        (WrongRun(20, 64, 96, "", 1.0, -1, before, math.inf), replace(run, y=run.y * (0 if is_zero else -1)))
    ]
    found = places._worse(m, lines, left)
    assert [f.kind for f in found] == [kind] * bool(kind)
    if kind == "zeroed":
        assert found[0].facts == {"runs": 1, "row": 20, "first": 64, "last": 95}
    elif kind:
        assert found[0].facts == {"runs": 1, "row": 20, "first": 64, "last": 95, "before": before}
    # a run whose level is not among those kept is not far
    assert places._worse(replace(m, runs=[(mean, 20, 32), (mean, 21, 64)]), lines, left) == []


def test_the_worst_block_is_said(sound, monkeypatch):
    s, _, lines = sound
    monkeypatch.setattr(Measure, "nearest", Nearest(0.0, 0.0, (), 0, False))
    at = [(5, 0, 1.5), (20, 64, 4.0), (30, 96, 2.0)]
    m = replace(s.measure, bulk=1.0, runs=[(100.0, row, column) for row, column, _ in at])
    left = []
    for row, column, before in at:
        run = lines.run(row, column)
        left.append(
            (WrongRun(row, column, column + 32, "", 1.0, -1, before, math.inf), replace(run, y=-run.y))
        )
    (finding,) = places._worse(m, lines, left)
    assert finding.facts == {"runs": 3, "row": 20, "first": 64, "last": 95, "before": 4.0}


@for_each(("original", "is_said"), [(1.0, False), (0.99, True)])
def test_blocks_that_hardly_matter(original, is_said, sound, monkeypatch):
    """Errors up to a part of the mean square of the weight don't count."""
    s, _, lines = sound
    monkeypatch.setattr(Measure, "nearest", Nearest(0.0, 0.0, (), 0, False))
    monkeypatch.setattr(places, "_MATTERS", 0.0625)  # so that the limit is exact
    m = replace(
        s.measure,
        bulk=1.0,
        runs=[(100.0, 20, 64)],
        sums=replace(s.measure.sums, xx=original * ROWS * COLUMNS),
    )
    x, y = torch.zeros(32), torch.ones(32)
    x[:1], y[1:] = 0.0, 0.0
    x[1], y[0] = 1.0, 1.0  # Σe² = 2 = 0.0625 · 32
    run = replace(lines.run(20, 64), x=x, y=y)
    left = [(WrongRun(20, 64, 96, "", 1.0, -1, 1.5, math.inf), run)]
    assert bool(places._worse(m, lines, left)) is is_said


@for_each(
    ("factors", "groups"),
    [
        ((1.52, 1.54), 1), ((1.52, 1.57), 2), ((-2.01, -2.04), 1), ((2.0, -2.0), 2), ((0.1234, 0.1233), 1), ((0.123, 0.125), 2),
        ((0.51, 0.54), 2), ((1.04, 1.01), 1),
    ],
)  # fmt: skip
def test_factors_that_are_one_cause(factors, groups):
    """To one decimal above 1, to three below."""
    found = list(
        places.alike(
            [WrongRun(i, 0, 32, "scale", f, -1, 0.5, 0.1) for i, f in enumerate(factors)], places._cause
        ).values()
    )
    assert [len(group) for group in found] == [len(factors) // groups] * groups


def test_another_number_or_bit_is_another_cause():
    first = WrongRun(3, 0, 32, "scale", 2.0, -1, 0.5, 0.1)
    for other in (replace(first, what="min"), replace(first, bit=4)):
        assert list(places.alike([first, other], places._cause).values()) == [[first], [other]]
