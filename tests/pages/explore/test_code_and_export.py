"""The Code and Export tabs: scripts of the chosen library, and the ONNX file."""

import sys

import numpy as np
import pytest
from grid import for_each
from streamlit.testing.v1 import AppTest

from tests.pages.explore.test_explore import assert_clean, change, drawn, opened

SMALL = {"shape": "6x8"}


def scripts(at: AppTest) -> list[str]:
    return [code.value for code in at.code if "assert " in code.value]


def captions(at: AppTest) -> str:
    return " ".join(caption.value for caption in at.caption)


def run(script: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(script, "script", "exec"), names)
    return names


def test_textbook_has_no_library_script() -> None:
    at = opened(tab="Code", **SMALL)
    assert_clean(at)
    assert len(scripts(at)) == 2


# torchao takes seconds to import; scripts with it are run by tests/quantcore/snippets
@for_each(
    "library", [pytest.param("torchao", marks=pytest.mark.slow), "onnxruntime", "torch.fake_quantize"]
)
def test_code_tab_has_the_script_of_the_chosen_library(library: str) -> None:
    at = opened(tab="Code", library=library, **SMALL)
    assert_clean(at)
    by_library, by_quantcore, by_hand = scripts(at)
    codes = [np.asarray(run(script)["codes"]) for script in (by_library, by_hand)]
    codes.append(run(by_quantcore)["result"].codes.numpy())  # type: ignore[attr-defined]
    for found in codes:
        np.testing.assert_array_equal(found, drawn(at, "codes"))
    assert "The tests run such scripts with" in captions(at)


def test_code_tab_follows_the_library() -> None:
    at = opened(tab="Code", library="torchao", **SMALL)
    assert "torchao" in scripts(at)[0]
    change(at, "library", "onnx")
    assert_clean(at)
    assert "ReferenceEvaluator" in scripts(at)[0]
    change(at, "library", "textbook")
    assert len(scripts(at)) == 2


def test_code_tab_says_what_was_not_run() -> None:
    at = opened(tab="Code", library="aimet.Quantize", **SMALL)
    assert_clean(at)
    assert "aimet_torch" in scripts(at)[0]
    assert "aimet-torch 2.42.0 can't be installed" in captions(at)


def test_code_tab_says_why_there_is_no_script() -> None:
    at = opened(tab="Code", library="aimet.2024.Quantize", **SMALL)
    assert_clean(at)
    assert any("does not describe a current library" in info.value for info in at.info)
    assert len(scripts(at)) == 2


def test_code_tab_says_why_there_is_nothing_by_hand() -> None:
    at = opened(tab="Code", rounding="stochastic", **SMALL)
    assert_clean(at)
    assert any("Stochastic rounding" in info.value for info in at.info)
    assert len(scripts(at)) == 1


def test_export_has_an_onnx_file_of_these_codes() -> None:
    at = opened(tab="Export", bits="4", per="group", group="4", **SMALL)
    assert_clean(at)
    button = next(b for b in at.get("download_button") if b.proto.label == "ONNX .onnx")
    assert not button.proto.disabled
    assert "onnxruntime reproduces these integers" in captions(at)


def test_export_says_why_there_is_no_onnx_file(monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(tab="Export", overflow="wrap", range="fixed", low="-0.1", high="0.1", **SMALL)
    assert_clean(at)
    assert "would differ" in captions(at)
    for name in [name for name in sys.modules if name.split(".")[0] == "onnx"]:
        monkeypatch.setitem(sys.modules, name, None)
    at = opened(tab="Export", bits="7", **SMALL)
    assert_clean(at)
    assert "pip install onnx==" in captions(at).replace("\\", "")
    assert all(b.proto.disabled == (b.proto.label == "ONNX .onnx") for b in at.get("download_button"))
