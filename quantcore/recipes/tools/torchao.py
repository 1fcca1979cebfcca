"""torchao: FqnToConfig, whose keys are the full names of modules.

Without ``_default``, modules that it does not name stay as they are; a key that is a full name matches only
itself (torchao 0.18, quantization/quant_api.py, `_fqn_to_config_handler`). The data is what
``torchao.core.config.config_from_dict`` takes.
"""

from collections.abc import Sequence
from typing import Any

from quantcore.checkpoints import Checkpoint
from quantcore.granularity import PerChannel
from quantcore.recipes.tools.tool import (
    TensorChoice,
    Tool,
    Written,
    by_entry,
    by_kind,
    no_matrices,
    quantized,
)
from quantcore.recipes.wanted import StorageKind

_NAMES = ("Float8WeightOnlyConfig", "IntxWeightOnlyConfig", "MappingType", "PerAxis", "PerGroup", "PerRow")


def entry(kind: StorageKind) -> dict[str, Any] | None:
    """Return the config of a module as plain data."""
    if kind.scales:
        return None
    if kind.format == "e4m3fn" and kind.granularity == PerChannel(0):
        dtype = {"_type": "torch.dtype", "_data": "float8_e4m3fn"}
        row = {"_type": "PerRow", "_version": 1, "_data": {"dim": -1}}
        data: dict[str, Any] = {"weight_dtype": dtype, "granularity": row}
        return {"_type": "Float8WeightOnlyConfig", "_version": 2, "_data": data}
    if not 2 <= kind.bits <= 8:
        return None
    if kind.granularity == PerChannel(0):
        granularity = {"_type": "PerAxis", "_version": 1, "_data": {"axis": 0}}
    elif kind.group_size:
        granularity = {"_type": "PerGroup", "_version": 1, "_data": {"group_size": kind.group_size}}
    else:
        return None
    mapping = "SYMMETRIC" if kind.symmetric else "ASYMMETRIC"
    data = {
        "weight_dtype": {"_type": "torch.dtype", "_data": f"int{kind.bits}"},
        "granularity": granularity,
        "mapping_type": {"_type": "MappingType", "_data": mapping},
    }
    return {"_type": "IntxWeightOnlyConfig", "_version": 2, "_data": data}


def _call(own: dict[str, Any]) -> str:
    """Return a config as Python."""
    given = []
    for name, value in own["_data"].items():
        kind, inner = value["_type"], value["_data"]
        written = {"torch.dtype": f"torch.{inner}", "MappingType": f"MappingType.{inner}"}.get(kind)
        if written is None:
            written = f"{kind}({', '.join(map(str, inner.values()))})" if kind != "PerRow" else "PerRow()"
        given.append(f"{name}={written}")
    return f"{own['_type']}({', '.join(given)})"


def _write(choices: Sequence[TensorChoice], checkpoint: Checkpoint | None) -> Written:
    modules = by_entry(choices, entry)
    calls = list(dict.fromkeys(map(_call, modules.values())))
    names = {call: f"scheme_{i}" for i, call in enumerate(calls)}
    used = ["FqnToConfig", *(name for name in _NAMES if any(name in call for call in calls)), "quantize_"]
    lines = ["import torch", f"from torchao.quantization import {', '.join(used)}", ""]
    lines += [*(f"{names[call]} = {call}" for call in calls), "config = FqnToConfig({"]
    for choice in quantized(choices):
        lines.append(f"    {choice.module!r}: {names[_call(modules[choice.module])]},  # {choice.reason}")
    lines += ["})", "quantize_(model, config, filter_fn=None)  # modules that are not named stay as they are"]
    data = {"_type": "FqnToConfig", "_version": 1, "_data": {"fqn_to_config": modules}}
    return Written("\n".join(lines) + "\n", data)


TORCHAO = Tool(
    "torchao", "quantize_with_torchao.py",
    (
        *(
            f"int{bits} {symmetry} {kind}" for bits in range(2, 9) for symmetry in ("symmetric", "asymmetric")
            for kind in ("per_channel(0)", "per_group(32)", "per_group(128)")
        ),
        "e4m3fn per_channel(0)",
    ),
    ("int8 per_channel(0)", "int4 per_group(32)", "int4 per_group(128)", "int4 asymmetric per_group(32)"),
    by_kind(entry), _write, no_matrices,
)  # fmt: skip
