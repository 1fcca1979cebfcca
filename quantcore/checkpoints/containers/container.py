"""What a file contains: its stored tensors and the metadata in its header."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quantcore.checkpoints.containers.stored import StoredTensor


@dataclass(frozen=True)
class Container:
    """The headers of one file.

    ``metadata``: texts of the header, or the keys of a GGUF file. ``structure``: what tells weights from their
    parameters, where the file itself says so (QDQ pairs of ONNX). ``is_self_described``: whether the metadata take the
    place of config.json.
    """

    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    structure: Any = None
    is_self_described: bool = False
