"""Compare → Schemes without a browser: every choice, refused schemes, the table, and bad input."""

import csv
import io
from typing import Any

import numpy as np
import pytest
from app_page import change, the_app
from grid import for_each
from parts import some
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.compare.schemes import controls as sweep_choice
from pages.compare.schemes import run as sweep_run
from pages.compare.schemes import views as sweep_results
from pages.shared import tables
from quantcore import tensors

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")



def opened(**parameters: Any) -> AppTest:
    at = the_app("schemes")
    for key, value in parameters.items():
        at.query_params[key] = value
    at = at.run()
    assert not at.exception
    return at


def table(at: AppTest) -> Any:
    return at.dataframe[0].value


def said(elements: Any) -> list[str]:
    return [element.value.replace("\\", "") for element in elements]


def test_all_sensible_and_the_scheme_on_the_left(monkeypatch: pytest.MonkeyPatch) -> None:
    some_of = qc.default_schemes((2, 2))[::5]  # all would take a second
    monkeypatch.setattr(qc, "default_schemes", lambda shape: some_of if shape == (2, 2) else [])
    found = set(table(opened(bits="7", shape="2x2"))["scheme"])
    assert found == {*map(str, some_of), "int7 symmetric per_tensor min_max textbook"}


@pytest.mark.slow  # by default, a row that is refused has the reason
def test_all_presets_with_the_reasons_of_those_refused() -> None:
    frame = table(opened(sw_set="all presets"))
    named = frame[frame["name"].isin(qc.PRESETS)]
    assert len(set(qc.PRESETS.values())) == len(named)
    by_name = {row["name"]: row for _, row in named.iterrows()}
    for name, scheme in qc.PRESETS.items():
        if name in by_name:
            assert by_name[name]["scheme"] == str(scheme)
            assert by_name[name]["refused"] == (qc.unsupported_reason(scheme, (8, 8)) or "")
    assert (named["refused"] != "").any()
    # refused schemes come last
    refused = list(frame["refused"] != "")
    assert refused == sorted(refused)


@pytest.mark.slow  # by default, the library's tests have every range setting
@for_each("setting", some(sweep_choice.RANGES))
def test_every_range_setting(setting: str) -> None:
    at = opened(
        sw_set="chosen",
        sw_formats=["uint4", "nf4", "e2m1"],
        sw_per="per_channel(0)",
        sw_range=setting,
        shape="8x64",
    )
    frame = table(at)
    chosen = frame[frame["scheme"].str.contains(setting.partition("(")[0].split()[0], regex=False)]
    assert len(chosen) >= 3
    good = chosen[chosen["refused"] == ""]
    assert len(good)
    assert good["sqnr_db"].notna().all()


@for_each("name", sweep_choice.FORMATS)
def test_every_format_parses(name: str) -> None:
    assert str(qc.Scheme.parse(name).format) == name


def test_only_asymmetric_gives_rows_with_the_reason() -> None:
    frame = table(
        opened(sw_set="chosen", sw_formats=["nf4", "int4"], sw_symmetry="asymmetric", sw_per="per_tensor")
    )
    reasons = frame.set_index("name")["refused"]
    assert "no zero_point" in reasons["nf4 asymmetric per_tensor"]
    assert reasons["int4 asymmetric per_tensor"] == ""


def test_changed_choice_computes_only_what_is_new() -> None:
    at = opened(sw_set="chosen", sw_formats=["int4"], seed="12345")  # no other test uses this tensor
    (known,) = at.session_state["_shared_records"]["sweep"].values()
    first = dict(known)
    at.query_params["sw_formats"] = ["int4", "int3"]
    at = at.multiselect(key="sw_formats").set_value(["int4", "int3"]).run()
    (known,) = at.session_state["_shared_records"]["sweep"].values()
    assert len(known) == len(first) + 4
    assert all(known[scheme] is row for scheme, row in first.items())


def test_filter_and_frontier() -> None:
    at = opened(sw_set="chosen", sw_formats=["int8", "nf4"], shape="16x16")
    everything = table(at)
    at = at.text_input(key="sw_filter").set_value("INT8 per_channel").run()
    assert set(table(at)["name"]) == {"int8 per_channel", "int8 asymmetric per_channel"}
    at = at.text_input(key="sw_filter").set_value("").run()
    at = at.checkbox(key="sw_best").check().run()
    best = table(at)
    assert 0 < len(best) < len(everything)
    for _, row in best.iterrows():
        beaten = (everything["bits_per_element"] <= row["bits_per_element"]) & (
            everything["sqnr_db"] > row["sqnr_db"]
        )
        assert not beaten.any()


@pytest.mark.slow  # by default, the best one opens in Explore, and the best by the output of a layer is checked
@pytest.mark.parametrize("metric", some(["mse", "sqnr_db", "max_abs_error"]))
def test_best_under_a_limit(metric: str) -> None:
    at = opened(
        sw_set="chosen",
        sw_formats=["int3", "int4", "int8", "nf4"],
        sw_metric=metric,
        shape="16x64",
        sw_limit="5.0",
    )
    frame = table(at)
    good = frame[(frame["refused"] == "") & (frame["bits_per_element"] <= 5.0)]
    best = good[metric].max() if metric == "sqnr_db" else good[metric].min()
    (sentence,) = [text for text in said(at.markdown) if text.startswith("Best within this limit")]
    name = sentence.split("**")[1]
    assert frame.set_index("name")[metric][name] == best
    assert (f"{best:.2f} dB" if metric == "sqnr_db" else f"{best:.4g}") in sentence
    at = at.slider(key="sw_limit").set_value(1.0).run()
    least = frame[frame["refused"] == ""]["bits_per_element"].min()
    assert f"No scheme here takes 1 or fewer bits per element; the smallest takes {least:.4g}." in said(at.markdown)


def test_best_under_a_limit_and_any_row_open_in_explore() -> None:
    at = opened(sw_set="chosen", sw_formats=["int3", "nf4"], sw_maps=["nf4 per_channel"], shape="16x64")
    (sentence,) = [text for text in said(at.markdown) if text.startswith("Best within this limit")]
    frame = table(at).set_index("name")
    (button,) = [b for b in at.button if b.key == "_sw_use"]
    at = button.click().run()
    assert not at.exception
    shown = next(e.value for e in at.text_input if (e.key or "").startswith("_scheme_text"))
    assert shown == frame["scheme"][sentence.split("**")[1]]
    at = opened(sw_set="chosen", sw_formats=["int3", "nf4"], sw_maps=["nf4 per_channel"], shape="16x64")
    (button,) = [b for b in at.button if b.label == "Open nf4 per_channel"]
    at = button.click().run()
    shown = next(e.value for e in at.text_input if (e.key or "").startswith("_scheme_text"))
    assert shown == frame["scheme"]["nf4 per_channel"]


X = np.array([[1.0, -20.0, 0.5, 2.0], [0.25, 8.0, -1.5, 0.75]], np.float32)
W = np.array([[0.5, -1, 2, 0.25], [1.5, 0.75, -0.5, 1], [-2, 0.125, 0.3, 0.7]], np.float32)


def test_the_output_of_a_layer_as_metric() -> None:
    """The table, the sentence, the link, the file and the script have the SQNR of x·ŵᵀ by NumPy."""
    at = opened(
        sw_set="custom", sw_formats=["int3", "int4"], sw_metric="output_sqnr_db", src="paste", bits=3,
        t=tensors.encode(W), ly_x="paste", ly_values=tensors.encode(X), sw_limit="16",
    )  # fmt: skip
    assert not at.error
    frame, y = table(at), X.astype(np.float64) @ W.T
    for _, row in frame.iterrows():
        y_hat = X.astype(np.float64) @ qc.apply(W, row["scheme"]).dequantized.double().numpy().T
        sqnr = 10 * np.log10((y**2).sum() / ((y_hat - y) ** 2).sum())
        assert row["output_sqnr_db"] == pytest.approx(sqnr, abs=1e-4)
    (sentence,) = [text for text in said(at.markdown) if text.startswith("Best within this limit")]
    best = frame.loc[frame["output_sqnr_db"].idxmax()]
    assert f"**{best['name']}**, output SQNR {best['output_sqnr_db']:.2f} dB" in sentence
    by_w = frame.loc[frame["sqnr_db"].idxmax()]
    less = best["output_sqnr_db"] - by_w["output_sqnr_db"]
    told = f"By the SQNR of w alone: {by_w['name']}, whose output has {less:.2f} dB less."
    assert sentence.endswith(told) == (less >= sweep_results.LEAST_DB)
    assert at.query_params["sw_metric"] in ("output_sqnr_db", ["output_sqnr_db"])
    (script,) = [code.value for code in at.code if "qc.sweep" in code.value]
    exec(compile(script, "script", "exec"), {})
    with pytest.raises(AssertionError):
        exec(compile(script.replace("x = torch.tensor(", "x = 1 + torch.tensor(", 1), "script", "exec"), {})
    at = change(at, "_ly_text", "1 2 3\n4 5 6")
    assert "x has 3 columns, but the tensor in the sidebar has 4" in said(at.info)[0]
    at = change(at, "sw_metric", "sqnr_db")
    assert not said(at.info)
    assert len(table(at)) == len(frame)


def test_the_output_needs_a_matrix() -> None:
    (error,) = said(opened(sw_metric="output_sqnr_db", shape="16").error)
    assert error.startswith("The output x·wᵀ needs a matrix w, [out, in], and this tensor has shape (16,);")


def test_error_maps_of_the_link_and_of_what_is_not_there() -> None:
    at = opened(sw_set="chosen", sw_maps=["int4 per_tensor", "int9 per_tensor"])
    assert not at.error
    assert any("int9" in text for text in said(at.caption))


def test_large_tensor_asks_first() -> None:
    at = opened(shape="2048x2048")
    assert not at.dataframe
    (button,) = [b for b in at.button if b.key == "sw_go"]
    assert str(len(qc.default_schemes((2048, 2048)))) in button.label


@for_each(
    ("parameters", "words"),
    [
        ({"sw_more": "int4 nonsense"}, ["nonsense"]),
        ({"sw_set": "chosen", "sw_formats": ["int4", "int99"]}, ["bits=99"]),
        ({"sw_set": "chosen", "sw_range": "percentile(10)"}, ["50", "10"]),
        ({"sw_set": "chosen", "sw_formats": ["codebook([1,1])"]}, ["two different values"]),
    ],
)
def test_bad_input_is_one_sentence(parameters: dict[str, Any], words: list[str]) -> None:
    (error,) = said(opened(**parameters).error)
    for word in words:
        assert word in error


def test_nothing_chosen_says_what_to_do() -> None:
    at = opened(sw_set="chosen")
    at = at.multiselect(key="sw_formats").set_value([]).run()
    assert not at.exception
    assert "Choose at least one format" in said(at.info)[0]


def test_tensor_that_nothing_can_quantize() -> None:
    at = opened(src="paste", sw_set="chosen", sw_formats=["int4"])
    at = at.text_area[0].set_value("1 nan 2").run()
    assert not at.exception
    frame = table(at)
    refused = frame[frame["refused"] != ""]
    assert "NaN" in refused["refused"].iloc[0]


def test_files_hold_every_metric() -> None:
    frame = sweep_run.table(dict(rows()), [s for s, _ in rows()])
    columns = [name for name in sweep_results.COLUMNS if name in frame]
    text = tables.markdown(sweep_results.filtered(frame, "sqnr_db", "", False)[columns])
    lines = text.splitlines()
    assert len(lines) == 2 + 2
    assert all(line.count(" | ") == len(columns) - 1 for line in lines)
    back = list(csv.DictReader(io.StringIO(frame.to_csv(index=False))))
    assert [float(row["mse"]) for row in back] == [row.report.mse for _, row in rows() if row.report]


def rows() -> list[tuple[qc.Scheme, qc.Row]]:
    schemes = [qc.Scheme.parse("int4"), qc.PRESETS["torchao.fp8_e4m3fn"]]
    found = sorted(qc.sweep_rows([[1.0, -2.0, 0.3]], schemes), key=lambda row: row.index)
    return [(row.scheme, row) for row in found]


@pytest.mark.parametrize("written", ["max |error|", pytest.param("max_abs_error", marks=pytest.mark.slow)])
def test_a_link_may_name_the_metric_as_in_code_or_as_shown(written: str) -> None:
    at = opened(sw_metric=written, sw_set="chosen", sw_formats=["int4"])
    (choice,) = [c for c in at.button_group if c.key == "sw_metric"]
    assert (choice.value, choice.options[-1]) == ("max_abs_error", "max |error|")
    assert at.session_state["sw_metric"] == "max_abs_error"
    assert said(at.warning) == []
