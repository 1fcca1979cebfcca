"""Scripts that reproduce a result: with quantcore, with torch alone, or with the library itself."""

from quantcore.snippets.libraries import RECORDED_ONLY, library_script
from quantcore.snippets.snippets import quantcore_script, torch_script

__all__ = ["RECORDED_ONLY", "library_script", "quantcore_script", "torch_script"]
