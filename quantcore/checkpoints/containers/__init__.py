"""Reads the headers of checkpoint files: their stored tensors, and where their bytes are."""

from quantcore.checkpoints.containers.container import Container
from quantcore.checkpoints.containers.gguf import check_number, open_gguf, open_imatrix, parts
from quantcore.checkpoints.containers.index import INDEX, Index, read_index
from quantcore.checkpoints.containers.onnx import open_onnx
from quantcore.checkpoints.containers.safetensors import open_safetensors
from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.checkpoints.containers.zipped import open_npy, open_npz, open_torch

__all__ = [
    "Container",
    "INDEX",
    "Index",
    "StoredTensor",
    "TORCH_DTYPES",
    "open_npy",
    "open_npz",
    "open_onnx",
    "open_safetensors",
    "open_torch",
    "check_number",
    "open_gguf",
    "open_imatrix",
    "parts",
    "read_index",
]
