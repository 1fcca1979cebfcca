"""Match's code input without a browser: the mistakes found, what they do to the tensor, and bad input."""

import json
import random
import re

import pytest
import torch
from app_page import said, the_app
from grid import for_each
from parts import some

import quantcore as qc
from pages.compare.match import run
from pages.registry import opens
from quantcore import tensors
from quantcore.mistakes import CASES

pytestmark = pytest.mark.usefixtures("no_hurry")
SAMPLE = "randn-seed-0-4x4"
WRAPS = "s = (x.max() - x.min()) / 255\nq = torch.round(x / s).to(torch.int8)\nx_hat = q.float() * s"


@pytest.fixture
def unsearched(monkeypatch):
    """Who makes the codes is looked for when asked: that takes seconds where nobody makes them."""
    monkeypatch.setattr(run, "AT_ONCE", 0)


def opened(text="", example=SAMPLE):
    at = the_app("match")
    at.session_state["src"], at.session_state["ex"] = "example", example
    at.session_state["match_src"], at.session_state["match_code"] = "code", text
    at = at.run()
    assert not at.exception
    return at


def typed(at, text):
    at = at.text_area(key="match_code").set_value(text).run()
    assert not at.exception
    return at


def source(at):
    """The code as the page shows it, with its marks."""
    return next(e.proto.body for e in at.get("html") if "qs-code" in e.proto.body)


def test_first_view_says_what_to_do():
    at = opened()
    assert not at.exception
    assert any("Python never runs it" in text for text in said(at.caption))
    assert [b.key for b in at.button if (b.key or "").startswith("_match_code_card_")]
    assert at.query_params["match_src"] == "code"
    assert all(button.key != "match_go" for button in at.button)


def test_findings_lines_and_codes(unsearched):
    at = opened(WRAPS)
    assert said(at.warning) == ["2 mistakes in lines 1 and 2."]
    texts = said(at.markdown)
    assert any(
        t.startswith(":orange[:material/error:] **Line 1: Asymmetric scale without a zero point.**")
        for t in texts
    )
    assert any(t.startswith(":orange[:material/error:] **Line 2: Cast without a clamp.**") for t in texts)
    assert source(at).count("✗") == 2
    x = torch.from_numpy(tensors.EXAMPLES[SAMPLE].load())
    s = (x.max() - x.min()) / 255
    codes = torch.round(x / s).int().to(torch.int8)
    right = qc.apply(x, qc.Scheme.parse("int8"))
    table = at.dataframe[0].value
    assert table["Codes that differ"][0] == f"{int((codes != right.codes).sum())} of 16"
    far = (x - codes.float() * s).abs() > right.scale / 2 * (1 + 1e-5)
    assert table["Values made worse"].tolist() == [f"{int(far.sum())} of 16", ""]
    assert int(far.sum()) > 0
    expected = [qc.errors(x, codes.float() * s).sqnr_db, qc.report(right).sqnr_db]
    assert table["SQNR (dB)"].tolist() == [f"{value:.2f}" for value in expected]
    links = [e.proto for e in at.get("page_link")]  # to the lessons of both
    assert [link.page for link in links][:2] == ["learn-mistakes", "learn-mistakes"]
    assert "learn_mistakes_step=zero-point-left-at-zero" in str(links[0])


def test_a_clean_result_is_no_all_clear():
    at = opened("s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)")
    assert not at.warning
    assert said(at.info)[0].startswith("No known mistake found in: scale (line 1) max|x| / 127, per-tensor;")
    assert any("On this tensor all 16 codes equal those of int8" in t for t in said(at.caption))


@for_each("name", some(["zero-point-forgotten", "wraps-per-column", "truncated"]))
def test_an_example_fills_the_text(name):
    at = opened()
    at = at.selectbox(key="match_code_example").select(name).run()
    assert not at.exception
    assert at.text_area(key="match_code").value.startswith("def ")
    assert said(at.warning)[0].startswith(("1 mistake in line ", "2 mistakes in lines "))
    assert at.selectbox(key="match_code_example").value is None
    assert list(at.selectbox(key="match_code_example").options) == [m.title for m in CASES.values()]


@for_each(
    ("text", "words"),
    [
        ("q = (1 +", "Line 1: this is not valid Python"),
        ("x = " + "[" * 300, "paste"),
        ("a = 1\n" * 5001, "the limit is 200,000 characters and 5,000 lines"),
        pytest.param("<iframe srcdoc='<script>alert(1)</script>'>", "Line 1: this is not valid Python", marks=pytest.mark.slow),
    ],
)
def test_bad_code_stays_where_it_is(text, words):
    at = opened(text)
    (sentence,) = said(at.error)
    assert words in sentence
    assert at.text_area(key="match_code").value == text


def test_the_whole_code_is_shown_with_its_marks(unsearched):
    """Lines far from a finding are folded, what is no Python is passed over, and the verdict comes first.

    What the code contains is text.
    """
    hostile = WRAPS.replace("255", "255  # <script>alert(1)</script>")
    text = "In [1]: import torch\n" + "a = 1\n" * 20 + f"{hostile}\nprint(q)\n" + "b = 2\n" * 20 + "Out[1]: tensor([1, 2])"
    at = opened(text)
    assert said(at.warning)[0] == "2 mistakes in lines 22 and 23."
    shown = re.findall(r"<div[^>]*>(.*?)</div>", source(at))
    lines = [re.sub("<[^>]*>", "", line).split() for line in shown]
    assert [line[1] for line in lines if line[0] == "✗"] == ["22", "23"]
    assert [int(re.search(r"\d+", "".join(line))[0]) for line in lines] == list(range(1, len(text.split("\n")) + 1))
    # two lines before a mark and two after it stay
    assert re.findall(r"(\d+) lines</summary>", source(at)) == ["19", "21"]
    assert "<script>" not in source(at)
    assert "&lt;script&gt;" in source(at)
    assert any(sentence.startswith("1 line is not Python") for sentence in said(at.caption))


def test_a_notebook_s_file_is_uploaded(unsearched):
    cells = [{"cell_type": "code", "source": WRAPS}, {"cell_type": "markdown", "source": "text"}]
    at = opened()
    file = json.dumps({"cells": cells}).encode()
    at = at.file_uploader(key="match_code_file").upload("a.ipynb", file).run()
    assert not at.exception
    assert said(at.warning)[0] == "2 mistakes in lines 2 and 3."
    at = at.file_uploader(key="match_code_file").upload("a.py", b"\xff\xfe").run()
    assert said(at.error) == ["a.py is not a text in UTF-8; upload a notebook or a script."]


def test_what_can_not_be_shown_on_the_tensor_is_said(unsearched):
    at = opened("q = torch.round(x / scale).clamp(0, 255).to(torch.int8)")
    assert any("does not show what its scale is computed from" in text for text in said(at.caption))
    at = opened("s = x.abs().amax(dim=2, keepdim=True) / 127\nq = torch.round(x / s).to(torch.int8)")
    assert any(
        "Line 1: on a tensor of shape (4, 4), this fails: Dimension out of range" in text for text in said(at.info)
    )


def test_the_text_survives_another_page_and_another_way_in(unsearched):
    at = opened(WRAPS)
    at = at.switch_page("explore/explore/page.py").run().switch_page("compare/match/page.py").run()
    assert at.text_area(key="match_code").value == WRAPS
    at = at.segmented_control(key="match_src").set_value("paste").run()
    assert not at.exception
    assert not any(area.key == "match_code" for area in at.text_area)
    at = at.segmented_control(key="match_src").set_value("code").run()
    assert at.text_area(key="match_code").value == WRAPS


@pytest.mark.slow  # by default, the second of two is chosen below, where the first has a tensor of its own
def test_one_of_several_quantizers_is_chosen(unsearched):
    at = opened(f"{WRAPS}\nt = x.abs().max() / 7\np = torch.round(x / t).clamp(-8, 7)")
    (choice,) = [box for box in at.selectbox if box.label == "Quantizer"]
    assert choice.options == ["Quantizer 1, line 2: 2 mistakes", "Quantizer 2, line 5: no known mistake"]
    at = choice.select_index(1).run()
    assert at.dataframe[0].value[""][1] == "int4 symmetric per_tensor min_max textbook"


def test_of_a_large_tensor_a_block_is_used(unsearched):
    at = the_app("match")
    for key, value in {"src": "generate", "shape": "1024, 512", "match_src": "code"}.items():
        at.session_state[key] = value
    at = typed(at.run(), WRAPS)
    assert at.dataframe[0].value["Codes that differ"][0].endswith(" of 65,536")
    assert any("only 256 × 256 of its elements are used" in text for text in said(at.caption))


def test_a_dtype_in_which_the_code_does_not_compute_is_said(unsearched):
    at = opened(WRAPS)
    words = "The code gets x as float32 numbers"
    assert not any(words in text for text in said(at.caption))
    at = at.selectbox(key="dtype").set_value("bfloat16").run()
    assert not at.exception
    assert any(words in text for text in said(at.caption))


def test_each_line_s_value_at_the_picked_element(unsearched):
    at = opened(WRAPS)
    (field,) = [box for box in at.text_input if box.label == "Element"]
    at = field.set_value("1, 2").run()
    table = at.dataframe[1].value
    x = torch.from_numpy(tensors.EXAMPLES[SAMPLE].load())
    s = (x.max() - x.min()) / 255
    assert table["Line"].tolist() == [1, 2, 3]
    assert table["Name"].tolist() == ["s", "q", "x_hat"]
    assert table["Shape"].tolist() == ["a number", "4 × 4", "4 × 4"]
    q = torch.round(x[1, 2] / s).int().to(torch.int8)
    assert table["At [1, 2]"].tolist() == [f"{float(s):.7g}", f"{float(q):.7g}", f"{float(q * s):.7g}"]
    at = field.set_value("7, a").run()
    assert any("An element is written as 2 indices" in text for text in said(at.info))


def test_code_is_not_evaluated_where_it_is_off(monkeypatch):
    from pages.serving import settings

    monkeypatch.setattr(settings, "current", lambda: settings.Settings(code="off"))
    at = opened()
    assert any("code is not evaluated" in text for text in said(at.info))
    assert not any(area.key == "match_code" for area in at.text_area)


OWN = "t = torch.tensor([[1.0, -2.0, 5.0], [9.0, 4.0, -3.5]])\ns = (t.max() - t.min()) / 255\n"
OWN += "z = torch.zeros_like(s)\nq = torch.round(t / s + z).to(torch.int8)"


def test_the_tensor_that_is_shown_is_the_code_s_own_where_it_has_one(monkeypatch):
    own = OWN.splitlines()[0] + "\ns = t.abs().max() / 127\nq = (t / s).to(torch.int8)"
    at = opened(f"{own}\nu = x.abs().max() / 7\np = torch.round(x / u).clamp(-8, 7)")
    assert "##### On the code's own tensor t (line 1)" in said(at.markdown)
    assert not any("On the tensor" in text for text in said(at.markdown))
    scope = {"torch": torch}
    exec(own, scope)
    codes = scope["q"]
    right = qc.apply(scope["t"], qc.Scheme.parse("int8"))
    assert at.dataframe[0].value["Codes that differ"][0] == f"{int((codes != right.codes).sum())} of 6"
    assert int((codes != right.codes).sum()) > 0
    assert at.dataframe[1].value["At [0, 0]"][0] == "1"  # of t, which has another shape than the tensor in the sidebar
    found, matched = said(at.warning)
    assert found == "1 mistake in line 3."
    assert matched.startswith("Values are rounded toward zero; everything else is int8 symmetric")
    monkeypatch.setattr(run, "AT_ONCE", 0)
    (choice,) = [box for box in at.selectbox if box.label == "Quantizer"]
    assert choice.options == ["Quantizer 1, line 3: 1 mistake", "Quantizer 2, line 5: no known mistake"]
    at = choice.select_index(1).run()
    assert any(text.startswith("##### On the tensor ") for text in said(at.markdown))


def test_without_a_tensor_code_is_asked_for_and_shown_on_its_own(unsearched):
    at = the_app("match")
    at.session_state["src"], at.session_state["match_src"] = "paste", "code"
    at = at.run()
    assert not at.exception
    at = typed(at, OWN)
    assert "##### On the code's own tensor t (line 1)" in said(at.markdown)
    at = typed(at, WRAPS)  # which is read, though there is nothing to show it on
    assert said(at.warning)[0] == "2 mistakes in lines 1 and 2."
    assert not at.dataframe


@pytest.mark.slow  # by default, two other mistakes have their lesson
def test_a_lesson_stands_beside_its_own_mistake(unsearched):
    at = opened("s = x.abs().max() / 255\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)")
    link = at.get("page_link")[0].proto
    assert (link.label, link.help) == ("Lesson: Mistakes, case 5", CASES["range-without-minimum"].title)
    at = opened("s = (x.max() - x.min()) / 256\nq = torch.round((x - x.min()) / s).to(torch.uint8)")
    links = [(e.proto.label, e.proto.help) for e in at.get("page_link")]
    assert links[0] == ("Lesson: Scale", "What does one more bit buy?")
    assert links[1] == ("Lesson: Mistakes, case 8", CASES["cast-without-clamp"].title)


def test_what_wraps_on_the_tensor_shown_is_part_of_the_one_verdict(unsearched):
    at = opened("s = x.std() / 100\nq = torch.round(x / s).to(torch.int8)")
    assert said(at.warning)[0] == "1 mistake in line 2."
    assert any("Line 2: Cast without a clamp.** Nothing clamps" in text for text in said(at.markdown))
    assert not any("No known mistake" in text for text in said(at.info))
    assert source(at).count("✗") == 1


def test_a_shared_verdict_comes_back_by_its_link(unsearched):
    at = opened(WRAPS)
    assert "match_c" not in at.query_params
    next(b for b in at.button if b.label == "Share this verdict").click().run()
    assert not at.exception
    (card,) = [e.proto.body for e in at.get("html") if "2 mistakes, lines 1 and 2" in e.proto.body]
    assert "q = torch.round(x / s).to(torch.int8)" in card
    carried, told = at.query_params["match_c"], at.query_params["match_v"]
    assert opens("match", {"match_v": [told]}).told == "2 mistakes, lines 1 and 2"
    assert any("match_c=" in block.value for block in at.code)
    other = opened()
    other.query_params["match_c"] = carried
    other.run()
    assert other.text_area(key="match_code").value == WRAPS
    typed(other, WRAPS + "\n")  # changed, it is not shared
    assert "match_c" not in other.query_params
    assert "match_v" not in other.query_params
    assert any(b.label == "Share this verdict" for b in other.button)


def test_code_that_no_link_can_carry_is_refused_in_words(unsearched):
    noise = "".join(random.Random(0).choices("abcdefghij0123456789", k=12_000))
    at = opened(f"{WRAPS}\n# {noise}")
    next(b for b in at.button if b.label == "Share this verdict").click().run()
    assert "match_c" not in at.query_params
    assert any("does not fit in a link" in text for text in said(at.info))


def test_a_table_is_named_by_its_size_and_its_codes_are_not_searched_as_integers(unsearched):
    levels = ", ".join(f"{(i - 7.5) / 7.6:.4f}" for i in range(16))
    text = f"t = torch.tensor([{levels}])\ns = x.abs().max()\nq = (x[..., None] / s - t).abs().argmin(-1)\ny = t[q] * s"
    at = opened(text)
    assert any("table of 16 values, symmetric per_tensor" in said_here for said_here in said(at.caption))
    assert not any("Who makes these codes" in text for text in said(at.markdown))
