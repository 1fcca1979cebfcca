"""Compare → Match without a browser: what each control does, and what it says about bad input."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from app_page import said, the_app
from grid import for_each
from parts import some

import quantcore as qc
from pages.compare.match import run, views
from quantcore import tensors
from quantcore.matching import search
from quantcore.mistakes import CASES, compare

SAMPLE = "randn-seed-0-4x4"


@pytest.fixture
def few_rounds(monkeypatch):
    """Codes that no rules make are looked for in one dtype, not in three, and without mistakes."""
    monkeypatch.setattr(search, "DTYPES", (torch.float32,))
    for name in ("_mistaken", "_combined", "_derived", "_other_groups"):
        monkeypatch.setattr(search._Search, name, lambda self: [])


def opened(**state):
    """The page with the 4×4 sample as its tensor and these fields filled in."""
    at = the_app("match")
    at.session_state["src"], at.session_state["ex"] = "example", SAMPLE
    for key, value in state.items():
        at.session_state[key] = value
    return at.run()


def sample():
    return tensors.EXAMPLES[SAMPLE].load()


def codes_of(text):
    return qc.apply(sample(), qc.Scheme.parse(text)).codes.to(torch.int64)


def typed(codes):
    return "\n".join(", ".join(map(str, row)) for row in codes.tolist())


def paste(at, text):
    return at.text_area(key="match_text").set_value(text).run()


def results(at):
    """The table of candidates of a page without errors."""
    assert not at.exception
    assert said(at.error) == []
    return at.dataframe[0].value


def test_first_view_says_what_to_do():
    at = opened()
    assert not at.exception
    assert any(text.startswith("Paste the integers that some code made of the tensor") for text in said(at.caption))
    assert not at.dataframe
    cards = [button.key for button in at.button if (button.key or "").startswith("_match_card_")]
    assert sorted(cards) == [f"_match_card_{i}" for i in range(len(EXAMPLES))]  # each of them is tested


def test_search_finds_and_compares_with_no_scheme_that_the_page_does_not_show():
    at = opened(bits=3, library="hqq", match_text=typed(codes_of("int8 symmetric per_channel(1) torchao")))
    table = results(at)
    assert "torchao" in table["Libraries"][0]
    assert table["Codes that differ"][0] == "none"
    assert table["Rules"][0] == "int8 symmetric, one scale per column (axis 1)"
    assert not at.warning
    assert said(at.success) == ["All 16 integers are int8 symmetric, one scale per column (axis 1)."]
    assert any("With these rules torch.fake_quantize" in text for text in said(at.caption))
    words = " ".join([*said(at.caption), *said(at.markdown), *table.columns])
    assert "on the left" not in words
    assert "hqq" not in words


@pytest.mark.slow  # by default, the library's tests search in bfloat16, and another test here has the library named
def test_library_and_dtype_are_named_and_explore_opens_with_the_dtype(few_rounds, monkeypatch):
    monkeypatch.setattr(search, "DTYPES", (torch.bfloat16,))
    scheme = qc.Scheme.parse("int8 per_tensor torchao")
    codes = qc.apply(torch.as_tensor(sample()).bfloat16(), scheme).codes.to(torch.int64)
    assert not torch.equal(codes, codes_of(str(scheme)))
    made = "torchao, compressed-tensors or optimum-quanto int8 symmetric, one scale, computed in bfloat16"
    at = opened(match_text=typed(codes))
    assert said(at.success) == [f"All 16 integers are {made}, after 16 values of x were rounded to bfloat16."]
    opening = next(button for button in at.button if button.label == "Open in Explore")
    assert opening.help.endswith(" and the tensor's dtype to bfloat16")
    assert at.session_state["dtype"] == "float32"
    assert opening.click().run().session_state["dtype"] == "bfloat16"


@pytest.mark.slow  # a quick test has the sentence of another mistake, and the library's tests this one
def test_the_mistake_comes_first():
    """Ties at half a step of 0.25, rounded up; 31.75 sets the scale."""
    x = np.array([[0.125, 0.375], [-0.125, -0.375], [0.625, -31.75]])
    codes = np.floor(x / 0.25 + 0.5).astype(int)
    at = opened(src="paste", _pasted=typed(x), match_text=typed(codes))
    (sentence,) = said(at.warning)
    assert sentence == "Ties are rounded up; everything else is int8 symmetric, one scale."


def test_a_large_tensor_is_searched_when_asked(monkeypatch):
    monkeypatch.setattr(run, "AT_ONCE", 15)
    at = opened(match_text=typed(codes_of("int4 per_tensor")))
    assert not at.dataframe
    at = at.button(key="match_go").click().run()
    assert results(at).shape[0] == 1
    assert all(button.key != "match_go" for button in at.button)  # it is over
    at = paste(at, typed(-codes_of("int4n per_tensor")))
    assert not at.dataframe  # the earlier result was for other integers
    at.button(key="match_go")


def test_an_uploaded_file_stays_until_it_is_removed_and_a_bad_one_is_one_sentence():
    def upload(at, name, text):
        return at.file_uploader(key="match_file").upload(name, text.encode()).run()

    at = upload(opened(match_src="upload"), "bad.csv", "1, x")
    assert not at.exception
    assert len(said(at.error)) == 1
    assert said(at.run().error) == said(at.error)
    at = upload(at, "codes.csv", typed(codes_of("int8 per_tensor")))
    assert results(at)["Codes that differ"][0] == "none"
    at = at.switch_page("learn/overview.py").run().switch_page("compare/match/page.py").run()
    assert at.file_uploader(key="match_file").value is None
    assert results(at)["Codes that differ"][0] == "none"
    at = at.button(key="match_file_remove").click().run()
    assert not at.dataframe
    assert not any(button.key == "match_file_remove" for button in at.button)


@pytest.mark.slow  # by default, the library's tests have transposed codes
def test_transposed_on_the_page():
    x = torch.tensor([[0.5, -1.0, 2.0, 0.1], [9.0, 0.3, -0.2, -2.5]])
    at = opened(src="paste", _pasted=typed(x), match_text=typed(qc.apply(x, "int8 per_channel(0)").codes.T))
    assert results(at)["What went wrong"][0] == "transposed"
    assert any("undone: transposed" in text for text in said(at.markdown))


def test_cells_that_differ_have_reasons_and_libraries_are_credited_with_the_others(few_rounds):
    codes = codes_of("int8 per_tensor")
    codes[2, 1] += 3
    at = opened(bits=8, match_text=typed(codes))
    assert results(at)["Codes that differ"][0] == "1"
    cells = at.dataframe[1].value
    expected = int(codes_of("int8 per_tensor")[2, 1])
    assert cells.iloc[0][["Element", "Given", "Reproduced"]].tolist() == ["(2, 1)", expected + 3, expected]
    assert "needs a scale" in cells["Reason"][0]
    assert any(text.startswith("**Why 1 code differs.**") for text in said(at.markdown))
    (credited,) = [text for text in said(at.caption) if text.endswith("schemes tried.")]
    assert "With these rules" in credited
    assert " 15 of the 16 integers. " in credited
    assert not any("No rules that were tried make these integers" in text for text in said(at.warning))


@pytest.mark.slow  # by default, the library's tests have this zero point, and a scale is given by a link
def test_scale_and_zero_point():
    result = qc.apply(sample(), qc.Scheme.parse("uint8 asymmetric per_tensor aimet.Quantize"))
    given = {"match_scale": str(result.scale.numpy()[0, 0]), "match_zero_point": str(-int(result.zero_point))}
    at = opened(library="aimet.Quantize", match_text=typed(result.codes), **given)
    assert (
        results(at)["Scale, zero point"][0]
        == "the given zero_point has the opposite sign, like AIMET's offset"
    )
    (sentence,) = said(at.warning)
    assert sentence.startswith("The given zero_point has the opposite sign")


EXAMPLES = [
    ("All 16 integers are uint8 asymmetric, one scale.",),
    ("All 8,192 integers are int4 symmetric, one scale per column (axis 1).",),
    ("The codes are transposed; everything else is int4 symmetric, one scale per 32 elements along axis 1.",),
    ("The cast has no clamp: codes out of range wrap around; everything else is int8 symmetric, one scale per row",),
    ("Signed 8-bit codes are read as unsigned; everything else is int8 asymmetric, one scale.",),
    ("The given zero_point has the opposite sign", "; everything else is uint8 asymmetric, one scale."),
    ("2 of 8,192 integers differ; all others are int4 symmetric, one scale per row (axis 0).",),
]


@for_each("i", some(range(len(EXAMPLES)), 7))
def test_examples_are_searched_and_found(i):
    at = opened()
    at = at.button(key=f"_match_card_{i}").click().run()
    results(at)
    (sentence,) = said([*at.success, *at.warning])
    for words in EXAMPLES[i]:
        assert words in sentence


@for_each(
    ("text", "words"),
    [
        ("1, 2, 3", "There are 3 codes, 13 too few"),
        pytest.param("1, 2\n3", "row", marks=pytest.mark.slow),
        ("hello", "'hello'"),
        pytest.param(typed(codes_of("int8")) + "\n1, 2, 3, 4", "4 too many", marks=pytest.mark.slow),
        (typed(codes_of("int8")).replace("-", "1.5", 1), "is not an integer"),
        (typed(codes_of("int8")).replace("-", "99999", 1), "does not fit 16 bits"),
        ("\n".join(["1, 2, 3, 4, 5, 6, 7, 8"] * 2), "have shape (2, 8), the original (4, 4)"),
    ],
)
def test_bad_integers_stay_where_they_are(text, words):
    at = opened(match_text=text)
    assert not at.exception
    (sentence,) = said(at.error)
    assert words in sentence
    assert sentence.endswith(".")
    assert at.text_area(key="match_text").value == text


@for_each(
    ("key", "text", "words"),
    [
        (
            "match_scale",
            "0.1, 0.2, 0.3",
            "The scale has 3 values, which matches no granularity of a tensor of shape (4, 4)",
        ),
        pytest.param("match_scale", "much", "In the scale: 'much'", marks=pytest.mark.slow),
        pytest.param("match_scale", "-1", "must be a positive and finite", marks=pytest.mark.slow),
        ("match_zero_point", "1; 2; three", "In the zero point"),
        pytest.param("match_zero_point", "1, 2, 3, 4, 5", "The zero_point has 5 values", marks=pytest.mark.slow),
    ],
)
def test_bad_parameters_stay_where_they_are(key, text, words):
    at = opened(match_text=typed(codes_of("int8")), **{key: text})
    assert not at.exception
    (sentence,) = said(at.error)
    assert words in sentence
    assert at.text_input(key=key).value == text
    assert at.text_area(key="match_text").value == typed(codes_of("int8"))


def test_codes_and_parameters_stand_in_the_link(few_rounds):
    fitting = qc.apply(sample(), qc.Scheme.parse("uint8 asymmetric per_tensor"))
    codes, given = fitting.codes.to(torch.int64), str(fitting.scale.item())
    at = opened()
    at.text_input(key="match_scale").set_value(given)
    at = paste(at, typed(codes))
    carried, scale = at.query_params["match_q"], at.query_params["match_s"]
    other = the_app("match")
    other.session_state["src"], other.session_state["ex"] = "example", SAMPLE
    other.query_params["match_q"], other.query_params["match_s"] = carried, scale
    other.run()
    assert other.text_area(key="match_text").value == typed(codes)
    assert other.text_input(key="match_scale").value == given
    results(other)  # and the search ran without being asked for


@for_each("values", [[0, -1, 1, 127, -128], [255, 0], [-32768, 32767], [65535, 1]])
def test_integers_in_the_link_come_back(values):
    from pages.compare.match.controls import _packed, _unpacked

    codes = np.array(values, np.float32)
    text = tensors.encode(_packed(codes))
    np.testing.assert_array_equal(_unpacked(tensors.decode(text)), codes)


@pytest.mark.slow  # the library's test has NaN and infinity
def test_a_search_of_a_tensor_with_nan():
    at = the_app("match")
    at.session_state["src"], at.session_state["_pasted"] = "paste", "nan, 1"  # of more, the search takes seconds
    at = paste(at.run(), "0, 7")
    results(at)


WRAPPED = [[54, -4, -52], [26, 83, -51], [0, -65, 69]]


def test_a_lesson_leads_to_match_and_back():
    """The lesson's tensor and codes open in Match, which names the mistake and leads to its lesson."""
    at = the_app("learn-mistakes")
    at.session_state["learn_mistakes_step"], at.session_state["learn_mistakes_shown"] = (
        "negatives-lost",
        "reveal",
    )
    at = at.run().button(key="learn_mistakes_match").click().run()
    assert not at.exception
    assert "Which rules made these integers?" in said(at.title)
    assert any(
        "there are no codes for negative values: 8 of 16 elements became 0" in text
        for text in said(at.markdown)
    )
    at = at.button(key="match_lesson").click().run()
    assert not at.exception
    assert any(" · Mistakes" in text for text in said(at.markdown))


@pytest.mark.slow  # the sentence is the library's, whose tests have three mistakes; the quick test leads to a lesson
def test_three_mistakes_lead_to_a_lesson():
    """Three mistakes in one line are named with their numbers."""
    at = opened(src="paste", _pasted="191.6, -13.5, 728.6\n92.14, 295.5, -184\n0, 684.6, 245.5")
    at = paste(at, typed(np.array(WRAPPED)))
    (sentence,) = said(at.warning)
    assert sentence.startswith("The scale is asymmetric, but the zero point is omitted. The cast has no clamp")
    assert any(
        "2 codes wrapped: 204 → -52 at (0, 2), 191 → -65 at (2, 1)" in text for text in said(at.markdown)
    )
    at = at.button(key="match_lesson").click().run()
    assert not at.exception
    assert any(" · Mistakes" in text for text in said(at.markdown))
    assert at.session_state["learn_mistakes_step"] == "wraps-per-tensor"


@pytest.mark.slow  # by default, the library's tests have known mistakes, and a lesson leads here and back
def test_a_known_mistake_is_told_beside_a_scheme_without_one():
    """Codes clamped to 0..255 and stored as int8 are also correct int8 codes with zero point -128; the page names
    the mistake too, and links its lesson."""
    wrong = compare(CASES["clamp-of-another-type"])
    text = typed(wrong.x.reshape(1, -1))
    at = opened(src="paste", _pasted=text, match_text=typed(wrong.wrong.codes.reshape(1, -1).to(torch.int64)))
    results(at)
    (told,) = [text for text in said(at.markdown) if text.startswith("A known mistake also gives exactly")]
    assert f"with scale {wrong.wrong.scale.max().item():.7g}." in told
    at = at.button(key="match_known_clamp-of-another-type").click().run()
    assert not at.exception
    assert at.session_state["learn_mistakes_step"] == "clamp-of-another-type"


def test_nothing_to_find_where_the_codes_are_right():
    at = the_app("learn-mistakes")
    at.session_state["learn_mistakes_step"], at.session_state["learn_mistakes_shown"] = (
        "zero-point-forgotten",
        "reveal",
    )
    at = at.run()
    assert not at.exception
    assert all(button.key != "learn_mistakes_match" for button in at.button)


@functools.cache
def best_of_int8():
    return qc.match(sample(), codes_of("int8")).candidates[0]


@for_each(("differing", "told"), [(0, "these"), (7, "9 of the 16"), (8, None), (16, None)])
def test_libraries_are_credited_unless_most_integers_differ(differing, told):
    best = dataclasses.replace(best_of_int8(), differing=differing)
    said_here = views._credited(best, 16)
    assert said_here == "" if told is None else f" {told} integers. " in said_here


@pytest.mark.slow  # a quick test asks for the sentence alone
def test_no_library_is_credited_where_most_differ(few_rounds):
    codes = torch.randint(-100, 100, (4, 4), generator=torch.Generator().manual_seed(4))
    at = opened(match_text=typed(codes))
    (credited,) = [text for text in said(at.caption) if text.endswith("schemes tried.")]
    assert any("No rules that were tried make these integers" in text for text in said(at.warning))
    assert "With these rules" not in credited
