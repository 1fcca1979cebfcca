"""Shared by the readers of rows and brackets: conversion to float32, errors for words that are no numbers."""

from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from quantcore.errors import QuantError
from quantcore.wording import place, short

Float32Array = npt.NDArray[np.float32]


def not_a_number(text: str, position: int, word: str) -> QuantError:
    """Return the error for the ``word`` at ``position`` of ``text``, with what to do about it."""
    where = place(text, position)
    if "..." in word or "…" in word:
        return QuantError(
            f"The printed text omits numbers ({short(word)} at {where}); print all of them with "
            'torch.set_printoptions(profile="full"), np.set_printoptions(threshold=sys.maxsize) or '
            "df.to_string(), or upload a .npy file."
        )
    if word in ("--", "--,"):
        return QuantError(
            f"{short(word)} at {where} is a masked element; paste the print of x.filled(0), with the number "
            "that is to replace it."
        )
    if word[:2].lower() == "0x":
        return QuantError(
            f"{short(word)} at {where} is hexadecimal; write decimal numbers, or, if these are the bits of "
            f"float32 numbers, paste the print of np.array([{word[:12]}, …], np.uint32).view(np.float32)."
        )
    if "*" in word:
        return QuantError(
            f"There is a factor before the numbers ({short(word)} at {where}); "
            "multiply the numbers by it and paste again."
        )
    if word.startswith(";"):
        return QuantError(
            f"There is a ';' inside brackets at {where}; give each row its own brackets, [[1, 2], [3, 4]]."
        )
    return QuantError(f"{short(word)} at {where} is not a number; remove it or write a number there.")


def to_float32(values: "array[float]", words: Iterable[tuple[int, str]], text: str) -> Float32Array:
    """Round to the nearest float32.

    Args:
        values: the numbers as float64.
        words: position and spelling of each number, used only if a value is infinite.
        text: the text that contains the words.

    Raises:
        QuantError: a number is beyond 3.4e38 and was not written as ``inf``.
    """
    with np.errstate(over="ignore"):
        result = np.frombuffer(values, dtype=np.float64).astype(np.float32)
    infinite = np.isinf(result)
    if infinite.any():
        for is_infinite, (position, word) in zip(infinite, words, strict=False):
            if is_infinite and "i" not in word.lower():
                raise QuantError(
                    f"{short(word)} at {place(text, position)} is beyond float32, whose largest value is "
                    "3.4e38; scale the numbers down."
                )
    return result
