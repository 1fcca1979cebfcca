"""Every golden checkpoint, whatever its format, equals the library bit for bit and works throughout quantcore."""

import numpy as np
import pytest
import torch
from checkpoint_cases import case, differences, misplaced, quantized_names, sound
from grid import for_each
from parts import some

import quantcore as qc
from quantcore.checkpoints import open_checkpoint
from quantcore.granularity import PER_TENSOR, PerBlock, PerChannel, PerFlatGroup, PerGroup


@for_each("given", sound(), ids=str)
def test_equals_the_library(given):
    """Values, codes, scales, zero points, stored pieces, separately read rows, and the re-encoded bytes."""
    checkpoint = open_checkpoint(given.release)
    assert differences(given, checkpoint) == []
    assert checkpoint.problems == ()
    assert (
        checkpoint.format == given.record["format"].removesuffix("-split") or given.record["format"] == "fp8"
    )


@for_each("given", some(sound(), 14), ids=str)
def test_places(given, tmp_path):
    """Flipping a bit at an element's place changes its code by that bit, and no other code."""
    for name in quantized_names(given)[:1]:
        rows, columns = open_checkpoint(given.release).tensors[name].shape[-2:]
        lead = (0,) * (len(open_checkpoint(given.release).tensors[name].shape) - 2)
        for index in [(rows - 1, columns - 1), (rows // 2, 21)]:
            assert misplaced(given, name, (*lead, *index), tmp_path) == []


@for_each("given", some([*sound()[1:], sound()[0]], 23), ids=str)
def test_results(given):
    """Reports, traces and maps work on a checkpoint's tensor, and traces end in the value that is read."""
    for name in quantized_names(given)[:2]:
        tensor = open_checkpoint(given.release).tensors[name]
        result, values, dtype = tensor.quantized(), tensor.read(), getattr(torch, tensor.dtype)
        assert qc.report(result).sqnr_db == np.inf
        assert torch.equal(result.dequantized.to(dtype).float(), values)
        for index in np.random.default_rng(1).integers(0, tensor.shape, (5, len(tensor.shape))).tolist():
            trace = qc.trace(result, index)
            assert torch.tensor(trace.dequantized).to(dtype).float() == values[tuple(index)]
            assert trace.code == tensor.codes()[tuple(index)]
            assert all(step.formula or step.value for step in trace.steps())
        if len(tensor.shape) == 2:
            cells = qc.views.map_data(result, qc.views.View(rows=(1, 4), columns=(8, 24)))
            assert np.array_equal(cells.map("dequantized"), result.dequantized.numpy()[1:4, 8:24])
        assert f": {name})" in str(result.scheme)
        bits = qc.bits_per_element(result.scheme, tensor.shape)
        assert bits == 8 * tensor.num_bytes / values.numel()
        assert qc.checkpoints.encode(result) == qc.checkpoints.encode(tensor)


def test_results_against_an_original():
    """Given the original weight, errors are against it, and traces say where rounding would give another code."""
    given = case("gptq_v2_4bit_g128_sym")
    name = quantized_names(given)[0]
    tensor = open_checkpoint(given.release).tensors[name]
    original = tensor.read() + 0.6 * tensor.scale().repeat_interleave(128, 1)
    result = tensor.quantized(original)
    assert torch.equal(result.error, original - tensor.read())
    steps = {step.name: step for step in qc.trace(result, (0, 0)).steps()}
    assert "as stored; rounding would give" in steps["code q (stored)"].formula
    assert steps["scale s"].formula.startswith("read from model.safetensors")
    with pytest.raises(qc.QuantError, match="shape"):
        tensor.quantized(original[:, :5])


@for_each("given", sound(), ids=str)
def test_the_storage_in_words(given):
    """Bits, granularity and symmetry as the codes have them; names of ggml's types stand for theirs."""
    for tensor in open_checkpoint(given.release).tensors.values():
        layout = tensor.layout
        words = tensor.storage.split()
        if not tensor.is_quantized or words[0] == "gguf":
            continue
        axis_0 = "axis 0" in tensor.storage  # HQQ's groups of axis 0 have no granularity
        match layout.granularity:
            case PerGroup(size=size):
                wanted = {f"per_group({size})"}
            case PerFlatGroup(size=size):
                wanted = {f"per_flat_group({size})"}
            case PerChannel(axis=0):
                wanted = {"per_channel", "per_channel(0)"}
            case PerBlock(shape=shape):
                wanted = {"per_flat_group(64)" if axis_0 else f"per_block({list(shape)})".replace(" ", "")}
            case granularity:
                assert granularity == PER_TENSOR
                wanted = {"per_tensor"}
        assert len(wanted & set(words)) == 1, tensor.storage
        for word in {"symmetric", "asymmetric"} & set(words):
            assert layout.symmetric is (word == "symmetric"), tensor.storage
        assert all(word == f"int{layout.element.bits}" for word in words if word.startswith("int"))
