"""Training with and without quantization: gradients against torch's own, and accuracy over seeds."""

import hashlib
import itertools
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some
from places import ROOT
from torch.optim.sgd import sgd

import quantcore as qc
from quantcore import training
from quantcore.training import curve
from quantcore.training import sgd as descent
from quantcore.training.sgd import LearnedScales, StraightThrough, Trainable

SEEDS = (0, 1, 2, 3, 4)
SHORT = training.Training(epochs=3, learning_rate=0.02)
ONCE = training.Training(epochs=1, learning_rate=0.02)
GRANULARITIES = [
    qc.PerTensor(),
    qc.PerChannel(0),
    qc.PerChannel(-1),
    qc.PerGroup(5),
    qc.PerGroup(4, axis=0),
    qc.PerBlock((4, -1)),
]

SCHEME = qc.Scheme.parse("int2 per_group(24)")
HQQ = qc.Scheme(
    qc.UINT4,
    False,
    qc.PerGroup(32),
    convention=next(c for c in qc.INTEGER_CONVENTIONS.values() if c.zero_point.zero_point_form == "float"),
)


def sample(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def eighths(*shape, seed=0):
    """Multiples of 1/8 from -12 to 12; with powers of two as scales, no sum in these tests is rounded."""
    return torch.randint(-96, 97, shape, generator=torch.Generator().manual_seed(seed)) / 8


@pytest.fixture(scope="module")
def network():
    *_, last = training.train(training.Training(epochs=3))
    return last.network


@pytest.fixture(scope="module", params=[1, pytest.param(len(SEEDS), marks=pytest.mark.slow)])
def points(request):
    """The curve of one seed with few epochs, or of all."""
    few = {"training": training.Training(epochs=2), "tuning": ONCE}
    epochs = few if request.param == 1 else {"tuning": SHORT}
    rows = list(training.accuracy_curve((2, 3), SEEDS[: request.param], **epochs))
    each = [(32, "float"), *((bits, method) for bits in (2, 3) for method in ("ptq", "qat", "lsq"))]
    assert [(r.seed, r.bits, r.method) for r in rows] == [
        (seed, *of) for seed in range(request.param) for of in each
    ]
    return rows


# Data


def test_digits_are_those_of_scikit_learn():
    """Digests of ``load_digits()`` from scikit-learn 1.9.1, as uint8; the row is from its documentation."""
    data = files("quantcore.training") / "data"
    with np.load(data / "digits.npz", allow_pickle=False) as stored:
        digests = {name: hashlib.sha256(stored[name].tobytes()).hexdigest() for name in stored}
        assert stored["images"][0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert digests == {
        "images": "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3",
        "labels": "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0",
    }
    assert len((data / "digits.npz").read_bytes()) < 100_000
    text = (data / "digits.txt").read_text(encoding="utf-8")
    for word in ("scikit-learn 1.9.1", "UCI", "CC BY 4.0", "BSD-3-Clause"):
        assert word in text


def test_digits_are_split_evenly():
    digits = training.load_digits()
    assert digits.train_images.shape == (1198, 64)
    assert digits.test_images.shape == (599, 64)
    both = torch.cat([digits.train_images, digits.test_images])
    assert sorted(both.unique().tolist()) == [i / 16 for i in range(17)]
    assert both.sum() * 16 == 561718  # nothing missing or duplicated
    # counts of every third of scikit-learn's labels
    held_out = [63, 63, 63, 54, 58, 61, 54, 60, 63, 60]
    kept = [115, 119, 114, 129, 123, 121, 127, 119, 111, 120]
    assert torch.bincount(digits.test_labels).tolist() == held_out
    assert torch.bincount(digits.train_labels).tolist() == kept


# Gradients


@for_each("convention", some(qc.INTEGER_CONVENTIONS.values(), 9), ids=lambda c: c.name)
@in_parts(5)
def test_fake_quantized_is_dequantized(convention, part):
    x, found = sample(12, 10), 0
    formats, settings = (qc.INT4, qc.INT8, qc.UINT4, qc.UINT8), (qc.MinMax(), qc.Percentile(80))
    for choices in part(itertools.product(formats, (True, False), GRANULARITIES, settings)):
        scheme = qc.Scheme(*choices, convention)
        if qc.unsupported_reason(scheme, x.shape) is None:
            result = qc.apply(x, scheme)
            assert torch.equal(training.fake_quantize(x, scheme), result.dequantized)
            found += 1
            if result.params.inverse is None:  # quantize() takes only scale and zero_point
                assert torch.equal(training.fake_quantize(x, scheme, result.params), result.dequantized)
    assert found >= 2


@for_each(("scale", "zero_point"), [(1.0, 0), (0.5, 1), (1.0, -2), (0.25, 3)])
def test_straight_through_gradient_is_torchs(scale, zero_point):
    scheme = qc.Scheme(qc.INT4, range_setting=qc.Given(scale, zero_point))
    x, y = (eighths(40, 9).requires_grad_() for _ in range(2))
    upstream = eighths(40, 9, seed=1)
    ours = training.fake_quantize(x, scheme)
    theirs = torch.fake_quantize_per_tensor_affine(y, scale, zero_point, -8, 7)
    ours.backward(upstream)
    theirs.backward(upstream)
    assert torch.equal(ours, theirs)
    assert torch.equal(x.grad, y.grad)
    inside = x.grad == upstream
    assert (x.grad[~inside] == 0).all()
    assert 0 < inside.sum() < x.numel()


@for_each("axis", [0, 1])
def test_straight_through_gradient_is_torchs_per_channel(axis):
    scales, zeros = torch.tensor([0.5, 1.0, 2.0, 0.25]), torch.tensor([0, 1, -3, 2], dtype=torch.int32)
    shape = (4, 50) if axis == 0 else (50, 4)
    grid = (4, 1) if axis == 0 else (1, 4)
    setting = qc.Given(scales.reshape(grid), zeros.reshape(grid))
    x, y = (eighths(*shape).requires_grad_() for _ in range(2))
    upstream = eighths(*shape, seed=1)
    training.fake_quantize(x, qc.Scheme(qc.INT4, True, qc.PerChannel(axis), setting)).backward(upstream)
    torch.fake_quantize_per_channel_affine(y, scales, zeros, axis, -8, 7).backward(upstream)
    assert torch.equal(x.grad, y.grad)
    assert not torch.equal(x.grad, upstream)


# torch's learnable kernels add z before rounding, which makes no difference if z is even, and turn -2 into -1
@for_each(
    ("fmt", "scale", "zero_point"),
    [(qc.INT2, 1.0, 0), (qc.INT4, 0.5, 2), (qc.INT4, 1.0, 4), (qc.UINT2, 2.0, 2), (qc.UINT4, 0.25, 0)],
    ids=str,
)
def test_learned_scale_gradient_is_torchs(fmt, scale, zero_point):
    x, y = (eighths(40, 9).requires_grad_() for _ in range(2))
    s, t = (torch.tensor([v], requires_grad=True) for v in (scale, scale))
    upstream = eighths(40, 9, seed=1)
    params = qc.QParams(s.reshape(1, 1), torch.full((1, 1), zero_point, dtype=torch.int32))
    training.fake_quantize(x, qc.Scheme(fmt), params).backward(upstream)
    zero = torch.tensor([float(zero_point)])
    theirs = torch._fake_quantize_learnable_per_tensor_affine(y, t, zero, fmt.qmin, fmt.qmax, 1.0)
    theirs.backward(upstream)
    assert torch.equal(x.grad, y.grad)
    assert s.grad != 0
    assert torch.equal(s.grad, t.grad)


@for_each("axis", [0, 1])
def test_learned_scale_gradient_is_torchs_per_channel(axis):
    scales, zeros = torch.tensor([0.5, 1.0, 2.0, 0.25]), torch.tensor([0.0, 2.0, 4.0, 6.0])
    shape = (4, 50) if axis == 0 else (50, 4)
    grid = (4, 1) if axis == 0 else (1, 4)
    s, t = (scales.clone().requires_grad_() for _ in range(2))
    x, y = (eighths(*shape).requires_grad_() for _ in range(2))
    upstream = eighths(*shape, seed=1)
    params = qc.QParams(s.reshape(grid), zeros.int().reshape(grid))
    training.fake_quantize(x, qc.Scheme(qc.INT4, granularity=qc.PerChannel(axis)), params).backward(upstream)
    theirs = torch._fake_quantize_learnable_per_channel_affine(y, t, zeros, axis, -8, 7, 1.0)
    theirs.backward(upstream)
    assert torch.equal(x.grad, y.grad)
    assert torch.equal(s.grad, t.grad)


def test_learned_scale_gradient_of_short_blocks():
    """Every block gets the gradient that a tensor of its own would get."""
    x, upstream = eighths(3, 7), eighths(3, 7, seed=1)
    s = torch.tensor([[0.5, 1.0], [2.0, 0.25], [4.0, 1.0]], requires_grad=True)
    zeros = torch.zeros(3, 2, dtype=torch.int32)
    scheme = qc.Scheme(qc.INT2, granularity=qc.PerGroup(4))
    training.fake_quantize(x, scheme, qc.QParams(s, zeros)).backward(upstream)
    for row, group in itertools.product(range(3), range(2)):
        part = np.s_[row, 4 * group : 4 * group + 4]
        t = s[row, group].detach().clone().reshape(1).requires_grad_()
        theirs = torch._fake_quantize_learnable_per_tensor_affine(x[part], t, torch.zeros(1), -2, 1, 1.0)
        theirs.backward(upstream[part])
        assert s.grad[row, group] == t.grad


def test_learned_scales_begin_where_the_paper_says(network):
    """At 2·mean|v|/√Qp, with factor 1/√(N·Qp); Qp = 2^(b-1) - 1, or 2^b - 1 unsigned (sections 2.1, 2.2)."""
    scheme, activations = qc.Scheme.parse("int3 per_channel(0)"), qc.Scheme.parse("uint4 asymmetric")
    learner = LearnedScales(network, scheme, activations)
    w = network.weights[0].double()
    begin = (2 * w.abs().mean(1, keepdim=True) / 3**0.5).float()
    np.testing.assert_allclose(learner.weight_scales[0].value.detach(), begin, rtol=4 * 2**-24, atol=0, strict=True, equal_nan=False)
    factor = torch.full((64, 1), (64 * 3) ** -0.5)
    np.testing.assert_allclose(learner.weight_scales[0].factor, factor, rtol=2 * 2**-24, atol=0, strict=True, equal_nan=False)
    pixels = 2 * training.load_digits().train_images.double().mean() / 15**0.5
    assert learner.input_scales[0].value.item() == pytest.approx(pixels.item(), rel=4 * 2**-24)
    assert learner.input_scales[0].factor.item() == pytest.approx((64 * 15) ** -0.5, rel=2 * 2**-24)


# Accuracy


def accuracies(rows, method, bits):
    return np.array([r.accuracy for r in rows if (r.method, r.bits) == (method, bits)])


def test_float_accuracy(points):
    """97 %. On the same split and five seeds, scikit-learn's MLPClassifier((64,)) gets 96.2 % to 96.8 % with its
    defaults and 96.3 % to 97.3 % with stochastic gradient descent. The counts are the same on every machine."""
    found = accuracies(points, "float", 32)
    few = len(found) < len(SEEDS)  # with two epochs
    assert (found * 599).round().astype(int).tolist() == ([559] if few else [583, 579, 579, 582, 586])
    assert few or found.mean() == pytest.approx(0.971, abs=0.0005)
    assert few or found.min() > 0.96


@pytest.mark.parametrize(
    ("method", "bits", "mean", "least"),
    [("qat", 2, 0.3, 0.2), ("lsq", 2, 0.5, 0.4), ("qat", 3, 0.02, 0), ("lsq", 3, 0.02, 0)],
)
def test_training_beats_quantizing_afterwards(points, method, bits, mean, least):
    """By ``mean`` on average over five seeds and by ``least`` for each, after three epochs; one after one."""
    gain = accuracies(points, method, bits) - accuracies(points, "ptq", bits)
    assert gain.min() > least
    assert len(gain) < len(SEEDS) or gain.mean() > mean


def test_eight_bits_lose_nothing(network):
    """With weights and activations at 8 bits, the counts differ by at most 2 of 599 images."""
    digits = training.load_digits()
    after = training.ptq(network, qc.Scheme.parse("int8 per_channel(0)"), qc.Scheme.parse("uint8 asymmetric"))
    before, after = (
        training.accuracy(n.logits(digits.test_images), digits.test_labels) for n in (network, after)
    )
    assert abs(before - after) * 599 < 2.5


@pytest.mark.slow
def test_a_stopped_curve_goes_on(monkeypatch):
    short = {"training": SHORT, "tuning": ONCE}
    whole = list(training.accuracy_curve((2, 3), (0, 1), **short))
    assert len(whole) == 14
    for stop in (4, 7, 13):  # inside a seed, between two, before the last
        assert list(training.accuracy_curve((2, 3), (0, 1), **short, known=whole[:stop])) == whole[stop:]
    monkeypatch.setattr(curve, "train", pytest.fail)  # everything is known, so no network is needed
    assert list(training.accuracy_curve((3, 2), (1, 0), **short, known=set(whole))) == []


def test_summary(points):
    found = {(p.method, p.bits): p for p in training.summary(points)}
    assert len(found) == 7
    point, expected = found["qat", 2], accuracies(points, "qat", 2)
    assert (point.lowest, point.highest, point.seeds) == (expected.min(), expected.max(), len(expected))
    assert point.mean == pytest.approx(expected.mean())


# Networks


@for_each("weights", some(["int3 asymmetric per_group(24)", "int4", "int4 per_channel percentile(99)"], 2))
@for_each("activations", some([None, "uint4 asymmetric", "int8 percentile(99.9)"][::-1], 2))
def test_before_the_first_step_it_is_post_training_quantization(network, weights, activations):
    schemes = qc.Scheme.parse(weights), activations and qc.Scheme.parse(activations)
    after = training.ptq(network, *schemes)
    first = next(training.qat(network, *schemes))
    images = training.load_digits().test_images
    assert first.epoch == 0
    assert torch.equal(first.network.logits(images), after.logits(images))
    x = images
    for i, (w, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        assert torch.equal(after.weights[i].codes, qc.apply(w, schemes[0]).codes)
        if schemes[1]:
            seen = training.load_digits().train_images if i == 0 else None
            if seen is not None:
                assert torch.equal(after.inputs[0].scale, qc.choose_qparams(seen, schemes[1]).scale)
            p = after.inputs[i]
            x = qc.dequantize(
                qc.quantize(x, p.scale, p.zero_point, schemes[1]), p.scale, p.zero_point, schemes[1]
            )
        x = (x.double() @ after.weights[i].dequantized.double().T + b.double()).float()
        x = x.relu() if i == 0 else x
    assert torch.equal(after.logits(images), x)


@pytest.mark.parametrize("learned_scales", some([True, False], 2))
def test_what_is_trained_is_what_the_scheme_gives(network, learned_scales):
    scheme = qc.Scheme.parse("int3 per_group(24)")
    *_, last = training.qat(network, scheme, training=ONCE, learned_scales=learned_scales)
    for before, after in zip(network.weights, last.network.weights, strict=True):
        assert not torch.equal(before, after.x)
        assert after.scheme == scheme or isinstance(after.scheme.range_setting, qc.Given) == learned_scales
        again = qc.apply(after.x, qc.Scheme.parse(str(after.scheme)))
        assert torch.equal(again.codes, after.codes)
        assert torch.equal(again.dequantized, after.dequantized)


@pytest.mark.slow  # by default, what is trained with learned scales is what the scheme gives
def test_learned_scales_move(network):
    schemes = qc.Scheme.parse("int2"), qc.Scheme.parse("uint2 asymmetric")
    first, *_, last = training.qat(network, *schemes, training=ONCE, learned_scales=True)
    for a, b in zip(first.network.weights, last.network.weights, strict=True):
        assert not torch.equal(a.scale, b.scale)
    for a, b in zip(first.network.inputs, last.network.inputs, strict=True):
        assert not torch.equal(a.scale, b.scale)
        assert torch.equal(a.zero_point, b.zero_point)
    assert last.loss < first.loss


def test_progress_is_of_its_network():
    digits = training.load_digits()
    kept = list(training.train(training.Training(epochs=3), seed=7))
    assert [p.epoch for p in kept] == [0, 1, 2, 3]
    for p in kept:  # checked after training: later epochs have not changed it
        assert p.epochs == 3
        assert training.accuracy(p.network.logits(digits.test_images), digits.test_labels) == p.accuracy
        logits = p.network.logits(digits.train_images)
        loss = torch.nn.functional.cross_entropy(logits, digits.train_labels).item()
        assert p.loss == pytest.approx(loss, rel=1e-5)
    assert kept[0].accuracy < 0.3 < 0.8 < kept[3].accuracy


@for_each("kind", [StraightThrough, LearnedScales])
@for_each("activations", [None, "uint2 asymmetric"])
def test_training_sees_what_is_stored(network, kind, activations):
    """Between steps, the logits during training are those of the quantized network that would be stored."""
    images = training.load_digits().train_images
    learner = kind(network, SCHEME, activations and qc.Scheme.parse(activations))
    seen = learner.logits(images, learner.network())
    assert torch.equal(seen, learner.network().logits(images))
    gradients = torch.autograd.grad(seen.logsumexp(-1).sum(), [p.value for p in learner.parameters])
    assert all(g.any() for g in gradients)


def test_a_step_is_that_of_torchs_sgd():
    """The numbers have few bits, so that no operation is rounded; the factor scales the gradient."""
    ours, theirs = Trainable(eighths(5, 5), factor=0.5, lowest=-9.0), eighths(5, 5).requires_grad_()
    momentum = [None]
    for seed in (1, 2, 3):
        gradient = eighths(5, 5, seed=seed)
        descent._step(ours, gradient, rate=0.25, momentum=0.5)
        with torch.no_grad():  # what `SGD.step` calls, without importing torch's compiler
            sgd([theirs], [gradient * 0.5], momentum, lr=0.25, momentum=0.5, weight_decay=0, dampening=0, nesterov=False, maximize=False, foreach=False, fused=False)
            theirs.clamp_(min=-9)
        assert torch.equal(ours.value, theirs)
    assert ours.value.min() == -9


# Running


def test_stopping_stops_the_work(monkeypatch):
    epochs = []
    real = descent._epoch
    monkeypatch.setattr(descent, "_epoch", lambda *args: epochs.append(1) or real(*args))
    run = training.train()
    assert not epochs
    for _ in range(3):
        next(run)
    assert len(epochs) == 2
    run.close()
    assert next(run, None) is None
    curve = training.accuracy_curve((2,), (0, 1), ("qat",), training=SHORT, tuning=SHORT)
    epochs.clear()
    next(curve)
    assert len(epochs) == SHORT.epochs
    curve.close()
    assert next(curve, None) is None
    assert len(epochs) == SHORT.epochs


def test_the_rest_of_the_program_is_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    threads = torch.get_num_threads()
    with torch.no_grad():
        for progress in training.train(training.Training(epochs=2)):
            assert not torch.is_grad_enabled()
            assert not progress.network.weights[0].requires_grad
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.rand(3), expected)


def digest():
    """A digest of the results of a short training of each kind."""
    once, schemes = training.Training(epochs=1), (SCHEME, qc.Scheme.parse("uint4 asymmetric"))
    *_, a = training.train(once, seed=3)
    *_, b = training.qat(a.network, *schemes, once)
    *_, c = training.qat(a.network, *schemes, once, learned_scales=True)
    found = hashlib.sha256()
    for n in (a.network, b.network, c.network):
        for t in (*(getattr(w, "x", w) for w in n.weights), *n.biases):
            found.update(t.numpy().tobytes())
    return " ".join([found.hexdigest(), *(str(x) for p in (a, b, c) for x in (p.loss, p.accuracy))])


OTHERS = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
OTHERWISE = "import torch; torch.set_num_threads(2); from test_training import digest; print(digest())"


@pytest.mark.slow  # trains twice
def test_a_seed_is_the_same_on_other_instructions_and_threads():
    """On x86-64, with other kernels of torch and MKL; elsewhere the variables only change the number of threads."""
    path = os.pathsep.join([str(Path(__file__).parent), str(ROOT), str(ROOT / "tests" / "support")])
    changed = {
        **os.environ,
        **OTHERS,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "passive",
    }
    run = subprocess.run([sys.executable, "-c", OTHERWISE], env=changed, capture_output=True, text=True)
    assert run.stdout.strip() == digest(), run.stderr


def test_seeds_differ():
    a, b = (next(training.train(seed=s)).network for s in (0, 1))
    assert not torch.equal(a.weights[0], b.weights[0])


# Refusals


@for_each(
    ("arguments", "words"),
    [
        ({"epochs": -1}, "epochs=-1 is outside 0..1,000"),
        ({"epochs": 2.5}, "epochs must be an integer"),
        ({"batch": 0}, "batch=0 is outside 1.."),
        ({"learning_rate": 0}, "learning_rate=0 must be greater than 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number"),
        ({"momentum": 1}, "momentum=1 must be at least 0 and less than 1"),
    ],
)
def test_training_refuses(arguments, words):
    with pytest.raises(qc.QuantError, match=words):
        training.Training(**arguments)


@for_each(
    ("call", "words"),
    [
        (lambda n: training.train(seed=-1), "seed=-1 is outside"),
        (lambda n: training.train(seed=True), "seed must be an integer"),
        (lambda n: training.train(hidden=(0,)), "must be the widths of up to 3 hidden layers"),
        (lambda n: training.train(hidden=[64]), "such as .32,."),
        (lambda n: training.qat(n, qc.Scheme(granularity=qc.PerGroup(65))), "Choose at most 64"),
        (
            lambda n: training.ptq(n, qc.Scheme(), qc.Scheme(granularity=qc.PerChannel(1))),
            "choose per_tensor",
        ),
        (lambda n: training.qat(n, qc.Scheme(), qc.Scheme(granularity=qc.PerGroup(4))), "choose per_tensor"),
        (lambda n: training.accuracy_curve(methods=("gptq",)), "'gptq' is not a method; choose among ptq"),
        (lambda n: training.accuracy_curve((1,)), "bits=1 is outside 2..16"),
        (lambda n: training.qat(n, HQQ, learned_scales=True), "Zero points in hqq.* are not integers"),
    ],
)
def test_refused_at_once(network, call, words):
    with pytest.raises(qc.QuantError, match=words):
        call(network)


def test_divergence_is_told():
    wild = training.Training(learning_rate=10)
    with pytest.raises(qc.QuantError, match=r"diverged in epoch \d+: .* learning rate below 10"):
        list(training.train(wild, hidden=(64, 64, 64)))
