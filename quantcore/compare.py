"""Two libraries on one tensor and scheme: which codes differ, and why.

The reason is found by replaying the arithmetic: one library's scale, zero_point and kernel are put into the
place of the other's, one at a time and then together, and the fewest that turn its code into the other's are
the reason.
"""

import dataclasses
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from quantcore.compare_words import choices_behind, kernel_words, parameter_words
from quantcore.conventions import CONVENTIONS, Convention
from quantcore.errors import QuantError
from quantcore.inputs import as_float32
from quantcore.metrics import report
from quantcore.qparams import QParams
from quantcore.quantize import Quantized, apply_quietly, codes_of
from quantcore.scheme import Scheme

if TYPE_CHECKING:
    import pandas as pd

INGREDIENTS = ("scale", "zero_point", "kernel")


@dataclass(frozen=True)
class Reason:
    """Why some codes differ.

    ``ingredients``: what of b, put into a, gives b's codes: of scale, zero_point, kernel; ``choices``: those of
    the records that make scale and zero_point differ; ``count`` elements, the first at ``index``;
    ``sentence`` has the numbers of that one.
    """

    ingredients: tuple[str, ...]
    choices: tuple[str, ...]
    count: int
    index: tuple[int, ...]
    sentence: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """Both results, where their codes differ (bool, x's shape), and the set of ingredients behind each.

    ``behind``: int8, the place in `SETS` for elements that differ, -1 elsewhere.
    """

    a: Quantized
    b: Quantized
    differs: Tensor
    behind: Tensor

    def reasons(self) -> list[Reason]:
        """The reasons, from the most elements to the fewest."""
        found = []
        for place, ingredients in enumerate(SETS):
            of_it = self.behind == place
            count = int(of_it.sum())
            if count:
                index = tuple(int(i) for i in of_it.nonzero()[0]) if self.differs.dim() else ()
                found.append(self._reason(ingredients, count, index))
        return sorted(found, key=lambda reason: -reason.count)

    def reason_at(self, index: tuple[int, ...]) -> Reason | None:
        """The reason of one element, None where the codes are equal."""
        place = int(self.behind[index])
        return None if place < 0 else self._reason(SETS[place], 1, index)

    def _reason(self, ingredients: tuple[str, ...], count: int, index: tuple[int, ...]) -> Reason:
        parameters = [name for name in ingredients if name != "kernel"]
        choices = tuple(dict.fromkeys(c for name in parameters for c in choices_behind(self.a, self.b, name)))
        parts = [parameter_words(self.a, self.b, index, name, choices) for name in parameters]
        if "kernel" in ingredients:
            parts.append(kernel_words(self.a, self.b, index))
        return Reason(ingredients, choices, count, index, "; ".join(parts) + ".")


SETS = tuple(s for n in (1, 2, 3) for s in itertools.combinations(INGREDIENTS, n))


def compare(x: Any, scheme: Scheme, a: Convention, b: Convention) -> Comparison:
    """Quantize x by ``scheme`` under both conventions and find the reason of every code that differs.

    Raises:
        QuantError: the scheme does not fit x, or one of the libraries refuses it.
    """
    x = as_float32(x)
    of_a, of_b = (apply_quietly(x, dataclasses.replace(scheme, convention=c)) for c in (a, b))
    differs = of_a.codes.to(torch.int32) != of_b.codes.to(torch.int32)
    behind = torch.full(differs.shape, -1, dtype=torch.int8)
    open_ = differs.clone()
    for place, ingredients in enumerate(SETS):
        if not open_.any():
            break
        found = open_ & (_mixed(of_a, of_b, ingredients).to(torch.int32) == of_b.codes.to(torch.int32))
        behind[found] = place
        open_ &= ~found
    behind[open_] = len(SETS) - 1
    return Comparison(of_a, of_b, differs, behind)


def _mixed(a: Quantized, b: Quantized, ingredients: tuple[str, ...]) -> Tensor:
    """The codes of a with some ingredients of b."""
    from_b = {name: (b if name in ingredients else a) for name in INGREDIENTS}
    scale, shift = from_b["scale"].params, from_b["zero_point"].params
    params = QParams(scale.scale, shift.zero_point, scale.low, scale.high, scale.inverse, raw=scale.raw)
    return codes_of(a.x, params, from_b["kernel"].scheme)


def library_table(
    x: Any, scheme: Scheme, chosen: Convention, block: tuple[int, ...] | None = None
) -> "pd.DataFrame":
    """Return one row a convention: scale and zero_point of a block, codes that differ from the chosen one's, error.

    ``block``: its position in the grid, by default the first. A library that refuses the scheme has its
    reason under ``refused``.
    """
    import pandas as pd

    x = as_float32(x)
    own = apply_quietly(x, dataclasses.replace(scheme, convention=chosen)).codes.to(torch.int32)
    rows = []
    for convention in CONVENTIONS.values():
        row: dict[str, Any] = {"library": convention.name, "refused": ""}
        try:
            result = apply_quietly(x, dataclasses.replace(scheme, convention=convention))
        except QuantError as error:
            rows.append(row | {"refused": str(error)})
            continue
        place = block if block is not None else (0,) * result.scale.dim()
        found = report(result)
        rows.append(
            row
            | {
                "scale": float(result.scale[place]),
                "zero_point": result.params.zero_point[place].item(),
                "codes that differ": int((result.codes.to(torch.int32) != own).sum()),
                "sqnr_db": found.sqnr_db,
                "mse": found.mse,
                "max_abs_error": found.max_abs_error,
            }
        )
    return pd.DataFrame(rows)
