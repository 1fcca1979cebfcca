"""Compare → Libraries without a browser: what the page answers about two libraries, and how it leads on."""

import pytest
from app_page import said, the_app
from streamlit.testing.v1 import AppTest

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

EXAMPLES = {
    "x = 2.25, s = 0.3": "7.4999995 to 7",
    "Ties with a zero point": "x / s + z = 1.5 to 2",
    "4 × 4": "/ 127.5",
    "A constant row": "-127.5 to -128",
    "A group from 10.5": "range must include 0",
}


def opened(**link: str) -> AppTest:
    at = the_app()
    for key, value in link.items():
        at.query_params[key] = value
    return at.run().switch_page("compare/libraries/page.py").run()


def words(at: AppTest) -> str:
    assert not at.exception
    elements = [*at.markdown, *at.caption, *at.info, *at.warning, *at.error, *at.success]
    return " ".join([*said(elements), *(element.proto.body for element in at.get("html"))])


def test_examples_say_why() -> None:
    at = opened()
    for title, why in EXAMPLES.items():
        (option,) = [option for option in at.selectbox(key="_lib_example").options if title in option]
        at.selectbox(key="_lib_example").select(option).run()
        assert why in words(at), title


def test_a_link_compares_the_libraries_that_it_names() -> None:
    at = opened(src="example", ex="randn-seed-0-4x4", bits="8", lib_a="textbook", lib_b="aimet.Quantize")
    assert "textbook and aimet.Quantize differ in" in words(at)
    equal = opened(lib_a="onnx", lib_b="onnxruntime")
    assert "onnx and onnxruntime give the same codes for all 64 elements." in words(equal)


def test_a_library_that_refuses_has_a_way_out() -> None:
    at = opened(lib_b="hqq")
    assert "unsigned asymmetric codes only" in words(at)
    (button,) = [button for button in at.button if button.label.replace("**", "").startswith("Use ") and "uint4 asymmetric" in button.label]
    button.click().run()
    assert "onnxruntime and hqq" in words(at)
