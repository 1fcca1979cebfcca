"""The choices of the page: the activations, how they are quantized, the bias, the output that is shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np
import streamlit as st

import quantcore as qc
from pages.maps.places import index_text, integers
from pages.outputs.layer import keys
from pages.shared import messages
from pages.shared.large import is_large
from pages.shared.state import choice
from pages.shared.state.selection import NoTensorYet
from pages.sidebar import activations
from pages.sidebar.activations import GivenActivations
from quantcore import tensors
from quantcore.outputs import LayerOutput

T = TypeVar("T")
PER = {
    "tensor": "per tensor",
    "token": "per token",
    "group": "per group",
    "none": "not quantized",
}
FORMATS = {
    "int8": "int8 symmetric",
    "uint8": "uint8 asymmetric",
    "int4": "int4 symmetric",
    "uint4": "uint4 asymmetric",
    "e4m3fn": "e4m3fn",
}
SCALES = {"dynamic": "dynamic", "static": "static"}
RANGES = {
    "min_max": "min-max",
    "moving": "moving average",
    "percentile": "percentile",
    "entropy": "entropy",
    "mse": "MSE",
}
_SETTINGS = {"min_max": "min_max", "moving": "min_max", "entropy": "entropy", "mse": "min_mse"}


def _px(width: int) -> int:
    """Return the width of a control that its text fits, also where type is large."""
    return round(1.5 * width) if is_large() else width


@dataclass(frozen=True)
class ActivationChoice:
    """How activations are quantized.

    ``scheme``: before static scales are found; None if they are not quantized. ``batches``: how many batches
    static scales are found on, 0 if scales are dynamic; ``averaging``: of these, as in
    `quantcore.outputs.calibrate`.
    """

    scheme: qc.Scheme | None
    batches: int = 0
    averaging: float | None = None

    def __str__(self) -> str:
        return f"{self.scheme} {self.batches} {self.averaging}"


@dataclass(frozen=True)
class Choices:
    """What a visitor has chosen besides w and its scheme. ``bias``: one number per output, or None."""

    given: GivenActivations
    activation: ActivationChoice
    bias: np.ndarray | None


def draw(shape: tuple[int, ...]) -> Choices:
    """Draw all controls in one row, for w of a shape.

    Raises:
        NoTensorYet: there are no activations yet.
        QuantError: a choice is not valid.
    """
    rows, columns = shape if len(shape) == 2 else (1, 1)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="ly_controls"):
        with _later() as given:
            given.value = activations.popover(columns)
        with _later() as activation:
            activation.value = _activation(columns)
        with _later() as bias:
            bias.value = _bias(rows)
        _output()
    return Choices(given.get(), activation.get(), bias.get())


@dataclass
class _Drawn(Generic[T]):
    """What a control gave, or why it gave nothing."""

    value: T | None = None
    problem: Exception | None = None

    def get(self) -> T:
        if self.problem is not None:
            raise self.problem
        return cast(T, self.value)


@contextmanager
def _later() -> Iterator[_Drawn[Any]]:
    """Hold back an error until all controls are drawn: Streamlit drops the values of those that are not."""
    drawn = _Drawn[Any]()
    try:
        yield drawn
    except (NoTensorYet, qc.QuantError) as problem:
        drawn.problem = problem


def _activation(columns: int) -> ActivationChoice:
    """Draw how x is quantized; return it."""
    help_ = (
        "How many numbers of x share a scale: all, those of a token (a row), or a group of a token's inputs"
    )
    per = choice.selectbox("Quantize x", keys.PER, PER, help=help_, width=_px(150))
    if per == "none":
        return ActivationChoice(None)
    typed = choice.selectbox(
        "Format of x",
        keys.FORMAT,
        FORMATS,
        accept_new_options=True,
        width=_px(170),
        help="Or type another, such as int6 asymmetric, or uint16 symmetric.",
    )
    size = 0
    if per == "group":
        size = int(
            st.number_input(
                "Group size", 1, max(1, columns), min(keys.DEFAULTS[keys.GROUP], max(1, columns)),
                key=keys.GROUP, bind="query-params", width=_px(110),
            )
        )  # fmt: skip
    static = False
    if per != "token":  # other tokens have other scales
        help_ = "dynamic: from the x that is multiplied; static: found once, on other tokens"
        static = choice.selectbox("Scales of x", keys.SCALES, SCALES, help=help_, width=_px(120)) == "static"
    setting, batches, averaging = _calibration() if static else ("min_max", 0, None)
    granularity = {
        "tensor": "per_tensor",
        "token": "per_channel(0)",
        "group": f"per_block([-1, {size}])" if static else f"per_group({size})",
    }[per]
    scheme = qc.Scheme.parse(f"{FORMATS.get(typed, typed)} {granularity} {setting}")
    return ActivationChoice(scheme, batches, averaging)


def _calibration() -> tuple[str, int, float | None]:
    """Draw how static scales are found; return the range setting, the number of batches and the averaging."""
    way = choice.selectbox(
        "Calibration", keys.RANGE, RANGES, width=_px(160), help="How the range is found from all tokens"
    )
    batches, averaging, setting = 1, None, _SETTINGS.get(way, "")
    if way == "percentile":
        p = st.number_input(
            "Percentile", 50.01, 100.0, keys.DEFAULTS[keys.PERCENTILE], format="%g", key=keys.PERCENTILE,
            bind="query-params", width=_px(110),
        )  # fmt: skip
        setting = f"percentile({p:g})"
    batches = int(
        st.number_input(
            "Batches",
            1,
            64,
            keys.DEFAULTS[keys.BATCHES],
            key=keys.BATCHES,
            bind="query-params",
            width=_px(110),
        )
    )
    if way == "moving":
        averaging = float(
            st.number_input(
                "Averaging", 0.001, 1.0, keys.DEFAULTS[keys.AVERAGING], format="%g", key=keys.AVERAGING,
                bind="query-params", width=_px(110), help="The weight of each further batch; torch's is 0.01",
            )
        )  # fmt: skip
    return setting, batches, averaging


def _bias(outputs: int) -> np.ndarray | None:
    """Draw the field of the bias; return one number per output, or None if it is empty.

    Raises:
        QuantError: it is not that.
    """
    typed = st.text_input(
        "Bias",
        key=keys.BIAS,
        placeholder="none",
        max_chars=2000,
        bind="query-params",
        width=_px(130),
        help="One number for all outputs, or one per output, separated by commas; quantized only in the "
        "integer path.",
    )
    if not typed.strip():
        return None
    try:
        numbers = tensors.parse(typed).reshape(-1)
    except qc.QuantError as error:
        raise qc.QuantError(f"Bias: {error}") from None
    if not np.isfinite(numbers).all():
        raise qc.QuantError("The bias contains NaN or infinity; write finite numbers.")
    if numbers.size not in (1, outputs):
        raise qc.QuantError(
            f"The bias has {numbers.size:,} numbers, but w has {outputs:,} rows; give one number, or one "
            "per row."
        )
    return np.broadcast_to(numbers, (outputs,)).astype(np.float32)


def _output() -> None:
    """Draw the field of the output that is shown."""
    st.text_input(
        "Output",
        key=keys.CELL,
        placeholder="the worst",
        bind="query-params",
        width=_px(110),
        help="Token and channel of the output whose terms are shown, such as 2, 5; empty: that of the "
        "largest |ŷ − y|. A click on y fills it in.",
    )


def chosen(found: LayerOutput) -> tuple[int, int]:
    """Return (token, channel) of the output that is shown: by default that of the largest |error|."""
    worst, typed = worst_of(found), st.session_state[keys.CELL]
    try:
        at = integers(typed, "The output")
        if at is None:
            return worst
        if len(at) != 2:
            raise qc.QuantError(f"The output needs a token and a channel, such as 2, 5, not {typed[:40]!r}.")
        found.terms(*at)
    except qc.QuantError as error:
        messages.warning(f"{error} Output {worst} is shown instead.")
        return worst
    return at


def worst_of(found: LayerOutput) -> tuple[int, int]:
    """Return (token, channel) of the largest |ŷ − y|."""
    token, channel = divmod(int(found.error.abs().argmax()), found.y.shape[1])
    return token, channel


def pick(index: tuple[int, ...]) -> None:
    """Choose an output (a callback)."""
    st.session_state[keys.CELL] = index_text(index)
