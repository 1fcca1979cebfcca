"""ONNX models for tests: small graphs, what onnxruntime's own tools make of them, and what it computes."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(25)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def model(nodes, initializers, inputs=(), outputs=(), opset=21):
    """A model; ``initializers``: name -> array, or TensorProtos; inputs and outputs: (name, type, shape)."""
    stored = [
        numpy_helper.from_array(np.asarray(value), name) if not isinstance(value, TensorProto) else value
        for name, value in initializers.items()
    ]
    ends = [[helper.make_tensor_value_info(*end) for end in given] for given in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ends, stored)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def saved(path: Path, given: onnx.ModelProto) -> Path:
    path.write_bytes(given.SerializeToString())
    return path


def computed(given: onnx.ModelProto, feeds=None):
    """The first output as onnxruntime computes it."""
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds or {})[0]


def dequantized(codes, scale, zero_point=None, axis=1):
    """The numbers that codes stand for, by onnxruntime's DequantizeLinear; 4-bit codes as onnx reads them."""
    stored = {"x": codes, "s": np.asarray(scale)}
    stored |= {} if zero_point is None else {"z": np.asarray(zero_point)}
    node = helper.make_node("DequantizeLinear", list(stored), ["y"], axis=axis)
    return computed(model([node], stored, outputs=[("y", TensorProto.FLOAT, None)])).astype(np.float32)


def arrays(given: onnx.ModelProto):
    """The initializers of the main graph."""
    return {stored.name: numpy_helper.to_array(stored) for stored in given.graph.initializer}


def network():
    """A small network with the layers whose weights onnxruntime quantizes."""
    stored = {
        "conv_w": floats(8, 3, 3, 3), "conv_b": floats(8), "pw_w": floats(6, 8, 1, 1), "mm_w": floats(6, 10),
        "gemm_w": floats(12, 10), "gemm_b": floats(12), "emb": floats(20, 12),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "conv_w", "conv_b"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "pw_w"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "mm_w"], ["mm"]),
        helper.make_node("Gemm", ["mm", "gemm_w", "gemm_b"], ["g"], transB=1),
        helper.make_node("Gather", ["emb", "i"], ["e"]),
        helper.make_node("Add", ["g", "e"], ["y"]),
    ]
    inputs = [("x", TensorProto.FLOAT, [1, 3, 8, 8]), ("i", TensorProto.INT64, [1])]
    return model(nodes, stored, inputs, [("y", TensorProto.FLOAT, [1, 12])], opset=17)


def lstm():
    """An LSTM of one direction."""
    stored = {"W": floats(1, 16, 5), "R": floats(1, 16, 4), "B": floats(1, 32)}
    node = helper.make_node("LSTM", ["x", "W", "R", "B"], ["y"], hidden_size=4)
    ends = [("x", TensorProto.FLOAT, [2, 1, 5])], [("y", TensorProto.FLOAT, [2, 1, 1, 4])]
    return model([node], stored, *ends, opset=17)
