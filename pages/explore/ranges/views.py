"""Views of the Ranges page: block, range slider, histogram, error curve, and the range of every method."""

import dataclasses
import math
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import quantcore as qc
from pages.shared import charts, messages, tables
from pages.shared.charts import theme
from pages.shared.computing import cache, needs
from pages.shared.state import link, mirrored
from pages.shared.state.selection import PageTensor
from pages.sidebar import scheme_state
from quantcore import figures
from quantcore.analysis import elements_of
from quantcore.diagnosis import Box
from quantcore.granularity import block_bounds
from quantcore.notation import write_call
from quantcore.range_setting import METHODS

_BLOCK, _LOG, _USE = "rng_block", "rng_log", "rng_use"
KEYS = {_BLOCK, _LOG}
LOW, HIGH, SLIDER, CHART = "rng_low", "rng_high", "rng_slider", "rng_histogram"
_STEPS = 200  # of the slider, approximately
_MARGIN = 1.25  # extent of the slider beyond the elements, as a factor
FLOAT32_MAX = 3.4e38
Block = tuple[int, ...] | None


def choose_block(result: qc.Quantized) -> tuple[Block, Any]:
    """Draw the choice of a block; return it (None for all) and a place for buttons next to it."""
    grid = tuple(result.scale.shape)
    if result.scale.numel() == 1:
        return None, None
    left, right = st.columns([2, 6], vertical_alignment="bottom")
    typed = left.text_input(
        "Block",
        key=_BLOCK,
        placeholder=f"all {result.scale.numel():,}",
        help=f"The blocks form a grid of {' × '.join(f'{n:,}' for n in grid)}. Choose one by its position, "
        f"such as {', '.join(['0'] * len(grid))}, or leave this empty for all blocks.",
        bind="query-params",
    )
    try:
        return _read(typed, grid), right.container(horizontal=True)
    except qc.QuantError as error:
        messages.error(f"{error} All blocks are shown instead.")
        return None, right.container(horizontal=True)


def buttons(place: Any, result: qc.Quantized, block: Block, element: tuple[int, ...]) -> None:
    """Draw buttons for the block of the chosen element and for all blocks."""
    if place is None:
        return
    own = qc.trace(result, element).block
    if own != block:
        at, help_ = ", ".join(map(str, own)), "Click a cell below to choose another element"
        label = f"Block {at}, which holds element ({', '.join(map(str, element))})"
        place.button(label, on_click=link.put, args=({_BLOCK: at},), key="rng_own", help=help_)
    if block is not None:
        place.button("All blocks", on_click=link.put, args=({_BLOCK: ""},), key="rng_all")


def outline(result: qc.Quantized, block: Block) -> tuple[Box, ...]:
    """Return the chosen block as a box of the tensor, for the maps to outline."""
    if block is None or result.blocked_shape != tuple(result.x.shape):
        return ()
    return (block_bounds(result.blocked_shape, result.block, block),)


def marks(tensor: PageTensor, scheme: qc.Scheme, block: Block) -> tuple[qc.RangeMark, ...]:
    """Return the range of the scheme's own range setting, then every method's; each is computed once."""
    plain, need = _without_range(scheme), needs.of(scheme, tensor.shape)
    every = lambda: qc.range_marks(cache.values(tensor), scheme, block)  # noqa: E731
    others = cache.cached_small(tensor, f"range marks {plain} {block}", every, need)
    if any(mark.setting == scheme.range_setting for mark in others):
        return others
    own = lambda: qc.range_marks(cache.values(tensor), scheme, block, (scheme.range_setting,))  # noqa: E731
    return (*cache.cached_small(tensor, f"range mark {scheme} {block}", own, need), *others)


def curve(tensor: PageTensor, scheme: qc.Scheme, block: Block) -> qc.RangeCurve:
    """Return the error as a function of the range."""
    make = lambda: qc.range_curve(cache.values(tensor), scheme, block)  # noqa: E731
    need = needs.of(scheme, tensor.shape)
    return cache.cached_small(tensor, f"range curve {_without_range(scheme)} {block}", make, need)


def histogram(tensor: PageTensor, result: qc.Quantized, block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return counts and edges of the elements of the block."""

    def make() -> tuple[np.ndarray, np.ndarray]:
        granularity = result.scheme.granularity
        return figures.histogram(result.x if block is None else elements_of(result.x, granularity, block))

    where = "" if block is None else f"{result.scheme.granularity} {block}"
    return cache.cached_small(tensor, f"range histogram {where}", make)


@dataclasses.dataclass(frozen=True)
class RangeSlider:
    """A slider of two ends, or of one, whose negative is the other.

    ``ends``: of the range in use; ``rest``: where the slider stands for them, on a grid of ``step``. Off that
    grid, the browser would move an end that nobody touches.
    """

    ends: tuple[float, ...]
    rest: tuple[float, ...]
    step: float

    def range(self, places: tuple[float, ...]) -> qc.Fixed:
        """Return the range with the slider's ends at these places: never empty, exact where nothing moved."""
        moved = zip(places, self.rest, self.ends, strict=True)
        ends = [end if place == at else place for place, at, end in moved]
        if len(ends) == 1:
            high = ends[0] if places == self.rest else max(ends[0], self.step)
            ends = [-high, high]
        low, high = map(_six_digits, ends)
        return qc.Fixed(low, high if low < high else _six_digits(low + self.step))


def slider(bounds: tuple[float, float], extremes: tuple[float, float], symmetric: bool) -> RangeSlider:
    """Draw two numbers and a slider at ``bounds``; if symmetric, one number, since low is -high.

    Args:
        extremes: the lowest and the highest element.
    """
    low, high = (_six_digits(end) for end in bounds)
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
    bottom, top = _six_digits(math.floor(bottom / step) * step), _six_digits(math.ceil(top / step) * step)
    # these widgets mirror the range in use; a visitor's change is written to the scheme's controls
    at_high = mirrored.key_at(HIGH, high)
    at_low = "" if symmetric else mirrored.key_at(LOW, low)
    number: dict[str, Any] = {"step": step, "format": "%g", "on_change": _typed}
    columns = st.columns([1, 4] if symmetric else [1, 1, 4], vertical_alignment="bottom")
    if not symmetric:
        columns[0].container(key=LOW).number_input("Low", key=at_low, args=(LOW, at_low, at_high), **number)
    help_ = "The largest |x| that is not clipped; low is its negative" if symmetric else None
    label = "± High" if symmetric else "High"
    keys = (HIGH, at_low, at_high)
    columns[-2].container(key=HIGH).number_input(label, key=at_high, args=keys, help=help_, **number)
    ends = (high,) if symmetric else (low, high)
    rest = tuple(_six_digits(bottom + round((end - bottom) / step) * step) for end in ends)
    drawn = RangeSlider(ends, rest, step)
    at_slider = mirrored.key_at(SLIDER, rest[0] if symmetric else rest)
    columns[-1].container(key=SLIDER).slider(
        "Range",
        bottom,
        top,
        step=step,
        format="%.4g",
        key=at_slider,
        on_change=_slid,
        args=(at_slider, drawn),
        help="Moving it sets the range of the scheme in the sidebar to fixed; your browser's Back button "
        "undoes it.",
    )
    return drawn


def use(setting: qc.RangeSetting) -> None:
    """Set the scheme's range setting (a callback)."""
    try:
        link.put(scheme_state.range_choices(setting))
    except qc.QuantError as error:
        messages.error(str(error))


def dragged(symmetric: bool) -> None:
    """Use the range dragged across the histogram (a callback)."""
    boxes = st.session_state[CHART]["selection"]["box"]
    if boxes:
        low, high = sorted(_six_digits(x) for x in boxes[0]["x"])
        if symmetric:
            high = max(abs(low), abs(high))
            low = -high
        if low < high:
            use(qc.Fixed(low, high))


def _typed(name: str, at_low: str, at_high: str) -> None:
    """Use the numbers as typed; the sidebar reports an invalid range."""
    if not mirrored.typed(name, at_low if name == LOW else at_high):
        return
    high = st.session_state[at_high]
    low = st.session_state[at_low] if at_low else -high
    link.put({"range": "fixed", "low": low, "high": high})


def _slid(key: str, drawn: RangeSlider) -> None:
    if mirrored.typed(SLIDER, key):
        place = st.session_state[key]
        use(drawn.range(tuple(place) if isinstance(place, tuple | list) else (place,)))


def _step(width: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten up to a width."""
    power = 10.0 ** math.floor(math.log10(max(width, 1e-300)))
    return next(_six_digits(n * power) for n in (5, 2, 1, 0.5) if n * power <= width * (1 + 1e-9))


def _six_digits(x: float) -> float:
    """Round to six significant digits."""
    return float(f"{x:.6g}")


def _limited(x: float) -> float:
    return min(max(x, -FLOAT32_MAX), FLOAT32_MAX)


def pictures(
    bins: tuple[np.ndarray, np.ndarray],
    found: tuple[qc.RangeMark, ...],
    bounds: tuple[float, float],
    scheme: qc.Scheme,
    error: qc.RangeCurve,
) -> None:
    """Draw the histogram with the ranges, and next to it the error of every range."""
    left, right = st.columns(2)
    with left:
        st.markdown("**Elements and the range in use**: drag its ends, or drag across another")
        log = bool(st.session_state.get(_LOG))
        charts.draw(
            figures.range_histogram(*bins, found, bounds, log=log, theme=theme()),
            "Histogram of the elements, with the range of every method",
            key=CHART,
            on_select=partial(dragged, scheme.symmetric),
            selection_mode="box",
        )
        help_ = "Logarithmic counts, so that rare values stay visible"
        st.toggle("Log counts", key=_LOG, help=help_, bind="query-params")
    with right:
        st.markdown("**Error of every range**")
        drawn = figures.range_error(error, found, scheme.symmetric, theme=theme())
        charts.draw(drawn, "Error of every range", key="rng_curve")


def table(found: tuple[qc.RangeMark, ...], scheme: qc.Scheme) -> None:
    """Draw the range and the error of every method, each with a button to use it."""
    import pandas as pd  # here: `PAGE` needs no table, and is imported with the first page

    rows = [
        {
            "method": mark.name,
            "low": mark.low,
            "high": mark.high,
            "SQNR": mark.sqnr_db,
            "MSE": mark.mse,
            "clipped": mark.clipped,
            "": "in use" if mark.setting == scheme.range_setting else "Use",
        }
        for mark in found
    ]
    button = st.column_config.ButtonColumn(
        "", key=_USE, type="tertiary", on_click=_use_row, args=(tuple(mark.setting for mark in found),)
    )
    frame, sqnr = tables.sqnr_column(pd.DataFrame(rows), "SQNR", tables.label("SQNR"), "%.2f")
    st.container(key="rng_table").dataframe(
        frame,
        hide_index=True,
        column_config=tables.columns(frame, 5, skip=("", "SQNR", "method"))
        | {
            "method": st.column_config.TextColumn(tables.label("method"), width="medium"),
            "SQNR": sqnr,
            "": button,
        },
    )


def notes(tensor: PageTensor, scheme: qc.Scheme, block: Block, error: qc.RangeCurve) -> None:
    """Explain what the numbers are measured on, and what does not apply."""
    sentences = []
    if error.blocks > 1:
        sentences.append(
            "Low, high and width are means over the blocks; errors are over all their elements. Along the "
            "curve, all blocks use the same fraction of their own min-max range. A manual range is the same "
            "for all blocks."
        )
    elif block is not None:
        sentences.append("A manual range applies to every block, not only to this one.")
    if error.measured < error.elements:
        sentences.append(
            f"Curve and table are measured on {error.measured:,} of the {error.elements:,} elements, evenly "
            "spaced; histogram, maps and codes use all of them."
        )
    if scheme.scales is not None:
        sentences.append("Curve and table use float32 scales, before the scales themselves are quantized.")
    if not scheme.format.has_zero_point:
        sentences.append(
            f"{scheme.format} has no zero point, so the range only sets the scale. With unequal steps, the "
            "rounding error does not shrink in proportion to the range as it does with integers."
        )
    for setting in METHODS:
        reason = qc.unsupported_reason(dataclasses.replace(scheme, range_setting=setting), tensor.shape)
        if reason:
            name = write_call(setting)
            sentences.append(
                f"Left out of the table: {reason if reason.startswith(name) else f'{name}: {reason}'}"
            )
    st.caption(messages.plain(" ".join(sentences)))


def _without_range(scheme: qc.Scheme) -> qc.Scheme:
    return dataclasses.replace(scheme, range_setting=qc.MinMax())


def _use_row(settings: tuple[qc.RangeSetting, ...]) -> None:
    """Use the method of the row whose button was pressed (a callback)."""
    use(settings[st.session_state[_USE]["row"]])


def _read(typed: str, grid: tuple[int, ...]) -> Block:
    words = typed.strip().strip("()").replace(",", " ").split()
    try:
        block = tuple(int(word) for word in words)
    except ValueError:
        raise qc.QuantError(
            f"A block must be integers such as {', '.join('0' for _ in grid)}, not {typed[:40]!r}."
        ) from None
    if block and (len(block) != len(grid) or any(not 0 <= b < n for b, n in zip(block, grid, strict=True))):
        last = ", ".join(str(n - 1) for n in grid)
        raise qc.QuantError(f"There is no block {typed[:40]!r}: the last is {last}.")
    return block or None


def trials(
    tensor: PageTensor,
    result: qc.Quantized,
    block: tuple[int, ...] | None,
    bins: tuple[np.ndarray, np.ndarray],
    bounds: tuple[float, float],
) -> None:
    """Draw where one of ggml's searches finds the scale: the histogram, and the error of every trial."""
    scheme = result.scheme
    make = lambda: qc.search_curve(result, block)  # noqa: E731
    curve = cache.cached_small(tensor, f"search curve {scheme} {block}", make, needs.of(scheme, tensor.shape))
    left, right = st.columns(2)
    with left:
        st.markdown("**Elements and the range in use**")
        shown = figures.range_histogram(*bins, (), bounds, theme=theme())
        charts.draw(shown, "Histogram of the elements, with the range in use", key="rng_histogram_searched")
    with right:
        st.markdown(f"**Trials of {messages.plain(curve.name)}**")
        charts.draw(figures.search_error(curve, theme=theme()), "Error of every trial", key="rng_search")
    sentences = [
        f"The search weighs each element's error by w = {curve.weights} and keeps the first of the best "
        "trials."
    ]
    if curve.measured > 1:
        sentences.append("A marker's size shows how many groups ended with that trial; errors are means.")
    if 1 < curve.measured < curve.groups:
        sentences.append(f"Measured on {curve.measured:,} of {curve.groups:,} groups, evenly spaced.")
    if scheme.scales is not None:
        sentences.append("Errors are measured before the scales themselves are quantized.")
    if scheme.convention.library == "ggml":
        sentences.append(
            "This format has no other range settings: ggml finds its scales only this way. A ggml build "
            "that fuses multiply and add (most arm64 builds) sometimes chooses another trial; this is "
            "x86-64 without fusing."
        )
    st.caption(messages.plain(" ".join(sentences)))
