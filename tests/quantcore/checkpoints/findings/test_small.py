"""Small weights that are checked together: the same findings and the same bits as of each alone."""

import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch
from grid import for_each

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings import small, steps

EACH = {
    "scalars": [torch.tensor([v]) for v in (0.0, 1.5, torch.nan)],
    "pairs": [torch.tensor([a, b]) for a, b in ((0.0, 0.0), (0.0, 3.0), (-2.0, 2.0), (torch.inf, 1.0))],
    "ties": [
        torch.randint(-2, 3, (4, 4), generator=torch.Generator().manual_seed(i)).float() for i in range(9)
    ],
    "random": [
        torch.randn(n, generator=torch.Generator().manual_seed(i)) for i in range(9) for n in (5, 1100)
    ],
    "conv": [torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(i)) for i in range(5)],
    "zeros": [torch.zeros(n, 36) for n in (3, 36)],
}


def _tensors():
    found = {f"{name}.{i}.weight": one for name, all_ in EACH.items() for i, one in enumerate(all_)}
    for i, (rows, columns) in enumerate([(40, 40), (33, 3), (3, 33), (33, 64), (64, 64)]):
        found[f"wide.{i}.weight"] = torch.randn(rows, columns)
    found["wide.0.weight"][3] = 0.5
    found["wide.1.weight"][:, 1] = -1.0
    found["wide.2.weight"][2] = 0.0
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2):
        name = str(dtype).removeprefix("torch.")
        found |= {f"{name}.{i}.weight": (300 * torch.randn(4, 4)).to(dtype) for i in range(6)}
    found["other.0.weight"] = torch.randn(4, 4).to(torch.float16).view(torch.bfloat16) * 2.0**-40
    found["other.1.weight"] = (torch.randn(8, 8) * 0.02).to(torch.float16).view(torch.bfloat16)
    found["whole.0.weight"] = torch.arange(16).reshape(4, 4)
    found["empty.0.weight"], found["number.0.weight"] = torch.zeros(0, 4), torch.tensor(2.0)
    return found


def _checked(path):
    return {
        s.tensor: (s.summary, s.findings) for s in steps(open_checkpoint(path)) if s.summary or s.findings
    }


@for_each("kind", ["safetensors", pytest.param("pt", marks=pytest.mark.slow), "npz"])
def test_small_weights_together_give_what_each_gives_alone(tmp_path, monkeypatch, kind):
    path, tensors = tmp_path / f"m.{kind}", _tensors()
    if kind == "npz":
        np.savez_compressed(
            path, **{n: t.numpy() for n, t in tensors.items() if t.dtype in (torch.float32, torch.float16)}
        )
    else:
        (safetensors.torch.save_file if kind == "safetensors" else torch.save)(tensors, path)
    monkeypatch.setattr(small, "_TOGETHER", 20)
    monkeypatch.setattr(small, "_ELEMENTS", 40)
    together = _checked(path)
    monkeypatch.setattr(small.SmallWeights, "take", lambda self, tensor: None)
    alone = _checked(path)
    assert together == alone
    assert len(alone) > 40
    found = {finding.kind for _, findings in alone.values() for finding in findings}
    assert found >= (
        {"value_nonfinite"} if kind == "npz" else {"value_nonfinite", "unscaled", "bits_reinterpreted"}
    )


@for_each("kind", ["safetensors", "pt", "npz"])
def test_small_neighbours_are_read_together(tmp_path, kind):
    """What a file of many small weights costs is not a read for each."""
    path, tensors = tmp_path / f"m.{kind}", {f"layers.{i}.weight": torch.randn(4, 4) for i in range(200)}
    if kind == "npz":
        np.savez(path, **{n: t.numpy() for n, t in tensors.items()})
    else:
        (safetensors.torch.save_file if kind == "safetensors" else torch.save)(tensors, path)
    checkpoint = open_checkpoint(path)
    before = checkpoint.counter.reads
    assert checkpoint.findings() == []
    assert checkpoint.counter.reads - before <= 2


def test_a_small_weight_that_cant_be_read_is_named_and_the_others_are_checked(tmp_path):
    path = tmp_path / "m.npz"
    values = torch.randn(64, 64).numpy()
    np.savez_compressed(path, **{f"layers.{i}.weight": values for i in range(5)})
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("layers.3.weight.npy")
    data = bytearray(path.read_bytes())
    data[at.header_offset + 30 + len(at.filename) + at.compress_size - 3] ^= 0xFF
    path.write_bytes(data)
    checked = {s.tensor: s for s in steps(open_checkpoint(path)) if s.tensor}
    assert [f.kind for f in checked["layers.3.weight"].findings] == ["unreadable_tensor"]
    assert [name for name, step in checked.items() if step.summary] == [
        f"layers.{i}.weight" for i in (0, 1, 2, 4)
    ]
