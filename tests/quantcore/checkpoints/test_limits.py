"""How much is read and tried: descriptions that are too long, and rows that are too many to be matched."""

import pytest
import torch

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.sources import MemorySource
from quantcore.checkpoints.findings.against import orders
from quantcore.checkpoints.layouts import bitsandbytes, torchao
from quantcore.errors import QuantError


@pytest.mark.parametrize(("length", "too_long"), [(65_536, False), (65_537, True)])
@pytest.mark.parametrize("library", ["bitsandbytes", "torchao"])
def test_descriptions_of_more_than_64_kib_are_not_read(library, length, too_long):
    text = "{}".ljust(length)
    piece = StoredTensor("w.quant_state", "U8", (length,), MemorySource("w", text.encode()), 0, length)
    read = {
        "torchao": lambda: torchao.layout_of("w", {}, text),
        "bitsandbytes": lambda: bitsandbytes._read_state(piece),
    }
    with pytest.raises(QuantError) as refused:  # shorter ones for what they say
        read[library]()
    assert ("too long" in str(refused.value)) is too_long


@pytest.mark.parametrize(("shape", "matched"), [((1, 8), False), ((2, 8), True), ((300, 4), True), ((300, 3), False), ((16_385, 4), False)])
def test_rows_that_are_matched(shape, matched):
    """Two at least, of four columns, and no more than 16,384: each is compared with each."""
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = orders._matches(rows.flip(0), rows)
    assert (found is not None) is matched
    if matched:
        assert found.tolist() == list(range(len(rows)))[::-1]
