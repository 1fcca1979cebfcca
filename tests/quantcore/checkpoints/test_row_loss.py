"""What a row lost and why: each number of the sentence against plain NumPy on the row."""

import re

import numpy as np
import pytest
import torch
from releases import compressed, release
from safetensors.torch import load_file

from quantcore.checkpoints import EXAMPLES, open_checkpoint, row_loss

DENSE = "encoder.layer.0.output.dense.weight"


def worst(original, tensor):
    """The loss of the row with the largest squared error, and the row before and after."""
    x, values = original.read(), tensor.read()
    error = (x - values).double()
    row = int(error.square().sum(1).argmax())
    window = tensor.window((row, row + 1)).against(x[row : row + 1])
    found = row_loss(window, float(x.double().square().sum()), float(error.square().sum()))
    return found, x[row].double().numpy(), values[row].double().numpy(), error.numpy()


def test_the_row_that_gptq_spoiled():
    original, tensor = (open_checkpoint(EXAMPLES[name]).tensors[DENSE] for name in ("minilm", "minilm-gptq"))
    found, x, values, error = worst(original, tensor)
    stored = load_file(EXAMPLES["minilm-gptq"] / "model.safetensors")
    scales = stored[DENSE.replace("weight", "scales")].double().numpy()[:, found.row]  # groups of 128 columns
    share = (error[found.row] ** 2).sum() / (error**2).sum()
    assert found.share == pytest.approx(share)
    assert found.sqnr_db == pytest.approx(10 * np.log10((x**2).sum() / ((x - values) ** 2).sum()))
    group = int(scales.argmax())
    part = slice(128 * group, 128 * group + 128)
    peak = found.peak
    assert (peak.columns, peak.scale) == ((part.start, part.stop - 1), scales[group])
    assert peak.times == pytest.approx(scales[group] / sorted(scales)[5])  # the lower of the two in the middle
    assert (peak.column, peak.value) == (part.start + abs(x[part]).argmax(), x[part][abs(x[part]).argmax()])
    assert peak.zeroed == ((values[part] == 0) & (x[part] != 0)).sum() == 127
    step = scales.repeat(128)
    nearest = np.clip(np.rint(x / step), -8, 7) * step
    moved = abs(x - values) > abs(x - nearest) + 1e-3 * step
    assert found.moved == moved.sum()
    assert f"{found.moved:,} of 1,536 codes are not the nearest" in found.sentence
    assert "127 of their 128 elements become 0" in found.sentence


def write(folder, name, codes, scale, values):
    """A release of one int8 weight with a scale per row by compressed-tensors, and its original."""
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    other = compressed(folder / name, {"l.weight": codes, "l.weight_scale": scale}, "int-quantized", **weights)
    return [of.tensors["l.weight"] for of in (release(folder / f"{name} before", {"l.weight": values}), other)]


def test_clipping_is_told_and_rounding_is_not(tmp_path):
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    x[2] *= 40
    scale = torch.full((4, 1), 0.125)
    codes = torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8)
    found, row, _, _ = worst(*write(tmp_path, "clipped", codes, scale, x))
    beyond = ((row / 0.125).round() > 127) | ((row / 0.125).round() < -128)
    assert (found.row, found.clipped, found.moved, found.peak) == (2, beyond.sum(), 0, None)
    assert re.search(rf"{found.clipped} values? (is|are) clipped", found.sentence)
    assert "nearest" not in found.sentence


def test_a_row_that_is_only_larger_is_not_accused(tmp_path):
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(1))
    x[1] *= 30
    scale = x.abs().amax(1, keepdim=True) / 127
    codes = torch.round(x / scale).to(torch.int8)
    found, *_ = worst(*write(tmp_path, "larger", codes, scale, x))
    assert found.row == 1
    assert (found.clipped, found.moved, found.peak) == (0, 0, None)
