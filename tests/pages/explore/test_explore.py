"""Every control of the page without a browser: what it does, and what it says about bad input."""

import base64
import html
import json
import re
import struct
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
from app_page import change, change_before_it_is_drawn, figures, lines, said, the_app, widget
from grid import for_each
from parts import some, some_rows
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.explore.explore.summary import parameters as parameters_in_words
from pages.shared.computing import cache
from quantcore import tensors
from quantcore.granularity.layout import block_name

DEFAULT = "int4 symmetric per_tensor min_max textbook"
HOSTILE = ["<script>alert(1)</script>", '<iframe srcdoc="<script>alert(1)</script>"></iframe>']


def opened(url: str = "", /, **parameters: str) -> AppTest:
    """A page, by default the first, opened by a link with these parameters."""
    at = the_app(url)
    for key, value in parameters.items():
        at.query_params[key] = value
    return at.run()


@pytest.fixture
def page() -> AppTest:
    """The page as it opens: the cases of a loop change the same one."""
    return opened()


@pytest.fixture
def six_bits() -> AppTest:
    return opened(bits="6")


@pytest.fixture
def pasting() -> AppTest:
    return opened(src="paste")


@pytest.fixture
def uploading() -> AppTest:
    return opened(src="upload")


@pytest.fixture
def by_hand() -> AppTest:
    return opened(range="by hand")


@pytest.fixture
def rows_of_256() -> AppTest:
    return opened(src="generate", shape="2x256")  # gguf needs rows that divide into blocks of 256


def scheme(at: AppTest) -> str:
    return str(widget(at, "_scheme_text").value)


def maps(at: AppTest) -> dict[str, Any]:
    """The data that the maps component was given."""
    return dict(json.loads(next(c.proto.json for c in at.get("bidi_component") if '"arrays"' in c.proto.json))[0])


def drawn(at: AppTest, name: str = "codes") -> np.ndarray:
    data = maps(at)
    array = data["arrays"][name]
    values = np.frombuffer(base64.b64decode(array["bdata"]), dtype=array["dtype"])
    return np.broadcast_to(values, data["height"] * data["width"]).reshape(data["height"], data["width"])


def assert_clean(at: AppTest) -> None:
    assert not at.exception
    assert said(at.error) == []


def assert_codes(at: AppTest, x: np.ndarray | None = None) -> None:
    """The codes in the map are those of the scheme shown above it."""
    assert_clean(at)
    if x is None:
        x = drawn(at, "x")
    np.testing.assert_array_equal(drawn(at), qc.apply(x, qc.Scheme.parse(scheme(at))).codes.numpy())


def assert_one_sentence(at: AppTest, *words: str, kind: str = "error") -> str:
    """There is exactly one error (or other ``kind``), it contains these words, and nothing was raised."""
    assert not at.exception
    (sentence,) = said(getattr(at, kind))
    assert sentence.rstrip().endswith(".")
    assert len(sentence) < 300
    for word in words:
        assert word in sentence
    return sentence


def answer(at: AppTest) -> str:
    """What stands beside the question of the page."""
    (body,) = [e.proto.body for e in at.get("html") if '<p class="qs-question' in e.proto.body]
    return html.unescape(re.sub("<[^>]*>", "", body)).partition("? ")[2]


@for_each(
    ("pasted", "scheme", "dtype", "bits"),
    [
        ("0.3, -1.1, 2.5, 0.7", "int4 symmetric", "float32", "12 bits instead of 32"),
        ("0.3, -1.1, 2.5, 0.7; 9, 1, 3, 0.2", "int8 per_channel(0)", "bfloat16", "16 bits instead of 16"),
        pytest.param("100, 1, 1, 90", "int2 given(1)", "float32", "10 bits instead of 32", marks=pytest.mark.slow),
        ("1, 2, 3, 7", "int4 given(1)", "float32", "12 bits instead of 32"),
        ("0, 0, 0, 0", "int4", "float32", "12 bits instead of 32"),
    ],
)
def test_the_question_is_answered_with_what_is_lost(pasted: str, scheme: str, dtype: str, bits: str) -> None:
    typed = tensors.encode(tensors.parse(pasted.replace(";", "\n")))
    at = opened(src="paste", dtype=dtype, t=typed, scheme=scheme)
    x = cache.values(at.session_state["_current"].tensor)
    error = (x - qc.apply(x, qc.Scheme.parse(scheme)).dequantized).double().numpy()
    x = x.double().numpy()
    start, said = f"Each number takes {bits}", answer(at)
    if not x.any():
        assert said == f"{start}."
    elif not error.any():
        assert said == f"{start}, and no value changes."
    else:
        found = re.fullmatch(rf"{start}, and the error is ([\d.]+) % of the values\.", said)
        assert found, said
        off = 100 * np.sqrt((error**2).sum() / (x**2).sum())
        assert float(found[1]) == pytest.approx(off, abs=0.5 if off >= 9.95 else 0.05)


def test_first_view() -> None:
    at = opened()
    assert_codes(at, tensors.generate(tensors.Generated()))
    assert scheme(at) == DEFAULT
    assert list(figures(at)) == [
        "SQNR", "MSE", "MAE", "max |error|", "Bits per element", "Compression", "Clipped"
    ]  # fmt: skip
    assert not at.warning
    assert at.query_params == {}


# Every control of the scheme: link parameters, the control, its new value, and the scheme text that results.
SCHEME_CHANGES = [
    ({}, "bits", 8, "int8 symmetric per_tensor min_max textbook"),
    ({}, "bits", 2, "int2 symmetric per_tensor min_max textbook"),
    ({}, "bits", 16, "int16 symmetric per_tensor min_max textbook"),
    ({"bits": "16"}, "codes", "unsigned", "uint16 symmetric per_tensor min_max textbook"),
    ({}, "codes", "unsigned", "uint4 symmetric per_tensor min_max textbook"),
    ({}, "mode", "asymmetric", "int4 asymmetric per_tensor min_max textbook"),
    ({}, "narrow", True, "int4n symmetric per_tensor min_max textbook"),
    ({}, "overflow", "wrap", "int4 symmetric per_tensor min_max textbook(overflow=wrap)"),
    ({}, "per", "channel", "int4 symmetric per_channel min_max textbook"),
    ({}, "per", "group", "int4 symmetric per_group(8, axis=1) min_max textbook"),
    ({}, "per", "block", "int4 symmetric per_block([2,2]) min_max textbook"),
    ({"per": "channel"}, "axis", 1, "int4 symmetric per_channel(axis=1) min_max textbook"),
    ({"per": "channel"}, "per", "tensor", DEFAULT),
    ({"per": "group"}, "group", 2, "int4 symmetric per_group(2, axis=1) min_max textbook"),
    ({"per": "group"}, "group_axis", 0, "int4 symmetric per_group(8, axis=0) min_max textbook"),
    ({"per": "block"}, "block", "4x-1", "int4 symmetric per_block([4,-1]) min_max textbook"),
    ({}, "range", "percentile", "int4 symmetric per_tensor percentile(99) textbook"),
    ({}, "range", "fixed", "int4 symmetric per_tensor fixed(-1, 1) textbook"),
    ({}, "range", "by hand", "int4 symmetric per_tensor given(0.1) textbook"),
    ({}, "range", "min MSE", "int4 symmetric per_tensor min_mse textbook"),
    ({}, "range", "entropy", "int4 symmetric per_tensor entropy(num_bins=2048) textbook"),
    ({}, "range", "mean ± k·std", "int4 symmetric per_tensor mean_std(3) textbook"),
    ({}, "range", "mean |x|", "int4 symmetric per_tensor abs_mean textbook"),
    ({"range": "min MSE"}, "candidates", 20, "int4 symmetric per_tensor min_mse(candidates=20) textbook"),
    ({"range": "entropy"}, "bins", 128, "int4 symmetric per_tensor entropy textbook"),
    ({"range": "mean ± k·std"}, "k", 2.5, "int4 symmetric per_tensor mean_std(2.5) textbook"),
    ({"range": "percentile"}, "p", 90.5, "int4 symmetric per_tensor percentile(90.5) textbook"),
    ({"range": "fixed"}, "low", -2.5, "int4 symmetric per_tensor fixed(-2.5, 1) textbook"),
    ({"range": "fixed"}, "high", 0.25, "int4 symmetric per_tensor fixed(-1, 0.25) textbook"),
    ({"range": "by hand"}, "scale", "0.5", "int4 symmetric per_tensor given(0.5) textbook"),
    (
        {"range": "by hand"},
        "zero_point",
        "-3",
        "int4 symmetric per_tensor given(0.1, zero_point=-3) textbook",
    ),
    (
        {"range": "by hand", "per": "block", "block": "4x8"},
        "scale",
        "[[0.1], [0.2]]",
        "int4 symmetric per_block([4,8]) given([[0.1],[0.2]]) textbook",
    ),
]


@for_each(
    ("before", "key", "value", "expected"),
    some_rows(SCHEME_CHANGES, 16),
    ids=[f"{key}={value}" for _, key, value, _ in SCHEME_CHANGES],
)
def test_control_of_the_scheme(before: dict[str, str], key: str, value: Any, expected: str) -> None:
    at = opened(**before)
    assert_clean(at)
    x = drawn(at, "x").copy()
    change(at, key, value)
    assert scheme(at) == expected
    assert_codes(at, x)


@for_each("text", some(sorted({expected for *_, expected in SCHEME_CHANGES}), 32))
def test_scheme_as_text_sets_the_controls(text: str) -> None:
    at = change(opened(bits="7", range="fixed", overflow="wrap", per="channel"), "_scheme_text", text)
    assert_codes(at)
    assert scheme(at) == text
    # the controls hold the scheme, not a separate copy of the text: the next change starts from it
    change(at, "bits", 5)
    expected = qc.Scheme.parse(text)
    assert scheme(at) == re.sub(r"^(u?int)\d+", r"\g<1>5", str(expected))


def test_two_quick_changes_of_a_control() -> None:
    """The scheme text that the browser still shows is not mistaken for typed text."""
    at = change_before_it_is_drawn(opened(), 5, 6, "bits")
    assert (widget(at, "bits").value, scheme(at)) == (6, DEFAULT.replace("4", "6"))


def test_axes_in_a_scheme_text_count_from_the_end_too() -> None:
    at = change(opened(), "_scheme_text", "int4 per_group(2, axis=-2)")
    assert scheme(at) == "int4 symmetric per_group(2, axis=0) min_max textbook"
    assert_codes(at)


@for_each(
    ("text", "word"),
    some_rows([
        ("int4 nonsense", "nonsense"),
        ("int99", "2..16"),
        ("int4 int5", "twice"),
        ("per_channel(7)", "no axis 7"),
        ("per_group(4, axis=-3)", "no axis -3"),
        ("percentile(40)", "greater than 50"),
        ("percentile(50.0001)", "50.001"),
        ("fixed(2, 1)", "low < high"),
        ("given(0)", "positive"),
        ("int4 per_group(", "per_group("),
        ("x" * 10_000, "xxx"),
        *((text, "alert(1)" if "script>" in text[:9] else "iframe") for text in HOSTILE),
    ], 6),
    ids=lambda v: v[:24],
)
def test_bad_scheme_text(six_bits: AppTest, text: str, word: str) -> None:
    at = change(six_bits, "_scheme_text", text)
    assert_one_sentence(at, word)
    assert scheme(at) == text  # what was typed is still there to be fixed
    assert maps(at)["painted"] == " int6 symmetric per_tensor min_max textbook "


def test_after_a_bad_scheme_text_a_control_goes_on_from_the_scheme_before() -> None:
    at = change(change(opened(bits="6"), "_scheme_text", "int4 nonsense"), "bits", 7)
    assert_clean(at)
    assert scheme(at) == "int7 symmetric per_tensor min_max textbook"


def test_reset() -> None:
    at = opened(
        bits="9",
        codes="unsigned",
        mode="asymmetric",
        per="group",
        group="2",
        range="by hand",
        overflow="wrap",
    )
    assert scheme(at) == "uint9 asymmetric per_group(2, axis=1) given(0.1) textbook(overflow=wrap)"
    next(b for b in at.button if b.label == "Reset").click().run()
    assert scheme(at) == DEFAULT
    assert_codes(at)


# The tensor


@for_each("name", some(tensors.DISTRIBUTIONS, 16))
def test_distribution(page: AppTest, name: str) -> None:
    at = change(page, "dist", name)
    assert_codes(at, tensors.generate(tensors.Generated(name)))
    for parameter in tensors.DISTRIBUTIONS[name].parameters:
        value = {"low": 0.5, "density": 0.25}.get(parameter.name, parameter.default + 1.5)
        change(at, f"{name}_{parameter.name}", value)
        spec = tensors.Generated(name, parameters=((parameter.name, value),))
        assert_codes(at, tensors.generate(spec))
        change(at, f"{name}_{parameter.name}", float(parameter.default))


@for_each("name", some(tensors.EXAMPLES, 12))
def test_example(page: AppTest, name: str) -> None:
    at = change(change(page, "src", "example"), "ex", name)
    x = tensors.EXAMPLES[name].load()
    np.testing.assert_array_equal(drawn(at, "x"), x.reshape(-1, x.shape[-1]))
    assert_codes(at)


def test_seed_and_shape() -> None:
    at = change(change(opened(), "seed", 3), "shape", "4, 6")
    assert_codes(at, tensors.generate(tensors.Generated(shape=(4, 6), seed=3)))


@for_each("shape", some(["2x3x4", "()", "7", "1x1", "2x1x3x2"], 5))
def test_any_rank(shape: str) -> None:
    at = opened(shape=shape, dist="normal")
    assert_clean(at)
    assert scheme(at) == DEFAULT
    for per in ("channel", "group", "block"):
        change(at, "per", per)
        assert not at.exception


def test_large_tensor_is_an_overview() -> None:
    at = opened(shape="300x300", dist="normal")
    assert_clean(at)
    assert max(maps(at)["step"]) > 1
    x = tensors.generate(tensors.Generated("normal", (300, 300)))
    change(change(at, "rows", "10:20"), "cols", "0..5")
    expected = qc.apply(x, qc.Scheme.parse(scheme(at))).codes.numpy()
    np.testing.assert_array_equal(drawn(at), expected[10:20, :5])


@for_each(
    "text",
    some(["1 2\n3 4", "[[1, 2], [3, 4]]", "tensor([[1., 2.],\n        [3., 4.]])", "1;2\n3;4", "\ufeff1,2\r\n3,4"], 2),
)
def test_paste(pasting: AppTest, text: str) -> None:
    at = change(pasting, "_pasted", text)
    assert_codes(at, np.array([[1, 2], [3, 4]], np.float32))
    np.testing.assert_array_equal(tensors.decode(at.query_params["t"]), [[1, 2], [3, 4]])


@for_each(
    ("text", "words"),
    some_rows([
        ("1 2\n3 four", ["'four'", "line 2", "column 3"]),
        ("1 2\n3", ["Line 2", "1 number", "2"]),
        ("[[1, 2], [3]]", ["line 1"]),
        ("[[1, 2], [3, 4]", ["line 1"]),
        ("1 inf", ["infinity", "(1,)"]),
        ("1 nan 2", ["NaN", "(1,)"]),
        ("1e39", ["float32"]),
        ("1 " * 5_000_000, ["10,000,000 characters"]),
        ("1,5", ["line 1"]),
        *((text, ["line 1"]) for text in HOSTILE),
        ("1 **2** :red[3] $4$", ["line 1"]),
    ], 9),
    ids=lambda v: v[:20] if isinstance(v, str) else "",
)
def test_bad_paste(pasting: AppTest, text: str, words: list[str]) -> None:
    at = change(pasting, "_pasted", text)
    if text == "1,5" and not at.error:  # read as two numbers; the caption says so
        assert_codes(at, np.array([1, 5], np.float32)[None])
        return
    assert_one_sentence(at, *words)
    assert at.text_area(key="_pasted").value == text
    if text == "1 inf":
        change(at, "_pasted", "1 2")
        assert_codes(at, np.array([[1, 2]], np.float32))


@pytest.mark.parametrize("text", some(["  \n\t ", ""]))
def test_empty_paste_says_what_to_do(text: str) -> None:
    at = change(opened(src="paste"), "_pasted", text)
    assert not at.exception
    assert not at.error
    assert any("paste numbers" in sentence for sentence in said(at.info))


@for_each(
    ("shape", "word"),
    some_rows([
        ("0x8", "size 0"),
        ("-1x8", "size -1"),
        ("1000000x1000000", "58,720,256"),
        ("", "empty"),
        ("8x", "missing"),
        ("a", "'a'"),
        ("2.5x3", "'2.5'"),
        ("2x2x2x2x2x2x2", "7 axes"),
        ("9" * 60, "elements"),
        *((text[:60], "not an integer") for text in HOSTILE),
    ], 4),
)
def test_bad_shape(page: AppTest, shape: str, word: str) -> None:
    at = change(page, "shape", shape)
    assert_one_sentence(at, word)
    assert at.text_input(key="shape").value == shape
    if shape == "0x8":
        change(at, "shape", "3x5")
        assert_codes(at, tensors.generate(tensors.Generated(shape=(3, 5))))


def test_contradicting_parameters_of_a_distribution() -> None:
    at = opened(dist="uniform", uniform_low="2", uniform_high="1")
    assert_one_sentence(at, "low < high")


def test_upload() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    at = opened(src="upload")
    assert any("upload a file" in sentence for sentence in said(at.info))
    at.file_uploader[0].upload("x.csv", b"0,1,2\n3,4,5\n", "text/csv").run()
    assert_codes(at, x)
    np.testing.assert_array_equal(tensors.decode(at.query_params["t"]), x)


@for_each(
    ("name", "data", "word"),
    [
        ("x.npy", b"not numpy", "x.npy"),
        ("x.csv", b"1,2\n3,x\n", "line 2"),
        ("x.csv", b"", "empty"),
        ("x.json", b'{"a": [1, "2"]}', "x.json"),
        ("x.safetensors", b"\xff" * 16, "x.safetensors"),
    ],
)
def test_bad_upload(uploading: AppTest, name: str, data: bytes, word: str) -> None:
    at = uploading
    at.file_uploader[0].upload(name, data).run()
    assert not at.exception
    (sentence,) = said(at.error)
    assert len(sentence) < 400


# What does not fit the tensor, or is not a scheme


@for_each(
    ("before", "key", "value", "word"),
    some_rows([
        ({"per": "block"}, "block", "2", "one length per axis"),
        ({"per": "block"}, "block", "2x2x2", "one length per axis"),
        ({"per": "block"}, "block", "0x2", "1 or more"),
        ({"per": "block"}, "block", "9x2", "9 elements, but the axis has 8"),
        ({"per": "block"}, "block", "axb", "'a'"),
        ({"per": "block"}, "block", "2x", "integer"),
        ({"range": "fixed"}, "low", 1.0, "low < high"),
        ({"range": "fixed"}, "low", 2.0, "low < high"),
        ({"range": "fixed"}, "high", 1e39, "float32"),
        *(({"range": "by hand"}, "scale", text, "positive") for text in ("0", "-0.1", "1e-50", "1e39", "-1")),
        *(
            ({"range": "by hand"}, "scale", text, "must be")
            for text in (
                "nan",
                "inf",
                "abc",
                "",
                "[0.1",
                "True",
                "'1'",
                "None",
                "1j",
                "__import__('os')",
                *HOSTILE,
            )
        ),
        ({"range": "by hand"}, "scale", "[" * 3000, "must be"),
        ({"range": "by hand"}, "scale", "9" * 5000, "must be"),
        ({"range": "by hand"}, "scale", "[[0.1], [0.2]]", "grid"),
        ({"range": "by hand"}, "scale", "[[0.1], [0.2, 0.3]]", "different lengths"),
        ({"range": "by hand"}, "zero_point", "1.5", "integer"),
        ({"range": "by hand"}, "zero_point", "nan", "must be"),
        ({"range": "by hand"}, "zero_point", "1" * 14, "32 bits"),
        ({}, "rows", "9:10", "0:8"),
        ({}, "rows", "3:3", "0:8"),
        ({}, "rows", "5:2", "0:8"),
        ({}, "rows", "-1:3", "0:8"),
        ({}, "rows", "3", "0:16"),
        ({}, "rows", "a", "'a'"),
        ({}, "cols", "0:9", "0:8"),
        ({}, "cols", HOSTILE[0], "0:16"),
        ({"shape": "2x3x4"}, "down", 2, "two different axes"),
        ({"shape": "2x3x4"}, "at", "2", "axis 0 (0–1)"),
        ({"shape": "2x3x4"}, "at", "x", "integers"),
        ({"shape": "2x3x4"}, "at", "1, 1", "axis 0 (0–1)"),
    ], 20),
    ids=lambda v: v[:24] if isinstance(v, str) else None,
)
def test_bad_value(before: dict[str, str], key: str, value: Any, word: str) -> None:
    at = opened(**before)
    assert_clean(at)
    good = widget(at, key).value
    change(at, key, value)
    assert_one_sentence(at, word)
    assert str(widget(at, key).value) == str(value)
    if before == {"range": "fixed"}:
        change(at, key, good)
        assert_codes(at)


@for_each(
    ("typed", "word"),
    [
        ("8, 8", "shape (8, 8)"),
        ("1", "one index per axis"),
        pytest.param("a, b", "integers", marks=pytest.mark.slow),
        pytest.param("1.5, 2", "integers", marks=pytest.mark.slow),
        pytest.param("9" * 40 + ", 0", "shape (8, 8)", marks=pytest.mark.slow),
    ],
)
def test_bad_element_falls_back_to_the_worst(page: AppTest, typed: str, word: str) -> None:
    worst = widget(page, "cell").placeholder
    at = change(page, "cell", typed)
    assert_one_sentence(at, word, f"Element ({worst}) is shown instead", kind="warning")
    assert_codes(at)
    assert widget(at, "cell").value == typed


@for_each(
    ("size", "word"),
    [
        ("9", "9 elements, but the axis has 8"),
        pytest.param("0", "1 or more", marks=pytest.mark.slow),
        pytest.param("-4", "1 or more", marks=pytest.mark.slow),
        pytest.param("four", "'four'", marks=pytest.mark.slow),
        pytest.param("2.5", "'2.5'", marks=pytest.mark.slow),
    ],
)
def test_bad_group_size(size: str, word: str) -> None:
    at = opened(per="group", group=size)  # AppTest can't type what is not in the list
    assert_one_sentence(at, word)
    assert at.selectbox(key="group").value == size
    change(at, "group", 2)
    assert_codes(at)


@for_each(
    ("shape", "group", "block"),
    [
        pytest.param("8x8", "per_group(8, axis=1)", "per_block([2,2])", marks=pytest.mark.slow),
        pytest.param("4x200", "per_group(8, axis=1)", "per_block([2,2])", marks=pytest.mark.slow),
        pytest.param("2x96", "per_group(32, axis=1)", "per_block([2,2])", marks=pytest.mark.slow),
        ("3", "per_group(2, axis=0)", "per_block([2])"),
        pytest.param("2x3x1", "per_group(1, axis=2)", "per_block([1,2,1])", marks=pytest.mark.slow),
    ],
)
def test_what_is_left_empty_fits_the_tensor(shape: str, group: str, block: str) -> None:
    at = change(opened(shape="4x4x4x4", dist="normal", per="group"), "shape", shape)
    assert scheme(at) == f"int4 symmetric {group} min_max textbook"
    change(at, "per", "block")
    assert scheme(at) == f"int4 symmetric {block} min_max textbook"
    assert_clean(at)


@for_each("zero_point", some(["8", "1000", "-9"], 3))
def test_zero_point_outside_the_format_is_computed_with_a_finding(by_hand: AppTest, zero_point: str) -> None:
    at = change(by_hand, "zero_point", zero_point)
    assert_clean(at)
    assert any(f"zero point {zero_point} is not an int4 code" in text for text in said(at.markdown))
    with pytest.warns(UserWarning, match="zero_point"):
        assert_codes(at)


def test_pattern_for_python_scales_is_not_evaluated() -> None:
    at = change(opened(range="by hand"), "scale", "[[1e-3]*2]")
    assert_one_sentence(at, "must be a number or a nested list")


# The view


def test_element() -> None:
    at = change(opened(), "cell", "2, -1")
    assert maps(at)["selected"] == [2, 7]
    assert any("element (2, 7)" in e.proto.body for e in at.get("html"))
    x = drawn(at, "x")[2, 7]
    assert any(f"{x:.3g}"[:4] in text for text in lines(at))


def test_switches_of_the_maps() -> None:
    at = opened(per="block", block="4x2")
    assert maps(at)["borders"] is None
    change(change(at, "borders", True), "numbers", False)
    assert_codes(at)
    assert maps(at)["numbers"] is False
    assert [[n for n in lines if 0 < n < 8] for lines in maps(at)["borders"]] == [[4], [2, 4, 6]]


def test_switches_of_the_distribution() -> None:
    at = opened(per="block", tab="Distribution", log="true")
    assert widget(at, "log").value is True
    assert_codes(change(at, "one_block", True))


def test_axes_of_the_view() -> None:
    at = opened(shape="2x3x4", dist="normal", at="0")
    x = tensors.generate(tensors.Generated("normal", (2, 3, 4)))
    np.testing.assert_array_equal(drawn(at, "x"), x[0])
    change(at, "at", "1")
    np.testing.assert_array_equal(drawn(at, "x"), x[1])
    change(at, "down", 0)
    np.testing.assert_array_equal(drawn(at, "x"), x[:, 1])
    change(at, "cell", "1, 2, 3")
    assert_clean(at)


def test_go_to_worst_and_show_all() -> None:
    at = opened(shape="64x64", dist="outlier_element")
    next(b for b in at.button if b.label == "Go to worst").click().run()
    assert_clean(at)
    assert drawn(at).shape == (16, 16)
    worst = qc.report(
        qc.apply(tensors.generate(tensors.Generated("outlier_element", (64, 64))), qc.Scheme.parse(DEFAULT))
    )
    assert at.text_input(key="cell").value == ", ".join(map(str, worst.max_abs_error_index))
    next(b for b in at.button if b.label == "Show all").click().run()
    assert_clean(at)
    assert drawn(at).shape == (64, 64)


# other tests open each tab with a matrix; of a tensor without axes, these have the most of their own
@for_each("tab", some(["Scales", "Arithmetic", "Code", "Numbers", "Distribution", "Export"], 3))
@for_each("shape", some(["()", "5", "2x3x4", "300x300", "8x8"], 5))
def test_tab(tab: str, shape: str) -> None:
    at = opened(tab=tab, shape=shape)
    assert_clean(at)
    content = next(t for t in at.tabs if t.label == tab)
    assert len(content.children)
    assert all(not len(t.children) for t in at.tabs if t.label != tab)
    if tab == "Scales":  # of one scale, the table is enough
        assert not at.get("plotly_chart")


def test_two_scales_have_a_chart() -> None:
    assert len(opened(tab="Scales", shape="2x8", per="channel").get("plotly_chart")) == 1


@for_each(
    ("name", "label"),
    some_rows([("error", "error"), ("x", "original"), ("codes", "codes"), ("dequantized", "dequantized")], 4),
)
def test_table_of_numbers(name: str, label: str) -> None:
    at = opened(tab="Numbers", table=label)
    result = qc.apply(drawn(at, "x"), qc.Scheme.parse(scheme(at)))
    shown = getattr(result, name).numpy()
    np.testing.assert_array_equal(at.dataframe[0].value.to_numpy(), shown)


def test_key_figures_are_those_of_quantcore() -> None:
    at = opened(bits="5", per="channel", mode="asymmetric")
    report = qc.report(qc.apply(drawn(at, "x"), qc.Scheme.parse(scheme(at))))
    values = figures(at)
    assert values["SQNR"] == f"{report.sqnr_db:.2f} dB"
    assert values["MSE"] == f"{report.mse:.4g}"
    assert values["max |error|"] == f"{report.max_abs_error:.4g}"
    (body,) = [e.proto.body for e in at.get("html") if "<dl class=" in e.proto.body]
    (sum_,) = re.findall(r"Storage per element: ([\d.]+) for the code \+ ([\d,]+) / ([\d,]+) for scales", body)
    code, shared, elements = (float(n.replace(",", "")) for n in sum_)
    assert (code, shared, elements) == (5, 8 * (32 + 5), 64)
    assert float(values["Bits per element"]) == pytest.approx(code + shared / elements, abs=0.05)


def told_change(at: AppTest, label: str) -> tuple[float, str, str]:
    """The change shown for a figure: the number, "better" or "worse", and the reference ("previous" or "pinned")."""
    found = re.fullmatch(
        r"\S+(?: \S+)? +([+−][\d.e+−]+)\S*(?: \S+)? +(better|worse) than (\w+)", figures(at)[label]
    )
    assert found, figures(at)[label]
    return float(found[1].replace("−", "-")), found[2], found[3]


def test_a_change_names_what_it_is_against() -> None:
    at = opened(bits="5")
    x, before = drawn(at, "x"), scheme(at)
    change(at, "bits", 6)
    first, now = (qc.report(qc.apply(x, qc.Scheme.parse(text))) for text in (before, scheme(at)))
    assert figures(at)["Against the previous scheme"] == before
    assert told_change(at, "SQNR") == (round(now.sqnr_db - first.sqnr_db, 2), "better", "previous")
    difference, verdict, _ = told_change(at, "MSE")
    assert difference == float(f"{now.mse - first.mse:.3g}")
    assert verdict == "better"
    assert told_change(at, "Bits per element") == (1.0, "worse", "previous")
    # a control that changes neither tensor nor scheme leaves the comparison as it is
    change(at, "borders", True)
    assert figures(at)["Against the previous scheme"] == before
    change(at, "seed", 3)
    assert not any(label.startswith("Against") for label in figures(at))


def test_pinned_scheme() -> None:
    at = opened(bits="3")
    x, pinned = drawn(at, "x"), scheme(at)
    widget(at, "_pin_button").click().run()
    assert at.query_params["pin"] == pinned
    change(at, "bits", 8)
    first, now = (qc.report(qc.apply(x, qc.Scheme.parse(text))) for text in (pinned, scheme(at)))
    assert figures(at)["Against the pinned scheme"] == pinned
    assert told_change(at, "SQNR") == (round(now.sqnr_db - first.sqnr_db, 2), "better", "pinned")
    cold = opened(bits="8", pin=pinned)
    assert figures(cold) == figures(at)
    # with a new tensor, the pinned scheme is evaluated on that
    change(at, "seed", 3)
    again = drawn(at, "x")
    first, now = (qc.report(qc.apply(again, qc.Scheme.parse(text))) for text in (pinned, scheme(at)))
    assert told_change(at, "SQNR")[0] == round(now.sqnr_db - first.sqnr_db, 2)
    widget(at, "_pin_button").click().run()
    assert "pin" not in at.query_params
    assert not any(label.endswith("pinned scheme") for label in figures(at))


@for_each("pin", some(["nonsense", HOSTILE[0], "int4 symmetric per_channel(7) min_max textbook"], 2))
def test_a_pinned_scheme_that_can_not_be_used(pin: str) -> None:
    at = opened(pin=pin)
    assert not at.exception
    with pytest.raises(qc.QuantError) as why:
        qc.apply(drawn(at, "x"), qc.Scheme.parse(pin))
    assert figures(at)["Against the pinned scheme"] == str(why.value)
    assert_codes(at)


@for_each(
    "text",
    [
        "int4 symmetric per_tensor min_max textbook",
        "uint4 asymmetric per_channel(1) min_max textbook",
        "int4 asymmetric per_group(4) min_max onnxruntime",
        "int8 symmetric per_flat_group(16) min_max textbook",
        "uint8 asymmetric per_group(8) min_max hqq",
        "e4m3fn symmetric per_channel(0) min_max textbook",
        "gguf.Q4_0",
        "gguf.Q4_1",
        "bitsandbytes.nf4",
        "torchao.nvfp4",
    ],
)
def test_scales_and_zero_points_in_the_headline(text: str) -> None:
    """Each number in the headline is compared with the parameters themselves."""
    chosen = qc.PRESETS.get(text) or qc.Scheme.parse(text)
    x = tensors.generate(tensors.Generated("normal", (8, 32), 3))
    result = qc.apply(x, chosen)
    element = (2, 9)
    said = parameters_in_words(result, qc.trace(result, element))
    scale, zero_point = result.scale.numpy().ravel(), result.zero_point
    zero_name = "min" if chosen.convention.zero_point.is_min else "zero point"
    whole, _, own = said.partition(" · ")
    if scale.size == 1:
        assert whole.startswith(f"scale {scale[0]:.4g}")
    else:
        assert whole.startswith(f"{scale.size:,} scales {scale.min():.4g}")
        assert (f" to {scale.max():.4g}" in whole) == (f"{scale.min():.4g}" != f"{scale.max():.4g}")
        trace = qc.trace(result, element)
        assert own.startswith(f"{block_name(trace.bounds, x.shape)}: scale {trace.scale:.4g}")
    assert (zero_name in whole) == (zero_point is not None)
    if zero_point is not None and scale.size > 1:
        assert own.endswith(f"{zero_name} {trace.zero_point:.4g}")
        values = zero_point.numpy().ravel()
        spread = f"{values.min():.4g} to {values.max():.4g}"
        assert spread in whole or (values == values[0]).all()


# Links


def pack(plain: bytes) -> str:
    packed = zlib.compress(plain, 9)
    raw = struct.pack("<I", zlib.crc32(packed)) + packed
    return "1." + base64.urlsafe_b64encode(raw).decode().rstrip("=")


X = np.array([[1.5, -2.25], [0.1, 3]], np.float32)


@pytest.mark.parametrize("src", some(["edit", "paste", "upload"]))
def test_tensor_in_the_link(src: str) -> None:
    at = opened(src=src, t=tensors.encode(X), bits="3")
    assert_codes(at, X)
    assert scheme(at) == "int3 symmetric per_tensor min_max textbook"


@for_each("src", some(["paste", "edit", "upload"]))
@for_each(
    "text",
    some([
        "",
        "1.",
        "x",
        "2.AAAA",
        tensors.encode(X)[:-5],
        tensors.encode(X)[:8],
        HOSTILE[0],
        pack(struct.pack("<B2I", 2, 60000, 60000) + bytes(3 << 20)),
        "100 MiB",
        pack(struct.pack("<B2I", 2, 3, 3) + bytes(4)),
    ], 5),
    ids=["empty", "no body", "word", "version", "cut", "cut early", "script", "bomb", "long bomb", "shape"],
)
def test_damaged_tensor_in_the_link(src: str, text: str) -> None:
    at = opened(src=src, t=pack(bytes(100 << 20)) if text == "100 MiB" else text)
    assert_one_sentence(at, "The tensor in the link", kind="warning")
    change(at, "src", "generate")
    assert_codes(at)


@for_each(
    "parameters",
    some([
        {"nonsense": "1"},
        {"bits": "99"},
        {"bits": "four"},
        {"bits": "4.5"},
        {"bits": ""},
        {"codes": "neither"},
        {"mode": HOSTILE[0]},
        {"per": "thing"},
        {"per": "channel", "axis": "5"},
        {"range": "percentile", "p": "40"},
        {"range": "percentile", "p": "nan"},
        {"range": "fixed", "low": "inf"},
        {"overflow": "x"},
        {"narrow": "perhaps"},
        {"src": "nowhere"},
        {"src": "example", "ex": "none"},
        {"dist": "none"},
        {"seed": "-1"},
        {"seed": "1e99"},
        {"outlier_channel_factor": "0"},
        {"borders": "7"},
        {"tab": HOSTILE[1]},
        {"shape": "2x3x4", "down": "9"},
        {HOSTILE[0]: "1"},
    ], 10),
    ids=lambda p: "&".join(f"{k}={v}" for k, v in p.items())[:30],
)
def test_link_with_a_value_that_cannot_be_used(parameters: dict[str, str]) -> None:
    at = opened(**parameters)
    assert_clean(at)
    (warning,) = said(at.warning)
    assert warning.startswith("This link has 1 parameter that can't be used and is ignored: ")
    key, value = list(parameters.items())[-1]
    assert f"{key}={value}"[:39] in warning


def test_what_is_said_of_a_link_stays_until_it_is_closed() -> None:
    at = opened(bits="99")
    (warning,) = said(at.warning)
    change(at, "seed", 2)
    assert said(at.warning) == [warning]
    next(b for b in at.button if b.label == "Close").click().run()
    assert not at.warning
    assert_clean(at)


def test_good_link_is_not_complained_about() -> None:
    at = opened(
        bits="8", codes="unsigned", mode="asymmetric", per="group", group="2", group_axis="0", range="percentile",
        p="99.5", narrow="true", borders="true", numbers="false", cell="1, 2", rows="0:4", cols="2:6", tab="Numbers",
        table="error", seed="7", shape="8x8", dist="normal", normal_std="2", embed="true",
    )  # fmt: skip
    assert_clean(at)
    assert not at.warning
    assert scheme(at) == "uint8n asymmetric per_group(2, axis=0) percentile(99.5) textbook"
    assert drawn(at).shape == (4, 4)


def test_a_link_may_have_the_scheme_as_text() -> None:
    text = "int3 asymmetric per_group(4, axis=1) min_max torchao"
    at = opened(scheme=text)
    assert_clean(at)
    assert not at.warning
    assert scheme(at) == text
    assert "scheme" not in at.query_params  # its controls' own parameters are, and change with them
    assert (at.query_params["bits"], at.query_params["library"]) == ("3", "torchao")
    assert scheme(opened(scheme="int3 per_group(4) torchao")).startswith("int3 symmetric per_group(4, axis=1)")
    wrong = opened(scheme="int99 per_tensor")
    assert not wrong.exception
    assert scheme(wrong) == DEFAULT
    assert any("bits=99 is outside 2..16" in sentence for sentence in said(wrong.error))


LIBRARY_LINES = {
    "torchao": "the scale is max|x| / 7.5; no scale is below 2^-126; codes are round(x · (1/s))",
    "aimet.Quantize": "the scale is (7 · d + 8 · d) / 15, where d is the larger of high / 7 and -low / 8",
    "onnxruntime": "the scale is 2 · max|x| / 15; the scale is computed in float64",
}


@for_each("name", some(LIBRARY_LINES, 3))
def test_library_says_what_it_does_differently(page: AppTest, name: str) -> None:
    at = change(page, "library", name)
    assert_codes(at)
    assert scheme(at) == DEFAULT.replace("textbook", name)
    assert any(LIBRARY_LINES[name] in html.unescape(e.proto.body) for e in at.get("html"))
    assert ("as aimet-torch reports it" in " ".join(lines(at))) == name.startswith("aimet")


@for_each("name", some(qc.INTEGER_CONVENTIONS, 14))
def test_link_names_a_library(name: str) -> None:
    at = opened(library=name, bits="8")
    if at.error:
        at = widget(at, "fit").click().run()
    assert_codes(at)
    assert scheme(at).endswith(name)


def test_library_that_refuses_offers_the_nearest_scheme() -> None:
    at = change(opened(), "library", "hqq")
    assert_one_sentence(at, "hqq 0.2.8.post1", "unsigned asymmetric codes only", "int4 symmetric")
    at = widget(at, "fit").click().run()
    assert_codes(at)
    assert scheme(at) == "uint4 asymmetric per_tensor min_max hqq"


def test_library_changes_what_can_be_chosen() -> None:
    at = change(opened(), "library", "quanto")
    assert widget(at, "per").options == ["tensor", "channel"]
    at = change(change(at, "library", "torchao"), "per", "group")
    assert_codes(at)
    assert all(8 % int(size) == 0 for size in widget(at, "group").options)


@for_each("opens", some([lambda: change(opened(per="block"), "library", "onnx"),
                         lambda: opened(per="block", library="onnx")]))  # fmt: skip
def test_what_the_library_has_not_stays_until_changed(opens: Any) -> None:
    at = opens()
    assert widget(at, "per").value == "block"
    assert_one_sentence(at, "per-tensor, per-channel and per-group")


def test_scheme_text_with_a_library() -> None:
    at = change(opened(), "_scheme_text", "uint8 asymmetric per_channel(1) torch.quantize_per_channel")
    assert_codes(at)
    assert widget(at, "library").value == "torch.quantize_per_channel"
    at = change(at, "_scheme_text", "int8 torchao(kernel=A)")
    assert_one_sentence(at, "kernel of torchao")


def test_nan_that_a_library_takes() -> None:
    at = opened(source="paste", text="1 nan 2", library="torchao")
    assert not at.exception


@pytest.mark.parametrize("name", some(["stochastic_7", "half_away", "toward_zero"], 3))
def test_rounding(name: str) -> None:
    at = opened(rounding=name)
    assert_codes(at)
    assert scheme(at) == DEFAULT + f"(rounding={name})"


def test_rounding_that_is_none() -> None:
    assert_one_sentence(opened(rounding="sideways"), "sideways", "half_even")


FLOAT_SCHEMES = [
    "e4m3fn symmetric per_tensor min_max textbook",
    "float(3, 1) symmetric per_channel min_max textbook",
    "e2m1 symmetric per_group(4, axis=1) min_max torchao.mx.FLOOR scales(e8m0 symmetric per_tensor given(1) textbook)",
    "e3m2 symmetric per_tensor min_max textbook(rounding=toward_zero)",
    "int4 symmetric per_group(2, axis=1) min_max textbook scales(uint8 asymmetric per_tensor min_max textbook)",
]


@for_each("text", some(FLOAT_SCHEMES))
def test_scheme_text_of_floats_and_of_scales(page: AppTest, text: str) -> None:
    at = change(page, "_scheme_text", text)
    assert_codes(at)
    assert scheme(at) == text


@for_each("name", some(qc.FLOATS, 16))
def test_format(name: str) -> None:
    at = opened(format=name)
    if name == "e8m0":  # has no sign: negative elements become NaN
        assert not at.exception
        return
    assert_codes(at)
    assert scheme(at).startswith(name)
    assert "torchao.mx.FLOOR" in widget(at, "library").options
    assert "onnxruntime" not in widget(at, "library").options


@for_each(
    ("parameters", "words"),
    [
        ({"format": "float(9, 9)"}, ["exponent=9", "not supported"]),
        pytest.param({"format": "nonsense"}, ["nonsense"], marks=pytest.mark.slow),
        ({"scales": "nonsense"}, ["nonsense"]),
        ({"format": "e4m3fn", "library": "onnxruntime"}, ["onnxruntime", "e4m3fn"]),
    ],
)
def test_format_that_is_none(parameters: dict[str, str], words: list[str]) -> None:
    assert_one_sentence(opened(**parameters), *words)


@for_each("name", some(qc.PRESETS, 100))
def test_preset(rows_of_256: AppTest, name: str) -> None:
    at = change(rows_of_256, "_preset", name)
    assert_codes(at)
    # the drawn codes are compared with the preset's own, as the text may count an axis from the start
    x = drawn(at, "x")
    np.testing.assert_array_equal(drawn(at), qc.apply(x, qc.PRESETS[name]).codes.numpy())
    assert widget(at, "_preset").value is None


def test_nothing_is_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor by the next run, or for the next visitor."""
    calls: list[tuple[str, ...]] = []

    def counted(module: Any, name: str) -> None:
        compute = getattr(module, name)

        def call(*args: Any, **more: Any) -> Any:
            calls.append((name, *(str(getattr(arg, "scheme", arg)) for arg in args)))
            return compute(*args, **more)

        monkeypatch.setattr(module, name, call)

    counted(cache, "apply_quietly")
    counted(cache, "map_data")
    for name in ("report", "trace", "diagnose"):
        counted(qc, name)
    link = {"seed": "20261122", "bits": "5"}  # used by no other test
    change(opened(**link), "bits", 6)
    change(opened(**link, tab="Numbers"), "borders", True)
    change(opened(**link, tab="Distribution"), "numbers", False)
    assert Counter(name for name, *_ in calls) == dict.fromkeys(
        ("apply_quietly", "map_data", "report", "trace", "diagnose"), 2
    )
    assert len(set(calls)) == len(calls)


def test_all_four_stand_side_by_side_with_the_decimals_of_a_print() -> None:
    at = opened(dist="normal", shape="4x6", tab="Numbers", table="side by side", rows="1:3")
    x = tensors.generate(tensors.Generated("normal", (4, 6)))
    result = qc.apply(x, qc.Scheme.parse(scheme(at)))
    (table,) = at.dataframe
    frame = table.value
    assert frame[["row", "column"]].to_numpy().tolist() == [[row, column] for row in (1, 2) for column in range(6)]
    shown = {"original": x, "codes": result.codes, "dequantized": result.dequantized, "error": result.error}
    for name, values in shown.items():
        np.testing.assert_array_equal(frame[name].to_numpy().reshape(2, 6), np.asarray(values)[1:3])
    config = json.loads(table.proto.columns)
    formats = [config[name]["type_config"]["format"] for name in ("original", "dequantized", "error")]
    assert formats == ["%.4f"] * 3


def test_what_is_too_large_for_a_table_is_said() -> None:
    at = opened(dist="normal", shape="600x700", tab="Numbers", table="side by side")
    assert_clean(at)
    assert "Drag a box in a map to see its elements side by side: there are too many for a table." in said(at.caption)
    assert not at.dataframe


def test_the_slice_is_named_above_the_maps_and_is_the_worst_one_until_another_is_chosen() -> None:
    at = opened(dist="normal", shape="2x3x4x5", seed="3")
    x, (a, b) = worst_slice(at, 3)
    assert (a, b) != (0, 0)
    named = f":small[Slice **[{a}, {b}, :, :]**, one of 6; it has the largest |error|.]"
    assert slices(at) == [named]
    np.testing.assert_array_equal(drawn(at, "x"), x[a, b])
    assert widget(at, "at").value == f"{a}, {b}"
    change(at, "seed", 4)  # the maps follow a seed in one place
    x, (c, d) = worst_slice(at, 4)
    assert (c, d) != (a, b)
    assert slices(at) == [f":small[Slice **[{a}, {b}, :, :]**, one of 6. The largest |error| is in another.]"]
    widget(at, "_worst_slice").click().run()
    assert_clean(at)
    assert f"[{c}, {d}, :, :]**, one of 6; it has" in slices(at)[0]
    change(at, "at", "0, 0")
    change(at, "dist", "uniform")
    assert "[0, 0, :, :]" in slices(at)[0]
    change(at, "at", "")
    change(at, "dist", "normal")
    assert f"[{c}, {d}, :, :]**, one of 6; it has" in slices(at)[0]
    at = opened(dist="normal", shape="2x3x4x5", down="0", across="2", at="1, 4")
    assert "Slice **[:, 1, :, 4]**, one of 15" in slices(at)[0]
    assert not slices(opened())


def slices(at: AppTest) -> list[str]:
    return [text for text in said(at.markdown) if "Slice" in text]


def worst_slice(at: AppTest, seed: int) -> tuple[np.ndarray, tuple[int, int]]:
    x = tensors.generate(tensors.Generated("normal", (2, 3, 4, 5), seed))
    error = np.abs(np.asarray(qc.apply(x, qc.Scheme.parse(scheme(at))).error))
    a, b, *_ = map(int, np.unravel_index(error.argmax(), error.shape))
    return x, (a, b)


@for_each(
    ("parameters", "codes_of", "label"),
    [
        pytest.param({"group": "2"}, lambda x: [x[:, :2], x[:, 2:]], "Shared by all rows", marks=pytest.mark.slow),
        ({"group": "3", "group_axis": "0"}, lambda x: [x[:3], x[3:]], "Shared by all columns"),
    ],
)
def test_a_group_may_be_shared_by_all_rows(parameters: dict[str, str], codes_of: Any, label: str) -> None:
    """As homework has it: each group is quantized by itself, as a whole tensor is."""
    at = opened(dist="normal", shape="6x4", per="group", group_all="true", **parameters)
    x = tensors.generate(tensors.Generated("normal", (6, 4)))
    assert widget(at, "group_all").label == label
    axis = int(parameters.get("group_axis", 1))
    wanted = np.concatenate([qc.apply(part, qc.Scheme.parse(DEFAULT)).codes for part in codes_of(x)], axis)
    np.testing.assert_array_equal(drawn(at), wanted)
    change(at, "group_all", False)
    assert scheme(at) == f"int4 symmetric per_group({parameters['group']}, axis={axis}) min_max textbook"
    assert (drawn(at) != wanted).any()


def test_a_cell_of_many_elements_shows_the_rms_of_their_errors_or_the_largest() -> None:
    at = opened(shape="600x3")
    x = drawn(at, "x")  # of each cell, the element with the largest |x|
    assert x.shape == (200, 3)
    choice = widget(at, "error_of")
    assert choice.value == "rms"
    title = lambda at: maps(at)["titles"]["error"]  # noqa: E731
    assert title(at) == "RMS error"
    assert maps(at)["colours"]["error"]["zmin"] == 0
    at = change(at, "error_of", "largest")
    assert title(at) == "Error x − x̂"
    assert not any(b.key == "error_of" for b in opened(shape="8x8").button_group)
