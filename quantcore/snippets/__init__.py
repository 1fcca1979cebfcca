"""Scripts that reproduce a result: with quantcore, with torch alone, or with the library itself."""

from quantcore.snippets.layer_script import FILE as LAYER_FILE
from quantcore.snippets.layer_script import LayerSource, binding, layer_script
from quantcore.snippets.libraries import RECORDED_ONLY, library_script
from quantcore.snippets.snippets import quantcore_script, torch_script

__all__ = [
    "LAYER_FILE", "RECORDED_ONLY", "LayerSource", "binding", "layer_script", "library_script",
    "quantcore_script", "torch_script",
]  # fmt: skip
