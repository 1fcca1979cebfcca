"""The properties of a scheme that its convention's choices depend on."""

from collections.abc import Iterator
from typing import Any

from quantcore.conventions import Case
from quantcore.granularity import PerFlatGroup
from quantcore.range_setting import Given, HalfQuadratic, MinMax, Search
from quantcore.scheme.scheme import Scheme


def case_of(scheme: Scheme) -> Case:
    """Return the plain values from which the sentences and formulas of a convention are computed."""
    setting, stored = scheme.range_setting, scheme.scales
    given = isinstance(setting, Given)
    return Case(
        rules=scheme.rules,
        fmt=scheme.format,
        symmetric=scheme.symmetric,
        flat=isinstance(scheme.granularity, PerFlatGroup),
        ranged=not given,
        min_max=isinstance(setting, MinMax),
        half_quadratic=isinstance(setting, HalfQuadratic),
        searched=isinstance(setting, Search),
        scales=tuple(_numbers(setting.scale)) if isinstance(setting, Given) else (),
        zero_points=tuple(_numbers(setting.zero_point)) if isinstance(setting, Given) else (),
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
