"""Small transformers with realistic statistics, and releases of them: sound ones, and what breaks them.

`weights` draws a model: the RMS of a role differs between layers by a random factor, by a trend, and in the
first and last layers by up to 4; values have heavy tails, and some channels are outliers. `FORMATS` quantizes
it with arithmetic written here, straight from the definition of each format.
"""

import math

import numpy as np
import torch

LAYERS, WIDTH, INNER = 8, 64, 128
CONFIGS = {
    "llama": {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2},
    "gemma": {"model_type": "gemma2", "num_attention_heads": 4, "num_key_value_heads": 2},
    "bert": {"model_type": "bert", "num_attention_heads": 4},
    "hybrid": {"model_type": "qwen3_next", "num_attention_heads": 4, "num_key_value_heads": 2},
    "moe": {"model_type": "deepseek_v3", "num_attention_heads": 4},
}


class Draws:
    """Draws weights, each role with a scale of its own that changes from layer to layer."""

    def __init__(self, seed, layers):
        self.generator, self.layers = np.random.default_rng(seed), layers

    def factor(self, layer):
        at_end = self.generator.uniform(1, 4) if layer in (0, self.layers - 1) else 1.0
        sign = self.generator.choice((-1, 1))
        return math.exp(self.generator.normal() * 0.25) * at_end**sign * 2 ** (0.5 * layer / self.layers)

    def matrix(self, layer, rows, columns):
        values = self.generator.standard_t(6, size=(rows, columns)) * 0.02 * self.factor(layer)
        if self.generator.random() < 0.3:
            values[:, self.generator.integers(columns)] *= self.generator.uniform(2, 12)
        if self.generator.random() < 0.1:
            values.flat[self.generator.integers(values.size)] *= self.generator.uniform(3, 10)
        return values

    def norm(self, layer, n, middle=1.0):
        gain = middle * self.factor(layer) * (0.3 if layer == 0 else 1)
        return gain * (1 + 0.2 * self.generator.normal(size=n))

    def bias(self, layer, n):
        return self.generator.normal(size=n) * 0.01 * self.factor(layer) ** 2


def weights(kind, seed=0, layers=LAYERS):
    """The float weights of a model, by name: float32 arrays."""
    draw, found = Draws(seed, layers), {}
    if kind == "bert":
        _bert(draw, found)
    else:
        _decoder(kind, draw, found)
    return {name: value.astype(np.float32) for name, value in found.items()}


def _bert(draw, found):
    found["bert.embeddings.word_embeddings.weight"] = draw.matrix(1, 96, WIDTH)
    found["bert.embeddings.token_type_embeddings.weight"] = draw.matrix(1, 2, WIDTH)
    for i in range(draw.layers):
        at = f"bert.encoder.layer.{i}."
        shapes = {
            "attention.self.query": (WIDTH, WIDTH), "attention.self.key": (WIDTH, WIDTH),
            "attention.self.value": (WIDTH, WIDTH), "attention.output.dense": (WIDTH, WIDTH),
            "intermediate.dense": (INNER, WIDTH), "output.dense": (WIDTH, INNER),
        }  # fmt: skip
        for name, (rows, columns) in shapes.items():
            found[f"{at}{name}.weight"] = draw.matrix(i, rows, columns)
            found[f"{at}{name}.bias"] = draw.bias(i, rows)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            found[f"{at}{name}.weight"] = draw.norm(i, WIDTH)
            found[f"{at}{name}.bias"] = draw.bias(i, WIDTH)


def _decoder(kind, draw, found):
    found["model.embed_tokens.weight"] = draw.matrix(1, 96, WIDTH)
    middle = 0.1 if kind == "gemma" else 1.0
    for i in range(draw.layers):
        at = f"model.layers.{i}."
        if kind == "hybrid" and i % 4 != 3:
            for name in ("in_proj_qkv", "in_proj_z", "out_proj"):
                found[f"{at}linear_attn.{name}.weight"] = draw.matrix(i, WIDTH, WIDTH)
            found[f"{at}linear_attn.A_log"] = draw.bias(i, 4)
        else:
            for name, rows in (("q", WIDTH), ("k", 32), ("v", 32), ("o", WIDTH)):
                found[f"{at}self_attn.{name}_proj.weight"] = draw.matrix(i, rows, WIDTH)
        if kind == "moe" and i > 0:
            found[f"{at}mlp.gate.weight"] = draw.matrix(i, 4, WIDTH)
            places = [f"mlp.experts.{e}." for e in range(4)]
        else:
            places = ["mlp."]
        for place in places:
            for name, (rows, columns) in {
                "gate": (INNER, WIDTH), "up": (INNER, WIDTH), "down": (WIDTH, INNER),
            }.items():  # fmt: skip
                found[f"{at}{place}{name}_proj.weight"] = draw.matrix(i, rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}{name}.weight"] = draw.norm(i, WIDTH, middle)
    found["model.norm.weight"] = draw.norm(1, WIDTH, 3 * middle)
    found["lm_head.weight"] = draw.matrix(1, 96, WIDTH)


def is_linear(name, value):
    return value.ndim == 2 and name.endswith("weight") and ".layer" in name and ".gate.weight" not in name


def _groups(value, size):
    return value.reshape(len(value), -1, size)


def _words(codes, bits=4):
    """Codes [..., n] to int32 [..., n * bits / 32], the first in the lowest bits."""
    per = 32 // bits
    parts = codes.reshape(*codes.shape[:-1], -1, per).astype(np.uint64) << (
        bits * np.arange(per, dtype=np.uint64)
    )
    return parts.sum(-1).astype(np.uint32).view(np.int32)


def gptq(module, value, size=32, sym=True, order=None):
    """GPTQ v1, int4, with ``order``: the columns in the order in which they are quantized."""
    columns = value.shape[1]
    order = np.arange(columns) if order is None else order
    groups = _groups(value[:, order], size)
    if sym:
        scale = np.abs(groups).max(-1) / 7.5
        zero = np.full(scale.shape, 8)
    else:
        low, high = np.minimum(groups.min(-1), 0), np.maximum(groups.max(-1), 0)
        scale = (high - low) / 15
        zero = np.clip(np.round(-low / scale), 1, 15)
    scale = scale.astype(np.float16)
    codes = np.clip(np.round(groups / scale.astype(np.float32)[..., None]) + zero[..., None], 0, 15)
    stored = np.empty(value.shape, np.int64)
    stored[:, order] = codes.reshape(value.shape)
    index = np.empty(columns, np.int32)
    index[order] = np.arange(columns) // size
    return {
        f"{module}.qweight": np.ascontiguousarray(_words(stored).T),
        f"{module}.qzeros": _words(np.ascontiguousarray((zero.T - 1).astype(np.int64))),
        f"{module}.scales": np.ascontiguousarray(scale.T),
        f"{module}.g_idx": index,
    }


def gptq_desc_act(module, value):
    order = np.argsort(-np.abs(value).sum(0), kind="stable")
    return gptq(module, value, sym=False, order=order)


def awq(module, value, size=32):
    """AWQ gemm, int4: codes and zero points of eight output channels in the order 0 2 4 6 1 3 5 7."""
    groups = _groups(value, size)
    low, high = np.minimum(groups.min(-1), 0), np.maximum(groups.max(-1), 0)
    scale = ((high - low) / 15).astype(np.float16)
    zero = np.clip(np.round(-low / scale.astype(np.float32)), 0, 15)
    codes = np.clip(np.round(groups / scale.astype(np.float32)[..., None]) + zero[..., None], 0, 15)

    def packed(numbers):  # [rows, n] -> [n, rows / 8]
        eights = numbers.T.reshape(numbers.shape[1], -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]]
        return _words(np.ascontiguousarray(eights.reshape(numbers.shape[1], -1)).astype(np.int64))

    return {
        f"{module}.qweight": packed(codes.reshape(value.shape)),
        f"{module}.qzeros": packed(zero),
        f"{module}.scales": np.ascontiguousarray(scale.T),
    }


def pack_quantized(module, value, size=32):
    groups = _groups(value, size)
    scale = torch.from_numpy(np.abs(groups).max(-1) / 7.5).to(torch.bfloat16)
    codes = np.clip(np.round(groups / scale.float().numpy()[..., None]), -8, 7) + 8
    return {
        f"{module}.weight_packed": _words(codes.reshape(value.shape).astype(np.int64)),
        f"{module}.weight_scale": scale,
        f"{module}.weight_shape": np.array(value.shape, np.int64),
    }


def int8(module, value):
    scale = torch.from_numpy(np.abs(value).max(1, keepdims=True) / 127.5).to(torch.bfloat16)
    codes = np.clip(np.round(value / scale.float().numpy()), -128, 127)
    return {f"{module}.weight": codes.astype(np.int8), f"{module}.weight_scale": scale}


def fp8(module, value):
    scale = torch.from_numpy(np.abs(value).max(1, keepdims=True) / 448).to(torch.bfloat16)
    codes = torch.from_numpy(value / scale.float().numpy()).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {f"{module}.weight": codes, f"{module}.weight_scale": scale}


def fp8_blocks(module, value, size=32):
    tiles = value.reshape(value.shape[0] // size, size, value.shape[1] // size, size)
    scale = (np.abs(tiles).max((1, 3)) / 448).astype(np.float32)
    codes = (tiles / scale[:, None, :, None]).reshape(value.shape)
    stored = torch.from_numpy(codes).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {f"{module}.weight": stored, f"{module}.weight_scale_inv": scale}


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _nibbles(groups):
    """FP4 codes, two per byte, the first in the lower bits."""
    codes = np.abs(np.abs(groups)[..., None] - E2M1).argmin(-1) + 8 * (groups < 0)
    pairs = codes.reshape(len(codes), -1, 2)
    return (pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8)


def nvfp4(module, value, multiplies=False):
    groups = _groups(value, 16)
    whole = np.float32(448 * 6 / np.abs(value).max())
    scale = torch.from_numpy(np.abs(groups).max(-1) / 6 * whole).clamp(2**-6, 448).to(torch.float8_e4m3fn)
    codes = _nibbles(groups / (scale.float().numpy() / whole)[..., None])
    if multiplies:  # as ModelOpt stores it
        return {
            f"{module}.weight": codes, f"{module}.weight_scale": scale,
            f"{module}.weight_scale_2": np.array(1 / whole, np.float32),
        }  # fmt: skip
    return {
        f"{module}.weight_packed": codes, f"{module}.weight_scale": scale,
        f"{module}.weight_global_scale": np.array([whole], np.float32),
    }  # fmt: skip


def modelopt_nvfp4(module, value):
    return nvfp4(module, value, multiplies=True)


def mxfp4(module, value):
    groups = _groups(value, 32)
    exponent = np.floor(np.log2(np.abs(groups).max(-1))) - 2
    codes = _nibbles(groups / 2.0 ** exponent[..., None])
    return {f"{module}.weight_packed": codes, f"{module}.weight_scale": (exponent + 127).astype(np.uint8)}


def mlx(module, value, size=32):
    groups = _groups(value, size)
    scale = ((groups.max(-1) - groups.min(-1)) / 15).astype(np.float16)
    bias = groups.min(-1).astype(np.float16)
    codes = np.clip(np.round((groups - bias[..., None]) / scale.astype(np.float32)[..., None]), 0, 15)
    return {
        f"{module}.weight": _words(codes.reshape(value.shape).astype(np.int64)).view(np.uint32),
        f"{module}.scales": scale, f"{module}.biases": bias,
    }  # fmt: skip


def _compressed(form, kind, bits, strategy, size=None):
    arguments = {"num_bits": bits, "type": kind, "symmetric": True, "strategy": strategy, "group_size": size}
    groups = {"group_0": {"targets": ["Linear"], "weights": arguments}}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": groups,
        "version": "0.20.0",
    }


# name -> what quantizes a linear weight, and the quantization_config
FORMATS = {
    "plain": (None, None),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False}),
    "gptq_desc_act": (
        gptq_desc_act, {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": True},
    ),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}),
    "pack_quantized": (pack_quantized, _compressed("pack-quantized", "int", 4, "group", 32)),
    "int8": (int8, _compressed("int-quantized", "int", 8, "channel")),
    "fp8": (fp8, _compressed("float-quantized", "float", 8, "channel")),
    "fp8_blocks": (fp8_blocks, {"quant_method": "fp8", "weight_block_size": [32, 32]}),
    "nvfp4": (nvfp4, _compressed("nvfp4-pack-quantized", "float", 4, "tensor_group", 16)),
    "modelopt_nvfp4": (modelopt_nvfp4, {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}),
    "mxfp4": (mxfp4, _compressed("mxfp4-pack-quantized", "float", 4, "group", 32)),
    "mlx": (mlx, None),
}  # fmt: skip


def stored(kind, form, seed=0, layers=LAYERS):
    """The stored tensors of a release and its config."""
    make, quantization = FORMATS[form]
    found = {}
    for name, value in weights(kind, seed, layers).items():
        if make is not None and is_linear(name, value):
            found |= make(name.removesuffix(".weight"), value)
        else:
            found[name] = torch.from_numpy(value).to(torch.bfloat16)
    config = CONFIGS[kind] | {"num_hidden_layers": layers, "hidden_size": WIDTH, "torch_dtype": "bfloat16"}
    if quantization:
        config["quantization_config"] = quantization
    if form == "mlx":
        config["quantization"] = {"bits": 4, "group_size": 32}
    found = {k: torch.from_numpy(np.array(v)) if isinstance(v, np.ndarray) else v for k, v in found.items()}
    return found, config
