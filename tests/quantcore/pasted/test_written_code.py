"""Code is followed however it is written: what is found in it, and the codes that it gives when Python runs it."""

import inspect
import re

import numpy as np
import pytest
import torch
from grid import for_each
from torch import nn

import quantcore as qc
from quantcore.pasted import show_code
from tests.support import written_code

MARK = re.compile(r"  #! (\S+)")
WRITTEN = {
    f"{kind.lower()}: {name}": text
    for kind, group in inspect.getmembers(written_code, lambda value: isinstance(value, dict))
    if kind.isupper()
    for name, text in group.items()
}
pytestmark = [pytest.mark.usefixtures("no_hurry"), pytest.mark.filterwarnings("ignore")]


@for_each("name", WRITTEN)
def test_code_is_followed_to_its_mistakes_and_codes(name):
    marks = [(i, kind) for i, line in enumerate(WRITTEN[name].split("\n"), 1) for kind in MARK.findall(line)]
    text = MARK.sub("", WRITTEN[name])
    reading = qc.read_code(text)
    assert sorted((f.line, f.kind) for f in reading.mistakes) == sorted(marks)
    assert not reading.unread
    assert reading.quantizers
    codes = ran(text)
    if codes is not None:
        x = tensor(text)
        last = len(reading.quantizers) - 1
        own = codes.numel() != x.numel()  # the code has a tensor of its own
        shown = reading.quantizers[-1].codes[-1].numbers if own else show_code(reading, last, x).codes
        assert torch.equal(shown.reshape(codes.shape).double(), codes.double()), (shown, codes)


def tensor(text):
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(3)) * 3 - 0.4
    return x.reshape(2, 4, 2, 4) if "img" in text else x.flatten() if "(values)" in text else x


def ran(text):
    """The codes when the test runs the code, as a student would; None if it only defines functions."""
    x = tensor(text)
    x = x.numpy() if re.search(r"\bnp\b|\bround\(", text) and "torch." not in text else x
    scope = {"torch": torch, "np": np, "nn": nn, "F": nn.functional, "x": x, "w": x, "data": x, "img": x}
    exec(text, scope)
    q = scope.get("q")
    if q is None or callable(q):
        return None
    q = q.int_repr() if getattr(q, "is_quantized", False) else q
    return q if isinstance(q, torch.Tensor) else torch.from_numpy(np.array(q, dtype=np.float64))
