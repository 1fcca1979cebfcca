"""Weights of GGUF files, and the entries of imatrix files."""

from quantcore.checkpoints.layouts.gguf.imatrix import find as find_imatrix
from quantcore.checkpoints.layouts.gguf.weights import find as find_gguf

__all__ = ["find_gguf", "find_imatrix"]
