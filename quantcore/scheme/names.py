"""Names of whole schemes: presets, and what people call them."""

import re
from typing import Any

from quantcore.errors import QuantError
from quantcore.notation import NamedRecords
from quantcore.wording import joined

# name -> scheme; `presets` fills it
PRESETS: NamedRecords[Any] = NamedRecords()
# W4A16 of compressed-tensors' PRESET_SCHEMES (quant_scheme.py): its weights; W8A8 has one scale per row
_WEIGHTS = re.compile(r"w([2-8])a(?:[48]|16|fp8)(_asym)?")
_OF_GGUF = re.compile(r"(?:gguf\.)?(i?q\d_(?:[01k]|nl|xs)|tq[12]_0)(?:_[sml])?")
# methods that find other codes than rounding does, and what is nearest to them
_METHODS = {
    "gptq": "gptq_like.int4_g128",
    "awq": "int4 asymmetric per_group(128)",
    "smoothquant": "int8 per_channel(0)",
    "bnb": "bitsandbytes.nf4",
    "qlora": "bitsandbytes.nf4",
}


def meant(word: str) -> str:
    """Return the preset or the text of the scheme that a single word names; the word itself if it is none.

    >>> meant("Q4_K_M"), meant("w4a16"), meant("int4")
    ('gguf.Q4_K', 'int4 per_group(128) compressed_tensors', 'int4')

    Raises:
        QuantError: several presets have the name, or it is a method that is more than a scheme.
    """
    typed = word.lower().replace("-", "_")
    by_lower = {name.lower(): name for name in PRESETS}
    if typed in by_lower:
        return by_lower[typed]
    if found := _OF_GGUF.fullmatch(typed):
        return by_lower.get(f"gguf.{found[1]}", word)
    if found := _WEIGHTS.fullmatch(typed):
        granularity = "per_channel(0)" if typed == "w8a8" else "per_group(128)"
        symmetry = "asymmetric " if found[2] else ""
        return f"int{found[1]} {symmetry}{granularity} compressed_tensors"
    if typed == "fp4":
        raise QuantError("'fp4' is e2m1, as in MX formats, or bitsandbytes.fp4; write one of them.")
    if typed in _METHODS:
        raise QuantError(
            f"{word[:40]!r} is a method that also changes the weights or their codes; the nearest scheme "
            f"without that is {_METHODS[typed]!r}."
        )
    return word


def of_libraries(word: str) -> str | None:
    """Return the only preset that has this name in its library; None if no library has one.

    Raises:
        QuantError: several libraries have one.
    """
    typed = word.lower()
    found = [name for name in PRESETS if name.partition(".")[2].lower() == typed]
    if len(found) > 1:
        raise QuantError(f"{word[:40]!r} is a preset of several libraries; write {joined(found, 'or')}.")
    return found[0] if found else None
