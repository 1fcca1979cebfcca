"""What a library's module hands over: the lines in that library's API, and what they need."""

from dataclasses import dataclass

import numpy as np

from quantcore.conventions import INTEGER_CONVENTIONS
from quantcore.notation import write_call
from quantcore.quantization import Quantized
from quantcore.range_setting import MinMax
from quantcore.snippets.script import TORCH, Language
from quantcore.tensors import WIDTH, Array, array_source


@dataclass(frozen=True)
class Recipe:
    """Lines that bind codes from x, and scale and zero_point where the library gives them.

    ``imports``: their import lines. ``gives``: those of scale and zero_point that the library finds, so that
    the script can assert them. ``also``: distributions to install beside the library's own.
    ``shows``: codes, or dequantized where the library packs codes in a way of its own.
    """

    imports: str
    lines: list[str]
    gives: tuple[str, ...] = ("scale", "zero_point")
    also: tuple[str, ...] = ()
    language: Language = TORCH
    shows: str = "codes"


def finds_range(result: Quantized) -> bool:
    """Whether the library finds scale and zero_point by itself: its observers do min-max here.

    Scales of scales are the library's own only under the conventions of presets.
    """
    own = result.scales is None or result.scheme.convention.name not in INTEGER_CONVENTIONS
    return isinstance(result.scheme.range_setting, MinMax) and own


def parameters_source(
    result: Quantized, shape: tuple[int, ...] | None, dtype: str = "int32", language: Language = TORCH
) -> list[str]:
    """Lines that bind scale and zero_point to the numbers of ``result``, in a shape that the library takes.

    ``shape``: None for block form; ``dtype``: that of the zero_point.
    """
    scheme = result.scheme
    who = (
        f"the range setting {write_call(scheme.range_setting)}"
        if scheme.scales is None
        else "scales of scales"
    )
    lines = [f"# by {who}, not by the library"[:WIDTH]]
    for name, values in (("scale", result.scale), ("zero_point", result.params.zero_point)):
        array: Array = values.cpu().numpy()
        array = array if shape is None else array.reshape(shape)
        if name == "zero_point":
            array = array.astype(np.dtype(dtype))
        lines.append(f"{name} = {array_source(array, language.module)}")
    return lines


def axes_but(axis: int, rank: int) -> tuple[int, ...]:
    """Return every axis but one."""
    return tuple(i for i in range(rank) if i != axis % rank)
