"""compressed-tensors: config_groups with the full names of modules as targets, and ignore.

A target is the class of a module, its full name, or a pattern after ``re:`` (compressed-tensors 0.20,
utils/match.py, `match_name`); full names match nothing else. vLLM wants every Linear in a target or in
ignore.
"""

import json
from collections.abc import Sequence
from typing import Any

from quantcore.checkpoints import Checkpoint
from quantcore.granularity import PerChannel, PerTensor
from quantcore.recipes.tools.tool import (
    TensorChoice,
    Tool,
    Written,
    by_kind,
    kept_modules,
    no_linears,
    quantized,
)
from quantcore.recipes.wanted import StorageKind

# what the presets NVFP4A16 and MXFP4A16 say of weights (quantization/quant_scheme.py)
_FP4 = {
    "e4m3fn": ("nvfp4-pack-quantized", "tensor_group", 16, "torch.float8_e4m3fn"),
    "e8m0": ("mxfp4-pack-quantized", "group", 32, "torch.uint8"),
}


def entry(kind: StorageKind) -> dict[str, Any] | None:
    """Return the format of a group and its weights."""
    weights: dict[str, Any] = {"num_bits": kind.bits, "type": "int", "symmetric": kind.symmetric}
    if kind.granularity == PerChannel(0):
        weights |= {"strategy": "channel"}
    elif kind.granularity == PerTensor():
        weights |= {"strategy": "tensor"}
    elif kind.group_size:
        weights |= {"strategy": "group", "group_size": kind.group_size}
    else:
        return None
    weights["dynamic"] = False
    if kind.bits in (4, 8) and not kind.scales and weights["strategy"] != "tensor":
        return {"format": "pack-quantized", "weights": weights}
    if kind.format == "e4m3fn" and not kind.scales and not kind.group_size:
        return {"format": "naive-quantized", "weights": weights | {"num_bits": 8, "type": "float"}}
    if kind.format == "e2m1" and kind.scales in _FP4:
        name, strategy, size, scales = _FP4[kind.scales]
        fp4 = {"num_bits": 4, "type": "float", "strategy": strategy}
        fp4 |= {"scale_dtype": scales, "zp_dtype": scales}
        return {"format": name, "weights": weights | fp4} if kind.group_size == size else None
    return None


def _write(choices: Sequence[TensorChoice], checkpoint: Checkpoint | None) -> Written:
    groups: dict[str, dict[str, Any]] = {}
    for choice in quantized(choices):
        own = entry(choice.kind)
        group = groups.setdefault(json.dumps(own), {**(own or {}), "targets": []})
        group["targets"].append(choice.module)
    formats = {group["format"] for group in groups.values()}
    data = {
        "quant_method": "compressed-tensors",
        "format": formats.pop() if len(formats) == 1 else "mixed-precision",
        "config_groups": {f"group_{i}": group for i, group in enumerate(groups.values())},
        "ignore": kept_modules(choices),
    }
    return Written(json.dumps(data, indent=2), data)


COMPRESSED_TENSORS = Tool(
    "compressed-tensors", "quantization_config.json",
    (
        *(
            f"int{bits} {symmetry} {kind}" for bits in (4, 8) for symmetry in ("symmetric", "asymmetric")
            for kind in ("per_channel(0)", "per_group(32)", "per_group(128)")
        ),
        "e4m3fn per_tensor", "e4m3fn per_channel(0)", "compressed_tensors.nvfp4", "compressed_tensors.mxfp4",
    ),
    ("int8 per_channel(0)", "int4 per_group(32)", "int4 per_group(128)"),
    by_kind(entry), _write, no_linears, fuses=True,
)  # fmt: skip
