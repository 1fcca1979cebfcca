"""Why a code is not the one that a scheme gives, found in the arithmetic of its element."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from quantcore.formats import IntFormat
from quantcore.match.damage import NONE, Damage, unrounded
from quantcore.match.record import Cell
from quantcore.match.whole import lay
from quantcore.qparams import choose_qparams
from quantcore.scheme import Scheme

MOST_CELLS = 20  # named one by one
MOST_EXPLAINED = 1_000  # counted by kind
# What a value may be beside a tie for another order of operations to have met it: 2 roundings each way
_ULPS = 4


@dataclass(frozen=True)
class Element:
    """The numbers of one element. ``before``: what the kernel rounds; ``added`` afterwards."""

    x: float
    s: float
    z: float
    before: float
    added: float
    inverse: bool
    shift_first: bool
    expected: int
    got: int
    format: IntFormat
    rounding: str

    @property
    def named(self) -> str:
        """What is rounded, as a formula."""
        quotient = "x · (1/s)" if self.inverse else "x / s"
        return f"{quotient} + z" if self.shift_first and self.z else quotient


def explain(
    x: Tensor, codes: Tensor, expected: Tensor, scheme: Scheme, damage: Damage = NONE
) -> tuple[tuple[Cell, ...], tuple[tuple[str, int], ...]]:
    """Return the first cells that differ with their reasons, and how many there are of each kind of reason.

    ``codes`` and ``expected`` on the axes of x. Of more than 1,000 cells only the first are counted.
    """
    places = (codes != expected).reshape(-1).nonzero().reshape(-1)[:MOST_EXPLAINED]
    laid = lay(x, scheme, choose_qparams(x, scheme), damage).at(places)
    before, added = unrounded(laid.kernel, laid.x, laid.s, laid.z)
    kernel, count, fmt = laid.kernel, len(places), scheme.format
    assert isinstance(fmt, IntFormat)
    how = scheme.convention.rounding.replace("_", " ").replace("half even", "half to even")
    columns = [laid.x, laid.s, laid.z, before, added, *(c.reshape(-1)[places] for c in (expected, codes))]
    rows = zip(*(c.expand(count).tolist() for c in columns), strict=True)
    cells: list[Cell] = []
    kinds: Counter[str] = Counter()
    for place, (xi, s, z, b, a, e, g) in zip(places.tolist(), rows, strict=True):
        element = Element(xi, s, z, b, a, kernel.inverse, kernel.shift_first, int(e), int(g), fmt, how)
        kind, words = reason(element)
        kinds[kind] += 1
        if len(cells) < MOST_CELLS:
            index = tuple(int(i) for i in np.unravel_index(place, x.shape))
            cells.append(Cell(index, int(e), int(g), words))
    return tuple(cells), tuple(kinds.most_common())


def reason(e: Element) -> tuple[str, str]:
    """Return the kind of reason and a sentence without its full stop."""
    fmt, apart = e.format, e.got - e.expected
    shifted = round(e.before) + e.added if np.isfinite(e.before) else np.nan
    value = f"{e.named} = {_short(e.before)}"
    if not np.isfinite(e.before):
        return "not a number", f"{value}, which has no code"
    if not fmt.qmin <= shifted <= fmt.qmax and e.got == _wrapped(int(shifted), fmt):
        return "wrapped", f"{value} gives {_whole(shifted)}, whose lowest {fmt.bits} bits are {e.got}"
    if e.expected == fmt.qmin and apart == 1 and shifted <= fmt.qmin:
        return (
            "narrow range",
            f"{value} gives {_whole(shifted)}, clamped to {e.got}: the lowest code is left out",
        )
    if abs(apart) == 1 << fmt.bits:
        read = "signed codes read as unsigned" if apart > 0 else "unsigned codes read as signed"
        return read, f"{e.got} and {e.expected} have the same lowest {fmt.bits} bits"
    if not fmt.qmin <= e.got <= fmt.qmax:
        return (
            "outside the format",
            f"{value}; {e.got} is no code of {fmt}, which has {fmt.qmin} .. {fmt.qmax}",
        )
    return _rounded(e, value) or _parameters(e, value)


def _wrapped(value: int, fmt: IntFormat) -> int:
    """The number that the lowest bits of ``value`` stand for."""
    lowest = -(1 << (fmt.bits - 1)) if fmt.signed else 0
    return ((value - lowest) & ((1 << fmt.bits) - 1)) + lowest


def _rounded(e: Element, value: str) -> tuple[str, str] | None:
    """The reason where the code is a neighbour of what is rounded."""
    own = e.got - e.added
    if abs(e.got - e.expected) != 1 or abs(own - e.before) >= 1 + 1e-6:
        return None
    nearest_tie = np.floor(e.before) + 0.5
    ulp = float(np.spacing(np.float32(max(abs(e.before), abs(e.before - e.z), 1e-30))))
    beside = abs(e.before - nearest_tie) / ulp
    if beside == 0:
        return "tie", f"tie: {value} exactly; {e.rounding} gives {e.expected}, the other side is {e.got}"
    if beside <= _ULPS:
        return (
            "tie",
            f"beside a tie: {value}, {beside:.0f} ulp from {nearest_tie:.15g}; another order of operations",
        )
    way = "down" if own < e.before else "up"
    if abs(own) < abs(e.before):
        way += ", towards zero"
    return "off by one", f"{value} is nearest to {_whole(e.expected - e.added)}, and was rounded {way}"


def _parameters(e: Element, value: str) -> tuple[str, str]:
    """The reason where scale or zero_point must have been others."""
    quotient = e.before - e.z if e.shift_first else e.before
    other_sign = round(quotient) - e.z
    if e.z and e.got == min(max(other_sign, e.format.qmin), e.format.qmax):
        return (
            "zero_point with the other sign",
            f"{value}, and {_whole(round(quotient))} - {e.z:g} gives {e.got}",
        )
    if e.z and e.got == round(quotient):
        return "zero_point left out", f"{value} without z = {e.z:g} gives {e.got}"
    steps = e.got - e.z
    scale = abs(1 / e.s) if e.inverse else abs(e.s)
    if e.x * steps <= 0:
        return (
            "another scale or zero_point",
            f"{value}: no scale makes x = {_short(e.x)} {e.got} with z = {e.z:g}",
        )
    low, high = (abs(e.x) / (abs(steps) + half) for half in (0.5, -0.5))
    if e.got in (e.format.qmin, e.format.qmax):
        return (
            "another scale",
            f"{value}; {e.got} needs a scale of at most {_short(high)}, not {_short(scale)}",
        )
    return (
        "another scale",
        f"{value}; {e.got} needs a scale of {_short(low)} to {_short(high)}, not {_short(scale)}",
    )


def _short(value: float) -> str:
    return f"{value:.7g}"


def _whole(value: float) -> str:
    return f"{value:.0f}"
