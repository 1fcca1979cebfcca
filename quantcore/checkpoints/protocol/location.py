"""Where an element of a weight lies in its files."""

from collections.abc import Mapping
from dataclasses import dataclass

from quantcore.checkpoints.protocol.fields import Place


@dataclass(frozen=True)
class Location:
    """Where an element lies: its code, and each parameter that its value is computed from.

    ``parameters``: by the role of the field: "scale", "zero_point", "global_scale", ...
    """

    code: Place
    parameters: Mapping[str, Place]

    @property
    def file(self) -> str:
        """The file that holds the code."""
        return self.code.file

    @property
    def offset(self) -> int:
        """The first byte in the file that holds some of the code."""
        return self.code.offset

    @property
    def bits(self) -> tuple[tuple[int, int], ...]:
        """(byte, bit) of each bit of the code, the lowest first; see `Place`."""
        return self.code.bits

    @property
    def scale(self) -> tuple[Place, ...]:
        """The scale, or all that it is computed from."""
        return tuple(p for role, p in self.parameters.items() if "scale" in role or "nested" in role or role == "d")

    @property
    def zero_point(self) -> Place | None:
        """The zero point, if one is stored."""
        return self.parameters.get("zero_point")

    @property
    def min(self) -> Place | None:
        """The minimum, or its code in a sub-block, if one is stored."""
        return next((self.parameters[role] for role in ("min", "min_code", "m") if role in self.parameters), None)
