"""How many elements share one scale.

Every granularity reduces to one fact, the *block shape*: the extent along each axis of the tensor
of the elements that share quantization parameters. Everything downstream works on blocks and does
not depend on which granularity produced them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.wording import passed

Shape = tuple[int, ...]


@dataclass(frozen=True)
class PerTensor:
    """One scale for the whole tensor."""


@dataclass(frozen=True)
class PerChannel:
    """One scale per index along ``axis``."""

    axis: int = 0

    def __post_init__(self) -> None:
        notation.read_numbers(self)


@dataclass(frozen=True)
class PerGroup:
    """One scale per run of ``size`` elements along ``axis``; the last run may be shorter."""

    size: int
    axis: int = -1

    def __post_init__(self) -> None:
        notation.read_numbers(self, size="group size")
        if self.size < 1:
            raise QuantError(f"The group size must be 1 or more, not {self.size}.")


@dataclass(frozen=True)
class PerBlock:
    """One scale per box of ``shape``; -1 means the whole axis, and boxes at the end may be smaller."""

    shape: Shape

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple | list) or not self.shape:
            raise QuantError(f"A block shape must be a list of lengths, one per axis, not {self.shape!r}.")
        shape = tuple(notation.integer(n, "a block length") for n in self.shape)
        if any(n < 1 and n != -1 for n in shape):
            raise QuantError(
                f"The lengths of the block shape {shape} must be 1 or more, or -1 for a whole axis."
            )
        object.__setattr__(self, "shape", shape)


@dataclass(frozen=True)
class PerFlatGroup:
    """One scale per run of ``size`` elements of the row-major flattened tensor, across row boundaries.

    As in bitsandbytes and torchao's NF4. The last run may be shorter; scales have shape (number of runs,).
    """

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", PerGroup(self.size).size)


Granularity = PerTensor | PerChannel | PerGroup | PerBlock | PerFlatGroup
PER_TENSOR = PerTensor()
GRANULARITIES: dict[str, type[Granularity]] = {
    notation.snake_case(kind.__name__): kind
    for kind in (PerTensor, PerChannel, PerGroup, PerBlock, PerFlatGroup)
}


def block_shape(granularity: Granularity, shape: Shape) -> Shape:
    """Return the extent of one block along each axis of a tensor of ``shape``.

    | granularity        | shape   | block shape | scales                                         |
    |--------------------|---------|-------------|------------------------------------------------|
    | `PerTensor()`      | (8, 16) | (8, 16)     | 1                                              |
    | `PerChannel(0)`    | (8, 16) | (1, 16)     | 8                                              |
    | `PerGroup(4)`      | (8, 16) | (1, 4)      | 8 · 4 = 32                                     |
    | `PerBlock((2, 4))` | (8, 16) | (2, 4)      | 4 · 4 = 16                                     |
    | `PerGroup(5)`      | (8, 16) | (1, 5)      | 8 · 4 = 32, the last block of each row 1 long  |
    | `PerFlatGroup(20)` | (8, 16) | (20,)       | 7, the last block 8 long                       |

    For a `PerFlatGroup`, this is a block of the flattened tensor; see `blocked_shape`.
    A group longer than its axis is one short block; `unsupported_reason` says whether a library supports it.

    >>> kinds = PerTensor(), PerChannel(0), PerGroup(4), PerBlock((2, 4))
    >>> [block_shape(kind, (8, 16)) for kind in kinds]
    [(8, 16), (1, 16), (1, 4), (2, 4)]

    Raises:
        QuantError: the tensor does not have the axis, or a block is longer than its axis.
    """
    shape = as_shape(shape)
    match granularity:
        case PerTensor():
            return shape
        case PerChannel(axis):
            axis = _axis(granularity, axis, shape)
            return tuple(1 if i == axis else n for i, n in enumerate(shape))
        case PerGroup(size, axis):
            axis = _axis(granularity, axis, shape)
            return tuple(min(size, n) if i == axis else 1 for i, n in enumerate(shape))
        case PerFlatGroup(size):
            return (min(size, math.prod(shape)),)
        case PerBlock(lengths):
            if len(lengths) != len(shape):
                raise QuantError(
                    f"The block shape {lengths} has {len(lengths)} lengths, but the tensor has {len(shape)} "
                    f"axes, shape {shape}. Give one length per axis."
                )
            block = tuple(n if length == -1 else length for length, n in zip(lengths, shape, strict=True))
        case _:
            raise QuantError(f"granularity is {passed(granularity)}; give for example PerGroup(32).")
    for i, (length, n) in enumerate(zip(block, shape, strict=True)):
        if length > n:
            raise QuantError(
                f"{notation.write_call(granularity)} is longer than axis {i}: {length} elements, but the "
                f"axis has {n}, shape {shape}. Choose at most {n}."
            )
    return block


def as_shape(shape: Sequence[int]) -> Shape:
    """Return a shape as a tuple.

    Raises:
        QuantError: it is something else.
    """
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise QuantError(f"shape is {passed(shape)}; give the lengths of all axes, such as x.shape.")
    return tuple(shape)


def blocked_shape(granularity: Granularity, shape: Shape) -> Shape:
    """Return the shape in which the blocks are boxes: the tensor's own, or flat for `PerFlatGroup`."""
    return (math.prod(shape),) if isinstance(granularity, PerFlatGroup) else shape


def grid_shape(shape: Shape, block: Shape) -> Shape:
    """Return the number of blocks along each axis: the shape of scales in block form."""
    return tuple(-(-n // b) for n, b in zip(shape, block, strict=True))


def block_bounds(shape: Shape, block: Shape, position: Shape) -> tuple[tuple[int, int], ...]:
    """Return (start, stop) along each axis of the block at ``position`` of the grid."""
    return tuple((p * b, min((p + 1) * b, n)) for n, b, p in zip(shape, block, position, strict=True))


def split_axes(x: Tensor, block: Shape) -> Tensor:
    """View x of shape (n0, n1, …) as (g0, b0, g1, b1, …); each b divides its n."""
    sizes = [size for n, b in zip(x.shape, block, strict=True) for size in (n // b, b)]
    return x.view(sizes)  # splitting axes never copies, whatever the strides


def spread(parameters: Tensor) -> Tensor:
    """View parameters of shape (g0, g1, …) as (g0, 1, g1, 1, …), to broadcast with `split_axes`."""
    return parameters.reshape([size for g in parameters.shape for size in (g, 1)])


def to_blocks(x: Tensor, block: Shape) -> Tensor:
    """Return x, whose axes ``block`` divides, as (number of blocks, elements of a block).

    (8, 16) in blocks of (2, 4) becomes (16, 8). A view where the memory layout allows it.

    >>> to_blocks(torch.arange(8).view(2, 4), block=(1, 2))
    tensor([[0, 1],
            [2, 3],
            [4, 5],
            [6, 7]])
    """
    axes = range(len(block))
    return (
        split_axes(x, block)
        .permute([2 * i for i in axes] + [2 * i + 1 for i in axes])
        .reshape(-1, math.prod(block))
    )


def from_blocks(blocks: Tensor, shape: Shape, block: Shape) -> Tensor:
    """Undo `to_blocks`.

    >>> from_blocks(torch.tensor([[0, 1], [2, 3], [4, 5], [6, 7]]), shape=(2, 4), block=(1, 2))
    tensor([[0, 1, 2, 3],
            [4, 5, 6, 7]])
    """
    grid = grid_shape(shape, block)
    rank = len(shape)
    order = [place for i in range(rank) for place in (i, rank + i)]
    return blocks.reshape((*grid, *block)).permute(order).reshape(shape)


def _axis(granularity: Granularity, axis: int, shape: Shape) -> int:
    if not -len(shape) <= axis < len(shape):
        axes = f"axes 0..{len(shape) - 1}" if shape else "no axis"
        raise QuantError(
            f"{notation.write_call(granularity)} uses axis {axis}, but the tensor has {axes}, shape {shape}."
            + (" Choose one of them." if shape else " Choose PerTensor.")
        )
    return axis % len(shape)


def as_boxes(parameters: Sequence[Tensor], size: int, shape: Shape) -> tuple[list[Tensor], Shape]:
    """Return the parameters of a `PerFlatGroup` in block form of ``shape``, and the block.

    If the runs are not boxes of the shape, every element is its own block.
    """
    size = min(size, math.prod(shape))
    for i, n in enumerate(shape):
        inner = math.prod(shape[i + 1 :])
        rows = size // inner  # of axis i in one run
        fits = size % inner == 0 and rows <= n and (n % rows == 0 or math.prod(shape[:i]) == 1)
        if fits:
            grid = (*shape[:i], -(-n // rows), *([1] * (len(shape) - i - 1)))
            return [p.reshape(grid) for p in parameters], (*([1] * i), rows, *shape[i + 1 :])
    each = [p.repeat_interleave(size)[: math.prod(shape)].reshape(shape) for p in parameters]
    return each, (1,) * len(shape)


def cells_of(parameters: Tensor, shape: Shape, block: Shape) -> Tensor:
    """Repeat parameters in block form for every element: the result has ``shape``."""
    for i, (n, b) in enumerate(zip(shape, block, strict=True)):
        parameters = parameters.repeat_interleave(b, dim=i).narrow(i, 0, n)
    return parameters.to(memory_format=torch.contiguous_format)
