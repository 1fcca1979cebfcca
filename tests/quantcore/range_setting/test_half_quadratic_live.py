"""The search of half-quadratic quantization gives the scales, zero points and codes of hqq itself."""

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some

import quantcore as qc

NORMAL = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)
DATA = {
    "normal": NORMAL,
    "outliers": NORMAL**5,
    "above zero": np.abs(NORMAL) + 3,
    "whole": np.rint(3 * NORMAL),
    "constant": np.full((3, 7), -2.5, np.float32),
    "zero": np.zeros((3, 7), np.float32),
    "tiny": NORMAL * np.float32(1e-36),
    "one outlier": np.where(np.arange(40) == 7, np.float32(1e6), NORMAL),
}


@pytest.mark.slow  # by default, recorded parameters are compared in test_range_methods.py
@in_parts(2)
@for_each("round_zero", [False, True])
@for_each("data", some(DATA, 4))
def test_half_quadratic_is_hqqs(data, round_zero, part):
    pytest.importorskip("hqq")
    from hqq.core.quantize import Quantizer

    x = torch.from_numpy(np.resize(DATA[data], (48, 40)))
    for bits, size in part(((2, 8), (2, 40), (4, 40), (4, 8), (8, 8), (8, 40))):
        scheme = qc.Scheme.parse(
            f"uint{bits} asymmetric per_group({size}) half_quadratic hqq{'.round_zero' if round_zero else ''}"
        )
        codes, meta = Quantizer.quantize(
            x,
            nbits=bits,
            group_size=size,
            axis=1,
            optimize=True,
            round_zero=round_zero,
            bitpack=False,
            device="cpu",
        )
        result = qc.apply(x, scheme)
        assert torch.equal(result.scale.reshape(-1), meta["scale"].reshape(-1))
        assert torch.equal(result.zero_point.reshape(-1), meta["zero"].reshape(-1))
        assert torch.equal(result.codes.float(), codes.reshape(x.shape).float())


@pytest.mark.slow  # by default, recorded parameters are compared in test_range_methods.py
def test_half_quadratic_of_a_tensor_walked_in_pieces():
    """The mean is over the entire tensor, even though the tensor is processed in pieces."""
    pytest.importorskip("hqq")
    from hqq.core.quantize import Quantizer

    x = torch.randn(2048, 512, generator=torch.Generator().manual_seed(0)) ** 3
    _, meta = Quantizer.quantize(x, nbits=4, group_size=64, axis=1, bitpack=False, device="cpu")
    result = qc.apply(x, qc.Scheme.parse("uint4 asymmetric per_group(64) half_quadratic hqq"))
    assert torch.equal(result.zero_point.reshape(-1), meta["zero"].reshape(-1))
