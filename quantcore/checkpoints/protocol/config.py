"""Entries of a config file, which may hold anything."""

from collections.abc import Container, Mapping
from typing import Any

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.errors import QuantError
from quantcore.tensors import short


def integer(config: Mapping[str, Any], key: str, allowed: Container[int]) -> int | None:
    """Return an integer of the config, None if it is absent or null.

    Raises:
        QuantError: it is not an integer, or not one of ``allowed``.
    """
    value = config.get(key)
    if value is None:
        return None
    if type(value) is not int or value not in allowed:
        raise QuantError(
            f"The config says {key} {short(str(value))}, which has no reader here; correct the config."
        )
    return value


def text(config: Mapping[str, Any], key: str) -> str | None:
    """Return a text of the config, None if it is absent or null.

    Raises:
        QuantError: it is not a text.
    """
    value = config.get(key)
    if value is None or isinstance(value, str):
        return value
    raise QuantError(f"The config says {key} {short(str(value))}, which is not a text; correct the config.")


def section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object of the config, an empty one if it is absent or something else."""
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def group_size(
    config: Mapping[str, Any], keys: tuple[str, ...], columns: int, groups: int, scales: StoredTensor
) -> int:
    """Return the columns of a group, as the config says, or as the shape of the scales does.

    Raises:
        QuantError: the config and the scales contradict each other.
    """
    said = next((s for key in keys if (s := integer(config, key, range(-1, 2**31))) is not None), None)
    size = columns if said is not None and said < 1 else said or -(-columns // max(1, groups))
    if groups < 1 or -(-columns // size) != groups:
        raise QuantError(
            f"The config says group_size {said}, which makes {-(-columns // size)} groups of {columns} inputs, but "
            f"{short(scales.name, 120)} has shape {scales.shape}; correct the config."
        )
    return size
