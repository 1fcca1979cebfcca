"""What a layer lacks although its siblings have it, from headers alone.

Of a fused set, such as q, k, v and o of one attention, a layer has all or none: one that is missing is an error. Some
models have layers without k and v, which share those of another layer, or without v, which equals k; and layers of
another kind, without any of the set. One layer alone without k and v has lost them, if no config says that it shares
those of another. A module of a layer has the same stored tensors as in other layers if they are stored in the same way;
one that is missing is an error, too.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.findings.layers import of_layers
from quantcore.checkpoints.findings.record import CheckpointFinding, error, note
from quantcore.checkpoints.findings.siblings import alike, layer_of, role_of
from quantcore.checkpoints.protocol.config import section
from quantcore.checkpoints.protocol.release import Release

Pieces = Mapping[str, StoredTensor]
# names of the modules of one fused set, in the layouts of transformers, llama.cpp, diffusers and others
SETS: tuple[tuple[str, ...], ...] = (
    ("q_proj", "k_proj", "v_proj", "o_proj"), ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("q_proj", "k_proj", "v_proj", "dense"), ("query", "key", "value"), ("q_lin", "k_lin", "v_lin", "out_lin"),
    ("to_q", "to_k", "to_v"), ("wq", "wk", "wv", "wo"), ("q", "k", "v", "o"),
    ("attn_q", "attn_k", "attn_v", "attn_output"), ("qkv_proj", "o_proj"), ("query_key_value", "dense"),
    ("c_attn", "c_proj"), ("attn_qkv", "attn_output"), ("gate_proj", "up_proj", "down_proj"),
    ("gate_up_proj", "down_proj"), ("ffn_gate", "ffn_up", "ffn_down"),
    ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"), ("w1", "w2", "w3"), ("fc1", "fc2"), ("wi_0", "wi_1", "wo"),
    ("c_fc", "c_proj"), ("dense_h_to_4h", "dense_4h_to_h"), ("fc_in", "fc_out"), ("up_proj", "down_proj"),
)  # fmt: skip
SHARED = frozenset({"k_proj", "v_proj", "key", "value", "k_lin", "v_lin", "to_k", "to_v", "wk", "wv", "k", "v",
                    "attn_k", "attn_v"})  # fmt: skip
LIKE_KEYS = frozenset({"v_proj", "value", "v_lin", "to_v", "wv", "v", "attn_v"})
_ALONE = 3  # layers that have what one layer alone lacks
# in the names of a config's keys
_SHARING = ("kv_shared", "shared_kv", "share_kv", "kv_sharing", "cla_share", "use_cla", "cross_layer", "yoco")
RARE = 2  # a layer lacks something if at least so many times as many layers have it
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.")
_SPLIT = re.compile(r"(.*?(?<![^.]))(\d+)(\..*)")
_EXPERT = re.compile(r"\.experts\.(\d{1,6})\.")
_OPTIONAL = ("input_scale", "output_scale", "k_scale", "v_scale", "input_global_scale", "activation_scale")


def of_structure(release: Release, reported: Container[str] = ()) -> Iterator[CheckpointFinding]:
    """Yield the layers that are missing, and the modules and stored tensors that a layer lacks.

    Args:
        reported: modules of which something is already known to be missing.
    """
    if _is_in_part(release):
        return
    yield from of_layers(release)
    modules = _modules(release)
    of_sets = list(_of_sets(modules, shares_keys(release.config)))
    yield from of_sets
    yield from _alone(modules, {name for finding in of_sets for name in finding.tensors})
    yield from _of_parts(modules, reported)


def _is_in_part(release: Release) -> bool:
    """Whether only some shards are open; what is at their edge is in another one."""
    found: dict[tuple[str, str], set[str]] = {}
    for piece in release.stored.values():
        match = _SHARD.search(piece.source.name)
        if match:
            found.setdefault((piece.source.name[: match.start()], match[2]), set()).add(match[1])
    return any(len(numbers) < int(total) for (_, total), numbers in found.items())


def _modules(release: Release) -> dict[str, dict[str, StoredTensor]]:
    """The stored tensors of each module; what is stored below its weight (``weight.absmax``) is its own."""
    found: dict[str, dict[str, StoredTensor]] = {}
    for name, piece in release.stored.items():
        module, _, last = name.rpartition(".")
        if module.endswith(".weight"):
            module, last = module.removesuffix(".weight"), f"weight.{last}"
        found.setdefault(module, {})[last] = piece
    return found


def shares_keys(config: Mapping[str, Any]) -> bool:
    """Whether a config says that layers use the keys and values of others: Gemma 3n's, Hunyuan's and Phi 4's do."""
    names = [*config, *section(config, "text_config")]
    return any(words in name.lower() for name in names for words in _SHARING)


def _of_sets(modules: Mapping[str, Pieces], sharing: bool) -> Iterator[CheckpointFinding]:
    parents: dict[str, dict[str, Pieces]] = {}  # of the modules with a layer
    for module, pieces in modules.items():
        parent, _, last = module.rpartition(".")
        if layer_of(parent) is not None:
            parents.setdefault(parent, {})[last] = pieces
    for same in alike(parents, role_of).values():
        lacking: dict[str, tuple[tuple[str, ...], int]] = {}
        for fused in SETS:
            whole = [parent for parent in same if parents[parent].keys() >= set(fused)]
            for parent in same if whole else ():
                missing = tuple(name for name in fused if name not in parents[parent])
                if not missing or len(missing) == len(fused) or parent in lacking:
                    continue
                if not _is_of_another_kind(parents, parent, missing, whole, sharing):
                    lacking[parent] = (missing, len(whole))
        for parent, (missing, whole_number) in lacking.items():
            for name in missing:
                words = "{is} missing, although {it} {is} there in {layers} other layers; download the release again."
                if whole_number == 1:
                    words = "{is} missing, although another layer has {it}; download the release again."
                yield error(f"{parent}.{name}.weight", "missing_tensor", words, layers=whole_number, lacking=name)


def _is_of_another_kind(
    parents: Mapping[str, Mapping[str, Pieces]], parent: str, missing: Sequence[str], whole: Sequence[str], sharing: bool
) -> bool:
    """Whether a layer without some modules of a set may be sound: of another architecture, or sharing keys and values."""
    own, lost = parents[parent], set(missing)
    # modules that complete layers do not have, such as a fused one: the layer computes something else
    if set(own) - {name for other in whole for name in parents[other]}:
        return True
    if lost <= SHARED and len(lost) > 1:
        # one layer alone that shares keys and values without its config saying so would be the first such model
        alone = not any(lost.isdisjoint(parents[p]) for p in parents if role_of(p) == role_of(parent) and p != parent)
        return sharing or not alone or len(whole) < _ALONE
    if lost <= LIKE_KEYS:
        others = [p for p in parents if role_of(p) == role_of(parent) and lost.isdisjoint(parents[p])]
        return len(others) > 1 or _shapes(own) not in [_shapes(parents[p], lost) for p in whole]
    return False


def _shapes(modules: Mapping[str, Pieces], without: Container[str] = ()) -> dict[str, object]:
    return {
        n: sorted((k, p.shape) for k, p in pieces.items())
        for n, pieces in modules.items()
        if n not in without
    }


def _alone(modules: Mapping[str, Pieces], known: Container[str]) -> Iterator[CheckpointFinding]:
    """Yield a matrix that one layer lacks, although it has all else that most layers have; a norm is only worth a note."""
    layers: dict[str, dict[str, tuple[int, ...]]] = {}
    for module, pieces in modules.items():
        match = _SPLIT.match(module)
        if match:
            shape = max((p.shape for p in pieces.values()), key=len)
            layers.setdefault(f"{match[1]}{match[2]}", {})[match[3]] = shape
    for same in alike(layers, role_of).values():
        kinds = Counter(frozenset(layers[layer]) for layer in same)
        for layer in same:
            own = frozenset(layers[layer])
            best = max((k for k in kinds if own < k), key=lambda k: (kinds[k], -len(k)), default=own)
            lost = sorted(best - own)
            if not lost or kinds[own] * RARE > kinds[best] or any(f"{layer}{n}.weight" in known for n in lost):
                continue
            example = next(layers[other] for other in same if frozenset(layers[other]) == best)
            shared = lost[0].rpartition(".")[2] in SHARED
            kills = len(lost) == 1 and _is_matrix(example[lost[0]]) and not shared
            kills |= _are_experts_between(lost, own)
            say = error if kills else note
            words = "{is} missing, although {layers} other layers have {it}" + "; download the release again" * kills
            for name in lost:
                lacking = name.lstrip(".")
                yield say(f"{layer}{name}.weight", "missing_tensor", f"{words}.", layers=kinds[best], lacking=lacking)


def _are_experts_between(lost: Sequence[str], own: Iterable[str]) -> bool:
    """Whether what a layer lacks are experts up to the last that it has: of fewer experts, whole ones would be missing at the end."""
    numbers = [{int(m[1]) for name in names if (m := _EXPERT.search(name))} for names in (lost, own)]
    return bool(numbers[0] and numbers[1]) and max(numbers[0]) <= max(numbers[1])


def _is_matrix(shape: tuple[int, ...]) -> bool:
    return sum(n > 1 for n in shape) > 1


def _of_parts(modules: Mapping[str, Pieces], reported: Container[str]) -> Iterator[CheckpointFinding]:
    in_layers = [module for module in modules if layer_of(module) is not None]
    for same in alike(in_layers, role_of).values():
        kinds = Counter(_kind(modules[module]) for module in same)
        for module in same:
            own = _kind(modules[module])
            more = [k for k in kinds if own < k and kinds[own] * RARE <= kinds[k]]
            if not more or module in reported:
                continue
            best = max(more, key=lambda k: kinds[k])
            for last, _ in sorted(best - own):
                words = (
                    "{is} missing, although {layers} other layers have {it}, stored in the same way; download the release "
                    "again."
                )
                yield error(f"{module}.{last}", "missing_tensor", words, layers=kinds[best], lacking=last)


def _kind(pieces: Pieces) -> frozenset[tuple[str, str]]:
    return frozenset((last, piece.dtype) for last, piece in pieces.items() if last not in _OPTIONAL)
