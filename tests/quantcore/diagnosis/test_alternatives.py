"""The schemes that a better one is looked for among, and the choice among them."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some_rows

import quantcore as qc
from quantcore import diagnosis
from quantcore.diagnosis import alternatives
from quantcore.diagnosis.context import Alternative, Context
from quantcore.diagnosis.record import Finding, Gain
from quantcore.granularity import Blocks


@for_each("shape", [(4, 32), (8, 64), (2, 4, 8), (64,)])
def test_every_granularity_but_per_tensor_has_several_blocks(shape):
    found = list(alternatives.granularities(shape))
    assert [g for g in found if Blocks.of(g, shape).count == 1] == [qc.PerTensor()]
    flat = {g.size for g in found if isinstance(g, qc.PerFlatGroup)}
    assert not flat or max(flat) == max(s for s in alternatives.SIZES if s < torch.Size(shape).numel())


@for_each(
    ("setting", "granularity", "symmetric", "shrink", "changes"),
    [
        ("min_max", "per_channel(0)", True, 1.0, 0), ("min_max", "per_channel(0)", True, 0.7, 1),
        ("min_mse", "per_channel(0)", True, 0.7, 0), ("min_mse", "per_channel(0)", True, 1.0, 1),
        ("min_max", "per_tensor", False, 1.0, 2), ("min_max", "per_tensor", False, 0.5, 3),
    ],
)  # fmt: skip
def test_how_many_parts_a_fix_changes(setting, granularity, symmetric, shrink, changes):
    own = qc.Scheme.parse(f"int8 symmetric per_channel(0) {setting}")
    other = SimpleNamespace(granularity=qc.Scheme.parse(f"int8 {granularity}").granularity, symmetric=symmetric)
    assert alternatives._changed(SimpleNamespace(scheme=own), other, shrink) == changes


@for_each(("shape", "flat"), [((8, 2048), False), ((4096, 4), True)])
def test_runs_over_the_ends_of_rows_are_for_rows_too_short_for_groups(shape, flat):
    context = Context(qc.apply(torch.randn(shape, generator=torch.Generator().manual_seed(0)), qc.Scheme.parse("int4")))
    kinds = {type(granularity) for granularity, _ in alternatives._pairs(context)}
    assert (qc.PerFlatGroup in kinds) == flat


def test_a_range_that_ends_at_0_includes_it():
    """Its zero point is clamped only if its scale is too coarse, at subnormal scales."""
    for sign in (-1.0, 1.0):
        x = sign * torch.tensor([[0.0, 0.2, 0.6, 1.0]]) * 3e-44
        result = qc.apply(x, qc.Scheme.parse("uint8 asymmetric"))
        assert "zero_point_clamped" not in {f.kind for f in qc.diagnose(result)}


@for_each("shape", [(), (5,), (4, 32), (3, 2), (2, 4, 8), (2, 3, 1, 9)])
def test_which_granularities_are_offered(shape):
    """Every shape of block made of lengths 1, a power of two or the whole axis is one of five kinds, or not offered."""
    powers = [2**k for k in range(1, 11)]
    expected, rank = {shape}, len(shape)
    for axis, n in enumerate(shape):
        others = tuple(1 for _ in shape)
        expected |= {(*others[:axis], size, *others[axis + 1 :]) for size in powers if size < n}
        if rank > 1:
            expected.add((*shape[:axis], 1, *shape[axis + 1 :]))
    for size in powers if rank > 1 else []:
        if size <= shape[-1] and size <= shape[-2]:
            expected.add((*(1 for _ in shape[2:]), size, size))
    found = [g for g in alternatives.granularities(shape) if not isinstance(g, qc.PerFlatGroup)]
    assert {qc.block_shape(g, shape) for g in found} == expected
    assert len(found) == len(set(found))
    flat = {g.size for g in alternatives.granularities(shape) if isinstance(g, qc.PerFlatGroup)}
    assert flat == ({size for size in powers if size < torch.Size(shape).numel()} if rank > 1 else set())


@for_each(
    ("trials", "kept"),
    [([], None), ([("torchao", 10.0)], 0), ([("textbook", 20.0), ("torchao", 17.0)], 1),
     ([("textbook", 20.0), ("torchao", 16.9)], 0), ([("torchao", 18.0), ("textbook", 20.0), ("torchao", 18.5)], 2),
     ([("torchao", 20.0), ("textbook", 17.0)], 0), ([("textbook", 19.0), ("textbook", 20.0)], 1)],
)  # fmt: skip
def test_the_library_is_kept_within_half_a_bit(trials, kept):
    enough = [Alternative(qc.Scheme.parse(f"int4 {name}"), db, 4.0) for name, db in trials]
    assert alternatives._kept("torchao", enough) is (None if kept is None else enough[kept])


def context_of(x, text):
    return Context(qc.apply(torch.as_tensor(x, dtype=torch.float32), qc.Scheme.parse(text)), unfit=lambda _: False)


@for_each(
    ("shape", "text"),
    [((8, 64), "int4"), ((8, 64), "int4 per_group(8)"), ((8, 64), "uint4 asymmetric per_group(16)"), ((8, 64), "int4 per_channel(1)"),
     ((4, 3, 32), "int8 per_group(4, axis=0)"), ((512, 3), "int4 per_channel(0)"), ((300,), "int3 per_group(32)"),
     ((2, 64), "e2m1 per_group(16)"), ((64, 5), "nf4 per_flat_group(16)"), ((1024, 1024), "int8"), ((3, 5), "int4 asymmetric per_block([2, 2])"),
     # a scale per row, or per 256 or 512 elements, takes just so much
     ((64, 160), "int4"), ((32, 320), "int4"), ((64, 640), "int2")],
)  # fmt: skip
def test_of_each_kind_and_axis_the_finest_that_fits_is_tried(shape, text):
    """A scale takes 32 bits, a free zero point the bits of a code; 5 % more than now may be taken."""
    context = context_of(torch.ones(shape), text)
    own, n = context.scheme, torch.Size(shape).numel()
    fmt, most = own.format, 1.05 * qc.bits_per_element(own, shape)
    wanted = set()
    for symmetric in (True, False) if isinstance(fmt, qc.IntFormat) else (True,):
        finest = {}
        for granularity in alternatives.granularities(shape):
            count = Blocks.of(granularity, shape).count
            if fmt.bits + (32 if symmetric else 32 + fmt.bits) * count / n <= most:
                name = str(granularity).partition("(")[0], granularity.axis if hasattr(granularity, "axis") else None
                if count > finest.get(name, (0, None))[0]:
                    finest[name] = count, granularity
        if ("PerGroup", -1) in finest:
            finest.pop(("PerFlatGroup", None), None)
        wanted |= {(granularity, symmetric) for _, granularity in finest.values()}
        count = Blocks.of(own.granularity, shape).count
        if fmt.bits + (32 if symmetric else 32 + fmt.bits) * count / n <= most:
            wanted.add((own.granularity, symmetric))
    found = list(alternatives._pairs(context))
    assert set(found) == wanted
    assert len(found) == len(wanted)


LARGE = [((64, 1024), "e2m1", False), ((64, 1025), "e2m1", True), ((1024, 1024), "int4", False), ((1024, 1025), "int4", True)]


@for_each(("shape", "fmt", "quick"), LARGE)
def test_a_narrower_range_that_is_quick_on_a_large_tensor(shape, fmt, quick):
    """Per channel, the percentile that so much of the largest |x| is: of these triangles, 1 - (1 - shrink)²."""
    u = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    x = (1 - (1 - u).sqrt()) * (torch.arange(shape[0]) % 5 + 1)[:, None] * (1 - 2 * (torch.arange(shape[0]) % 2))[:, None]
    x[:, 0] = 0
    rows, whole = context_of(x, f"{fmt} per_channel(0)"), context_of(x, fmt)
    for shrink in (0.7, 0.8, 0.9):
        found = alternatives.narrowed(rows, qc.PerChannel(0), shrink)
        if not quick:
            assert found == qc.MinMse()
            continue
        assert found.p == round(found.p, 2)
        assert found.p == pytest.approx(100 * (1 - (1 - shrink) ** 2), abs=1.5)
        assert alternatives.narrowed(whole, qc.PerTensor(), shrink) == alternatives.shrunk(whole, shrink)
    if quick:
        assert alternatives.narrowed(rows, qc.PerChannel(0), 0.1) == qc.Percentile(90.0)
        assert alternatives.narrowed(rows, qc.PerChannel(0), 1.0) == qc.Percentile(99.99)


@for_each(
    ("x", "shrink", "low", "high"),
    [([-3.21987, 1.23456], 0.5, -1.61, 0.617), ([2.0, 5.0], 0.5, 0.0, 2.5), ([-5.0, -2.0], 0.25, -1.25, 0.0), ([0.0, 1e-44], 0.01, None, None)],
)  # fmt: skip
def test_the_range_of_a_tensor_made_narrower(x, shrink, low, high):
    expected = qc.MinMse() if low is None else qc.Fixed(low, high)
    assert alternatives.shrunk(context_of(x, "int8"), shrink) == expected


@for_each(
    ("now", "then", "words"),
    [("int4", "int4 per_channel(0)", "one scale per row (axis 0)"), ("int4", "int4 per_channel(1)", "one scale per column (axis 1)"),
     ("int4 per_channel(0)", "int4", "one scale for all elements"), ("int4", "int4 per_group(16)", "one scale per 16 elements along axis 1"),
     ("int4", "int4 per_group(2, axis=0)", "one scale per 2 elements along axis 0"),
     ("int4", "int4 per_block([2, 4])", "one scale per block of 2×4"),
     ("int4", "uint4 asymmetric min_mse", "asymmetric uint4 and the range min_mse"), ("uint4 asymmetric", "int4", "symmetric int4"),
     ("int4", "uint4", "uint4"), ("int4 torchao", "int4", "textbook's arithmetic"), ("int4 scales(int8)", "int4", "float32 scales"),
     ("int4 torchao scales(int8)", "int4 per_channel(0)", "one scale per row (axis 0) and textbook's arithmetic"),
     ("int4 per_group(8)", "int4 asymmetric percentile(99)", "asymmetric int4, one scale for all elements and the range percentile(99)")],
)  # fmt: skip
def test_what_another_scheme_does_differently_in_words(now, then, words):
    assert alternatives.changes(context_of(torch.ones(4, 32), now), qc.Scheme.parse(then)) == words


SCHEMES = [qc.Scheme.parse(f"int4 {text}") for text in ("per_group(16)", "per_channel(0)", "per_group(8)", "torchao")]


@for_each(
    ("sqnr", "gain", "bits", "best"),
    [((30, 31, 32, 20), 3, 99, 2), ((30, 31.6, 32, 20), 3, 99, 1), ((31.5, 31.6, 32, 20), 3, 99, 0), ((31.4, 31.5, 32, 20), 3, 99, 1),
     ((33, 31, 34, 20), 3, 7, 0), ((33, 31, 34, 20), 3, 6, 0), ((33, 31, 34, 20), 3, 5.9, 1), ((30, 31, 32, 20), 99, 99, None),
     ((None, None, 32, 20), 3, 99, 2), ((None, None, None, 20), 3, 99, None), ((-math.inf, 24.5, 20, 20), 3, 99, None)],
)  # fmt: skip
def test_the_best_of_some_schemes(sqnr, gain, bits, best):
    """Of those within half a decibel of the highest the first; the storage of int4 in groups of 16 is 6 bits."""
    context = context_of(torch.ones(8, 32), "int4")
    context.known = dataclasses.replace(qc.report(context.result), sqnr_db=22.0)
    for scheme, db in zip(SCHEMES, sqnr, strict=True):
        context._trials[scheme] = None if db is None else Alternative(scheme, db, qc.bits_per_element(scheme, (8, 32)))
    found = context.best(SCHEMES, gain, bits)
    assert (found and found.scheme) == (None if best is None else SCHEMES[best])
    assert context.fixed_by(found) == (
        {"fix": None, "gain": None} if best is None else {"fix": SCHEMES[best], "gain": Gain("SQNR", 22.0, sqnr[best])}
    )


def test_nothing_is_better_than_no_error():
    context = context_of(torch.ones(8, 32), "int4")
    context.known = dataclasses.replace(qc.report(context.result), sqnr_db=math.inf)
    context._trials[SCHEMES[0]] = Alternative(SCHEMES[0], math.inf, 6.0)
    assert context.best(SCHEMES[:1], 0.0) is None


@for_each("shape", [(), (7,), (4, 6), (3, 8), (2, 3, 4), (3, 2, 2, 3)])
@for_each("size", [1, 2, 3, 4, 6, 12])
def test_a_run_of_elements_is_shown_as_a_box_if_it_is_one(shape, size):
    x = torch.zeros(shape)
    context = context_of(x, f"int8 per_flat_group({size})")
    for place, start in enumerate(range(0, x.numel(), size)):
        run = [tuple(map(int, np.unravel_index(i, shape))) for i in range(start, min(x.numel(), start + size))]
        box = context.block_box((place,))
        inside = list(itertools.product(*(range(a, b) for a, b in box)))
        around = [range(min(ends), max(ends) + 1) for ends in zip(*run, strict=True)]
        assert inside == (run if list(itertools.product(*around)) == run else run[:1])


def test_fixes_that_take_more_storage_say_so_and_do_not_count_as_reached():
    context = context_of(torch.randn(16, 64, generator=torch.Generator().manual_seed(0)), "int4 per_channel(0)")
    for text, bits in (("int4 per_group(16)", 6.0), ("int4 per_channel(0) min_mse", 4.5), ("int4 per_group(32, axis=1)", 5.0)):
        fix = qc.Scheme.parse(text)
        finding = diagnosis._priced(Finding("per_channel", "warning", "Words.", fix=fix), context)
        sqnr = qc.report(qc.apply(context.result.x, fix)).sqnr_db
        assert diagnosis._reaches(finding, context) == pytest.approx(sqnr if bits == 4.5 else -math.inf)
        assert finding.facts == ({} if bits == 4.5 else {"bits_of_fix": bits, "bits_now": 4.5})
        more = f"Words. The fix takes {bits:g} bits per element instead of 4.5."
        assert finding.sentence == ("Words." if bits == 4.5 else more)
    none = Finding("per_channel", "warning", "Words.")
    assert diagnosis._priced(none, context) is none
    assert diagnosis._reaches(none, context) == -math.inf


@for_each(
    ("reached", "x", "text"),
    some_rows([(reached, *case) for reached in (-math.inf, 12.0) for case in [("steep", "int4"), ("steep", "int4 fixed(-20, 20)"), ("tails", "int3"), ("tails", "int3 per_channel(0)"), ("steep", "e2m1 fixed(-9, 9)"),
     ("shifted", "uint4 per_channel(1) fixed(-9, 9)"), ("tails", "int3 per_channel(0) min_mse")]], 2),
)  # fmt: skip
def test_what_promises_most_is_computed(x, text, reached):
    """Each estimate counts with min-max and with the range made narrower; half a decibel for every part that changes."""
    rng = np.random.default_rng(0)
    x = {"steep": rng.uniform(-1, 1, (8, 64)) * 0.5 ** np.arange(8)[:, None], "tails": rng.standard_t(2, (8, 64)),
         "shifted": rng.uniform(2, 3, (8, 64))}[x]  # fmt: skip
    context = context_of(x, text)
    context.reached = reached
    now = qc.report(context.result)
    least = max(now.sqnr_db + 6 - 1.5, reached + 3)
    ranked = []
    for place, e in enumerate(context.estimates(alternatives._pairs(context))):
        for shrink, mse in ((1.0, e.min_max), (min(e.shrink, 0.9), e.searched)):
            gain = math.inf if mse == 0 else 10 * math.log10(now.mse / mse)
            changes = alternatives._changed(context, e, shrink)
            if now.sqnr_db + gain >= least:
                ranked.append((0.5 * changes - gain, place, -shrink, e, shrink, now.sqnr_db + gain))
    ranked = [r[3:] for r in sorted(ranked, key=lambda r: r[:3])]
    wanted = ranked[:3]
    if all(shrink < 1 for _, shrink, _ in wanted):
        wanted += [r for r in ranked[3:] if r[1] == 1][:1]
    found = alternatives._promising(context)
    assert [f[:2] for f in found] == [w[:2] for w in wanted]
    assert [f[2] for f in found] == pytest.approx([w[2] for w in wanted])


@for_each("others", [0.3, 1])
@for_each("text", ["int4 torchao", "uint4 asymmetric torchao", "int4 compressed_tensors", "int8 asymmetric onnxruntime"])
def test_the_library_s_own_scheme_is_computed_and_the_textbook_s_if_it_gains_too_little(text, others):
    """A scale per row gains much if one row is larger than the others, and next to nothing if none is."""
    x = np.random.default_rng(0).uniform(-1, 1, (32, 1024)) * np.where(np.arange(32), others, 1)[:, None]
    context = context_of(x, text)
    (estimate,) = context.estimates([(qc.PerChannel(0), context.scheme.symmetric)])
    own = dataclasses.replace(context.scheme, granularity=qc.PerChannel(0))
    gain = qc.report(qc.apply(context.result.x, own)).sqnr_db - qc.report(context.result).sqnr_db
    assert (gain > 7, gain < 5) == (others < 1, others == 1), "the case must lie on this side"
    wanted = [own] if others < 1 else [own, dataclasses.replace(own, convention=qc.TEXTBOOK)]
    assert [trial.scheme for trial in alternatives._computed(context, estimate, qc.MinMax())] == wanted
