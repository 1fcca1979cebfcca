"""The block types of GGUF against files that ggml wrote, and against themselves."""

import numpy as np
import pytest
from golden_checkpoints import golden_case

from quantcore.checkpoints.ggml import BLOCK_TYPES
from quantcore.errors import QuantError

CASES = ["gguf_legacy", "gguf_k", "gguf_random_bits_a", "gguf_random_bits_c"]


def tensors(case):
    """(name, record, block type, bytes) of the case's tensors of a block type."""
    for name, record in case["tensors"].items():
        if record["storage"] in BLOCK_TYPES:
            data = np.fromfile(case["release"].parent / record["file"], np.uint8)
            start = record["data_offset"]
            yield name, record, BLOCK_TYPES[record["storage"]], data[start : start + record["nbytes"]]


@pytest.mark.parametrize("name", CASES)
def test_values_codes_and_scales_are_ggmls(name):
    case = golden_case(name)
    expected = case["expected"]
    for tensor, record, kind, data in tensors(case):
        values = kind.dequantize(data).reshape(record["shape"])
        assert np.array_equal(values.view(np.uint32), expected[tensor].view(np.uint32)), (tensor, kind.name)
        fields = kind.unpack(data)
        for key, got in (
            ("codes", kind.codes(fields)),
            ("scale", kind.scale(fields)),
            ("min", kind.min(fields)),
        ):
            if f"{tensor}|{key}" in expected:
                want = expected[f"{tensor}|{key}"]
                assert got.dtype == want.dtype, (tensor, kind.name, key)
                assert np.array_equal(got.reshape(want.shape), want), (tensor, kind.name, key)


@pytest.mark.parametrize("kind", BLOCK_TYPES.values(), ids=lambda kind: kind.name)
def test_unpacked_blocks_pack_to_the_same_bytes(kind):
    data = np.random.default_rng(3).integers(0, 256, (7, kind.num_bytes), dtype=np.uint8)
    assert np.array_equal(kind.pack(kind.unpack(data)), data)
    none = kind.unpack(data[:0])
    assert kind.pack(none).shape == (0, kind.num_bytes)
    assert kind.dequantize(data[:0]).shape == (0, kind.elements)


@pytest.mark.parametrize("kind", BLOCK_TYPES.values(), ids=lambda kind: kind.name)
def test_fields_hold_every_bit_of_a_block_once(kind):
    times = np.zeros((kind.num_bytes, 8), int)
    for field in kind.fields:
        for entry in range(field.count):
            pieces = field.locate(entry)
            assert [piece.at for piece in pieces] == list(np.cumsum([0] + [p.count for p in pieces])[:-1])
            for piece in pieces:
                times[piece.byte, piece.low : piece.low + piece.count] += 1
    assert (times == 1).all()


@pytest.mark.parametrize("kind", BLOCK_TYPES.values(), ids=lambda kind: kind.name)
def test_located_bits_change_the_number_and_no_other(kind):
    """Flipping each bit that `locate` names changes that one entry, by the bit's own weight."""
    generator = np.random.default_rng(4)
    block = generator.integers(0, 256, kind.num_bytes, dtype=np.uint8)
    before = kind.unpack(block)
    for field in kind.fields:
        entry = int(generator.integers(field.count))
        for piece in field.locate(entry):
            for bit in range(piece.count):
                flipped = block.copy()
                flipped[piece.byte] ^= np.uint8(1 << piece.low + bit)
                after = kind.unpack(flipped)
                for other in kind.fields:
                    unsigned = f"u{before[other.name].itemsize}"
                    offset = other.offset * (other.kind != "f")
                    a, b = (
                        (f[other.name].view(unsigned) + np.array(offset, unsigned))[0]
                        for f in (before, after)
                    )
                    want = np.zeros(other.count, unsigned)
                    if other.name == field.name:
                        want[entry] = 1 << piece.at + bit
                    assert np.array_equal(a ^ b, want), (field.name, entry, piece, other.name)


def test_fields_that_do_not_fit_are_refused():
    kind = BLOCK_TYPES["Q4_K"]
    fields = kind.unpack(np.zeros(288, np.uint8))
    with pytest.raises(QuantError, match=r"'scale_code' of Q4_K holds 0\.\.63, not 64"):
        kind.pack(fields | {"scale_code": np.full((2, 8), 64)})
    with pytest.raises(QuantError, match=r"'codes' of Q4_K has shape \(1, 256\); it must be \(2, 256\)"):
        kind.pack(fields | {"codes": np.zeros((1, 256), int)})
    with pytest.raises(QuantError, match="need the field 'dmin'"):
        kind.pack({name: value for name, value in fields.items() if name != "dmin"})
    with pytest.raises(QuantError, match="145 bytes are not whole Q4_K blocks of 144 bytes"):
        kind.unpack(np.zeros(145, np.uint8))
    signed = BLOCK_TYPES["Q6_K"]
    with pytest.raises(QuantError, match=r"'codes' of Q6_K holds -32\.\.31, not 32"):
        signed.pack(signed.unpack(np.zeros(210, np.uint8)) | {"codes": np.full((1, 256), 32)})
