"""Figures for lessons: each shows one idea, in the theme, font size and height that the page asks for."""

from quantcore.figures.lessons.outputs import bars, quality_against
from quantcore.figures.lessons.rounding import (
    clipping_against_rounding,
    error_against_x,
    error_bars,
    error_curve,
    rounding_line,
    thermometer,
)
from quantcore.figures.lessons.training import (
    METHOD_NAMES,
    Slopes,
    accuracy_against_bits,
    accuracy_over_epochs,
    digit_images,
    slope,
    slopes,
)
