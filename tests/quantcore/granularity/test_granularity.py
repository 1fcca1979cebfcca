"""Every granularity is a block shape, and the regions of a walk cover a tensor exactly once."""

import itertools
import math

import pytest
import torch
from grid import for_each
from parts import some

import quantcore as qc
from quantcore.granularity import Blocks
from quantcore.granularity.kinds import block_bounds, cells_of, grid_shape


@for_each(
    ("granularity", "shape", "block", "scales"),
    [
        (qc.PerTensor(), (8, 16), (8, 16), 1),
        (qc.PerTensor(), (), (), 1),
        (qc.PerChannel(0), (8, 16), (1, 16), 8),
        (qc.PerChannel(1), (8, 16), (8, 1), 16),
        (qc.PerChannel(-1), (8, 16), (8, 1), 16),
        (qc.PerChannel(-2), (8, 16), (1, 16), 8),
        (qc.PerChannel(1), (2, 3, 4), (2, 1, 4), 3),
        (qc.PerChannel(-4), (2, 3, 4, 5), (1, 3, 4, 5), 2),
        (qc.PerGroup(4), (8, 16), (1, 4), 32),
        (qc.PerGroup(5), (8, 16), (1, 5), 32),
        (qc.PerGroup(16), (8, 16), (1, 16), 8),
        (qc.PerGroup(1), (8, 16), (1, 1), 128),
        (qc.PerGroup(3, axis=0), (8, 16), (3, 1), 48),
        (qc.PerGroup(2, axis=1), (2, 3, 4), (1, 2, 1), 16),
        (qc.PerGroup(4), (9,), (4,), 3),
        (qc.PerBlock((2, 4)), (8, 16), (2, 4), 16),
        (qc.PerBlock((3, 7)), (8, 16), (3, 7), 9),
        (qc.PerBlock((-1, 4)), (8, 16), (8, 4), 4),
        (qc.PerBlock((-1, -1)), (8, 16), (8, 16), 1),
        (qc.PerBlock((2, 2, -1)), (2, 3, 4), (2, 2, 4), 2),
    ],
)
def test_block_shape(granularity, shape, block, scales):
    assert qc.block_shape(granularity, shape) == block
    assert math.prod(grid_shape(shape, block)) == scales


@for_each(
    ("granularity", "shape", "words"),
    [
        (qc.PerChannel(2), (8, 16), r"axis 2, but the tensor has axes 0\.\.1, shape \(8, 16\)"),
        (qc.PerChannel(-3), (8, 16), "axis -3"),
        (qc.PerChannel(0), (), "no axis.*PerTensor"),
        (qc.PerGroup(4), (), "no axis.*PerTensor"),
        (qc.PerGroup(4, axis=5), (8, 16), "axis 5"),
        (
            qc.PerGroup(17),
            (8, 16),
            r"per_group\(17\) is longer than axis 1: 17 elements, but the axis has 16",
        ),
        (qc.PerBlock((2, 17)), (8, 16), "longer than axis 1.*at most 16"),
        (qc.PerBlock((2,)), (8, 16), "1 lengths, but the tensor has 2 axes"),
        (qc.PerBlock((2, 4, 4)), (8, 16), "3 lengths, but the tensor has 2 axes"),
    ],
)
def test_granularity_that_does_not_fit(granularity, shape, words):
    with pytest.raises(qc.QuantError, match=words):
        qc.apply(torch.zeros(shape), qc.Scheme(granularity=granularity))


@for_each(
    "make",
    [
        lambda: qc.PerGroup(0),
        lambda: qc.PerGroup(-1),
        lambda: qc.PerGroup(2.5),
        lambda: qc.PerGroup(math.nan),
        lambda: qc.PerGroup("4"),
        lambda: qc.PerGroup(True),
        lambda: qc.PerGroup(10**400),
        lambda: qc.PerChannel(0.5),
        lambda: qc.PerChannel(None),
        lambda: qc.PerBlock(()),
        lambda: qc.PerBlock(4),
        lambda: qc.PerBlock((0, 4)),
        lambda: qc.PerBlock((-2, 4)),
        lambda: qc.PerBlock(((1, 2), 3)),
    ],
)
def test_granularity_that_is_none(make):
    with pytest.raises(qc.QuantError):
        make()


def test_whole_numbers_are_kept_as_int():
    assert (qc.PerGroup(4.0), qc.PerBlock([2, 4.0])) == (qc.PerGroup(4), qc.PerBlock((2, 4)))
    assert type(qc.PerGroup(4.0).size) is int
    assert type(qc.PerBlock([2.0]).shape) is tuple


SHAPES = [(), (1,), (13,), (4, 6), (7, 10), (1, 9), (3, 4, 5), (2, 3, 4, 5)]


def blocks_for(shape):
    """All combinations of block lengths 1, 2, 3 and the axis length that fit along each axis."""
    choices = [sorted({length for length in (1, 2, 3, n) if length <= n}) for n in shape]
    return list(itertools.product(*choices))


@for_each("case", some(itertools.product([1, 2, 5, 12, 40, 10**6], [True, False], SHAPES), 17), ids=str)
def test_regions_tile_the_tensor_once(case):
    limit, whole_blocks, shape = case
    for block in blocks_for(shape):
        seen = torch.zeros(shape, dtype=torch.int64)
        of_block = torch.zeros(grid_shape(shape, block), dtype=torch.int64)
        previous = -1
        # the number of each element's block
        numbers = torch.arange(of_block.numel()).view(of_block.shape)
        owner = torch.zeros(shape, dtype=torch.int64)
        for position in itertools.product(*map(range, of_block.shape)):
            owner[tuple(slice(*b) for b in block_bounds(shape, block, position))] = numbers[position]
        for region in Blocks(shape, shape, block).regions(limit, whole_blocks):
            part = seen[region.elements]
            part += 1
            of_block[region.grid] += 1
            assert region.numel == part.numel()
            assert all(n % b == 0 for n, b in zip(part.shape, region.block, strict=True))
            blocks = qc.to_blocks(owner[region.elements], region.block)
            assert (blocks == numbers[region.grid].reshape(-1, 1)).all()
            if whole_blocks:
                assert region.numel <= max(limit, math.prod(block))
            else:
                assert region.numel <= limit
            first = int(torch.arange(seen.numel()).view(shape)[region.elements].flatten()[0])
            assert first > previous
            previous = first
        assert (seen == 1).all()
        assert (of_block == 1).all() if whole_blocks else (of_block >= 1).all()


@for_each("whole_blocks", [True, False])
@for_each(
    ("shape", "block", "count"),
    [
        ((64, 64), (1, 1), 4),
        ((64, 64), (2, 4), 4),
        ((4096,), (4,), 4),
        ((2, 2), (1, 1), 1),
        ((8, 8, 64), (8, 1, 8), 4),
    ],
)
def test_regions_are_not_cut_smaller_than_they_need(shape, block, count, whole_blocks):
    assert len(list(Blocks(shape, shape, block).regions(1024, whole_blocks))) == count


@for_each("shape", [(), (12,), (4, 6), (2, 4, 6), (2, 3, 4, 5)])
def test_to_blocks_and_back(shape):
    x = torch.arange(math.prod(shape)).view(shape)
    for block in blocks_for(shape):
        if any(n % b for n, b in zip(shape, block, strict=True)):
            continue
        blocks = qc.to_blocks(x, block)
        grid = grid_shape(shape, block)
        assert blocks.shape == (math.prod(grid), math.prod(block))
        for number, position in enumerate(itertools.product(*map(range, grid))):
            bounds = block_bounds(shape, block, position)
            assert blocks[number].tolist() == x[tuple(slice(*b) for b in bounds)].flatten().tolist()
        assert torch.equal(qc.from_blocks(blocks, shape, block), x)


def test_block_bounds_of_a_short_last_block():
    assert block_bounds((7, 10), (3, 4), (2, 2)) == ((6, 7), (8, 10))
    assert block_bounds((), (), ()) == ()


@for_each("shape", SHAPES)
def test_cells_of_repeats_for_every_element(shape):
    for block in blocks_for(shape):
        grid = grid_shape(shape, block)
        parameters = torch.arange(math.prod(grid)).view(grid)
        cells = cells_of(parameters, shape, block)
        assert tuple(cells.shape) == shape
        indices = torch.meshgrid(*map(torch.arange, shape), indexing="ij") if shape else ()
        assert torch.equal(cells, parameters[tuple(i // b for i, b in zip(indices, block, strict=True))])
