"""Which schemes the library call of a preset has a script for.

A call computes its presets. What it takes as an argument, such as the group size, can differ from them;
nothing else can.
"""

from typing import Any

from quantcore.conventions import INTEGER_CONVENTIONS, Convention
from quantcore.errors import QuantError
from quantcore.granularity import PerFlatGroup, PerGroup
from quantcore.notation import write_call
from quantcore.quantization import Quantized
from quantcore.scheme import PRESETS, PROPERTIES, Scheme
from quantcore.snippets.libraries.recipe import Call

# field -> what False and True mean
_ADJECTIVES = {
    "symmetric": ("asymmetric codes", "symmetric codes"),
    "scales": ("float32 scales", "quantized scales"),
}
# library without a script -> why, and what to do
_NOT_INSTALLABLE = {
    "microxcaling": "microxcaling is not on any package index, so a script could not install it; use the quantcore "
    "script, which reproduces its commit {version}."
}


def why_no_call(convention: Convention) -> str:
    """Return why a convention has no call."""
    if convention.library in _NOT_INSTALLABLE:
        return _NOT_INSTALLABLE[convention.library].format(version=convention.version)
    known = convention.name in INTEGER_CONVENTIONS
    why = "does not describe a current library" if known else "only says how scales are stored"
    return f"{convention.name} {why}, so there is no script for it; choose another convention."


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
            f"{convention.library} does not define the codes of NaN and infinity, and the result contains some; "
            "remove them from the tensor."
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
    """All fields by name; those of the scales have the prefix ``scales.``."""
    names = ("format", "symmetric", "granularity", "range_setting", "convention")
    found = {prefix + name: getattr(scheme, name) for name in names}
    found[f"{prefix}scales"] = scheme.scales is not None
    return found if scheme.scales is None else found | _fields(scheme.scales, f"{prefix}scales.")


def _words(value: Any) -> str:
    return str(value) if "__str__" in type(value).__dict__ else write_call(value)
