"""The findings of Explore without a browser: every example loads, shows its finding, and can be fixed."""

import json
import re
from typing import Any

import numpy as np
import pytest
from app_page import the_app, widget
from grid import for_each
from parts import some
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.explore.explore import findings
from pages.shared import curriculum
from pages.shared.curriculum import LESSONS
from quantcore.diagnosis import KINDS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
EXAMPLES = {name: kind.example for name, kind in KINDS.items()}


def opened(**parameters: str) -> AppTest:
    """The page, with the popovers of the findings open."""
    at = the_app()
    for key in findings.POPOVERS:
        at.session_state[key] = True
    for key, value in parameters.items():
        at.query_params[key] = value
    return at.run()


def press(at: AppTest, key: str) -> AppTest:
    at = at.button(key=key).click().run()
    assert not at.exception
    assert not at.error
    return at


def texts(at: AppTest) -> list[str]:
    return [re.sub(r"\\(.)", r"\1", element.value) for element in at.markdown]


def buttons(at: AppTest, part: str) -> list[str]:
    return [b.key for b in at.button if part in str(b.key)]


def maps(at: AppTest) -> dict[str, Any]:
    return dict(json.loads(next(c.proto.json for c in at.get("bidi_component") if '"arrays"' in c.proto.json))[0])


@for_each("kind", some(EXAMPLES, 22))
def test_example_loads_shows_and_fixes(kind: str) -> None:
    example = EXAMPLES[kind]
    x, scheme = example.load(), str(qc.Scheme.parse(example.scheme))
    at = press(opened(cell="1, 1", rows="0:4"), f"_finding_example_{kind}")
    drawn = qc.Scheme.parse(widget(at, "_scheme_text").value)
    np.testing.assert_array_equal(qc.apply(x, drawn).codes, qc.apply(x, qc.Scheme.parse(example.scheme)).codes)
    finding = qc.diagnose(qc.apply(x, drawn))[0]  # the axis is written out
    assert finding.kind == kind
    assert any(finding.sentence in text for text in texts(at))
    assert maps(at)["found"] == []
    if finding.boxes:
        at = press(at, "_finding_show_0")
        assert len(maps(at)["found"]) == len(finding.boxes)
        spans = finding.boxes[0] if x.ndim > 1 else ((0, 1), *finding.boxes[0])
        assert maps(at)["found"][0] == [n for span in spans for n in span]
        assert at.text_input(key="cell").value == ", ".join(str(a) for a, _ in finding.boxes[0])
        at = press(at, "_finding_show_0")
        assert maps(at)["found"] == []
    assert bool(buttons(at, "_finding_fix_0")) == (finding.fix is not None)
    if finding.fix is not None:
        at = press(at, "_finding_fix_0")
        text = widget(at, "_scheme_text").value
        assert text != scheme
        codes = qc.apply(x, finding.fix).codes
        np.testing.assert_array_equal(qc.apply(x, qc.Scheme.parse(text)).codes, codes)
        assert not any(finding.sentence in text for text in texts(at))


def test_a_healthy_result_says_so() -> None:
    at = opened(dist="uniform", bits="8")
    assert any("No known problems found." in text for text in texts(at))
    assert buttons(at, "_finding_show") == buttons(at, "_finding_fix") == []


def test_several_findings_stand_behind_the_first() -> None:
    at = opened(dist="relu", bits="4", per="group", group="4", shape="32x64")
    found = qc.diagnose(
        qc.apply(
            qc.tensors.generate(qc.tensors.Generated("relu", (32, 64))),
            qc.Scheme.parse(widget(at, "_scheme_text").value),
        )
    )
    assert len(found) > 1
    for finding in found:
        assert any(finding.sentence in text for text in texts(at))
    at = press(at, f"_finding_fix_{[f.fix is not None for f in found].index(True)}")


def test_closed_popovers_draw_nothing() -> None:
    at = opened(dist="relu", bits="4", per="group", group="4", shape="32x64")
    assert buttons(at, "_finding_example_")
    inside = len(buttons(at, "_finding_"))
    for key in findings.POPOVERS:
        at.session_state[key] = False
    at.run()
    assert not buttons(at, "_finding_example_")
    assert 0 < len(buttons(at, "_finding_")) < inside


def test_outlines_are_those_of_the_scheme_they_were_asked_for() -> None:
    at = press(press(opened(), "_finding_example_outlier_channel"), "_finding_show_0")
    assert maps(at)["found"] == [[0, 16, 8, 9]]
    at = at.slider(key="bits").set_value(7).run()
    assert maps(at)["found"] == []


def test_in_a_tensor_of_rank_3_the_plane_is_opened() -> None:
    at = opened(shape="3x4x16", dist="outlier_element", bits="8")
    spec = qc.tensors.Generated("outlier_element", (3, 4, 16))
    (finding,) = qc.diagnose(qc.apply(qc.tensors.generate(spec), qc.Scheme()))
    assert finding.kind == "outlier_element"
    at = press(at, "_finding_show_0")
    plane, row, column = (a for a, _ in finding.boxes[0])
    assert at.text_input(key="at").value == str(plane)
    assert maps(at)["found"] == [[row, row + 1, column, column + 1]]
    at = at.text_input(key="at").set_value(str((plane + 1) % 3)).run()
    assert maps(at)["found"] == []


def test_every_kind_links_to_a_step_that_exists() -> None:
    for name, step in {kind.lesson for kind in KINDS.values()}:
        assert step in LESSONS[name].steps


def test_every_finding_has_its_lesson_beside_it() -> None:
    at = press(opened(), "_finding_example_negatives_lost")
    found = qc.diagnose(qc.apply(EXAMPLES["negatives_lost"].load(), qc.Scheme.parse(EXAMPLES["negatives_lost"].scheme)))
    links = [e.proto for e in at.get("page_link") if e.proto.label == "Lesson"]
    assert [link.page for link in links] == [
        "learn-" + KINDS[f.kind].lesson[0].replace("_", "-") for f in found
    ]
    name, step = KINDS["negatives_lost"].lesson
    assert f"{curriculum.step_key(name)}={step}" in str(links[0])


@for_each(
    ("pasted", "scheme", "sqnr", "largest"),
    [
        ("1, nan; 3, -1", "int8 torchao", "not defined", "not defined"),
        pytest.param("0, 0; 0, 0", "int8", "not defined", "0", marks=pytest.mark.slow),
        ("0.7", "int4", "exact", "0"),
        pytest.param("0.5, 1; 3, -1", "int4", None, None, marks=pytest.mark.slow),
    ],
)
def test_a_figure_without_a_value_says_so_and_why(
    pasted: str, scheme: str, sqnr: str | None, largest: str | None
) -> None:
    pasted = pasted.replace("; ", "\n")
    at = the_app()
    at.session_state["_pasted"] = pasted
    at.query_params["src"] = "paste"
    at = at.run()
    at = widget(at, "_scheme_text").set_value(scheme).run()
    assert not at.exception
    report = qc.report(qc.apply(qc.tensors.parse(pasted), qc.Scheme.parse(widget(at, "_scheme_text").value)))
    (body,) = [e.proto.body for e in at.get("html") if "<dl class=" in e.proto.body]
    cells = re.findall(r'data-tip="([^"]*)"><dt>([^<]*)</dt><dd>([^<]*)', body)
    shown = {label: (value, tip) for tip, label, value in cells}
    assert shown["SQNR"][0] == (sqnr or f"{report.sqnr_db:.2f} dB")
    assert shown["max |error|"][0] == (largest or f"{report.max_abs_error:.4g}")
    for label, name in (("SQNR", "sqnr_db"), ("max |error|", "max_abs_error"), ("MSE", "mse")):
        reason, tip = report.undefined.get(name), shown[label][1]
        assert ("Not defined here" in tip) == (reason is not None)
        assert reason is None or reason in tip
    if sqnr == "exact":
        assert not any("130" in text for text in texts(at))
