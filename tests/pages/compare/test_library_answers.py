"""Compare → Libraries without a browser: the table of all libraries, what is said of two, and how it leads on."""

import json

import pytest
import torch
from app_page import said, the_app
from parts import Part, in_parts
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.compare.libraries import controls
from pages.compare.libraries.controls import LibraryExample

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

EXAMPLES = {
    "x = 2.25, s = 0.3": "7.4999995 to 7",
    "Ties with a zero point": "x / s + z = 1.5 to 2",
    "4 × 4": "/ 127.5",
    "A constant row": "-127.5 to -128",
    "A group from 10.5": "range must include 0",
}


def opened(**link: str) -> AppTest:
    at = the_app("libraries")
    for key, value in link.items():
        at.query_params[key] = value
    return at.run()


def words(at: AppTest) -> str:
    assert not at.exception
    elements = [*at.markdown, *at.caption, *at.info, *at.warning, *at.error, *at.success]
    return " ".join([*said(elements), *(element.proto.body for element in at.get("html"))])


def assert_table(at: AppTest, example: LibraryExample) -> None:
    """The table has the codes that differ by `qc.compare`, under words for its columns."""
    assert not at.error
    found = qc.compare(
        qc.tensors.parse(example.tensor),
        qc.Scheme.parse(example.scheme),
        *(qc.CONVENTIONS[name] for name in (example.a, example.b)),
    )
    rows = at.dataframe[0].value.set_index("library")["codes that differ"]
    assert (rows[example.a], rows[example.b]) == (0, int(found.differs.sum())), example.title
    shown = {name: column["label"] for name, column in json.loads(at.dataframe[0].proto.columns).items()
             if column.get("label")}  # fmt: skip
    assert shown == {
        "library": "Library",
        "scale": "Scale of the first block",
        "codes that differ": f"Codes that differ from {example.a}",
        "zero_point": "Zero point",
        "sqnr_db": "SQNR (dB)",
        "mse": "MSE",
        "max_abs_error": "max |error|",
    }


def test_every_example_is_here() -> None:
    assert len(EXAMPLES) == len(controls.EXAMPLES)
    for title in EXAMPLES:
        assert sum(title in example.title for example in controls.EXAMPLES) == 1


@in_parts(5)
def test_examples_say_why_and_have_a_table(part: Part) -> None:
    at = opened()
    for title, why in part(EXAMPLES.items()):
        (example,) = [example for example in controls.EXAMPLES if title in example.title]
        at.selectbox(key="_lib_example").select(example.title).run()
        assert why in words(at), title
        assert_table(at, example)


def test_a_link_compares_the_libraries_that_it_names() -> None:
    at = opened(src="example", ex="randn-seed-0-4x4", bits="8", lib_a="textbook", lib_b="aimet.Quantize")
    assert "textbook and aimet.Quantize differ in" in words(at)
    equal = opened(lib_a="onnx", lib_b="onnxruntime")
    assert "onnx and onnxruntime give the same codes for all 64 elements." in words(equal)


@pytest.mark.slow  # by default, one that refuses a scheme has a way out
def test_a_library_that_refuses_a_dtype_has_a_way_out() -> None:
    """The page opens with two that take it, says why in the library's words, and lists the others that refuse it."""
    at = opened(dtype="bfloat16", bits="8", per="channel")
    assert "torchao and compressed_tensors" in words(at)
    assert "onnxruntime (onnxruntime 1.31.1) does not support bfloat16" in words(at)  # in the table's list
    at = opened(dtype="bfloat16", bits="8", lib_b="torch.quantize_per_tensor")
    (sentence,) = said(at.error)
    assert sentence == (
        "torch.quantize_per_tensor (torch 2.13.0) does not support bfloat16: \"Quantize only works on Float Tensor, got "
        'BFloat16"; convert x to another dtype, such as float32.'
    )
    at.button(key="fit_dtype").click().run()
    assert not at.exception
    assert not at.error
    assert at.selectbox(key="dtype").value == "float32"


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_codes_are_compared_in_the_dtype(dtype: str) -> None:
    at = opened(dtype=dtype, bits="8", per="channel", shape="16x64", lib_a="textbook", lib_b="torchao")
    x = torch.from_numpy(qc.tensors.generate(qc.tensors.Generated(shape=(16, 64)))).to(getattr(torch, dtype))
    found = qc.compare(x, qc.Scheme.parse("int8 per_channel(0)"), qc.TEXTBOOK, qc.CONVENTIONS["torchao"])
    assert found.b.dtype == x.dtype
    assert f"textbook and torchao differ in {found.count:,} of 1,024 codes" in words(at)
    rows = at.dataframe[0].value.set_index("library")["codes that differ"]
    assert rows["torchao"] == found.count


def test_a_library_that_refuses_has_a_way_out() -> None:
    at = opened(lib_b="hqq")
    assert "unsigned asymmetric codes only" in words(at)
    (button,) = [button for button in at.button if button.label.replace("**", "").startswith("Use ") and "uint4 asymmetric" in button.label]
    button.click().run()
    assert "onnxruntime and hqq" in words(at)
