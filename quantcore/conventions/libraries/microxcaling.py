"""Records of microxcaling. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import FLOATS, Convention

_MICROXCALING: dict[str, Any] = {
    **FLOATS,
    "formats": ("int", "float"),
    "library": "microxcaling",
    "version": "7bc4195",
    "symmetric_scale": "power_log2_floor",
}


def _microxcaling(name: str, rounding: str, words: str) -> Convention:
    return Convention.of(
        name,
        call=f"_quantize_mx(x, 8, elem_format, axes=[-1], block_size=32, round='{words}')",
        rounding=rounding,
        sources=(
            ("symmetric_scale", "mx/mx_ops.py:79-97, 262-268"),
            ("kernel", "mx/mx_ops.py:270"),
            ("rounding", "mx/elemwise_ops.py:66-74"),
        ),
        **_MICROXCALING,
    )


PLACE = 12  # among the libraries, wherever they are listed
RECORDS = (
    _microxcaling("microxcaling", "half_even_of_sum", "even"),
    _microxcaling("microxcaling.nearest", "half_away_of_sum", "nearest"),
)
