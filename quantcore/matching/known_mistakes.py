"""The known mistakes whose codes these are, whatever else gives them too.

Codes alone can leave open whether anything went wrong: on a tensor whose largest |x| is positive, a range from 0 to
max(x) gives the codes of the right symmetric range. A search ends at the scheme without a mistake, which is the
likelier one; what the known mistakes give on this very tensor is computed beside it.
"""

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.matching.record import KnownMistake
from quantcore.mistakes import MISTAKES, Outcome, compare

MOST = 1 << 20  # elements: larger tensors would hold a page up


def known_mistakes(x: Tensor, codes: Tensor) -> tuple[KnownMistake, ...]:
    """Return the mistakes of the catalogue that give these codes on x where the right implementation gives others.

    Args:
        x: float32, any rank; with more than 2^20 elements nothing is tried.
        codes: integers of the same shape.
    """
    if x.shape != codes.shape or not 0 < x.numel() <= MOST or not bool(x.isfinite().all()):
        return ()
    found = []
    for name, mistake in MISTAKES.items():
        try:
            comparison = compare(mistake, x)
        except QuantError:  # it does not run on such a tensor
            continue
        if _are(codes, comparison.wrong) and not _are(codes, comparison.right):
            scale = comparison.wrong.scale
            found.append(KnownMistake(name, mistake.title, scale.min().item(), scale.max().item()))
    return tuple(found)


def _are(codes: Tensor, outcome: Outcome) -> bool:
    return torch.equal(outcome.codes.to(torch.float64), codes.to(torch.float64))
