"""How codes are packed into words, compared with examples worked out by hand and the libraries' own packers."""

import json

import numpy as np
import pytest
import torch
from grid import for_each
from releases import compressed, release
from safetensors.torch import save_file

from quantcore import FLOATS
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.packing import dense, high_first, pack, padded, parts, permuted, planar, unpack

ORDERS = {
    **{f"dense {b} in {w}": dense(b, w) for b in range(1, 9) for w in (8, 32)},
    **{f"padded {b}": padded(b, 32) for b in range(1, 9)},
    **{f"planar {b}": planar(b) for b in range(2, 9)},
    "awq": permuted(4, 32, (0, 4, 1, 5, 2, 6, 3, 7)),
    "high first": high_first(4, 8),
    "parts": parts(padded(2, 8)),
    "hqq 3": parts(permuted(3, 32, tuple(range(9, -1, -1)))),
}


@for_each("name", ORDERS)
def test_pack_and_unpack(name):
    """Packing and unpacking return the codes along any axis and for any length; `place` gives each bit's position."""
    order, rng = ORDERS[name], np.random.default_rng(0)
    for shape, axis in (((3, 97), 1), ((97, 3), 0), ((2, 41, 3), 1), ((order.count,), 0), ((1, 1), 0)):
        codes = rng.integers(0, 1 << order.bits, shape).astype(np.uint8)
        words = pack(codes, order, axis)
        assert words.shape[axis] == order.words_of(shape[axis])
        assert np.array_equal(unpack(words, order, shape[axis], axis), codes)
    row = rng.integers(0, 1 << order.bits, 97).astype(np.uint8)
    words = pack(row, order)
    for index in (0, 10, 21, 96):
        bits = [int(words[word]) >> bit & 1 for word, bit in order.place(index, 97)]
        assert sum(bit << i for i, bit in enumerate(bits)) == row[index]


def test_orders_as_their_libraries_write_them():
    """Examples worked out by hand."""
    assert pack(np.arange(8, dtype=np.uint8), dense(4, 32)).tolist() == [0x76543210]
    assert pack(np.arange(8, dtype=np.uint8), ORDERS["awq"]).tolist() == [0x75316420]
    assert pack(np.array([1, 2], np.uint8), high_first(4, 8)).tolist() == [0x12]
    # 3 bits, 32 codes in three words: code 10 is in w0[30:32] and w1[0], code 21 in w1[31] and w2[0:2]
    codes = np.zeros(32, np.uint8)
    codes[10], codes[21] = 7, 7
    assert pack(codes, dense(3, 32)).tolist() == [3 << 30, 1 | 1 << 31, 3]
    # 5 bits in planes: four words of nibbles, then one of top bits
    codes = np.zeros(32, np.uint8)
    codes[9] = 0b10110
    assert pack(codes, planar(5)).tolist() == [0, 0b0110 << 4, 0, 0, 1 << 9]
    # HQQ's 3 bits: ten codes per word, from bit 27 down
    assert pack(np.array([7] + [0] * 9, np.uint8), ORDERS["hqq 3"]).tolist() == [7 << 27]


@pytest.mark.slow  # by default, a golden release of 3-bit words is read
@for_each("bits", range(1, 9))
def test_dense_as_compressed_tensors_packs(bits):
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32  # slow to import

    codes = torch.randint(-(1 << bits - 1), 1 << bits - 1, (5, 77), dtype=torch.int8)
    expected = pack_to_int32(codes, bits).numpy().view(np.uint32)
    assert np.array_equal(
        pack((codes.numpy().astype(int) + (1 << bits - 1)).astype(np.uint8), dense(bits, 32)), expected
    )


@pytest.mark.slow  # by default, codes are packed and unpacked
def test_fp6_as_compressed_tensors_packs():
    from compressed_tensors.compressors.mxfp6.helpers import pack_fp6_to_uint8

    codes = torch.arange(64, dtype=torch.uint8).reshape(2, 32)
    expected = pack_fp6_to_uint8(FLOATS["e2m3"].decode(codes))
    assert np.array_equal(pack(codes.numpy(), dense(6, 8)), expected.numpy())


def gptq(folder, bits, version, codes, zeros, order, **config):
    """Write a GPTQ release of one module, packed in ``order``; returns the scales."""
    columns = len(codes)
    stored = (zeros - (version == "gptq" and bits not in (5, 6, 7))) & ((1 << bits) - 1)
    pieces = {
        "qweight": pack(codes, order, 0),
        "qzeros": pack(stored.astype(np.uint8), order, 1),
        "scales": np.random.default_rng(1).uniform(0.01, 0.1, zeros.shape).astype(np.float16),
        "g_idx": np.arange(columns, dtype=np.int32) // (columns // len(zeros)),
    }
    tensors = {
        f"m.{k}": torch.from_numpy(v.view(np.int32) if v.dtype == np.uint32 else v) for k, v in pieces.items()
    }
    save_file(tensors, folder / "model.safetensors")
    settings = {"bits": bits, "group_size": columns // len(zeros), "checkpoint_format": version, **config}
    (folder / "quantize_config.json").write_text(json.dumps(settings))
    return pieces["scales"].astype(np.float32)


@for_each("bits", range(2, 9))
@for_each("version", ["gptq", "gptq_v2", "gptq_p"])
def test_gptq_of_every_width(bits, version, tmp_path):
    """5, 6 and 7 bits are always planar, and gptq_p at any width; only dense v1 stores zero points minus 1."""
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 1 << bits, (128, 32)).astype(np.uint8)
    zeros = rng.integers(0, 1 << bits, (2, 32))
    zeros[0, :2] = 0
    order = planar(bits) if version == "gptq_p" or bits in (5, 6, 7) else dense(bits, 32)
    scale = gptq(tmp_path, bits, version, codes, zeros, order)
    tensor = open_checkpoint(tmp_path).tensors["m.weight"]
    assert np.array_equal(tensor.codes().numpy(), codes.T)
    assert np.array_equal(tensor.zero_point().numpy(), zeros.T)
    difference = codes.T.astype(np.float32) - np.repeat(zeros.T, 64, 1)
    assert np.array_equal(tensor.read().numpy(), difference * np.repeat(scale.T, 64, 1))


def test_files_without_a_config(tmp_path):
    """Shapes tell GPTQ from AWQ, and the length of g_idx tells GPTQ's bits."""
    rng = np.random.default_rng(0)
    codes, zeros = rng.integers(0, 8, (64, 32)).astype(np.uint8), rng.integers(1, 8, (2, 32))
    gptq(tmp_path, 3, "gptq", codes, zeros, dense(3, 32))
    (tmp_path / "quantize_config.json").unlink()
    tensor = open_checkpoint(tmp_path).tensors["m.weight"]
    assert tensor.storage.startswith("gptq int3")
    assert np.array_equal(tensor.codes().numpy(), codes.T)
    awq = ORDERS["awq"]
    pieces = {
        "m.qweight": torch.from_numpy(pack(codes, awq, 1).view(np.int32)),
        "m.qzeros": torch.from_numpy(pack(zeros.astype(np.uint8), awq, 1).view(np.int32)),
        "m.scales": torch.ones(2, 32).half(),
    }
    tensor = release(tmp_path, pieces).tensors["m.weight"]
    assert tensor.storage == "awq int4 per_group(32) asymmetric"
    assert np.array_equal(tensor.codes().numpy(), codes.T)


@for_each("bits", [3, 5, 6, 7])
@for_each(("version", "order"), [("0.16.0", padded), ("0.17.0", dense)])
@for_each("columns", [16, 192, 1000])
def test_both_packings_of_compressed_tensors(bits, version, order, columns, tmp_path):
    """The number of words tells the packings apart or, where it is the same, the version in the config."""
    rng = np.random.default_rng(bits)
    codes = rng.integers(-(1 << bits - 1), 1 << bits - 1, (20, columns))
    zeros = rng.integers(-(1 << bits - 1), 1 << bits - 1, (20, 1))
    offset = 1 << bits - 1
    pieces = {
        "m.weight_packed": pack((codes + offset).astype(np.uint8), order(bits, 32)),
        "m.weight_zero_point": pack((zeros + offset).astype(np.uint8), order(bits, 32), 0),
    }
    tensors = {name: torch.from_numpy(words.view(np.int32)).contiguous() for name, words in pieces.items()}
    tensors |= {"m.weight_scale": torch.ones(20, 1), "m.weight_shape": torch.tensor([20, columns])}
    weights = {"num_bits": bits, "type": "int", "symmetric": False, "strategy": "channel"}
    tensor = compressed(tmp_path, tensors, version=version, **weights).tensors["m.weight"]
    assert np.array_equal(tensor.codes().numpy(), codes)
    assert np.array_equal(tensor.zero_point().numpy(), zeros)
    assert np.array_equal(tensor.read().numpy(), codes - zeros)
