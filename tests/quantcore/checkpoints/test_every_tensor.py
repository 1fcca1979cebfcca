"""Whatever a file holds, once it opens its tensors answer or refuse in words: never another exception."""

import pytest
from checkpoint_cases import cases

from quantcore import QuantError
from quantcore.checkpoints import open_checkpoint

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


@pytest.mark.parametrize("given", cases(""), ids=str)
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
