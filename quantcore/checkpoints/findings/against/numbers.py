"""Hypotheses: scales, zero points, signs or bits are wrong, or they or the codes are another weight's."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.checkpoints.findings.against.grid import CodeGrid, nearest_power, sums_by_run, width_of
from quantcore.checkpoints.findings.against.suspect import Cause, Residual, Suspect
from quantcore.checkpoints.protocol.fields import Rows
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES, SCALE, ZERO_POINT
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError
from quantcore.formats import FLOATS, FloatFormat, IntFormat

_OTHER = {"F16": "BF16", "BF16": "F16"}
_NAMES = {"F16": "float16", "BF16": "bfloat16"}
_MOST_OFFSET = 1 << 16
_ROUNDS = 4  # in which factors of rows and of columns are found by turns
_EXPLAINED = 0.25  # of the squared error of a row may be left
_OFF = 0.02  # |factor - 1| that counts
_LEAST = (4, 16)  # rows, or columns, of which each has a factor; and elements in each
_MOST = 400  # other weights that are looked at
_SAMPLE = 1 << 16  # elements by which a weight is recognized
_ALIKE = 0.7  # the least cosine


def sign_flipped(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if every value has the other sign."""
    yield s.explained("sign_flipped", "{has} the sign of every value flipped: negated", s.fit(-s.y))


def constant_factor(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if all scales are wrong by one factor."""
    factor = _ratio(s.x, s.y)
    if factor is None or abs(factor - 1) < 1e-3:
        return
    words = "{is} the original's times {factor}: divided by that"
    near = nearest_power(factor)
    for own in dict.fromkeys((near if abs(near / factor - 1) < 0.02 else factor, factor)):
        yield s.explained("constant_factor", words, s.multiplied(torch.tensor(own)), 1, factor=1 / own)


def _ratio(x: Tensor, y: Tensor) -> float | None:
    """Return the factor from y to x by least squares, or the median over the large elements."""
    power = float(y.double().square().sum())
    if not power:
        return None
    first = float((x.double() * y).sum()) / power
    large = y.abs() > y.abs().mean()
    if not first:
        return None
    middle = float((x[large] / y[large]).median()) if bool(large.any()) else first
    return middle if abs(middle) > 0.05 * abs(first) else first


def zero_point_off(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if all zero points are wrong by one integer."""
    if s.grid is None or not isinstance(s.layout.element, IntFormat):
        return
    known = s.scales != 0
    offset = ((s.x - s.y)[known] / s.scales[known]).median() if bool(known.any()) else torch.zeros(())
    steps = round(float(offset)) if bool(offset.isfinite()) and abs(float(offset)) < _MOST_OFFSET else 0
    if not steps:
        return
    way = "large" if steps > 0 else "small"
    right = "1 less" if steps == 1 else "1 more" if steps == -1 else "that undone"
    words = "{has} zero points that are {by} too {way}: with {right}"
    fit = s.fit(s.y + steps * s.scales)
    yield s.explained("zero_point_off", words, fit, 1, by=abs(steps), way=way, right=right)


def code_bits(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if a bit of every code is flipped, or codes are of another format of equal width."""
    if s.grid is None:
        return
    bits, table = s.layout.element.bits, s.grid.table
    for bit in range(bits - 1, -1, -1):
        fit = s.fit(s.scales * table[s.codes ^ (1 << bit)].nan_to_num(0.0) + s.shift)
        top = bit == bits - 1 and isinstance(s.layout.element, IntFormat)
        why = ": codes in two's complement were read as offset ones, or the reverse" if top else ""
        words = f"{{has}} bit {{bit}} of every code flipped{why}; with it flipped back"
        yield s.explained("code_bit", words, fit, 1, bit=bit)
    if isinstance(s.layout.element, FloatFormat):
        for name, other in FLOATS.items():
            if other.bits == bits and other != s.layout.element and name != "e8m0":
                values = CodeGrid(s.layout.changed(coded=other)).table[s.codes]
                fit = s.fit(s.scales * values.nan_to_num(0.0, 0.0, 0.0))
                yield s.explained("code_format", "{has} codes of {format}: read so", fit, 1, format=name)


def other_bits(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if bfloat16 numbers were read as float16, or the reverse, or with swapped bytes."""
    field = s.layout.fields.get(CODES if s.layout.is_plain else SCALE)
    if field is None or field.piece.dtype not in _OTHER:
        return
    own, other = field.piece.dtype, _OTHER[field.piece.dtype]
    if not s.layout.is_plain:
        words = "{has} scales with the bits of {truth}, but their dtype says {stored}: read so"
        changed = s.layout.with_field(SCALE, piece=replace(field.piece, dtype=other))
        yield s.explained("bits_reinterpreted", words, s.with_scales_of(changed), 1, **_dtypes(other, own))
    elif field.piece.shape == s.layout.shape:
        yield from _other_values(s, field.piece)


def _other_values(s: Suspect, piece: StoredTensor) -> Iterator[Cause]:
    raw, own, other = piece.bits((s.rows,)), piece.dtype, _OTHER[piece.dtype]
    reinterpreted = "{has} the bits of {truth}, but {its} dtype says {stored}: read so"
    swapped = "{has} the two bytes of each value swapped: read so"
    tried = (
        ("bits_reinterpreted", reinterpreted, raw, other),
        ("bytes_swapped", swapped, raw.byteswap(), own),
        ("bytes_swapped", swapped, raw.byteswap(), other),
    )
    for kind, words, bits, dtype in tried:
        values = torch.from_numpy(bits.view("<i2").copy()).view(TORCH_DTYPES[dtype]).float()
        fit = s.fit(s.matrix(values).nan_to_num(0.0, 0.0, 0.0))
        yield s.explained(kind, words, fit, 1, **_dtypes(dtype, piece.dtype))


def _dtypes(truth: str, stored: str) -> dict[str, str]:
    return {"truth": _NAMES[truth], "stored": _NAMES[stored]}


def factor_per_row(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if the scales of each row are wrong by a factor of its own."""
    factor, wrong = _line_factors(s, 1)
    if not bool(wrong.any()):
        return
    factor[~wrong] = 1.0
    words = (
        "{has} {rows} of {its} {of:row} multiplied by factors of {low} to {high}, "
        "the first of them row {first}"
    )
    facts = {"rows": int(wrong.sum()), "of": len(s.x), "first": int(wrong.nonzero()[0, 0])}
    found = _undone(s, "row_factors", words, factor, 3, **facts, **_ends(factor[wrong]))
    yield replace(found, vector=1 / factor[:, 0])


def factor_per_column(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if columns have a factor each; AWQ and SmoothQuant divide what precedes by it."""
    factor, wrong = _line_factors(s, 0)
    if not bool(wrong.any()):
        return
    on_purpose = _are_most(wrong)
    if not on_purpose:
        factor[~wrong] = 1.0
    ends = _ends(factor[wrong])
    words = "{has} {columns} of {its} {of:column} multiplied by factors of {low} to {high}"
    facts = {"columns": int(wrong.sum()), "of": wrong.numel(), **ends}
    yield replace(_undone(s, "column_factors", words, factor, 3, **facts), vector=1 / factor[0])
    if not on_purpose:
        return
    for _ in range(_ROUNDS):
        for axis in (1, 0):
            factor = factor * _ratios(s.x, s.y * factor, axis)
    words = "{has} {its} rows and columns multiplied by factors, the columns by {low} to {high}"
    found = _undone(s, "row_and_column_factors", words, factor, 5, **facts)
    yield replace(found, vector=(1 / factor).abs().mean(0))


def _line_factors(s: Suspect, axis: int) -> tuple[Tensor, Tensor]:
    """Return the factor of each row (axis 1) or column (axis 0), and which are wrong.

    None are if there are too few, or they are too short.
    """
    factor = _ratios(s.x, s.y, axis)
    off = (factor - 1).abs()
    if factor.numel() < _LEAST[0] or s.x.shape[axis] < _LEAST[1]:
        return factor, torch.zeros_like(off, dtype=torch.bool)
    # what a factor differs from 1 by noise alone
    chance = 6 * min(1.0, s.now.relative) / math.sqrt(s.x.shape[axis])
    wrong = off > max(_OFF, chance)
    if _are_most(wrong):  # multiplied on purpose, some by almost 1
        return factor, off > _OFF
    # a factor near 0 halves any error; error feedback leaves large ones in columns of small weights
    before, after, power = (
        (s.x - y).double().square_().sum(axis, keepdim=True) for y in (s.y, s.y * factor, 0 * s.y)
    )
    return factor, wrong & (after < _EXPLAINED * torch.minimum(before, power))


def _are_most(wrong: Tensor) -> bool:
    """Tell whether a fourth or more are wrong."""
    return 4 * int(wrong.sum()) >= wrong.numel()


def _ends(factors: Tensor) -> dict[str, float]:
    """Return the smallest and the largest of the factors by which values were multiplied, as facts."""
    own = 1 / factors
    return {"low": float(own.min()), "high": float(own.max())}


def _undone(s: Suspect, kind: str, words: str, factor: Tensor, complexity: float, **facts: object) -> Cause:
    """Return what is left with the factors of rows, columns or blocks undone."""
    return s.explained(kind, f"{words}; with these undone", s.multiplied(factor), complexity, **facts)


def _ratios(x: Tensor, y: Tensor, axis: int) -> Tensor:
    """Return the factor from y to x of each row (axis 1) or column (axis 0), by least squares."""
    first = (x.double() * y).sum(axis, keepdim=True) / y.double().square().sum(axis, keepdim=True)
    return torch.where(first.isfinite() & (first != 0), first, 1.0).float()


def factor_per_block(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if the scales of some blocks are wrong by a factor each."""
    if s.grid is None or len(s.layout.shape) < 2:
        return
    width = width_of(s.layout)
    if width >= s.x.shape[1] or width < 8:
        return
    starts = torch.arange(0, s.x.shape[1], width)
    sizes = torch.diff(torch.cat((starts, torch.tensor([s.x.shape[1]]))))
    xy, yy = (torch.from_numpy(sums_by_run((a.double() * s.y).numpy(), width)) for a in (s.x, s.y))
    factor = torch.where(xy != 0, xy / yy, 1.0)
    wrong = (factor - 1).abs() > 0.15
    n = int(wrong.sum())
    if not n or n > 0.9 * wrong.numel():
        return
    factor[~wrong] = 1.0
    at = wrong.nonzero()[0]
    facts = {"blocks": n, "of": wrong.numel(), "first": (int(at[0]), int(at[1])), **_ends(factor[wrong])}
    words = (
        "{has} scales that are wrong by factors of {low} to {high} in {blocks} of {its} {of:block}, first at "
        "{first} of the grid of blocks"
    )
    yield _undone(s, "block_factors", words, factor.float().repeat_interleave(sizes, 1), 4, **facts)


def scales_of_another(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if scales are, byte for byte, another weight's, or if another's fit better."""
    if s.grid is None:
        return
    own = s.layout.in_blocks(SCALE)
    if own is None or own.numel() < 2:
        return
    for name, scale, changed in _exchanged(s, SCALE, own):
        if torch.equal(scale, own):
            words = "{has} the scales of {other}, byte for byte: with scales of {its} own"
            yield s.explained("scales_of_another", words, _refitted(s), other=name, equal=True)
            continue
        words = "{has} scales that are not {its} own: with the scales stored for {other}"
        yield s.explained("scales_exchanged", words, s.with_scales_of(changed), 1, other=name, equal=False)


def _refitted(s: Suspect) -> Residual:
    """Return the fit with the best factor for each block instead of its scale."""
    width, columns = s.measure.run, s.x.shape[1]
    if s.layout.shape[-1] != s.measure.width:
        return s.now
    order = torch.arange(columns) if s.measure.order is None else s.measure.order
    x, y = s.x[:, order], s.y[:, order]
    runs = list(zip(torch.split(x, width, 1), torch.split(y, width, 1), strict=True))
    factor = torch.cat([_middle(a, b)[:, None].expand(a.shape) for a, b in runs], 1)[:, order.argsort()]
    return s.multiplied(factor)


def _middle(x: Tensor, y: Tensor) -> Tensor:
    power = (y.double() * y).sum(1)
    return torch.where(power > 0, (x.double() * y).sum(1) / power, 1.0).float()


def whole_of_another(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if the values are those of another weight of the original."""
    sample = slice(0, max(1, min(s.layout.shape[0], _SAMPLE // s.x.shape[1])))
    y = s.layout.values(sample, rounded=False).reshape(-1)
    found, best = "", _ALIKE
    whole = (n for n in dict.fromkeys(s.partners.values()) if n in s.source.tensors)
    names = [n for n in whole if n != s.measure.source.name]
    near = set(s.peers.values())
    for name in sorted(names, key=lambda n: n not in near)[:_MOST]:
        tensor = s.source.tensors[name]
        try:
            if tuple(tensor.shape) != tuple(s.layout.shape):
                continue
            x = tensor.read(sample).reshape(-1)
        except QuantError:
            continue
        alike = float(torch.nn.functional.cosine_similarity(x, y, 0))
        if alike > best:
            found, best = name, alike
    if not found:
        return
    x = s.matrix(s.source.tensors[found].read(s.rows))
    fit = s.fit(s.y, x=x)
    words = "{has} the values of another weight of the original, {other}: against that one"
    yield s.explained("another_weight", words, fit, 1, other=found, original=s.measure.source.name)


def codes_of_another(s: Suspect) -> Iterator[Cause]:
    """Yield the other weight whose codes are the same, byte for byte."""
    if s.grid is None:
        return
    own = sha256(s.layout.fields[CODES].piece.bytes()).digest()
    for name, layout in _alike(s):
        try:
            piece = layout.fields[CODES].piece
            if piece.shape != s.layout.fields[CODES].piece.shape or sha256(piece.bytes()).digest() != own:
                continue
        except QuantError:
            continue
        words = "{has} the codes of {other}, byte for byte; the originals of the two differ"
        yield Cause("codes_of_another", f"{words}.", {"other": name}, s.now)
        return


def zero_points_of_another(s: Suspect) -> Iterator[Cause]:
    """Yield what is left with the zero points of other weights of the same role."""
    if s.grid is None or ZERO_POINT not in s.layout.fields:
        return
    own = s.layout.in_blocks(ZERO_POINT)
    if own is None:
        return
    words = "{has} zero points that are not {its} own: with those stored for {other}"
    for name, zero_point, changed in _exchanged(s, ZERO_POINT, own):
        if not torch.equal(zero_point, own):
            fit = s.fit(s.matrix(changed.values(s.rows, rounded=False)).nan_to_num(0.0, 0.0, 0.0))
            yield s.explained("zero_points_exchanged", words, fit, 1, other=name)


def _exchanged(s: Suspect, role: str, own: Tensor) -> Iterator[tuple[str, Tensor, Layout]]:
    """Yield the parameters of each other weight that stores them like its own, and the weight with them."""
    field = s.layout.fields.get(role)
    for name, layout in _alike(s):
        if field is not None and layout.fields[role].shape != field.shape:
            continue
        try:
            other = layout.in_blocks(role)
        except QuantError:
            continue
        if other is not None and other.shape == own.shape:
            changed = {**s.layout.computed, role: partial(_of_rows, other)}
            yield name, other, s.layout.changed(computed=changed)


def _of_rows(numbers: Tensor, rows: Rows) -> Tensor:
    """Return the numbers of some rows of blocks; one number is that of all."""
    return numbers if rows is None or numbers.numel() == 1 else numbers[rows]


def _alike(s: Suspect) -> Iterator[tuple[str, Layout]]:
    """Yield the other weights of the same shape and storage, those of the same role first."""
    names = dict.fromkeys((*s.peers, *s.release.tensors))
    found = 0
    for name in names:
        tensor: CheckpointTensor = s.release.tensors[name]
        layout = tensor.layout
        if name == s.layout.name or type(layout) is not type(s.layout):
            continue
        try:
            if layout.shape != s.layout.shape or layout.storage != s.layout.storage:
                continue
        except QuantError:
            continue
        found += 1
        if found > _MOST:
            return
        yield name, layout
