"""SmoothQuant and rotations leave the output as it is; their numbers are those of torchao and others."""

import re

import numpy as np
import pytest
import torch
from grid import for_each

import quantcore as qc

RNG = np.random.default_rng(1)
UNIT = 2.0**-24


def layer_inputs(tokens, inputs, outputs):
    x = torch.from_numpy(RNG.standard_normal((tokens, inputs), dtype=np.float32))
    x[:, inputs // 3] *= 40
    return x, torch.from_numpy(RNG.standard_normal((outputs, inputs), dtype=np.float32))


@for_each("alpha", [0, 0.3, 0.5, 0.85, 1])
def test_the_scale_is_torchaos(alpha):
    from torchao.prototype.smoothquant.core import SmoothQuantObserver

    x, w = layer_inputs(9, 20, 6)
    x[:, 4], w[:, 7] = 0, 0  # dead channels
    observer = SmoothQuantObserver(w, alpha)
    observer(x[:4])
    observer(x[4:])
    found = qc.outputs.smoothquant(x, w, alpha)
    assert torch.equal(found.scale, observer.calculate_qparams()[0])
    assert torch.equal(found.x, x / found.scale)
    assert torch.equal(found.w, w * found.scale)
    assert [step.name for step in found.steps][2] == "scale"
    assert torch.equal(found.steps[2].value, found.scale)


def test_the_example_of_the_paper():
    x = [[1, -16, 2, 6], [-2, 8, -1, -9]]
    w = [[2, 1, -2], [1, -1, -1], [2, -1, -2], [-1, -1, 1]]
    found = qc.outputs.smoothquant(x, np.transpose(w))
    assert found.scale.tolist() == [1, 4, 1, 3]
    assert found.x.tolist() == [[1, -4, 2, 2], [-2, 2, -1, -3]]
    assert found.w.T.tolist() == [[2, 1, -2], [4, -4, -4], [2, -1, -2], [-3, -3, 3]]


def products_are_equal(x, w, changed, slack):
    """|x'·w'ᵀ − x·wᵀ| in float64 is at most ``slack`` roundings of all terms."""
    x, w = x.double(), w.double()
    difference = (changed.x.double() @ changed.w.double().T - x @ w.T).abs()
    reach = torch.outer(x.norm(dim=1), w.norm(dim=1))
    assert bool((difference <= slack * UNIT * reach).all())
    return float((difference / (UNIT * reach)).max())


@for_each("shape", [(7, 1, 1), (1, 5, 3), (40, 64, 48), (3, 129, 2)])
def test_smoothing_leaves_the_output(shape):
    x, w = layer_inputs(*shape)
    changed = qc.outputs.smoothquant(x, w)
    products_are_equal(x, w, changed, 2.01)
    assert not torch.equal(changed.x, x)


@for_each("seed", [None, 0])
@for_each(
    ("inputs", "size"), [(1, None), (2, None), (64, None), (12, None), (52, None), (96, None), (344, None), (35, 1),
                         (24, 8), (70, 2)],
)  # fmt: skip
def test_rotation_leaves_the_output(inputs, size, seed):
    x, w = layer_inputs(6, inputs, 5)
    changed = qc.outputs.hadamard(w, x, seed, size)
    products_are_equal(x, w, changed, 2.01)
    size = size or inputs
    matrix = torch.block_diag(*[qc.outputs.hadamard_matrix(size).double()] * (inputs // size)) / size**0.5
    rotated = (x.double() * changed.signs) @ matrix.T
    assert bool(((changed.x - rotated).abs() <= 1.01 * UNIT * rotated.abs() + 1e-12).all())
    assert (seed is None) == bool((changed.signs == 1).all()) or inputs < 3
    assert changed.size == size


def test_an_outlier_vanishes():
    x, w = layer_inputs(32, 256, 16)
    changed = qc.outputs.hadamard(w, x)
    before, after = (float(rows.abs().max() / rows.square().mean().sqrt()) for rows in (x, changed.x))
    assert before > 20
    assert after < 6
    before, after = (
        qc.outputs.layer(*pair, None, "int4").sqnr_db for pair in ((x, w), (changed.x, changed.w))
    )
    assert after > before + 6


@pytest.mark.slow  # by default, every matrix is orthogonal
def test_hadamard_matrices_are_those_of_compressed_tensors():
    from compressed_tensors.transform.utils import hadamard

    for size in (1, 2, 4, 8, 64, 256):
        expected = hadamard.deterministic_hadamard_matrix(size, torch.float32)
        assert torch.equal(qc.outputs.hadamard_matrix(size).float(), expected)
    for size in (12, 44, 52, 60, 92, 108, 116, 140, 156, 172, 344):
        # diag(random signs)·Hᵀ: the column of row 0 of H tells the signs
        random = hadamard.random_hadamard_matrix(size, torch.float32).T
        own = qc.outputs.hadamard_matrix(size).float()
        assert torch.equal(random * (own[0] * random[0]), own), size


@pytest.mark.parametrize(
    "sizes", [(20, 28, 36, 76, 148, 188, 236), pytest.param(range(4, 257, 4), marks=pytest.mark.slow)]
)
def test_every_multiple_of_four_up_to_256_but_three(sizes):
    for size in sizes:
        if size in (188, 236, 244):
            with pytest.raises(qc.QuantError, match="or rotate blocks of columns, such as size=4") as error:
                qc.outputs.hadamard_matrix(size)
            near = [int(n) for n in re.findall(r"\d+", str(error.value))[1:3]]
            assert near == [size - 4, size + 4]
            assert all(qc.outputs.hadamard_matrix(n).shape == (n, n) for n in near)
            continue
        matrix = qc.outputs.hadamard_matrix(size).double()
        assert torch.equal(matrix @ matrix.T, size * torch.eye(size, dtype=torch.float64)), size
        assert bool((matrix.abs() == 1).all())


@for_each(
    ("make", "words"),
    [
        (lambda x, w: qc.outputs.smoothquant(x, w, 1.5), "alpha must be from 0 to 1"),
        (lambda x, w: qc.outputs.smoothquant(x, w[:, :2]), "x has 6 columns"),
        (lambda x, w: qc.outputs.smoothquant(x * 1e34, w * 1e20, 0), "exceeds float32"),
        (lambda x, w: qc.outputs.hadamard(w, x), "no Hadamard matrix of 6 columns"),
        (lambda x, w: qc.outputs.hadamard(w[:, :3], x[:, :3]), "an odd number"),
        (lambda x, w: qc.outputs.hadamard(w, x, size=4), "size=4 does not divide"),
        (lambda x, w: qc.outputs.hadamard(w, x * 0 + 3e38, size=2), "rotated number exceeds"),
    ],
)
def test_wrong_input_is_one_sentence(make, words):
    with pytest.raises(qc.QuantError, match=words):
        make(*layer_inputs(4, 6, 3))
