"""Small checkpoints to try things on.

Two layers of a sentence encoder in three formats, and a whole small model in one, each with its original; and
a language model of characters, which `quantcore.training.character_model` runs.

>>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
>>> open_checkpoint(EXAMPLES["minilm-gptq"]).tensors["encoder.layer.0.output.dense.weight"]
CheckpointTensor encoder.layer.0.output.dense.weight [384, 1536] · gptq int4 per_group(128) symmetric
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

DATA = Path(__file__).parent / "data"
# name -> a file or folder, quantized ones before the originals. Sources and licences: data/NOTICE.
EXAMPLES: Mapping[str, Path] = MappingProxyType(
    {
        "minilm-gptq": DATA / "minilm-gptq",
        "minilm-q4_k_m": DATA / "minilm-q4_k_m.gguf",
        "minilm-nvfp4": DATA / "minilm-nvfp4",
        "chgnet-w4a16": DATA / "chgnet-w4a16",
        "minilm": DATA / "minilm",
        "chgnet": DATA / "chgnet",
        "charlm": DATA / "charlm",
    }
)
# name of a quantized example -> name of the one that it was made from
ORIGINALS: Mapping[str, str] = MappingProxyType(
    {name: "chgnet" if name.startswith("chgnet") else "minilm" for name in EXAMPLES if "-" in name}
)
