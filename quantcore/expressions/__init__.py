"""Arithmetic written once: as data that is run on tensors, traced on one element, and written as formula or code."""

from quantcore.expressions.element import Element, Line, Term, Text, named, of_number, put, text_of, written
from quantcore.expressions.nodes import (
    ADD,
    ATOM,
    LOOSE,
    PRODUCT,
    SUBTRACT,
    SUM,
    Applied,
    Explained,
    Expression,
    Let,
    Name,
    Number,
    Operation,
    Value,
    Where,
    chain,
)
from quantcore.expressions.operations import (
    DEFINITIONS,
    EXPONENT,
    EXPONENT_CEIL,
    EXPONENT_OR_INFINITY,
    FUSED,
    GROUPED,
    LARGER,
    LOG2,
    MAGNITUDE,
    MAXIMUM,
    MINIMUM,
    NEGATIVE,
    ONES,
    POWER_OF_TWO,
    entry,
    rounded,
    rounded_each,
    to,
    without,
)
from quantcore.expressions.run import run
