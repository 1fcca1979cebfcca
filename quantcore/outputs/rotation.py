"""Hadamard rotation: x·Q and w·Q have the same product, and an outlier of x is spread over all columns."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.outputs.hadamard_matrices import base, factors, hadamard_matrix
from quantcore.outputs.matrices import MethodStep, layer_matrices

_ROWS = 128  # rotated at a time: their float64 numbers stay in the cache
_DOUBLINGS = 6  # of a Kronecker factor: matrices of 64 rows are fast to multiply by


@dataclass(frozen=True, eq=False)
class Rotated:
    """A layer with the same output, in rotated inputs.

    ``w``: w·Q, ``x``: x·Q; ``signs``: ±1 by which the columns are multiplied first, int8 [in]; ``size``: the
    columns that are rotated together.
    """

    w: Tensor
    x: Tensor
    signs: Tensor
    size: int
    steps: tuple[MethodStep, ...]


def hadamard(w: Any, x: Any, seed: int | None = None, size: int | None = None) -> Rotated:
    """Return the layer with w·Q and x·Q, where Q = diag(signs)·Hᵀ/√n with a Hadamard matrix H.

    Q is orthogonal, so (x·Q)·(w·Q)ᵀ = x·wᵀ. Both are computed in float64 and rounded once, so an output
    changes by at most 2.01·2^-24·‖x‖·‖w‖, besides the rounding of its product. Ashkboos et al. 2024,
    "QuaRot", arXiv 2404.00456, section 3.

    Args:
        w: weights [out, in].
        x: activations [tokens, in].
        seed: of random signs, NumPy's PCG64; None takes no signs, as a deterministic rotation does.
        size: the columns that are rotated together, a divisor of all; None rotates all together.

    >>> found = hadamard([[1.0, 2.0, 3.0, 4.0]], [[0.0, 8.0, 0.0, 0.0]])
    >>> found.x.tolist(), (found.x @ found.w.T).tolist()
    ([[4.0, -4.0, 4.0, -4.0]], [[16.0]])

    Raises:
        QuantError: x and w do not fit, size does not divide the columns, or there is no Hadamard matrix of
            this size.
    """
    x, w = layer_matrices(x, w)
    columns = w.shape[1]
    size = columns if size is None else notation.integer(size, "size")
    if size < 1 or columns % size:
        raise QuantError(f"size={size} does not divide the {columns:,} columns; choose a divisor of them.")
    signs = _signs(columns, seed)
    rotated_w, rotated_x = (_rotate(rows, signs, size) for rows in (w, x))
    steps = (
        MethodStep("signs", "columns multiplied by ±1", signs),
        MethodStep("rotated x", f"x·diag(signs)·Hᵀ/√{size}", rotated_x),
        MethodStep("rotated w", f"w·diag(signs)·Hᵀ/√{size}", rotated_w),
    )
    return Rotated(rotated_w, rotated_x, signs, size, steps)


def _signs(columns: int, seed: int | None) -> Tensor:
    if seed is None:
        return torch.ones(columns, dtype=torch.int8)
    rng = np.random.Generator(np.random.PCG64(notation.integer(seed, "seed")))
    return torch.from_numpy(rng.integers(0, 2, columns, dtype=np.int8) * 2 - 1)


def _rotate(rows: Tensor, signs: Tensor, size: int) -> Tensor:
    """Return rows·diag(signs)·Hᵀ/√size in blocks of columns, computed in float64, float32."""
    matrices = [m.to(rows.device, torch.float64) for m in _kronecker_factors(size)]
    out = torch.empty_like(rows)
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS].double().mul_(signs.to(rows.device))
        inner = size
        for matrix in matrices:
            inner //= len(matrix)
            split = part.reshape(-1, len(matrix), inner)
            part = matrix @ split if inner > 1 else split[..., 0] @ matrix.T
        out[start : start + _ROWS] = part.div_(size**0.5).reshape(-1, rows.shape[1])
    if not bool(torch.isfinite(out).all()):
        raise QuantError("A rotated number exceeds float32, whose largest is 3.4e38; scale x or w down.")
    return out


def _kronecker_factors(size: int) -> list[Tensor]:
    """Return small matrices whose Kronecker product is the Hadamard matrix of a size."""
    order, doublings = factors(size)
    each = [min(_DOUBLINGS, doublings - done) for done in range(0, doublings, _DOUBLINGS)]
    return [base(order), *(hadamard_matrix(1 << number) for number in each)]
