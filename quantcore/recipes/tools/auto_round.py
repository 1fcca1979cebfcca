"""AutoRound: layer_config, by the full names of modules.

A key that is the name of a layer holds for that layer alone; any other is searched as a pattern, with
substrings (intel/auto-round 09168255, compressors/layer_config_resolver.py,
`_traverse_and_expand_layer_config`). A layer in a block that has no entry gets the default scheme, so that
one which stays as it is has 16 bits; embeddings stay in any case. AutoRound refuses 8 bits with zero points.
"""

import json
from collections.abc import Sequence
from typing import Any

from quantcore.checkpoints import Checkpoint
from quantcore.granularity import PerChannel
from quantcore.layerwise import kind_of
from quantcore.recipes.tools.tool import (
    TensorChoice,
    Tool,
    Written,
    by_entry,
    by_kind,
    kept_modules,
    no_linears,
)
from quantcore.recipes.wanted import StorageKind

_FLOAT = {"bits": 16, "data_type": "fp", "act_bits": 16, "act_data_type": "fp"}


def entry(kind: StorageKind) -> dict[str, Any] | None:
    """Return the scheme of a layer."""
    size = -1 if kind.granularity == PerChannel(0) else kind.group_size
    if kind.bits not in (2, 3, 4, 8) or kind.scales or not size or (kind.bits == 8 and not kind.symmetric):
        return None
    return {"bits": kind.bits, "group_size": size, "sym": kind.symmetric, "data_type": "int", "act_bits": 16}


def _write(choices: Sequence[TensorChoice], checkpoint: Checkpoint | None) -> Written:
    kept = [module for module in kept_modules(choices) if kind_of(f"{module}.weight") != "embeddings"]
    data = {**by_entry(choices, entry), **dict.fromkeys(kept, _FLOAT)}
    return Written(json.dumps(data, indent=2), data)


AUTO_ROUND = Tool(
    "AutoRound", "layer_config.json",
    tuple(
        f"int{bits} {symmetry} {kind}" for bits in (2, 3, 4, 8) for symmetry in ("symmetric", "asymmetric")
        for kind in ("per_channel(0)", "per_group(32)", "per_group(128)")
        if (bits, symmetry) != (8, "asymmetric")
    ),
    ("int8 per_channel(0)", "int4 per_group(32)", "int4 per_group(128)", "int3 per_group(128)"),
    by_kind(entry), _write, no_linears,
)  # fmt: skip
