"""Write the examples chgnet and chgnet-w4a16: a whole model, plain and with its linear layers quantized.

Needs chgnet 0.4.2 (its weights; installed with --no-deps) and compressed-tensors 0.20.0:
python tests/generators/make_whole_model_example.py
"""

import importlib.resources
import json

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

from quantcore.checkpoints.examples import DATA

RELEASE = "pretrained/0.3.0/chgnet_0.3.0_e29f68s314m37.pth.tar"
GROUP = 64
FORMAT = "pack-quantized"


def original():
    """The weights, without the state of the optimizer."""
    file = importlib.resources.files("chgnet") / RELEASE
    held = torch.load(str(file), map_location="cpu", weights_only=True)
    return held["model"]["state_dict"]


def is_quantized(name, tensor):
    """Whether it is the weight of a linear layer whose rows divide into groups; the embedding is not one."""
    return tensor.ndim == 2 and tensor.shape[1] % GROUP == 0 and len(tensor) > 1 and "embedding" not in name


def scheme():
    weights = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=GROUP)
    return QuantizationScheme(targets=["Linear"], weights=weights)


def quantized(state):
    """The model as compressed-tensors stores W4A16: int4, symmetric, one scale per group."""
    compressor, args = BaseCompressor.get_value_from_registry(FORMAT), scheme()
    written = {}
    for name, tensor in state.items():
        if not is_quantized(name, tensor):
            written[name] = tensor
            continue
        groups = tensor.reshape(len(tensor), -1, GROUP)
        scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), args.weights)
        parts = {"weight": tensor, "weight_scale": scale, "weight_zero_point": zero}
        for part, packed in compressor.compress(parts, args).items():
            if part != "weight_zero_point":  # symmetric: all 0, which a release does not store
                written[f"{name.removesuffix('weight')}{part}"] = packed
    return written


def save(folder, state, config):
    """Write a release as it would be on a hub."""
    (DATA / folder).mkdir(parents=True, exist_ok=True)
    held = {name: tensor.contiguous() for name, tensor in state.items()}
    save_file(held, DATA / folder / "model.safetensors", {"format": "pt"})
    text = json.dumps({"model_type": "chgnet", "torch_dtype": "float32"} | config, indent=2) + "\n"
    (DATA / folder / "config.json").write_text(text, encoding="utf-8")


@torch.no_grad()
def main():
    state = original()
    save("chgnet", state, {})
    group = {
        "targets": ["Linear"],
        "weights": json.loads(scheme().weights.model_dump_json()),
        "format": FORMAT,
    }
    linear = [
        name for name, tensor in state.items() if tensor.ndim == 2 and "embedding.embedding" not in name
    ]
    left = [name.removesuffix(".weight") for name in linear if not is_quantized(name, state[name])]
    about = {
        "quant_method": "compressed-tensors",
        "version": "0.20.0",
        "format": FORMAT,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": left,
    }
    save("chgnet-w4a16", quantized(state), {"quantization_config": about})


if __name__ == "__main__":
    main()
