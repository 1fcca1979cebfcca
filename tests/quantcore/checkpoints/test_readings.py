"""What the sentences about other readings claim, taken apart and compared with the numbers and places of both readings."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from checkpoint_cases import EVERY_READING, case, of_each_reading, sound
from grid import for_each
from releases import save
from suspects import W, ct_stored, grid_of, suspect, weight

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison.orders import Heads
from quantcore.checkpoints.findings.against.judge import _Judgement
from quantcore.checkpoints.layouts import imatrix
from quantcore.checkpoints.origin import origin_of
from quantcore.checkpoints.origin.rivals import _counted, readings
from quantcore.expressions import POWER_OF_TWO, Element, Name, named, text_of

NUMBER = re.compile(r": (\w+) = ([^ ,]+)(, as here| instead of (.+))\.$")
BITS = re.compile(r"read from (?:the same bits|bits (\d+)–(\d+) of (\S+?)(?: instead of bits (\d+)–(\d+)(?: of (\S+))?)?)\.$")
SCALE = re.compile(r"the (?:same )?scale(?: at \[([\d, ]+)\])?(?:, as here| instead of \[([\d, ]+)\]| as here)\.$")
HALVES = re.compile(r"read from byte \+(\w+), (upper|lower) half, instead of \+(\w+), (upper|lower) half\.$")


def claims(key, said, here, there):
    """Whether the numbers, bits or scales that a sentence names are those of both readings; None: it names none."""
    if key in ("g_idx_ignored", "block_of_grid"):
        theirs, mine = (None if t is None else [int(n) for n in t.split(", ")] for t in SCALE.search(said).groups())
        own, other = (list(o.parameters["scale"].words[0].index) for o in (here, there))
        return (mine or other) == own and (theirs or own) == other
    found = HALVES.search(said)
    if found:
        start = here.code.words[0].offset
        (theirs, mine) = (o.code.place.bits[0] for o in (there, here))
        wanted = [f"{theirs[0] - start:02x}", ["lower", "upper"][theirs[1] >= 4], f"{mine[0] - start:02x}", ["lower", "upper"][mine[1] >= 4]]
        return list(found.groups()) == wanted
    found = BITS.search(said)
    if found:
        own, other = (o.code.words[0] for o in (here, there))
        if "the same bits" in said:
            return (own.name, own.own) == (other.name, other.own)
        low, high, name, mine_low, mine_high, mine_name = found.groups()
        assert own.name.rpartition(".")[2] == (mine_name or name)
        return (int(low), int(high), name) == (min(other.own), max(other.own), other.name.rpartition(".")[2]) and (
            (int(mine_low), int(mine_high)) == (min(own.own), max(own.own))
        )
    found = NUMBER.search(said)
    if found:
        symbol, theirs, as_here, mine = found.groups()
        own, other = (text_of(o.numbers[symbol]) for o in (here, there))
        return (theirs, mine) == (other, None if own == other else own) and (as_here == ", as here") is (own == other)
    if key == "e8m0_nan":
        code = here.numbers.get("sc", here.numbers.get("scale_code"))
        return said.endswith("this one is not 255.") is (code != 255)
    return None


@pytest.mark.slow
def test_every_kind_of_reading_is_met():
    found = {}
    for given in sound():
        tensors = open_checkpoint(given.release).tensors
        layouts = [tensors[name].layout for name in list(given.record["tensors"])[:2]]
        found[str(given)] = {r.key for each in layouts for r in readings(each) if r.layout.shape == each.shape}
    assert set().union(*(found[name] for name in EVERY_READING)) == set().union(*found.values())


@for_each("given", of_each_reading(), ids=str)
def test_sentences_about_other_readings(given):
    """Of three elements of two weights: the last, and two that are drawn."""
    checkpoint, generator = open_checkpoint(given.release), np.random.default_rng(5)
    for name in list(given.record["tensors"])[:2]:
        layout = checkpoint.tensors[name].layout
        for reading in readings(layout):
            if reading.layout.shape != layout.shape:
                continue
            for index in [tuple(n - 1 for n in layout.shape), *(tuple(int(generator.integers(n)) for n in layout.shape) for _ in range(2))]:
                here, there = origin_of(layout, index), origin_of(reading.layout, index)
                said = reading.difference(here, there)
                assert claims(reading.key, said, here, there) is not False, (reading.key, index, said)


def test_the_scale_of_a_bitnet_layer_divides_or_multiplies():
    """From both layers' point of view, the sentence says what each of them computes."""
    layout = next(t for t in open_checkpoint(case("bitnet_offline").release).tensors.values() if t.is_quantized).layout
    for words in ("Multiplies by the scale instead of dividing.", "Divides by the scale instead of multiplying."):
        reading = next(r for r in readings(layout) if r.key == "linear_class")
        index = next((0, n) for n in range(99) if origin_of(layout, (0, n)).value)
        here, there = origin_of(layout, index), origin_of(reading.layout, index)
        q, s = (np.float32(here.numbers[name]) for name in ("q", "s"))
        assert (there.value, here.value) == ((q * s, q / s) if words.startswith("Multiplies") else (q / s, q * s))
        assert reading.difference(here, there) == words
        layout = reading.layout


EXPECTED = {
    "gptq_v1_4bit_g32_asym_desc_act": {"gptq_version": "z", "zero_point_unwrapped": "z", "zero_point_carried": "z", "g_idx_ignored": "scale"},
    "gptq_v1_3bit_g128": {"gptq_version": "z"}, "gptq_v2_4bit_g128_sym": {"gptq_version": "z"}, "awq_gemm_g128": {"awq_interleave": "bits"},
    "ct_int4_actorder_group": {"g_idx_ignored": "scale"}, "hqq_4bit_axis1": {"part_order": "bits"}, "quanto_qint4": {"part_order": "bits"},
    "torchao_int4": {"nibble_order": "bits"}, "ct_nvfp4": {"global_scale_left_out": "s", "global_scale_inverse": "s", "nibble_order": "bits"},
    "bnb_nf4": {"nibble_order": "bits"}, "ct_mxfp4": {"nibble_order": "bits", "e8m0_nan": "255"}, "bitnet_offline": {"linear_class": "scale"},
    "mlx_affine_4bit": {}, "quanto_qint8": {},
}  # fmt: skip


@for_each("name", EXPECTED)
def test_which_readings_there_are(name):
    """But for the roundings of the result."""
    tensor = next(t for t in open_checkpoint(case(name).release).tensors.values() if t.is_quantized)
    found = {r.key for r in readings(tensor.layout)} - {"rounded_once", "float32", "float16", "bfloat16"}
    assert found == set(EXPECTED[name])


def test_factors_of_rows_of_0(tmp_path):
    """A row that is 0 on either side is multiplied by 1."""
    x = weight()
    x[3] = 0
    q, _, step = grid_of(weight())
    q[9] = 0
    s = suspect(tmp_path, ct_stored(q, step), x)
    by = _Judgement({W: s.measure}, s.release, s.source, Heads())._by_row(s.measure)
    assert (by.shape[0], bool(by.isfinite().all()), float(by[9])) == (len(x), True, 1.0)
    assert torch.equal(by, by.clamp(min=1e-30))


@for_each("calls", [-3, 0, 1, 2, 7])
def test_sums_of_an_imatrix(calls):
    """Divided by the calls of a legacy file if there were any, else by the count of each row; 1 where that is 0."""
    for tensor in open_checkpoint(case("imatrix").release).tensors.values():
        layout = tensor.layout
        sums = layout.stored()["in_sum2"].numpy()
        alone = imatrix.layout_of(layout.name, {"in_sum2": layout.pieces["in_sum2"]}, calls)
        wanted = sums / np.float32(calls) if calls > 0 else sums
        assert np.array_equal(alone.values().numpy(), wanted)
        index = tuple(n - 1 for n in sums.shape)
        found = origin_of(alone, index)
        assert np.float32(found.value) == wanted[index]
        assert ("/" in str(found.lines[-1])) is (calls > 0)
        if "counts" in layout.pieces:
            counts = layout.stored()["counts"].numpy()[:, None]
            assert np.array_equal(layout.values().numpy(), np.where(counts == 0, np.float32(1), sums / np.where(counts == 0, 1, counts)))


A, B, C = (Name(name) for name in "abc")
GIVEN = {"a": 7, "b": -2, "c": np.float32(0.5)}
FORMULAS = [
    (A + B * C, "a + b · c", "7 + (-2) · 0.5"), (A - (B - C), "a - (b - c)", "7 - ((-2) - 0.5)"), (A - B - C, "a - b - c", "7 - (-2) - 0.5"),
    (A * (B * C), "a · (b · c)", "7 · ((-2) · 0.5)"), (A * B * C, "a · b · c", "7 · (-2) · 0.5"), ((A + B) * C, "(a + b) · c", "(7 + (-2)) · 0.5"),
    (A % 3 + B, "(a mod 3) + b", "(7 mod 3) + (-2)"), ((A + B) % 4, "(a + b) mod 4", "(7 + (-2)) mod 4"), (A * B % 4, "a · b mod 4", "7 · (-2) mod 4"),
    (A >> 1, "a >> 1", "7 >> 1"), ((A + 1) >> 1, "(a + 1) >> 1", "(7 + 1) >> 1"), ((A >> 1) * B, "(a >> 1) · b", "(7 >> 1) · (-2)"),
    (A / (B * C), "a / (b · c)", "7 / ((-2) · 0.5)"), (A * POWER_OF_TWO(A - 5), "a · (2^(a - 5))", "7 · (2^(7 - 5))"),
    (POWER_OF_TWO(A - 5) * A, "2^(a - 5) · a", "2^(7 - 5) · 7"), (A - POWER_OF_TWO(A - 5), "a - 2^(a - 5)", "7 - 2^(7 - 5)"),
]  # fmt: skip


@for_each(("formula", "names", "numbers"), FORMULAS)
def test_parentheses_only_where_they_are_needed(formula, names, numbers):
    """The text has the value of the formula by Python's own rules."""
    found = Element(lambda name: named(name, GIVEN[name])).of(formula)
    assert (found.names.text, found.numbers.text) == (names, numbers)
    python = names.replace("·", "*").replace("^", "**").replace("mod", "%")
    assert found.value == eval(python, {"a": 7, "b": -2, "c": 0.5})


NOTES = {
    "gptq_v1_4bit_g32_asym_desc_act": ("z", "stored with 1 subtracted"), "gptq_v2_4bit_g128_sym": ("z", None), "awq_gemm_g128": ("z", None),
    "ct_int4_sym_g128": ("q", "stored with the middle of the codes added"), "torchao_int4": ("q", "two's complement"),
}  # fmt: skip


@for_each("name", NOTES)
def test_how_codes_and_zero_points_are_stored(name):
    symbol, note = NOTES[name]
    tensor = next(t for t in open_checkpoint(case(name).release).tensors.values() if t.is_quantized)
    notes = [line.note for line in origin_of(tensor.layout, (0, 0)).lines if line.name == symbol]
    assert notes == ([] if note is None else [note])


def test_scales_rounded_up_to_powers_of_two(tmp_path):
    """A power of two stays; all others become the next one; 0 stays 0."""
    scales = {0.25: 0.25, 0.3: 0.5, 0.5: 0.5, 0.50001: 1.0, 3.0: 4.0, 0.0: 0.0}
    stored = {"m.weight": torch.ones(2 * len(scales), 4).to(torch.float8_e4m3fn), "m.weight_scale_inv": torch.tensor(list(scales))[:, None]}
    layout = open_checkpoint(save(tmp_path, stored, {"quant_method": "fp8", "weight_block_size": [2, 4]})).tensors["m.weight"].layout
    (reading,) = [r for r in readings(layout) if r.key == "ue8m0"]
    assert reading.layout.values()[::2, 0].tolist() == list(scales.values())
    for row, power in enumerate(scales.values()):
        there = origin_of(reading.layout, (2 * row, 1))
        assert (float(there.value), float(there.numbers["s"])) == (power, power)


@for_each(
    ("shape", "sizes"),
    [((6, 12), (3, 6)), ((6, 16), (3, 8)), ((8, 12), (4, 6)), ((8, 16), None), ((6, 20), None), ((5, 12), None)],
)  # fmt: skip
def test_blocks_derived_from_the_grid_of_scales(shape, sizes, tmp_path):
    """Of blocks of 4 × 8 of which the last are smaller, where the grid divides the shape into others."""
    grid = [-(-n // size) for n, size in zip(shape, (4, 8), strict=True)]
    scale = torch.arange(1.0, 1 + math.prod(grid)).reshape(grid)
    stored = {"m.weight": torch.ones(shape).to(torch.float8_e4m3fn), "m.weight_scale_inv": scale}
    config = {"quant_method": "fp8", "weight_block_size": [4, 8]}
    layout = open_checkpoint(save(tmp_path, stored, config)).tensors["m.weight"].layout
    found = [r for r in readings(layout) if r.key == "block_of_grid"]
    assert [r.layout.blocks.block for r in found] == ([sizes] if sizes else [])
    for reading in found:
        rows, columns = sizes
        wanted = scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
        assert torch.equal(reading.layout.values(), wanted)
        for index in ((0, 0), (shape[0] // 2, 0), (rows, columns), (3, 7), (rows - 1, columns - 1)):
            here, there = [index[0] // 4, index[1] // 8], [index[0] // rows, index[1] // columns]
            said = reading.difference(origin_of(layout, index), origin_of(reading.layout, index))
            end = ", as here." if here == there else f" instead of {here}."
            assert said == f"Reads blocks of {rows} × {columns} instead of 4 × 8: the scale at {there}{end}"


def test_rows_that_are_too_long_to_count():
    """More than 2^24 elements; they are not read."""
    wide = SimpleNamespace(shape=(2, (1 << 24) + 1))
    assert _counted(wide, (wide, wide), slice(0, 2)) == [None, None]
    assert _counted(SimpleNamespace(shape=(2, 3)), (), slice(1, 1)) == []
