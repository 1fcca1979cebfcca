"""Pasted text: what is read, what is refused and where; there is no other outcome."""

import contextlib
import json
import random
import sys
from typing import Any

import numpy as np
import pytest
import torch
from bounded import in_seconds
from grid import for_each
from parts import in_parts

from quantcore.errors import QuantError
from quantcore.tensors import MAX_TEXT_CHARS, parse

MATRIX = [[1.0, 2.0], [3.0, 4.0]]


@for_each(
    ("text", "expected"),
    [
        ("1 2 3", [1, 2, 3]),
        ("1\n2\n3\n", [1, 2, 3]),
        ("5", [5]),
        ("1,2\n3,4", MATRIX),
        ("1, 2,\r\n3, 4,\r\n", MATRIX),
        ("1\t2\r3\t4", MATRIX),
        ("\t1 \t 2\n\t3\t4", MATRIX),
        ("1;2;\n3;4;", MATRIX),
        ("\n1 2\n\n\n3 4\n\n", MATRIX),
        ("\ufeff1\xa02", [1, 2]),
        ("1e-3 -.5 2. +1 −7 1E2", [1e-3, -0.5, 2, 1, -7, 100]),
        ("nan inf -inf Infinity", [np.nan, np.inf, -np.inf, np.inf]),
        ("1,5;2,5", [1.5, 2.5]),
        ("1,5 ; 2\n3;4,25", [[1.5, 2], [3, 4.25]]),
        ("1,5\t2,5\n-3,5\t4,5e1", [[1.5, 2.5], [-3.5, 45]]),
        ("1,5 2,5", [1.5, 2.5]),
        ("0,123 5,678", [0.123, 5.678]),
        ("1,5", [1, 5]),
        ("[1, 2, 3,]", [1, 2, 3]),
        ("(1.,)", [1]),
        ("((1, 2), (3, 4))", MATRIX),
        ("[1, 2]\n[3, 4]", MATRIX),
        ("[1, 2], [3, 4]", MATRIX),
        ("[[1. 2.]\n [3. 4.]]", MATRIX),
        ("[[[1], [2]]]", [[[1], [2]]]),
        ("[NaN, Infinity, -Infinity]", [np.nan, np.inf, -np.inf]),
        ("tensor(3.5000)", 3.5),
        ("np.float32(1.5)", 1.5),
        ("[np.float64(1.0), np.float64(2.0)]", [1, 2]),
        ("[tensor([1., 2.]), tensor([3., 4.])]", MATRIX),
        ("x = torch.tensor([[1., 2.], [3, 4]], dtype=torch.float32)", MATRIX),
        ("x: tensor([[1., 2.],\n   [3., 4.]], device='cuda:0', grad_fn=<AddBackward0>)", MATRIX),
        ("Parameter containing:\ntensor([1., 2.], requires_grad=True)", [1, 2]),
        ("QuantizedTensor([[1., 2.],\n [3., 4.]], grad_fn=<AliasBackward0>)", MATRIX),
        ("array([[1, 2],\n       [3, 4]], shape=(2, 2), dtype=int32)", MATRIX),
    ],
)
def test_reads(text: str, expected: object) -> None:
    result = parse(text)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.array(expected, dtype=np.float32), strict=True)


@for_each(
    ("text", "words"),
    [
        ("", ["no number"]),
        (" \n\t ", ["no number"]),
        ("[]", ["empty", "column 2"]),
        ("tensor([], size=(2, 0))", ["empty", "column 9"]),
        ("1 2\n3 abc", ["'abc'", "line 2, column 3"]),
        ("1 2\n3 0x1F", ["'0x1F'", "line 2, column 3"]),
        ("1_000 2", ["'1_000'", "line 1, column 1"]),
        ("2 ١", ["'١'", "line 1, column 3"]),
        ("1 e", ["'e'", "column 3"]),
        ("1 2024-01-01", ["'2024-01-01'", "column 3"]),
        ("[1-2]", ["'1-2'", "column 2"]),
        ("[1.+2.j]", ["'1.+2.j'"]),
        ("[True, False]", ["'True'", "column 2"]),
        ("[1, null]", ["'null'", "column 5"]),
        ("1 " + "x" * 500, ["'" + "x" * 29 + "…'"]),
        ("1 2\n\n3 4 5", ["Line 3 has 3 numbers", "line 1 has 2"]),
        ("1 2\n3", ["Line 2 has 1 number,"]),
        ("[[1, 2], [3]]", ["Row [1]", "column 12", "length 1", "length 2"]),
        ("[[[1], [2]], [[3]]]", ["Row [1]", "length 1", "length 2"]),
        ("[[[1, 2], [3]]]", ["Row [0][1]", "length 1"]),
        ("[1, 2]\n[3]", ["Row [1]", "line 2, column 3"]),
        ("[[1, 2], 3]", ["'3'", "column 10", "depth 1", "depth 2"]),
        ("[1, [2]]", ["'['", "column 5", "depth 2", "depth 1"]),
        ("[1, 2", ["'['", "line 1, column 1", "never closed"]),
        ("tensor([1, 2]", ["'('", "never closed"]),
        ("[1, 2)", ["'['", "column 1", "')'", "column 6"]),
        ("tensor([1, 2]]", ["'('", "closed by ']'", "column 14"]),
        ("[1, 2]]", ["']'", "column 7", "no opening bracket"]),
        ("[" * 20_000, ["nested", "16", "column 17"]),
        ("[1,,2]", ["missing", "column 4"]),
        ("[,1]", ["missing", "column 2"]),
        ("1,,2", ["missing", "column 3"]),
        ("1;;2", ["missing", "column 3"]),
        (",1", ["missing", "column 1"]),
        ("1\t\t2", ["missing", "column 3"]),
        ("1,2\n3,4\n5, ,6", ["missing", "line 3, column 4"]),
        ("[1, 2 3]", ["'3'", "column 7", "space", "comma"]),
        ("[1 2; 3 4]", ["';'", "column 5", "[[1, 2], [3, 4]]"]),
        ("1 2; 3 4", ["semicolons and spaces", "ambiguous"]),
        ("1.5,2 3", ["commas and spaces", "ambiguous"]),
        ("1 2,5 3", ["commas and spaces", "ambiguous"]),
        ("1,2,3;4,5,6", ["commas and semicolons", "ambiguous"]),
        ("1,5; 2,5 3,5", ["commas, semicolons and spaces"]),
        ("1,234 5,678", ["'1,234'", "column 1", "thousand"]),
        ("1,234;5,678", ["'1,234'", "thousand"]),
        ("tensor([1., ..., 3.])", ["'...'", "column 13", 'profile="full"', ".npy"]),
        ("[1 … 3]", ["'…'", "column 4", "threshold"]),
        ("1 ... 3", ["'...'", "column 3", "threshold"]),
        ("1e-03 *\n1 2", ["'*'", "factor", "line 1, column 7"]),
        ("tensor(1.0000e-03 * [[1, 2]])", ["'*'", "factor"]),
        ("1 2\n3 3.5e38", ["'3.5e38'", "line 2, column 3", "3.4e38"]),
        ("[inf, -1e999]", ["'-1e999'", "column 7"]),
        ("torch.full((2, 2), 7.)", ["'torch.full('"]),
        ("torch.Tensor(2, 3)", ["one tensor", "brackets"]),
        ("array([1, 2], dtype=float32), 3", ["'3'", "column 31", "follows"]),
    ],
)
def test_refuses(text: str, words: list[str]) -> None:
    with pytest.raises(QuantError) as caught:
        parse(text)
    message = str(caught.value)
    assert [w for w in words if w not in message] == [], message
    assert len(message) < 400


@for_each("shape", [(7,), (3, 5), (2, 3, 4), (1, 1), (2, 1, 3, 2), (3, 60)])
@for_each("scale", [1e-6, 1.0, 1e7])
def test_prints_round_trip(shape: tuple[int, ...], scale: float) -> None:
    x = (np.random.default_rng(len(shape)).standard_normal(shape) * scale).astype(np.float32)
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        for text in (str(x), repr(x), json.dumps(x.tolist()), repr(tuple(x.tolist()))):
            np.testing.assert_array_equal(parse(text), x, strict=True)
    torch.set_printoptions(precision=10, threshold=sys.maxsize)
    try:
        for sci in (True, False):
            torch.set_printoptions(precision=10, threshold=sys.maxsize, sci_mode=sci)
            tolerance = 1e-10 * max(1.0, abs(x).max()) + 1e-7 * abs(x)
            assert (np.abs(parse(str(torch.tensor(x))) - x) <= tolerance).all()
        assert parse(repr(torch.nn.Parameter(torch.tensor(x)))).shape == shape
    finally:
        torch.set_printoptions(profile="default")


@for_each("separator", [",", ", ", ";", "\t", " ", "   "])
def test_rows_round_trip(separator: str) -> None:
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    rows = [separator.join(map(str, row)) for row in x.tolist()]
    np.testing.assert_array_equal(parse("\n".join(rows)), x, strict=True)
    if separator.strip() != ",":
        np.testing.assert_array_equal(parse("\n".join(rows).replace(".", ",")), x, strict=True)


def test_print_of_a_large_tensor_is_refused() -> None:
    for text in (str(torch.zeros(5000)), repr(np.zeros(5000)), str(np.zeros((100, 100)))):
        with pytest.raises(QuantError, match="omits numbers"):
            parse(text)


def test_too_long_is_refused_before_reading() -> None:
    with in_seconds(5), pytest.raises(QuantError, match=r"10,000,000 characters.*2,000,000.*\.npy"):
        parse("1 " * 5_000_000)
    assert parse("1 " * 5, limit=10).shape == (5,)
    with pytest.raises(QuantError, match="11 characters"):
        parse("1 " * 5 + "1", limit=10)


@for_each(
    "unit",
    [
        "1 ",
        "1,",
        "[1],",
        "1\t",
        "1\n",
        "tensor(",
        "a=(",
        "1e",
        "1.",
        "x",
        "[a='",
        "1,5 ",
        ";1",
        "-",
        "(",
        "1 ,",
        " ",
    ],
)
def test_time_is_linear(unit: str) -> None:
    """Texts of a 400th of the maximum length; the slow test of long texts uses all of it."""
    length = MAX_TEXT_CHARS // 400
    text = (unit * length)[:length]
    with in_seconds(2):
        for variant in (text, text[:-1] + "@"):
            with contextlib.suppress(QuantError):
                parse(variant)
        # CPU seconds of this process; quadratic parsers take minutes, and the margin is for slow machines


@pytest.mark.slow  # that the time is linear is tested with shorter texts
def test_a_megabyte_is_read_quickly() -> None:
    x = np.random.default_rng(0).standard_normal((80, 1000)).astype(np.float32)
    for text in (str(x.tolist()), "\n".join(" ".join(map(str, row)) for row in x.tolist())):
        assert len(text) > 10**6
        with in_seconds(10):
            np.testing.assert_array_equal(parse(text), x)


SEEDS = [
    "tensor([[1.5, -2e-3], [nan, 4.]], dtype=torch.float32, device='cuda:0')",
    "[[1. 2.]\n [3. 4.]]",
    "1,5;2,5\n3;4",
    "1 2 3\n4 5 6",
    "x = np.array([(1, 2), (3, 4)])",
    "1\t2\n3\t4",
]


@in_parts(8)
def test_fuzz(part: Any) -> None:
    rng = random.Random(0)
    alphabet = "0123456789+-.eE,;[]()\n\t \xa0 nNaAiIfFtTjx_*=<>'\"\\{}…−١\u2028\x00\ud800"
    outcomes, longest = {"read": 0, "refused": 0}, 0
    for _ in part(range(6000)):
        chars = list(rng.choice(SEEDS))
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(chars) + 1)
            chars[at : at + rng.randint(0, 2)] = rng.choices(alphabet, k=rng.randint(0, 3))
        text = "".join(chars)
        try:
            result = parse(text)
        except QuantError as error:
            outcomes["refused"] += 1
            longest = max(longest, len(str(error)))
        else:
            outcomes["read"] += 1
            assert result.dtype == np.float32
            assert result.size > 0
    assert min(outcomes.values()) > len(part(range(300)))
    assert longest < 400
