"""A kind of finding: the function that finds it, with all that is known about the kind."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.diagnosis.context import Context
from quantcore.diagnosis.record import Box, Finding, Severity
from quantcore.formats import CodebookFormat, FloatFormat
from quantcore.scheme import Scheme
from quantcore.tensors import DTYPES, Generated, generate, parse

# Formats differ in what dequantizes a code: an integer minus an integer or a float zero_point, an integer
# plus a minimum, or a table of values
FAMILIES = ("integer", "float zero_point", "min", "float", "codebook")

Find = Callable[[Context], Iterator[Finding]]


@dataclass(frozen=True)
class FindingExample:
    """``tensor``: numbers as text, or a generator's settings; ``scheme``: as text; ``dtype``: of x."""

    title: str
    tensor: str | Generated
    scheme: str
    dtype: str = "float32"

    def load(self) -> npt.NDArray[np.float32] | Tensor:
        """Return the tensor; as one of torch if its dtype is not float32."""
        x = parse(self.tensor) if isinstance(self.tensor, str) else generate(self.tensor)
        return x if self.dtype == "float32" else torch.from_numpy(x).to(DTYPES[self.dtype])


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    ``name``: `Finding.kind` of what ``find`` yields. ``example``: a tensor and a scheme that have it.
    ``lesson``: the lesson and the step that explain it. ``follows``: kinds that it follows from: if one of
    them was found, it is left out. ``impossible``: families of formats that can't have it, and why.
    ``finite``: whether it can be told of finite tensors only, because the range or the SQNR of others is
    undefined. ``severity``: the worst that it may have; a scheme with an error is not proposed.
    """

    name: str
    find: Find
    example: FindingExample
    lesson: tuple[str, str]
    follows: tuple[str, ...] = ()
    impossible: Mapping[str, str] = field(default_factory=dict, hash=False)
    finite: bool = False
    severity: Severity = "warning"

    def __call__(self, context: Context) -> Iterator[Finding]:
        """Yield what is found."""
        return self.find(context)

    def finding(self, sentence: str, boxes: tuple[Box, ...] = (), **fields: Any) -> Finding:
        """Return a finding of this kind and, unless the fields say otherwise, of its severity."""
        return Finding(self.name, fields.pop("severity", self.severity), sentence, boxes, **fields)

    def applies(self, scheme: Scheme, *, finite: bool) -> bool:
        """Tell whether it can occur for a scheme's format and, if x is not finite, for such a tensor."""
        return (finite or not self.finite) and family_of(scheme) not in self.impossible


def kind(example: FindingExample, lesson: tuple[str, str], **known: Any) -> Callable[[Find], Kind]:
    """Make a function that finds something a `Kind` of its name, with these fields."""
    return lambda find: Kind(find.__name__, find, example, lesson, **known)


def family_of(scheme: Scheme) -> str:
    """Return the family of a scheme's format, one of `FAMILIES`."""
    if isinstance(scheme.format, FloatFormat):
        return "float"
    if isinstance(scheme.format, CodebookFormat):
        return "codebook"
    if scheme.rules.zero_point.is_min and not scheme.symmetric:
        return "min"
    return "integer" if scheme.rules.zero_point.is_integer else "float zero_point"
