"""optimum-quanto releases: qint2, qint4, qint8, qfloat8.

qint8 and qfloat8: ``weight._data`` one code per byte, ``weight._scale`` [out, 1]. qint2 and qint4:
``weight._data._data`` uint8, ``weight._scale`` and ``weight._shift`` [groups, 1]; the weight is reshaped to
[groups, group size], its rows are split into 2 or 4 equal parts, and a byte holds a code from each part, the
first part in the lowest bits. w = code * scale - shift, where both operations round to the dtype of the
scales; an integer shift is a zero point instead.

No file holds the shape or the group size, since the library builds the model first. For more than 128 inputs,
its groups are the first of 128, 96, 64 and 32 that divides the number of inputs. So what looks like a row of
such a length may be a group of a longer row; the bias or the sizes in the model's config can settle it.

Source: optimum-quanto 0.2.7, tensor/packed.py, tensor/grouped.py, tensor/qbits.py and nn/qmodule.py.
"""

import math
from collections.abc import Iterator

from quantcore.checkpoints.containers.stored import Pieces, StoredTensor
from quantcore.checkpoints.layouts.whole import ELEMENTS, whole
from quantcore.checkpoints.packing import high_first, padded, parts
from quantcore.checkpoints.protocol.config import FROM_HIDDEN, LENGTHS, Config, hidden_size, section
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.kinds import Packed, Reshaped
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import other_parts
from quantcore.checkpoints.protocol.record import CODES, SCALE, ZERO_POINT, words
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import Statement, named
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import Granularity, PerBlock, PerChannel, PerFlatGroup

GROUP_SIZES = (128, 96, 64, 32)
# layers whose outputs are the hidden state
TO_HIDDEN = ("o_proj", "out_proj", "down_proj", "fc2")
_PACKED, _WHOLE = "._data._data", "._data"


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of an optimum-quanto release."""
    config = section(release.config, "text_config") or release.config
    hidden, sizes = hidden_size(release.config), _sizes(config)
    for name, data in release.stored.items():
        packed = name.endswith(_PACKED)
        weight = name.removesuffix(_PACKED if packed else _WHOLE)
        scale = release.stored.get(f"{weight}._scale")
        if weight == name or scale is None:
            continue
        pieces = {"data": data, "scale": scale}
        shift = release.stored.get(f"{weight}._shift")
        if shift is not None:
            pieces["shift"] = shift
        bias = release.stored.get(f"{weight.rpartition('.')[0]}.bias")
        if packed:
            yield attempt(weight, pieces, _bits, weight, pieces, bias, hidden, sizes)
        else:
            yield attempt(weight, pieces, _whole, weight, pieces)


def _whole(name: str, pieces: Pieces) -> Layout:
    """Return the layout of a weight with one code per byte."""
    data, scale = pieces["data"], pieces["scale"]
    if data.dtype not in ELEMENTS or len(scale.shape) not in (0, len(data.shape)):
        raise QuantError(
            f"{named(data.name)} is {data.dtype} with scales of shape {scale.shape}; only int8 and FP8 with "
            "a scale for the tensor or per row are supported."
        )
    axes = scale.shape or (1,) * len(data.shape)
    block = tuple(1 if s == n else n for s, n in zip(axes, data.shape, strict=True))
    rows = len(block) == 2 and block[0] == 1
    own = {"weight": data, "weight_scale": scale}
    granularity: Granularity = PerChannel(0) if rows else PerBlock(block)
    return whole(name, scale.float_dtype, own, "optimum-quanto", granularity)


def _sizes(config: Config) -> frozenset[int]:
    """Return the lengths that the axes of a model's weights have, as far as its config says them."""

    def of(*keys: str) -> int | None:
        found = (config.get(key) for key in keys)
        return next((n for n in found if type(n) is int and n in LENGTHS), None)

    hidden = of("hidden_size", "d_model", "n_embd", "dim")
    heads = of("num_attention_heads", "num_heads", "n_head")
    head = of("head_dim", "d_kv") or (hidden // heads if hidden and heads else None)
    attention = [n * head for n in (heads, of("num_key_value_heads")) if n and head]
    others = of("intermediate_size", "d_ff", "n_inner", "ffn_dim", "hidden_dim"), of("vocab_size")
    return frozenset(n for n in (hidden, *others, *attention) if n)


def _bits(
    name: str,
    pieces: Pieces,
    bias: StoredTensor | None,
    hidden: int | None,
    sizes: frozenset[int] = frozenset(),
) -> Layout:
    """Return the layout of a weight of 2 or 4 bits.

    Raises:
        QuantError: the stored tensors don't fit each other.
    """
    data, scale, shift = pieces["data"], pieces["scale"], pieces.get("shift")
    if shift is None:
        raise QuantError(f"The _shift of {named(name)} is missing; download the release again.")
    groups = scale.shape[0] if scale.shape else 0
    if len(data.shape) != 2 or scale.shape != (groups, 1) or shift.shape != scale.shape or not groups:
        raise QuantError(
            f"{named(data.name)} has shape {data.shape} and its scale {scale.shape}; quanto stores a scale "
            "and a shift per row of the reshaped weight."
        )
    bits = next((b for b in (4, 2) if -(-groups * b // 8) == data.shape[0]), None)
    if bits is None:
        raise QuantError(
            f"{named(data.name)} has {data.shape[0]} rows for {groups} groups, which fits neither 4 nor 2 "
            "bits; the file is damaged."
        )
    columns, remarks = _columns(name, groups, data.shape[1], bias, hidden, sizes)
    shape = (groups * data.shape[1] // columns, columns)
    size, codes = data.shape[1], Packed(data, parts(padded(bits, 8)), (groups, data.shape[1]), axis=0)
    by_rows = size == columns
    fields: dict[str, Field] = {
        CODES: Reshaped(codes, shape), SCALE: Numbers(scale), ZERO_POINT: Numbers(shift)
    }  # fmt: skip
    blocks = "per_channel(0)" if by_rows else f"per_flat_group({size})"
    return Layout(
        name, shape, scale.float_dtype, pieces, fields,
        "optimum-quanto", words("optimum-quanto", f"int{bits}", blocks, "asymmetric"),
        IntFormat(bits, signed=False),
        PerChannel(0) if by_rows else PerFlatGroup(size),
        added=(ZERO_POINT, -1) if shift.is_floating else None, rounds_each=True,
        symbols={ZERO_POINT: "shift"},
        remarks=remarks,
        rivals=lambda layout: iter((other_parts(layout, parts(high_first(bits, 8)), "high", "HQQ"),)),
    )  # fmt: skip


def _columns(
    name: str, groups: int, size: int, bias: StoredTensor | None, hidden: int | None, sizes: frozenset[int]
) -> tuple[int, tuple[Statement, ...]]:
    """Return the number of inputs of a weight, and a remark if nothing in the release determines it."""
    possible = [n * size for n in _divisors(groups) if _group_size(n * size) == size]
    possible = [size, *(columns for columns in possible if columns != size)]
    layer, total = name.split(".")[-2:][0], groups * size
    outputs = bias.shape[0] if bias is not None and bias.shape else 0
    if outputs and total % outputs == 0:
        inputs = total // outputs
    elif hidden and layer in FROM_HIDDEN:
        inputs = hidden
    elif hidden and layer in TO_HIDDEN and total % hidden == 0:
        inputs = total // hidden
    else:
        fitting = [n for n in possible if n in sizes and total // n in sizes]
        inputs = fitting[0] if len(fitting) == 1 else 0
    if inputs in possible or len(possible) == 1:
        return (inputs if inputs in possible else size), ()
    words = (
        "{has} a shape that no file of the release holds; groups of {size} are read as rows, {groups} x "
        "{size}, but may be parts of longer rows."
    )
    return size, (Statement("assumed", "note", words, {"size": size, "groups": groups}),)


def _divisors(n: int) -> list[int]:
    """Return the divisors of n, in ascending order; n may be a million, or whatever a file claims."""
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return low + [n // d for d in reversed(low) if d * d != n]


def _group_size(columns: int) -> int | None:
    """Return the group size that the library chooses for so many inputs; None if it makes no groups."""
    if columns <= GROUP_SIZES[0]:
        return None
    return next((size for size in GROUP_SIZES if columns % size == 0), None)
