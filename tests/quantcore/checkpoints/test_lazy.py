"""Only what is needed is read: headers for a listing, and for some rows only their bytes."""

import gc
import itertools
import json
import os
import struct

import fsspec
import numpy as np
import pytest
import torch
from bounded import in_seconds
from checkpoint_cases import case, cases, sound
from grid import for_each
from parts import some
from releases import compressed
from safetensors.torch import save_file

from quantcore import QuantError
from quantcore.checkpoints import ByteCounter, listing, open_checkpoint
from quantcore.checkpoints import tensor as tensor_module
from quantcore.checkpoints.files import sources


def _header_bytes(folder):
    """The size of all configs and of each shard's header, including its 8-byte length."""
    total = 0
    for file in folder.iterdir():
        if file.suffix == ".safetensors":
            with file.open("rb") as data:
                total += 8 + struct.unpack("<Q", data.read(8))[0]
        elif file.name in ("config.json", "quantize_config.json", "model.safetensors.index.json"):
            total += file.stat().st_size
    return total


@for_each("given", [c for c in sound() if c.release.is_dir()], ids=str)
def test_a_listing_reads_headers_alone(given):
    checkpoint = open_checkpoint(given.release)
    assert [tensor.num_bytes for tensor in checkpoint.tensors.values()]
    assert checkpoint.counter.total <= _header_bytes(given.release)


@for_each("many", [300, pytest.param(2_000, marks=pytest.mark.slow)])
def test_few_objects_per_tensor_that_nobody_uses(many, tmp_path):
    """A collection of garbage visits each of them, and meanwhile the process stands still."""
    save_file({f"layers.{i}.w": torch.ones(2, 3) for i in range(many)}, tmp_path / "model.safetensors")
    gc.freeze()  # what there is already is neither visited nor counted
    before = len(gc.get_objects())
    checkpoint = open_checkpoint(tmp_path).as_matrices()
    listed = listing(checkpoint.tensors)
    gc.collect()
    assert (len(gc.get_objects()) - before) / many < 5  # the stored tensor, what is known of it, the weight and its entry
    assert {(entry.shape, entry.storage, entry.bits) for entry in listed} == {((2, 3), "plain float32", 32.0)}
    used = checkpoint.tensors["layers.7.w"]
    assert used.layout is used.layout
    assert used.read().tolist() == [[1.0] * 3] * 2


def test_shapes_that_headers_do_not_tell_take_16_bytes():
    """The stored shape of a per-channel packed weight is two integers, read on demand."""
    given = case("ct_int4_channel_odd")
    checkpoint = open_checkpoint(given.release)
    before = checkpoint.counter.total
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    assert shapes == {name: tuple(record["shape"]) for name, record in given.record["tensors"].items()}
    assert checkpoint.counter.total == before + 2 * 16


def _read_bytes(checkpoint, name, rows):
    tensor = checkpoint.tensors[name]
    _ = tensor.shape
    before = checkpoint.counter.total
    values = tensor.read(rows)
    return checkpoint.counter.total - before, values


def _packed(out, columns, folder):
    groups = columns // 128
    tensors = {
        "m.weight_packed": torch.arange(out * columns // 8, dtype=torch.int32).reshape(out, columns // 8),
        "m.weight_scale": torch.rand(out, groups).bfloat16(),
        "m.weight_shape": torch.tensor([out, columns]),
        "p.weight": torch.rand(out, columns).half(),
    }
    return compressed(folder, tensors, num_bits=4, type="int", symmetric=True, group_size=128, strategy="group")


def test_rows_read_their_bytes_alone(tmp_path):
    checkpoint = _packed(512, 1024, tmp_path)
    count, values = _read_bytes(checkpoint, "m.weight", slice(100, 104))
    assert count == 4 * (1024 // 2 + 8 * 2)
    assert torch.equal(values, checkpoint.tensors["m.weight"].read()[100:104])
    count, _ = _read_bytes(checkpoint, "p.weight", slice(7, 8))
    assert count == 2048


def test_rows_across_the_file(tmp_path):
    """GPTQ stores a row of the weight as a column: only its words are read, not the tensor."""
    out, columns = 8192, 256
    pieces = {
        "m.qweight": torch.arange(columns // 8 * out, dtype=torch.int32).reshape(columns // 8, out),
        "m.qzeros": torch.zeros(2, out // 8, dtype=torch.int32),
        "m.scales": torch.rand(2, out).half(),
        "m.g_idx": torch.arange(columns, dtype=torch.int32) // 128,
    }
    save_file(pieces, tmp_path / "model.safetensors")
    (tmp_path / "quantize_config.json").write_text('{"bits": 4, "group_size": 128, "sym": false}')
    checkpoint = open_checkpoint(tmp_path)
    count, values = _read_bytes(checkpoint, "m.weight", slice(4096, 4100))
    codes = columns // 8 * 4 * 4
    assert count < codes + 4 * columns + 16_000  # the group index, and parameters with gaps
    assert count < sum(piece.numel() * piece.element_size() for piece in pieces.values()) // 20
    assert torch.equal(values, checkpoint.tensors["m.weight"].read()[4096:4100])


@for_each("given", some([c for c in cases("ct_", "gptq_", "awq_") if c.record["expect"] == "ok"], 3), ids=str)
def test_reading_rows_of_every_sound_case_in_parts(given):
    """The parts of a tensor, read separately, make up the tensor."""
    for tensor in open_checkpoint(given.release).tensors.values():
        n = tensor.shape[0]
        cuts = sorted({0, n // 5, n // 2, n - 1, n})
        parts = [tensor.read(slice(a, b)) for a, b in itertools.pairwise(cuts)]
        assert torch.equal(torch.cat(parts), tensor.read())


@for_each("given", some(sound(), 29), ids=str)
def test_whole_tensors_in_pieces_are_the_same(given, monkeypatch):
    """Reading a weight in many chunks gives the same values as in one; normally a chunk has 2^20 elements."""
    names = [name for name, tensor in open_checkpoint(given.release).tensors.items() if len(tensor.shape) > 1]
    at_once = [open_checkpoint(given.release).tensors[name].read() for name in names]
    monkeypatch.setattr(tensor_module, "CHUNK", 700)
    tensors = open_checkpoint(given.release).tensors
    for name, values in zip(names, at_once, strict=True):
        assert torch.equal(tensors[name].read().nan_to_num(7e30), values.nan_to_num(7e30))


def test_rows_that_a_stored_tensor_does_not_have():
    checkpoint = open_checkpoint(case("ct_int4_sym_g128").release)
    piece = next(piece for piece in checkpoint.release.stored.values() if len(piece.shape) == 2)
    for rows in (slice(0, piece.shape[0] + 1), slice(-1, 2), slice(3, 2)):
        with pytest.raises(QuantError, match="no elements"):
            piece.bits((rows,))


def _headers_of_a_large_release(folder, layers=80, shards=30):
    """A GPTQ release of 70 billion parameters: real headers, and sparse files for the data."""
    size = {"q_proj": (8192, 8192), "k_proj": (8192, 1024), "v_proj": (8192, 1024), "o_proj": (8192, 8192)}
    size |= {"gate_proj": (8192, 28672), "up_proj": (8192, 28672), "down_proj": (28672, 8192)}
    tensors = {}
    for layer in range(layers):
        for name, (rows, columns) in size.items():
            module = f"model.layers.{layer}.{'self_attn' if name[0] in 'qkvo' else 'mlp'}.{name}"
            tensors[f"{module}.qweight"] = ("I32", [rows // 8, columns])
            tensors[f"{module}.qzeros"] = ("I32", [rows // 128, columns // 8])
            tensors[f"{module}.scales"] = ("F16", [rows // 128, columns])
            tensors[f"{module}.g_idx"] = ("I32", [rows])
    names, weight_map = list(tensors), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        header, end = {}, 0
        for name in names[shard::shards]:
            dtype, shape = tensors[name]
            begin, end = end, end + int(np.prod(shape)) * (4 if dtype == "I32" else 2)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
            weight_map[name] = file
        text = json.dumps(header).encode()
        with open(folder / file, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            out.truncate(8 + len(text) + end)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))


def test_a_large_release_is_listed_in_two_seconds(tmp_path):
    _headers_of_a_large_release(tmp_path)
    with in_seconds(10):
        checkpoint = open_checkpoint(tmp_path)
        elements = sum(int(np.prod(tensor.shape)) for tensor in checkpoint.tensors.values())
    assert elements > 65e9
    assert checkpoint.problems == ()
    assert checkpoint.counter.total <= _header_bytes(tmp_path)
    tensor = checkpoint.tensors["model.layers.79.mlp.down_proj.weight"]
    assert tensor.shape == (8192, 28672)
    assert tensor.read(slice(8000, 8001)).shape == (1, 28672)


@pytest.fixture
def remote():
    """Golden checkpoints in a file system that only fsspec can read."""
    files = fsspec.filesystem("memory")
    for name in ("ct_sharded", "gptq_v2_4bit_g128_sym"):
        for file in case(name).release.iterdir():
            files.pipe(f"/{name}/{file.name}", file.read_bytes())
    yield files
    files.rm("/ct_sharded", recursive=True)
    files.rm("/gptq_v2_4bit_g128_sym", recursive=True)


def test_urls(remote):
    """A release at a URL, be it a folder or a file, is read by byte ranges, just like a local one."""
    for name in ("ct_sharded", "gptq_v2_4bit_g128_sym"):
        here = open_checkpoint(case(name).release)
        there = open_checkpoint(f"memory://{name}")
        assert there.counter.total == here.counter.total
        for key, tensor in here.tensors.items():
            assert torch.equal(there.tensors[key].read(), tensor.read())
    alone = open_checkpoint("memory://gptq_v2_4bit_g128_sym/model.safetensors")
    assert alone.format == "gptq"
    assert alone.config


@pytest.mark.parametrize(
    "address", ["memory://missing", "nothing://x", "memory://ct_sharded/missing.safetensors"]
)
def test_urls_that_lead_nowhere(address, remote):
    with pytest.raises(QuantError, match=r"There is nothing at|can't be opened"):
        open_checkpoint(address)


def test_bytes_that_were_read_more_than_once_are_counted_once():
    """Compared with a set of all bytes read, for random ranges of two files."""
    random, counter, read = np.random.default_rng(0), ByteCounter(), set()
    for _ in range(2000):
        name, start, size = str(random.integers(2)), int(random.integers(5000)), int(random.integers(1, 60))
        counter.add(name, start, start + size)
        read |= {(name, byte) for byte in range(start, start + size)}
        assert counter.different == len(read)
    assert counter.reads == 2000


def test_ranges_that_were_read_are_told_apart_up_to_a_limit():
    counter = ByteCounter()
    for start in range(0, 15_000, 10):
        counter.add("a", start, start + 4)
    assert counter.total == 6_000
    assert counter.total < counter.different <= 15_000


@pytest.mark.parametrize("changed", [b"", b"\1" * 16], ids=["shorter", "as long"])
def test_a_file_that_changes_while_it_is_read_is_not_read(tmp_path, monkeypatch, changed):
    file = tmp_path / "x.bin"
    file.write_bytes(bytes(16))
    source = sources.LocalSource(str(file), file.name)
    assert bytes(source.read(0, 16)) == bytes(16)
    opened = sources._open_regular

    def open_and_change(path, name):
        found = opened(path, name)
        file.write_bytes(changed)
        os.utime(file, ns=(1, 1))  # clocks of file systems are coarse
        return found

    monkeypatch.setattr(sources, "_open_regular", open_and_change)
    with pytest.raises(QuantError, match=r"'x\.bin' has changed since it was opened; open"):
        source.read(0, 16)
