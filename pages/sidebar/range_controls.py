"""Controls for the range setting and its arguments, which the range settings themselves describe."""

from typing import Any

import streamlit as st

import quantcore as qc
from pages.shared.state import choice
from quantcore.range_setting import RANGE_SETTINGS, Control

_BIND: dict[str, Any] = {"bind": "query-params"}
# by option; ggml's searches are one option, and which one is typed
KINDS = {kind.option: kind for kind in RANGE_SETTINGS.values()}
LABELS = {kind.option: kind.label or kind.option for kind in RANGE_SETTINGS.values()}
# keys of the controls, which are parameters of the link
DEFAULTS: dict[str, Any] = {"range": qc.MinMax.option} | {
    control.key: control.default for kind in KINDS.values() for control in kind.controls
}
_ABOUT = list(dict.fromkeys(kind.about for kind in RANGE_SETTINGS.values()))
_HELP = f"How to find the range that the codes span: {', '.join(_ABOUT[:-1])}, or {_ABOUT[-1]}."


def draw() -> qc.RangeSetting:
    """Draw the controls and return the range setting.

    Raises:
        QuantError: the input is not a valid range setting.
    """
    kind = KINDS[choice.selectbox("Range", "range", LABELS, help=_HELP)]
    places = st.columns(len(kind.controls)) if len(kind.controls) > 1 else [st]
    values = {control.key: _draw(place, control) for place, control in zip(places, kind.controls, strict=False)}
    return kind.chosen(values)


def _draw(place: Any, control: Control) -> Any:
    common: dict[str, Any] = {"key": control.key, "help": control.help, **_BIND}
    if isinstance(control.default, str):
        return place.text_input(control.label, control.default, **common)
    bounds = control.low, control.high
    return place.number_input(
        control.label, *bounds, control.default, step=control.step, format=control.format, **common
    )


def choices_of(setting: qc.RangeSetting) -> dict[str, Any]:
    """Return the values of the range controls for a range setting.

    Raises:
        QuantError: a control can't represent a value.
    """
    return {"range": setting.option, **setting.choices()}
