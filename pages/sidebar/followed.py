"""The controls that the maps follow as they are moved, and what the sidebar shows with one moved.

A choice between options is at the place of the chosen one, as a granularity in its list: 0, 1. `VALUE` is not
in the sidebar: it is the cell of the original whose value is dragged.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import quantcore as qc
from pages.shared.state.selection import VALUE, Controls, Current, Moved, PageTensor, generated
from pages.sidebar import changed, granularities
from pages.sidebar.scheme_state import CODES, SYMMETRY
from quantcore.formats import MAX_BITS, MIN_BITS
from quantcore.range_setting import Control

BITS, SEED = "bits", "seed"


def controls(
    tensor: PageTensor | None, scheme: qc.Scheme | None, value: tuple[float, ...] | None, per: str
) -> Controls:
    """Return what the followed controls stand at, by key; those that are not drawn are missing.

    Args:
        value: index and value that were dragged last, as `changed.last`; None if none can be.
        per: the option chosen in the list of granularities.
    """
    if tensor is None or scheme is None:
        return {}
    fmt, found = scheme.format, {**_numbers(scheme.range_setting), **_generators(tensor)}
    found |= granularities.controls(scheme.granularity, per, tensor.shape)
    if value is not None:
        found[VALUE] = value
    if isinstance(fmt, qc.IntFormat):
        found |= {BITS: (fmt.bits,), "codes": (int(not fmt.signed),), "mode": (int(not scheme.symmetric),)}
    return found


def _numbers(setting: qc.RangeSetting) -> dict[str, tuple[float, ...]]:
    """Return the numbers of a range setting as their fields show them: some round."""
    numbers = {control.key: control for control in setting.controls if not isinstance(control.default, str)}
    values = setting.choices() if numbers else {}
    return {
        key: (float(control.format % values[key]) if control.format == "%.3f" else values[key],)
        for key, control in numbers.items()
    }


def moved(current: Current, values: Mapping[str, str]) -> Moved:
    """Return tensor, scheme and `controls` after controls were moved to these values, by key.

    Raises:
        QuantError: no such control is followed, or it does not have such a value.
    """
    tensor, scheme, element = current.tensor, current.scheme, None
    if tensor is None or scheme is None:
        raise qc.QuantError("There is no tensor with a scheme to show.")
    own, value = _generators(tensor), current.controls.get(VALUE)
    for key, typed in values.items():
        if key not in current.controls:
            raise qc.QuantError(f"{key[:40]!r} is not a control that the maps follow here.")
        if key == VALUE:
            tensor, element, value = changed.moved(tensor, typed)
        elif key in own:
            tensor = _regenerated(tensor, key, typed)
            value = value and changed.nothing(tensor)
        elif key not in granularities.KEYS:
            scheme = _with(scheme, key, typed)
    granularity, per = granularities.moved(scheme, tensor.shape, values, current.controls)
    scheme = replace(scheme, granularity=granularity)
    return Moved(tensor, scheme, controls(tensor, scheme, value, per), element)


def _generators(tensor: PageTensor) -> dict[str, tuple[float, ...]]:
    """Return seed and parameters of a generated tensor; fields show six digits of the latter."""
    spec = (tensor.source or tensor).spec
    if spec is None:
        return {}
    return {SEED: (spec.seed,)} | {
        f"{spec.distribution}_{name}": (float(f"{value:g}"),) for name, value in spec.values().items()
    }


def _regenerated(tensor: PageTensor, key: str, typed: str) -> PageTensor:
    """Return a generated tensor with another seed or parameter.

    Raises:
        QuantError: its distribution does not have such a value.
    """
    spec = (tensor.source or tensor).spec
    assert spec is not None
    try:
        number = int(typed[:40]) if key == SEED else float(typed[:40])
    except ValueError:
        raise qc.QuantError(f"{typed[:40]!r} is not a number that {key} can be; type another.") from None
    if key == SEED:
        spec = replace(spec, seed=int(number))
    else:
        chosen = spec.values() | {key.removeprefix(f"{spec.distribution}_"): number}
        spec = replace(spec, parameters=tuple(chosen.items()))
    return generated(spec).in_dtype(tensor.dtype)


def _with(scheme: qc.Scheme, key: str, typed: str) -> qc.Scheme:
    fmt, setting = scheme.format, scheme.range_setting
    for control in setting.controls:
        if control.key == key:
            return replace(
                scheme, range_setting=setting.chosen({**setting.choices(), key: _number(control, typed)})
            )
    assert isinstance(fmt, qc.IntFormat)
    match key:
        case "codes":
            return replace(scheme, format=replace(fmt, signed=_option("Codes", CODES, typed) == CODES[0]))
        case "mode":
            return replace(scheme, symmetric=_option("Symmetry", SYMMETRY, typed) == SYMMETRY[0])
    return replace(scheme, format=replace(fmt, bits=_bits(typed)))


def _number(control: Control, typed: str) -> float:
    integer = isinstance(control.default, int)
    try:
        number = int(typed[:40]) if integer else float(typed[:40])
    except ValueError:
        number = math.nan
    low = -math.inf if control.low is None else control.low
    high = math.inf if control.high is None else control.high
    if not low <= number <= high or math.isinf(number):
        wanted = "an integer" if integer else "a number"
        if math.isfinite(low):
            wanted += f" from {low:g} to {high:g}"
        raise qc.QuantError(f"{control.label} must be {wanted}, not {typed[:40]!r}.")
    return number


def _option(name: str, options: tuple[str, str], typed: str) -> str:
    if typed not in ("0", "1"):
        raise qc.QuantError(f"{name} must be 0 ({options[0]}) or 1 ({options[1]}), not {typed[:40]!r}.")
    return options[int(typed)]


def _bits(typed: str) -> int:
    if not typed.isdecimal() or not MIN_BITS <= int(typed[:3]) <= MAX_BITS or len(typed) > 2:
        raise qc.QuantError(f"Bits must be an integer from {MIN_BITS} to {MAX_BITS}, not {typed[:40]!r}.")
    return int(typed)
