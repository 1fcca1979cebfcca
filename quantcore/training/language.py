"""A small language model of characters in Llama's architecture, and text that it was not trained on.

The checkpoint ``charlm`` has its weights under the names of Hugging Face's LlamaForCausalLM, whose logits it
gives. ``tests/generators/make_language_example.py`` trains it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import torch
from torch import Tensor, nn
from torch.nn import functional

from quantcore.errors import QuantError

CHARACTERS = 128  # those of ASCII, by their numbers
LENGTH = 128  # characters of an input
HEAD = 16  # width of an attention head
CALIBRATION = 16  # inputs; the others of the held-out text judge
_THETA, _EPS = 10_000.0, 1e-5


@dataclass(frozen=True, eq=False)
class HeldOutText:
    """Characters, int64 of shape (inputs, 128): 16 inputs to calibrate with, and others to judge by.

    Source and license: data/charlm.txt.
    """

    calibration: Tensor
    judged: Tensor


def load_text() -> HeldOutText:
    """Load the held-out text; every call returns new tensors."""
    text = (files("quantcore.training") / "data" / "charlm.txt").read_text(encoding="ascii")
    tokens = tokens_of(text.partition("\n\n\n")[2])
    tokens = tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH)
    return HeldOutText(tokens[:CALIBRATION], tokens[CALIBRATION:])


def tokens_of(text: str) -> Tensor:
    """Return the characters of a text as tokens, int64 of shape (characters,).

    Raises:
        QuantError: a character is not ASCII.
    """
    if not text.isascii():
        wrong = next(character for character in text if not character.isascii())
        raise QuantError(f"The character {wrong!r} is not ASCII, the only characters that the model has.")
    return torch.tensor(list(text.encode()))


class CharacterModel(nn.Module):
    """A causal model of characters; the embeddings are also the last layer.

    Source: transformers, models/llama/modeling_llama.py.

    Args:
        layers: the number of layers.
        width: of the hidden states; ``inner``: of the MLP; ``heads`` and ``key_heads``: of 16 each.
    """

    def __init__(
        self, layers: int = 6, width: int = 64, inner: int = 160, heads: int = 4, key_heads: int = 2
    ) -> None:
        super().__init__()
        self.model = _Body(layers, width, inner, heads, key_heads)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (inputs, length, 128) of the next character, float32."""
        found: Tensor = self.model(tokens) @ self.model.embed_tokens.weight.T
        return found


def character_model(weights: Mapping[str, Tensor]) -> CharacterModel:
    """Return the model with weights by name, in float32, for evaluation.

    >>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
    >>> checkpoint = open_checkpoint(EXAMPLES["charlm"])
    >>> model = character_model({name: tensor.read() for name, tensor in checkpoint.tensors.items()})
    >>> model(load_text().judged[:2]).shape
    torch.Size([2, 128, 128])

    Raises:
        QuantError: the weights are not those of such a model.
    """
    layers = len({name.split(".")[2] for name in weights if name.startswith("model.layers.")})
    try:
        inner, width = weights["model.layers.0.mlp.gate_proj.weight"].shape
        heads, key_heads = (
            len(weights[f"model.layers.0.self_attn.{k}_proj.weight"]) // HEAD for k in ("q", "k")
        )
        model = CharacterModel(layers, width, inner, heads, key_heads)
        model.load_state_dict({name: weight.float() for name, weight in weights.items()})
    except (KeyError, RuntimeError, ValueError) as reason:
        raise QuantError(f"These are not the weights of a model like charlm: {reason}.") from None
    return model.eval()


def activations_of(model: CharacterModel, name: str, tokens: Tensor) -> Tensor:
    """Return what a layer of the model multiplies its weight with, float32 (characters, inputs).

    Args:
        name: of the weight, such as ``model.layers.0.mlp.down_proj.weight``.
        tokens: of shape (inputs, length), such as those of `load_text`.

    Raises:
        QuantError: the model has no such layer.
    """
    layer = dict(model.named_modules()).get(name.removesuffix(".weight"))
    if not isinstance(layer, nn.Linear):
        raise QuantError(f"The model has no layer with the weight {name[:80]!r}.")
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        with torch.no_grad():
            model(tokens)
    finally:
        handle.remove()
    return seen[0].flatten(0, -2)


class _Body(nn.Module):
    def __init__(self, layers: int, width: int, inner: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(CHARACTERS, width)
        self.layers = nn.ModuleList(_Layer(width, inner, heads, key_heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width, _EPS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        found: Tensor = self.norm(x)
        return found


class _Layer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(width, _EPS), nn.RMSNorm(width, _EPS)
        self.self_attn, self.mlp = _Attention(width, heads, key_heads), _Mlp(width, inner)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        found: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return found


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(width, heads * HEAD, bias=False)
        self.k_proj = nn.Linear(width, key_heads * HEAD, bias=False)
        self.v_proj = nn.Linear(width, key_heads * HEAD, bias=False)
        self.o_proj = nn.Linear(heads * HEAD, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = functional.scaled_dot_product_attention(
            _rotated(q), _rotated(k), v, is_causal=True, enable_gqa=True
        )
        found: Tensor = self.o_proj(y.transpose(1, 2).flatten(2))
        return found


class _Mlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return found


def _rotated(x: Tensor) -> Tensor:
    """Rotate queries or keys (inputs, heads, length, 16) by their positions."""
    frequencies = _THETA ** -(torch.arange(0, HEAD, 2, device=x.device) / HEAD)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * frequencies
    cos, sin = (torch.cat([part, part], -1) for part in (angles.cos(), angles.sin()))
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
