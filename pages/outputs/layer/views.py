"""The lines above the maps, and the error of every output channel and token."""

import html
import math
from functools import partial

import streamlit as st

import quantcore as qc
from pages.outputs.layer import PAGE, controls
from pages.outputs.layer.run import ShownLayer
from pages.shared import charts
from pages.shared.charts import theme
from pages.shared.computing import cache
from quantcore import figures
from quantcore.outputs import OF_ACTIVATIONS, OF_BOTH, OF_WEIGHTS, LayerOutput

_ALONE = {OF_WEIGHTS: "weights", OF_ACTIVATIONS: "activations"}
_MOST = 0.75  # of the squared error


def answer(found: LayerOutput) -> str:
    """Answer the question in plain words, with the numbers of this layer."""
    sqnr = found.sqnr_db
    if math.isnan(sqnr):
        return "All outputs are 0, before and after."
    if sqnr == math.inf:
        return "No output changes."
    percent = 100 * 10 ** (-sqnr / 20)
    written = f"{percent:.{0 if percent >= 9.95 else 1}f}"
    lost = f"Output SQNR {qc.decibels(sqnr)}: the error is {written} % of the output"
    total = sum(found.energies.values())
    cause = next((what for part, what in _ALONE.items() if found.energies.get(part, 0) > _MOST * total), "")
    if len(found.parts) == 1:
        return f"{lost}."
    return f"{lost}, most of it from the {cause}." if cause else f"{lost}, from weights and activations."


def facts(done: ShownLayer, words: str) -> list[tuple[str, str]]:
    """Return what the line below the answer says, each with its explanation: the output's SQNR with weights
    or activations alone, what each part has of the squared error, static scales, and x in a few ``words``.
    """
    found, lines = done.found, []
    if len(found.parts) > 1:
        hint = "The output's SQNR if only these are quantized"
        lines += [
            (f"{what} alone {qc.decibels(found.alone_db[part])}", hint) for part, what in _ALONE.items()
        ]
        lines += shares(found)
    else:
        lines.append(("activations are not quantized", "All of the error is that of the weights"))
    lines.append((f"x: {words}", "The activations; “Activations x” above the maps changes them"))
    return lines + ([_static(done)] if done.calibration is not None else [])


def shares(found: LayerOutput) -> list[tuple[str, str]]:
    """Return what each part has of the squared error, with its explanation; they add up to 100 %."""
    cross = sum(found.cross_terms.values())
    total = sum(found.energies.values()) + cross
    if not total > 0:
        return []
    about = {
        OF_WEIGHTS: "the weights' error, ŵ − w, times x",
        OF_ACTIVATIONS: "the activations' error, x̂ − x, times w",
        OF_BOTH: "both errors multiplied",
    }
    named = [
        (f"{name} {energy / total:.1%}", f"Share of the squared error: {about[name]}")
        for name, energy in found.energies.items()
    ]
    hint = "2·Σ of products of two parts: above 0 where they add up, below 0 where they cancel"
    return [*named, (f"cross terms {cross / total:+.1%}".replace("-", "−"), hint)]


def _static(done: ShownLayer) -> tuple[str, str]:
    """Write static scales: the scale if there is one, and where it was found."""
    assert done.calibration is not None
    scale, zero_point = (p.reshape(-1) for p in (done.calibration.scale, done.calibration.zero_point))
    if len(scale) > 1:
        text = f"{len(scale):,} static scales of x"
    else:
        text = f"static scale of x {float(scale[0]):.4g}"
        text += "" if done.calibration.scheme.symmetric else f", zero point {int(zero_point[0])}"
    return f"{text}, found on {done.calibrated_on}", "The same for every token, also beyond their range"


def question(said: str = "") -> str:
    """Return the question of the page, with its answer if there is one, as HTML."""
    about = "√(Σ (ŷ − y)² / Σ y²), as a percentage; the SQNR says the same in dB"
    return (
        f'<p class="qs-question"><b aria-hidden="true">{html.escape(PAGE.heading)}</b> '
        f'<span title="{about}">{html.escape(said)}</span></p>'
    )


def summary(done: ShownLayer, words: str) -> str:
    """Return the question with its answer, and the line of facts below it, as HTML."""
    cells = "".join(
        f'<span title="{html.escape(hint)}">{html.escape(text)}</span>' for text, hint in facts(done, words)
    )
    return f'{question(answer(done.found))}<p class="qs-line qs-facts">{cells}</p>'


def errors(done: ShownLayer, at: tuple[int, int]) -> None:
    """Draw the error of every output channel and every token; a click on a bar chooses it."""
    found = done.found
    make = partial(figures.output_errors, found, at, theme=theme())
    figure = cache.cached(done.content, f"errors {at} {theme()}", make)
    channels = found.y.shape[1]
    targets = range(channels + found.y.shape[0])

    def clicked(number: int) -> None:
        controls.pick((at[0], number) if number < channels else (number - channels, at[1]))

    charts.clickable(
        figure, "RMS error of every output channel and of every token", "ly_errors", targets, clicked
    )
    st.caption("A click on a bar chooses that channel, or that token.")
