"""Scripts that reproduce a result: with quantcore, with torch alone, or with the library itself."""

from quantcore.snippets.layer_script import FILE as LAYER_FILE
from quantcore.snippets.layer_script import LayerSource, binding, layer_script
from quantcore.snippets.libraries import RECORDED_ONLY, library_script
from quantcore.snippets.method_script import (
    MethodSource,
    cache_script,
    method_library_script,
    method_script,
)
from quantcore.snippets.snippets import quantcore_script, torch_script
from quantcore.snippets.sweep_script import sweep_script

__all__ = [
    "LAYER_FILE",
    "LayerSource",
    "MethodSource",
    "RECORDED_ONLY",
    "binding",
    "cache_script",
    "layer_script",
    "library_script",
    "method_library_script",
    "method_script",
    "quantcore_script",
    "sweep_script",
    "torch_script",
]
