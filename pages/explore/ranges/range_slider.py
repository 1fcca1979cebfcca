"""The scheme's fixed range: typed, set by slider, or dragged across the histogram."""

import math
from typing import Any

import streamlit as st

import quantcore as qc
from pages.shared import messages
from pages.shared.state import link, mirrored
from pages.sidebar import range_controls

_LOW, _HIGH, _SLIDER, CHART = "rng_low", "rng_high", "rng_slider", "rng_histogram"
_STEPS = 200  # of the slider, approximately
_MARGIN = 1.25  # extent of the slider beyond the elements, as a factor
_FLOAT32_MAX = 3.4e38


def draw(bounds: tuple[float, float], extremes: tuple[float, float], symmetric: bool) -> None:
    """Draw two numbers and a slider at ``bounds``; if symmetric, one number, since low is -high.

    Args:
        extremes: the lowest and the highest element.
    """
    low, high = (_rounded(end) for end in bounds)
    if symmetric:
        high = max(abs(low), abs(high))
        low, bottom = -high, 0.0
        top = max(map(abs, (*extremes, high)))
        top = _limited(top * _MARGIN) or 1.0
    else:
        bottom, top = min(extremes[0], low), max(extremes[1], high)
        margin = (_MARGIN - 1) * (top / 2 - bottom / 2) or abs(top) or 1.0
        bottom, top = _limited(bottom - margin), _limited(top + margin)
    step = _step(top / _STEPS - bottom / _STEPS)
    bottom, top = _rounded(math.floor(bottom / step) * step), _rounded(math.ceil(top / step) * step)
    # these widgets mirror the range in use; a visitor's change is written to the scheme's controls
    at_high = mirrored.key_at(_HIGH, high)
    at_low = "" if symmetric else mirrored.key_at(_LOW, low)
    number: dict[str, Any] = {"step": step, "format": "%g", "on_change": _typed}
    columns = st.columns([1, 4] if symmetric else [1, 1, 4], vertical_alignment="bottom")
    if not symmetric:
        columns[0].container(key=_LOW).number_input("Low", key=at_low, args=(_LOW, at_low, at_high), **number)
    help_ = "The largest |x| that is not clipped; low is its negative" if symmetric else None
    label = "± High" if symmetric else "High"
    keys = (_HIGH, at_low, at_high)
    columns[-2].container(key=_HIGH).number_input(label, key=at_high, args=keys, help=help_, **number)
    at_slider = mirrored.key_at(_SLIDER, high if symmetric else (low, high))
    columns[-1].container(key=_SLIDER).slider(
        "Range",
        bottom,
        top,
        step=step,
        format="%.4g",
        key=at_slider,
        on_change=_slid,
        args=(at_slider, step),
        help="Moving it sets the range of the scheme in the sidebar to fixed; your browser's Back button undoes it.",
    )


def use(setting: qc.RangeSetting) -> None:
    """Set the scheme's range setting (a callback)."""
    try:
        link.put(range_controls.choices_of(setting))
    except qc.QuantError as error:
        messages.error(str(error))


def dragged(symmetric: bool) -> None:
    """Use the range dragged across the histogram (a callback)."""
    boxes = st.session_state[CHART]["selection"]["box"]
    if boxes:
        low, high = sorted(_rounded(x) for x in boxes[0]["x"])
        if symmetric:
            high = max(abs(low), abs(high))
            low = -high
        if low < high:
            use(qc.Fixed(low, high))


def _typed(name: str, at_low: str, at_high: str) -> None:
    """Use the numbers as typed; the sidebar reports an invalid range."""
    if not mirrored.typed(name, at_low if name == _LOW else at_high):
        return
    high = st.session_state[at_high]
    low = st.session_state[at_low] if at_low else -high
    link.put({"range": "fixed", "low": low, "high": high})


def _slid(key: str, step: float) -> None:
    if not mirrored.typed(_SLIDER, key):
        return
    place = st.session_state[key]
    low, high = place if isinstance(place, tuple | list) else (-max(place, step), max(place, step))
    low, high = _rounded(low), _rounded(high)
    use(qc.Fixed(low, high if low < high else _rounded(low + step)))


def _step(width: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten up to a width."""
    power = 10.0 ** math.floor(math.log10(max(width, 1e-300)))
    return next(_rounded(n * power) for n in (5, 2, 1, 0.5) if n * power <= width * (1 + 1e-9))


def _rounded(x: float) -> float:
    """Round to six significant digits."""
    return float(f"{x:.6g}")


def _limited(x: float) -> float:
    return min(max(x, -_FLOAT32_MAX), _FLOAT32_MAX)
