"""What a weight does in a transformer, by its name, and which weights get one scheme."""

import re

from quantcore.checkpoints.findings import layer_of, role_of

# kind -> what names in Hugging Face models and in llama.cpp contain, the first that fits
_KINDS = {
    "router": r"ffn_gate_inp|router|\bgate\.weight$",
    "norm": r"norm|\bln_",
    "q, k, v": r"qkv|attn_[qkv]\b|\b[qkv]_(proj|a_proj|b_proj)|kv_a_proj|kv_b_proj|query|\bkey\b|\bvalue\b|c_attn|Wqkv",
    "o": r"attn_output|\bo_proj|attention\.dense|attention\.output\.dense|attn\.c_proj|out_proj",
    "gate, up": r"gate_up|ffn_(gate|up)|\b(gate|up)_proj|\bw[13]\b|fc1|c_fc|dense_h_to_4h|intermediate\.dense",
    "down": r"ffn_down|down_proj|\bw2\b|fc2|mlp\.c_proj|dense_4h_to_h|\boutput\.dense",
    "output": r"lm_head|^output\b",
    "embeddings": r"embd|embed|\bwte\b|\bwpe\b",
}
_KIND = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}
_EXPERTS = re.compile(r"experts|_exps\b")


def kind_of(name: str) -> str:
    """Return what a weight does; its name without numbers if that is not known.

    >>> kind_of("model.layers.3.self_attn.k_proj.weight"), kind_of("blk.0.ffn_down_exps.weight")
    ('q, k, v', 'experts down')
    """
    found = next((kind for kind, pattern in _KIND.items() if pattern.search(name)), None)
    if found is None:
        return role_of(name)
    return f"experts {found}" if _EXPERTS.search(name) else found


def group_of(name: str) -> str:
    """Return the group of weights with one scheme: those of one kind in one layer, as loaders that fuse them require.

    >>> group_of("model.layers.3.mlp.up_proj.weight") == group_of("model.layers.3.mlp.gate_proj.weight")
    True
    """
    layer = layer_of(name)
    return kind_of(name) if layer is None else f"layer {layer} {kind_of(name)}"
