"""Entries of a config file, which may contain anything.

Regular expressions that match module names come from a file, so their time is bounded.
"""

import re
import time
from collections.abc import Callable, Container, Mapping
from typing import Any

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.statement import Facts, Statement, named
from quantcore.errors import QuantError
from quantcore.wording import short

Config = Mapping[str, Any]
LENGTHS = range(1, 2**31)  # of blocks, groups and axes, as a config may give them
_SECONDS = 5.0  # for all patterns of a config
_REPEATS = re.compile(r"[*+}]")
_NESTED = re.compile(r"[*+}]\??\)[*+{]")


def _setting(config: Config, key: str, is_valid: Callable[[Any], bool], trouble: str) -> Any:
    value = config.get(key)
    if value is None or is_valid(value):
        return value
    raise QuantError(f"The config says {key} {short(str(value))}{trouble}")


def integer(config: Config, key: str, allowed: Container[int]) -> int | None:
    """Return an integer of the config, None if it is absent or null.

    Raises:
        QuantError: it is not an integer, or not one of ``allowed``.
    """
    trouble = ", which has no reader here; correct the config."
    found: int | None = _setting(config, key, lambda n: type(n) is int and n in allowed, trouble)
    return found


def text(config: Config, key: str) -> str | None:
    """Return a text of the config, None if it is absent or null.

    Raises:
        QuantError: it is not text.
    """
    found: str | None = _setting(
        config, key, lambda text: isinstance(text, str), ", which is not text; correct the config."
    )
    return found


def flag(config: Config, key: str) -> bool | None:
    """Return a yes or no of the config, which some libraries write as 1 or 0; None if it is absent or null.

    Raises:
        QuantError: it is neither.
    """
    trouble = ", which is not true or false; correct the config."
    found = _setting(config, key, lambda n: type(n) in (bool, int) and n in (0, 1), trouble)
    return None if found is None else bool(found)


def section(config: Config, key: str) -> Config:
    """Return an object of the config, an empty one if it is absent or something else."""
    value = config.get(key)
    return value if isinstance(value, dict) else {}


# layers whose inputs are the hidden state
FROM_HIDDEN = (
    "q_proj", "k_proj", "v_proj", "qkv_proj", "gate_proj", "up_proj", "gate_up_proj", "lm_head", "fc1",
)  # fmt: skip


def hidden_size(config: Config) -> int | None:
    """Return the length of a model's hidden state, of its text part if it has others; None if not said."""
    return integer(section(config, "text_config") or config, "hidden_size", LENGTHS)


def group_size(
    config: Config, keys: tuple[str, ...], columns: int, groups: int, scales: StoredTensor
) -> tuple[int, tuple[Statement, ...]]:
    """Return the columns per group, and a remark if the scales, which count, contradict the config.

    Args:
        keys: the config's possible keys for the group size; -1 or 0 means one group.
        groups: the number of groups that ``scales`` has scales for.

    Raises:
        QuantError: the number of groups fits neither the config nor equal groups.
    """
    said = next((s for key in keys if (s := integer(config, key, range(-1, 2**31))) is not None), None)
    size = columns if said is not None and said < 1 else said
    if groups > 0 and size and -(-columns // size) == groups:
        return size, ()
    if groups < 1 or columns % groups:
        given = "no group_size" if said is None else f"group_size {said}"
        raise QuantError(
            f"The config has {given} for {columns} inputs, but {named(scales.name)} has shape "
            f"{scales.shape}, which "
            "does not give equal groups; the file does not fit its config."
        )
    size = columns // groups
    if said is None:
        return size, ()
    facts: Facts = {
        "said": said,
        "size": size,
        "columns": columns,
        "shape": scales.shape,
        "scales": scales.name.rpartition(".")[2],
    }
    words = (
        "{has} group_size {said} according to the config, but the {scales} shape {shape} makes groups of "
        "{size} for {columns} inputs; groups of {size} are used."
    )
    return size, (Statement("config_contradicted", "error", words, facts),)


def lengths(config: Config, key: str, count: int) -> tuple[int, ...] | None:
    """Return a list of lengths of the config, None if it is absent or null.

    Raises:
        QuantError: it is not ``count`` positive integers.
    """

    def is_valid(found: Any) -> bool:
        is_list = isinstance(found, list) and len(found) == count
        return is_list and all(type(n) is int and n in LENGTHS for n in found)

    found = _setting(config, key, is_valid, f"; write a list of {count} positive integers.")
    return None if found is None else tuple(found)


class Patterns:
    """Matches regular expressions against module names, and keeps track of the time spent."""

    def __init__(self) -> None:
        self._spent = 0.0

    def matches(self, pattern: str, module: str) -> bool:
        """Tell whether a pattern matches a name from its start.

        Raises:
            QuantError: the pattern can't be read, or all of them take too long.
        """
        # nested repeats, or many in a row, can take time exponential in the length of the name
        if len(pattern) > 1000 or len(module) > 1000 or _NESTED.search(pattern):
            raise QuantError(
                f"The pattern {short(pattern)} of the config is too complex; write a simpler one."
            )
        if len(_REPEATS.findall(pattern)) > 4 or self._spent > _SECONDS:
            raise QuantError(
                f"The patterns of the config, such as {short(pattern)}, can take too long; simplify them."
            )
        start = time.perf_counter()
        try:
            return re.match(pattern, module) is not None
        except (re.error, RecursionError, OverflowError):
            raise QuantError(
                f"The pattern {short(pattern)} of the config can't be read; correct it."
            ) from None
        finally:
            self._spent += time.perf_counter() - start
