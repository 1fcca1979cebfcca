"""The tensor and scheme chosen in the sidebar, for the page that runs after it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np
import streamlit as st

import quantcore as qc
from pages.shared.cards import Card
from quantcore import tensors

_KEY = "_current"
Controls = Mapping[str, tuple[float, ...]]  # what controls stand at, by key: a slider may have two ends
# among them, without a widget: index and value of the element whose value is dragged in its cell; the ends of
# the range, dragged in a histogram (of a symmetric one, the upper end)
VALUE, ENDS = "value", "ends"
EDITED = "edited"  # the name of a tensor with values that the visitor changed


class NoTensorYet(Exception):
    """Nothing has been pasted or uploaded yet; the message says what to do."""


@dataclass(frozen=True)
class PageTensor:
    """A tensor that a page shows. ``key`` names its content: equal keys, equal values and dtypes.

    Attributes:
        load: returns its values as its source has them; `cache.values` has them in the dtype.
        title: a name for a line of text, including the name of the file.
        recipe: Python code with quantcore that assigns it to ``x``; None if only its values are known.
        name: its full name in its file; ``title`` if it has none.
        stored: the dtype in its file, such as ``bfloat16``; empty if it is not from a file.
        is_image: whether its elements are grey levels, from 0 (black) to 255 (white).
        dtype: in which libraries get it, one of `tensors.DTYPES`.
        source: the same tensor before its values were converted to the dtype; None if they were not.
        spec: by which it is generated; None if it is not.
    """

    key: str
    title: str
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]
    recipe: str | None = None
    name: str = ""
    stored: str = ""
    is_image: bool = False
    dtype: str = "float32"
    source: "PageTensor | None" = None
    spec: tensors.Generated | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.title)

    @property
    def elements(self) -> int:
        """How many there are."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """What it takes in memory at most: half precision is computed with in float32."""
        return self.elements * (8 if self.dtype == "float64" else 4)

    def in_dtype(self, dtype: str) -> "PageTensor":
        """Return the tensor with its values converted to a dtype."""
        if dtype == self.dtype:
            return self
        convert = f"\nx = torch.from_numpy(x).to(torch.{dtype})"
        return replace(
            self,
            key=f"{self.key} {dtype}",
            recipe=None if self.recipe is None else self.recipe + convert,
            dtype=dtype,
            source=self,
        )


def of_values(values: Any, title: str, **more: Any) -> PageTensor:
    """Make a tensor known only by its values; ``more``: its ``name``, ``stored`` and ``is_image``."""
    x = np.asarray(values, np.float32)
    return PageTensor(f"values {tensors.content_hash(x)}", title, x.shape, lambda: x, **more)


def generated(spec: tensors.Generated) -> PageTensor:
    """Make a tensor by distribution and seed."""
    label = tensors.DISTRIBUTIONS[spec.distribution].label
    recipe = f"x = qc.tensors.generate(qc.tensors.{spec})"
    return PageTensor(
        f"generated {spec}", label, spec.shape, lambda: tensors.generate(spec), recipe, spec=spec
    )


@dataclass(frozen=True)
class Current:
    """The tensor and the scheme, or the reasons why they are missing.

    ``problems``: all errors; ``acting``: those of the parts that the page uses.
    ``hint``: what to do next, if there is no tensor yet but nothing is wrong; ``cards``: examples of it.
    ``used``: which of "tensor" and "scheme" the page uses.
    ``controls``: what the controls that maps follow while dragged stand at, by key; ``move``: returns
    tensor, scheme and controls with some of them moved.
    """

    tensor: PageTensor | None
    scheme: qc.Scheme | None
    problems: tuple[str, ...] = ()
    acting: tuple[str, ...] = ()
    hint: str = ""
    cards: tuple[Card, ...] = ()
    used: frozenset[str] = frozenset({"tensor", "scheme"})
    controls: Controls = field(default_factory=dict)
    move: "Move | None" = None

    def moved(self, values: Mapping[str, str]) -> "Moved":
        """Return tensor, scheme and ``controls`` after controls were moved to these values, by key.

        Raises:
            QuantError: no such control is followed, or it does not have such a value.
        """
        assert self.move is not None
        return self.move(self, values)

    @property
    def words(self) -> str:
        """Tensor and scheme in words, as far as the page uses them."""
        return words(
            self.tensor if "tensor" in self.used else None, self.scheme if "scheme" in self.used else None
        )


def words(tensor: PageTensor | None, scheme: qc.Scheme | None) -> str:
    """Return a tensor and a scheme in words, as far as there are any."""
    name, shape = (tensor.name, "×".join(map(str, tensor.shape))) if tensor else ("", "")
    parts = (name, shape if shape not in name else "", str(scheme) if scheme else "")
    return " · ".join(filter(None, parts))


class Moved(NamedTuple):
    """What is shown after controls were moved; ``element``: whose value was, if that is what was moved."""

    tensor: PageTensor
    scheme: qc.Scheme
    controls: Controls
    element: tuple[int, ...] | None = None


Move = Callable[[Current, Mapping[str, str]], Moved]


def put(current: Current) -> None:
    """Store for the page of this run."""
    st.session_state[_KEY] = current


def get() -> Current:
    """Return the selection of this run, for a page."""
    return cast(Current, st.session_state[_KEY])
