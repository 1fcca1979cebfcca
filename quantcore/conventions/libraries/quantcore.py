"""How quantcore itself stores the scales of a scheme."""

from quantcore.conventions.record import FLOATS, Convention

# a scale is stored as the nearest number of its format, NaN as NaN
STORED = Convention.of(
    "stored",
    library="quantcore",
    call="the scales of a scheme",
    sources=(("kernel", "IEEE 754-2019, 4.3.1"),),
    **FLOATS,
)

PLACE = 9  # among the libraries, wherever they are listed
RECORDS = (STORED,)
