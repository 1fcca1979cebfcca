"""What a checkpoint holds, tensor by tensor, from headers alone."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from quantcore.checkpoints.protocol.config import section
from quantcore.checkpoints.protocol.release import Deferred, Refused
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.collection import uncollected
from quantcore.errors import QuantError
from quantcore.wording import printable

_MANY = 16  # shapes to read: from this many on, they are read in parallel


@dataclass(frozen=True, slots=True)
class ListedTensor:
    """A tensor in a listing.

    ``problem``: why it can't be read, empty if it can; its shape is then a stored tensor's, or empty.
    """

    name: str
    shape: tuple[int, ...]
    storage: str
    num_bytes: int
    problem: str = ""

    @property
    def elements(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    @property
    def bits(self) -> float:
        """Bits per weight, parameters included; NaN for a tensor that can't be read or has no elements."""
        return math.nan if self.problem or not self.elements else 8 * self.num_bytes / self.elements


def listing(tensors: Mapping[str, CheckpointTensor]) -> list[ListedTensor]:
    """Return an entry for every tensor, in the order of the files.

    Shapes that are stored in a tensor are read; on a remote file system, each takes a request.

    >>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
    >>> first = listing(open_checkpoint(EXAMPLES["minilm-gptq"]).tensors)[0]
    >>> first.name, first.shape, first.num_bytes
    ('encoder.layer.0.attention.self.query.weight', (384, 384), 78144)
    """
    pairs = list(tensors.items())
    if sum(isinstance(tensor.record, Deferred) for tensor in tensors.values()) < _MANY:
        with uncollected():
            return [_entry(pair) for pair in pairs]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(_entry, pairs))


def _entry(named: tuple[str, CheckpointTensor]) -> ListedTensor:
    name, tensor = named
    try:
        problem = tensor.record.reason if isinstance(tensor.record, Refused) else ""
        return ListedTensor(name, tensor.shape, tensor.storage, tensor.num_bytes, problem)
    except QuantError as error:  # its shape should be stored in a tensor
        return ListedTensor(name, (), "can't be read", tensor.num_bytes, str(error))


@dataclass(frozen=True)
class Totals:
    """Totals of a listing: all of its tensors, and the elements and bytes of those that can be read."""

    tensors: int
    elements: int
    num_bytes: int

    @classmethod
    def of(cls, entries: Sequence[ListedTensor]) -> "Totals":
        """Return the totals; of a tensor that can't be read, elements and bytes are not counted."""
        known = [entry for entry in entries if not entry.problem]
        return cls(len(entries), sum(e.elements for e in known), sum(e.num_bytes for e in known))

    @property
    def bits(self) -> float:
        """Mean bits per weight; NaN if there are no weights."""
        return 8 * self.num_bytes / self.elements if self.elements else math.nan


# the key in config.json, the last part of the key in GGUF metadata, and the text that is shown
_FACTS = (
    ("num_hidden_layers", "block_count", "{} layers"),
    ("hidden_size", "embedding_length", "hidden size {}"),
    ("num_attention_heads", "attention.head_count", "{} heads"),
    ("num_local_experts", "expert_count", "{} experts"),
    ("vocab_size", "vocab_size", "vocabulary {}"),
)


def facts(config: Mapping[str, Any]) -> list[str]:
    """Return what a config says about the model, in a few words each: its architecture and its sizes.

    >>> facts({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32})
    ['LlamaForCausalLM', '32 layers', 'hidden size 4,096']
    """
    architecture, names = config.get("general.architecture"), config.get("architectures")
    if not (isinstance(names, list) and names):
        names = [name for name in (architecture, config.get("model_type")) if name]
    said = [str(name) for name in names[:1]]
    places = (config, section(config, "text_config"))
    for key, last, words in _FACTS:
        found = [place[key] for place in places if key in place] + [config.get(f"{architecture}.{last}")]
        if isinstance(found[0], int) and not isinstance(found[0], bool):
            said.append(words.format(f"{found[0]:,}") if found[0] != 1 else words.format(1).removesuffix("s"))
    return [printable(fact, 60) for fact in said]
