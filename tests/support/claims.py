"""What each kind of finding claims, recomputed with numpy in float64 from tensor, codes and parameters.

``CLAIMS[kind](f, e)`` asserts every number of a finding's facts ``f`` against the evidence ``e``; `check`
also asserts that the sentence has no other numbers, the boxes, and the gain of the fix.
"""

import dataclasses
import math
import re

import numpy as np
import torch

import quantcore as qc
from quantcore.conventions import KERNELS
from quantcore.diagnosis import number as written
from quantcore.diagnosis import percent

EDGE = 2.0**-20  # float32 rounds x / s: so close to the edge of the codes an element may count either way


def sqnr(x, error):
    power, sse = (float((np.asarray(v, np.float64) ** 2).sum()) for v in (x, error))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(10 * np.log10(np.float64(power) / np.float64(sse)))


def same(a, b, digits=1e-6):
    return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=digits, abs_tol=digits)


def values_of(fmt):
    """The value of every code, float64, decoded from its bits; None for integers."""
    if isinstance(fmt, qc.CodebookFormat):
        return np.array(fmt.values)
    if isinstance(fmt, qc.IntFormat):
        return None
    codes = np.arange(1 << fmt.bits)
    magnitude = codes & ((1 << (fmt.exponent + fmt.mantissa)) - 1)
    e, m = magnitude >> fmt.mantissa, magnitude & ((1 << fmt.mantissa) - 1)
    values = 2.0 ** (e - fmt.bias) * (1 + m / 2.0**fmt.mantissa)
    if fmt.subnormals:
        values = np.where(e == 0, 2.0 ** (1 - fmt.bias) * m / 2.0**fmt.mantissa, values)
    top = magnitude.max()
    if fmt.nan == "ieee":
        values[e == e.max()] = np.nan
    elif fmt.nan == "all_ones":
        values[magnitude == top] = np.nan
    if fmt.infinities:
        infinite = (1 << fmt.mantissa) * int(e.max()) if fmt.nan == "ieee" else top - (fmt.nan == "all_ones")
        values[magnitude == infinite] = np.inf
    negative = codes != magnitude
    values = np.where(negative, -values, values)
    if fmt.nan == "negative_zero":
        values[negative & (magnitude == 0)] = np.nan
    return values


class Evidence:
    """A result as numpy arrays, in `blocked_shape`, with its parameters repeated for every element."""

    def __init__(self, result, finding):
        self.result, self.finding, self.scheme = result, finding, result.scheme
        self.shape, self.block, self.fmt = result.blocked_shape, result.block, self.scheme.format
        self.x, self.codes, self.x_hat = (
            t.numpy().reshape(self.shape) for t in (result.x, result.codes, result.dequantized)
        )
        with np.errstate(all="ignore"):
            self.error = (self.x - self.x_hat).astype(np.float64)
        self.grid = result.scale.shape
        self.s, self.z = (self.spread(p.numpy()) for p in (result.scale, result.params.zero_point))
        self.min = self.scheme.rules.zero_point.is_min
        self.table = values_of(self.fmt)

    def spread(self, values):
        for axis, (n, b) in enumerate(zip(self.shape, self.block, strict=True)):
            values = np.repeat(values, b, axis=axis).take(range(n), axis=axis)
        return values

    def parts(self):
        """Each block: its place in the grid and its slices."""
        for place in np.ndindex(*self.grid):
            yield place, tuple(slice(g * b, g * b + b) for g, b in zip(place, self.block, strict=True))

    def at(self, index):
        """A place in x, as a place in blocked_shape."""
        shape = tuple(self.result.x.shape)
        if self.shape == shape:
            return tuple(index)
        return (int(np.ravel_multi_index(index, shape)) if index else 0,)

    @property
    def coded_with(self):
        """The scale and zero point of every element before they are stored, if these give the codes."""
        params = self.result.params
        if self.scheme.rules.storage.quantize_with != "raw" or params.raw is None:
            return self.s, self.z
        minimum = self.min and not self.scheme.symmetric and params.low is not None
        return self.spread(params.raw.numpy()), self.spread(params.low.numpy()) if minimum else self.z

    @property
    def unrounded(self):
        """The codes, or for tables the values, before rounding."""
        x = self.x.astype(np.float64)
        center = self.result.params.center
        x = x if center is None else x - float(center)
        s, z = (p.astype(np.float64) for p in self.coded_with)
        x = x / self.scheme.rules.scale.divisor
        x = np.maximum(x, self.scheme.rules.coding.clamp_min * s) if self.scheme.rules.coding.clamp_min else x
        with np.errstate(all="ignore"):
            if self.min and not self.scheme.symmetric:
                return (x - z) / s
            return x / s + (z if self.table is None else 0)

    def clipped(self):
        """Masks of the elements that are certainly, and possibly, outside of the format."""
        w = self.unrounded
        if self.table is None:
            truncates = KERNELS[self.scheme.rules.coding.kernel].half and self.fmt.qmin == 0
            low, high = self.fmt.qmin - (1.5 if truncates else 0.5), self.fmt.qmax + 0.5
        else:
            low, high = self.fmt.bounds
        room = EDGE * np.maximum(np.abs(w), np.abs(self.z)) + EDGE
        coarse = np.abs(self.s) < 2.0**-126  # 1/s of such a scale is infinite or has few bits
        return ((w < low - room) | (w > high + room)) & ~coarse, (w <= low + room) | (
            w >= high - room
        ) | coarse

    def decoded(self, place):
        """All values that a block can take, ascending."""
        s, z = (float(p.numpy()[place]) for p in (self.result.scale, self.result.params.zero_point))
        if self.table is not None:
            return np.sort(self.table[np.isfinite(self.table)] * s)
        codes = np.arange(self.fmt.qmin, self.fmt.qmax + 1)
        return np.sort(codes * s + z if self.min else (codes - z) * s)

    def again(self, scheme, x=None):
        return qc.apply(self.result.x if x is None else x.reshape(self.result.x.shape), scheme)

    def sqnr_of(self, scheme):
        return sqnr(self.x, self.x - self.again(scheme).dequantized.numpy().reshape(self.shape))

    def others_without(self, x, others):
        """SQNR of the other elements: as it is, and with the outliers in x replaced."""
        error = x - self.again(self.scheme, x).dequantized.numpy().reshape(self.shape)
        return sqnr(self.x[others], self.error[others]), sqnr(self.x[others], error[others])


def bits(scheme, shape):
    """Bits per element: the code, and each block's float32 scale and, if free, its zero point."""
    if (
        scheme.scales is not None
        or not scheme.rules.zero_point.is_integer
        or isinstance(scheme.range_setting, qc.Given)
    ):
        return qc.bits_per_element(scheme, shape)
    blocks = qc.apply(np.zeros(shape, np.float32), scheme).scale.numel()
    each = 32 + (0 if scheme.symmetric else scheme.format.bits)
    return scheme.format.bits + each * blocks / math.prod(shape)


def first_of(mask, e):
    flat = int(np.flatnonzero(mask.reshape(-1))[0])
    return tuple(int(i) for i in np.unravel_index(flat, tuple(e.result.x.shape))) if e.result.x.dim() else ()


def nan(f, e):
    bad = ~np.isfinite(e.x if f["tensor"] == "x" else e.x_hat)
    assert f["elements"] == bad.sum()
    notes, finite = [note for note in e.result.warnings if "NaN" in note], np.isfinite(e.x).all()
    assert f["tensor"] == ("x̂" if finite else "x")
    assert ("value" in f) == bool(finite and not notes)
    if "value" not in f:
        n, rest = f["elements"], notes[0] if notes else "Replace them: most metrics are undefined."
        elements = f"{n:,} element of x is" if n == 1 else f"{n:,} elements of x are"
        what = "" if finite else f"{elements} NaN or infinite, first at {_at(f['at'])}. "
        assert e.finding.sentence == what + rest
    places = [tuple(a for a, _ in box) for box in e.finding.boxes]
    assert [e.at(p) for p in places] == [tuple(p) for p in np.argwhere(bad)[:256]]
    if f["elements"]:
        assert f["at"] == first_of(bad, e)
    if "value" in f:
        at = e.at(f["at"])
        assert f["value"] == e.x[at]
        why = r": (?:the (scale|zero point) of its block is (\S+)|.* can't represent it at this scale)\.$"
        told = re.search(why, e.finding.sentence)
        parameters = {"scale": e.s[at], "zero point": e.z[at]}
        assert told[1] == next((name for name, value in parameters.items() if not np.isfinite(value)), None)
        assert told[1] is None or same(float(told[2]), float(parameters[told[1]]))


def _at(place):
    return f"({', '.join(map(str, place))})"


def wrapped(f, e):
    sure, maybe = e.clipped()
    assert sure.sum() <= f["codes"] <= maybe.sum()
    at = e.at(f["at"])
    away = 1.5 if KERNELS[e.scheme.rules.coding.kernel].half else 0.5
    assert abs(f["before"] - e.unrounded[at]) <= away + EDGE * abs(f["before"])
    lowest = -(2 ** (e.fmt.bits - 1)) if e.fmt.signed else 0
    worst = np.unravel_index(np.nan_to_num(np.abs(e.error)).argmax(), e.shape)
    assert len(e.finding.boxes) == 256 or not sure[worst] or abs(e.error[at]) == abs(e.error[worst])
    assert f["after"] == e.codes[at] == (f["before"] - lowest) % 2**e.fmt.bits + lowest


def zero_point_outside(f, e):
    z = e.result.params.zero_point.numpy()
    bad = (z < e.fmt.qmin) | (z > e.fmt.qmax)
    assert (f["blocks"], f["zero_point"]) == (bad.sum(), z[bad][0])
    assert f["nearest"] == min(range(e.fmt.qmin, e.fmt.qmax + 1), key=lambda q: abs(q - f["zero_point"]))
    assert same(f["value"], (f["nearest"] - f["zero_point"]) * float(e.result.scale.numpy()[bad][0]))


def zero_point_clamped(f, e):
    blocks = [e.x[part] for _, part in e.parts()]
    assert f["low"] * f["high"] > 0
    assert f["blocks"] <= sum(bool((b > 0).all() or (b < 0).all()) for b in blocks)
    if isinstance(e.scheme.range_setting, qc.MinMax) and e.result.params.raw is None:
        ends = [(p, float(e.x[part].min()), float(e.x[part].max())) for p, part in e.parts()]
        scale = e.result.scale.numpy()
        one_sided = [(p, low, high) for p, low, high in ends if low > 0 or high < 0]
        wanted = {p: (low, high, e.fmt.qmin - low / float(scale[p])) for p, low, high in one_sided}
        off = [w for p, w in wanted.items() if abs(w[2] - e.result.params.zero_point.numpy()[p]) > 1.5]
        assert f["blocks"] == len(off)
        assert (f["low"], f["high"]) == off[0][:2]
        assert same(f["wanted"], off[0][2])
    assert f["zero_point"] in (e.fmt.qmin, e.fmt.qmax)
    assert not e.fmt.qmin <= f["wanted"] <= e.fmt.qmax
    sure, maybe = e.clipped()
    assert sure.sum() <= f["clipped"] <= maybe.sum()
    assert f["clipped"] > 0


def negatives_lost(f, e):
    lost, center = np.zeros(e.shape, bool), e.result.params.center
    center = 0.0 if center is None else float(center)  # added last
    for place, part in e.parts():
        values = e.decoded(place) + center
        values = values[np.r_[True, np.diff(values) > 0]]
        if len(values) > 1:
            lost[part] = values[0] >= 0 and e.x[part].min() < -0.5 * abs(values[1] - values[0])
    negative = lost & (e.x < 0)
    assert f["elements"] == negative.sum() > 0
    assert f["lowest"] == e.x[negative].min()
    assert all(e.x[e.at([a for a, _ in box])] < 0 for box in e.finding.boxes)
    assert (e.x_hat[negative] >= 0).all()
    first = next(place for place, part in e.parts() if lost[part].any())
    assert same(f["becomes"], e.decoded(first)[0] + center)
    assert f["zero_point"] == e.result.params.zero_point.numpy()[first]
    lowest = {float(e.decoded(place)[0] + center) for place, part in e.parts() if lost[part].any()}
    words = "lowest value of their block" if len(lowest) > 1 else f" {written(f['becomes'])}."
    assert (" sign." if isinstance(e.fmt, qc.FloatFormat) else words) in e.finding.sentence
    assert (" below 0: it " in e.finding.sentence) == (f["elements"] == 1)


def zero_not_exact(f, e):
    off = (e.x == 0) & (e.x_hat != 0)
    assert f["elements"] == off.sum() > 0
    assert f["worst"] == np.abs(e.x_hat[off]).max()
    center = e.result.params.center
    exact = 0 in e.table if e.table is not None else e.scheme.rules.zero_point.is_integer
    why = "no code represents 0 there." if not exact else "stores another value instead of 0."
    why = why if center is None else "is subtracted first and added back last."
    assert e.finding.sentence.partition(" The fix takes ")[0].endswith(why)
    assert center is None or f["mean"] == float(center)
    assert len(e.finding.boxes) == min(256, f["elements"])
    assert all(off[e.at([a for a, _ in box])] for box in e.finding.boxes)
    if "no code" in e.finding.sentence:
        for place, part in e.parts():
            assert not off[part].any() or 0 not in e.decoded(place)


def one_sided(f, e):
    if e.table is None:
        z = e.result.params.zero_point.numpy().reshape(-1).astype(int)
        codes = np.arange(e.fmt.qmin, e.fmt.qmax + 1)
        below, above = (
            np.array([n.sum() for n in side]) for side in ([codes < v for v in z], [codes > v for v in z])
        )
    else:
        codes = np.unique(e.table[np.isfinite(e.table)])
        below, above = (np.full(math.prod(e.grid), side.sum()) for side in (codes < 0, codes > 0))
    if "side" in f:
        assert (f["low"], f["high"]) == (e.x.min(), e.x.max())
        assert (f["unused"], f["codes"]) == ((below if f["side"] == "below" else above)[0], len(codes))
    else:
        ends = np.array([(e.x[part].min(), e.x[part].max()) for _, part in e.parts()])
        up = (ends[:, 1] > 0) & (-ends[:, 0] <= np.float32(0.1) * ends[:, 1])
        down = (ends[:, 0] < 0) & (ends[:, 1] <= np.float32(0.1) * -ends[:, 0])
        assert (f["above"], f["below"]) == (up.sum(), down.sum())
        lie = "block lies" if up.sum() == 1 else "blocks lie"
        assert e.finding.sentence.startswith(f"{up.sum():,} {lie} above 0 and {down.sum():,} below, ")
        assert (f["unused"], f["codes"]) == (
            below[up].sum() + above[down].sum(),
            len(codes) * (up | down).sum(),
        )
    fix = e.finding.fix
    assert not fix.symmetric
    if e.table is None:  # the gain is of the asymmetry alone
        other = dataclasses.replace(e.scheme, range_setting=fix.range_setting)
        before = max(sqnr(e.x, e.error), e.sqnr_of(other) if other != e.scheme else -math.inf)
        assert same(f["sqnr_db_symmetric"], before)
        assert e.sqnr_of(fix) >= before + 3


def better_scheme(f, e):
    assert same(f["sqnr_db"], sqnr(e.x, e.error))
    assert same(f["sqnr_db_after"], e.sqnr_of(e.finding.fix))
    assert f["sqnr_db"] < 30
    assert f["sqnr_db_after"] >= f["sqnr_db"] + 6
    now, then = (bits(scheme, tuple(e.result.x.shape)) for scheme in (e.scheme, e.finding.fix))
    assert same(f["more_storage"], then / now - 1)
    assert f["more_storage"] < 0.05 + 1e-9
    more = f["more_storage"]
    cost = f"{percent(abs(more))} {'more' if more > 0 else 'less'}" if more else "the same"
    assert e.finding.sentence.endswith(f", for {cost} storage.")
    changed = [
        n for n in ("granularity", "range_setting") if getattr(e.scheme, n) != getattr(e.finding.fix, n)
    ]
    told = {"granularity": "scale", "range_setting": "the range"}
    assert all(told[name] in e.finding.sentence for name in changed)


def half_precision(f, e):
    half = e.result.x.to(getattr(torch, f["dtype"]))
    assert torch.equal(half.float(), e.result.x)
    then = qc.apply(e.result.x, e.scheme)
    assert same(f["now_db"], sqnr(e.x, e.error))
    cast = then.dequantized.to(half.dtype).float().numpy().reshape(e.shape)
    assert same(f["then_db"], sqnr(e.x, (e.x - cast).astype(np.float64)))
    assert f["differ"] == int((then.codes != e.result.codes).sum())
    assert f["then_db"] - f["now_db"] >= 0.5
    assert (e.finding.severity == "warning") == (f["then_db"] - f["now_db"] >= 1)
    assert f["dtype"] in e.finding.sentence


def outlier_channel(f, e):
    axis, (start, stop), named = f["axis"], f["among"], list(f["channels"])
    assert all(start <= place < stop for place in named)
    assert start % e.block[axis] == 0
    assert stop - start <= e.block[axis]
    largest = np.abs(np.moveaxis(e.x, axis, 0).reshape(e.shape[axis], -1)).max(1)
    others = [i for i in range(start, stop) if i not in named]
    assert (f["first"], f["second"]) == (largest[named].max(), largest[others].max())
    assert largest[named].min() > largest[others].max()
    x = e.x.copy()
    for channel in named:
        np.moveaxis(x, axis, 0)[channel] = np.moveaxis(x, axis, 0)[max(others, key=lambda i: largest[i])]
    mask = np.zeros(e.shape, bool)
    np.moveaxis(mask, axis, 0)[others] = True
    now, without = e.others_without(x, mask)
    assert same(f["sqnr_with"], now)
    assert same(f["sqnr_without"], without)
    assert without >= now + 3
    assert (" runs of channels have outlier channels." in e.finding.sentence) == (f["runs"] > 1)
    marked = [box[axis][0] for box in e.finding.boxes]
    if len(marked) < 256:
        runs = {place // e.block[axis] for place in marked}
        assert f["runs"] == len(runs)
        size, ratios = e.block[axis], {}
        for run in runs:
            own = list(range(run * size, min((run + 1) * size, len(largest))))
            ratios[run] = max(largest[i] for i in own if i not in marked) / largest[own].max()
        assert ratios[start // e.block[axis]] == min(ratios.values())
        assert named == sorted(place for place in marked if start <= place < stop)


def outlier_element(f, e):
    at = e.at(f["at"])
    assert f["value"] == e.x[at]
    block = tuple(slice(i // b * b, i // b * b + b) for i, b in zip(at, e.block, strict=True))
    mask = np.zeros(e.shape, bool)
    mask[block] = True
    mask[at] = False
    sizes = np.where(mask, np.abs(e.x), -1)
    assert abs(f["value"]) >= 4 * sizes.max() > 0
    assert f["second"] == sizes.max()
    x = e.x.copy()
    x[at] = x[np.unravel_index(sizes.argmax(), sizes.shape)]
    now, without = e.others_without(x, mask)
    assert same(f["sqnr_with"], now)
    assert same(f["sqnr_without"], without)
    assert without >= now + 3
    blocks = {
        tuple(i // b for i, b in zip(e.at([a for a, _ in box]), e.block, strict=True))
        for box in e.finding.boxes
    }
    assert len(blocks) == len(e.finding.boxes) == f["blocks"]
    assert (" blocks have such an outlier." in e.finding.sentence) == (f["blocks"] > 1)
    assert abs(f["value"]) == max(abs(e.x[e.at([a for a, _ in box])]) for box in e.finding.boxes)


def clipped_too_much(f, e):
    sure, maybe = e.clipped()
    assert sure.sum() <= f["clipped"] <= maybe.sum()
    square = e.error**2
    assert square[sure].sum() * (1 - 1e-6) <= f["of_error"] * square.sum() <= square[maybe].sum() * (1 + 1e-6)
    assert f["of_error"] > 0.5


def clips_too_little(f, e):
    assert f["largest"] == np.abs(e.x).max()
    after = e.again(e.finding.fix).scale.numpy()
    assert (np.abs(after) <= np.abs(e.result.scale.numpy()) * (1 + 1e-6)).all()
    assert (np.abs(after) < np.abs(e.result.scale.numpy())).any()


def codes_unused(f, e):
    assert (f["least"], f["most"]) == (e.x.min(), e.x.max())
    used = e.codes if e.table is None else e.table[e.codes]
    assert (f["low"], f["high"]) == (used.min(), used.max())
    assert not e.clipped()[0].any()
    if e.table is None:
        assert f["high"] - f["low"] + 1 < 0.5 * (e.fmt.qmax - e.fmt.qmin + 1)
    else:
        values = np.unique(e.table[np.isfinite(e.table)])
        assert f["codes"] == len(values)
        assert f["reached"] == ((values >= f["low"]) & (values <= f["high"])).sum() < 0.5 * len(values)


def per_channel(f, e):
    assert f["axis"] == e.finding.fix.granularity.axis
    assert f["channels"] == e.result.x.shape[f["axis"]]
    now, then = (bits(scheme, tuple(e.result.x.shape)) for scheme in (e.scheme, e.finding.fix))
    assert same(f["more_storage"], then / now - 1)


def small_groups(f, e):
    shape = tuple(e.result.x.shape)
    assert f["elements"] == math.prod(e.block)
    assert same(f["overhead_bits"], bits(e.scheme, shape) - e.fmt.bits)
    assert same(f["bits"], bits(e.finding.fix, shape))
    assert f["bits"] <= bits(e.scheme, shape)


def marked_blocks(e, holds):
    found = [
        (place, part) for place, part in e.parts() if holds(e.x[part], float(e.result.scale.numpy()[place]))
    ]
    assert len(e.finding.boxes) == (0 if math.prod(e.grid) == 1 else min(len(found), 256))
    return found


def tiny_block(f, e):
    raw = e.result.params.raw
    convention = e.scheme.convention
    top = 2 ** (e.fmt.bits - 1) - 1 if e.table is None else float(np.abs(_finite(e.fmt)).max())
    needed = lambda x: float(np.abs(x).max()) / top  # noqa: E731
    if "least" in f:
        assert f["least"] == convention.scale.eps
        found = marked_blocks(e, lambda x, s: 0 < needed(x) < convention.scale.eps)
    elif "max" in f:
        assert f["max"] == np.nanmax(e.table[np.isfinite(e.table)])
        numbers = (e.result.scale if raw is None else raw).numpy()
        found = [(p, part) for p, part in e.parts() if e.x[part].any() and abs(numbers[p]) < 2.0**-126]
    elif "divisor" in f:
        assert f["divisor"] == convention.storage.e8m0_min_as
        found = marked_blocks(e, lambda x, s: x.any() and s == f["scale"])
    elif "minimum range" in e.finding.sentence:
        found = marked_blocks(e, lambda x, s: x.any() and s > 4 * needed(x))
    else:
        numbers = (e.result.scale if raw is None else raw).numpy()
        found = [(p, part) for p, part in e.parts() if e.x[part].any() and abs(numbers[p]) < 2.0**-126]
        assert f["scale"] == numbers[found[0][0]]
    assert f["blocks"] == len(found)
    assert not {"least", "divisor"} & set(f) or f["scale"] > 0
    if "underflows" in e.finding.sentence or "subnormal" in e.finding.sentence:
        assert ("underflows" in e.finding.sentence) == (f["scale"] == 0)
    if "largest" in f:
        assert f["largest"] == max(float(np.abs(e.x[part]).max()) for _, part in found)
    if raw is None:
        assert f["scale"] == e.result.scale.numpy()[found[0][0]]


def zero_block(f, e):
    found = marked_blocks(e, lambda x, s: not x.any())
    assert (f["blocks"], f["scale"]) == (len(found), e.result.scale.numpy()[found[0][0]])


def constant_block(f, e):
    found = marked_blocks(e, lambda x, s: x.min() == x.max() != 0)
    assert (f["blocks"], f["value"]) == (len(found), e.x[found[0][1]].flat[0])
    assert ("per block is enough." in e.finding.sentence) == (len(found) > 1)
    # of several the first is told
    assert e.finding.sentence.startswith(f"In {len(found):,} of ") == (len(found) > 1)


def spare_bits(f, e):
    assert f["codes_used"] == len(np.unique(e.codes))
    assert f["bits"] == e.finding.fix.format.bits < e.fmt.bits
    assert same(f["sqnr_db"], sqnr(e.x, e.error))
    assert same(f["sqnr_db_after"], e.sqnr_of(e.finding.fix))


def ties(f, e):
    if e.table is None and not e.scheme.rules.zero_point.is_integer:
        ties_of_sums(f, e)
        return
    with np.errstate(all="ignore"):
        if e.table is None:
            w = (e.x / e.coded_with[0]).astype(np.float64) + e.z  # a tie in float32, as libraries see it
            half = (w - np.floor(w) == 0.5) & (np.floor(w) >= e.fmt.qmin) & (np.ceil(w) <= e.fmt.qmax)
            taken = e.codes.astype(np.float64)
        else:
            values, w = np.unique(e.table[np.isfinite(e.table)]), (e.x / e.coded_with[0]).astype(np.float64)
            above = np.clip(np.searchsorted(values, w), 1, len(values) - 1)
            taken = e.table[e.codes]
            half = (w == (values[above - 1] + values[above]) / 2) & np.isin(taken, values)
    if f["of"] < e.x.size:
        assert abs(f["elements"] / f["of"] - half.mean()) < 2 / math.sqrt(f["of"])
    else:
        assert f["elements"] == half.sum()
        places = [e.at([a for a, _ in box]) for box in e.finding.boxes]
        assert places == [tuple(p) for p in np.argwhere(half)[:256]]
    steps = taken - (e.z if e.table is None else 0)
    ratio = w - (e.z if e.table is None else 0)
    ways = {
        "to the even multiple of the scale": steps % 2 == 0,
        "to the even code": e.codes % 2 == 0,
        "away from 0": np.abs(steps) > np.abs(ratio),
        "toward 0": np.abs(steps) < np.abs(ratio),
        "up": steps > ratio,
        "down": steps < ratio,
        "up or down": np.full(
            e.shape, (steps[half] > ratio[half]).any() and (steps[half] < ratio[half]).any()
        ),
    }  # fmt: skip
    assert ways[f["way"]][half].all()
    assert e.table is None or f["way"] == "to the even code" or not ways["to the even code"][half].all()
    if f["way"] == "up or down" and e.table is not None:
        rules = set(ways) - {"up or down", "to the even multiple of the scale"}
        assert not any(ways[name][half].all() for name in rules)
    if e.table is None:
        others = (np.rint(ratio), np.trunc(ratio + np.copysign(0.5, ratio)), np.floor(ratio + 0.5))
        assert any((other != steps)[half].any() for other in others) == ("rounding rules" in f["others"])


def ties_of_sums(f, e):
    """Float zero points and minima: what is rounded is a sum in float32, and the code is half a step away."""
    s, z = (np.asarray(p, np.float32) for p in e.coded_with)
    inverse = e.result.params.inverse
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / s if inverse is None else e.spread(inverse.numpy())
        exact = (e.x - z) / s if e.min else e.x * inverse + z
    half = (exact - np.floor(exact) == 0.5) & (np.abs(e.codes - exact) == 0.5)
    if f["of"] < e.x.size:
        assert abs(f["elements"] / f["of"] - half.mean()) < 2 / math.sqrt(f["of"])
    else:
        assert f["elements"] == half.sum()
        places = [e.at([a for a, _ in box]) for box in e.finding.boxes]
        assert places == [tuple(p) for p in np.argwhere(half)[:256]]
    codes, exact = e.codes[half], exact[half]
    up = codes > exact
    ways = {"to the even code": codes % 2 == 0, "up": up, "away from 0": np.abs(codes) > np.abs(exact)}
    if f["way"] in ways:
        assert ways[f["way"]].all()
    else:
        assert f["way"] == "up or down"
        assert up.any()
        assert not up.all()
    assert f["way"] == "to the even code" or not ways["to the even code"].all()
    assert f["others"] == ("rounding rules",)


def scale_out_of_range(f, e):
    level = e.result.scales if f["what"] == "scale" else e.result.mins
    inner = level.scheme.format
    table = values_of(inner)
    codes = level.codes.numpy()
    unit = np.broadcast_to(Evidence(level, None).s, Evidence(level, None).shape).reshape(codes.shape)
    with np.errstate(all="ignore"):
        decoded = (
            table[codes] if table is not None else codes - Evidence(level, None).z.reshape(codes.shape)
        ) * unit
    decoded = decoded + (0 if level.params.center is None else float(level.params.center))
    if level.scheme.rules.decoding.decoding == "scaled":
        assert np.isin(np.float32(f["stored"]), decoded.astype(np.float32))
    else:
        decoded = level.dequantized.numpy().astype(np.float64)
    wanted = level.x.numpy().astype(np.float64) / level.scheme.rules.scale.divisor
    assert f["of_blocks"] == wanted.size
    with np.errstate(all="ignore"):
        off = np.abs(decoded - wanted) / np.abs(wanted)
        if f["what"] == "scale":
            ulp = 0 if table is None or isinstance(inner, qc.CodebookFormat) else 2.0 ** -(inner.mantissa + 1)
            marked = ((off > max(0.25, ulp)) | ~np.isfinite(decoded)) & (wanted != 0)
        else:
            marked = (np.abs(decoded - wanted) > np.abs(e.result.params.raw.numpy())) & (wanted != 0)
    top = max(abs(inner.qmin), abs(inner.qmax)) if table is None else np.abs(_finite(inner)).max()
    with np.errstate(all="ignore"):
        level_unit = level.scale if level.params.raw is None else level.params.raw
        units = Evidence(level, None).spread(level_unit.numpy()).astype(np.float64)
        reach = top * np.abs(units).reshape(codes.shape)
        away = np.abs(wanted - (0 if level.params.center is None else float(level.params.center)))
        large = np.isinf(decoded) | (away > 1.001 * reach)
    marked &= (large if f["too_large"] else ~large) & np.isfinite(wanted) & (large | np.isfinite(decoded))
    places = np.flatnonzero(marked.reshape(-1))
    assert f["blocks"] == len(places) > 0
    assert same(f["wanted"], wanted.reshape(-1)[places[0]])
    assert same(f["stored"], float(level.dequantized.reshape(-1)[places[0]]))
    assert f["stored"] or not np.signbit(f["stored"])
    here = e.spread(marked.reshape(e.grid))
    assert same(f["sqnr_stored"], sqnr(e.x[here], e.error[here]))
    assert f["sqnr_exact"] >= f["sqnr_stored"] + 3 or math.isnan(f["sqnr_stored"])
    what = "scales" if e.result.mins is None else "scales and mins"
    if e.scheme.convention == qc.TEXTBOOK:
        exact = e.again(dataclasses.replace(e.scheme, scales=None)).dequantized.numpy().reshape(e.shape)
        assert same(f["sqnr_exact"], sqnr(e.x[here], (e.x - exact)[here]), 1e-4)
    assert f", with exact {what} " in e.finding.sentence
    assert len(e.finding.boxes) == (0 if wanted.size == 1 else min(len(places), 256))
    own = not isinstance(level.scheme.range_setting, qc.Given)
    among = own and not f["too_large"] and bool(level.params.scale.any())
    assert (f" next to larger {f['what']}s" in e.finding.sentence) == among
    fix = e.finding.fix
    if fix is not None:
        remedy = f"Keep the {what} in float32." if fix.scales is None else "Add a scale for the whole tensor."
    elif among:
        remedy = f"Clip the outliers, or store the {what} in float16."
    else:
        remedy = f"Scale the tensor {'down' if f['too_large'] else 'up'} first."
    assert e.finding.sentence.partition(" The fix takes ")[0].endswith(f" {remedy}")
    assert e.finding.severity == ("warning" if sqnr(e.x, e.error) >= 3 else "error")


CLAIMS = {
    claim.__name__: claim
    for claim in (
        nan, wrapped, zero_point_outside, zero_point_clamped, negatives_lost, zero_not_exact, one_sided,
        outlier_channel, outlier_element, clipped_too_much, clips_too_little, codes_unused, per_channel,
        small_groups, tiny_block, zero_block, constant_block, spare_bits, ties, scale_out_of_range,
        better_scheme, half_precision,
    )
}  # fmt: skip
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_PLACES = re.compile(
    r"\([\d, ]*\)"
    r"|(?:[Rr]ows?|[Cc]olumns?|[Cc]hannels?|axis|among|index|indices|elements)"
    r"(?: \d+(?:[–-]\d+)?(?:,| and)?)+"
    r"|\d+ more"
)


def stray_numbers(finding, result):
    """The numbers of a sentence that are neither facts nor parts of a scheme or a place."""
    shown = {"0", "1"}
    gain = (
        ()
        if finding.gain is None
        else (finding.gain.before, finding.gain.after, finding.gain.after - finding.gain.before)
    )
    size = result.x.numel()
    report = qc.report(result)
    gain = (
        *gain,
        *(g - finding.facts["sqnr_db_symmetric"] for g in gain if "sqnr_db_symmetric" in finding.facts),
    )
    known = [
        *finding.facts.values(),
        *gain,
        *(-v for v in finding.facts.values() if isinstance(v, float)),
        size,
        result.scale.numel(),
        report.sse,
        result.scheme.format.bits,
    ]
    for value in known:
        for v in value if isinstance(value, tuple) else (value,):
            if isinstance(v, int | float):
                of_all = (
                    v / size,
                    v / max(1, finding.facts.get("of_blocks", 1)),
                    v / max(1, finding.facts.get("of", 1)),
                )
                shown |= {
                    written(v),
                    f"{v:,}",
                    f"{v:.1f}",
                    f"{v:.0f}",
                    *(percent(p)[:-2] for p in (v, *of_all)),
                }
    fmt = result.scheme.format
    text = _PLACES.sub(" ", finding.sentence.replace("..", " to "))
    if finding.fix is not None:  # which `better_scheme` describes in words
        shown |= set(re.findall(r"\d+", str(finding.fix.granularity)))
    for scheme in filter(None, (result.scheme, result.scheme.scales, finding.fix)):
        for part in sorted((str(scheme.format), *str(scheme).split()), key=len, reverse=True):
            text = re.sub(rf"(?<![\d.]){re.escape(part)}", " ", text)
    for value in (
        fmt.qmin,
        fmt.qmax,
        *(() if isinstance(fmt, qc.IntFormat) else (float(min(_finite(fmt))), float(max(_finite(fmt))))),
    ):
        shown |= {written(value), f"{value:.0f}"}
    warned = " ".join(result.warnings)
    return [said for said in _NUMBER.findall(text) if said.rstrip(",") not in shown and said not in warned]


_VERBS = {"is": "are", "does": "do", "lies": "lie", "has": "have", "dequantizes": "dequantize"}
_COUNTED = re.compile(
    r"(?<![\w.,])(\d[\d,]*)( of [\d,]+)? "
    r"(?:element|code|block|run|scale|min)(s?)(?: of x| of channels)?(?: \([^)]*%\))?"
    rf"(?: at \([^)]*\)|, such as \([^)]*\),)? ({'|'.join([*_VERBS, *_VERBS.values()])})\b"
)


def disagreeing(sentence):
    """Nouns and verbs that do not agree with the number before them, such as ``1 elements are``."""
    return [
        m[0]
        for m in _COUNTED.finditer(sentence)
        if bool(m[3]) != (m[1] != "1" or bool(m[2])) or (m[4] in _VERBS) != (m[1] == "1")
    ]


def _finite(fmt):
    values = values_of(fmt)
    return values[np.isfinite(values)]


def check(result, finding):
    """Check a finding: its facts, its sentence, its boxes and its gain."""
    evidence = Evidence(result, finding)
    CLAIMS[finding.kind](finding.facts, evidence)
    if finding.fix is not None:
        now, then = (bits(scheme, tuple(result.x.shape)) for scheme in (result.scheme, finding.fix))
        assert ("bits_of_fix" in finding.facts) == (then > 1.05 * now)
        if "bits_of_fix" in finding.facts:
            assert same(finding.facts["bits_of_fix"], then)
            assert same(finding.facts["bits_now"], now)
    stray = stray_numbers(finding, result)
    assert not stray, (stray, finding.sentence, finding.facts)
    assert not disagreeing(finding.sentence), finding.sentence
    for box in finding.boxes:
        assert all(0 <= a < b <= n for (a, b), n in zip(box, result.x.shape, strict=True))
    if finding.fix is None:
        assert finding.gain is None
        return
    before, after = sqnr(evidence.x, evidence.error), evidence.sqnr_of(finding.fix)
    claimed = [finding.gain.before, finding.gain.after]
    unit = ".1f} dB" if finding.gain.what == "SQNR" else ".4g}"
    told = ["exact" if math.isinf(v) else f"{{:{unit}".format(v) for v in claimed]
    assert str(finding.gain) == f"{finding.gain.what} {' → '.join(told)}"
    if finding.gain.what == "SQNR":
        assert after > before
        assert all(map(same, claimed, (before, after)))
    elif finding.gain.what == "bits per element":
        assert all(map(same, claimed, (bits(s, tuple(result.x.shape)) for s in (result.scheme, finding.fix))))
        assert claimed[1] < claimed[0]
        assert after >= min(before - 0.5, 130)
    else:
        assert finding.gain.what == "error at 0"
        zeros = evidence.x == 0
        x_hat = evidence.again(finding.fix).dequantized.numpy().reshape(evidence.shape)
        assert claimed[1] == np.abs(x_hat[zeros]).max() == 0
        assert claimed[0] == np.abs(evidence.x_hat[zeros]).max()
        assert after >= before - 1
