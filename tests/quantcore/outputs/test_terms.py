"""One output term by term, the steps of a layer, its files and its script, against NumPy in float64."""

import io
import math

import numpy as np
import pytest
import torch
from grid import for_each
from safetensors.torch import load

import quantcore as qc
from quantcore import export, figures, snippets
from quantcore.analysis import output_data
from quantcore.outputs import OF_BOTH, layer_steps, requantize

RNG = np.random.default_rng(3)
X, W = RNG.standard_normal((5, 12), dtype=np.float32), RNG.standard_normal((4, 12), dtype=np.float32)
BIAS = RNG.standard_normal(4, dtype=np.float32)


def test_terms_are_the_products_of_their_row_and_column():
    found = qc.outputs.layer(X, W, "int4 per_channel(0)", "int8 per_channel(0)", BIAS)
    terms = found.terms(3, 1)
    x, w = X[3].astype(np.float64), W[1].astype(np.float64)
    x_hat, w_hat = (
        found.activation.dequantized[3].double().numpy(),
        found.weight.dequantized[1].double().numpy(),
    )
    np.testing.assert_array_equal(terms.products, x * w)
    np.testing.assert_array_equal(terms.quantized, x_hat * w_hat)
    np.testing.assert_array_equal(terms.errors, x_hat * w_hat - x * w)
    sizes = np.abs(terms.errors.numpy())[terms.order]
    assert (np.diff(sizes) <= 0).all()
    assert sizes[: terms.leading].sum() >= sizes.sum() / 2 > sizes[: terms.leading - 1].sum()
    assert terms.y == pytest.approx((x * w).sum() + BIAS[1], rel=1e-12)
    assert float(found.y[3, 1]) == pytest.approx(terms.y, rel=1e-5)
    assert float(found.y_hat[3, 1]) == pytest.approx(terms.y_hat, rel=1e-5)
    assert sum(terms.parts) == pytest.approx(terms.y_hat - terms.y, rel=1e-9)
    for part, name in zip(terms.parts, found.parts, strict=True):
        assert part == pytest.approx(float(found.parts[name][3, 1]), rel=1e-4, abs=1e-6)


def test_ties_go_to_the_first_input_and_no_error_leads_nowhere():
    tie = qc.outputs.layer([[1.0, -1.0]], [[0.6, 0.6], [0.0, 7.0]], "int4").terms(0, 0)
    assert tie.order.tolist() == [0, 1]
    assert tie.leading == 1
    assert qc.outputs.layer([[1.0]], [[7.0]], "int4").terms(0, 0).leading == 0


@for_each("at", [(5, 0), (0, 4), (-1, 0)])
def test_an_output_that_is_none(at):
    with pytest.raises(qc.QuantError, match="token from 0 to 4 and a channel from 0 to 3"):
        qc.outputs.layer(X, W, "int4").terms(*at)


@for_each(
    ("of_w", "of_x", "count"), [("int4", None, 4), (None, "int8", 4), ("int4", "int8", 7)]
)
def test_steps_are_counted_and_end_with_the_layer(of_w, of_x, count):
    found = []

    def running():
        found.append((yield from layer_steps(X, W, of_w, of_x)))

    steps = list(running())
    assert [step.done for step in steps] == list(range(1, count + 1))
    assert {step.count for step in steps} == {count}
    assert found[0].sqnr_db == qc.outputs.layer(X, W, of_w, of_x).sqnr_db
    assert (OF_BOTH in [step.name for step in steps]) == (of_w is not None and of_x is not None)


def test_alone_is_the_sqnr_with_one_of_them_quantized():
    found = qc.outputs.layer(X, W, "int3", "int4")
    alone = [qc.outputs.layer(X, W, *schemes).sqnr_db for schemes in (("int3", None), (None, "int4"))]
    assert list(found.alone_db.values()) == pytest.approx(alone, abs=1e-3)


def reference(multiplier):
    """QuantizeMultiplier of TFLite, with Python's integers."""
    fraction, shift = math.frexp(multiplier)
    factor = math.floor(fraction * (1 << 31) + 0.5)
    if factor == 1 << 31:
        factor, shift = factor // 2, shift + 1
    return (0, 0) if shift < -31 else (factor, shift)


def test_multipliers_of_many_outputs_are_those_of_each():
    exponents = RNG.integers(-40, 30, 300)
    many = [
        *np.ldexp(RNG.uniform(0.5, 1, 300), exponents).tolist(),
        1.0,
        0.5,
        1 - 2.0 ** (-33),
        2.0 ** (-32),
        2.0 ** (-33),
    ]
    sums = torch.ones(1, len(many), dtype=torch.int64)
    found = requantize(sums, torch.tensor([many], dtype=torch.float64), 0, "int8", "single")
    pairs = list(zip(found.factor[0].tolist(), found.shift[0].tolist(), strict=True))
    assert pairs == [reference(m) for m in many]


def test_an_output_is_requantized_in_every_way():
    x, w = qc.apply(X, "uint8 asymmetric"), qc.apply(W, "int8 per_channel(0)")
    for how in qc.outputs.REQUANTIZATIONS:
        direct = qc.outputs.integer_layer(x, w, BIAS, "int8", how)
        later = qc.outputs.integer_layer(x, w, BIAS, "int8").requantized(how)
        assert torch.equal(direct.output.codes, later.output.codes)
        assert direct.lines(2, 3) == later.lines(2, 3)
    with pytest.raises(qc.QuantError, match="no codes of its output"):
        qc.outputs.integer_layer(x, w).requantized("single")


def test_files_have_all_arrays():
    found = qc.outputs.layer(X, W, "int4", "int8 per_channel(0)", BIAS)
    in_npz = np.load(io.BytesIO(export.layer_to_npz(found)), allow_pickle=False)
    in_safetensors = load(export.layer_to_safetensors(found))
    assert set(in_npz.files) == set(in_safetensors)
    for name in in_npz.files:
        np.testing.assert_array_equal(in_npz[name], in_safetensors[name].numpy())
    np.testing.assert_array_equal(in_npz["x"], X)
    np.testing.assert_array_equal(in_npz["w_codes"], found.weight.codes)
    np.testing.assert_array_equal(in_npz["x_scale"], found.activation.scale)
    np.testing.assert_array_equal(in_npz["bias"], BIAS)
    np.testing.assert_allclose(in_npz["y"], X.astype(np.float64) @ W.T + BIAS, rtol=1e-4, atol=1e-5)


def test_the_maps_of_an_output_show_the_error_after_minus_before():
    y, y_hat = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.5, 0.0]])
    data = output_data(y, y_hat, "y")
    assert data.map("error").tolist() == [[0.5, -2.0]]
    assert figures.titles_of_maps(data) == {"x": "y", "error": "ŷ − y"}
    large = output_data(torch.zeros(600, 3), torch.arange(1800.0).reshape(600, 3))
    assert large.legend.endswith(
        "the one with the largest |y|; in the error map, the one with the largest |error|."
    )
    assert large.map("error")[0, 0] == 6.0  # of rows 0 to 2, the largest |error|


def test_bars_of_errors_have_the_number_of_channel_and_token():
    found = qc.outputs.layer(X, W, "int4")
    channels, tokens = figures.output_errors(found, (2, 1)).data
    square = found.error.double().numpy() ** 2
    np.testing.assert_allclose(channels.y, np.sqrt(square.mean(0)))
    np.testing.assert_allclose(tokens.y, np.sqrt(square.mean(1)))
    assert list(channels.customdata) == [0, 1, 2, 3]
    assert list(tokens.customdata) == [4, 5, 6, 7, 8]
    assert [n for n, color in enumerate(channels.marker.color) if color != channels.marker.color[0]] == [1]
    wide = qc.outputs.layer(RNG.standard_normal((600, 2)), [[1.0, 0.3]], "int4")
    _, tokens = figures.output_errors(wide).data
    error = np.abs(wide.error.numpy()[:, 0])
    np.testing.assert_allclose(tokens.y, error.reshape(-1, 3).max(1), rtol=1e-6)
    np.testing.assert_array_equal(
        np.asarray(tokens.customdata) - 1, np.arange(0, 600, 3) + error.reshape(-1, 3).argmax(1)
    )


@for_each("shape", [(3, 4), (200, 200)])
def test_a_large_matrix_is_read_from_the_export(shape, tmp_path, monkeypatch):
    x, w = RNG.standard_normal((4, shape[1]), dtype=np.float32), RNG.standard_normal(shape, dtype=np.float32)
    schemes = qc.Scheme(qc.INT4), qc.Scheme(qc.INT8)
    found = qc.outputs.layer(x, w, *schemes)
    (tmp_path / "layer.npz").write_bytes(export.layer_to_npz(found))
    monkeypatch.chdir(tmp_path)
    source = snippets.LayerSource(snippets.binding("w", w), snippets.binding("x", x), *schemes)
    names = {}
    exec(snippets.layer_script(source, found), names)
    assert torch.equal(names["weight_codes"], found.weight.codes)
    assert ("layer.npz" in source.w) == (w.nbytes > 1 << 16)
