"""Flipping any bit that `locate` names in a GGUF file changes what the bit is said to encode, and nothing else."""

import numpy as np
import pytest
from gguf_bytes import all_types
from grid import for_each
from parts import in_parts, some

from quantcore.checkpoints import encode, open_checkpoint
from quantcore.checkpoints.ggml import BLOCK_TYPES
from quantcore.errors import QuantError

NAMES = tuple(BLOCK_TYPES)
CONTENT = {name: all_types(seed=2, rows=2, blocks=2, names=(name,))[0] for name in NAMES}  # each bit opens it again
# elements of a tensor with 2 rows of 2 blocks: in the first and last sub-blocks, and in between
ELEMENTS = {
    name: [(0, 7), (1, BLOCK_TYPES[name].elements + 14), (1, 2 * BLOCK_TYPES[name].elements - 1)]
    for name in NAMES
}


@pytest.fixture
def flip(tmp_path):
    """Open the file of a type, with one bit flipped if given, and return its tensor."""

    def opened(name, bit=None):
        content = bytearray(CONTENT[name])
        if bit is not None:
            content[bit[0]] ^= 1 << bit[1]
        file = tmp_path / ("model.gguf" if bit is None else f"{bit[0]}_{bit[1]}.gguf")
        file.write_bytes(content)
        return open_checkpoint(file).tensors[name]

    return opened


def changed(a, b):
    """The indices at which two arrays differ."""
    return [tuple(int(i) for i in at) for at in np.argwhere(~((a == b) | (np.isnan(a) & np.isnan(b))))]


GRID_ROWS = {"IQ3_XXS": 4, "IQ3_S": 4, "IQ2_XXS": 8, "IQ2_XS": 8, "IQ2_S": 8, "IQ1_S": 8, "IQ1_M": 8}


def neighbors(name, element):
    """The elements whose codes share bits with that of ``element``, and itself."""
    row, column = element
    if (
        name == "TQ1_0"
    ):  # a byte has the digits of elements 32 apart in the first 160 of a block, then 16, then 4
        inside = column % 256
        start, stop, step = next(r for r in ((0, 160, 32), (160, 240, 16), (240, 256, 4)) if inside < r[1])
        return {(row, column - inside + e) for e in range(start, stop) if (e - inside) % step == 0}
    run = GRID_ROWS.get(name, 1)
    found = {column - column % run + i for i in range(run)}
    if name in ("IQ2_XXS", "IQ2_XS", "IQ3_XXS"):  # the eighth sign is the parity of the other seven
        found |= set(range(column - 7, column + 1)) if column % 8 == 7 else {column | 7}
    return {(row, c) for c in found}


@in_parts(3)
@for_each("name", some(NAMES, 2))
def test_each_bit_of_a_code_changes_that_code_alone(name, part, flip):
    tensor = flip(name)
    codes, scale = tensor.codes().numpy(), tensor.scale().numpy()
    for element in part(ELEMENTS[name]):
        place = tensor.locate(element).code
        assert place.file == "model.gguf"
        seen = set()
        for number, bit in enumerate(place.bits):
            other = flip(name, bit)
            after = other.codes().numpy()
            differ = changed(codes, after)
            assert np.array_equal(other.scale().numpy(), scale)
            if len(neighbors(name, element)) == 1:
                assert differ == [element], (name, element, bit)
                assert (int(codes[element]) ^ int(after[element])) & (1 << len(place.bits)) - 1 == 1 << number
            seen |= set(differ)
        assert element in seen <= neighbors(name, element)


@in_parts(9)
@for_each("name", some(NAMES[1:] + NAMES[:1], 2))
def test_each_bit_of_a_parameter_changes_its_block_alone(name, part, flip):
    tensor = flip(name)
    kind, element = BLOCK_TYPES[name], ELEMENTS[name][1]
    before, codes = tensor.read().numpy(), tensor.codes().numpy()
    location = tensor.locate(element)
    assert location.parameters.keys() & {"d", "scale_code"}
    assert location.parameters.keys().isdisjoint({"m", "min_code"}) == (tensor.min() is None)
    assert set(location.parameters) == set(tensor.stored()) - {"grid_index", "sign_index", "signs", "digits"}
    for role, place in location.parameters.items():
        stored = tensor.stored()[role].numpy()
        run = kind.elements * 2 // stored.shape[1]
        for bit in part(place.bits):
            other = flip(name, bit)
            assert np.array_equal(other.codes().numpy(), codes)
            assert changed(stored, other.stored()[role].numpy()) == [(element[0], element[1] // run)], (
                role,
                bit,
            )
            differ = changed(before, other.read().numpy())
            own = range(element[1] // run * run, element[1] // run * run + run)
            assert {row for row, _ in differ} <= {element[0]}
            assert {column for _, column in differ} <= set(own), (name, role, bit)
        assert changed(before, flip(name, place.bits[0]).read().numpy()), (name, role)


@for_each("name", NAMES)
def test_changed_codes_are_encoded_where_they_lie(name, flip):
    tensor = flip(name)
    codes = tensor.codes()
    assert encode(tensor)[name] == bytes(tensor.layout.pieces[""].bytes())
    element = ELEMENTS[name][1]
    other = codes.clone()
    other[element] = codes.min() if codes[element] != codes.min() else codes.max()
    if len(neighbors(name, element)) > 1 and name != "TQ1_0":
        with pytest.raises(QuantError, match="one grid row for several elements"):
            tensor.layout.encode({"codes": other})
        return
    again = tensor.layout.encode({"codes": other})[name]
    kind = BLOCK_TYPES[name]
    fields = kind.unpack(np.frombuffer(again, np.uint8))
    assert np.array_equal(kind.levels.codes(fields).reshape(codes.shape), other)
    before = np.frombuffer(tensor.layout.pieces[""].bytes(), np.uint8)
    places = {byte - tensor.layout.pieces[""].offset for byte, _ in tensor.locate(element).code.bits}
    assert set(np.flatnonzero(before != np.frombuffer(again, np.uint8)).tolist()) <= places


def test_there_is_no_such_element(flip):
    with pytest.raises(QuantError, match=r"There is no element \(2, 0\)"):
        flip("Q4_K").locate((2, 0))
