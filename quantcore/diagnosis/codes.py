"""Codes that are not what was meant: wrapped, clipped by a zero point, lost below 0, or computed from NaN."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.conventions import CONVENTIONS, TEXTBOOK, Convention
from quantcore.diagnosis.context import Case
from quantcore.diagnosis.formatting import count, index, number, percent
from quantcore.diagnosis.record import MAX_BOXES, Box, Finding, Gain, cell
from quantcore.formats import IntFormat
from quantcore.granularity import Region, cells_of
from quantcore.qparams import ends
from quantcore.quantization import unclamped
from quantcore.range_setting import MIN_MAX, Given
from quantcore.scheme import Scheme

BETTER_DB = 1.0  # a fix of a wrong result gains at least this much


def outside(case: Case) -> list[tuple[tuple[int, ...], float]]:
    """The first elements whose code did not fit the format: index in x, and the code before it was fitted.

    The worst element of the tensor stands first, if it is one of them.
    """
    least, most = ends(case.scheme.format)
    found: list[tuple[tuple[int, ...], float]] = []
    for region, work in unclamped(case.result.x, case.result.params, case.scheme):
        values = work.reshape(-1)
        for i in ((values < least) | (values > most)).nonzero()[: MAX_BOXES - len(found), 0].tolist():
            found.append((_place(case, region, i), float(values[i])))
        if len(found) >= MAX_BOXES:
            break
    worst = case.report.max_abs_error_index
    return sorted(found, key=lambda pair: pair[0] != worst)


def _place(case: Case, region: Region, flat: int) -> tuple[int, ...]:
    """The index in x of an element of a box of the laid shape."""
    inside = np.unravel_index(flat, [e.stop - e.start for e in region.elements]) if region.elements else ()
    laid = [int(i) + e.start for i, e in zip(inside, region.elements, strict=True)]
    return case.element(int(np.ravel_multi_index(laid, case.result.blocked_shape))) if laid else ()


def wrapped(case: Case) -> Iterator[Finding]:
    """Codes that overflowed and wrapped: which elements, from what to what."""
    if case.scheme.convention.coding.overflow != "wrap" or not case.report.clipped:
        return
    cells = outside(case)
    at, before = cells[0]
    fmt, after = case.fmt, int(case.result.codes[at])
    saturate = case.scheme.convention.changed(overflow="saturate")
    other = IntFormat(fmt.bits, not fmt.signed, fmt.narrow)
    fixes = [case.but(convention=saturate), case.but(convention=saturate, format=other)]
    fixes += [case.but(convention=saturate, range_setting=MIN_MAX)]
    n = case.report.clipped
    yield Finding(
        "wrapped",
        "error",
        f"{count(n, 'code')} {'does' if n == 1 else 'do'} not fit {fmt} ({fmt.qmin}..{fmt.qmax}) and wrapped around "
        f"silently: at {index(at)}, {before:.0f} became {after}.",
        tuple(cell(place) for place, _ in cells),
        **case.gained(case.best(fixes, BETTER_DB)),
    )


def zero_point_outside(case: Case) -> Iterator[Finding]:
    """A zero point, given manually, that is not a code of the format."""
    fmt, zero_point = case.fmt, case.zero_point
    if zero_point.is_floating_point() or not isinstance(case.scheme.range_setting, Given):
        return
    bad = (zero_point < fmt.qmin) | (zero_point > fmt.qmax)
    if not bad.any():
        return
    z, nearest = int(zero_point[bad][0]), case.fmt.qmin if int(zero_point[bad][0]) < fmt.qmin else fmt.qmax
    other = IntFormat(fmt.bits, not fmt.signed, fmt.narrow)
    fixes = [case.but(format=other), case.but(range_setting=MIN_MAX, symmetric=False)]
    yield Finding(
        "zero_point_outside",
        "error",
        f"The zero point {z} is not {_a(fmt)} code ({fmt.qmin}..{fmt.qmax}): it can't be stored, and the code nearest to "
        f"it, {nearest}, means {number((nearest - z) * _at_first(case.result.scale, bad))}.",
        _boxes(case, bad),
        **case.gained(case.best(fixes, BETTER_DB)),
    )


def zero_point_clamped(case: Case) -> Iterator[Finding]:
    """A range without 0, whose zero point was clamped into the format: the codes cover another range."""
    fmt, params = case.fmt, case.result.params
    if (
        params.low is None
        or params.high is None
        or case.scheme.symmetric
        or params.zero_point.is_floating_point()
    ):
        return
    wanted = fmt.qmin - params.low.double() / params.scale.double()
    clamped = (wanted - params.zero_point).abs() > 1.5
    if not clamped.any():
        return
    place = tuple(int(i) for i in clamped.nonzero()[0])
    low, high, n = float(params.low[place]), float(params.high[place]), case.report.clipped
    yield Finding(
        "zero_point_clamped",
        "error",
        f"The range {number(low)}..{number(high)} leaves out 0: its zero point would be {float(wanted[place]):.0f}, was "
        f"clamped to {int(params.zero_point[place])}, and {count(n, 'element')} {'is' if n == 1 else 'are'} clipped.",
        _boxes(case, clamped),
        **case.gained(case.best([case.but(symmetric=True), *_textbook(case)], BETTER_DB)),
    )


def _textbook(case: Case) -> list[Scheme]:
    convention = TEXTBOOK.changed(overflow=case.scheme.convention.coding.overflow)
    return [case.but(convention=convention)]


def zero_not_exact(case: Case) -> Iterator[Finding]:
    """0, which padding, ReLU and pruning make often, comes back as something else."""
    at_zero = _of_zero(case.result.scale, case.zero_point, case.fmt)
    typed = isinstance(case.scheme.range_setting, Given) and not case.zero_point.is_floating_point()
    if not bool((at_zero != 0).any()) or typed:  # a zero point that was given is `zero_point_outside`'s
        return
    x_hat = case.result.dequantized.reshape(-1)
    places = ((case.result.x.reshape(-1) == 0) & (x_hat != 0)).nonzero()[:, 0]
    zeros = len(places)
    if not zeros:
        return
    worst = float(x_hat[places].abs().amax())
    yield Finding(
        "zero_not_exact",
        "warning",
        f"{count(zeros, 'element')} ({percent(zeros / case.result.x.numel())}) that {'is' if zeros == 1 else 'are'} exactly 0 "
        f"{'comes' if zeros == 1 else 'come'} back with |x̂| up to {number(worst)}: no code there means 0.",
        tuple(cell(case.element(int(i))) for i in places[:MAX_BOXES]),
        **_exact_at_zero(case, worst),
    )


def _of_zero(scale: Tensor, zero_point: Tensor, fmt: IntFormat) -> Tensor:
    """x̂ of 0, a block."""
    z = zero_point.to(torch.float32)
    return (z.round().clamp(fmt.qmin, fmt.qmax) - z) * scale


def _exact_at_zero(case: Case, before: float) -> dict[str, Any]:
    """The first scheme that brings 0 back exactly and keeps the SQNR within 1 dB."""
    exact = [case.but(convention=c) for c in _with_exact_zero(case)]
    for scheme in exact:
        trial = case.tried(scheme)
        if trial and trial.sqnr_db >= case.report.sqnr_db - 1:
            return {"mended": scheme, "gain": Gain("error at 0", before, 0.0)}
    return {}


def _with_exact_zero(case: Case) -> list[Convention]:
    name = f"{case.scheme.convention.name}.round_zero"
    return [*([CONVENTIONS[name]] if name in CONVENTIONS else []), TEXTBOOK]


def negatives_lost(case: Case) -> Iterator[Finding]:
    """Unsigned codes with the zero point at their end: everything below 0 becomes 0."""
    fmt, zero_point = case.fmt, case.zero_point
    chosen = case.scheme.symmetric or isinstance(case.scheme.range_setting, Given)
    if fmt.signed or not chosen or case.scheme.convention.coding.overflow == "wrap":
        return
    low = case.extremes[0]
    lost = (zero_point == fmt.qmin) & (low < -0.5 * case.result.scale)
    if not lost.any():
        return
    cells = [at for at, value in outside(case) if value < fmt.qmin]
    n = int(((case.laid < 0) & cells_of(lost, case.result.blocked_shape, case.result.block)).sum())
    other = IntFormat(fmt.bits, True, fmt.narrow)
    fixes = [case.but(format=other), case.but(symmetric=False, range_setting=MIN_MAX)]
    fixes += [case.but(format=other, range_setting=MIN_MAX)]
    yield Finding(
        "negatives_lost",
        "error",
        f"{count(n, 'element')} {'is' if n == 1 else 'are'} negative, down to {number(float(low[lost].amin()))}, but {fmt} "
        f"with zero point {int(zero_point[lost][0])} has no code for values below 0: {'it becomes' if n == 1 else 'all become'} 0.",
        tuple(cell(at) for at in cells),
        **case.gained(case.best(fixes, BETTER_DB)),
    )


def nan(case: Case) -> Iterator[Finding]:
    """NaN and infinity: in x, where a library accepts them, or for numbers that the format can't represent."""
    notes = [note for note in case.result.warnings if "NaN" in note]
    if case.finite and not notes and math.isfinite(case.report.sse):
        return
    x, x_hat = case.result.x.reshape(-1), case.result.dequantized.reshape(-1)
    odd = (~x.isfinite()).nonzero()[:, 0]
    if not len(odd):
        odd = (~x_hat.isfinite()).nonzero()[:, 0]
    at = f", the first at {index(case.element(int(odd[0])))}" if len(odd) else ""
    what = f"{count(len(odd), 'element')} of x {'is' if len(odd) == 1 else 'are'} NaN or infinite{at}. "
    if case.finite and not notes:
        if not len(odd):  # the sums alone are beyond float64
            return
        first = int(odd[0])
        what = (
            f"{count(len(odd), 'element')} {'comes' if len(odd) == 1 else 'come'} back as NaN or infinite{at}, where x is "
            f"{number(float(x[first]))}: {case.scheme.format} can't represent it with this scale."
        )
        yield Finding("nan", "error", what, tuple(cell(case.element(int(i))) for i in odd[:MAX_BOXES]))
        return
    yield Finding(
        "nan",
        "error",
        (what if not case.finite else "")
        + (notes[0] if notes else "Replace them: most metrics are not defined."),
        tuple(cell(case.element(int(i))) for i in odd[:MAX_BOXES]),
    )


def _boxes(case: Case, blocks: Tensor) -> tuple[Box, ...]:
    """The marked blocks; none where it is the whole tensor."""
    if blocks.numel() == 1:
        return ()
    return tuple(case.block_box(place) for place in blocks.nonzero()[:MAX_BOXES].tolist())


def _a(fmt: IntFormat) -> str:
    """``an int8``, ``a uint8``."""
    return f"{'an' if fmt.signed else 'a'} {fmt}"


def _at_first(values: Tensor, mask: Tensor) -> float:
    return float(values[mask][0])
