"""What the modules of libraries return: a script in the library's API, what it needs, and for which schemes.

A call computes its presets. What it takes as an argument, such as the group size, can differ from them;
nothing else can.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantcore.conventions import INTEGER_CONVENTIONS, Limit
from quantcore.errors import QuantError
from quantcore.granularity import PerFlatGroup, PerGroup
from quantcore.notation import write_call
from quantcore.quantization import Quantized
from quantcore.scheme import PRESETS, PROPERTIES, Scheme
from quantcore.snippets.script import TORCH, Language, render
from quantcore.tensors import WIDTH, Array, array_source

PARAMETERS = ("scale", "zero_point")
# field -> what False and True mean
_ADJECTIVES = {
    "symmetric": ("asymmetric codes", "symmetric codes"),
    "scales": ("float32 scales", "quantized scales"),
}


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
    """Tell whether the library computes scale and zero_point itself: observers do min-max, ggml its searches.

    Only the conventions of presets quantize scales themselves.
    """
    if result.scheme.range_setting.searches_codes:
        return result.scheme.convention.library == "ggml"
    own = result.scales is None or result.scheme.convention.name not in INTEGER_CONVENTIONS
    return result.scheme.range_setting.ends_are_elements and own


def given_parameters(
    result: Quantized,
    shape: tuple[int, ...] | None,
    dtype: str = "int32",
    language: Language = TORCH,
    names: tuple[str, ...] = PARAMETERS,
) -> str:
    """Return lines that bind the numbers of ``result`` to scale and zero_point; "" if the library finds them.

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


def check_supported(result: Quantized, call: Call) -> None:
    """Raise if the ``call`` can't reproduce a scheme with the convention of a preset.

    Raises:
        QuantError: the call does not support the scheme, or some codes are undefined.
    """
    scheme, convention = result.scheme, result.scheme.convention
    name = f"{convention.call} of {convention.library}"
    granularity, shape = scheme.granularity, tuple(result.x.shape)
    if call.sizes and isinstance(granularity, PerGroup | PerFlatGroup) and granularity.size not in call.sizes:
        *most, last = map(str, call.sizes)
        sizes = f"{', '.join(most)} or {last}" if most else last
        raise QuantError(
            f"{name} supports groups of {sizes} elements, not {granularity.size}; choose another group size."
        )
    for limit in call.limits:
        found = PROPERTIES[limit.of](scheme, shape)
        if found and not set(found[0]) & set(limit.allowed):
            raise QuantError(f"{name} {limit.words}; here {found[1]}. Choose another granularity.")
    _check_other_fields(scheme, call, name)
    if not bool(result.x.isfinite().all() and result.dequantized.isfinite().all()):
        raise QuantError(
            f"{convention.library} does not define the codes of NaN and infinity, and the result contains "
            "some; remove them from the tensor."
        )


def _check_other_fields(scheme: Scheme, call: Call, name: str) -> None:
    """Compare with the presets of the convention; the message recommends the nearest one."""
    if "*" in call.free:
        return
    own = _fields(scheme)
    free = {"granularity", *call.free}
    nearest: dict[str, tuple[Any, Any]] | None = None
    for preset in PRESETS.values():
        if preset.convention == scheme.convention:
            other = _fields(preset)
            differ = {
                key: (own.get(key), value)
                for key, value in other.items()
                if key not in free and own.get(key) != value
            }
            nearest = differ if nearest is None or len(differ) < len(nearest) else nearest
    if nearest:
        key, (here, there) = next(iter(nearest.items()))
        field, of_scales = key.rpartition(".")[2], " of the scales" * key.count(".")
        if field in _ADJECTIVES:
            here, there = (_ADJECTIVES[field][value] + of_scales for value in (here, there))
            raise QuantError(f"{name} does not support {here}; choose {there}.")
        what = field.replace("_", " ") + of_scales
        raise QuantError(f"{name} does not support the {what} {_words(here)}; choose {_words(there)}.")


def _fields(scheme: Scheme, prefix: str = "") -> dict[str, Any]:
    """Return all fields by name; those of the scales have the prefix ``scales.``."""
    names = ("format", "symmetric", "granularity", "range_setting", "convention")
    found = {prefix + name: getattr(scheme, name) for name in names}
    found[f"{prefix}scales"] = scheme.scales is not None
    return found if scheme.scales is None else found | _fields(scheme.scales, f"{prefix}scales.")


def _words(value: Any) -> str:
    return str(value) if "__str__" in type(value).__dict__ else write_call(value)
