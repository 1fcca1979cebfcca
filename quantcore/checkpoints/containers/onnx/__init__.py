"""``.onnx``: the stored tensors of a model, and the nodes that use them."""

from quantcore.checkpoints.containers.onnx.model import Node, OnnxGraph, consumers, open_onnx, producers
from quantcore.checkpoints.containers.onnx.tensors import OnnxType

__all__ = ["Node", "OnnxGraph", "OnnxType", "consumers", "open_onnx", "producers"]
