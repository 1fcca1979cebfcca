"""A layer's output error and its parts, against NumPy in float64 and torch's observers."""

import numpy as np
import pytest
import torch
from grid import for_each
from torch.ao.quantization import MinMaxObserver, MovingAverageMinMaxObserver

import quantcore as qc
from quantcore.outputs import OF_ACTIVATIONS, OF_BOTH, OF_WEIGHTS

RNG = np.random.default_rng(0)


def layer_inputs(tokens=13, inputs=24, outputs=7, factor=20.0):
    x = RNG.standard_normal((tokens, inputs), dtype=np.float32)
    x[:, inputs // 3] *= factor
    return x, RNG.standard_normal((outputs, inputs), dtype=np.float32)


def exact(result, original):
    """The dequantized matrix in float64, from codes and scales alone."""
    if result is None:
        return original.astype(np.float64)
    scale, zero_point = result.scale.double().numpy(), result.zero_point.double().numpy()
    size = [-(-n // g) for n, g in zip(original.shape, scale.shape, strict=True)]
    for axis, repeat in enumerate(size):
        scale, zero_point = (np.repeat(p, repeat, axis)[:, : original.shape[1]] for p in (scale, zero_point))
        scale, zero_point = (p[: original.shape[0]] for p in (scale, zero_point))
    return ((result.codes.double().numpy() - zero_point) * scale).astype(np.float32).astype(np.float64)


SCHEMES = [
    ("int4 per_channel(0)", None),
    ("int4 asymmetric per_group(8)", None),
    (None, "int8 per_tensor"),
    ("int4 per_channel(0)", "int8 per_channel(0)"),
    ("int3 per_group(8)", "uint4 asymmetric per_group(8)"),
]


@for_each(("of_w", "of_x"), SCHEMES)
@for_each("shape", [(13, 24, 7), (1, 1, 1), (3, 129, 2)])
def test_parts_and_their_sum(of_w, of_x, shape):
    x, w = layer_inputs(*shape)
    of_w, of_x = (text and text.replace("(8)", f"({min(8, shape[1])})") for text in (of_w, of_x))
    bias = RNG.standard_normal(shape[2], dtype=np.float32)
    found = qc.outputs.layer(x, w, of_w, of_x, bias)
    x_hat, w_hat = exact(found.activation, x), exact(found.weight, w)
    wide = x.astype(np.float64), w.astype(np.float64)
    dx, dw = x_hat - wide[0], w_hat - wide[1]
    truth = {OF_WEIGHTS: wide[0] @ dw.T, OF_ACTIVATIONS: dx @ wide[1].T, OF_BOTH: dx @ dw.T}
    there = {OF_WEIGHTS: of_w, OF_ACTIVATIONS: of_x, OF_BOTH: of_w and of_x}
    assert set(found.parts) == {name for name, scheme in there.items() if scheme}
    bound = found.bound.numpy()
    for name, part in found.parts.items():
        assert (np.abs(part.numpy() - truth[name]) <= bound).all(), name
    assert (np.abs(found.y.numpy() - (wide[0] @ wide[1].T + bias)) <= bound).all()
    assert (np.abs(found.y_hat.numpy() - (x_hat @ w_hat.T + bias)) <= bound).all()
    total = sum(part.double().numpy() for part in found.parts.values())
    assert (np.abs(found.error.numpy() - total) <= bound).all()
    # the bound is of rounding alone: it is small beside any part
    size = np.linalg.norm(wide[0], axis=1)[:, None] * np.linalg.norm(wide[1], axis=1)
    assert (bound <= 8 * (shape[1] + 4) * 2.0**-24 * (size + np.abs(bias))).all()


def test_energies_and_cross_terms_add_up():
    x, w = layer_inputs()
    found = qc.outputs.layer(x, w, "int3 per_channel(0)", "int4 per_channel(0)")
    parts = {name: part.double().numpy() for name, part in found.parts.items()}
    assert {name: pytest.approx((part**2).sum(), rel=1e-12) for name, part in parts.items()} == found.energies
    whole = (sum(parts.values()) ** 2).sum()
    assert sum(found.energies.values()) + sum(found.cross_terms.values()) == pytest.approx(whole, rel=1e-12)
    assert sum(found.energies.values()) != pytest.approx(whole, rel=1e-3)  # the energies alone do not


def test_sqnr_of_output_channels_and_tokens():
    x, w = layer_inputs()
    w[2] = 0  # an output that is exact
    found = qc.outputs.layer(x, w, "int4 per_channel(0)")
    y, y_hat = found.y.double().numpy(), found.y_hat.double().numpy()
    with np.errstate(invalid="ignore"):
        ratios = [10 * np.log10((y**2).sum(axis) / ((y_hat - y) ** 2).sum(axis)) for axis in (0, 1)]
    assert found.channel_sqnr_db.shape == (7,)
    assert found.token_sqnr_db.shape == (13,)
    np.testing.assert_allclose(found.channel_sqnr_db, ratios[0], rtol=1e-12)
    np.testing.assert_allclose(found.token_sqnr_db, ratios[1], rtol=1e-12)
    assert found.sqnr_db == pytest.approx(10 * np.log10((y**2).sum() / ((y_hat - y) ** 2).sum()))
    assert str(found).startswith(f"output SQNR {found.sqnr_db:.1f} dB\n")


def test_a_result_stands_for_its_scheme():
    x, w = layer_inputs()
    result = qc.apply(w, "int4 per_channel(0)")
    assert torch.equal(qc.outputs.layer(x, w, result).y_hat, qc.outputs.layer(x, w, result.scheme).y_hat)


@for_each(
    ("make", "words"),
    [
        (lambda x, w: qc.outputs.layer(x, w[:, :3], "int4"), "x has 24 columns, but w has 3"),
        (lambda x, w: qc.outputs.layer(x[0], w, "int4"), "x has shape"),
        (lambda x, w: qc.outputs.layer(x, w * np.float32(np.nan), "int4"), "w contains 168 NaN"),
        (lambda x, w: qc.outputs.layer(x, "w", "int4"), "w is the text"),
        (lambda x, w: qc.outputs.layer(x, w, "int4", bias=[1.0]), "bias has shape"),
        (lambda x, w: qc.outputs.layer(x * 1e19, w * 1e19, "int4"), "exceeds float32"),
        (lambda x, w: qc.outputs.layer(x, w, qc.apply(w[:2], "int4")), "The quantized w has shape"),
        (lambda x, w: qc.outputs.calibrate([], "int8"), "no batch"),
        (lambda x, w: qc.outputs.calibrate([x, x[:, :2]], "int8"), "different numbers of columns"),
        (lambda x, w: qc.outputs.calibrate([x], "int8 per_channel(0)"), "a scale per token"),
        (lambda x, w: qc.outputs.calibrate([x], "int8 per_group(8)"), "a scale per token"),
        (lambda x, w: qc.outputs.calibrate([x], "gguf.Q4_K"), "no range"),
        (lambda x, w: qc.outputs.calibrate([x], "int8", averaging=0), "averaging"),
        (lambda x, w: qc.outputs.from_moment(w, "int4", np.ones(3)), "has 24 columns"),
        (lambda x, w: qc.outputs.from_moment(w, "int4", -np.ones(24)), "has -1 where"),
        (lambda x, w: qc.outputs.from_moment(w, "int4", np.triu(np.ones((24, 24)))), "not symmetric"),
        (lambda x, w: qc.outputs.from_moment(w, "int4", np.eye(24) - 1 + np.eye(24)), "a negative squared"),
    ],
)
def test_wrong_input_is_one_sentence(make, words):
    with pytest.raises(qc.QuantError, match=words):
        make(*layer_inputs())


BATCHES = [RNG.standard_normal((9, 6), dtype=np.float32) * scale for scale in (1, 3, 0.5)]


@for_each("averaging", [None, 0.01, 0.5])
@for_each("symmetric", [True, False])
def test_ranges_are_those_of_torchs_observers(averaging, symmetric):
    kind = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
    options = {"dtype": torch.quint8, "qscheme": kind}
    observer = (
        MinMaxObserver(**options)
        if averaging is None
        else MovingAverageMinMaxObserver(averaging_constant=averaging, **options)
    )
    text = f"uint8 {'symmetric' if symmetric else 'asymmetric'}"
    for upto in range(1, len(BATCHES) + 1):
        observer(torch.from_numpy(BATCHES[upto - 1]))
        found = qc.outputs.calibrate(BATCHES[:upto], text, averaging)
        assert found.low[-1].item() == observer.min_val.item()
        assert found.high[-1].item() == observer.max_val.item()
        assert len(found.low) == upto
    scale, zero_point = observer.calculate_qparams()
    assert found.scale.item() == pytest.approx(scale.item(), rel=1e-2 if symmetric else 1e-6)
    assert found.zero_point.item() == zero_point.item()


@for_each("setting", ["min_max", "percentile(90)", "entropy(512)", "min_mse"])
def test_a_static_scheme_is_that_of_all_batches(setting):
    text = f"int8 symmetric per_tensor {setting}"
    found = qc.outputs.calibrate(BATCHES, text)
    assert found.scale.item() == qc.apply(np.concatenate(BATCHES), text).scale.item()
    other = qc.apply(BATCHES[2], found.scheme)  # narrower than the others: dynamic scales would be smaller
    assert other.scale.item() == found.scale.item()
    assert qc.Scheme.parse(str(found.scheme)) == found.scheme


def test_static_scales_of_channels():
    found = qc.outputs.calibrate(BATCHES, "int8 per_channel(1)")
    np.testing.assert_array_equal(found.scale[0], np.abs(np.concatenate(BATCHES)).max(0) / np.float32(127))
    assert qc.apply(BATCHES[0], found.scheme).scale.shape == (1, 6)


def test_the_second_moment_gives_the_error_of_its_tokens():
    x, w = layer_inputs()
    moment = qc.outputs.second_moment(x)
    np.testing.assert_allclose(moment, x.T.astype(np.float64) @ x.astype(np.float64), rtol=1e-12)
    found = qc.outputs.from_moment(w, "int3 per_channel(0)", moment)
    error = exact(found.weight, w) - w
    y = x.astype(np.float64) @ w.T.astype(np.float64)
    e = x.astype(np.float64) @ error.T
    np.testing.assert_allclose(found.energy, (e**2).sum(0), rtol=1e-9)
    np.testing.assert_allclose(found.power, (y**2).sum(0), rtol=1e-9)
    assert found.sqnr_db == pytest.approx(10 * np.log10((y**2).sum() / (e**2).sum()))
    diagonal = qc.outputs.from_moment(w, "int3 per_channel(0)", moment.diagonal())
    np.testing.assert_allclose(diagonal.energy, (error**2 * (x.astype(np.float64) ** 2).sum(0)).sum(1))
    np.testing.assert_allclose(
        diagonal.channel_sqnr_db, 10 * np.log10(diagonal.power.numpy() / diagonal.energy.numpy())
    )


def test_activations_have_the_mean_squares_that_were_given():
    wanted = np.array([2.0, 0.0, 1e-3, 400.0])
    x = qc.outputs.of_mean_squares(wanted, 7, seed=4).numpy().astype(np.float64)
    np.testing.assert_allclose((x**2).mean(0), wanted, rtol=1e-6)
    assert len(np.unique(x[:, 0])) == 7
    for wrong, words in (
        ([[1.0]], "one mean square per input"),
        ([1.0, -1.0], "negative"),
        ([np.nan], "NaN"),
    ):
        with pytest.raises(qc.QuantError, match=words):
            qc.outputs.of_mean_squares(wrong, 3)
