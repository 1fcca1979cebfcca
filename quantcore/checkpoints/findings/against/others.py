"""Hypotheses: a weight, or its scales or codes, are those of another one."""

from collections.abc import Callable, Iterator
from hashlib import sha256

import torch
from torch import Tensor

from quantcore.checkpoints.findings.against.suspect import Cause, Residual, Suspect
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES, ZERO_POINT
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError

_MOST = 400  # other weights that are looked at
_SAMPLE = 1 << 16  # elements by which a weight is recognized
_ALIKE = 0.7  # the least cosine


def with_scales(s: Suspect, scale: Tensor) -> Tensor | None:
    """Return a number per block for each element; ``scale``: in the shape of the layout's scales."""
    layout = s.layout
    index = layout.group_index()
    if index is not None and index.dim() > 1:
        return None
    grid = scale.reshape(-1, *layout.blocks.grid[1:])

    def of_blocks(rows: slice | None) -> Tensor:
        return grid if rows is None or grid.numel() == 1 else grid[rows]

    return s.matrix(layout.spread(of_blocks, slice(0, s.rows.stop)))


def scales_of_another(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if scales are, byte for byte, another weight's, or if another's fit better."""
    if s.grid is None:
        return
    own = s.layout.scale()
    if own is None or own.numel() < 2:
        return
    known = own != 0
    for name, scale in _like(s, own, lambda layout: layout.scale()):
        if torch.equal(scale, own):
            words = "{has} the scales of {other}, byte for byte: with scales of {its} own"
            yield s.explained("scales_of_another", words, _refitted(s), other=name, equal=True)
            continue
        factor = with_scales(s, torch.where(known, scale / own, 0.0))
        if factor is None:
            return
        words = "{has} scales that are not {its} own: with the scales stored for {other}"
        y = s.y * factor if not s.has_min else s.scales * factor * s.values + s.shift
        fit = s.fit(y, s.step * factor.abs())
        yield s.explained("scales_exchanged", words, fit, 1, other=name, equal=False)


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
    y = s.tensor.layout.values(sample, rounded=False).reshape(-1)
    found, best = "", _ALIKE
    whole = (n for n in dict.fromkeys(s.partners.values()) if n in s.source.tensors)
    names = [n for n in whole if n != s.original.name]
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
    yield s.explained("another_weight", words, fit, 1, other=found, original=s.original.name)


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
    own = s.layout.zero_point()
    scale = s.layout.scale()
    if own is None or scale is None or own.shape != scale.shape:
        return
    for name, zero in _like(s, own, lambda layout: layout.zero_point()):
        if torch.equal(zero, own):
            continue
        off = with_scales(s, (own.float() - zero.float()))
        if off is None:
            return
        words = "{has} zero points that are not {its} own: with those stored for {other}"
        yield s.explained("zero_points_exchanged", words, s.fit(s.y + s.scales * off), 1, other=name)


def _like(s: Suspect, own: Tensor, read: Callable[[Layout], Tensor | None]) -> Iterator[tuple[str, Tensor]]:
    """Yield a parameter of the other weights that has the shape of a weight's own."""
    for name, layout in _alike(s):
        try:
            other = read(layout)
        except QuantError:
            continue
        if other is not None and other.shape == own.shape:
            yield name, other


def _alike(s: Suspect) -> Iterator[tuple[str, Layout]]:
    """Yield the other weights of the release with the same shape and storage, those of the same role first."""
    names = dict.fromkeys((*s.peers, *s.release.tensors))
    found = 0
    for name in names:
        tensor: CheckpointTensor = s.release.tensors[name]
        layout = tensor.layout
        if name == s.tensor.name or type(layout) is not type(s.layout):
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
