"""GPTQ in NumPy: codes with error feedback, as strong as a layer's inputs make it, or none: rounding.

Frantar et al. 2022 (arXiv 2210.17323): the columns are rounded one after another, and what a column loses is
added to those after it, by the upper Cholesky factor of the inverse Hessian. Also what stores such codes:
GPTQ's words, and compressed-tensors' bytes.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Codes:
    """Unsigned codes [rows, columns], scales and zero points [rows, groups], and the group of each column."""

    codes: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    group: np.ndarray
    bits: int

    @property
    def of_element(self):
        """The scale of each element."""
        return self.scale.astype(np.float64)[:, self.group]

    @property
    def values(self):
        return (self.codes - self.zero[:, self.group].astype(np.float64)) * self.of_element


def hessian(columns, samples, correlation, draw, spread=0.5):
    """XᵀX of inputs whose columns are mixed: by chance with ``correlation`` 0, not with 0 ``samples``."""
    if not samples:
        return np.diag(np.exp(spread * draw.normal(size=columns)))
    mix = correlation * draw.normal(size=(columns, columns)) / columns**0.5 + np.eye(columns)
    inputs = draw.normal(size=(samples, columns)) @ mix * np.exp(spread * draw.normal(size=columns))
    return inputs.T @ inputs


def quantize(w, bits, size, h, damping=0.01, symmetric=True, act_order=False, static=False, dtype=np.float16):
    """GPTQ with groups of ``size`` columns, whose scales are max |w| / (2^bits - 1) · 2 of what is left.

    Args:
        damping: added to the diagonal of the Hessian, times its mean.
        act_order: the columns of the largest inputs first; groups follow that order, unless ``static``.
        static: groups are runs of columns, their scales those of w itself.
        dtype: of the scales, to which they are rounded before codes are computed.
    """
    n, top = w.shape[1], 2**bits - 1
    order = np.argsort(-np.diag(h), kind="stable") if act_order else np.arange(n)
    h = h[np.ix_(order, order)] + damping * np.diag(h).mean() * np.eye(n)
    upper = np.linalg.cholesky(np.linalg.inv(h)).T  # of the inverse: its columns reach those after them
    left = w.astype(np.float64)[:, order].copy()
    codes, index = np.zeros(w.shape), np.arange(n) // size
    group = (order if static else np.arange(n)) // size
    scale, zero = _parameters(left[:, np.argsort(order)] if static else left, size, top, symmetric, dtype)
    for j in range(n):
        if not static and j % size == 0:
            own = _parameters(left[:, j : j + size], size, top, symmetric, dtype)
            scale[:, index[j]], zero[:, index[j]] = own[0][:, 0], own[1][:, 0]
        s, z = scale[:, group[j]].astype(np.float64), zero[:, group[j]]
        codes[:, j] = np.clip(np.round(left[:, j] / s) + z, 0, top)
        lost = (left[:, j] - (codes[:, j] - z) * s) / upper[j, j]
        left[:, j + 1 :] -= np.outer(lost, upper[j, j + 1 :])
    back = np.argsort(order)
    return Codes(codes[:, back].astype(np.int64), scale, zero, group[back], bits)


def _parameters(w, size, top, symmetric, dtype):
    groups = w.reshape(len(w), -1, size)
    low, high = np.minimum(groups.min(-1), 0), np.maximum(groups.max(-1), 0)
    if symmetric:
        high = np.maximum(high, -low)
        low = -high
    scale = ((high - low) / top).astype(dtype)
    zero = np.full(scale.shape, (top + 1) // 2) if symmetric else np.round(-low / scale.astype(np.float64))
    return scale, np.clip(zero, 0, top).astype(np.int64)


def nearest(w, bits, size, symmetric=True, dtype=np.float16, afterwards=False, quotient=np.divide):
    """Rounding to nearest: scales rounded to ``dtype`` before codes are computed, or ``afterwards``.

    Args:
        quotient: w and the scales of its elements to what is rounded.
    """
    exact, zero = _parameters(w.astype(np.float32), size, 2**bits - 1, symmetric, np.float32)
    stored = exact.astype(dtype)
    group = np.arange(w.shape[1]) // size
    used = (exact if afterwards else stored).astype(np.float32)[:, group]
    codes = np.clip(np.round(quotient(w.astype(np.float32), used)) + zero[:, group], 0, 2**bits - 1)
    return Codes(codes.astype(np.int64), stored, zero, group, bits)


def as_gptq(module, q):
    """The tensors of a GPTQ (v1) module with codes of 4 or 8 bits, and its config."""
    size = q.codes.shape[1] // q.scale.shape[1]
    tensors = {
        f"{module}.qweight": _words(q.codes, q.bits).T,
        f"{module}.qzeros": _words((q.zero.T - 1) % 2**q.bits, q.bits),
        f"{module}.scales": q.scale.T, f"{module}.g_idx": q.group.astype(np.int32),
    }  # fmt: skip
    config = {
        "quant_method": "gptq", "bits": q.bits, "group_size": size,
        "desc_act": bool((np.diff(q.group) < 0).any()),
        "sym": bool((q.zero == 2 ** (q.bits - 1)).all()), "checkpoint_format": "gptq",
    }  # fmt: skip
    return tensors, config


def as_bytes(module, q):
    """The tensors of a module of compressed-tensors whose codes are bytes, and the config."""
    half = 2 ** (q.bits - 1)
    size, symmetric = q.codes.shape[1] // q.scale.shape[1], bool((q.zero == half).all())
    weights = {"num_bits": q.bits, "type": "int", "symmetric": symmetric}
    weights |= {"strategy": "group", "group_size": size}
    tensors = {f"{module}.weight": (q.codes - half).astype(np.int8), f"{module}.weight_scale": q.scale}
    if not symmetric:
        tensors[f"{module}.weight_zero_point"] = (q.zero - half).astype(np.int8)
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return tensors, {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": groups}


def _words(codes, bits):
    """Codes [..., n] in 32-bit words [..., n * bits / 32], the first in the lowest bits."""
    places = bits * np.arange(32 // bits, dtype=np.uint64)
    parts = codes.reshape(*codes.shape[:-1], -1, 32 // bits).astype(np.uint64) << places
    return parts.sum(-1).astype(np.uint32).view(np.int32)
