"""Releases of several layers with their originals, quantized here as libraries do it, to break one thing.

The arithmetic is that of the formats' specifications, in torch; packing is written out. ``write`` gives the
folders.
"""

import json
from functools import cache

import ggml_oracle
import numpy as np
import torch
from gguf_bytes import IDS, STRING, U32, gguf, info
from safetensors.torch import save_file

from quantcore.checkpoints import open_checkpoint

HIDDEN, INNER, HEADS, LAYERS, GROUP = 128, 256, 4, 5, 32
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN // 2, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER),
}  # fmt: skip
GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS // 2,
    "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "torch_dtype": "bfloat16",
}  # fmt: skip
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
NF4 = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023,
    1.0,
])  # fmt: skip
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


@cache
def model(seed=0, dtype=torch.bfloat16, layers=LAYERS):
    """The weights of a small model by name; layers differ in spread, and layer 0 has outliers."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for layer in range(layers):
        for name, shape in SHAPES.items():
            w = torch.randn(shape, generator=generator) * 0.02 * (1 + 0.2 * layer)
            w *= torch.exp(0.3 * torch.randn(shape[0], 1, generator=generator))
            if layer == 0:
                w *= torch.exp(0.4 * torch.randn(shape, generator=generator))
            found[f"model.layers.{layer}.{name}.weight"] = w.to(dtype)
        norm = 1 + 0.1 * torch.randn(HIDDEN, generator=generator)
        found[f"model.layers.{layer}.input_layernorm.weight"] = norm.to(dtype)
    found["model.embed_tokens.weight"] = (torch.randn(64, HIDDEN, generator=generator) * 0.02).to(dtype)
    return found


def words(codes, axis=-1, order=range(8)):
    """4-bit codes in 32-bit words along an axis, the first of ``order`` in the lowest bits."""
    codes = codes.movedim(axis, -1).long().reshape(*codes.movedim(axis, -1).shape[:-1], -1, 8)
    packed = sum(codes[..., j] << (4 * i) for i, j in enumerate(order))
    packed = torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32)
    return packed.movedim(-1, axis).contiguous()


def in_groups(w, size=GROUP):
    return w.float().reshape(w.shape[0], -1, size)


def symmetric(w, size, qmax, dtype, search=False):
    """Codes and scales: max |w| / qmax, rounded to their dtype; ``search``: the best of shrunken ones."""
    x = in_groups(w, size)
    high = x.abs().amax(-1, keepdim=True)
    best = torch.full_like(high, torch.inf)
    scale = torch.zeros_like(high)
    for shrink in np.linspace(1, 0.6, 21) if search else [1.0]:
        s = (high * float(shrink) / qmax).to(dtype).float()
        e = (x - (x / s).round().clamp(-qmax - 1, qmax) * s).square().sum(-1, keepdim=True)
        better = e < best
        best, scale = torch.where(better, e, best), torch.where(better, s, scale)
    q = (x / scale).round().clamp(-qmax - 1, qmax)
    return q.reshape(w.shape), scale[..., 0].to(dtype)


def feedback(w, size, seed, order=None):
    """GPTQ: 4-bit symmetric codes and scales, error feedback from correlated inputs. Frantar et al. 2022."""
    generator = torch.Generator().manual_seed(seed)
    n = w.shape[1]
    mix = torch.randn(n, n, generator=generator) / n**0.5 + torch.eye(n)
    inputs = (
        torch.randn(4 * n, n, generator=generator)
        @ mix
        * torch.exp(0.5 * torch.randn(n, generator=generator))
    )
    h = (inputs.T @ inputs).double()
    order = torch.arange(n) if order is None else h.diag().argsort(descending=True)
    h = h[order][:, order] + 0.01 * h.diag().mean() * torch.eye(n)
    upper = torch.linalg.cholesky(torch.linalg.inv(h), upper=True)
    left, q = w.double()[:, order].clone(), torch.zeros(w.shape, dtype=torch.float64)
    scales = []
    for start in range(0, n, size):  # the errors of a group reach the columns after it at once
        group = slice(start, start + size)
        scales.append((left[:, group].abs().amax(1) / 7).half())
        s, errors = scales[-1].double(), torch.zeros(len(w), size, dtype=torch.float64)
        for i, j in enumerate(range(start, start + size)):
            q[:, j] = (left[:, j] / s).round().clamp(-8, 7)
            errors[:, i] = (left[:, j] - q[:, j] * s) / upper[j, j]
            left[:, j : start + size] -= errors[:, i, None] * upper[j, j : start + size]
        left[:, start + size :] -= errors @ upper[group, start + size :]
    back = order.argsort()
    return q.float()[:, back], torch.stack(scales, 1), (torch.arange(n) // size)[back]


def gptq(module, w, method="nearest", seed=0):
    index = torch.arange(w.shape[1]) // GROUP
    if method == "nearest":
        q, s = symmetric(w, GROUP, 7, torch.float16)
    elif method == "search":
        q, s = symmetric(w, GROUP, 7, torch.float16, search=True)
    else:
        q, s, index = feedback(w, GROUP, seed, None if method == "feedback" else "desc_act")
    zeros = words(torch.full((w.shape[1] // GROUP, w.shape[0]), 7))
    return {
        f"{module}.qweight": words((q + 8).T, 0), f"{module}.qzeros": zeros,
        f"{module}.scales": s.T.contiguous(), f"{module}.g_idx": index.to(torch.int32),
    }  # fmt: skip


def awq(module, w):
    x = in_groups(w)
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 15).half().float()
    zero = (-low / scale).round().clamp(0, 15)
    q = ((x / scale).round() + zero).clamp(0, 15).reshape(w.shape)
    return {
        f"{module}.qweight": words(q.T, 1, AWQ_ORDER),
        f"{module}.qzeros": words(zero[..., 0].T, 1, AWQ_ORDER),
        f"{module}.scales": scale[..., 0].T.half().contiguous(),
    }  # fmt: skip


def ct_int4(module, w, search=False):
    q, s = symmetric(w, GROUP, 7, torch.bfloat16, search)
    return {
        f"{module}.weight_packed": words(q + 8), f"{module}.weight_scale": s,
        f"{module}.weight_shape": torch.tensor(w.shape),
    }  # fmt: skip


def ct_int8(module, w):
    q, s = symmetric(w, w.shape[1], 127, torch.bfloat16)
    return {f"{module}.weight": q.to(torch.int8), f"{module}.weight_scale": s}


def fp8(module, w):
    scale = (w.float().abs().amax(1, keepdim=True) / 448).float()
    return {f"{module}.weight": (w.float() / scale).to(torch.float8_e4m3fn), f"{module}.weight_scale": scale}


def fp4_codes(x):
    """The nearest E2M1 codes; ties to the even code."""
    away = (x[..., None].abs() - E2M1[:8]).abs()
    least = away.amin(-1, keepdim=True)
    tied = away <= least
    even = torch.where(tied & (torch.arange(8) % 2 == 0), 0, 1).argmin(-1)
    code = torch.where(tied.sum(-1) > 1, even, away.argmin(-1))
    return code + 8 * ((x < 0) & (code > 0)).long()


def bytes_of(codes):
    return (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)


def nvfp4(module, w):
    one = w.float().abs().max() / (6 * 448)
    scale = (in_groups(w, 16).abs().amax(-1) / 6 / one).to(torch.float8_e4m3fn)
    codes = fp4_codes(in_groups(w, 16) / (scale.float() * one)[..., None]).reshape(w.shape)
    return {
        f"{module}.weight": bytes_of(codes),
        f"{module}.weight_scale": scale,
        f"{module}.weight_scale_2": one.reshape(()),
    }


def mxfp4(module, w):
    x = in_groups(w)
    power = torch.floor(torch.log2(x.abs().amax(-1, keepdim=True))) - 2
    codes = fp4_codes(x / torch.exp2(power)).reshape(w.shape)
    return {
        f"{module}.weight_packed": bytes_of(codes),
        f"{module}.weight_scale": (power[..., 0] + 127).to(torch.uint8),
    }


def nf4(module, w):
    x = w.float().reshape(-1, 64)
    absmax = x.abs().amax(1)
    codes = ((x / absmax[:, None])[..., None] - NF4).abs().argmin(-1).reshape(-1)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(w.shape)}
    return {
        f"{module}.weight": (codes[::2] << 4 | codes[1::2]).to(torch.uint8)[:, None],
        f"{module}.weight.absmax": absmax, f"{module}.weight.quant_map": NF4.clone(),
        f"{module}.weight.quant_state.bitsandbytes__nf4": torch.tensor(
            list(json.dumps(state).encode()), dtype=torch.uint8
        ),
    }  # fmt: skip


def _ct(bits, kind, strategy, form, size=None, **more):
    weights = {
        "num_bits": bits,
        "type": kind,
        "symmetric": True,
        "group_size": size,
        "strategy": strategy,
        "dynamic": False,
        **more,
    }
    return {
        "quant_method": "compressed-tensors", "format": form, "version": "0.20.0", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "format": form}},
    }  # fmt: skip


_GPTQ = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": GROUP,
    "desc_act": False,
    "sym": True,
    "checkpoint_format": "gptq",
}
_NVFP4 = {
    "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
    },
}  # fmt: skip
WRITERS = {
    "gptq": (gptq, _GPTQ),
    "gptq_search": (lambda m, w: gptq(m, w, "search"), _GPTQ),
    "gptq_feedback": (lambda m, w: gptq(m, w, "feedback"), _GPTQ),
    "gptq_desc_act": (lambda m, w: gptq(m, w, "desc_act"), _GPTQ | {"desc_act": True}),
    "awq": (
        awq,
        {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
    ),
    "ct_int4": (ct_int4, _ct(4, "int", "group", "pack-quantized", GROUP)),
    "ct_int4_search": (lambda m, w: ct_int4(m, w, True), _ct(4, "int", "group", "pack-quantized", GROUP)),
    "ct_int8": (ct_int8, _ct(8, "int", "channel", "int-quantized")),
    "fp8": (fp8, _ct(8, "float", "channel", "float-quantized")),
    "nvfp4": (nvfp4, _NVFP4),
    "mxfp4": (mxfp4, _ct(4, "float", "group", "mxfp4-pack-quantized", 32, scale_dtype="torch.uint8")),
    "nf4": (nf4, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}),
}  # fmt: skip
GGUF_TYPES = ("Q4_0", "Q8_0", "Q4_1", "Q4_K", "Q6_K", "IQ4_XS", "IQ4_NL", "Q2_K", "Q3_K", "Q5_K")
BLOCKS = {"Q4_0": 32, "Q8_0": 32, "Q4_1": 32, "IQ4_NL": 32}


def quantized(weights, name):
    """The stored tensors of a release: linear weights quantized, the rest as they are."""
    writer, _ = WRITERS[name]
    found = {}
    for weight, w in weights.items():
        module = weight.removesuffix(".weight")
        linear = ".self_attn." in weight or ".mlp." in weight
        found |= writer(module, w) if linear else {weight: w}
    return found


def save(folder, tensors, config=None):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.clone().contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(CONFIG | ({"quantization_config": config} if config else {}))
    )
    return folder


def release(folder, tensors, config=None, metadata=None):
    """Write a release with these tensors or arrays, and open it; ``config``: all of config.json, if any."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {
        k: torch.from_numpy(np.ascontiguousarray(v)) if isinstance(v, np.ndarray) else v.contiguous()
        for k, v in tensors.items()
    }
    save_file(found, folder / "model.safetensors", metadata)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return open_checkpoint(folder)


def compressed(folder, tensors, form="pack-quantized", version=None, **weights):
    """Write a compressed-tensors release and open it; ``weights``: how its config describes them."""
    config = {"quant_method": "compressed-tensors", "format": form}
    config |= {"version": version} if version else {}
    config["config_groups"] = {"g": {"targets": ["Linear"], "weights": weights}}
    return release(folder, tensors, {"quantization_config": config})


def save_gguf(file, weights, kind):
    """A GGUF file with llama.cpp's names; q and k are permuted as llama.cpp does it."""
    infos, data = [], bytearray()
    for name, w in weights.items():
        parts = name.split(".")
        heads = {"q_proj": HEADS, "k_proj": HEADS // 2}.get(parts[-2])
        if parts[1] == "layers":
            last = ".".join(parts[3:-1])
            mine = f"blk.{parts[2]}.{GGUF_NAMES.get(last, 'attn_norm')}.weight"
        else:
            mine = "token_embd.weight"
        x = w.float().numpy()
        if heads:
            x = x.reshape(heads, 2, len(x) // heads // 2, -1).swapaxes(1, 2).reshape(x.shape)
        size = BLOCKS.get(kind, 256)
        if x.ndim == 2 and "blk" in mine and x.shape[1] % size == 0:
            raw, number = ggml_oracle.quantize(kind, x).tobytes(), IDS[kind]
        else:
            raw, number = np.ascontiguousarray(x, np.float32).tobytes(), IDS["F32"]
        data += bytes(-len(data) % 32)
        infos.append(info(mine, x.shape[::-1], number, len(data)))
        data += raw
    keys = [("general.architecture", STRING, "llama"), ("llama.attention.head_count", U32, HEADS),
            ("llama.attention.head_count_kv", U32, HEADS // 2)]  # fmt: skip
    file.write_bytes(gguf(infos, bytes(data), keys))
    return file
