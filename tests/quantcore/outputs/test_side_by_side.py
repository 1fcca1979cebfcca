"""Methods side by side, against NumPy in float64; activations as real models have them."""

import math

import numpy as np
import pytest
import torch
from grid import for_each
from torch.nn.functional import scaled_dot_product_attention

import quantcore as qc
from quantcore import outputs


def data(scheme="int4 per_channel(0)", activations=None, seed=3, inputs=16):
    x = outputs.activations(64, inputs, seed=seed)
    held = outputs.activations(96, inputs, seed=seed, sample=outputs.HELD_OUT)
    w = outputs.activations(8, inputs, outliers=0, correlation=0, seed=seed + 1)
    of_x = None if activations is None else qc.Scheme.parse(activations)
    return outputs.LayerData(w, x, held, qc.Scheme.parse(scheme), of_x)


def db(layer, x_hat, w_hat):
    x, w = layer.held_out.double().numpy(), layer.w.double().numpy()
    y = x @ w.T
    y_hat = np.asarray(x_hat, np.float64) @ np.asarray(w_hat, np.float64).T
    return 10 * np.log10((y**2).sum() / ((y_hat - y) ** 2).sum())


def by_method(layer, options=None):
    found = outputs.compare(layer.w, layer.x, layer.held_out, layer.scheme, layer.activation_scheme, options)
    assert [f.method for f in outputs.ranked(found)] == [f.method for f in found]
    return {f.method: f for f in found}


@pytest.mark.slow  # by default, scripts of the methods give the same numbers
@for_each("of_x", [None, "int8 per_channel(0)", "int4 per_tensor"])
def test_each_method_is_measured_on_tokens_that_it_has_not_seen(of_x):
    layer = data(activations=of_x)
    found = by_method(layer, outputs.MethodOptions(alpha=0.7, act_order=True))
    x = lambda held: held if of_x is None else qc.apply(held, of_x).dequantized  # noqa: E731
    w = lambda values: qc.apply(values, layer.scheme).dequantized  # noqa: E731
    held = layer.held_out
    smooth = outputs.smoothquant(layer.x, layer.w, 0.7)
    awq = outputs.awq(layer.w, layer.x, layer.scheme)
    gptq = outputs.gptq(layer.w, layer.x, layer.scheme, act_order=True)
    q = np.asarray(outputs.hadamard_matrix(16), np.float64).T / 4
    rotated = [torch.from_numpy((m.double().numpy() @ q).astype(np.float32)) for m in (held, layer.w)]
    expected = {
        "nearest": db(layer, x(held), w(layer.w)),
        "smoothquant": db(layer, x(held / smooth.scale), w(smooth.w)),
        "awq": db(layer, x(held / awq.scale), awq.quantized.dequantized),
        "gptq": db(layer, x(held), gptq.quantized.dequantized),
        "hadamard": db(layer, x(rotated[0]), w(rotated[1])),
        "llm_int8": outputs.llm_int8(held, layer.w).sqnr_db,
    }
    assert {name: f.sqnr_db for name, f in found.items()} == pytest.approx(expected, abs=0.02)
    assert not any(f.refused for f in found.values())
    assert [name for name, f in found.items() if not f.equal_bits] == ["llm_int8"]


def test_what_can_not_be_done_is_said():
    found = by_method(data("bitsandbytes.nf4", inputs=32))
    assert set(found) == set(outputs.METHODS)
    assert math.isfinite(found["nearest"].sqnr_db)
    assert "Columns can't be coded one at a time" in found["gptq"].refused
    assert math.isnan(found["gptq"].sqnr_db)
    assert list(found)[-1] == "gptq"
    clipped = by_method(data("int4 per_tensor"), outputs.MethodOptions(clip=True))
    assert "no threshold can be searched" in clipped["awq"].refused
    assert by_method(data("int8 per_channel(0)"))["llm_int8"].equal_bits


def test_wrong_layers_and_methods_are_refused():
    layer = data()
    with pytest.raises(qc.QuantError, match="x has 16 columns, but w has 15"):
        outputs.LayerData(layer.w[:, :15], layer.x, layer.held_out, layer.scheme)
    with pytest.raises(qc.QuantError, match="There is no method 'gpt'"):
        next(outputs.method_output(layer, "gpt"))


def test_options_of_others_do_not_matter():
    options = outputs.MethodOptions(alpha=0.3, clip=True, damping=0.1, threshold=3.0)
    assert options.of("smoothquant") == outputs.MethodOptions(alpha=0.3)
    assert options.of("gptq") == outputs.MethodOptions(damping=0.1)
    assert options.of("nearest") == outputs.MethodOptions()


def test_more_tokens_calibrate_as_the_methods_do():
    layer = data()
    points = list(outputs.by_tokens(layer, [4, 64]))
    assert [(p.tokens, p.method) for p in points] == [(n, m) for n in (4, 64) for m in outputs.CALIBRATED]
    few = outputs.gptq(layer.w, layer.x[:4], layer.scheme).quantized.dequantized
    (own,) = [p.sqnr_db for p in points if (p.tokens, p.method) == (4, "gptq")]
    assert own == pytest.approx(db(layer, layer.held_out, few), abs=0.01)
    whole = by_method(layer)
    assert [p.sqnr_db for p in points[3:]] == [whole[m].sqnr_db for m in outputs.CALIBRATED]


@for_each(
    ("values", "expected"),
    [
        ([9, 10, 10, 10], 8),
        ([9, 10, 9, 10], None),
        ([10, 10, 10, 10.4], 4),
        ([math.nan, 9.6, 10, 10], 8),
        ([10], None),
        ([math.inf, math.inf, math.inf], 4),
        ([10, math.inf, math.inf], 8),
    ],
)
def test_from_how_many_tokens_on_an_answer_stays(values, expected):
    points = [outputs.TokensPoint(4 << i, "awq", value) for i, value in enumerate(values)]
    assert outputs.settled([*points, outputs.TokensPoint(4, "gptq", 0.0)], "awq") == expected


def test_activations_have_outlier_channels_and_correlated_neighbors():
    x = outputs.activations(4000, 12, outliers=2, factor=30, correlation=0.6, seed=5).double().numpy()
    std, channels = x.std(0), outputs.outlier_channels(12, 2, 5)
    assert sorted(np.argsort(std)[-2:].tolist()) == channels
    others = np.setdiff1d(np.arange(12), channels)
    np.testing.assert_allclose(std[others], 1, atol=0.05)
    np.testing.assert_allclose(std[channels], 30, rtol=0.05)
    r = np.corrcoef(x.T)
    np.testing.assert_allclose([r[i, i + 1] for i in range(11)], 0.6, atol=0.05)
    np.testing.assert_allclose([r[i, i + 2] for i in range(10)], 0.36, atol=0.05)
    few = outputs.activations(7, 12, outliers=2, factor=30, correlation=0.6, seed=5)
    assert torch.equal(few.double(), torch.from_numpy(x[:7]))
    other = outputs.activations(4000, 12, outliers=2, factor=30, seed=5, sample=outputs.HELD_OUT).numpy()
    assert sorted(np.argsort(other.std(0))[-2:].tolist()) == channels
    assert abs(np.corrcoef(other[:, others[0]], x[:, others[0]])[0, 1]) < 0.05


@for_each(
    ("wrong", "said"),
    [
        ({"tokens": 0}, "1 or more tokens"),
        ({"outliers": 9}, "There can't be 9 outlier channels, since the layer has 8 inputs"),
        ({"factor": 0.0}, "factor must be above 0"),
        ({"factor": math.nan}, "factor"),
        ({"correlation": 1.0}, "correlation must be above -1 and below 1, not 1"),
        ({"seed": -1}, "seed must be 0 or more"),
    ],
)
def test_wrong_activations_are_refused(wrong, said):
    with pytest.raises(qc.QuantError, match=said):
        outputs.activations(**{"tokens": 4, "inputs": 8, **wrong})


def test_an_offset_of_the_keys_changes_no_probability():
    q, k, v = outputs.attention_head(40, 16, outliers=1, factor=20, seed=2)
    plain = outputs.attention_head(40, 16, outliers=0, factor=1, seed=2)
    (channel,) = outputs.outlier_channels(16, 1, 2)
    assert torch.equal((k - plain[1]).abs().amax(0).argmax(), torch.tensor(channel))
    ours, theirs = scaled_dot_product_attention(q, k, v), scaled_dot_product_attention(*plain)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4, strict=True, equal_nan=False)
    found = outputs.kv_granularities(q, k, v, "int4")
    assert found["per channel"][0] > found["per token"][0] + 6
