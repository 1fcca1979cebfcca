"""Why a code differs from the one that a scheme gives, as far as the arithmetic of its element proves it.

One element never proves which scale or zero_point gave its code; the reason then says which ones would.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quantcore.conventions import KERNELS, TEXTBOOK, Kernel
from quantcore.expressions import without, written
from quantcore.formats import IntFormat
from quantcore.matching.hypotheses.corruption import (
    NONE,
    Corruption,
    element_inputs,
)
from quantcore.matching.record import DifferingCode
from quantcore.programs import code_program
from quantcore.qparams import choose_qparams, wrap
from quantcore.scheme import Scheme

MOST_CELLS = 20  # listed one by one
MOST_EXPLAINED = 1_000  # counted by kind
# Distance from a tie, in ulp, within which another order of operations is tried: two roundings each way
_ULPS = 4
_FORMULAS = ("A", "B", "C", "D")
_RULES = {
    "half_even": "half to even",
    "half_away": "half away from zero",
    "half_up": "half up",
    "toward_zero": "rounding toward zero",
    "floor": "rounding down",
    "ceil": "rounding up",
}
Bounds = tuple[float, float]


@dataclass(frozen=True)
class DifferingElement:
    """The numbers of one element, including the mistakes of the corruption.

    ``value``: what is rounded by ``rule``; ``unclamped``: the code before the clamp; ``added``: z if it is
    added after rounding; ``lowest_used``: whether any given code is the format's lowest; ``beyond``: whether
    codes outside the format are clamped, wrapped or kept; ``in_float32``: whether operations are rounded
    to float32.
    """

    x: float
    scale: float
    z: float
    value: float
    unclamped: float
    added: float
    expected: int
    got: int
    kernel: Kernel
    rule: str
    format: IntFormat
    lowest_used: bool = True
    beyond: str = "clamped"
    in_float32: bool = True

    @property
    def named(self) -> str:
        """What is rounded, as a formula."""
        kernel = KERNELS["D"] if self.kernel.fused else self.kernel
        return written(without(kernel.unrounded, "½", *(() if self.z or kernel.subtracts else "z")))

    @property
    def own(self) -> float:
        """The rounded number that would give the code."""
        return self.got - self.added


def elements(
    x: Tensor, codes: Tensor, expected: Tensor, scheme: Scheme, corruption: Corruption, places: Tensor
) -> list[DifferingElement]:
    """Return the elements at flat indices of x."""
    inputs = element_inputs(x, scheme, choose_qparams(x, scheme), corruption).at(places)
    kernel, fmt, kinds = inputs.kernel, scheme.format, corruption.computed
    assert isinstance(fmt, IntFormat)
    convention = scheme.in_dtype(x.dtype).rules
    x, scale, z, value, unclamped = (inputs.of(name) for name in ("x", "s", "z", "u", "v"))
    added = torch.zeros(()) if kernel.shift_first else z
    given = (c.reshape(-1)[places] for c in (expected, codes))
    columns = [x, scale, z, value, unclamped, added, *given]
    in_float32 = convention.coding.coding_dtype == "float32"
    rows = zip(*(c.expand(len(places)).tolist() for c in columns), strict=True)
    wraps = convention.coding.overflow == "wrap" or "wrapped" in kinds
    lowest_used = bool((codes == fmt.qmin).any())
    beyond = "kept" if "unclamped" in kinds else "wrapped" if wraps else "clamped"
    return [
        DifferingElement(xi, s, zi, v - kernel.half / 2, w, a, int(e), int(g), kernel,
                         convention.coding.rounding, fmt, lowest_used, beyond, in_float32)
        for xi, s, zi, v, w, a, e, g in rows
    ]  # fmt: skip


def explain(
    x: Tensor, codes: Tensor, expected: Tensor, scheme: Scheme, corruption: Corruption = NONE
) -> tuple[tuple[DifferingCode, ...], tuple[tuple[str, int], ...]]:
    """Return the first cells that differ with their reasons, and the number of cells per kind of reason.

    ``codes`` and ``expected`` on the axes of x. At most the first 1,000 cells are counted.
    """
    places = (codes != expected).reshape(-1).nonzero().reshape(-1)[:MOST_EXPLAINED]
    cells: list[DifferingCode] = []
    kinds: Counter[str] = Counter()
    for place, element in zip(
        places.tolist(), elements(x, codes, expected, scheme, corruption, places), strict=True
    ):
        kind, words = reason(element)
        kinds[kind] += 1
        if len(cells) < MOST_CELLS:
            index = tuple(int(i) for i in np.unravel_index(place, x.shape))
            cells.append(DifferingCode(index, element.expected, element.got, words))
    return tuple(cells), tuple(kinds.most_common())


def reason(e: DifferingElement) -> tuple[str, str]:
    """Return the kind of reason and a sentence without its full stop."""
    fmt, value = e.format, f"{e.named} = {_short(e.value)}"
    if not np.isfinite(e.value):
        return "not finite", f"{value}, which can't be rounded to an integer"
    gives = f"{value} gives {_integer(e.unclamped)}" + (f" with z = {e.z:g}" if e.added else "")
    if not fmt.qmin <= e.unclamped <= fmt.qmax and e.got == _low_bits(e):
        return "wrapped", f"{gives}, whose lowest {fmt.bits} bits are {e.got}"
    if e.unclamped <= fmt.qmin and e.got == fmt.qmin + 1 and not e.lowest_used:
        return "narrow range", f"{gives}; none of the given codes is {fmt.qmin}, the lowest code of {fmt}"
    if not fmt.qmin <= e.got <= fmt.qmax:
        if e.got - e.expected == (1 if fmt.signed else -1) << fmt.bits:
            read = "the same bits read as " + ("unsigned" if fmt.signed else "signed")
            return read, f"{e.got} and {e.expected} have the same lowest {fmt.bits} bits"
        name = f"an {fmt}" if fmt.signed else f"a {fmt}"
        return (
            "outside the format",
            f"{value}; {e.got} is not {name} code ({fmt.qmin} to {fmt.qmax})",
        )
    return _rounded(e, value) or _parameters(e, value)


def _low_bits(e: DifferingElement) -> int:
    return int(wrap(torch.tensor(e.unclamped, dtype=torch.float64), e.format))


def _rounded(e: DifferingElement, value: str) -> tuple[str, str] | None:
    """Return the reason, if the code is the value rounded in the other direction."""
    below = math.floor(e.value)
    made = e.unclamped - e.added
    if e.value == below or {e.own, made} != {below, below + 1}:
        return None
    tie = below + 0.5
    rule = "adding ½ and truncating" if e.kernel.half else _RULES.get(e.rule, e.rule)
    if e.value == tie:
        return (
            "tie",
            f"tie: {value} exactly; {rule} gives {_integer(made)}, the other neighbor is {_integer(e.own)}",
        )
    adds_z = e.kernel.shift_first and not e.kernel.subtracts
    shifted = e.value - e.z if adds_z else e.value  # before z is added to it
    ulp = float(np.spacing(np.float32(max(abs(e.value), abs(shifted), 1e-30))))
    distance, where = abs(e.value - tie) / ulp, ""
    if distance <= _ULPS and e.in_float32:
        where = f", {distance:.0f} ulp from {tie:.15g}"
        other = _other_order(e)
        if other:
            return "tie", f"near a tie: {value}{where}; {other} gives {_integer(e.own)}"
    way = "down" if e.own == below else "up"
    if abs(e.own) < abs(e.value):
        way += ", toward zero,"
    return (
        "off by one",
        f"{value}{where}; {rule} gives {_integer(made)}, rounding {way} gives {_integer(e.own)}",
    )


def _other_order(e: DifferingElement) -> str:
    """Return another order of operations that gives the code in float32, as a formula; empty if none does."""
    numbers = {"x": e.x, "s": e.scale, "z": e.z}
    element = {name: torch.tensor([number], dtype=torch.float32) for name, number in numbers.items()}
    for letter in _FORMULAS:
        code = code_program(e.format, TEXTBOOK.changed(kernel=letter)).write("v", element)
        if KERNELS[letter] != e.kernel and float(code) == e.got:
            return KERNELS[letter].formula
    return ""


def _parameters(e: DifferingElement, value: str) -> tuple[str, str]:
    """Say which scale, or else which zero_point, would give the code."""
    shift = 0.0 if e.kernel.subtracts or not e.kernel.shift_first else e.z
    bounds = [bound - shift - e.kernel.half / 2 for bound in _bounds_of(e)]
    scale = _scale_words(e.x - e.z if e.kernel.subtracts else e.x, bounds[0], bounds[1])
    unless = ", unless it wrapped" if e.beyond == "wrapped" else ""
    words = f"{value}; {e.got} needs a scale {scale}, not {_short(abs(e.scale))}" if scale else (
        f"{value}; no scale gives {e.got}" + (f" with z = {e.z:g}" if e.z else "")
    )  # fmt: skip
    kind = "another scale" if scale else "another scale or zero_point"
    needed = e.z + e.got - e.unclamped
    if e.kernel.subtracts or not float(needed).is_integer():
        return kind, words + unless
    most = {e.format.qmin: "of at most ", e.format.qmax: "of at least "}
    bound = most.get(e.got, "of ") if e.beyond == "clamped" else "of "
    return kind, f"{words}, or a zero_point {bound}{_integer(needed)}{unless}"


def _bounds_of(e: DifferingElement) -> Bounds:
    """Return the interval that the rule rounds to the code; unbounded where the format clamps."""
    own = e.own
    low, high = {
        "floor": (own, own + 1),
        "ceil": (own - 1, own),
        "toward_zero": (own - (own <= 0), own + (own >= 0)),
    }.get(e.rule, (own - 0.5, own + 0.5))
    if e.beyond == "clamped" and e.got == e.format.qmin:
        low = -math.inf
    if e.beyond == "clamped" and e.got == e.format.qmax:
        high = math.inf
    return low, high


def _scale_words(x: float, low: float, high: float) -> str:
    """Say which scales put x / s between two bounds: "of a to b", "of at most b"; empty if none do."""
    if x < 0:
        x, low, high = -x, -high, -low
    if high <= 0 or x == 0:
        return ""
    least = 0.0 if math.isinf(high) else x / high
    if low <= 0:
        return f"of at least {_short(least)}" if least else ""
    return f"of {_short(least)} to {_short(x / low)}" if least else f"of at most {_short(x / low)}"


def _short(value: float) -> str:
    return f"{value:.7g}"


def _integer(value: float) -> str:
    return f"{value:.0f}"
