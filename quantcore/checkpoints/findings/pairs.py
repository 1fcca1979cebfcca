"""Which weight of the original belongs to which weight of a checkpoint, by their names."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quantcore.checkpoints.findings.record import CheckpointFinding, some
from quantcore.checkpoints.protocol.release import Release

# names of llama.cpp -> those of Hugging Face's Llama, Mistral, Qwen and others
_WHOLE = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm"}
_IN_LAYER = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_ATTENTION = re.compile(r"(attn_[qk]|[qk]_proj)\.(weight|bias)$")


@dataclass(frozen=True)
class Heads:
    """Attention heads, of queries and of keys; 0 if they are not known."""

    queries: int
    keys: int

    @classmethod
    def of(cls, *releases: Release) -> "Heads":
        """Read them from the first config that has them: of a GGUF file, or config.json."""
        for release in releases:
            config = release.config
            inner = config.get("text_config")
            for given in (config, inner if isinstance(inner, dict) else {}):
                queries = _number(given.get("num_attention_heads"))
                if queries:
                    return cls(queries, _number(given.get("num_key_value_heads")) or queries)
            architecture = config.get("general.architecture")
            queries = _number(config.get(f"{architecture}.attention.head_count"))
            if queries:
                return cls(queries, _number(config.get(f"{architecture}.attention.head_count_kv")) or queries)
        return cls(0, 0)

    def of_weight(self, name: str) -> int:
        """Return the heads of a weight of queries or keys; 0 for another."""
        found = _ATTENTION.search(name)
        return 0 if found is None else self.queries if "q" in found[1].replace("attn_", "") else self.keys


def _number(value: Any) -> int:
    return value if type(value) is int and 0 < value < 2**20 else 0


def partner(name: str, original: Any) -> str | None:
    """Return the name that a weight has in the original; None if it is not there.

    Args:
        original: its weights by name.
    """
    return next((candidate for candidate in _names(name) if candidate in original), None)


def _names(name: str) -> Iterator[str]:
    yield name
    block = _BLOCK.fullmatch(name)
    stem, _, last = name.rpartition(".")
    if block and block[2] in _IN_LAYER:
        yield f"model.layers.{block[1]}.{_IN_LAYER[block[2]]}.{block[3]}"
    elif stem in _WHOLE:
        yield f"{_WHOLE[stem]}.{last}"
    for prefix in ("model.", "language_model.", "model.language_model."):
        yield f"{prefix}{name}"
        yield name.removeprefix(prefix)


def unpaired(checkpoint: Any, original: Any) -> Iterator[CheckpointFinding]:
    """Yield which weights only one of two checkpoints has.

    Args:
        checkpoint: its weights by name.
        original: those of the original.
    """
    pairs = {name: partner(name, original) for name in checkpoint}
    alone = tuple(name for name, other in pairs.items() if other is None)
    paired = set(pairs.values())
    missing = tuple(name for name in original if name not in paired)
    if missing:
        yield CheckpointFinding(
            "missing_tensor", "warning",
            f"The original has {some(missing)}, but the checkpoint does not.", tensors=missing,
        )  # fmt: skip
    if alone:
        yield CheckpointFinding(
            "additional_tensor", "note",
            f"The original does not have {some(alone)}, so nothing is compared there.", tensors=alone,
        )  # fmt: skip
