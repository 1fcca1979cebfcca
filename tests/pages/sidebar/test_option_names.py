"""What the options of all controls are called: words, unless they are typed elsewhere; links carry values, not words."""

import re
from typing import Any

import pytest
import torch
from app_page import change, said, script_of, the_app, widget
from grid import for_each
from parts import Part, in_parts, some_rows
from streamlit.testing.v1 import AppTest

from pages.outputs.methods import run as methods_run
from pages.registry import PAGES
from pages.shared.computing import cache
from pages.shared.curriculum import LESSONS, step_key
from pages.shared.page import Page
from quantcore.numerics import ROUNDINGS
from quantcore.tensors import DISTRIBUTIONS, EXAMPLES
from tests.pages.explore.test_explore import assert_codes, scheme
from tests.pages.sidebar.test_tensor_controls import LONG, SEVERAL, X, upload

# Controls whose options are also typed: formats, libraries, presets, schemes, addresses, tensors of a file
TYPED = re.compile(
    r"format|library|lib_[ab]|_preset|fmt_(code|shown|bits)|sw_(presets|maps|formats|symmetry|per|range)|sn_presets|ck|ck_(original|imatrix|tensor)|search|tensor"
)
# Titles, which begin with a capital: places on the page, as tabs are, and examples; all other options do not
TITLES = re.compile(r"\w+_part|match_src|learn_\w+_step|_finding_tried|\w*_example|ex")
HIDDEN = {step_key("mistakes")}  # behind a control with other names: these give the answers away
WRITTEN = {
    "ReLU",
    "dB",
    "min-max",
    "half-quadratic",
    "one-sided",
    "log-normal",
    "Lloyd-Max",
    "k-means",
    "feed-forward",
    "SmoothQuant",
    "Hadamard",
    "LLM.int8",
}
CAPITALS = re.compile(r"[A-Z]{2}|x\b|Laplace|Student|Lloyd|SmoothQuant|Hadamard")  # names that keep their case in any list
# Of the pages beside lessons, those that are looked at by default
MOST_CONTROLS = {"", "ranges", "layer", "compare-checkpoints"}
# On these pages, what draws more controls
STATES: list[tuple[str, dict[str, Any]]] = [
    ("", {"library": "textbook", "format": "fitted codebook", "src": "example", "per": "channel", "tab": "Numbers"}),
    ("", {"format": "integers", "range": "ggml search", "src": "generate", "shape": "4x6x5"}),
    ("formats", {"fmt_shown": ["fitted"]}),
    ("checkpoint", {"ck": "example:minilm-gptq"}),
]


def opened(url: str, **parameters: Any) -> AppTest:
    at = the_app(url)
    for key, value in parameters.items():
        at.query_params[key] = value
    return at.run()


def lists(at: AppTest) -> dict[str, list[str]]:
    """The options of all controls, by the controls' keys."""
    assert not at.exception
    found = [*at.selectbox, *at.multiselect, *at.button_group, *at.radio]
    return {
        re.sub(r"_\d+$", "", control.key or control.label): [
            str(getattr(o, "content", o)) for o in control.options
        ]
        for control in found
    }


def problems(key: str, options: list[str]) -> list[str]:
    if TYPED.fullmatch(key) or key in HIDDEN:
        return []
    names = [re.sub(r"torch\.\w+", "", name) for name in options]  # a title may name a function
    words = [word.strip(",:;()") for name in names for word in name.split()]
    words = [word for word in words if word not in WRITTEN and word.lower() not in WRITTEN]
    found = [word for word in words if "_" in word or re.search(r"[a-z][A-Z]|\w\.[a-z]", word)]
    found += [w for w in words if re.search(r"\w-[A-Za-z]", w)]
    plain = [name for name in names if name[:1].isalpha() and not CAPITALS.match(name)]
    return found + [name for name in plain if name[0].isupper() != bool(TITLES.fullmatch(key))]


def assert_kept(at: AppTest, page: Page) -> None:
    """The page has the file that was uploaded on another one, and the tensor that was chosen there."""
    assert not at.error, (page.title, said(at.error))
    assert widget(at, "tensor").value == "c_weight", page.title
    if "tensor" in page.uses:
        assert widget(at, "dtype").value == "float16", page.title
        assert cache.values(at.session_state["_current"].tensor).dtype == torch.float16, page.title


def assert_named_above(at: AppTest) -> None:
    """What every page draws first has keys, so that its place is known before the code for it has come."""
    keys = [getattr(element, "key", None) for element in at.main.children.values()]
    assert None not in keys[: keys.index("qs_unseen")], keys


@in_parts(13)
def test_options_are_words_in_one_style_and_a_file_survives_every_page(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The widget is empty on every page but the one where the file was uploaded, as can happen in a browser.

    Every page with a tensor computes in the dtype of the file, with a library that does so.
    """
    monkeypatch.setattr(methods_run, "counts", lambda tokens, inputs: [tokens])  # what takes most of its page
    at = change(upload(opened("", src="upload", library="torchao"), SEVERAL), "tensor", "c_weight")
    at.session_state["sn_more"] = "int8 per_channel(0)"
    at.session_state["sw_set"] = "chosen"  # a few schemes
    found = []
    lessons = [page for page in PAGES if page.script.startswith("learn/")]
    drawn = [page for page in PAGES if page not in lessons]
    chosen = part(lessons)
    # those with the most controls of their own; each page's own tests draw it
    if len(chosen) < len(lessons):
        drawn = [page for page in drawn if page.url_path in MOST_CONTROLS]
        assert len(drawn) == len(MOST_CONTROLS)
    for page in [*drawn, *chosen]:
        if page.url_path == "sensitivity":
            at.session_state["ck"] = "example:minilm"  # the smaller of its examples
        at = at.switch_page(page.script).run()
        assert_named_above(at)
        found += [(page.url_path, key, options) for key, options in lists(at).items()]
        if page.uses:
            assert_kept(at, page)
    at = change(change(at.switch_page(script_of("")).run(), "src", "generate"), "src", "upload")
    assert at.file_uploader[0].value is None
    assert any("several.safetensors" in text for text in said(at.markdown))
    change(at, "bits", 6)
    assert_codes(at, X)
    assert scheme(at).startswith("int6")
    change(at, "tensor", LONG)
    assert_codes(at, -2 * X)
    next(b for b in at.button if b.label == "Remove").click().run()
    assert not at.exception
    assert "upload a file" in said(at.info)[0]
    assert not {"t", "file", "tensor"} & at.query_params.keys()
    for url, choices in STATES:
        at = at.switch_page(script_of(url)).run()
        for key, value in choices.items():
            at.session_state[key] = value
        at = at.run()
        found += [(url, key, options) for key, options in lists(at).items()]
    assert {key for _, key, _ in found} >= {
        "dist",
        "rounding",
        "range",
        "fit_method",
        "ex",
        "cmp_sort",
        "ck_sort",
    }
    wrong = [(url, key, options, bad) for url, key, options in found if (bad := problems(key, options))]
    assert wrong == []


@for_each(
    ("key", "options"),
    [
        ("any", ["min-max", "half_even"]),
        ("any", ["Symmetric", "asymmetric"]),
        ("any", ["Harm", "Bytes"]),
        ("ck_part", ["tensors", "findings"]),
        ("any", ["int8-exercise"]),
        ("any", ["a.b"]),
    ],
)
def test_the_rule_finds_other_styles(key: str, options: list[str]) -> None:
    assert problems(key, options)


NAMED = [
    *some_rows(("", "dist", value) for value in list(DISTRIBUTIONS)[1:4]),
    *(pytest.param("", "rounding", value, marks=pytest.mark.slow) for value in list(ROUNDINGS)[:2]),
    pytest.param("", "ex", list(EXAMPLES)[1], marks=pytest.mark.slow),
    pytest.param("", "range", "by hand", marks=pytest.mark.slow),
    pytest.param("", "fit_method", "lloyd_max", marks=pytest.mark.slow),
    pytest.param("learn-error", step_key("error"), list(LESSONS["error"].steps)[2], marks=pytest.mark.slow),
    pytest.param("learn-zero-point", step_key("zero_point"), "one-sided", marks=pytest.mark.slow),
    ("compare-checkpoints", "cmp_sort", "Bytes"),
]


def carried(at: AppTest, key: str) -> str:
    found = at.query_params[key]
    return str(found if isinstance(found, str) else found[-1])


@for_each(("url", "key", "value"), NAMED)
def test_links_carry_values(url: str, key: str, value: str) -> None:
    more = {"ex": {"src": "example"}, "fit_method": {"format": "fitted codebook"}}.get(key, {})
    at = opened(url, **{key: value}, **more)
    assert (widget(at, key).value, carried(at, key)) == (value, value)
    assert not at.warning
    at.run()  # the value stays
    assert (widget(at, key).value, carried(at, key)) == (value, value)
    shown = widget(at, key).format_func(value)
    at = opened(url, **{key: shown}, **more)  # what it is called opens the same view
    assert (widget(at, key).value, carried(at, key)) == (value, value)
