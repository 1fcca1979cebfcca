"""Every line of a trace, recomputed from its text, for every convention, format and preset."""

import itertools
import re
import warnings
from dataclasses import replace

import numpy as np
import torch
from grid import for_each
from parts import in_parts, some, some_rows

import quantcore as qc
from quantcore.conventions import SYMMETRIC_SCALES
from quantcore.conventions.record import CONVENTIONS
from tests.quantcore.comparison import test_differences as library

f32 = np.float32
LINES = {
    # words after the arithmetic -> how to compute it
    r", with s before it is stored": "",
    r", where 1 / r is the scale before it is stored": "",
    r", in float64": "float64",
    r"; the scale before it is stored": "",
    r", float32(; used instead of s = .*)?": "",
    r", rounded once": "once",
    r", (the stored 1/s|the mean|the stored 1/s and the mean)": "",
    r", where ∞ counts as 2\^128": "",
    r", since (the scale is stored as 0|s is 2\^-127)": "",
    r", since low / s is NaN before s is replaced": "",
    r", max(\|x\||\(\|low\|, \|high\|\)) and 1 / .*": "",
    r", since the value is out of range": "",
    r", on the grid of step .*": "",
    r", since (the (range is 0|scale was replaced)|high - low is .*|low / s is NaN)": "",
    r", the maximum of 1/s": "",
    r", at the limits of the powers of two, .*": "",
    r", since .*1 / max\|x\|\) is not finite": "",
    r", of x - mean": "",
    r", symmetric( and (un)?signed)?": "",
    r", half to even": "rint",
    r", half away from zero": "away",
    r", half (to even|away from zero), of \|v\| \+ 0\.5 in float32": "of sum",
    r", truncated": "trunc",
}
WORDS = {"given", "(1 / the scale of the scales) / the value of the scale's code, used instead of 1 / s"}


def rounded(how, name):
    def rule(v):
        v = np.asarray(v, np.float64)
        if how == "of sum":
            raised = abs(f32(v)) + f32(0.5)
            tie = (abs(v) % 2 == 0.5) & ("even" in name)
            return np.copysign(np.trunc(raised) - tie, v)
        if how == "away":
            return np.copysign(np.floor(abs(v) + 0.5), v)
        return np.trunc(v) if how == "trunc" else np.rint(v)

    return rule


def arithmetic(text):
    """The value of a formula, each operation in float32, or in float64 if the text says so."""
    formula, how = text, ""
    for words, meaning in LINES.items():
        match = re.search(words + "$", formula)
        if match and (match.start() == 0 or "in float32" not in match[0] or meaning == "of sum"):
            formula, how = formula[: match.start()], meaning
    formula = formula.split(" = ")[-1]
    dtype = np.float64 if how in ("float64", "once") else f32
    formula = formula.replace("·", "*").replace("^", "**").replace("½", "0.5")
    numbers = r"(?<![\w.])(\d[\d.]*(?:e[-+]?\d+)?|inf|nan)(?!\w)"
    code = re.sub(numbers, r"number('\g<1>')", formula)
    names = {
        "number": lambda digits: dtype(f32(digits)) if "." in digits or "e" in digits else dtype(digits),
        "round": rounded(how, text),
        "clamp": lambda v, low, high: np.clip(v, low, high),
        "max": np.maximum,
        "log2": np.log2,
        "floor": np.floor,
        "ceil": np.ceil,
    }
    return f32(eval(code, names))


def since(text, t):
    """Assert what a line gives as the reason for its formula."""
    told = re.search(r"(?:, since |, at )(.*?)(?:$|, for )", text)
    if not told or "search" in text:
        return
    with np.errstate(all="ignore"):
        low, high = (f32(np.nan if end is None else end) for end in (t.low, t.high))
        raw = f32(t.scale if t.raw_scale is None else t.raw_scale)
        least = re.fullmatch(r"high - low is (?:less than|at most) (\S+)", told[1])
        exponent = np.log2(float(raw)) if raw > 0 else -np.inf
        k = t.scheme.format.symmetric_max_exponent if isinstance(t.scheme.format, qc.IntFormat) else 0
        true = high - low <= f32(least[1]) if least else {
            "the range is 0": low == high == 0,
            "the scale was replaced": t.replaced and t.zero_point == 0,
            "low / s is NaN": np.isnan(low / raw),
            "low / s is NaN before s is replaced": t.replaced and low == high == 0,
            "2688 · (1 / max|x|) is not finite": not np.isfinite(f32(1) / high * f32(2688)),
            "the scale is stored as 0": t.scale == 0 and np.isinf(t.coded_scale),
            "s is 2^-127": t.scale == 2.0**-127 != t.coded_scale,
            "the value is out of range": not t.scheme.format.qmin <= t.shifted <= t.scheme.format.qmax,
            # E8M0 goes from 2^-127 to 2^127; integers are digits after the binary point
            "the limits of the powers of two": high == 0 or exponent % 1 != 0 or not abs(exponent + k) < 127,
        }[told[1]]  # fmt: skip
    assert true, (text, t)


def proved(step, t):
    """Whether a line's formula gives its value; None if it is words that can't be computed."""
    since(step.formula, t)
    text, value = step.formula, f32(step.value)
    if not text or text in WORDS or " cast by " in text:
        return None
    if step.name == "value v":
        return nearest(text, value, t)
    if step.name == "code q":
        return code(text, int(step.value), t)
    stored = re.fullmatch(r"(\S+) quantized \((.*)\), where \1 is (.*)", text)
    if stored:
        return same(arithmetic_of_scale(stored[3]), f32(stored[1])) and back(f32(stored[1]), value, t)
    shift = re.fullmatch(r"low = (\S+), quantized \(.*\)", text)
    if shift:
        return back(f32(shift[1]), value, t)
    if "modulo" in text:
        return None
    found = arithmetic_of_scale(text)
    return same(found, value) or (
        text.startswith("1 / 0,") and np.isinf(found) and np.isinf(value)
    )  # 1 / -0 is also written as 1 / 0


def scale_of_factor(step, t):
    """Whether the line for 1/s says correctly whether s is the scale shown, the one before storing, or another."""
    told = re.fullmatch(
        r"1 / (\S+), float32(?:; used instead of s = (\S+)|(; the scale before it is stored))?", step.formula
    )
    if not told:
        return True
    used, shown = f32(told[1].strip("()")), f32(t.scale)
    if told[3]:
        return used == f32(t.raw_scale) and not same(used, shown)
    if any(other.name == "divisor" for other in t.steps()):
        return used == t.coded_scale and not same(used, shown) and not told[2]
    return f32(told[2]) == shown and not same(used, shown) if told[2] else same(used, shown)


def arithmetic_of_scale(text):
    """The value of a scale's formula; checks that a scale said to be too small is, and returns its replacement."""
    match = re.fullmatch(r"(.*?)(?: < (\S+)| = 0 in float32); (\S+) instead", text)
    if not match:
        return arithmetic(text)
    found = arithmetic(match[1])
    assert found < f32(match[2]) if match[2] else found == 0, text
    return f32(match[3])


def back(number, stored, t):
    """Whether storing ``number`` as a scale gives ``stored``; None unless the scale of scales is given."""
    scales = t.scheme.scales
    if not isinstance(scales.range_setting, qc.Given):
        return None
    return same(f32(qc.apply([float(number)], scales).dequantized[0]), stored)


def nearest(text, value, t):
    number, clipped = (
        arithmetic(re.match(r"(.*?) rounded to ", text)[1]),
        re.search(r"clipped to the \w+ \w+, (\S+)", text),
    )
    instead = re.search(r"; (\S+) instead of 0$", text)
    if instead:
        return value == f32(instead[1]) and abs(number) <= t.scheme.format.table[1] / 2
    table = t.scheme.format.table.double().numpy()
    table = table[np.isfinite(table)]
    if not np.isfinite(number):
        return None
    if clipped:
        assert abs(value) == abs(f32(clipped[1]))
        assert abs(number) > abs(value)
    # adding in float32 can round up just below half a step, and a codebook's midpoints are rounded
    room = 1e-6 * abs(number) if "in float32" in text or "ties: " in text else 0
    return abs(float(value) - float(number)) <= abs(table - float(number)).min() + room


def code(text, q, t):
    place = re.fullmatch(r"index (\d+) in a table of (\d+) values", text)
    if place:
        return int(place[1]) == q and int(place[2]) == len(t.scheme.format.values)
    return int("".join(re.findall(r"\w+ ([01]+)", text)), 2) == q


def same(found, value):
    return found == value or (np.isnan(found) and np.isnan(value))


CENTERED = [n for n, record in CONVENTIONS.items() if record.scale.center == "mean"]
RULES = [f"symmetric per_group(8) {name}" for name in CENTERED] + [
    f"{kind} textbook({rule}center=mean)"
    for rule in ("", *(f"symmetric_scale={r}, " for r in SYMMETRIC_SCALES))
    for kind in ("symmetric per_group(8)", "symmetric per_tensor percentile(80)", "symmetric per_tensor fixed(-1, 2)", "asymmetric per_channel(0)")
    if not rule or kind.startswith("symmetric")
]


@for_each("rule", some(RULES, 3))
def test_where_a_mean_is_subtracted_the_range_is_that_of_what_is_left(rule):
    """What a line calls max|x - mean|, low or high is that number, and every line comes to its value."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(2, 16)) + 3).astype(np.float32)
    result = qc.apply(torch.from_numpy(x), qc.Scheme.parse(f"int8 {rule}"))
    left = x - f32(x.astype(np.float64).mean())
    for index in ((0, 3), (1, 9)):
        t = qc.trace(result, index)
        block = left[index[0], index[1] // 8 * 8 :][:8] if "per_group" in rule else left[index[0]] if "per_channel" in rule else left
        for step in t.steps():
            assert proved(step, t) in (True, None), step
            assert "max|x|" not in step.formula
        (line,) = (step.formula for step in t.steps() if step.name == "scale s")
        assert "mean" in line
        if "fixed" not in rule and "percentile" not in rule:
            ends = {round(float(abs(v)), 4) for v in (block.max(), block.min())}
            assert ends & {round(float(n), 4) for n in re.findall(r"\d+\.\d+", line)}, line


# the lines of searches are checked in test_trace.py and test_kquants.py
OF_RANGES = [name for name, record in CONVENTIONS.items() if record.library != "ggml"]


@in_parts(211)
@for_each("name", some(OF_RANGES, 2))
def test_every_line_comes_to_its_value(name, part):
    checked, cases = 0, []
    for text, scheme in library.schemes().items():
        if scheme.convention.name == name:
            cases += [(text, scheme, place) for place in (0, 1, 5, 7, 9, 11, 15, 16, 17, None)]
    for text, scheme, place in part(cases):
        blocks = library.rows(scheme)
        row = library.near_ties(blocks[0], scheme) if place is None else blocks[place]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = qc.apply(row[None], scheme)
        except qc.QuantError:
            continue
        farthest = int(np.nan_to_num(abs(row)).argmax())
        for index in {3, farthest}:
            t = qc.trace(result, (0, index))
            assert t.code == int(result.codes[0, index])
            for step in t.steps():
                with np.errstate(all="ignore"):
                    found = proved(step, t)
                checked += found is not None
                assert step.name != "1/s" or scale_of_factor(step, t), (text, row[:5], step)
                assert found is None or found, (text, row[:5], step)
    assert checked > len(part(range(20)))


@for_each("largest", [0.0, 1e-40, 3e-39, 1e-38, 1e-35])
def test_a_factor_that_is_not_finite_is_replaced(largest):
    """Of the smallest numbers 1 / max|x| is infinite, of larger ones only 448 · 6 times it."""
    x = np.array([[0, 0, 0, largest]], f32)
    result = qc.apply(x, "e4m3fn per_channel compressed_tensors.nvfp4.scales")
    lines = [step for step in qc.trace(result, (0, 3)).steps() if step.name == "1/s"]
    assert [proved(step, qc.trace(result, (0, 3))) for step in lines] == [True]
    assert ("is not finite" in lines[0].formula) == (largest < 1e-35)


def test_a_line_that_is_false_is_found():
    t = qc.trace(qc.apply(torch.tensor([[0.5, 2.0]]), qc.Scheme.parse("int8 torchao")), (0, 0))
    for step in t.steps():
        if step.formula:
            assert proved(step, t), step
            wrong = type(step)(step.name, step.formula, str(float(step.value) + 1))
            assert proved(wrong, t) is False, step


@for_each("name", some(["onnxruntime", "onnx", "compressed_tensors", "textbook"], 4))
def test_the_line_of_a_zero_point_next_to_a_tie_comes_to_it(name):
    """There it matters whether s is divided by before or after it is rounded to float32."""
    rng, differ = np.random.default_rng(0), 0
    for _ in range(40):
        k, high = int(rng.integers(20, 230)) + 0.5, f32(rng.uniform(0.5, 2))
        low = f32(-k * float(high) / (255 - k))
        exact = (float(high) - float(low)) / 255
        differ += np.rint(float(low) / exact) != np.rint(low / f32(exact))
        result = qc.apply(np.array([[low, high]], f32), qc.Scheme.parse(f"int8 asymmetric {name}"))
        (step,) = [s for s in qc.trace(result, (0, 1)).steps() if s.name == "zero point z"]
        assert proved(step, qc.trace(result, (0, 1))), step
    assert differ > 5
    for size in (1e-6, 1e-20, 1e-37, 1e-42, 3e-44):  # where the scale is replaced
        t = qc.trace(qc.apply(np.array([[-0.7 * size, 1.9 * size]], f32), qc.Scheme.parse(f"int8 asymmetric {name}")), (0, 1))
        with np.errstate(all="ignore"):
            assert all(proved(step, t) in (True, None) for step in t.steps()), t.steps()


# one for each convention with powers of two, and kind of format
POWERS = {(s.convention.name, type(s.format)): s for s in qc.PRESETS.values() if s.rules.scale.is_power}


@for_each("scheme", some(POWERS.values(), 2), ids=[str(scheme) for scheme in POWERS.values()])
def test_the_lines_of_blocks_at_the_limits_of_the_powers_of_two(scheme):
    """Blocks from the smallest number to the largest; E8M0 begins at 2^-127."""
    row, exponents = library.rows(scheme)[0], [-149, -140, *range(-129, -123), -120, 0, 127]
    x = np.stack([row / f32(2) ** np.floor(np.log2(abs(row).max())) for _ in exponents])
    x = np.nan_to_num(np.ldexp(x, np.array(exponents)[:, None]), posinf=3e38, neginf=-3e38).astype(f32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = qc.apply(x, scheme)
    for place in range(len(x)):
        t = qc.trace(result, (place, 3))
        with np.errstate(all="ignore"):
            assert all(proved(step, t) in (None, True) for step in t.steps() if step.name in ("scale s", "1/s")), t.steps()


def test_the_inverse_of_a_symmetric_range_is_that_of_its_scale():
    """hqq's rule for asymmetric ranges is another choice."""
    rules = qc.TEXTBOOK.changed(asymmetric_scale="inverse_range", kernel="B")
    t = qc.trace(qc.apply([0.3, -1.7, 0.9], qc.Scheme(convention=rules)), 1)
    (step,) = [step for step in t.steps() if step.name == "1/s"]
    assert proved(step, t)
    assert scale_of_factor(step, t)
    assert step.formula.startswith("1 / ")


@for_each("width", [0.0, 0.00005, 0.0002, 0.3, 15.0])
@for_each("scheme", ["uint4 asymmetric hqq", "int4 asymmetric textbook(asymmetric_scale=inverse_range,kernel=D)"])
def test_the_lines_of_hqq_s_ranges_of_every_width(width, scheme):
    t = qc.trace(qc.apply(np.linspace(1, 1 + width, 5, dtype=f32), qc.Scheme.parse(scheme)), 1)
    with np.errstate(all="ignore"):
        assert all(proved(step, t) in (True, None) for step in t.steps()), t.steps()


@for_each("form", ["float", "float_rounded", "integer"])
@for_each("rule", ["range", "range_over_codes", "inverse_range"])
def test_the_line_of_the_zero_point_is_that_of_the_rule_of_the_scale(form, rule):
    rules = qc.TEXTBOOK.changed(zero_point_form=form, asymmetric_scale=rule)
    t = qc.trace(qc.apply([0.3, -1.7, 0.9], qc.Scheme(qc.UINT4, symmetric=False, convention=rules)), 1)
    (step,) = [step for step in t.steps() if step.name == "zero point z"]
    assert proved(step, t), step


@for_each("rule", [rule for rule in SYMMETRIC_SCALES if rule.startswith("power")])
@for_each("fmt", ["int8", "e2m1"])
def test_a_power_of_two_is_the_same_in_float64(rule, fmt):
    x = np.random.default_rng(2).normal(size=(40, 8)) * 2.0 ** np.linspace(-140, 126, 40)[:, None]
    text = f"{fmt} symmetric per_channel(0) textbook(symmetric_scale={rule}"
    wide, narrow = (qc.apply(x, qc.Scheme.parse(text + more)) for more in (",scale_precision=float64)", ")"))
    if "log2" not in rule:  # a logarithm is rounded to another precision
        assert torch.equal(wide.scale, narrow.scale)
    t = qc.trace(wide, (20, 1))
    assert all(proved(step, t) in (True, None) for step in t.steps()), t.steps()


def test_the_smallest_scale_of_a_power_is_the_one_said():
    scheme = qc.Scheme.parse("int8 symmetric textbook(symmetric_scale=power_log2_ceil)")
    (said,) = (text for text in qc.differences(scheme) if "clamped between" in text)
    least = 2.0 ** int(re.search(r"clamped between 2\^(-\d+)", said)[1])
    assert float(qc.apply([1e-45, 0.0], scheme).scale) == least


@for_each("fmt", ["e4m3fn", "e5m2", "nf4"])
def test_the_smallest_quotient_is_named_where_it_takes_the_place_of_a_smaller_one(fmt):
    rules, least = qc.TEXTBOOK.changed(clamp_min=2.0**-6), f32(2.0**-6)
    for x in (f32(-1), f32(0), np.nextafter(least, f32(0)), least, np.nextafter(least, f32(1)), f32(1)):
        t = qc.trace(qc.apply([x], replace(qc.Scheme.parse(f"{fmt} given(1)"), convention=rules)), 0)
        (step,) = [step for step in t.steps() if step.name == "value v"]
        assert step.formula.startswith("max(") == (x < least)


@for_each(("scheme", "scales", "size"), some_rows(itertools.product(
    ["int4 per_group(8) {} torchao", "e2m1 per_group(16) {} torchao.nvfp4", "int4 per_group(8) {} textbook(kernel=B)"],
    ["fp16", "fp16(saturate=False)", "e4m3fn", "int8"], [1e-40, 1e-9, 1e-4, 1, 1e8, 1e36]), 5))  # fmt: skip
def test_the_lines_of_scales_that_are_stored_as_0_or_infinity(scheme, scales, size):
    x = np.float32(size) * np.random.default_rng(1).normal(size=(2, 16)).astype(f32)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        t = qc.trace(qc.apply(x, qc.Scheme.parse(scheme.format(f"scales({scales} given(1))"))), (1, 3))
        assert all(proved(step, t) in (True, None) for step in t.steps() if step.name in ("scale s", "1/s")), t.steps()
