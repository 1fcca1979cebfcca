"""How much each tensor lost against the original: compared in boxes of rows, shown as colors and a column."""

from streamlit.delta_generator import DeltaGenerator

from pages.models.opening import OpenCheckpoint, compared
from quantcore.analysis import sqnr_of


def sqnr(opened: OpenCheckpoint, original: OpenCheckpoint, place: DeltaGenerator) -> dict[str, float]:
    """Return the SQNR in dB of each tensor compared so far, by name; compare the rest if it is quick or asked for.

    The SQNR of a tensor that is compared in parts, such as a stack of experts, is that of all its parts.
    """
    found = compared.between(original, opened)
    compared.proceed(found, place)
    sums: dict[str, tuple[float, float]] = {}
    for result in found.results:
        if not result.problem:
            signal, noise = sums.get(result.other_tensor, (0.0, 0.0))
            sums[result.other_tensor] = signal + result.power, noise + result.squared_error
    return {name: float(sqnr_of(signal, noise)) for name, (signal, noise) in sums.items()}
