"""Results of the real libraries, as recorded in golden/libraries.*; see golden/README.md."""

import json
from functools import cache

import numpy as np
from places import GOLDEN

import quantcore as qc

HERE = GOLDEN


@cache
def _recorded():
    with np.load(HERE / "libraries.npz", allow_pickle=False) as arrays:
        return json.loads((HERE / "libraries.json").read_text()), {name: arrays[name] for name in arrays}


def array(reference):
    """The array that ``reference``, a (dtype, offset, shape), points to."""
    dtype, start, shape = reference
    return _recorded()[1][dtype][start : start + int(np.prod(shape))].reshape(shape).copy()


def cases(convention=None):
    """All recorded cases, or those of one convention; arrays are still references."""
    return [c for c in _recorded()[0]["cases"] if convention in (None, c["convention"])]


def kernels():
    """The codes of each library's kernel for given x, scale and zero_point, and the formula of each."""
    data = _recorded()[0]
    return data["kernels"], data["arithmetic"]


def scheme_of(case):
    """The scheme of a case."""
    s = case["scheme"]
    granularity = {
        "tensor": lambda: qc.PerTensor(),
        "channel": lambda: qc.PerChannel(s["axis"]),
        "group": lambda: qc.PerGroup(s["group_size"], s["axis"]),
        "block": lambda: qc.PerBlock(tuple(s["block_size"])),
    }[s["granularity"]]()
    fmt = qc.IntFormat(s["bits"], s["signed"], bool(s.get("narrow")))
    return qc.Scheme(fmt, s["symmetric"], granularity, convention=qc.CONVENTIONS[case["convention"]])
