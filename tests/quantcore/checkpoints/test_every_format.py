"""What is told of the weights of every format: the original is the weight itself with one thing changed.

Whatever a file holds, once it opens its tensors answer or refuse in words: never another exception.
"""

import math

import pytest
import torch
from checkpoint_cases import cases
from checkpoint_cases import sound as golden
from grid import for_each
from parts import in_parts, some
from releases import save

from quantcore import QuantError
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings.against import judge, numbers, orders
from quantcore.checkpoints.findings.against.grid import CodeGrid
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.suspect import Suspect
from quantcore.checkpoints.findings.walk import Ordered


def kinds():
    """A weight of each kind of storage: (release, name)."""
    found = {}
    for given in golden():
        for name, tensor in open_checkpoint(given.release).tensors.items():
            layout = tensor.layout
            if tensor.is_quantized and CodeGrid.suits(layout):
                parameters, shape = layout.parameters(), layout.shape
                one = parameters.scale is None or parameters.scale.numel() == 1
                key = (
                    layout.decoding, layout.element.has_zero_point, bool(layout.derived), layout.rounds_each, layout.columns > 0, bool(layout.block_type),
                    type(layout.fields["codes"]).__name__, len(shape), layout.blocks.blocked_shape == shape, layout.blocks.block[0] == 1,
                    layout.group_index() is None, parameters.zero_point is None, parameters.min is None, one,
                )  # fmt: skip
                found.setdefault(key, (given, name))
    return [(given.release, name) for given, name in found.values()]


def shuffled(n):
    return torch.randperm(n, generator=torch.Generator().manual_seed(n))


CHANGES = {
    # what the original is of the values that are stored; what finds it, and its numbers
    "negated": (lambda y: -y, numbers.sign_flipped, "sign_flipped", lambda y: {}),
    "tripled": (lambda y: 3 * y, numbers.constant_factor, "constant_factor", lambda y: {"factor": 1 / 3}),
    "rows": (lambda y: y[shuffled(len(y))], orders.rows_in_another_order, "rows_permuted", lambda y: moved(len(y))),
    "columns": (
        lambda y: y[:, shuffled(y.shape[1])], orders.columns_in_another_order, "columns_permuted", lambda y: moved(y.shape[1]),
    ),
}  # fmt: skip


def moved(n):
    return {"of": n, "moved": int((shuffled(n) != torch.arange(n)).sum())}


def differ(lines):
    """Whether no two lines have nearly the same direction."""
    unit = torch.nn.functional.normalize(lines, dim=1)
    return float((unit @ unit.T).fill_diagonal_(0).max()) < 0.999


@in_parts(23)
def test_what_is_undone(part, tmp_path):
    """Each hypothesis can be tried on each format, and the true one leaves no error."""
    for number, (release, name) in enumerate(part(kinds())):
        check_what_is_undone(release, name, tmp_path / str(number))


def check_what_is_undone(release, name, folder):
    opened = open_checkpoint(release)
    tensor = opened.tensors[name]
    y = tensor.layout.values(slice(0, tensor.shape[0]), rounded=False).reshape(-1, tensor.shape[-1])
    originals = {change: make(y).reshape(tensor.shape).clone() for change, (make, *_) in CHANGES.items()}
    source = open_checkpoint(save(folder, originals))
    for number, (change, (_, hypothesis, kind, facts)) in enumerate(CHANGES.items()):
        original = Ordered(source.tensors[change], tensor.shape)
        s = Suspect(Measure(tensor.layout, original), opened, source, {}, {}, math.nan, math.nan, 0, False)
        if number == 0:
            every = [e for other in (*judge.LOCAL, *judge.GLOBAL) for e in other(s)]
            assert all(0 <= e.fit.relative < math.inf for e in every)
        if differ({"rows": y, "columns": y.T}.get(change, torch.eye(2))):
            found = [e for e in hypothesis(s) if e.kind == kind and e.fit.relative < 1e-6]
            assert found, change
            assert all(found[0].facts[key] == pytest.approx(value) for key, value in facts(y).items())


ASKED = {
    "read": lambda tensor, index: tensor.read(slice(0, 2)),
    "codes": lambda tensor, index: tensor.codes(),
    "scale": lambda tensor, index: tensor.scale(),
    "zero_point": lambda tensor, index: tensor.zero_point(),
    "min": lambda tensor, index: tensor.min(),
    "stored": lambda tensor, index: tensor.stored(),
    "origin": lambda tensor, index: tensor.origin(index),
    "locate": lambda tensor, index: tensor.locate(index),
    "window": lambda tensor, index: tensor.window((0, 1), index[:-2]),
}


def of_one_kind(checkpoint):
    """A few tensors of each way of storing them, of each shape's rank."""
    found = {}
    for tensor in checkpoint.tensors.values():
        found.setdefault((tensor.storage, len(tensor.shape)), []).append(tensor)
    return [tensor for tensors in found.values() for tensor in tensors[:2]]


@for_each("given", some(cases(""), 17), ids=str)
def test_it_answers_or_refuses(given):
    try:
        checkpoint = open_checkpoint(given.release)
    except QuantError:
        return
    said = []
    for tensor in (*of_one_kind(checkpoint), *of_one_kind(checkpoint.as_matrices())):
        for ask in ASKED.values():
            try:
                ask(tensor, tuple(n - 1 for n in tensor.shape))
            except QuantError as error:
                said.append(str(error))
    assert [sentence for sentence in said if not sentence.endswith(".")] == []
