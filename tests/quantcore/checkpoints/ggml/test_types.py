"""The block types of GGUF against files that ggml wrote, against the gguf package, and against each other.

The bytes of the gguf schemes are compared with ggml's own in tests/data/golden_checkpoints/gguf_quantizer.
"""

from functools import cache

import checkpoint_cases
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from grid import for_each
from parts import in_parts, some
from places import CHECKPOINTS

import quantcore as qc
from quantcore.checkpoints.ggml import BLOCK_TYPES, digits_of
from quantcore.checkpoints.ggml.levels import grid
from quantcore.errors import QuantError
from quantcore.scheme import gguf_type, with_importance
from tests.generators import make_ggml_grids


def tensors(case):
    """(name, record, block type, bytes) of the case's tensors that have a block type."""
    for name, record in case.record["tensors"].items():
        if record["storage"] in BLOCK_TYPES:
            data = np.fromfile(case.release.parent / record["file"], np.uint8)
            start = record["data_offset"]
            yield name, record, BLOCK_TYPES[record["storage"]], data[start : start + record["nbytes"]]


@for_each("case", [c for c in checkpoint_cases.sound() if str(c).startswith("gguf_")], ids=str)
def test_values_codes_and_scales_are_ggmls(case):
    expected = case.expected
    for tensor, record, kind, data in tensors(case):
        values = kind.dequantize(data).reshape(record["shape"])
        assert np.array_equal(values.view(np.uint32), expected[tensor].view(np.uint32)), (tensor, kind.name)
        fields = kind.unpack(data)
        for key, got in (
            ("codes", kind.levels.codes(fields)),
            ("scale", kind.scale(fields)),
            ("min", kind.min(fields)),
        ):
            if f"{tensor}|{key}" in expected:
                want = expected[f"{tensor}|{key}"]
                assert got.dtype == want.dtype, (tensor, kind.name, key)
                assert np.array_equal(got.reshape(want.shape), want), (tensor, kind.name, key)


@for_each("name", sorted(set(BLOCK_TYPES) - {"Q1_0", "Q2_0"}))
def test_values_of_random_bytes_are_those_of_the_gguf_package(name):
    """Random bytes, including infinite and NaN scales; for MXFP4 and NVFP4, all 256 codes of the scale."""
    kind = BLOCK_TYPES[name]
    data = np.random.default_rng(5).integers(0, 256, (300, kind.num_bytes), dtype=np.uint8)
    if name == "MXFP4":
        data[:256, 0] = np.arange(256)
    if name == "NVFP4":
        data[:256, 0] = np.arange(256)
    with np.errstate(all="ignore"):
        want = quants.dequantize(data, GGMLQuantizationType[name])
    got = kind.dequantize(data)
    assert ((got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))).all()


def test_values_of_one_and_two_bits():
    """Q1_0 and Q2_0, which the gguf package does not dequantize: ±d, and (code - 1) * d, as in ggml-quants.c."""
    half = np.array([0.375], np.float16).view(np.uint8)
    one = BLOCK_TYPES["Q1_0"].dequantize(np.concatenate([half, np.full(16, 0b00000110, np.uint8)]))
    assert one[0, :9].tolist() == [-0.375, 0.375, 0.375, *[-0.375] * 6]
    two = BLOCK_TYPES["Q2_0"].dequantize(np.concatenate([half, np.full(16, 0b11100100, np.uint8)]))
    assert two[0, :5].tolist() == [-0.375, 0.0, 0.375, 0.75, -0.375]


@for_each("kind", BLOCK_TYPES.values(), ids=lambda kind: kind.name)
def test_values_are_scale_times_level_of_the_codes(kind):
    """The identity that readers of the numbers rely on, wherever ggml's own arithmetic is finite."""
    data = np.random.default_rng(6).integers(0, 256, (50, kind.num_bytes), dtype=np.uint8)
    if kind.name == "MXFP4":
        data[:, 0] = data[:, 0] % 128 + 64
    fields = kind.unpack(data)
    codes, scale, least = kind.levels.codes(fields), kind.scale(fields), kind.min(fields)
    table = getattr(kind.levels, "table", None)
    levels = codes.astype(np.float32) if table is None else np.float32(kind.unit * np.array(table))[codes]
    zero = kind.levels.zero_point(fields)
    if zero is not None:
        levels = levels - np.repeat(zero.astype(np.float32), kind.elements // zero.shape[1], axis=1)
    with np.errstate(all="ignore"):
        values = np.repeat(scale, kind.sub_block, axis=1) * levels
        if least is not None:
            values = values + kind.min_sign * np.repeat(least, kind.sub_block, axis=1)
    got = kind.dequantize(data)
    assert ((values == got) | (np.isnan(values) & np.isnan(got))).all()


def test_grids_are_those_of_the_gguf_package():
    for name, rows in make_ggml_grids.grids().items():
        assert np.array_equal(grid(name), rows), name


def test_ternary_digits_come_back():
    codes = np.random.default_rng(7).integers(0, 3, (40, 256), dtype=np.uint8)
    kind = BLOCK_TYPES["TQ1_0"]
    fields = {"digits": digits_of(codes), "d": np.ones((40, 1), np.float16)}
    assert np.array_equal(kind.levels.codes(fields), codes)
    assert np.array_equal(
        kind.pack(fields)[:, :52], quants.quantize(codes - np.float32(1), GGMLQuantizationType.TQ1_0)[:, :52]
    )


@for_each("kind", BLOCK_TYPES.values(), ids=lambda kind: kind.name)
def test_unpacked_blocks_pack_to_the_same_bytes(kind):
    data = np.random.default_rng(3).integers(0, 256, (7, kind.num_bytes), dtype=np.uint8)
    assert np.array_equal(kind.pack(kind.unpack(data)), data)
    none = kind.unpack(data[:0])
    assert kind.pack(none).shape == (0, kind.num_bytes)
    assert kind.dequantize(data[:0]).shape == (0, kind.elements)


@for_each("kind", BLOCK_TYPES.values(), ids=lambda kind: kind.name)
def test_fields_hold_every_bit_of_a_block_once(kind):
    times = np.zeros((kind.num_bytes, 8), int)
    for field in kind.fields:
        for entry in range(field.count):
            pieces = field.locate(entry)
            assert [piece.at for piece in pieces] == list(np.cumsum([0] + [p.count for p in pieces])[:-1])
            for piece in pieces:
                times[piece.byte, piece.low : piece.low + piece.count] += 1
    assert (times == 1).all()


@for_each("kind", BLOCK_TYPES.values(), ids=lambda kind: kind.name)
def test_the_bits_named_for_an_element_decide_its_code(kind):
    """The bits named for an element determine its code, whatever the other bits are."""
    generator = np.random.default_rng(8)
    first, second = (
        kind.unpack(generator.integers(0, 256, (60, kind.num_bytes), dtype=np.uint8)) for _ in "ab"
    )
    for element in generator.integers(0, kind.elements, 12):
        mixed = {name: values.copy() for name, values in second.items()}
        for part in kind.levels.parts(int(element)):
            values, own = mixed[part.field][:, part.entry], first[part.field][:, part.entry]
            mask = np.array(sum(1 << bit for bit in part.bits) if part.bits else -1).astype(own.dtype)
            values[...] = (values & ~mask) | (own & mask)
        assert np.array_equal(kind.levels.codes(mixed)[:, element], kind.levels.codes(first)[:, element])
        assert not np.array_equal(kind.levels.codes(second)[:, element], kind.levels.codes(first)[:, element])


@for_each("kind", BLOCK_TYPES.values(), ids=lambda kind: kind.name)
def test_located_bits_change_the_number_and_no_other(kind):
    """Flipping a bit that `locate` names changes only that entry, by the bit's weight."""
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
    with pytest.raises(QuantError, match=r"'scale_code' of Q4_K takes 0\.\.63, not 64"):
        kind.pack(fields | {"scale_code": np.full((2, 8), 64)})
    with pytest.raises(QuantError, match=r"'codes' of Q4_K has shape \(1, 256\); it must be \(2, 256\)"):
        kind.pack(fields | {"codes": np.zeros((1, 256), int)})
    with pytest.raises(QuantError, match="need the field 'dmin'"):
        kind.pack({name: value for name, value in fields.items() if name != "dmin"})
    with pytest.raises(QuantError, match="145 bytes are not a whole number of Q4_K blocks of 144 bytes"):
        kind.unpack(np.zeros(145, np.uint8))
    signed = BLOCK_TYPES["Q6_K"]
    with pytest.raises(QuantError, match=r"'codes' of Q6_K takes -32\.\.31, not 32"):
        signed.pack(signed.unpack(np.zeros(210, np.uint8)) | {"codes": np.full((1, 256), 32)})


CASE = CHECKPOINTS / "gguf_quantizer" / "expected.npz"
TYPES = [name.removeprefix("gguf.") for name in qc.PRESETS if name.startswith("gguf.")]
WEIGHTED = [name for name in TYPES if name not in ("Q8_0", "MXFP4", "TQ1_0", "TQ2_0")]


@cache
def recorded():
    with np.load(CASE, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays}


@in_parts(19)
@for_each("name", TYPES)
def test_bytes(name, part):
    """Each type with other tensors and imatrices."""
    found = recorded()
    cases = [key.split("|")[2:] for key in found if key.startswith(f"bytes|{name}|")]
    assert len(cases) == (38 if name in WEIGHTED else 11)
    turn = TYPES.index(name)
    for x, importance in part(cases[turn:] + cases[:turn]):
        given = None if importance == "none" else found[f"imatrix|{importance}"]
        result = qc.apply(found[f"x|{x}"], qc.PRESETS[f"gguf.{name}"], importance=given)
        assert qc.checkpoints.encode(result) == found[f"bytes|{name}|{x}|{importance}"].tobytes(), (
            x,
            importance,
        )


@for_each("name", some(WEIGHTED, 3))
def test_texts_are_the_schemes(name):
    """With and without importance, the scheme's text reads back and gives the same bytes."""
    found = recorded()
    x, importance = found["x|outlier"], found["imatrix|im_skewed"]
    for scheme, given in (
        (qc.PRESETS[f"gguf.{name}"], None),
        (with_importance(qc.PRESETS[f"gguf.{name}"]), importance),
    ):
        back = qc.Scheme.parse(str(scheme))
        assert back == scheme
        assert gguf_type(back) == name
        kind = "none" if given is None else "im_skewed"
        result = qc.apply(x, back, importance=given)
        assert result.scheme == scheme
        assert qc.checkpoints.encode(result) == found[f"bytes|{name}|outlier|{kind}"].tobytes()


@for_each("name", TYPES)
def test_bits_are_those_of_the_bytes(name):
    x = recorded()["x|normal"]
    scheme = qc.PRESETS[f"gguf.{name}"]
    stored = qc.checkpoints.encode(qc.apply(x, scheme))
    assert qc.bits_per_element(scheme, x.shape) == 8 * len(stored) / x.size


def test_other_schemes_have_no_bytes():
    x = recorded()["x|normal"]
    for text in ("int4 per_group(32)", "uint4 symmetric per_group(32) gguf.Q4_0"):
        with pytest.raises(qc.QuantError, match="have a packing"):
            qc.checkpoints.encode(qc.apply(x, qc.Scheme.parse(text)))
