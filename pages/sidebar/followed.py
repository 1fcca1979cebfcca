"""The controls that the maps follow while they are dragged, and what the sidebar shows with one moved."""

from collections.abc import Mapping
from dataclasses import replace

import quantcore as qc
from pages.shared.state.selection import Controls, Current, Moved
from quantcore.formats import MAX_BITS, MIN_BITS

BITS = "bits"


def controls(scheme: qc.Scheme | None) -> Controls:
    """Return what the followed controls stand at, by key; those that are not drawn are missing."""
    if scheme is None or not isinstance(scheme.format, qc.IntFormat):
        return {}
    return {BITS: (scheme.format.bits,)}


def moved(current: Current, values: Mapping[str, str]) -> Moved:
    """Return tensor, scheme and `controls` after controls were moved to these values, by key.

    Raises:
        QuantError: no such control is followed, or it does not have such a value.
    """
    tensor, scheme = current.tensor, current.scheme
    if tensor is None or scheme is None:
        raise qc.QuantError("There is no tensor with a scheme to show.")
    for key, typed in values.items():
        if key not in current.controls:
            raise qc.QuantError(f"{key[:40]!r} is not a control that the maps follow here.")
        assert isinstance(scheme.format, qc.IntFormat)
        scheme = replace(scheme, format=replace(scheme.format, bits=_bits(typed)))
    return tensor, scheme, controls(scheme)


def _bits(typed: str) -> int:
    if not typed.isdecimal() or not MIN_BITS <= int(typed[:3]) <= MAX_BITS or len(typed) > 2:
        raise qc.QuantError(f"Bits must be an integer from {MIN_BITS} to {MAX_BITS}, not {typed[:40]!r}.")
    return int(typed)
