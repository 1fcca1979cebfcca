"""ONNX initializers and QDQ pairs, against onnxruntime."""

import contextlib
import random

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from grid import for_each
from hostile_files import varint
from onnx import TensorProto, helper, numpy_helper

import quantcore as qc
from quantcore import QuantError
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.containers import onnx as containers
from quantcore.checkpoints.containers import protobuf
from quantcore.checkpoints.files.sources import MemorySource

RNG = np.random.default_rng(0)
TYPES = {
    "int8": (TensorProto.INT8, -128, 127),
    "uint8": (TensorProto.UINT8, 0, 255),
    "int4": (TensorProto.INT4, -8, 7),
    "uint4": (TensorProto.UINT4, 0, 15),
    "int16": (TensorProto.INT16, -32768, 32767),
}


def tensor(name, kind, values):
    return helper.make_tensor(name, kind, values.shape, values.reshape(-1).tolist())


def model(kind, shape, scale_shape, zero, scale_type=TensorProto.FLOAT, raw=False, **attributes):
    """A model that outputs its dequantized weight."""
    number, low, high = TYPES[kind]
    scale = RNG.uniform(0.01, 0.1, scale_shape).astype(
        np.float16 if scale_type == TensorProto.FLOAT16 else np.float32
    )
    weights = RNG.integers(low, high + 1, shape)
    initializers = [tensor("w", number, weights)]
    if raw:
        initializers = [numpy_helper.from_array(weights.astype(kind), "w")]
    initializers += [numpy_helper.from_array(scale, "s")]
    if zero:
        initializers.append(tensor("z", number, RNG.integers(low, high + 1, scale_shape)))
    inputs = ["w", "s", *(["z"] if zero else [])]
    node = helper.make_node("DequantizeLinear", inputs, ["y"], **attributes)
    output = helper.make_tensor_value_info("y", scale_type, shape)
    graph = helper.make_graph([node], "g", [], [output], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def dequantized(given):
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {})[0].astype(np.float32)


CASES = [
    ("int8", (6, 8), (), True, {}),
    ("int8", (6, 8), (6,), False, {"axis": 0}),
    ("int8", (6, 8), (8,), True, {"axis": 1}),
    ("uint8", (6, 8), (6,), True, {"axis": 0, "raw": True}),
    ("int16", (6, 8), (), True, {}),
    ("uint4", (6, 8), (6, 2), True, {"axis": 1, "block_size": 4}),
    ("int4", (5, 7), (5,), True, {"axis": 0}),
    ("int4", (8, 6), (4, 6), False, {"axis": 0, "block_size": 2}),
    ("int8", (6, 8), (8,), True, {"axis": -1, "scale_type": TensorProto.FLOAT16}),
    ("int8", (2, 3, 4), (3,), True, {"axis": 1}),
]


@for_each("case", CASES, ids=str)
def test_equals_onnxruntime(case, tmp_path):
    kind, shape, scale_shape, zero, options = case
    given = model(kind, shape, scale_shape, zero, **options)
    (tmp_path / "m.onnx").write_bytes(given.SerializeToString())
    checkpoint = open_checkpoint(tmp_path / "m.onnx")
    assert set(checkpoint.tensors) == {"w"}
    weight = checkpoint.tensors["w"]
    granularity = "per_group" if "block_size" in options else "per_channel" if scale_shape else "per_tensor"
    assert weight.storage.startswith(f"onnx {kind} {granularity}")
    assert weight.storage.split()[-1] == ("asymmetric" if zero else "symmetric")
    expected = dequantized(given)
    assert np.array_equal(weight.read().numpy(), expected)
    assert np.array_equal(weight.read(slice(1, 2)).numpy(), expected[1:2])
    result = weight.quantized()
    assert torch.equal(result.dequantized.to(getattr(torch, weight.dtype)).float(), weight.read())
    assert qc.trace(result, (1,) * len(shape)).steps()
    encoded = qc.checkpoints.encode(weight)
    assert encoded == {name: bytes(checkpoint.release.stored[name].bytes()) for name in encoded}


def test_external_data_stays_in_the_folder(tmp_path):
    given = model("uint8", (64, 64), (64,), True, axis=0, raw=True)
    expected = dequantized(given)
    onnx.save_model(
        given, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=16
    )
    weight = open_checkpoint(tmp_path / "m.onnx").tensors["w"]
    assert np.array_equal(weight.read().numpy(), expected)
    place = weight.locate((3, 5)).code
    assert place.file == "m.data"
    assert (tmp_path / "m.data").read_bytes()[place.offset] == weight.codes()[3, 5]
    for location in ("../m.data", "/etc/passwd", "missing.data"):
        outside = onnx.load(tmp_path / "m.onnx", load_external_data=False)
        next(e for e in outside.graph.initializer[0].external_data if e.key == "location").value = location
        (tmp_path / "n.onnx").write_bytes(outside.SerializeToString())
        with pytest.raises(QuantError, match=r"outside the folder|can't be opened"):
            open_checkpoint(tmp_path / "n.onnx")


def test_plain_initializers(tmp_path):
    values = RNG.normal(size=(3, 4)).astype(np.float32)
    initializers = [
        numpy_helper.from_array(values, "raw"),
        helper.make_tensor("fields", TensorProto.FLOAT, (3, 4), values.reshape(-1).tolist()),
        helper.make_tensor("half", TensorProto.FLOAT16, (3, 4), values.astype(np.float16).reshape(-1)),
        helper.make_tensor("integers", TensorProto.INT64, (3,), [1, -2, 2**40]),
        helper.make_tensor("nibbles", TensorProto.INT4, (5,), [1, -8, 7, 0, -1]),
    ]
    graph = helper.make_graph([], "g", [], [], initializers)
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    tensors = open_checkpoint(tmp_path / "m.onnx").tensors
    assert np.array_equal(tensors["raw"].read().numpy(), values)
    assert np.array_equal(tensors["fields"].read().numpy(), values)
    assert np.array_equal(tensors["half"].read().numpy(), values.astype(np.float16).astype(np.float32))
    assert tensors["integers"].read().tolist() == [1, -2, 2**40]
    assert tensors["nibbles"].read().tolist() == [1, -8, 7, 0, -1]
    assert tensors["nibbles"].storage == "onnx int4"  # without a scale, neither symmetric nor asymmetric
    assert not [f for f in open_checkpoint(tmp_path).findings() if f.severity != "note"]


def test_a_tensor_may_have_sixteen_axes(tmp_path):
    for axes in (16, 17):
        weight = numpy_helper.from_array(np.ones((1,) * axes, np.float32), "w")
        given = helper.make_model(helper.make_graph([], "g", [], [], [weight]))
        (tmp_path / f"{axes}.onnx").write_bytes(given.SerializeToString())
    assert open_checkpoint(tmp_path / "16.onnx").tensors["w"].shape == (1,) * 16
    with pytest.raises(QuantError, match="has a tensor of more than 16 axes"):
        open_checkpoint(tmp_path / "17.onnx")


def test_a_listing_skips_the_bytes(tmp_path):
    initializers = [numpy_helper.from_array(np.zeros((500, 500), np.float32), f"w{i}") for i in range(8)]
    graph = helper.make_graph([], "g", [], [], initializers)
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    checkpoint = open_checkpoint(tmp_path / "m.onnx")
    assert len(checkpoint.tensors) == 8
    assert checkpoint.counter.total < 100_000


def test_damaged_models(tmp_path):
    """Truncated or with bytes changed, a model opens or gives a QuantError."""
    data = model("uint4", (6, 8), (6, 2), True, axis=1, block_size=4).SerializeToString()
    rng = np.random.default_rng(2)
    opened = 0
    for _ in range(60):
        broken = bytearray(data[: rng.integers(1, len(data) + 1)] if rng.random() < 0.3 else data)
        broken[rng.integers(len(broken))] = rng.integers(256)
        (tmp_path / "m.onnx").write_bytes(broken)
        with contextlib.suppress(QuantError):
            for weight in open_checkpoint(tmp_path / "m.onnx").tensors.values():
                weight.read()
                opened += 1
    assert opened


@for_each("part", [7, 64, 1 << 20])
def test_packed_integers(part, monkeypatch):
    """However many bytes are decoded at once: of each length, also where one ends in the next part."""
    monkeypatch.setattr(protobuf, "PART", part)
    draw = random.Random(0)
    numbers = [draw.getrandbits(draw.randint(1, 64)) for _ in range(300)] + [0, 2**64 - 1]
    data = b"".join(varint(n) for n in numbers)
    source = MemorySource("x.onnx", bytearray(b"??" + data + b"??"))
    found = [int(n) for part in protobuf.packed_integers(source, (2, 2 + len(data))) for n in part]
    assert found == numbers
    for wrong in (b"\x80", b"\xff" * 11 + b"\x01", b"\x80" * 40):
        source = MemorySource("x.onnx", bytearray(wrong))
        with pytest.raises(QuantError, match="damaged"):
            list(protobuf.packed_integers(source, (0, len(wrong))))


@for_each("size", [4, 700])
def test_constant_weights_that_lie_together_are_read_together(size, tmp_path):
    """A step to another process has its price, and these models have thousands of constants."""
    values = RNG.normal(size=(200, size)).astype(np.float32)
    names = [f"c{i}" for i in range(len(values))]
    nodes = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(x, name))
        for name, x in zip(names, values, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([*nodes, helper.make_node("Sum", names, ["y"])], "g", [], [output])
    (tmp_path / "x.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    checkpoint = open_checkpoint(tmp_path / "x.onnx")
    assert checkpoint.counter.reads < 30
    for name, x in zip(names, values, strict=True):
        assert np.array_equal(checkpoint.tensors[name].read().numpy(), x), name


@for_each("kept", [200, 1 << 20])
def test_any_bytes_in_any_order(kept, monkeypatch):
    """What has been read before, and is forgotten, changes nothing."""
    for limit, value in {"_FEWEST": 3, "_MOST": 17, "_NEAR": 9, "_KEPT": kept, "_BEFORE": 4}.items():
        monkeypatch.setattr(protobuf, limit, value)
    rng = random.Random(6)
    data = rng.randbytes(400)
    wire = protobuf.Wire(MemorySource("x.onnx", bytearray(data)))
    for _ in range(600):
        start = rng.randrange(len(data))
        stop = min(start + rng.randrange(12), len(data))
        assert wire.bytes((start, stop)) == data[start:stop], (start, stop)


def test_an_initializer_with_more_numbers_in_fields_than_a_model_may_have_fields(tmp_path, monkeypatch):
    """As onnx.helper.make_tensor writes it: they are one packed field."""
    monkeypatch.setattr(protobuf, "MAX_FIELDS", 2000)
    w = np.arange(-3000, 3000).reshape(60, 100)
    stored = [
        helper.make_tensor("i", TensorProto.INT32, w.shape, w.reshape(-1)),
        helper.make_tensor("f", TensorProto.FLOAT, w.shape, w.reshape(-1) / 7),
        helper.make_tensor("h", TensorProto.FLOAT16, w.shape, w.reshape(-1) / 7),
        helper.make_tensor("u", TensorProto.UINT8, w.shape, w.reshape(-1) % 251),
    ]
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], stored)), tmp_path / "x.onnx")
    tensors = open_checkpoint(tmp_path / "x.onnx").tensors
    for each in stored:
        assert np.array_equal(
            tensors[each.name].read().numpy(), numpy_helper.to_array(each).astype(np.float32)
        ), each.name


def test_bits_of_every_type_are_those_of_onnx():
    for number, kind in containers.TYPES.items():
        stored = numpy_helper.from_array(np.zeros(8, helper.tensor_dtype_to_np_dtype(number)))
        assert (stored.data_type, len(stored.raw_data)) == (number, kind.bits), kind
