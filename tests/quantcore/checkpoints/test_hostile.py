"""Malicious files: nothing is run, nothing outside the folder is read, and little time and memory are used.

How much is read and tried: descriptions that are too long, and rows that are too many to be matched.
"""

import json
import os
import struct

import pytest
import torch
from checkpoint_cases import case
from checkpoint_damage import answer, limited
from gguf_bytes import gguf
from grid import for_each
from safetensors import safe_open
from safetensors.torch import save_file

from quantcore.__main__ import main
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.sources import MemorySource
from quantcore.checkpoints.findings.against import orders
from quantcore.checkpoints.layouts import bitsandbytes, torchao
from quantcore.errors import QuantError

MOST_BYTES, MOST_SECONDS = 2**30, 10.0
RECORD = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def sparse(path, start, size):
    """A sparse file of ``size`` bytes that begins with ``start``."""
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(size)
    return path


def long_header(folder):
    """A valid header of 99 MB: its JSON is followed by spaces, which the format allows."""
    sparse(folder / "model.safetensors", struct.pack("<Q", 99_000_000), 99_000_000 + 12)
    with open(folder / "model.safetensors", "r+b") as file:
        file.seek(8)
        file.write(json.dumps({"w": RECORD}).encode().ljust(99_000_000))


def empty_header(folder):
    sparse(folder / "model.safetensors", struct.pack("<Q", 100_000_000) + b"{", 2**31)


def billion_tensors(folder):
    sparse(folder / "model.gguf", gguf([], b"", tensors=10**9), 2**36)


def index_of_itself(folder):
    name = "model.safetensors.index.json"
    (folder / name).write_text(json.dumps({"weight_map": {"w": name}}))


def index_of_a_folder(folder):
    (folder / "a.safetensors").mkdir()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "a.safetensors"}}))


def index_of_a_device(folder):
    (folder / "a.safetensors").symlink_to("/dev/zero")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "a.safetensors"}}))


def long_index(folder):
    sparse(folder / "model.safetensors.index.json", b'{"weight_map": {', 2**36)


def nested_config(folder):
    save_file({"w": torch.ones(1)}, folder / "model.safetensors")
    (folder / "config.json").write_text("[" * 10**6)


def long_config(folder):
    save_file({"w": torch.ones(1)}, folder / "model.safetensors")
    sparse(folder / "config.json", b"{", 2**36)


def long_numbers(folder):
    """Integers of a million digits, which Python takes minutes to parse if nothing stops it."""
    save_file({"m.qweight": torch.zeros(8, 8, dtype=torch.int32)}, folder / "model.safetensors")
    config = '{"quantization_config": {"quant_method": "gptq", "bits": %s}}' % ("9" * 10**6)
    (folder / "config.json").write_text(config)


MADE = (
    long_header, empty_header, billion_tensors, index_of_itself, index_of_a_folder, index_of_a_device,
    long_index, nested_config, long_config, long_numbers,
)  # fmt: skip


@for_each(
    "make",
    [pytest.param(m, marks=[pytest.mark.slow] if m is long_header else [], id=m.__name__) for m in MADE],
)
def test_one_sentence_in_bounded_time_and_memory(make, tmp_path, capsys):
    make(tmp_path)
    with limited(MOST_BYTES, MOST_SECONDS, make.__name__):
        code = main(["check", str(tmp_path)])
    out = capsys.readouterr().out
    assert code == 1, out
    assert out.startswith("error: ")
    assert max(map(len, out.splitlines())) < 600


SECRET = "not for this reader"


@for_each("name", ["config.json", "model.safetensors.index.json", "model.safetensors"])
def test_no_link_leads_out_of_the_folder(name, tmp_path):
    """A file that is a link to one outside the folder is not opened, and its content is not revealed."""
    outside, folder = tmp_path / "outside", tmp_path / "release"
    folder.mkdir()
    outside.write_text(
        json.dumps({"quantization_config": {"quant_method": SECRET}, "weight_map": {SECRET: "a"}})
    )
    if name != "model.safetensors":
        save_file({"w": torch.ones(1)}, folder / "model.safetensors")
    (folder / name).symlink_to(outside)
    with pytest.raises(QuantError, match="outside the folder") as caught:
        open_checkpoint(folder)
    assert SECRET not in str(caught.value)


def test_a_folder_that_is_a_link_is_the_folder(tmp_path):
    (tmp_path / "release").mkdir()
    save_file({"w": torch.ones(1)}, tmp_path / "release" / "model.safetensors")
    (tmp_path / "link").symlink_to(tmp_path / "release")
    assert open_checkpoint(tmp_path / "link").tensors["w"].read().tolist() == [1.0]


@for_each("field", ["compute_dtype", "unpack_view_dtype", "packing"])
def test_texts_that_hqq_evaluates(field, tmp_path):
    """HQQ's own loader calls eval on these texts; here they are looked up, and an unknown one is an error."""
    given, target = case("hqq_4bit_axis1").release, tmp_path / "run"
    text = f"__import__('pathlib').Path({str(target)!r}).touch()"
    with safe_open(given / "model.safetensors", "pt") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    names = [name for name in tensors if name.endswith(f".{field}")]
    tensors |= {name: torch.tensor(list(text.encode()), dtype=torch.uint8) for name in names}
    save_file(tensors, tmp_path / "model.safetensors", metadata)
    (tmp_path / "config.json").write_text((given / "config.json").read_text())
    checkpoint = open_checkpoint(tmp_path)
    sentences: list[str] = []
    for tensor in checkpoint.tensors.values():
        answer(tensor.read, sentences)
    assert names
    assert all("compute_dtype" in said or "packing" in said for said in sentences), sentences
    assert checkpoint.findings() is not None
    assert not target.exists()


def test_nothing_is_written(tmp_path):
    """A check leaves the folder unchanged and needs no write permission."""
    save_file({"w": torch.ones(4)}, tmp_path / "model.safetensors")
    before = [(entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(tmp_path)]
    os.chmod(tmp_path, 0o555)
    try:
        assert main(["check", str(tmp_path)]) == 0
    finally:
        os.chmod(tmp_path, 0o755)
    assert [(entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(tmp_path)] == before


@for_each(("length", "too_long"), [(65_536, False), (65_537, True)])
@for_each("library", ["bitsandbytes", "torchao"])
def test_descriptions_of_more_than_64_kib_are_not_read(library, length, too_long):
    text = "{}".ljust(length)
    piece = StoredTensor("w.quant_state", "U8", (length,), MemorySource("w", text.encode()), 0, length)
    read = {
        "torchao": lambda: torchao.layout_of("w", {}, text),
        "bitsandbytes": lambda: bitsandbytes._read_state(piece),
    }
    with pytest.raises(QuantError) as refused:  # shorter ones for what they say
        read[library]()
    assert ("too long" in str(refused.value)) is too_long


@for_each(("shape", "matched"), [((1, 8), False), ((2, 8), True), ((300, 4), True), ((300, 3), False), ((16_385, 4), False)])
def test_rows_that_are_matched(shape, matched):
    """Two at least, of four columns, and no more than 16,384: each is compared with each."""
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = orders._matches(rows.flip(0), rows)
    assert (found is not None) is matched
    if matched:
        assert found.tolist() == list(range(len(rows)))[::-1]
