"""A trace shows what really happened: it agrees bit for bit with the result."""

import dataclasses
import itertools
import re

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some

import quantcore as qc
from quantcore.range_setting import Stored

WRAP = qc.TEXTBOOK.changed(overflow="wrap")
GRANULARITIES = {
    0: [qc.PerTensor()],
    1: [qc.PerTensor(), qc.PerChannel(0), qc.PerGroup(3)],
    2: [qc.PerTensor(), qc.PerChannel(1), qc.PerGroup(4), qc.PerBlock((4, 3))],
    3: [qc.PerChannel(-2), qc.PerGroup(2, axis=1), qc.PerBlock((2, -1, 3))],
    4: [qc.PerChannel(-4), qc.PerBlock((1, 2, 3, 4))],
}
SHAPES = [(), (7,), (5, 7), (3, 4, 5), (2, 3, 4, 5)]
CASES = [
    pytest.param(
        shape,
        qc.Scheme(fmt, symmetric, granularity, setting, convention),
        id=f"{shape} {i}",
        marks=[] if i % 7 == 0 else [pytest.mark.slow],
    )
    for i, (shape, fmt, symmetric, setting, convention) in enumerate(
        itertools.product(
            SHAPES,
            (qc.INT4, qc.IntFormat(8, signed=False, narrow=True), qc.UINT16),
            (True, False),
            (qc.MinMax(), qc.Percentile(75), qc.Fixed(-0.7, 1), qc.Given(0.21, 5)),
            (qc.TEXTBOOK, WRAP),
        )
    )
    for granularity in GRANULARITIES[len(shape)]
]


def sample(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2


def bits(*values):
    return np.array(values, np.float32).tobytes()


def read(text):
    return float(np.float32(text))


@in_parts(12)
@for_each(("shape", "scheme"), CASES)
def test_trace_is_the_result(shape, scheme, part):
    result = qc.apply(sample(shape, len(shape)), scheme)
    x_hat, error = result.dequantized, result.error
    indices = list(itertools.product(*map(range, shape)))
    for index in part(indices[:: max(1, len(indices) // 5)]):
        t = qc.trace(result, index)
        position = tuple(i // b for i, b in zip(index, result.block, strict=True))
        scale, zero_point = result.scale[position].item(), result.zero_point[position].item()
        assert (t.index, t.scheme, t.block) == (index, scheme, position)
        assert all(start <= i < stop for i, (start, stop) in zip(index, t.bounds, strict=True))
        assert (t.x, t.scale, t.zero_point) == (result.x[index].item(), scale, zero_point)
        assert t.quotient == float(np.float32(t.x) / np.float32(scale))
        assert t.rounded == float(np.rint(np.float32(t.quotient)))
        assert t.shifted == t.rounded + zero_point
        assert t.code == result.codes[index].item()
        # compared as bits, since zero has two signs
        assert bits(t.dequantized, t.error) == bits(x_hat[index].item(), error[index].item())
        fits = scheme.format.qmin <= t.shifted <= scheme.format.qmax
        assert t.overflow == (scheme.convention.coding.overflow if t.code != t.shifted else None)
        # wrapping may leave the code that the narrow range excludes unchanged
        assert (t.overflow is None) == fits or (scheme.format.narrow and t.code == scheme.format.qmin - 1)
        if isinstance(scheme.range_setting, qc.Given):
            assert t.low is t.high is None
        else:
            assert (t.low, t.high) == (
                result.params.low[position].item(),
                result.params.high[position].item(),
            )


@for_each(("shape", "scheme"), CASES[::3])
def test_numbers_of_the_steps_read_back(shape, scheme):
    result = qc.apply(sample(shape, 3), scheme)
    t = qc.trace(result, tuple(n // 2 for n in shape))
    steps = t.steps()
    values = [t.x, t.scale, t.zero_point, t.quotient, t.rounded, t.shifted, t.code, t.dequantized, t.error]
    if not t.zero_point:
        del values[5]
    assert [read(step.value) for step in steps] == values
    assert [step.name[0] for step in steps] == list("xszxr+cde" if t.zero_point else "xszxrcde")
    formulas = {step.name.split(" (")[0]: step.formula for step in steps}
    x, scale = formulas["x / s"].split(" / ")
    assert (read(x), read(scale)) == (t.x, t.scale)
    assert read(formulas["round"].split("(")[1].split(")")[0]) == t.quotient
    assert read(formulas["dequantized x̂"].split(" · ")[1]) == t.scale
    code = formulas["dequantized x̂"].lstrip("(").split(" ")[0]
    assert int(code) == t.code
    before, after = formulas["error x - x̂"].split(" - ", 1)
    assert (read(before), read(after.strip("()"))) == (t.x, t.dequantized)
    if scheme.convention.coding.overflow == "saturate":
        inside = formulas["code q"].split("(")[1].split(")")[0].split(", ")
        assert [float(v) for v in inside] == [t.shifted, scheme.format.qmin, scheme.format.qmax]


def redone(formula):
    """The value of a formula in numpy's float32, without the words after a comma or semicolon."""
    last = re.sub(r"[,;] [a-z].*", "", formula.split(" = ")[-1]).replace("·", "*").replace("^", "**")
    arithmetic = re.sub(r"(?<![a-z])[\d.]+(e[-+]\d+)?", r"f('\g<0>')", last)
    rint = {"round": np.rint, "clamp": np.clip, "log2": np.log2, "floor": np.floor, "ceil": np.ceil}
    return float(eval(arithmetic, {"f": np.float32, "trunc": np.trunc, **rint}))


@for_each(("shape", "scheme"), CASES[1::3])
def test_formulas_come_to_their_values(shape, scheme):
    result = qc.apply(sample(shape, 5), scheme)
    steps = qc.trace(result, tuple(n // 2 for n in shape)).steps()
    # the zero point's clamp is written without its bounds, and the modulo is not computed in float32
    spoken = ("given", "symmetric", "clamp(qmin", "modulo")
    written = [s for s in steps if s.formula and not any(words in s.formula for words in spoken)]
    assert len(written) >= 4
    assert [redone(s.formula) for s in written] == [read(s.value) for s in written]


@for_each("scheme", some(qc.PRESETS.values(), 29))
@in_parts(11)
@pytest.mark.filterwarnings("ignore:512 elements become NaN")  # a row of zeros in bitsandbytes
def test_presets_come_to_what_they_say(scheme, part):
    x = sample((32, 512))
    x[1] *= 1e-3
    x[2, 5] = 30.0
    x[3] = 0.0
    x[4] = -2.5
    x[5] *= 1e-30
    result = qc.apply(x, scheme)
    x_hat, written = result.dequantized, 0
    for index in part(itertools.product(range(8), range(0, 512, 37))):
        t = qc.trace(result, index)
        assert (t.code, bits(t.dequantized)) == (result.codes[index].item(), bits(x_hat[index].item()))
        # otherwise the steps would give another code than the result
        assert t.overflow != "cast" or not np.isfinite(t.quotient)
        if not isinstance(scheme.format, qc.IntFormat) and np.isfinite(t.quotient):
            values, near = scheme.format.table.double().nan_to_num(np.inf), t.quotient
            if getattr(scheme.format, "tie", "") == "grid":  # nearest to one of 65,536 points of -1..1
                near = round((near + 1) * 32767.5) / 32767.5 - 1
            assert abs(t.rounded - near) == pytest.approx((values - near).abs().min().item(), abs=1e-6)
        for step in t.steps():
            formula, value = step.formula, step.value
            if "quantized (" in formula and step.name == "scale s":
                value = formula.split(" quantized (")[0]
                formula = formula.split(f"), where {value} is ")[1]
            spoken = (
                "the stored 1/s",
                "middle",
                "at the limits of",
                "signed",
                "instead",
                "bits",
                " cast by ",
                "quantized",
                "inf",
                "nan",
                "search",
                "adjusted by",
                " elements",
            )
            if (
                step.name in ("x", "value v", "code q")
                or step.name.startswith("search")
                or any(words in formula + value for words in spoken)
            ):
                continue
            if step.name == "round" and "truncated" in formula:
                formula = formula.replace("round(", "trunc(")
            elif step.name == "round" and "half to even" not in formula:
                continue
            written += 1
            assert bits(redone(formula)) == bits(read(value)) or redone(formula) == read(value) == 0, (
                step,
                index,
            )
        if not isinstance(scheme.format, qc.IntFormat):
            value = next(step for step in t.steps() if step.name == "value v")
            assert read(value.value) in scheme.format.table.tolist() or t.rounded != t.rounded
    assert written > len(part(range(200)))


def test_known_steps():
    result = qc.apply([0.6, -1.0, 2.5, 8.0], qc.Scheme(qc.INT4, range_setting=qc.Given(0.4, 1)))
    assert [(s.name, s.value) for s in qc.trace(result, 1).steps()] == [
        ("x", "-1"),
        ("scale s", "0.4"),
        ("zero point z", "1"),
        ("x / s", "-2.5"),
        ("round", "-2"),
        ("+ z", "-1"),
        ("code q (clamp)", "-1"),
        ("dequantized x̂", "-0.8"),
        ("error x - x̂", "-0.19999999"),
    ]
    t = qc.trace(result, 3)
    assert (t.shifted, t.code, t.overflow) == (21, 7, "saturate")


@pytest.mark.filterwarnings("error")
@for_each(
    ("x", "scheme", "says"),
    [
        ([0.0, 0.0], qc.Scheme(), "1, since"),
        ([1e-45], qc.Scheme(), "1 instead"),
        ([-3e38, 3e38], qc.Scheme(symmetric=False), "/ 255 - "),
        ([1.0, 2.0], qc.Scheme(range_setting=qc.Given(0.1)), "given"),
    ],
)
def test_formula_of_the_scale_in_special_cases(x, scheme, says):
    assert says in qc.trace(qc.apply(x, scheme), 0).steps()[1].formula


def test_a_cast_of_the_parameters_to_the_dtype_of_x_is_said():
    x = torch.tensor([9.1875, -5.3125, 0.3], dtype=torch.bfloat16)
    scale = qc.trace(qc.apply(x, qc.Scheme.parse("int8 onnx")), 0).steps()[1]
    assert read(scale.value) == torch.tensor(2 * 9.1875 / 254, dtype=torch.float64).bfloat16().item()
    assert scale.formula == "2 · max|x| / 254 = 2 · 9.1875 / 254, in float64, cast to bfloat16"
    _, scale, zero_point, *_ = qc.trace(qc.apply(x, qc.Scheme.parse("uint4 asymmetric hqq.linear")), 0).steps()
    assert scale.formula.endswith("(1 / (9.1875 - (-5.3125)))), cast to bfloat16")
    assert zero_point.formula.endswith("· 1.0344827), cast to bfloat16 once the codes are computed")


@pytest.mark.filterwarnings("ignore::UserWarning")
@for_each(
    "scheme",
    [
        scheme
        for rules in qc.INTEGER_CONVENTIONS.values()
        if not qc.unsupported_reason(scheme := qc.Scheme(qc.UINT8, symmetric=False, convention=rules), (3,))
    ],
    ids=lambda scheme: scheme.convention.name,
)
@for_each("x", [[0.0, 1.0, 5.0], [-4.0, -1.0, 0.0], [-1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
def test_formula_of_the_zero_point_speaks_of_nan_where_the_quotient_is_nan(scheme, x):
    result = qc.apply(x, scheme)
    formula = qc.trace(result, 1).steps()[2].formula
    low = np.float32(min(0.0, *x))
    with np.errstate(invalid="ignore", divide="ignore"):
        undefined = np.isnan(low / result.scale.reshape(-1)[0].numpy())
    assert (" is NaN" in formula) == undefined or "since the scale was replaced" in formula


def test_formula_of_a_range_beyond_float32_comes_to_the_scale():
    t = qc.trace(qc.apply([-2e38, 3e38], qc.Scheme(symmetric=False)), 0)
    formula = t.steps()[1].formula
    assert formula == "high / 255 - low / 255 = 3e+38 / 255 - (-2e+38) / 255"
    assert redone(formula) == t.scale


@for_each("scheme", ["int8", "int8 per_flat_group(4)", "e2m1 per_flat_group(4)"])
def test_a_number_alone(scheme):
    result = qc.apply(np.float32(-2.5), qc.Scheme.parse(scheme))
    t = qc.trace(result, ())
    assert (t.index, t.x, t.code, t.scale) == ((), -2.5, int(result.codes), float(result.scale.reshape(-1)[0]))
    assert t.block == tuple(0 for _ in result.blocked_shape)
    assert t.dequantized == float(result.dequantized)


def test_indices_from_the_end_and_of_numpy():
    result = qc.apply(sample((4, 5)), qc.Scheme())
    assert qc.trace(result, (-1, -2)) == qc.trace(result, (3, 3))
    assert qc.trace(result, [np.int64(2), 1]) == qc.trace(result, (2, 1))


@for_each(
    "index", [(4, 0), (0, 5), (-5, 0), (0,), 0, (0, 0, 0), (), (0.0, 1), (True, 0), "00", (None, 0)]
)
def test_indices_that_are_none(index):
    result = qc.apply(sample((4, 5)), qc.Scheme())
    with pytest.raises(qc.QuantError, match="no element"):
        qc.trace(result, index)


@for_each(("fmt", "k"), [("e2m1", 2), ("e4m3fn", 8), ("e5m2", 15)])
def test_the_power_of_an_infinite_block_is_that_of_2_to_the_128(fmt, k):
    x = torch.ones(1, 32)
    x[0, 3] = torch.inf
    t = qc.trace(qc.apply(x, qc.Scheme.parse(f"{fmt} per_group(32) torchao.mx.FLOOR")), (0, 0))
    assert (t.scale, t.steps()[1].formula) == (2.0 ** (128 - k), f"2^(128 - {k}), where ∞ counts as 2^128")


@for_each("fmt", ["int4", "uint8 asymmetric", "e2m1", "e4m3fn", "nf4"])
def test_codes_of_a_file_that_rounding_would_not_give(fmt):
    """Every other code is moved by one; the trace says what rounding would give, and nothing of the others."""
    scheme = qc.Scheme.parse(fmt)
    scale, zero_point = torch.tensor([[0.25], [0.5]]), torch.tensor([[3], [5]] if "uint8" in fmt else [[0], [0]], dtype=torch.int32)
    setting = Stored(scale=scale, zero_point=zero_point, origin="the file")
    scheme = dataclasses.replace(scheme, granularity=qc.PerChannel(0), range_setting=setting)
    x = torch.stack([torch.linspace(-0.9, 1.1, 9) * s * scheme.format.symmetric_max for s in (0.25, 0.5)])
    made = qc.apply(x, scheme)
    moved = made.codes.clone()
    moved[:, ::2] += torch.where(moved[:, ::2] % 2 == 0, 1, -1).to(moved.dtype)
    result = dataclasses.replace(made, codes=moved)
    for index in np.ndindex(*x.shape):
        t = qc.trace(result, index)
        steps = {step.name.partition(" (")[0]: step for step in t.steps()}
        assert t.code == int(moved[index])
        assert steps["scale s"].formula == "read from the file"
        assert (t.overflow == "stored") == (index[1] % 2 == 0), (index, t.overflow)
        if t.overflow == "stored":
            would = made.codes[index] if isinstance(scheme.format, qc.IntFormat) else scheme.format.table[int(made.codes[index])]
            said = steps["code q" if isinstance(scheme.format, qc.IntFormat) else "value v"].formula
            assert said.startswith("as stored; ")
            assert read(said.rpartition(" ")[2]) == pytest.approx(float(would))


@for_each("name", some(["gguf.Q4_K", "gguf.Q3_K", "gguf.IQ4_NL", "gguf.Q6_K"], 2))
def test_a_search_tells_the_trial_that_it_took_and_the_error_of_the_first(name):
    result, seen = qc.apply(sample((2, 256), 4), qc.PRESETS[name]), set()
    for index in itertools.product(range(2), range(0, 256, 16)):
        t = qc.trace(result, index)
        group, steps = t.search.group, {step.name: step for step in t.steps()}
        best = max(i for i, trial in enumerate(group.trials) if trial.taken[0])
        errors = [float(trial.error[0]) for trial in group.trials]
        seen.add(best)
        assert f"trial {best + 1} of {len(errors)}, " in steps["search"].formula
        assert read(steps["search"].value) == np.float32(group.scale)
        assert read(steps["search: error"].value) == np.float32(errors[best])
        first = re.search(r"; (\S+) for the first trial", steps["search: error"].formula)
        assert (first is None) == (best == 0)
        assert first is None or read(first[1]) == np.float32(errors[0])
        for what, d in (("scale", "d"), ("min", "dmin")):
            assert {f"{what} code", d, f"{d}, stored"} & set(steps) in (set(), {f"{what} code", d, f"{d}, stored"})
            assert what == "min" or d in steps or "IQ4" in name
        assert ("dmin" in steps) == (name == "gguf.Q4_K")
        assert read(steps["weight w"].value) == group.weights[list(group.x).index(np.float32(t.x))]
    assert len(seen) > 1


@for_each("scheme", ["int4 given(0.25)", "int4 asymmetric given(0.25, zero_point=3)", "int4 asymmetric given(0.25, zero_point=-2)"])
@for_each("kernel", ["A", "C"])
def test_the_rounding_of_a_random_rule_is_read_from_the_code(scheme, kernel):
    scheme = qc.Scheme.parse(scheme)
    scheme = dataclasses.replace(scheme, convention=qc.TEXTBOOK.changed(rounding="stochastic", kernel=kernel))
    result, ways = qc.apply(torch.linspace(-1, 1, 30), scheme), set()
    for i in range(30):
        t = qc.trace(result, i)
        value = t.quotient if t.summed is None else t.summed
        assert t.rounded in (np.floor(value), np.ceil(value))
        assert (t.shifted, t.overflow) == (t.code, None) or not -8 <= t.shifted <= 7
        ways.add(t.rounded > value)
    assert ways == {False, True}


DTYPES = (
    "coding_dtype=float16,decoding_dtype=bfloat16",
    "decoding_dtype=float16,value_dtype=bfloat16",
    "value_dtype=float16",
)


@in_parts(6)
@for_each("dtypes", DTYPES)
@for_each("fmt", ["nf4", "e4m3fn", "int4", "uint8 asymmetric"])
def test_roundings_to_a_narrow_dtype_are_those_of_the_result(fmt, dtypes, part):
    result = qc.apply(sample((4, 16)), qc.Scheme.parse(f"{fmt} per_group(8) textbook({dtypes})"))
    x_hat, roundings = result.dequantized, 0
    for index in part(np.ndindex(4, 16)):
        t = qc.trace(result, index)
        assert (t.code, t.dequantized) == (int(result.codes[index]), float(x_hat[index]))
        for step in t.steps():
            told = re.search(r"(\S+) → (\S+) in (b?float16)$", step.formula)
            if told and step.name != "1/s":
                narrow = torch.tensor(read(told[1])).to(getattr(torch, told[3])).item()
                assert narrow == read(told[2]) == read(step.value) != read(told[1])
                roundings += 1
    assert roundings > len(part(range(60)))


@for_each("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_zero_point_that_is_the_value_of_the_middle_code(dtype):
    """The steps end on the code and the value, and a zero point of 0 is not left out."""
    x = torch.tensor([[-8.0, 7, 0.4, -3], [1.0, 1.3, 1.1, 1.27], [-0.3, -0.1, -0.2, -0.17]]).to(dtype)
    result = qc.apply(x, "uint4 asymmetric per_channel(0) torchao.tinygemm")
    assert result.zero_point[0] == 0
    for at in itertools.product(range(3), range(4)):
        trace = qc.trace(result, at)
        assert trace.code == result.codes[at]
        steps = {step.name: step for step in trace.steps()}
        assert read(steps["code q (clamp)"].value) == result.codes[at]
        assert read(steps["dequantized x̂"].value) == result.dequantized[at]
        assert "low + s · middle = " in steps["zero point z"].formula


def test_given_zero_point_of_the_middle_code():
    """0 is the value of code 8 of uint4."""
    result = qc.apply(torch.tensor([0.0, 0.1, -0.8, 0.7]), "uint4 asymmetric given(0.1) torchao.tinygemm")
    assert result.codes.tolist() == [8, 9, 0, 15]
    assert "codes are round((x - (z - s · 8)) / s)" in qc.differences(result.scheme)


def test_findings_read_a_zero_point_as_the_value_of_the_middle_code():
    """With s = 1, z = 0 of uint4: the lowest value is -8, and 0.5 lies between codes 8 and 9."""
    result = qc.apply(torch.tensor([0.5, -3.0, -8.0, 7.0]), "uint4 asymmetric given(1) torchao.tinygemm")
    found = {finding.kind: finding for finding in qc.diagnose(result)}
    assert "negatives_lost" not in found
    assert found["ties"].facts["elements"] == 1
