"""What a range setting is: how it finds ranges, what it is called, and the controls for its arguments."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor

from quantcore.errors import QuantError
from quantcore.formats import Format
from quantcore.notation import snake_case, write_call
from quantcore.numerics import CHUNK

Range = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """What a range setting needs to know about the scheme.

    ``search``: finds ranges of the blocks passed in, see `BlockErrors.search`; None if not needed.
    ``blocks``: how many the tensor has; a range setting receives only some of them at a time.
    """

    format: Format
    symmetric: bool
    search: Callable[[Tensor, Tensor, Tensor, Tensor], Range] | None = None
    blocks: int = 0


@dataclass(frozen=True)
class Control:
    """A person's choice of an argument of a range setting.

    ``key``: its name in links; ``argument``: of the range setting; ``default``: a number, or a text that
    ``read`` turns into the argument and ``write`` writes. Of numbers: ``low``, ``high`` and ``step``, and how
    they are shown.
    """

    key: str
    argument: str
    label: str
    default: Any
    help: str | None = None
    low: float | None = None
    high: float | None = None
    step: float | None = None
    format: str | None = None
    read: Callable[[str], Any] | None = None
    write: Callable[[Any], str] = str


class RangeSetting:
    """The base of range settings: frozen dataclasses, called with a tensor's blocks to find their ranges.

    ``option``: what links call it; ``label``: what pages call it, if not the same; ``about``: what it finds
    the range by, for a list of all; ``controls``: for its arguments; ``usual``: the arguments with which it
    is listed, empty if it can't be used without further input.

    What it does: ``ends_are_elements``: from a block's lowest to its highest element; ``ends_are_given``: the
    same range for any elements; ``gives_parameters``: scale and zero_point themselves, and no range;
    ``searches_codes``: the codes together with the scale, and no range; ``moves_zero_point``: after the
    convention computed it from the range.

    What it knows beyond that: ``given_scales``, ``given_zero_points``: the numbers in its text, none where
    they are computed or in a file; ``is_per_block``: whether these are of the blocks of one tensor;
    ``num_bytes``: what the tensor takes in the files that it was read from, 0 for any other;
    ``takes_importance``: whether it weighs elements.
    """

    option: ClassVar[str]
    label: ClassVar[str] = ""
    about: ClassVar[str]
    controls: ClassVar[tuple[Control, ...]] = ()
    usual: ClassVar[tuple[tuple[Any, ...], ...]] = ()
    ends_are_elements: ClassVar[bool] = False
    ends_are_given: ClassVar[bool] = False
    gives_parameters: ClassVar[bool] = False
    searches_codes: ClassVar[bool] = False
    moves_zero_point: ClassVar[bool] = False
    num_bytes: int = 0

    def __call__(self, blocks: Tensor, task: Task) -> Range:
        """Return (low, high), one number per block.

        Args:
            blocks: float32, (number of blocks, elements of a block).
        """
        raise NotImplementedError

    @property
    def title(self) -> str:
        """What a person would call it with these arguments; its text form is that of schemes."""
        text = write_call(self)
        return text if "(" in text else self.label or self.option

    @property
    def given_scales(self) -> tuple[float, ...]:
        """The scales in its text."""
        return ()

    @property
    def given_zero_points(self) -> tuple[float, ...]:
        """The zero points in its text."""
        return ()

    @property
    def is_per_block(self) -> bool:
        """Whether it gives a number for each block of one tensor."""
        return False

    @property
    def takes_importance(self) -> bool:
        """Whether it weighs elements by their importance."""
        return False

    @property
    def wider(self) -> "tuple[RangeSetting, ...]":
        """Settings of its kind that clip less."""
        return ()

    def quicker(self, blocks: int) -> "RangeSetting | None":
        """Return itself or a coarser setting that is quick for so many blocks; None if there is none."""
        return self

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> "RangeSetting":
        """Return the setting for the values of its controls, by their keys.

        Raises:
            QuantError: a value is not valid.
        """
        arguments = {c.argument: c.read(values[c.key]) if c.read else values[c.key] for c in cls.controls}
        return cls(**arguments)

    def choices(self) -> dict[str, Any]:
        """Return the values of the controls for this setting, by their keys.

        Raises:
            QuantError: they can't represent an argument.
        """
        found = {}
        for control in self.controls:
            value = getattr(self, control.argument)
            if control.low is not None and value < control.low:
                raise QuantError(
                    f"The {control.label.lower()} here must be at least {control.low}, not {value}."
                )
            found[control.key] = control.write(value) if control.read else value
        there = {control.argument for control in self.controls}
        for other in fields(self):  # type: ignore[arg-type]
            if other.name not in there and getattr(self, other.name) != other.default:
                raise QuantError(
                    f"{other.name} of {snake_case(type(self).__name__)} can't be set here; leave it out."
                )
        return found


def parts(blocks: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield pieces of at most `CHUNK` elements, whole blocks if they fit, with the slice of their blocks."""
    n, size = blocks.shape
    rows, columns = max(1, CHUNK // size), min(size, CHUNK)
    for row in range(0, n, rows):
        for column in range(0, size, columns):
            yield slice(row, row + rows), blocks[row : row + rows, column : column + columns]
