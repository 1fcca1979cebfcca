"""A release's config.json, and what it or a file next to it says about quantization."""

from collections.abc import Mapping
from typing import Any

from quantcore.checkpoints.files.address import Folder
from quantcore.errors import QuantError
from quantcore.tensors import load_json

MAX_CONFIG = 4 * 2**20
CONFIG = "config.json"
# files that hold the quantization_config if config.json does not
QUANTIZATION_FILES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")


def read_configs(folder: Folder) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return config.json, and the quantization config from it or from a file next to it; empty if there is none.

    Raises:
        QuantError: a file is too large, or not a JSON object.
    """
    config = _config(folder, CONFIG)
    for key in ("quantization_config", "compression_config", "quantization"):
        if isinstance(config.get(key), dict):
            return config, config[key]
    for name in QUANTIZATION_FILES:
        found = _config(folder, name)
        if found:
            return config, found
    return config, {}


def _config(folder: Folder, name: str) -> Mapping[str, Any]:
    if not folder.present([name]):
        return {}
    try:
        found = load_json(folder.read(name, MAX_CONFIG).decode("utf-8"), name)
    except UnicodeDecodeError:
        raise QuantError(f"{name} is not UTF-8 text; download it again.") from None
    if not isinstance(found, dict):
        raise QuantError(f"{name} is not a JSON object; download it again.")
    return found
