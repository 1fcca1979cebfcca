"""The top of a page: the scheme as text, the link, and the key figures with what changed."""

import math
from typing import NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.shared import mirrored, scheme_state
from pages.shared.current import Current, Tensor

_SQNR = "Signal to quantization noise, 10·log10(Σx² / Σerror²). One more bit brings about 6 dB."
_BITS = "True storage cost: the codes, and the scales and zero points shared out over the elements."
_CLIPPED = "Share of the elements outside the representable range, whose code was clamped or wrapped."


class Figure(NamedTuple):
    """A key figure: its label, value, how it is written, whether more is better, and what it means."""

    label: str
    value: float
    pattern: str
    more_is_better: bool
    help: str


def scheme_line(chosen: Current) -> DeltaGenerator:
    """Draw the scheme's text form, to be read or typed into; return the place for the link."""
    mistyped = st.session_state.pop(scheme_state.TEXT_ERROR, None)  # stays there to be mended
    key = mirrored.key_of(scheme_state.TEXT)
    if chosen.scheme is not None and not mistyped:
        key = mirrored.key_at(scheme_state.TEXT, str(chosen.scheme))
    left, right = st.columns([7, 1], vertical_alignment="bottom")
    left.container(key=scheme_state.TEXT).text_input(
        "Scheme as text",
        key=key,
        on_change=scheme_state.apply_text,
        args=(key,),
        label_visibility="collapsed",
        help="The whole scheme in one line: copy it, or type another and press Enter.",
    )
    return right


def library_line(scheme: qc.Scheme) -> None:
    """Say in one line what the chosen library does differently from the textbook."""
    convention = scheme.convention
    if convention.name == qc.TEXTBOOK.name:
        return
    phrases = qc.differences(scheme)
    said = "; ".join(phrases) if phrases else "for this scheme, nothing"
    st.caption(
        f"**{convention.library} {convention.version}** against the textbook: {said}.",
        help=f"Stands for {convention.call}",
    )


def figures(tensor: Tensor, scheme: qc.Scheme, report: qc.Report) -> list[Figure]:
    """The key figures of a result, as data."""
    bits = qc.bits_per_element(scheme, tensor.shape)
    ratio = qc.compression_ratio(scheme, tensor.shape)
    worst = f"The largest |error|, at element {report.max_abs_error_index}."
    clipped = f"{_CLIPPED} {report.codes_used:,} of {report.codes_available:,} codes are used."
    return [
        Figure("SQNR", report.sqnr_db, "{:.2f} dB", True, _SQNR),
        Figure("MSE", report.mse, "{:.3g}", False, "Mean of the squared error."),
        Figure("MAE", report.mae, "{:.3g}", False, "Mean of |error|."),
        Figure("max |error|", report.max_abs_error, "{:.3g}", False, worst),
        Figure("Bits per element", bits, "{:.3g}", False, _BITS),
        Figure(
            "Compression", ratio, "{:.2f}×", True, "Size in float32 over size quantized, everything counted."
        ),
        Figure("Clipped", 100 * report.clipped_share, "{:.3g} %", False, clipped),
    ]


def key_figures(tensor: Tensor, scheme: qc.Scheme, report: qc.Report) -> None:
    """Draw the key figures with their change against the previous setting of the same tensor."""
    shown = figures(tensor, scheme, report)
    previous = _previous(tensor.key, str(scheme), [f.value for f in shown])
    for column, figure, before in zip(st.columns(len(shown)), shown, previous, strict=True):
        change = None if before is None else figure.value - before
        column.metric(
            figure.label,
            figure.pattern.format(figure.value),
            f"{change:+.3g}" if change and math.isfinite(change) else None,
            delta_color="normal" if figure.more_is_better else "inverse",
            help=figure.help,
            height=78,  # room for the change, so that nothing jumps when there is one
        )


def _previous(tensor: str, scheme: str, values: list[float]) -> list[float | None]:
    """Figures of the setting before this one; reruns that change neither tensor nor scheme keep it."""
    now = (tensor, scheme, values)
    last, before = st.session_state.get("_figures", (None, None))
    if last is None or last[0] != tensor:
        last, before = now, None
    elif last[1] != scheme:
        last, before = now, last
    st.session_state["_figures"] = (last, before)
    return list(before[2]) if before else [None] * len(values)
