"""A mistake in code: both implementations, what goes wrong, and how to fix it."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from quantcore.formats import INT8, IntFormat
from quantcore.mistakes.published import Parts

Implementation = Callable[[Tensor], Parts]


@dataclass(frozen=True)
class Case:
    """Two implementations of a quantizer: ``wrong`` and ``right`` take x and return codes, scale and x̂.

    ``hint``: what to look for before the answer is shown; ``why``: what goes wrong; ``fix``: what the right
    implementation does; ``source``: where the tensor comes from, and the published table if there is one;
    ``format``: the intended format of the codes; ``x``: returns the tensor, float32.
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
