"""Pairing the tensors of two checkpoints: names of llama.cpp as gguf-py maps them, prefixes, experts, fusing."""

import itertools
import json

import gguf
import numpy as np
import torch
from gguf_bytes import STRING, info
from gguf_bytes import gguf as gguf_file
from grid import for_each
from parts import in_parts
from releases import release

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison import Part, pair_up
from quantcore.checkpoints.ggml.names import GgufNames, without_expert
from tests.generators.make_gguf_names import PATH, names


def test_the_data_are_those_of_the_gguf_package():
    assert json.loads(PATH.read_text()) == json.loads(json.dumps(names()))


class OfArchitecture(gguf.TensorNameMap):
    """gguf-py's own map, except that it does not write one architecture's names into the class."""

    def __init__(self, arch, blocks):
        self.block_mappings_cfg = dict(gguf.TensorNameMap.block_mappings_cfg)
        super().__init__(arch, blocks)


@in_parts(9)
def test_every_name_of_every_architecture_is_mapped_as_by_gguf_py(part):
    for arch in part(gguf.MODEL_ARCH_NAMES):
        ours = GgufNames.of(gguf.MODEL_ARCH_NAMES[arch])
        assert {stem.replace("{bid}", "0") for stem in ours.tensors} == set(OfArchitecture(arch, 1).mapping)
        for stem, (_, mapped) in OfArchitecture(arch, 2).mapping.items():
            assert next(iter(ours.of_stem(stem))) == mapped, (arch, stem)
            assert next(iter(ours.of_name(f"{stem}.weight"))) == (f"{mapped}.weight", None)


def test_an_unknown_architecture_has_the_names_of_all():
    found = set(GgufNames.of("frobnicate").of_stem("model.layers.3.post_attention_layernorm"))
    assert {"blk.3.ffn_norm", "blk.3.post_attention_norm"} <= found


def test_experts():
    assert without_expert("a.experts.12.w.weight") == ("a.experts.w.weight", 12)
    assert without_expert("blk.3.ffn_up.7.weight") == ("blk.3.ffn_up_exps.weight", 7)
    assert without_expert("model.layers.0.mlp.up_proj.weight") == ("model.layers.0.mlp.up_proj.weight", None)


def gguf_release(path, tensors, architecture="llama", keys=()):
    infos, data = [], b""
    for name, tensor in tensors.items():
        infos.append(info(name, tuple(tensor.shape)[::-1], 0, len(data)))
        data += tensor.contiguous().numpy().tobytes()
        data += bytes(-len(data) % 32)
    path.write_bytes(gguf_file(infos, data, [("general.architecture", STRING, architecture), *keys]))
    return open_checkpoint(path)


def pairs(original, other):
    found = pair_up(original, other)
    return {str(pair.other): str(pair.original) for pair in found.pairs}, found.unpaired


ARCHITECTURES = {
    "llama": {
        "blk.1.attn_q.weight": "model.layers.1.self_attn.q_proj.weight",
        "blk.1.ffn_norm.weight": "model.layers.1.post_attention_layernorm.weight",
        "output.weight": "lm_head.weight",
    },
    "gemma2": {"blk.1.post_attention_norm.weight": "model.layers.1.post_attention_layernorm.weight"},
    "phi2": {"blk.0.attn_norm.bias": "model.layers.0.input_layernorm.bias"},
    "bert": {"blk.0.attn_q.weight": "encoder.layer.0.attention.self.query.weight"},
    "t5": {"enc.blk.0.attn_q.weight": "encoder.block.0.layer.0.SelfAttention.q.weight"},
    "mamba": {"blk.0.ssm_in.weight": "backbone.layers.0.mixer.in_proj.weight"},
    "qwen2vl": {"blk.0.attn_v.bias": "model.language_model.layers.0.self_attn.v_proj.bias"},
}


@for_each("architecture", ARCHITECTURES)
def test_gguf_and_hugging_face(architecture, tmp_path):
    named = ARCHITECTURES[architecture]
    values = {name: torch.randn(4, 32) for name in named}
    other = gguf_release(tmp_path / "m.gguf", values, architecture)
    original = release(tmp_path / "a", {named[name]: v for name, v in values.items()})
    assert pairs(original, other) == (named, ())
    assert pairs(other, original) == ({v: k for k, v in named.items()}, ())


@for_each(
    ("mine", "theirs"),
    [
        ("", "model."),
        ("model.", "model.language_model."),
        ("language_model.model.", "model."),
        ("a.b.c.", "x."),
    ],
)
def test_prefixes(mine, theirs, tmp_path):
    names = ["layers.0.mlp.up_proj.weight", "layers.1.mlp.up_proj.weight", "norm.weight"]
    original = release(tmp_path / "a", {f"{mine}{n}": torch.randn(4) for n in names})
    other = release(tmp_path / "b", {f"{theirs}{n}": torch.randn(4) for n in names})
    assert pairs(original, other) == ({f"{theirs}{n}": f"{mine}{n}" for n in names}, ())


def test_stacked_experts(tmp_path):
    """Three ways of storing experts, paired in both directions."""
    up = torch.randn(3, 8, 32)
    stacked = gguf_release(tmp_path / "m.gguf", {"blk.0.ffn_up_exps.weight": up}, "qwen3moe")
    apart = release(
        tmp_path / "a", {f"model.layers.0.mlp.experts.{e}.up_proj.weight": up[e] for e in range(3)}
    )
    together = release(tmp_path / "b", {"model.layers.0.mlp.experts.up_proj": up})
    wanted = {
        f"blk.0.ffn_up_exps.weight[{e}]": f"model.layers.0.mlp.experts.{e}.up_proj.weight" for e in range(3)
    }
    assert pairs(apart, stacked) == (wanted, ())
    assert pairs(stacked, apart) == ({v: k for k, v in wanted.items()}, ())
    assert pairs(together, stacked) == (
        {"blk.0.ffn_up_exps.weight": "model.layers.0.mlp.experts.up_proj"},
        (),
    )


STACKS = {
    "MLX": "model.layers.0.mlp.switch_mlp.up_proj.weight",
    "MLX's Llama 4": "model.layers.0.mlp.experts.up_proj.weight",
    "Mixtral in MLX": "model.layers.0.block_sparse_moe.switch_mlp.up_proj.weight",
    "Mixtral in llama.cpp": "blk.0.ffn_up_exps.weight",
}


@for_each("kind", STACKS)
def test_names_of_stacks(kind, tmp_path):
    """Against experts apart, and against a stack as transformers names it; Mixtral has w1, w2 and w3."""
    mixtral, up = "Mixtral" in kind, torch.randn(3, 8, 32)
    if "cpp" in kind:
        stack = gguf_release(tmp_path / "m.gguf", {STACKS[kind]: up}, "llama")
    else:
        stack = release(tmp_path / "m", {STACKS[kind]: up})
    at, own = ("block_sparse_moe.experts", "w3") if mixtral else ("mlp.experts", "up_proj")
    apart = {f"model.layers.0.{at}.{e}.{own}.weight": up[e] for e in range(3)}
    wanted = {f"{STACKS[kind]}[{e}]": name for e, name in enumerate(apart)}
    assert pairs(release(tmp_path / "a", apart), stack) == (wanted, ())
    if not mixtral:
        together = release(tmp_path / "b", {"model.layers.0.mlp.experts.up_proj": up})
        assert pairs(together, stack) == ({STACKS[kind]: "model.layers.0.mlp.experts.up_proj"}, ())


FUSED = {
    "qkv": ("self_attn.qkv_proj.weight", {"q": 8, "k": 4, "v": 4}, "self_attn.{}_proj.weight"),
    "gate_up": ("mlp.gate_up_proj.weight", {"gate": 6, "up": 6}, "mlp.{}_proj.weight"),
    "bias": ("self_attn.qkv_proj.bias", {"q": 8, "k": 4, "v": 4}, "self_attn.{}_proj.bias"),
}


@for_each("kind", FUSED)
def test_fused_ones_are_paired_by_rows(kind, tmp_path):
    name, sizes, template = FUSED[kind]
    shape = () if kind == "bias" else (32,)
    parts = {f"model.layers.0.{template.format(k)}": torch.randn(n, *shape) for k, n in sizes.items()}
    fused = release(tmp_path / "a", {f"model.layers.0.{name}": torch.cat(list(parts.values()))})
    apart = release(tmp_path / "b", parts)
    found, unpaired = pairs(fused, apart)
    starts = np.cumsum([0, *sizes.values()])
    wanted = [f"model.layers.0.{name} rows {a}–{b - 1}" for a, b in itertools.pairwise(starts)]
    assert (found, unpaired) == (dict(zip(parts, wanted, strict=True)), ())
    assert pairs(apart, fused)[0] == {v: k for k, v in found.items()}


def test_fused_in_llama_cpp(tmp_path):
    """Phi-3: ffn_up contains gate and up, attn_qkv contains q, k and v."""
    parts = {n: torch.randn(4, 32) for n in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")}  # fmt: skip
    original = release(tmp_path / "a", {f"model.layers.0.{n}.weight": v for n, v in parts.items()})
    fused = {"blk.0.attn_qkv.weight": torch.randn(12, 32), "blk.0.ffn_up.weight": torch.randn(8, 32)}
    found, unpaired = pairs(original, gguf_release(tmp_path / "m.gguf", fused, "phi3"))
    assert unpaired == ()
    assert found["blk.0.ffn_up.weight rows 0–3"] == "model.layers.0.mlp.gate_proj.weight"
    assert found["blk.0.attn_qkv.weight rows 8–11"] == "model.layers.0.self_attn.v_proj.weight"


def test_fused_experts(tmp_path):
    """gate_up_proj of all experts against llama.cpp's two stacks; in gpt-oss, gate and up rows alternate."""
    both = torch.randn(2, 8, 32)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    stacks = {f"blk.0.ffn_{n}_exps.weight": torch.randn(2, 4, 32) for n in ("gate", "up")}
    for config, spans in (({}, ((0, 4, 1), (4, 8, 1))), ({"model_type": "gpt_oss"}, ((0, 8, 2), (1, 8, 2)))):
        original = release(tmp_path / f"a{len(config)}", {name: both}, config)
        found = pair_up(original, gguf_release(tmp_path / f"m{len(config)}.gguf", stacks, "qwen3moe"))
        assert found.unpaired == ()
        assert [pair.original for pair in found.pairs] == [
            Part(name, e, span) for span in spans for e in range(2)
        ]


def test_tied_embeddings(tmp_path):
    table = torch.randn(16, 32)
    original = release(tmp_path / "a", {"model.embed_tokens.weight": table})
    other = gguf_release(tmp_path / "m.gguf", {"token_embd.weight": table, "output.weight": table})
    found = pair_up(original, other)
    assert [str(pair.original) for pair in found.pairs] == ["model.embed_tokens.weight"] * 2
    assert "tied embeddings" in found.pairs[1].note
    back = pair_up(other, original)
    assert (sorted(str(pair.original) for pair in back.pairs), back.unpaired) == (["output.weight", "token_embd.weight"], ())


def test_transposed(tmp_path):
    """GPT-2 stores [in, out]; where the shapes of some show it, square matrices are read so too."""
    conv = {"h.0.mlp.c_fc.weight": torch.randn(8, 32), "h.0.attn.c_proj.weight": torch.randn(32, 32)}
    original = release(tmp_path / "a", conv)
    turned = {"blk.0.ffn_up.weight": torch.randn(32, 8), "blk.0.attn_output.weight": torch.randn(32, 32)}
    found = pair_up(original, gguf_release(tmp_path / "m.gguf", turned, "gpt2"))
    assert [pair.other.transposed for pair in found.pairs] == [True, True]
    assert [pair.shape for pair in found.pairs] == [(8, 32), (32, 32)]


def test_reasons(tmp_path):
    """Tensors without a partner are listed with the reason."""
    original = release(tmp_path / "a", {"a.b.weight": torch.randn(4, 2), "c": torch.randn(3)})
    other = release(tmp_path / "b", {"a.b.weight": torch.randn(5, 2), "<b>*d*</b>\n": torch.randn(3)})
    found = {(u.side, u.kind): u for u in pair_up(original, other).unpaired}
    assert set(found) == {("original", "absent"), ("other", "absent"), ("other", "shape")}
    assert "has shape (5, 2), but the original has (4, 2)" in found["other", "shape"].reason
    assert all("\n" not in u.reason and u.reason.endswith(".") for u in found.values())
