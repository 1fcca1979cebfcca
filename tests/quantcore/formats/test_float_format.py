"""Every code and every rounding of small floats, against ml_dtypes, torch and gfloat."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some
from places import GOLDEN

from quantcore import QuantError, parse_format
from quantcore.formats import float_codec as float_codes
from quantcore.formats.floating_point import FLOATS, FloatFormat, read_float

HAND = {
    "e4m3b11fnuz": FloatFormat(4, 3, 11, nan="negative_zero"),
    "e4m3": FloatFormat(4, 3, infinities=True, nan="ieee"),
}
NAMED = {**FLOATS, **HAND}
RECORDED = {"e8m0": "e8m0fnu", "e2m3": "e2m3fn", "e3m2": "e3m2fn", "e2m1": "e2m1fn"}
TORCH = {
    "e4m3fn": (torch.float8_e4m3fn, {}),
    "e5m2": (torch.float8_e5m2, {"saturate": False}),
    "e4m3fnuz": (torch.float8_e4m3fnuz, {"saturate": False}),
    "e5m2fnuz": (torch.float8_e5m2fnuz, {"saturate": False}),
    "e8m0": (torch.float8_e8m0fnu, {"saturate": False, "sign": "dropped"}),
    "fp16": (torch.float16, {"saturate": False}),
    "bf16": (torch.bfloat16, {"saturate": False}),
}


def golden(name):
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays}


FLOAT_CASES, ROUNDING_CASES = golden("floats"), golden("float_roundings")
in_floats = [name for name in NAMED if f"decode.{RECORDED.get(name, name)}" in FLOAT_CASES]


def recorded_by(library):
    return [name for name in in_floats if f"encode.{RECORDED.get(name, name)}.{library}" in FLOAT_CASES]


def without_saturation(fmt):
    return fmt if fmt.nan == "none" else dataclasses.replace(fmt, saturate=False)


def same_codes(fmt, ours, theirs):
    """Whether codes are equal, or both are codes of NaN."""
    table = fmt.table.numpy()
    ours, theirs = (np.asarray(codes).astype(np.int64) for codes in (ours, theirs))
    return (ours == theirs) | (np.isnan(table[ours]) & np.isnan(table[theirs]))


@for_each("name", in_floats)
def test_every_code_decoded(name):
    fmt, expected = NAMED[name], FLOAT_CASES[f"decode.{RECORDED.get(name, name)}"]
    codes = torch.arange(fmt.available).to(fmt.dtype)
    found = fmt.decode(codes).numpy()
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    number = ~np.isnan(expected)
    assert np.array_equal(found.view(np.uint32)[number], expected.view(np.uint32)[number]), "sign of 0 too"


def probes(name, library):
    key = f"encode.{RECORDED.get(name, name)}."
    return FLOAT_CASES[key + "x"], FLOAT_CASES[key + library]


@for_each("name", recorded_by("ml_dtypes"))
def test_encode_is_that_of_ml_dtypes(name):
    fmt = without_saturation(NAMED[name])
    x, expected = probes(name, "ml_dtypes")
    assert same_codes(fmt, fmt.encode(x), expected).all()


@for_each("name", recorded_by("torch"))
def test_encode_is_that_of_torch(name):
    x, expected = probes(name, "torch")
    fmt = dataclasses.replace(NAMED[name], **TORCH[name][1])
    assert same_codes(fmt, fmt.encode(x), expected).all()


@for_each("saturate", [False, True])
@for_each("name", recorded_by("gfloat"))
def test_encode_is_that_of_gfloat(name, saturate):
    """Except for NaN without a code and overflow without a result, which gfloat refuses; and except in e8m0.

    At e8m0's ties, ml_dtypes and torch round up, and so do we. They round tiny numbers to the smallest one, where
    gfloat gives NaN; and when it saturates, gfloat gives -infinity the largest number.
    """
    x, expected = probes(name, "gfloat_sat" if saturate else "gfloat")
    fmt = NAMED[name] if saturate else without_saturation(NAMED[name])
    refused = (expected == 0xEE) & (fmt.bits < 8)
    assert (np.isnan(x) | ((np.abs(x) > fmt.max) & (not saturate)))[refused].all()
    found = fmt.encode(x).numpy()
    same = same_codes(fmt, found, np.where(refused, found, expected))
    if name != "e8m0":
        assert same.all()
        return
    mantissa = x.view(np.uint32) & 0x7FFFFF
    tie = ((mantissa == 0x400000) & (x >= 2.0**-126)) | (x == np.float32(1.5 * 2.0**-127))
    up = tie | ((x > 2.0**-127) & (x < 1.5 * 2.0**-127))
    assert set((found.astype(int) - expected)[up & ~same]) == {1}
    assert set(x[~same & ~up]) <= {np.float32(1e-45), np.float32(-np.inf)}


@for_each("case", [key for key in ROUNDING_CASES if not key.endswith(".x")])
def test_every_rounding_is_that_of_gfloat(case):
    name, rule, beyond = case.split(".")
    fmt = FLOATS[name] if beyond == "saturate" else without_saturation(FLOATS[name])
    found = fmt.encode(ROUNDING_CASES[f"{name}.x"], rule)
    wrong = ~same_codes(fmt, found, ROUNDING_CASES[case])
    assert not wrong.any(), (ROUNDING_CASES[f"{name}.x"][wrong][:5], found.numpy()[wrong][:5])


def test_values_are_the_numbers_of_all_codes_and_the_callers_own():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    expected = np.unique(every[np.isfinite(every)])
    FLOATS["fp16"].values.fill_(7.0)  # what a caller does with them changes them for nobody else
    np.testing.assert_array_equal(FLOATS["fp16"].values.numpy(), expected)
    assert FLOATS["e2m1"].values.tolist() == [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]


def every_upper_half():
    """All 65,536 upper halves of a float32, each with six lower halves: all ties with up to 7 mantissa bits."""
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=np.uint32)
    upper = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    return torch.from_numpy((upper | lower).reshape(-1).view(np.float32))


ML_DTYPES = {
    "e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2", "e4m3fnuz": "float8_e4m3fnuz", "e5m2fnuz": "float8_e5m2fnuz",
    "e3m4": "float8_e3m4", "e2m3": "float6_e2m3fn", "e3m2": "float6_e3m2fn", "e2m1": "float4_e2m1fn",
    "e8m0": "float8_e8m0fnu", "bf16": "bfloat16", "e4m3b11fnuz": "float8_e4m3b11fnuz", "e4m3": "float8_e4m3",
}  # fmt: skip


@for_each("name", ML_DTYPES)
def test_ml_dtypes_over_all_of_float32(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    fmt, x = without_saturation(NAMED[name]), every_upper_half()
    with np.errstate(invalid="ignore", over="ignore"):
        theirs = x.numpy().astype(getattr(ml_dtypes, ML_DTYPES[name]))
    bits = theirs.view(np.uint16 if fmt.bits == 16 else np.uint8)
    wrong = ~same_codes(fmt, fmt.encode(x), bits & fmt.qmax)
    if fmt.nan == "none":  # ml_dtypes gives +0 for a NaN with its sign bit set
        wrong &= ~(np.isnan(x.numpy()) & np.signbit(x.numpy()))
    assert not wrong.any(), (x.numpy()[wrong][:5], bits[wrong][:5])


OWN = (
    "float(3,2)", "float(2,3)", "float(3,3)", "float(4,2)", "float(1,3)", "float(2,2)", "float(2,1)", "float(3,2,bias=9)",
    "float(2,3,bias=30)", "float(3,2,nan=all_ones)", "float(3,2,infinities=true,nan=ieee)", "float(3,3,infinities=true)",
    "float(3,2,subnormals=false)", "float(2,3,subnormals=false)", "float(3,2,sign=dropped)", "float(2,3,sign=dropped)",
    "float(3,2,nan=negative_zero)", "float(4,3,bias=8)", "float(5,2)", "float(4,3)",
    "float(3,2,nan=all_ones,saturate=false)", "float(3,2,infinities=true,saturate=false)",
)  # fmt: skip


@for_each("text", OWN)
def test_formats_of_one_s_own_take_the_nearest(text):
    """Compared with a search of the table, for numbers and their neighbors in float32; ties go to the even code."""
    fmt = parse_format(text)
    table = fmt.table.numpy().astype(np.float64)
    codes = np.flatnonzero(np.isfinite(table) & ~np.signbit(table))
    values = table[codes]
    assert (np.diff(values) > 0).all()
    middles = (values[1:] + values[:-1]) / 2
    seeds = np.concatenate([values, middles, [0.0, values[-1] * 1.5, values[0] / 3]]).astype(np.float32)
    x = np.unique(np.concatenate([seeds, *(np.nextafter(seeds, np.float32(end)) for end in (0, np.inf))]))
    distance = np.abs(x[:, None].astype(np.float64) - values)
    # of two equally near, the even one; their codes differ by 1
    nearest = codes[np.lexsort((codes % 2 + 0 * distance, distance))[:, 0]]
    if not fmt.saturate:  # up to half a step beyond the largest becomes the largest
        inside = x <= values[-1] + (values[-1] - values[-2]) / 2
        assert not fmt.decode(fmt.encode(x[~inside])).isfinite().any()
        x, nearest = x[inside], nearest[inside]
    assert np.array_equal(fmt.encode(x).numpy(), nearest)
    signed = np.where((fmt.nan == "negative_zero") & (nearest == 0), 0, nearest | fmt.sign_bit)
    assert np.array_equal(fmt.encode(-x).numpy(), signed)


@for_each("name", ["fp16", "bf16", "e5m2", "e4m3fn"])
def test_torch_over_all_of_float32(name):
    dtype, choice = TORCH[name]
    fmt = dataclasses.replace(FLOATS[name], **choice)
    x = every_upper_half()
    if name == "fp16":  # its ties also depend on the lower half
        halves = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
        halves = halves[halves.isfinite()].unique()
        middle = (halves[1:] + halves[:-1]) / 2
        x = torch.cat([x, middle, *(torch.nextafter(middle, torch.tensor(end)) for end in (9e9, -9e9))])
    theirs = x.to(dtype)
    if name == "e4m3fn":  # whether the cast saturates depends on torch's version
        inside = ~(x.abs() > fmt.max)
        x, theirs = x[inside], theirs[inside]
    bits = theirs.view(torch.int16 if fmt.bits == 16 else torch.uint8).to(torch.int32) & fmt.qmax
    assert same_codes(fmt, fmt.encode(x), bits).all()


@for_each("rule", ["half_even", "half_away", "half_up", "floor", "ceil", "toward_zero", "stochastic"])
@for_each("name", NAMED)
def test_what_the_format_has_stays(name, rule):
    fmt = NAMED[name]
    codes = torch.arange(fmt.available)
    codes = codes[fmt.table.isfinite()].to(fmt.dtype)
    assert torch.equal(fmt.encode(fmt.decode(codes), rule), codes)


@for_each("name", some(NAMED, 3))
def test_stochastic_takes_a_neighbour_and_is_unbiased(name):
    """As for integers: Hoeffding's bound at one failure in 10^12, in steps of the format."""
    fmt, n = NAMED[name], 1 << 16
    values = fmt.values.double()
    values = values[(values >= 2.0**-100) & (values < 2.0**100)]  # float64 means of float32 products
    for k in (0, len(values) // 2, len(values) - 2):
        low, high = values[k].item(), values[k + 1].item()
        x = np.float32(low + (high - low) * 0.3)
        drawn = fmt.decode(fmt.encode(torch.full((n,), float(x)), "stochastic_3")).double()
        assert set(drawn.tolist()) == {low, high}
        bound = (math.sqrt(math.log(2e12) / (2 * n)) + 2**-24) * (high - low)
        assert abs(drawn.mean().item() - float(x)) < bound


def test_nan_without_a_pattern_is_minus_zero():
    assert [FLOATS[name].encode(math.nan).item() for name in ("e2m1", "e2m3", "e3m2")] == [8, 32, 32]


def test_infinity():
    x = [math.inf, -math.inf]
    assert FLOATS["e5m2"].decode(FLOATS["e5m2"].encode(x)).tolist() == [57344, -57344]
    assert without_saturation(FLOATS["e5m2"]).encode(x, "toward_zero").tolist() == [0x7C, 0xFC]
    assert FLOATS["e2m1"].encode(x).tolist() == [7, 15]


@for_each("rule", ["half_even", "half_away", "floor", "toward_zero", "stochastic"])
def test_without_zero_the_smallest_takes_its_place(rule):
    drops = dataclasses.replace(FLOATS["e8m0"], sign="dropped")
    assert drops.encode([0.0, 1e-45, 2.0**-128, 2.0**-127], rule).tolist() == [0, 0, 0, 0]
    signed = FloatFormat(4, 3, subnormals=False)
    assert signed.values[signed.values > 0].min() == signed.min == 2.0**-7
    assert signed.decode(signed.encode([0.0, -0.0, 1e-9], "toward_zero")).tolist() == [
        2.0**-7,
        -(2.0**-7),
        2.0**-7,
    ]


def test_signs_that_there_are_not():
    refuses = FloatFormat(4, 3, nan="all_ones", sign="nan")
    drops = dataclasses.replace(refuses, sign="dropped")
    x = [-1.0, -0.0, 0.0, 1.0, -1e9, math.nan]
    assert refuses.bits == drops.bits == 7
    assert refuses.encode(x).tolist() == [0x7F, 0, 0, 0x38, 0x7F, 0x7F]
    assert drops.encode(x).tolist() == [0x38, 0, 0, 0x38, 0x7E, 0x7F]
    zero = [0.0, -0.0, -2.0]
    assert FLOATS["e8m0"].encode(zero).tolist() == [255, 255, 255]
    assert dataclasses.replace(FLOATS["e8m0"], sign="dropped").encode(zero).tolist() == [0, 0, 128]


@for_each(
    ("name", "bits", "largest", "normal", "smallest", "epsilon", "count"),
    [
        ("e4m3fn", 8, 448, 2**-6, 2**-9, 2**-3, 253),
        ("e4m3fnuz", 8, 240, 2**-7, 2**-10, 2**-3, 255),
        ("e5m2", 8, 57344, 2**-14, 2**-16, 2**-2, 247),
        ("e5m2fnuz", 8, 57344, 2**-15, 2**-17, 2**-2, 255),
        ("e3m4", 8, 15.5, 2**-2, 2**-6, 2**-4, 223),
        ("e2m3", 6, 7.5, 1, 2**-3, 2**-3, 63),
        ("e3m2", 6, 28, 2**-2, 2**-4, 2**-2, 63),
        ("e2m1", 4, 6, 1, 0.5, 0.5, 15),
        ("e8m0", 8, 2.0**127, 2**-127, 2**-127, 1, 255),
        ("fp16", 16, 65504, 2**-14, 2**-24, 2**-10, 63487),
        ("bf16", 16, torch.finfo(torch.bfloat16).max, 2**-126, 2**-133, 2**-7, 65279),
    ],
)  # fmt: skip
def test_facts(name, bits, largest, normal, smallest, epsilon, count):
    fmt = FLOATS[name]
    facts = (fmt.bits, fmt.max, fmt.min, fmt.values[fmt.values > 0].min(), fmt.epsilon, len(fmt.values))
    assert facts == (bits, largest, normal, smallest, epsilon, count)
    assert fmt.values.dtype == torch.float32
    assert (fmt.values.diff() > 0).all()
    assert torch.iinfo(fmt.dtype).max >= fmt.qmax


@for_each(
    ("name", "code", "expected"),
    [
        ("e4m3fn", 0b0_0111_000, (0, 7, 0, 1.0, "normal")),
        ("e4m3fn", 0b1_0000_001, (1, 0, 1, -(2.0**-9), "subnormal")),
        ("e4m3fn", 0b1_0000_000, (1, 0, 0, 0.0, "zero")),
        ("e5m2", 0b1_11111_00, (1, 31, 0, -math.inf, "infinity")),
        ("e8m0", 0, (None, 0, 0, 2.0**-127, "normal")),
        ("e2m1", 0b0_11_1, (0, 3, 1, 6.0, "normal")),
    ],
)
def test_fields(name, code, expected):
    assert dataclasses.astuple(FLOATS[name].fields(code)) == expected


def test_fields_of_nan():
    for name, code in (("e4m3fn", 0x7F), ("e4m3fnuz", 0x80), ("e5m2", 0xFE), ("e8m0", 0xFF)):
        found = FLOATS[name].fields(code)
        assert (found.kind, math.isnan(found.value)) == ("nan", True)


@for_each("code", [-1, 256, 1.5, None])
def test_fields_of_no_code(code):
    with pytest.raises(QuantError, match="code"):
        FLOATS["e4m3fn"].fields(code)


def test_round_value():
    assert [FLOATS["e2m1"].round_value(2.5, rule) for rule in ("half_even", "half_away", "floor")] == [
        2,
        3,
        2,
    ]


def test_buffers_are_written_in_place():
    fmt = FLOATS["e4m3fn"]
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    codes, values = torch.empty(3, 40, dtype=torch.uint8), torch.empty(3, 40)
    assert fmt.encode_(x.clone(), codes).data_ptr() == codes.data_ptr()
    assert torch.equal(codes, fmt.encode(x))
    assert fmt.decode_(codes, values).data_ptr() == values.data_ptr()
    assert torch.equal(values, fmt.decode(codes))


def test_many_elements_are_as_few():
    fmt = FLOATS["e4m3fn"]
    x = torch.linspace(-500, 500, (1 << 19) + 7)
    x[5], x[-3] = math.nan, math.inf
    assert torch.equal(fmt.encode(x), torch.cat([fmt.encode(part) for part in x.split(100_003)]))
    before = x.clone()
    fmt.encode(x)
    assert torch.equal(x.nan_to_num(7), before.nan_to_num(7)), "x must not change"


@for_each("shape", [(), (0,), (3, 0), (2, 3, 4)])
def test_any_shape(shape):
    codes = FLOATS["e2m1"].encode(torch.ones(shape))
    assert codes.shape == shape
    assert torch.equal(FLOATS["e2m1"].decode(codes), torch.ones(shape))


def test_codes_that_are_none():
    for codes in ([-1], [16], [1.5], [True]):
        with pytest.raises(QuantError, match=r"[Cc]odes"):
            FLOATS["e2m1"].decode(codes)


@for_each("fmt", [*NAMED.values(), *(
    dataclasses.replace(fmt, **change)
    for fmt in (FLOATS["e4m3fn"], FLOATS["e8m0"])
    for change in ({"saturate": False}, {"sign": "dropped"}, {"sign": "dropped", "saturate": False}, {"sign": "nan"})
), FloatFormat(5, 2, 16, True, "negative_zero"), FloatFormat(1, 2), FloatFormat(4, 0)], ids=str)  # fmt: skip
def test_text_reads_back(fmt):
    assert read_float(str(fmt)) == fmt


def test_texts():
    assert all(str(fmt) == name for name, fmt in FLOATS.items())
    assert str(dataclasses.replace(FLOATS["e5m2"], saturate=False)) == "e5m2(saturate=False)"
    assert str(FloatFormat(4, 3, nan="all_ones")) == "e4m3fn"
    assert str(HAND["e4m3b11fnuz"]) == "float(4, 3, bias=11, nan=negative_zero)"
    assert read_float("float(5, 2, bias=15, infinities=true, nan=ieee)") == FLOATS["e5m2"]
    assert read_float("int8") is None


@for_each(
    "word",
    ["float", "float(9, 1)", "float(4, 13)", "float(0, 3)", "float(4, -1)", "float(4.5, 3)", "float(4, 3, bias=140)",
     "float(4, 3, bias=-9)", "float(8, 7)", "float(8, 3, nan=ieee)", "float(5, 2, nan=ieee)", "float(4, 0, infinities=true, nan=ieee)",
     "float(4, 3, nan=maybe)", "float(4, 3, sign=nan)", "float(4, 3, sign=no)", "float(4, 3, saturate=False)",
     "float(4, 3, saturate=2)", "float(4, 3, nan=negative_zero, sign=dropped)", "float(4, 3, size=3)", "float(4, 3, nan=true)",
     "e4m3fn(nan=none)", "e4m3fn(3)", "e4m3fn(saturate=maybe)", "e4m3fn(", "e2m1(saturate=False)",
     "float(1, 0, infinities=true)", "float(8, 3, bias=127, nan=all_ones, subnormals=False)", "float(4, 3, bias=1e400)"],
)  # fmt: skip
def test_words_that_are_no_float(word):
    with pytest.raises(QuantError) as error:
        read_float(word)
    assert str(error.value).count(". ") == 0, "must be one sentence"


EVERY = [
    *NAMED.values(),
    *(without_saturation(fmt) for fmt in NAMED.values()),
    *(parse_format(text) for text in OWN),
]


@for_each("fmt", EVERY, ids=str)
def test_which_formats_torch_casts_to(fmt):
    """e4m3fn, e5m2, and saturating formats with as many mantissa and fewer exponent bits: three times as fast."""
    plain = fmt.saturate and fmt.subnormals and fmt.sign == "bit" and fmt.nan != "negative_zero"
    widest = {3: 4, 2: 5}.get(fmt.mantissa, 0)
    fast = fmt in (FLOATS["e4m3fn"], FLOATS["e5m2"]) or (plain and fmt.exponent < widest)
    x = torch.tensor([0.25, -1.0, 1e9, -0.0])
    assert float_codes._cast(x.clone(), torch.empty(4, dtype=fmt.dtype), fmt) == fast
    x[2] = math.nan
    assert not float_codes._cast(x, torch.empty(4, dtype=fmt.dtype), fmt)


@for_each("fmt", EVERY, ids=str)
def test_which_numbers_need_a_second_look(fmt):
    """Those that become neither a finite code nor the largest one; saturating numbers are clamped right away."""
    most = fmt.max
    beyond = float(np.nextafter(np.float32(most), np.float32(np.inf)))
    refuses = fmt.sign == "nan"
    for numbers, second in (
        ([most, most / 2], False),
        ([most, beyond], not fmt.saturate),
        ([most, math.inf], not fmt.saturate),
        ([most, math.nan], True),
        ([0.0, most], refuses and not fmt.subnormals),
        ([-most, most], refuses),
        ([-beyond, most], refuses or (fmt.sign == "bit" and not fmt.saturate)),
    ):
        work = torch.tensor(numbers)
        if fmt.sign == "dropped":
            work = work.abs()
            second = (not fmt.saturate and bool((work > most).any())) or bool(work.isnan().any())
        clamped = work.clamp(-most, most)
        assert float_codes._has_nonfinite(work, fmt) == second, numbers
        if not second:
            assert torch.equal(work, clamped)


def codes_of_sums(x, fmt, even):
    """microxcaling's codes: magnitudes in steps of their exponent, plus ½ in float32, truncated and saturated."""
    size = np.abs(x)
    exponent = np.maximum(np.frexp(np.maximum(size, np.float32(2.0**-126)))[1] - 1, 1 - fmt.bias)
    step = np.ldexp(np.float32(1), exponent - fmt.mantissa).astype(np.float32)
    steps = size / step
    total = np.floor(steps + np.float32(0.5))
    if even:  # ties go to even
        total -= np.remainder(steps - np.float32(0.5), np.float32(2)) == 0
    values = np.minimum(total * step, np.float32(fmt.max))
    codes = np.searchsorted(fmt.table[: fmt.top + 1].numpy(), values)
    assert np.array_equal(fmt.table.numpy()[codes], values)
    return codes | np.where(np.signbit(x), fmt.sign_bit, 0)


@for_each("rule", ["half_even_of_sum", "half_away_of_sum"])
@for_each("name", ["e2m1", "e2m3", "e3m2", "e4m3fn", "e5m2"])
def test_sums_are_microxcaling_s(name, rule):
    fmt = FLOATS[name]
    values = fmt.values.numpy()
    seeds = np.concatenate([values, (values[1:] + values[:-1]) / 2, [fmt.max * 1.5]]).astype(np.float32)
    near = np.concatenate([seeds, *(np.nextafter(seeds, np.float32(end)) for end in (-np.inf, np.inf))])
    below_half = np.float32((0.5 - 2.0**-25) * values[values > 0].min())  # the sum rounds it up
    for x in (
        near[np.abs(near) != below_half],
        np.float32([below_half, 1.0]),
        np.float32([-below_half, 0.0]),
    ):
        expected = codes_of_sums(x, fmt, rule == "half_even_of_sum")
        assert np.array_equal(fmt.encode(x, rule).numpy(), expected)
    assert fmt.encode([below_half], rule).item() == 1
    assert fmt.encode([below_half], rule.removesuffix("_of_sum")).item() == 0


@for_each("fmt", [*NAMED.values(), *(parse_format(text) for text in OWN)], ids=str)
def test_reach_is_half_a_step_beyond_the_largest(fmt):
    values = fmt.values.double()
    step = (values[-1] - values[-2]).item()
    if (
        fmt.mantissa == 0 or fmt.top & ((1 << fmt.mantissa) - 1) == 0
    ):  # below a power of two, steps are half as long
        step *= 2
    assert fmt.reach == values[-1].item() + step / 2


def test_a_bias_is_written_where_it_is_not_the_usual_one():
    for exponent in range(1, 8):
        usual = 2 ** (exponent - 1) - 1
        for bias in range(max(usual - 1, 0), usual + 3):
            fmt = FloatFormat(exponent, 4, bias)
            given = "" if bias == usual else f", bias={bias}"
            assert str(fmt) in (f"float({exponent}, 4{given})", "e3m4")
