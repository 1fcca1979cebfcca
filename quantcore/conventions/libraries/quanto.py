"""Records of optimum-quanto. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import (
    CHANNEL,
    FLOATS,
    GROUP,
    HALF,
    IN_OWN_DTYPE,
    TENSOR,
    Convention,
    Limit,
    own_dtype,
)

_OWN_DTYPE = own_dtype(*IN_OWN_DTYPE, dtypes=(*HALF, "float64"))
_OPTIMIZERS = "optimum/quanto/tensor/optimizers"


def _affine(name: str, zeropoint: bool, **choices: Any) -> Convention:
    return Convention.of(
        name,
        library="optimum-quanto",
        version="0.2.7",
        call=f"MaxOptimizer(zeropoint={zeropoint}) -> quantize_weight(qint4 or qint2, axis=0)",
        preset_only=True,
        nan="undefined",
        zero_in_range="no",
        range_overflow="infinite",
        eps=0.0,
        eps_replacement=0.0,
        variants=_OWN_DTYPE,
        limits=(
            Limit("kind", ("unsigned asymmetric",), "supports unsigned asymmetric codes only"),
            Limit("bits", (2, 4), "supports 2 and 4 bits (qint2, qint4)"),
            Limit("narrow", (False,), "uses every code"),
            Limit("granularity", (CHANNEL, GROUP), "uses one scale per row, or per group within a row"),
            Limit("channel_axis", (0,), "with axis=0 uses one scale per row, with channels along axis 0"),
            Limit("group_axis", (-1,), "with axis=0 groups consecutive elements, along the last axis"),
            Limit("group_divides", (True,), "requires groups that divide the last axis"),
        ),
        sources=(
            ("kernel", "optimum/quanto/library/quantize.py:70-77"),
            ("zero_in_range", f"{_OPTIMIZERS}/max_optimizer.py:35"),
            ("zero_point_form", f"{_OPTIMIZERS}/affine_optimizer.py:56-59"),
        ),
        **choices,
    )


PLACE = 7  # among the libraries, wherever they are listed
RECORDS = (
    Convention.of(
        "quanto",
        library="optimum-quanto",
        version="0.2.7",
        call="AbsmaxOptimizer -> quanto::quantize_symmetric",
        nan="zero",
        eps=0.0,
        variants=_OWN_DTYPE,
        limits=(
            Limit("kind", ("signed symmetric",), "supports signed symmetric codes only"),
            Limit("bits", (2, 4, 8), "supports 2, 4 and 8 bits (qint2, qint4, qint8)"),
            Limit("narrow", (False,), "clamps to the full range"),
            Limit("sub_byte_range", (True,), "clamps to 8 bits even if the type has fewer; choose min_max"),
            Limit("granularity", (TENSOR, CHANNEL), "supports per-tensor and per-channel scales"),
            Limit("channel_axis", (0, -1), "supports channels along the first or the last axis only"),
            Limit(
                "channel_rank",
                tuple(range(2, 65)),
                "supports per-channel scales only for tensors with several axes",
            ),
        ),
        sources=(
            ("kernel", "optimum/quanto/library/quantize.py:40-60; measured"),
            ("symmetric_scale", f"{_OPTIMIZERS}/absmax_optimizer.py:30-38"),
        ),
    ),
    # the float shift is -min
    _affine("quanto.affine", False, kernel="H", zero_point_form="min"),
    _affine("quanto.zero_point", True, nan_zero_point="zero"),
    Convention.of(
        "quanto.float8",
        library="optimum-quanto",
        version="0.2.7",
        call="AbsmaxOptimizer -> quantize_weight(qfloat8_e4m3fn, axis=0)",
        variants=_OWN_DTYPE,
        limits=(Limit("channel_axis", (0, -1), "supports channels along the first or the last axis only"),),
        sources=(
            ("kernel", "optimum/quanto/library/quantize.py:51"),
            ("symmetric_scale", f"{_OPTIMIZERS}/absmax_optimizer.py:30-38"),
        ),
        **FLOATS,
    ),
)
