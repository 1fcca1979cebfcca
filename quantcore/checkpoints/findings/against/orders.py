"""Hypotheses: the elements of a weight are right, but in another order."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from quantcore.checkpoints.comparison.orders import EIGHTS, HALVES, PAIRS, Orders, in_blocks
from quantcore.checkpoints.findings.against.suspect import Cause, Residual, Suspect
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES, ZERO_POINT

_SIGNATURE = 512  # columns by which rows are recognized
_MATCHED = 1 << 14  # the most rows, or columns, that are matched with each other
_AT_ONCE = 1024  # rows for which that is done at once
_FITTED = 256  # rows by which the group of each column is found
_MOST_GROUPS = 1024  # among which it is looked for
_ALIKE = 0.5  # the least cosine of a row and its match, on average


def transposed(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if the two last axes are swapped, which only a square weight does not show."""
    shape = s.layout.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or not s.is_whole:
        return
    turned = s.y.reshape(shape).mT.reshape(s.y.shape)
    step = s.step.reshape(shape).mT.reshape(s.y.shape) if not s.layout.is_plain else None
    words = "{is} the transpose of the original's: transposed back"
    yield s.explained("transposed", words, s.fit(turned, step))
    if s.grid is not None:
        codes = s.values.reshape(shape).mT.reshape(s.y.shape)
        words = "{has} {its} codes transposed, but not {its} scales: transposed back"
        yield s.explained("codes_transposed", words, s.fit(s.scales * codes + s.shift))


def _swapped(s: Suspect, axis: int) -> Iterator[Cause]:
    """Yield what is left if codes along an axis, not scales, are in another order within words or blocks."""
    if s.grid is None:
        return
    for order, places in _runs(s.y.shape[axis]):
        for with_zeros in (False, True) if axis == 0 and ZERO_POINT in s.layout.fields else (False,):
            values = s.values.index_select(axis, places)
            shift = s.offset.index_select(axis, places) * s.scales if with_zeros else s.shift
            yield _of_codes(s, order, axis, with_zeros, s.fit(s.scales * values + shift))


def _of_codes(s: Suspect, order: str, axis: int, with_zeros: bool, fit: Residual) -> Cause:
    name = "columns" if axis else "rows"
    facts = {"order": order, "axis": name, "which": "codes and zero points" if with_zeros else "codes"}
    if order in EIGHTS:
        kind, facts["of"] = "awq_order", "columns" if axis else "output channels"
        words = "{has} the {which} of {its} {of} permuted {order} in each group of eight, but not the scales"
        reason = ": a packer or reader forgot AWQ's interleave" * (s.layout.format_name == "awq")
    else:
        swapped = order == "swapped in pairs" and _share_bytes(s.layout, axis)
        kind = "nibbles_swapped" if swapped else "codes_permuted"
        words = "{has} the {which} of {its} {axis} {order}, but not the scales"
        reason = ": the two codes of each byte are swapped" * swapped
    return s.explained(kind, f"{words}{reason}; in the right order", fit, 1, **facts)


# the codes of each row, which words and blocks hold, or of each column
codes_in_words, rows_of_words = partial(_swapped, axis=1), partial(_swapped, axis=0)


def _share_bytes(layout: Layout, axis: int) -> bool:
    """Tell whether the codes of two neighbors along an axis fill a byte."""
    if layout.element.bits != 4 or layout.format_name == "awq":
        return False
    packed = getattr(layout.fields[CODES], "axis", -1)  # along columns, if a format does not say
    return bool(packed % len(layout.shape) == axis)


def _runs(n: int) -> Iterator[tuple[str, Tensor]]:
    """Yield orders within words, bytes and halves, and the place that belongs at each of ``n`` places."""
    at = torch.arange(n)
    if n % 2 == 0:
        yield "swapped in pairs", at ^ 1
        yield "with the two halves swapped", at.roll(n // 2)
    for size in (2, 4, 8, 16, 32):
        if n % (2 * size) == 0 and n != 2 * size:
            yield f"with runs of {size} swapped", at ^ size
        if size != 2 and n % size == 0:
            yield f"reversed in runs of {size}", at ^ (size - 1)
    for size in dict.fromkeys((n, 32, 64, 256)):
        if n % size == 0 and size % 2 == 0 and size != 2:
            even_first = torch.cat((torch.arange(0, size, 2), torch.arange(1, size, 2)))
            where = "" if size == n else f" in runs of {size}"
            yield f"with even and odd ones separated{where}", in_blocks(n, even_first.argsort())
            yield f"with the two halves interleaved{where}", in_blocks(n, even_first)
    if n % 8 == 0:
        for name, order in EIGHTS.items():
            yield name, in_blocks(n, order)


def rows_in_another_order(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if rows are permuted, with their scales or without."""
    if len(s.layout.shape) == 1:
        yield from _vector(s)
        return
    places = _matches(s.y, s.x)
    if places is None:
        return
    heads, order = order_of(places, s.heads)
    kind, facts = "rows_permuted", {**_moved(places), "order": order}
    words = "{has} {moved} of {its} {of:row} in the place of other rows ({order})"
    if order in EIGHTS:
        kind = "awq_order"
        words = (
            "{has} {its} output channels permuted {order} in each group of eight: "
            "AWQ's interleave was not undone"
        )
    elif heads:
        facts["heads"] = heads
        how = {PAIRS: "the two halves interleaved", HALVES: "the even rows before the odd ones"}[order]
        words = (
            f"{{has}} the rows of each of {{its}} {{heads}} heads in a different order than the original "
            f"({how})"
        )
    fit = s.fit(s.y[places], s.step[places] if not s.layout.is_plain else None)
    yield s.explained(kind, f"{words}; in the right order", fit, 2, **facts)
    if s.grid is None:
        return
    # AWQ's order of codes alone is told by `rows_of_words`, which is simpler
    facts = {**_moved(places), "order": order}
    words = (
        "{has} the codes of {moved} of {its} {of:row} in the place of those of other rows ({order}), "
        "but not the scales"
    )
    with_zeros = s.scales * (s.values[places] + s.offset[places])
    for predicted in (with_zeros, s.scales * s.values[places] + s.shift):
        yield s.explained("codes_permuted", f"{words}; in the right order", s.fit(predicted), 2, **facts)


def _moved(places: Tensor) -> dict[str, Any]:
    """Return how many rows or columns are elsewhere, as facts."""
    return {"moved": int((places != torch.arange(len(places))).sum()), "of": len(places)}


def order_of(places: Tensor, likely: int = 0, line: str = "row") -> tuple[int, str]:
    """Return (heads, order) of a permutation if it permutes the rows of heads, else 0 and a description.

    Args:
        likely: the number of heads that is tried first.
        line: what is permuted, "row" or "column".
    """
    n = len(places)
    at = torch.arange(n)
    order = _of_heads(places, likely) if likely else ""
    if order:
        return likely, order
    for name, inside in EIGHTS.items():
        if n % 8 == 0 and torch.equal(places, in_blocks(n, inside)):
            return 0, name
    for heads in range(1, n):
        order = _of_heads(places, heads)
        if order:
            return heads, order
    if torch.equal(places, at.flip(0)):
        return 0, "reversed"
    shift = int(places[0])
    if torch.equal(places, (at + shift) % n):
        return 0, f"shifted by −{n - shift}" if shift > n // 2 else f"shifted by {shift}"
    away = (places != at).nonzero().reshape(-1)
    if len(away) == 2:
        return 0, f"{line} {int(away[0])} and {line} {int(away[1])} exchanged"
    for size in (2, 4, 8, 16, 32):
        if n % size == 0 and torch.equal(places, at ^ (size - 1)):
            return 0, f"reversed in runs of {size}"
    return 0, f"{line} {int(away[0])} is {line} {int(places.argsort()[away[0]])} of the original"


def _of_heads(places: Tensor, heads: int) -> str:
    """Return the order of rows within heads that a permutation is; empty if it is none."""
    n = len(places)
    found = Orders((n,), heads).of_heads
    return next((order.name for order in found if torch.equal(places, in_blocks(n, order.inside))), "")


def _vector(s: Suspect) -> Iterator[Cause]:
    x, y = s.x.reshape(-1), s.y.reshape(-1)
    by_x, by_y = x.argsort(stable=True), y.argsort(stable=True)
    places = torch.empty_like(by_x)
    places[by_x] = by_y
    fit = s.fit(y[places][None])
    heads, order = order_of(places, s.heads)
    words = (
        "{has} the values of the original in another order: {moved} of {its} {of:value} {is} elsewhere; "
        "in the right order"
    )
    found = s.explained("rows_permuted", words, fit, 2, moved=int((x != y).sum()), of=len(x), order=order)
    yield replace(found, legitimate=bool(heads) and s.gguf_differs and heads == s.heads)


def _matches(y: Tensor, x: Tensor) -> Tensor | None:
    """Return for each row of x the most similar row of y; None if that is no permutation, or changes none."""
    n = len(x)
    if not 2 <= n <= _MATCHED or x.shape[1] < 4:
        return None
    columns = evenly(x.shape[1], _SIGNATURE)
    a, b = (torch.nn.functional.normalize(t[:, columns], dim=1) for t in (x, y))
    best, alike = [], []
    for some in torch.split(a, _AT_ONCE):
        near = (some @ b.T).max(1)
        best.append(near.indices)
        alike.append(near.values)
    places = torch.cat(best)
    sure = torch.cat(alike)
    taken = torch.bincount(places, minlength=n)
    if bool((taken != 1).any()):  # rows that are alike, such as empty ones: only the others are matched
        good = (taken[places] == 1) & (sure > 0.7)
        free, at = torch.ones(n, dtype=torch.bool), torch.arange(n)
        free[places[good]] = False
        if int((~good).sum()) > 0.5 * n:
            return None
        stay = ~good & free
        places = torch.where(stay, at, places)
        places[~good & ~stay] = at[free & ~stay]
    if torch.equal(places, torch.arange(n)) or float(sure.median()) < _ALIKE:
        return None
    return places


def evenly(n: int, most: int) -> Tensor:
    """Return at most ``most`` of ``n`` indices, evenly spread from the first to the last."""
    return torch.linspace(0, n - 1, min(most, n)).long()


def columns_in_another_order(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if columns are permuted, with their scales or without."""
    if len(s.layout.shape) == 1:
        return
    places = _matches(s.y.T, s.x.T)
    if places is None:
        return
    facts = {**_moved(places), "order": order_of(places, line="column")[1]}
    words = "{has} {moved} of {its} {of:column} in the place of other columns; in the right order"
    fit = s.fit(s.y[:, places], None if s.layout.is_plain else s.step[:, places])
    yield s.explained("columns_permuted", words, fit, 2, **facts)
    if s.grid is not None:
        words = (
            "{has} the codes of {moved} of {its} {of:column} in the place of those of other columns, "
            "but not the scales"
        )
        fit = s.fit(s.scales * (s.values[:, places] + s.offset[:, places]))
        yield s.explained("codes_permuted", f"{words}; in the right order", fit, 2, **facts)


def _by_group(s: Suspect) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Return scale, zero point and min by row and group, and the group of each column now.

    None if groups are not of columns, or there are too many of them.
    """
    layout = s.layout
    if s.grid is None or len(layout.shape) != 2 or layout.blocks.blocked_shape != layout.shape:
        return None
    groups, index = layout.blocks.grid[-1], layout.group_index()
    if layout.blocks.block[0] != 1 or groups > _MOST_GROUPS or (index is not None and index.dim() > 1):
        return None  # HQQ's groups of axis 0 are not of columns
    parameters = layout.parameters(s.rows)
    scale = parameters.scale
    if scale is None or scale.numel() == 1:
        return None
    own, zero, added = (
        (torch.zeros(()) if p is None else p).expand_as(scale).float()
        for p in (s.grid.steps(s.rows), parameters.zero_point, parameters.min)
    )
    now = torch.arange(s.x.shape[1]) // layout.blocks.block[-1] if index is None else index.long()
    return own, zero, added, now


def groups_in_another_order(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if each group has the parameters, or only the scales, of another group."""
    known = _by_group(s)
    if known is None or known[0].shape[-1] < 2:
        return
    scale, zero, added, now = known
    groups, rows = scale.shape[-1], evenly(len(s.x), _FITTED)
    codes, x = s.values[rows], s.x[rows]
    has_others = any(p.shape[-1] > 1 and bool((p != p[..., :1]).any()) for p in (zero, added))
    for alone in (False, True) if has_others else (False,):
        errors = torch.zeros(groups, groups)
        for group in range(groups):
            z, m = ((p[rows][:, now] if alone else p[rows, group : group + 1]) for p in (zero, added))
            left = (x - ((codes - z) * scale[rows, group : group + 1] + m)).square_().sum(0)
            errors[:, group] = torch.zeros(groups).index_add_(0, now, left)
        best = errors.argmin(1)
        moved = int((best != torch.arange(groups)).sum())
        if not moved or not torch.equal(best.sort().values, torch.arange(groups)):
            continue
        what = "scales and zero points" if has_others and not alone else "scales"
        words = (
            "{has} the {what} of {moved} of {its} {of:group} in the place of those of other groups ({order})"
        )
        if s.layout.group_index() is not None:
            words = "{has} a g_idx that names other groups for {moved} of {its} {of:group} ({order})"
        facts = {"moved": moved, "of": groups, "order": order_of(best, line="group")[1], "what": what}
        fit = _with_groups(s, known, best[now], now if alone else best[now])
        yield s.explained("groups_permuted", f"{words}; in the right order", fit, 1, **facts)
    if s.layout.group_index() is not None:
        words = "{has} a g_idx in reverse order: the first column has the group of the last one, and so on"
        fit = _with_groups(s, known, now.flip(0), now.flip(0))
        yield s.explained("g_idx_reversed", f"{words}; in the right order", fit, 1)


def _with_groups(s: Suspect, known: tuple[Tensor, ...], at: Tensor, added_at: Tensor) -> Residual:
    """Return the fit with the scales of these groups for each column, and the other parameters of those."""
    assert s.grid is not None
    scale, zero, added, _ = known
    predicted = (s.values - zero[:, added_at]) * scale[:, at] + added[:, added_at]
    return s.fit(predicted, scale[:, at].abs() * s.grid.gaps[s.codes])


def groups_of_columns(s: Suspect) -> Iterator[Cause]:
    """Yield what is left if columns belong to other groups than g_idx, or their order, says."""
    known = _by_group(s)
    if known is None:
        return
    scale, zero, added, now = known
    layout, rows = s.layout, evenly(len(s.x), _FITTED)
    groups, size = layout.blocks.grid[-1], layout.blocks.block[-1]
    codes, x = s.values[rows], s.x[rows]
    best, least = torch.zeros(x.shape[1], dtype=torch.long), torch.full((x.shape[1],), torch.inf)
    for group in range(groups):
        own, z, m = (p[rows, group : group + 1] for p in (scale, zero, added))
        error = (x - ((codes - z) * own + m)).square_().sum(0)
        nearer = (error < least) | ((error == least) & (now == group))  # groups may have equal scales
        best[nearer], least[nearer] = group, error[nearer]
    moved = int((best != now).sum())
    counts = torch.bincount(best, minlength=groups)
    if not moved or int(counts.max()) > size:
        return

    said = "g_idx" if "g_idx" in layout.fields else "their order"
    words = (
        f"{{has}} {{moved}} of {{its}} {{of:column}} in the wrong groups by {said}, "
        f"the first of them column {{first}}"
    )
    if said == "g_idx" and bool((best[1:] >= best[:-1]).all()):
        words += ": the columns are in the order of their groups"
    facts = {"moved": moved, "of": x.shape[1], "first": int((best != now).nonzero()[0])}
    fit = _with_groups(s, known, best, best)
    yield s.explained("g_idx_wrong", f"{words}; with each column in the group that fits it", fit, 3, **facts)
