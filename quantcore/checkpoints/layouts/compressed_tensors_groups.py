"""``config_groups``: how the weights of groups of modules are quantized."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.config import LENGTHS, flag, integer, section, text
from quantcore.checkpoints.protocol.patterns import Patterns
from quantcore.errors import QuantError
from quantcore.wording import short

# QuantizationArgs.actorder: only these write weight_g_idx; "weight" and "static" leave columns in their order
_WITH_INDEX = ("group", "dynamic", True)
# CompressionFormat -> what holds the codes, and its dtypes; quantized weights have no other format
_INTEGERS, _FLOATS = ("I8",), ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
FORMATS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "int-quantized": ("weight", _INTEGERS),
    "float-quantized": ("weight", _FLOATS),
    "naive-quantized": ("weight", _INTEGERS + _FLOATS),
    "mxfp8-quantized": ("weight", _FLOATS),
    "pack-quantized": ("weight_packed", ("I32",)),
    "marlin-24": ("weight_packed", ("I32",)),
    "nvfp4-pack-quantized": ("weight_packed", ("U8",)),
    "mxfp4-pack-quantized": ("weight_packed", ("U8",)),
    "mxfp6-pack-quantized": ("weight_packed", ("U8",)),
}
MIXED = ("", "dense", "mixed-precision")  # each group has its own, or the stored tensors tell
STRATEGIES = ("tensor", "channel", "group", "block", "tensor_group")  # those of weights


@dataclass(frozen=True)
class Group:
    """The weights of a group of modules.

    ``targets``: names, classes or patterns (``re:...``); ``format``: such as ``pack-quantized``; ``group_size``: None
    or -1 without groups; ``block``: rows and columns of a block.
    """

    targets: tuple[str, ...]
    format: str
    bits: int
    kind: str
    symmetric: bool
    strategy: str
    group_size: int | None
    block: tuple[int, int] | None
    activation_order: bool

    def check(self, module: str) -> None:
        """Check that the library has such a format and strategy.

        Raises:
            QuantError: it has not.
        """
        for what, given, known in (
            ("format", self.format, (*FORMATS, *MIXED)),
            ("strategy", self.strategy, STRATEGIES),
        ):
            if given not in known:
                raise QuantError(
                    f"The config gives {named(module)} the {what} {short(given)}, which compressed-tensors does not "
                    f"have for weights; it is one of {', '.join(k for k in known if k)}."
                )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The settings that determine how its weights are read."""
        return (self.format, self.bits, self.kind, self.symmetric, self.strategy, self.group_size, self.block)


def read_groups(config: Mapping[str, Any]) -> tuple[Group, ...]:
    """Return the groups of a quantization_config that quantize weights.

    Raises:
        QuantError: an entry has the wrong type, or an integer is out of range.
    """
    own = text(config, "format") or ""
    found = []
    for group in section(config, "config_groups").values():
        weights = section(group, "weights") if isinstance(group, dict) else {}
        if not weights:
            continue
        targets = group.get("targets")
        size = integer(weights, "group_size", range(-1, 2**31))
        found.append(
            Group(
                tuple(t for t in targets if isinstance(t, str)) if isinstance(targets, list) else (),
                text(group, "format") or own,
                integer(weights, "num_bits", range(1, 17)) or 8,
                text(weights, "type") or "int",
                flag(weights, "symmetric") is not False,
                text(weights, "strategy") or ("group" if size and size > 0 else "tensor"),
                size,
                _block(weights.get("block_structure")),
                weights.get("actorder") in _WITH_INDEX,
            )
        )
    return tuple(found)


def _block(value: Any) -> tuple[int, int] | None:
    if isinstance(value, str):  # as in old configs
        value = [int(part) if part.isdecimal() else part for part in value.split("x")[:3]]
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(type(n) is int and n in LENGTHS for n in value):
        return value[0], value[1]
    raise QuantError(
        f"The config says block_structure {short(str(value))}; write two lengths, such as [128, 128]."
    )


class Matcher:
    """Chooses the group of a module among several."""

    def __init__(self) -> None:
        self._patterns = Patterns()

    def choose(self, module: str, groups: tuple[Group, ...]) -> Group:
        """Return the group whose targets name the module, else the first.

        Raises:
            QuantError: a pattern of the config takes too long to match, or is invalid.
        """
        if len({group.arguments for group in groups}) == 1:
            return groups[0]
        # in the library's order: exact names, then patterns; no file contains the classes of modules
        for matches in (lambda target: target == module, partial(self._matches, module)):
            for group in groups:
                if any(matches(target) for target in group.targets):
                    return group
        return groups[0]

    def _matches(self, module: str, target: str) -> bool:
        return target.startswith("re:") and self._patterns.matches(target[3:], module)
