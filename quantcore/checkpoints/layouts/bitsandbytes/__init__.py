"""bitsandbytes releases: 4 bits (nf4, fp4, with quantized scales or not) and LLM.int8().

Source: bitsandbytes 95f9af30, bitsandbytes/functional.py (QuantState) and backends/default/ops.py.
"""

from collections.abc import Iterator

from quantcore.checkpoints.layouts.bitsandbytes import four_bits, int8
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import Release


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of a bitsandbytes release."""
    yield from four_bits.find(release)
    yield from int8.find(release)


__all__ = ["find"]
