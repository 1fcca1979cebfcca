"""Check what findings say: recompute it with numpy from the tensor, the codes and the parameters.

``CHECKS[kind](said, evidence)`` asserts every number and name in a sentence; ``said`` is the match of
`PATTERNS[kind]`.
"""

import dataclasses
import itertools
import math
import re

import numpy as np

import quantcore as qc
from quantcore.notation import write_call

DB = r"(-?[\d.]+ dB|exact|-∞ dB|not defined)"
N = r"(-?[\d.,]+(?:e[+-]\d+)?)"
AT = r"\(([\d, ]*)\)"
ROW_OR_AXIS = r"(row \(axis 0\)|column \(axis 1\)|index of axis \d)"
GAINS = r"(gains [^ ]+ dB SQNR|takes the SQNR from .* to .*?)"
PATTERNS = {
    "nan": rf"{N} elements? (?:of x )?(is|are|becomes?|dequantizes?) (?:(?:to )?NaN or (?:infinite|infinity), first at {AT}|(NaN), which )",
    "wrapped": rf"{N} codes? (?:does|do) not fit (\w+) \((-?\d+)\.\.(\d+)\) and silently wrapped around: {N} became {N} at "
               rf"{AT}\.$",
    "zero_point_outside": rf"The zero point {N} is not (an int|a uint)(\d+) code \((-?\d+)\.\.(\d+)\): it can't be stored, "
                          rf"and the nearest code, {N}, dequantizes to {N}\.$",
    "zero_point_clamped": rf"The range {N}\.\.{N} excludes 0: its zero point would be {N} but is clamped to {N}, so {N} "
                          r"elements? (?:is|are) clipped\.$",
    "negatives_lost": rf"{N} elements? (?:is|are) negative, down to {N}, but uint\d+ with zero point {N} has no code for "
                      r"values below 0: (?:it becomes|all become) 0\.$",
    "zero_not_exact": rf"{N} elements? \({N} %\) (?:is|are) exactly 0 but dequantizes? to \|x̂\| up to {N}: no code "
                      r"represents 0 there\.$",
    "one_sided": rf"x lies between {N} and {N}, but symmetric (\w+) spends {N} of {N} codes on values (below|above) 0\. "
                 rf"An asymmetric range {GAINS}( over a symmetric one)?\.$",
    "either_side": rf"{N} blocks? lies? above 0 and {N} below, but symmetric (\w+) spends {N} of their {N} codes on the other "
                   rf"side\. An asymmetric range {GAINS}( over a symmetric one)?\.$",
    "better_scheme": rf"The SQNR is {DB}\. With (.*) it is {DB}, for (?:the same|{N} % (more|less)) storage\.$",
    "outlier_channel": rf"(Row|Column|Channel)s? ([\d, and]+)( more)?(?: of axis (\d))? \(max \|x\| {N}\) sets? the scale of "
                       rf"the others(?: among (\d+)–(\d+))? \(max \|x\| {N}\)\. SQNR of the others: {DB} with "
                       rf"(?:it|them), {DB} without\.(?: (\d+) runs of channels have outlier channels\.)?$",
    "outlier_element": rf"Outlier {N} at {AT} sets the scale; the next largest \|x\| is {N}\. SQNR of the others: {DB} with it, "
                       rf"{DB} without\.(?: (At least )?(\d+) blocks have such an outlier\.)?$",
    "clipped_too_much": rf"{N} elements? \({N} %\) lies? outside the range and (?:is|are) clipped, which causes {N} % of the "
                        r"squared error\.$",
    "clips_too_little": rf"The range extends to the largest \|x\|, {N}, which makes the step coarse\. A narrower range, (.*), "
                        rf"{GAINS}\.$",
    "codes_unused": rf"Only codes (-?\d+)\.\.(-?\d+) of (-?\d+)\.\.(-?\d+) occur: the range is wider than the data, which "
                    rf"lie between {N} and {N}\.$",
    "per_channel": rf"All elements share one scale\. One per {ROW_OR_AXIS}, {N} in all, {GAINS} for {N} % more storage\.$",
    "small_groups": rf"With (\d+) elements? per scale, scales (and zero points )?cost {N} bits per element on top of (\d+) for "
                    rf"the codes\. (\w+) (.*) takes {N} bits in total and {GAINS}\.$",
    "tiny_block": rf"(.*) have \|x\| ≤ {N}: the scale(?:, {N}, is subnormal and has few significant bits\.| underflows to 0, "
                  r"and so does every element\.) Scale the tensor up first\.$",
    "small_scale": rf"(.*) have \|x\| ≤ {N}: the scale would be below {N}, the minimum of ([\w-]+), which uses {N} instead\.$",
    "least_range": rf"(.*) have \|x\| ≤ {N}, less than the minimum range of ([\w-]+), which makes the scale {N}\.$",
    "zero_block": rf"(.*) are {N}: a dead channel, or a bug upstream\. The(?: first)? scale, {N}, is meaningless\.$",
    "constant_block": rf"(.*) are {N}: one number (per block )?is enough\.$",
    "spare_bits": rf"x uses only {N} codes?: (\d+) bits? instead of (\d+) are enough\. SQNR: {DB} with (\d+) bits, {DB} with "
                  r"(\d+)\.$",
    "ties": rf"(About )?{N} (?:%|elements?) ?(?:of the elements)?(?:(?: at|, such as) {AT},?)? lies? exactly halfway between two "
            r"codes and (?:is|are) rounded (.*); other (rounding rules|orders of operations|rounding rules or orders of "
            r"operations) give other codes\.$",
}  # fmt: skip
VARIANTS = {"tiny_block": ("small_scale", "least_range"), "one_sided": ("either_side",)}
COST = rf" The fix takes {N} bits per element instead of {N}\.$"


def number(text):
    return float(text.replace(",", ""))


def db(text):
    if text in ("exact", "-∞ dB", "not defined"):
        return {"e": math.inf, "-": -math.inf, "n": math.nan}[text[0]]
    return float(text.removesuffix(" dB"))


def near(text, value, digits=4):
    """Whether a number in a sentence equals a value, to the digits that sentences give."""
    said = number(text)
    return said == value or abs(said - value) <= 0.51 * 10.0 ** (
        math.floor(math.log10(abs(value) or 1e-300)) - digits + 1
    )


def same_db(text, value):
    said = db(text)
    return said == value or (math.isnan(said) and math.isnan(value)) or abs(said - value) <= 0.0501


def same_gain(text, e, before=None):
    """Whether the SQNR that a sentence claims for its fix is right: its gain, or before and after."""
    before = sqnr(e.x, e.error) if before is None else before
    after = e.sqnr_of(e.finding.fix)
    if not math.isfinite(after - before):
        said = re.match(rf"takes the SQNR from {DB} to {DB}$", text)
        return same_db(said[1], before) and same_db(said[2], after)
    return same_db(re.match(rf"gains {DB} SQNR$", text)[1], after - before)


def sqnr(x, error):
    power, sse = (float((np.asarray(v, np.float64) ** 2).sum()) for v in (x, error))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(10 * np.log10(np.float64(power) / np.float64(sse)))


def place(text):
    return tuple(int(part) for part in text.split(",") if part.strip())


class Evidence:
    """A result as numpy arrays, with its parameters expanded to one per element."""

    def __init__(self, result, finding):
        self.result, self.finding, self.scheme = result, finding, result.scheme
        self.x = result.x.numpy()
        self.codes, self.x_hat = result.codes.numpy(), result.dequantized.numpy()
        self.error = (self.x - self.x_hat).astype(np.float64)
        self.block = result.block
        self.s, self.z = (self.spread(p.numpy()) for p in (result.scale, result.params.zero_point))
        self.fmt = self.scheme.format

    def spread(self, values):
        for axis, (n, b) in enumerate(zip(self.x.shape, self.block, strict=True)):
            values = np.repeat(values, b, axis=axis).take(range(n), axis=axis)
        return values

    def blockwise(self, reduce):
        """A reduction over each block, in block form."""
        grid = [range(0, n, b) for n, b in zip(self.x.shape, self.block, strict=True)]
        boxes = (tuple(slice(i, i + b) for i, b in zip(at, self.block, strict=True)) for at in itertools.product(*grid))
        return np.array([reduce(self.x[box]) for box in boxes])

    @property
    def before_clamp(self):
        with np.errstate(all="ignore"):
            return np.rint(self.x / self.s) + self.z.astype(np.float32)

    @property
    def clipped(self):
        wide = self.before_clamp
        return (wide < self.fmt.qmin) | (wide > self.fmt.qmax)

    def again(self, scheme, x=None):
        return qc.apply(self.x if x is None else x, scheme)

    def sqnr_of(self, scheme):
        return sqnr(self.x, self.x - self.again(scheme).dequantized.numpy())

    def others_without(self, x, others):
        """SQNR of the other elements: as it is, and with the outliers in x replaced."""
        error = x - self.again(self.scheme, x).dequantized.numpy()
        return sqnr(self.x[others], self.error[others]), sqnr(self.x[others], error[others])


def bits(scheme, x):
    """Bits per element: the code, and each block's float32 scale and, if it is free, zero point."""
    result = qc.apply(x, scheme)
    zero_point = result.params.zero_point
    free = not scheme.symmetric or bool((zero_point != 0).any() and (zero_point != scheme.format.middle).any())
    each = 32 if zero_point.is_floating_point() else scheme.format.bits
    return scheme.format.bits + (32 + free * each) * result.scale.numel() / x.size


def nan(said, e):
    if said[4]:  # finite numbers that become NaN in the library's own arithmetic
        with np.errstate(all="ignore"):
            assert number(said[1]) == np.isnan(e.x * (1 / e.s.astype(np.float32))).sum() > 0
        return
    bad = ~np.isfinite(e.x) if said[2] in ("is", "are") else ~np.isfinite(e.x_hat)
    assert number(said[1]) == bad.sum()
    assert place(said[3]) == tuple(int(i) for i in np.argwhere(bad)[0])


def wrapped(said, e):
    wide, at = e.before_clamp, place(said[7])
    assert number(said[1]) == e.clipped.sum()
    assert (said[2], int(said[3]), int(said[4])) == (str(e.fmt), e.fmt.qmin, e.fmt.qmax)
    assert number(said[5]) == wide[at]
    codes = 2**e.fmt.bits
    assert number(said[6]) == e.codes[at] == (wide[at] - e.fmt.qmin) % codes + e.fmt.qmin
    assert e.finding.boxes[0] == tuple((i, i + 1) for i in at)


def zero_point_outside(said, e):
    z, nearest = int(number(said[1])), int(number(said[6]))
    bad = (e.z < e.fmt.qmin) | (e.z > e.fmt.qmax)
    assert z == e.z[bad].flat[0]
    assert (said[2] == "an int", int(said[3])) == (e.fmt.signed, e.fmt.bits)
    assert (int(said[4]), int(said[5])) == (e.fmt.qmin, e.fmt.qmax)
    assert nearest == min(range(e.fmt.qmin, e.fmt.qmax + 1), key=lambda q: abs(q - z))
    assert near(said[7], (nearest - z) * float(e.s[bad].flat[0]))


def zero_point_clamped(said, e):
    low, high, wanted, z, clipped = (number(said[i]) for i in range(1, 6))
    assert near(said[1], float(e.x.min()))
    assert near(said[2], float(e.x.max()))
    assert low * high > 0
    assert wanted == rounded(e.fmt.qmin - e.x.min() / np.float64(e.s.flat[0]))
    assert z == e.z.flat[0] == np.clip(wanted, e.fmt.qmin, e.fmt.qmax) != wanted
    assert clipped == e.clipped.sum() > 0


def rounded(value):
    return float(f"{value:.0f}")


def negatives_lost(said, e):
    lost = (e.x < 0) & (e.z == e.fmt.qmin)
    assert number(said[1]) == lost.sum() > 0
    assert near(said[2], float(e.x[lost].min()))
    assert number(said[3]) == e.fmt.qmin
    assert not e.x_hat[lost].any()


def zero_not_exact(said, e):
    off = (e.x == 0) & (e.x_hat != 0)
    assert number(said[1]) == off.sum()
    assert near(said[2], 100 * off.mean(), 3)
    assert near(said[3], float(np.abs(e.x_hat[off]).max()))
    for s, z in {(float(s), float(z)) for s, z in zip(e.s[off], e.z[off], strict=True)}:
        assert not any((q - z) * s == 0 for q in range(e.fmt.qmin, e.fmt.qmax + 1))


def one_sided(said, e):
    assert near(said[1], float(e.x.min()))
    assert near(said[2], float(e.x.max()))
    values = [q - int(e.z.flat[0]) for q in range(e.fmt.qmin, e.fmt.qmax + 1)]
    wasted = [v for v in values if (v < 0 if said[6] == "below" else v > 0)]
    assert (said[3], number(said[4]), number(said[5])) == (str(e.fmt), len(wasted), len(values))
    gained_by_asymmetry(said[7], said[8], e)


def either_side(said, e):
    up, down = int(number(said[1])), int(number(said[2]))
    low, high = (e.blockwise(f) for f in (np.min, np.max))
    above = (high > 0) & (-low <= np.float32(0.1) * high)
    below = (low < 0) & (high <= np.float32(0.1) * -low)
    assert (up, down) == (above.sum(), below.sum())
    assert up > 0 < down
    assert up + down >= 0.9 * ((low != 0) | (high != 0)).sum()
    z = int(e.z.flat[0])
    assert (said[3], number(said[5])) == (str(e.fmt), (up + down) * (e.fmt.qmax - e.fmt.qmin + 1))
    assert number(said[4]) == up * (z - e.fmt.qmin) + down * (e.fmt.qmax - z)
    gained_by_asymmetry(said[6], said[7], e)


def gained_by_asymmetry(gain, over, e):
    """The gain is of the asymmetry alone: against a symmetric scheme with the same range setting, if that is better."""
    fix = e.finding.fix
    assert not fix.symmetric
    before = sqnr(e.x, e.error)
    same = dataclasses.replace(e.scheme, range_setting=fix.range_setting)
    again = before if fix.range_setting == e.scheme.range_setting else e.sqnr_of(same)
    assert (over is not None) == (again > before)
    assert same_gain(gain, e, max(before, again))
    assert e.sqnr_of(fix) >= max(before, again) + 3


def better_scheme(said, e):
    before, after = sqnr(e.x, e.error), e.sqnr_of(e.finding.fix)
    assert same_db(said[1], before)
    assert same_db(said[3], after)
    assert before < 30
    assert after >= before + 6
    more = bits(e.finding.fix, e.x) / bits(e.scheme, e.x) - 1
    assert more <= 0.05
    assert said[4] is None if more == 0 else near(said[4], 100 * abs(more), 3)
    assert more == 0 or said[5] == ("more" if more > 0 else "less")
    changed = [n for n in ("symmetric", "granularity", "range_setting") if getattr(e.scheme, n) != getattr(e.finding.fix, n)]
    told = {"symmetric": "symmetric", "granularity": "scale", "range_setting": "the range"}
    assert all(told[name] in said[2] for name in changed)


def outlier_channel(said, e):
    axis = {"Row": 0, "Column": 1}.get(said[1]) if said[4] is None else int(said[4])
    assert (e.x.ndim == 2) == (said[4] is None)
    named = [int(i) for i in re.findall(r"\d+", said[2])]
    boxes = [tuple(slice(*span) for span in box) for box in e.finding.boxes]
    marked = [box[axis][0] for box in e.finding.boxes]
    assert all(e.x[box].size == e.x.size // e.x.shape[axis] for box in boxes)
    start, stop = (0, e.x.shape[axis]) if said[6] is None else (int(said[6]), int(said[7]) + 1)
    if said[3]:
        rest = named.pop()
        assert len([p for p in marked if start <= p < stop]) == len(named) + rest
    run = [p for p in marked if start <= p < stop]
    assert run[: len(named)] == named
    assert start % e.block[axis] == 0
    assert stop - start <= e.block[axis]
    largest = np.abs(np.moveaxis(e.x, axis, 0).reshape(e.x.shape[axis], -1)).max(1)
    others = [i for i in range(start, stop) if i not in run]
    assert near(said[5], float(largest[run].max()))
    assert near(said[8], float(largest[others].max()))
    assert largest[run].min() > largest[others].max()
    x = e.x.copy()
    next_largest = max(others, key=lambda i: largest[i])
    for channel in run:
        np.moveaxis(x, axis, 0)[channel] = np.moveaxis(x, axis, 0)[next_largest]
    mask = np.zeros(e.x.shape, bool)
    np.moveaxis(mask, axis, 0)[others] = True
    now, without = e.others_without(x, mask)
    assert same_db(said[9], now)
    assert same_db(said[10], without)
    assert without >= now + 3
    if said[11]:
        assert int(said[11]) == len({p // e.block[axis] for p in marked}) > 1


def outlier_element(said, e):
    at = place(said[2])
    assert near(said[1], float(e.x[at]))
    assert e.finding.boxes[0] == tuple((i, i + 1) for i in at)
    block = tuple(slice(i // b * b, i // b * b + b) for i, b in zip(at, e.block, strict=True))
    mask = np.zeros(e.x.shape, bool)
    mask[block] = True
    mask[at] = False
    sizes = np.where(mask, np.abs(e.x), -1)
    second = np.unravel_index(sizes.argmax(), sizes.shape)
    assert near(said[3], float(sizes.max()))
    assert abs(float(e.x[at])) >= 4 * sizes.max() > 0
    x = e.x.copy()
    x[at] = x[second]
    now, without = e.others_without(x, mask)
    assert same_db(said[4], now)
    assert same_db(said[5], without)
    assert without >= now + 3
    blocks = {tuple(a // b for (a, _), b in zip(box, e.block, strict=True)) for box in e.finding.boxes}
    assert len(blocks) == len(e.finding.boxes) == int(said[7] or 1)


def clipped_too_much(said, e):
    assert number(said[1]) == e.clipped.sum()
    assert near(said[2], 100 * e.clipped.mean(), 3)
    square = e.error**2
    assert near(said[3], 100 * square[e.clipped].sum() / square.sum(), 3)
    assert square[e.clipped].sum() > square[~e.clipped].sum()


def clips_too_little(said, e):
    assert near(said[1], float(np.abs(e.x).max()))
    assert not e.clipped.any()
    assert said[2] == write_call(e.finding.fix.range_setting)
    after = Evidence(e.again(e.finding.fix), e.finding)
    assert (after.s <= e.s).all()
    assert after.s.sum() < e.s.sum()
    assert same_gain(said[3], e)


def codes_unused(said, e):
    assert (int(said[1]), int(said[2])) == (e.codes.min(), e.codes.max())
    assert (int(said[3]), int(said[4])) == (e.fmt.qmin, e.fmt.qmax)
    assert near(said[5], float(e.x.min()))
    assert near(said[6], float(e.x.max()))


def per_channel(said, e):
    axis = e.finding.fix.granularity.axis
    if e.x.ndim == 2:
        assert said[1] == ("row (axis 0)", "column (axis 1)")[axis]
    else:
        assert said[1] == f"index of axis {axis}"
    assert number(said[2]) == e.x.shape[axis]
    assert same_gain(said[3], e)
    assert near(said[4], 100 * (bits(e.finding.fix, e.x) / bits(e.scheme, e.x) - 1), 3)


def small_groups(said, e):
    assert int(said[1]) == math.prod(e.block)
    assert bool(said[2]) != e.scheme.symmetric
    assert near(said[3], bits(e.scheme, e.x) - e.fmt.bits)
    assert int(said[4]) == e.fmt.bits
    fix = e.finding.fix
    assert (said[5], said[6]) == (str(fix.format), write_call(fix.granularity))
    assert near(said[7], bits(fix, e.x))
    assert bits(fix, e.x) <= bits(e.scheme, e.x)
    assert same_gain(said[8], e)


def _block_of(subject, e, holds):
    """The blocks for which ``holds`` is true, as slices; the subject must name the first and their number."""
    found = []
    for grid in np.ndindex(*e.result.scale.shape):
        box = tuple(slice(g * b, g * b + b) for g, b in zip(grid, e.block, strict=True))
        if holds(e.x[box], float(e.result.scale.numpy()[grid])):
            found.append(box)
    n = e.result.scale.numel()
    if n == 1:
        assert subject.startswith(f"All {e.x.size:,} elements")
    else:
        spans = [(s.start, min(s.stop, m)) for s, m in zip(found[0], e.x.shape, strict=True)]
        places = [f" {a}–{b - 1}" if b - a > 1 else f" {a}" for a, b in spans]
        for place, (a, b), length in zip(places, spans, e.x.shape, strict=True):
            assert b - a == length or re.search(rf"{place}(?![\d–])", subject), subject
        assert (f"{len(found):,} of {n:,} blocks" in subject) == (len(found) > 1)
        assert e.finding.boxes[0] == tuple(spans)
        assert len(e.finding.boxes) == min(len(found), 256)
    return found


def tiny_block(said, e):
    boxes = _block_of(said[1], e, lambda x, s: x.any() and abs(s) < 2.0**-126)
    assert near(said[2], max(float(np.abs(e.x[box]).max()) for box in boxes))
    scale = float(e.s[boxes[0]].flat[0])
    assert near(said[3], scale) if scale else said[3] is None
    assert scale < 2.0**-126


def small_scale(said, e):
    convention = e.scheme.convention
    needed = lambda x: float(np.abs(x).max()) / (2 ** (e.fmt.bits - 1) - 1)  # noqa: E731
    boxes = _block_of(said[1], e, lambda x, s: 0 < needed(x) < convention.scale.eps)
    assert near(said[2], max(float(np.abs(e.x[box]).max()) for box in boxes))
    assert near(said[3], convention.scale.eps)
    assert said[4] == convention.library
    assert near(said[5], float(e.s[boxes[0]].flat[0]))


def least_range(said, e):
    needed = lambda x: float(np.abs(x).max()) / (2 ** (e.fmt.bits - 1) - 1)  # noqa: E731
    boxes = _block_of(said[1], e, lambda x, s: x.any() and s > 4 * needed(x))
    assert near(said[2], max(float(np.abs(e.x[box]).max()) for box in boxes))
    assert said[3] == e.scheme.convention.library
    assert near(said[4], float(e.s[boxes[0]].flat[0]))
    values = [(q - float(e.z.flat[0])) * float(e.s[boxes[0]].flat[0]) for q in (e.fmt.qmin, e.fmt.qmax)]
    assert values[1] - values[0] > 4 * float(np.abs(e.x[boxes[0]]).max())


def zero_block(said, e):
    boxes = _block_of(said[1], e, lambda x, s: not x.any())
    assert number(said[2]) == 0
    assert near(said[3], float(e.s[boxes[0]].flat[0]))


def constant_block(said, e):
    boxes = _block_of(said[1], e, lambda x, s: x.min() == x.max() != 0)
    assert near(said[2], float(e.x[boxes[0]].flat[0]))
    assert bool(said[3]) == (len(boxes) > 1)


def spare_bits(said, e):
    assert number(said[1]) == len(np.unique(e.codes))
    assert (int(said[2]), int(said[3])) == (e.finding.fix.format.bits, e.fmt.bits)
    assert same_db(said[4], sqnr(e.x, e.error))
    assert said[5] == said[3]
    assert same_db(said[6], e.sqnr_of(e.finding.fix))
    assert said[7] == said[2]


def ties(said, e):
    with np.errstate(all="ignore"):
        ratio = (e.x / e.s).astype(np.float64)
    half = (ratio - np.floor(ratio) == 0.5) & ~e.clipped
    steps = e.codes.astype(np.float64) - e.z
    if said[1]:  # estimated from a sample of a large tensor
        assert abs(number(said[2]) - 100 * half.mean()) < 200 / math.sqrt(1 << 14)
    else:
        assert number(said[2]) == half.sum()
        assert place(said[3]) == tuple(int(i) for i in np.argwhere(half)[0])
        assert len(e.finding.boxes) == min(256, half.sum())
    so = {
        "to the even multiple of the scale": steps % 2 == 0,
        "to the even code": e.codes % 2 == 0,
        "away from 0": np.abs(steps) > np.abs(ratio),
        "up": steps > ratio,
        "up or down": np.full(steps.shape, (steps[half] > ratio[half]).any() and (steps[half] < ratio[half]).any()),
    }[said[4]]  # fmt: skip
    assert so[half].all()
    others = (np.rint(ratio), np.trunc(ratio + np.copysign(0.5, ratio)), np.floor(ratio + 0.5))
    assert any((other != steps)[half].any() for other in others) == ("rounding rules" in said[5])


CHECKS = {name: globals()[name] for name in PATTERNS}


def check(result, finding):
    """Check a finding: its sentence, its boxes and its gain."""
    names = (finding.kind, *VARIANTS.get(finding.kind, ()))
    evidence = Evidence(result, finding)
    sentence, cost = re.sub(COST, "", finding.sentence), re.search(COST, finding.sentence)
    matches = [(name, said) for name in names if (said := re.match(PATTERNS[name], sentence))]
    assert len(matches) == 1, finding.sentence
    name, said = matches[0]
    if finding.fix is not None:
        after, before = (bits(s, evidence.x) for s in (finding.fix, evidence.scheme))
        assert (cost is not None) == (after > 1.05 * before)
        assert cost is None or (near(cost[1], after) and near(cost[2], before))
    CHECKS[name](said, evidence)
    for box in finding.boxes:
        assert all(0 <= a < b <= n for (a, b), n in zip(box, evidence.x.shape, strict=True))
    if finding.fix is None:
        assert finding.gain is None
        return
    before, after = sqnr(evidence.x, evidence.error), evidence.sqnr_of(finding.fix)
    if finding.gain.what == "SQNR":
        assert after > before
        claimed = [finding.gain.before, finding.gain.after]
        assert claimed == [before, after] or np.allclose(claimed, [before, after], atol=1e-6)
        assert [same_db(text, value) for text, value in zip(
            str(finding.gain).removeprefix("SQNR ").split(" → "), (before, after), strict=True)] == [True, True]  # fmt: skip
    elif finding.gain.what == "bits per element":
        assert np.allclose(
            [finding.gain.before, finding.gain.after],
            [bits(s, evidence.x) for s in (evidence.scheme, finding.fix)],
        )
        assert finding.gain.after < finding.gain.before
        assert after >= min(before - 0.5, 130)
    else:
        assert finding.gain.what == "error at 0"
        zeros = evidence.x == 0
        x_hat = evidence.again(finding.fix).dequantized.numpy()
        assert finding.gain.after == np.abs(x_hat[zeros]).max() == 0
        assert math.isclose(finding.gain.before, np.abs(evidence.x_hat[zeros]).max())
        assert after >= before - 1
