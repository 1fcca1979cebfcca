"""Small checkpoints to try things on: two layers of a sentence encoder, unquantized and quantized in three formats.

>>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
>>> open_checkpoint(EXAMPLES["minilm-gptq"]).tensors["encoder.layer.0.output.dense.weight"]
<encoder.layer.0.output.dense.weight (384, 1536), gptq int4 per_group(128) symmetric>
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_DATA = Path(__file__).parent / "data"
# name -> a file or folder; the others were quantized from "minilm". Sources: data/NOTICE.
EXAMPLES: Mapping[str, Path] = MappingProxyType(
    {
        "minilm-gptq": _DATA / "minilm-gptq",
        "minilm-q4_k_m": _DATA / "minilm-q4_k_m.gguf",
        "minilm-nvfp4": _DATA / "minilm-nvfp4",
        "minilm": _DATA / "minilm",
    }
)
