"""Every page that takes a tensor computes in its dtype."""

import itertools

import numpy as np
import pytest
import torch
from app_page import said, the_app, widget
from grid import for_each
from parts import some_rows
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.registry import PAGES
from pages.shared.computing import cache
from quantcore import tensors
from tests.pages.explore.test_explore import drawn, maps, opened

X = torch.from_numpy(tensors.generate(tensors.Generated(shape=(16, 64))))
LIBRARIES = ["textbook", "torchao", "torchao.int8", "compressed_tensors", "quanto", "onnx", "torch.fake_quantize"]
LINK = {"shape": "16x64", "bits": "8", "per": "channel"}


def on_page(url: str, **link: str) -> AppTest:
    at = the_app(url)
    for key, value in link.items():
        at.query_params[key] = value
    return at.run()


@for_each(("dtype", "library"), some_rows(itertools.product(["bfloat16", "float16"], LIBRARIES), 16))
def test_maps_show_what_the_library_gives(dtype: str, library: str) -> None:
    """The values where they are rounded to the dtype are sent, else computed in the browser from codes and scales."""
    at = opened(**LINK, dtype=dtype, library=library)
    assert not at.exception
    assert not at.error
    result = qc.apply(X.to(getattr(torch, dtype)), qc.Scheme.parse(f"int8 per_channel(0) {library}"))
    np.testing.assert_array_equal(drawn(at), result.codes.numpy())
    np.testing.assert_array_equal(drawn(at, "x"), result.x.numpy())
    assert ("dequantized" in maps(at)["arrays"]) == (library != "textbook")
    if library != "textbook":
        np.testing.assert_array_equal(drawn(at, "dequantized"), result.dequantized.numpy())
    lines = [element.proto.body for element in at.get("html") if "qs-library" in element.proto.body]
    words = "computes in float32, whatever the dtype of x" if library == "textbook" else "against the textbook"
    assert words in lines[0]


@pytest.mark.slow  # with a file of float16, every page is opened by a quick test of the tensor's controls
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_page_with_a_tensor_takes_the_dtype(dtype: str) -> None:
    at = on_page(PAGES[0].url_path, **LINK, dtype=dtype, library="torchao")
    for page in (page for page in PAGES if "tensor" in page.uses):
        at.switch_page(page.script).run()
        assert not at.exception, page.title
        assert not at.error, (page.title, said(at.error))
        assert widget(at, "dtype").value == dtype
        assert cache.values(at.session_state["_current"].tensor).dtype == getattr(torch, dtype)


def test_scripts_of_the_page_rebuild_the_tensor_in_its_dtype() -> None:
    at = opened(**LINK, dtype="bfloat16", library="torchao", tab="Code")
    scripts = [element.value for element in at.code if "import" in element.value]
    scripts = [script for script in scripts if "# pip install" not in script]  # run by the tests of snippets
    assert any("x = torch.from_numpy(x).to(torch.bfloat16)" in script for script in scripts)
    assert any(".view(torch.bfloat16)" in script for script in scripts)
    assert len(scripts) == 2
    for script in scripts:
        names: dict[str, object] = {}
        exec(compile(script, "script", "exec"), names)
        assert names["x"].dtype == torch.bfloat16  # type: ignore[attr-defined]
