"""Layers that are not there at all, and a model without its head: from names and the config alone.

Layers are numbered without gaps: a number that is missing between others was lost. (Modules of `torch.nn.Sequential` have
gaps where nothing is stored, such as activations: more of them, or modules of one tensor each.) Of the last layers, only the
config says that there should be more; and only the config says that a head is not the embedding itself.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.findings.record import CheckpointFinding, error
from quantcore.checkpoints.protocol.config import section
from quantcore.checkpoints.protocol.release import Release

LEAST = 4  # layers of a stack; fewer show no numbering
_RARE = 4  # at most one layer in so many is missing between others
_IN_STACK = re.compile(r"(.*?(?<![^.]))(\d{1,6})\.(.+)")
_AGAIN = "download the release again."


def of_layers(release: Release) -> Iterator[CheckpointFinding]:
    """Yield the layers that are missing, and a missing head."""
    stacks: dict[str, dict[int, set[str]]] = {}
    outside: dict[str, StoredTensor] = {}
    for name, piece in release.stored.items():
        match = _IN_STACK.fullmatch(name)
        if match:
            stacks.setdefault(match[1], {}).setdefault(int(match[2]), set()).add(match[3])
        else:
            outside[name] = piece
    stacks = {prefix: layers for prefix, layers in stacks.items() if len(layers) >= LEAST}
    for prefix, layers in stacks.items():
        yield from _between(prefix, layers)
    if stacks:
        longest = max(stacks, key=lambda prefix: len(stacks[prefix]))
        yield from _at_end(longest, stacks[longest], release.config)
        yield from _head(outside, release.config)


def _between(prefix: str, layers: Mapping[int, Collection[str]]) -> Iterator[CheckpointFinding]:
    lost = sorted(set(range(min(layers), max(layers))) - layers.keys())
    if not lost or _RARE * len(lost) > len(layers) or any(len(names) < 2 for names in layers.values()):
        return
    words = f"{{is}} missing, although the layers before and after {{it}} are there; {_AGAIN}"
    for number in lost:
        yield error(f"{prefix}{number}", "missing_layer", words, layer=number, layers=len(layers))


def _at_end(
    prefix: str, layers: Mapping[int, object], config: Mapping[str, Any]
) -> Iterator[CheckpointFinding]:
    known = max(layers) + 1
    said = _said(config, "num_hidden_layers", _of_gguf(config, "block_count"))
    # GGUF counts those that predict several tokens, which some files leave out
    more = _of_gguf(config, "nextn_predict_layers")
    if not isinstance(said, int) or isinstance(said, bool):
        return
    if not known < said - (more if isinstance(more, int) else 0) or said > 2 * known:
        return
    words = f"{{is}} missing: the config says that the model has {{said}} layers, and the last one here is {{last}}; {_AGAIN}"
    for number in range(known, said):
        yield error(f"{prefix}{number}", "missing_layer", words, said=said, last=known - 1)


def _head(outside: Mapping[str, StoredTensor], config: Mapping[str, Any]) -> Iterator[CheckpointFinding]:
    """A language model whose config says that its head is not its embedding, with one matrix alone outside of its layers."""
    kinds = config.get("architectures")
    causal = isinstance(kinds, list) and any(str(kind).endswith("ForCausalLM") for kind in kinds)
    matrices = {name.rpartition(".")[0] for name, piece in outside.items() if len(piece.shape) > 1}
    if not causal or _said(config, "tie_word_embeddings") is not False or len(matrices) != 1:
        return
    (embedding,) = matrices
    if "embed" in embedding or embedding.rpartition(".")[2] == "wte":
        words = (
            "{is} missing: the config says that the head is not the embedding ({key}: false), but there is no other matrix "
            f"outside of the layers; {_AGAIN}"
        )
        yield error("lm_head.weight", "missing_head", words, key="tie_word_embeddings")


def _said(config: Mapping[str, Any], key: str, otherwise: object = None) -> object:
    """What a config says, of the language model where it has one of its own."""
    for place in (config, section(config, "text_config")):
        if key in place:
            return place[key]
    return otherwise


def _of_gguf(config: Mapping[str, Any], key: str) -> object:
    """What the metadata of a GGUF file says of its architecture."""
    return config.get(f"{config.get('general.architecture')}.{key}")
