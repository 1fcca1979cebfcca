"""The mistakes of codes that are places in a table, or 8-bit floats: their values, and the way back."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from quantcore.formats import CODEBOOKS, FLOATS, FloatFormat
from quantcore.pasted.chain import SCALINGS, SHIFTS, Chain
from quantcore.pasted.intended import is_table
from quantcore.pasted.kinds import CodeFinding
from quantcore.pasted.quantizer import Quantizer, number
from quantcore.pasted.way_back import after_codes, dequantizes, has_quantized_scale
from quantcore.wording import count

_FEWEST, _MOST_ALIKE = 8, 0.7  # values of a table that is compared with known ones; the fraction alike
_DIGITS = 1e-4  # of the largest value: tables are often written with four decimals
_ANEW = 0.25  # of the codes, which a last step of k-means may move to another value
_FEW = 0.01  # of the codes; ties may fall either way
_CLOSE = 2.0**-7  # relative, as close as bfloat16


def check_values(q: Quantizer) -> Iterator[CodeFinding]:
    """Yield what is wrong in the value of each code, and in its way back to x."""
    wrong = list(_looked_up(q))
    yield from (*wrong, *_almost(q))
    scalings = [s for s in q.back if s.op in SCALINGS]
    known = q.levels is not None and scalings and all(map(dequantizes, q.ordinary))
    known = known and not all(map(has_quantized_scale, q.ordinary))
    if wrong or q.multiplied or not known or _all_give(q, lambda c: c.values * c.scale - c.shift):
        return
    line = scalings[-1].line
    if _all_give(q, lambda c: c.values / c.scale):
        yield q.found("multiplied", line, how="The codes are scaled in the same direction as x was")
    elif q.table is not None and _all_give(q, lambda c: c.codes[-1].numbers.reshape(c.x.shape) * c.scale):
        how = "dequantizing scales the codes themselves, which are places in a table"
        yield q.found("other_values", line, how=how)
    else:
        most = max(map(_off, q.ordinary))
        if not math.isfinite(most):
            return  # the cast has lost them
        off = number(round(most, 3))
        way = "codes.float() * scale" if q.round.is_small_float else "table[codes] * scale"
        way += ", plus what was taken off x before" if bool(q.shift.any()) else ""
        yield q.found("not_undone", line, off=off, way=way, how="they have another scale or offset")


def table_line(q: Quantizer) -> str:
    """Return where the table of a quantizer is made, as text."""
    return f" (line {q.decode.args[0].line})" if q.decode and q.decode.args[0].line else ""


def table_name(table: Tensor) -> str:
    """Return what a table is called, and how many values it has."""
    known = next((name for name, fmt in CODEBOOKS.items() if is_table(table, fmt)), "")
    known = known or next((n for n, f in FLOATS.items() if f.bits <= 6 and _same_values(table, f)), "")
    return f"{count(len(table), 'value')}{', those of ' + known if known else ''}"


def _same_values(table: Tensor, fmt: FloatFormat) -> bool:
    values = fmt.table[fmt.table.isfinite()].double() + 0.0  # without -0
    return bool(torch.equal(torch.unique(table), torch.unique(values)))


def _almost(q: Quantizer) -> Iterator[CodeFinding]:
    """Yield a table that has most values of a known one, but not all."""
    table = q.table
    if table is None or any(is_table(table, fmt) for fmt in CODEBOOKS.values()):
        return
    for name, fmt in CODEBOOKS.items():
        if len(table) == len(fmt.values) > _FEWEST:
            same = (table - fmt.table.double()).abs() <= _DIGITS * fmt.max
            if _MOST_ALIKE * len(table) <= int(same.sum()) < len(table):
                place = int((~same).nonzero()[0])
                got, want = f"{float(table[place]):.6g}", f"{fmt.values[place]:.6g}"
                facts = {"same": str(int(same.sum())), "size": str(len(table)), "name": name}
                facts |= {"place": str(place), "got": got, "want": want}
                yield q.found("table_differs", q.round.line, False, **facts)
                return


def _looked_up(q: Quantizer) -> Iterator[CodeFinding]:
    """Check whether codes stand for the value of the table that is nearest to x / scale."""
    if q.decode is None or q.table is None:
        return
    pairs = [_distances(c) for c in q.ordinary]
    off, lost = (torch.cat([pair[i] for pair in pairs]) for i in (0, 1))
    share = float(lost.double().mean())
    if share <= _FEW:
        return
    how = "a code often stands for another value than the nearest one"
    for some, direction in (((off <= 0), "down"), ((off >= 0), "up")):
        if bool(some[lost].all()):
            how = f"x / scale is rounded {direction} to a value of the table"
    facts = {"how": how, "lost": f"{share:.0%}"}
    if q.round.learned and q.round.levels is not None and share < _ANEW:
        yield q.found("other_values", q.decode.line, False, how="the table changes once more after that")
        return
    chosen = q.round.levels
    if chosen is None:
        yield q.found("not_nearest", q.round.line, **facts)
        return
    shifts = [s for s in q.codes if s.op in SHIFTS and s.index > q.round.index]
    how = "they are chosen from one table, but looked up in another"
    if shifts:
        how = f"they are shifted by {number(float(shifts[-1].added.flatten()[0]))} before they are looked up"
    yield q.found("other_values", q.decode.line, how=how)


def _distances(chain: Chain) -> tuple[Tensor, Tensor]:
    """Return by how much each code's value exceeds x / scale, and whether another value is nearer."""
    assert chain.round.flow is not None
    assert chain.table is not None
    given, values = chain.round.flow.numbers.flatten(), chain.values.flatten()
    table = torch.unique(chain.table)
    above = torch.searchsorted(table, given.contiguous()).clamp(max=len(table) - 1)
    least = torch.minimum((table[above] - given).abs(), (table[(above - 1).clamp(min=0)] - given).abs())
    off = values - given
    return off, off.abs() > least + 1e-6 * table.abs().max()


def _all_give(q: Quantizer, way: Callable[[Chain], Tensor]) -> bool:
    """Tell whether a step after the codes has certain values on all ordinary tensors."""
    return all(_gives(chain, way(chain)) for chain in q.ordinary)


def _gives(chain: Chain, right: Tensor) -> bool:
    room = _CLOSE * right.abs() + 1e-6 * right.abs().max()
    return any(
        bool(((val.numbers.reshape(right.shape) - right).abs() <= room).all())
        for val in after_codes(chain)
        if val.numbers.numel() == right.numel()
    )


def _off(chain: Chain) -> float:
    """Return by how many steps of the scale the dequantized values are off at most."""
    assert chain.end is not None
    end = chain.end.numbers.reshape(chain.x.shape)
    return float(((end - chain.values * chain.scale + chain.shift) / chain.scale).abs().max())
