"""Which type llama.cpp gives a tensor of an ftype: by what the tensor does, its layer and the model.

Source: ggml-org/llama.cpp 0ad4a86, src/llama-quant.cpp: tensor_get_category, tensor_allows_quantization,
llama_tensor_get_type_impl, tensor_type_fallback, tensor_requires_imatrix.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from quantcore.errors import QuantError
from quantcore.recipes.ftypes import BLOCKS, FTYPES, ggml_name
from quantcore.recipes.model import FloatTensor, Model

EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")
OUTPUT = "output.weight"
# what a tensor does -> a part of its name, the first that fits
_CATEGORIES = {
    "qkv": "attn_qkv.weight", "kv_b": "attn_kv_b.weight", "v": "attn_v.weight", "k": "attn_k.weight",
    "q": "attn_q.weight", "o": "attn_output.weight", "up": "ffn_up", "gate": "ffn_gate", "down": "ffn_down",
}  # fmt: skip
_NEVER = (  # parts of names of tensors that stay as they are
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel",
    "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight",
    "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight",
    "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight",
    "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
    "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd", "sam.pos_embd", "sam.neck.",
    "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger", "a.rvq.codebook", "mm.a.code_embd",
)  # fmt: skip
_NEVER_WHOLE = ("position_embd.weight", "token_types.weight")
_LOWEST = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ1_S", "IQ1_M")
_FALLBACKS = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_0", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0",
}  # fmt: skip
_SMALL = 32  # elements of the smallest blocks; rows that these do not divide become F16
_NEED_IMATRIX = ("IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_M", "IQ1_S")
_OF_EMBEDDINGS = {
    **dict.fromkeys(("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"), "Q2_K"),
    **dict.fromkeys(("IQ2_S", "IQ2_M", "IQ3_XXS"), "IQ3_S"),
    **dict.fromkeys(("TQ1_0", "TQ2_0", "Q2_0"), "Q4_K"),
}
_OF_ATTENTION_OUTPUT = {
    "Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"
}  # fmt: skip
_Q5_OUTPUT_OF_8_EXPERTS = (
    "Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS"
)  # fmt: skip


@lru_cache(1 << 14)  # asked several times of each tensor and ftype
def category_of(name: str) -> str:
    """Return what a tensor does, as llama.cpp sorts them; ``other`` if nothing else."""
    if name == OUTPUT or name in EMBEDDINGS:
        return "output" if name == OUTPUT else "embeddings"
    return next((kind for kind, part in _CATEGORIES.items() if part in name), "other")


@lru_cache(1 << 14)
def may_be_quantized(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether llama.cpp quantizes a tensor at all."""
    if len(shape) < 2 or not name.endswith("weight") or name in _NEVER_WHOLE:
        return False
    return not any(part in name for part in _NEVER)


def needs_imatrix(name: str, kind: str, ftype: str) -> bool:
    """Return whether llama.cpp refuses to quantize a tensor to a type without an imatrix."""
    if name in (*EMBEDDINGS, OUTPUT):
        return False
    return kind in _NEED_IMATRIX or (kind == "Q2_K" and ftype == "Q2_K_S")


def fitting(kind: str, width: int) -> str:
    """Return the type that is taken instead if rows of ``width`` are not whole blocks of ``kind``.

    Raises:
        QuantError: there is none.
    """
    if width % BLOCKS[kind][1] == 0:
        return kind
    instead = _FALLBACKS.get(kind, "F16" if BLOCKS[kind][1] == _SMALL else "")
    if not instead:
        raise QuantError(f"no tensor type fallback is defined for type {ggml_name(kind)}")
    return instead if width % BLOCKS[instead][1] == 0 else "F16"


def _more_bits(i: int, n: int) -> bool:
    """Return whether layer i of n is in the first or last eighth, or every third between."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


@dataclass
class Mixture:
    """The types of an ftype's tensors, asked in the order of the file: some depend on how many came before.

    ``output_type``, ``embedding_type``: given by the user, or None.
    """

    ftype: str
    model: Model
    has_imatrix: bool
    output_type: str | None = None
    embedding_type: str | None = None
    values: int = 0  # tensors of the category v, and those that contain it
    is_tied: bool = True
    _came: Counter[str] = field(default_factory=Counter)

    def type_of(self, tensor: FloatTensor) -> str:
        """Return the type of the next tensor, whatever its width."""
        kind, base = category_of(tensor.name), FTYPES[self.ftype][1]
        if kind == "output" or (self.is_tied and kind == "embeddings"):
            return self.output_type or self._of_output(tensor, base)
        if self.ftype == "MXFP4_MOE":
            stacked = len(tensor.shape) > 2 and tensor.shape[-3] > 1
            stacked &= self.model.architecture != "bailingmoe3" or kind in ("up", "gate", "down")
            return "MXFP4" if stacked else "Q8_0"
        if kind == "embeddings":
            return self.embedding_type or _OF_EMBEDDINGS.get(self.ftype, base)
        if self.ftype in _LOWEST:
            return self._of_lowest(kind, base)
        rules: dict[str, Callable[[FloatTensor, str], str]] = {
            **dict.fromkeys(("v", "qkv", "kv_b"), self._of_values), "k": self._of_keys,
            "q": self._of_queries, "down": self._of_down, "o": self._of_attention_output,
            "gate": self._of_gate_and_up, "up": self._of_gate_and_up,
        }  # fmt: skip
        return rules[kind](tensor, base) if kind in rules else base

    def _next(self, kind: str) -> int:
        self._came[kind] += 1
        return self._came[kind] - 1

    def _layer(self, tensor: FloatTensor) -> int:
        """Return how many of its kind came before; with experts, the layer by its name."""
        i, n = self._next(category_of(tensor.name)), self.model.layers
        if self.model.experts <= 1:
            return i
        found = re.match(r"blk\.(\d+)", tensor.name)
        if found is None:
            raise QuantError(f"Failed to determine layer for tensor {tensor.name}")
        if int(found[1]) >= n:
            raise QuantError(f"Bad layer {found[1]} for tensor {tensor.name}. Must be in [0, {n})")
        return int(found[1])

    def _of_output(self, tensor: FloatTensor, base: str) -> str:
        odd = tensor.shape[-1] % BLOCKS[base][1] != 0
        if self.ftype == "MXFP4_MOE" or self.model.architecture == "falcon" or odd or base == "Q8_0":
            return "Q8_0"
        return "Q5_K" if self.ftype in (*_LOWEST, "IQ3_XXS") else "Q6_K"

    def _of_lowest(self, kind: str, base: str) -> str:
        better, experts = self.ftype in ("IQ2_S", "IQ2_M"), self.model.experts
        if kind in ("v", "qkv", "kv_b"):
            shared = self.model.heads_per_value >= 4 or experts >= 4
            return "Q4_K" if shared else "IQ3_S" if better else "Q2_K"
        if experts == 8 and kind == "k":
            return "Q4_K"
        if kind == "down" and self._next("down") < self.model.layers // 8:
            return "IQ3_S" if better else "Q2_K"
        if kind == "o":
            if experts == 8:
                return "Q5_K"
            return "IQ2_XXS" if self.ftype in ("IQ1_S", "IQ1_M") else "IQ3_S" if better else base
        return base

    def _of_values(self, tensor: FloatTensor, base: str) -> str:
        i, shared, found = self._next("v"), self.model.heads_per_value >= 4, base
        if self.ftype == "Q2_K":
            found = "Q4_K" if shared else "Q3_K"
        elif self.ftype == "IQ3_XXS":
            found = "Q4_K" if shared else "IQ3_XXS" if self.has_imatrix else "IQ3_S"
        elif self.ftype in ("Q2_K_S", "IQ3_XS", "IQ3_S"):
            found = "Q4_K" if shared else base
        elif self.ftype in ("IQ4_NL", "IQ4_XS"):
            found = "Q5_K" if shared else base
        elif self.ftype == "IQ3_M":
            found = "Q4_K"
        elif self.ftype == "Q3_K_M":
            found = "Q5_K" if i < 2 else "Q4_K"
        elif self.ftype == "Q3_K_L" or (self.ftype == "Q4_K_S" and i < 4):
            found = "Q5_K"
        elif self.ftype in ("Q4_K_M", "Q5_K_M") and _more_bits(i, self.values):
            found = "Q6_K"
        if self.model.is_70b and found in ("Q3_K", "Q4_K"):
            found = "Q5_K"
        return "Q8_0" if self.model.experts == 8 else found

    def _of_keys(self, tensor: FloatTensor, base: str) -> str:
        return "Q8_0" if self.model.experts == 8 else self._of_queries(tensor, base)

    def _of_queries(self, tensor: FloatTensor, base: str) -> str:
        return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(self.ftype, base)

    def _of_attention_output(self, tensor: FloatTensor, base: str) -> str:
        if self.model.architecture == "falcon":
            return "Q4_K" if self.ftype == "Q3_K_L" else base
        if self.model.experts == 8:
            return "Q5_K" if self.ftype in _Q5_OUTPUT_OF_8_EXPERTS else base
        return _OF_ATTENTION_OUTPUT.get(self.ftype, base)

    def _of_gate_and_up(self, tensor: FloatTensor, base: str) -> str:
        i, n = self._layer(tensor), self.model.layers
        return "IQ3_XXS" if self.ftype == "IQ3_XS" and n // 8 <= i < 7 * n // 8 else base

    def _of_down(self, tensor: FloatTensor, base: str) -> str:
        i, n, falcon = self._layer(tensor), self.model.layers, self.model.architecture == "falcon"
        first, more = i < n // 8, _more_bits(i, n)
        if falcon and self.ftype == "Q3_K_M":
            return "Q5_K" if i < n // 16 else "Q4_K" if more else "Q3_K"
        if falcon and self.ftype == "Q4_K_M":
            return "Q6_K" if i < n // 16 else "Q5_K" if more else "Q4_K"
        if self.ftype == "IQ3_XXS" and not self.has_imatrix:
            return "Q4_K" if first else "Q3_K"
        rules = {
            "Q2_K": (True, "Q3_K"), "Q2_K_S": (first, "Q4_K"), "Q3_K_L": (True, "Q4_K" if falcon else "Q5_K"),
            "Q3_K_M": (True, "Q5_K" if i < n // 16 else "Q4_K"),
            "IQ3_M": (first or (self.model.experts == 8 and more), "Q4_K"),
            "Q4_K_M": (more, "Q6_K"), "Q5_K_M": (more, "Q6_K"), "Q4_K_S": (first and not falcon, "Q5_K"),
            **dict.fromkeys(("IQ4_NL", "IQ4_XS"), (first and not self.has_imatrix, "Q5_K")),
            "Q4_0": (first and self.has_imatrix, "Q4_1"), "Q5_0": (first and self.has_imatrix, "Q5_1"),
        }  # fmt: skip
        holds, kind = rules.get(self.ftype, (False, base))
        return kind if holds else base
