"""The formats of codes: integers, small floats, codebooks."""

from quantcore.formats.about import about
from quantcore.formats.bits import e8m0, small_float
from quantcore.formats.codebook import CODEBOOKS, MAX_VALUES, CodebookFormat
from quantcore.formats.codebook_fit import METHODS, fit_codebook
from quantcore.formats.floating_point import FLOATS, FloatFormat
from quantcore.formats.integer import (
    FORMATS,
    INT2,
    INT4,
    INT8,
    INT16,
    MAX_BITS,
    MIN_BITS,
    UINT2,
    UINT4,
    UINT8,
    UINT16,
    Format,
    IntFormat,
    parse_format,
)
