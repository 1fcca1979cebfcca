"""How much each tensor lost against the original: compared in boxes of rows, shown as colors and a column."""

from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.models.checkpoint.run import Progress
from pages.models.opening import Opened
from pages.models.opening.compared import Kept, kept, proceed
from pages.shared import messages
from quantcore.analysis import sqnr_of
from quantcore.wording import megabytes

AT_ONCE = 100_000_000  # bytes of both that are compared without pressing the button: about a second
_WANTED = "_ck_harm_wanted"


def sqnr(opened: Opened, original: Opened, place: DeltaGenerator) -> dict[str, float]:
    """Return the SQNR in dB of each tensor compared so far, by name; compare the rest if it is quick or asked for."""
    found = kept(original, opened)
    if not found.is_finished:
        left, wanted = found.comparison.total - found.done, st.session_state.get(_WANTED)
        if wanted == found.key or (left <= AT_ONCE and wanted != f"not {found.key}"):
            _continue(found, place)
        else:
            label = f"Compare {megabytes(left)}" if not found.done else f"Continue: {megabytes(left)} left"
            place.button(label, type="primary", on_click=_want, args=(found.key,), key="_ck_harm")
    return _by_tensor(found)


def _want(key: str) -> None:
    st.session_state[_WANTED] = key


def _continue(found: Kept, place: DeltaGenerator) -> None:
    progress = Progress(place, partial(_want, f"not {found.key}"))

    def shown() -> None:
        text = f"{megabytes(found.done)} of {megabytes(found.total)}: {found.name}"
        progress(found.done / max(1, found.total), messages.plain(text))

    proceed(found, shown)
    progress.end()


def _by_tensor(found: Kept) -> dict[str, float]:
    """The SQNR of each tensor; for one compared in parts, such as a stack of experts, over all its parts."""
    sums: dict[str, tuple[float, float]] = {}
    for result in found.results:
        if not result.problem:
            signal, noise = sums.get(result.other_tensor, (0.0, 0.0))
            sums[result.other_tensor] = signal + result.power, noise + result.squared_error
    return {name: float(sqnr_of(signal, noise)) for name, (signal, noise) in sums.items()}
