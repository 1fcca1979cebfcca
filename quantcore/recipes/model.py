"""A float model as llama.cpp's quantizer sees it: its dimensions, and its tensors by llama.cpp's names."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from quantcore.checkpoints import Checkpoint
from quantcore.checkpoints.ggml import GgufNames
from quantcore.errors import QuantError
from quantcore.wording import short

# model_type of Hugging Face -> general.architecture, where they differ by more than an underscore (names of
# classes in llama.cpp's convert_hf_to_gguf.py)
_ARCHITECTURES = {
    "mistral": "llama", "mixtral": "llama", "phi": "phi2", "gpt_bigcode": "starcoder", "cohere": "command-r",
    "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "gpt_oss": "gpt-oss", "gemma3_text": "gemma3",
    "modernbert": "modern-bert", "nomic_bert": "nomic-bert", "roberta": "bert", "xlm-roberta": "bert",
}  # fmt: skip
_LAYERS_OF_70B = {"llama": 80, "qwen2": 80, "deci": 80, "jais2": 68}  # src/models/*.cpp, load_arch_hparams
# what the converter stores as float32, whatever the model's dtype (conversion of convert_hf_to_gguf.py)
_FLOAT32 = re.compile(
    r"_norm\.weight$|ffn_gate_inp|^position_embd|^token_types|ssm_conv1d|shortconv\.conv|time_mix_(first|w[12]"
    r"|decay_w[12]|lerp_fused)"
)
_BLOCK = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True)
class FloatTensor:
    """A tensor of a model: ``shape``: rows first, without leading axes of length 1; ``kind``: its type."""

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def block(self) -> int:
        """The number of its layer, -1 outside of layers."""
        found = _BLOCK.match(self.name)
        return int(found[1]) if found else -1


@dataclass(frozen=True)
class Model:
    """What decides the types of an ftype.

    ``tensors``: in the order in which llama.cpp writes them; ``origins``: the names in the checkpoint of each
    tensor; ``unknown``: names of the checkpoint that llama.cpp does not have.
    """

    architecture: str
    layers: int
    heads: int
    value_heads: int
    experts: int
    tensors: tuple[FloatTensor, ...]
    origins: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...] = ()

    @property
    def heads_per_value(self) -> int:
        """How many heads share a key and a value, rounded down."""
        return self.heads // self.value_heads if self.value_heads else 0

    @property
    def is_70b(self) -> bool:
        """Whether llama.cpp calls it a model of 70 billion parameters, by its layers."""
        if self.architecture == "llama" and (self.heads == self.value_heads or self.experts == 8):
            return False
        return self.layers == _LAYERS_OF_70B.get(self.architecture)


def model_of(checkpoint: Checkpoint) -> Model:
    """Return the model of a GGUF file, or of a Hugging Face model as llama.cpp's converter would write it.

    Raises:
        QuantError: the checkpoint says no architecture that llama.cpp knows, or is quantized in a form that
            llama.cpp does not start from.
    """
    config = checkpoint.config
    if "general.architecture" in config:
        of_file = [
            FloatTensor(name, _trimmed(tensor.shape), tensor.dtype)
            for name, tensor in checkpoint.release.stored.items()
        ]
        arch = str(config["general.architecture"])
        layers = _number(config, f"{arch}.block_count")
        heads = _number(config, f"{arch}.attention.head_count", 0)
        values = _number(config, f"{arch}.attention.head_count_kv", heads)
        experts = _number(config, f"{arch}.expert_count", 0)
        own: dict[str, tuple[str, ...]] = {tensor.name: (tensor.name,) for tensor in of_file}
        return Model(arch, layers, heads, values, experts, in_order(of_file), own)
    config = config.get("text_config", config)
    arch = _architecture(config)
    layers = _number(config, "num_hidden_layers", None, "n_layer")
    heads = _number(config, "num_attention_heads", 0, "n_head")
    values = _number(config, "num_key_value_heads", heads)
    experts = _number(config, "num_local_experts", 0, "num_experts", "n_routed_experts")
    found, origins, unknown = _converted(checkpoint, arch)
    return Model(arch, layers, heads, values, experts, in_order(found), origins, unknown)


def in_order(tensors: Iterable[FloatTensor]) -> tuple[FloatTensor, ...]:
    """Return tensors as llama.cpp writes them: by layer, those outside first, then by the bytes of names."""
    return tuple(sorted(tensors, key=lambda tensor: (tensor.block, tensor.name.encode())))


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without leading axes of length 1, which ggml does not count (ggml_n_dims)."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _number(config: Mapping[str, Any], key: str, default: int | None = None, *others: str) -> int:
    """Return an integer of the config, the first of a list of one per layer."""
    value = next((config[k] for k in (key, *others) if config.get(k) is not None), default)
    if isinstance(value, list | tuple) and value:
        value = value[0]
    if type(value) is not int or value < 0:
        raise QuantError(
            f"The checkpoint's metadata lack {short(key, 80)}, by which llama.cpp decides the types of "
            "tensors; give a GGUF file, or a folder with its config.json."
        )
    return value


def _architecture(config: Mapping[str, Any]) -> str:
    kind = str(config.get("model_type") or "")
    near = (_ARCHITECTURES.get(kind, kind), kind.replace("_", "-"), kind.replace("_", ""))
    found = next((name for name in near if name in GgufNames.architectures()), None)
    if found is None:
        said = f"the model_type {short(kind, 60)} is not known" if kind else "config.json has no model_type"
        raise QuantError(
            f"What llama.cpp calls this model's tensors can't be told: {said}. Convert it to GGUF with "
            "llama.cpp's convert_hf_to_gguf.py, and give that file."
        )
    return found


def _converted(
    checkpoint: Checkpoint, arch: str
) -> tuple[list[FloatTensor], dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return the tensors with llama.cpp's names, the names of each in the checkpoint, and names left over."""
    names, unknown = GgufNames.of(arch), []
    origins: dict[str, list[str]] = {}
    shapes: dict[str, tuple[tuple[int, ...], str]] = {}
    for name, tensor in checkpoint.tensors.items():
        mapped, expert = next(iter(names.of_name(name)), ("", None))
        if not mapped or (mapped in origins and expert is None):
            unknown.append(name)
            continue
        if not tensor.layout.is_plain:
            raise QuantError(
                f"{short(name, 120)} is quantized already ({tensor.storage}), and llama.cpp starts from "
                "float weights; give the model that it was quantized from."
            )
        origins.setdefault(mapped, []).append(name)
        shapes[mapped] = tuple(tensor.shape), checkpoint.release.stored[name].dtype
    found = []
    for mapped, own in origins.items():
        shape, dtype = shapes[mapped]
        if mapped.endswith("_exps.weight") and len(shape) == 2:
            shape = (len(own), *shape)
        shape = _trimmed(shape)
        found.append(
            FloatTensor(mapped, shape, "F32" if len(shape) < 2 or _FLOAT32.search(mapped) else dtype)
        )
    if not found:
        raise QuantError(
            f"No tensor of this checkpoint has a name that llama.cpp's {arch} knows, such as "
            f"{short(next(iter(checkpoint.tensors), ''), 120)}; convert it to GGUF, and give that file."
        )
    return found, {name: tuple(own) for name, own in origins.items()}, tuple(unknown)
