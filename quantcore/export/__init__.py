"""A result as files: arrays, tables, an ONNX model."""

from quantcore.export.files import arrays, to_csv, to_npz, to_safetensors
from quantcore.export.onnx import to_onnx

__all__ = ["arrays", "to_csv", "to_npz", "to_onnx", "to_safetensors"]
