"""The lines above the maps: the question with its answer, the tensor with its scales, the key figures.

The figures are one HTML element: drawn with st.metric, the figures would take as long as all the controls.
"""

import html
import math
from functools import partial
from typing import NamedTuple

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.explore.explore import PAGE
from pages.explore.explore.tabs import DISTRIBUTION, HISTOGRAM, LINES
from pages.maps import arithmetic
from pages.maps.arithmetic import ElementArithmetic
from pages.maps.beside import BesideMaps
from pages.maps.four_maps import ARITHMETIC
from pages.shared import charts
from pages.shared.computing import cache
from pages.shared.state import link, mirrored, pinned, selection
from pages.shared.state.pinned import Reference
from pages.shared.state.selection import Current, PageTensor
from pages.sidebar import ends, scheme_state
from quantcore import tensors
from quantcore.figures import grid_values
from quantcore.granularity import block_name
from quantcore.scheme import storage


def question_row() -> DeltaGenerator:
    """Draw the way to another tensor beside a place for `question`; return that place."""
    row = st.container(
        horizontal=True, wrap=False, vertical_alignment="center", gap="small", key="question_row"
    )
    place = row.container(key=QUESTION)
    row.button(
        "Paste or drop a tensor",
        key="_bring",
        icon=":material/content_paste:",
        on_click=link.put,
        args=({"src": "paste"},),
        help="Ctrl+V anywhere on this page reads numbers, a printed tensor or an image; a dropped file is "
        "opened. This button shows the field for them.",
    )
    return place


def question(tensor: PageTensor, scheme: qc.Scheme) -> str:
    """Return the question of the page, with its answer in plain words, as HTML."""
    report, own = cache.report(tensor, scheme), _in_dtype(scheme, tensor)
    before, after = 8 * tensors.DTYPES[tensor.dtype].itemsize, storage(own, tensor.shape).bits_per_element
    answer = f"Each number takes {after:.3g} bits instead of {before}"
    answer += f"{_lost(report)}." if not math.isnan(report.sqnr_db) else "."
    about = "√(Σ error² / Σ x²), as a percentage; the SQNR says the same in dB"
    return (
        f'<p class="qs-question"><b aria-hidden="true">{html.escape(PAGE.heading)}</b> '
        f'<span title="{about}">{html.escape(answer)}</span></p>'
    )


def _lost(report: qc.Report) -> str:
    """Write how large the error is against the values."""
    if report.sqnr_db == math.inf:
        return ", and no value changes"
    percent = 100 * 10 ** (-report.sqnr_db / 20)
    return f", and the error is {percent:.{0 if percent >= 9.95 else 1}f} % of the values"


def scheme_line(chosen: Current) -> None:
    """Draw the editable text form of the scheme, and the pin."""
    mistyped = st.session_state.get(scheme_state.TEXT_ERROR)  # the field keeps the text for correction
    key = mirrored.key_of(scheme_state.TEXT)
    if chosen.scheme is not None and not mistyped:
        key = mirrored.key_at(scheme_state.TEXT, str(chosen.scheme))
    # one row instead of columns: fewer elements to draw in every run
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="scheme_row")
    row.container(key=scheme_state.TEXT).text_input(
        "Scheme as text",
        # in addition to the session state: an interrupted run loses a value that is set only there
        value=str(chosen.scheme or ""),
        key=key,
        on_change=scheme_state.apply_text,
        args=(key,),
        label_visibility="collapsed",
        help="The whole scheme in one line: copy it, or type another one and press Enter.",
    )
    _play_button(row, chosen.scheme)
    pinned.button(row, chosen.scheme)


def _play_button(place: DeltaGenerator, scheme: qc.Scheme | None) -> None:
    """Draw the button by which the maps go through the widths; what it does is in pages/maps/drawing."""
    integers = scheme is not None and isinstance(scheme.format, qc.IntFormat)
    place.button(
        "Play 8 → 2 bits",
        key="_play",
        icon=":material/play_arrow:",
        disabled=not integers,
        help=None if integers else "Integer formats have bits to play",
    )


def library_line(tensor: PageTensor, scheme: qc.Scheme) -> None:
    """Draw one line on how the chosen library differs from the textbook for the tensor's dtype."""
    convention = scheme.convention
    if convention.name == qc.TEXTBOOK.name:
        if tensor.dtype != "float32":
            _line(convention.name, "computes in float32, whatever the dtype of x")
        return
    phrases = qc.differences(_in_dtype(scheme, tensor))
    summary = "; ".join(phrases) if phrases else "no difference for this scheme"
    about = f"{summary}. Reproduces {convention.call}"
    _line(f"{convention.library} {convention.version}", f"against the textbook: {summary}", about)


def _line(name: str, text: str, about: str = "") -> None:
    title = html.escape(about or text)
    st.html(
        f'<p class="qs-line qs-library"><span title="{title}"><b>{html.escape(name)}</b> '
        f"{html.escape(text)}</span></p>"
    )


# keys of the places of the answer, of both lines, and of what is wrong
QUESTION, SUMMARY, FINDINGS = "question", "summary", "findings"
_SQNR = "Signal-to-quantization-noise ratio, 10·log10(Σx² / Σerror²). One more bit adds about 6 dB."
_CLIPPED = "Elements outside the representable range, whose codes were clamped or wrapped."


class Figure(NamedTuple):
    """A key figure: label, value, as shown, the format of a change, whether larger is better, help."""

    label: str
    value: float
    text: str
    change: str
    more_is_better: bool
    help: str


def _written(pattern: str, value: float) -> str:
    return "not defined" if math.isnan(value) else pattern.format(value)


def figures(tensor: PageTensor, scheme: qc.Scheme, report: qc.Report) -> list[Figure]:
    """Return the key figures of a result, as data."""
    dtype, own = tensors.DTYPES[tensor.dtype], _in_dtype(scheme, tensor)
    stored = storage(own, tensor.shape)
    bits = stored.bits_per_element
    shared = stored.scales + stored.zero_points
    code, others = f"{stored.codes / stored.elements:.4g}", f"{shared:,} / {stored.elements:,}"
    sum_ = f"{code} for the code + {others} for scales and zero points"
    ratio = qc.compression_ratio(own, tensor.shape, 8 * dtype.itemsize)
    at = report.max_abs_error_index
    worst = "The largest |error|" + ("." if at is None else f", at element {at}.")

    def about(name: str, text: str) -> str:
        return f"{text} Not defined here: {report.undefined[name]}." if name in report.undefined else text

    def error(label: str, name: str, text: str) -> Figure:
        value = getattr(report, name)
        return Figure(label, value, _written("{:.4g}", value), "{:+.3g}", False, about(name, text))

    counted = f"{_CLIPPED} {report.codes_used:,} of {report.codes_available:,} codes are used."
    clipped, sqnr = 100 * report.clipped_fraction, report.sqnr_db
    size = f"Size in {tensor.dtype} divided by the quantized size, including scales and zero points."
    return [
        Figure("SQNR", sqnr, qc.decibels(sqnr, 2), "{:+.2f} dB", True, about("sqnr_db", _SQNR)),
        error("MSE", "mse", "Mean squared error."),
        error("MAE", "mae", "Mean absolute error."),
        error("max |error|", "max_abs_error", worst),
        Figure("Bits per element", bits, f"{bits:.3g}", "{:+.3g}", False, f"Storage per element: {sum_}."),
        Figure("Compression", ratio, f"{ratio:.2f}×", "{:+.2f}×", True, size),
        Figure("Clipped", clipped, _written("{:.3g} %", clipped), "{:+.3g} %", False, counted),
    ]


def _in_dtype(scheme: qc.Scheme, tensor: PageTensor) -> qc.Scheme:
    return scheme.in_dtype(tensors.DTYPES[tensor.dtype])


def markup(tensor: PageTensor, scheme: qc.Scheme, trace: qc.Trace, reference: Reference | None) -> str:
    """Return both lines as HTML.

    Args:
        trace: of the chosen element, whose block and scale are shown.
    """
    result, report = cache.result(tensor, scheme), cache.report(tensor, scheme)
    shape = " × ".join(f"{n:,}" for n in tensor.shape) or "scalar"
    scales = parameters(result, trace)
    facts = f"{shape} · {tensor.dtype}"
    title = html.escape(f"{tensor.title} · {facts}")
    first = (
        f'<p class="qs-line" {charts.small_print_attribute(selection.words(tensor, scheme))}>'
        f'<span title="{title}"><b>{html.escape(tensor.name)}</b> · {facts}</span>'
        f'<span title="{html.escape(scales)}">{html.escape(scales)}</span></p>'
    )
    shown = figures(tensor, result.scheme, report)
    others: list[Figure] | list[None] = [None] * len(shown)
    if reference and reference.result and reference.report:
        others = figures(tensor, reference.result.scheme, reference.report)
    cells = [_cell(f, o, reference) for f, o in zip(shown, others, strict=True)]
    if reference:
        tip = html.escape(reference.problem or reference.scheme)
        label = f"Against the {reference.name} scheme"
        cells.append(f'<div class="qs-reference" data-tip="{tip}"><dt>{label}</dt><dd>{tip}</dd></div>')
    return f'{first}<dl class="qs-figures">{"".join(cells)}</dl>'


def following(
    compared: pinned.ComparedWith,
    tab: str,
    theme: str,
    tensor: PageTensor,
    scheme: qc.Scheme,
    shown: ElementArithmetic,
) -> BesideMaps:
    """Return what of this page follows with the maps while a control is dragged.

    Args:
        tab: the open one; the arithmetic follows, and in the histogram the range of the codes.
    """
    above = markup(tensor, scheme, shown.trace, compared.reference(tensor, scheme))
    places = {QUESTION: question(tensor, scheme), SUMMARY: above}
    fields = {scheme_state.TEXT: str(scheme)}
    result = cache.result(tensor, scheme)
    standing = ends.stand(result, shown.trace.block)
    beside = partial(BesideMaps, places, fields=fields, controls=standing)
    if tab == ARITHMETIC:
        lines = partial(arithmetic.markup, tensor, scheme, shown, theme)
        return beside(resting={LINES: lines}, late=(FINDINGS,))
    if tab != DISTRIBUTION:
        return beside(late=(FINDINGS, "tab"))
    values = grid_values(result, shown.trace.block)
    return beside(bands={HISTOGRAM: (float(values[0]), float(values[-1]))}, late=(FINDINGS,))


def parameters(result: qc.Quantized, trace: qc.Trace) -> str:
    """Write scale and zero point: of one block, the values; of several, count, range, the element's own."""
    scale, zero_point = result.scale.reshape(-1), result.zero_point
    record = result.scheme.rules
    name = "min" if record.zero_point.is_min else "zero point"
    own = f"scale {_number(trace.scale)}"
    if zero_point is not None:
        own += f", {name} {_number(trace.zero_point)}"
    if scale.numel() == 1:
        return own
    text = f"{scale.numel():,} scales {_span(scale.numpy())}"
    if zero_point is not None:
        values = zero_point.reshape(-1).numpy()
        same = bool((values == values[0]).all())
        text += f", {name if same else name + 's'} {_number(values[0].item()) if same else _span(values)}"
    return f"{text} · {block_name(trace.bounds, tuple(result.x.shape))}: {own}"


def _span(values: np.ndarray) -> str:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return "non-finite"
    low, high = finite.min().item(), finite.max().item()
    return _number(low) if low == high else f"{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _minus(text: str) -> str:
    """Write a negative number with the sign of the maps, not with a hyphen."""
    return text.replace("-", "−")


def _cell(figure: Figure, other: Figure | None, reference: Reference | None) -> str:
    change = figure.value - other.value if other else 0.0
    delta = ""
    if other and reference and change and math.isfinite(change):
        better = (change > 0) == figure.more_is_better
        delta = (
            f'<span class="qs-{"better" if better else "worse"}">{_minus(figure.change.format(change))}'
            f"<i> {'better' if better else 'worse'} than {reference.name}</i></span>"
        )
    return (
        f'<div data-tip="{html.escape(figure.help)}"><dt>{html.escape(figure.label)}</dt>'
        f"<dd>{figure.text}{delta}</dd></div>"
    )
