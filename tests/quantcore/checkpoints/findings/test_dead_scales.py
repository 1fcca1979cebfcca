"""Scales of 0 over codes that differ: counted as a loop over blocks does, and wrong only where something is lost."""

import numpy as np
import torch
from grid import for_each
from random_releases import FORMATS
from releases import release

W = "model.layers.0.mlp.up_proj"
SCALES = {
    "fp8": "weight_scale",
    "fp8_blocks": "weight_scale_inv",
    "nvfp4": "weight_scale",
    "gptq_desc_act": "scales",
}


def stored(form, values):
    make, quantization = FORMATS[form]
    config = {"model_type": "llama", "quantization_config": quantization}
    return {
        k: torch.from_numpy(np.array(v)) if isinstance(v, np.ndarray) else v
        for k, v in make(W, values).items()
    }, config


def weight(seed, shape=(64, 64)):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def found(folder, tensors, config, against=None):
    original = (
        None
        if against is None
        else release(folder / "o", {f"{W}.weight": torch.from_numpy(against)}, {"model_type": "llama"})
    )
    errors = [f for f in release(folder / "q", tensors, config).findings(original) if f.kind == "scale_zero"]
    return [(f.severity, f.facts["dead"], f.facts["at"]) for f in errors]


@for_each("form", SCALES)
def test_runs_are_counted_as_by_a_loop(form, tmp_path):
    tensors, config = stored(form, weight(1))
    sound = release(tmp_path / "sound", tensors, config).tensors[f"{W}.weight"]
    assert found(tmp_path / "as it is", tensors, config) == []
    scales = tensors[f"{W}.{SCALES[form]}"]
    flat = scales.view(torch.uint8) if scales.element_size() == 1 else scales
    flat.view(-1)[3::5] = 0
    layout = release(tmp_path / "broken", tensors, config).tensors[f"{W}.weight"].layout
    size, order = layout.blocks.block[-1], torch.arange(64)
    if layout.group_index() is not None:
        order = layout.group_index().argsort(stable=True)
    lost = (layout.values() == 0) & (sound.read() != 0)  # values that were there
    runs = lost[:, order].reshape(64, -1, size).any(-1).nonzero().tolist()
    row, run = runs[0]
    assert found(tmp_path / "again", tensors, config) == [("error", len(runs), (row, int(order[run * size])))]


def test_what_never_mattered_is_a_note(tmp_path):
    """Where the original is next to 0, and where few scales underflow."""
    x = weight(2)
    tensors, config = stored("nvfp4", x)
    tensors[f"{W}.weight_scale"].view(torch.uint8)[5, 1] = 0
    assert found(tmp_path / "alone", tensors, config) == [("note", 1, (5, 16))]
    assert found(tmp_path / "lost", tensors, config, x) == [("error", 1, (5, 16))]
    x[5, 16:32] *= 1e-3
    assert found(tmp_path / "tiny", tensors, config, x) == [("note", 1, (5, 16))]


def test_blocks_of_zeros_are_sound(tmp_path):
    x = weight(4)
    x[8, 16:48] = 0
    tensors, config = stored("nvfp4", x)
    tensors[f"{W}.weight_scale"].view(torch.uint8)[8, 1:3] = 0
    assert found(tmp_path, tensors, config, x) == []
