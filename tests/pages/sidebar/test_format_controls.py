"""The format controls of the sidebar without a browser: codebooks, fitted codebooks, rounding and its seed."""

import re

import numpy as np
import pytest
from app_page import said
from grid import for_each
from parts import some

import quantcore as qc
from tests.pages.explore.test_explore import (
    assert_codes,
    assert_one_sentence,
    change,
    drawn,
    opened,
    scheme,
    widget,
)


@for_each("name", some([*qc.CODEBOOKS, "nf4(tie=upper)", "log2_6", "codebook([-1,0,2])"], 8))
def test_codebook(name: str) -> None:
    at = opened(format=name)
    assert_codes(at)
    assert scheme(at) == f"{name} symmetric per_tensor min_max textbook"
    assert set(qc.CODEBOOKS) < set(widget(at, "format").options)
    assert "bitsandbytes.4bit" in widget(at, "library").options
    assert "torchao.float8" not in widget(at, "library").options


@for_each("per", some(["tensor", "channel", "group"]))
def test_fitted_codebook(per: str) -> None:
    at = opened(format="fitted codebook", per=per)
    assert_codes(at)
    x = drawn(at, "x")
    parsed = qc.Scheme.parse(scheme(at))
    assert parsed == qc.fit_scheme(x, parsed, 16)
    at = change(at, "fit_size", 5)
    assert_codes(at)
    parsed = qc.Scheme.parse(scheme(at))
    assert parsed == qc.fit_scheme(x, parsed, 5)
    at = change(at, "fit_method", "lloyd_max")
    assert qc.Scheme.parse(scheme(at)) == qc.fit_scheme(x, parsed, 5, "lloyd_max")


def test_fitted_codebook_follows_the_tensor() -> None:
    first = opened(format="fitted codebook", fit_size="4")
    before = scheme(first)
    at = change(first, "seed", 5)
    assert_codes(at)
    assert scheme(at) != before


def test_codebook_of_more_values_than_the_tensor_has() -> None:
    at = opened(format="fitted codebook", src="paste")
    at = change(at, "_pasted", "1 1 2 2")
    assert_one_sentence(at, "2 different values", "16", "smaller size")
    assert not change(at, "fit_size", 2).error


def test_fitted_codebook_as_text_stays_as_it_is() -> None:
    """The scheme text contains its values, so someone else can use it on another tensor."""
    text = scheme(opened(format="fitted codebook", fit_size="3"))
    at = change(opened(seed="4"), "_scheme_text", text)
    assert_codes(at)
    assert scheme(at) == text


@for_each(
    ("typed", "words"),
    [
        ("codebook([1,1])", ["two different values"]),
        pytest.param("codebook([1])", ["2 to 256"], marks=pytest.mark.slow),
        ("codebook([0,1e39])", ["Value 1", "float32"]),
        pytest.param("codebook([0,nan])", ["number"], marks=pytest.mark.slow),
        ("log2_9", ["log2_9"]),
        pytest.param("nf4(3)", ["nf4", "tie"], marks=pytest.mark.slow),
        ("nf4(tie=middle)", ["middle", "lower"]),
    ],
)
def test_codebook_that_is_none(typed: str, words: list[str]) -> None:
    assert_one_sentence(opened(format=typed), *words)


def test_codebook_in_any_order_and_with_equal_values() -> None:
    at = opened(format="codebook([2,-1,0,-1])")
    assert_codes(at)
    assert scheme(at).startswith("codebook([2,-1,0,-1])")


def test_rounding_of_a_codebook_says_what_to_do() -> None:
    assert_one_sentence(opened(format="nf4", rounding="floor"), "nearest value", "half_even")


def test_seed_of_stochastic_rounding() -> None:
    at = opened(rounding="stochastic")
    assert_codes(at)
    assert scheme(at).endswith("textbook(rounding=stochastic)")
    first = drawn(at)
    at = change(at, "rounding_seed", 7)
    assert_codes(at)
    assert scheme(at).endswith("textbook(rounding=stochastic_7)")
    assert (drawn(at) != first).any()
    again = opened(rounding="stochastic", rounding_seed="7")
    np.testing.assert_array_equal(drawn(again), drawn(at))


def test_scheme_text_sets_the_seed() -> None:
    at = change(opened(), "_scheme_text", "int4 textbook(rounding=stochastic_7)")
    assert (widget(at, "rounding").value, widget(at, "rounding_seed").value) == ("stochastic", 7)
    at = change(at, "_scheme_text", "int4 textbook(rounding=floor)")
    assert widget(at, "rounding").value == "floor"
    at = change(at, "_scheme_text", "int4 textbook(rounding=stochastic)")
    assert (widget(at, "rounding").value, widget(at, "rounding_seed").value) == ("stochastic", 0)


@for_each("library", some(["aimet.Quantize", "textbook", "aimet.2024.Quantize"], 3))
def test_unsigned_symmetric_says_where_the_zero_point_of_others_lies(library: str) -> None:
    """What is said of this library and of each that is named is what they compute."""
    at = opened(codes="unsigned", bits="8", library=library)
    (words,) = [text for text in said(at.caption) if text.startswith("Zero point ")]
    here, *others = re.findall(r"(\d+)(?: in ([\w.]+\w))?", words)
    x = drawn(at, "x")

    def computed(name: str) -> str:
        return str(int(qc.apply(x, qc.Scheme.parse(f"uint8 symmetric {name}")).zero_point))

    assert (here[0], here[1]) == (computed(library), "")
    assert others
    assert all(place == computed(name) != here[0] for place, name in others)
    assert not [text for text in said(change(at, "mode", "asymmetric").caption) if text.startswith("Zero point ")]
