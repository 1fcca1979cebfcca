"""What onnxruntime's own tools write is read as the numbers it stands for, bit for bit as onnxruntime computes them."""

import contextlib
import logging

import numpy as np
import onnx
import pytest
from bounded import in_seconds
from grid import for_each
from onnx import TensorProto, helper
from onnx_models import RNG, arrays, computed, dequantized, floats, lstm, model, network, saved
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from parts import some

import quantcore as qc
from quantcore import QuantError
from quantcore.checkpoints import open_checkpoint
from quantcore.granularity import PerBlock

MICROSOFT = "com.microsoft"
# the axis of per-channel scales, where the tool stores the weight as the network has it
AXES = {"conv_w": 0, "pw_w": 0, "mm_w": 1, "gemm_w": 0, "emb": 0, "W": 2, "R": 2}


class Calibration(CalibrationDataReader):
    def __init__(self):
        self.left = 2

    def get_next(self):
        self.left -= 1
        return {"x": floats(1, 3, 8, 8), "i": np.array([self.left])} if self.left >= 0 else None


def dynamic(path, out, per_channel, kind):
    quantize_dynamic(path, out, per_channel=per_channel, weight_type=kind)


def static(path, out, per_channel, form, **options):
    quantize_static(path, out, Calibration(), quant_format=form, per_channel=per_channel, **options)


INT4 = {"weight_type": QuantType.QInt4}
UINT16 = {"weight_type": QuantType.QUInt16, "activation_type": QuantType.QUInt16, "extra_options": {"UseQDQContribOps": True}}
RELEASES = {
    "dynamic int8": (network, dynamic, False, QuantType.QInt8, {}),
    "dynamic uint8, per channel": (network, dynamic, True, QuantType.QUInt8, {}),
    "dynamic LSTM": (lstm, dynamic, False, QuantType.QInt8, {}),
    "dynamic LSTM, per channel": (lstm, dynamic, True, QuantType.QInt8, {}),
    "operators": (network, static, False, QuantFormat.QOperator, {}),
    "operators, per channel": (network, static, True, QuantFormat.QOperator, {}),
    "pairs": (network, static, False, QuantFormat.QDQ, {}),
    "pairs, int4 per channel": (network, static, True, QuantFormat.QDQ, INT4),
    "pairs, uint16": (network, static, False, QuantFormat.QDQ, UINT16),
}


# the others quantize each channel, which a tensor as a whole only repeats
WHOLE = ("dynamic int8", "dynamic LSTM", "operators")


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=[pytest.mark.slow] if n in WHOLE else [], id=n) for n in RELEASES],
)
def release(request, tmp_path_factory):
    make, quantize, per_channel, kind, options = RELEASES[request.param]
    folder = tmp_path_factory.mktemp("release")
    logging.disable(logging.WARNING)  # the tools advise to pre-process
    try:
        quantize(saved(folder / "float.onnx", make()), folder / "m.onnx", per_channel, kind, **options)
    finally:
        logging.disable(logging.NOTSET)
    return folder / "m.onnx", make


def expected(stored, name):
    """The numbers of a weight by DequantizeLinear, from the names that the tool gives its parameters."""
    base = name.removesuffix("_quantized")
    if name.endswith("_b_quantized"):  # the scale of a bias is that of the products
        scale = stored.get(f"{name}_scale")
        if scale is None:
            activation, weight = {"conv": ("x", "conv_w"), "gemm": ("mm", "gemm_w")}[base.removesuffix("_b")]
            scale = np.atleast_1d(stored[f"{activation}_scale"] * stored[f"{weight}_scale"])
        return dequantized(stored[name], scale if len(scale) > 1 else scale[0], axis=0)
    scale, zero_point = stored[f"{base}_scale"], stored[f"{base}_zero_point"]
    if scale.size == 1:
        return dequantized(stored[name], scale.reshape(()), zero_point.reshape(()))
    axis = AXES[base] if base != "gemm_w" or stored[name].shape == (12, 10) else 1  # dynamic: transposed to [in, out]
    return dequantized(stored[name], scale.reshape(-1), zero_point.reshape(-1), axis)


def test_weights_are_those_of_onnxruntime(release):
    path, make = release
    stored, checkpoint = arrays(onnx.load(path)), open_checkpoint(path)
    weights = {name for name in stored if name.endswith("_quantized")}
    wanted = {f"{name}_quantized" for name in arrays(make()) if name.endswith(("_w", "emb", "W", "R"))}
    assert wanted <= weights  # the tool quantized them
    quantized = {name for name, tensor in checkpoint.tensors.items() if tensor.storage.startswith("onnx")}
    assert quantized == weights
    for name in weights:
        tensor, values = checkpoint.tensors[name], expected(stored, name)
        assert np.array_equal(tensor.read().numpy(), values), name
        for index in (tuple(n - 1 for n in tensor.shape), (0,) * len(tensor.shape)):
            origin = tensor.origin(index)
            assert origin.value == values[index]
            assert origin.lines[-1].value == values[index]
        encoded = qc.checkpoints.encode(tensor)
        assert encoded == {key: bytes(checkpoint.release.stored[key].bytes()) for key in encoded}
    assert [f.sentence for f in checkpoint.findings() if f.severity == "error"] == []


def test_a_convolution_of_1_by_1_is_a_matrix(release):
    path, make = release
    if make is lstm:
        return
    tensor = open_checkpoint(path).tensors["pw_w_quantized"]
    matrix = open_checkpoint(path).as_matrices().tensors["pw_w_quantized"]
    assert tensor.shape == (6, 8, 1, 1)
    assert matrix.shape == (6, 8)
    assert np.array_equal(matrix.read().numpy(), tensor.read().numpy()[:, :, 0, 0])
    assert matrix.window().values.shape == (6, 8)
    assert matrix.origin((4, 5)).lines == tensor.origin((4, 5, 0, 0)).lines
    assert matrix.locate((4, 5)) == tensor.locate((4, 5, 0, 0))
    assert qc.checkpoints.encode(matrix) == qc.checkpoints.encode(tensor)


# bits, zero points, columns, stored flat, a group index
BLOCKS = [
    (bits, zero, columns, flat, False)
    for bits in (2, 4, 8)
    for zero in ("none", "packed", "floats")
    for columns, flat in ((96, False), (80, True))
    if (bits, zero) != (8, "floats")  # which the CPU kernel refuses
]
BLOCKS += [(4, "none", 96, False, True), (4, "floats", 80, False, True)]


def in_blocks(bits, zero, columns, flat, indexed, dtype=np.float32, size=32, rows=5):
    """A MatMulNBits node whose weight is its output, with the identity as its input."""
    blocks = -(-columns // size)
    codes = RNG.integers(0, 256, (rows, blocks, size * bits // 8)).astype(np.uint8)
    stored = {"B": codes, "s": RNG.uniform(0.01, 0.1, (rows, blocks)).astype(dtype)}
    names = ["A", "B", "s", "", ""]
    if zero == "packed":
        stored["z"] = RNG.integers(0, 256, (rows, -(-blocks * bits // 8))).astype(np.uint8)
    elif zero == "floats":
        stored["z"] = RNG.uniform(0, 2**bits - 1, (rows, blocks)).astype(dtype)
    if zero != "none":
        names[3] = "z"
    if indexed:
        stored["g"], names[4] = RNG.integers(0, blocks, columns).astype(np.int32), "g"
    if flat:
        stored = {name: value.reshape(-1) if name in "sz" else value for name, value in stored.items()}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain=MICROSOFT, N=rows, K=columns, bits=bits, block_size=size, name="mm"
    )
    ends = [("A", kind, [columns, columns])], [("y", kind, [columns, rows])]
    return model([node], stored, *ends)


def of_identity(given, columns, dtype=np.float32):
    return computed(given, {"A": np.eye(columns, dtype=dtype)}).T.astype(np.float32)


@for_each("case", some([(4, "packed", 80, False, False, np.float16), *BLOCKS], 2), ids=str)
def test_matmul_nbits_by_the_identity(case, tmp_path):
    given = in_blocks(*case)
    values = of_identity(given, case[2], *case[5:])
    tensor = open_checkpoint(saved(tmp_path / "m.onnx", given)).tensors["B"]
    assert tensor.shape == values.shape
    assert np.array_equal(tensor.read().numpy(), values)
    assert np.array_equal(tensor.read(slice(1, 3)).numpy(), values[1:3])
    assert tensor.origin((4, 79)).value == values[4, 79]
    assert tensor.codes()[3, 64] == tensor.quantized().codes[3, 64]
    encoded = qc.checkpoints.encode(tensor)
    stored = open_checkpoint(tmp_path / "m.onnx").release.stored
    wanted = {name: bytes(stored[name].bytes()) for name in encoded}
    assert encoded | {"z": b""} == wanted | {"z": b""}  # zero points are padded with bits of 0, here with random ones


def test_changed_codes_of_padded_rows_are_encoded(tmp_path):
    """Codes, but not the padding behind them, and read back as they were given."""
    path = saved(tmp_path / "m.onnx", in_blocks(4, "none", 80, False, False))
    tensor = open_checkpoint(path).tensors["B"]
    changed = -1 - tensor.codes()
    bytes_ = tensor.layout.encode({"codes": changed})
    piece = tensor.layout.pieces["x"]
    stored = bytes(piece.bytes())
    content = bytearray(path.read_bytes())
    content[piece.offset : piece.offset + piece.num_bytes] = bytes_["B"]
    path.write_bytes(content)
    assert np.array_equal(open_checkpoint(path).tensors["B"].codes().numpy(), changed.numpy())
    rows = [np.frombuffer(b, np.uint8).reshape(5, -1)[:, 40:] for b in (bytes_["B"], stored)]
    assert np.array_equal(*rows)


def test_zero_points_beside_a_group_index(tmp_path):
    """They are used, as by the operator's definition and with floats; the CPU kernel ignores packed ones: a rival."""
    given = in_blocks(4, "packed", 96, False, True)
    packed = arrays(given)["z"]
    unpacked = np.stack([packed & 15, packed >> 4], -1).reshape(5, -1)[:, :3].astype(np.float32)
    stored = {name: value for name, value in arrays(given).items() if name != "z"} | {"z": unpacked}
    ends = [("A", TensorProto.FLOAT, [96, 96])], [("y", TensorProto.FLOAT, [96, 5])]
    values = of_identity(model(list(given.graph.node), stored, *ends), 96)
    tensor = open_checkpoint(saved(tmp_path / "m.onnx", given)).tensors["B"]
    assert np.array_equal(tensor.read().numpy(), values)
    ignored = of_identity(given, 96)
    (rival,) = [r for r in tensor.rivals((2, 7)) if r.key == "zero_points_ignored"]
    assert rival.value == ignored[2, 7]
    assert rival.differing == int((ignored != values).sum())


@for_each("shape", [(6, 64), (5, 33)], ids=str)
@for_each("kind", ["fp4", "nf4"])
def test_tables_of_bitsandbytes(kind, shape, tmp_path):
    """MatMulBnb4 by the identity; a last block that is shorter, and a last byte that is half used."""
    (rows, columns), count = shape, shape[0] * shape[1]
    stored = {"B": RNG.integers(0, 256, -(-count // 2)).astype(np.uint8), "m": RNG.uniform(0.1, 2, -(-count // 32)).astype(np.float32)}
    node = helper.make_node(
        "MatMulBnb4", ["A", "B", "m"], ["y"], domain=MICROSOFT, N=rows, K=columns, block_size=32, quant_type=int(kind == "nf4")
    )  # fmt: skip
    ends = [("A", TensorProto.FLOAT, [columns, columns])], [("y", TensorProto.FLOAT, [columns, rows])]
    given = model([node], stored, *ends)
    values = of_identity(given, columns)
    tensor = open_checkpoint(saved(tmp_path / "m.onnx", given)).tensors["B"]
    assert tensor.storage == f"onnx {kind} per_flat_group(32)"
    assert np.array_equal(tensor.read().numpy(), values)
    assert np.array_equal(tensor.read(slice(2, 4)).numpy(), values[2:4])
    assert tensor.origin((rows - 1, columns - 1)).value == values[-1, -1]
    assert qc.trace(tensor.quantized(), (1, 3)).dequantized == values[1, 3]


@for_each("kind", [TensorProto.UINT4, TensorProto.INT4, TensorProto.UINT8])
@for_each("zero", [False, True])
def test_tables_in_blocks(kind, zero, tmp_path):
    rows, columns, size, bits = 6, 64, 16, 4
    low = -8 if kind == TensorProto.INT4 else 0
    if kind == TensorProto.UINT8:
        stored = {"w": RNG.integers(0, 256, (rows, columns // 2)).astype(np.uint8)}
        zeros = RNG.integers(0, 256, (rows, columns // size // 2)).astype(np.uint8)
    else:
        stored = {"w": helper.make_tensor("w", kind, (rows, columns), RNG.integers(low, low + 16, rows * columns).tolist())}
        count = rows * columns // size
        zeros = helper.make_tensor("z", kind, (rows, columns // size), RNG.integers(low, low + 16, count).tolist())
    stored |= {"s": RNG.uniform(0.01, 0.1, (rows, columns // size)).astype(np.float32)}
    stored |= {"z": zeros} if zero else {}
    node = helper.make_node(
        "GatherBlockQuantized", ["w", "i", "s", *(["z"] if zero else [])], ["y"], domain=MICROSOFT, gather_axis=0,
        quantize_axis=1, block_size=size, bits=bits,
    )  # fmt: skip
    ends = [("i", TensorProto.INT64, [rows])], [("y", TensorProto.FLOAT, [rows, columns])]
    given = model([node], stored, *ends)
    tensor = open_checkpoint(saved(tmp_path / "m.onnx", given)).tensors["w"]
    assert np.array_equal(tensor.read().numpy(), computed(given, {"i": np.arange(rows)}))


@for_each(("kind", "code", "zero_point"), [(TensorProto.INT8, 5, 2), (TensorProto.UINT4, 9, 3), (TensorProto.INT4, -8, 7)])
def test_single_numbers(kind, code, zero_point, tmp_path):
    """A weight without axes, as activations' bounds are: IndexError once."""
    stored = {name: helper.make_tensor(name, kind, (), [n]) for name, n in (("w", code), ("z", zero_point))}
    node = helper.make_node("DequantizeLinear", ["w", "s", "z"], ["y"])
    given = model([node], stored | {"s": np.float32(0.37)}, outputs=[("y", TensorProto.FLOAT, [])])
    tensor = open_checkpoint(saved(tmp_path / "m.onnx", given)).tensors["w"]
    assert tensor.shape == ()
    assert tensor.read().item() == tensor.origin(()).value == tensor.window().values.item() == computed(given)
    assert qc.trace(tensor.quantized(), ()).dequantized == computed(given)
    assert tensor.codes() == code


def test_a_weight_read_with_two_scales_is_two_weights(tmp_path):
    stored = {"w": RNG.integers(-128, 128, (4, 6)).astype(np.int8), "s": np.float32(0.5), "t": floats(6)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["first"]),
        helper.make_node("DequantizeLinear", ["w", "t"], ["second"], axis=1),
        helper.make_node("DequantizeLinear", ["w", "s"], ["again"], axis=0),
    ]
    tensors = open_checkpoint(saved(tmp_path / "m.onnx", model(nodes, stored))).tensors
    assert list(tensors) == ["w", "w in second"]
    assert np.array_equal(tensors["w"].read().numpy(), dequantized(stored["w"], stored["s"]))
    assert np.array_equal(tensors["w in second"].read().numpy(), dequantized(stored["w"], stored["t"], axis=1))


def test_constants_and_subgraphs(tmp_path):
    """Weights in Constant nodes, in both branches of an If and in the body of a Loop; those of one name by their graph."""
    weights = {branch: floats(3, 4) for branch in ("then", "else", "body")}
    codes, scale = RNG.integers(-128, 128, (3, 4)).astype(np.int8), np.float32(0.25)

    def constant(name, value):
        return helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.asarray(value), ""))

    def branch(name):
        nodes = [
            constant("w", weights[name]),
            helper.make_node("DequantizeLinear", ["codes", "scale"], [f"{name}_d"]),  # of the graph around it
            helper.make_node("Add", ["w", f"{name}_d"], [f"{name}_y"]),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [3, 4])])

    nodes = [
        constant("scale", scale), constant("codes", codes), constant("axes", np.array([1, 2])),
        helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch("then"), else_branch=branch("else")),
        helper.make_node("Loop", ["n", "c"], ["z"], name="loop", body=branch("body")),
    ]  # fmt: skip
    tensors = open_checkpoint(saved(tmp_path / "m.onnx", model(nodes, {}))).tensors
    assert set(tensors) == {"codes", "w", "choice.then_branch/w", "loop.body/w"}  # axes are no weights
    found = {tuple(tensors[name].read().numpy().ravel()) for name in set(tensors) - {"codes"}}
    assert found == {tuple(weight.ravel()) for weight in weights.values()}
    assert np.array_equal(tensors["codes"].read().numpy(), dequantized(codes, scale))


def pair(stored, opset=21, **attributes):
    """A DequantizeLinear of w, s and, if it is given, z."""
    names = ["w", "s", *(["z"] if "z" in stored or attributes.pop("has_zero", False) else [])]
    return model([helper.make_node("DequantizeLinear", names, ["y"], **attributes)], stored, opset=opset)


W, ONE = RNG.integers(-128, 128, (4, 6)).astype(np.int8), np.float32(0.5)
BAD = {
    "a missing scale": (pair({"w": W}), "computed in the graph, or missing"),
    "a zero point that is computed": (pair({"w": W, "s": ONE}, has_zero=True), "computed in the graph, or missing"),
    "a zero point of another type": (pair({"w": W, "s": ONE, "z": np.uint8(3)}), "its zero point is uint8"),
    "scales that don't fit": (pair({"w": W, "s": floats(5)}, axis=1), "holds 5 numbers"),
    "blocks that don't fit": (pair({"w": W, "s": floats(4, 5)}, axis=1, block_size=4), "holds 20 numbers"),
    "an axis that is not there": (pair({"w": W, "s": floats(4)}, axis=7), "along axis 7"),
    "an opset newer than known": (pair({"w": W, "s": ONE}, opset=99), "opset 99"),
    "no elements": (pair({"w": W[:0], "s": ONE}), "no elements"),
    "integers as scales": (pair({"w": W, "s": np.int32(3)}), "float scales"),
    "a group index of 8 bits": (in_blocks(8, "none", 64, False, True), "only with 4 bits"),
    "too few codes": (in_blocks(4, "none", 64, False, False), "bytes, which are not"),
    "a block size of 0": (in_blocks(4, "none", 64, False, False), "blocks of 0"),
    "packed for one device": (in_blocks(4, "none", 64, False, False), "weight_prepacked 1"),
}  # fmt: skip
CHANGED = {"too few codes": ("K", 128), "a block size of 0": ("block_size", 0), "packed for one device": ("weight_prepacked", 1)}


@for_each("name", BAD)
def test_what_can_not_be_read_gets_one_sentence(name, tmp_path):
    given, words = BAD[name]
    if name in CHANGED:
        key, value = CHANGED[name]
        node = given.graph.node[0]
        for attribute in [a for a in node.attribute if a.name == key]:
            node.attribute.remove(attribute)
        node.attribute.append(helper.make_attribute(key, value))
    checkpoint = open_checkpoint(saved(tmp_path / "m.onnx", given))
    (problem,) = checkpoint.problems
    assert words in problem.sentence
    assert problem.sentence.count(". ") == 0
    assert problem.sentence.endswith(".")
    with pytest.raises(QuantError):
        checkpoint.tensors[problem.tensors[0]].read()


def field(number, content):
    """A field of bytes in protobuf's wire format."""
    size, digits = len(content), []
    while size > 127:
        digits.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *digits, size]) + content


def test_graphs_nested_too_deep(tmp_path):
    graph = b""
    for _ in range(40):  # GraphProto.node, NodeProto.op_type and attribute, AttributeProto.name and g
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    (tmp_path / "m.onnx").write_bytes(field(7, graph))
    with pytest.raises(QuantError, match="nests more than 32 graphs"):
        open_checkpoint(tmp_path / "m.onnx")


def test_nodes_and_initializers_are_counted(tmp_path, monkeypatch):
    path = saved(tmp_path / "m.onnx", model([node("Relu", ["x"], ["y"], "")] * 2, {"w": W, "s": ONE}))
    monkeypatch.setattr("quantcore.checkpoints.containers.onnx.MAX_PARTS", 4)
    open_checkpoint(path)
    monkeypatch.setattr("quantcore.checkpoints.containers.onnx.MAX_PARTS", 3)
    with pytest.raises(QuantError, match="more than 3 nodes and initializers"):
        open_checkpoint(path)


def node(op, inputs, outputs, domain=MICROSOFT, **attributes):
    return helper.make_node(op, inputs, outputs, domain=domain, **attributes)


def test_an_lstm_of_two_directions(tmp_path):
    """One scale for each of them: its blocks are the weights of a direction."""
    codes = np.random.default_rng(0).integers(-127, 128, (2, 5, 16)).astype(np.int8)
    scale = np.array([0.5, 0.25], np.float32)
    stored = {"w": codes, "r": codes[:, :4], "s": scale, "z": np.zeros(2, np.int8)}
    path = saved(tmp_path / "m.onnx", model([node("DynamicQuantizeLSTM", ["x", "w", "r", *[""] * 5, *"szsz"], ["y"])], stored))
    tensor = open_checkpoint(path).tensors["w"]
    assert tensor.layout.granularity == PerBlock((1, 5, 16))
    assert np.array_equal(tensor.read().numpy(), codes * scale[:, None, None])
    assert tensor.origin((1, 4, 15)).value == codes[1, 4, 15] * scale[1]


ODD = {
    "an axis that is no number": [node("DequantizeLinear", ["w", "t"], ["y"], "", axis=float("nan"))],
    "a cast of nothing": [node("MatMulInteger", ["A", "w"], ["y"], ""), node("Cast", ["y"], [], "", to=1)],
    "scales of an LSTM for one number": [node("DynamicQuantizeLSTM", ["x", "one", *[""] * 6, "t"], ["y"])],
    "nodes without names and outputs": [node("DequantizeLinear", ["w", name], [], "") for name in ("s", "t")],
    "values that make one another": [node("Identity", [a], [b], "") for a, b in ("pq", "qp")]
    + [node("DequantizeLinear", ["p", "s"], ["y"], "")],
    "one name for 15,000 values": [node("Relu", ["x"], ["y"], "")] * 15_000,
}


@for_each("name", ODD)
def test_odd_graphs_open_at_once(name, tmp_path):
    stored = {"w": W, "s": ONE, "t": floats(6), "one": np.int8(3)}
    path = saved(tmp_path / "m.onnx", model(ODD[name], stored))
    with in_seconds(15):  # a second; without a bound, minutes
        for tensor in open_checkpoint(path).tensors.values():
            with contextlib.suppress(QuantError):
                tensor.read()
