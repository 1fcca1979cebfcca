"""Codebooks against the codes of real libraries, and against argmin and bucketize."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some
from places import GOLDEN

from quantcore import QuantError
from quantcore.formats.codebook import CODEBOOKS, CodebookFormat, powers_of_two, read_codebook
from quantcore.numerics.rounding import floor

with np.load(GOLDEN / "codebooks.npz", allow_pickle=False) as arrays:
    RECORDED = {key: arrays[key] for key in arrays}
OURS = {
    "bitsandbytes.nf4": "nf4",
    "bitsandbytes.fp4": "fp4_bitsandbytes",
    "torchao.nf4": "nf4_torchao",
    "gguf.MXFP4": "mxfp4_gguf",
    "gguf.TQ2_0": "ternary",
}
CASES = [key.removesuffix(".codes") for key in RECORDED if key.endswith(".codes")]
HARD = {
    "equal": CodebookFormat((1.0, 0.0, 0.0, -2.0, 1.0)),
    "unsorted": CodebookFormat((3.0, -1.0, 0.5, 0.25, -7.0)),
    "neighbours": CodebookFormat(
        (1.0, float(np.nextafter(np.float32(1), np.float32(2))), 1e-45, 0.0, -1e-45)
    ),
    "wide": CodebookFormat((-3e38, 1e-30, 3e38, 1.0)),
    "many": CodebookFormat(tuple(np.random.default_rng(0).standard_normal(256).tolist())),
    "seventeen": CodebookFormat(tuple(float(v) for v in range(17))),
    "log2_8": powers_of_two(8),
}
# one that does not take the nearest value is tested with the library, and here with a rule that does
NEAREST = {n: dataclasses.replace(book, tie="lower") if book.tie == "grid" else book for n, book in CODEBOOKS.items()}
ALL = {**NEAREST, **HARD}


def normalised(case):
    """The elements divided by their block's scale, in the library's own arithmetic."""
    library, name, x, block = case.split(".")
    x, block = RECORDED[f"x.{x}"], int(block)
    blocks = [x[start : start + block] for start in range(0, len(x), block)]
    scales = RECORDED.get(f"{case}.scale", [np.abs(b).max() for b in blocks])
    one, least = np.float32(1), np.float32(1e-38)
    for values, scale in zip(blocks, scales, strict=True):
        if library == "bitsandbytes":
            whole = len(values) == block
            yield np.clip(values * (one / max(scale, least)) if whole else values / scale, -1, 1)
        elif name == "TQ2_0":
            yield values * (one / scale if scale else np.float32(0))
        else:
            yield values / scale


@for_each("case", CASES)
def test_codes_are_the_library_s(case):
    fmt = CODEBOOKS[OURS[case.rsplit(".", 2)[0]]]
    found = np.concatenate([fmt.encode(values).numpy() for values in normalised(case)])
    assert np.array_equal(found, RECORDED[f"{case}.codes"])


@for_each("kind", ["bitsandbytes.nf4", "bitsandbytes.fp4", "torchao.nf4"])
def test_tables_are_the_library_s(kind):
    ours, theirs = CODEBOOKS[OURS[kind]].table.numpy(), RECORDED[f"{kind}.table"]
    assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))


def test_tables_as_their_sources_print_them():
    """llama.cpp's kvalues_iq4nl, gguf's kvalues of MXFP4, powers of two; and how each codebook breaks ties."""
    kvalues = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
    assert CODEBOOKS["iq4_nl"].table.tolist() == kvalues
    e2m1 = [0, 1, 2, 3, 4, 6, 8, 12]
    assert CODEBOOKS["mxfp4_gguf"].table.tolist() == [*e2m1, *(-v for v in e2m1)]
    assert CODEBOOKS["ternary"].table.tolist() == [-1, 0, 1]
    assert CODEBOOKS["binary"].table.tolist() == [-1, 1]
    for bits in range(2, 9):
        powers = [2.0**-k for k in range(2 ** (bits - 1) - 1)]
        assert powers_of_two(bits).values == (*(-p for p in powers), 0.0, *reversed(powers))
        assert read_codebook(f"log2_{bits}") == powers_of_two(bits)
    ties = {name: book.tie for name, book in CODEBOOKS.items() if book.tie != "lower"}
    away = dict.fromkeys(("ternary", "log2_3", "log2_4"), "away")
    first, upper = dict.fromkeys(("nf4_torchao", "mxfp4_gguf"), "first"), {"iq4_nl": "upper", "binary": "upper"}
    assert ties == first | upper | away | {"dynamic8": "grid"}


def near_ties(fmt):
    """Values and midpoints with their neighbors up to 8 float32 steps away, and some numbers between and beyond."""
    values = np.unique(fmt.table.numpy())
    middle = values[1:] / 2 + values[:-1] / 2
    base = np.concatenate([values, middle, np.float32([0, -0.0, 1e30, -1e30])]).astype(np.float32)
    found = [base]
    for end in (np.inf, -np.inf):
        step = base
        for _ in range(8):
            step = np.nextafter(step, np.float32(end))
            found.append(step)
    rng = np.random.default_rng(1)
    found.append(rng.uniform(max(values[0], -1e6), min(values[-1], 1e6), 3000).astype(np.float32))
    x = np.concatenate(found)
    return x[np.isfinite(x)]


@for_each("name", [*CODEBOOKS, "equal", "unsorted", "many", "seventeen"])
def test_first_is_argmin(name):
    """Only within the table: far beyond it, several values are at the same distance in float32."""
    fmt, x = dataclasses.replace(ALL[name], tie="first"), near_ties(ALL[name])
    x = x[(x >= min(fmt.values)) & (x <= max(fmt.values))]
    distance = np.abs(x[:, None] - fmt.table.numpy()[None, :])
    assert np.array_equal(fmt.encode(x).numpy(), distance.argmin(1))


@for_each("tie", ["lower", "upper"])
@for_each("name", some((name for name in ALL if name != "neighbours"), 2))
def test_lower_and_upper_are_bucketize(name, tie):
    fmt, x = dataclasses.replace(ALL[name], tie=tie), torch.from_numpy(near_ties(ALL[name]))
    x = torch.cat([x, torch.tensor([math.inf, -math.inf, math.nan])])
    values, order = fmt.table.sort(stable=True)
    middle = values[1:] / 2 + values[:-1] / 2
    assert torch.equal(fmt.encode(x).long(), order[torch.bucketize(x, middle, right=tie == "upper")])


@for_each("name", some(ALL, 2))
def test_away_mirrors(name):
    """For ties above 0 it equals "upper", below 0 "lower"."""
    fmt, x = dataclasses.replace(ALL[name], tie="away"), torch.from_numpy(near_ties(ALL[name]))
    values = fmt.table.sort().values
    middle = values[1:] / 2 + values[:-1] / 2
    for side, tie in ((x > 0, "upper"), (x < 0, "lower")):
        if (middle > 0).any() or tie == "lower":
            assert torch.equal(fmt.encode(x[side]), dataclasses.replace(fmt, tie=tie).encode(x[side]))


@for_each("name", ALL)
def test_values_stay(name):
    fmt = ALL[name]
    values = fmt.decode(torch.arange(fmt.available).to(fmt.dtype))
    assert torch.equal(values, fmt.table)
    assert torch.equal(fmt.decode(fmt.encode(values)), values)


@for_each("name", ALL)
def test_nothing_is_nearer(name):
    """In float64, the chosen value is farther than the nearest by at most the rounding of two midpoints."""
    fmt, x = ALL[name], near_ties(ALL[name])
    table = fmt.table.double().numpy()
    nearest = np.abs(x.astype(np.float64)[:, None] - table).min(1)
    chosen = np.abs(x.astype(np.float64) - table[fmt.encode(x).numpy()])
    slack = 2 * np.spacing(np.maximum(np.abs(x), np.float32(fmt.max)).astype(np.float32)).astype(np.float64)
    assert (chosen <= nearest + slack).all()


def test_on_a_grid_the_nearest_point_is_taken_first():
    """That is half of a step away, so no other value is nearer by more than a step, 2 / 65535; 0 lies between two points, and its own code is never used."""
    fmt, x = CODEBOOKS["dynamic8"], near_ties(ALL["dynamic8"])
    x = x[np.abs(x) <= 1]
    off = [np.abs(fmt.decode(book.encode(x)).double().numpy() - x) for book in (fmt, NEAREST["dynamic8"])]
    assert (off[0] <= off[1] + 2.001 / 65535).all()
    assert (off[0] > off[1]).any()
    assert fmt.encode([0.0]).item() == 131  # and 127 is that of 0
    assert fmt.encode([math.nan, math.inf, -math.inf]).tolist() == [0, 255, 0]


def test_equal_values_divide_what_lies_about_them():
    """bitsandbytes' FP4 has 0 twice: values above 0 get code 8, values below 0 and 0 itself get code 0."""
    x = torch.tensor([1e-30, 0.0, -0.0, -1e-30])
    assert CODEBOOKS["fp4_bitsandbytes"].encode(x).tolist() == [8, 0, 0, 0]
    assert CODEBOOKS["mxfp4_gguf"].encode(x).tolist() == [0, 0, 0, 0]


def test_nan_and_infinity():
    x = [math.nan, math.inf, -math.inf]
    assert CODEBOOKS["nf4"].encode(x).tolist() == [15, 15, 0]
    assert CODEBOOKS["mxfp4_gguf"].encode(x).tolist() == [0, 7, 15]


def test_facts():
    facts = {
        name: (book.bits, book.available, len(set(book.values)), book.max, book.qmin, book.qmax)
        for name, book in CODEBOOKS.items()
    }
    assert facts == {
        "nf4": (4, 16, 16, 1.0, 0, 15),
        "nf4_torchao": (4, 16, 16, 1.0, 0, 15),
        "fp4_bitsandbytes": (4, 16, 15, 1.0, 0, 15),
        "dynamic8": (8, 256, 256, 1.0, 0, 255),
        "iq4_nl": (4, 16, 16, 127.0, 0, 15),
        "mxfp4_gguf": (4, 16, 15, 12.0, 0, 15),
        "ternary": (2, 3, 3, 1.0, 0, 2),
        "binary": (1, 2, 2, 1.0, 0, 1),
        "log2_3": (3, 7, 7, 1.0, 0, 6),
        "log2_4": (4, 15, 15, 1.0, 0, 14),
    }


@for_each(
    ("least", "signed"),
    [(-1.0, True), (-1e-45, True), (0.0, False), (-0.0, False), (0.5, False), (1.0, False)],
)
def test_signed_is_below_zero(least, signed):
    assert CodebookFormat((2.0, least, 3.0)).signed == signed


def test_powers_of_two():
    assert powers_of_two(3).values == (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
    assert powers_of_two(8).values[128] == 2.0**-126
    assert [powers_of_two(3).round_value(x) for x in (0.75, 0.74, -0.75, 0.125, 9)] == [1, 0.5, -1, 0.25, 1]


def test_binary_is_the_sign():
    assert CODEBOOKS["binary"].decode(CODEBOOKS["binary"].encode([-3.0, -1e-9, 0.0, 2.0])).tolist() == [
        -1,
        -1,
        1,
        1,
    ]


def test_many_elements_are_as_few():
    fmt = CODEBOOKS["nf4"]
    x = torch.linspace(-1.2, 1.2, (1 << 19) + 7)
    assert torch.equal(fmt.encode(x), torch.cat([fmt.encode(part) for part in x.split(100_003)]))


@for_each("shape", [(), (0,), (2, 3, 4)])
@for_each("name", ["nf4", "many"])
def test_any_shape(name, shape):
    codes = ALL[name].encode(torch.zeros(shape))
    assert (codes.shape, codes.dtype) == (shape, torch.uint8)
    assert ALL[name].decode(codes).shape == shape


def test_buffers_are_written_in_place():
    x, codes, values = torch.randn(3, 50), torch.empty(3, 50, dtype=torch.uint8), torch.empty(3, 50)
    for name in ("nf4", "many"):
        fmt = ALL[name]
        assert fmt.encode_(x.clone(), codes).data_ptr() == codes.data_ptr()
        assert torch.equal(codes, fmt.encode(x))
        assert torch.equal(fmt.decode_(codes, values), fmt.decode(codes))


def test_other_roundings_are_refused():
    with pytest.raises(QuantError, match="nearest"):
        CODEBOOKS["nf4"].encode_(torch.zeros(2), torch.zeros(2, dtype=torch.uint8), floor)


@for_each("codes", [[-1], [16], [0.5], [True]])
def test_codes_that_are_none(codes):
    with pytest.raises(QuantError, match=r"[Cc]odes"):
        CODEBOOKS["nf4"].decode(codes)


@for_each("fmt", [
    *ALL.values(),
    *(dataclasses.replace(book, tie=tie) for book in (CODEBOOKS["nf4"], HARD["equal"]) for tie in ("lower", "upper", "away", "first")),
    CodebookFormat((1, 2), "nf4"), CodebookFormat((1, 2), "mine", "first"), powers_of_two(5),
], ids=str)  # fmt: skip
def test_text_reads_back(fmt):
    assert read_codebook(str(fmt)) == fmt


def test_texts():
    assert all(str(book) == name for name, book in CODEBOOKS.items())
    assert str(dataclasses.replace(CODEBOOKS["nf4"], tie="upper")) == "nf4(tie=upper)"
    assert str(CodebookFormat([1, 0.5], "mine")) == "codebook([1,0.5], name=mine)"
    assert read_codebook("int4") is None
    assert read_codebook("log2_9") is None


def test_values_of_tensors_and_arrays():
    expected = CodebookFormat((0.5, 0.25))
    assert CodebookFormat(torch.tensor([0.5, 0.25])) == CodebookFormat(np.array([0.5, 0.25])) == expected


@for_each(
    "word",
    ["codebook", "codebook(3)", "codebook([1])", "codebook([1,1])", "codebook([0,-0.0])", "codebook([1,true])", "codebook([1,[2]])",
     "codebook([1,1e39])", "codebook([1,2], tie=even)", "codebook([1,2], name=3)", "codebook([1,2], name=true)", "codebook([1,2], size=2)",
     "nf4(3)", "nf4(values=[1,2])", "nf4(tie=middle)", "nf4(", "codebook([" + "1,2," * 200 + "3])"],
)  # fmt: skip
def test_words_that_are_no_codebook(word):
    with pytest.raises(QuantError) as error:
        read_codebook(word)
    assert str(error.value).count(". ") == 0, "one sentence"


@for_each("bits", [1, 9, 2.5, None])
def test_powers_of_two_of_no_width(bits):
    with pytest.raises(QuantError, match="bits"):
        powers_of_two(bits)
