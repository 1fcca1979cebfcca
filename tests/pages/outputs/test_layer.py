"""Outputs → Layer without a browser: its numbers against NumPy in float64, its sentences, links and scripts."""

import base64
import html
import json
import re
from typing import Any

import numpy as np
import pytest
from app_page import change, lines, said, the_app, widget
from grid import for_each
from parts import some
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.maps import live
from pages.outputs.layer import keys
from pages.sidebar import activations
from quantcore import outputs, tensors
from quantcore.checkpoints import EXAMPLES, open_checkpoint
from tests.pages.maps.test_live import ask, read

W = "0.5 -1 2 0.25\n1.5 0.75 -0.5 1\n-2 0.125 0.3 0.7"
X = np.array([[1.0, -20.0, 0.5, 2.0], [0.25, 8.0, -1.5, 0.75]], np.float32)
GIVEN = {"ly_x": "paste", "ly_values": tensors.encode(X)}
PASTED = {"src": "paste", "t": tensors.encode(tensors.parse(W))}


def opened(**parameters: Any) -> AppTest:
    at = the_app("layer")
    for key, value in parameters.items():
        at.query_params[key] = value
    at = at.run()
    assert not at.exception
    return at


def sent_in(at: AppTest, key: str) -> str:
    """What the link carries for a control."""
    found = at.query_params[key]
    return found if isinstance(found, str) else found[0]


def bodies(at: AppTest) -> str:
    return html.unescape(" ".join(element.proto.body for element in at.get("html")))


def answer(at: AppTest) -> str:
    (found,) = re.findall(r'class="qs-question">.*?<span[^>]*>(.*?)</span>', bodies(at))
    return str(found)


def facts(at: AppTest) -> list[str]:
    (line,) = re.findall(r'class="qs-line qs-facts">(.*?)</p>', bodies(at))
    return re.findall(r"<span[^>]*>(.*?)</span>", line)


def maps(at: AppTest) -> dict[str, dict[str, Any]]:
    """What each map component was given, by the letter of its first map."""
    found = [json.loads(c.proto.json)[0] for c in at.get("bidi_component") if '"arrays"' in c.proto.json]
    return {data["symbols"][0]: data for data in found}


def values(data: dict[str, Any], name: str) -> np.ndarray:
    array = data["arrays"][name]
    flat = np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"])
    return np.broadcast_to(flat, data["height"] * data["width"]).reshape(data["height"], data["width"])


def x_hat_of(data: dict[str, Any]) -> np.ndarray:
    """The dequantized matrix by the numbers that the maps were given."""
    scale = np.repeat(np.atleast_1d(np.float64(values_of(data, "scale"))), data["width"]).reshape(
        -1, data["width"]
    )
    zero_point = np.repeat(np.atleast_1d(values_of(data, "zero_point")), data["width"]).reshape(
        -1, data["width"]
    )
    return np.float32((values(data, "codes").astype(np.float64) - zero_point) * scale)


def values_of(data: dict[str, Any], name: str) -> np.ndarray:
    array = data["arrays"][name]
    return np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"])


def test_the_answer_and_the_maps_are_those_of_numpy() -> None:
    at = opened(**PASTED, **GIVEN, ly_per="token", per="channel")
    shown = maps(at)
    x, w = (values(shown[name], "x").astype(np.float64) for name in ("x", "w"))
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(w, tensors.parse(W))
    x_hat, w_hat = x_hat_of(shown["x"]), x_hat_of(shown["w"])
    assert np.abs(x_hat - x).max() <= np.abs(x).max() / 127 / 2 + 1e-6
    y, y_hat = x @ w.T, x_hat.astype(np.float64) @ w_hat.astype(np.float64).T
    np.testing.assert_allclose(values(shown["y"], "x"), y, rtol=1e-5)
    np.testing.assert_allclose(values(shown["y"], "dequantized"), y_hat, rtol=1e-5)
    assert shown["y"]["after"]
    assert shown["y"]["titles"] == {"x": "y = x·wᵀ", "error": "ŷ − y"}

    def sqnr(after: np.ndarray) -> str:
        return f"{10 * np.log10((y**2).sum() / ((after - y) ** 2).sum()):.1f} dB"

    percent = 100 * np.sqrt(((y_hat - y) ** 2).sum() / (y**2).sum())
    assert answer(at).startswith(f"Output SQNR {sqnr(y_hat)}: the error is {percent:.0f} % of the output")
    assert facts(at)[:2] == [f"weights alone {sqnr(x @ w_hat.T)}", f"activations alone {sqnr(x_hat @ w.T)}"]
    parts = [x @ (w_hat - w).T, (x_hat - x) @ w.T, (x_hat - x) @ (w_hat - w).T]
    total = ((y_hat - y) ** 2).sum()
    shares = [100 * (part**2).sum() / total for part in parts]
    assert facts(at)[2:5] == [
        f"{name} {share:.1f}%" for name, share in zip(("x·ΔW", "Δx·W", "Δx·ΔW"), shares, strict=True)
    ]
    assert facts(at)[5] == f"cross terms {100 - sum(shares):+.1f}%".replace("-", "−")


def typed(at: AppTest, key: str, text: str) -> AppTest:
    """Type what is not among the options of a list."""
    widget(at, key).options.append(text)
    at = change(at, key, text)
    widget(at, key).options.append(text)  # AppTest sends a value by its place among them
    return at


def test_a_scheme_is_typed_in_place_of_a_preset_and_what_is_wrong_is_said_once() -> None:
    at = typed(opened(**PASTED, **GIVEN, scheme="garbage"), "_preset", "int3 asymmetric per_group(2)")
    assert not at.error
    assert [sent_in(at, key) for key in ("bits", "mode", "per", "group")] == ["3", "asymmetric", "group", "2"]
    at = typed(at, "_preset", "int3 nonsense")
    (sentence,) = said(at.error)
    assert "nonsense" in sentence
    assert widget(at, "_preset").value == "int3 nonsense"
    at = change(at, "ly_bias", "1")
    assert not at.error
    assert widget(at, "_preset").value is None
    for bias in ("nan", "abc"):
        (sentence,) = said(change(at, "ly_bias", bias).error)
        assert "bias" in sentence.lower()
    name = "torchao.int8"
    assert sent_in(change(change(at, "ly_bias", ""), "_preset", name), "library") == name


@for_each(
    ("parameters", "cause"),
    [
        ({"bits": 2}, "most of it from the weights."),
        ({"bits": 8, "ly_format": "int4"}, "most of it from the activations."),
        ({"bits": 4, "ly_format": "int4"}, None),
        ({"ly_per": "none"}, "% of the output."),
    ],
)
def test_the_cause_follows_from_the_energies(parameters: dict[str, Any], cause: str | None) -> None:
    at = opened(**PASTED, **GIVEN, **parameters)
    if cause is not None:
        assert answer(at).endswith(cause)
        return
    of_w, of_x, of_both = (float(fact.split()[1][:-1]) for fact in facts(at)[2:5])
    sentence = "from weights and activations." if max(of_w, of_x) < 0.75 * (of_w + of_x + of_both) else "most"
    assert sentence in answer(at)


def test_nothing_changes_where_everything_is_exact() -> None:
    exact = np.array([[1.0, -127.0], [64.0, 3.0]], np.float32)
    at = opened(
        src="paste", t=tensors.encode(np.array([[7, -3], [1, 2]], np.float32)), ly_x="paste",
        ly_values=tensors.encode(exact),
    )  # fmt: skip
    assert answer(at) == "No output changes."
    assert "None of the 2 terms changes." in said(at.caption)
    zero = opened(**PASTED, ly_x="paste", ly_values=tensors.encode(np.zeros((2, 4), np.float32)))
    assert answer(zero) == "All outputs are 0, before and after."


@pytest.mark.slow  # by default, activations are generated, pasted and uploaded
def test_real_activations_are_those_of_the_shipped_model() -> None:
    at = opened(shape="8x64", ly_x="example")
    tensors_of = open_checkpoint(EXAMPLES["charlm"]).tensors
    model = qc.training.character_model({name: tensor.read() for name, tensor in tensors_of.items()})
    name = activations.EXAMPLES[64]
    x = qc.training.activations_of(model, name, qc.training.load_text().judged[:1])
    w = qc.tensors.generate(qc.tensors.Generated(shape=(8, 64)))
    assert f"Output SQNR {qc.decibels(outputs.layer(x, w, 'int4', 'int8').sqnr_db)}:" in answer(at)
    assert f"x: 128 tokens, real: inputs of {name} of charlm" in facts(at)
    at = opened(ly_x="example")
    (sentence,) = said(at.error)
    assert sentence.startswith("w has 8 columns, and the real activations 64 or 160; press “Use their own w”")
    (own,) = [button for button in at.button if button.label == "Use their own w"]
    at = own.click().run()
    assert not at.error
    weight = tensors_of[name].read()
    assert f"Output SQNR {qc.decibels(outputs.layer(x, weight, 'int4', 'int8').sqnr_db)}:" in answer(at)


def test_terms_of_an_output_and_its_parts() -> None:
    at = opened(**PASTED, **GIVEN, ly_cell="1, 2", ly_bias="0.5, -1, 3")
    shown, frame = maps(at), at.dataframe[0].value
    x, w = X[1].astype(np.float64), tensors.parse(W)[2].astype(np.float64)
    x_hat, w_hat = x_hat_of(shown["x"])[1].astype(np.float64), x_hat_of(shown["w"])[2].astype(np.float64)
    error = x_hat * w_hat - x * w
    order = np.argsort(-np.abs(error), kind="stable")
    assert list(frame["k"]) == list(order)
    np.testing.assert_array_equal(frame["x·w"], (x * w)[order])
    np.testing.assert_array_equal(frame["error"], error[order])
    marked, sizes = int((frame[""] == "●").sum()), np.abs(error)[order]
    assert sizes[:marked].sum() >= sizes.sum() / 2 > sizes[: marked - 1].sum()
    found = dict(re.findall(r"^(\S+(?: − y)?) .* (\S+)$", "\n".join(lines(at)[0].splitlines()), re.MULTILINE))
    numbers = {name: float(text.replace("−", "-")) for name, text in found.items()}
    text = lines(at)[0]
    assert len(numbers) == 6, text
    expected = [
        (x * w).sum() + 3, (x_hat * w_hat).sum() + 3, (x * (w_hat - w)).sum(), ((x_hat - x) * w).sum(),
        ((x_hat - x) * (w_hat - w)).sum(), error.sum(),
    ]  # fmt: skip
    np.testing.assert_allclose(list(numbers.values()), expected, rtol=1e-5)
    assert "y[1, 2]: token 1, output channel 2" in bodies(at)
    (told,) = [
        text for text in said(at.caption) if text.startswith("In float32, x·ΔW, Δx·W and Δx·ΔW add up")
    ]
    rest, bound = map(float, re.findall(r"\d\.\de[-+]\d+", told))
    of_library = qc.outputs.layer(X, tensors.parse(W), "int4", "int8", [0.5, -1, 3]).bound[1, 2]
    assert rest <= bound == float(f"{of_library:.1e}")


def test_the_worst_output_is_shown_first() -> None:
    at = opened(**PASTED, **GIVEN)
    y = maps(at)["y"]
    error = np.abs(values(y, "dequantized") - values(y, "x"))
    assert y["selected"] == list(np.unravel_index(error.argmax(), error.shape))
    assert [box[:2] for box in maps(at)["x"]["found"]] == [[y["selected"][0], y["selected"][0] + 1]]
    assert [box[:2] for box in maps(at)["w"]["found"]] == [[y["selected"][1], y["selected"][1] + 1]]


@for_each("typed", some(["9, 9", "1", "0, 0, 0", "a, b", "-1, 0"], 3))
def test_an_output_that_is_none_is_one_sentence(typed: str) -> None:
    at = opened(**PASTED, **GIVEN, ly_cell=typed)
    (sentence,) = said(at.warning)
    assert "is shown instead." in sentence


def test_a_single_row_of_numbers_is_one_token() -> None:
    at = opened(**PASTED, ly_x="paste", ly_values=tensors.encode(X[0]))
    np.testing.assert_array_equal(values(maps(at)["x"], "x"), X[:1])
    assert "x: 1 token, pasted" in facts(at)


def test_the_integer_path_is_that_of_integers() -> None:
    at = opened(**PASTED, **GIVEN, ly_tab="Integer path", ly_format="uint8", ly_cell="0, 1", per="channel")
    shown = maps(at)
    q_x, q_w = values(shown["x"], "codes").astype(int)[0], values(shown["w"], "codes").astype(int)[1]
    z_x = int(values_of(shown["x"], "zero_point")[0])
    (text,) = lines(at)
    found = dict(
        line.split(" = ", 1) for line in text.splitlines() if " = " in line and not line.startswith(" ")
    )
    assert int(found["Σ q_x·q_w"]) == (q_x * q_w).sum()
    assert int(found["−z_w·Σ q_x"]) == 0
    assert int(found["−z_x·Σ q_w"]) == -z_x * q_w.sum()
    assert int(found["K·z_x·z_w"]) == 0
    assert int(found["accumulator"]) == ((q_x - z_x) * q_w).sum()
    y = float(found["y"].split(" = ")[-1])
    assert y == pytest.approx(values(shown["y"], "dequantized")[0, 1], rel=1e-5)
    assert text.count("clamped to") == 3
    once, twice = (part.splitlines()[1:] for part in text.split("int32 multiplier and shift")[1:])
    assert (len(once), len(twice)) == (2, 3)  # the second rounding has a line of its own
    rounded = {int(code) for code in re.findall(r"clamped to (\d+)", text)}
    assert max(rounded) - min(rounded) <= 1
    assert "No accumulator overflows" in " ".join(said(at.caption))


def test_overflow_is_said_when_it_happens() -> None:
    x = np.full((2, 64), 100.0, np.float32)
    at = opened(
        src="generate", shape="4x64", dist="uniform", bits=8, ly_x="paste",
        ly_values=tensors.encode(x), ly_tab="Integer path", ly_bits="16",
    )  # fmt: skip
    sentence = next(text for text in said(at.caption) if "accumulator" in text)
    shown = maps(at)
    sums = values(shown["x"], "codes").astype(int) @ values(shown["w"], "codes").astype(int).T
    over = int((np.abs(sums + (sums < 0)) > 2**15 - 1).sum())
    assert over > 0
    assert sentence.startswith(f"{over} of 8 accumulators overflow int16 and wrap around")


def test_roundings_that_differ_are_counted() -> None:
    at = opened(shape="64x64", ly_tokens=64, ly_tab="Integer path", ly_output="int8")
    sentence = next(text for text in said(at.caption) if "rounding" in text.lower())
    found = re.search(r"differ by 1 in ([\d,]+) of", sentence)
    if found is None:
        assert sentence == "Both roundings by multiplier and shift give the same 4,096 codes."
        return
    assert int(found[1].replace(",", "")) > 0


@for_each(
    ("parameters", "words"),
    [
        ({"ly_per": "none"}, "needs integer codes of x: quantize x"),
        ({"ly_format": "e4m3fn"}, "needs integer codes and zero points"),
        ({"ly_per": "group", "ly_group": 2}, "several scales along its inputs"),
        pytest.param({"format": "nf4"}, "needs integer codes and zero points", marks=pytest.mark.slow),
        ({"ly_per": "token", "ly_bias": "1"}, "A bias in int32 needs one scale of x"),
    ],
)
def test_where_there_is_no_integer_path_one_sentence_says_why(parameters: dict[str, Any], words: str) -> None:
    at = opened(**PASTED, **GIVEN, ly_tab="Integer path", **parameters)
    (sentence,) = said(at.info)
    assert words in sentence


@for_each(
    ("parameters", "setting", "batches", "averaging"),
    [
        pytest.param({"ly_range": "min_max"}, "min_max", 4, None, marks=pytest.mark.slow),
        ({"ly_range": "moving", "ly_averaging": 0.25, "ly_batches": 3}, "min_max", 3, 0.25),
        pytest.param(
            {"ly_range": "percentile", "ly_percentile": 95.0},
            "percentile(95)",
            4,
            None,
            marks=pytest.mark.slow,
        ),
        pytest.param({"ly_range": "entropy"}, "entropy", 4, None, marks=pytest.mark.slow),
        ({"ly_range": "mse", "ly_per": "group"}, "min_mse", 4, None),
    ],
)
def test_static_scales_are_those_of_other_tokens(
    parameters: dict[str, Any], setting: str, batches: int, averaging: float | None
) -> None:
    at = opened(ly_scales="static", **parameters)
    every = outputs.activations(
        8 * batches, 8, factor=20.0, correlation=0, seed=0, sample=outputs.CALIBRATION
    )
    per = "per_block([-1, 4])" if "ly_per" in parameters else "per_tensor"
    found = outputs.calibrate(every.chunk(batches), f"int8 {per} {setting}", averaging)
    np.testing.assert_array_equal(values_of(maps(at)["x"], "scale"), found.scale.numpy().ravel())
    fact = next(text for text in facts(at) if "static scale" in text)
    assert fact.endswith(f"found on {8 * batches} other tokens")
    if averaging is not None:  # the average of the extremes, by its definition
        low = high = None
        for batch in every.chunk(batches):
            ends = batch.min().item(), batch.max().item()
            low = ends[0] if low is None else low + averaging * (ends[0] - low)
            high = ends[1] if high is None else high + averaging * (ends[1] - high)
        assert low is not None
        assert high is not None
        assert found.scale.item() == pytest.approx(max(-low, high) / 127, rel=1e-5)


def test_static_scales_of_given_activations_are_those_of_the_first_half() -> None:
    at = opened(**PASTED, **GIVEN, ly_scales="static")
    assert values_of(maps(at)["x"], "scale")[0] == np.float32(20 / 127)
    assert facts(at)[-1].endswith("found on the first 1 of 2 tokens")


@for_each(
    ("parameters", "words"),
    [
        (
            {**PASTED, "ly_x": "paste", "ly_values": tensors.encode(X[:, :3])},
            ("(2, 3)", "(3, 4)", "same number"),
        ),
        ({"shape": "4x4x4"}, ("w has shape (4, 4, 4)", "[out, in]")),
        (
            {**PASTED, "ly_x": "paste", "ly_values": tensors.encode(X[None])},
            ("x has shape", "one row per token"),
        ),
        ({"ly_outliers": 9}, ("9 outlier channels", "8 inputs")),
        ({"shape": "4096x4096", "ly_tokens": 2048}, ("34,359,738,368 products", "17,179,869,184")),
        ({"ly_bias": "1, 2"}, ("bias has 2 numbers", "8 rows")),
        ({"ly_bias": "what"}, ("what",)),
        ({"ly_format": "int99"}, ("99",)),
        pytest.param({"ly_format": "int8 per_nothing"}, ("per_nothing",), marks=pytest.mark.slow),
    ],
)
def test_bad_input_is_one_sentence(parameters: dict[str, Any], words: tuple[str, ...]) -> None:
    at = opened(**parameters)
    (sentence,) = said(at.error)
    assert all(word in sentence for word in words), sentence
    assert answer(at) == ""  # the question stands there


def test_without_activations_the_page_says_what_to_do() -> None:
    for source in ("paste", "upload"):
        at = opened(ly_x=source)
        assert not at.error
        (sentence,) = said(at.info)
        assert sentence.startswith("There are no activations yet")
        assert answer(at) == ""


def test_pasted_activations_stand_in_the_link() -> None:
    at = opened(**PASTED, ly_x="paste")
    at.text_area(key="_ly_text").set_value("1 2 3 4\n5 6 7 -8.5").run()
    assert not at.exception
    assert not at.error
    carried = tensors.decode(sent_in(at, activations.VALUES))
    np.testing.assert_array_equal(carried, np.array([[1, 2, 3, 4], [5, 6, 7, -8.5]], np.float32))
    again = opened(**PASTED, ly_x="paste", ly_values=sent_in(at, activations.VALUES))
    assert answer(again) == answer(at)
    assert again.text_area(key="_ly_text").value == "1.0, 2.0, 3.0, 4.0\n5.0, 6.0, 7.0, -8.5"
    change(at, "ly_x", "generate")
    assert activations.VALUES not in at.query_params


def test_an_uploaded_file_is_read(tmp_path: Any) -> None:
    at = opened(**PASTED, ly_x="upload")
    np.save(tmp_path / "x.npy", X)
    (field,) = [field for field in at.file_uploader if field.label.startswith("Activations")]
    field.upload("x.npy", (tmp_path / "x.npy").read_bytes()).run()
    assert not at.exception
    assert not at.error
    assert answer(at) == answer(opened(**PASTED, **GIVEN))


def test_a_link_that_can_not_be_read_is_one_sentence() -> None:
    at = opened(**PASTED, ly_x="paste", ly_values="!!")
    assert len(at.error) == 1


@for_each(
    "parameters",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"ly_per": "none", "dtype": "bfloat16", "library": "torchao"},
        {"ly_scales": "static", "ly_range": "moving", "ly_format": "uint8", "ly_bias": "0.25"},
        pytest.param({**PASTED, **GIVEN, "ly_per": "token", "ly_scales": "static"}, marks=pytest.mark.slow),
        {**PASTED, **GIVEN, "ly_scales": "static", "ly_per": "group"},
        pytest.param(
            {"shape": "40x32", "ly_tokens": 20, "ly_per": "group", "ly_format": "e4m3fn", "format": "nf4"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_script_gives_the_numbers_of_the_page(parameters: dict[str, Any], capsys: Any) -> None:
    at = opened(ly_tab="Code", **parameters)
    (code,) = [code for code in at.code if "assert " in code.value]
    names: dict[str, Any] = {}
    exec(compile(code.value, "script", "exec"), names)
    found = names["layer"]
    assert f"Output SQNR {qc.decibels(found.sqnr_db)}:" in answer(at)
    assert capsys.readouterr().out.splitlines()[-1].startswith("OK: ")
    wrong = code.value.replace(
        "layer = qc.outputs.layer(x, w", "layer = qc.outputs.layer(2 * x.flip(0), 1.5 * w.flip(1)"
    )
    assert wrong != code.value
    with pytest.raises(AssertionError):
        exec(compile(wrong, "script", "exec"), {})


def test_errors_by_channel_and_token() -> None:
    at = opened(**PASTED, **GIVEN, ly_tab="Errors")
    (chart,) = at.get("plotly_chart")
    channels, tokens = json.loads(chart.proto.spec)["data"]
    y = maps(at)["y"]
    error = (values(y, "dequantized") - values(y, "x")).astype(np.float64)
    for trace, axis in ((channels, 0), (tokens, 1)):
        got = np.frombuffer(base64.b64decode(trace["y"]["bdata"]), trace["y"]["dtype"])
        np.testing.assert_allclose(got, np.sqrt((error**2).mean(axis)), rtol=1e-6)


def test_all_choices_return_from_the_link() -> None:
    sent = {
        "ly_tokens": "5", "ly_outliers": "2", "ly_factor": "7.5", "ly_seed": "3", "ly_per": "group", "ly_format": "uint4",
        "ly_group": "2", "ly_scales": "static", "ly_range": "moving", "ly_batches": "2", "ly_averaging": "0.5",
        "ly_bias": "1", "ly_cell": "1, 1", "ly_tab": "Code",
    }  # fmt: skip
    at = opened(**sent)
    assert not at.error
    assert not at.warning
    assert {key: sent_in(at, key) for key in sent} == sent
    assert set(sent) <= keys.DEFAULTS.keys()


@pytest.mark.slow  # by default, a large layer waits for the run
def test_a_large_layer_goes_through_the_queue_and_gives_the_same() -> None:
    at = opened(shape="1024x1024", ly_tokens=128, per="channel", bits=4)
    assert not at.error
    w = tensors.generate(tensors.Generated("outlier_channel", (1024, 1024)))
    x = outputs.activations(128, 1024, factor=20.0, correlation=0, seed=0, sample=outputs.HELD_OUT)
    w_hat, x_hat = (
        qc.apply(m, scheme).dequantized.double().numpy()
        for m, scheme in ((w, "int4 per_channel(0)"), (x, "int8"))
    )
    y, y_hat = x.double().numpy() @ w.astype(np.float64).T, x_hat @ w_hat.T
    sqnr = 10 * np.log10((y**2).sum() / ((y_hat - y) ** 2).sum())
    assert answer(at).startswith(f"Output SQNR {sqnr:.1f} dB")


@for_each(
    ("key", "asked", "value"), [pytest.param("bits", 7, 7, marks=pytest.mark.slow), ("mode", 1, "asymmetric"), ("seed", 3, 3)]
)
def test_maps_and_answer_follow_a_control_before_the_run(
    monkeypatch: pytest.MonkeyPatch, key: str, asked: int, value: object
) -> None:
    monkeypatch.setattr(live, "_served", True)
    at = opened(ly_cell="1, 2")
    before = maps(at)
    pictures = {name: read(ask(before[name]["live"]["at"], **{key: asked})) for name in ("x", "w", "y")}
    change(at, key, value)
    after = maps(at)
    for name, (text, arrays) in pictures.items():
        assert text["number"] == after[name]["number"]
        assert (text["number"] == before[name]["number"]) == (name == "x")
        for array, numbers in arrays.items():
            np.testing.assert_array_equal(numbers, values_of(after[name], array))
    html_text = pictures["y"][0]["beside"]["html"]["ly_answer"]
    assert answer(at) in html.unescape(html_text)
    assert pictures["w"][0]["beside"]["html"] == {}
    assert pictures["y"][0]["beside"]["late"] == ["ly_tabs"]


def test_a_large_layer_waits_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_served", True)
    shown = maps(opened(shape="256x256", ly_tokens=128))
    assert [shown[name]["live"]["at"] for name in ("x", "w", "y")] == [""] * 3
