"""The ends of the range, which are dragged in a histogram."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

import quantcore as qc
from pages.shared.state import link
from pages.shared.state.selection import ENDS, VALUE, Controls, Current, Move, Moved
from pages.sidebar import followed, granularities, scheme_state


def stand(result: qc.Quantized, block: tuple[int, ...] | None) -> Controls:
    """Return where the ends of the range stand, under `ENDS`; nothing if a search of codes finds them.

    Args:
        block: whose range it is; None for the mean over all blocks.
    """
    if result.scheme.range_setting.searches_codes:
        return {}
    low, high = (float(f"{end:.6g}") for end in qc.range_in_use(result, block))
    return {ENDS: (max(abs(low), abs(high)),) if result.scheme.symmetric else (low, high)}


def followed_too(current: Current, result: qc.Quantized, block: tuple[int, ...] | None) -> Current:
    """Return what a page shows, to be followed with the ends of the range, too, as `stand` has them."""
    if current.move is None or not current.controls:
        return current
    controls = {**current.controls, **stand(result, block)}
    return replace(current, controls=controls, move=partial(_moved, current.move))


def keep(typed: str) -> tuple[float, float]:
    """Set the range of the scheme to the ends that were dragged, and return them (for callbacks)."""
    setting = _fixed(places(typed, 1 + ("," in typed)))
    link.put(scheme_state.range_choices(setting))
    return setting.low, setting.high


def _moved(others: Move, current: Current, values: Mapping[str, str]) -> Moved:
    """Return as ``others``; moved ends fix the range."""
    found = others(current, {key: value for key, value in values.items() if key != ENDS})
    if ENDS not in values:
        return found
    ends = places(values[ENDS], len(current.controls.get(ENDS, ())))
    scheme = replace(found.scheme, range_setting=_fixed(ends))
    per = granularities.chosen(found.controls)
    controls = followed.controls(found.tensor, scheme, found.controls.get(VALUE), per)
    return found._replace(scheme=scheme, controls={**found.controls, **controls, ENDS: ends})


def _fixed(ends: tuple[float, ...]) -> qc.Fixed:
    return qc.Fixed(-ends[0], ends[0]) if len(ends) == 1 else qc.Fixed(*ends)


def places(typed: str, count: int) -> tuple[float, ...]:
    """Read the ends of a range, or the upper one where the other is its negative.

    Raises:
        QuantError: the text is not that.
    """
    words = typed[:200].split(",")
    try:
        ends = tuple(map(float, words))
    except ValueError:
        ends = ()
    if len(ends) != count or not all(abs(end) <= float(np.finfo(np.float32).max) for end in ends):
        wanted = "one number" if count == 1 else "two numbers such as -1,2"
        raise qc.QuantError(f"The range must be {wanted} within float32, not {typed[:40]!r}.")
    return ends
