"""The properties of a scheme that its convention's choices depend on."""

from collections.abc import Iterator
from typing import Any

from quantcore.conventions import Case
from quantcore.granularity import PerFlatGroup
from quantcore.range_setting import Given, HalfQuadratic, MinMax, Search, Stored
from quantcore.scheme.scheme import Scheme


def case_of(scheme: Scheme) -> Case:
    """Return the plain values from which the sentences and formulas of a convention are computed."""
    setting, stored = scheme.range_setting, scheme.scales
    # a file's parameters may be millions
    written = setting if isinstance(setting, Given) and not isinstance(setting, Stored) else None
    return Case(
        rules=scheme.rules,
        fmt=scheme.format,
        symmetric=scheme.symmetric,
        flat=isinstance(scheme.granularity, PerFlatGroup),
        ranged=not isinstance(setting, Given),
        min_max=isinstance(setting, MinMax),
        half_quadratic=isinstance(setting, HalfQuadratic),
        searched=isinstance(setting, Search),
        scales=() if written is None else tuple(_numbers(written.scale)),
        zero_points=() if written is None else tuple(_numbers(written.zero_point)),
        stored=None if stored is None else stored.format,
        stored_in_units=stored is not None and stored.range_setting == Given(1.0),
    )


def _numbers(value: Any) -> Iterator[float]:
    """Iterate over the numbers in nested tuples."""
    if isinstance(value, tuple):
        for inner in value:
            yield from _numbers(inner)
    else:
        yield value
