"""Readings and what is shown on a tensor cross to another process as JSON and arrays, with nothing lost or changed."""

import json
import math

import pytest
import torch
from grid import for_each
from parts import some

import quantcore as qc
from quantcore import pasted
from tests.support import code_snippets

pytestmark = pytest.mark.usefixtures("no_hurry")

_ALL = code_snippets.RIGHT | code_snippets.WRONG
SNIPPETS = {name: _ALL[name] for name in list(_ALL)[::18]} | {
    "given": "q = torch.round(x / 0.1).clamp(-8, 7)",
    "unknown scale": "s = x.std() * 0.1\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)",
    "infinite": "y = x / 0\ns = x.abs().max() / 127\nq = torch.round(x / s)",
    "own tensor": "x = torch.tensor([[1.0, -2.0]])\ns = x.abs().max() / 255\nq = torch.round(x / s).clamp(-128, 127)",
    "nothing": "y = x + 1\nz = open('a')",
}  # fmt: skip


def sent(plain):
    """Return plain data as another process gets it, which must need nothing beyond JSON."""
    return json.loads(json.dumps(plain, allow_nan=False))


def same(one, other):
    """Tell whether two dataclasses are equal, tensors by type and value, NaN as itself."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.equal(other)
    if isinstance(one, pasted.Shown | pasted.Against):
        return type(one) is type(other) and all(same(v, getattr(other, n)) for n, v in vars(one).items())
    if isinstance(one, pasted.LineValue):
        return all(same(v, getattr(other, n)) for n, v in vars(one).items())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    both_nan = isinstance(one, float) and math.isnan(one) and math.isnan(other)
    return type(one) is type(other) and (one == other or both_nan)


@for_each("name", some(SNIPPETS, 2))
def test_what_is_sent_is_what_was_found(name):
    reading = qc.read_code(SNIPPETS[name])
    back = pasted.reading_from_plain(sent(pasted.reading_to_plain(reading)))
    assert back == reading
    assert back.summary == reading.summary
    assert [f.quantizer for f in back.findings] == [f.quantizer for f in reading.findings]
    assert back.lines_of_quantizers == tuple(q.scalings[0].line for q in reading.quantizers)
    for place in range(len(reading.quantizers)):
        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(3)) * 4 - 1
        try:
            shown = pasted.show_code(reading, place, x, (1, 2))
        except qc.QuantError:
            continue
        plain, arrays = pasted.shown_to_plain(shown)
        assert same(shown, pasted.shown_from_plain(sent(plain), arrays))
