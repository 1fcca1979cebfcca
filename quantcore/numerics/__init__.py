"""Arithmetic used by every stage: float32 input, rounding rules, scratch memory."""

from quantcore.numerics.float32 import (
    CHUNK,
    FLOAT_DTYPES,
    apart,
    as_float32,
    as_floats,
    before_rounding,
    decimal,
    held,
    refuse_nonfinite,
)
from quantcore.numerics.rounding import (
    BELOW_HALF,
    MAX_SEED,
    NAMES,
    NEAREST,
    ROUNDINGS,
    WORDS,
    Rounding,
    Stochastic,
    half_away_of_sum,
    half_even,
    half_even_of_sum,
    overflow_stays,
    rounding,
    takes_sum,
)
from quantcore.numerics.scratch import like, round_to, scratch, wide, widened
