"""ModelOpt: quantized_layers of a MIXED_PRECISION config, by the full names of modules.

vLLM looks a module up by its full name and leaves one that is not listed as it is; names of exclude_modules
would exclude every module that contains them (vLLM 00155cde, quantization/modelopt.py,
`ModelOptMixedPrecisionConfig` and `is_layer_excluded`), so that there are none. These are the algorithms that
it takes there; FP8 quantizes a layer's inputs too.
"""

import json
from collections.abc import Sequence
from typing import Any

from quantcore.checkpoints import Checkpoint
from quantcore.granularity import PerTensor
from quantcore.recipes.tools.tool import TensorChoice, Tool, Written, by_entry, by_kind, no_linears
from quantcore.recipes.wanted import StorageKind

_SCHEMES = ("e4m3fn per_tensor", "torchao.nvfp4")


def entry(kind: StorageKind) -> dict[str, Any] | None:
    """Return the algorithm of a module."""
    if kind.format == "e4m3fn" and not kind.scales and kind.granularity == PerTensor():
        return {"quant_algo": "FP8"}
    if kind.format == "e2m1" and kind.scales == "e4m3fn" and kind.group_size == 16:
        return {"quant_algo": "W4A16_NVFP4", "group_size": 16}
    return None


def _write(choices: Sequence[TensorChoice], checkpoint: Checkpoint | None) -> Written:
    layers = by_entry(choices, entry)
    own = {"quant_algo": "MIXED_PRECISION", "exclude_modules": [], "quantized_layers": layers}
    data = {"producer": {"name": "modelopt"}, "quantization": own}
    return Written(json.dumps(data, indent=2), data)


MODELOPT = Tool(
    "ModelOpt", "hf_quant_config.json", _SCHEMES, _SCHEMES, by_kind(entry), _write, no_linears, fuses=True,
)  # fmt: skip
