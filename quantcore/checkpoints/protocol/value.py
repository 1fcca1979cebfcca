"""The value of an element as an expression of its level and its parameters, with the library's roundings."""

from functools import cache, lru_cache

import torch

from quantcore.expressions import Expression, Let, Name, to
from quantcore.formats import FloatFormat, small_float

# roles of fields, as golden checkpoints name them; a format may add its own
CODES, SCALE, ZERO_POINT, MIN, GROUP_INDEX = "codes", "scale", "zero_point", "min", "g_idx"
Q, S, Z, M = (Name(role) for role in (CODES, SCALE, ZERO_POINT, MIN))
VALUE = "w"  # the name of the value in formulas
PLAIN: Expression = Let(VALUE, Q)  # the value of a weight whose stored numbers are its values
# the names of roles in formulas; a layout may have others
SYMBOLS = {
    CODES: "q", SCALE: "s", ZERO_POINT: "z", GROUP_INDEX: "g", "scale_code": "sc", "global_scale": "s_global",
    "quant_map": "v", "nested_absmax": "outer", "nested_quant_map": "inner", "min_code": "mc",
    "grid_index": "i", "sign_index": "signs", "shift_sign": "shift",
}  # fmt: skip


@lru_cache(maxsize=1024)  # one object for all weights of a format: how it is computed is planned once
def value_of(
    level: Expression, decoding: str, shifted: bool, added: str, sign: int, most: float, dtype: torch.dtype | None, each: bool
) -> Expression:
    """Return (level - z) · s, or what the library computes instead.

    Args:
        decoding: "" without a scale, else how it is used.
        shifted: whether a zero point is subtracted.
        added: the role that is added after the multiplication, or subtracted if ``sign`` is -1; "" if there is none.
        most: the element's largest value.
        dtype: to round to, after each operation or once; None for float32.
    """

    def step(found: Expression, name: str) -> Expression:
        if each and dtype is not None:
            return Let(name, to(dtype)(found), "rounded after each operation")
        return Let(name, found) if name == VALUE else found

    if not decoding:
        value = step(level, VALUE)
    elif added:
        product, other = step(level * S, "product"), Z if added == ZERO_POINT else M
        value = step(product + other if sign > 0 else product - other, VALUE)
    else:
        found = step(level - Z, "difference") if shifted else level
        scaled = found / S if decoding == "divided" else found * S
        value = step(scaled * float(torch.tensor(1.0) / most) if decoding == "of_largest" else scaled, VALUE)
    return value if each else rounded_to(value, dtype)


def rounded_to(value: Expression, dtype: torch.dtype | None) -> Expression:
    """Return a value rounded once; None for float32."""
    return value if dtype is None else Let(VALUE, to(dtype)(value), "the library's output dtype")


@cache
def float_level(element: FloatFormat) -> Expression:
    """Return the value of the bits of a small float."""
    return Let("v", small_float(element)(Q))
