"""What the modules of libraries return: a script in the library's API, and what the script needs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quantcore.conventions import INTEGER_CONVENTIONS, Limit
from quantcore.notation import write_call
from quantcore.quantization import Quantized
from quantcore.range_setting import MinMax, Search
from quantcore.snippets.script import TORCH, Language
from quantcore.snippets.template import render
from quantcore.tensors import WIDTH, Array, array_source

PARAMETERS = ("scale", "zero_point")


@dataclass(frozen=True)
class Recipe:
    """A script that binds codes from x, and scale and zero_point if the library returns them.

    ``script``: its lines, imports first; names that it imports but does not use are dropped.
    ``gives``: which of scale and zero_point the library computes, so that the script can assert them.
    ``also``: distributions to install in addition to the library.
    ``shows``: "codes", or "dequantized" if the library's packed codes can't be read.
    ``reader``: (distribution, version) that runs the script if the library has no Python package.
    """

    script: str
    gives: tuple[str, ...] = PARAMETERS
    also: tuple[str, ...] = ()
    language: Language = TORCH
    shows: str = "codes"
    reader: tuple[str, str] | None = None


@dataclass(frozen=True)
class Call:
    """A library's call: its script, and what can differ from its presets.

    ``free``: the fields that can differ, "*" for all. So can the granularity, within the group ``sizes`` and
    the ``limits``, which apply in addition to those of the convention.
    """

    recipe: Callable[[Quantized], Recipe]
    free: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    limits: tuple[Limit, ...] = ()


def write(template: str, result: Quantized, **values: object) -> str:
    """Return the script of a template, which can use x, fmt, granularity, symmetric, block and ``values``."""
    scheme = result.scheme
    return render(
        template,
        x=result.x,
        fmt=scheme.format,
        granularity=scheme.granularity,
        symmetric=scheme.symmetric,
        block=result.block,
        **values,
    )


def finds_range(result: Quantized) -> bool:
    """Whether the library computes scale and zero_point itself: observers do min-max, ggml its searches.

    Only the conventions of presets quantize scales themselves.
    """
    if isinstance(result.scheme.range_setting, Search):
        return result.scheme.convention.library == "ggml"
    own = result.scales is None or result.scheme.convention.name not in INTEGER_CONVENTIONS
    return isinstance(result.scheme.range_setting, MinMax) and own


def given_parameters(
    result: Quantized,
    shape: tuple[int, ...] | None,
    dtype: str = "int32",
    language: Language = TORCH,
    names: tuple[str, ...] = PARAMETERS,
) -> str:
    """Lines that bind scale and zero_point to the numbers of ``result``; "" if the library computes them.

    ``shape``: the shape that the library takes, None for block form; ``dtype``: that of the zero_point.
    """
    if finds_range(result):
        return ""
    scheme = result.scheme
    who = (
        f"the range setting {write_call(scheme.range_setting)}"
        if scheme.scales is None
        else "quantized scales"
    )
    lines = [f"# from {who}, not computed by the library"[:WIDTH]]
    for name, values in zip(PARAMETERS, (result.scale, result.params.zero_point), strict=True):
        array: Array = values.cpu().numpy()
        array = array if shape is None else array.reshape(shape)
        if name == "zero_point":
            array = array.astype(np.dtype(dtype))
        if name in names:
            lines.append(f"{name} = {array_source(array, language.module)}")
    return "\n".join(lines)


def axes_but(axis: int, rank: int) -> tuple[int, ...]:
    """Return every axis but one."""
    return tuple(i for i in range(rank) if i != axis % rank)
