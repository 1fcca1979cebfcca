"""What a file contains: its stored tensors and the metadata in its header."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quantcore.checkpoints.containers.stored import StoredTensor


@dataclass(frozen=True)
class Container:
    """The headers of one file.

    ``metadata``: the header's texts, or the keys and values of a GGUF file. ``structure``: which tensors are weights and
    which are their parameters, if the file itself says so (QDQ pairs of ONNX). ``is_self_described``: whether the
    metadata replace config.json.
    """

    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    structure: Any = None
    is_self_described: bool = False
