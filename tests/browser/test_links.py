"""Links: what each control writes into the link, and what others see who open it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from page_rest import SHOWN, expect

import quantcore as qc
from quantcore import tensors

DEFAULT = "int4 symmetric per_tensor min_max textbook"
PASTED = np.array([[0.5, -1.25, 3], [0.1, 1e-7, -3e5]], np.float32)


def assert_view(
    app: Any, x: np.ndarray, scheme: str, shown: Callable[[np.ndarray], np.ndarray] = lambda values: values
) -> None:
    """The page shows this scheme, tensor and its codes; ``shown`` selects the part that the maps show."""
    app.expect_scheme(scheme)
    codes = qc.apply(x, qc.Scheme.parse(scheme)).codes.numpy()
    np.testing.assert_array_equal(app.map("x"), shown(x))
    np.testing.assert_array_equal(app.map("codes"), shown(codes))
    expect(app.page.get_by_test_id("stAlert").filter(has_text="This link")).to_have_count(0)


COLD = {
    "rank 3": (
        {"dist": "normal", "normal_std": "2", "shape": "2x24x20", "seed": "7", "bits": "6", "codes": "unsigned",
         "mode": "asymmetric", "per": "group", "group": "5", "group_axis": "2", "range": "percentile", "p": "99.5",
         "down": "2", "across": "1", "at": "1", "rows": "4:12", "cols": "2:20", "cell": "1, 3, 5", "tab": "Scales"},
        tensors.generate(tensors.Generated("normal", (2, 24, 20), 7, (("std", 2.0),))),
        "uint6 asymmetric per_group(5, axis=2) percentile(99.5) textbook",
    ),
    "example": (
        {"src": "example", "ex": "percentile-3x4", "bits": "8", "range": "by hand", "scale": "0.05",
         "zero_point": "3", "overflow": "wrap", "tab": "Code"},
        tensors.EXAMPLES["percentile-3x4"].load(),
        "int8 symmetric per_tensor given(0.05, zero_point=3) textbook(overflow=wrap)",
    ),
    "pasted": (
        {"src": "paste", "t": tensors.encode(PASTED), "per": "block", "block": "1x3", "narrow": "true",
         "borders": "true", "numbers": "false", "tab": "Numbers", "table": "error"},
        PASTED,
        "int4n symmetric per_block([1,3]) min_max textbook",
    ),
}  # fmt: skip


@pytest.mark.slow  # by default, most tests open links, and what each parameter does is tested without a browser
def test_cold_link(server: str, new_app: Callable[..., Any]) -> None:
    """Opened by a new visitor; test_ranges.py and test_sharing.py open links on a new server."""
    for parameters, x, scheme in COLD.values():
        app = new_app(server)
        app.open(**parameters)
        shown = (lambda values: values[1].T[4:12, 2:20]) if x.ndim == 3 else (lambda values: values)
        assert_view(app, x, scheme, shown)
        expect(app.page.locator("rect.qs-selected")).to_have_count(4)
        expect(app.page.get_by_role("dialog")).to_have_count(0)
        tab = app.page.get_by_role("tab", name=parameters["tab"])
        expect(tab).to_have_attribute("aria-selected", "true")
        app.expect_parameters(**{key: value for key, value in parameters.items() if key != "t"})
        assert app.complaints() == []
        app.close()


def arrow(key: str, times: int) -> Callable[[Any], None]:
    def act(app: Any) -> None:
        app.input(key).focus()
        for _ in range(abs(times)):
            app.page.keyboard.press("ArrowRight" if times > 0 else "ArrowLeft")

    return act


# One after another: an action, what it adds to the link, and the scheme text afterwards.
WALK: list[tuple[Callable[[Any], None], dict[str, str], str]] = [
    (arrow("bits", 2), {"bits": "6"}, "int6 symmetric per_tensor min_max textbook"),
    (lambda app: app.press("codes", "unsigned"), {"codes": "unsigned"}, "uint6 symmetric per_tensor min_max textbook"),
    (lambda app: app.press("mode", "asymmetric"), {"mode": "asymmetric"}, "uint6 asymmetric per_tensor min_max textbook"),
    (lambda app: app.tick("narrow"), {"narrow": "true"}, "uint6n asymmetric per_tensor min_max textbook"),
    (lambda app: app.press("overflow", "wrap"), {"overflow": "wrap"}, "uint6n asymmetric per_tensor min_max textbook(overflow=wrap)"),
    (lambda app: app.choose("per", "channel"), {"per": "channel"}, "uint6n asymmetric per_channel min_max textbook(overflow=wrap)"),
    (lambda app: app.choose("axis", "1"), {"axis": "1"}, "uint6n asymmetric per_channel(axis=1) min_max textbook(overflow=wrap)"),
    (lambda app: app.choose("per", "group"), {"per": "group", "axis": ""}, "uint6n asymmetric per_group(8, axis=1) min_max textbook(overflow=wrap)"),
    (lambda app: app.type("group", "3"), {"group": "3"}, "uint6n asymmetric per_group(3, axis=1) min_max textbook(overflow=wrap)"),
    (lambda app: app.choose("group_axis", "0"), {"group_axis": "0"}, "uint6n asymmetric per_group(3, axis=0) min_max textbook(overflow=wrap)"),
    (lambda app: app.choose("per", "block"), {"per": "block", "group": "", "group_axis": ""}, "uint6n asymmetric per_block([2,2]) min_max textbook(overflow=wrap)"),
    (lambda app: app.type("block", "4x-1"), {"block": "4x-1"}, "uint6n asymmetric per_block([4,-1]) min_max textbook(overflow=wrap)"),
    (lambda app: app.choose("range", "percentile"), {"range": "percentile"}, "uint6n asymmetric per_block([4,-1]) percentile(99) textbook(overflow=wrap)"),
    (lambda app: app.type("p", "97.5"), {"p": "97.5"}, "uint6n asymmetric per_block([4,-1]) percentile(97.5) textbook(overflow=wrap)"),
    (lambda app: app.choose("range", "fixed"), {"range": "fixed", "p": ""}, "uint6n asymmetric per_block([4,-1]) fixed(-1, 1) textbook(overflow=wrap)"),
    (lambda app: app.type("low", "-2.5"), {"low": "-2.5"}, "uint6n asymmetric per_block([4,-1]) fixed(-2.5, 1) textbook(overflow=wrap)"),
    (lambda app: app.type("high", "3"), {"high": "3"}, "uint6n asymmetric per_block([4,-1]) fixed(-2.5, 3) textbook(overflow=wrap)"),
    (lambda app: app.choose("range", "manual"), {"range": "by hand", "low": "", "high": ""}, "uint6n asymmetric per_block([4,-1]) given(0.1) textbook(overflow=wrap)"),
    (lambda app: app.type("scale", "[[0.1], [0.2]]"), {"scale": "[[0.1], [0.2]]"}, "uint6n asymmetric per_block([4,-1]) given([[0.1],[0.2]]) textbook(overflow=wrap)"),
    (lambda app: app.type("zero_point", "31"), {"zero_point": "31"}, "uint6n asymmetric per_block([4,-1]) given([[0.1],[0.2]], zero_point=31) textbook(overflow=wrap)"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The zero_point 0 lies outside")
def test_every_control_of_the_scheme_writes_the_link_that_shows_it(app: Any) -> None:
    x = tensors.generate(tensors.Generated())
    app.open()
    app.expect_scheme(DEFAULT)
    parameters: dict[str, str] = {}
    for number, (act, change, scheme) in enumerate(WALK):
        act(app)
        app.expect_scheme(scheme)
        parameters = {key: value for key, value in (parameters | change).items() if value}
        app.expect_parameters(**parameters)
        np.testing.assert_array_equal(app.map("codes"), qc.apply(x, qc.Scheme.parse(scheme)).codes.numpy())
        if number % 7 == 4 or number + 1 == len(WALK):
            other = app.beside(app.page.url)
            assert_view(other, x, scheme)
            other.expect_parameters(**parameters)
            other.close()
    app.button("Reset")
    app.expect_scheme(DEFAULT)
    app.expect_parameters()


@pytest.mark.slow
def test_every_control_of_the_tensor_writes_the_link_that_shows_it(app: Any) -> None:
    app.open()
    app.expect_scheme(DEFAULT)

    def check(generated: tensors.Generated, **parameters: str) -> None:
        app.expect_parameters(**parameters)
        x = tensors.generate(generated)
        app.page.wait_for_function(
            f"v => Math.abs({SHOWN}('x')?.[0][0] - v) < 1e-9",
            arg=float(x.flat[0]),
        )
        app.rest()
        other = app.beside(app.page.url)
        for one in (app, other):
            assert_view(one, x, DEFAULT)
            one.expect_parameters(**parameters)
        other.close()

    app.type("outlier_channel_factor", "30")
    check(tensors.Generated(parameters=(("factor", 30.0),)), outlier_channel_factor="30")
    app.choose("dist", "outlier element")
    check(tensors.Generated("outlier_element"), dist="outlier_element")
    app.choose("dist", "uniform")
    app.rest()
    app.type("uniform_high", "4")
    app.rest()
    app.type("shape", "4, 6")
    app.rest()
    app.type("seed", "12")
    generated = tensors.Generated("uniform", (4, 6), 12, (("high", 4.0),))
    check(generated, dist="uniform", uniform_high="4", shape="4, 6", seed="12")


@pytest.mark.slow
def test_controls_whose_choices_depend_on_the_tensor(app: Any) -> None:
    """If a control kept a value that is not in the link, others would see another view."""
    app.open(dist="normal", shape="2x3x4", per="group")
    app.expect_scheme("int4 symmetric per_group(4, axis=2) min_max textbook")
    for shape, group in {
        "2x3x4x5": "per_group(4, axis=3)",
        "6x7": "per_group(4, axis=1)",
        "3": "per_group(2, axis=0)",
    }.items():
        app.type("shape", shape)
        app.expect_parameter("shape", shape)
        scheme = f"int4 symmetric {group} min_max textbook"
        app.expect_scheme(scheme)
        other = app.beside(app.page.url)
        other.expect_scheme(scheme)
        np.testing.assert_array_equal(other.map("codes"), app.map("codes"))
        other.close()


@pytest.mark.slow  # tested without a browser, and Back in test_history.py
def test_a_typed_scheme_sets_controls_and_link_and_back_undoes_it(app: Any) -> None:
    app.open(bits="6")
    app.type("_scheme_text", "uint3 per_channel(axis=1) fixed(-1, 2)")
    app.expect_scheme("uint3 symmetric per_channel(axis=1) fixed(-1, 2) textbook")
    app.expect_parameters(bits="3", codes="unsigned", per="channel", axis="1", range="fixed", high="2.0")
    expect(app.key("codes").get_by_role("radio", name="unsigned", exact=True)).to_be_checked()
    expect(app.input("bits")).to_have_value("3")
    expect(app.input("per")).to_have_value("channel")
    app.type("_scheme_text", "uint5 per_channel(axis=1) fixed(-1, 2)")
    app.expect_scheme("uint5 symmetric per_channel(axis=1) fixed(-1, 2) textbook")
    app.expect_parameter("bits", "5")
    app.page.go_back()
    app.expect_scheme("uint3 symmetric per_channel(axis=1) fixed(-1, 2) textbook")
    app.expect_parameter("bits", "3")


@pytest.mark.slow  # tested without a browser
def test_bad_scheme_text(app: Any) -> None:
    app.open(bits="6")
    app.expect_scheme("int6 symmetric per_tensor min_max textbook")
    app.type("_scheme_text", "int4 per_grup(4)")
    expect(app.page.get_by_test_id("stAlert")).to_have_count(1)
    expect(app.page.get_by_test_id("stAlert")).to_contain_text("'per_grup' is not a word of a scheme. Did you mean per_group?")
    expect(app.input("_scheme_text")).to_have_value("int4 per_grup(4)")
    app.type("_scheme_text", "int4 per_group(4)")
    app.expect_scheme("int4 symmetric per_group(4, axis=1) min_max textbook")
    expect(app.page.get_by_test_id("stAlert")).to_have_count(0)


@pytest.mark.slow  # tested without a browser
def test_link_with_parts_that_cannot_be_used(app: Any) -> None:
    # the word for a default, of which links keep nothing, can be used
    app.open(bits="99", nonsense="1", codes="unsigned", rounding="the library's own")
    alert = app.page.get_by_test_id("stAlert")
    expect(alert).to_contain_text(
        "This link has 2 parameters that can't be used and are ignored: bits=99, nonsense=1"
    )
    app.expect_scheme("uint4 symmetric per_tensor min_max textbook")
    app.button("Close")
    expect(alert).to_have_count(0)


@pytest.mark.slow  # by default, the QR code and the copy are compared with the address
def test_the_link_shown_is_the_address(app: Any) -> None:
    app.open(bits="5", range="by hand", scale="[[0.25]]")
    app.expect_scheme("int5 symmetric per_tensor given([[0.25]]) textbook")
    app.button("Link")
    shown = app.page.get_by_test_id("stPopoverBody").get_by_test_id("stCode").inner_text().strip()
    other = app.beside(shown)
    other.expect_scheme("int5 symmetric per_tensor given([[0.25]]) textbook")


@pytest.mark.slow  # tested without a browser, and Back in test_history.py
def test_controls_show_words_and_links_carry_values(app: Any) -> None:
    app.open()
    app.expect_scheme(DEFAULT)
    app.choose("dist", "normal")
    app.expect_parameters(dist="normal")
    app.choose("dist", "Student's t")
    app.expect_parameters(dist="student_t")
    app.rest()
    app.input("rounding").scroll_into_view_if_needed()  # a menu closes while the page scrolls
    app.choose("rounding", "half up")
    app.expect_scheme("int4 symmetric per_tensor min_max textbook(rounding=half_up)")
    app.expect_parameters(dist="student_t", rounding="half_up")
    app.page.go_back()  # one step for each choice
    app.expect_parameters(dist="student_t")
    app.page.go_back()
    app.expect_parameters(dist="normal")
    expect(app.input("dist")).to_have_value("normal")
    app.page.go_back()
    app.expect_parameters()
    expect(app.input("dist")).to_have_value("outlier channel")
