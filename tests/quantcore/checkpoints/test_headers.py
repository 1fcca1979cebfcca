"""Headers as JSON: what one process has read, another rebuilds bit for bit, and believes nothing of it."""

import copy
import json
import math
import random

import numpy as np
import pytest
import torch
from bounded import in_seconds
from checkpoint_cases import cases
from grid import for_each
from onnx import TensorProto, helper
from onnx_models import model, saved
from parts import some

from quantcore import QuantError
from quantcore.checkpoints import EXAMPLES, ByteCounter, assemble, headers, open_checkpoint, read_headers
from quantcore.checkpoints.containers import record
from quantcore.checkpoints.containers.gguf_header import LongArray
from quantcore.checkpoints.containers.stored import Container, StoredTensor
from quantcore.checkpoints.files.address import locate


def told(path):
    """The headers of a path, and what is rebuilt from their JSON with files opened anew."""
    folder, name = locate(path)
    found = read_headers(folder, name)
    text = json.dumps(headers.to_json(found), allow_nan=False)
    return found, headers.from_json(json.loads(text), locate(path)[0].open)


def made(folder):
    """A file of each kind whose bytes are derived: unpacked, rearranged, both, and numbers in fields."""
    rng = np.random.default_rng(0)
    arrays = {
        "plain": rng.normal(size=(6, 8)).astype(np.float32),
        "fortran": np.asfortranarray(rng.normal(size=(5, 3)).astype(np.float16)),
        "big_endian": rng.normal(size=(4, 2)).astype(">f4"),
        "scalar": np.float64(0.25),
        "empty": np.zeros((0, 3), np.float32),
        "flags": np.asfortranarray(rng.normal(size=(4, 4)) > 0),
    }
    np.savez(folder / "x.npz", **arrays)
    np.savez_compressed(folder / "y.npz", **arrays)
    np.save(folder / "x.npy", arrays["fortran"])
    base = torch.randn(6, 8)
    torch.save(
        {"a": base, "b": {"c": base.T, "d": base[1:4, 2:5]}, "e": torch.ones(1).expand(3, 2)}, folder / "x.pt"
    )
    fields = {
        "floats": helper.make_tensor(
            "floats", TensorProto.FLOAT, (2, 3), [0.5, -1, 2, math.nan, math.inf, 0]
        ),
        "halves": helper.make_tensor("halves", TensorProto.FLOAT16, (3,), [0.5, -1, 2]),
        "bytes": helper.make_tensor("bytes", TensorProto.INT8, (2, 2), [-128, -1, 0, 127]),
        "long": helper.make_tensor("long", TensorProto.INT64, (2,), [-(2**63), 2**63 - 1]),
        "raw": rng.normal(size=(3, 4)).astype(np.float32),
    }
    node = helper.make_node("MatMul", ["x", "raw"], ["y"], alpha=math.nan, count=3)
    saved(folder / "x.onnx", model([node], fields))
    return [folder / name for name in ("x.npz", "y.npz", "x.npy", "x.pt", "x.onnx")]


def differences(path):
    """What the rebuilt checkpoint has otherwise than the one opened here."""
    expected, (found, rebuilt) = open_checkpoint(path), told(path)
    other = assemble(rebuilt, ByteCounter())
    wrong = [] if str(found.problems) == str(rebuilt.problems) else ["problems"]
    for what in ("config", "quantization"):
        wrong += [what] * (
            repr(getattr(found, what)) != repr(getattr(rebuilt, what))
        )  # nan is not equal to itself
    for name, container in found.containers.items():
        again = rebuilt.containers[name]
        wrong += [f"{name} metadata"] * (repr(container.metadata) != repr(again.metadata))
        wrong += [f"{name} structure"] * (repr(container.structure) != repr(again.structure))
        for key, piece in container.tensors.items():
            one, two = (
                (p.name, p.dtype, p.shape, p.num_bytes, p.source.name, p.offset)
                for p in (piece, again.tensors[key])
            )
            wrong += [key] * (one != two or bytes(piece.bytes()) != bytes(again.tensors[key].bytes()))
    assert list(expected.tensors) == list(other.tensors)
    assert [p.sentence for p in expected.problems] == [p.sentence for p in other.problems]
    for name, tensor in expected.tensors.items():
        try:
            values = tensor.read()
        except QuantError as error:
            with pytest.raises(QuantError) as again:
                other.tensors[name].read()
            wrong += [f"{name} refused"] * (str(error) != str(again.value))
            continue
        wrong += [f"{name} values"] * (
            values.numpy().tobytes() != other.tensors[name].read().numpy().tobytes()
        )
    return wrong


@for_each("given", some(cases(""), 11), ids=str)
def test_golden_checkpoints_are_rebuilt(given):
    expected, found = sentence_of(open_checkpoint, given.release), sentence_of(told, given.release)
    assert found == expected
    assert expected or differences(given.release) == []


def sentence_of(opener, path):
    """What is said of a release that can't be opened; empty if it can."""
    try:
        opener(path)
    except QuantError as error:
        return str(error)
    return ""


@for_each("name", some(EXAMPLES, 3))
def test_examples_are_rebuilt(name):
    assert differences(EXAMPLES[name]) == []


def test_derived_bytes_are_rebuilt(tmp_path):
    for path in made(tmp_path):
        assert differences(path) == [], path


def test_values_of_metadata_are_exact():
    given = {
        "nan": math.nan, "inf": -math.inf, "zero": -0.0, "float32": float(np.float32(0.1)), "long": 2**64 - 1,
        "least": -(2**63), "flag": True, "none": None, "text": 'a"\n\ud800\0', "bytes": bytes(range(256)),
        "list": [1, [2.5, math.inf, "x"], []], "map": {"map": 1, "float": "nan"}, "array": LongArray(10**6, (1, math.nan)),
    }  # fmt: skip
    again = record.real_value(json.loads(json.dumps(record.plain_value(given), allow_nan=False)))
    assert repr(again) == repr(given)
    assert all(type(again[key]) is type(value) for key, value in given.items())


CHANGES = [
    None, True, -1, 0, 1, 2**40, 2**63, 2**200, 1.5, math.nan, "", "F32", "F64", "Q4_K", "../x", [], [[]], [0, 2**61], [2**40, 2**40],
    {}, {"map": 1}, ["unpacked", 0, "x", 0, 1, 2**20, 0], ["rearranged", 0, "x", 0, [2**20], [2**20], "<f4", 1], [-1, 3],
]  # fmt: skip


def places(value, path=()):
    """The paths of all values inside a JSON value."""
    yield path
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(inner, (*path, key))


def test_nothing_is_believed(tmp_path):
    """Any value replaced or dropped: a QuantError, or a container whose tensors lie in their files."""
    generator, refused = random.Random(0), 0
    for path in [*made(tmp_path), *(given.release for given in cases("gguf_k", "ct_sharded"))]:
        folder, name = locate(path)
        told = json.loads(json.dumps(headers.to_json(read_headers(folder, name))))
        paths = [place for place in places(told) if place]
        for _ in range(75):
            changed, place = copy.deepcopy(told), generator.choice(paths)
            inside = changed
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = generator.choice(CHANGES)
            try:
                found = headers.from_json(changed, folder.open)
            except QuantError:
                refused += 1
                continue
            for container in found.containers.values():
                for piece in container.tensors.values():
                    assert piece.offset + piece.num_bytes <= piece.source.size, (place, inside)
                    try:
                        assert len(piece.bytes()) == piece.num_bytes, (place, inside)
                    except QuantError:  # of derived bytes, such as a damaged member
                        assert piece.source.name not in folder.names, (place, inside)
    assert refused > 250


@for_each("strides", [[-1, 1], [2**40, 1], [8, 2]])
def test_strides_stay_in_their_bytes(strides, tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(np.zeros((4, 2), np.float32)))
    folder, name = locate(tmp_path / "x.npy")
    told = headers.to_json(read_headers(folder, name))
    source = told["containers"]["x.npy"]["sources"][1]
    assert source[0] == "rearranged"
    assert source[5] == [1, 4]
    source[5] = strides
    with pytest.raises(QuantError, match="damaged"):
        headers.from_json(told, folder.open)


@for_each("many", [8_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_tensors_take_little_time(many, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(bytes(4 * many))
    folder, name = locate(tmp_path / "x.safetensors")
    tensors = {
        f"model.layers.{i}.weight": StoredTensor(
            f"model.layers.{i}.weight", "F32", (1, 1), folder.open(name), 4 * i, 4
        )
        for i in range(many)
    }
    with in_seconds(many / 10_000):
        data = json.dumps(record.to_json(Container(tensors)))
        assert len(data) < 100 * many
        assert record.from_json(json.loads(data), folder.open) == Container(tensors)
