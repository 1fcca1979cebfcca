"""Our bytes against ggml's own for each type, on distributions that reveal differences in rounding and search."""

import numpy as np
import pytest
from ggml_oracle import TYPE_IDS, WEIGHTED, is_valid, needs_ggml, quantize
from grid import for_each
from parts import in_parts, some

import quantcore as qc

pytestmark = needs_ggml
COLUMNS = 1024
SUPER_BLOCKS = 25_000  # per type, in the slow test


def distributions(rng, rows):
    """Tensors of (rows, COLUMNS) float32 from various distributions."""
    shape = (rows, COLUMNS)

    def per_group(values, size=16):
        return np.repeat(values, size, axis=1)

    normal = rng.standard_normal
    found = {
        "normal": normal(shape),
        "weights": normal(shape) * 0.02,
        "outliers": normal(shape) * np.where(rng.random(shape) < 0.01, 100, 1),
        "constant groups": per_group(normal((rows, COLUMNS // 32)), 32),
        "groups of zeros": normal(shape) * per_group(rng.random((rows, COLUMNS // 16)) < 0.5),
        "grid": np.round(normal(shape) * 4) / 4,
        "positive": 1 + rng.random(shape),
        "negative": -1 - rng.random(shape),
        "laplace": rng.laplace(size=shape),
        "heavy tails": rng.standard_t(1.5, shape),
        "sparse": normal(shape) * (rng.random(shape) < 0.05),
        "signs": rng.choice([-1.0, 1.0], shape),
        "magnitudes": normal(shape) * per_group(10.0 ** rng.integers(-12, 4, (rows, COLUMNS // 16))),
        "denormals": normal(shape) * 1e-40,
        "tiny": normal(shape) * 10.0 ** rng.integers(-20, -10, (rows, 1)),
    }
    return {name: x.astype(np.float32) for name, x in found.items()}


def importances(rng):
    """No imatrix, and various kinds of imatrices."""
    found = {
        "even": rng.random(COLUMNS),
        "skewed": 10 ** rng.normal(0, 2, COLUMNS),
        "zeros": rng.random(COLUMNS) * (rng.random(COLUMNS) < 0.5),
        "all zero": np.zeros(COLUMNS),
        "large": rng.random(COLUMNS) * 1e20,
    }
    return {"none": None} | {name: h.astype(np.float32) for name, h in found.items()}


def applied(x, scheme, importance):
    """The result and no message, or None and the message of the refusal."""
    try:
        return qc.apply(x, scheme, importance=importance), ""
    except qc.QuantError as error:
        return None, str(error)


def compare(name, x, importance, what):
    """Assert that bytes are equal, or that we refuse where ggml writes scales that it would not load."""
    expected = quantize(name, x, importance)
    result, refused = applied(x, qc.PRESETS[f"gguf.{name}"], importance)
    if refused:
        overflow = "overflow float32" in refused and np.abs(x).max() > 1e18
        invalid = "not a finite number" in refused and not is_valid(name, expected)
        assert overflow or invalid, (name, what)
        return
    ours = np.frombuffer(qc.checkpoints.encode(result), np.uint8).reshape(expected.shape)
    wrong = np.flatnonzero((ours != expected).any(axis=1))
    assert not len(wrong), (name, what, f"{len(wrong)} of {len(x)} rows differ, the first {wrong[0]}")


def run(name, rows, seed):
    rng = np.random.default_rng(seed)
    blocks = 0
    for number, (which, x) in enumerate(distributions(rng, rows).items()):
        # without importance, and with a different kind each time
        kinds = importances(rng)
        chosen = ["none", list(kinds)[1 + number % (len(kinds) - 1)]] if name in WEIGHTED else ["none"]
        for kind in chosen:
            compare(name, x, kinds[kind], (which, kind))
            blocks += x.size // 256
    return blocks


@pytest.mark.slow  # by default, recorded bytes are compared in test_types.py
@for_each("name", some(TYPE_IDS, 8))
def test_bytes(name):
    """Hundreds of super-blocks of each type."""
    assert run(name, 4, seed=0) >= 200


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPE_IDS)
def test_bytes_of_many(name):
    """25,000 super-blocks of each type, without and with an imatrix."""
    rows = -(-SUPER_BLOCKS * 256 // (15 * COLUMNS))
    blocks = run(name, rows, seed=1)
    assert blocks >= SUPER_BLOCKS * (2 if name in WEIGHTED else 1)


@in_parts(3)
@for_each("name", some(TYPE_IDS, 5))
def test_hard_numbers(name, part):
    """Zeros of both signs, constants and noise up to 3e38: ggml's bytes, or refused if ggml would not load them."""
    rng = np.random.default_rng(2)
    for scale in part((0.0, -0.0, 1e9, 1e-45, 1e30, 6e4, 3e38, -3e38)):
        compare(name, np.full((2, 512), scale, np.float32), None, scale)
        noisy = (rng.standard_normal((4, 512)).clip(-1, 1) * scale).astype(np.float32)
        compare(name, noisy, None, ("noise", scale))
        if name in WEIGHTED:
            compare(name, noisy, rng.random(512, np.float32), ("noise, weighted", scale))
    mixed = np.where(rng.random((4, 512)) < 0.5, 0.0, -0.0).astype(np.float32)
    mixed[1, ::7] = 1.0
    compare(name, mixed, None, "zeros of both signs")


@in_parts(10)
@for_each("name", some(WEIGHTED, 3))
@for_each("shape", some([(1, 256), (1, 512), (3, 256)]))
def test_few_groups(name, shape, part):
    """numpy adds pairwise along a single contiguous axis, but these sums must go left to right."""
    for seed in part(range(20)):
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        compare(name, x, None, seed)
        compare(name, x, np.random.default_rng(seed).random(shape[1], np.float32), (seed, "weighted"))


def test_experts():
    """The imatrix has one row per expert, and each expert's matrix is quantized with its own row."""
    rng = np.random.default_rng(3)
    x, importance = rng.standard_normal((3, 4, 512), np.float32), rng.random((3, 512), np.float32)
    for name in WEIGHTED:
        result = qc.apply(x, qc.PRESETS[f"gguf.{name}"], importance=importance)
        expected = b"".join(quantize(name, *pair).tobytes() for pair in zip(x, importance, strict=True))
        assert qc.checkpoints.encode(result) == expected, name
