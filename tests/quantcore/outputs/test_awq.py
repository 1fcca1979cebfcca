"""AWQ's scales are torchao's, its clipping GPTQModel's, and its losses those of NumPy in float64."""

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some
from places import ROOT

import quantcore as qc


def layer_inputs(seed, tokens=48, inputs=64, outputs=24):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, inputs), dtype=np.float32)
    x *= np.exp(rng.standard_normal(inputs) * rng.uniform(0.2, 1.6)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(rng.standard_normal((outputs, inputs), dtype=np.float32))


@pytest.mark.slow  # by default, losses are recomputed with NumPy
@for_each(
    ("scheme", "dtype", "group"),
    [
        ("torchao.int4_g32", torch.int4, 32),
        ("int4 per_channel(0) torchao", torch.int4, None),
        ("int8 per_channel(0) torchao", torch.int8, None),
    ],
)
@for_each("seed", some([3, 0, 1, 2], 4))
def test_the_winner_is_torchaos(seed, scheme, dtype, group):
    from torchao.prototype.awq.core import AWQObserver
    from torchao.quantization import IntxWeightOnlyConfig, PerAxis, PerGroup

    config = IntxWeightOnlyConfig(dtype, PerGroup(group) if group else PerAxis(0))
    x, w = layer_inputs(seed)
    if seed == 3:
        x[:, 9] = 0  # a dead channel
    observer = AWQObserver(w, None, config)
    for batch in x.split(20):
        observer(batch, None)
    found = qc.outputs.awq(w, x, scheme)
    assert torch.equal(found.scale, observer.calculate_qparams())
    assert torch.equal(found.quantized.codes, qc.apply(w * found.scale, scheme).codes)
    assert torch.equal(found.x, x / found.scale)
    assert torch.equal(found.w, w * found.scale)


def test_losses_are_of_the_output():
    x, w = layer_inputs(5)
    found = qc.outputs.awq(w, x, "int3 per_group(16)", ratios=8)
    assert [step.ratio for step in found.steps] == [i / 8 for i in range(8)]
    assert [(step.done, step.count) for step in found.steps] == [(i + 1, 8) for i in range(8)]
    y, losses = x.double().numpy() @ w.double().numpy().T, []
    for step in found.steps:
        magnitude = np.abs(x.double().numpy()).mean(0) ** step.ratio
        scale = magnitude / np.sqrt(magnitude.max() * magnitude.min())
        np.testing.assert_allclose(step.scale, scale, rtol=1e-5)
        w_hat = qc.apply(w * step.scale, "int3 per_group(16)").dequantized.double().numpy()
        losses.append((((x / step.scale).double().numpy() @ w_hat.T - y) ** 2).mean())
        assert step.loss == pytest.approx(losses[-1], rel=1e-3)
    best = int(np.argmin(losses))
    assert (found.ratio, found.loss) == (best / 8, found.steps[best].loss)
    assert best > 0
    alone = qc.outputs.layer(x, w, "int3 per_group(16)")
    assert qc.outputs.layer(found.x, found.w, found.quantized).sqnr_db > alone.sqnr_db


def test_the_first_of_equal_losses_wins():
    x, w = torch.ones(3, 4), torch.ones(2, 4)  # all channels alike: every scale is 1
    found = qc.outputs.awq(w, x, "int4 per_channel(0)")
    assert len({step.loss for step in found.steps}) == 1
    assert found.ratio == 0


def test_clipping_is_gptqmodels():
    data = np.load(ROOT / "tests" / "data" / "outputs" / "gptqmodel.npz", allow_pickle=False)
    w, x = data["clip.w"], data["clip.x"]
    found = qc.outputs.awq(w, x, "int4 per_group(16)", ratios=1, clip=True)
    assert bool((found.scale == 1).all())
    np.testing.assert_allclose(found.clip, data["clip.most"], rtol=1e-6)
    assert (
        0.1 < float((found.clip < torch.from_numpy(np.abs(w)).view(64, 4, 16).amax(-1)).float().mean()) < 0.9
    )
    every = found.clip.repeat_interleave(16, 1).numpy()
    assert torch.equal(found.quantized.codes, qc.apply(np.clip(w, -every, every), "int4 per_group(16)").codes)


@for_each("scheme", ["int3 per_group(24)", "uint3 asymmetric per_channel(0)"])
def test_losses_of_thresholds_are_of_contributions_to_the_output(scheme):
    x, w = layer_inputs(6)
    found = qc.outputs.awq(w, x, scheme, ratios=2, clip=True)
    trials = [step for step in found.steps if step.losses is not None]
    assert [step.fraction for step in trials] == [1 - i / 20 for i in range(10)]
    assert trials[-1].done == trials[-1].count == 12
    width = 24 if "24" in scheme else 64
    w, x = found.w.double().numpy(), found.x.double().numpy()
    for step in trials:
        for group, start in enumerate(range(0, 64, width)):
            part = np.s_[:, start : start + width]
            most = np.abs(w[part]).max(1, keepdims=True) * np.float32(step.fraction)
            clamped = w.astype(np.float32).copy()
            clamped[part] = np.clip(clamped[part], -most, most)
            error = qc.apply(clamped, scheme).dequantized.double().numpy()[part] - w[part]
            loss = ((x[part] @ error.T) ** 2).mean(0)
            np.testing.assert_allclose(step.losses[:, group], loss, rtol=2e-3, atol=1e-9)


def test_errors_whose_squares_exceed_float32_are_compared():
    x, w = layer_inputs(9)
    scale = 2.0**80
    found, large = (qc.outputs.awq(w * factor, x, "int4 per_channel(0)") for factor in (1, scale))
    assert large.ratio == found.ratio > 0
    assert large.loss == pytest.approx(found.loss * scale**2, rel=1e-5)


def test_it_can_be_stopped():
    work = qc.outputs.awq_steps(*layer_inputs(7)[::-1], "int4")
    assert next(work).done == 1
    work.close()
    assert next(work, None) is None


@for_each(
    ("options", "words"),
    [
        ({"ratios": 0}, "ratios must be 1 or more"),
        ({"scheme": "int4 per_tensor", "clip": True}, "per_tensor has groups that are not parts of rows"),
        ({"scheme": "nf4 per_flat_group(64)", "clip": True}, "per_flat_group"),
        ({"x": torch.ones(3, 2)}, "x has 2 columns"),
        ({"scheme": "int5x"}, "int5x"),
    ],
)
def test_wrong_input_is_one_sentence(options, words):
    x, w = layer_inputs(8)
    with pytest.raises(qc.QuantError, match=words):
        qc.outputs.awq(**{"w": w, "x": x, "scheme": "int4 per_group(32)"} | options)
