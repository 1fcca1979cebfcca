"""The sentences about how a convention differs from the textbook are true and complete.

A quantizer is built in numpy from the textbook and the sentences alone, without access to the convention.
If a sentence is false, missing or unknown, its numbers are not those of the library.
"""

import functools
import itertools
import math
import re
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some

import quantcore as qc
from quantcore.comparison.against_textbook import _OF_RANGE, matters
from quantcore.conventions import VALUES
from quantcore.conventions.record import CHOICES, CONVENTIONS
from quantcore.conventions.symmetric_scales import SYMMETRIC_SCALES
from quantcore.range_setting import Search
from quantcore.scheme import facts_of

f32, f64 = np.float32, np.float64
TOP = np.finfo(f32).max
NUMBER = r"-?[\d.]+(?:e[-+]?\d+)?(?:\^-?\d+)?"

# pattern of a sentence -> the name under which the quantizer below looks it up, with its numbers
PATTERNS = {
    r"the mean of x is subtracted first and added last": "mean",
    rf"x is divided by ({NUMBER}) first(?:, and (the scale is .*))?": "divisor",
    r"codes are computed with (scale and min before they are|the scale before it is) stored": "raw codes",
    r"codes out of range wrap around": "wrap",
    r"codes are (.*?)(?:, so that -0 becomes 0)?": "codes",
    r"1/s is \(1 / the scale of the scales\) / the value of the scale's code": "inverse of levels",
    r"1/s is (.*?), at most 20000, and 1 if high - low is at most 0.0001, and the scale is 1 / \(1/s\)": "hqq",
    r"the scale before it is stored is 1 / r, where r is (.*?), at most 20000, and 1 if high - low is at most 0.0001": "hqq of r",
    r"where the scale is 0, 1/s is 0 too": "zero inverse",
    r"1/s is computed in float64": "inverse in float64",
    r"1/s is (.*)": "inverse",
    r"a 1/s that is infinite or NaN is replaced by 1": "bad inverse",
    r"ties are rounded away from zero": "half away",
    r"ties are rounded up": "half up",
    r"values are rounded (down|up)": "directed",
    r"values are truncated": "truncated",
    r"rounding adds ½(?: of a step)? to the magnitude in float32, then truncates(; ties go to even)?": "of sum",
    rf"where the scale is 2\^-127, x is divided by ({NUMBER})": "least scale",
    rf"x is divided by ({NUMBER}) where the scale is smaller": "smallest divisor",
    r"in a shorter last block, x is divided by s": "short",
    rf"x / s is at least ({NUMBER})": "least value",
    rf"values that round to 0 become ({NUMBER})": "zero value",
    r"scale and zero point are computed in float64": "both in float64",
    r"the scale is computed in float64": "scale in float64",
    r"the scale is (.*)": "scale",
    rf"the zero point is ({NUMBER})": "middle",
    r"the range is extended down to 0, but not up to 0": "only down to 0",
    r"the range need not include 0": "without 0",
    r"a range too wide for float32 gives an infinite scale": "infinite",
    r"infinity in x is replaced by 3.4e38, the largest float32": "finite",
    rf"a range with \(high - low\) / (\d+) < ({NUMBER}) is widened by (?:(\d+) · ({NUMBER}) below and )?(\d+) · ({NUMBER}) above": "widened",
    rf"(?:max\|x\||max\(\|low\|, \|high\|\)|high - low) is at least ({NUMBER})": "least range",
    r"a scale of 0 stays 0(?: until it is stored)?": "zero scale",
    rf"no scale is below ({NUMBER})": "least",
    rf"a scale below ({NUMBER}) is replaced by ({NUMBER})": "below",
    rf"a scale of 0 is replaced by ({NUMBER})": "replacement",
    r"x is divided by a scale of 0 like by any other: 0 / 0 is NaN": "zero divides",
    r"a scale of NaN is refused": "refuses NaN scale",
    r"a non-finite scale is refused": "refuses scale",
    r"the zero point is -low · (\(1/s\)|r), not rounded": "float z",
    r"the zero point is round\(-low · (\(1/s\)|r)\), not clamped": "rounded z",
    rf"the zero point is the value of code {NUMBER}(?:, (.*?))?: x̂ is (.*)": "value z",
    r"there is no zero point: x̂ is (.*?)(?:, with min = low)?": "min",
    r"the zero point is rounded after the subtraction": "z after",
    r"ties of the zero point are rounded away from zero": "z away",
    r"the zero point is computed in float64": "z in float64",
    r"the zero point is computed with the scale before it is (?:cast|replaced|cast or replaced)": "z of raw",
    r"the zero point of a replaced scale is 0": "z of replaced",
    rf"a zero point of NaN is replaced by ({NUMBER})": "z of NaN",
    r"(?:NaN|∞ / ∞) has no code; (\d+) is shown": "no code",
    r"an x / s that is infinite becomes code (-?\d+) \(value (.*)\)": "infinite quotient",
    r"(NaN|∞ / ∞|NaN and infinity) becomes? code (-?\d+)(?: \(value (.*)\))?": "nan code",
    rf"NaN becomes ({NUMBER}) with the sign of the NaN": "nan value",
    r"NaN stays NaN": "nan",
    r"the code of (?:NaN|∞ / ∞|NaN and values beyond 2\^31) is (-?\d+)(?:, or (\d+) where z is negative)?": "int32",
    r"values beyond 2\^63 become code (-?\d+)": "int64",
    r"values beyond 2\^31 become code (-?\d+)": "low bits",
    r"x̂ is (.*)": "back",
    rf"a code takes ({NUMBER}) bits": "bits",
}  # fmt: skip


def understood(phrases):
    """The sentences as name -> numbers; an unknown or repeated sentence is an error."""
    found = {}
    for phrase in phrases:
        match, name = next(
            (m, name) for pattern, name in PATTERNS.items() if (m := re.fullmatch(pattern, phrase))
        )
        assert name not in found, phrase
        found[name] = match.groups()
    return found


def value(text):
    base, power, exponent = text.partition("^")
    return float(base) ** int(exponent) if power else float(text)


class Refused(Exception):
    """The library, or the textbook, refuses such numbers."""


def computed(formula, dtype, **names):
    """The value of a formula as written, each operation rounded to ``dtype``."""
    text = formula.replace("·", "*").replace("^", "**").replace("½", "0.5").replace("1/s", "inverse")
    text = re.sub(r"max\|x( - mean)?\||max\(\|low\|, \|high\|\)", "largest", text)
    text = re.sub(r"(?<![\w.])\d+(\.\d+)?(e[-+]\d+)?(?!\w)", r"number(\g<0>)", text)
    functions = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "fma": fma, "max": np.maximum}
    return eval(text, {"number": dtype, **functions, **names})


def fma(x, s, z):
    out = []
    for a in np.atleast_1d(x):
        exact = Fraction(float(a)) * Fraction(float(s)) + Fraction(float(z)) if math.isfinite(a * s) else None
        if exact is None:
            out.append(f32(a) * s + z)
            continue
        near = f32(float(exact))
        around = [near, np.nextafter(near, f32(-np.inf)), np.nextafter(near, f32(np.inf))]
        out.append(min(around, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(np.uint32)) & 1)))
    return np.array(out, f32)


def log2_of(precision):
    return lambda v: np.log2(f32(v)) if precision == f32 else f64(math.log2(v) if v > 0 else -math.inf)


class Said:
    """A quantizer for one block, built from a scheme without its convention and the sentences about that."""

    def __init__(self, scheme, phrases):
        self.scheme, self.fmt = scheme, scheme.format
        self.said = understood(p for p in phrases if not p.startswith("for the scales, "))
        self.scales = None
        if scheme.scales is not None:
            own = [p.removeprefix("for the scales, ") for p in phrases if p.startswith("for the scales, ")]
            self.scales = Said(scheme.scales, own)
            self.scales.said["nan"] = ()
        self.whole = isinstance(self.fmt, qc.IntFormat)
        self.given = isinstance(scheme.range_setting, qc.Given)

    def number(self, name, default, place=0):
        return value(self.said[name][place]) if name in self.said else default

    def accepts(self):
        return {"no code", "nan code", "nan value", "nan", "int32", "refuses scale"} & set(self.said)

    def __call__(self, x):
        """Scale, zero point, codes, x̂; raises Refused."""
        fixed = isinstance(self.scheme.range_setting, qc.Fixed)
        if not np.isfinite(x).all() and (fixed or not self.accepts()):
            raise Refused
        mean = f32(torch.tensor(x).mean().item()) if "mean" in self.said else None
        x = x if mean is None else x - mean
        if fixed and not np.isfinite(x).all():
            raise Refused
        raw, z, inverse = self.parameters(x)
        scale, minimum = raw, z
        if self.scales is not None:
            scale, z, inverse = self.stored(raw, z, inverse)
        by, shift = (raw, minimum) if "raw codes" in self.said else (scale, z)
        codes, values = self.code(x, by, shift, inverse)
        back = self.back(values, scale, z, inverse)
        return scale, z, codes, back if mean is None else back + mean

    def stored(self, raw, z, inverse):
        """Scale and minimum as they are after being stored."""
        numbers = f32([raw]) if "min" not in self.said else f32([raw, z])
        inner = [self.scales(f32([n])) for n in numbers]
        if "inverse of levels" in self.said:
            of_scales, _, code, _ = inner[0]
            level = f32(self.scales.fmt.decode(torch.tensor(code)).numpy()[0])
            inverse = (f32(1) / of_scales) / level
        if "hqq of r" in self.said:
            inverse = None
        return inner[0][3][0], (inner[1][3][0] if len(inner) > 1 else z), inverse

    # from x to the scale
    def range(self, x, dtype):
        setting = self.scheme.range_setting
        ends = (setting.low, setting.high) if isinstance(setting, qc.Fixed) else (x.min(), x.max())
        low, high = (dtype(f32(v)) for v in ends)
        if np.isnan(x).any():
            low = high = dtype(np.nan)
        if "without 0" not in self.said:
            low = np.minimum(low, dtype(0))
        if not {"without 0", "only down to 0"} & set(self.said):
            high = np.maximum(high, dtype(0))
        if "widened" in self.said:
            steps, smallest, below, least, above, more = self.said["widened"]
            assert value(smallest) == value(more) == value(least or more)
            if (high - low) / dtype(int(steps)) < value(smallest):
                low = low - dtype(int(below or 0)) * dtype(value(smallest))
                high = high + dtype(int(above)) * dtype(value(smallest))
        if "finite" in self.said:
            low, high = np.maximum(low, -TOP), np.minimum(high, TOP)
        return low, high

    def parameters(self, x):
        """The scale before it is stored, the zero point, and 1/s where that is computed first."""
        if self.given:
            setting = self.scheme.range_setting
            return f32(setting.scale), f32(setting.zero_point), None
        dtype = f64 if {"both in float64", "scale in float64"} & set(self.said) else f32
        low, high = self.range(x, dtype)
        if self.scheme.symmetric:
            raw, inverse = self.symmetric_scale(x, low, high, dtype)
        else:
            raw, inverse = self.asymmetric_scale(low, high, dtype)
        scale, replaced = f32(raw), False
        smallest = {"zero scale": -1.0, "least": self.number("least", 0), "below": self.number("below", 0)}
        limit = next((v for name, v in smallest.items() if name in self.said), 2.0**-149)
        if abs(raw) < limit:
            new = {"least": limit, "below": self.number("below", 1.0, 1)}
            new = next((v for name, v in new.items() if name in self.said), self.number("replacement", 1.0))
            scale, replaced = f32(new), True
        if "refuses NaN scale" in self.said and np.isnan(scale):
            raise Refused
        if "refuses scale" in self.said and not np.isfinite(scale):
            raise Refused
        if not self.whole:
            return scale, f32(0), inverse
        z = self.zero_point(low, raw, scale, inverse)
        return scale, (f32(0) if replaced and "z of replaced" in self.said else z), inverse

    def symmetric_scale(self, x, low, high, dtype):
        fmt, largest = self.fmt, np.maximum(abs(low), abs(high))
        largest = np.maximum(largest, dtype(self.number("least range", 0)))
        self.largest = f32(largest)
        top = 2 ** (fmt.bits - 1) - 1 if self.whole else fmt.max
        formula = self.said["scale"][0] if "scale" in self.said else f"max|x| / {top:.9g}"
        if "divisor" in self.said and self.said["divisor"][1]:
            formula = self.said["divisor"][1].removeprefix("the scale is ")
        inverse = None
        if "inverse" in self.said:
            inverse = computed(
                self.said["inverse"][0], f64 if "inverse in float64" in self.said else dtype, largest=largest
            )
            if "bad inverse" in self.said and not np.isfinite(inverse):
                inverse = f32(1)
        if formula.startswith("2^("):
            return self.power(formula, largest), inverse
        first = x[np.argmax(abs(x))] if "first x" in formula else high if high > -low else low
        formula, _, d = formula.partition(", where d is the larger of ")
        step = [computed(part, dtype, low=low, high=high) for part in d.split(" and ")] if d else [0]
        names = {"low": low, "high": high, "largest": largest, "first": first, "d": np.max(step)}
        of_end = "the ((?:first )?x of the largest|bound of the larger) magnitude"
        formula = re.sub(of_end, "first", formula.removesuffix(", the lowest if two have it"))
        return computed(formula, dtype, **names), inverse

    def power(self, formula, largest):
        """The value of 2^(exponent), with what the formula says about its limits."""
        exponent, ends = re.fullmatch(r"2\^\((.*?)\), (.*)", formula).groups()
        if np.isnan(largest):
            return f32(2.0**-128 if "2^256" in ends else np.nan)
        precision = f32 if "log2 in float32" in ends else f64
        half = re.search(r" \+ half a step of (the format|e2m1)", exponent)
        if half:
            mantissa = 1 if half[1] == "e2m1" else self.fmt.mantissa
            step = 2.0 ** (math.floor(math.log2(largest)) - mantissa) if 0 < largest < np.inf else 0
            exponent = exponent.replace(half[0], "")
            largest = f64(largest) + step / 2
            if largest >= 2.0**128 and "infinite where" in ends:
                return f32(np.inf)
        if "∞ as 2^128" in ends:
            largest = np.minimum(f64(largest), 2.0**128)
        if "2^256" in ends:
            if not 0 < largest < np.inf:
                return f32(2.0**-128)
            power = computed(exponent, precision, largest=largest, log2=log2_of(precision))
            return f32(2.0 ** (power + (256 if power < -128 else 0)))
        if "-126 for 0" in ends and largest == 0:
            largest = f32(2.0**-126)
        power = computed(exponent, precision, largest=largest, log2=log2_of(precision))
        least, most = (int(v) for v in re.findall(r"2\^(-?\d+)", ends))
        if power > most:
            return f32(np.nan if "NaN above" in ends else 2.0**most)
        return f32(2.0 ** max(power, least))

    def asymmetric_scale(self, low, high, dtype):
        steps = dtype(self.fmt.qmax - self.fmt.qmin)
        of_range = self.said.get("hqq") or self.said.get("hqq of r")
        if of_range:
            inverse = f32(computed(of_range[0], f32, low=low, high=high))
            inverse = np.minimum(f32(1) if abs(high - low) <= f32(1e-4) else inverse, f32(20000))
            return f32(1) / inverse, inverse
        width = np.maximum(high - low, dtype(self.number("least range", 0)))
        if np.isinf(width) and "infinite" not in self.said:
            return high / steps - low / steps, None
        return width / steps, None

    def zero_point(self, low, raw, scale, inverse):
        fmt = self.fmt
        if self.scheme.symmetric:
            return f32(self.number("middle", 0 if fmt.signed else 2 ** (fmt.bits - 1)))
        if "min" in self.said:
            return f32(low)
        if "value z" in self.said:
            return f32(computed(self.said["value z"][0], f32, low=f32(low), s=scale))
        of_inverse = self.said.get("float z") or self.said.get("rounded z")
        if of_inverse:
            assert (of_inverse[0] == "r") == ("hqq of r" in self.said)
            z = -f32(low) * inverse
            return np.rint(z) if "rounded z" in self.said else z
        by = raw if {"both in float64", "z of raw"} & set(self.said) else scale
        dtype = f64 if {"both in float64", "z in float64"} & set(self.said) else f32
        quotient = dtype(low) / dtype(by)
        z = np.rint(fmt.qmin - quotient) if "z after" in self.said else fmt.qmin - np.rint(quotient)
        if "z away" in self.said:
            v = fmt.qmin - quotient
            z = np.copysign(np.floor(abs(f64(v)) + 0.5), v)
        z = np.clip(z, fmt.qmin, fmt.qmax)
        return f32(self.number("z of NaN", -(2.0**31)) if np.isnan(z) else z)

    # from the scale to the code
    def code(self, x, scale, z, inverse):
        fmt, s = self.fmt, np.maximum(scale, f32(self.number("smallest divisor", -np.inf)))
        if scale == f32(2.0**-127):
            s = f32(self.number("least scale", s))
        inverse = f32(1) / s if inverse is None else inverse
        if scale == 0 and "zero inverse" in self.said:
            inverse = f32(0)
        zero_codes = self.scales is not None and scale == 0 and "zero divides" not in self.said
        if zero_codes and "inverse of levels" not in self.said:
            s, inverse = f32(np.inf), f32(0)
        x = x / f32(self.number("divisor", 1))
        formula = self.said["codes"][0] if "codes" in self.said else "round(x / s) + z"
        names = {"x": x, "s": s, "z": z, "min": z, "inverse": inverse}
        if self.whole:
            v = computed(formula, f32, round=self.rounded, **names)
            return self.integer(v, z)
        v = computed(formula.removesuffix(" + z"), f32, round=lambda v: v, **names)
        v = np.maximum(v, f32(self.number("least value", -np.inf)))
        rounded = torch.tensor(v if isinstance(fmt, qc.CodebookFormat) else self.rounded_to_float(v))
        if "nan code" in self.said and "infinity" in self.said["nan code"][0]:
            rounded[~torch.isfinite(rounded)] = torch.nan
        codes = fmt.encode(rounded)
        if "infinite quotient" in self.said:
            codes = torch.where(torch.tensor(np.isfinite(v)), codes, int(self.said["infinite quotient"][0]))
        values = fmt.decode(codes)
        if "infinite quotient" in self.said and not np.isfinite(v).all():
            assert float(values[~np.isfinite(v)][0]) == f32(self.said["infinite quotient"][1])
        if "zero value" in self.said:
            values = torch.where(values == 0, self.number("zero value", 0), values)
        nan = torch.tensor(np.isnan(v)) | rounded.isnan()
        if "nan code" in self.said:
            codes = torch.where(nan, int(self.said["nan code"][1]), codes)
            values = torch.where(nan, fmt.decode(codes), values)
            assert not nan.any() or float(values[nan][0]) == f32(self.said["nan code"][2])
        elif "nan value" in self.said:
            signed = torch.tensor(self.number("nan value", 0)).copysign(torch.tensor(v))
            codes, values = torch.where(nan, fmt.encode(signed), codes), torch.where(nan, signed, values)
        elif "nan" in self.said:
            values = torch.where(nan, torch.nan, values)
        if "zero value" in self.said:
            codes = fmt.encode(values)
        return codes.numpy(), f32(values.numpy())

    def rounded(self, v):
        if "half away" in self.said:
            return f32(np.copysign(np.floor(abs(f64(v)) + 0.5), v))
        if "half up" in self.said:
            return f32(np.floor(f64(v) + 0.5))
        if "directed" in self.said:
            return np.floor(v) if self.said["directed"][0] == "down" else np.ceil(v)
        if "truncated" in self.said:
            return np.trunc(v)
        if "of sum" in self.said:
            raised = abs(v) + f32(0.5)
            tie = (abs(f64(v)) % 2 == 0.5) & (self.said["of sum"][0] is not None)
            return np.copysign(np.trunc(raised) - tie, v).astype(f32)
        return np.rint(v)

    def rounded_to_float(self, v):
        """Round each number to a multiple of its step; the format itself handles numbers beyond its range."""
        fmt = self.fmt
        _, exponent = np.frexp(f64(v))
        step = 2.0 ** (np.maximum(exponent - 1, fmt.lowest_exponent) - fmt.mantissa)
        with np.errstate(all="ignore"):
            return np.where(np.isfinite(v), f32(self.rounded(f32(v / step)) * step), v).astype(f32)

    def integer(self, v, z):
        fmt, nan = self.fmt, np.isnan(v)
        codes = np.clip(v, fmt.qmin, fmt.qmax)
        if "wrap" in self.said:
            lowest = -(2 ** (fmt.bits - 1)) if fmt.signed else 0
            codes = (np.where(nan, 0, f64(v)) - lowest) % 2**fmt.bits + lowest
        if "nan code" in self.said:
            codes = np.where(nan, int(self.said["nan code"][1]), codes)
        codes = np.where(np.isnan(codes), self.number("no code", 0), codes)
        for name, end in (("low bits", 2.0**31), ("int64", 2.0**63), ("int32", 2.0**31)):
            if name in self.said:
                lost = ~(abs(v) < end)
                codes = np.where(lost, int(self.said[name][0]), codes)
                if name == "int32" and self.said[name][1] and z < 0:
                    codes = np.where(lost, int(self.said[name][1]), codes)
        return codes.astype(np.int64), f32(codes)

    def back(self, q, s, z, inverse):
        """x̂ of codes (for float formats, of their values)."""
        if "min" in self.said:
            return computed(self.said["min"][0], f32, q=q, s=s, min=z)
        if "value z" in self.said:
            return computed(self.said["value z"][1], f32, q=q, s=s, z=z)
        if "back" in self.said and "1/s" in self.said["back"][0]:
            return computed(self.said["back"][0].removesuffix(" + the mean"), f32, q=q, inverse=inverse)
        if "back" in self.said:
            return computed(self.said["back"][0], f32, q=q, largest=self.largest)
        return (q - z) * s


LENGTH = {qc.PerGroup: lambda g: g.size, qc.PerFlatGroup: lambda g: g.size}


def rows(scheme, seed=0):
    """Blocks for every situation that a sentence may mention, float32."""
    n = LENGTH.get(type(scheme.granularity), lambda g: 32)(scheme.granularity)
    rng = np.random.default_rng(seed)
    base = f32(rng.normal(size=n))
    found = [base, base * f32(1e-3), abs(base) + f32(3), -abs(base) - f32(3), f32([-2.5] * n), f32([0] * n)]
    found += [base * f32(scale) for scale in (1e-9, 1e-12, 1e-30, 3e-38, 1e-39, 1e-43, 1e30)]
    found += [base / abs(base).max() * f32(3.3e38), abs(base / abs(base).max()) * f32(3.3e38)]
    found += [with_(base, 3, v) for v in (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e12, -1e25)]
    found += [with_(with_(base, 0, 4.0), 1, -4.0), with_(with_(base, 0, -4.0), 1, 4.0)]
    found += [
        abs(base) - f32(1e-6),
        f32([1e-5] + [0] * (n - 1)),
        f32([7.0] * n) + f32(1e-5) * np.arange(n, dtype=f32),
    ]
    found += [
        with_(with_(f32([0] * n), 0, f32(low)), 1, f32(high)) for low, high in ((-7, 63), (-1.4999999, 253.5), (-2.5, 12.5))
    ]
    found += [with_(f32([0] * n), 1, 1e-45)]  # the smallest number, whose scale is 0 in any format
    found += [f32(2.0**k) * (1 + f32(rng.random(n)) * f32(0.99)) for k in (-3, 5)]
    found += [
        with_(base / abs(base).max(), 0, f32(v)) for v in (1.75, 1.875, 1.9375, 1.99999988, 1.25, 1.5, 11.25)
    ]
    return found


def with_(row, place, number):
    row = row.copy()
    row[place] = number
    return row


def result_of(row, scheme):
    """The library's result for one block: scale, zero point, codes and x̂, or Refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            r = qc.apply(row[:, None] if downward(scheme) else row[None], scheme)
    except qc.QuantError:
        return Refused
    z = r.params.zero_point.reshape(-1)[0].item()
    codes, x_hat = r.codes.reshape(-1).numpy(), r.dequantized.reshape(-1).numpy()
    return f32(r.scale.reshape(-1)[0]), f32(z), codes, x_hat


def downward(scheme):
    """Whether a block is a part of a column."""
    return isinstance(scheme.granularity, qc.PerGroup) and scheme.granularity.axis == 0


def near_ties(row, scheme, seed=1):
    """A row with the same extremes whose other elements lie next to ties."""
    found = result_of(row, scheme)
    if found is Refused or not np.isfinite(found[0]) or found[0] == 0:
        return row
    rng = np.random.default_rng(seed)
    ends = {int(np.argmin(row)), int(np.argmax(row)), int(np.argmax(abs(row)))}
    if isinstance(scheme.format, qc.IntFormat):
        span = row / found[0]
        ties = (
            rng.integers(math.ceil(span.min()), max(math.ceil(span.min()) + 1, int(span.max())), len(row))
            + 0.5
        )
    else:
        values = np.unique(scheme.format.table.numpy()[np.isfinite(scheme.format.table.numpy())])
        places = rng.integers(0, len(values) - 1, len(row))
        lowest = int(np.searchsorted(values, 0))
        places[:3] = np.clip([lowest, lowest - 1, lowest + 1], 0, len(values) - 2)
        ties = (values[places].astype(f64) + values[places + 1]) / 2
    with np.errstate(over="ignore"):
        new = f32(f32(ties) * found[0])
    new = np.nextafter(
        new, f32(rng.choice([-np.inf, np.inf], len(row))), where=rng.random(len(row)) < 0.6, out=new
    )
    if isinstance(scheme.format, qc.IntFormat):
        new[:4] = np.float32(found[0]) / 2
        for steps in (1, 2, 3):
            new[steps:4] = np.nextafter(new[steps:4], f32(0))
    new = np.clip(new, row.min(), row.max())
    for place in ends:
        new[place] = row[place]
    return new


def all_rows(scheme):
    blocks = rows(scheme)
    return blocks + [near_ties(blocks[i], scheme, seed) for i, seed in ((0, 1), (2, 3), (-1, 4), (-4, 5))]


def alone(scheme):
    """Whether blocks do not influence each other, so that many can be quantized at once."""
    boxes = isinstance(scheme.granularity, qc.PerChannel | qc.PerGroup | qc.PerFlatGroup)
    records = [scheme.convention, *([] if scheme.scales is None else [scheme.scales.convention])]
    given = scheme.scales is None or isinstance(scheme.scales.range_setting, qc.Given)
    return (
        boxes
        and given
        and all(c.scale.center == "none" and c.scale.bad_scale != "nonfinite" for c in records)
    )


def results_of(blocks, scheme):
    """`result_of` each block, computed for all at once where that gives the same."""
    if not alone(scheme):
        return [result_of(row, scheme) for row in blocks]
    refused = [not np.isfinite(row).all() and result_of(row, scheme) is Refused for row in blocks]
    taken = np.stack([row for row, no in zip(blocks, refused, strict=True) if not no])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        r = qc.apply(taken.T.copy() if downward(scheme) else taken, scheme)
    codes, x_hat = (t.numpy().T if downward(scheme) else t.numpy() for t in (r.codes, r.dequantized))
    parts = zip(f32(r.scale.reshape(-1)), f32(r.params.zero_point.reshape(-1)), codes, x_hat, strict=True)
    return [Refused if no else next(parts) for no in refused]


def same(a, b, fmt):
    """Whether codes are equal, except for the sign of NaN, and the rest except for the sign of zero."""
    if a is Refused or b is Refused:
        return a is b
    codes = a[2] == b[2]
    if not isinstance(fmt, qc.IntFormat):  # arithmetic does not determine the sign of NaN
        nan = np.isnan(a[3]) & np.isnan(b[3])
        values = [fmt.table.numpy()[np.asarray(r[2], np.int64)] for r in (a, b)]
        codes |= nan & ((abs(values[0]) == abs(values[1])) | (np.isnan(values[0]) & np.isnan(values[1])))
    return codes.all() and all(
        np.array_equal(np.asarray(one, f32), np.asarray(other, f32), equal_nan=True)
        for one, other in zip((a[0], a[1], a[3]), (b[0], b[1], b[3]), strict=True)
    )


SETTINGS = ("given(0.3,zero_point=3)", "fixed(-0.7,1)", "given(0.25)")
GRANULARITIES = ("per_channel(0)", "per_group(32)", "per_flat_group(32)", "per_tensor")


@functools.cache
def schemes():
    """Every preset, and every library with formats, symmetries and range settings that it supports."""
    # sentences do not describe searches; see test_kquants.py
    found = {n: s for n, s in qc.PRESETS.items() if not isinstance(s.range_setting, Search)}
    for text, scheme in found.items():
        if scheme.range_setting.moves_zero_point:  # by a search, too: what is before it
            found[text] = replace(scheme, range_setting=qc.MinMax())
    for name, record in CONVENTIONS.items():
        own = {g for g, _, _ in record.variants}
        formats = ["int8"] if "int" in record.formats else []
        formats += ["uint4", "int8n"] if name in qc.INTEGER_CONVENTIONS else []
        formats += ["int2", "uint4n"] if name == "aimet.Quantize" else []
        formats += ["e2m1" if "scales" not in name else "e4m3fn"] if "float" in record.formats else []
        formats += ["nf4"] if "codebook" in record.formats else []
        for fmt in formats:
            for symmetry in ("symmetric", "asymmetric"):
                if (name, symmetry) == ("gguf.Q4_0", "asymmetric"):
                    continue  # does not exist
                taken = [
                    scheme
                    for g in GRANULARITIES
                    if qc.unsupported_reason(scheme := qc.Scheme.parse(f"{fmt} {symmetry} {g} {name}"), (2, 32)) is None
                ]
                kept = [s for s in taken if fmt == "int8" and str(s).split()[2].partition("(")[0] in own]
                for i, scheme in enumerate(dict.fromkeys([*taken[:1], *kept])):
                    found[str(scheme)] = scheme
                    for setting in SETTINGS if i == 0 and fmt in ("int8", "e2m1", "nf4") else ():
                        other = replace(scheme, range_setting=qc.Scheme.parse(setting).range_setting)
                        shifted = getattr(other.range_setting, "zero_point", 0) and fmt in ("e2m1", "nf4")
                        moved = record.scale.center != "none"  # ties would be elsewhere
                        if qc.unsupported_reason(other, (2, 32)) is None and not shifted and not moved:
                            found[str(other)] = other
    return found


GIVEN = qc.Given(0.3, 3)


@in_parts(23)
@for_each("name", some(CONVENTIONS, 11))
def test_what_is_said_is_what_happens(name, part):
    """The textbook and the sentences alone give the library's scale, zero point, codes and x̂."""
    for text, scheme in part((text, scheme) for text, scheme in schemes().items() if scheme.convention.name == name):
        phrases, blocks = qc.differences(scheme), all_rows(scheme)
        said = Said(scheme, phrases)
        for row, found in zip(blocks, results_of(blocks, scheme), strict=True):
            if np.isnan(row).any() and any("infinite where the sum is" in phrase for phrase in phrases):
                continue  # adds to a NaN's bits, which are not unique
            try:
                with np.errstate(all="ignore"):
                    expected = said(row)
            except Refused:
                expected = Refused
            assert same(expected, found, scheme.format), (text, phrases, row[:6], expected, found)


WIDTHS = [
    *(f"int{n}" for n in (2, 3, 4, 6, 8, 12, 16)),
    "int3n",
    "int8n",
    "uint2",
    "uint5",
    "uint8",
    "uint4n",
]
TABLES = [
    *(name for name in qc.FLOATS if name != "e8m0"),
    "float(3, 2)",
    "float(2, 3, bias=5)",
    *qc.CODEBOOKS,
    "codebook([-1, 0.3, 0.123456789])",
]


def random_schemes(seed, n):
    """Schemes of any library with formats, widths, range settings and stored scales that the tables above leave out."""
    rng = np.random.default_rng(seed)
    # the conventions of scales are for tensors of scales
    names = [name for name in CONVENTIONS if "scales" not in name and name != "stored"]
    while n:
        setting = [
            "min_max",
            f"given({rng.uniform(0.01, 2):.6g})",
            f"fixed({-rng.exponential():.5g}, {rng.exponential():.5g})",
            f"fixed({rng.exponential():.5g}, {1 + 3 * rng.exponential():.5g})",
        ][min(3, rng.integers(6))]
        stored = rng.choice(
            ["", "", *(f"scales({fmt} given(1) stored)" for fmt in ("fp16", "e8m0", "e4m3fn"))]
        )
        words = (rng.choice([*WIDTHS, *TABLES]), rng.choice(["symmetric", "asymmetric"]), rng.choice(GRANULARITIES), setting,
                 rng.choice(names), stored)  # fmt: skip
        try:
            scheme = qc.Scheme.parse(" ".join(words))
        except qc.QuantError:
            continue
        absent = scheme.convention.name == "gguf.Q4_0" and not scheme.symmetric
        if qc.unsupported_reason(scheme, (2, 32)) is None and not absent:
            n -= 1
            yield scheme


@in_parts(500)
def test_what_is_said_of_random_schemes_is_what_happens(part):
    """1,000 schemes in the slow run, each on every kind of row."""
    for seed in part(range(1000)):
        (scheme,) = random_schemes((7, seed), 1)
        phrases, blocks = qc.differences(scheme), all_rows(scheme)
        said = Said(scheme, phrases)
        for row, found in zip(blocks, results_of(blocks, scheme), strict=True):
            if np.isnan(row).any() and any("infinite where the sum is" in phrase for phrase in phrases):
                continue  # adds to a NaN's bits, which are not unique
            if "e8m0" in str(scheme.scales) and found is not Refused and found[0] <= 2.0**-126:
                continue  # which of e8m0's two least values a scale below them becomes, is not said
            try:
                with np.errstate(all="ignore"):
                    expected = said(row)
            except Refused:
                expected = Refused
            assert same(expected, found, scheme.format), (
                seed,
                str(scheme),
                phrases,
                row[:6],
                expected,
                found,
            )


# choices that share a sentence
TOGETHER = (
    {"eps", "eps_replacement", "widen_to_eps"},
    {"nan", "nan_replacement", "bad_scale", "cast"},
    {"kernel", "rounding"},
    {"symmetric_scale", "narrow_scale_bits", "scale_precision", "zero_point_precision", "zero_point_scale"},
    {"inverse", "bad_inverse"},
    {"zero_point_form", "asymmetric_scale"},
)
APART = {"code_bits", "short_block"}  # only changes the size; needs a short block


def told_apart(case):
    """The choices that differ from the textbook's, as sets of those that share a sentence."""
    names = {n for n in CHOICES if case.rules.choices[n] != qc.TEXTBOOK.choices[n]} - APART
    for group in TOGETHER:
        if names & group:
            yield names & group
    yield from ({name} for name in sorted(names - set().union(*TOGETHER)))


@in_parts(31)
@for_each("name", some(CONVENTIONS, 59))
def test_what_is_said_changes_a_number_and_what_is_not_said_does_not(name, part):
    own_preset = next((preset for preset in schemes() if preset in qc.PRESETS and qc.PRESETS[preset].convention.name == name), None)
    for text, scheme in part((text, scheme) for text, scheme in schemes().items() if scheme.convention.name == name):
        other_preset = text in qc.PRESETS and text != own_preset
        # a fixed range has only one scale, at which some choices have no tie
        if other_preset or isinstance(scheme.range_setting, qc.Fixed):
            continue
        blocks = all_rows(scheme)
        own = results_of(blocks, scheme)
        case = facts_of(scheme)
        for names in told_apart(case):
            if names == {"rounding"} and scheme.range_setting == GIVEN:
                continue  # no float32 divided by this scale gives the largest number below ½
            record = case.rules.changed(**{n: qc.TEXTBOOK.choices[n] for n in names})
            others = results_of(blocks, replace(scheme, convention=record))
            changed = not all(same(a, b, scheme.format) for a, b in zip(own, others, strict=True))
            assert changed == any(matters(n, scheme) for n in names), (text, names, qc.differences(scheme))


# in such an order that ranges without 0 are among those that are tried by default
FIXED = [
    (0.25, 1.0), (-3.0, -1.0), (-1e-9, 1e-9), (-1e-3, 1e-6), (-3e38, 3e38), (0.0, 1e-30), (-127.0, 128.0),
    (-1.0, 1.0 + 2.0**-20), (-1.0, 1.0), (-0.5, 2.0),
]  # fmt: skip


@in_parts(8)
def test_a_choice_of_the_range_is_told_where_a_fixed_range_gets_other_parameters(part):
    """It is enough if the scale or the zero point differs."""
    told = set()
    fixed = [each for each in schemes().values() if isinstance(each.range_setting, qc.Fixed) and each.scales is None]
    for base, ends in part(itertools.product(fixed, FIXED)):
        scheme = replace(base, range_setting=qc.Fixed(*ends))
        case = facts_of(scheme)
        own = given_by(scheme)
        for name in _OF_RANGE:
            if case.rules.choices[name] != qc.TEXTBOOK.choices[name] and CHOICES[name].matters(case):
                record = case.rules.changed(**{name: qc.TEXTBOOK.choices[name]})
                other = given_by(replace(scheme, convention=record))
                changed = own != other
                assert changed == matters(name, scheme), (str(scheme), name)
                told.add((changed, own[0] == other[0], own[1] == other[1]))
    assert told >= {(False, True, True), (True, False, True), (True, True, False)}


def given_by(scheme):
    """The scale and zero point that a fixed range gives, or the error's message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            params = qc.apply(np.zeros((1, 32), np.float32), scheme).params
    except qc.QuantError as error:
        return str(error), ""
    return str(params.scale.reshape(-1)[0].item()), str(params.zero_point.reshape(-1)[0].item())


@in_parts(7)
@for_each("cast", ["int32", "int64", "low_bits"])
def test_a_cast_is_told_where_a_value_can_go_beyond_it(cast, part):
    """The cast is tested by itself, not along with the other choices about NaN and infinity."""
    told = set()
    whole = {text: facts_of(scheme) for text, scheme in schemes().items() if not isinstance(scheme.range_setting, qc.Fixed)}
    taken = [text for text, case in whole.items() if case.integer and case.rules.nonfinite.cast == cast]
    for text in part(taken):
        scheme, case = schemes()[text], whole[text]
        blocks, without = all_rows(scheme), case.rules.changed(cast="none")
        pairs = zip(
            results_of(blocks, scheme), results_of(blocks, replace(scheme, convention=without)), strict=True
        )
        changed = not all(same(a, b, scheme.format) for a, b in pairs)
        assert changed == matters("cast", scheme), text
        told.add(changed)
    assert told == ({True} if cast == "low_bits" else {True, False})


def test_every_value_has_a_sentence_of_its_own():
    """Each choice has words for exactly the values that its type or a record has."""
    spoken_elsewhere = {"narrow_scale_bits": "symmetric_scale", "nan_replacement": "nan"}
    for choice, described in CHOICES.items():
        words, literal = described.says, VALUES.get(choice, ())
        values = {record.choices[choice] for record in CONVENTIONS.values()}
        values |= {
            value for record in CONVENTIONS.values() for _, name, value in record.variants if name == choice
        }
        values |= set(literal)
        values -= {qc.TEXTBOOK.choices[choice]}
        if choice in spoken_elsewhere:
            assert words == {}
        elif not callable(words):
            assert set(words) == values
            assert all(words.values())
    assert set(SYMMETRIC_SCALES) == set(VALUES["symmetric_scale"])


CHANGED = [
    ("half_up", "ties are rounded up"),
    ("half_away", "ties are rounded away from zero"),
    ("floor", "values are rounded down"),
    ("ceil", "values are rounded up"),
    ("toward_zero", "values are truncated"),
]


@for_each(("rule", "sentence"), CHANGED)
@for_each("text", some(["int8", "uint4 asymmetric", "int8 given(0.3)"], 3))
@for_each("overflow", ["saturate", "wrap"])
def test_choices_that_a_user_changes(rule, sentence, text, overflow):
    scheme = qc.Scheme.parse(f"{text} per_channel textbook(rounding={rule},overflow={overflow})")
    phrases = qc.differences(scheme)
    assert sentence in phrases
    said, blocks = Said(scheme, phrases), [row for row in all_rows(scheme) if np.isfinite(row).all()]
    for row, found in zip(blocks, results_of(blocks, scheme), strict=True):
        with np.errstate(all="ignore"):
            if abs(row).max() / found[0] < 2.0**24:  # beyond that, float32 does not have all integers
                assert same(said(row), found, scheme.format), (phrases, row)
    assert (overflow == "wrap") == ("codes out of range wrap around" in phrases)


@pytest.mark.parametrize("rule", ["amax_over_qmax", "full_range", "amax_over_half_codes"])
def test_the_precision_of_1_over_s_is_not_said_of_a_scale_that_it_leaves_as_it_is(rule):
    changes = f"symmetric_scale={rule},inverse=of_range"
    scheme = qc.Scheme.parse(f"int8 per_channel textbook({changes},scale_precision=float64)")
    other = qc.Scheme.parse(f"int8 per_channel textbook({changes})")
    phrases = qc.differences(scheme)
    rows = [row for row in all_rows(scheme) if np.isfinite(row).all()]
    moved = [a[0] != b[0] for a, b in zip(results_of(rows, scheme), results_of(rows, other), strict=True)]
    assert any(moved) == ("the scale is computed in float64" in phrases) == (rule == "full_range")
    assert ("1/s is computed in float64" in phrases) == (rule != "full_range")
    said = Said(scheme, phrases)
    for row, found in zip(rows, results_of(rows, scheme), strict=True):
        with np.errstate(all="ignore"):
            assert same(said(row), found, scheme.format), (phrases, row)


def test_a_short_last_block_divides():
    scheme = qc.PRESETS["bitsandbytes.nf4"]
    assert "in a shorter last block, x is divided by s" in qc.differences(scheme)
    rng = np.random.default_rng(5)
    told = 0
    for _ in range(20):
        x = f32(rng.normal(size=64 + 21))
        x[84], s = 3, f32(3)
        values = scheme.format.values
        x[64:84] = np.nextafter(f32((values[7] + values[8]) / 2 * s), f32(rng.choice([-1, 1], 20)))
        result = qc.apply(x, scheme)
        codes, s = result.codes[64:].numpy(), f32(result.scale[1])
        assert np.array_equal(codes, scheme.format.encode(torch.tensor(x[64:] / s)).numpy())
        told += (codes != scheme.format.encode(torch.tensor(x[64:] * (f32(1) / s))).numpy()).sum()
    assert told
    assert not any("shorter" in p for p in qc.differences(replace(scheme, granularity=qc.PerTensor())))


def test_bits_of_a_packed_code():
    for name in ("gguf.TQ1_0", "gguf.TQ2_0"):
        said = understood(p for p in qc.differences(qc.PRESETS[name]) if not p.startswith("for the scales"))
        bits = value(said["bits"][0]) if "bits" in said else qc.PRESETS[name].format.bits
        # 256 codes and a 16-bit scale
        assert qc.bits_per_element(qc.PRESETS[name], (1, 256)) == bits + 16 / 256


@in_parts(7)
def test_what_becomes_a_code_is_what_is_let_through(part):
    """NaN is mentioned where x may contain it, ∞ / ∞ only where NaN is refused but infinity is not."""
    row = np.linspace(-1, 1, 256, dtype=f32)
    told = {"NaN": 0, "∞ / ∞": 0}
    for text, scheme in part(schemes().items()):
        for phrase in qc.differences(scheme):
            named = next((what for what in told if phrase.startswith(f"{what} becomes")), None)
            if named:
                told[named] += 1
                refused = result_of(with_(row, 3, np.nan), scheme) is Refused
                assert refused == (named != "NaN"), (text, phrase)
                assert result_of(with_(row, 3, np.inf), scheme) is not Refused or named == "NaN", (
                    text,
                    phrase,
                )
    assert all(told.values()), told
