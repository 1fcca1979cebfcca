"""The library calls of the presets: which function writes each script, and what of a preset can be changed.

A call computes its presets. What it takes as an argument can differ, such as the group size; nothing else has a
counterpart in the library.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quantcore.conventions import CONVENTIONS, INTEGER_CONVENTIONS, Convention, Limit
from quantcore.errors import QuantError
from quantcore.granularity import PerFlatGroup, PerGroup
from quantcore.notation import write_call
from quantcore.quantization import Quantized
from quantcore.scheme import PRESETS, PROPERTIES, Scheme
from quantcore.snippets.libraries import bitsandbytes, compressed_tensors, gguf, torchao
from quantcore.snippets.libraries.recipe import Recipe


@dataclass(frozen=True)
class Call:
    """A library's call: its script, and what can differ from its presets.

    ``free``: the fields that can. The granularity can too, within the group ``sizes`` and the ``limits``, which
    add to those of the convention.
    """

    recipe: Callable[[Quantized], Recipe]
    free: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    limits: tuple[Limit, ...] = ()


_TORCHAO_BOXES = (
    Limit("granularity", ("per_tensor", "per_channel", "per_group", "per_block"), "has no flat groups"),
    Limit("divides", (True,), "takes only blocks that divide the tensor"),
    Limit("block_elements", ("more",), "takes no blocks of one element"),
)
_COMPRESSED = tuple(
    limit
    for limit in CONVENTIONS["compressed_tensors"].limits
    if limit.of.partition("_")[0] in ("granularity", "channel", "group", "block")
)
CALLS: dict[str, Call] = {
    "torchao.int8": Call(torchao.int8),
    "torchao.float8": Call(torchao.float8, ("range_setting",), limits=_TORCHAO_BOXES),
    **{f"torchao.mx.{mode}": Call(torchao.mx) for mode in ("FLOOR", "EVEN", "CEIL", "RCEIL")},
    "torchao.nvfp4": Call(torchao.nvfp4, sizes=(16,)),
    "torchao.nf4": Call(torchao.nf4, ("scales.granularity",)),
    "compressed_tensors.float8": Call(compressed_tensors.affine, ("range_setting",), limits=_COMPRESSED),
    "compressed_tensors.mx": Call(compressed_tensors.mx, sizes=(32,)),
    "compressed_tensors.mx8": Call(compressed_tensors.mx, sizes=(32,)),
    "compressed_tensors.nvfp4": Call(compressed_tensors.nvfp4, sizes=(16,)),
    "bitsandbytes.4bit": Call(bitsandbytes.four_bits, sizes=tuple(2**n for n in range(5, 13))),
    "bitsandbytes.int8_vectorwise": Call(bitsandbytes.vectorwise),
    **{f"gguf.{name}": Call(gguf.blocks, sizes=(32,)) for name in ("Q4_0", "Q4_1", "Q8_0", "MXFP4")},
    **{f"gguf.{name}": Call(gguf.blocks, sizes=(256,)) for name in ("TQ1_0", "TQ2_0")},
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
    why = "is not a current library" if known else "only says how scales are stored"
    return f"{convention.name} {why}, so there is no script for it; choose another convention."


def check_supported(result: Quantized) -> None:
    """Raise if a scheme with a convention of `CALLS` can't have a script.

    Raises:
        QuantError: the call has no counterpart of the scheme, or some codes are undefined.
    """
    scheme, convention = result.scheme, result.scheme.convention
    call, name = CALLS[convention.name], f"{convention.call} of {convention.library}"
    granularity, shape = scheme.granularity, tuple(result.x.shape)
    if call.sizes and isinstance(granularity, PerGroup | PerFlatGroup) and granularity.size not in call.sizes:
        *most, last = map(str, call.sizes)
        sizes = f"{', '.join(most)} or {last}" if most else last
        raise QuantError(
            f"{name} takes groups of {sizes} elements, not of {granularity.size}; choose another group size."
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
    """Compare with the presets of the convention; the nearest one is what to choose."""
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
        what = f"the {key.replace('scales.', '').replace('_', ' ')}{' of scales' * key.count('.')}"
        raise QuantError(f"{name} has no counterpart of {what} {_words(here)}; choose {_words(there)}.")


def _fields(scheme: Scheme, prefix: str = "") -> dict[str, Any]:
    """Every field by name, those of the scales with the prefix ``scales.``."""
    names = ("format", "symmetric", "granularity", "range_setting", "convention")
    found = {prefix + name: getattr(scheme, name) for name in names}
    found[f"{prefix}scales"] = scheme.scales is not None
    return found if scheme.scales is None else found | _fields(scheme.scales, f"{prefix}scales.")


def _words(value: Any) -> str:
    return str(value) if "__str__" in type(value).__dict__ or isinstance(value, bool) else write_call(value)
