"""Other readings of the same bytes: each one's cell and rows agree, and their counts are those of the libraries."""

import contextlib
import random
import shutil

import numpy as np
import pytest
import torch
from checkpoint_cases import case, cases, changed, of_each_reading, sound
from checkpoint_damage import damage_json, damage_safetensors
from grid import for_each
from parts import some
from releases import compressed, release

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings import Heads
from quantcore.checkpoints.findings.record import RIVALS
from quantcore.checkpoints.origin import origin_of, window
from quantcore.checkpoints.origin.rivals import readings
from quantcore.errors import QuantError

Q = "model.layers.0.self_attn.q_proj.weight"
K = "model.layers.0.self_attn.k_proj.weight"


def opened(name):
    return open_checkpoint(case(name).release)


def rivals_of(name, tensor=Q, index=(5, 42)):
    return {rival.key: rival for rival in opened(name).tensors[tensor].rivals(index)}


@for_each("given", of_each_reading(), ids=str)
def test_a_reading_is_one_reader(given):
    """In each reading, a cell's origin and its row give the same value, since both come from one layout."""
    checkpoint, generator = open_checkpoint(given.release), np.random.default_rng(3)
    heads = Heads.of(checkpoint.release)
    for name in given.record["tensors"]:
        tensor = checkpoint.tensors[name]
        for reading in readings(tensor.layout, heads.of_weight(name)):
            values = reading.layout.values()
            half = values.shape[0] // 2
            assert torch.equal(reading.layout.values(slice(half, half + 1)), values[half : half + 1])
            index = tuple(int(generator.integers(n)) for n in values.shape)
            found = origin_of(reading.layout, index)
            assert np.array_equal(np.float32(found.value), values[index].numpy(), equal_nan=True), reading.key


@for_each("given", of_each_reading(), ids=str)
def test_what_changes_nothing_is_not_shown(given):
    """The counts are correct over all rows, and a reading that changes no element is left out."""
    checkpoint = open_checkpoint(given.release)
    for name in list(given.record["tensors"])[:2]:
        tensor = checkpoint.tensors[name]
        index = (0,) * len(tensor.shape)
        found = {rival.key: rival for rival in tensor.rivals(index)}
        for reading in readings(tensor.layout):
            if reading.layout.shape == tensor.shape:
                a, b = tensor.read(), reading.layout.values()
                differ = int(((a != b) & ~(a.isnan() & b.isnan())).sum())
                assert (found[reading.key].differing if differ else 0) == differ
                assert (reading.key in found) == bool(differ)
        for rival in found.values():
            assert rival.difference[0].isupper()
            assert rival.difference.endswith(".")


ORACLES = {
    "bad_gptq_v1_but_zeros_8": ("gptq_version", "as_v1"),
    "bad_awq_not_interleaved": ("awq_interleave", "true"),
}


@for_each("name", ORACLES)
def test_other_readings_of_the_golden_checkpoints(name):
    """Where a golden case also has the values of another reading, ours gives them bit for bit."""
    given, (key, role) = case(name), ORACLES[name]
    (tensor,) = open_checkpoint(given.release).tensors.values()
    (reading,) = [r for r in readings(tensor.layout) if r.key == key]
    assert np.array_equal(reading.layout.values().numpy(), given.expected[f"{tensor.name}|{role}"])


@for_each("given", some(sound(), 6), ids=str)
def test_float32_is_what_the_library_rounds(given):
    tensors = open_checkpoint(given.release).tensors
    for name in given.record["tensors"]:
        if f"{name}|float32" in given.expected:
            (reading,) = [r for r in readings(tensors[name].layout) if r.key == "float32"]
            assert np.array_equal(reading.layout.values().numpy(), given.expected[f"{name}|float32"])


MEASURED = {
    ("deepseek_fp8", K, "block_of_grid"): (4096, 24576),  # transformers 5.23.0
    ("deepseek_fp8", Q, "block_of_grid"): (24047, 45000),
    ("ct_int4_actorder_group", Q, "g_idx_ignored"): (5255, 8192),  # compressed-tensors 0.20.0
}


@for_each(("name", "tensor", "key"), MEASURED)
def test_counts_are_those_that_the_libraries_gave(name, tensor, key):
    rival = rivals_of(name, tensor)[key]
    assert (rival.differing, rival.counted) == MEASURED[name, tensor, key]


def test_a_leak_is_undone_where_it_may_be():
    """Every element that the packer spoiled gets its true value."""
    given = case("bad_q5k_leak")
    (tensor,) = open_checkpoint(given.release).tensors.values()
    (reading,) = [r for r in readings(tensor.layout) if r.key == "q5k_leak"]
    values, true = reading.layout.values().numpy(), given.expected[f"{tensor.name}|true"]
    stored = tensor.read().numpy()
    assert np.array_equal(values[stored != true], true[stored != true])


NIBBLES_APART = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"}


@for_each("name", ["gguf_legacy", "gguf_k", "gguf_iq", "gguf_ternary_fp4"])
def test_which_blocks_hold_nibbles_of_distant_elements(name):
    """By ggml's dequantize_row_*: the types whose bytes hold the low four bits of an element and of one half a run later."""
    for tensor in open_checkpoint(case(name).release).tensors.values():
        if tensor.layout.storage.startswith("gguf"):
            kind = tensor.layout.storage.split()[1]
            found = {r.key for r in readings(tensor.layout)}
            assert ("nibble_order" in found) == (kind in NIBBLES_APART), kind


def test_where_a_leak_is_read_from():
    """A code of an odd sub-block depends on the fifth bit of the one in the lower half of its byte."""
    (tensor,) = opened("bad_q5k_leak").tensors.values()
    (reading,) = [r for r in readings(tensor.layout) if r.key == "q5k_leak"]
    for column in (0, 31, 32, 45, 64, 100, 255):
        own = tensor.locate((3, column)).code.bits
        found = reading.layout.locate((3, column)).code.bits
        neighbor = tensor.locate((3, column - 32)).code.bits[4:5] if column // 32 % 2 else ()
        assert tuple(found) == (*own, *neighbor)


def with_zeros(name, folder, word):
    """The weight of a golden GPTQ checkpoint whose first word of zero points is replaced by ``word``."""
    zeros = {Q.replace("weight", "qzeros"): lambda t: t.index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(word, dtype=t.dtype))}
    return changed(name, folder, zeros, {"sym": False}).tensors[Q]


def test_a_stored_15(tmp_path):
    """v1 adds 1 to a stored 15, which gives 0 modulo 16, 16 without wrapping, or a carry into the next zero point."""
    tensor = with_zeros("gptq_v1_4bit_g128_sym", tmp_path, 0x0000000F)

    def zeros(row):
        found = {rival.key: rival for rival in tensor.rivals((row, 0))}
        keys = ("zero_point_unwrapped", "zero_point_carried", "gptq_version")
        return [tensor.origin((row, 0)).numbers["z"], *(found[key].origin.numbers["z"] for key in keys)]

    assert zeros(0) == [0, 16, 0, 15]
    assert zeros(1) == [1, 1, 2, 0]
    assert zeros(2) == [1, 1, 1, 0]
    found = {rival.key: rival.difference for rival in tensor.rivals((1, 0))}
    assert found["zero_point_carried"] == (
        "Lets a stored 15 carry into the next zero point of its word: z = 2 instead of 1."
    )
    assert found["zero_point_unwrapped"] == "Reads a stored 15 as 16, not 0: z = 1, as here."
    (warning,) = [f for f in open_checkpoint(tmp_path).findings() if f.kind == "zero_point_wraps"]
    assert set(warning.rivals) <= set(found)


@for_each(("bits", "columns"), [(3, 40), (5, 40), (6, 20), (7, 20), (4, 40), (8, 20), (2, 40)])
def test_both_packings_of_one_width(bits, columns, tmp_path):
    """40 codes of 3 bits take 4 words in either packing, so only the version tells them apart; 4 bits have one packing."""
    each = 32 // bits
    count = -(-columns // each)
    assert count == -(-columns * bits // 32)
    words = torch.from_numpy(np.random.default_rng(1).integers(-(2**31), 2**31, (4, count), dtype=np.int64)).int()
    stored = {"a.weight_packed": words, "a.weight_scale": torch.ones(4, 1), "a.weight_shape": torch.tensor([4, columns])}
    of = compressed(tmp_path, stored, version="0.17.0", num_bits=bits, type="int", strategy="channel")
    tensor = of.tensors["a.weight"]
    found = [r for r in readings(tensor.layout) if r.key == "packing"]
    if 32 % bits == 0:
        assert not found
        return
    (reading,) = found
    assert reading.name == "whole codes per word"
    low = np.array([c % each * bits for c in range(columns)], np.uint32)
    old = words.numpy().view(np.uint32)[:, [c // each for c in range(columns)]] >> low & ((1 << bits) - 1)
    assert np.array_equal(reading.layout.values().numpy(), old.astype(np.float32) - (1 << bits - 1))
    (rival,) = tensor.rivals((0, columns - 1))
    first = (columns - 1) % each * bits
    assert rival.difference.startswith(f"Reads whole codes per word: this code is read from bits {first}–{first + bits - 1} of")


def test_sentences_are_those_of_the_element():
    found = rivals_of("ct_nvfp4")
    assert found["global_scale_left_out"].difference == (
        "Leaves out the global scale of 2324.7568: s = 36 instead of 0.015485491."
    )
    assert found["nibble_order"].difference.endswith(
        "this code is read from bits 4–7 of weight_packed[5, 21] instead of bits 0–3."
    )
    row = rivals_of("gguf_model", "blk.0.attn_q.weight", (1, 0))
    assert "rows_permuted" not in row  # the number of heads is not known
    tensor = opened("gguf_model").tensors["blk.0.attn_q.weight"]
    heads = Heads.of(opened("gguf_model").release).of_weight(tensor.name)
    (moved,) = [r for r in tensor.rivals((1, 0), heads=heads) if r.key == "rows_permuted"]
    assert moved.difference == "Row 1 of the original is row 2 here."
    assert moved.value == tensor.read()[2, 0]
    (reading,) = [r for r in readings(tensor.layout, heads=2) if r.key == "rows_permuted"]
    pairs = tensor.read().reshape(2, -1, 2, tensor.shape[1])
    assert torch.equal(reading.layout.values(), pairs.swapaxes(1, 2).reshape(tensor.shape))


def test_experts_have_another_shape_in_transformers():
    checkpoint = opened("gptoss_mxfp4")
    name = next(name for name, t in checkpoint.tensors.items() if len(t.shape) == 3 and t.is_quantized)
    tensor = checkpoint.tensors[name]
    values = tensor.read()
    (rival,) = [r for r in tensor.rivals((1, 2, 3)) if r.key == "transposed"]
    assert rival.value == values[1, 3, 2]
    assert rival.difference.endswith("the element at [1, 2, 3] here is at [1, 3, 2] there.")
    assert rival.differing is None
    (outside,) = [r for r in tensor.rivals((1, *(n - 1 for n in tensor.shape[1:]))) if r.key == "transposed"]
    assert outside.origin is None


@for_each(
    ("shape", "index", "rows"),
    [
        ((8, 16), (3, 3), (0, 8)),
        ((4096, 4096), (300, 0), (256, 512)),
        ((4100, 4096), (4099, 0), (3844, 4100)),
        ((3, 5000, 5000), (1, 0, 0), (1, 2)),
        ((), (), (0, 1)),
    ],
)
def test_rows_that_are_counted(shape, index, rows):
    found = window(shape, index)
    assert (found.start, found.stop) == rows


def test_nothing_is_counted_without_rows():
    checkpoint = opened("gptq_v1_4bit_g128_sym")
    tensor = checkpoint.tensors[Q]
    tensor.rivals((0, 0), slice(0, 0))
    before = checkpoint.counter.total
    found = tensor.rivals((5, 42), slice(0, 0))
    assert {rival.differing for rival in found} == {None}
    index = checkpoint.release.stored[Q.replace("weight", "g_idx")].num_bytes  # every reading reads it
    assert checkpoint.counter.total - before < 4 * index + 1000


def test_what_rounds_after_each_operation_is_also_read_as_if_it_rounded_once():
    once = [r for given in cases("hqq", "quanto", "mlx") for r in _all_readings(given) if r.key == "rounded_once"]
    assert once
    assert not any(reading.layout.rounds_each for reading in once)


def test_findings_name_readings_that_there_are():
    known = {r.key for given in sound() for r in _all_readings(given)} | {"q5k_leak", "awq_interleave"}
    assert {key for keys in RIVALS.values() for key in keys} <= known
    found = {f.kind: f.rivals for f in opened("bad_gptq_v1_but_zeros_8").findings()}
    assert found["gptq_version"] == ("gptq_version",)
    assert not any(rivals for kind, rivals in found.items() if kind not in RIVALS)


def _all_readings(given):
    checkpoint = open_checkpoint(given.release)
    for name, tensor in checkpoint.tensors.items():
        yield from readings(tensor.layout, Heads.of(checkpoint.release).of_weight(name))


@pytest.mark.parametrize("count", [18, pytest.param(120, marks=pytest.mark.slow)])
def test_damaged_files_get_an_answer(count, tmp_path):
    """With bytes of headers and data replaced, `origin` agrees with `read`, or both give a QuantError."""
    generator, sources = random.Random(9), [c for c in sound() if (c.release / "model.safetensors").exists()]
    compared = 0
    for number in range(count):
        folder = tmp_path / str(number)
        shutil.copytree(generator.choice(sources).release, folder)
        file, config = folder / "model.safetensors", folder / "config.json"
        data = bytearray(file.read_bytes())
        header = 8 + int.from_bytes(data[:8], "little")
        for _ in range(100):
            data[generator.randrange(header, len(data))] = generator.randrange(256)
        file.write_bytes(damage_safetensors(bytes(data), generator) if number % 3 == 0 else bytes(data))
        if number % 3 == 1 and config.exists():
            config.write_bytes(damage_json(config.read_bytes(), generator))
        compared += _compared(folder, generator)
    assert compared > count * 5 / 6


def _compared(folder, generator):
    compared = 0
    try:
        tensors = list(open_checkpoint(folder).tensors.values())[:3]
    except QuantError:
        return 0
    for tensor in tensors:
        with contextlib.suppress(QuantError):
            if not tensor.shape or 0 in tensor.shape:
                continue
            index = tuple(generator.randrange(n) for n in tensor.shape)
            row = slice(index[0], index[0] + 1)
            value = tensor.origin(index).value
            assert np.array_equal(
                np.float32(value), tensor.read(row)[(0, *index[1:])].numpy(), equal_nan=True
            )
            tensor.rivals(index, row)
            compared += 1
    return compared


def test_a_claimed_shape_takes_no_memory(tmp_path):
    """With HQQ's groups along columns, one element's origin does not list all elements."""
    shape = {Q.replace("weight", "shape"): lambda _: torch.tensor([2**38, 256])}
    with pytest.raises(QuantError):
        changed("hqq_4bit_axis0", tmp_path, shape).tensors[Q].origin((0, 0))


@for_each(("linear_class", "verb", "power"), [("bitlinear", "Multiplies", -1), ("autobitlinear", "Divides", 1)])
def test_the_other_use_of_a_scale(linear_class, verb, power, tmp_path):
    """BitNet's scale multiplies or divides, by the class of the layer: the other one is said, and its value."""
    stored = {"m.weight": torch.zeros(2, 8, dtype=torch.uint8), "m.weight_scale": torch.tensor([4.0])}
    config = {"quantization_config": {"quant_method": "bitnet", "linear_class": linear_class}}
    tensor = release(tmp_path, stored, config).tensors["m.weight"]
    assert float(tensor.read()[1, 3]) == -(4.0**power)  # the code 0 is -1
    (rival,) = tensor.rivals((1, 3))
    assert rival.value == -(4.0**-power)
    assert rival.difference.startswith(f"{verb} ")
