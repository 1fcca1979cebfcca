"""The shipped example checkpoints, checked against the libraries that wrote them and against the original weights."""

import ggml_oracle
import gguf
import numpy as np
import pytest
import torch
from grid import for_each
from parts import some
from safetensors.torch import load_file

import quantcore as qc
from quantcore.checkpoints import EXAMPLES, ORIGINALS, open_checkpoint

QUERY, DENSE = "encoder.layer.0.attention.self.query.weight", "encoder.layer.0.output.dense.weight"
IN_GGUF = {QUERY: "blk.0.attn_q.weight", DENSE: "blk.0.ffn_down.weight"}


def size(path):
    return sum(f.stat().st_size for f in (path.rglob("*") if path.is_dir() else [path]) if f.is_file())


def test_the_quantized_ones_are_small():
    assert sum(size(EXAMPLES[name]) for name in ORIGINALS) < 2e6
    assert size(EXAMPLES["chgnet"]) + size(EXAMPLES["chgnet-w4a16"]) < 6e6


@for_each("name", some(EXAMPLES, 3))
def test_nothing_is_wrong_with_them(name):
    checkpoint = open_checkpoint(EXAMPLES[name])
    assert not checkpoint.problems
    assert {finding.severity for finding in checkpoint.findings()} <= {"note"}


@for_each("tensor", [QUERY, DENSE])
def test_q4_k_m_is_what_ggml_writes(tensor):
    original = load_file(EXAMPLES["minilm"] / "model.safetensors")[tensor].float().numpy()
    held = open_checkpoint(EXAMPLES["minilm-q4_k_m"]).tensors[IN_GGUF[tensor]]
    kind = held.storage.split()[1]
    assert kind == {QUERY: "Q5_0", DENSE: "Q4_K"}[tensor]
    packed = ggml_oracle.quantize(kind, original)
    values = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType[kind])
    assert np.array_equal(held.read().numpy(), values)


@pytest.mark.slow  # it imports transformers
@pytest.mark.parametrize("tensor", [QUERY, DENSE])
def test_nvfp4_is_what_compressed_tensors_reads(tensor):
    # imported here because it imports transformers, which would cost every worker seconds
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    checkpoint = open_checkpoint(EXAMPLES["minilm-nvfp4"])
    group = checkpoint.config["quantization_config"]["config_groups"]["group_0"]
    scheme = QuantizationScheme.model_validate(group)
    layer = tensor.removesuffix("weight")
    stored = load_file(EXAMPLES["minilm-nvfp4"] / "model.safetensors")
    state = {name.removeprefix(layer): t for name, t in stored.items() if name.startswith(layer)}
    compressor = BaseCompressor.get_value_from_registry("nvfp4-pack-quantized")
    theirs = compressor.decompress(state, scheme)["weight"]
    assert torch.equal(checkpoint.tensors[tensor].read(), theirs.float())


@pytest.mark.slow  # it imports transformers
def test_w4a16_is_what_compressed_tensors_reads():
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    checkpoint = open_checkpoint(EXAMPLES["chgnet-w4a16"])
    scheme = QuantizationScheme.model_validate(
        checkpoint.config["quantization_config"]["config_groups"]["group_0"]
    )
    compressor = BaseCompressor.get_value_from_registry("pack-quantized")
    stored = load_file(EXAMPLES["chgnet-w4a16"] / "model.safetensors")
    packed = [name for name, tensor in checkpoint.tensors.items() if tensor.is_quantized]
    assert len(packed) == 44
    for name in packed:
        state = {
            part.removeprefix(name.removesuffix("weight")): t
            for part, t in stored.items()
            if part.startswith(f"{name}_")
        }
        assert torch.equal(checkpoint.tensors[name].read(), compressor.decompress(state, scheme)["weight"]), (
            name
        )


def test_the_whole_model_is_what_its_release_holds():
    """Each weight has its partner, and what was not quantized is equal to the bit."""
    original, quantized = (open_checkpoint(EXAMPLES[n]).tensors for n in ("chgnet", "chgnet-w4a16"))
    assert original.keys() == quantized.keys()
    for name, tensor in quantized.items():
        if tensor.is_quantized:
            assert qc.report(tensor.quantized(original[name].read())).sqnr_db > 17
        else:
            assert torch.equal(tensor.read(), original[name].read())


@for_each("name", [name for name, was in ORIGINALS.items() if was == "minilm"])
def test_they_are_the_same_layers(name):
    """SQNR above 14 dB; other weights, or the same in another order, would have about -3 dB."""
    original, quantized = (open_checkpoint(EXAMPLES[n]).tensors for n in ("minilm", name))
    for tensor in (QUERY, DENSE):
        held = quantized[IN_GGUF[tensor] if "q4_k" in name else tensor]
        assert qc.report(held.quantized(original[tensor].read())).sqnr_db > 14
