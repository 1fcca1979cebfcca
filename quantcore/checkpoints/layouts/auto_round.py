"""AutoRound releases (quant_method auto-round): the packings of other methods, chosen by ``packing_format``.

``auto_round:auto_gptq``: GPTQ v1. ``auto_round:auto_awq``: AWQ gemm. ``auto_round:llm_compressor``:
compressed-tensors. Others (``auto_round``, ``auto_round:gptqmodel``): as GPTQ, with zero points stored as
they are (v2). ``extra_config`` overrides bits, group sizes and symmetry for modules, by name or pattern.

Source: auto-round b9f3d007 (0.15.0), auto_round/inference/convert_model.py and auto_round_extension/torch.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from quantcore.checkpoints.containers.stored import Pieces
from quantcore.checkpoints.layouts import awq, compressed_tensors, fp8, gptq
from quantcore.checkpoints.layouts.awq import NAMES
from quantcore.checkpoints.protocol.config import Config, Patterns, flag, section, text
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import Release, attempt

Make = Callable[[str, Pieces, Config], Layout]


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of an AutoRound release."""
    config = release.quantization
    packing = text(config, "packing_format") or "auto_round:auto_gptq"
    exceptions, patterns = section(config, "extra_config"), Patterns()
    make: Make = awq.layout_of if "awq" in packing else gptq.layout_of
    # the ``version`` in the config is AutoRound's, not AWQ's, and there is no checkpoint_format
    version = "gptq" if "auto_gptq" in packing else "gptq_v2"
    config_of_all = {**config, "version": "gemm", "checkpoint_format": version}

    def made(module: str, pieces: Pieces) -> Layout:
        return make(module, pieces, {**config_of_all, **_exception(module, exceptions, patterns)})

    for module, pieces in release.modules_with(*NAMES, keep=(*NAMES, "g_idx")):
        yield attempt(f"{module}.weight", pieces, made, module, pieces)
    yield from fp8.find(release)
    yield from compressed_tensors.find(replace(release, quantization=_as_groups(config)))


def _exception(module: str, exceptions: Config, patterns: Patterns) -> Config:
    """Return the exceptions that the config makes for a module."""
    if module in exceptions:
        return section(exceptions, module)
    for pattern in exceptions:
        if any(c in pattern for c in "*+?[(|\\") and patterns.matches(pattern, module):
            return section(exceptions, pattern)
    return {}


def _as_groups(config: Config) -> Config:
    """Return the config as compressed-tensors writes it, with one group."""
    if section(config, "config_groups"):
        return config
    kind = text(config, "data_type") or "int"
    weights = {
        "num_bits": config.get("bits"),
        "type": "float" if "fp" in kind else "int",
        "symmetric": flag(config, "sym") is not False,
        "strategy": "group",
        "group_size": config.get("group_size"),
    }
    return {**config, "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}}}
