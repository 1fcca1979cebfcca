"""Explore → Ranges without a browser: what each control does to the scheme, and what the page shows of it."""

import base64
import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from app_page import change_before_it_is_drawn, said, the_app, widget
from grid import for_each
from parts import some
from streamlit.testing.v1 import AppTest

import quantcore as qc
from quantcore import tensors
from quantcore.analysis.range_curves import elements_of
from quantcore.range_setting import METHODS

X = tensors.generate(tensors.Generated("normal", (4, 10), seed=3))


@pytest.fixture
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without entropy, which takes three times as long as all else on the page; the first view has it."""
    every, few = qc.range_marks, tuple(m for m in METHODS if not isinstance(m, qc.Entropy))
    monkeypatch.setattr(qc, "range_marks", lambda x, s, block=None, settings=few: every(x, s, block, settings))


without_entropy = pytest.mark.usefixtures("few_methods")


def opened(**parameters: str) -> AppTest:
    """The page opened by a link with these parameters, by default on a small normal tensor."""
    at = the_app("ranges")
    for key, value in ({"dist": "normal", "shape": "4x10", "seed": "3"} | parameters).items():
        at.query_params[key] = value
    return at.run()


def scheme(at: AppTest) -> qc.Scheme:
    assert not at.exception
    assert said(at.error) == []
    chosen = at.session_state["_current"].scheme  # what the sidebar passes to the page
    assert isinstance(chosen, qc.Scheme)
    return chosen


def table(at: AppTest) -> Any:
    """The results of the methods, one row per name."""
    return at.dataframe[0].value.set_index("method")


def figure(at: AppTest, i: int) -> dict[str, Any]:
    return dict(json.loads(at.get("plotly_chart")[i].proto.spec))


def shaded(at: AppTest) -> tuple[float, float]:
    """The range shaded in the histogram."""
    area = figure(at, 0)["layout"]["shapes"][0]
    return area["x0"], area["x1"]


# what the methods are called -> the text form that schemes have
TEXTS = {
    "min-max": "min_max", "min MSE": "min_mse", "percentile 99": "percentile(99)", "percentile 99.9": "percentile(99.9)",
    "entropy, 2048 bins": "entropy(num_bins=2048)", "mean ± 3·std": "mean_std(3)", "mean |x|": "abs_mean",
    "half-quadratic": "half_quadratic",
}  # fmt: skip


def assert_rows_are_reports(at: AppTest, block: Any = None) -> None:
    """Every row agrees with quantizing X, or one block of it, with the row's range setting."""
    own, x = scheme(at), X
    if block is not None:
        own, x = dataclasses.replace(own, granularity=qc.PerTensor()), block
    rows = table(at)
    for name, row in rows.iterrows():
        text = qc.Scheme.parse(f"int4 {TEXTS.get(name) or 'fixed({}, {})'.format(*name.split(' to '))}")
        result = qc.apply(x, dataclasses.replace(own, range_setting=text.range_setting))
        report = qc.report(result)
        assert row["SQNR"] == pytest.approx(report.sqnr_db, rel=1e-9), name
        assert row["clipped"] == report.clipped_fraction
        assert (row["low"], row["high"]) == pytest.approx(qc.range_in_use(result), rel=1e-9)
    assert list(rows[""]).count("in use") == 1


def numbers(array: Any) -> np.ndarray:
    """Decode an array of Plotly's JSON."""
    return np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"])


@pytest.mark.parametrize("mode", some(["symmetric", "asymmetric"], 2))
def test_first_view(mode: str) -> None:
    at = opened(mode=mode)
    assert list(table(at).index) == list(TEXTS)[:7]
    assert_rows_are_reports(at)
    assert table(at)[""]["min-max"] == "in use"
    low, high = float(X.min()), float(X.max())
    reach = max(-low, high)
    assert shaded(at) == ((-reach, reach) if mode == "symmetric" else (low, high))
    assert numbers(figure(at, 0)["data"][0]["y"]).sum() == X.size
    assert "Left out of the table: half_quadratic adjusts a zero point in floating point, and only hqq's asymmetric schemes have one; choose hqq and asymmetric." in " ".join(said(at.caption))
    assert "maps" in [component.key for component in at.get("bidi_component")]  # the maps are shown below
    assert any("drag across" in text for text in said(at.markdown))


@pytest.mark.slow  # by default, numbers move an asymmetric range, and the slider a symmetric one of an odd tensor
@without_entropy
def test_a_number_moves_a_symmetric_range() -> None:
    at = opened()
    assert all(e.label != "Low" for e in at.number_input)
    at = widget(at, "rng_high").set_value(1.5).run()
    assert scheme(at).range_setting == qc.Fixed(-1.5, 1.5)
    assert at.selectbox(key="range").value == "fixed"
    assert shaded(at) == (-1.5, 1.5)
    assert_rows_are_reports(at)
    assert table(at)[""]["-1.5 to 1.5"] == "in use"
    assert widget(at, "rng_slider").value == 1.5
    at = widget(at, "rng_slider").set_value(0.5).run()
    assert scheme(at).range_setting == qc.Fixed(-0.5, 0.5)


@without_entropy
def test_numbers_move_an_asymmetric_range_one_at_a_time_and_the_slider_both() -> None:
    at = opened(mode="asymmetric")
    high = widget(at, "rng_high").value
    assert high == pytest.approx(float(X.max()), rel=1e-5)
    assert shaded(at) == (float(X.min()), float(X.max()))
    at = widget(at, "rng_low").set_value(-0.75).run()
    assert scheme(at).range_setting == qc.Fixed(-0.75, high)
    at = widget(at, "rng_high").set_value(0.5).run()
    assert scheme(at).range_setting == qc.Fixed(-0.75, 0.5)
    assert widget(at, "rng_slider").value == pytest.approx((-0.75, 0.5), abs=0.011)  # on its grid
    assert_rows_are_reports(at)
    at = widget(at, "rng_slider").set_range(-0.5, 1.25).run()
    assert scheme(at).range_setting == qc.Fixed(-0.5, 1.25)
    at = widget(at, "rng_slider").set_range(0.5, 0.5).run()  # both ends at the same place
    found = scheme(at).range_setting
    assert isinstance(found, qc.Fixed)
    assert found.low == 0.5 < found.high


@pytest.mark.slow  # by default, these numbers move the sidebar's range
@without_entropy
def test_the_sidebar_moves_what_stands_here() -> None:
    at = opened(mode="asymmetric", range="fixed", low="-0.25", high="2")
    assert (widget(at, "rng_low").value, widget(at, "rng_high").value) == (-0.25, 2)
    at = at.number_input(key="high").set_value(3.0).run()
    assert widget(at, "rng_high").value == 3
    at = at.selectbox(key="range").set_value("percentile").run()
    assert widget(at, "rng_high").value == pytest.approx(np.percentile(X, 99), rel=1e-4)


@pytest.mark.slow  # by default, a control of Explore is changed twice
@without_entropy
@pytest.mark.parametrize("mode", some(["asymmetric", "symmetric"], 2))
def test_two_quick_changes_of_a_control(mode: str) -> None:
    """The range that the browser still shows is not mistaken for one that the user moved."""
    at = change_before_it_is_drawn(opened(mode=mode, range="percentile"), 98.0, 97.0, "p")
    assert scheme(at).range_setting == qc.Percentile(97)


@without_entropy
def test_low_over_high_stays_as_typed_and_is_said() -> None:
    at = widget(opened(mode="asymmetric"), "rng_low").set_value(50.0).run()
    assert not at.exception
    (sentence,) = said(at.error)
    assert sentence.startswith("The range needs low < high, not 50 and")
    assert at.number_input(key="low").value == 50
    at = at.number_input(key="low").set_value(-1.0).run()
    assert scheme(at).range_setting.low == -1


@without_entropy
def test_a_block() -> None:
    at = opened(per="channel", rng_block="2, 0")
    assert_rows_are_reports(at, X[2:3])
    low, high = shaded(at)
    assert (-low, high) == (float(abs(X[2]).max()),) * 2
    assert "A manual range applies to every block" in " ".join(said(at.caption))
    at = at.button(key="rng_all").click().run()
    assert at.text_input(key="rng_block").value == ""
    assert "means over the blocks" in " ".join(said(at.caption))
    assert_rows_are_reports(at)
    at = at.button(key="rng_own").click().run()  # the block of the worst element, as in the maps
    row = int(np.unravel_index(int(abs(qc.apply(X, scheme(at)).error).argmax()), X.shape)[0])
    assert at.text_input(key="rng_block").value == f"{row}, 0"
    assert_rows_are_reports(at, X[row : row + 1])


@without_entropy
@for_each("text", some(["4, 0", "1", "-1, 0", "one", "1.5, 0", "<script>alert(1)</script>"]))
def test_a_block_that_is_none(text: str) -> None:
    at = opened(per="channel", rng_block=text)
    assert not at.exception
    (sentence,) = said(at.error)
    assert sentence.endswith("All blocks are shown instead.")
    assert at.text_input(key="rng_block").value == text
    assert len(at.get("plotly_chart")) == 2


@pytest.mark.slow  # by default, a row is such a block
@without_entropy
def test_a_block_of_groups() -> None:
    at = opened(per="group", group="4", rng_block="1, 2", mode="asymmetric", range="mean ± k·std")
    own = scheme(at)
    block = elements_of(qc.apply(X, own).x, own.granularity, (1, 2))
    assert block.shape == (1, 2)  # a short last one
    assert_rows_are_reports(at, block)


@without_entropy
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        pytest.param(
            {"format": "e4m3fn"},
            "e4m3fn has no zero point, so the range only sets the scale",
            marks=pytest.mark.slow,
        ),
        ({"format": "e2m1", "per": "group", "group": "5", "scales": "e4m3fn"}, "use float32 scales"),
        pytest.param(
            {"per": "group", "group": "5"},
            "all blocks use the same fraction of their own min-max range",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_does_not_apply_is_said(parameters: dict[str, str], words: str) -> None:
    at = opened(**parameters)
    scheme(at)
    assert words in " ".join(said(at.caption))


@pytest.mark.slow  # by default, the library's tests have this method, and the first view says why it is left out
@without_entropy
def test_half_quadratic_where_the_library_has_it() -> None:
    at = opened(
        library="hqq", mode="asymmetric", codes="unsigned", per="group", group="5", range="half-quadratic"
    )
    assert table(at)[""]["half-quadratic"] == "in use"
    assert table(at)["SQNR"]["half-quadratic"] == pytest.approx(qc.report(qc.apply(X, scheme(at))).sqnr_db)
    assert "half_quadratic adjusts" not in " ".join(said(at.caption))


@without_entropy
def test_parameters_by_hand_have_a_range_too() -> None:
    at = opened(range="by hand", scale="0.25", zero_point="0")
    scheme(at)
    assert "in use" not in list(table(at)[""])
    assert shaded(at) == (-2.0, 1.75)


@pytest.mark.slow  # by default, Explore offers the nearest scheme where a library refuses
@without_entropy
def test_a_library_that_takes_min_max_alone_says_so_with_a_way_out() -> None:
    at = widget(opened(library="onnxruntime", per="channel"), "rng_high").set_value(1.0).run()
    assert not at.exception
    if at.error:
        assert at.button(key="fit").label.startswith("Use ")


@without_entropy
@pytest.mark.parametrize(
    "text", some(["0 0 0", "-2.5", "3e38 -3e38 1e38", "1e-42 2e-42", "7 7\n7 7", "1 2 3 1000000"], 6)
)
@pytest.mark.parametrize("mode", some(["symmetric", "asymmetric"], 2))
def test_odd_tensors(text: str, mode: str) -> None:
    at = opened(src="paste", mode=mode).text_area(key="_pasted").set_value(text).run()
    scheme(at)
    slider = widget(at, "rng_slider")
    assert slider.min < slider.max
    assert len(at.get("plotly_chart")) == 2
    # any move gives a scheme
    at = (
        slider.set_value(slider.max).run()
        if mode == "symmetric"
        else slider.set_range(slider.min, slider.max).run()
    )
    assert isinstance(scheme(at).range_setting, qc.Fixed)


def test_nan_is_one_sentence() -> None:
    at = opened(src="paste").text_area(key="_pasted").set_value("1 nan 2").run()
    assert not at.exception
    assert len(at.error) == 1
    assert "NaN" in said(at.error)[0]


@pytest.mark.slow  # by default, what Explore computes is counted
@without_entropy
def test_moving_the_range_computes_only_what_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str) -> None:
        function = getattr(qc, name)

        def call(*args: Any, **more: Any) -> Any:
            calls.append(name if len(args) < 4 else f"{name} of one")
            return function(*args, **more)

        monkeypatch.setattr(qc, name, call)

    counted("range_curve")
    counted("range_marks")
    at = opened(seed="77")
    for high in (1.5, 1.75, 1.5):
        at = widget(at, "rng_high").set_value(high).run()
    at = at.run()
    assert sorted(calls) == ["range_curve", "range_marks", "range_marks of one", "range_marks of one"]


@pytest.mark.parametrize("name", some(["gguf.Q2_K", "gguf.Q6_K", "gguf.IQ4_XS"]))
def test_a_search_shows_its_trials(name: str) -> None:
    """The sidebar has all parts of the preset, and no range setting is offered instead of the search."""
    at = opened(shape="2x256").selectbox(key="_preset").set_value(name).run()
    preset = qc.PRESETS[name]
    axis = dataclasses.replace(preset.granularity, axis=1)
    assert scheme(at) == dataclasses.replace(preset, granularity=axis)
    assert any(m.value.startswith("**Trials of make") for m in at.markdown)
    assert any("This format has no other range settings" in c.value for c in at.caption)
    assert not [slider for slider in at.slider if slider.label == "Range"]
    assert not any("drag across" in text for text in said(at.markdown))


def test_a_search_that_is_none_is_refused_in_words() -> None:
    at = opened(shape="4x512", range="ggml search", search="min_max", per="group", group="32")
    assert "is not a ggml search" in said(at.error)[0]
    at = opened(
        shape="4x512", range="ggml search", search="make_qx(weights=importance)", per="group", group="32"
    )
    assert "an imatrix, which can't be set here" in said(at.error)[0]
