"""Weights that are wrong in a known way, as the search for causes gets them, and the error of the sound ones.

The sound weight is quantized by `releases`; its error, in steps and relative, is computed in numpy.
"""

import math

import numpy as np
import pytest
import releases
import torch
from releases import GROUP, WRITERS, save

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.suspect import Suspect
from quantcore.checkpoints.findings.walk import Box, Ordered

M = "model.layers.1.self_attn.q_proj"
W = f"{M}.weight"
THIRD = M.replace(".1.", ".3.")
ROWS, COLUMNS = 48, 128


def weight(rows=ROWS, columns=COLUMNS, seed=3):
    """Rows and columns of different spread, none of them alike."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(rows, columns, generator=generator) * 0.02
    return (w * torch.exp(0.3 * torch.randn(rows, 1, generator=generator))).bfloat16().float()


def suspect(folder, stored, x, name="ct_int4", **more):
    """A weight as `stored` says, against the original ``x``, with what one walk over it measures."""
    release = open_checkpoint(save(folder / "release", stored, WRITERS[name][1] if name else None))
    source = open_checkpoint(save(folder / "original", {W: x}))
    tensor = release.tensors[W]
    original = Ordered(source.tensors[W], tensor.shape)
    measure = Measure(tensor.layout, original)
    measure.add(Box(tensor.layout, slice(0, tensor.shape[0]), original))
    given = {"peers": {}, "partners": {}, "heads": 0, "gguf_differs": False}
    given |= {"normal": math.nan, "usual": math.nan}
    return Suspect(measure.done(), release, source, **(given | more))


def fit_of(x, y, step):
    """Steps and relative error: the median |error| over a quarter of a step, and RMS over RMS.

    Of two middle ones the lower is the median.
    """
    x, y, step = (np.broadcast_to(np.asarray(t, np.float64), np.shape(x)) for t in (x, y, step))
    ratio = np.sort((np.abs(x - y) / step).ravel())
    return ratio[(ratio.size - 1) // 2] / 0.25, np.sqrt(((x - y) ** 2).sum() / (x**2).sum())


def grid_of(x, qmax=7):
    """Codes, values and steps of ct_int4's symmetric grid."""
    q, s = releases.symmetric(x, GROUP, qmax, torch.bfloat16)
    step = s.float().repeat_interleave(GROUP, 1)
    return q, q * step, step


# how many numbers each needs: of two that fit alike, the simpler one is said
COMPLEXITY = {
    "sign_flipped": 0, "transposed": 0, "codes_transposed": 0, "scales_of_another": 0,
    "codes_of_another": 0, "constant_factor": 1,
    "zero_point_off": 1, "code_bit": 1, "code_format": 1, "bits_reinterpreted": 1, "bytes_swapped": 1,
    "nibbles_swapped": 1, "awq_order": 1, "codes_permuted": 1, "scales_exchanged": 1,
    "zero_points_exchanged": 1, "another_weight": 1, "rows_permuted": 2,
    "columns_permuted": 2, "g_idx_wrong": 3, "row_factors": 3, "column_factors": 3, "block_factors": 4,
    "row_and_column_factors": 5,
}  # fmt: skip


def same(found, kind, fit, **facts):
    """The one explanation of this kind and these facts whose fit is that of the sound weight."""
    found = list(found)
    # codes that are permuted within words need no list of places
    free = {"moved"} & set().union(*(e.facts for e in found))
    for e in found:
        assert e.kind == "g_idx_wrong" or e.complexity == max(COMPLEXITY[e.kind], 2 * len(free))
    said = [e for e in found if e.kind == kind and facts.items() <= e.facts.items()]
    wanted = pytest.approx(fit, rel=1e-4) if isinstance(fit, tuple) else fit
    near = [e for e in said if (e.fit.steps, e.fit.relative) == wanted]
    assert near, [(e.kind, e.facts, e.fit) for e in found]
    return near[0]


def awq_of(w):
    """Codes, zero points and scales of AWQ's grid, each of its element."""
    g = releases.in_groups(w)
    low, high = g.amin(-1).clamp(max=0), g.amax(-1).clamp(min=0)
    s = ((high - low) / 15).half().float().repeat_interleave(GROUP, 1)
    z = (-low.repeat_interleave(GROUP, 1) / s).round().clamp(0, 15)
    return ((w / s).round() + z).clamp(0, 15), z, s


def awq_stored(q, z, s):
    pick = slice(None, None, GROUP)
    return {
        f"{M}.qweight": releases.words(q.T, 1, releases.AWQ_ORDER),
        f"{M}.qzeros": releases.words(z[:, pick].T, 1, releases.AWQ_ORDER),
        f"{M}.scales": s[:, pick].T.half().contiguous(),
    }


def ct_stored(q, s):
    return {
        f"{M}.weight_packed": releases.words(q + 8), f"{M}.weight_scale": s[:, ::GROUP].bfloat16(),
        f"{M}.weight_shape": torch.tensor(q.shape),
    }  # fmt: skip


def permutation(n, seed=1):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def sound(x, name="ct_int4"):
    """What is stored for a weight, its values and its steps: each of an element."""
    if name == "awq":
        q, z, step = awq_of(x)
        return awq_stored(q, z, step), (q - z) * step, step
    q, y, step = grid_of(x)
    return ct_stored(q, step), y, step


def of_layers(folder, change, name="ct_int4", count=5, original=None):
    """The weight of layer 1 of several, with what is stored changed, and its siblings as peers."""
    names = [W.replace(".1.", f".{i}.") for i in range(count)]
    weights = {n: weight(seed=10 + i) for i, n in enumerate(names)}
    stored = {}
    for n, w in weights.items():
        stored |= WRITERS[name][0](n.removesuffix(".weight"), w)
    change(stored)
    release = open_checkpoint(save(folder / "release", stored, WRITERS[name][1]))
    source = open_checkpoint(save(folder / "original", weights | (original or {})))
    tensor = release.tensors[W]
    ordered = Ordered(source.tensors[W], tensor.shape)
    measure = Measure(tensor.layout, ordered)
    measure.add(Box(tensor.layout, slice(0, tensor.shape[0]), ordered))
    peers = {n: n for n in names if n != W}
    return weights[W], Suspect(
        measure.done(), release, source, peers, peers | {W: W}, math.nan, math.nan, 0, False
    )
