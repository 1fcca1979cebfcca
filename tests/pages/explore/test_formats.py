"""Explore → Formats without a browser: the numbers of its table, and what it says about bad input."""

import math
from typing import Any

import numpy as np
import pytest
from app_page import the_app
from grid import for_each
from parts import Part, in_parts
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.explore.formats import bits as format_bits
from pages.explore.formats import views


def opened(**parameters: Any) -> AppTest:
    at = the_app("formats")
    for key, value in parameters.items():
        at.query_params[key] = value
    at = at.run()
    assert not at.exception
    return at


def table(at: AppTest) -> Any:
    return at.dataframe[0].value.set_index("format")


@in_parts(2)
def test_every_format_with_a_name_can_be_shown(part: Part) -> None:
    for start in part(range(0, len(views.NAMES), 12)):
        names = views.NAMES[start : start + 12]
        at = opened(fmt_shown=names)
        assert not at.error
        assert list(table(at).index) == names


# OCP MX 1.0 table 5, OFP8 1.0 table 2, IEEE 754-2019 table 3.5: max, lowest normal, lowest subnormal, epsilon
TABLE = {
    "e4m3fn": (448.0, 2.0**-6, 2.0**-9, 2.0**-3),
    "e5m2": (57344.0, 2.0**-14, 2.0**-16, 2.0**-2),
    "e3m2": (28.0, 2.0**-2, 2.0**-4, 2.0**-2),
    "e2m3": (7.5, 1.0, 2.0**-3, 2.0**-3),
    "e2m1": (6.0, 1.0, 0.5, 0.5),
    "fp16": (65504.0, 2.0**-14, 2.0**-24, 2.0**-10),
}


def test_numbers_of_floats_are_those_of_the_standards() -> None:
    found = table(opened(fmt_shown=list(TABLE)))
    for name, numbers in TABLE.items():
        row = found.loc[name]
        assert (row["max"], row["lowest normal"], row["smallest"], row["epsilon"]) == numbers
        assert row["min"] == -row["max"]


def test_how_a_number_rounds() -> None:
    names = ["int4", "uint4", "e2m1", "e4m3fn", "nf4", "ternary", "float(2,2)"]
    found = table(opened(fmt_shown=names, fmt_x="-0.3"))
    assert list(found["rounds to"][:4]) == [0, 0, -0.5, -0.3125]
    assert found["rounds to"]["nf4"] == np.float32(-0.28444138)
    assert list(found["code"][:3]) == ["0000", "0000", "1001"]
    found = table(opened(fmt_shown=names, fmt_x="-0.3", fmt_rule="floor"))
    assert list(found["rounds to"][:3]) == [-1, 0, -0.5]
    assert found["note"]["uint4"] == "clipped"
    assert "rounding down does not apply" in found["note"]["nf4"]
    found = table(opened(fmt_shown=names, fmt_x="100"))
    assert list(found["rounds to"][:3]) == [7, 15, 6]
    assert list(found["note"][:4]) == ["clipped", "clipped", "clipped", ""]


def test_codes_are_bits() -> None:
    """Each value's bits are its code; for integers, in two's complement."""
    for fmt in (qc.INT4, qc.UINT4, qc.FLOATS["e2m1"]):
        for value in views.values(fmt):
            rounded, bits, note = views.rounds(fmt, float(value), "half_even")
            assert rounded == value
            assert note == ""
            code = int(bits, 2)
            if isinstance(fmt, qc.FloatFormat):
                assert fmt.fields(code).value == value
            else:
                assert code == int(value) % 16


def test_every_bit_pattern_is_the_value_that_its_formula_gives() -> None:
    for name in ("e4m3fn", "e5m2", "e2m1", "e8m0", "e4m3fnuz"):
        fmt = qc.FLOATS[name]
        for code in range(fmt.qmax + 1):
            fields = fmt.fields(code)
            text = format_bits.meaning(fmt, code)[1]
            if not math.isfinite(fields.value):
                assert text in ("NaN", "infinity", "-infinity")
                continue
            formula, _, result = text.partition(" = ")
            value = eval(formula.replace("^", "**").replace("·", "*").removeprefix("-"))
            assert (-value if formula.startswith("-") else value) == fields.value
            assert float(result.split()[0]) == pytest.approx(fields.value, rel=1e-5)  # six digits are shown
            assert format_bits.grouped(fmt, code).replace(" ", "") == f"{code:0{fmt.bits}b}"


def test_fitted_to_the_tensor_as_it_is() -> None:
    at = opened(fmt_shown=["fitted"], fmt_size="4", shape="6x8", seed="3")
    x = qc.tensors.generate(qc.tensors.Generated("outlier_channel", (6, 8), seed=3))
    values = qc.fit_codebook(x, 4, "kmeans").values
    row = table(at).loc["fitted"]
    assert (row["values"], row["min"], row["max"]) == (4, values[0], values[-1])


@for_each(
    ("parameters", "words"),
    [
        ({"fmt_shown": ["int4", "int99"]}, ["bits=99"]),
        ({"fmt_shown": ["codebook([1,1])", "int4"]}, ["two different values"]),
        pytest.param({"fmt_shown": ["float(9,9)", "int4"]}, ["exponent=9"], marks=pytest.mark.slow),
        ({"fmt_shown": ["fitted", "int4"], "fmt_size": "200"}, ["64 different values", "200"]),
        ({"fmt_rule": "sideways"}, ["sideways"]),
    ],
)
def test_bad_input_is_one_sentence(parameters: dict[str, Any], words: list[str]) -> None:
    at = opened(**parameters)
    (error,) = at.error
    for word in words:
        assert word in error.value.replace("\\", "")


def test_every_code_has_bits_and_a_meaning() -> None:
    """The formula of integers and tables gives the value, and a code that the format lacks says so."""
    for name in ("int4", "uint4", "int4n", "nf4", "ternary"):
        fmt = qc.parse_format(name)
        held = set()
        for code in range(1 << fmt.bits):
            value, formula = format_bits.meaning(fmt, code)
            if value is None:
                assert "only" in formula or "begins at" in formula
                continue
            held.add(value)
            if isinstance(fmt, qc.IntFormat):
                assert eval(formula.partition(" = ")[0]) == value
                assert format_bits.grouped(fmt, code) == f"{int(value) % (1 << fmt.bits):0{fmt.bits}b}"
        assert held == set(map(float, views.values(fmt)))


@pytest.mark.slow  # by default, they follow a typed value and a typed code
def test_the_bits_follow_the_number_to_round() -> None:
    at = opened()
    at = at.number_input(key="fmt_x").set_value(-3.4).run()
    code, digits = views.rounds(qc.FLOATS["e4m3fn"], -3.4, "half_even")[:2]
    assert code == -3.5
    assert [bit.name in at.session_state["fmt_bits"] for bit in format_bits.bits_of(qc.FLOATS["e4m3fn"])] == [d == "1" for d in digits]
    at = at.selectbox(key="fmt_code").set_value("int4").run()
    assert at.session_state["fmt_bits"] == ["B3", "B2", "B0"]  # -8 + 4 + 1
    assert shown(at) == ("-3", 0b1101)


def shown(at: AppTest) -> tuple[str, int]:
    """The value and the code in their fields."""
    (code,) = (field for field in at.number_input if field.label == "Code")
    return typed(at).value, code.value


def typed(at: AppTest) -> Any:
    (value,) = (field for field in at.text_input if field.label == "Value")
    return value


@in_parts(2)
def test_bits_follow_a_typed_value_and_a_typed_code(part: Part) -> None:
    at = opened()
    for text, value, code in part([("-2,6", "-2.5", 0b11000010), ("1e9", "448", 0x7E), ("0.5", "0.5", 0b110000), ("nan", "nan", 0x7F)]):
        at = typed(at).set_value(text).run()
        assert shown(at) == (value, code), text
        bits = format_bits.bits_of(qc.FLOATS["e4m3fn"])
        assert at.session_state["fmt_bits"] == [bit.name for bit, digit in zip(bits, f"{code:08b}", strict=True) if digit == "1"]
    assert at.number_input(key="fmt_x").value == 0.5  # so that the line shows what it rounds to
    (code,) = (field for field in at.number_input if field.label == "Code")
    assert shown(code.set_value(0b11000010).run()) == ("-2.5", 0b11000010)
    for text, words in part([("one", "'one' is not a number"), ("", "'' is not a number"), ("-inf", "e4m3fn has no infinity")]):
        at = typed(at).set_value(text).run()
        assert words in at.error[0].value.replace("\\", "")
        assert shown(at) == ("-2.5", 0b11000010), text  # what the format lacks is refused
