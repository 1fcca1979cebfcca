"""Entries of a config file, which may hold anything."""

from collections.abc import Container, Mapping
from typing import Any

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
