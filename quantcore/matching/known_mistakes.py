"""The known mistakes that give exactly these codes, even if a scheme without a mistake gives them too.

Codes alone may not show whether anything went wrong: unsigned codes of a symmetric range lose all negative
values, by mistake or because a library does it that way. A search stops at the scheme without a mistake, which is
likelier, so the known mistakes are run on the tensor separately.
"""

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.matching.record import KnownMistake
from quantcore.mistakes import CASES, Outcome, compare

MOST = 1 << 20  # elements: larger tensors would hold up a page


def known_mistakes(x: Tensor, codes: Tensor) -> tuple[KnownMistake, ...]:
    """Return the cases of the lesson whose mistake gives these codes on x, unless the right code gives them too.

    Args:
        x: float32, any rank; nothing is tried on more than 2^20 elements.
        codes: integers of the same shape.
    """
    if x.shape != codes.shape or not 0 < x.numel() <= MOST or not bool(x.isfinite().all()):
        return ()
    found = []
    for name, case in CASES.items():
        try:
            comparison = compare(case, x)
        except QuantError:  # it does not run on such a tensor
            continue
        if _equal(codes, comparison.wrong) and not _equal(codes, comparison.right):
            scale = comparison.wrong.scale
            found.append(KnownMistake(name, case.title, scale.min().item(), scale.max().item()))
    return tuple(found)


def _equal(codes: Tensor, outcome: Outcome) -> bool:
    return torch.equal(outcome.codes.to(torch.float64), codes.to(torch.float64))
