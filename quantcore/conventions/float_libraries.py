"""Records of the calls that quantize to small floats; `quantcore.presets` puts them together with formats."""

from typing import Any

from quantcore.conventions.record import Convention

_FLOATS: dict[str, Any] = {
    "formats": ("float",),
    "nan": "undefined",
    "smallest_scale": 0.0,
    "replacement": 0.0,
}
_TORCHAO: dict[str, Any] = {**_FLOATS, "library": "torchao", "version": "0.18.0"}
_MX = "torchao/prototype/mx_formats/mx_tensor.py"


def _mx(mode: str, rule: str, **choices: Any) -> Convention:
    return Convention(
        f"torchao.mx.{mode}",
        call=f"MXTensor.to_mx(x, elem_dtype, 32, ScaleCalculationMode.{mode})",
        symmetric_scale=rule,  # type: ignore[arg-type]
        sources=(
            ("symmetric_scale", f"{_MX}:214"),
            ("kernel", f"{_MX}:362"),
            ("coded_least", f"{_MX}:348-359"),
        ),
        **{**_TORCHAO, "coded_least": 2.0**-126, **choices},
    )


# A scale as it is kept: the nearest number of its format, NaN too
STORED = Convention(
    "stored",
    library="quantcore",
    call="the scales of a scheme",
    sources=(("kernel", "IEEE 754-2019, 4.3.1"),),
    **_FLOATS,
)

FLOAT_LIBRARIES: tuple[Convention, ...] = (
    STORED,
    Convention(
        "torchao.float8",
        call="_choose_scale_float8 -> _quantize_affine_float8",
        sources=(
            ("symmetric_scale", "torchao/quantization/quant_primitives.py:2262-2270"),
            ("kernel", "torchao/quantization/quant_primitives.py:2354"),
        ),
        **_TORCHAO,
    ),
    _mx("FLOOR", "power_floor"),
    _mx("EVEN", "power_even"),
    _mx("CEIL", "power_ceil"),
    # multiplies by 2^-e, and by 1 where e8m0 holds its least
    _mx("RCEIL", "power_log2_ceil", kernel="B", coded_least=1.0),
)
