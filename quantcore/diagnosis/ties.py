"""Ties: elements halfway between two codes, which the rounding rule and the order of operations decide."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.conventions import KERNELS, TEXTBOOK, middle_of
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import MAX_BOXES, Finding, cell, index, percent
from quantcore.formats import IntFormat
from quantcore.programs import code_program
from quantcore.quantization import coded_with
from quantcore.wording import count

TIES = 0.01  # at least this fraction of the elements are ties
_HALVES = ("half_even", "half_away", "half_up")  # rules that round to the nearest and differ in ties
_RULES, _ORDERS = "rounding rules", "orders of operations"
# The ties among the sampled elements, how they were rounded, and what would round them differently; nothing
# if too few
_Ties = tuple[Tensor, str, tuple[str, ...]]


@kind(
    FindingExample(
        "Numbers halfway between two codes", "100.5, -81.5, 8.5, 64.5\n-27.5, 40.5, 11, -6", "int8 given(1)"
    ),
    ("scale", "code"),
    severity="note",
)
def ties(context: Context) -> Iterator[Finding]:
    """Find elements halfway between two codes, or two values of a float or a codebook."""
    coding = context.result.computed.rules.coding
    if coding.coding_dtype != "float32":  # a quotient that is rounded to half precision becomes a tie often
        return
    if coding.rounding not in _HALVES and not KERNELS[coding.kernel].half:
        return
    if not context.scheme.format.has_zero_point:
        tie, way, others = _of_table(context)
    elif context.scheme.rules.zero_point.is_integer:
        tie, way, others = _of_integers(context)
    else:
        tie, way, others = _of_shifted(context)
    n = int(tie.sum())
    if not others:
        return
    every = len(tie) == context.x_blocked.numel()
    what = count(n, "element") if every else f"About {percent(n / len(tie))} of the elements"
    cells = [cell(context.element(int(i))) for i in tie.nonzero()[:MAX_BOXES, 0]] if every else []
    one = n == 1 and every
    first = index(tuple(a for a, _ in cells[0])) if cells else ""
    first = f" at {first}" if one else first and f", such as {first},"
    between = "codes" if context.scheme.format.has_zero_point else f"values of {context.scheme.format}"
    yield ties.finding(
        f"{what}{first} {'lies' if one else 'lie'} exactly halfway between two {between} and "
        f"{'is' if one else 'are'} rounded {way}; other {' or '.join(others)} give other codes.",
        tuple(cells),
        facts={"elements": n, "of": len(tie), "way": way, "others": others},
    )


def _few(tie: Tensor) -> bool:
    n = int(tie.sum())
    return not n or n < TIES * len(tie)


def _parameters(context: Context) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sampled elements, and the scale and zero point that their codes are computed with."""
    x, blocks = context.sample
    scale, zero_point = (
        t[blocks].to(torch.float32).expand_as(x) for t in coded_with(context.result.params, context.scheme)
    )  # fmt: skip
    return x, scale, zero_point


def _codes_taken(context: Context) -> Tensor:
    return context.result.codes.reshape(-1)[context.places]


def _of_integers(context: Context) -> _Ties:
    x, scale, zero_point = _parameters(context)
    half = (x / scale).sub_((x / scale).floor()) == 0.5
    below = (x / scale).floor_() + zero_point  # both neighbors must be codes
    tie = half & (below >= context.fmt.qmin) & (below < context.fmt.qmax)
    if _few(tie):
        return tie, "", ()
    codes = _codes_taken(context)[tie].double()
    steps, ratio = codes - zero_point[tie], (x / scale)[tie].double()
    differ = ((_RULES, _rules_differ(steps, ratio)), (_ORDERS, _differing(x, scale, zero_point, context.fmt)))
    others = tuple(name for name, so in differ if so)
    return tie, _way(context.scheme.rules.coding.rounding, codes, steps, ratio), others


def _of_shifted(context: Context) -> _Ties:
    """Find ties of codes with a float zero point or a minimum, which is added before rounding."""
    x, scale, zero_point = _parameters(context)
    rules = context.scheme.rules.zero_point
    if rules.is_value:
        middle = middle_of(context.fmt) if rules.is_middle else 0.0
        exact = (x - (zero_point - scale * middle)) / scale
    else:
        inverse = context.result.params.inverse
        blocks = context.sample[1]
        factor = torch.reciprocal(scale) if inverse is None else inverse[blocks].expand_as(x)
        exact = x * factor + zero_point
    codes = _codes_taken(context).to(torch.float32)
    tie = (exact - exact.floor() == 0.5) & ((codes - exact).abs() == 0.5)
    if _few(tie):
        return tie, "", ()
    taken, exact = codes[tie].double(), exact[tie].double()
    others = (_RULES,) if _rules_differ(taken, exact) else ()
    return tie, _way("even code", taken, taken, exact), others


def _of_table(context: Context) -> _Ties:
    x, scale, _ = _parameters(context)
    fmt, values = context.table_format, context.values.double()
    ratio = (x / scale).double()
    above = torch.searchsorted(values, ratio.nan_to_num()).clamp(1, len(values) - 1)
    low, high = values[above - 1], values[above]
    codes = _codes_taken(context)
    taken = fmt.decode(codes).double()
    tie = (ratio == (low + high) / 2) & ((taken == low) | (taken == high))
    if _few(tie):
        return tie, "", ()
    codes, taken, ratio = codes[tie].to(torch.int64), taken[tie], ratio[tie]
    ways = {
        "to the even code": codes % 2 == 0,
        "down": taken < ratio,
        "up": taken > ratio,
        "away from 0": taken.abs() > ratio.abs(),
        "toward 0": taken.abs() < ratio.abs(),
    }
    return tie, next((words for words, so in ways.items() if bool(so.all())), "up or down"), (_RULES,)


def _way(rule: str, codes: Tensor, steps: Tensor, ratio: Tensor) -> str:
    """Say how ties were rounded: by the rule, or as codes show if the order of operations changed it."""
    side = (steps - ratio).sign()
    ways = {
        "half_even": ("to the even multiple of the scale", steps % 2 == 0),
        "half_away": ("away from 0", side == ratio.sign()),
        "half_up": ("up", side == 1),
        "even code": ("to the even code", codes % 2 == 0),
    }
    for name in (rule, *(way for way in ways if rule in _HALVES), "half_up"):
        words, so = ways.get(name, ways["half_up"])
        if bool(so.all()):
            return words
    return "up or down"


def _rules_differ(steps: Tensor, ratio: Tensor) -> bool:
    """Tell whether another rule for ties gives different codes."""
    away = ratio.sign() * (ratio.abs() + 0.5).floor()
    return any(bool((other != steps).any()) for other in (ratio.round(), away, (ratio + 0.5).floor()))


def _differing(x: Tensor, scale: Tensor, zero_point: Tensor, fmt: IntFormat) -> bool:
    """Tell whether another order of operations gives different codes."""
    programs = (code_program(fmt, TEXTBOOK.changed(kernel=letter)) for letter in "ABCD")
    first, *others = (one.write("q", {"x": x, "s": scale, "z": zero_point}) for one in programs)
    return any(not torch.equal(codes, first) for codes in others)
