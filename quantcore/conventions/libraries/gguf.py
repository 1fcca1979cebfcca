"""Records of gguf. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.libraries.limits import (
    FLOATS,
    ROW_GROUPS,
)
from quantcore.conventions.record import Convention


def _gguf(name: str, lines: str, **choices: Any) -> Convention:
    return Convention.of(
        name,
        call=f"quants.quantize(x, {name.partition('.')[2]})",
        range_overflow="infinite",
        cast="low_bits",
        quantize_with="raw",
        sources=(("all", f"gguf/quants.py:{lines}"),),
        limits=ROW_GROUPS,
        **{**FLOATS, "formats": ("int",), "nan": "zero", "library": "gguf", "version": "0.19.0", **choices},
    )


PLACE = 11  # among the libraries, wherever they are listed
RECORDS = (
    _gguf("gguf.Q8_0", "379-393", rounding="half_away", kernel="B"),
    _gguf(
        "gguf.Q4_0",
        "222-238",
        kernel="F",
        rounding="toward_zero",
        symmetric_scale="signed_amax",
        unsigned_symmetric_zero_point="middle",
    ),
    _gguf(
        "gguf.Q4_1",
        "256-273",
        kernel="G",
        rounding="toward_zero",
        zero_in_range="no",
        zero_point_form="min",
    ),
    _gguf("gguf.MXFP4", "668-688", symmetric_scale="power_log2_wrapped", formats=("codebook",)),
    _gguf("gguf.TQ2_0", "625-640", kernel="B", formats=("codebook",)),
    _gguf("gguf.TQ1_0", "577-599", kernel="B", formats=("codebook",), code_bits=1.625),
)
