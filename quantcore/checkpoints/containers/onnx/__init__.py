"""``.onnx``: the initializers of a model, and which of them DequantizeLinear uses together."""

from quantcore.checkpoints.containers.onnx.model import Dequantize, OnnxGraph, OnnxType, open_onnx

__all__ = ["Dequantize", "OnnxGraph", "OnnxType", "open_onnx"]
