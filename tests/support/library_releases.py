"""Releases of a whole model, written by the installed libraries: what a check must find sound.

Each function takes the float weights by name and returns the stored tensors, the metadata of the header and
what to add to config.json; `gguf_file` writes a GGUF file.
"""

import importlib.util

import ggml_oracle
import numpy as np
import torch
from random_releases import is_linear

LLAMA_TO_GGUF = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def original(weights, dtype=torch.bfloat16):
    """What the releases of the dtype are quantized from."""
    return {name: torch.from_numpy(value).to(dtype) for name, value in weights.items()}


def _split(weights, dtype=torch.bfloat16):
    """The linear weights by name, and the other tensors in the dtype."""
    linear = {name: value for name, value in weights.items() if is_linear(name, value)}
    return linear, {k: v for k, v in original(weights, dtype).items() if k not in linear}


def _modules(linear, dtype=torch.bfloat16):
    """Linear modules of the dtype under names without dots, which ModuleDict does not allow."""
    modules = torch.nn.ModuleDict()
    for name, value in linear.items():
        module = torch.nn.Linear(*value.shape[::-1], bias=False, dtype=dtype)
        module.weight.data.copy_(torch.from_numpy(value))
        modules[name.removesuffix(".weight").replace(".", "/")] = module
    return modules


def hqq(weights, bits=4, dtype=torch.bfloat16):
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    linear, found = _split(weights, dtype)
    config = BaseQuantizeConfig(nbits=bits, group_size=64, axis=1)
    for name, module in _modules(linear, dtype).items():
        layer = HQQLinear(module, config, compute_dtype=dtype, device="cpu")
        found |= {f"{name.replace('/', '.')}.{k}": v for k, v in layer.state_dict().items() if v is not None}
    return found, None, {"quantization_config": {"quant_method": "hqq"}}


def bitsandbytes(weights, nested=False, kind="nf4", dtype=torch.bfloat16):
    import bitsandbytes.functional as functional

    linear, found = _split(weights, dtype)
    for name, value in linear.items():
        given = torch.from_numpy(value).to(dtype)
        packed, state = functional.quantize_4bit(given, None, None, 64, nested, kind)
        found |= {name: packed} | {f"{name}.{k}": v for k, v in state.as_dict(packed=True).items()}
    return found, None, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}


def bitsandbytes_int8(weights):
    import bitsandbytes.functional as functional

    linear, found = _split(weights)
    for name, value in linear.items():
        codes, scale, _ = functional.int8_vectorwise_quant(torch.from_numpy(value).to(torch.float16))
        module = name.removesuffix(".weight")
        found |= {
            name: codes,
            f"{module}.SCB": scale,
            f"{module}.weight_format": torch.tensor(0, dtype=torch.uint8),
        }
    return found, None, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}


def quanto(weights, kind="qint8", dtype=torch.bfloat16):
    from optimum import quanto as library

    linear, found = _split(weights, dtype)
    model = _modules(linear, dtype)
    library.quantize(model, weights=getattr(library, kind))
    library.freeze(model)
    found |= {k.replace("/", "."): v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}
    return found, None, {"quantization_config": {"quant_method": "quanto"}}


def torchao(weights, config=None, dtype=torch.bfloat16):
    import torchao.quantization as ao
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    linear, found = _split(weights, dtype)
    model = _modules(linear, dtype)
    ao.quantize_(model, config or ao.Int8WeightOnlyConfig(version=2))
    state = {k.replace("/", "."): v for k, v in model.state_dict().items()} | found
    tensors, metadata = flatten_tensor_state_dict(state)
    return tensors, metadata, {"quantization_config": {"quant_method": "torchao"}}


def torchao_float8(weights, dtype=torch.bfloat16):
    import torchao.quantization as ao

    return torchao(weights, ao.Float8WeightOnlyConfig(), dtype)


def torchao_int4(weights, dtype=torch.bfloat16):
    import torchao.quantization as ao

    config = ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(32))
    return torchao(weights, config, dtype)


def compressed_tensors(weights, scheme="W4A16", dtype=torch.bfloat16):
    """As llm-compressor's QuantizationModifier does without calibration: min-max over the weights."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams

    linear, found = _split(weights, dtype)
    model = torch.nn.Sequential()
    model.add_module("layers", _modules(linear, dtype))
    config = QuantizationConfig(config_groups={scheme: ["Linear"]})
    apply_quantization_config(model, config)
    for module in model.layers.values():
        arguments = module.quantization_scheme.weights
        size = arguments.group_size or module.weight.shape[1]
        groups = module.weight.data.unflatten(1, (-1, size))
        whole = None
        if hasattr(module, "weight_global_scale"):
            whole = 448 * 6 / module.weight.data.abs().max().to(torch.float32)
            module.weight_global_scale.data.fill_(whole)
        if hasattr(module, "input_global_scale"):
            module.input_global_scale.data.fill_(1.0)
        scale, zero_point = calculate_qparams(groups.amin(-1), groups.amax(-1), arguments, whole)
        module.weight_scale.data.copy_(scale.view(module.weight_scale.shape))
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data.copy_(zero_point.view(module.weight_zero_point.shape))
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    state = {k.removeprefix("layers.").replace("/", "."): v for k, v in model.state_dict().items()}
    written = compressor.quantization_config.model_dump(mode="json")
    return state | found, None, {"quantization_config": written | {"quant_method": "compressed-tensors"}}


def mlx(weights, bits=4):
    import mlx.core as mx

    linear, found = _split(weights)
    for name, value in linear.items():
        parts = mx.quantize(mx.array(value).astype(mx.bfloat16), 64, bits)
        for last, part in zip(("weight", "scales", "biases"), parts, strict=True):
            module = name.removesuffix(".weight")
            exact = np.array(part.astype(mx.float32)) if last != "weight" else np.array(part)
            stored = torch.from_numpy(exact)
            found[f"{module}.{last}"] = stored if last == "weight" else stored.to(torch.bfloat16)
    return found, None, {"quantization": {"group_size": 64, "bits": bits}}


def gguf_file(weights, path, types=("Q4_K", "Q6_K")):
    """A GGUF file as llama-quantize writes one: v and every other down in the second type."""
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(1 + max(int(n.split(".")[2]) for n in weights if ".layers." in n))
    for name, value in weights.items():
        if ".layers." not in name:
            continue
        _, _, layer, rest = name.split(".", 3)
        own = f"blk.{layer}.{LLAMA_TO_GGUF[rest.removesuffix('.weight')]}.weight"
        if value.ndim == 1:
            writer.add_tensor(own, value)
            continue
        wide = "attn_v" in own or ("ffn_down" in own and int(layer) % 3 == 0)
        kind = types[wide]
        blocks = ggml_oracle.quantize(kind, value)
        writer.add_tensor(own, blocks, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def installed(*names):
    return all(importlib.util.find_spec(name) is not None for name in names)
