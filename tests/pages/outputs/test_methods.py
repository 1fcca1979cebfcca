"""Outputs → Methods without a browser: its sentences, evaluated on quantcore's own results, and bad input."""

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from app_page import change, lines, said, the_app, widget
from grid import for_each
from parts import some
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.outputs.methods import controls, run, words
from pages.registry import PAGES
from pages.sidebar import activations
from quantcore import figures, outputs

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
W = torch.from_numpy(qc.tensors.generate(qc.tensors.Generated()))  # the sidebar's default
X, HELD = outputs.activations(64, 8), outputs.activations(256, 8, sample=outputs.HELD_OUT)
TOKEN = qc.Scheme.parse("int8 per_channel(0)")
INT4 = qc.Scheme.parse("int4")
COUNTS = run.counts


@pytest.fixture(autouse=True)
def few_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The curve over calibration tokens, which takes most of a run, has one point; its own test has more."""
    monkeypatch.setattr(run, "counts", lambda tokens, inputs: [tokens])


def opened(**parameters: Any) -> AppTest:
    at = the_app("methods")
    for key, value in parameters.items():
        at.query_params[key] = value
    at = at.run()
    assert not at.exception
    return at


def chart(at: AppTest, key: str) -> Any:
    """A chart by its key, as Plotly gets it."""
    (found,) = [e for e in at.get("plotly_chart") if e.proto.id.endswith(f"-{key}")]
    return json.loads(found.proto.spec)


def array(values: Any) -> np.ndarray:
    """Numbers of a chart, which are lists or base64."""
    if isinstance(values, dict):
        import base64

        found = np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])
        shape = [int(n) for n in str(values.get("shape", found.size)).split(",")]
        return found.reshape(shape)
    return np.array([np.nan if v is None else v for v in values])


def sentence(at: AppTest, beginning: str) -> str:
    (found,) = [text for text in said(at.markdown) if text.strip("*").startswith(beginning)]
    return found.strip("*")


def numbers(text: str) -> list[float]:
    return [
        float(n)
        for n in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text.replace("−", "-").replace(",", ""))
    ]


def known(scheme: qc.Scheme = INT4, options: outputs.MethodOptions | None = None) -> dict[str, Any]:
    return {f.method: f for f in outputs.compare(W, X, HELD, scheme, TOKEN, options)}


def test_the_answer_and_the_bars_are_what_the_methods_give() -> None:
    at, found = opened(), known()
    best = max((f for f in found.values() if f.equal_bits), key=lambda f: f.sqnr_db)
    gain = float(f"{best.sqnr_db:.1f}") - float(f"{found['nearest'].sqnr_db:.1f}")
    name = outputs.METHODS[best.method]
    answer = sentence(at, name)
    assert (
        answer == f"{name} loses least: {best.sqnr_db:.1f} dB, {gain:.1f} dB more than rounding to nearest."
    )
    (bars,) = chart(at, "om_bars")["data"]
    order = [name.rstrip("*") for name in bars["y"]]
    assert order == [outputs.METHODS[f.method] for f in reversed(found.values())]
    assert f"({gain:+.1f})" in bars["text"][order.index(name)]
    np.testing.assert_allclose(array(bars["x"]), [f.sqnr_db for f in reversed(found.values())])
    assert any("LLM.int8 always stores w in 8 bits, not 4" in text for text in said(at.caption))
    assert not at.error


@for_each("rows, said_", [
    ([("nearest", 20.0), ("gptq", 26.3)], "GPTQ loses least: 26.3 dB, 6.3 dB more than rounding to nearest."),
    ([("nearest", 22.04), ("gptq", 24.26)], "GPTQ loses least: 24.3 dB, 2.3 dB more than rounding to nearest."),
    ([("nearest", 20.01), ("gptq", 20.04)], "No method helps here: rounding to nearest gives 20.0 dB; GPTQ gives 20.0 dB."),
    ([("nearest", 20.0), ("gptq", 18.0)], "No method helps here: rounding to nearest gives 20.0 dB; GPTQ gives 18.0 dB."),
    ([("nearest", float("inf")), ("gptq", 18.0)], "Rounding to nearest is exact here: there is no error to reduce."),
    ([("nearest", 20.0), ("gptq", float("inf"))], "GPTQ loses nothing here; rounding to nearest gives 20.0 dB."),
    ([("gptq", 18.0)], ""),
])  # fmt: skip
def test_every_answer(rows: list[tuple[str, float]], said_: str) -> None:
    assert words.answer([outputs.MethodOutput(name, db) for name, db in rows]) == said_


def test_numbers_of_negative_bars_are_right_of_the_names() -> None:
    rows = [outputs.MethodOutput(name, db) for name, db in (("awq", 6.7), ("nearest", 1.5), ("gptq", -1.9))]
    bars, texts = figures.methods(rows).data
    assert dict(zip(bars.y, bars.textposition, strict=True))["GPTQ"] == "none"
    assert (texts.x, texts.y, texts.text) == ((0.0,), ("GPTQ",), (" −1.9 dB (−3.4)",))
    assert len(figures.methods(rows[:2]).data) == 1


def test_smoothquant() -> None:
    at = opened(om_method="smoothquant", om_alpha="0.7")
    smooth = outputs.smoothquant(X, W, 0.7)
    text = sentence(at, "With α = 0.7")
    ratio = lambda m: float(m.abs().amax(0).max()) / float(np.median(m.abs().amax(0)))  # noqa: E731
    expected = [0.7, *(ratio(m) for m in (smooth.x, X, smooth.w, W))]
    assert numbers(text) == pytest.approx(expected, abs=0.05)
    series = chart(at, "om_maxima")["data"]
    for trace, values in zip(series, (X, smooth.x, W, smooth.w), strict=True):
        np.testing.assert_allclose(array(trace["y"]), values.abs().amax(0))
    db = {f.method: f for f in outputs.compare(W, X, HELD, INT4, TOKEN, outputs.MethodOptions(alpha=0.7))}
    bars = chart(at, "om_bars")["data"][0]
    assert db["smoothquant"].sqnr_db == pytest.approx(
        dict(zip(bars["y"], array(bars["x"]), strict=True))["SmoothQuant"]
    )


def test_awq() -> None:
    at = opened(om_method="awq", per="channel", axis="0", om_clip="true")
    scheme = qc.Scheme.parse("int4 per_channel(0)")
    awq, clipped = outputs.awq(W, X, scheme), outputs.awq(W, X, scheme, clip=True)
    text = sentence(at, f"Ratio {awq.ratio:g}")
    first = awq.steps[0].loss
    gain = [known(scheme, outputs.MethodOptions(clip=clip))["awq"].sqnr_db for clip in (True, False)]
    expected = [awq.ratio, awq.loss, 100 * (1 - awq.loss / first), gain[0] - gain[1]]
    assert numbers(text) == pytest.approx(expected, rel=0.01, abs=0.06)
    ratios, chosen, thresholds, least = chart(at, "om_awq")["data"]
    np.testing.assert_allclose(array(ratios["y"]), [s.loss for s in awq.steps])
    assert array(chosen["x"]) == [awq.ratio]
    sums = [float(s.losses.sum()) / 8 for s in clipped.steps if s.losses is not None]
    np.testing.assert_allclose(array(thresholds["y"]), sums, rtol=1e-6)
    assert array(least["y"])[0] == pytest.approx(min(sums))


@for_each("order", some([True, False], 2))
def test_gptq_column_by_column(order: bool) -> None:
    at = opened(om_method="gptq", om_column="3", om_order=str(order).lower(), om_damping="0.05")
    found = outputs.gptq(W, X, "int4", act_order=order, damping=0.05)
    step = found.steps[3]
    text = sentence(at, "Step 4 of 8")
    error = step.before - step.dequantized
    row = int(error.abs().argmax())
    assert f"column {step.column} is coded" in text
    assert numbers(text)[3:5] == pytest.approx([float(error[row]), row], abs=1e-4)
    at_most = int(step.update.abs().argmax())
    there, place = divmod(at_most, 4)
    assert numbers(text)[-3:] == pytest.approx(
        [float(step.update[there, place]), there, int(found.order[4 + place])], abs=1e-4
    )
    weight, update = [t for t in chart(at, "om_gptq")["data"] if t["type"] == "heatmap"]
    np.testing.assert_allclose(array(weight["z"]), found.weight_before(3))
    np.testing.assert_allclose(array(update["z"])[:, 4:], step.update)
    assert np.isnan(array(update["z"])[:, :4]).all()
    assert any("GPTQModel can't be installed" in text for text in said(at.info))
    objective = numbers(sentence(at, "On the calibration tokens"))
    less = 100 * abs(1 - found.objective / found.nearest_objective)
    own, nearest = found.objective / (64 * 8), found.nearest_objective / (64 * 8)
    assert objective == [
        pytest.approx(own, rel=1e-3),
        pytest.approx(less, rel=0.05),
        pytest.approx(nearest, rel=1e-3),
    ]
    shown = "".join(lines(at))
    code = found.quantized.codes[row, step.column].item()
    assert f"code {code}, dequantized {float(step.dequantized[row]):.5f}" in shown
    moved = float(step.before[row] - found.w[row, step.column])
    assert f"{moved:+.5f} from columns coded before" in shown
    at = change(at, "om_column", 7)
    assert "no column is left" in sentence(at, "Step 8 of 8")


@for_each("own, nearest, said_", [
    (124.2, 222.7, "124.2, 44 % less than the 222.7 of"), (4.0, 3.9, "4, 2.6 % more than the 3.9 of"),
    (4.081, 4.0811, "4.081, as with"), (0.0, 0.0, "0, as with"), (0.5, 0.0, "0.5 against the 0 of"),
])  # fmt: skip
def test_gptq_on_its_own_objective(own: float, nearest: float, said_: str) -> None:
    ran = run.Ran(outputs.MethodOutput("gptq", 1.0), objective=(own, nearest))
    text = "On the calibration tokens, the mean squared error of the output is"
    assert words.compensating(ran) == f"{text} {said_} rounding to nearest."


def test_hadamard() -> None:
    at = opened(om_method="hadamard", om_signs="random")
    rotated = outputs.hadamard(W, X, seed=0)
    expected = [float(m.abs().max()) for m in (rotated.x, X, rotated.w, W)]
    assert numbers(sentence(at, "Rotated")) == pytest.approx(expected, rel=0.01)
    counts = [array(trace["y"]) for trace in chart(at, "om_histograms")["data"]]
    assert [c[::2][c[::2] >= 1].sum() for c in counts] == [512, 512, 64, 64]


def test_llm_int8() -> None:
    at = opened(om_method="llm_int8", om_threshold="2.5")
    found = outputs.llm_int8(HELD, W, 2.5)
    text = sentence(at, "Columns")
    kept = found.outliers.tolist()
    assert numbers(text)[: len(kept)] == kept
    rest = np.delete(HELD.abs().amax(0).numpy(), kept)
    if rest.size:
        assert numbers(text)[-2:] == pytest.approx([rest.max(), HELD.abs().max()], rel=0.01)
    at = change(at, "om_threshold", 500.0)
    assert numbers(sentence(at, "No |x| reaches")) == pytest.approx(
        [500, float(HELD.abs().max()), 8], rel=0.01
    )


def test_the_cache_of_keys_and_values() -> None:
    at = opened(om_method="kv_cache")
    q, k, v = outputs.attention_head(64, run.HEAD)
    found = outputs.kv_granularities(q, k, v, "int4")
    token, channel = found["per token"], found["per channel"]
    text = sentence(at, "Keys want a scale per channel")
    assert numbers(text)[:2] == pytest.approx([channel[0], channel[0] - token[0]], abs=0.06)
    assert numbers(text)[2] == int(k.abs().amax(0).argmax())
    assert numbers(text)[-2:] == pytest.approx([token[1], channel[1]], abs=0.06)
    same = words.caching(run.Head(k.numpy(), {"per token": (20.0, 30.0), "per channel": (19.0, 25.0)}))
    assert same.startswith("Here keys lose no less with a scale per channel: 19.0 dB, and 20.0 dB")


@pytest.mark.slow  # by default, quantcore's tests have these points, and the curve is drawn by every view
def test_more_calibration_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert COUNTS(48, 8) == [4, 8, 16, 32, 48, 64, 128, 256, 512]
    monkeypatch.setattr(run, "counts", lambda *given: COUNTS(*given)[::4])
    at = opened(om_tokens="48")
    grid = run.counts(48, 8)
    x = outputs.activations(512, 8)
    points = list(outputs.by_tokens(outputs.LayerData(W, x, HELD, INT4, TOKEN), grid))
    assert sentence(at, "Within 0.5 dB of the SQNR with 512 tokens") == words.tokens(points)
    for method in outputs.CALIBRATED:
        enough = outputs.settled(points, method, 0.5)
        part = "not before" if enough is None else f"from {enough} tokens on"
        assert f"{outputs.METHODS[method]} {part}" in words.tokens(points)
    traces = chart(at, "om_tokens_curve")["data"]
    for trace, method in zip(traces, outputs.CALIBRATED, strict=False):
        np.testing.assert_allclose(array(trace["y"]), [p.sqnr_db for p in points if p.method == method])


@for_each("parameters, expected", [
    ({"om_outliers": "9"}, "There can't be 9 outlier channels, since the layer has 8 inputs; give an integer from 0 to 8."),
    ({"shape": "8"}, "A layer's weight is a matrix, [out, in], but this tensor has shape (8,)"),
    pytest.param({"shape": "2x3x4"}, "A layer's weight is a matrix", marks=pytest.mark.slow),
])  # fmt: skip
def test_bad_input_is_one_sentence(parameters: dict[str, str], expected: str) -> None:
    at = opened(**parameters)
    found = [text for text in said(at.error) if expected in text]
    assert len(found) == 1, (said(at.error), said(at.markdown))


def test_what_a_method_can_not_do_is_said_once() -> None:
    at = opened(om_method="awq", om_clip="true")  # per tensor
    assert any(text.startswith("AWQ can't run here: per_tensor") for text in said(at.caption))
    assert any("no threshold can be searched" in text for text in said(at.info))
    at = opened(om_activations="float")
    assert any("SmoothQuant is made for quantized activations" in text for text in said(at.caption))


def test_large_layers_wait_to_be_asked() -> None:
    at = opened(shape="1024x512")
    assert widget(at, "om_go").label == "Run the methods"
    assert not at.get("plotly_chart")
    layer = run.PageLayer(
        run.PageTensor("x", "x", (16384, 16384), lambda: np.zeros(1)),
        INT4,
        controls.ActivationSource(64, 1, 20.0, 0.5, 0),
        None,
    )
    assert layer.content.nbytes > 20e9


def test_a_weight_of_zeros_has_no_error_to_compare() -> None:
    at = opened(src="paste", t=qc.tensors.encode(np.zeros((2, 4), np.float32)))
    assert not at.error
    assert sentence(at, "All outputs are 0 here")
    assert not [e for e in at.get("plotly_chart") if e.proto.id.endswith(("-om_bars", "-om_tokens_curve"))]
    with_nan = np.array([[1, np.nan], [2, 3]], np.float32)
    at = opened(src="paste", t=qc.tensors.encode(with_nan))
    assert [text[:39] for text in said(at.error)] == ["w contains one NaN at index (0, 1); a l"]


def test_what_is_too_large_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.cache, "too_much", lambda content, need: f"{content.nbytes} bytes are too many.")
    at = opened(shape="9x7", om_seed="77")
    numbers_held = 12 * 9 * 7 + 14 * 7 * 7 + 6 * (64 + 256) * (9 + 7)
    assert said(at.error) == [f"{4 * numbers_held} bytes are too many."]


def test_columns_of_a_larger_layer_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "READABLE", 63)
    at = opened(om_method="gptq", seed="77")  # nobody has run it on this tensor
    assert any(text.startswith("The columns are shown one at a time up to 63 weights") for text in said(at.info))
    assert sentence(at, "On the calibration tokens")


@pytest.mark.slow  # by default, the last of eight columns is shown
def test_one_column_has_no_slider() -> None:
    at = opened(shape="4x1", om_method="gptq")
    assert "no column is left" in sentence(at, "Step 1 of 1")


def test_every_control_has_a_link_parameter() -> None:
    (page,) = [page for page in PAGES if page.url_path == "methods"]
    assert page.keys == {*controls.DEFAULTS, activations.SOURCE, activations.VALUES}
    assert {"om_alpha", "om_threshold"} <= page.keys


@pytest.mark.slow  # each method's own test opens it by its link
def test_every_method_is_chosen_on_the_page() -> None:
    at = opened()
    for method in controls.PICTURES:
        at = change(at, "om_method", method)
        assert not at.exception
        assert not at.error


def scripts(at: AppTest) -> list[str]:
    return [block.value for block in at.code if "import quantcore" in block.value]


# torchao takes seconds to import; scripts with it are run by tests/quantcore/snippets
@pytest.mark.parametrize("of_library", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_scripts_of_the_chosen_method_run(of_library: bool) -> None:
    at = opened(om_method="smoothquant", om_alpha="0.3", om_factor="33.3", om_correlation="0.25", om_seed="4")
    own, theirs = scripts(at)
    exec(compile(theirs if of_library else own, "script", "exec"), {})
    assert "qc.outputs.layer" in own
    assert "SmoothQuantObserver(w, 0.3)" in theirs
    (given,) = re.findall(r"qc\.outputs\.activations\(64, .*\)", theirs)
    assert given in own
    for value in ("factor=33.3", "correlation=0.25", "seed=4"):
        assert value in given
    at = change(at, "om_method", "kv_cache")
    (script,) = scripts(at)
    exec(compile(script, "script", "exec"), {})


@pytest.mark.slow  # by default, quantcore's methods are tested, and Layer has pasted activations
def test_given_activations_are_halved() -> None:
    """Methods see the first half of a pasted x, and errors are those of the other half; also in the script."""
    x = qc.outputs.activations(7, 8, outliers=2, factor=9, seed=5).numpy()
    given = {"ly_x": "paste", "ly_values": qc.tensors.encode(x)}
    at = opened(**given, om_method="gptq")
    expected = outputs.compare(W, x[:4], x[4:], INT4, TOKEN)
    (bars,) = chart(at, "om_bars")["data"]
    np.testing.assert_allclose(array(bars["x"]), [f.sqnr_db for f in reversed(expected)])
    told = "Methods are calibrated on the first 4 tokens of x; errors are measured on the other 3."
    assert told in said(at.caption)
    assert (
        max(array(each["x"]).max() for each in chart(at, "om_tokens_curve")["data"] if len(array(each["x"])))
        == 4
    )
    script = next(code.value for code in at.code if "qc.outputs.gptq" in code.value)
    exec(compile(script, "script", "exec"), {})
    at = change(at, "_ly_text", "1 2 3\n4 5 6")
    assert said(at.error)[0].startswith("x has 3 columns, but w has 8; give x, [tokens, in], with 8 columns")
    at = change(at, "_ly_text", "")
    assert "paste x, one row per token" in said(at.info)[0]
    at = change(at, "ly_x", "generate")
    assert len(chart(at, "om_bars")["data"][0]["y"]) == len(outputs.METHODS)
