"""What a weight does in a transformer, by its name, and which traits make it lose more than others."""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.checkpoints.findings import role_of

# kind -> what names in Hugging Face models and in llama.cpp contain, the first that fits
_KINDS = {
    "router": r"ffn_gate_inp|router|\bgate\.weight$",
    "norm": r"norm|\bln_",
    "q, k, v": r"qkv|attn_[qkv]\b|\b[qkv]_(proj|a_proj|b_proj)|kv_a_proj|kv_b_proj"
    r"|query|\bkey\b|\bvalue\b|c_attn|Wqkv",
    "o": r"attn_output|\bo_proj|attention\.dense|attention\.output\.dense|attn\.c_proj|out_proj",
    "gate, up": r"gate_up|ffn_(gate|up)|\b(gate|up)_proj|\bw[13]\b"
    r"|fc1|c_fc|dense_h_to_4h|intermediate\.dense",
    "down": r"ffn_down|down_proj|\bw2\b|fc2|mlp\.c_proj|dense_4h_to_h|\boutput\.dense",
    "output": r"lm_head|^output\b",
    "embeddings": r"embd|embed|\bwte\b|\bwpe\b",
}
KINDS = tuple(_KINDS)
_KIND = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}
NOT_KNOWN = "role not known"
_EXPERTS = re.compile(r"experts|_exps\b")
_STACKED = re.compile(r"_exps\b")  # those of a layer in one tensor
_FUSED = ("q, k, v", "gate, up")
OUTLIER = 3.0  # a column is an outlier if its largest magnitude is this many times the median column's


def kind_of(name: str) -> str:
    """Return what a weight does; its name without numbers if that is not known.

    >>> kind_of("model.layers.3.self_attn.k_proj.weight"), kind_of("blk.0.ffn_down_exps.weight")
    ('q, k, v', 'experts down')
    """
    found = next((kind for kind, pattern in _KIND.items() if pattern.search(name)), None)
    if found is None:
        return role_of(name)
    return f"experts {found}" if _EXPERTS.search(name) else found


def kind_text(kind: str) -> str:
    """Return how a kind is written, which says where it is not known.

    >>> kind_text("experts down"), kind_text("mlp_core.layers.weight")
    ('experts down', 'role not known: mlp_core.layers.weight')
    """
    return kind if kind.removeprefix("experts ") in KINDS else f"{NOT_KNOWN}: {kind}"


def group_of(name: str) -> str:
    """Return the group of weights that get one scheme as a loader needs them alike; else the name itself.

    Together are q, k and v of one attention, and gate and up of one MLP, which vLLM fuses (vLLM #11354,
    #41457, #47473); and all experts of a layer, which TensorRT-LLM (#15485), ModelOpt
    (``quant_grouping_rules``) and llm-compressor give one format. llama.cpp stacks the experts of one kind
    in one tensor and needs no more.

    >>> group_of("model.layers.3.mlp.up_proj.weight")
    'model.layers.3.mlp: gate, up'
    >>> group_of("model.layers.3.mlp.experts.7.down_proj.weight")
    'model.layers.3.mlp.experts'
    >>> group_of("embeddings.position_embeddings.weight")
    'embeddings.position_embeddings.weight'
    """
    parts = name.split(".")
    if "experts" in parts:
        return ".".join(parts[: parts.index("experts") + 1])
    kind = kind_of(name).removeprefix("experts ")
    if kind not in _FUSED or _STACKED.search(name):
        return name
    found = _KIND[kind].search(name)
    assert found is not None
    return f"{name[: found.start()].rpartition('.')[0]}: {kind}"


@dataclass(frozen=True)
class Traits:
    """Of the values of a weight.

    ``kurtosis``: E[(x − μ)⁴] / σ⁴, which is 3 for a normal distribution; ``peak``: max |x| over the RMS of x;
    ``outlier_columns``: of ``columns``, how many have a max |x| above `OUTLIER` times the median column's;
    ``largest_column``: the one with max |x|. Constant values have a kurtosis of nan, zeros a peak of nan.
    """

    kurtosis: float
    peak: float
    outlier_columns: int
    columns: int
    largest_column: int


def traits(x: Tensor) -> Traits:
    """Return the traits of a weight of two axes or more, whose columns are its last axis.

    >>> x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    >>> x[:, 5] *= 50
    >>> found = traits(x)
    >>> found.outlier_columns, found.largest_column
    (1, 5)
    """
    lines = x.reshape(-1, x.shape[-1])
    largest = torch.maximum(lines.amax(0), -lines.amin(0)).float()  # its multiples are not rounded
    count = x.numel()
    mean = float(x.sum(dtype=torch.float64)) / count
    power = second = fourth = 0.0
    for rows in torch.split(lines, max(1, (1 << 20) // lines.shape[1])):
        exact = rows.double()
        power += float(exact.square().sum())
        squares = exact.sub_(mean).square_()
        second, fourth = second + float(squares.sum()), fourth + float(squares.square_().sum())
    outliers = largest > OUTLIER * largest.median()
    return Traits(
        fourth * count / second**2 if second else float("nan"),
        float(largest.max()) / (power / count) ** 0.5 if power else float("nan"),
        int(outliers.sum()), len(largest), int(largest.argmax()),
    )  # fmt: skip
