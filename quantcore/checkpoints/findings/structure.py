"""What files, modules, layers and models lack, from headers and config alone.

Damaged files, and stored tensors whose counterparts are missing.

Of a fused set, such as q, k, v and o of one attention, a layer has all or none: one that is missing is an
error. Some models have layers without k and v, which share those of another layer, or without v, which equals
k; and layers of another kind, without any of the set. One layer alone without k and v has lost them, if no
config says that it shares those of another. A module of a layer has the same stored tensors as in other
layers if they are stored in the same way; one that is missing is an error, too.

Layers are numbered without gaps: a number that is missing between others was lost. (Modules of
`torch.nn.Sequential` have gaps where nothing is stored, such as activations: more of them, or modules of one
tensor each.) Of the last layers, only the config says that there should be more; and only the config says
that a head is not the embedding itself.
"""

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.findings.record import (
    CheckpointFinding,
    alike,
    error,
    layer_of,
    note,
    of_problem,
    role_of,
)
from quantcore.checkpoints.protocol.config import section
from quantcore.checkpoints.protocol.release import Release
from quantcore.checkpoints.statement import Problem

# A stored tensor of a quantized release -> what else its module must have: one name of each group
PARTNERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "qweight": (("scales",), ("qzeros",)),
    "qzeros": (("qweight",),),
    "g_idx": (("qweight",),),
    "weight_packed": (("weight_scale",),),
    "weight_scale": (("weight", "weight_packed"),),
    "weight_scale_inv": (("weight",),),
    "weight_scale_2": (("weight",), ("weight_scale",)),
    "weight_global_scale": (("weight_packed",), ("weight_scale",)),
    "weight_zero_point": (("weight", "weight_packed"), ("weight_scale",)),
    "W_q": (("scale",), ("zero",)),
    "SCB": (("weight",),),
}
_FLOAT8 = ("F8_E4M3", "F8_E5M2")
Pieces = Mapping[str, StoredTensor]
# names of the modules of one fused set, in the layouts of transformers, llama.cpp, diffusers and others
SETS: tuple[tuple[str, ...], ...] = (
    ("q_proj", "k_proj", "v_proj", "o_proj"), ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("q_proj", "k_proj", "v_proj", "dense"), ("query", "key", "value"),
    ("q_lin", "k_lin", "v_lin", "out_lin"),
    ("to_q", "to_k", "to_v"), ("wq", "wk", "wv", "wo"), ("q", "k", "v", "o"),
    ("attn_q", "attn_k", "attn_v", "attn_output"), ("qkv_proj", "o_proj"), ("query_key_value", "dense"),
    ("c_attn", "c_proj"), ("attn_qkv", "attn_output"), ("gate_proj", "up_proj", "down_proj"),
    ("gate_up_proj", "down_proj"), ("ffn_gate", "ffn_up", "ffn_down"),
    ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"), ("w1", "w2", "w3"), ("fc1", "fc2"),
    ("wi_0", "wi_1", "wo"),
    ("c_fc", "c_proj"), ("dense_h_to_4h", "dense_4h_to_h"), ("fc_in", "fc_out"), ("up_proj", "down_proj"),
)  # fmt: skip
SHARED = frozenset({
    "k_proj", "v_proj", "key", "value", "k_lin", "v_lin", "to_k", "to_v", "wk", "wv", "k", "v",
    "attn_k", "attn_v",
})  # fmt: skip
LIKE_KEYS = frozenset({"v_proj", "value", "v_lin", "to_v", "wv", "v", "attn_v"})
_ALONE = 3  # layers that have what one layer alone lacks
# in the names of a config's keys
_SHARING = ("kv_shared", "shared_kv", "share_kv", "kv_sharing", "cla_share", "use_cla", "cross_layer", "yoco")
RARE = 2  # a layer lacks something if at least so many times as many layers have it
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.")
_SPLIT = re.compile(r"(.*?(?<![^.]))(\d+)(\..*)")
_EXPERT = re.compile(r"\.experts\.(\d{1,6})\.")
_OPTIONAL = ("input_scale", "output_scale", "k_scale", "v_scale", "input_global_scale", "activation_scale")
LEAST = 4  # layers of a stack; fewer show no numbering
_RARE = 4  # at most one layer in so many is missing between others
_IN_STACK = re.compile(r"(.*?(?<![^.]))(\d{1,6})\.(.+)")
_AGAIN = "download the release again."


def of_headers(release: Release, problems: tuple[Problem, ...]) -> Iterator[CheckpointFinding]:
    """Yield the problems of the files, and the tensors that modules lack."""
    yield from map(of_problem, problems)
    known = {name for problem in problems for name in problem.tensors}
    if not release.method:
        return
    for module, pieces in release.modules.items():
        if known.isdisjoint({f"{module}.{last}" for last in (*pieces, "weight")}):
            yield from _missing(module, pieces)


def _missing(module: str, pieces: Mapping[str, StoredTensor]) -> Iterator[CheckpointFinding]:
    # one sentence per missing tensor, however many others need it
    lacking: dict[tuple[str, ...], list[str]] = {}
    for last in pieces:
        for group in PARTNERS.get(last, ()):
            if not any(name in pieces for name in group):
                lacking.setdefault(group, []).append(last)
    for group, users in lacking.items():
        words = "{is} missing {its} {lacking}, without which {it} can't be read; download the release again."
        names = tuple(f"{module}.{last}" for last in users)
        yield error(names, "missing_tensor", words, lacking=" or ".join(group), module=module)
    weight = pieces.get("weight")
    if weight is not None and weight.dtype in _FLOAT8 and not any("scale" in name for name in pieces):
        words = "{is} {dtype}, but {has} no scale; without one, {its} values are the unscaled codes."
        yield error(weight.name, "missing_tensor", words, dtype=weight.dtype, module=module)


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
    """Tell whether only some shards are open; what is at their edge is in another one."""
    found: dict[tuple[str, str], set[str]] = {}
    for piece in release.stored.values():
        match = _SHARD.search(piece.source.name)
        if match:
            found.setdefault((piece.source.name[: match.start()], match[2]), set()).add(match[1])
    return any(len(numbers) < int(total) for (_, total), numbers in found.items())


def _modules(release: Release) -> dict[str, dict[str, StoredTensor]]:
    """Return the stored tensors of each module, with those below its weight (``weight.absmax``)."""
    found: dict[str, dict[str, StoredTensor]] = {}
    for name, piece in release.stored.items():
        module, _, last = name.rpartition(".")
        if module.endswith(".weight"):
            module, last = module.removesuffix(".weight"), f"weight.{last}"
        found.setdefault(module, {})[last] = piece
    return found


def shares_keys(config: Mapping[str, Any]) -> bool:
    """Tell whether a config says that layers share keys and values: Gemma 3n's, Hunyuan's and Phi 4's do."""
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
                words = (
                    "{is} missing, although {it} {is} there in {layers} other layers; "
                    "download the release again."
                )
                if whole_number == 1:
                    words = "{is} missing, although another layer has {it}; download the release again."
                weight = f"{parent}.{name}.weight"
                yield error(weight, "missing_tensor", words, layers=whole_number, lacking=name)


def _is_of_another_kind(
    parents: Mapping[str, Mapping[str, Pieces]],
    parent: str,
    missing: Sequence[str],
    whole: Sequence[str],
    sharing: bool,
) -> bool:
    """Tell whether a layer with some of a set may be sound: another kind of layer, or with shared keys."""
    own, lost = parents[parent], set(missing)
    # modules that complete layers do not have, such as a fused one: the layer computes something else
    if set(own) - {name for other in whole for name in parents[other]}:
        return True
    same = (p for p in parents if role_of(p) == role_of(parent) and p != parent)
    others = any(lost.isdisjoint(parents[p]) for p in same)
    if lost <= SHARED and len(lost) > 1:
        # one layer alone that shares keys and values without its config saying so would be the first such
        # model
        return sharing or others or len(whole) < _ALONE
    return lost <= LIKE_KEYS and (others or _shapes(own) not in [_shapes(parents[p], lost) for p in whole])


def _shapes(modules: Mapping[str, Pieces], without: Container[str] = ()) -> dict[str, object]:
    return {
        n: sorted((k, p.shape) for k, p in pieces.items())
        for n, pieces in modules.items()
        if n not in without
    }


def _alone(modules: Mapping[str, Pieces], known: Container[str]) -> Iterator[CheckpointFinding]:
    """Yield a matrix that one layer lacks, although it has all else that most have; a norm as a note."""
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
            is_rare = kinds[own] * RARE <= kinds[best]
            if not lost or not is_rare or any(f"{layer}{n}.weight" in known for n in lost):
                continue
            example = next(layers[other] for other in same if frozenset(layers[other]) == best)
            shared = lost[0].rpartition(".")[2] in SHARED
            kills = len(lost) == 1 and is_matrix(example[lost[0]]) and not shared
            kills |= _are_experts_between(lost, own)
            say = error if kills else note
            again = "; download the release again" * kills
            words = "{is} missing, although {layers} other layers have {it}" + again
            for name in lost:
                lacking = name.lstrip(".")
                weight = f"{layer}{name}.weight"
                yield say(weight, "missing_tensor", f"{words}.", layers=kinds[best], lacking=lacking)


def _are_experts_between(lost: Sequence[str], own: Iterable[str]) -> bool:
    """Tell whether a layer lacks experts before its last: if it had fewer, the last ones would be missing."""
    numbers = [{int(m[1]) for name in names if (m := _EXPERT.search(name))} for names in (lost, own)]
    return bool(numbers[0] and numbers[1]) and max(numbers[0]) <= max(numbers[1])


def is_matrix(shape: tuple[int, ...]) -> bool:
    """Tell whether more than one axis is longer than 1."""
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
                    "{is} missing, although {layers} other layers have {it}, stored in the same way; "
                    "download the release again."
                )
                yield error(f"{module}.{last}", "missing_tensor", words, layers=kinds[best], lacking=last)


def _kind(pieces: Pieces) -> frozenset[tuple[str, str]]:
    return frozenset((last, piece.dtype) for last, piece in pieces.items() if last not in _OPTIONAL)


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
    words = (
        f"{{is}} missing: the config says that the model has {{said}} layers, and the last one here is "
        f"{{last}}; {_AGAIN}"
    )
    for number in range(known, said):
        yield error(f"{prefix}{number}", "missing_layer", words, said=said, last=known - 1)


def _head(outside: Mapping[str, StoredTensor], config: Mapping[str, Any]) -> Iterator[CheckpointFinding]:
    """Yield a missing head: the config says that it is not the embedding, the only matrix outside layers."""
    kinds = config.get("architectures")
    causal = isinstance(kinds, list) and any(str(kind).endswith("ForCausalLM") for kind in kinds)
    matrices = {name.rpartition(".")[0] for name, piece in outside.items() if len(piece.shape) > 1}
    if not causal or _said(config, "tie_word_embeddings") is not False or len(matrices) != 1:
        return
    (embedding,) = matrices
    if "embed" in embedding or embedding.rpartition(".")[2] == "wte":
        words = (
            "{is} missing: the config says that the head is not the embedding ({key}: false), but there is "
            f"no other matrix outside of the layers; {_AGAIN}"
        )
        yield error("lm_head.weight", "missing_head", words, key="tie_word_embeddings")


def _said(config: Mapping[str, Any], key: str, otherwise: object = None) -> object:
    """Return what a config says, of the language model where it has one of its own."""
    for place in (config, section(config, "text_config")):
        if key in place:
            return place[key]
    return otherwise


def _of_gguf(config: Mapping[str, Any], key: str) -> object:
    """Return what the metadata of a GGUF file says of its architecture."""
    return config.get(f"{config.get('general.architecture')}.{key}")
