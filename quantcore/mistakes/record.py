"""What is known of one mistake."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from quantcore.formats import INT8, IntFormat
from quantcore.mistakes.published import Parts

Implementation = Callable[[Tensor], Parts]


@dataclass(frozen=True)
class Mistake:
    """Two ways to quantize: ``wrong`` and ``right`` take x and return codes, scale and x̂.

    ``hint``: what to look for, before it is shown; ``why``: what goes wrong; ``fix``: what the right way does;
    ``source``: where the tensor, and a table if one is in print, come from; ``format``: what the codes are to
    be; ``x``: makes the tensor, float32.
    """

    title: str
    hint: str
    why: str
    fix: str
    source: str
    wrong: Implementation
    right: Implementation
    x: Callable[[], Tensor]
    format: IntFormat = INT8
