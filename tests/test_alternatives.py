"""The schemes that a better one is looked for among."""

from types import SimpleNamespace

import pytest
import torch

import quantcore as qc
from quantcore.diagnosis import alternatives
from quantcore.diagnosis.context import Context, Trial
from quantcore.granularity import Blocks


@pytest.mark.parametrize("shape", [(4, 32), (8, 64), (2, 4, 8), (64,)])
def test_every_granularity_but_per_tensor_has_several_blocks(shape):
    found = list(alternatives.granularities(shape))
    assert [g for g in found if Blocks.of(g, shape).count == 1] == [qc.PerTensor()]
    flat = {g.size for g in found if isinstance(g, qc.PerFlatGroup)}
    assert not flat or max(flat) == max(s for s in alternatives.SIZES if s < torch.Size(shape).numel())


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(("shape", "flat"), [((8, 2048), False), ((4096, 4), True)])
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


@pytest.mark.parametrize("shape", [(), (5,), (4, 32), (3, 2), (2, 4, 8), (2, 3, 1, 9)])
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


@pytest.mark.parametrize(
    ("trials", "kept"),
    [([], None), ([("torchao", 10.0)], 0), ([("textbook", 20.0), ("torchao", 17.0)], 1),
     ([("textbook", 20.0), ("torchao", 16.9)], 0), ([("torchao", 18.0), ("textbook", 20.0), ("torchao", 18.5)], 2),
     ([("torchao", 20.0), ("textbook", 17.0)], 0), ([("textbook", 19.0), ("textbook", 20.0)], 1)],
)  # fmt: skip
def test_the_library_is_kept_within_half_a_bit(trials, kept):
    enough = [Trial(qc.Scheme.parse(f"int4 {name}"), db, 4.0) for name, db in trials]
    assert alternatives._kept("torchao", enough) is (None if kept is None else enough[kept])
