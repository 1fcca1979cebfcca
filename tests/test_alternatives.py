"""The schemes that a better one is looked for among."""

from types import SimpleNamespace

import pytest
import torch

import quantcore as qc
from quantcore.diagnosis import alternatives
from quantcore.diagnosis.context import Context
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
