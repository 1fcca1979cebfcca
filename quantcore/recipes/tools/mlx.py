"""MLX: ``quantization`` of config.json, by the paths of modules.

A path holds for its module alone, and ``false`` leaves one as it is (ml-explore/mlx-lm 003da2e9,
mlx_lm/utils.py, `load_model`). mlx_lm.convert takes the same by ``quant_predicate``.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from quantcore.checkpoints import Checkpoint
from quantcore.recipes.tools.tool import (
    TensorChoice,
    Tool,
    Written,
    by_entry,
    by_kind,
    kept_modules,
    no_matrices,
)
from quantcore.recipes.wanted import StorageKind

_FLOAT_MODES = {("e2m1", "e8m0"): ("mxfp4", 32, 4), ("e4m3fn", "e8m0"): ("mxfp8", 32, 8)}
_FLOAT_MODES |= {("e2m1", "e4m3fn"): ("nvfp4", 16, 4)}


def entry(kind: StorageKind) -> dict[str, Any] | None:
    """Return group size, bits and mode of a module."""
    if not kind.scales and not kind.symmetric and kind.bits in (2, 3, 4, 5, 6, 8):
        affine = {"group_size": kind.group_size, "bits": kind.bits, "mode": "affine"}
        return affine if kind.group_size in (32, 64, 128) else None
    mode, size, bits = _FLOAT_MODES.get((kind.format, kind.scales), ("", 0, 0))
    return {"group_size": size, "bits": bits, "mode": mode} if size and size == kind.group_size else None


def _write(choices: Sequence[TensorChoice], checkpoint: Checkpoint | None) -> Written:
    modules = by_entry(choices, entry)
    (most, _), *_ = Counter(json.dumps(own) for own in modules.values()).most_common(1)
    data = {**json.loads(most), **modules, **dict.fromkeys(kept_modules(choices), False)}
    return Written(json.dumps({"quantization": data}, indent=2), {"quantization": data})


MLX = Tool(
    "MLX", "quantization.json",
    (
        *(f"uint{b} asymmetric per_group({size})" for b in (2, 3, 4, 5, 6, 8) for size in (32, 64, 128)),
        "torchao.mxfp4", "torchao.mxfp8_e4m3", "torchao.nvfp4",
    ),
    tuple(f"uint{bits} asymmetric per_group(64)" for bits in (3, 4, 5, 6, 8)),
    by_kind(entry), _write, no_matrices,
)  # fmt: skip
