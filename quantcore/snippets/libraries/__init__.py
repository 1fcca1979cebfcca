"""Scripts that reproduce a result in the API of its library and assert it.

One module per library, with the same name as its conventions, found automatically. ``RECIPES`` has one
function per integer convention, ``CALLS`` one per convention of the presets. Each module knows only its
library's API.
"""

import importlib
import pkgutil
from collections.abc import Callable

import numpy as np

from quantcore.conventions import CONVENTIONS, INTEGER_CONVENTIONS
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Call, Recipe, check_supported, finds_range
from quantcore.snippets.script import TORCH, assemble, check, check_parameters, checked, ending, render
from quantcore.tensors import WIDTH, Array, as_numpy, literal

_SCRIPT = """
{{ script }}
print({{ shows }})

{% for line in widened %}
{{ line }}
{% endfor %}
{{ check }}
{% for line in checks %}
{{ line }}
{% endfor %}

{{ ending }}
"""
_MODULES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
RECIPES: dict[str, Callable[[Quantized], Recipe]] = {
    name: recipe for module in _MODULES for name, recipe in getattr(module, "RECIPES", {}).items()
}
CALLS: dict[str, Call] = {
    name: call for module in _MODULES for name, call in getattr(module, "CALLS", {}).items()
}
# Libraries that can't be installed with the CPU build of torch: their scripts were run in a separate
# environment, and the tests run them only if the library is installed
RECORDED_ONLY = frozenset({"aimet-torch"})


def library_script(result: Quantized) -> str:
    """Return a script in the API of the convention's library that asserts the codes of ``result``.

    If the library does not return codes, the dequantized values are asserted instead. The script also asserts
    scale and zero_point if the library computes them; for range settings other than `MinMax` they are usually
    written into the script as numbers. The last line of its output says what was checked, and with which
    version of the library.

    >>> import quantcore as qc
    >>> scheme = qc.Scheme.parse("uint8 asymmetric per_tensor onnxruntime")
    >>> print(library_script(qc.apply([0.5, -1.0, 2.0], scheme)).splitlines()[0])
    # quant_utils.compute_scale_zp (groups: compute_scale_zp_blocked) -> QuantizeLinear, CPU

    Raises:
        QuantError: the convention does not describe a library that can be installed, or was changed, or its
            library has no call for this scheme or does not accept these parameters.
    """
    convention = result.scheme.convention
    _check_supported(result)
    recipe_of = RECIPES.get(convention.name) or CALLS[convention.name].recipe
    recipe = recipe_of(result)
    language = recipe.language
    also = (f"torch=={CONVENTIONS['torch.fake_quantize'].version}",) if language is TORCH else ()
    library, version = recipe.reader or (convention.library, convention.version)
    pins = sorted({f"{library}=={version}", *also, *recipe.also})
    heading = f"# {convention.call}"[:WIDTH] + f"\n# pip install {' '.join(pins)}\n"
    arrays = {name: as_numpy(getattr(result, name)) for name in (recipe.shows, *recipe.gives)}
    dtypes = dict.fromkeys(("scale", "zero_point"), result.scale_dtype) | {"dequantized": result.value_dtype}
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f"]
    halves = [name for name in floats if dtypes[name].itemsize == 2]
    if not all(np.isfinite(arrays[name]).all() for name in halves):
        raise QuantError(
            f"{convention.library} gives NaN or infinity for this tensor in its dtype, which a script can't "
            "compare; remove zero rows and the largest numbers, or choose float32."
        )
    arrays |= {name: arrays[name] + np.float32(0) for name in halves}
    parts = [checked(name, values, language) for name, values in arrays.items()]
    body = render(
        _SCRIPT,
        script=recipe.script,
        widened=[f"{name} = {language.to_float32.format(name=name)}  # exact; -0 is 0" for name in halves],
        shows=recipe.shows,
        check=check(recipe.shows, arrays[recipe.shows], language),
        checks=[check_parameters(name, arrays[name], language) for name in recipe.gives],
        ending=ending(parts, f"{library} {{version('{library}')}}"),
    )
    return assemble(literal(result.x.to(result.dtype), language.module), body, heading)


def _check_supported(result: Quantized) -> None:
    scheme, convention = result.scheme, result.scheme.convention
    if convention.name not in RECIPES and convention.name not in CALLS:
        if convention.library == "microxcaling":
            raise QuantError(
                "microxcaling is not on any package index, so a script could not install it; use the "
                f"quantcore script, which reproduces its commit {convention.version}."
            )
        known = convention.name in INTEGER_CONVENTIONS
        why = "does not describe a current library" if known else "only says how scales are stored"
        raise QuantError(f"{convention.name} {why}, so there is no script for it; choose another convention.")
    if convention != CONVENTIONS[convention.name]:
        raise QuantError(
            f"{convention} differs from what {convention.library} does, so {convention.library} can't "
            "compute these codes; choose the unchanged convention."
        )
    if convention.name in CALLS:
        check_supported(result, CALLS[convention.name])
    if finds_range(result):
        return
    z, fmt = result.zero_point, scheme.format
    if isinstance(fmt, IntFormat) and z is not None and bool(((z < fmt.qmin) | (z > fmt.qmax)).any()):
        raise QuantError(
            f"{convention.library} accepts only zero points within the codes {fmt.qmin}..{fmt.qmax} of "
            f"{fmt}; choose one of these."
        )
    if bool((result.scale == 0).any()):
        raise QuantError(
            f"A scale is 0, and {convention.library} would divide by it; choose scales that stay above 0."
        )
