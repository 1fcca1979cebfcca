"""``.safetensors``, and the JSON files beside it: the index of its shards, and the configs of a release."""

import re
from collections.abc import Mapping
from typing import Any

from quantcore.checkpoints.containers.stored import Container, StoredTensor
from quantcore.checkpoints.files.address import Folder, is_inside
from quantcore.checkpoints.files.sources import ByteSource
from quantcore.checkpoints.statement import Problem, named, some
from quantcore.collection import uncollected
from quantcore.errors import QuantError
from quantcore.tensors import load_json, read_safetensors_header

Shards = Mapping[str, tuple[str, ...]]  # the names of the tensors by shard
# an index of 90,000 tensors takes 8 MB; the largest releases have about 180,000 tensors in hundreds of shards
MAX_INDEX, MAX_INDEXED, MAX_SHARDS = 24 * 2**20, 250_000, 5_000
INDEX = re.compile(r".*\.(safetensors|bin)\.index\.json$")
SHARD = re.compile(r".*\.(safetensors|bin|pt|pth)$")
# 45,000 layers of their own settings take 5 MB and 220,000 values
MAX_CONFIG, MAX_VALUES = 8 * 2**20, 400_000
CONFIG = "config.json"
# files that hold the quantization_config if config.json does not
QUANTIZATION_FILES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")


def open_safetensors(source: ByteSource) -> Container:
    """Read the header: 8 bytes and its JSON.

    Raises:
        QuantError: the header can't be read, or does not describe the file.
    """
    header = read_safetensors_header(source.read, source.size, source.name)
    with uncollected():
        tensors = {
            name: StoredTensor(name, info.dtype, info.shape, source, offset, info.nbytes)
            for name, (info, offset) in header.tensors.items()
        }
    return Container(tensors, header.metadata)


def read_index(folder: Folder, name: str) -> tuple[Shards, list[Problem]]:
    """Return the shards of an index; those that can't be opened are left out and become problems.

    Raises:
        QuantError: it is not an index, or no shard can be opened.
    """
    content = _json(folder, name, MAX_INDEX)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise QuantError(
            f"{named(name)} has no weight_map of tensor names to file names; it is not an index."
        )
    many = len(set(weight_map.values()))
    if len(weight_map) > MAX_INDEXED or many > MAX_SHARDS:
        raise QuantError(
            f"{named(name)} names {len(weight_map):,} tensors in {many:,} files; at most {MAX_INDEXED:,} in "
            f"{MAX_SHARDS:,} are "
            "read."
        )
    shards: dict[str, list[str]] = {}
    for tensor, shard in weight_map.items():
        shards.setdefault(shard, []).append(tensor)
    problems = []
    present = folder.present(shard for shard in shards if is_inside(shard))
    for shard, tensors in shards.items():
        quoted = named(shard)
        if not is_inside(shard):
            kind, where = "outside", "which lies outside the folder, so it is not opened"
            trouble = f"The index names the file {quoted}, {where}."
        elif INDEX.match(shard) or not SHARD.match(shard):
            kind = "not_a_shard"
            trouble = f"The index {named(name)} names {quoted}, which is not a safetensors file."
        elif shard not in present:
            kind, trouble = "missing_shard", f"The shard {quoted} is missing."
        else:
            continue
        problems.append(Problem(kind, "error", f"{trouble} It should hold {some(tensors)}.", tuple(tensors)))
    wrong = {tensor for problem in problems for tensor in problem.tensors}
    good = {shard: tuple(tensors) for shard, tensors in shards.items() if not wrong & set(tensors)}
    if not good:
        raise QuantError(problems[0].sentence if problems else f"{named(name)} names no tensor.")
    return good, problems


def read_configs(folder: Folder) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return config.json, and the quantization config from it or a file next to it; empty if there is none.

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
    found = _json(folder, name, MAX_CONFIG)
    if not isinstance(found, dict):
        raise QuantError(f"{named(name)} is not a JSON object; download it again.")
    if not _are_few(found):
        raise QuantError(f"{named(name)} has more than {MAX_VALUES:,} values; it is not a model's config.")
    return found


def _are_few(value: Any) -> bool:
    """Tell whether JSON has at most `MAX_VALUES` values, at any depth."""
    left, many = [value], 0
    while left and many <= MAX_VALUES:
        one = left.pop()
        many += 1
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return many <= MAX_VALUES


def _json(folder: Folder, name: str, limit: int) -> Any:
    try:
        return load_json(folder.read(name, limit).decode("utf-8"), name)
    except UnicodeDecodeError:
        raise QuantError(f"{named(name)} is not UTF-8 text; download it again.") from None
