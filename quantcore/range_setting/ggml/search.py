"""The base of ggml's searches: range settings that find scale (and min) of a group, and its codes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.formats import CodebookFormat, Format
from quantcore.range_setting.ggml.arithmetic import WEIGHTS, Floats, GroupScales, Record, Weight, total
from quantcore.range_setting.protocol import Control, Range, RangeSetting, Task

MAX_STEPS = 1000


@dataclass(frozen=True)
class Search(RangeSetting):
    """A search for the scale of a group.

    ``DIVISOR``: what the numbers in `Trial.tried` are divided by to give the inverse scale. ``CODES``: which
    it needs, in words, and whether a format, symmetric or not, has them. ``WEIGHTED``: the names in `WEIGHTS`
    that its argument ``weights`` may have; without such an argument, the one that it uses.
    """

    DIVISOR: ClassVar[str] = "extreme"
    CODES: ClassVar[tuple[str, Callable[[Format, bool], bool]]]
    WEIGHTED: ClassVar[tuple[str, ...]] = ("one",)
    option = "ggml search"
    searches_codes = True
    about = "the searches of ggml's K-quants"
    controls = (
        Control(
            "search", "", "Search", "make_qx",
            "A search that ggml's quantizers use, with its parameters: make_qkx2(-1, 0.1, 20), make_qx, "
            "make_q3, …",
        ),
    )  # fmt: skip

    def __post_init__(self) -> None:
        notation.read_numbers(self)
        for name in ("nstep", "ntry"):
            steps = getattr(self, name, 0)
            if not 0 <= steps <= MAX_STEPS:
                raise QuantError(f"{name}={steps} is outside 0..{MAX_STEPS}.")
        flag = getattr(self, "use_mad", False)
        if not isinstance(flag, bool):
            raise QuantError(f"use_mad must be true or false, not {str(flag)[:40]!r}.")
        name, sigma2, over = (
            getattr(self, "weights", ""),
            getattr(self, "sigma2", 1.0),
            getattr(self, "over", 0),
        )
        if hasattr(self, "weights") and name not in self.WEIGHTED:
            raise QuantError(f"weights must be one of {', '.join(self.WEIGHTED)}, not {str(name)[:40]!r}.")
        if over < 0 or sigma2 < 0:
            raise QuantError(f"over and sigma2 must be 0 or more, not {over} and {sigma2:g}.")

    @property
    def title(self) -> str:
        """Its text form."""
        return notation.write_call(self)

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> "Search":
        """Return the search that is typed.

        Raises:
            QuantError: it is not one, or it needs the elements' importance.
        """
        typed = str(values["search"])
        name, arguments, keywords = notation.parse_call(typed.strip())
        kinds = {notation.snake_case(kind.__name__): kind for kind in Search.__subclasses__()}
        if name not in kinds:
            raise QuantError(f"{typed[:40]!r} is not a ggml search; type one such as make_qx or make_q3.")
        found: Search = notation.build(kinds[name], arguments, keywords, typed)
        if found.weight.importance:
            raise QuantError(
                f"{typed[:60]} weights elements by an imatrix, which can't be set here; use quantcore in a "
                "notebook."
            )
        return found

    def choices(self) -> dict[str, Any]:
        """Return what is to be typed."""
        return {"search": notation.write_call(self)}

    @property
    def weight(self) -> Weight:
        """How much the error of each element counts, and whether that needs importance (an imatrix)."""
        return WEIGHTS[getattr(self, "weights", self.WEIGHTED[0])]

    @property
    def takes_importance(self) -> bool:
        """Whether it weighs elements by their importance."""
        return self.weight.importance

    def sigmas(self, x: Floats) -> Floats | None:
        """Return σ² = ``sigma2`` · mean x² of every run of ``over`` elements of x, 2-D; 0: of every row.

        None if the weight's formula has no mean.
        """
        if not self.weight.mean:
            return None
        over = getattr(self, "over", 0) or x.shape[-1]
        runs = x.reshape(-1, over)
        found = np.empty(len(runs), np.float32)
        step = max(1, (1 << 16) // over)
        for start in range(0, len(runs), step):
            part = runs[start : start + step]
            with np.errstate(over="ignore"):  # as in C: the search then finds no finite scale
                squares = total(np.ascontiguousarray((part * part).T))
            found[start : start + step] = (
                np.float32(getattr(self, "sigma2", 1.0)) * squares / np.float32(over)
            )
        return found

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Search every group; ``x``, ``w``: elements and weights, (elements of a group, groups).

        ``record``: a list that the trials are added to.
        """
        raise NotImplementedError

    def __call__(self, blocks: Tensor, task: Task) -> Range:
        """Return (low, high), one number per block: of the scale (and min) found without importance.

        Raises:
            QuantError: the search needs importance.
        """
        if self.weight.importance:
            raise QuantError(f"{notation.write_call(self)} weighs elements by importance; give importance=.")
        x = np.ascontiguousarray(blocks.cpu().numpy().T)
        with np.errstate(all="ignore"):
            found = self.search(x, self.weight.of(x, None, None), task.format)
        low, high = (torch.from_numpy(end).to(blocks.device) for end in span(found, task.format))
        return low, high


def span(found: GroupScales, fmt: Format) -> tuple[Floats, Floats]:
    """Return the values of the outermost codes, in ascending order."""
    if isinstance(fmt, CodebookFormat):
        ends = found.scale * np.float32(min(fmt.values)), found.scale * np.float32(max(fmt.values))
    elif found.min is None:
        half = np.float32(1 << (fmt.bits - 1)) if fmt.signed or fmt.middle else np.float32(0.0)
        ends = -half * found.scale, (half - 1) * found.scale
    else:
        low = -found.min
        ends = low, low + found.scale * np.float32(fmt.qmax)
    return np.minimum(*ends), np.maximum(*ends)
