"""Golden checkpoints: small releases written by the real libraries, with their exact content.

In ``tests/data/golden_checkpoints/<case>``, ``checkpoint`` is the release, ``case.json`` describes it, and
``expected.npz`` has for each weight its values in the library's dtype, widened to float32, and where they
apply ``|float32``, ``|codes``, ``|scale``, ``|zero_point``, ``|min`` and stored pieces.
"""

import json
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import CHECKPOINTS
from releases import release
from safetensors import safe_open

from quantcore.checkpoints import Checkpoint, CheckpointTensor, Place, encode, open_checkpoint

FOLDER = CHECKPOINTS
PARAMETERS = ("codes", "scale", "zero_point", "min")
STORED = ("scale_code", "global_scale", "g_idx")


@dataclass(frozen=True)
class Case:
    """One golden checkpoint."""

    folder: Path

    @property
    def record(self) -> dict:
        return _record(self.folder)

    @property
    def release(self) -> Path:
        return self.folder / (self.record.get("path") or "checkpoint")

    @property
    def expected(self) -> dict[str, np.ndarray]:
        return _expected(self.folder)

    def __str__(self) -> str:
        return self.folder.name


@cache
def _record(folder: Path) -> dict:
    return json.loads((folder / "case.json").read_text())


@cache
def _expected(folder: Path) -> dict[str, np.ndarray]:
    """All of it unpacked once, for every test of a process that asks."""
    file = folder / "expected.npz"
    return dict(np.load(file)) if file.exists() else {}


def cases(*starts: str) -> list[Case]:
    """The cases whose names begin with one of ``starts``; gguf_quantizer has no checkpoint."""
    folders = [f for f in sorted(FOLDER.iterdir()) if f.name.startswith(starts)]
    return [Case(f) for f in folders if f.name != "gguf_quantizer"]


def sound() -> list[Case]:
    """Every golden checkpoint that must be read correctly; imatrix files hold no weights."""
    return [
        given
        for given in cases("")
        if given.record["expect"] == "ok" and given.record["tensors"] and given.record["format"] != "imatrix"
    ]


# Among them each kind of other reading is met
EVERY_READING = (
    "awq_gemm_g128", "bad_q5k_leak", "bitnet_offline", "ct_mxfp4", "ct_nvfp4", "deepseek_fp8",
    "gptq_v1_4bit_g32_asym_desc_act", "hqq_2bit",
)  # fmt: skip


def of_each_reading() -> list[Any]:
    """Parameters for a test of other readings: a checkpoint of each kind by default, the others are slow."""
    return [g if str(g) in EVERY_READING else pytest.param(g, marks=pytest.mark.slow) for g in sound()]


def case(name: str) -> Case:
    return Case(FOLDER / name)


def quantized_names(given: Case) -> list[str]:
    """The weights that have codes; for GGUF, only those whose parameters are known."""

    def has_codes(name: str, record: dict) -> bool:
        if "ggml_type" in record:
            return f"{name}|scale" in given.expected
        return record["storage"].partition(" ")[0] != "plain"

    return [name for name, record in given.record["tensors"].items() if has_codes(name, record)]


def differences(given: Case, checkpoint: Checkpoint | None = None) -> list[str]:
    """What differs from the golden content, in words; empty if all of it is bit for bit equal."""
    checkpoint = checkpoint or open_checkpoint(given.release)
    found = []
    for name, record in given.record["tensors"].items():
        tensor, expected = checkpoint.tensors[name], given.expected
        if tensor.shape != tuple(record["shape"]) or tensor.dtype != record.get("dtype", tensor.dtype):
            found.append(f"{name}: {tensor.shape} {tensor.dtype}")
        pairs = {"values": (tensor.read(), expected[name])}
        if f"{name}|float32" in expected:
            pairs["float32"] = (tensor.read(rounded=False), expected[f"{name}|float32"])
        pairs |= {
            role: (getattr(tensor, role)(), expected[f"{name}|{role}"])
            for role in PARAMETERS
            if f"{name}|{role}" in expected
        }
        pairs |= {
            role: (tensor.stored()[role], expected[f"{name}|{role}"])
            for role in STORED
            if f"{name}|{role}" in expected
        }
        for what, (got, wanted) in pairs.items():
            if got is None or tuple(got.shape) != wanted.shape or not _same(got.numpy(), wanted):
                found.append(f"{name}: {what} differ")
        found += [f"{name}: rows differ"] * (not _rows_agree(tensor, expected[name]))
        found += [f"{name}: {piece} is encoded otherwise" for piece in _encoded_otherwise(checkpoint, tensor)]
    return found


def _same(got: np.ndarray, wanted: np.ndarray) -> bool:
    return np.array_equal(got.astype(np.float64), wanted.astype(np.float64), equal_nan=True)


def _rows_agree(tensor: CheckpointTensor, expected: np.ndarray) -> bool:
    """Whether rows read on their own equal the same rows of the tensor."""
    n = tensor.shape[0]
    spans = [slice(n // 3, n // 2 + 1), slice(n - 1, n), slice(0, 1)]
    return all(_same(tensor.read(span).numpy(), expected[span]) for span in spans)


def _encoded_otherwise(checkpoint: Checkpoint, tensor: CheckpointTensor) -> list[str]:
    pieces = {piece.name: bytes(piece.bytes()) for piece in tensor.layout.pieces.values()}
    again = encode(tensor)
    return [name for name, data in again.items() if pieces[name] != data]


def changed(name, folder, change, config=None):
    """A golden release with some tensors changed; ``change``: name -> function, or None to drop the tensor.

    ``config``: entries of its quantization_config, or a function of it that returns another.
    """
    given = case(name).release
    shutil.copytree(given, folder, dirs_exist_ok=True)
    with safe_open(given / "model.safetensors", "pt") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    for key, value in change.items():
        tensors[key] = value(tensors[key]) if value is not None else None
    kept = {key: value for key, value in tensors.items() if value is not None}
    content = json.loads((given / "config.json").read_text())
    own = content.get("quantization_config", {})
    content["quantization_config"] = config(own) if callable(config) else own | (config or {})
    return release(folder, kept, content, metadata)


def flipped(given: Case, place: Place, bit: int, folder: Path) -> Checkpoint:
    """A copy of the checkpoint with one bit of ``place`` flipped."""
    source = given.release if given.release.is_dir() else given.release.parent
    shutil.copytree(source, folder, dirs_exist_ok=True)
    file = folder / place.file
    data = bytearray(file.read_bytes())
    byte, at = place.bits[bit]
    data[byte] ^= 1 << at
    file.write_bytes(data)
    return open_checkpoint(folder if given.release.is_dir() else folder / given.release.name)


def misplaced(given: Case, name: str, index: tuple[int, ...], folder: Path) -> list[str]:
    """What is wrong with an element's place: each of its bits, flipped in the file, changes only its code."""
    tensor = open_checkpoint(given.release).tensors[name]
    codes = tensor.codes().numpy()
    place = tensor.locate(index).code
    offset = getattr(tensor.layout.fields["codes"], "offset", 0)  # from the code to the number that is stored
    found = []
    for bit in range(len(place.bits)):
        other = flipped(given, place, bit, folder).tensors[name].codes().numpy()
        changed = [tuple(int(i) for i in at) for at in np.argwhere(codes != other)]
        step = ((int(codes[index]) + offset) ^ (int(other[index]) + offset)) & ((1 << len(place.bits)) - 1)
        if changed != [tuple(index)] or step != 1 << bit:
            found.append(f"bit {bit} of {index}: {changed[:4]} changed, by {step:b}")
    return found
