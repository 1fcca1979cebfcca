"""Any golden file, corrupted at random, gives a QuantError or a result, within 1 GB and 10 s."""

import random
import shutil

import numpy as np
import onnx
import pytest
import torch
from checkpoint_cases import cases
from checkpoint_damage import damage, damage_json, damage_safetensors, exercise, limited

from tests.quantcore.checkpoints import test_onnx as test_checkpoints_onnx

MOST_BYTES, MOST_SECONDS = 2**30, 10.0
HEADER = 3000  # bytes; most golden files have shorter headers


def sources(folder):
    """Releases to corrupt: the golden ones, and some in the containers that those do not use."""
    found = {str(given): given.release for given in cases("")}
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.normal(size=(6, 8)).astype(np.float32),
        "b": np.arange(24, dtype=np.int8).reshape(4, 6),
    }
    np.savez(folder / "x.npz", **arrays)
    np.savez_compressed(folder / "y.npz", **arrays)
    np.save(folder / "x.npy", arrays["a"])
    torch.save({"a": torch.randn(6, 8), "b": {"c": torch.arange(9).reshape(3, 3).t()}}, folder / "x.pt")
    model = test_checkpoints_onnx.model("uint4", (6, 8), (6, 2), True, axis=1, block_size=4)
    onnx.save(model, folder / "x.onnx")
    return found | {name: folder / name for name in ("x.npz", "y.npz", "x.npy", "x.pt", "x.onnx")}


def damaged(content, name, generator):
    """A corrupted copy of a file's content; in many of them JSON still parses."""
    if name.endswith(".json") and generator.random() < 0.7:
        return damage_json(content, generator)
    if (
        name.endswith(".safetensors")
        and generator.random() < 0.5
        and content[8:9] == b"{"
        and content[7] == 0
    ):
        return damage_safetensors(content, generator)
    return damage(content, generator, min(len(content), HEADER))


def run(count, seed, folder):
    """``count`` times, corrupt one file of a release and call everything that the checkpoint offers."""
    generator = random.Random(seed)
    given = folder / "sources"
    given.mkdir()
    releases = sources(given)
    for number in range(count):
        name = generator.choice(list(releases))
        source, path = releases[name], folder / f"{number}"
        if source.is_dir():
            shutil.copytree(source, path)
        else:
            path.mkdir()
            shutil.copy(source, path)
        file = generator.choice(sorted(path.iterdir()))
        file.write_bytes(damaged(file.read_bytes(), file.name, generator))
        with limited(MOST_BYTES, MOST_SECONDS, f"case {number} of seed {seed} ({name}, {file.name})"):
            sentences = exercise(path if source.is_dir() else path / source.name, limit=4)
        long = [said for said in sentences if "\n" in said or len(said) > 700]
        assert not long, (number, seed, name, long)
        shutil.rmtree(path)


def test_damaged_releases_get_an_answer(tmp_path):
    run(12, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 12))
def test_many_damaged_releases_get_an_answer(seed, tmp_path):
    run(1000, seed, tmp_path)
